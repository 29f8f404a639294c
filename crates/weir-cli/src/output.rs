//! Data goes to stdout, everything for people to stderr.

use std::io::{self, Write as _};

use crate::error::Error;

/// Writes data.
pub(crate) fn data(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // The reader, such as `head`, has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Error::Reported),
        other => other.map_err(Error::Write),
    }
}

/// Says what is being done.
pub(crate) fn action(text: &str) {
    note("►", text);
}

/// Says what is waited for.
pub(crate) fn waiting(text: &str) {
    note("◎", text);
}

/// Says what was done.
pub(crate) fn success(text: &str) {
    note("✔", text);
}

/// Says what may be a problem.
pub(crate) fn warning(text: &str) {
    note("⚠️", text);
}

/// Says what failed.
pub(crate) fn failure(text: &str) {
    note("✗", text);
}

/// Says what may help, apart from what failed.
pub(crate) fn hint(text: &str) {
    note("\nhint:", text);
}

fn note(glyph: &str, text: &str) {
    // There is nowhere to report that stderr is gone.
    let _ = writeln!(io::stderr().lock(), "{glyph} {text}");
}
