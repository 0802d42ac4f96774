//! The command of a job, or of a target of notifications.

use std::path::PathBuf;

/// `command:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A list: run as it is.
    Argv(Vec<String>),
    /// A string: handed to `shell -c`.
    Shell {
        /// The shell.
        shell: PathBuf,
        /// The text.
        script: String,
        /// Whether a failure anywhere in a pipe is a failure of the pipe (`set -o pipefail`).
        pipefail: bool,
    },
}
