//! Replacing scalars in a YAML text without touching any other byte.

use std::borrow::Cow;
use std::ops::Range;

use crate::decode::decode;
use crate::emit::{Emitter, Layout, Place, ScalarFacts};
use crate::error::{Error, ErrorKind};
use crate::parse::{EventKind, Parser};
use crate::resolve::{Resolved, resolve_yaml11};
use crate::scan::{Dialect, ScalarStyle};
use crate::write::looks_like_base60;

/// One step from a collection to what is in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// The entry of a mapping whose key has this text. Of equal keys each is reported with the same path.
    Key(String),
    /// The item of a sequence, counted from 0.
    Item(usize),
}

/// A scalar in a text: where it is, what it says, and the comments beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalarAt {
    /// The document it is in, counted from 0.
    pub document: usize,
    /// The way to it from the root of the document. Scalars inside keys that are collections are not reported.
    pub path: Vec<Step>,
    /// The text, escapes and folding undone.
    pub value: String,
    /// How it is written.
    pub style: ScalarStyle,
    /// Inside `[…]` or `{…}`.
    pub flow: bool,
    /// Whether an explicit tag stands before it.
    pub tagged: bool,
    /// The bytes of the text it takes, quotes included, anchor and tag excluded.
    pub bytes: Range<usize>,
    /// Its line, counted from 1.
    pub line: usize,
    /// Its column in characters, counted from 1.
    pub column: usize,
    /// The comment behind it on its last line, without the `#` and the blanks around.
    pub line_comment: Option<String>,
    /// The comment lines directly above it, without `#` and blanks around; only for items of block sequences.
    pub head_comment: Vec<String>,
}

/// The scalar values of a text, in their order. Keys and aliases are not among them.
///
/// # Errors
/// The first mistake in the text. Also texts that are not UTF-8, whose bytes cannot be edited in place.
pub fn scalars(text: &[u8], origin: &str) -> Result<Vec<ScalarAt>, Error> {
    find(text).map_err(|error| error.in_origin(origin))
}

/// The text with other words in place of some scalars; every other byte stays.
///
/// Each scalar must be one that [`scalars`] gave for the same text. A scalar keeps its quotes where the new words allow;
/// plain words get double quotes when a reader of YAML 1.1 would take them for something other than a string. Block
/// scalars stay blocks only for words of several lines or the same final line break, else they become quoted.
///
/// # Errors
/// When a scalar is not where it is said to be, or the result would not read as intended: nothing is changed then.
pub fn replace_scalars(text: &[u8], changes: &[(&ScalarAt, &str)], origin: &str) -> Result<Vec<u8>, Error> {
    replace(text, changes).map_err(|error| error.in_origin(origin))
}

/// The text with other words at one path of one document; every other byte stays.
///
/// # Errors
/// When there is no scalar at the path, and as [`replace_scalars`].
pub fn replace_at(
    text: &[u8],
    document: usize,
    path: &[Step],
    words: &str,
    origin: &str,
) -> Result<Vec<u8>, Error> {
    let all = scalars(text, origin)?;
    let found = all.iter().find(|scalar| scalar.document == document && scalar.path == path);
    let Some(scalar) = found else {
        let problem = format!("no scalar at '{}'", path_text(path));
        return Err(Error::new(ErrorKind::Content, problem).in_origin(origin));
    };
    replace_scalars(text, &[(scalar, words)], origin)
}

/// A path as people write it: `spec.containers[0].image`.
pub fn path_text(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Key(key) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(&key.replace('.', "\\."));
            }
            Step::Item(number) => {
                let number = number.to_string();
                text.extend(["[", number.as_str(), "]"]);
            }
        }
    }
    text
}

fn utf8(bytes: &[u8]) -> Result<(&str, usize), Error> {
    // Checks the encoding, and that offsets into the decoded text are offsets into the bytes.
    match decode(bytes)? {
        Cow::Borrowed(text) => Ok((text, bytes.len() - text.len())),
        Cow::Owned(_) => Err(Error::new(ErrorKind::Encoding, "text is not UTF-8")),
    }
}

