//! Charts from files to rendered text: values, dependencies, context, order.

use std::collections::BTreeMap;

use weir_base::tree::MemoryTree;
use weir_gotemplate::{FixedHost, Limits};
use weir_helm::capabilities::Capabilities;
use weir_helm::chart::Chart;
use weir_helm::content::ContentOptions;
use weir_helm::render::{self, ReleaseInfo, RenderInput};
use weir_helm::values::{self, Mode};
use weir_helm::{dependencies, schema};

/// Renders a chart given as files; values are YAML. The first error ends it.
fn render(files: &[(&str, &str)], given: &str) -> Result<BTreeMap<String, String>, String> {
    let mut all = vec![("Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.2.3\n")];
    all.extend_from_slice(files);
    let tree: MemoryTree =
        all.iter().map(|(path, text)| (*path, bytes::Bytes::from((*text).to_owned()))).collect();
    let mut chart = Chart::from_tree(&tree, "").map_err(|error| error.to_string())?;
    let given = values::read(given.as_bytes()).map_err(|error| error.to_string())?;
    dependencies::process(&mut chart, &given).map_err(|error| error.to_string())?;
    let coalesced = values::coalesce(&chart, &given, Mode::Coalesce).map_err(|error| error.to_string())?;
    schema::validate(&chart, &coalesced, &schema::Documents::Missing).map_err(|error| error.to_string())?;
    let release =
        ReleaseInfo { name: "rel".to_owned(), namespace: "ns".to_owned(), revision: 1, is_upgrade: false };
    let input = RenderInput {
        release: &release,
        capabilities: &Capabilities::default(),
        host: Box::new(FixedHost::default()),
        limits: Limits::default(),
    };
    render::render(&chart, &coalesced, input).map_err(|error| error.to_string())
}

/// What one template of a chart with the given `values.yaml` prints.
#[track_caller]
fn check(defaults: &str, given: &str, template: &str, expected: &str) {
    let files = [
        ("values.yaml", defaults),
        ("templates/t.yaml", template),
        ("cfg/a.txt", "one\ntwo\n"),
        ("cfg/b.txt", "x"),
        ("cfg/deep/c.txt", "y"),
    ];
    let rendered = render(&files, given).map(|mut files| files.remove("c/templates/t.yaml"));
    assert_eq!(rendered, Ok(Some(expected.to_owned())), "{template}");
}

#[track_caller]
fn check_error(given: &str, template: &str, expected: &str) {
    let rendered = render(&[("templates/t.yaml", template)], given);
    let error = rendered.expect_err(template);
    assert!(error.contains(expected), "{template}: {error}");
}

