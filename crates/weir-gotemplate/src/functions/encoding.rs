//! Base64, base32, JSON, URLs.

use super::{Outcome, argument, bytes, text};
use crate::base64;
use crate::exec::Context;
use crate::function::{Function, Param};
use crate::json::{self, Style};
use crate::value::{Map, Value};

use Param::{Any, Map as Dict, String as Str};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("b64enc", &[Str], |_, arguments| Ok(Value::string(base64::encode(bytes(arguments, 0))))),
    Function::new("b32enc", &[Str], |_, arguments| Ok(Value::string(base64::encode32(bytes(arguments, 0))))),
    Function::new("b64dec", &[Str], |_, arguments| {
        Ok(base64::decode(bytes(arguments, 0)).map_or_else(Value::string, Value::string))
    }),
    Function::new("b32dec", &[Str], |_, arguments| {
        Ok(base64::decode32(bytes(arguments, 0)).map_or_else(Value::string, Value::string))
    }),
    Function::new("fromJson", &[Str], |_, arguments| {
        Ok(json::decode(bytes(arguments, 0)).unwrap_or_default())
    }),
    Function::new("mustFromJson", &[Str], |_, arguments| Ok(json::decode(bytes(arguments, 0))?)),
    Function::new("toJson", &[Any], |_, arguments| lenient(arguments, COMPACT)),
    Function::new("mustToJson", &[Any], |_, arguments| strict(arguments, COMPACT)),
    Function::new("toPrettyJson", &[Any], |_, arguments| lenient(arguments, PRETTY)),
    Function::new("mustToPrettyJson", &[Any], |_, arguments| strict(arguments, PRETTY)),
    Function::new("toRawJson", &[Any], |_, arguments| strict(arguments, RAW)),
    Function::new("mustToRawJson", &[Any], |_, arguments| strict(arguments, RAW)),
    Function::new("urlParse", &[Str], url_parse),
    Function::new("urlJoin", &[Dict], url_join),
];

const COMPACT: Style = Style { pretty: false, escape_html: true };
const PRETTY: Style = Style { pretty: true, escape_html: true };
const RAW: Style = Style { pretty: false, escape_html: false };

fn lenient(arguments: &[Value], style: Style) -> Outcome {
    Ok(Value::string(json::encode(argument(arguments, 0), style).unwrap_or_default()))
}

fn strict(arguments: &[Value], style: Style) -> Outcome {
    Ok(Value::string(json::encode(argument(arguments, 0), style)?))
}

/// A parsed URL, as far as Sprig looks at it.
#[derive(Default)]
struct Url {
    scheme: String,
    opaque: String,
    user: Option<(String, Option<String>)>,
    host: String,
    path: String,
    raw_path: String,
    query: String,
    force_query: bool,
    fragment: String,
    raw_fragment: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Host,
    User,
    Fragment,
}

fn allowed(byte: u8, part: Part) -> bool {
    if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
        return true;
    }
    match part {
        Part::Host => b"!$&'()*+,;=:[]<>\"".contains(&byte),
        Part::Path => b"$&+,/:;=@".contains(&byte),
        Part::User => b"$&+,;=".contains(&byte),
        Part::Fragment => b"$&+,/:;=?@!()*".contains(&byte),
    }
}

fn escape(text: &str, part: Part) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if allowed(byte, part) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn unescape(text: &str, part: Part) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        if bytes[index] != b'%' {
            if part == Part::Host && bytes[index] < 0x80 && !allowed(bytes[index], Part::Host) {
                let shown = crate::strconv::quoted(&char::from(bytes[index]).to_string());
                return Err(format!("invalid character {shown} in host name"));
            }
            out.push(bytes[index]);
            index += 1;
            continue;
        }
        let hex =
            text.get(index + 1..index + 3).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) else {
            let shown: String = text[index..].chars().take(3).collect();
            return Err(format!("invalid URL escape {}", crate::strconv::quoted(&shown)));
        };
        if part == Part::Host && byte < 0x80 && byte != b'%' {
            let shown = crate::strconv::quoted(&text[index..index + 3]);
            return Err(format!("invalid URL escape {shown}"));
        }
        out.push(byte);
        index += 3;
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

impl Url {
    fn parse(text: &str) -> Result<Self, String> {
        let wrap = |text: &str, message: String| format!("parse {}: {message}", crate::strconv::quoted(text));
        let (before, fragment) = match text.split_once('#') {
            Some((before, fragment)) => (before, Some(fragment)),
            None => (text, None),
        };
        let mut url = Self::parse_reference(before).map_err(|message| wrap(before, message))?;
        if let Some(fragment) = fragment.filter(|fragment| !fragment.is_empty()) {
            url.fragment = unescape(fragment, Part::Fragment).map_err(|message| wrap(text, message))?;
            if escape(&url.fragment, Part::Fragment) != fragment {
                fragment.clone_into(&mut url.raw_fragment);
            }
        }
        Ok(url)
    }

