//! JSONPath templates as `kubectl` and `helm` print them: text with expressions in braces.

use serde_json::Value;
use weir_gotemplate::{format, json};

/// How deeply `range` may be nested, in levels.
const RANGE_LEVELS_MAX: usize = 64;

/// A part of a template.
#[derive(Debug, Clone, PartialEq)]
enum Part {
    Text(String),
    Expression(Vec<Step>),
    Range(Vec<Step>, Vec<Part>),
}

/// A step from values to values.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Wildcard,
    Recursive,
    Slice { start: Option<i64>, end: Option<i64>, step: Option<i64>, single: bool },
    Union(Vec<Vec<Step>>),
    Filter { left: Vec<Step>, operator: String, right: Vec<Step> },
    Literal(Value),
}

/// What a template gives for a value. What is not there gives nothing.
///
/// # Errors
/// The template is malformed, or it looks into something of another kind.
pub(super) fn print(template: &str, value: &Value) -> Result<String, String> {
    let mut parser = Parser { rest: template };
    let parts =
        parser.parts(0, false).map_err(|error| format!("error parsing jsonpath {template}: {error}"))?;
    let mut out = String::new();
    write(&parts, value, &mut out)?;
    Ok(out)
}

fn write(parts: &[Part], value: &Value, out: &mut String) -> Result<(), String> {
    for part in parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Expression(steps) => {
                let found = follow(steps, vec![value.clone()])?;
                let texts: Vec<String> = found.iter().map(text).collect();
                out.push_str(&texts.join(" "));
            }
            Part::Range(steps, body) => {
                for item in follow(steps, vec![value.clone()])? {
                    write(body, &item, out)?;
                }
            }
        }
    }
    Ok(())
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "null".to_owned(),
        Value::Array(_) | Value::Object(_) => {
            let plain = weir_gotemplate::Value::from_json(value);
            let style = json::Style { pretty: false, escape_html: true };
            let json = json::encode(&plain, style).unwrap_or_default();
            String::from_utf8_lossy(&json).into_owned()
        }
        scalar => format::display_text(&weir_gotemplate::Value::from_json(scalar)),
    }
}

fn follow(steps: &[Step], start: Vec<Value>) -> Result<Vec<Value>, String> {
    let mut values = start;
    for step in steps {
        let mut next = Vec::new();
        for value in &values {
            apply(step, value, &mut next)?;
        }
        values = next;
    }
    Ok(values)
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(entries) => entries.values().collect(),
        _ => Vec::new(),
    }
}

fn apply(step: &Step, value: &Value, next: &mut Vec<Value>) -> Result<(), String> {
    match step {
        Step::Field(name) => next.extend(value.get(name).cloned()),
        Step::Wildcard => next.extend(children(value).into_iter().cloned()),
        Step::Recursive => descend(value, next),
        Step::Literal(literal) => next.push(literal.clone()),
        Step::Union(branches) => {
            for branch in branches {
                next.extend(follow(branch, vec![value.clone()])?);
            }
        }
        Step::Slice { start, end, step, single } => {
            let items = match value {
                Value::Array(items) => items,
                Value::Null => return Ok(()),
                _ => return Err(format!("{} is not array or slice", text(value))),
            };
            slice(items, *start, *end, *step, *single, next)?;
        }
        Step::Filter { left, operator, right } => {
            let Value::Array(items) = value else {
                return Err(format!("{} is not array or slice and cannot be filtered", text(value)));
            };
            for item in items {
                if passes(item, left, operator, right)? {
                    next.push(item.clone());
                }
            }
        }
    }
    Ok(())
}

/// The value and all values in it.
fn descend(value: &Value, next: &mut Vec<Value>) {
    let mut pending = vec![value];
    let mut found = Vec::new();
    while let Some(value) = pending.pop() {
        if value.is_array() || value.is_object() {
            found.push(value.clone());
        }
        pending.extend(children(value).into_iter().rev());
    }
    next.extend(found);
}

