//! Regular expressions with Go's syntax and results.

use std::rc::Rc;

use regex::bytes::Regex;

use super::{Outcome, bytes, int, text};
use crate::error::Fault;
use crate::exec::Context;
use crate::function::{Function, Param};
use crate::text::Text;
use crate::value::{Element, List, Value};

use Param::{Int, String as Str};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("regexMatch", &[Str, Str], |context, arguments| {
        let matched = compiled(context, bytes(arguments, 0)).map(|regex| regex.is_match(bytes(arguments, 1)));
        Ok(Value::Bool(matched.unwrap_or(false)))
    }),
    Function::new("mustRegexMatch", &[Str, Str], |context, arguments| {
        Ok(Value::Bool(compiled(context, bytes(arguments, 0))?.is_match(bytes(arguments, 1))))
    }),
    Function::new("regexFindAll", &[Str, Str, Int], |context, arguments| {
        let regex = demanded(context, arguments)?;
        find_all(context, &regex, arguments)
    }),
    Function::new("mustRegexFindAll", &[Str, Str, Int], |context, arguments| {
        let regex = compiled(context, bytes(arguments, 0))?;
        find_all(context, &regex, arguments)
    }),
    Function::new("regexFind", &[Str, Str], |context, arguments| {
        find_first(&*demanded(context, arguments)?, arguments)
    }),
    Function::new("mustRegexFind", &[Str, Str], |context, arguments| {
        find_first(&*compiled(context, bytes(arguments, 0))?, arguments)
    }),
    Function::new("regexReplaceAll", &[Str, Str, Str], |context, arguments| {
        let regex = demanded(context, arguments)?;
        replace(context, &regex, arguments, false)
    }),
    Function::new("mustRegexReplaceAll", &[Str, Str, Str], |context, arguments| {
        let regex = compiled(context, bytes(arguments, 0))?;
        replace(context, &regex, arguments, false)
    }),
    Function::new("regexReplaceAllLiteral", &[Str, Str, Str], |context, arguments| {
        let regex = demanded(context, arguments)?;
        replace(context, &regex, arguments, true)
    }),
    Function::new("mustRegexReplaceAllLiteral", &[Str, Str, Str], |context, arguments| {
        let regex = compiled(context, bytes(arguments, 0))?;
        replace(context, &regex, arguments, true)
    }),
    Function::new("regexSplit", &[Str, Str, Int], |context, arguments| {
        let regex = demanded(context, arguments)?;
        split(context, &regex, arguments)
    }),
    Function::new("mustRegexSplit", &[Str, Str, Int], |context, arguments| {
        let regex = compiled(context, bytes(arguments, 0))?;
        split(context, &regex, arguments)
    }),
    Function::new("regexQuoteMeta", &[Str], |_, arguments| {
        let mut out = Vec::new();
        for byte in bytes(arguments, 0) {
            if b"\\.+*?()|[]{}^$".contains(byte) {
                out.push(b'\\');
            }
            out.push(*byte);
        }
        Ok(Value::string(out))
    }),
];

/// Most memory one compiled expression may take, in bytes.
const COMPILED_BYTES_MAX: usize = 8 << 20;

/// How many compiled expressions are kept.
const CACHED_MAX: usize = 1000;

/// The compiled expression of the first argument, or the panic text of `regexp.MustCompile`.
fn demanded(context: &mut Context<'_>, arguments: &[Value]) -> Result<Rc<Regex>, Fault> {
    compiled(context, bytes(arguments, 0)).map_err(|error| match error {
        Fault::Failed(error) => {
            let pattern = bytes(arguments, 0);
            let quoted = if crate::strconv::can_backquote(pattern) {
                format!("`{}`", text(arguments, 0))
            } else {
                crate::strconv::quoted(&text(arguments, 0))
            };
            format!("regexp: Compile({quoted}): {}", error.text()).into()
        }
        limit @ Fault::Limit(_) => limit,
    })
}

fn compiled(context: &mut Context<'_>, pattern: &[u8]) -> Result<Rc<Regex>, Fault> {
    if let Some(known) = context.shared.caches.expressions.get(pattern) {
        return known.clone().map_err(Fault::from);
    }
    let compiled = compile(pattern);
    let cache = &mut context.shared.caches.expressions;
    if cache.len() >= CACHED_MAX {
        cache.clear();
    }
    cache.insert(Text::from(pattern), compiled.clone());
    compiled.map_err(Fault::from)
}