    fn parse_reference(text: &str) -> Result<Self, String> {
        let mut url = Self::default();
        if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        if text == "*" {
            "*".clone_into(&mut url.path);
            return Ok(url);
        }
        let (scheme, rest) = split_scheme(text)?;
        url.scheme = scheme.to_ascii_lowercase();
        let mut rest = rest;
        if rest.ends_with('?') && rest.matches('?').count() == 1 {
            url.force_query = true;
            rest = &rest[..rest.len() - 1];
        } else if let Some((before, query)) = rest.split_once('?') {
            rest = before;
            query.clone_into(&mut url.query);
        }
        if !rest.starts_with('/') {
            if !url.scheme.is_empty() {
                rest.clone_into(&mut url.opaque);
                return Ok(url);
            }
            if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        if (!url.scheme.is_empty() || !rest.starts_with("///")) && rest.starts_with("//") {
            let after = &rest[2..];
            let (authority, path) = match after.find('/') {
                Some(slash) => after.split_at(slash),
                None => (after, ""),
            };
            rest = path;
            url.parse_authority(authority)?;
        }
        url.path = unescape(rest, Part::Path)?;
        if escape(&url.path, Part::Path) != rest {
            rest.clone_into(&mut url.raw_path);
        }
        Ok(url)
    }

    fn parse_authority(&mut self, authority: &str) -> Result<(), String> {
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        self.host = parse_host(host)?;
        let Some(user) = user else { return Ok(()) };
        let valid =
            user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte));
        if !valid {
            return Err("net/url: invalid userinfo".to_owned());
        }
        self.user = Some(match user.split_once(':') {
            Some((name, password)) => (unescape(name, Part::User)?, Some(unescape(password, Part::User)?)),
            None => (unescape(user, Part::User)?, None),
        });
        Ok(())
    }

    fn user_text(&self) -> String {
        let Some((name, password)) = &self.user else { return String::new() };
        let mut text = escape(name, Part::User);
        if let Some(password) = password {
            text.push(':');
            text.push_str(&escape(password, Part::User));
        }
        text
    }

    fn escaped_path(&self) -> String {
        if !self.raw_path.is_empty()
            && unescape(&self.raw_path, Part::Path).as_deref() == Ok(self.path.as_str())
            && self.raw_path.bytes().all(|byte| allowed(byte, Part::Path) || b"!'()*,;[]%".contains(&byte))
        {
            return self.raw_path.clone();
        }
        if self.path == "*" { "*".to_owned() } else { escape(&self.path, Part::Path) }
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = String::new();
        if !self.scheme.is_empty() {
            out.push_str(&self.scheme);
            out.push(':');
        }
        if self.opaque.is_empty() {
            if !self.scheme.is_empty() || !self.host.is_empty() || self.user.is_some() {
                if !self.host.is_empty() || !self.path.is_empty() || self.user.is_some() {
                    out.push_str("//");
                }
                if self.user.is_some() {
                    out.push_str(&self.user_text());
                    out.push('@');
                }
                out.push_str(&escape(&self.host, Part::Host));
            }
            let path = self.escaped_path();
            if !path.is_empty() && !path.starts_with('/') && !self.host.is_empty() {
                out.push('/');
            }
            let first = path.split('/').next().unwrap_or("");
            if out.is_empty() && first.contains(':') {
                out.push_str("./");
            }
            out.push_str(&path);
        } else {
            out.push_str(&self.opaque);
        }
        if self.force_query || !self.query.is_empty() {
            out.push('?');
            out.push_str(&self.query);
        }
        if !self.fragment.is_empty() {
            out.push('#');
            if self.raw_fragment.is_empty() {
                out.push_str(&escape(&self.fragment, Part::Fragment));
            } else {
                out.push_str(&self.raw_fragment);
            }
        }
        formatter.write_str(&out)
    }
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..index], &text[index + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn parse_host(host: &str) -> Result<String, String> {
    let port_text = if host.starts_with('[') {
        let Some(close) = host.rfind(']') else { return Err("missing ']' in host".to_owned()) };
        &host[close + 1..]
    } else {
        host.rfind(':').map_or("", |colon| &host[colon..])
    };
    let valid = port_text.is_empty()
        || port_text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    if !valid {
        let shown = crate::strconv::quoted(port_text);
        return Err(format!("invalid port {shown} after host"));
    }
    unescape(host, Part::Host)
}

/// The host without its port and brackets.
fn hostname(host: &str) -> &str {
    let without_port = match host.rfind(':') {
        Some(colon) if host[colon + 1..].bytes().all(|byte| byte.is_ascii_digit()) => {
            if host.starts_with('[') && !host[..colon].ends_with(']') { host } else { &host[..colon] }
        }
        _ => host,
    };
    without_port.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(without_port)
}

fn url_parse(_: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let url = Url::parse(&text(arguments, 0)).map_err(|message| format!("unable to parse url: {message}"))?;
    Ok(Value::map([
        ("scheme", Value::string(url.scheme.as_str())),
        ("host", Value::string(url.host.as_str())),
        ("hostname", Value::string(hostname(&url.host))),
        ("path", Value::string(url.path.as_str())),
        ("query", Value::string(url.query.as_str())),
        ("opaque", Value::string(url.opaque.as_str())),
        ("fragment", Value::string(url.fragment.as_str())),
        ("userinfo", Value::string(url.user_text())),
    ]))
}

fn url_join(_: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let Value::Map(map) = argument(arguments, 0) else { return Ok(Value::string("")) };
    let part = |map: &Map, key: &str| -> Result<String, crate::error::Fault> {
        match map.get(key.as_bytes()) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.to_string()),
            Some(Value::Nil) => Err(super::lists::NIL_POINTER.into()),
            Some(other) => {
                let kind = other.kind().name();
                Err(format!("unable to parse {key} key, must be of type string, but {kind} found").into())
            }
        }
    };
    let mut url = Url {
        scheme: part(map, "scheme")?,
        host: part(map, "host")?,
        path: part(map, "path")?,
        query: part(map, "query")?,
        opaque: part(map, "opaque")?,
        fragment: part(map, "fragment")?,
        ..Url::default()
    };
    let user = part(map, "userinfo")?;
    if !user.is_empty() {
        url.user = Url::parse(&format!("proto://{user}@host"))
            .map_err(|message| format!("unable to parse userinfo in dict: {message}"))?
            .user;
    }
    Ok(Value::string(url.to_string()))
}
