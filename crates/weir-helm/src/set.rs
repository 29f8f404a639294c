//! The grammar of `--set`, `--set-string`, `--set-file`, `--set-json` and `--set-literal`.

use serde_json::{Map, Value as Json};

use crate::values::Table;

/// The largest list index.
pub const INDEX_MAX: i64 = 65_536;
/// How deeply names may be nested, in levels.
pub const NAME_LEVELS_MAX: usize = 30;

/// What is wrong with an assignment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SetError(pub String);

/// How the text behind `=` is understood.
pub enum Reader<'a> {
    /// `--set`: integers, `true`, `false`, `null` are what they look like.
    Typed,
    /// `--set-string`: everything is text.
    Text,
    /// `--set-json`: JSON.
    Json,
    /// `--set-file`: the text is a path, the value what is read from there.
    File(&'a dyn Fn(&str) -> Result<String, String>),
    /// `--set-literal`: everything behind the first `=` is text, commas and backslashes too.
    Literal,
}

/// Applies assignments such as `a.b=1,c[0].d=x` to `target`.
///
/// Values set before stay next to new ones; lists grow as needed and are filled up with null.
pub fn apply(target: &mut Table, text: &str, reader: &Reader<'_>) -> Result<(), SetError> {
    let mut parser = Parser { rest: text.chars().collect(), position: 0, reader };
    loop {
        match parser.key(target, 0) {
            Ok(()) => {}
            Err(Stop::End) => return Ok(()),
            Err(Stop::Failed(message)) => return Err(SetError(message)),
        }
    }
}

enum Stop {
    /// The text has been read.
    End,
    Failed(String),
}

fn failed<T>(message: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Failed(message.into()))
}

struct Parser<'a> {
    rest: Vec<char>,
    position: usize,
    reader: &'a Reader<'a>,
}

fn quoted(text: &str) -> String {
    weir_gotemplate::helm::quoted(text)
}

