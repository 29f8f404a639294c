//! Semantic versions and version constraints as Flux and Helm read them.
//!
//! The grammar and the meaning of constraints are those of the Go library Masterminds/semver 3.5:
//! looser than the semver specification (`v1.2`, leading zeros), with `x` wildcards, tilde, caret
//! and hyphen ranges, `||` between alternatives, and pre-releases matched only by alternatives that
//! name one.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A version; compared without build metadata.
#[derive(Debug, Clone)]
pub struct Version {
    /// The first number.
    pub major: u64,
    /// The second number.
    pub minor: u64,
    /// The third number.
    pub patch: u64,
    /// What follows `-`, or empty.
    pub pre: String,
    /// What follows `+`, or empty.
    pub build: String,
    original: String,
}

/// A text that is not a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// The text does not have the form of a version.
    #[error("invalid semantic version")]
    Invalid,
    /// A numeric pre-release identifier starts with zero.
    #[error("version segment starts with 0")]
    SegmentStartsWithZero,
    /// A number is too large.
    #[error("error parsing version segment")]
    TooLarge,
}

impl Version {
    /// Reads a version; minor and patch may be missing, and a `v` may be in front.
    pub fn parse(text: &str) -> Result<Self, VersionError> {
        let (rest, build) = split_suffix(text, '+')?;
        let (numbers, pre) = split_suffix(rest, '-')?;
        let numbers = numbers.strip_prefix('v').unwrap_or(numbers);
        let mut parts = [0; 3];
        for (index, part) in numbers.split('.').enumerate() {
            if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(VersionError::Invalid);
            }
            *parts.get_mut(index).ok_or(VersionError::Invalid)? =
                part.parse().map_err(|_| VersionError::TooLarge)?;
        }
        if pre
            .split('.')
            .any(|part| part.len() > 1 && part.starts_with('0') && part.bytes().all(|b| b.is_ascii_digit()))
        {
            return Err(VersionError::SegmentStartsWithZero);
        }
        let [major, minor, patch] = parts;
        Ok(Self {
            major,
            minor,
            patch,
            pre: pre.to_owned(),
            build: build.to_owned(),
            original: text.to_owned(),
        })
    }

    /// Reads a version that names all three numbers, as Flux wants it of Git and OCI tags.
    pub fn parse_complete(text: &str) -> Result<Self, VersionError> {
        if text.splitn(3, '.').count() == 3 { Self::parse(text) } else { Err(VersionError::Invalid) }
    }

    /// The text the version was read from.
    pub fn original(&self) -> &str {
        &self.original
    }

    fn numbers(&self) -> (u64, u64, u64) {
        (self.major, self.minor, self.patch)
    }
}

impl fmt::Display for Version {
    /// The normal form: three numbers, no `v`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if !self.pre.is_empty() {
            write!(formatter, "-{}", self.pre)?;
        }
        if !self.build.is_empty() {
            write!(formatter, "+{}", self.build)?;
        }
        Ok(())
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        Self::parse(text)
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.numbers().cmp(&other.numbers()).then_with(|| compare_pre(&self.pre, &other.pre))
    }
}

/// Splits off a suffix of dot-separated identifiers.
fn split_suffix(text: &str, separator: char) -> Result<(&str, &str), VersionError> {
    let Some((rest, suffix)) = text.split_once(separator) else { return Ok((text, "")) };
    let identifier = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    if suffix.split('.').all(identifier) { Ok((rest, suffix)) } else { Err(VersionError::Invalid) }
}

