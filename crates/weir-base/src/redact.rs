//! Types whose `Debug` and `Display` never show a secret.

use std::fmt;

use url::Url;
use zeroize::Zeroizing;

/// A secret string: shown as `***`, wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the secret in.
    pub fn new(value: impl Into<String>) -> Self {
        Self(Zeroizing::new(value.into()))
    }

    /// The secret itself, for the request that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

/// A URL whose password is hidden in `Debug` and `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct RedactedUrl(Url);

impl RedactedUrl {
    /// Parses a URL; the error text does not contain the input.
    pub fn parse(text: &str) -> Result<Self, url::ParseError> {
        Url::parse(text).map(Self)
    }

    /// The URL with its credentials, for the request that needs it.
    pub fn expose(&self) -> &Url {
        &self.0
    }

    /// The URL without user name and password.
    pub fn without_credentials(&self) -> Url {
        let mut url = self.0.clone();
        // Both fail only for URLs that cannot carry credentials, which then have none.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url
    }
}

impl From<Url> for RedactedUrl {
    fn from(url: Url) -> Self {
        Self(url)
    }
}

impl fmt::Debug for RedactedUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl fmt::Display for RedactedUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.password().is_none() {
            return self.0.fmt(formatter);
        }
        let mut url = self.0.clone();
        let _ = url.set_password(Some("***"));
        url.fmt(formatter)
    }
}

/// `text` with `***` in place of the passwords of the URLs in it (`scheme://user:password@host`, and what joining paths
/// makes of that).
pub fn hide_passwords(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.contains(":/") {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(":/") {
        let slashes = rest[start + 1..].bytes().take_while(|byte| *byte == b'/').count();
        let (before, authority) = rest.split_at(start + 1 + slashes);
        shown.push_str(before);
        let end = authority.find(['/', '?', '#', ' ', '\n', '\t', '"', '\'']).unwrap_or(authority.len());
        let (authority, after) = authority.split_at(end);
        match authority.rsplit_once('@').map(|(user, host)| (user.split_once(':'), host)) {
            Some((Some((user, _)), host)) => {
                shown.push_str(user);
                shown.push_str(":***@");
                shown.push_str(host);
            }
            _ => shown.push_str(authority),
        }
        rest = after;
    }
    shown.push_str(rest);
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_never_shown() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret} {secret:?}"), "*** ***");
        let url = RedactedUrl::parse("https://user:hunter2@example.com/r.git").unwrap();
        assert_eq!(url.to_string(), "https://user:***@example.com/r.git");
        assert_eq!(format!("{url:?}"), "https://user:***@example.com/r.git");
        assert_eq!(url.without_credentials().as_str(), "https://example.com/r.git");
    }

    #[test]
    fn passwords_of_urls_in_texts_are_hidden() {
        let check = |text: &str, expected: &str| assert_eq!(hide_passwords(text), expected);
        check("no URL: a:b@c", "no URL: a:b@c");
        check("get 'https://u:p@w@host/x?y=z': failed", "get 'https://u:***@host/x?y=z': failed");
        check("https://user@host/a:b@c ssh://git@h:22/r", "https://user@host/a:b@c ssh://git@h:22/r");
        check("http://:t@a http://u:@b/", "http://:***@a http://u:***@b/");
        check("open /dir/https:/u:p@host/r: gone", "open /dir/https:/u:***@host/r: gone");
    }
}