fn slice(
    items: &[Value],
    start: Option<i64>,
    end: Option<i64>,
    step: Option<i64>,
    single: bool,
    next: &mut Vec<Value>,
) -> Result<(), String> {
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let within = |index: i64| if index < 0 { index + length } else { index };
    let from = within(start.unwrap_or(0));
    let to = match end {
        Some(end) => within(end),
        None if single => from + 1,
        None => length,
    };
    let step = step.unwrap_or(1);
    if single && (from >= length || from < 0) {
        return Err(format!(
            "array index out of bounds: index {}, length {length}",
            if from < 0 { from - length } else { from }
        ));
    }
    if step <= 0 {
        return Err("step must be > 0".to_owned());
    }
    let mut index = from.max(0);
    while index < to.min(length) {
        next.extend(items.get(usize::try_from(index).unwrap_or(usize::MAX)).cloned());
        index += step;
    }
    Ok(())
}

fn passes(item: &Value, left: &[Step], operator: &str, right: &[Step]) -> Result<bool, String> {
    let missing_is_none = |steps: &[Step]| follow(steps, vec![item.clone()]).unwrap_or_default();
    let left = missing_is_none(left);
    if operator == "exists" {
        return Ok(!left.is_empty());
    }
    if left.is_empty() {
        return Ok(false);
    }
    if left.len() > 1 {
        return Err("can only compare one element at a time".to_owned());
    }
    let right = missing_is_none(right);
    if right.is_empty() {
        return Ok(false);
    }
    if right.len() > 1 {
        return Err("can only compare one element at a time".to_owned());
    }
    let order = match (&left[0], &right[0]) {
        (Value::Number(left), Value::Number(right)) => left.as_f64().partial_cmp(&right.as_f64()),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) if matches!(operator, "==" | "!=") => {
            return Ok((left == right) == (operator == "=="));
        }
        _ => return Err("incompatible types for comparison".to_owned()),
    };
    Ok(match operator {
        "<" => order.is_some_and(std::cmp::Ordering::is_lt),
        ">" => order.is_some_and(std::cmp::Ordering::is_gt),
        "==" => order.is_some_and(std::cmp::Ordering::is_eq),
        "!=" => !order.is_some_and(std::cmp::Ordering::is_eq),
        "<=" => order.is_some_and(std::cmp::Ordering::is_le),
        ">=" => order.is_some_and(std::cmp::Ordering::is_ge),
        other => return Err(format!("unrecognized filter operator {other}")),
    })
}

struct Parser<'a> {
    rest: &'a str,
}

/// What one pair of braces holds.
enum Action {
    Steps(Vec<Step>),
    Range(Vec<Step>),
    End,
}

