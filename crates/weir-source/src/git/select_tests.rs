use super::*;

fn id(digit: u8) -> ObjectId {
    ObjectId::from_hex(&[b'0' + digit; 40]).unwrap()
}

fn listed(names: &[(&str, u8)]) -> Vec<Listed> {
    names
        .iter()
        .map(|(name, digit)| match name.strip_suffix("^{}") {
            Some(name) => Listed { name: name.to_owned(), object: id(*digit), tag: Some(id(9)) },
            None => Listed { name: (*name).to_owned(), object: id(*digit), tag: None },
        })
        .collect()
}

fn reference(fields: &[(&str, &str)]) -> Reference {
    let mut reference = Reference::default();
    for (field, value) in fields {
        let value = Some((*value).to_owned());
        match *field {
            "branch" => reference.branch = value,
            "tag" => reference.tag = value,
            "semver" => reference.semver = value,
            "name" => reference.name = value,
            "commit" => reference.commit = value,
            other => panic!("{other}"),
        }
    }
    reference
}

const REFERENCES: &[(&str, u8)] = &[
    ("refs/heads/main", 1),
    ("refs/heads/main-2", 2),
    ("refs/heads/master", 3),
    ("refs/pull/1/head", 4),
    ("refs/tags/1.0.0", 5),
    ("refs/tags/v1.2.0^{}", 6),
    ("refs/tags/v1.3.0-rc.1", 7),
    ("refs/tags/latest", 8),
    ("refs/tags/v1.1", 2),
];

#[track_caller]
fn check(fields: &[(&str, &str)], expected: Result<&str, &str>) {
    let choice = Target::new(&reference(fields))
        .and_then(|target| target.choose(&listed(REFERENCES)))
        .map_err(|error| weir_base::error::chain(&error));
    let revision = choice.map(|choice| match choice {
        Choice::One(chosen) => {
            let revision = chosen.revision();
            let (label, hex) = revision.rsplit_once("sha1:").unwrap();
            format!("{label}{}", &hex[..1])
        }
        Choice::Newest(all) => format!("{} equal", all.len()),
    });
    assert_eq!(revision, expected.map(str::to_owned).map_err(str::to_owned));
}

#[test]
fn precedence() {
    let commit = "7777777777777777777777777777777777777777";
    check(&[], Ok("master@3"));
    check(&[("branch", "main")], Ok("main@1"));
    check(&[("branch", "main"), ("semver", "1.x")], Ok("v1.2.0@6"));
    check(&[("tag", "latest"), ("semver", "1.x")], Ok("latest@8"));
    check(&[("tag", "latest"), ("name", "refs/pull/1/head")], Ok("refs/pull/1/head@4"));
    check(&[("commit", commit)], Ok("7"));
    check(&[("commit", commit), ("branch", "main")], Ok("main@7"));
    check(&[("commit", commit), ("branch", "main"), ("name", "refs/heads/main")], Ok("refs/heads/main@7"));
}

#[test]
fn missing_references() {
    check(&[("branch", "mai")], Err("couldn't find remote ref \"refs/heads/mai\""));
    check(&[("tag", "1.0")], Err("couldn't find remote ref \"refs/tags/1.0\""));
    check(
        &[("name", "refs/pull/2/head")],
        Err("unable to resolve ref 'refs/pull/2/head' to a specific commit"),
    );
    check(
        &[("name", "/refs/heads/main")],
        Err("ref /refs/heads/main is invalid; Git refs cannot begin or end with a slash '/'"),
    );
    check(&[("commit", "abc")], Err("unable to resolve commit object for 'abc': object not found"));
    let commit = "7777777777777777777777777777777777777777";
    check(&[("commit", commit), ("branch", "gone")], Err("couldn't find remote ref \"refs/heads/gone\""));
}

#[test]
fn tags_are_followed() {
    check(&[("tag", "v1.2.0")], Ok("v1.2.0@6"));
    check(&[("name", "refs/tags/v1.2.0")], Ok("refs/tags/v1.2.0@6"));
    check(&[("name", "refs/tags/v1.2.0^{}")], Ok("refs/tags/v1.2.0^{}@6"));
    check(
        &[("name", "refs/tags/latest^{}")],
        Err("unable to resolve ref 'refs/tags/latest^{}' to a specific commit"),
    );
}

#[test]
fn versions() {
    check(&[("semver", ">=1.0.0-0")], Ok("v1.3.0-rc.1@7"));
    check(&[("semver", "<1.2.0")], Ok("1.0.0@5"));
    check(&[("semver", "2.x")], Err("no match found for semver: 2.x"));
    check(&[("semver", "not a range")], Err("semver parse error: improper constraint: \"not a range\""));
    let equal = listed(&[("refs/tags/1.0.0+a", 1), ("refs/tags/1.0.0+b", 2), ("refs/tags/0.9.0", 3)]);
    let target = Target::new(&reference(&[("semver", "*")])).unwrap();
    let Ok(Choice::Newest(all)) = target.choose(&equal) else { panic!("not equal") };
    assert_eq!(all.len(), 2);
}
