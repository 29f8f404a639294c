//! Remote resources: the git URL forms kustomize accepts, and the trait a caller implements to fetch them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_base::tree::Files;

/// How long each step of fetching a repository may take unless the URL says otherwise.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(27);

/// A directory in a git repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoSpec {
    /// The text as written in the kustomization.
    pub raw: String,
    /// What to clone.
    pub clone_url: String,
    /// The directory within the repository; empty for its root.
    pub path: String,
    /// Branch, tag or commit; `None` for the default branch.
    pub reference: Option<String>,
    /// How long each step may take.
    pub timeout: Duration,
    /// Whether submodules are fetched.
    pub submodules: bool,
}

/// The answer to a download of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Download {
    /// The content.
    Content(Bytes),
    /// A status that is not success, with its standard text.
    Status(u16, String),
}

/// Why something remote could not be fetched.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct RemoteError {
    /// What was attempted and why it failed.
    pub message: String,
    /// Whether it took longer than allowed.
    pub timeout: bool,
}

/// Fetches what kustomizations refer to outside of their file tree.
pub trait Remote {
    /// Downloads a file over `http` or `https`, without credentials, following redirects.
    fn file(&self, url: &str) -> Result<Download, RemoteError>;
    /// The tree of a repository at the wanted reference; the whole repository, not only its path.
    fn repository(&self, spec: &RepoSpec) -> Result<Arc<dyn Files>, RemoteError>;
}

/// Refuses everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRemote;

impl Remote for NoRemote {
    fn file(&self, url: &str) -> Result<Download, RemoteError> {
        Err(RemoteError {
            message: format!("remote resources are not available here: cannot load '{url}'"),
            timeout: false,
        })
    }

    fn repository(&self, spec: &RepoSpec) -> Result<Arc<dyn Files>, RemoteError> {
        Err(RemoteError {
            message: format!("remote bases are not available here: cannot clone '{}'", spec.clone_url),
            timeout: false,
        })
    }
}

/// Whether a path names a file to download.
pub(crate) fn is_remote_file(path: &str) -> bool {
    let lower = path.get(..8).unwrap_or(path).to_ascii_lowercase();
    lower.starts_with("http:") || lower.starts_with("https:")
}

impl RepoSpec {
    /// Parses a repository URL; `None` if the text is none, such as a local path.
    pub fn parse(text: &str) -> Option<Self> {
        if text.starts_with('/') {
            return None;
        }
        let (address, query) = text.split_once('?').unwrap_or((text, ""));
        let query = Query::parse(query);
        let address = strip_prefix_ignore_case(address, "git::").unwrap_or(address);
        let (scheme, rest) = split_scheme(address);
        if scheme == "file://" {
            return Self::of_file(text, rest, query);
        }
        let (user, rest) = split_user(rest);
        let (host, path) = split_host(scheme, user, rest)?;
        let (prefix, path) = normalize_host(scheme, user, host, path);
        let (repository, directory) = split_repository(path)?;
        let directory = clean(directory)?;
        Some(Self {
            raw: text.to_owned(),
            clone_url: format!("{prefix}{repository}"),
            path: directory,
            reference: query.reference,
            timeout: query.timeout,
            submodules: query.submodules,
        })
    }

    fn of_file(text: &str, path: &str, query: Query) -> Option<Self> {
        let (repository, directory) =
            if let Some(found) = split_marked(path) { found } else { (path.to_owned(), "") };
        Some(Self {
            raw: text.to_owned(),
            clone_url: format!("file://{repository}"),
            path: clean(directory)?,
            reference: query.reference,
            timeout: query.timeout,
            submodules: query.submodules,
        })
    }
}

struct Query {
    reference: Option<String>,
    timeout: Duration,
    submodules: bool,
}

impl Query {
    fn parse(text: &str) -> Self {
        let mut query = Self { reference: None, timeout: TIMEOUT_DEFAULT, submodules: true };
        let mut version = None;
        for part in text.split('&') {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            match key {
                "ref" if !value.is_empty() && query.reference.is_none() => {
                    query.reference = Some(value.to_owned());
                }
                "version" if !value.is_empty() && version.is_none() => version = Some(value.to_owned()),
                "timeout" => {
                    if let Some(timeout) = parse_timeout(value) {
                        query.timeout = timeout;
                    }
                }
                "submodules" => {
                    query.submodules = !matches!(value, "0" | "f" | "F" | "false" | "FALSE" | "False");
                }
                _ => {}
            }
        }
        query.reference = query.reference.or(version);
        query
    }
}

/// Whole seconds, or a duration such as `1m30s`; `None` if it is neither or not positive.
fn parse_timeout(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<i64>() {
        return u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
    }
    let mut total = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit =
            rest.find(|character: char| character.is_ascii_digit() || character == '.').unwrap_or(rest.len());
        total += number
            * match &rest[..unit] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                "ns" => 1e-9,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    (total > 0.0).then(|| Duration::try_from_secs_f64(total).ok()).flatten()
}

fn strip_prefix_ignore_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| &text[prefix.len()..])
}

fn split_scheme(text: &str) -> (&'static str, &str) {
    for scheme in ["ssh://", "https://", "http://", "file://"] {
        if let Some(rest) = strip_prefix_ignore_case(text, scheme) {
            return (scheme, rest);
        }
    }
    ("", text)
}

