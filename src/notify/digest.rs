//! Many events in one message.

use std::collections::BTreeMap;

use super::notice::Notice;
use crate::config::JobEvent;
use crate::names::{HostName, JobName};
use crate::time::Timestamp;

/// Events that a target receives in one message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Digest {
    /// The host that sends.
    pub(crate) host: HostName,
    /// How many occurrences had each event, by job.
    pub(crate) jobs: BTreeMap<JobName, BTreeMap<JobEvent, u64>>,
    /// When the first was noticed.
    pub(crate) first_at: Timestamp,
    /// When the last was noticed.
    pub(crate) last_at: Timestamp,
    events: u64,
}

impl Digest {
    /// A digest of one event so far.
    pub(crate) fn of(notice: &Notice) -> Self {
        let mut digest = Self {
            host: notice.host.clone(),
            jobs: BTreeMap::new(),
            first_at: notice.at,
            last_at: notice.at,
            events: 0,
        };
        digest.add(notice);
        digest
    }

    /// Adds an event.
    pub(crate) fn add(&mut self, notice: &Notice) {
        let events = self.jobs.entry(notice.job.clone()).or_default();
        *events.entry(notice.event).or_default() += notice.count();
        self.first_at = self.first_at.min(notice.at);
        self.last_at = self.last_at.max(notice.at);
        self.events += 1;
    }

    /// Adds what another digest has.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (job, events) in &other.jobs {
            let mine = self.jobs.entry(job.clone()).or_default();
            for (event, count) in events {
                *mine.entry(*event).or_default() += count;
            }
        }
        self.first_at = self.first_at.min(other.first_at);
        self.last_at = self.last_at.max(other.last_at);
        self.events += other.events;
    }

    /// How many events it stands for.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// How many occurrences had each event, over all jobs.
    pub(crate) fn counts(&self) -> BTreeMap<JobEvent, u64> {
        let mut counts = BTreeMap::new();
        for (event, count) in self.jobs.values().flatten() {
            *counts.entry(*event).or_default() += count;
        }
        counts
    }
}
