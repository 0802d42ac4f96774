//! Where a daemon reads its job list from, and what it has read.

use crate::config::{JobList, Revision};
use crate::store::StoreSettings;

/// Where the job list of a daemon is read from.
pub(crate) trait ListSource: std::fmt::Debug + Send + Sync {
    /// Reads the list and what it says of the store.
    fn load(&self) -> Result<LoadedList, ListErrors>;
    /// The versions of its files now.
    fn revision(&self) -> Revision;
    /// Its path, for people.
    fn shown_path(&self) -> String;
}

/// A list that was read.
#[derive(Debug)]
pub(crate) struct LoadedList {
    /// The list.
    pub(crate) list: JobList,
    /// The store that the daemon is to use with it.
    pub(crate) settings: StoreSettings,
    /// The versions of the files that it was read from.
    pub(crate) revision: Revision,
}

/// Why a list cannot be used: each error in one line.
#[derive(Debug)]
pub(crate) struct ListErrors(pub(crate) Vec<String>);

/// Why the list is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReloadCause {
    /// SIGHUP.
    Signal,
    /// Its files have changed.
    Change,
}

/// Whether the list is read again when its files change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchMode {
    /// It is (`--watch`).
    Files,
    /// It is read again on SIGHUP alone.
    Off,
}

/// A list that a task has read, or could not read.
#[derive(Debug)]
pub(super) struct ListRead {
    pub(super) cause: ReloadCause,
    pub(super) result: Result<LoadedList, ListErrors>,
}
