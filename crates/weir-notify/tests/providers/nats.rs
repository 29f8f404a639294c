//! A NATS server of a few lines, by the documentation of its protocol.

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use weir_notify::identity::Environment;

use crate::case::{Case, Rule, event};
use crate::mock::sender;

const SEED: &str = "SUAKYRHVIOREXV7EUZTBHUHL7NUMHPMAS7QMDU3GTIUWEI5LDNOXD43IZY";

fn case(secret: &[(&str, &str)]) -> Case {
    let base = Case::named("generic");
    let spec =
        serde_json::json!({"type": "nats", "address": "{base}", "channel": "flux.events", "timeout": "5s"});
    Case {
        name: "nats".to_owned(),
        spec: serde_json::from_value(spec).unwrap(),
        secret: secret.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        rules: Vec::<Rule>::new(),
        ..base
    }
}

/// Serves one connection; what the client said: the options of CONNECT and the message.
async fn server(
    info: &'static str,
    refuse: Option<&'static str>,
) -> (String, tokio::task::JoinHandle<(serde_json::Value, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("nats://{}", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        stream.write_all(format!("INFO {info}\r\n").as_bytes()).await.unwrap();
        let (mut options, mut message) = (serde_json::Value::Null, Vec::new());
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap() == 0 {
                return (options, message);
            }
            let line = line.strip_suffix("\r\n").unwrap();
            if let Some(json) = line.strip_prefix("CONNECT ") {
                options = serde_json::from_str(json).unwrap();
                if let Some(refuse) = refuse {
                    stream.write_all(format!("-ERR '{refuse}'\r\n").as_bytes()).await.unwrap();
                    return (options, message);
                }
            } else if line == "PING" {
                // A server asks as well now and then.
                stream.write_all(b"PING\r\nPONG\r\n").await.unwrap();
            } else if let Some(head) = line.strip_prefix("PUB ") {
                let (subject, length) = head.split_once(' ').unwrap();
                assert_eq!(subject, "flux.events");
                message = vec![0; length.parse().unwrap()];
                stream.read_exact(&mut message).await.unwrap();
                let mut end = [0; 2];
                stream.read_exact(&mut end).await.unwrap();
                assert_eq!(&end, b"\r\n");
            } else {
                assert_eq!(line, "PONG");
            }
        }
    });
    (base, served)
}

async fn publish(case: &Case, base: &str) -> Result<(), String> {
    let job = case.job(base, event("success"));
    sender(Environment::default()).deliver(job).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn events_are_published_with_a_login() {
    let (base, served) = server(r#"{"server_id":"x","max_payload":1048576}"#, None).await;
    publish(&case(&[("username", "flux"), ("password", "s3cr3t-password")]), &base).await.unwrap();
    let (options, message) = served.await.unwrap();
    assert_eq!(options["user"], "flux");
    assert_eq!(options["pass"], "s3cr3t-password");
    assert_eq!(options["name"], "NATS Provider Publisher");
    assert_eq!(message, event("success").to_json());
}

#[tokio::test]
async fn keys_sign_what_the_server_asks() {
    use ring::signature::{ED25519, UnparsedPublicKey};
    let (base, served) = server(r#"{"nonce":"PXoWU7zWAMt75FY","max_payload":1048576}"#, None).await;
    publish(&case(&[("nkey", SEED), ("username", "a"), ("password", "b")]), &base).await.unwrap();
    let (options, _) = served.await.unwrap();
    assert!(options.get("user").is_none());
    let public = options["nkey"].as_str().unwrap();
    // Five bits per character; the key is behind the byte of the prefix.
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0_u32, 0);
    for byte in public.bytes() {
        let value = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".iter().position(|known| *known == byte).unwrap();
        held = (held << 5 | u32::try_from(value).unwrap()) & 0xfff;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff).unwrap());
        }
    }
    let signature = base64::Engine::decode(
        &base64::engine::general_purpose::URL_SAFE_NO_PAD,
        options["sig"].as_str().unwrap(),
    )
    .unwrap();
    UnparsedPublicKey::new(&ED25519, &bytes[1..33]).verify(b"PXoWU7zWAMt75FY", &signature).unwrap();
}

#[tokio::test]
async fn refusals_are_told() {
    let (base, _served) = server(r#"{"max_payload":1048576}"#, Some("Authorization Violation")).await;
    let error = publish(&case(&[]), &base).await.unwrap_err();
    assert!(error.ends_with("Authorization Violation"), "{error}");
    let (base, _served) = server(r#"{"max_payload":16}"#, None).await;
    let error = publish(&case(&[]), &base).await.unwrap_err();
    assert!(error.ends_with("the server takes at most 16 bytes"), "{error}");
}

#[tokio::test]
async fn subjects_cannot_hold_commands() {
    for subject in ["a\r\nPUB b 0\r\n", "a b", "a.*", "a..b", ">"] {
        let mut case = case(&[]);
        case.spec.channel = Some(subject.to_owned());
        let error = publish(&case, "nats://127.0.0.1:1").await.unwrap_err();
        assert_eq!(error, "invalid NATS subject (channel)", "{subject:?}");
    }
}
