//! Simulated time: it stands still while something is done, and goes on at once while all wait for it.
//!
//! A simulation runs on one thread, on a runtime whose clock can be stopped. While it is stopped and nothing is left to
//! do, it moves to the next deadline; while another thread computes, it stands. So a health check that fails after five
//! minutes fails at once. Answers of the network need the time of the machine: while one is awaited, the clock runs.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;
use tokio::time::Instant;
use weir_base::clock::Clock;

/// The stopped clock moves at most so far at once while anything goes on: what came over a loopback socket meanwhile is
/// seen in between, so no deadline overtakes it.
const STEP: Duration = Duration::from_millis(5);
/// And so far when nothing does.
const STEP_MAX: Duration = Duration::from_millis(320);
/// When the stopped clock has not moved for so long, somebody may wait for it where the runtime does not see that.
const PULSE: Duration = Duration::from_secs(1);

/// The time within a simulation: that of the machine when it began, and what has passed since.
#[derive(Debug, Clone)]
pub(crate) struct Time {
    began: Timestamp,
    start: Instant,
    stopped: Arc<AtomicBool>,
}

impl Clock for Time {
    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.elapsed()).unwrap_or(SignedDuration::MAX);
        self.began.saturating_add(passed).unwrap_or(Timestamp::MAX)
    }
}

impl Time {
    /// How much time has passed in the simulation.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Lets time pass only while all wait for it.
    pub(crate) fn skip(&self) {
        if !self.stopped.swap(true, Ordering::Relaxed) {
            tokio::time::pause();
        }
    }

    /// Whether time passes only while all wait for it.
    pub(crate) fn skips(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Lets time pass at the pace of the machine.
    pub(crate) fn flow(&self) {
        if self.stopped.swap(false, Ordering::Relaxed) {
            tokio::time::resume();
        }
    }
}

/// Runs to the end on this thread, which must be one that may block. Time runs until it is told to skip.
///
/// # Errors
/// The system gives no runtime.
pub(crate) fn run<T, W: Future<Output = T>>(work: impl FnOnce(Time) -> W) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(async {
        let stopped = Arc::new(AtomicBool::new(false));
        let time = Time { began: Timestamp::now(), start: Instant::now(), stopped };
        let work = std::pin::pin!(work(time.clone()));
        tokio::select! {
            result = work => result,
            never = take_steps() => never,
            never = watch(&time) => never,
        }
    }))
}

/// Keeps the steps of the clock small: it grows while the runtime is woken by nothing else.
async fn take_steps<T>() -> T {
    let metrics = tokio::runtime::Handle::current().metrics();
    let mut step = STEP;
    let mut parks = 0;
    loop {
        tokio::time::sleep(step).await;
        let now = metrics.worker_park_count(0);
        step = if now - parks <= 1 { (step * 2).min(STEP_MAX) } else { STEP };
        parks = now;
    }
}

/// Lets the clock run when it has stood still for too long: a thread that computes may wait for a deadline as well.
async fn watch<T>(time: &Time) -> T {
    let (sender, mut pulses) = mpsc::channel(1);
    std::thread::spawn(move || {
        while !sender.is_closed() {
            std::thread::sleep(PULSE);
            // One that is not taken yet is enough.
            let _ = sender.try_send(());
        }
    });
    let mut last = Instant::now();
    while pulses.recv().await.is_some() {
        let now = Instant::now();
        if now == last {
            time.flow();
        }
        last = now;
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_come_at_once_and_the_clock_follows() {
        let passed = run(async |time| {
            time.skip();
            let before = time.now();
            tokio::time::sleep(Duration::from_hours(1)).await;
            time.now().duration_since(before)
        })
        .unwrap();
        assert_eq!(passed.as_secs(), 3600);
    }

    #[test]
    fn an_answer_over_a_socket_is_not_overtaken_by_its_deadline() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let read = run(async |time| {
            let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(async move {
                let (mut socket, _) = listener.accept().await.unwrap();
                socket.write_all(&vec![0; 1024 * 1024]).await.unwrap();
            });
            time.skip();
            let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
            let mut all = Vec::new();
            tokio::time::timeout(Duration::from_secs(30), socket.read_to_end(&mut all))
                .await
                .unwrap()
                .unwrap()
        })
        .unwrap();
        assert_eq!(read, 1024 * 1024);
    }

    #[test]
    fn a_thread_that_waits_for_a_deadline_is_not_forgotten() {
        run(async |time| {
            time.skip();
            let handle = tokio::runtime::Handle::current();
            let wait = move || handle.block_on(tokio::time::sleep(Duration::from_millis(10)));
            tokio::task::spawn_blocking(wait).await.unwrap();
        })
        .unwrap();
    }
}
