//! Text archives: many small files in one, each behind a `-- path --` line.

use std::path::Path;

use anyhow::Context as _;

/// The files of an archive in their order; text before the first is a comment.
pub(crate) fn parse(text: &str) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = Vec::new();
    for line in text.split_inclusive('\n') {
        let name =
            line.trim_end_matches(['\n', '\r']).strip_prefix("-- ").and_then(|rest| rest.strip_suffix(" --"));
        match (name, files.last_mut()) {
            (Some(name), _) => files.push((name.to_owned(), String::new())),
            (None, Some((_, content))) => content.push_str(line),
            (None, None) => {}
        }
    }
    files
}

/// Writes files below a directory.
pub(crate) fn unpack(files: &[(String, String)], directory: &Path) -> anyhow::Result<()> {
    for (name, content) in files {
        let path = directory.join(name);
        let parent = path.parent().context("a file has a directory")?;
        std::fs::create_dir_all(parent)?;
        std::fs::write(&path, content).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
