//! Patterns of paths: those of single directories, and those with `**` and `{a,b}`.

/// How many patterns a pattern with alternatives may stand for.
const ALTERNATIVES_MAX: usize = 1024;

/// A pattern that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// A bracket or escape has no end.
    #[error("syntax error in pattern")]
    Syntax,
    /// It stands for more patterns than allowed.
    #[error("the pattern has more than {ALTERNATIVES_MAX} alternatives")]
    Alternatives,
}

/// Whether a text is a pattern and not just a path.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', ']'])
}

/// Whether a path matches segment by segment; `**` is as good as `*`.
pub(crate) fn matches_flat(pattern: &str, path: &str) -> Result<bool, PatternError> {
    let (patterns, names): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
    let mut all = patterns.len() == names.len();
    for (index, pattern) in patterns.iter().enumerate() {
        // Every segment is looked at, so that a broken one is always found.
        all &= matches_name(pattern, names.get(index).copied().unwrap_or_default())?;
    }
    Ok(all)
}

/// A pattern with `**` for any number of directories and `{a,b}` for alternatives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recursive(Vec<String>);

impl Recursive {
    pub(crate) fn new(pattern: &str) -> Result<Self, PatternError> {
        let mut alternatives = Vec::new();
        expand(pattern, &mut alternatives)?;
        for alternative in &alternatives {
            for segment in alternative.split('/') {
                matches_name(segment, "")?;
            }
        }
        Ok(Self(alternatives))
    }

    /// Whether a path matches.
    pub(crate) fn matches(&self, path: &str) -> bool {
        let names: Vec<&str> = path.split('/').collect();
        self.0.iter().any(|pattern| matches_all(&pattern.split('/').collect::<Vec<_>>(), &names))
    }
}

/// Whether all segments match, in time that grows with the product of both numbers.
fn matches_all(patterns: &[&str], names: &[&str]) -> bool {
    // `reached[n]`: the patterns so far match the first n names.
    let mut reached = vec![false; names.len() + 1];
    reached[0] = true;
    for pattern in patterns {
        let mut next = vec![false; names.len() + 1];
        if *pattern == "**" {
            let mut any = false;
            for (position, was) in reached.iter().enumerate() {
                any |= *was;
                next[position] = any;
            }
        } else {
            for (position, name) in names.iter().enumerate() {
                next[position + 1] = reached[position] && matches_name(pattern, name).unwrap_or(false);
            }
        }
        reached = next;
    }
    reached.last().copied().unwrap_or(false)
}

/// Writes out the first group of alternatives, and so on until there is none.
fn expand(pattern: &str, found: &mut Vec<String>) -> Result<(), PatternError> {
    let bytes = pattern.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'{' => {
                let (parts, end) = group(pattern, at)?;
                for part in parts {
                    expand(&format!("{}{part}{}", &pattern[..at], &pattern[end..]), found)?;
                }
                return Ok(());
            }
            _ => {}
        }
        at += 1;
    }
    if found.len() == ALTERNATIVES_MAX {
        return Err(PatternError::Alternatives);
    }
    found.push(pattern.to_owned());
    Ok(())
}

/// The alternatives of the group that starts at `start`, and where it ends.
fn group(pattern: &str, start: usize) -> Result<(Vec<&str>, usize), PatternError> {
    let bytes = pattern.as_bytes();
    let (mut depth, mut from, mut parts, mut at) = (0, start + 1, Vec::new(), start);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'{' => depth += 1,
            b',' if depth == 1 => {
                parts.push(&pattern[from..at]);
                from = at + 1;
            }
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    parts.push(&pattern[from..at]);
                    return Ok((parts, at + 1));
                }
            }
            _ => {}
        }
        at += 1;
    }
    Err(PatternError::Syntax)
}