fn compare_pre(left: &str, right: &str) -> Ordering {
    match (left.is_empty(), right.is_empty()) {
        (true, true) => return Ordering::Equal,
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    let (mut left, mut right) = (left.split('.'), right.split('.'));
    loop {
        let order = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(left), Some(right)) => match (left.parse::<u64>(), right.parse::<u64>()) {
                (Ok(left), Ok(right)) => left.cmp(&right),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => left.cmp(right),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// A set of versions, such as `>=1.2.0 <2.0.0` or `~1.4 || 2.x`.
#[derive(Debug, Clone)]
pub struct Constraint {
    alternatives: Vec<Alternative>,
}

/// A text that is not a constraint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// The text does not have the form of a constraint.
    #[error("improper constraint: {0:?}")]
    Improper(String),
    /// A version in it is none.
    #[error("constraint parser error")]
    Version,
}

#[derive(Debug, Clone)]
struct Alternative {
    comparisons: Vec<Comparison>,
    names_pre_release: bool,
}

#[derive(Debug, Clone)]
struct Comparison {
    operator: Operator,
    version: Version,
    precision: Precision,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
    Tilde,
    Caret,
}

/// How much of the version is given; the rest is missing or `x`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Precision {
    Nothing,
    Major,
    Minor,
    Full,
}

/// Longest operators first.
const OPERATORS: [(&str, Operator); 11] = [
    ("!=", Operator::NotEqual),
    (">=", Operator::GreaterOrEqual),
    ("=>", Operator::GreaterOrEqual),
    ("<=", Operator::LessOrEqual),
    ("=<", Operator::LessOrEqual),
    ("~>", Operator::Tilde),
    ("=", Operator::Equal),
    (">", Operator::Greater),
    ("<", Operator::Less),
    ("~", Operator::Tilde),
    ("^", Operator::Caret),
];

impl Constraint {
    /// Reads a constraint. An empty text is none; `*` matches every release.
    pub fn parse(text: &str) -> Result<Self, ConstraintError> {
        text.split("||")
            .map(parse_alternative)
            .collect::<Result<_, _>>()
            .map(|alternatives| Self { alternatives })
    }

    /// Whether `version` is in the set.
    pub fn matches(&self, version: &Version) -> bool {
        self.alternatives.iter().any(|alternative| {
            (version.pre.is_empty() || alternative.names_pre_release)
                && alternative.comparisons.iter().all(|comparison| comparison.matches(version))
        })
    }
}

impl FromStr for Constraint {
    type Err = ConstraintError;

    fn from_str(text: &str) -> Result<Self, ConstraintError> {
        Self::parse(text)
    }
}

fn parse_alternative(text: &str) -> Result<Alternative, ConstraintError> {
    let improper = || ConstraintError::Improper(text.to_owned());
    let mut comparisons = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (operator, after_operator) = OPERATORS
            .iter()
            .find_map(|(text, operator)| Some((*operator, rest.strip_prefix(text)?)))
            .unwrap_or((Operator::Equal, rest));
        let has_operator = after_operator.len() != rest.len();
        let after_operator = after_operator.trim_start();
        let end = after_operator
            .find(|character: char| character.is_whitespace() || character == ',')
            .unwrap_or(after_operator.len());
        let (version, after_version) = after_operator.split_at(end);
        // `1.2 - 1.4` is a range.
        let range_end = after_version
            .trim_start()
            .strip_prefix('-')
            .filter(|_| after_version.starts_with(char::is_whitespace))
            .filter(|tail| tail.starts_with(char::is_whitespace));
        if let Some(tail) = range_end.filter(|_| !has_operator) {
            let tail = tail.trim_start();
            let end = tail
                .find(|character: char| character.is_whitespace() || character == ',')
                .unwrap_or(tail.len());
            let (upper, after_range) = tail.split_at(end);
            comparisons.push(comparison(Operator::GreaterOrEqual, version, improper)?);
            comparisons.push(comparison(Operator::LessOrEqual, upper, improper)?);
            rest = after_range;
        } else {
            comparisons.push(comparison(operator, version, improper)?);
            rest = after_version;
        }
        let before_comma = rest.trim_start();
        rest = match before_comma.strip_prefix(',') {
            Some(after_comma) => {
                let next = after_comma.trim_start();
                if next.is_empty() {
                    return Err(improper());
                }
                next
            }
            None => before_comma,
        };
    }
    if comparisons.is_empty() {
        return Err(improper());
    }
    let names_pre_release = comparisons.iter().any(|comparison| !comparison.version.pre.is_empty());
    Ok(Alternative { comparisons, names_pre_release })
}

