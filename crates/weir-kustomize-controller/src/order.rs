//! Orders objects so that dependencies come before what depends on them.

use std::collections::HashSet;

use weir_runtime::ObjectKey;

/// Objects that wait for each other; displays as `a -> b -> a`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("circular dependency detected: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(" -> "))]
pub struct Cycle(pub Vec<ObjectKey>);

/// `objects` and everything they depend on, dependencies first.
///
/// # Errors
/// [`Cycle`] if objects wait for each other.
pub fn topological(
    objects: &[ObjectKey],
    dependencies: impl Fn(&ObjectKey) -> Vec<ObjectKey>,
) -> Result<Vec<ObjectKey>, Cycle> {
    enum Step {
        Enter(ObjectKey),
        Leave,
    }
    let mut sorted = Vec::new();
    let mut finished: HashSet<ObjectKey> = HashSet::new();
    let mut path: Vec<ObjectKey> = Vec::new();
    for object in objects {
        // An explicit stack: chains may be long.
        let mut steps = vec![Step::Enter(object.clone())];
        while let Some(step) = steps.pop() {
            match step {
                Step::Enter(key) => {
                    if finished.contains(&key) {
                        continue;
                    }
                    if let Some(start) = path.iter().position(|on_path| *on_path == key) {
                        let mut cycle = path[start..].to_vec();
                        cycle.push(key);
                        return Err(Cycle(cycle));
                    }
                    steps.push(Step::Leave);
                    steps.extend(dependencies(&key).into_iter().rev().map(Step::Enter));
                    path.push(key);
                }
                Step::Leave => {
                    if let Some(key) = path.pop() {
                        finished.insert(key.clone());
                        sorted.push(key);
                    }
                }
            }
        }
    }
    Ok(sorted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("n", name)
    }

    /// `a:b,c` means that a depends on b and c.
    #[track_caller]
    fn check(objects: &str, edges: &str, expected: &str) {
        let objects: Vec<ObjectKey> = objects.split_whitespace().map(key).collect();
        let dependencies = |of: &ObjectKey| {
            let line =
                edges.split_whitespace().find_map(|edge| edge.strip_prefix(&format!("{}:", of.name())));
            line.into_iter().flat_map(|line| line.split(',')).map(key).collect()
        };
        let got = match topological(&objects, dependencies) {
            Ok(sorted) => sorted.iter().map(|key| key.name().to_owned()).collect::<Vec<_>>().join(" "),
            Err(cycle) => cycle.to_string(),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn dependencies_come_first() {
        check("a b c", "", "a b c");
        check("a b c", "a:c b:a", "c a b");
        check("a", "a:x,y x:z", "z x y a");
        check("a b", "a:x b:x", "x a b");
        check("a a", "", "a");
    }

    #[test]
    fn cycles_are_named() {
        check("a", "a:b b:c c:b", "circular dependency detected: n/b -> n/c -> n/b");
        check("a", "a:a", "circular dependency detected: n/a -> n/a");
    }
}
