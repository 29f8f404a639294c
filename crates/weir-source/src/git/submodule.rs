//! Submodules: which repositories belong where.

use std::collections::BTreeMap;

use url::Url;

/// Submodules in submodules, in levels.
pub(super) const LEVELS_MAX: usize = 10;
/// The file that says where submodules come from.
pub(super) const FILE: &str = ".gitmodules";

/// Why submodules cannot be fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmoduleError {
    /// `.gitmodules` does not say where one comes from.
    #[error("no url found for submodule path '{0}' in .gitmodules")]
    NoUrl(String),
    /// The URL is none, or one of another transport.
    #[error("unsupported url of submodule '{0}' in .gitmodules")]
    Url(String),
    /// Submodules are nested too deeply.
    #[error("submodules are nested more than {LEVELS_MAX} levels deep")]
    TooDeep,
}

/// The URLs of submodules by their paths.
pub(super) fn parse(text: &str) -> BTreeMap<String, String> {
    let mut urls = BTreeMap::new();
    let (mut path, mut url) = (None, None);
    for line in text.lines().chain(["[end]"]) {
        let line = line.trim();
        if line.starts_with('[') {
            if let (Some(path), Some(url)) = (path.take(), url.take()) {
                urls.insert(path, url);
            }
            (path, url) = (None, None);
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let value = unquoted(value.trim());
        match key.trim().to_ascii_lowercase().as_str() {
            "path" => path = Some(value.trim_end_matches('/').to_owned()),
            "url" => url = Some(value),
            _ => {}
        }
    }
    urls
}

/// The value without quotes, escapes and the comment behind it.
fn unquoted(text: &str) -> String {
    let mut value = String::new();
    let mut quoted = false;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => quoted = !quoted,
            '\\' => value.extend(characters.next()),
            '#' | ';' if !quoted => break,
            other => value.push(other),
        }
    }
    value.trim_end().to_owned()
}

/// The address of a submodule: relative ones start at the repository it is in.
pub(super) fn resolve(parent: &Url, text: &str) -> Option<Url> {
    let url = if text.starts_with("./") || text.starts_with("../") {
        let mut parts: Vec<&str> = parent.path().trim_matches('/').split('/').collect();
        for part in text.split('/') {
            match part {
                "." | "" => {}
                ".." => {
                    parts.pop()?;
                }
                part => parts.push(part),
            }
        }
        let mut url = parent.clone();
        url.set_path(&parts.join("/"));
        url
    } else if let Some((user_and_host, path)) = scp_like(text) {
        Url::parse(&format!("ssh://{user_and_host}/{path}")).ok()?
    } else {
        Url::parse(text).ok()?
    };
    matches!(url.scheme(), "http" | "https" | "ssh").then_some(url)
}

/// `git@example.com:org/repo.git`
fn scp_like(text: &str) -> Option<(&str, &str)> {
    let (host, path) = text.split_once(':')?;
    (!text.contains("://") && !host.contains('/') && !path.is_empty() && !path.starts_with(':'))
        .then_some((host, path.trim_start_matches('/')))
}

/// Whether credentials for one may be sent to the other.
pub(super) fn shares_credentials(parent: &Url, child: &Url) -> bool {
    parent.scheme() == child.scheme()
        && parent.host() == child.host()
        && parent.port_or_known_default() == child.port_or_known_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_read() {
        let urls = parse(
            "# note\n[submodule \"a\"]\n\tpath = libs/a/\n\turl = ../a.git ; comment\n\tbranch = main\n\
             [submodule \"b\"]\n\tURL = \"https://example.com/b#c.git\"\n\tpath = b\n[submodule \"c\"]\n\tpath = c\n",
        );
        let urls: Vec<(&str, &str)> = urls.iter().map(|(path, url)| (path.as_str(), url.as_str())).collect();
        assert_eq!(urls, [("b", "https://example.com/b#c.git"), ("libs/a", "../a.git")]);
    }

    #[test]
    fn addresses() {
        let parent = Url::parse("https://example.com/org/app.git").unwrap();
        for (text, expected) in [
            ("../lib.git", Some("https://example.com/org/lib.git")),
            ("./lib", Some("https://example.com/org/app.git/lib")),
            ("../../other/lib", Some("https://example.com/other/lib")),
            ("../../../lib", None),
            ("https://example.org/lib", Some("https://example.org/lib")),
            ("git@example.org:org/lib.git", Some("ssh://git@example.org/org/lib.git")),
            ("file:///etc", None),
            ("ext::sh -c id", None),
            ("/srv/lib", None),
        ] {
            assert_eq!(resolve(&parent, text).as_ref().map(Url::as_str), expected, "{text}");
        }
    }

    #[test]
    fn credentials_stay_with_the_host() {
        let parse = |text| Url::parse(text).unwrap();
        let parent = parse("https://example.com/a");
        assert!(shares_credentials(&parent, &parse("https://example.com/b")));
        assert!(!shares_credentials(&parent, &parse("https://example.org/b")));
        assert!(!shares_credentials(&parent, &parse("http://example.com/b")));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,80}") {
            let _ = parse(&text);
            let _ = resolve(&Url::parse("https://example.com/a/b").unwrap(), &text);
        }
    }
}
