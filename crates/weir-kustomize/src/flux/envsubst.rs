//! `${NAME}` expressions as Flux understands them: shell-like, with differences users depend on.

use crate::error::Error;

/// Expressions may nest this deep.
const DEPTH_MAX: usize = 64;

/// Returns `text` with its expressions replaced; `lookup` gives the values of variables.
///
/// # Errors
/// A malformed expression, and in strict mode a variable without value where the expression has no default.
pub fn substitute_text(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
    strict: bool,
) -> Result<String, Error> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    let mut result = String::with_capacity(text.len());
    // All of the text is parsed before anything is looked up, so that mistakes in the grammar come first.
    let mut parts = Vec::new();
    parser.parse_text(&mut parts)?;
    let context = Context { lookup, strict };
    for part in &parts {
        context.evaluate(part, &mut result)?;
    }
    Ok(result)
}

enum Part {
    Text(String),
    Expression { name: String, operator: String, arguments: Vec<Part> },
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    /// The next character; the end of the text and NUL both end the input.
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next().filter(|character| *character != '\0')
    }

    fn starts_expression(&self) -> bool {
        self.text[self.at..].starts_with("${")
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    /// Text outside of expressions: `$$` is a dollar.
    fn parse_text(&mut self, parts: &mut Vec<Part>) -> Result<(), Error> {
        let mut plain = String::new();
        while let Some(character) = self.peek() {
            if self.starts_expression() {
                if !plain.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                }
                self.at += 2;
                parts.push(self.parse_expression()?);
                continue;
            }
            if self.text[self.at..].starts_with("$$") {
                self.at += 1;
            }
            self.at += character.len_utf8();
            plain.push(character);
        }
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(())
    }

    /// An expression behind its `${`.
    fn parse_expression(&mut self) -> Result<Part, Error> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Error::message(format!("expressions nest deeper than {DEPTH_MAX}")));
        }
        let part = self.parse_inside()?;
        self.depth -= 1;
        Ok(part)
    }

    fn parse_inside(&mut self) -> Result<Part, Error> {
        if self.eat('#') {
            let name = self.take_name();
            if name.is_empty() {
                return Err(bad_substitution());
            }
            self.close()?;
            return Ok(expression(name, "#", Vec::new()));
        }
        let name = self.take_name();
        if name.is_empty() {
            return Err(Error::message("unable to parse variable name"));
        }
        match self.peek() {
            Some(':') => match self.text[self.at + 1..].chars().next() {
                Some(sign @ ('=' | '-' | '?' | '+')) => {
                    self.at += 2;
                    self.parse_default(name, &format!(":{sign}"))
                }
                _ => self.parse_substring(name),
            },
            Some('=') => {
                self.at += 1;
                self.parse_default(name, "=")
            }
            Some(',' | '^') => {
                let mut operator = String::new();
                while operator.len() < 2
                    && let Some(sign @ (',' | '^')) = self.peek()
                {
                    operator.push(sign);
                    self.at += 1;
                }
                self.close()?;
                Ok(expression(name, &operator, Vec::new()))
            }
            Some('/') => self.parse_replace(name),
            Some(sign @ ('#' | '%')) => {
                let mut operator = String::new();
                while operator.len() < 2 && self.eat(sign) {
                    operator.push(sign);
                }
                let pattern = self.parse_argument(&|character| character != '}', false)?;
                self.close()?;
                Ok(expression(name, &operator, vec![pattern]))
            }
            Some('}') => {
                self.at += 1;
                Ok(expression(name, "", Vec::new()))
            }
            _ => Err(Error::message("missing closing brace")),
        }
    }

    fn parse_default(&mut self, name: String, operator: &str) -> Result<Part, Error> {
        let mut words = Vec::new();
        while self.peek() != Some('}') {
            words.push(self.parse_argument(&|character| character != '}', false)?);
        }
        self.close()?;
        Ok(expression(name, operator, words))
    }

    fn parse_substring(&mut self, name: String) -> Result<Part, Error> {
        self.at += 1;
        let position = self.parse_argument(&|character| character != ':' && character != '}', false)?;
        if self.eat('}') {
            return Ok(expression(name, ":", vec![position]));
        }
        if !self.eat(':') {
            return Err(bad_substitution());
        }
        while self.eat(':') {}
        let length = self.parse_argument(&|character| character != '}', false)?;
        self.close()?;
        Ok(expression(name, ":", vec![position, length]))
    }

    fn parse_replace(&mut self, name: String) -> Result<Part, Error> {
        self.at += 1;
        let mut operator = "/".to_owned();
        if let Some(sign @ ('/' | '#' | '%')) = self.peek() {
            operator.push(sign);
            self.at += 1;
        }
        let pattern = self.parse_argument(&|character| character != '/', true)?;
        if !self.eat('/') {
            return Err(bad_substitution());
        }
        while self.eat('/') {}
        if self.eat('}') {
            return Ok(expression(name, &operator, vec![pattern]));
        }
        let replacement = self.parse_argument(&|character| character != '}', true)?;
        self.close()?;
        Ok(expression(name, &operator, vec![pattern, replacement]))
    }

    /// One text or one nested expression.
    fn parse_argument(&mut self, accept: &dyn Fn(char) -> bool, escapes: bool) -> Result<Part, Error> {
        if self.starts_expression() {
            self.at += 2;
            return self.parse_expression();
        }
        let mut text = String::new();
        while let Some(character) = self.peek() {
            if self.starts_expression() {
                break;
            }
            let next = self.text[self.at + character.len_utf8()..].chars().next();
            let escaped = escapes && matches!((character, next), ('$', Some('$')) | ('\\', Some('/' | '\\')));
            if escaped {
                self.at += 1;
                text.extend(next);
                self.at += next.map_or(0, char::len_utf8);
                continue;
            }
            if !accept(character) {
                break;
            }
            text.push(character);
            self.at += character.len_utf8();
        }
        if text.is_empty() {
            return Err(Error::message("unable to parse substitution within function"));
        }
        Ok(Part::Text(text))
    }

    fn take_name(&mut self) -> String {
        let mut name = String::new();
        while let Some(character) = self
            .peek()
            .filter(|character| *character == '_' || character.is_alphabetic() || character.is_numeric())
        {
            name.push(character);
            self.at += character.len_utf8();
        }
        name
    }

    fn close(&mut self) -> Result<(), Error> {
        if self.eat('}') { Ok(()) } else { Err(bad_substitution()) }
    }
}