fn compile(pattern: &[u8]) -> Result<Rc<Regex>, String> {
    let Ok(pattern) = std::str::from_utf8(pattern) else {
        let shown = String::from_utf8_lossy(pattern);
        return Err(format!("error parsing regexp: invalid UTF-8: `{shown}`"));
    };
    let translated = translate(pattern)?;
    regex::bytes::RegexBuilder::new(&translated)
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(COMPILED_BYTES_MAX)
        .nest_limit(250)
        .build()
        .map(Rc::new)
        .map_err(|error| problem(pattern, &error))
}

/// Go's words for what is wrong with an expression.
fn problem(pattern: &str, error: &regex::Error) -> String {
    let text = error.to_string();
    let message = if text.contains("unclosed group") {
        "missing closing )"
    } else if text.contains("unopened group") {
        "unexpected )"
    } else if text.contains("unclosed character class") {
        "missing closing ]"
    } else if text.contains("repetition operator missing expression") {
        "missing argument to repetition operator"
    } else if text.contains("look-around") {
        "invalid or unsupported Perl syntax"
    } else if text.contains("escape") || text.contains("backreference") {
        "invalid escape sequence"
    } else if text.contains("invalid character class range") {
        "invalid character class range"
    } else if text.contains("repetition quantifier") || text.contains("repetition range") {
        "invalid repeat count"
    } else if text.contains("exceeds size limit") {
        "expression too large"
    } else {
        "invalid expression"
    };
    let shown = match message {
        "missing closing ]" => {
            pattern.rfind('[').map_or_else(|| pattern.to_owned(), |at| pattern[at..].to_owned())
        }
        "missing argument to repetition operator" => pattern
            .chars()
            .find(|character| "*+?".contains(*character))
            .map_or_else(|| pattern.to_owned(), String::from),
        "invalid or unsupported Perl syntax" => pattern
            .find("(?")
            .map_or_else(|| pattern.to_owned(), |at| pattern[at..].chars().take(3).collect()),
        "invalid escape sequence" => pattern
            .find('\\')
            .map_or_else(|| pattern.to_owned(), |at| pattern[at..].chars().take(2).collect()),
        "invalid character class range" => {
            // The range itself: a character, a dash and a smaller character.
            let characters: Vec<char> = pattern.chars().collect();
            characters
                .windows(3)
                .find(|range| range[1] == '-' && range[0] > range[2] && range[2] != ']')
                .map_or_else(|| pattern.to_owned(), |range| range.iter().collect())
        }
        _ => pattern.to_owned(),
    };
    format!("error parsing regexp: {message}: `{shown}`")
}

