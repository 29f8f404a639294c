//! Sprig's string functions.

use std::fmt::Write as _;

use super::case;
use super::convert::{strings_of, text_of};
use super::{Outcome, argument, bytes, int, text};
use crate::error::Fault;
use crate::exec::Context;
use crate::format;
use crate::function::{Function, Param};
use crate::strconv;
use crate::text::Text;
use crate::value::{Element, Entries, List, Map, Value};

use Param::{Any, Int, String as Str};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("hello", &[], |_, _| Ok(Value::string("Hello!"))),
    Function::new("abbrev", &[Int, Str], |_, arguments| {
        let (width, text) = (int(arguments, 0), bytes(arguments, 1));
        Ok(Value::string(abbreviate(text, 0, width)))
    }),
    Function::new("abbrevboth", &[Int, Int, Str], |_, arguments| {
        let (left, right) = (int(arguments, 0), int(arguments, 1));
        let text = bytes(arguments, 2);
        if right < 4 || (left > 0 && right < 7) {
            return Ok(Value::string(text));
        }
        Ok(Value::string(abbreviate(text, left, right)))
    }),
    Function::new("trunc", &[Int, Str], |_, arguments| {
        let text = bytes(arguments, 1);
        let (count, length) = (int(arguments, 0), text.len() as i64);
        Ok(Value::string(if count < 0 && length.saturating_add(count) > 0 {
            &text[(length + count) as usize..]
        } else if count >= 0 && length > count {
            &text[..count as usize]
        } else {
            text
        }))
    }),
    Function::new("trim", &[Str], |_, arguments| {
        Ok(Value::string(trim_with(bytes(arguments, 0), |c| c.is_some_and(char::is_whitespace))))
    }),
    Function::new("upper", &[Str], |_, arguments| {
        Ok(Value::string(text(arguments, 0).chars().map(case::upper).collect::<String>()))
    }),
    Function::new("lower", &[Str], |_, arguments| {
        Ok(Value::string(text(arguments, 0).chars().map(case::lower).collect::<String>()))
    }),
    Function::new("title", &[Str], |_, arguments| Ok(Value::string(case::title(&text(arguments, 0))))),
    Function::new("untitle", &[Str], |_, arguments| {
        let mut at_start = true;
        let untitled: String = text(arguments, 0)
            .chars()
            .map(|character| {
                let start = at_start && !character.is_whitespace();
                at_start = character.is_whitespace();
                if start { case::lower(character) } else { character }
            })
            .collect();
        Ok(Value::string(untitled))
    }),
    Function::new("substr", &[Int, Int, Str], substring),
    Function::new("repeat", &[Int, Str], |context, arguments| {
        repeated(context, int(arguments, 0), bytes(arguments, 1)).map(Value::string)
    }),
    Function::new("trimall", &[Str, Str], trim_all),
    Function::new("trimAll", &[Str, Str], trim_all),
    Function::new("trimSuffix", &[Str, Str], |_, arguments| {
        let text = bytes(arguments, 1);
        Ok(Value::string(text.strip_suffix(bytes(arguments, 0)).unwrap_or(text)))
    }),
    Function::new("trimPrefix", &[Str, Str], |_, arguments| {
        let text = bytes(arguments, 1);
        Ok(Value::string(text.strip_prefix(bytes(arguments, 0)).unwrap_or(text)))
    }),
    Function::new("nospace", &[Str], |_, arguments| {
        let latin = bytes(arguments, 0).iter().map(|byte| char::from(*byte));
        Ok(Value::string(latin.filter(|c| !c.is_whitespace()).collect::<String>()))
    }),
    Function::new("initials", &[Str], |_, arguments| {
        let mut gap = true;
        let mut initials = String::new();
        for character in bytes(arguments, 0).iter().map(|byte| char::from(*byte)) {
            if !character.is_whitespace() && gap {
                initials.push(character);
            }
            gap = character.is_whitespace();
        }
        Ok(Value::string(initials))
    }),
    Function::new("randAlphaNum", &[Int], |context, arguments| {
        random_text(context, int(arguments, 0), |byte| byte.is_ascii_alphanumeric())
    }),
    Function::new("randAlpha", &[Int], |context, arguments| {
        random_text(context, int(arguments, 0), |byte| byte.is_ascii_alphabetic())
    }),
    Function::new("randAscii", &[Int], |context, arguments| {
        random_text(context, int(arguments, 0), |byte| (32..127).contains(&byte))
    }),
    Function::new("randNumeric", &[Int], |context, arguments| {
        random_text(context, int(arguments, 0), |byte| byte.is_ascii_digit())
    }),
    Function::new("swapcase", &[Str], |_, arguments| {
        let swapped: String = text(arguments, 0)
            .chars()
            .map(|character| {
                if character.is_uppercase() {
                    case::lower(character)
                } else if character.is_lowercase() {
                    case::upper(character)
                } else {
                    character
                }
            })
            .collect();
        Ok(Value::string(swapped))
    }),
    Function::new("shuffle", &[Str], |context, arguments| {
        let mut characters: Vec<char> = text(arguments, 0).chars().collect();
        for index in (1..characters.len()).rev() {
            let other = random_below(context, index as u64 + 1) as usize;
            characters.swap(index, other);
        }
        Ok(Value::string(characters.into_iter().collect::<String>()))
    }),
    Function::new("snakecase", &[Str], |_, arguments| {
        Ok(Value::string(case::separated(&text(arguments, 0), '_')))
    }),
    Function::new("kebabcase", &[Str], |_, arguments| {
        Ok(Value::string(case::separated(&text(arguments, 0), '-')))
    }),
    Function::new("camelcase", &[Str], |_, arguments| Ok(Value::string(case::pascal(&text(arguments, 0))))),
    Function::new("wrap", &[Int, Str], |context, arguments| {
        wrap(context, bytes(arguments, 1), int(arguments, 0), b"\n", false)
    }),
    Function::new("wrapWith", &[Int, Str, Str], |context, arguments| {
        wrap(context, bytes(arguments, 2), int(arguments, 0), bytes(arguments, 1), true)
    }),
    Function::new("contains", &[Str, Str], |_, arguments| {
        Ok(Value::Bool(find(bytes(arguments, 1), bytes(arguments, 0)).is_some()))
    }),
    Function::new("hasPrefix", &[Str, Str], |_, arguments| {
        Ok(Value::Bool(bytes(arguments, 1).starts_with(bytes(arguments, 0))))
    }),
    Function::new("hasSuffix", &[Str, Str], |_, arguments| {
        Ok(Value::Bool(bytes(arguments, 1).ends_with(bytes(arguments, 0))))
    }),
    Function::variadic("quote", &[], Any, |_, arguments| {
        let quoted: Vec<Vec<u8>> = arguments
            .iter()
            .filter(|value| !matches!(value, Value::Nil))
            .map(|value| strconv::quote(&text_of(value), false))
            .collect();
        Ok(Value::string(quoted.join(&b' ')))
    }),
    Function::variadic("squote", &[], Any, |_, arguments| {
        let quoted: Vec<Vec<u8>> = arguments
            .iter()
            .filter(|value| !matches!(value, Value::Nil))
            .map(|value| [b"'", format::display(value).as_slice(), b"'"].concat())
            .collect();
        Ok(Value::string(quoted.join(&b' ')))
    }),
    Function::variadic("cat", &[], Any, |_, arguments| {
        let shown: Vec<Vec<u8>> =
            arguments.iter().filter(|value| !matches!(value, Value::Nil)).map(format::display).collect();
        Ok(Value::string(shown.join(&b' ')))
    }),
    Function::new("indent", &[Int, Str], |context, arguments| {
        indented(context, int(arguments, 0), bytes(arguments, 1), false)
    }),
    Function::new("nindent", &[Int, Str], |context, arguments| {
        indented(context, int(arguments, 0), bytes(arguments, 1), true)
    }),
    Function::new("replace", &[Str, Str, Str], |context, arguments| {
        let (old, new) = (bytes(arguments, 0), bytes(arguments, 1));
        replaced(context, bytes(arguments, 2), old, new).map(Value::string)
    }),
    Function::new("plural", &[Str, Str, Int], |_, arguments| {
        Ok(argument(arguments, usize::from(int(arguments, 2) != 1)).clone())
    }),
    Function::new("toString", &[Any], |_, arguments| Ok(Value::String(text_of(argument(arguments, 0))))),
    Function::new("toStrings", &[Any], |context, arguments| {
        let value = argument(arguments, 0);
        if let Value::List(list) = value
            && list.element() == Element::String
        {
            return Ok(value.clone());
        }
        Ok(Value::List(List::strings(strings_of(context, value)?)))
    }),
    Function::new("join", &[Str, Any], |context, arguments| {
        let parts = strings_of(context, argument(arguments, 1))?;
        let separator = bytes(arguments, 0);
        let length: usize = parts.iter().map(|part| part.len() + separator.len()).sum();
        context.check_bytes(length as u64)?;
        Ok(Value::string(parts.join(separator)))
    }),
    Function::new("split", &[Str, Str], |context, arguments| {
        let parts = split(context, bytes(arguments, 1), bytes(arguments, 0), -1)?;
        Ok(numbered(parts.unwrap_or_default()))
    }),
    Function::new("splitn", &[Str, Int, Str], |context, arguments| {
        let parts = split(context, bytes(arguments, 2), bytes(arguments, 0), int(arguments, 1))?;
        Ok(numbered(parts.unwrap_or_default()))
    }),
    Function::new("splitList", &[Str, Str], |context, arguments| {
        let parts = split(context, bytes(arguments, 1), bytes(arguments, 0), -1)?;
        Ok(Value::List(List::strings(parts.unwrap_or_default())))
    }),
    Function::new("sortAlpha", &[Any], |context, arguments| {
        let value = argument(arguments, 0);
        if value.slice_items().is_none() {
            return Ok(Value::List(List::strings([text_of(value)])));
        }
        let mut strings = strings_of(context, value)?;
        strings.sort();
        Ok(Value::List(List::strings(strings)))
    }),
];