#[test]
fn nulls_and_tables_of_values() {
    let shown = "{{ .Values | toJson }}";
    check("key: 1", "key: null", shown, "{}");
    check("", "key: null", shown, r#"{"key":null}"#);
    check("key: null", "", shown, "{}");
    check("m: {a: 1, b: 2}", "m: {b: null}", shown, r#"{"m":{"a":1}}"#);
    check("l: [1, 2]", "l: [3]", shown, r#"{"l":[3]}"#);
    check("m: {a: 1}", "m: text", shown, r#"{"m":"text"}"#);
    check("a: 1\n---\nb: 2\n", "", shown, r#"{"a":1,"b":2}"#);
}

#[test]
fn the_context_has_the_types_of_the_engine() {
    check(
        "m: {}\nnum: 1",
        "",
        "{{ typeOf .Values }} {{ typeOf .Values.m }} {{ typeOf .Values.num }} {{ typeOf .Release.Revision }}",
        "common.Values map[string]interface {} float64 int",
    );
    check(
        "",
        "",
        "{{ .Chart.Name }} {{ .Chart.Version }} {{ .Chart.Nope }}{{ .Chart.Annotations.x }}",
        "c 1.2.3 ",
    );
    check("", "", "{{ .Capabilities.KubeVersion }} {{ .Capabilities.KubeVersion.Minor }}", "v1.36.0 36");
    check(
        "",
        "",
        r#"{{ .Capabilities.APIVersions.Has "apps/v1" }} {{ .Capabilities.APIVersions.Has "nope/v1" }}"#,
        "true false",
    );
    check("", "", "{{ .Template.Name }} {{ .Template.BasePath }}", "c/templates/t.yaml c/templates");
    check("a: {b: 5}", "", r#"{{ (.Values.Table "a").b }} {{ .Values.PathValue "a.b" }}"#, "5 5");
    check(
        "num: 1000000",
        "",
        "{{ .Values.num }} {{ .Values.num | int }} {{ toYaml .Values }}",
        "1e+06 1000000 num: 1000000",
    );
    check_error("", "{{ .Values.Table }}", "wrong number of args for Table: want 1 got 0");
}

#[test]
fn files_of_the_chart() {
    check("", "", r#"{{ .Files.Get "cfg/b.txt" }}{{ .Files.Get "missing" }}"#, "x");
    check(
        "",
        "",
        r#"{{ range $path, $_ := .Files.Glob "cfg/*.txt" }}{{ $path }} {{ end }}"#,
        "cfg/a.txt cfg/b.txt ",
    );
    check(
        "",
        "",
        r#"{{ range $path, $_ := .Files.Glob "cfg/**.txt" }}{{ $path }} {{ end }}"#,
        "cfg/a.txt cfg/b.txt cfg/deep/c.txt ",
    );
    check("", "", r#"{{ (.Files.Glob "cfg/*").AsConfig }}"#, "a.txt: |\n  one\n  two\nb.txt: x");
    check("", "", r#"{{ (.Files.Glob "cfg/b*").AsSecrets }}"#, "b.txt: eA==");
    check("", "", r#"{{ .Files.Lines "cfg/a.txt" | toJson }}"#, r#"["one","two"]"#);
}

#[test]
fn templates_run_deepest_first_and_in_reverse_order() {
    let files = [
        ("templates/_a.tpl", r#"{{ define "n" }}first{{ end }}"#),
        ("templates/_b.tpl", r#"{{ define "n" }}second{{ end }}"#),
        ("templates/a.yaml", r#"{{ include "n" . }}{{ .Values.set }}"#),
        ("templates/z.yaml", r#"{{ $_ := set .Values "set" "!" }}"#),
        ("templates/NOTES.txt", "hello"),
    ];
    let rendered = render(&files, "").unwrap();
    assert_eq!(rendered["c/templates/a.yaml"], "first!");
    assert!(!rendered.contains_key("c/templates/_a.tpl"));
    assert_eq!(rendered["c/templates/NOTES.txt"], "hello");
}

const SUBCHART: &str = "apiVersion: v2\nname: sub\nversion: 0.1.0\n";

#[test]
fn subcharts_get_values_and_globals() {
    let files = [
        ("values.yaml", "sub: {x: 1}\nglobal: {a: 1}\n"),
        ("charts/sub/Chart.yaml", SUBCHART),
        ("charts/sub/values.yaml", "x: 2\nz: 2\nglobal: {a: 2, b: 2}\n"),
        ("charts/sub/templates/t.yaml", "{{ .Values | toJson }}{{ .Chart.IsRoot }}"),
        ("templates/t.yaml", "{{ .Subcharts.sub.Chart.Name }}{{ .Chart.IsRoot }}"),
    ];
    let rendered = render(&files, "").unwrap();
    assert_eq!(rendered["c/charts/sub/templates/t.yaml"], r#"{"global":{"a":1,"b":2},"x":1,"z":2}false"#);
    assert_eq!(rendered["c/templates/t.yaml"], "subtrue");
    assert!(render(&files, "sub: text").unwrap_err().starts_with("type mismatch on sub: "));
}

#[test]
fn dependencies_are_switched_renamed_and_imported() {
    let chart = |entry: &str| {
        format!(
            "apiVersion: v2\nname: c\nversion: 1.0.0\ndependencies:\n- name: sub\n  version: \">=0\"\n{entry}"
        )
    };
    let render = |entry: &str, given: &str| {
        let chart = chart(entry);
        let files = [
            ("Chart.yaml", chart.as_str()),
            ("charts/sub/Chart.yaml", SUBCHART),
            ("charts/sub/values.yaml", "exports: {data: {p: 1, q: 1}}\n"),
            ("charts/sub/templates/t.yaml", "{{ .Chart.Name }}"),
            ("values.yaml", "p: 2\n"),
            ("templates/t.yaml", "{{ .Values.p }}{{ .Values.q }}"),
        ];
        render(&files, given)
    };
    assert!(render("", "").unwrap().contains_key("c/charts/sub/templates/t.yaml"));
    let off = render(
        "  condition: sub.enabled,global.enabled\n",
        "{sub: {enabled: false}, global: {enabled: true}}",
    )
    .unwrap();
    assert!(!off.contains_key("c/charts/sub/templates/t.yaml"));
    let tagged = render("  tags: [t]\n", "tags: {t: false}").unwrap();
    assert!(!tagged.contains_key("c/charts/sub/templates/t.yaml"));
    let both = render("  tags: [t]\n  condition: sub.enabled\n", "{tags: {t: false}, sub: {enabled: true}}")
        .unwrap();
    assert!(both.contains_key("c/charts/sub/templates/t.yaml"));
    let renamed = render("  alias: other\n", "").unwrap();
    assert_eq!(renamed["c/charts/other/templates/t.yaml"], "other");
    let imported = render("  import-values: [data]\n", "").unwrap();
    assert_eq!(imported["c/templates/t.yaml"], "21");
}

#[test]
fn library_charts_render_nothing() {
    let files = [
        ("charts/lib/Chart.yaml", "apiVersion: v2\nname: lib\nversion: 0.1.0\ntype: library\n"),
        ("charts/lib/templates/_x.tpl", r#"{{ define "lib.x" }}from lib{{ end }}"#),
        ("charts/lib/templates/cm.yaml", "never"),
        ("templates/t.yaml", r#"{{ include "lib.x" . }}"#),
    ];
    let rendered = render(&files, "").unwrap();
    assert_eq!(rendered.len(), 1);
    assert_eq!(rendered["c/templates/t.yaml"], "from lib");
}

#[test]
fn errors_read_as_those_of_helm() {
    check_error(
        "",
        r#"{{ required "need x" .Values.x }}"#,
        "execution error at (c/templates/t.yaml:1:3): need x",
    );
    check_error("", "{{ if true }}", "parse error at (c/templates/t.yaml:1): unexpected EOF");
    check_error(
        "",
        "{{ .Values.a.b }}",
        "c/templates/t.yaml:1:10\n  executing \"c/templates/t.yaml\" at <.Values.a.b>:\n    nil pointer evaluating interface {}.b",
    );
    check_error("", r#"{{ index .Values "a" "b" }}"#, "error calling index: index of nil pointer");
    let incompatible = [("Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\nkubeVersion: \">=2\"\n")];
    assert_eq!(
        render(&incompatible, "").unwrap_err(),
        "chart requires kubeVersion: >=2 which is incompatible with Kubernetes v1.36.0"
    );
    assert_eq!(
        render(&[("Chart.yaml", "apiVersion: v2\nversion: 1.0.0\n")], "").unwrap_err(),
        "validation: chart.metadata.name is required"
    );
    let schema = r#"{"properties": {"num": {"type": "integer"}}}"#;
    let error = render(&[("values.schema.json", schema)], "num: \"3\"").unwrap_err();
    assert!(error.contains("c:\n- at '/num': got string, want integer"), "{error}");
}

#[test]
fn a_release_is_manifests_hooks_and_notes() {
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.2.3\n"),
        ("templates/NOTES.txt", "Hello {{ .Release.Name }}"),
        (
            "templates/a.yaml",
            "kind: Deployment\nmetadata:\n  name: d\n---\nkind: ConfigMap\nmetadata:\n  name: m\n",
        ),
        (
            "templates/h.yaml",
            "kind: Job\nmetadata:\n  name: j\n  annotations:\n    helm.sh/hook: pre-install\n    helm.sh/hook-delete-policy: hook-succeeded\n",
        ),
    ];
    let tree: MemoryTree =
        files.iter().map(|(path, text)| (*path, bytes::Bytes::from((*text).to_owned()))).collect();
    let chart = Chart::from_tree(&tree, "").unwrap();
    let release =
        ReleaseInfo { name: "rel".to_owned(), namespace: "ns".to_owned(), revision: 1, is_upgrade: false };
    let input = RenderInput {
        release: &release,
        capabilities: &Capabilities::default(),
        host: Box::new(FixedHost::default()),
        limits: Limits::default(),
    };
    let content =
        weir_helm::content::make(chart, &values::Table::new(), input, &ContentOptions::default()).unwrap();
    assert_eq!(content.notes, "Hello rel");
    assert_eq!(
        content.manifest,
        "---\n# Source: c/templates/a.yaml\nkind: ConfigMap\nmetadata:\n  name: m\n\n---\n# Source: c/templates/a.yaml\nkind: Deployment\nmetadata:\n  name: d\n"
    );
    assert_eq!(content.sorted.hooks.len(), 1);
    assert_eq!(content.sorted.hooks[0].delete_policies, ["hook-succeeded"]);
}
