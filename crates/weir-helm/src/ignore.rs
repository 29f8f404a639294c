//! `.helmignore`.

/// The rules of one `.helmignore` and the built-in one.
pub(crate) struct Rules(Vec<Rule>);

struct Rule {
    pattern: Pattern,
    negated: bool,
    directories_only: bool,
    scope: Scope,
}

/// The two forms nearly all patterns have are compared as text.
enum Pattern {
    /// No sign with a meaning.
    Literal(String),
    /// `*` and what a name ends with.
    Suffix(String),
    /// Anything else.
    Other(Vec<char>),
}

impl Pattern {
    fn new(text: &str, scope: Scope) -> Self {
        let plain = |text: &str| !text.contains(['*', '?', '[', '\\']);
        match text.strip_prefix('*') {
            _ if plain(text) => Self::Literal(text.to_owned()),
            Some(suffix) if scope == Scope::Name && plain(suffix) => Self::Suffix(suffix.to_owned()),
            _ => Self::Other(text.chars().collect()),
        }
    }

    fn matches(&self, subject: &str) -> bool {
        match self {
            Self::Literal(text) => text == subject,
            Self::Suffix(suffix) => subject.ends_with(suffix.as_str()),
            Self::Other(pattern) => {
                check(pattern).is_some() && run(pattern, &subject.chars().collect::<Vec<char>>())
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// The whole path, from the root of the chart.
    Path,
    /// The last part of the path.
    Name,
}

/// A rule that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IgnoreError {
    /// `**`
    #[error("double-star (**) syntax is not supported")]
    DoubleStar,
    /// A pattern that is no pattern.
    #[error("syntax error in pattern")]
    Pattern,
}

impl Rules {
    /// Reads the rules of a file; the built-in rule is added.
    pub(crate) fn parse(text: &str) -> Result<Self, IgnoreError> {
        let mut rules = Vec::new();
        for line in text.lines().chain(["templates/.?*"]) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.contains("**") {
                return Err(IgnoreError::DoubleStar);
            }
            matches(line, "abc").ok_or(IgnoreError::Pattern)?;
            let (negated, line) = line.strip_prefix('!').map_or((false, line), |rest| (true, rest));
            let (directories_only, line) = line.strip_suffix('/').map_or((false, line), |rest| (true, rest));
            let (scope, pattern) = match line.strip_prefix('/') {
                Some(rest) => (Scope::Path, rest),
                None if line.contains('/') => (Scope::Path, line),
                None => (Scope::Name, line),
            };
            let pattern = Pattern::new(pattern, scope);
            rules.push(Rule { pattern, negated, directories_only, scope });
        }
        Ok(Self(rules))
    }

    /// Whether a path is left out. A negated rule leaves out all that it does not match.
    pub(crate) fn ignores(&self, path: &str, directory: bool) -> bool {
        if matches!(path, "" | "." | "./") {
            return false;
        }
        let name = path.rsplit('/').next().unwrap_or(path);
        for rule in &self.0 {
            let subject = match rule.scope {
                Scope::Path => path,
                Scope::Name => name,
            };
            let matched = rule.pattern.matches(subject);
            if rule.negated {
                if (rule.directories_only && !directory) || !matched {
                    return true;
                }
            } else if matched && (directory || !rule.directories_only) {
                return true;
            }
        }
        false
    }
}

/// Go's `filepath.Match`: `*` and `?` stay within one path element; nothing if the pattern is broken.
pub(crate) fn matches(pattern: &str, name: &str) -> Option<bool> {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    check(&pattern)?;
    Some(run(&pattern, &name))
}

/// Whether classes are closed and escapes complete.
fn check(pattern: &[char]) -> Option<()> {
    let mut index = 0;
    while index < pattern.len() {
        match pattern[index] {
            '\\' => {
                index += 1;
                pattern.get(index)?;
            }
            '[' => {
                class(&pattern[index..], 'a')?;
                index += class_length(&pattern[index..])? - 1;
            }
            _ => {}
        }
        index += 1;
    }
    Some(())
}

fn class_length(pattern: &[char]) -> Option<usize> {
    let mut index = 1 + usize::from(pattern.get(1) == Some(&'^'));
    let first = index;
    loop {
        match pattern.get(index)? {
            ']' if index > first => return Some(index + 1),
            '\\' => index += 2,
            _ => index += 1,
        }
    }
}

/// Whether a class holds the character.
fn class(pattern: &[char], character: char) -> Option<bool> {
    let end = class_length(pattern)? - 1;
    let negated = pattern.get(1) == Some(&'^');
    let mut index = 1 + usize::from(negated);
    let mut found = false;
    let read = |index: &mut usize| -> Option<char> {
        let mut character = *pattern.get(*index)?;
        if character == '\\' {
            *index += 1;
            character = *pattern.get(*index)?;
        }
        *index += 1;
        (*index <= end).then_some(character)
    };
    while index < end {
        let low = read(&mut index)?;
        let mut high = low;
        if pattern.get(index) == Some(&'-') {
            index += 1;
            high = read(&mut index)?;
        }
        found |= (low..=high).contains(&character);
    }
    Some(found != negated)
}

fn run(pattern: &[char], name: &[char]) -> bool {
    let (mut at, mut position) = (0, 0);
    // Where to go on after the last star if what follows it does not match.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let step = match pattern.get(at) {
            Some('*') => {
                retry = Some((at, position));
                at += 1;
                continue;
            }
            None if position == name.len() => return true,
            None => None,
            Some(token) => name.get(position).and_then(|character| match token {
                '?' => (*character != '/').then_some(1),
                '[' => class(&pattern[at..], *character)
                    .filter(|inside| *inside)
                    .and_then(|_| class_length(&pattern[at..])),
                '\\' => (pattern.get(at + 1) == Some(character)).then_some(2),
                literal => (literal == character).then_some(1),
            }),
        };
        if let Some(length) = step {
            at += length;
            position += 1;
            continue;
        }
        match retry {
            Some((star, start)) if start < name.len() && name[start] != '/' => {
                retry = Some((star, start + 1));
                at = star + 1;
                position = start + 1;
            }
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        for (pattern, name, expected) in [
            ("*.txt", "a.txt", Some(true)),
            ("*.txt", "a/b.txt", Some(false)),
            ("a*/b", "abc/b", Some(true)),
            ("a?c", "abc", Some(true)),
            ("[a-c]x", "bx", Some(true)),
            ("[^a-c]x", "bx", Some(false)),
            ("\\*", "*", Some(true)),
            ("a*b*c", "aXbYc", Some(true)),
            ("[a", "a", None),
            ("*", "", Some(true)),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn rules_apply_in_order_and_negation_ignores_the_rest() {
        let rules = Rules::parse("# note\n*.bak\n/top\ndir/\nsub/x*\n").unwrap();
        assert!(rules.ignores("a/b.bak", false));
        assert!(rules.ignores("top", false));
        assert!(!rules.ignores("a/top", false));
        assert!(rules.ignores("a/dir", true));
        assert!(!rules.ignores("a/dir", false));
        assert!(rules.ignores("sub/xy", false));
        assert!(rules.ignores("templates/.hidden", false));
        assert!(!rules.ignores("Chart.yaml", false));
        assert!(Rules::parse("!keep.txt").unwrap().ignores("Chart.yaml", false));
        assert_eq!(Rules::parse("a/**").err(), Some(IgnoreError::DoubleStar));
    }
}
