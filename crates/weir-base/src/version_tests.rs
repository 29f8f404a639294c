use super::*;

/// Constraints and what the reference matches, recorded by `tests/golden/version/main.go`.
const RECORDED: &str = include_str!("../tests/golden/version/want.txt");

const VERSIONS: &str = "0.0.0 0.0.3 0.0.4 0.1.0 0.2.3 0.2.9 0.3.0 1.0.0 1.2.0 1.2.3 v1.2.3 1.2.4 \
    1.3.0 1.9.0 2.0.0 2.1.0 3.0.0 11.1.0 1.2.3-beta 1.2.3-beta.2 1.2.3-beta.10 1.2.3-rc.1 \
    1.2.0-alpha 2.0.0-rc.1 1.2.3+b1 1 1.2";

#[test]
fn constraints_match_what_the_reference_matches() {
    let mut checked = 0;
    for line in RECORDED.lines() {
        let (constraint, expected) = line.split_once('\t').unwrap();
        let found = match Constraint::parse(constraint) {
            Err(ConstraintError::Improper(_)) => "!improper".to_owned(),
            Err(ConstraintError::Version) => "!constraint".to_owned(),
            Ok(parsed) => VERSIONS
                .split(' ')
                .filter(|version| parsed.matches(&Version::parse(version).unwrap()))
                .fold(String::new(), |list, version| list + version + " "),
        };
        let expected = match expected.strip_prefix('!') {
            Some(error) => format!("!{}", error.split(' ').next().unwrap()),
            None => expected.to_owned(),
        };
        assert_eq!(found, expected, "constraint '{constraint}'");
        checked += 1;
    }
    assert_eq!(checked, 78);
}

#[track_caller]
fn check(text: &str, expected: Result<&str, VersionError>) {
    assert_eq!(Version::parse(text).map(|version| version.to_string()), expected.map(str::to_owned));
}

#[test]
fn versions() {
    check("v1.2", Ok("1.2.0"));
    check("1.2.3-rc.1+b.2", Ok("1.2.3-rc.1+b.2"));
    check("2025.02.03", Ok("2025.2.3"));
    check("1.2.3-01", Err(VersionError::SegmentStartsWithZero));
    check("1.2.3.4", Err(VersionError::Invalid));
    check("vv1", Err(VersionError::Invalid));
    check("", Err(VersionError::Invalid));
    check("1.2.3-", Err(VersionError::Invalid));
    check("99999999999999999999.0.0", Err(VersionError::TooLarge));
    assert!(Version::parse_complete("v1.2").is_err());
    assert_eq!(Version::parse_complete("v1.2.3").unwrap().original(), "v1.2.3");
}

#[test]
fn order() {
    let mut versions: Vec<Version> = [
        "1.0.0",
        "1.0.0-rc.1",
        "1.0.0-alpha.beta",
        "1.0.0-alpha.1",
        "1.0.0-alpha",
        "0.9.0",
        "1.0.0-beta.11",
        "1.0.0-beta.2",
    ]
    .into_iter()
    .map(|text| Version::parse(text).unwrap())
    .collect();
    versions.sort();
    let sorted: Vec<String> = versions.iter().map(ToString::to_string).collect();
    assert_eq!(
        sorted,
        [
            "0.9.0",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0"
        ]
    );
    assert_eq!(Version::parse("1.0.0+a").unwrap(), Version::parse("1.0.0+b").unwrap());
}

#[test]
fn errors_name_the_text() {
    assert_eq!(Constraint::parse("a").unwrap_err().to_string(), "improper constraint: \"a\"");
}