fn bad_substitution() -> Error {
    Error::message("bad substitution")
}

fn expression(name: String, operator: &str, arguments: Vec<Part>) -> Part {
    Part::Expression { name, operator: operator.to_owned(), arguments }
}

struct Context<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    strict: bool,
}

impl Context<'_> {
    fn evaluate(&self, part: &Part, result: &mut String) -> Result<(), Error> {
        let (name, operator, arguments) = match part {
            Part::Text(text) => {
                result.push_str(text);
                return Ok(());
            }
            Part::Expression { name, operator, arguments } => (name, operator, arguments),
        };
        let mut texts = Vec::with_capacity(arguments.len());
        for argument in arguments {
            let mut text = String::new();
            self.evaluate(argument, &mut text)?;
            texts.push(text);
        }
        let has_default = matches!(operator.as_str(), "=" | ":=" | ":-" | ":+" | ":?");
        let value = match (self.lookup)(name) {
            Some(value) => value,
            None if self.strict && !has_default => {
                return Err(Error::message(format!("variable not set (strict mode): {name:?}")));
            }
            None => String::new(),
        };
        result.push_str(&apply(operator, value, &texts));
        Ok(())
    }
}

fn apply(operator: &str, value: String, arguments: &[String]) -> String {
    let first = arguments.first().map_or("", String::as_str);
    let second = arguments.get(1).map(String::as_str);
    match operator {
        "#" if arguments.is_empty() => value.len().to_string(),
        "," => change_first(&value, |character| character.to_lowercase().collect()),
        "^" => change_first(&value, |character| character.to_uppercase().collect()),
        ",," => value.to_lowercase(),
        "^^" => value.to_uppercase(),
        ":" => substring(&value, first, second),
        "/" => value.replacen(first, second.unwrap_or_default(), 1),
        "//" => value.replace(first, second.unwrap_or_default()),
        "/#" => match second {
            Some(replacement) if value.starts_with(first) => value.replacen(first, replacement, 1),
            _ => value,
        },
        "/%" => match (second, value.strip_suffix(first)) {
            (Some(replacement), Some(head)) => format!("{head}{replacement}"),
            _ => value,
        },
        "#" => trim_prefix(&value, first, false),
        "##" => trim_prefix(&value, first, true),
        "%" => reversed(&trim_prefix(&reversed(&value), &reversed(first), false)),
        "%%" => reversed(&trim_prefix(&reversed(&value), &reversed(first), true)),
        _ if value.is_empty() => arguments.concat(),
        _ => value,
    }
}