impl Parser<'_> {
    fn next(&mut self) -> Option<char> {
        let character = self.rest.get(self.position).copied();
        self.position += usize::from(character.is_some());
        character
    }

    fn peek(&self) -> Option<char> {
        self.rest.get(self.position).copied()
    }

    /// Reads up to one of the stop characters; a backslash takes the next character as it is.
    fn until(&mut self, stops: &str) -> (String, Option<char>) {
        let mut text = String::new();
        loop {
            match self.next() {
                None => return (text, None),
                Some('\\') if !matches!(self.reader, Reader::Literal) => match self.next() {
                    None => return (text, None),
                    Some(character) => text.push(character),
                },
                Some(character) if stops.contains(character) => return (text, Some(character)),
                Some(character) => text.push(character),
            }
        }
    }

    fn set(target: &mut Table, key: &str, value: Json) {
        if !key.is_empty() {
            target.insert(key.to_owned(), value);
        }
    }

    fn key(&mut self, target: &mut Table, level: usize) -> Result<(), Stop> {
        let stops = if matches!(self.reader, Reader::Literal) { "=[." } else { "=[,." };
        let (key, stop) = self.until(stops);
        match stop {
            None if key.is_empty() => Err(Stop::End),
            None => failed(format!("key {} has no value", quoted(&key))),
            Some('[') => {
                let index = self.index()?;
                let mut list = match target.get(&key) {
                    None => Vec::new(),
                    Some(Json::Array(list)) => list.clone(),
                    Some(other) => {
                        return failed(format!(
                            "unable to parse key: interface conversion: interface {{}} is {}, not []interface {{}}",
                            go_type(other)
                        ));
                    }
                };
                let result = self.list_item(&mut list, index, level);
                Self::set(target, &key, Json::Array(list));
                result
            }
            Some('=') => self.assignment(target, &key),
            Some(',') => {
                Self::set(target, &key, Json::String(String::new()));
                failed(format!("key {} has no value (cannot end with ,)", quoted(&key)))
            }
            Some(_) => {
                let level = level + 1;
                if level > NAME_LEVELS_MAX {
                    return failed(format!(
                        "value name nested level is greater than maximum supported nested level of {NAME_LEVELS_MAX}"
                    ));
                }
                let mut inner = match target.get(&key) {
                    None => Table::new(),
                    Some(Json::Object(inner)) => inner.clone(),
                    Some(other) => {
                        return failed(format!(
                            "unable to parse key: interface conversion: interface {{}} is {}, not map[string]interface {{}}",
                            go_type(other)
                        ));
                    }
                };
                let result = self.key(&mut inner, level);
                if result.is_ok() && inner.is_empty() {
                    return failed(format!("key map {} has no value", quoted(&key)));
                }
                if !inner.is_empty() {
                    Self::set(target, &key, Json::Object(inner));
                }
                result
            }
        }
    }

    fn assignment(&mut self, target: &mut Table, key: &str) -> Result<(), Stop> {
        if matches!(self.reader, Reader::Json) {
            let value = self.json_value()?;
            Self::set(target, key, value);
            return Ok(());
        }
        match self.list() {
            Ok(Some(list)) => {
                Self::set(target, key, Json::Array(list));
                Ok(())
            }
            Ok(None) => {
                let (value, ended) = self.value()?;
                Self::set(target, key, value);
                if ended { Err(Stop::End) } else { Ok(()) }
            }
            Err(Stop::End) => {
                Self::set(target, key, Json::String(String::new()));
                Err(Stop::End)
            }
            Err(failed) => Err(failed),
        }
    }

    /// The index up to the closing bracket. Without a bracket the text simply ends there.
    fn index(&mut self) -> Result<i64, Stop> {
        let (text, stop) = self.until("]");
        if stop.is_none() {
            return Err(Stop::End);
        }
        text.parse().or_else(|_| {
            failed(format!("error parsing index: strconv.Atoi: parsing {}: invalid syntax", quoted(&text)))
        })
    }

    fn set_index(list: &mut Vec<Json>, index: i64, value: Json) -> Result<(), Stop> {
        if index < 0 {
            return failed(format!("negative {index} index not allowed"));
        }
        if index > INDEX_MAX {
            return failed(format!(
                "index of {index} is greater than maximum supported index of {INDEX_MAX}"
            ));
        }
        let index = index as usize;
        if list.len() <= index {
            list.resize(index + 1, Json::Null);
        }
        list[index] = value;
        Ok(())
    }

    fn list_item(&mut self, list: &mut Vec<Json>, index: i64, level: usize) -> Result<(), Stop> {
        if index < 0 {
            return failed(format!("negative {index} index not allowed"));
        }
        let (text, stop) = self.until("[.=");
        let existing = usize::try_from(index).ok().and_then(|index| list.get(index)).cloned();
        match stop {
            _ if !text.is_empty() => {
                failed(format!("unexpected data at end of array index: {}", quoted(&text)))
            }
            None => Err(Stop::End),
            Some('=') => {
                if matches!(self.reader, Reader::Json) {
                    let value = self.json_value()?;
                    return Self::set_index(list, index, value);
                }
                match self.list() {
                    Ok(Some(inner)) => Self::set_index(list, index, Json::Array(inner)),
                    Ok(None) => {
                        let (value, ended) = self.value()?;
                        Self::set_index(list, index, value)?;
                        if ended { Err(Stop::End) } else { Ok(()) }
                    }
                    Err(Stop::End) => {
                        Self::set_index(list, index, Json::String(String::new()))?;
                        Err(Stop::End)
                    }
                    Err(failed) => Err(failed),
                }
            }
            Some('[') => {
                let next = self.index()?;
                let mut inner = match existing {
                    Some(Json::Array(inner)) => inner,
                    _ => Vec::new(),
                };
                let result = self.list_item(&mut inner, next, level);
                Self::set_index(list, index, Json::Array(inner))?;
                result
            }
            Some(_) => {
                let mut inner = match existing {
                    Some(Json::Object(inner)) => inner,
                    _ => Table::new(),
                };
                let result = self.key(&mut inner, level);
                Self::set_index(list, index, Json::Object(inner))?;
                result
            }
        }
    }

    /// The text up to the next comma, and whether it was the last.
    fn value(&mut self) -> Result<(Json, bool), Stop> {
        let stops = if matches!(self.reader, Reader::Literal) { "" } else { "," };
        let (text, stop) = self.until(stops);
        let value = match self.reader {
            Reader::Typed => typed(&text),
            Reader::Text | Reader::Literal => Json::String(text),
            Reader::Json => Json::Null,
            Reader::File(read) => Json::String(read(&text).or_else(failed)?),
        };
        Ok((value, stop.is_none()))
    }

    /// A list in braces; nothing if there is none.
    fn list(&mut self) -> Result<Option<Vec<Json>>, Stop> {
        match self.peek() {
            _ if matches!(self.reader, Reader::Literal) => return Ok(None),
            None => return Err(Stop::End),
            Some('{') => self.position += 1,
            Some(_) => return Ok(None),
        }
        let mut list = Vec::new();
        loop {
            let (text, stop) = self.until(",}");
            match stop {
                None => return failed("list must terminate with '}'"),
                Some(stop) => {
                    let end = stop == '}';
                    if end && text.is_empty() && list.is_empty() {
                        self.skip_comma();
                        return Ok(Some(list));
                    }
                    let value = match self.reader {
                        Reader::Typed => typed(&text),
                        Reader::Text | Reader::Json | Reader::Literal => Json::String(text),
                        Reader::File(read) => Json::String(read(&text).or_else(failed)?),
                    };
                    list.push(value);
                    if end {
                        self.skip_comma();
                        return Ok(Some(list));
                    }
                }
            }
        }
    }

    fn skip_comma(&mut self) {
        if self.peek() == Some(',') {
            self.position += 1;
        }
    }

    fn json_value(&mut self) -> Result<Json, Stop> {
        let rest: String = self.rest[self.position..].iter().collect();
        let trimmed = rest.trim_start();
        if trimmed.is_empty() || trimmed.starts_with(',') {
            self.position += rest.len() - trimmed.len();
            self.skip_comma();
            return Ok(Json::Null);
        }
        let mut stream = serde_json::Deserializer::from_str(&rest).into_iter::<Json>();
        let value = match stream.next() {
            Some(Ok(value)) => value,
            Some(Err(error)) => return failed(error.to_string()),
            None => return failed("unexpected end of JSON input"),
        };
        let consumed = stream.byte_offset();
        self.position += rest[..consumed].chars().count();
        while self.peek().is_some_and(char::is_whitespace) {
            self.position += 1;
        }
        self.skip_comma();
        Ok(crate::values::with_floats(value))
    }
}

