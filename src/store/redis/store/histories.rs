//! Histories, which are streams: that of a job, and those of failures.

use super::RedisStore;
use crate::names::JobName;
use crate::store::redis::codec::history::{self, StreamEntries};
use crate::store::redis::codec::keys::{Key, LockKeys};
use crate::store::{History, Lock, StoreError};

impl RedisStore {
    /// Returns the newest records of a job.
    pub(super) async fn history_of(
        &self,
        job: &JobName,
        lock: &Lock,
        limit: usize,
    ) -> Result<History, StoreError> {
        if limit == 0 {
            return Ok(History::default());
        }
        let keys = LockKeys::of(self.prefix(), lock);
        // In this order: a failure that is removed from the first meanwhile is in the second.
        let runs = self.stream(keys.runs(job), Some(job), limit).await?;
        let failures = match self.stream(keys.failures(job), Some(job), limit).await {
            Err(StoreError::Key(fault)) => StreamEntries {
                unreadable: vec![fault],
                ..StreamEntries::default()
            },
            failures => failures?,
        };
        Ok(history::merged(runs, failures, limit).into())
    }

    /// Returns the newest records of runs that failed.
    pub(super) async fn failures_of(
        &self,
        jobs: &[(JobName, Lock)],
        limit: usize,
    ) -> Result<History, StoreError> {
        if limit == 0 {
            return Ok(History::default());
        }
        if let Some(all) = self.route.all_failures() {
            return Ok(self.stream(all, None, limit).await?.into());
        }
        let mut found = StreamEntries::default();
        for (job, lock) in jobs {
            let failures = LockKeys::of(self.prefix(), lock).failures(job);
            let failures = self.stream(failures, Some(job), limit).await?;
            found = history::merged(found, failures, limit);
        }
        Ok(found.into())
    }

    /// Reads the newest records of a stream.
    pub(in crate::store::redis) async fn stream(
        &self,
        key: Key<'_>,
        job: Option<&JobName>,
        limit: usize,
    ) -> Result<StreamEntries, StoreError> {
        self.check_format().await?;
        let key = &key.to_string();
        let (mut all, mut after) = (StreamEntries::default(), None);
        let mut left = limit;
        while left > 0 {
            let count = left.min(history::PAGE);
            let command = history::command(key, after.as_deref(), count);
            let reply = self.route.read(key, &command).await?;
            let before = all.len();
            after = history::read(reply, job, key, &mut all)?;
            let read = all.len() - before;
            left -= read;
            if read < count {
                break;
            }
        }
        Ok(all)
    }
}
