//! What charts are told about the cluster and the engine.

use std::any::Any;

use weir_gotemplate::{Element, Fault, Kind, List, Method, NamedType, Object, Param, Value};

/// A version of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeVersion {
    /// As the server gives it, such as `v1.33.4-gke.100`.
    pub version: String,
    /// The version that constraints are checked against, such as `v1.33.4`.
    pub normalized: String,
    /// `1`
    pub major: String,
    /// `33`, on some platforms `33+`.
    pub minor: String,
}

/// A text that is no version of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("could not parse \"{0}\" as version")]
pub struct KubeVersionError(pub String);

impl KubeVersion {
    /// Reads a version such as `v1.33.4-gke.100`, `1.33`.
    pub fn parse(text: &str) -> Result<Self, KubeVersionError> {
        let bad = || KubeVersionError(text.to_owned());
        let digits = text.strip_prefix('v').unwrap_or(text);
        let end = digits.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(digits.len());
        let numbers = digits[..end].trim_end_matches('.');
        let parts: Vec<&str> = numbers.split('.').collect();
        if parts.len() < 2 {
            return Err(bad());
        }
        let parsed: Vec<u64> =
            parts.iter().map(|part| part.parse().map_err(|_| bad())).collect::<Result<_, _>>()?;
        let mut normalized: Vec<String> = parsed.iter().map(u64::to_string).collect();
        while normalized.len() < 3 {
            normalized.push("0".to_owned());
        }
        Ok(Self {
            version: if text.starts_with('v') { text.to_owned() } else { format!("v{text}") },
            normalized: format!("v{}", normalized.join(".")),
            major: parsed[0].to_string(),
            minor: parsed[1].to_string(),
        })
    }
}

/// `.Capabilities`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// The version of the cluster.
    pub kube_version: KubeVersion,
    /// `group/version` and `group/version/Kind` of all the cluster serves.
    pub api_versions: Vec<String>,
    /// What `.Capabilities.HelmVersion.Version` shows.
    pub helm_version: String,
}

/// The versions the engine assumes where no cluster is asked.
const KNOWN_API_VERSIONS: &[&str] = &[
    "v1",
    "admissionregistration.k8s.io/v1",
    "admissionregistration.k8s.io/v1alpha1",
    "admissionregistration.k8s.io/v1beta1",
    "internal.apiserver.k8s.io/v1alpha1",
    "apps/v1",
    "apps/v1beta1",
    "apps/v1beta2",
    "authentication.k8s.io/v1",
    "authentication.k8s.io/v1alpha1",
    "authentication.k8s.io/v1beta1",
    "authorization.k8s.io/v1",
    "authorization.k8s.io/v1beta1",
    "autoscaling/v1",
    "autoscaling/v2",
    "autoscaling/v2beta1",
    "autoscaling/v2beta2",
    "batch/v1",
    "batch/v1beta1",
    "certificates.k8s.io/v1",
    "certificates.k8s.io/v1alpha1",
    "certificates.k8s.io/v1beta1",
    "coordination.k8s.io/v1",
    "coordination.k8s.io/v1alpha2",
    "coordination.k8s.io/v1beta1",
    "discovery.k8s.io/v1",
    "discovery.k8s.io/v1beta1",
    "events.k8s.io/v1",
    "events.k8s.io/v1beta1",
    "extensions/v1beta1",
    "flowcontrol.apiserver.k8s.io/v1",
    "flowcontrol.apiserver.k8s.io/v1beta1",
    "flowcontrol.apiserver.k8s.io/v1beta2",
    "flowcontrol.apiserver.k8s.io/v1beta3",
    "networking.k8s.io/v1",
    "networking.k8s.io/v1beta1",
    "node.k8s.io/v1",
    "node.k8s.io/v1alpha1",
    "node.k8s.io/v1beta1",
    "policy/v1",
    "policy/v1beta1",
    "rbac.authorization.k8s.io/v1",
    "rbac.authorization.k8s.io/v1alpha1",
    "rbac.authorization.k8s.io/v1beta1",
    "resource.k8s.io/v1",
    "resource.k8s.io/v1alpha3",
    "resource.k8s.io/v1beta1",
    "resource.k8s.io/v1beta2",
    "scheduling.k8s.io/v1",
    "scheduling.k8s.io/v1alpha1",
    "scheduling.k8s.io/v1beta1",
    "storage.k8s.io/v1",
    "storage.k8s.io/v1alpha1",
    "storage.k8s.io/v1beta1",
    "storagemigration.k8s.io/v1alpha1",
    "apiextensions.k8s.io/v1",
    "apiextensions.k8s.io/v1beta1",
];