fn go_type(value: &Json) -> &'static str {
    match value {
        Json::Null => "nil",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_f64() => "float64",
        Json::Number(_) => "int64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}

/// What a text looks like: bool, null, integer (but not with a leading zero) or text.
fn typed(text: &str) -> Json {
    match text {
        _ if text.eq_ignore_ascii_case("true") => return Json::Bool(true),
        _ if text.eq_ignore_ascii_case("false") => return Json::Bool(false),
        _ if text.eq_ignore_ascii_case("null") => return Json::Null,
        "0" => return Json::from(0),
        _ => {}
    }
    if !text.is_empty()
        && !text.starts_with('0')
        && let Ok(number) = weir_gotemplate::strconv::parse_int(text, 10)
    {
        return Json::from(number);
    }
    Json::String(text.to_owned())
}

/// Applies one assignment to a fresh table; for tests and previews.
pub fn parse(text: &str) -> Result<Table, SetError> {
    let mut table = Map::new();
    apply(&mut table, text, &Reader::Typed)?;
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let outcome = match parse(text) {
            Ok(table) => Json::Object(table).to_string(),
            Err(error) => format!("error: {error}"),
        };
        assert_eq!(outcome, expected, "{text}");
    }

    #[test]
    fn assignments() {
        check("a=1", r#"{"a":1}"#);
        check("a=1,b=x", r#"{"a":1,"b":"x"}"#);
        check("a.b.c=true,a.b.d=null", r#"{"a":{"b":{"c":true,"d":null}}}"#);
        check("a={1,b,c}", r#"{"a":[1,"b","c"]}"#);
        check("a={}", r#"{"a":[]}"#);
        check("a[0]=x,a[2]=y", r#"{"a":["x",null,"y"]}"#);
        check("a[0].b=1,a[0].c=2", r#"{"a":[{"b":1,"c":2}]}"#);
        check("a[0][1]=z", r#"{"a":[[null,"z"]]}"#);
        check("a=00,b=0,c=-5,d=1.5,e=1e3", r#"{"a":"00","b":0,"c":-5,"d":"1.5","e":"1e3"}"#);
        check("a=b\\,c", r#"{"a":"b,c"}"#);
        check("a\\.b=c", r#"{"a.b":"c"}"#);
        check("a=", r#"{"a":""}"#);
        check("a={b},c=d", r#"{"a":["b"],"c":"d"}"#);
        check("", "{}");
    }

    #[test]
    fn literal_assignments() {
        for (text, expected) in [
            (r"a.b=x,y={1},c\,d", r#"{"a":{"b":"x,y={1},c\\,d"}}"#),
            ("a=", r#"{"a":""}"#),
            ("a[1]=true", r#"{"a":[null,"true"]}"#),
            (r"a\.b=1", r#"{"a\\":{"b":"1"}}"#),
            ("a,b=1", r#"{"a,b":"1"}"#),
        ] {
            let mut table = Map::new();
            apply(&mut table, text, &Reader::Literal).unwrap();
            assert_eq!(Json::Object(table).to_string(), expected, "{text}");
        }
        assert!(apply(&mut Map::new(), "a", &Reader::Literal).is_err());
    }

    #[test]
    fn mistakes() {
        check("a", "error: key \"a\" has no value");
        check("a,b=1", "error: key \"a\" has no value (cannot end with ,)");
        check("a[-1]=1", "error: negative -1 index not allowed");
        check("a[x]=1", "error: error parsing index: strconv.Atoi: parsing \"x\": invalid syntax");
        check("a[70000]=1", "error: index of 70000 is greater than maximum supported index of 65536");
        check("a={b", "error: list must terminate with '}'");
        check("a[1", "{}");
    }
}