/// `name@` in front of a host.
fn split_user(text: &str) -> (&str, &str) {
    if let Some(at) = text.find('@') {
        let name = &text[..at];
        let fine = name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if fine {
            return (&text[..=at], &text[at + 1..]);
        }
    }
    ("", text)
}

/// The host with its separator, and the path behind it.
fn split_host<'a>(scheme: &str, user: &str, rest: &'a str) -> Option<(&'a str, &'a str)> {
    let is_github = |rest: &str| {
        strip_prefix_ignore_case(rest, "github.com/").is_some()
            || strip_prefix_ignore_case(rest, "github.com:").is_some()
            || strip_prefix_ignore_case(rest, "www.github.com/").is_some()
    };
    if scheme.is_empty() && user.is_empty() && !is_github(rest) {
        return None;
    }
    let slash = rest.find('/');
    if scheme.is_empty()
        && let Some(colon) = rest.find(':')
        && slash.is_none_or(|slash| colon < slash)
    {
        return Some((&rest[..=colon], &rest[colon + 1..]));
    }
    let slash = slash?;
    if slash == 0 {
        return None;
    }
    Some((&rest[..=slash], &rest[slash + 1..]))
}

/// Scheme, user and host of the clone URL.
fn normalize_host<'a>(scheme: &str, user: &str, host: &str, path: &'a str) -> (String, &'a str) {
    let bare = host.trim_end_matches(['/', ':']);
    if bare.eq_ignore_ascii_case("github.com") {
        let prefix = if scheme == "ssh://" || !user.is_empty() {
            format!("{user}github.com:")
        } else {
            "https://github.com/".to_owned()
        };
        return (prefix, path.trim_start_matches('/'));
    }
    (format!("{scheme}{user}{host}"), path)
}

/// `_git/`, `//` and `.git` mark where the repository ends.
fn split_marked(path: &str) -> Option<(String, &str)> {
    if let Some(position) = path.find("_git/") {
        let start = position + "_git/".len();
        let end = path[start..].find('/').map_or(path.len(), |slash| start + slash);
        return Some((path[..end].to_owned(), path[end..].trim_start_matches('/')));
    }
    if let Some(position) = path.find("//") {
        return Some((path[..position].to_owned(), &path[position + 2..]));
    }
    if let Some(position) = path.find(".git") {
        let end = position + ".git".len();
        return Some((path[..end].to_owned(), path[end..].trim_start_matches('/')));
    }
    None
}

fn split_repository(path: &str) -> Option<(String, &str)> {
    if let Some(found) = split_marked(path) {
        return Some(found);
    }
    let first = path.find('/')?;
    if first == 0 || first + 1 == path.len() {
        return None;
    }
    let end = path[first + 1..].find('/').map_or(path.len(), |slash| first + 1 + slash);
    Some((path[..end].to_owned(), path[end..].trim_start_matches('/')))
}

/// The directory without `.` and `..`; `None` if it leaves the repository.
fn clean(path: &str) -> Option<String> {
    weir_base::tree::join("", path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, clone_url: &str, path: &str, reference: Option<&str>) {
        let spec = RepoSpec::parse(text).unwrap();
        assert_eq!(
            (spec.clone_url.as_str(), spec.path.as_str(), spec.reference.as_deref()),
            (clone_url, path, reference),
        );
    }

    #[test]
    fn repository_urls() {
        check("github.com/o/r//p?ref=v1", "https://github.com/o/r", "p", Some("v1"));
        check("https://github.com/o/r/a/b", "https://github.com/o/r", "a/b", None);
        check("http://github.com/o/r", "https://github.com/o/r", "", None);
        check("git@github.com:o/r.git", "git@github.com:o/r.git", "", None);
        check("ssh://git@github.com/o/r//p", "git@github.com:o/r", "p", None);
        check("git@host:o/r.git/p", "git@host:o/r.git", "p", None);
        check("ssh://git@h/o/r//p", "ssh://git@h/o/r", "p", None);
        check("https://h/x/_git/r/p?version=v1", "https://h/x/_git/r", "p", Some("v1"));
        check("git::https://h/o/r//p", "https://h/o/r", "p", None);
        check("file:///repos/r//p", "file:///repos/r", "p", None);
        check("https://h/o/r?version=a&ref=b", "https://h/o/r", "", Some("b"));
        for none in ["./base", "../x/y", "base", "/abs/github.com/o/r", "https://h/o", "https://h/o/r//../x"]
        {
            assert_eq!(RepoSpec::parse(none), None, "{none}");
        }
    }

    #[test]
    fn query_parameters() {
        let timeout = |text: &str| {
            RepoSpec::parse(&format!("github.com/o/r?timeout={text}")).unwrap().timeout.as_secs()
        };
        assert_eq!((timeout("0"), timeout("jiffy"), timeout("61"), timeout("1m1s")), (27, 27, 61, 61));
        let submodules =
            |text: &str| RepoSpec::parse(&format!("github.com/o/r?submodules={text}")).unwrap().submodules;
        assert_eq!((submodules("maybe"), submodules("false")), (true, false));
    }
}