/// Rewrites Go's syntax into that of the regex crate where the same text would mean something else.
///
/// Perl classes and word boundaries are ASCII in Go; `\Q…\E` quotes; `\C` and `\z` differ; inside
/// classes the crate knows nested sets and set operations that Go takes literally.
fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern;
    let mut class_start = None;
    // Where the repetition before this point starts, if one ends right here.
    let mut repeated: Option<usize> = None;
    while let Some(character) = rest.chars().next() {
        let after = &rest[character.len_utf8()..];
        if character == '\\' {
            repeated = None;
            let Some(escaped) = after.chars().next() else {
                return Err("error parsing regexp: trailing backslash at end of expression: ``".to_owned());
            };
            rest = &after[escaped.len_utf8()..];
            let in_class = class_start.is_some();
            // A class does not end a range either.
            let class = matches!(escaped, 'd' | 'D' | 'w' | 'W' | 's' | 'S');
            let in_range = class_start.and_then(|start: usize| out[start..].strip_suffix('-'));
            if class && in_range.is_some_and(|before| !before.ends_with(['[', '^', '\\'])) {
                return Err(format!("error parsing regexp: invalid escape sequence: `\\{escaped}`"));
            }
            match escaped {
                'd' => out.push_str(if in_class { "0-9" } else { "[0-9]" }),
                'D' => out.push_str("[^0-9]"),
                'w' => out.push_str(if in_class { "0-9A-Za-z_" } else { "[0-9A-Za-z_]" }),
                'W' => out.push_str("[^0-9A-Za-z_]"),
                's' => out.push_str(if in_class { "\\t\\n\\f\\r " } else { "[\\t\\n\\f\\r ]" }),
                'S' => out.push_str("[^\\t\\n\\f\\r ]"),
                'b' if !in_class => out.push_str("(?-u:\\b)"),
                'B' if !in_class => out.push_str("(?-u:\\B)"),
                'Q' => {
                    let (quoted, tail) = rest.split_once("\\E").unwrap_or((rest, ""));
                    out.push_str(&regex::escape(quoted));
                    rest = tail;
                }
                'a' => out.push_str("\\x07"),
                'v' => out.push_str("\\x0B"),
                '0'..='7' => {
                    // Octal needs a leading zero or two digits; a lone 1-9 would refer back.
                    let digits: String =
                        after.chars().take(3).take_while(|c| ('0'..='7').contains(c)).collect();
                    if escaped != '0' && digits.len() < 2 {
                        return Err(format!("error parsing regexp: invalid escape sequence: `\\{escaped}`"));
                    }
                    let code = u32::from_str_radix(&digits, 8).unwrap_or(0);
                    out.push_str(&format!("\\x{{{code:X}}}"));
                    rest = &after[digits.len()..];
                }
                'p' | 'P' | 'A' | 'z' | 'f' | 'n' | 'r' | 't' | 'x' => {
                    out.push('\\');
                    out.push(escaped);
                }
                'C' => out.push_str("(?s-u:.)"),
                punctuation if punctuation.is_ascii_punctuation() && punctuation != '_' => {
                    if punctuation == '<' || punctuation == '>' {
                        out.push(punctuation);
                    } else {
                        out.push('\\');
                        out.push(punctuation);
                    }
                }
                other => {
                    return Err(format!("error parsing regexp: invalid escape sequence: `\\{other}`"));
                }
            }
            // A class is not the start of a range: the dash after it is itself.
            if let Some(dashed) = rest.strip_prefix('-').filter(|_| in_class && class) {
                out.push_str("\\-");
                rest = dashed;
            }
            continue;
        }
        if class_start.is_none()
            && let Some(operator) = repetition(rest)
        {
            if let Some(previous) = repeated {
                let whole = &pattern[previous..pattern.len() - rest.len() + operator];
                return Err(format!("error parsing regexp: invalid nested repetition operator: `{whole}`"));
            }
            check_count(&rest[..operator])?;
            repeated = Some(pattern.len() - rest.len());
            out.push_str(&rest[..operator]);
            rest = &rest[operator..];
            continue;
        }
        repeated = None;
        match (character, class_start) {
            ('[', None) => {
                class_start = Some(out.len());
                out.push('[');
                rest = after;
                if let Some(negated) = rest.strip_prefix('^') {
                    out.push('^');
                    rest = negated;
                }
                // A bracket right at the start is itself.
                if let Some(bracket) = rest.strip_prefix(']') {
                    out.push_str("\\]");
                    rest = bracket;
                }
                continue;
            }
            ('[', Some(_)) => {
                if after.starts_with(':')
                    && let Some(end) = after.find(":]")
                {
                    out.push_str(&rest[..end + 3]);
                    rest = &after[end + 2..];
                    continue;
                }
                out.push_str("\\[");
            }
            (']', Some(_)) => {
                class_start = None;
                out.push(']');
            }
            ('&' | '~', Some(_)) => {
                out.push('\\');
                out.push(character);
            }
            ('-', Some(_)) if after.starts_with('-') => out.push_str("\\-"),
            ('(', None) if after.starts_with('?') => {
                // Look-around and the crate's own flags are unknown to Go.
                let group = &after[1..];
                if group.starts_with(['=', '!']) || group.starts_with("<=") || group.starts_with("<!") {
                    let length = if group.starts_with('<') { 4 } else { 3 };
                    return Err(format!(
                        "error parsing regexp: invalid or unsupported Perl syntax: `{}`",
                        &rest[..length]
                    ));
                }
                out.push('(');
            }
            ('{', None) if !is_repetition(after) => out.push_str("\\{"),
            ('}', None) if !closes_repetition(&out) => out.push_str("\\}"),
            _ => out.push(character),
        }
        rest = after;
    }
    Ok(out)
}

/// The length of the repetition operator at the start of the text, with the `?` that makes it lazy.
fn repetition(text: &str) -> Option<usize> {
    let length = match text.as_bytes().first()? {
        b'*' | b'+' | b'?' => 1,
        b'{' if is_repetition(&text[1..]) => text.find('}')? + 1,
        _ => return None,
    };
    Some(length + usize::from(text[length..].starts_with('?')))
}

/// The largest count of a repetition.
const COUNT_MAX: u32 = 1000;

fn check_count(operator: &str) -> Result<(), String> {
    let Some(body) = operator.strip_prefix('{').and_then(|rest| rest.split('}').next()) else {
        return Ok(());
    };
    let (low, high) = body.split_once(',').unwrap_or((body, body));
    let number = |text: &str| text.parse::<u32>().unwrap_or(u32::MAX);
    let high = if high.is_empty() { number(low) } else { number(high) };
    if number(low) > COUNT_MAX || high > COUNT_MAX || high < number(low) {
        return Err(format!("error parsing regexp: invalid repeat count: `{{{body}}}`"));
    }
    Ok(())
}

