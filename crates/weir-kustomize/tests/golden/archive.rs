//! Files of golden cases: text archives with many cases, each with many small files.
//!
//! A case starts with a line `=== name`; lines behind it up to the first file are comments and settings. A file
//! starts with a line `-- path --`. A line `-- path = fixture --` stands for a file of `fixtures.txtar`. The setting
//! `escaped: FILE...` names files with escapes for bytes: `\xNN`, and `\\` for a backslash.

/// One case.
pub struct Case<'a> {
    /// What it shows.
    pub name: &'a str,
    /// The text in front of the files.
    pub head: &'a str,
    /// The files with their header lines.
    pub files: Vec<File<'a>>,
}

/// One file of a case.
pub struct File<'a> {
    /// The header as written.
    pub header: &'a str,
    /// The path.
    pub path: &'a str,
    /// The fixture whose content it has.
    pub fixture: Option<&'a str>,
    /// The content.
    pub content: &'a str,
}

impl<'a> Case<'a> {
    /// The value of a setting line `key: value` in the head.
    pub fn setting(&self, key: &str) -> Option<&'a str> {
        self.head.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))
    }

    /// The input files with their content; unknown fixtures are empty.
    pub fn input(&self, fixtures: &[File<'_>]) -> Vec<(String, Vec<u8>)> {
        let escaped = self.setting("escaped").unwrap_or_default();
        self.files
            .iter()
            .filter(|file| !file.path.starts_with("want."))
            .map(|file| {
                let content = match file.fixture {
                    Some(name) => fixtures
                        .iter()
                        .find(|fixture| fixture.path == name)
                        .map_or("", |fixture| fixture.content),
                    None => file.content,
                };
                let is_escaped = escaped.split(' ').any(|path| path == file.path);
                (file.path.to_owned(), if is_escaped { unescape(content) } else { content.into() })
            })
            .collect()
    }
}

/// The bytes that `\xNN` and `\\` stand for; other backslashes are themselves.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(position) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..position]);
        rest = &rest[position + 1..];
        if let Some(hex) = rest.strip_prefix('x').and_then(|rest| rest.get(..2))
            && let Ok(byte) = u8::from_str_radix(hex, 16)
        {
            bytes.push(byte);
            rest = &rest[3..];
        } else {
            bytes.push(b'\\');
            rest = rest.strip_prefix('\\').unwrap_or(rest);
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

/// The cases of a text.
pub fn cases(text: &str) -> Vec<Case<'_>> {
    sections(text, |line| line.strip_prefix("=== "))
        .into_iter()
        .map(|(header, name, body)| {
            let files = files(body);
            let head_end = files.first().map_or(body.len(), |file| offset(body, file.header));
            let _ = header;
            Case { name, head: &body[..head_end], files }
        })
        .collect()
}

/// The files of a text.
pub fn files(text: &str) -> Vec<File<'_>> {
    sections(text, |line| line.strip_prefix("-- ")?.strip_suffix(" --"))
        .into_iter()
        .map(|(header, title, content)| {
            let (path, fixture) = match title.split_once(" = ") {
                Some((path, fixture)) => (path, Some(fixture)),
                None => (title, None),
            };
            File { header, path, fixture, content }
        })
        .collect()
}

/// Where a part of a text starts in it.
fn offset(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

/// The parts of a text that start with lines `title` recognises: the line, the title and what follows.
fn sections<'a>(
    text: &'a str,
    title: impl Fn(&'a str) -> Option<&'a str>,
) -> Vec<(&'a str, &'a str, &'a str)> {
    let mut starts = Vec::new();
    let mut position = 0;
    for line in text.split_inclusive('\n') {
        if let Some(found) = title(line.trim_end_matches('\n')) {
            starts.push((position, line, found));
        }
        position += line.len();
    }
    let ends = starts.iter().skip(1).map(|(start, ..)| *start).chain([text.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|((start, line, found), end)| (*line, *found, &text[start + line.len()..end]))
        .collect()
}
