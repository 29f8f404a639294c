//! How fast 10 MB of manifests are read and written. `hack/bench/yaml` runs this beside the Go libraries.
//!
//! `cargo bench -p weir-manifest -- [FILE]` writes the manifests to FILE if it does not exist, and measures.
#![expect(clippy::print_stdout, reason = "it is a command line tool")]

use std::time::{Duration, Instant};

use serde_json::{Value, json};

const SIZE_BYTES: usize = 10_000_000;

fn manifests() -> Vec<Value> {
    let mut size = 0;
    let mut objects = Vec::new();
    for number in 0.. {
        let object = match number % 4 {
            0 => deployment(number),
            1 => config_map(number),
            2 => service(number),
            _ => definition(number),
        };
        size += weir_manifest::to_yaml(&object).len() + 4;
        objects.push(object);
        if size > SIZE_BYTES {
            break;
        }
    }
    objects
}

fn deployment(number: usize) -> Value {
    let labels = json!({"app.kubernetes.io/name": format!("web-{number}"), "app.kubernetes.io/version": "1.25.3", "tier": "front"});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": format!("web-{number}"), "namespace": "apps", "labels": labels, "annotations": {"checksum/config": "3f5ac0b1", "enabled": "true"}},
        "spec": {
            "replicas": number % 7,
            "selector": {"matchLabels": labels},
            "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}, "type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{
                        "name": "web",
                        "image": "registry.example.com/team/web:v1.25.3",
                        "args": ["--port=8080", "--log-level", "info", "--config", "/etc/web/config.yaml"],
                        "env": (0..8).map(|at| json!({"name": format!("SETTING_{at}"), "value": format!("{}", at * 10)})).collect::<Value>(),
                        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
                        "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": 0.1, "memory": "64Mi"}},
                        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "initialDelaySeconds": 5},
                        "volumeMounts": [{"mountPath": "/etc/web", "name": "config", "readOnly": true}],
                    }],
                    "volumes": [{"name": "config", "configMap": {"name": format!("web-{number}")}}],
                },
            },
        },
    })
}

fn config_map(number: usize) -> Value {
    let script = "#!/bin/sh\nset -eu\nfor name in a b c; do\n  echo \"name: $name\"\ndone\n".repeat(4);
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": format!("web-{number}"), "namespace": "apps"},
        "data": {"run.sh": script, "level": "info", "debug": "false", "since": "2020-01-01", "limit": "1e3", "url": "https://example.com/?a=b#c"},
    })
}

fn service(number: usize) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": format!("web-{number}"), "namespace": "apps"},
        "spec": {"type": "ClusterIP", "selector": {"app.kubernetes.io/name": format!("web-{number}")}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]},
    })
}

fn definition(number: usize) -> Value {
    let description = "Long text that explains a field of a custom resource in a few sentences, as generated from \
                       comments in the source: what it is for, what its default is, and when it is left out.";
    let field = |name: String| {
        (
            name,
            json!({"description": description, "type": "string", "maxLength": 253, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}),
        )
    };
    let fields: serde_json::Map<String, Value> = (0..12).map(|at| field(format!("field{at}"))).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets{number}.example.com")},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}}}]},
    })
}

fn best(name: &str, mut work: impl FnMut()) {
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed());
    }
    println!("weir {name:<6} {:.3} s", best.as_secs_f64());
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let text = match &file {
        Some(file) if std::fs::exists(file)? => std::fs::read(file)?,
        _ => weir_manifest::to_yaml_stream(&manifests()).into_bytes(),
    };
    if let Some(file) = &file {
        std::fs::write(file, &text)?;
    }
    let objects = weir_manifest::read_documents(&text, "bench")?;
    println!("{} objects, {} bytes", objects.len(), text.len());
    best("read", || {
        std::hint::black_box(weir_manifest::read_documents(&text, "bench")).ok();
    });
    best("write", || {
        std::hint::black_box(weir_manifest::to_yaml_stream(&objects));
    });
    best("nodes", || {
        std::hint::black_box(weir_manifest::read_nodes(&text, "bench")).ok();
    });
    Ok(())
}
