//! Who learns what the daemon does besides the store and the log: notifications and metrics.

use crate::metrics::Metrics;
use crate::names::{HostName, JobName, RunId};
use crate::notify::{self, Notifier};
use crate::store::{Claim, CopyReply, Record};

/// Reports to notifications and metrics. Reporting never waits.
#[derive(Debug, Clone)]
pub(super) struct Reporter {
    pub(crate) notifier: Notifier,
    pub(crate) metrics: Metrics,
    pub(crate) host: HostName,
}

impl Reporter {
    /// A verdict was delivered to the store.
    pub(crate) fn verdict(&self, record: &Record) {
        self.metrics.recorded(record);
        self.notifier.verdict(record);
    }

    /// The store has replied to a claim.
    pub(crate) fn claimed(&self, claim: &Claim, reply: &CopyReply) {
        self.metrics.claimed(reply);
        for record in notify::recorded(claim, reply, &self.host) {
            self.metrics.recorded(&record);
        }
        self.notifier.claimed(claim, reply);
    }

    /// This host recorded a run as interrupted whose host is gone.
    pub(crate) fn settled(&self, job: &JobName, run_id: &RunId) {
        self.metrics.settled(job);
        self.notifier.settled(job, run_id);
    }

    /// One without notifications.
    #[cfg(test)]
    pub(crate) fn quiet(host: HostName) -> Self {
        Self {
            notifier: Notifier::off(),
            metrics: Metrics::new(),
            host,
        }
    }
}
