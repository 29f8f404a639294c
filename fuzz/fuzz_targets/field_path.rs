//! Any text as field path of a replacement (source, target, and target with `create`), field specification and
//! JSON pointer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_base::tree::MemoryTree;
use weir_kustomize::{Options, build};

const RESOURCES: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}, annotations: {a.b/c: x}}
spec:
  replicas: 2
  template:
    spec:
      containers:
      - {name: main, image: "nginx:1", args: [a, b], env: [{name: A, value: "1"}]}
      - {name: side, image: redis}
      tolerations: []
      nothing: null
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {config.json: '{"a": {"b": [1, 2]}}', config.yaml: "a:\n  b: [x]\n"}
"#;

fuzz_target!(|input: (&str, &str)| {
    let [one, other] = [input.0, input.1].map(|path| serde_json::to_string(path).expect("text is JSON"));
    let run = |kustomization: String| {
        let tree: MemoryTree = [
            ("r.yaml", RESOURCES.to_owned()),
            ("kustomization.yaml", format!("resources: [r.yaml]\n{kustomization}")),
            (
                "config.yaml",
                format!("commonAnnotations: [{{path: {one}, create: true}}]\nimages: [{{path: {other}}}]\n"),
            ),
        ]
        .into_iter()
        .collect();
        if let Ok(output) = build(&tree, "", &Options::default()) {
            let _ = output.to_yaml();
        }
    };
    for create in [false, true] {
        run(format!(
            "replacements:\n- source: {{kind: Deployment, fieldPath: {one}}}\n  targets:\n  - select: {{name: .*}}\n    fieldPaths: [{other}]\n    options: {{create: {create}}}\n"
        ));
    }
    run("configurations: [config.yaml]\ncommonAnnotations: {x: y}\nimages: [{name: nginx, newTag: v2}]\n".to_owned());
    let operations = serde_json::json!([
        {"op": "add", "path": input.0, "value": 1},
        {"op": "copy", "from": input.0, "path": input.1},
        {"op": "remove", "path": input.1},
    ]);
    let patch = serde_json::to_string(&operations.to_string()).expect("text is JSON");
    run(format!("patches:\n- target: {{kind: Deployment}}\n  patch: {patch}\n"));
});
