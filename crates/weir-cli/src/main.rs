//! The `weir` command.

mod arguments;
mod commands;
mod connection;
mod digest;
mod disk;
mod error;
mod kind;
mod kstatus;
mod local;
mod output;
mod remote;
mod selector;
mod table;
#[cfg(test)]
mod testing;
mod view;
mod wait;

use std::process::ExitCode;

/// Charts and manifests are many small values; this makes and drops them faster than the system's allocator does.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = match arguments::Arguments::read() {
        Ok(arguments) => arguments,
        Err(error) => {
            // There is nowhere to report that the terminal is gone.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let result = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(error::Error::Runtime)
        .and_then(|runtime| runtime.block_on(commands::run(arguments)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error::Error::Reported) => ExitCode::FAILURE,
        Err(error) => {
            output::failure(&error::text(&error));
            if let Some(hint) = error::hint(&error) {
                output::hint(&hint);
            }
            ExitCode::FAILURE
        }
    }
}
