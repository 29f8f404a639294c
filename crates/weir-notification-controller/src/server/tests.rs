use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use weir_runtime::Metrics;

use super::*;

/// Echoes the length of the body; knows no path but those below `/known`.
struct Echo;

impl Handler for Echo {
    async fn admit(&self, target: &str) -> Result<(), Answer> {
        if target.starts_with("/known") { Ok(()) } else { Err(Answer::status(StatusCode::NOT_FOUND)) }
    }

    async fn handle(&self, request: Request) -> Answer {
        assert!(request.target != "/known/panic", "asked for");
        Answer::text(StatusCode::OK, &format!("{} {}", request.target, request.body.len()))
    }
}

struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    served: tokio::task::JoinHandle<()>,
}

impl Running {
    async fn start(limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let metrics = HttpMetrics::new("test", "/", false, &Metrics::new());
        let served = tokio::spawn(serve(listener, Arc::new(Echo), limits, metrics, stop.clone()));
        Self { address, stop, served }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends text and reads what comes until the server closes the connection.
    async fn send(&self, text: &str) -> String {
        let mut stream = self.connect().await;
        // The server may have answered and closed already.
        let _ = stream.write_all(text.as_bytes()).await;
        read_all(&mut stream).await
    }
}

async fn read_all(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    // A reset after the answer is as good as an end.
    let _ = stream.read_to_end(&mut read).await;
    String::from_utf8(read).unwrap()
}

fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

#[tokio::test]
async fn requests_are_read_and_answered() {
    let running = Running::start(Limits::default()).await;
    let answer = running.send(&post("/known?a=%20b", "12345")).await;
    assert!(answer.ends_with("/known?a=%20b 5\n"), "{answer}");
    let chunked = "POST /known HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    assert!(running.send(chunked).await.ends_with("/known 5\n"));
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_however_it_is_sent() {
    let running = Running::start(Limits { body_bytes_max: 1000, ..Limits::default() }).await;
    assert_eq!(status(&running.send(&post("/known", &"x".repeat(1000))).await), "200");
    assert_eq!(status(&running.send(&post("/known", &"x".repeat(1001))).await), "413");
    // Announced only: it is refused without waiting for it.
    let announced = "POST /known HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999\r\n\r\n";
    assert_eq!(status(&running.send(announced).await), "413");
    let mut chunked = "POST /known HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
    for _ in 0..3 {
        chunked.push_str("190\r\n");
        chunked.push_str(&"x".repeat(0x190));
        chunked.push_str("\r\n");
    }
    assert_eq!(status(&running.send(&chunked).await), "413");
}

#[tokio::test]
async fn headers_that_are_too_large_or_too_many_are_refused() {
    let running = Running::start(Limits { header_bytes_max: 16 << 10, ..Limits::default() }).await;
    let large = format!("GET /known HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(20 << 10));
    assert_eq!(status(&running.send(&large).await), "431");
    let mut many = "GET /known HTTP/1.1\r\nHost: a\r\n".to_owned();
    for number in 0..1001 {
        use std::fmt::Write as _;
        write!(many, "x{number}: 1\r\n").unwrap();
    }
    many.push_str("\r\n");
    assert_eq!(status(&running.send(&many).await), "431");
}

#[tokio::test]
async fn nonsense_is_refused() {
    let running = Running::start(Limits::default()).await;
    for nonsense in [
        "\u{0}\u{1}\u{2}\r\n\r\n",
        "POST /known\r\n\r\n",
        "POST /known HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST /known HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        "POST /known HTTP/1.1\r\nHost a\r\n\r\n",
        "POST /known HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ] {
        assert_eq!(status(&running.send(nonsense).await), "400", "{nonsense}");
    }
    assert_eq!(status(&running.send(&post("/known", "a")).await), "200", "it still serves");
}

#[tokio::test]
async fn an_unknown_path_is_answered_without_reading_the_body() {
    let running = Running::start(Limits::default()).await;
    let announced = "POST /other HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n";
    let answer = running.send(announced).await;
    assert_eq!(status(&answer), "404");
    assert!(answer.contains("connection: close"), "{answer}");
}

#[tokio::test]
async fn slow_senders_are_cut_off_and_others_are_served_meanwhile() {
    let (short, long) = (Duration::from_millis(200), Duration::from_hours(1));
    let headers = Limits { header_timeout: short, read_timeout: long, ..Limits::default() };
    let running = Running::start(headers).await;
    let mut silent = running.connect().await;
    let mut half_a_header = running.connect().await;
    half_a_header.write_all(b"POST /known HT").await.unwrap();
    assert_eq!(status(&running.send(&post("/known", "a")).await), "200");
    // Each returns only because the server ends the connection.
    for stream in [&mut silent, &mut half_a_header] {
        let answer = read_all(stream).await;
        assert!(answer.is_empty() || status(&answer) == "408", "{answer}");
    }
    let body = Limits { header_timeout: long, read_timeout: short, ..Limits::default() };
    let running = Running::start(body).await;
    let mut half_a_body = running.connect().await;
    half_a_body.write_all(b"POST /known HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc").await.unwrap();
    assert_eq!(status(&running.send(&post("/known", "a")).await), "200");
    assert_eq!(status(&read_all(&mut half_a_body).await), "400");
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let running =
        Running::start(Limits { header_timeout: Duration::from_millis(200), ..Limits::default() }).await;
    let mut stream = running.connect().await;
    stream.write_all(b"GET /known HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let answer = read_all(&mut stream).await;
    assert!(answer.ends_with("/known 0\n"), "{answer}");
}

#[tokio::test]
async fn all_bodies_together_are_bounded() {
    let limits =
        Limits { buffered_bytes_max: 3000, read_timeout: Duration::from_hours(1), ..Limits::default() };
    let running = Running::start(limits).await;
    // Announces much and sends nothing: holds nothing.
    let mut announcing = running.connect().await;
    announcing.write_all(b"POST /known HTTP/1.1\r\nHost: a\r\nContent-Length: 3000\r\n\r\n").await.unwrap();
    assert_eq!(status(&running.send(&post("/known", &"x".repeat(2000))).await), "200");
    announcing.write_all("x".repeat(2000).as_bytes()).await.unwrap();
    // As soon as the server has taken those bytes in, there is no room for another 2000.
    while status(&running.send(&post("/known", &"x".repeat(2000))).await) == "200" {}
    assert_eq!(status(&running.send(&post("/known", &"x".repeat(2000))).await), "503");
    assert_eq!(status(&running.send(&post("/known", &"x".repeat(500))).await), "200");
    drop(announcing);
    while status(&running.send(&post("/known", &"x".repeat(2000))).await) != "200" {}
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let running = Running::start(Limits { connections_max: 2, ..Limits::default() }).await;
    let held = [running.connect().await, running.connect().await];
    let mut waiting = running.connect().await;
    waiting.write_all(post("/known", "abc").as_bytes()).await.unwrap();
    drop(held);
    assert_eq!(status(&read_all(&mut waiting).await), "200");
}

#[tokio::test]
async fn a_panic_costs_one_request() {
    let running = Running::start(Limits::default()).await;
    assert_eq!(status(&running.send(&post("/known/panic", "a")).await), "500");
    assert_eq!(status(&running.send(&post("/known", "a")).await), "200");
}

#[tokio::test]
async fn a_burst_of_ten_thousand_requests_is_answered() {
    let running = Arc::new(Running::start(Limits::default()).await);
    let clients = (0..50).map(|_| {
        let running = Arc::clone(&running);
        tokio::spawn(async move {
            let mut stream = running.connect().await;
            let request = post("/known", "12345").replace("Connection: close\r\n", "");
            let mut answered = 0;
            for _ in 0..200 {
                stream.write_all(request.as_bytes()).await.unwrap();
                let mut read = Vec::new();
                while !read.ends_with(b"/known 5\n") {
                    assert!(stream.read_buf(&mut read).await.unwrap() > 0);
                }
                answered += 1;
            }
            answered
        })
    });
    let answered: Vec<i32> =
        futures::future::join_all(clients).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(answered.iter().sum::<i32>(), 10_000);
}

#[tokio::test]
async fn told_to_stop_it_ends_even_with_open_connections() {
    let running =
        Running::start(Limits { stop_grace: Duration::from_millis(100), ..Limits::default() }).await;
    let mut half_a_body = running.connect().await;
    half_a_body.write_all(b"POST /known HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc").await.unwrap();
    assert_eq!(status(&running.send(&post("/known", "a")).await), "200");
    running.stop.cancel();
    running.served.await.unwrap();
    TcpStream::connect(running.address).await.unwrap_err();
}
