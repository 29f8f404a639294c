//! Sections of `key = value`, read and written as the INI library of the reference does.

use crate::store::FormatError;
use crate::tree::{Branch, Comment, Item, Key, Value, plain_text};

/// The section of keys before the first section.
const DEFAULT: &str = "DEFAULT";

struct Section {
    name: String,
    comment: String,
    /// Name, value, comment.
    keys: Vec<(String, String, String)>,
}

impl Section {
    fn named(name: &str) -> Self {
        Self { name: name.to_owned(), comment: String::new(), keys: Vec::new() }
    }

    /// A key that occurs again replaces the value, not the place.
    fn set(&mut self, name: &str, value: String, comment: String) {
        if let Some(key) = self.keys.iter_mut().find(|(known, ..)| known == name) {
            key.1 = value;
            key.2 = comment;
        } else {
            self.keys.push((name.to_owned(), value, comment));
        }
    }
}

struct Reader<'a> {
    lines: std::str::SplitInclusive<'a, char>,
    comment: String,
}

pub(crate) fn load(data: &[u8]) -> Result<Branch, FormatError> {
    let data = data.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(data);
    let text = String::from_utf8_lossy(data);
    let sections = Reader { lines: text.split_inclusive('\n'), comment: String::new() }.sections();
    let sections = sections.map_err(FormatError::Ini)?;
    Ok(sections
        .into_iter()
        .map(|section| {
            let mut items = Branch::new();
            if !section.comment.is_empty() {
                items.push(Item::comment(strip_sign(&section.comment), false));
            }
            for (name, value, comment) in section.keys {
                items.push(Item::new(name, Value::text(value)));
                if !comment.is_empty() {
                    items.push(Item::comment(strip_sign(&comment), false));
                }
            }
            Item::new(section.name, Value::Map(items))
        })
        .collect())
}

fn strip_sign(comment: &str) -> &str {
    if comment.starts_with(';') {
        comment.trim_start_matches([';', ' '])
    } else if comment.starts_with('#') {
        comment.trim_start_matches(['#', ' '])
    } else {
        comment
    }
}

impl Reader<'_> {
    fn sections(mut self) -> Result<Vec<Section>, String> {
        let mut sections = vec![Section::named(DEFAULT)];
        let mut number = 1;
        while let Some(line) = self.lines.next() {
            let line = line.trim_start();
            if line.is_empty() {
                continue;
            }
            if line.starts_with(['#', ';']) {
                self.comment.push_str(line);
                continue;
            }
            if let Some(rest) = line.strip_prefix('[') {
                let (name, behind) = rest.rsplit_once(']').ok_or("unclosed section")?;
                if name.is_empty() {
                    return Err("empty section name".to_owned());
                }
                if let Some(at) = behind.find(['#', ';']) {
                    self.comment.push_str(&behind[at..]);
                }
                let mut section = Section::named(name);
                self.take_comment().clone_into(&mut section.comment);
                number = 1;
                sections.push(section);
                continue;
            }
            let (name, rest) = key_name(line)?;
            let name = if name == "-" {
                number += 1;
                format!("#{}", number - 1)
            } else {
                name.to_owned()
            };
            let value = self.value(rest)?;
            let comment = self.take_comment();
            if name.is_empty() {
                return Err("error creating new key: empty key name".to_owned());
            }
            if let Some(section) = sections.last_mut() {
                section.set(&name, value, comment);
            }
        }
        Ok(sections)
    }

    fn take_comment(&mut self) -> String {
        std::mem::take(&mut self.comment).trim().to_owned()
    }

    fn value(&mut self, text: &str) -> Result<String, String> {
        let line = text.trim_start();
        if line.is_empty() {
            return Ok(String::new());
        }
        let quote = if line.len() > 3 && line.starts_with("\"\"\"") {
            "\"\"\""
        } else if line.starts_with('`') {
            "`"
        } else {
            ""
        };
        if !quote.is_empty() {
            let inner = &line[quote.len()..];
            return match inner.rfind(quote) {
                Some(end) => Ok(inner[..end].to_owned()),
                None => self.multiline(inner, quote),
            };
        }
        let mut line = line.trim();
        if let Some(begun) = line.strip_suffix('\\') {
            return Ok(self.continued(begun));
        }
        if let Some(at) = line.find(['#', ';']) {
            self.comment.push_str(&line[at..]);
            line = line[..at].trim();
        }
        let is_quoted = |quote: char| {
            line.len() >= 2
                && line.starts_with(quote)
                && line.ends_with(quote)
                && !line[1..line.len() - 1].contains(quote)
        };
        if is_quoted('\'') || is_quoted('"') {
            line = &line[1..line.len() - 1];
        }
        Ok(line.to_owned())
    }

    fn multiline(&mut self, begun: &str, quote: &str) -> Result<String, String> {
        let mut value = begun.to_owned();
        for next in self.lines.by_ref() {
            if let Some(end) = next.rfind(quote) {
                value.push_str(&next[..end]);
                if let Some(at) = next[end..].find(['#', ';']) {
                    self.comment.push_str(next[end + at..].trim());
                }
                return Ok(value);
            }
            value.push_str(next);
        }
        Err("missing closing key quote".to_owned())
    }

    fn continued(&mut self, begun: &str) -> String {
        let mut value = begun.to_owned();
        for next in self.lines.by_ref() {
            let next = next.trim();
            if next.is_empty() {
                break;
            }
            value.push_str(next);
            match value.strip_suffix('\\') {
                Some(more) => value.truncate(more.len()),
                None => break,
            }
        }
        value
    }
}

