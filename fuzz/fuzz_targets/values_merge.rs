//! Values of charts, files and `--set` merged in every way: nothing panics, a second merge changes nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_helm::chart::Chart;
use weir_helm::set::{self, Reader};
use weir_helm::values::{self, Mode, Table};
use weir_helm::{dependencies, schema};

fn chart(name: &str, values: &[u8], dependencies: Vec<Chart>) -> Chart {
    let mut chart = Chart { values: values::read(values).unwrap_or_default(), dependencies, ..Chart::default() };
    name.clone_into(&mut chart.metadata.name);
    "1.0.0".clone_into(&mut chart.metadata.version);
    chart
}

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.split(|byte| *byte == 0xff);
    let mut next = || parts.next().unwrap_or_default();
    let child = chart("a", next(), Vec::new());
    let mut parent = chart("p", next(), vec![child, chart("b", next(), Vec::new())]);
    let metadata = weir_helm::metadata::Metadata::parse(next()).unwrap_or_default();
    parent.metadata.dependencies = metadata.dependencies;
    parent.schema = Some(next().to_vec().into());
    let mut given = values::read(next()).unwrap_or_default();
    for reader in [Reader::Typed, Reader::Text, Reader::Json] {
        let _ = set::apply(&mut given, &String::from_utf8_lossy(next()), &reader);
    }
    let mut again = given.clone();
    values::merge_over(&mut again, given.clone());
    assert_eq!(again, given, "merging values over themselves changes nothing");
    for mode in [Mode::Coalesce, Mode::Merge] {
        let _ = values::coalesce(&parent, &given, mode);
    }
    if dependencies::process(&mut parent, &given).is_err() {
        return;
    }
    let Ok(all) = values::coalesce(&parent, &given, Mode::Coalesce) else { return };
    let _ = schema::validate(&parent, &all, None);
    let _: &Table = &all;
});
