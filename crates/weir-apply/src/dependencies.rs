//! Dependencies between objects of the controllers that an annotation names, whatever their kinds.

use serde_json::Value;

use crate::cluster::Cluster;
use crate::object::ObjectRef;

/// The annotation that names dependencies of any kind, as `Kind/[namespace/]name`, with commas between them. Flux
/// ignores it.
pub const DEPENDS_ON: &str = "weir.dev/depends-on";

/// The kinds that may be named, with their groups and versions.
const KINDS: [(&str, &str, &str); 2] =
    [("Kustomization", "kustomize.toolkit.fluxcd.io", "v1"), ("HelmRelease", "helm.toolkit.fluxcd.io", "v2")];

/// What the text of the annotation names, in its order; `namespace` is that of the object that has it.
///
/// # Errors
/// The first entry that is none.
pub fn parse(text: &str, namespace: &str) -> Result<Vec<ObjectRef>, String> {
    text.split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
        .map(|entry| named(entry, namespace))
        .collect()
}

fn named(entry: &str, own: &str) -> Result<ObjectRef, String> {
    let parts: Vec<&str> = entry.split('/').collect();
    let (kind, namespace, name) = match parts[..] {
        [kind, name] => (kind, own, name),
        [kind, namespace, name] => (kind, namespace, name),
        _ => ("", "", ""),
    };
    let known = KINDS.iter().find(|(known, ..)| *known == kind);
    match known {
        Some((kind, group, version)) if !name.is_empty() && !namespace.is_empty() => Ok(ObjectRef {
            group: (*group).to_owned(),
            version: (*version).to_owned(),
            kind: (*kind).to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }),
        _ => Err(format!(
            "annotation {DEPENDS_ON}: '{entry}' is not 'Kustomization/[namespace/]name' or 'HelmRelease/[namespace/]name'"
        )),
    }
}

/// Checks that everything the annotation names has been observed and is ready; read from the API server.
///
/// # Errors
/// The first that is not, in words for the condition of the object that waits.
pub async fn check(local: &dyn Cluster, text: &str, namespace: &str) -> Result<(), String> {
    for reference in parse(text, namespace)? {
        let full_name = format!("{}/{}/{}", reference.kind, reference.namespace, reference.name);
        let found = match local.get(&reference).await {
            Ok(Some(found)) => found,
            Ok(None) => {
                let plural = format!("{}s", reference.kind.to_lowercase());
                return Err(format!(
                    "unable to get '{full_name}' dependency: {plural}.{} \"{}\" not found",
                    reference.group, reference.name
                ));
            }
            Err(error) => return Err(format!("unable to get '{full_name}' dependency: {error}")),
        };
        if !is_ready(&found) {
            return Err(format!("dependency '{full_name}' is not ready"));
        }
    }
    Ok(())
}

/// Whether the last change of an object has been observed, and it is ready.
fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
        && ready.any(|condition| condition["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_name_a_kind_and_an_object() {
        #[track_caller]
        fn check(text: &str, expected: &str) {
            let got = match parse(text, "own") {
                Ok(found) => found
                    .iter()
                    .map(|found| format!("{}:{}/{}", found.kind, found.namespace, found.name))
                    .collect::<Vec<_>>()
                    .join(" "),
                Err(error) => error.split(": ").nth(1).unwrap_or_default().to_owned(),
            };
            assert_eq!(got, expected);
        }
        check("", "");
        check("Kustomization/a", "Kustomization:own/a");
        check("Kustomization/a, HelmRelease/b/c,", "Kustomization:own/a HelmRelease:b/c");
        let wrong = "is not 'Kustomization/[namespace/]name' or 'HelmRelease/[namespace/]name'";
        check("Deployment/web", &format!("'Deployment/web' {wrong}"));
        check("a", &format!("'a' {wrong}"));
        check("HelmRelease//x", &format!("'HelmRelease//x' {wrong}"));
        check("HelmRelease/x/", &format!("'HelmRelease/x/' {wrong}"));
    }
}
