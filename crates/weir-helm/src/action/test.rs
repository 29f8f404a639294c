//! Runs the test hooks of a release.

use super::{ActionError, Context, hooks};
use crate::manifest::HookEvent;
use crate::release::Record;

/// Which tests run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TestFilter {
    /// Only hooks of these names, if there are any.
    pub include: Vec<String>,
    /// Not the hooks of these names.
    pub exclude: Vec<String>,
}

impl TestFilter {
    /// Whether a hook of that name runs.
    pub fn selects(&self, name: &str) -> bool {
        !self.exclude.iter().any(|excluded| excluded == name)
            && (self.include.is_empty() || self.include.iter().any(|included| included == name))
    }
}

/// Runs the tests of the last revision; the outcome is on record either way.
///
/// # Errors
/// The first test that fails.
pub async fn test(context: &Context<'_>, filter: &TestFilter) -> Result<Record, ActionError> {
    let name = context.storage.release().to_owned();
    let mut record = context.storage.last().await?.ok_or(ActionError::NotFound(name))?;
    let (run, skipped): (Vec<_>, Vec<_>) =
        std::mem::take(&mut record.hooks).into_iter().partition(|hook| filter.selects(&hook.name));
    record.hooks = run;
    let result = Box::pin(hooks::run(context, &mut record, HookEvent::Test, true, "")).await;
    let run = std::mem::replace(&mut record.hooks, skipped);
    record.hooks.extend(run);
    context.storage.update(&record).await?;
    result.map(|()| record)
}