/// Whether what follows `{` makes it a repetition and not the character itself.
fn is_repetition(after: &str) -> bool {
    let Some(end) = after.find('}') else { return false };
    let body = &after[..end];
    let (low, high) = body.split_once(',').unwrap_or((body, ""));
    !low.is_empty()
        && low.bytes().all(|byte| byte.is_ascii_digit())
        && high.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a `}` now would end a repetition or a braced escape that was written to `out`.
fn closes_repetition(out: &str) -> bool {
    let Some(open) = out.rfind('{') else { return false };
    let before = &out[..open];
    let body = &out[open + 1..];
    if before.ends_with("\\p") || before.ends_with("\\P") || before.ends_with("\\x") {
        return !body.contains('}');
    }
    !before.ends_with('\\') && !body.contains('}') && is_repetition(&format!("{body}}}"))
}

/// The matches as Go finds them: an empty match right after another match does not count.
fn matches(
    context: &Context<'_>,
    regex: &Regex,
    text: &[u8],
    limit: i64,
) -> Result<Vec<(usize, usize)>, Fault> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut found = Vec::new();
    for part in regex.find_iter(text).take(limit) {
        context.check_items(found.len() as u64)?;
        found.push((part.start(), part.end()));
    }
    Ok(found)
}

fn find_first(regex: &Regex, arguments: &[Value]) -> Outcome {
    let found = regex.find(bytes(arguments, 1));
    Ok(Value::string(found.map_or(&b""[..], |found| found.as_bytes())))
}

fn find_all(context: &Context<'_>, regex: &Regex, arguments: &[Value]) -> Outcome {
    let subject = bytes(arguments, 1);
    let found = matches(context, regex, subject, int(arguments, 2))?;
    if found.is_empty() {
        return Ok(Value::List(List::nil(Element::String)));
    }
    Ok(Value::List(List::strings(found.into_iter().map(|(start, end)| &subject[start..end]))))
}

fn split(context: &Context<'_>, regex: &Regex, arguments: &[Value]) -> Outcome {
    let (subject, count) = (bytes(arguments, 1), int(arguments, 2));
    if count == 0 {
        return Ok(Value::List(List::nil(Element::String)));
    }
    if !bytes(arguments, 0).is_empty() && subject.is_empty() {
        return Ok(Value::List(List::strings([""])));
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    let (mut start, mut end) = (0, 0);
    for (from, to) in matches(context, regex, subject, count)? {
        if count > 0 && parts.len() as i64 == count - 1 {
            break;
        }
        end = from;
        if to != 0 {
            parts.push(&subject[start..end]);
        }
        start = to;
    }
    if end != subject.len() {
        parts.push(&subject[start..]);
    }
    Ok(Value::List(List::strings(parts)))
}

fn replace(context: &Context<'_>, regex: &Regex, arguments: &[Value], literal: bool) -> Outcome {
    let (subject, replacement) = (bytes(arguments, 1), bytes(arguments, 2));
    let mut out = Vec::with_capacity(subject.len());
    let mut last = 0;
    for captures in regex.captures_iter(subject) {
        let Some(whole) = captures.get(0) else { continue };
        out.extend_from_slice(&subject[last..whole.start()]);
        if literal {
            out.extend_from_slice(replacement);
        } else {
            expand(&mut out, replacement, &captures);
        }
        last = whole.end();
        context.check_bytes(out.len() as u64)?;
    }
    out.extend_from_slice(&subject[last..]);
    Ok(Value::string(out))
}

/// Writes a replacement with `$1`, `$name` and `${name}` filled in; `$1x` names the group `1x`.
fn expand(out: &mut Vec<u8>, template: &[u8], captures: &regex::bytes::Captures<'_>) {
    let mut rest = template;
    while let Some(dollar) = rest.iter().position(|byte| *byte == b'$') {
        out.extend_from_slice(&rest[..dollar]);
        let after = &rest[dollar + 1..];
        if after.first() == Some(&b'$') {
            out.push(b'$');
            rest = &after[1..];
            continue;
        }
        let braced = after.first() == Some(&b'{');
        let name_start = usize::from(braced);
        let name_text = String::from_utf8_lossy(&after[name_start..]).into_owned();
        let length = name_text.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(name_text.len());
        let closed = !braced || after.get(name_start + length) == Some(&b'}');
        if length == 0 || !closed {
            out.push(b'$');
            rest = after;
            continue;
        }
        let name = &name_text[..length];
        let group = if name.bytes().all(|byte| byte.is_ascii_digit()) {
            name.parse().ok().and_then(|number: usize| captures.get(number))
        } else {
            captures.name(name)
        };
        if let Some(group) = group {
            out.extend_from_slice(group.as_bytes());
        }
        rest = &after[name_start + length + usize::from(braced)..];
    }
    out.extend_from_slice(rest);
}