/// The name of a key, and what follows the sign behind it.
fn key_name(line: &str) -> Result<(&str, &str), String> {
    let quote = if line.len() > 6 && line.starts_with("\"\"\"") {
        "\"\"\""
    } else if line.starts_with('"') {
        "\""
    } else if line.starts_with('`') {
        "`"
    } else {
        ""
    };
    let no_sign = || "key-value delimiter not found".to_owned();
    if quote.is_empty() {
        let at = line.find(['=', ':']).ok_or_else(no_sign)?;
        if at == 0 {
            return Err("empty key name".to_owned());
        }
        return Ok((line[..at].trim(), &line[at + 1..]));
    }
    let inner = &line[quote.len()..];
    let end = inner.find(quote).ok_or("missing closing key quote")?;
    let behind = &inner[end + quote.len()..];
    let at = behind.find(['=', ':']).ok_or_else(no_sign)?;
    Ok((inner[..end].trim(), &behind[at + 1..]))
}

pub(crate) fn emit(branches: &[Branch]) -> Result<Vec<u8>, FormatError> {
    let mut sections = Vec::new();
    for item in branches.iter().flatten() {
        let name = match &item.key {
            Key::Comment(_) => continue,
            Key::Other { kind, .. } => return Err(FormatError::Key(kind)),
            Key::Text(name) => name,
        };
        let Value::Map(items) = &item.value else { return Err(FormatError::NoSection) };
        sections.push(section(name, items)?);
    }
    let mut text = String::new();
    let last = sections.len().saturating_sub(1);
    for (number, section) in sections.iter().enumerate() {
        write_section(&mut text, section, number == 0)?;
        let skipped = number == 0 && section.name.eq_ignore_ascii_case(DEFAULT) && section.keys.is_empty();
        if number != last && !skipped {
            text.push('\n');
        }
    }
    Ok(text.into_bytes())
}

fn section(name: &str, items: &Branch) -> Result<Section, FormatError> {
    let name = if name.is_empty() { DEFAULT } else { name };
    let mut section = Section::named(name);
    let text = |comment: &Comment| String::from_utf8_lossy(&comment.text).into_owned();
    for (number, item) in items.iter().enumerate() {
        match &item.key {
            Key::Comment(comment) if number == 0 => section.comment = text(comment),
            Key::Comment(comment) => {
                if let Some(key) = section.keys.last_mut() {
                    key.2 = text(comment);
                }
            }
            Key::Other { kind, .. } => return Err(FormatError::Key(kind)),
            Key::Text(key) => {
                if key.is_empty() {
                    return Err(FormatError::IniContent(
                        "Error encoding key: error creating new key: empty key name",
                    ));
                }
                let value = String::from_utf8_lossy(&plain_text(&item.value)).into_owned();
                section.set(key, value, String::new());
            }
        }
    }
    Ok(section)
}

fn write_comment(text: &mut String, comment: &str, trims: bool) -> Result<(), FormatError> {
    if comment.is_empty() {
        return Ok(());
    }
    for line in comment.split('\n') {
        let sign = line.chars().next().ok_or(FormatError::IniContent("an empty line in a comment"))?;
        if sign == '#' || sign == ';' {
            text.push(sign);
            text.push(' ');
            text.push_str(line[1..].trim());
        } else {
            text.push_str("; ");
            text.push_str(if trims { line.trim() } else { line });
        }
        text.push('\n');
    }
    Ok(())
}

fn write_section(text: &mut String, section: &Section, first: bool) -> Result<(), FormatError> {
    write_comment(text, &section.comment, false)?;
    if !first || !section.name.eq_ignore_ascii_case(DEFAULT) {
        text.push('[');
        text.push_str(&section.name);
        text.push_str("]\n");
    } else if section.keys.is_empty() {
        return Ok(());
    }
    let needs_backquotes = |name: &str| name.contains(['"', '=', ':']);
    let width = |name: &str| {
        name.len()
            + if needs_backquotes(name) {
                2
            } else if name.contains('`') {
                6
            } else {
                0
            }
    };
    let widest = section.keys.iter().map(|(name, ..)| width(name)).max().unwrap_or(0);
    for (name, value, comment) in &section.keys {
        write_comment(text, comment, true)?;
        if needs_backquotes(name) {
            text.push('`');
            text.push_str(name);
            text.push('`');
        } else if name.contains('`') {
            text.push_str("\"\"\"");
            text.push_str(name);
            text.push_str("\"\"\"");
        } else {
            text.push_str(name);
        }
        text.extend(std::iter::repeat_n(' ', widest - width(name)));
        text.push_str(" = ");
        let quote = if value.contains(['\n', '`']) {
            "\"\"\""
        } else if value.contains(['#', ';']) {
            "`"
        } else if value.trim().len() != value.len() {
            "\""
        } else {
            ""
        };
        text.push_str(quote);
        text.push_str(value);
        text.push_str(quote);
        text.push('\n');
    }
    Ok(())
}