impl Default for Capabilities {
    /// What Helm assumes without a cluster.
    fn default() -> Self {
        Self {
            kube_version: KubeVersion {
                version: "v1.36.0".to_owned(),
                normalized: "v1.36.0".to_owned(),
                major: "1".to_owned(),
                minor: "36".to_owned(),
            },
            api_versions: KNOWN_API_VERSIONS.iter().map(|version| (*version).to_owned()).collect(),
            helm_version: "v4.2".to_owned(),
        }
    }
}

static VERSION_SET: NamedType = NamedType {
    name: "common.VersionSet",
    methods: &[Method {
        name: "Has",
        params: &[Param::String],
        run: |set, arguments| {
            let (Value::List(list), Some(Value::String(wanted))) = (set, arguments.first()) else {
                return Ok(Value::Bool(false));
            };
            let found = |item: &Value| matches!(item, Value::String(text) if text == wanted);
            Ok(Value::Bool(list.items().iter().any(found)))
        },
    }],
};

impl Capabilities {
    /// The value templates see.
    pub(crate) fn to_value(&self) -> Value {
        let versions = List::typed(
            self.api_versions.iter().map(|version| Value::from(version.as_str())).collect(),
            Element::String,
        );
        Value::object(CapabilitiesObject {
            kube: self.kube_version.clone(),
            versions: Value::List(versions.named(&VERSION_SET)),
            helm: self.helm_version.clone(),
        })
    }
}

struct CapabilitiesObject {
    kube: KubeVersion,
    versions: Value,
    helm: String,
}

impl Object for CapabilitiesObject {
    fn type_name(&self) -> &'static str {
        "*common.Capabilities"
    }

    fn kind(&self) -> Kind {
        Kind::Ptr
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("KubeVersion", Value::object(KubeObject(self.kube.clone()))),
            ("APIVersions", self.versions.clone()),
            ("HelmVersion", Value::object(HelmObject(self.helm.clone()))),
        ]
    }

    fn equal(&self, other: &dyn Object) -> bool {
        std::ptr::addr_eq(self.as_any(), other.as_any())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct KubeObject(KubeVersion);

fn kube(value: &Value) -> Option<&KubeVersion> {
    match value {
        Value::Object(object) => object.as_any().downcast_ref::<KubeObject>().map(|kube| &kube.0),
        _ => None,
    }
}

fn text(value: Option<&String>) -> Result<Value, Fault> {
    Ok(Value::from(value.map_or("", String::as_str)))
}

static KUBE_METHODS: &[Method] = &[
    Method { name: "String", params: &[], run: |value, _| text(kube(value).map(|kube| &kube.normalized)) },
    Method { name: "GitVersion", params: &[], run: |value, _| text(kube(value).map(|kube| &kube.version)) },
];

impl Object for KubeObject {
    fn type_name(&self) -> &'static str {
        "common.KubeVersion"
    }

    fn field(&self, name: &str) -> Option<Value> {
        let text = match name {
            "Version" => &self.0.version,
            "Major" => &self.0.major,
            "Minor" => &self.0.minor,
            _ => return None,
        };
        Some(Value::from(text.as_str()))
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("Version", Value::from(self.0.version.as_str())),
            ("normalizedVersion", Value::from(self.0.normalized.as_str())),
            ("Major", Value::from(self.0.major.as_str())),
            ("Minor", Value::from(self.0.minor.as_str())),
        ]
    }

    fn methods(&self) -> &'static [Method] {
        KUBE_METHODS
    }

    fn action_text(&self) -> Option<String> {
        Some(self.0.normalized.clone())
    }

    fn json(&self) -> Result<Value, String> {
        Ok(Value::map(self.fields().into_iter().filter(|(name, _)| *name != "normalizedVersion")))
    }

    fn equal(&self, other: &dyn Object) -> bool {
        other.as_any().downcast_ref::<Self>().is_some_and(|other| self.0 == other.0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct HelmObject(String);

impl Object for HelmObject {
    fn type_name(&self) -> &'static str {
        "version.BuildInfo"
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("Version", Value::from(self.0.as_str())),
            ("GitCommit", Value::from("")),
            ("GitTreeState", Value::from("")),
            ("GoVersion", Value::from("go1.26")),
            ("KubeClientVersion", Value::from("v1.36")),
        ]
    }

    fn equal(&self, other: &dyn Object) -> bool {
        other.as_any().downcast_ref::<Self>().is_some_and(|other| self.0 == other.0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kube_versions() {
        let version = KubeVersion::parse("v1.33.4-gke.100").unwrap();
        assert_eq!((version.version.as_str(), version.normalized.as_str()), ("v1.33.4-gke.100", "v1.33.4"));
        let version = KubeVersion::parse("1.29").unwrap();
        assert_eq!((version.version.as_str(), version.normalized.as_str()), ("v1.29", "v1.29.0"));
        assert!(KubeVersion::parse("latest").is_err());
    }
}