fn comparison(
    operator: Operator,
    text: &str,
    improper: impl Fn() -> ConstraintError,
) -> Result<Comparison, ConstraintError> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (without_build, _) = split_suffix(text, '+').map_err(|_| improper())?;
    let (numbers, pre) = split_suffix(without_build, '-').map_err(|_| improper())?;
    let parts: Vec<&str> = numbers.split('.').collect();
    let well_formed = parts.len() <= 3
        && parts.iter().all(|part| {
            !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit() || b"xX*|".contains(&byte))
        });
    if !well_formed {
        return Err(improper());
    }
    let given = parts.iter().take_while(|part| !matches!(**part, "x" | "X" | "*")).count();
    let precision = match given {
        0 => Precision::Nothing,
        1 => Precision::Major,
        2 => Precision::Minor,
        _ => Precision::Full,
    };
    let part = |index: usize| if index < given { parts[index] } else { "0" };
    let mut version = format!("{}.{}.{}", part(0), part(1), part(2));
    if !pre.is_empty() {
        version.push('-');
        version.push_str(pre);
    }
    let version = Version::parse(&version).map_err(|_| ConstraintError::Version)?;
    Ok(Comparison { operator, version, precision })
}

impl Comparison {
    fn matches(&self, version: &Version) -> bool {
        let bound = &self.version;
        match self.operator {
            Operator::Equal if self.precision == Precision::Full => version == bound,
            Operator::Equal | Operator::Tilde => self.matches_tilde(version),
            Operator::NotEqual => self.matches_not_equal(version),
            Operator::Less => version < bound,
            Operator::GreaterOrEqual => version >= bound,
            Operator::Greater => match self.precision {
                Precision::Major => version.major > bound.major,
                Precision::Minor => (version.major, version.minor) > (bound.major, bound.minor),
                Precision::Nothing | Precision::Full => version > bound,
            },
            Operator::LessOrEqual => match self.precision {
                Precision::Full => version <= bound,
                Precision::Major => version.major <= bound.major,
                Precision::Nothing | Precision::Minor => {
                    (version.major, version.minor) <= (bound.major, bound.minor)
                }
            },
            Operator::Caret => self.matches_caret(version),
        }
    }

    /// Same major and minor version, as far as they are given.
    fn matches_tilde(&self, version: &Version) -> bool {
        let bound = &self.version;
        if version < bound {
            return false;
        }
        let anything =
            bound.numbers() == (0, 0, 0) && matches!(self.precision, Precision::Nothing | Precision::Full);
        anything
            || (version.major == bound.major
                && (self.precision == Precision::Major || version.minor == bound.minor))
    }

    fn matches_not_equal(&self, version: &Version) -> bool {
        let bound = &self.version;
        match self.precision {
            Precision::Major => version.major != bound.major,
            Precision::Minor => {
                (version.major, version.minor) != (bound.major, bound.minor) || version.pre != bound.pre
            }
            Precision::Nothing | Precision::Full => version != bound,
        }
    }

    /// Nothing left of the first non-zero number changes.
    fn matches_caret(&self, version: &Version) -> bool {
        let bound = &self.version;
        if version < bound {
            return false;
        }
        if bound.major > 0 || self.precision == Precision::Major {
            return version.major == bound.major;
        }
        if version.major > 0 {
            return false;
        }
        if bound.minor > 0 || self.precision == Precision::Minor {
            return version.minor == bound.minor;
        }
        version.minor == 0 && version.patch == bound.patch
    }
}

#[cfg(test)]
#[path = "version_tests.rs"]
mod tests;
