//! The `cronlatch` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    cronlatch::cli::main()
}