/// What may stand between `|` or `>` and a comment.
const BLOCK_INDICATORS: &[char] = &['+', '-', '1', '2', '3', '4', '5', '6', '7', '8', '9'];

/// A collection on the way to the current node.
enum Level {
    Sequence { next: usize, flow: bool },
    Mapping { key: Option<String>, in_value: bool, flow: bool },
}

fn find(bytes: &[u8]) -> Result<Vec<ScalarAt>, Error> {
    let (text, shift) = utf8(bytes)?;
    let mut parser = Parser::new_unchecked(text, Dialect::V3);
    let mut found = Vec::new();
    let mut levels: Vec<Level> = Vec::new();
    let mut documents = 0_usize;
    loop {
        let event = parser.next()?;
        match event.kind {
            EventKind::StreamEnd => return Ok(found),
            EventKind::DocumentStart => documents += 1,
            EventKind::DocumentEnd => levels.clear(),
            EventKind::SequenceStart { flow, .. } => levels.push(Level::Sequence { next: 0, flow }),
            EventKind::MappingStart { flow, .. } => {
                levels.push(Level::Mapping { key: None, in_value: false, flow });
            }
            EventKind::SequenceEnd | EventKind::MappingEnd => {
                levels.pop();
                step(&mut levels, None);
            }
            EventKind::Alias(_) => step(&mut levels, None),
            EventKind::Scalar { properties, value, style, .. } => {
                if let Some(Level::Mapping { in_value: false, .. }) = levels.last() {
                    step(&mut levels, Some(value.into_owned()));
                    continue;
                }
                if let Some(path) = path(&levels) {
                    let (start, end) = (event.start.offset as usize, event.end.offset as usize);
                    let has_properties = properties.anchor.is_some() || properties.tag.is_some();
                    let from = if has_properties { skip_properties(text, start, end) } else { start };
                    let to = content_end(text, from, end, style);
                    let (line, column) = place(text, from);
                    let item = matches!(levels.last(), Some(Level::Sequence { flow: false, .. }));
                    let in_flow = levels.iter().any(|level| {
                        matches!(
                            level,
                            Level::Sequence { flow: true, .. } | Level::Mapping { flow: true, .. }
                        )
                    });
                    let line_comment = if matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) {
                        // The comment of a block stands on its first line.
                        comment_after(text, from + 1, BLOCK_INDICATORS)
                    } else {
                        comment_after(text, to, &[','])
                    };
                    found.push(ScalarAt {
                        document: documents - 1,
                        path,
                        value: value.into_owned(),
                        style,
                        flow: in_flow,
                        tagged: properties.tag.is_some(),
                        bytes: from + shift..to + shift,
                        line,
                        column,
                        line_comment,
                        head_comment: if item { comments_above(text, from) } else { Vec::new() },
                    });
                }
                step(&mut levels, None);
            }
        }
    }
}

/// Moves the innermost collection on behind a node: from a key to its value, from a value to the next key or item.
fn step(levels: &mut [Level], name: Option<String>) {
    match levels.last_mut() {
        Some(Level::Sequence { next, .. }) => *next += 1,
        Some(Level::Mapping { key, in_value, .. }) => {
            if *in_value {
                (*key, *in_value) = (None, false);
            } else {
                (*key, *in_value) = (name, true);
            }
        }
        None => {}
    }
}

/// None if the way leads through a key that is a collection or an alias.
fn path(levels: &[Level]) -> Option<Vec<Step>> {
    levels
        .iter()
        .map(|level| match level {
            Level::Sequence { next, .. } => Some(Step::Item(*next)),
            Level::Mapping { key, .. } => key.clone().map(Step::Key),
        })
        .collect()
}