fn change_first(value: &str, change: impl Fn(char) -> String) -> String {
    let mut characters = value.chars();
    match characters.next() {
        Some(first) => format!("{}{}", change(first), characters.as_str()),
        None => String::new(),
    }
}

fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

/// Bytes from a position on; cut characters become replacement characters.
fn substring(value: &str, position: &str, length: Option<&str>) -> String {
    let Ok(position) = position.parse::<i64>() else { return value.to_owned() };
    let size = value.len() as i64;
    let start = if position < 0 { (size + position).max(0) } else { position };
    let end = match length.map(str::parse::<i64>) {
        None => size,
        Some(Err(_)) => return value.to_owned(),
        Some(Ok(length)) if length < 0 => size + length,
        Some(Ok(length)) => start.saturating_add(length).min(size),
    };
    if start >= end {
        return String::new();
    }
    String::from_utf8_lossy(&value.as_bytes()[start as usize..end as usize]).into_owned()
}

/// Removes the shortest or longest non-empty prefix that matches the pattern.
fn trim_prefix(value: &str, pattern: &str, longest: bool) -> String {
    let mut found = None;
    for (start, character) in value.char_indices().rev() {
        let position = start + character.len_utf8();
        match glob(pattern, &value[..position]) {
            Err(MalformedPattern) => return value.to_owned(),
            Ok(true) => {
                found = Some(position);
                if longest {
                    break;
                }
            }
            Ok(false) => {}
        }
    }
    found.map_or_else(|| value.to_owned(), |position| value[position..].to_owned())
}

struct MalformedPattern;

/// Whether the pattern matches the whole text; `*` matches anything.
fn glob(pattern: &str, text: &str) -> Result<bool, MalformedPattern> {
    let mut pattern = pattern;
    let mut text = text;
    'chunks: while !pattern.is_empty() {
        let star = pattern.starts_with('*');
        let (chunk, rest) = next_chunk(pattern.trim_start_matches('*'));
        pattern = rest;
        if star && chunk.is_empty() {
            return Ok(true);
        }
        if let Some(after) = match_chunk(chunk, text)?
            && (after.is_empty() || !pattern.is_empty())
        {
            text = after;
            continue;
        }
        if star {
            for (start, character) in text.char_indices() {
                if let Some(after) = match_chunk(chunk, &text[start + character.len_utf8()..])? {
                    if pattern.is_empty() && !after.is_empty() {
                        continue;
                    }
                    text = after;
                    continue 'chunks;
                }
            }
        }
        return Ok(false);
    }
    Ok(text.is_empty())
}

/// The pattern up to the next `*` outside of brackets, and the rest.
fn next_chunk(pattern: &str) -> (&str, &str) {
    let mut in_brackets = false;
    let mut escaped = false;
    for (position, character) in pattern.char_indices() {
        if escaped {
            escaped = false;
            continue;
        }
        match character {
            '\\' => escaped = true,
            '[' => in_brackets = true,
            ']' => in_brackets = false,
            '*' if !in_brackets => return pattern.split_at(position),
            _ => {}
        }
    }
    (pattern, "")
}

