//! The complete output of runs, in files of this host.
//!
//! The daemon reads the pipes of a command and passes every chunk to a [`RunOutput`], which queues it for
//! one thread, the only one that writes. A disk that is slow, full or gone therefore delays neither the
//! command nor the daemon: what does not fit into the queue is dropped and counted, and what cannot be
//! written ends the storage of that run, never the run. The guard knows nothing of files, the store
//! nothing of output, and this module nothing of processes and schedules.
//!
//! One run has one file, `JOB@RUN_ID.log`, in the directory `output` of the state directory, as soon as it
//! writes something or has been in progress for a second ([`SILENT_FOR`]). It is
//! locked (flock(2)) while the run is in progress, so that other processes can tell a run in progress
//! from one whose daemon was killed. A run that writes more than half of `per_run` continues in files
//! with a number behind their name, of which the newest two stay: the beginning and the end survive.
//!
//! | file | story |
//! | --- | --- |
//! | `entry` | the lines of a file: time, stream, text |
//! | `keeper` | what runs write to |
//! | `command` | what runs ask of the thread, and how many bytes may wait for it |
//! | `writer` | the thread: limits, and what happens when the disk fails |
//! | `run_files` | the files of one run |
//! | `stored` | the files of runs that have ended, and when they are removed |
//! | `reader` | what `logs` reads |
//! | `directory` | the directory, and whether it is safe |

mod command;
mod directory;
mod entry;
mod keeper;
mod reader;
mod run_files;
mod stored;
#[cfg(test)]
mod tests;
mod writer;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::OUTPUT_DIRECTORY;
pub(crate) use command::RunEnd;
pub(crate) use entry::{LineEnd, OutputEntry, OutputNote, OutputOrigin};
pub(crate) use keeper::{OutputKeeper, RunOutput};
pub(crate) use reader::{OutputItem, Progress, RunReader, StoredRun};

/// How long the end of a process waits for the disk to take the last output.
pub(crate) const LAST_OUTPUT: Duration = Duration::from_secs(2);

/// How long a run that writes nothing has no file. Most runs are short and succeed, and to create and to
/// remove a file takes more time than all else that this host does for such a run.
const SILENT_FOR: Duration = Duration::from_secs(1);

/// The directory of the output of runs, in a state directory.
pub(crate) fn directory_in(state: &Path) -> PathBuf {
    state.join(OUTPUT_DIRECTORY)
}
