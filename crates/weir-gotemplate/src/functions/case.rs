//! Upper, lower, title, snake, kebab and camel case, character by character as in Go.

/// The simple upper-case mapping: characters that would become several stay as they are.
pub(super) fn upper(character: char) -> char {
    let mut mapped = character.to_uppercase();
    match (mapped.next(), mapped.next()) {
        (Some(single), None) => single,
        _ => character,
    }
}

/// The simple lower-case mapping.
pub(super) fn lower(character: char) -> char {
    if character == '\u{130}' {
        return 'i';
    }
    let mut mapped = character.to_lowercase();
    match (mapped.next(), mapped.next()) {
        (Some(single), None) => single,
        _ => character,
    }
}

/// `strings.Title`: the first letter after each separator in upper case.
pub(super) fn title(text: &str) -> String {
    let mut previous = ' ';
    text.chars()
        .map(|character| {
            let after_separator = if previous.is_ascii() {
                !previous.is_ascii_alphanumeric() && previous != '_'
            } else {
                !previous.is_alphanumeric() && previous.is_whitespace()
            };
            previous = character;
            if after_separator { upper(character) } else { character }
        })
        .collect()
}

fn is_connector(character: char) -> bool {
    character == '-' || character == '_' || character.is_whitespace()
}

fn is_punctuation(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_punctuation() && !"$+<=>^`|~".contains(character);
    }
    matches!(character, '¡' | '§' | '«' | '¶' | '·' | '»' | '¿' | '\u{2010}'..='\u{2027}'
        | '\u{2030}'..='\u{2043}' | '\u{2045}'..='\u{2051}' | '\u{2053}'..='\u{205e}'
        | '\u{3001}'..='\u{3003}' | '\u{3008}'..='\u{3011}' | '\u{ff01}'..='\u{ff03}')
}

fn is_letter(character: char) -> bool {
    character.is_alphabetic() && character < '\u{3034}'
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    None,
    Number,
    Upper,
    Letters,
    Connector,
    Punctuation,
    Other,
}

/// Splits text into words: runs of connectors, punctuation, digits, capitals (the last one goes
/// with the small letters after it) and letters.
fn words(text: &str) -> Vec<(Word, String)> {
    let characters: Vec<char> = text.chars().collect();
    let mut words = Vec::new();
    let mut start = 0;
    while start < characters.len() {
        let first = characters[start];
        let run = |from: usize, inside: &dyn Fn(char) -> bool| {
            characters[from..].iter().position(|c| !inside(*c)).map_or(characters.len(), |n| from + n)
        };
        let small = |character: char| is_letter(character) && !character.is_uppercase();
        let (kind, end) = if is_connector(first) {
            (Word::Connector, run(start, &is_connector))
        } else if is_punctuation(first) {
            (Word::Punctuation, run(start, &is_punctuation))
        } else if first.is_uppercase() {
            let capitals = run(start, &char::is_uppercase);
            let next_small = characters.get(capitals).is_some_and(|next| is_letter(*next));
            let end = match capitals - start {
                1 => run(capitals, &small),
                _ if next_small => capitals - 1,
                _ => capitals,
            };
            (Word::Upper, end)
        } else if is_letter(first) {
            (Word::Letters, run(start, &small))
        } else if first.is_numeric() {
            (Word::Number, run(start, &char::is_numeric))
        } else {
            let other = |character: char| {
                !is_connector(character)
                    && !is_letter(character)
                    && !character.is_numeric()
                    && !is_punctuation(character)
            };
            (Word::Other, run(start, &other))
        };
        words.push((kind, characters[start..end].iter().collect()));
        start = end;
    }
    words
}

/// Small letters with words separated by `connector`; digits stay with the word before them unless
/// small letters follow them.
pub(super) fn separated(text: &str, connector: char) -> String {
    let words = words(text);
    let kind = |index: usize| words.get(index).map_or(Word::None, |word| word.0);
    let mut out = String::new();
    let write = |out: &mut String, index: usize| {
        let Some((kind, word)) = words.get(index) else { return };
        if !matches!(kind, Word::Upper | Word::Connector) {
            out.push_str(word);
            return;
        }
        out.extend(word.chars().map(|c| if is_connector(c) { connector } else { lower(c) }));
    };
    let mut index = 0;
    while index + 1 < words.len() {
        if kind(index) != Word::Connector {
            write(&mut out, index);
        }
        let previous = kind(index);
        index += 1;
        match previous {
            Word::Number => index = glue(&mut out, &kind, &write, index, connector),
            Word::Connector => write(&mut out, index - 1),
            Word::Punctuation => {}
            _ if kind(index) != Word::Number => {
                if !matches!(kind(index), Word::Connector | Word::Punctuation) {
                    out.push(connector);
                }
            }
            _ if index + 1 >= words.len() => {}
            _ => {
                index += 1;
                if kind(index) == Word::Letters {
                    out.push(connector);
                    write(&mut out, index - 1);
                    index = glue(&mut out, &kind, &write, index, connector);
                } else {
                    write(&mut out, index - 1);
                    if !matches!(kind(index), Word::Connector | Word::Punctuation) {
                        out.push(connector);
                    }
                }
            }
        }
    }
    write(&mut out, index);
    out
}

/// Writes the letters and digits that belong to a number, then a connector if a word follows.
fn glue(
    out: &mut String,
    kind: &dyn Fn(usize) -> Word,
    write: &dyn Fn(&mut String, usize),
    start: usize,
    connector: char,
) -> usize {
    let mut index = start;
    while matches!(kind(index), Word::Letters | Word::Number) {
        write(out, index);
        index += 1;
    }
    if !matches!(kind(index), Word::None | Word::Punctuation | Word::Connector) {
        out.push(connector);
    }
    index
}

/// Words joined with capital first letters; leading connectors stay, and of several connectors in a
/// row all but one.
pub(super) fn pascal(text: &str) -> String {
    let first = text.find(|character| !is_connector(character));
    let Some(first) = first else {
        // Nothing but connectors: the last one is written twice.
        return text.chars().chain(text.chars().next_back()).collect();
    };
    let mut out = text[..first].to_owned();
    let mut rest = text[first..].chars();
    let Some(head) = rest.next() else { return out };
    // Capitals after a capital first letter become small until something else comes.
    let mut lowering = head.is_uppercase();
    let mut pending = upper(head);
    for character in rest {
        let previous = pending;
        if is_connector(character) && is_connector(previous) {
            out.push(previous);
            pending = character;
            continue;
        }
        pending = character;
        if is_connector(previous) {
            lowering = character.is_uppercase();
            pending = upper(character);
        } else {
            if lowering {
                if character.is_uppercase() {
                    pending = lower(character);
                } else {
                    lowering = false;
                }
            }
            out.push(previous);
        }
    }
    out.push(pending);
    out
}
