//! The controllers as child processes that can be killed and started again.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::eventually;

const START_DEADLINE: Duration = Duration::from_secs(30);
const STOP_DEADLINE: Duration = Duration::from_secs(20);

/// How a controller is started.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The name of the binary.
    pub binary: String,
    /// Its command line.
    pub arguments: Vec<String>,
    /// Its environment; nothing else is passed on but `PATH`.
    pub environment: Vec<(String, String)>,
    /// Where it reports its health.
    pub health: String,
    /// Where its output goes; a restart appends.
    pub log: PathBuf,
}

/// A controller.
pub struct Controller {
    launch: Launch,
    process: Option<Child>,
}

impl Controller {
    /// Starts it and waits until it says that it is ready.
    ///
    /// # Errors
    /// The binary is missing, ends, or is not ready in time; with the end of its log.
    pub async fn start(launch: Launch) -> Result<Self> {
        let mut controller = Self { launch, process: None };
        controller.spawn()?;
        controller.wait_ready().await?;
        Ok(controller)
    }

    /// Starts the process without waiting.
    ///
    /// # Errors
    /// The binary is missing or cannot be run.
    pub fn spawn(&mut self) -> Result<()> {
        let launch = &self.launch;
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&launch.log)?;
        let binary = binary_directory()?.join(&launch.binary);
        if !binary.is_file() {
            bail!("'{}' is not built; run: cargo build --package weir-{}", binary.display(), launch.binary);
        }
        let process = Command::new(&binary)
            .args(&launch.arguments)
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .envs(launch.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("run '{}'", binary.display()))?;
        self.process = Some(process);
        Ok(())
    }

    /// Waits until `/readyz` says yes.
    ///
    /// # Errors
    /// It ends or is not ready in time; with the end of its log.
    pub async fn wait_ready(&mut self) -> Result<()> {
        let (health, log) = (self.launch.health.clone(), self.launch.log.clone());
        let ready = eventually(START_DEADLINE, &format!("{} is ready", self.launch.binary), || {
            let health = health.clone();
            async move { probe(&health).await }
        })
        .await;
        if let Some(status) = self.process.as_mut().and_then(|process| process.try_wait().ok().flatten()) {
            bail!("{} ended with {status}:\n{}", self.launch.binary, tail(&log, 20));
        }
        ready.with_context(|| tail(&log, 20))
    }

    /// Ends the process with SIGKILL.
    ///
    /// # Errors
    /// It had ended by itself: a controller must not.
    pub async fn kill(&mut self) -> Result<()> {
        let mut process = self.process.take().context("the controller is not running")?;
        if let Some(status) = process.try_wait()? {
            bail!("{} had ended with {status}:\n{}", self.launch.binary, tail(&self.launch.log, 20));
        }
        process.kill().await?;
        Ok(())
    }

    /// Ends the process with SIGTERM and waits for it.
    ///
    /// # Errors
    /// It does not end in time or not with exit code 0.
    pub async fn stop(&mut self) -> Result<()> {
        let mut process = self.process.take().context("the controller is not running")?;
        let id = process.id().context("the controller has ended")?;
        Command::new("kill").args(["-TERM", &id.to_string()]).status().await?;
        let status = tokio::time::timeout(STOP_DEADLINE, process.wait()).await.map_err(|_| {
            anyhow!("{} does not stop on SIGTERM within {STOP_DEADLINE:?}", self.launch.binary)
        })??;
        if !status.success() {
            bail!("{} ended with {status}:\n{}", self.launch.binary, tail(&self.launch.log, 20));
        }
        Ok(())
    }

    /// Its resident memory, where the system tells.
    pub fn resident_kib(&self) -> Option<u64> {
        self.memory_kib("VmRSS:")
    }

    /// A figure about its memory, such as `VmHWM:`, where the system tells.
    pub fn memory_kib(&self, field: &str) -> Option<u64> {
        let id = self.process.as_ref()?.id()?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    }

    /// How long processors have worked for it, where the system tells.
    pub fn processor_seconds(&self) -> Option<f64> {
        /// What the kernel counts in, on every system Linux runs on today.
        const TICKS_PER_SECOND: f64 = 100.0;
        let id = self.process.as_ref()?.id()?;
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let (_, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        let (user, system): (f64, f64) = (fields.get(11)?.parse().ok()?, fields.get(12)?.parse().ok()?);
        Some((user + system) / TICKS_PER_SECOND)
    }

    /// All it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.launch.log).unwrap_or_default()
    }

    /// The last lines it logged.
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.launch.log, lines)
    }
}

/// A loopback address whose port is free now.
///
/// # Errors
/// There is no free port.
pub async fn free_address() -> Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    Ok(listener.local_addr()?.to_string())
}

/// Where cargo puts binaries: beside the folder of the running test, or as a variable says.
fn binary_directory() -> Result<PathBuf> {
    if let Some(directory) = std::env::var_os("WEIR_BIN_DIR") {
        return Ok(PathBuf::from(directory));
    }
    let running = std::env::current_exe()?;
    let directory = running.parent().context("the running program is in no folder")?;
    Ok(if directory.ends_with("deps") { directory.join("..") } else { directory.to_owned() })
}

async fn probe(address: &str) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.lines().next().unwrap_or_default().to_owned();
    if status.contains(" 200") { Ok(()) } else { Err(anyhow!("/readyz says '{status}'")) }
}

fn tail(log: &Path, lines: usize) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
