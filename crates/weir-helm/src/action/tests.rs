use super::*;

#[test]
fn times_are_written_as_go_does() {
    #[track_caller]
    fn check(time: &str, expected: &str) {
        assert_eq!(go_time(time.parse().unwrap()), expected);
    }
    check("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z");
    check("2026-01-02T03:04:05.120000000Z", "2026-01-02T03:04:05.12Z");
    check("2026-01-02T03:04:05.000000001Z", "2026-01-02T03:04:05.000000001Z");
}

#[test]
fn names_of_releases() {
    for good in ["a", "a-b", "a.b-c", "0"] {
        assert!(is_release_name(good), "{good}");
    }
    for bad in ["", "A", "-a", "a-", "a..b", "a_b", &"a".repeat(54)] {
        assert!(!is_release_name(bad), "{bad}");
    }
}

#[test]
fn tests_are_selected_by_name() {
    let filter = TestFilter { include: vec!["a".to_owned(), "b".to_owned()], exclude: vec!["b".to_owned()] };
    assert!(filter.selects("a") && !filter.selects("b") && !filter.selects("c"));
    assert!(TestFilter::default().selects("any"));
}
