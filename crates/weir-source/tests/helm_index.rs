//! Indexes as Helm's libraries read and write them: recorded by `hack/record/helm-index`.

use std::path::Path;

use weir_source::helm::Index;

#[test]
fn recorded_indexes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cases = root.join("../../hack/record/helm-index/cases");
    let golden = root.join("tests/golden/helm-index");
    let mut compared = 0;
    for entry in std::fs::read_dir(cases).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let wanted = std::fs::read_to_string(golden.join(format!("{name}.json"))).unwrap();
        let found = match Index::parse(&std::fs::read(&path).unwrap()) {
            Ok(index) => {
                let mut output = Vec::new();
                index.write(&mut output).unwrap();
                String::from_utf8(output).unwrap()
            }
            Err(_) => "error".to_owned(),
        };
        assert_eq!(found, wanted, "{name}");
        compared += 1;
    }
    assert!(compared >= 13, "{compared}");
}
