//! A real registry, Debian's `docker-registry`, with TLS and passwords.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// The program.
pub const PROGRAM: &str = "docker-registry";
/// `user` with the password `s3cret`.
const PASSWORDS: &str = "user:$2y$05$qRQ63gVX26nv1mY1rS1JS.SW5V3q1YS/iwOzko604WjOdNGretrK2\n";

/// A registry for `user` with the password `s3cret`.
#[derive(Debug)]
pub struct Registry {
    /// Host and port.
    pub address: String,
    /// The certificate of its authority.
    pub authority: String,
    process: Child,
    _directory: TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Registry {
    /// Starts an empty one.
    pub fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(at("tls.crt"), certificate.cert.pem()).unwrap();
        std::fs::write(at("tls.key"), certificate.signing_key.serialize_pem()).unwrap();
        std::fs::write(at("passwords"), PASSWORDS).unwrap();
        // Another process may take the port first.
        for _ in 0..10 {
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let address = format!("127.0.0.1:{port}");
            let config = format!(
                "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\n  delete:\n    enabled: true\n\
                 http:\n  addr: {address}\n  secret: x\n  tls:\n    certificate: {}\n    key: {}\n\
                 auth:\n  htpasswd:\n    realm: test\n    path: {}\n",
                at("storage"),
                at("tls.crt"),
                at("tls.key"),
                at("passwords")
            );
            std::fs::write(at("config.yml"), config).unwrap();
            let mut process = Command::new(PROGRAM)
                .args(["serve", &at("config.yml")])
                .env_clear()
                .env("PATH", std::env::var_os("PATH").unwrap())
                .env("OTEL_TRACES_EXPORTER", "none")
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
            let listening = lines.by_ref().map_while(Result::ok).any(|line| line.contains("listening on"));
            // The server must be able to go on writing.
            std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
            if listening {
                return Self { address, authority: certificate.cert.pem(), process, _directory: directory };
            }
            let _ = process.wait();
        }
        panic!("{PROGRAM} does not start");
    }
}