/// The text behind a match of the chunk at its start, `None` if there is no match.
fn match_chunk<'a>(chunk: &str, text: &'a str) -> Result<Option<&'a str>, MalformedPattern> {
    let mut chunk = chunk;
    let mut text = text;
    while let Some(sign) = chunk.chars().next() {
        let Some(character) = text.chars().next() else { return Ok(None) };
        match sign {
            '[' => {
                text = &text[character.len_utf8()..];
                chunk = &chunk[1..];
                let negated = chunk.starts_with('^');
                if negated {
                    chunk = &chunk[1..];
                }
                let mut matched = false;
                let mut ranges = 0;
                while !(chunk.starts_with(']') && ranges > 0) {
                    let (low, rest) = class_character(chunk).ok_or(MalformedPattern)?;
                    let (high, rest) = match rest.strip_prefix('-') {
                        Some(rest) => class_character(rest).ok_or(MalformedPattern)?,
                        None => (low, rest),
                    };
                    chunk = rest;
                    matched |= (low..=high).contains(&character);
                    ranges += 1;
                }
                chunk = &chunk[1..];
                if matched == negated {
                    return Ok(None);
                }
            }
            '?' => {
                text = &text[character.len_utf8()..];
                chunk = &chunk[1..];
            }
            _ => {
                let wanted = if sign == '\\' {
                    chunk = &chunk[1..];
                    chunk.chars().next().ok_or(MalformedPattern)?
                } else {
                    sign
                };
                if wanted != character {
                    return Ok(None);
                }
                text = &text[character.len_utf8()..];
                chunk = &chunk[wanted.len_utf8()..];
            }
        }
    }
    Ok(Some(text))
}

/// A character of a class and what follows it, which must not be the end.
fn class_character(chunk: &str) -> Option<(char, &str)> {
    if chunk.starts_with(['-', ']']) {
        return None;
    }
    let chunk = chunk.strip_prefix('\\').unwrap_or(chunk);
    let character = chunk.chars().next()?;
    let rest = &chunk[character.len_utf8()..];
    (!rest.is_empty()).then_some((character, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str, strict: bool) -> Result<String, String> {
        let lookup = |name: &str| match name {
            "a" => Some("abcdEFGH28ij".to_owned()),
            "e" => Some(String::new()),
            "p" => Some("/usr/lib/x.tar.gz".to_owned()),
            "n" => Some("2".to_owned()),
            _ => None,
        };
        substitute_text(text, &lookup, strict).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(run(text, false).unwrap(), expected, "{text}");
    }

    #[test]
    fn values_and_defaults() {
        check("x ${a} y", "x abcdEFGH28ij y");
        check("${u}", "");
        check("${u:-w}${u:=w}${u=w}${u:+w}${u:?w}", "wwwww");
        check("${a:+w}", "abcdEFGH28ij");
        check("${e:-w}", "w");
        check("${u:-x${n}-y}", "x2-y");
        check("${u:-}", "");
        check("$a $(a) $", "$a $(a) $");
        check("$$ $${a} $$$$", "$ ${a} $$");
        check("\\${n}", "\\2");
    }

    #[test]
    fn transformations() {
        check("${#a}", "12");
        check("${a^^}${a,,}", "ABCDEFGH28IJabcdefgh28ij");
        check("${a^}", "AbcdEFGH28ij");
        check("${a:4}", "EFGH28ij");
        check("${a:4:4}", "EFGH");
        check("${a:40}", "");
        check("${a:x}", "abcdEFGH28ij");
        check("${a:0:-2}", "abcdEFGH28");
        check("${a:${n}:2}", "cd");
        check("${a/cd/X}", "abXEFGH28ij");
        check("${a/cd/}", "abEFGH28ij");
        check("${a//[/X}", "abcdEFGH28ij");
        check("${a/#ab/X}${a/%ij/X}", "XcdEFGH28ijabcdEFGH28X");
        check("${a/#ab/}", "abcdEFGH28ij");
        check("${p#*/}", "usr/lib/x.tar.gz");
        check("${p##*/}", "x.tar.gz");
        check("${p%.*}", "/usr/lib/x.tar");
        check("${p%%.*}", "/usr/lib/x");
        check("${p/\\/usr/X}", "X/lib/x.tar.gz");
    }

    #[test]
    fn mistakes() {
        for (text, expected) in [
            ("${{ x }}", "unable to parse variable name"),
            ("${ x}", "unable to parse variable name"),
            ("${a", "missing closing brace"),
            ("${a-w}", "missing closing brace"),
            ("${a:-w", "unable to parse substitution within function"),
            ("${a/b}", "bad substitution"),
            ("${#}", "bad substitution"),
            ("${a#}", "unable to parse substitution within function"),
        ] {
            assert_eq!(run(text, false).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn strict_mode_wants_values() {
        assert_eq!(run("${u}", true).unwrap_err(), "variable not set (strict mode): \"u\"");
        assert_eq!(run("${#u}", true).unwrap_err(), "variable not set (strict mode): \"u\"");
        assert_eq!(run("${u:-x}${e}", true).unwrap(), "x");
    }
}