/// The position of `needle` in `text`.
pub(super) fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    if needle.is_empty() {
        return Some(0);
    }
    text.windows(needle.len()).position(|window| window == needle)
}

fn abbreviate(text: &[u8], offset: i64, width: i64) -> Vec<u8> {
    let length = text.len() as i64;
    if width < 4 || length <= width {
        return if width < 4 && offset > 0 { Vec::new() } else { text.to_vec() };
    }
    let mut offset = offset.min(length);
    if length - offset < width - 3 {
        offset = length - (width - 3);
    }
    if offset <= 4 {
        return [&text[..(width - 3) as usize], b"..."].concat();
    }
    if width < 7 {
        return Vec::new();
    }
    if offset + width - 3 < length {
        let rest = &text[offset as usize..];
        let inner = width - 3;
        let rest = if inner < 4 { Vec::new() } else { abbreviate(rest, 0, inner) };
        return [b"...", rest.as_slice()].concat();
    }
    [b"...", &text[(length - (width - 3)) as usize..]].concat()
}

fn trim_with(text: &[u8], trimmed: impl Fn(Option<char>) -> bool) -> &[u8] {
    let mut start = 0;
    while start < text.len() {
        let (character, length) = strconv::decode_rune(&text[start..]);
        if !trimmed(character) {
            break;
        }
        start += length;
    }
    let mut end = text.len();
    while end > start {
        let mut last = end - 1;
        while last > start && end - last < 4 && text[last] & 0xc0 == 0x80 {
            last -= 1;
        }
        let (character, length) = strconv::decode_rune(&text[last..end]);
        let (character, length) = if last + length == end { (character, length) } else { (None, 1) };
        if !trimmed(character) {
            break;
        }
        end -= length;
    }
    &text[start..end]
}

