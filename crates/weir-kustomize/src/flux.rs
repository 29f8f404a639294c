//! What Flux does around a build: the kustomization it writes before, and the variables it substitutes after.

mod envsubst;
mod generation;

use std::collections::BTreeMap;

use serde_json::Value;
use weir_manifest::{ReadOptions, read_first_document, to_yaml};

use crate::error::{Context as _, Error};

pub use envsubst::substitute_text;
pub use generation::{Generated, Generation, ImageOverride, PatchOverride, generate};

/// The label or annotation with which an object opts out of substitution.
const OPT_OUT_KEY: &str = "kustomize.toolkit.fluxcd.io/substitute";

/// Variables by name, without line breaks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// No variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a variable; line breaks are removed from its value, as Flux does.
    pub fn set(&mut self, name: impl Into<String>, value: &str) {
        self.0.insert(name.into(), value.replace('\n', ""));
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn check_names(&self) -> Result<(), Error> {
        match self.0.keys().find(|name| !is_valid_name(name)) {
            Some(name) => Err(Error::message(format!(
                "'{name}' var name is invalid, must match '^[_[:alpha:]][_[:alpha:][:digit:]]*$'"
            ))),
            None => Ok(()),
        }
    }
}

impl<N: Into<String>, V: AsRef<str>> FromIterator<(N, V)> for Variables {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut variables = Self::new();
        for (name, value) in pairs {
            variables.set(name, value.as_ref());
        }
        variables
    }
}

fn is_valid_name(name: &str) -> bool {
    name.starts_with(|first: char| first == '_' || first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

/// How variables are substituted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Substitution {
    /// A variable without value and without default is an error.
    pub strict: bool,
    /// Substitute even when there are no variables, for the defaults in the expressions.
    pub always: bool,
}

/// Whether an object opts out of substitution by its label or annotation.
pub fn opts_out(object: &Value) -> bool {
    ["labels", "annotations"].iter().any(|field| {
        object
            .get("metadata")
            .and_then(|metadata| metadata.get(field))
            .and_then(|map| map.get(OPT_OUT_KEY))
            .and_then(Value::as_str)
            == Some("disabled")
    })
}

/// Replaces `${NAME}` expressions in the YAML text of an object and reads the result.
///
/// `None` means the object stays as it is: it opts out, or there is nothing to substitute with. Values that
/// land unquoted are read as YAML 1.1, so `${PORT}` can become a number and `${FLAG}` a boolean.
///
/// # Errors
/// Invalid variable names, malformed expressions, unset variables in strict mode, and text that is no YAML
/// afterwards; all start with `envsubst error: `.
pub fn substitute(
    object: &Value,
    variables: &Variables,
    substitution: Substitution,
) -> Result<Option<Value>, Error> {
    if opts_out(object) || (variables.is_empty() && !substitution.always) {
        return Ok(None);
    }
    let replace = || -> Result<Value, Error> {
        variables.check_names()?;
        let lookup = |name: &str| variables.get(name).map(str::to_owned);
        let text = substitute_text(&to_yaml(object), &lookup, substitution.strict)
            .context(|| "variable substitution failed".to_owned())?;
        read_first_document(text.as_bytes(), "", ReadOptions::default())
            .map_err(|error| Error::message(format!("YAMLToJSON: {}", error.reference_text())))
    };
    let value = replace().context(|| "envsubst error".to_owned())?;
    if !value.is_object() {
        return Err(Error::message("UnmarshalJSON: the object is no map after substitution"));
    }
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(object: &Value, pairs: &[(&str, &str)], strict: bool) -> Result<Option<Value>, String> {
        let variables = pairs.iter().copied().collect();
        substitute(object, &variables, Substitution { strict, always: false })
            .map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_typed_by_where_they_land() {
        let object = json!({"a": "${PORT}", "b": "x${PORT}", "c": "${Q}"});
        assert_eq!(
            run(&object, &[("PORT", "80"), ("Q", "\"1\"")], false).unwrap().unwrap(),
            json!({"a": 80, "b": "x80", "c": "1"})
        );
        assert_eq!(run(&json!({"a": "${F}"}), &[("F", "yes")], false).unwrap().unwrap(), json!({"a": true}));
    }

    #[test]
    fn objects_opt_out_and_line_breaks_go() {
        let object = json!({"metadata": {"annotations": {OPT_OUT_KEY: "disabled"}}, "a": "${A}"});
        assert_eq!(run(&object, &[("A", "x")], false).unwrap(), None);
        let object = json!({"metadata": {"labels": {OPT_OUT_KEY: "Disabled"}}, "a": "${A}"});
        assert_eq!(run(&object, &[("A", "x\ny\n")], false).unwrap().unwrap()["a"], "xy");
        assert_eq!(run(&json!({"a": "${A}"}), &[], false).unwrap(), None);
    }

    #[test]
    fn errors_keep_the_words_of_flux() {
        assert_eq!(
            run(&json!({"a": "b"}), &[("my-key", "x")], false).unwrap_err(),
            "envsubst error: 'my-key' var name is invalid, must match '^[_[:alpha:]][_[:alpha:][:digit:]]*$'"
        );
        assert_eq!(
            run(&json!({"a": "${B}"}), &[("A", "x")], true).unwrap_err(),
            "envsubst error: variable substitution failed: variable not set (strict mode): \"B\""
        );
        assert_eq!(
            run(&json!({"a": "${{ x }}"}), &[("A", "x")], false).unwrap_err(),
            "envsubst error: variable substitution failed: unable to parse variable name"
        );
    }
}
