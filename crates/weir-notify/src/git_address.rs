//! Addresses of Git repositories: where the service is, and which repository.

use url::Url;

/// The service and the repository an address names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GitAddress {
    /// Scheme, host and port of the service, without user and path.
    pub(crate) service: Url,
    /// The path without leading slashes and `.git`.
    pub(crate) repository: String,
}

/// Why an address names no repository.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GitAddressError {
    #[error("failed parsing URL: it is neither a URL nor 'user@host:path'")]
    Unreadable,
    #[error("failed parsing URL: the scheme '{0}' has no HTTP service")]
    Scheme(String),
    #[error("invalid repository id '{0}'")]
    Repository(String),
}

impl GitAddress {
    /// Reads URLs and `user@host:path`; SSH addresses name the HTTPS service of the same host and port.
    pub(crate) fn parse(address: &str) -> Result<Self, GitAddressError> {
        if let Ok(url) = Url::parse(address)
            && address.contains("://")
        {
            let scheme = match url.scheme() {
                "http" => "http",
                "https" | "ssh" => "https",
                other => return Err(GitAddressError::Scheme(other.to_owned())),
            };
            let host = url.host_str().ok_or(GitAddressError::Unreadable)?;
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            let path = percent_encoding::percent_decode_str(url.path()).decode_utf8_lossy().into_owned();
            return Self::new(&format!("{scheme}://{host}{port}"), &path);
        }
        let (login, path) = address.split_once(':').ok_or(GitAddressError::Unreadable)?;
        let host = login.rsplit_once('@').map_or(login, |(_, host)| host);
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_host) {
            return Err(GitAddressError::Unreadable);
        }
        Self::new(&format!("https://{host}"), path)
    }

    fn new(service: &str, path: &str) -> Result<Self, GitAddressError> {
        let service = Url::parse(service).map_err(|_| GitAddressError::Unreadable)?;
        let path = path.trim_start_matches('/');
        let repository = path.strip_suffix(".git").unwrap_or(path).to_owned();
        Ok(Self { service, repository })
    }

    /// The parts of the repository's path, which must be `N`.
    pub(crate) fn parts<const N: usize>(&self) -> Result<[&str; N], GitAddressError> {
        let parts: Vec<&str> = self.repository.split('/').collect();
        let invalid = || GitAddressError::Repository(self.repository.clone());
        if parts.iter().any(|part| part.is_empty() || matches!(*part, "." | "..")) {
            return Err(invalid());
        }
        parts.try_into().map_err(|_| invalid())
    }

    /// A URL of the service with the given path segments, each escaped, and query.
    pub(crate) fn url(service: &Url, segments: &[&str], query: &[(&str, &str)]) -> Url {
        let mut url = service.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_and_repositories_are_told_apart() {
        #[track_caller]
        fn check(address: &str, service: &str, repository: &str) {
            let parsed = GitAddress::parse(address).unwrap();
            assert_eq!((parsed.service.as_str(), parsed.repository.as_str()), (service, repository));
        }
        check("https://github.com/foo/bar", "https://github.com/", "foo/bar");
        check(
            "https://user:token@git.example.com:8443/foo/bar.git",
            "https://git.example.com:8443/",
            "foo/bar",
        );
        check("http://git.example.com/a/b/c.git", "http://git.example.com/", "a/b/c");
        check("ssh://git@git.example.com:2222/foo/bar", "https://git.example.com:2222/", "foo/bar");
        check("git@github.com:foo/bar.git", "https://github.com/", "foo/bar");
        check(
            "https://dev.azure.com/org/my%20project/_git/repo",
            "https://dev.azure.com/",
            "org/my project/_git/repo",
        );
        for address in ["", "github.com/foo/bar", "ftp://x/a/b", "git@ho st:foo", "file:///a/b"] {
            assert!(GitAddress::parse(address).is_err(), "{address}");
        }
    }

    #[test]
    fn parts_cannot_leave_the_repository() {
        let parse = |address: &str| GitAddress::parse(address).unwrap();
        assert_eq!(parse("https://h/a/b").parts::<2>().unwrap(), ["a", "b"]);
        assert!(parse("https://h/a").parts::<2>().is_err());
        assert!(parse("git@h:../b").parts::<2>().is_err());
        let url = GitAddress::url(&parse("https://h/a/b").service, &["x", "a/b", "c?d"], &[("q", "1 &")]);
        assert_eq!(url.as_str(), "https://h/x/a%2Fb/c%3Fd?q=1+%26");
    }
}
