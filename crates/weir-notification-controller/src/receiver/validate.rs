//! What a spec must be that takes requests. The API server checks most of it; one that does not must not open a door.

use std::collections::BTreeSet;

use weir_api::notification::{OidcProvider, ReceiverSpec, ReceiverType};

use crate::filters::{ClaimsRules, Filters, InvalidExpression};

/// A spec that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSpec {
    /// Fields that do not go together.
    #[error("{0}")]
    Rule(String),
    /// An expression that cannot be used.
    #[error("{0}")]
    Expression(String),
}

/// Checks a spec.
///
/// # Errors
/// The first thing that is wrong.
pub fn validate(spec: &ReceiverSpec) -> Result<(), InvalidSpec> {
    Filters::new(spec).map_err(|error| InvalidSpec::Expression(error.to_string()))?;
    let is_oidc = spec.type_ == ReceiverType::GenericOidc;
    let rule = match (is_oidc, spec.oidc_providers.is_empty(), spec.secret_ref.is_some()) {
        (true, true, _) => "generic-oidc receiver requires at least one oidcProvider",
        (false, false, _) => "oidcProviders can only be set when type is generic-oidc",
        (true, false, true) => "secretRef cannot be set when type is generic-oidc",
        (false, true, false) => "secretRef is required when type is not generic-oidc",
        (true, false, false) | (false, true, true) => "",
    };
    if !rule.is_empty() {
        return Err(InvalidSpec::Rule(rule.to_owned()));
    }
    let mut seen = BTreeSet::new();
    for (index, provider) in spec.oidc_providers.iter().enumerate() {
        check_provider(index, provider).map_err(InvalidSpec::Rule)?;
        if !seen.insert(&provider.issuer_url) {
            let message = format!("oidcProviders[{index}]: duplicate issuerURL {:?}", provider.issuer_url);
            return Err(InvalidSpec::Rule(message));
        }
    }
    for (index, provider) in spec.oidc_providers.iter().enumerate() {
        let invalid = |error: InvalidExpression| {
            let message = format!("oidcProviders[{index}] (issuerURL={:?}): {error}", provider.issuer_url);
            InvalidSpec::Expression(message)
        };
        ClaimsRules::new(provider).map_err(invalid)?;
    }
    Ok(())
}

fn check_provider(index: usize, provider: &OidcProvider) -> Result<(), String> {
    let url = &provider.issuer_url;
    if url.is_empty() {
        return Err(format!("oidcProviders[{index}]: issuerURL is required"));
    }
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(format!("oidcProviders[{index}]: issuerURL {url:?} must start with http:// or https://"));
    }
    let here = format!("oidcProviders[{index}] (issuerURL={url:?})");
    if provider.validations.is_empty() {
        return Err(format!(
            "{here}: at least one validation is required; without one, anybody who gets a token of this issuer can trigger the Receiver"
        ));
    }
    for (index, variable) in provider.variables.iter().enumerate() {
        if variable.name.is_empty() {
            return Err(format!("{here}: variables[{index}]: name is required"));
        }
        if variable.expression.is_empty() {
            return Err(format!(
                "{here}: variables[{index}] (name={:?}): expression is required",
                variable.name
            ));
        }
    }
    for (index, validation) in provider.validations.iter().enumerate() {
        if validation.expression.is_empty() {
            return Err(format!("{here}: validations[{index}]: expression is required"));
        }
        if validation.message.is_empty() {
            return Err(format!("{here}: validations[{index}]: message is required"));
        }
    }
    Ok(())
}
