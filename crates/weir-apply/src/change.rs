//! What was done to each object, and how it is told.

use std::fmt;

use crate::object::ObjectRef;

/// What happened to one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// It did not exist and does now.
    Created,
    /// It differed and was changed.
    Configured,
    /// It was as desired; nothing was written.
    Unchanged,
    /// It was removed, or was already gone.
    Deleted,
    /// It was left alone on request.
    Skipped,
    /// The outcome is not known because a request failed.
    Unknown,
}

impl Action {
    /// The word used in logs, events and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
            Self::Deleted => "deleted",
            Self::Skipped => "skipped",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// One object and what happened to it; displays as `Kind/namespace/name action`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The object, with the namespace and version the API server uses.
    pub object: ObjectRef,
    /// What happened.
    pub action: Action,
}

impl fmt::Display for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.object, self.action)
    }
}

/// What happened to a set of objects, in the order in which it happened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangeSet {
    /// The entries, in order.
    pub entries: Vec<Entry>,
}

impl ChangeSet {
    /// Adds an entry.
    pub fn push(&mut self, object: ObjectRef, action: Action) {
        self.entries.push(Entry { object, action });
    }

    /// Whether something was created or configured.
    pub fn has_changes(&self) -> bool {
        self.changed().next().is_some()
    }

    /// The entries that were created or configured.
    pub fn changed(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| matches!(entry.action, Action::Created | Action::Configured))
    }

    /// One line for every created or configured object; empty when there is none.
    pub fn changed_lines(&self) -> String {
        lines(self.changed())
    }

    /// One line for every entry.
    pub fn all_lines(&self) -> String {
        lines(self.entries.iter())
    }

    /// One line for every action with all its objects, in the order in which actions first occur.
    pub fn grouped_lines(&self) -> String {
        let mut groups: Vec<(Action, Vec<String>)> = Vec::new();
        for entry in &self.entries {
            let subject = entry.object.to_string();
            match groups.iter_mut().find(|(action, _)| *action == entry.action) {
                Some((_, subjects)) => subjects.push(subject),
                None => groups.push((entry.action, vec![subject])),
            }
        }
        let lines = groups.iter().map(|(action, subjects)| format!("{action}: [{}]", subjects.join(", ")));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// What happened to `object`, whatever version the entry names.
    pub fn action(&self, object: &ObjectRef) -> Option<Action> {
        self.entries
            .iter()
            .find(|entry| entry.object.identity() == object.identity())
            .map(|entry| entry.action)
    }
}

fn lines<'a>(entries: impl Iterator<Item = &'a Entry>) -> String {
    let mut text = String::new();
    for entry in entries {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&entry.to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_list_only_what_changed() {
        let object = |kind: &str, namespace: &str, name: &str| ObjectRef {
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
            ..ObjectRef::default()
        };
        let mut changes = ChangeSet::default();
        assert!(!changes.has_changes());
        changes.push(object("Namespace", "", "prod"), Action::Created);
        changes.push(object("ConfigMap", "prod", "a"), Action::Unchanged);
        changes.push(object("Service", "prod", "web"), Action::Configured);
        assert_eq!(changes.changed_lines(), "Namespace/prod created\nService/prod/web configured");
        assert_eq!(
            changes.all_lines(),
            "Namespace/prod created\nConfigMap/prod/a unchanged\nService/prod/web configured"
        );
        changes.push(object("Service", "prod", "api"), Action::Configured);
        assert_eq!(
            changes.grouped_lines(),
            "created: [Namespace/prod]\nunchanged: [ConfigMap/prod/a]\nconfigured: [Service/prod/web, Service/prod/api]"
        );
        assert_eq!(changes.action(&object("ConfigMap", "prod", "a")), Some(Action::Unchanged));
    }
}
