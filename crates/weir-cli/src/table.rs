//! Tables as scripts expect them: padded columns, separated by tabs.

/// The text of a table; without headers if there are none.
///
/// Every cell is padded to the width of its column and followed by a tab; the header line has no tab at its end. Widths count
/// characters.
pub(crate) fn render(headers: &[&str], rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).chain([headers.len()]).max().unwrap_or_default();
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell));
            cells.chain(headers.get(column).map(|header| width(header))).max().unwrap_or_default()
        })
        .collect();
    let mut text = String::new();
    if !headers.is_empty() {
        let cells: Vec<String> =
            headers.iter().zip(&widths).map(|(header, width)| pad(&header.to_uppercase(), *width)).collect();
        text.push_str(&cells.join("\t"));
        text.push('\n');
    }
    for row in rows {
        for (cell, width) in row.iter().zip(&widths) {
            text.push_str(&pad(cell, *width));
            text.push('\t');
        }
        text.push('\n');
    }
    text
}

/// The width of the widest line.
fn width(cell: &str) -> usize {
    one_line(cell).chars().count()
}

fn pad(cell: &str, width: usize) -> String {
    let cell = one_line(cell);
    let missing = width.saturating_sub(cell.chars().count());
    format!("{cell}{}", " ".repeat(missing))
}

/// A cell never breaks a row: line breaks and tabs become spaces.
fn one_line(cell: &str) -> String {
    cell.trim_end().replace(['\n', '\r', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(headers: &[&str], rows: &[&[&str]], expected: &str) {
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect();
        assert_eq!(render(headers, &rows), expected);
    }

    #[test]
    fn pads_and_separates_with_tabs() {
        check(
            &["Name", "Revision", "Ready"],
            &[&["apps", "main@sha1:4f2c1d0a", "True"], &["infrastructure", "", "Unknown"]],
            concat!(
                "NAME          \tREVISION          \tREADY  \n",
                "apps          \tmain@sha1:4f2c1d0a\tTrue   \t\n",
                "infrastructure\t                  \tUnknown\t\n",
            ),
        );
    }

    #[test]
    fn works_without_headers_and_rows() {
        check(&[], &[&["a", "b"]], "a\tb\t\n");
        check(&["Name"], &[], "NAME\n");
        check(&[], &[], "");
    }

    #[test]
    fn keeps_a_message_on_its_line() {
        check(&["Message"], &[&["first\nsecond\tthird\n"]], "MESSAGE           \nfirst second third\t\n");
    }

    #[test]
    fn counts_characters_not_bytes() {
        check(&["A", "B"], &[&["äö", "x"], &["abc", "y"]], "A  \tB\näö \tx\t\nabc\ty\t\n");
    }
}
