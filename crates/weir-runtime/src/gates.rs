//! Feature gates: named switches with a default per controller.

use std::collections::BTreeMap;

/// A mistake in `--feature-gates`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// The controller has no such gate.
    #[error("feature-gate '{0}' not supported")]
    Unknown(String),
    /// Not `Name=true` or `Name=false`.
    #[error("invalid feature-gate '{0}': want Name=true or Name=false")]
    Malformed(String),
}

/// The gates of a controller and whether each is on.
#[derive(Debug, Clone, Default)]
pub struct FeatureGates(BTreeMap<&'static str, bool>);

impl FeatureGates {
    /// The defaults, changed by the values of `--feature-gates` (`A=true,B=false`; later wins).
    ///
    /// # Errors
    /// [`GateError`] for a gate that does not exist or a value that is not a boolean.
    pub fn parse(defaults: &[(&'static str, bool)], flags: &[String]) -> Result<Self, GateError> {
        let mut gates = Self(defaults.iter().copied().collect());
        for entry in flags.iter().flat_map(|flag| flag.split(',')).map(str::trim) {
            if entry.is_empty() {
                continue;
            }
            let malformed = || GateError::Malformed(entry.to_owned());
            let (name, value) = entry.split_once('=').ok_or_else(malformed)?;
            let on = match value.trim() {
                "true" | "True" | "TRUE" | "t" | "T" | "1" => true,
                "false" | "False" | "FALSE" | "f" | "F" | "0" => false,
                _ => return Err(malformed()),
            };
            let name = name.trim();
            let (_, held) = gates
                .0
                .iter_mut()
                .find(|(known, _)| **known == name)
                .ok_or_else(|| GateError::Unknown(name.to_owned()))?;
            *held = on;
        }
        Ok(gates)
    }

    /// The defaults, with some set otherwise; for callers that have no flags.
    pub fn with(defaults: &[(&'static str, bool)], changed: &[(&'static str, bool)]) -> Self {
        Self(defaults.iter().chain(changed).copied().collect())
    }

    /// Whether the gate is on; a gate the controller does not have is off.
    pub fn enabled(&self, gate: &str) -> bool {
        self.0.get(gate).copied().unwrap_or(false)
    }

    /// All gates in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, bool)> + '_ {
        self.0.iter().map(|(name, on)| (*name, *on))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULTS: &[(&str, bool)] =
        &[("CacheSecretsAndConfigMaps", false), ("StrictPostBuildSubstitutions", true)];

    fn check(flags: &[&str]) -> Result<Vec<bool>, GateError> {
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Ok(FeatureGates::parse(DEFAULTS, &flags)?.iter().map(|(_, on)| on).collect())
    }

    #[test]
    fn later_values_win() {
        assert_eq!(check(&[]), Ok(vec![false, true]));
        assert_eq!(
            check(&["CacheSecretsAndConfigMaps=true,StrictPostBuildSubstitutions=false"]),
            Ok(vec![true, false])
        );
        assert_eq!(
            check(&["CacheSecretsAndConfigMaps=true", "CacheSecretsAndConfigMaps=false"]),
            Ok(vec![false, true])
        );
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(check(&["Nope=true"]).unwrap_err().to_string(), "feature-gate 'Nope' not supported");
        assert_eq!(
            check(&["CacheSecretsAndConfigMaps"]).unwrap_err().to_string(),
            "invalid feature-gate 'CacheSecretsAndConfigMaps': want Name=true or Name=false"
        );
    }
}