/// One segment: `*`, `?`, `[a-z]`, `[^a-z]`, `\` escapes. A broken pattern is found whether it is reached or not.
fn matches_name(pattern: &str, name: &str) -> Result<bool, PatternError> {
    let tokens = tokens(pattern)?;
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut position) = (0, 0);
    let mut resume: Option<(usize, usize)> = None;
    loop {
        match tokens.get(at) {
            Some(Token::Any) => {
                at += 1;
                resume = Some((at, position));
                continue;
            }
            Some(token) if name.get(position).is_some_and(|character| token.takes(*character)) => {
                at += 1;
                position += 1;
                continue;
            }
            None if position == name.len() => return Ok(true),
            Some(_) | None => {}
        }
        match resume {
            Some((star, from)) if from < name.len() => {
                at = star;
                position = from + 1;
                resume = Some((star, position));
            }
            Some(_) | None => return Ok(false),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Any,
    One,
    Literal(char),
    Class { negated: bool, ranges: Vec<(char, char)> },
}

impl Token {
    fn takes(&self, character: char) -> bool {
        match self {
            Self::Any => false,
            Self::One => true,
            Self::Literal(literal) => *literal == character,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&character)) != *negated
            }
        }
    }
}

fn tokens(pattern: &str) -> Result<Vec<Token>, PatternError> {
    let mut tokens = Vec::new();
    let mut characters = pattern.chars().peekable();
    let end = PatternError::Syntax;
    while let Some(character) = characters.next() {
        tokens.push(match character {
            '*' => Token::Any,
            '?' => Token::One,
            '\\' => Token::Literal(characters.next().ok_or_else(|| end.clone())?),
            '[' => {
                let negated = characters.next_if(|next| matches!(next, '^' | '!')).is_some();
                let mut ranges = Vec::new();
                let one = |characters: &mut std::iter::Peekable<std::str::Chars<'_>>| match characters.next()
                {
                    Some('\\') => characters.next().ok_or_else(|| end.clone()),
                    Some(character) => Ok(character),
                    None => Err(end.clone()),
                };
                loop {
                    if characters.peek() == Some(&']') && !ranges.is_empty() {
                        characters.next();
                        break;
                    }
                    let low = one(&mut characters)?;
                    let high =
                        if characters.next_if_eq(&'-').is_some() { one(&mut characters)? } else { low };
                    ranges.push((low, high));
                }
                Token::Class { negated, ranges }
            }
            literal => Token::Literal(literal),
        });
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flat_patterns() {
        #[track_caller]
        fn check(pattern: &str, path: &str, expected: bool) {
            assert_eq!(matches_flat(pattern, path), Ok(expected), "{pattern} {path}");
        }
        check("*.yaml", "a.yaml", true);
        check("*.yaml", "a/b.yaml", false);
        check("apps/**", "apps/web", true);
        check("apps/**", "apps/web/a.yaml", false);
        check("apps/*/[a-c]?.yaml", "apps/web/b1.yaml", true);
        check("apps/*/[^a-c]?.yaml", "apps/web/b1.yaml", false);
        check("a*b*c", "aXbYbZc", true);
        check("a\\*", "a*", true);
        check("{a,b}", "a", false);
        for broken in ["[a", "x/[", "a\\"] {
            assert_eq!(matches_flat(broken, "q"), Err(PatternError::Syntax), "{broken}");
        }
    }

    #[test]
    fn recursive_patterns() {
        #[track_caller]
        fn check(pattern: &str, path: &str, expected: bool) {
            assert_eq!(Recursive::new(pattern).unwrap().matches(path), expected, "{pattern} {path}");
        }
        check("**", "a/b/c", true);
        check("**/*.tgz", "a.tgz", true);
        check("**/*.tgz", "charts/x/a.tgz", true);
        check("charts/**", "charts", true);
        check("charts/**/a", "charts/a", true);
        check("charts/**/a", "charts/x/y/a", true);
        check("charts/**/a", "charts/x/y/b", false);
        check("a**", "a/b", false);
        check("*.{md,txt}", "README.md", true);
        check("{a,b{c,d}}/x", "bd/x", true);
        check("{a,b{c,d}}/x", "b/x", false);
        check("{,x}y", "y", true);
        assert_eq!(Recursive::new("{a"), Err(PatternError::Syntax));
        let many = "{a,b}".repeat(20);
        assert_eq!(Recursive::new(&many), Err(PatternError::Alternatives));
        // No pattern takes long.
        let slow = format!("{}x", "**/".repeat(200));
        check(&slow, &"a/".repeat(500), false);
        check(&format!("{}b", "*".repeat(300)), &"a".repeat(3000), false);
    }
}
