//! What the environment of the process says about identities.

use std::collections::BTreeMap;

use crate::CloudError;

/// The largest token file.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Environment variables; those of the process, or given ones.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The variables of this process that name identities and services.
    pub fn of_process() -> Self {
        let wanted = |name: &str| {
            ["AWS_", "AZURE_", "GOOGLE_", "GCE_", "IDENTITY_", "STORAGE_EMULATOR_HOST"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        };
        Self(std::env::vars().filter(|(name, value)| wanted(name) && !value.is_empty()).collect())
    }

    /// Exactly these variables.
    pub fn of(variables: &[(&str, &str)]) -> Self {
        Self(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    /// The value of a variable that is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The content of the file a variable names, without surrounding white space.
    pub(crate) async fn file(&self, name: &str) -> Result<Option<String>, CloudError> {
        let Some(path) = self.get(name) else { return Ok(None) };
        let failed = |source| CloudError::File { path: path.to_owned(), source };
        let content = tokio::fs::read(path).await.map_err(failed)?;
        if content.len() > FILE_BYTES_MAX {
            return Err(failed(std::io::ErrorKind::FileTooLarge.into()));
        }
        Ok(Some(String::from_utf8_lossy(&content).trim().to_owned()))
    }
}