/// The offset behind anchor and tag.
fn skip_properties(text: &str, start: usize, end: usize) -> usize {
    let bytes = text.as_bytes();
    let mut at = start;
    loop {
        let white = text.get(at..end).unwrap_or_default();
        let blank = white.len()
            - white.trim_start_matches([' ', '\t', '\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).len();
        match bytes.get(at + blank) {
            Some(b'#') if at + blank < end => {
                let rest = text.get(at + blank..end).unwrap_or_default();
                at += blank + rest.find(['\n', '\r']).unwrap_or(rest.len());
            }
            Some(b'&' | b'!') if at + blank < end => {
                let rest = text.get(at + blank..end).unwrap_or_default();
                at += blank + rest.find([' ', '\t', '\n', '\r', ',']).unwrap_or(rest.len());
            }
            // Nothing but properties: the empty scalar stands right behind them.
            _ if at + blank >= end => return at,
            _ => return at + blank,
        }
    }
}

/// The end of the bytes that belong to a scalar. Empty lines behind a block belong to it only if it keeps them.
fn content_end(text: &str, start: usize, end: usize, style: ScalarStyle) -> usize {
    let content = text.get(start..end).unwrap_or_default();
    let block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
    let header = content.split(['\n', '\r', '#']).next().unwrap_or_default();
    if !block || header.contains('+') {
        return start + content.len();
    }
    let words = content.trim_end_matches([' ', '\n', '\r']).len();
    let rest = content.get(words..).unwrap_or_default();
    start + words + rest.find('\n').map_or(rest.len(), |line_break| line_break + 1)
}

fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or_default();
    let line = before.bytes().filter(|b| *b == b'\n').count();
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count());
    (line + 1, column + 1)
}

/// The comment on the rest of the line, if there is one, after any of the `signs`.
fn comment_after(text: &str, offset: usize, signs: &[char]) -> Option<String> {
    let line = text.get(offset..)?.split(['\n', '\r']).next()?;
    let mut white = false;
    for (at, character) in line.char_indices() {
        match character {
            ' ' | '\t' => white = true,
            '#' if white => return Some(line[at + 1..].trim().to_owned()),
            _ if signs.contains(&character) => white = false,
            _ => return None,
        }
    }
    None
}

/// The comment lines directly above the line of an item, in their order.
fn comments_above(text: &str, offset: usize) -> Vec<String> {
    let before = text.get(..offset).unwrap_or_default();
    let mut lines = before.split('\n').rev();
    // The item's own line so far, which must be nothing but its dash.
    if lines.next().is_none_or(|own| !own.trim_matches([' ', '\t', '-']).is_empty()) {
        return Vec::new();
    }
    let mut comments: Vec<String> = lines
        .map_while(|line| line.trim().strip_prefix('#').map(|comment| comment.trim().to_owned()))
        .collect();
    comments.reverse();
    comments
}

fn replace(bytes: &[u8], changes: &[(&ScalarAt, &str)]) -> Result<Vec<u8>, Error> {
    let before = find(bytes)?;
    let mut changes: Vec<&(&ScalarAt, &str)> = changes.iter().collect();
    changes.sort_by_key(|(scalar, _)| scalar.bytes.start);
    let mut edited = Vec::with_capacity(bytes.len());
    let mut at = 0;
    for (scalar, words) in &changes {
        if !before.contains(scalar) || scalar.bytes.start < at {
            let problem = "the scalar to replace is not in this text";
            return Err(Error::new(ErrorKind::Content, problem).at(scalar.line, scalar.column));
        }
        edited.extend_from_slice(bytes.get(at..scalar.bytes.start).unwrap_or_default());
        let old = bytes.get(scalar.bytes.clone()).unwrap_or_default();
        let last_behind = bytes.get(..scalar.bytes.start).and_then(<[u8]>::last).copied();
        edited.extend(written(scalar, words, old, last_behind).into_bytes());
        at = scalar.bytes.end;
    }
    edited.extend_from_slice(bytes.get(at..).unwrap_or_default());
    check(&before, &edited, &changes)?;
    Ok(edited)
}

/// Makes sure that the new text reads as the old one but for the changes.
fn check(before: &[ScalarAt], edited: &[u8], changes: &[&(&ScalarAt, &str)]) -> Result<(), Error> {
    let after = find(edited)?;
    let place = changes.first().map_or((0, 0), |(scalar, _)| (scalar.line, scalar.column));
    let mut changes = changes.iter().peekable();
    let same = before.len() == after.len()
        && before.iter().zip(&after).all(|(old, new)| {
            let change = changes.next_if(|(scalar, _)| scalar.bytes == old.bytes && scalar.path == old.path);
            let value = change.map_or(old.value.as_str(), |(_, words)| words);
            old.document == new.document && old.path == new.path && new.value == value
        });
    if same {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Content, "the scalar cannot be replaced in place").at(place.0, place.1))
}