impl Parser<'_> {
    fn parts(&mut self, level: usize, inside: bool) -> Result<Vec<Part>, String> {
        let mut parts = Vec::new();
        if level > RANGE_LEVELS_MAX {
            return Err("too many ranges in one another".to_owned());
        }
        while !self.rest.is_empty() {
            let Some(brace) = self.rest.find('{') else {
                parts.push(Part::Text(std::mem::take(&mut self.rest).to_owned()));
                break;
            };
            if brace > 0 {
                parts.push(Part::Text(self.rest[..brace].to_owned()));
            }
            self.rest = &self.rest[brace + 1..];
            match self.action()? {
                Action::Steps(steps) => parts.push(Part::Expression(steps)),
                Action::Range(steps) => {
                    let body = self.parts(level + 1, true)?;
                    parts.push(Part::Range(steps, body));
                }
                Action::End if inside => return Ok(parts),
                Action::End => return Err("not in range, nothing to end".to_owned()),
            }
        }
        if inside { Err("unterminated range, no matching end".to_owned()) } else { Ok(parts) }
    }

    /// Everything up to the closing brace.
    fn action(&mut self) -> Result<Action, String> {
        let mut steps = Vec::new();
        let mut range = false;
        loop {
            if let Some(rest) = self.rest.strip_prefix('}') {
                self.rest = rest;
                return Ok(if range { Action::Range(steps) } else { Action::Steps(steps) });
            }
            if self.rest.starts_with("[?(") {
                steps.push(self.filter()?);
                continue;
            }
            if let Some(rest) = self.rest.strip_prefix("..") {
                self.rest = rest;
                steps.push(Step::Recursive);
                // The dot of a field that follows has been taken.
                if self.rest.starts_with(|next: char| !is_terminator(next)) {
                    steps.push(self.field());
                }
                continue;
            }
            let Some(next) = self.rest.chars().next() else { return Err("unclosed action".to_owned()) };
            match next {
                '\n' | '\r' => return Err("unclosed action".to_owned()),
                ' ' | '@' | '$' => self.rest = &self.rest[1..],
                '[' => self.array(&mut steps)?,
                '"' | '\'' => steps.push(self.quoted(next)?),
                '.' => {
                    self.rest = &self.rest[1..];
                    // A lone dot is the value itself.
                    if self.rest.starts_with(|next: char| !is_terminator(next)) {
                        steps.push(self.field());
                    }
                }
                '+' | '-' | '0'..='9' => steps.push(self.number()?),
                next if next.is_alphanumeric() || next == '_' => {
                    let end = self.rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
                    let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
                    self.rest = rest;
                    match word {
                        "range" => range = true,
                        "end" => {
                            let closed = self.rest.trim_start_matches(' ').strip_prefix('}');
                            self.rest = closed.ok_or("unclosed action")?;
                            return Ok(Action::End);
                        }
                        "true" => steps.push(Step::Literal(Value::Bool(true))),
                        "false" => steps.push(Step::Literal(Value::Bool(false))),
                        word => return Err(format!("unrecognized identifier {word}")),
                    }
                }
                next => {
                    let code = u32::from(next);
                    return Err(format!("unrecognized character in action: U+{code:04X} '{next}'"));
                }
            }
        }
    }

    fn field(&mut self) -> Step {
        let mut name = String::new();
        let mut characters = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((at, next)) = characters.next() {
            if next == '\\' {
                name.extend(characters.next().map(|(_, escaped)| escaped));
            } else if is_terminator(next) {
                end = at;
                break;
            } else {
                name.push(next);
            }
        }
        self.rest = &self.rest[end..];
        if name == "*" { Step::Wildcard } else { Step::Field(name) }
    }

    fn quoted(&mut self, quote: char) -> Result<Step, String> {
        let body = &self.rest[1..];
        let mut escaped = false;
        let end = body.find(|next: char| {
            let ends = next == quote && !escaped;
            escaped = next == '\\' && !escaped;
            ends
        });
        let end = end.ok_or("unterminated quoted string")?;
        let mut text = String::new();
        let mut characters = body[..end].chars();
        while let Some(next) = characters.next() {
            match next {
                '\\' => match characters.next() {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some(other) => text.push(other),
                    None => {}
                },
                other => text.push(other),
            }
        }
        self.rest = &body[end + 1..];
        Ok(Step::Literal(Value::String(text)))
    }

    fn number(&mut self) -> Result<Step, String> {
        let end = self.rest.find(|next: char| !(next.is_ascii_alphanumeric() || "+-.".contains(next)));
        let (text, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        let value: f64 = text.parse().map_err(|_| format!("cannot parse number {text}"))?;
        Ok(Step::Literal(Value::from(value)))
    }

    fn array(&mut self, steps: &mut Vec<Step>) -> Result<(), String> {
        let end = self.rest.find([']', '\n']).filter(|end| self.rest.as_bytes().get(*end) == Some(&b']'));
        let end = end.ok_or("unterminated array")?;
        let inner = &self.rest[1..end];
        self.rest = &self.rest[end + 1..];
        let members: Vec<&str> = inner.split(',').collect();
        if members.len() > 1 {
            let branches = members.iter().map(|member| Ok(vec![index(member.trim())?]));
            steps.push(Step::Union(branches.collect::<Result<_, String>>()?));
        } else {
            steps.push(index(inner)?);
        }
        Ok(())
    }

    fn filter(&mut self) -> Result<Step, String> {
        let body = &self.rest["[?(".len()..];
        let (mut depth, mut quote, mut end) = (1, None, None);
        let mut escaped = false;
        for (at, next) in body.char_indices() {
            match (quote, next) {
                (Some(open), next) if next == open && !escaped => quote = None,
                (None, '\'' | '"') => quote = Some(next),
                (None, '(') => depth += 1,
                (None, ')') => {
                    depth -= 1;
                    if depth == 0 {
                        end = Some(at);
                        break;
                    }
                }
                _ => {}
            }
            escaped = next == '\\' && !escaped;
        }
        let end = end.ok_or("unterminated filter")?;
        let expression = &body[..end];
        self.rest = body[end + 1..].strip_prefix(']').ok_or("unclosed array expect ]")?;
        let side = |text: &str| {
            let text = format!("{}}}", text.trim());
            match (Parser { rest: &text }).action()? {
                Action::Steps(steps) => Ok(steps),
                _ => Err("unrecognized identifier range".to_owned()),
            }
        };
        let is_operator = |next: char| matches!(next, '!' | '<' | '>' | '=');
        let Some(start) = expression.find(is_operator).filter(|start| *start > 0) else {
            return Ok(Step::Filter {
                left: side(expression)?,
                operator: "exists".to_owned(),
                right: Vec::new(),
            });
        };
        let length = expression[start..].find(|next| !is_operator(next)).unwrap_or(expression.len() - start);
        Ok(Step::Filter {
            left: side(&expression[..start])?,
            operator: expression[start..start + length].to_owned(),
            right: side(&expression[start + length..])?,
        })
    }
}

