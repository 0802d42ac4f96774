//! What the checks examine.

use crate::config::JobList;
use crate::names::HostName;
use crate::store::StoreSettings;

/// The list, the store and the host to check.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    /// The job list; without one only store and host are checked.
    pub(crate) list: Option<JobList>,
    /// The store.
    pub(crate) settings: StoreSettings,
    /// This host, which names the locks of jobs with `scope: host`.
    pub(crate) host: HostName,
}