fn trim_all(_: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let set = text(arguments, 0);
    let invalid = set.contains('\u{fffd}');
    Ok(Value::string(trim_with(bytes(arguments, 1), |character| {
        character.map_or(invalid, |character| set.contains(character))
    })))
}

fn substring(_: &mut Context<'_>, arguments: &[Value]) -> Outcome {
    let (start, end, text) = (int(arguments, 0), int(arguments, 1), bytes(arguments, 2));
    let length = text.len() as i64;
    let out_of_range = |bounds: String| -> Outcome {
        Err(format!("runtime error: slice bounds out of range {bounds}").into())
    };
    if start < 0 {
        if end < 0 {
            return out_of_range(format!("[:{end}]"));
        }
        if end > length {
            return out_of_range(format!("[:{end}] with length {length}"));
        }
        return Ok(Value::string(&text[..end as usize]));
    }
    if end < 0 || end > length {
        if start > length {
            return out_of_range(format!("[{start}:{length}]"));
        }
        return Ok(Value::string(&text[start as usize..]));
    }
    if start > end {
        return out_of_range(format!("[{start}:{end}]"));
    }
    Ok(Value::string(&text[start as usize..end as usize]))
}

fn repeated(context: &Context<'_>, count: i64, text: &[u8]) -> Result<Vec<u8>, Fault> {
    let Ok(times) = usize::try_from(count) else {
        return Err("strings: negative Repeat count".into());
    };
    let length = (times as u64).saturating_mul(text.len() as u64);
    context.check_bytes(length)?;
    Ok(text.repeat(times))
}

fn indented(context: &Context<'_>, spaces: i64, text: &[u8], newline: bool) -> Outcome {
    let pad = repeated(context, spaces, b" ")?;
    let lines = text.iter().filter(|byte| **byte == b'\n').count() + 1;
    let length = text.len() as u64 + (lines as u64).saturating_mul(pad.len() as u64);
    context.check_bytes(length)?;
    let mut out = Vec::with_capacity(length as usize + 1);
    if newline {
        out.push(b'\n');
    }
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if index > 0 {
            out.push(b'\n');
        }
        out.extend_from_slice(&pad);
        out.extend_from_slice(line);
    }
    Ok(Value::string(out))
}

