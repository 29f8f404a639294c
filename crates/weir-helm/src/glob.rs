//! Patterns of `.Files.Glob`: `*` within a path element, `**` across, `?`, classes and alternatives.

/// A compiled pattern.
pub(crate) struct Glob(Vec<Vec<Token>>);

#[derive(Clone, Debug)]
enum Token {
    Literal(char),
    /// Any characters but `/`.
    Star,
    /// Any characters.
    DoubleStar,
    /// One character but `/`.
    Question,
    /// One of the ranges, or none of them.
    Class {
        ranges: Vec<(char, char)>,
        negated: bool,
    },
}

/// How many patterns alternatives may multiply to.
const ALTERNATIVES_MAX: usize = 1000;

impl Glob {
    /// Nothing if the pattern is broken.
    pub(crate) fn parse(pattern: &str) -> Option<Self> {
        let characters: Vec<char> = pattern.chars().collect();
        let mut position = 0;
        let alternatives = sequence(&characters, &mut position, false)?;
        (position == characters.len()).then_some(Self(alternatives))
    }

    pub(crate) fn matches(&self, path: &str) -> bool {
        let path: Vec<char> = path.chars().collect();
        self.0.iter().any(|tokens| matches(tokens, &path))
    }
}

/// Reads up to the end, or within braces up to `,` or `}`.
fn sequence(pattern: &[char], position: &mut usize, braced: bool) -> Option<Vec<Vec<Token>>> {
    let mut all: Vec<Vec<Token>> = vec![Vec::new()];
    while let Some(character) = pattern.get(*position) {
        let token = match character {
            ',' | '}' if braced => return Some(all),
            '*' => {
                if pattern.get(*position + 1) == Some(&'*') {
                    *position += 1;
                    Token::DoubleStar
                } else {
                    Token::Star
                }
            }
            '?' => Token::Question,
            '\\' => {
                *position += 1;
                Token::Literal(*pattern.get(*position)?)
            }
            '[' => class(pattern, position)?,
            '{' => {
                *position += 1;
                let mut choices = Vec::new();
                loop {
                    choices.extend(sequence(pattern, position, true)?);
                    match pattern.get(*position)? {
                        ',' => *position += 1,
                        _ => break,
                    }
                }
                *position += 1;
                if all.len() * choices.len() > ALTERNATIVES_MAX {
                    return None;
                }
                all = all
                    .iter()
                    .flat_map(|before| choices.iter().map(|choice| [before.as_slice(), choice].concat()))
                    .collect();
                continue;
            }
            literal => Token::Literal(*literal),
        };
        *position += 1;
        for alternative in &mut all {
            alternative.push(token.clone());
        }
    }
    (!braced).then_some(all)
}

fn class(pattern: &[char], position: &mut usize) -> Option<Token> {
    *position += 1;
    let negated = pattern.get(*position) == Some(&'!');
    *position += usize::from(negated);
    let mut ranges = Vec::new();
    loop {
        let mut low = *pattern.get(*position)?;
        if low == ']' && !ranges.is_empty() {
            return Some(Token::Class { ranges, negated });
        }
        if low == '\\' {
            *position += 1;
            low = *pattern.get(*position)?;
        }
        *position += 1;
        let mut high = low;
        if pattern.get(*position) == Some(&'-') && pattern.get(*position + 1) != Some(&']') {
            high = *pattern.get(*position + 1)?;
            *position += 2;
            if high < low {
                return None;
            }
        }
        ranges.push((low, high));
    }
}

/// Which prefixes of the path the tokens read so far can match, one token after the other.
fn matches(tokens: &[Token], path: &[char]) -> bool {
    let mut reachable = vec![false; path.len() + 1];
    reachable[0] = true;
    for token in tokens {
        let mut next = vec![false; path.len() + 1];
        for position in 0..=path.len() {
            match token {
                Token::Star | Token::DoubleStar => {
                    let crossing = matches!(token, Token::DoubleStar);
                    let continued =
                        position > 0 && next[position - 1] && (crossing || path[position - 1] != '/');
                    next[position] = reachable[position] || continued;
                }
                single => {
                    next[position] =
                        position > 0 && reachable[position - 1] && single.accepts(path[position - 1]);
                }
            }
        }
        reachable = next;
    }
    reachable[path.len()]
}

impl Token {
    fn accepts(&self, character: char) -> bool {
        match self {
            Self::Literal(literal) => *literal == character,
            Self::Question => character != '/',
            Self::Class { ranges, negated } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&character)) != *negated
            }
            Self::Star | Self::DoubleStar => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_paths() {
        for (pattern, path, expected) in [
            ("cfg/*.txt", "cfg/a.txt", true),
            ("cfg/*.txt", "cfg/x/a.txt", false),
            ("cfg/**.txt", "cfg/x/a.txt", true),
            ("**", "a/b", true),
            ("*", "a/b", false),
            ("{a,b}/*.{yaml,yml}", "b/c.yml", true),
            ("{a,b}/*.{yaml,yml}", "c/c.yml", false),
            ("[!a]x", "bx", true),
            ("[a-c]?", "bz", true),
            ("a\\*b", "a*b", true),
        ] {
            assert_eq!(Glob::parse(pattern).unwrap().matches(path), expected, "{pattern} {path}");
        }
        assert!(Glob::parse("[bad").is_none());
        assert!(Glob::parse("{a,b").is_none());
    }
}
