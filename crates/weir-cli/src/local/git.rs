//! A read-only Git server for one commit made of files in memory: smart HTTP, protocol version 2.
//!
//! Every commit stands alone, without parents, and a fetch always sends all its objects: fleets are small, and the
//! other end keeps what it has.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, RwLock};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha1::{Digest as _, Sha1};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::files::{File, Files};

/// The one branch.
pub(crate) const BRANCH: &str = "main";
/// The largest payload of a packet with a side band.
const PACKET_BYTES_MAX: usize = 65_515;
const NAME: &str = "Weir <weir@localhost>";

/// An object of Git by its kind and content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Commit,
    Tree,
    Blob,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Tree => "tree",
            Self::Blob => "blob",
        }
    }

    /// The number of the kind in a pack.
    fn number(self) -> u8 {
        match self {
            Self::Commit => 1,
            Self::Tree => 2,
            Self::Blob => 3,
        }
    }
}

type Id = [u8; 20];

/// A commit with all its objects, as a pack.
#[derive(Debug, Clone)]
pub(crate) struct Commit {
    id: Id,
    pack: Bytes,
}

impl Commit {
    /// A commit of these files; the same files at the same time give the same commit.
    pub(crate) fn new(files: &Files, message: &str, seconds: i64) -> Self {
        let mut objects = Objects::default();
        let tree = objects.tree(files, "");
        let text = format!(
            "tree {}\nauthor {NAME} {seconds} +0000\ncommitter {NAME} {seconds} +0000\n\n{message}\n",
            hex(&tree)
        );
        let id = objects.add(Kind::Commit, text.into_bytes());
        Self { id, pack: objects.pack().into() }
    }

    /// The revision as a source reports it.
    pub(crate) fn revision(&self) -> String {
        format!("{BRANCH}@sha1:{}", hex(&self.id))
    }
}

#[derive(Default)]
struct Objects {
    all: BTreeMap<Id, (Kind, Vec<u8>)>,
}

impl Objects {
    fn add(&mut self, kind: Kind, content: Vec<u8>) -> Id {
        let mut hash = Sha1::new();
        hash.update(format!("{} {}\0", kind.name(), content.len()));
        hash.update(&content);
        let id: Id = hash.finalize().into();
        self.all.insert(id, (kind, content));
        id
    }

    /// The tree of the files below a folder, whose path ends with a slash unless it is the root.
    fn tree(&mut self, files: &Files, folder: &str) -> Id {
        // Git sorts folders as if their names ended with a slash.
        let mut entries: BTreeMap<String, (&str, String, Id)> = BTreeMap::new();
        for (path, file) in files.range(folder.to_owned()..) {
            let Some(rest) = path.strip_prefix(folder) else { break };
            if let Some((name, _)) = rest.split_once('/') {
                if let Entry::Vacant(entry) = entries.entry(format!("{name}/")) {
                    let id = self.tree(files, &format!("{folder}{name}/"));
                    entry.insert(("40000", name.to_owned(), id));
                }
            } else {
                let File { content, executable } = file;
                let mode = if *executable { "100755" } else { "100644" };
                let id = self.add(Kind::Blob, content.clone());
                entries.insert(rest.to_owned(), (mode, rest.to_owned(), id));
            }
        }
        let mut content = Vec::new();
        for (mode, name, id) in entries.values() {
            content.extend_from_slice(format!("{mode} {name}\0").as_bytes());
            content.extend_from_slice(id);
        }
        self.add(Kind::Tree, content)
    }

    fn pack(&self) -> Vec<u8> {
        let mut pack = b"PACK".to_vec();
        pack.extend_from_slice(&2_u32.to_be_bytes());
        pack.extend_from_slice(&(self.all.len() as u32).to_be_bytes());
        for (kind, content) in self.all.values() {
            let mut size = content.len();
            let mut byte = (kind.number() << 4) | (size & 0x0f) as u8;
            size >>= 4;
            while size > 0 {
                pack.push(byte | 0x80);
                byte = (size & 0x7f) as u8;
                size >>= 7;
            }
            pack.push(byte);
            let mut encoder = ZlibEncoder::new(&mut pack, Compression::fast());
            // Writing to memory does not fail.
            let _ = encoder.write_all(content);
            let _ = encoder.finish();
        }
        let digest: Id = Sha1::digest(&pack).into();
        pack.extend_from_slice(&digest);
        pack
    }
}