/// `strings.ReplaceAll`
pub(super) fn replaced(context: &Context<'_>, text: &[u8], old: &[u8], new: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    if old.is_empty() {
        let count = text.len() as u64 + 1;
        context.check_bytes(count.saturating_mul(new.len() as u64 + 1))?;
        while !rest.is_empty() {
            out.extend_from_slice(new);
            let (_, length) = strconv::decode_rune(rest);
            out.extend_from_slice(&rest[..length]);
            rest = &rest[length..];
        }
        out.extend_from_slice(new);
        return Ok(out);
    }
    while let Some(position) = find(rest, old) {
        out.extend_from_slice(&rest[..position]);
        out.extend_from_slice(new);
        rest = &rest[position + old.len()..];
        context.check_bytes(out.len() as u64)?;
    }
    out.extend_from_slice(rest);
    Ok(out)
}

/// `strings.SplitN`: at most `count` parts, all if negative, none (nil) if zero.
fn split(
    context: &Context<'_>,
    text: &[u8],
    separator: &[u8],
    count: i64,
) -> Result<Option<Vec<Text>>, Fault> {
    if count == 0 {
        return Ok(None);
    }
    let limit = usize::try_from(count).unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    let mut rest = text;
    if separator.is_empty() {
        while !rest.is_empty() {
            let length = if parts.len() + 1 >= limit { rest.len() } else { strconv::decode_rune(rest).1 };
            context.check_items(parts.len() as u64)?;
            parts.push(Text::from(&rest[..length]));
            rest = &rest[length..];
        }
        return Ok(Some(parts));
    }
    while parts.len() + 1 < limit
        && let Some(position) = find(rest, separator)
    {
        context.check_items(parts.len() as u64)?;
        parts.push(Text::from(&rest[..position]));
        rest = &rest[position + separator.len()..];
    }
    parts.push(Text::from(rest));
    Ok(Some(parts))
}

fn numbered(parts: Vec<Text>) -> Value {
    let entries: Entries = parts
        .into_iter()
        .enumerate()
        .map(|(index, part)| (Text::from(format!("_{index}")), Value::String(part)))
        .collect();
    Value::Map(Map::typed(entries, Element::String))
}

/// A uniformly random number below `bound`, which must not be zero.
pub(super) fn random_below(context: &mut Context<'_>, bound: u64) -> u64 {
    let mut bytes = [0; 16];
    context.host().random(&mut bytes);
    // 128 random bits leave no measurable bias.
    (u128::from_le_bytes(bytes) % u128::from(bound.max(1))) as u64
}

fn random_text(context: &mut Context<'_>, count: i64, allowed: fn(u8) -> bool) -> Outcome {
    let Ok(count) = usize::try_from(count) else { return Ok(Value::string("")) };
    context.check_bytes(count as u64)?;
    let alphabet: Vec<u8> = (0..128).filter(|byte| allowed(*byte)).collect();
    let mut out = Vec::with_capacity(count);
    // Bytes past the last whole multiple of the alphabet are dropped: no bias.
    let usable = 256 - 256 % alphabet.len();
    while out.len() < count {
        let mut bytes = [0; 64];
        context.host().random(&mut bytes);
        let fitting = bytes.iter().filter(|byte| usize::from(**byte) < usable);
        out.extend(fitting.map(|byte| alphabet[usize::from(*byte) % alphabet.len()]));
    }
    out.truncate(count);
    Ok(Value::string(out))
}

fn wrap(context: &Context<'_>, text: &[u8], width: i64, separator: &[u8], break_words: bool) -> Outcome {
    let width = usize::try_from(width).unwrap_or(1).max(1);
    let separator = if separator.is_empty() { b"\n" } else { separator };
    let mut out: Vec<u8> = Vec::with_capacity(text.len());
    let mut offset = 0;
    while text.len() - offset > width {
        context.check_bytes(out.len() as u64)?;
        if text[offset] == b' ' {
            offset += 1;
            continue;
        }
        let window = &text[offset..=offset + width];
        let space = window.iter().rposition(|byte| *byte == b' ').or_else(|| {
            if break_words {
                return None;
            }
            // A word longer than the width stays whole: up to the next space after it.
            text[offset + width..].iter().position(|byte| *byte == b' ').map(|at| at + width)
        });
        match space {
            Some(space) => {
                out.extend_from_slice(&text[offset..offset + space]);
                out.extend_from_slice(separator);
                offset += space + 1;
            }
            None if break_words => {
                out.extend_from_slice(&text[offset..offset + width]);
                out.extend_from_slice(separator);
                offset += width;
            }
            None => break,
        }
    }
    out.extend_from_slice(&text[offset..]);
    Ok(Value::string(out))
}

/// Integers separated by spaces.
pub(super) fn spaced(numbers: impl Iterator<Item = i64>) -> String {
    let mut out = String::new();
    for number in numbers {
        if !out.is_empty() {
            out.push(' ');
        }
        let _ = write!(out, "{number}");
    }
    out
}
