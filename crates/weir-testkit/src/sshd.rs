//! A real `sshd`, run without privileges on the loopback.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// Where Debian has the server.
pub const SSHD: &str = "/usr/sbin/sshd";

/// Runs a program and returns what it prints.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The content of a file.
pub fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// A server with keys of its own.
#[derive(Debug)]
pub struct Sshd {
    directory: TempDir,
    process: Child,
    /// Where it listens on the loopback.
    pub port: u16,
    /// Types of host keys.
    host_keys: Vec<&'static str>,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Makes a pair of keys at `path`; `more` goes to ssh-keygen.
pub fn generate(path: &Path, kind: &str, password: &str, more: &[&str]) {
    let path = path.to_str().unwrap();
    let mut arguments = vec!["-q", "-t", kind, "-N", password, "-C", "", "-f", path];
    arguments.extend_from_slice(more);
    run("ssh-keygen", &arguments);
}

impl Sshd {
    /// Starts a server with host keys of these types and more lines of configuration.
    pub fn start(host_keys: &[&'static str], options: &str) -> Self {
        let directory = TempDir::new().unwrap();
        if run("id", &["-u"]) == "0" {
            std::fs::create_dir_all("/run/sshd").unwrap();
        }
        let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        for kind in host_keys {
            generate(&directory.path().join(format!("host_{kind}")), kind, "", &[]);
        }
        std::fs::write(at("authorized_keys"), "").unwrap();
        // Another process may take the port first.
        for _ in 0..10 {
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut config = format!(
                "Port {port}\nListenAddress 127.0.0.1\nPidFile none\nUsePAM no\nStrictModes no\n\
                 PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n\
                 AuthorizedKeysFile {}\nLogLevel INFO\n{options}\n",
                at("authorized_keys")
            );
            for kind in host_keys {
                let _ = writeln!(config, "HostKey {}", at(&format!("host_{kind}")));
            }
            std::fs::write(at("config"), config).unwrap();
            let mut process = Command::new(SSHD)
                .args(["-D", "-e", "-f", &at("config")])
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
            let listening =
                lines.by_ref().map_while(Result::ok).any(|line| line.contains("Server listening"));
            // The server must be able to go on writing.
            std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
            if listening {
                return Self { directory, process, port, host_keys: host_keys.to_vec() };
            }
            process.wait().unwrap();
        }
        panic!("sshd does not start");
    }

    /// A file of the server.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A new private key that may log in.
    pub fn identity(&self, kind: &str, password: &str, more: &[&str]) -> String {
        let path = self.path(&format!("id_{kind}_{}", more.len()));
        generate(&path, kind, password, more);
        let mut authorized =
            std::fs::OpenOptions::new().append(true).open(self.path("authorized_keys")).unwrap();
        let public = text(&path.with_extension("pub"));
        authorized.write_all(public.as_bytes()).unwrap();
        text(&path)
    }

    /// Lines for `known_hosts` with all host keys.
    pub fn known_hosts(&self) -> String {
        let line = |kind: &&str| {
            let key = text(&self.path(&format!("host_{kind}.pub")));
            format!("[127.0.0.1]:{} {key}", self.port)
        };
        self.host_keys.iter().map(line).collect()
    }
}