fn hex(id: &Id) -> String {
    use std::fmt::Write as _;
    id.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

type Served = Arc<RwLock<Commit>>;

/// The server. It stops when this is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    served: Served,
    task: JoinHandle<()>,
}

impl Server {
    /// Serves a commit on a free loopback port.
    pub(crate) async fn start(commit: Commit) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let served = Arc::new(RwLock::new(commit));
        let router = Router::new()
            .route("/fleet.git/info/refs", get(advertise))
            .route("/fleet.git/git-upload-pack", post(upload_pack))
            .with_state(Arc::clone(&served));
        let task = tokio::spawn(async move {
            // It ends with the process.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, served, task })
    }

    /// Where the repository is.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/fleet.git", self.address)
    }

    /// Serves another commit from now on.
    pub(crate) fn replace(&self, commit: Commit) {
        *self.served.write().unwrap_or_else(std::sync::PoisonError::into_inner) = commit;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn current(served: &Served) -> Commit {
    served.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
}

fn answer(media_type: &'static str, body: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, media_type), (header::CACHE_CONTROL, "no-cache")], body).into_response()
}

async fn advertise() -> Response {
    let mut body = Vec::new();
    packet(&mut body, b"# service=git-upload-pack\n");
    flush(&mut body);
    for line in ["version 2\n", "agent=weir\n", "ls-refs=unborn\n", "fetch=shallow\n", "object-format=sha1\n"]
    {
        packet(&mut body, line.as_bytes());
    }
    flush(&mut body);
    answer("application/x-git-upload-pack-advertisement", body)
}

async fn upload_pack(State(served): State<Served>, body: Bytes) -> Response {
    let commit = current(&served);
    let request = Request::read(&body);
    let reply = match request.command.as_deref() {
        Some("ls-refs") => list(&commit, &request),
        Some("fetch") => fetch(&commit, &request),
        _ => return (StatusCode::BAD_REQUEST, "protocol version 2 is needed\n").into_response(),
    };
    answer("application/x-git-upload-pack-result", reply)
}

/// The lines of a request, without their line ends.
#[derive(Debug, Default)]
struct Request {
    command: Option<String>,
    arguments: Vec<String>,
}

impl Request {
    /// Reads what it can; what is malformed ends it.
    fn read(mut body: &[u8]) -> Self {
        let mut request = Self::default();
        while let Some((length, rest)) = body.split_at_checked(4) {
            let length =
                std::str::from_utf8(length).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
            let Some(length) = length else { break };
            if length < 4 {
                body = rest;
                continue;
            }
            let Some((line, rest)) = rest.split_at_checked(length - 4) else { break };
            body = rest;
            let line = String::from_utf8_lossy(line).trim_end_matches('\n').to_owned();
            match line.strip_prefix("command=") {
                Some(command) => request.command = Some(command.to_owned()),
                None => request.arguments.push(line),
            }
        }
        request
    }

    fn has(&self, argument: &str) -> bool {
        self.arguments.iter().any(|given| given == argument)
    }
}

fn list(commit: &Commit, request: &Request) -> Vec<u8> {
    let prefixes: Vec<&str> =
        request.arguments.iter().filter_map(|argument| argument.strip_prefix("ref-prefix ")).collect();
    let mut reply = Vec::new();
    let branch = format!("refs/heads/{BRANCH}");
    for name in ["HEAD", branch.as_str()] {
        if !prefixes.is_empty() && !prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let mut line = format!("{} {name}", hex(&commit.id));
        if name == "HEAD" && request.has("symrefs") {
            line.push_str(" symref-target:");
            line.push_str(&branch);
        }
        line.push('\n');
        packet(&mut reply, line.as_bytes());
    }
    flush(&mut reply);
    reply
}

fn fetch(commit: &Commit, request: &Request) -> Vec<u8> {
    let mut reply = Vec::new();
    let id = hex(&commit.id);
    if let Some(other) = request
        .arguments
        .iter()
        .filter_map(|argument| argument.strip_prefix("want "))
        .find(|wanted| *wanted != id)
    {
        packet(&mut reply, format!("ERR upload-pack: not our ref {other}").as_bytes());
        return reply;
    }
    if !request.has("done") {
        // There is no history that could be shared, so the next request may as well be the last.
        packet(&mut reply, b"acknowledgments\n");
        packet(&mut reply, b"NAK\n");
        flush(&mut reply);
        return reply;
    }
    if request.arguments.iter().any(|argument| argument.starts_with("deepen")) {
        // The commit has no parents, so nothing is cut off.
        packet(&mut reply, b"shallow-info\n");
        reply.extend_from_slice(b"0001");
    }
    packet(&mut reply, b"packfile\n");
    for part in commit.pack.chunks(PACKET_BYTES_MAX) {
        let mut payload = Vec::with_capacity(part.len() + 1);
        payload.push(1);
        payload.extend_from_slice(part);
        packet(&mut reply, &payload);
    }
    flush(&mut reply);
    reply
}

fn packet(out: &mut Vec<u8>, payload: &[u8]) {
    out.extend_from_slice(format!("{:04x}", payload.len() + 4).as_bytes());
    out.extend_from_slice(payload);
}

fn flush(out: &mut Vec<u8>) {
    out.extend_from_slice(b"0000");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> Files {
        list.iter()
            .map(|(path, text)| {
                ((*path).to_owned(), File { content: text.as_bytes().to_vec(), executable: false })
            })
            .collect()
    }

    #[test]
    fn ids_are_those_git_gives() {
        let mut objects = Objects::default();
        // `printf 'hello\n' | git hash-object --stdin`
        let blob = objects.add(Kind::Blob, b"hello\n".to_vec());
        assert_eq!(hex(&blob), "ce013625030ba8dba906f756967f9e9ca394464a");
        // `git mktree </dev/null`
        let empty = objects.add(Kind::Tree, Vec::new());
        assert_eq!(hex(&empty), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
    }

    #[test]
    fn folders_sort_as_if_they_ended_with_a_slash() {
        let mut objects = Objects::default();
        let root = objects.tree(&files(&[("a/x", "1"), ("a.b", "2"), ("a0", "3")]), "");
        let (_, content) = &objects.all[&root];
        let order: Vec<usize> = ["100644 a.b\0", "40000 a\0", "100644 a0\0"]
            .iter()
            .map(|entry| content.windows(entry.len()).position(|part| part == entry.as_bytes()).unwrap())
            .collect();
        assert!(order.is_sorted(), "{order:?}");
    }

    #[test]
    fn equal_files_are_stored_once_and_make_the_same_commit() {
        let commit = |list| Commit::new(&files(list), "Fleet", 1);
        let one = commit(&[("a", "same"), ("b/a", "same")]);
        assert_eq!(u32::from_be_bytes(one.pack[8..12].try_into().unwrap()), 4, "a blob, two trees, a commit");
        assert_eq!(one.id, commit(&[("a", "same"), ("b/a", "same")]).id);
        assert_ne!(one.id, commit(&[("a", "same"), ("b/a", "other")]).id);
    }

    #[test]
    fn requests_are_answered_in_protocol_version_2() {
        let commit = Commit::new(&files(&[("a", "x")]), "Fleet", 1);
        let id = hex(&commit.id);
        let request = |lines: &[&str]| {
            let mut body = Vec::new();
            for line in lines {
                packet(&mut body, line.as_bytes());
            }
            flush(&mut body);
            Request::read(&body)
        };
        let listed = list(&commit, &request(&["command=ls-refs\n", "symrefs\n", "ref-prefix refs/heads/\n"]));
        assert_eq!(String::from_utf8(listed).unwrap(), format!("003d{id} refs/heads/main\n0000"));
        let open = fetch(&commit, &request(&["command=fetch", &format!("want {id}\n")]));
        assert_eq!(open, b"0014acknowledgments\n0008NAK\n0000");
        let sent = fetch(&commit, &request(&["command=fetch", &format!("want {id}\n"), "done\n"]));
        assert!(sent.starts_with(b"000dpackfile\n"));
        assert!(sent.windows(4).any(|part| part == b"PACK"));
        let unknown =
            fetch(&commit, &request(&["command=fetch", &format!("want {}\n", "0".repeat(40)), "done\n"]));
        assert!(String::from_utf8(unknown).unwrap().contains("not our ref"));
        assert!(Request::read(b"zzzz").command.is_none());
        assert!(Request::read(b"ffff too short").command.is_none());
    }
}