/// The new words as they are written in place of a scalar.
fn written(scalar: &ScalarAt, words: &str, old: &[u8], before: Option<u8>) -> String {
    if scalar.value == words {
        return String::from_utf8_lossy(old).into_owned();
    }
    let block = matches!(scalar.style, ScalarStyle::Literal | ScalarStyle::Folded);
    if block && let Some(text) = rewritten_block(words, old) {
        return text;
    }
    let is_string = resolve_yaml11(words) == Resolved::String && !looks_like_base60(words);
    let wanted = match scalar.style {
        ScalarStyle::Plain | ScalarStyle::Literal | ScalarStyle::Folded if is_string => ScalarStyle::Plain,
        ScalarStyle::SingleQuoted => ScalarStyle::SingleQuoted,
        _ => ScalarStyle::DoubleQuoted,
    };
    // On one line in any place: as if it were a key.
    let place = Place { flow: scalar.flow, simple_key: true, item: false };
    let layout = Layout { dialect: Dialect::V3, indent: 2, width: usize::MAX, compact_sequences: true };
    let style = ScalarFacts::of(words, Dialect::V3).style(wanted, words.is_empty(), place);
    let mut emitter = Emitter::new(layout, words.len() + 2);
    emitter.write_scalar(words, style, place);
    let mut text = emitter.out;
    if block {
        let header = old.split(|b| *b == b'\n').next().unwrap_or_default();
        let header = String::from_utf8_lossy(header);
        if let Some(comment) = header.find(" #") {
            text.push_str(header[comment..].trim_end());
        }
    }
    if block && old.ends_with(b"\n") {
        text.push_str(if old.ends_with(b"\r\n") { "\r\n" } else { "\n" });
    }
    // Where nothing was written before, there may be no space between the indicator and the scalar.
    if old.is_empty() && before.is_some_and(|b| !matches!(b, b' ' | b'\n' | b'\t' | b'[' | b'{')) {
        text.insert(0, ' ');
    }
    text
}

/// New lines for a literal block, under its old first line and with its old indentation; none if that cannot be.
fn rewritten_block(words: &str, old: &[u8]) -> Option<String> {
    let old = std::str::from_utf8(old).ok()?;
    let (header, body) = old.split_once('\n')?;
    let first = body.split('\n').find(|line| !line.trim().is_empty())?;
    let indent = &first[..first.len() - first.trim_start_matches(' ').len()];
    let line_break = if header.ends_with('\r') { "\r\n" } else { "\n" };
    let indicators = header.split([' ', '\t', '#']).next()?.trim_end();
    let chomping_fits = match words.strip_suffix('\n') {
        Some(rest) => !rest.ends_with('\n') && !rest.is_empty() && !indicators.contains(['-', '+']),
        None => indicators.contains('-'),
    };
    let plain_lines = words
        .split('\n')
        .all(|line| line.trim_end() == line && !line.contains(['\r', '\u{85}', '\u{2028}', '\u{2029}']));
    let literal = indicators.starts_with('|') && !indicators.contains(|c: char| c.is_ascii_digit());
    if !literal
        || !chomping_fits
        || !plain_lines
        || words.starts_with([' ', '\n', '\t'])
        || words.chars().any(|c| c.is_control() && c != '\n' && c != '\t')
    {
        return None;
    }
    let mut text = format!("{header}\n");
    for line in words.strip_suffix('\n').unwrap_or(words).split('\n') {
        if !line.is_empty() {
            text.push_str(indent);
            text.push_str(line);
        }
        text.push_str(line_break);
    }
    if !old.ends_with('\n') {
        text.truncate(text.len() - line_break.len());
    }
    Some(text)
}

#[cfg(test)]
mod tests;