fn is_terminator(next: char) -> bool {
    next.is_whitespace() || matches!(next, '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

/// What stands between brackets: a quoted key, an index, a slice, or a star.
fn index(text: &str) -> Result<Step, String> {
    if text == "*" {
        return Ok(Step::Slice { start: None, end: None, step: None, single: false });
    }
    if let Some(key) = text.strip_prefix('\'').and_then(|key| key.strip_suffix('\'')) {
        return Ok(Step::Field(key.replace('\\', "")));
    }
    let bad = || format!("invalid array index {text}");
    let numbers: Vec<&str> = text.split(':').collect();
    if numbers.len() > 3 || numbers[0].is_empty() && numbers.len() == 1 {
        return Err(bad());
    }
    let number = |place: usize| match numbers.get(place) {
        None | Some(&"") => Ok(None),
        Some(number) => number.parse::<i64>().map(Some).map_err(|_| bad()),
    };
    Ok(Step::Slice { start: number(0)?, end: number(1)?, step: number(2)?, single: numbers.len() == 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(template: &str, expected: Result<&str, &str>) {
        let value = serde_json::json!({
            "image": {"tag": "1.2", "repo": "web"},
            "ports": [{"name": "http", "port": 80.0}, {"name": "https", "port": 443.0}],
            "on": true, "big": 1_000_000.0, "none": null, "a.b": "dotted",
        });
        let printed = print(template, &value);
        assert_eq!(printed.as_deref().map_err(String::as_str), expected, "{template}");
    }

    #[test]
    fn templates() {
        check("{.image.tag}", Ok("1.2"));
        check("tag: {.image['tag']}\n", Ok("tag: 1.2\n"));
        check("{.image}", Ok("{\"repo\":\"web\",\"tag\":\"1.2\"}"));
        check("{.ports[*].port}", Ok("80 443"));
        check("{.ports[-1].name} {.ports[0:1].name}", Ok("https http"));
        check("{range .ports[*]}{.name}={.port};{end}", Ok("http=80;https=443;"));
        check("{.ports[?(@.name==\"https\")].port}", Ok("443"));
        check("{.ports[?(@.port>80)].name}", Ok("https"));
        check("{..name}", Ok("http https"));
        check("{.on} {.big} {.none} {.missing.too}", Ok("true 1e+06 null "));
        check("{.a\\.b} {['a.b']}", Ok("dotted dotted"));
        check("{.ports[0]['name','port']}", Ok("http 80"));
        check("{\"x\\ty\"}", Ok("x\ty"));
        check("plain", Ok("plain"));
    }

    #[test]
    fn mistakes() {
        check("{.ports[7]}", Err("array index out of bounds: index 7, length 2"));
        check("{.image[0]}", Err("{\"repo\":\"web\",\"tag\":\"1.2\"} is not array or slice"));
        check("{.a", Err("error parsing jsonpath {.a: unclosed action"));
        check("{end}", Err("error parsing jsonpath {end}: not in range, nothing to end"));
        check(
            "{range .ports[*]}",
            Err("error parsing jsonpath {range .ports[*]}: unterminated range, no matching end"),
        );
    }
}
