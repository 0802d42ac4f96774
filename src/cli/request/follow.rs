//! Follows a run in a daemon: its output, as the daemon sends it through the store, and its
//! record.

use std::io::{self, Write as _};
use std::time::Duration;

use tokio::time::Instant;

use super::ASKING;
use crate::cli::{Failure, failure, output};
use crate::names::{HostName, JobName, RunId};
use crate::observe::plain;
use crate::store::{Lock, OpenRun, Outcome, OutputChunk, Record, Store, StoreError, retry};

/// How often the output is asked for.
const LOOK_EVERY: Duration = Duration::from_millis(150);
/// How often the record is looked for while there is output to come.
const LOOK_FOR_RECORD: Duration = Duration::from_secs(1);
/// How long to wait for more output of a run that is on record: from the record on, or from the last part
/// of its output that came later.
const REST_OF_OUTPUT: Duration = Duration::from_secs(5);
/// How long the store may be unreachable.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a run that is not in progress any more may have no record: its host may have to deliver it, or
/// another host to record its end.
const UNRECORDED_FOR: Duration = Duration::from_secs(30);
/// How many of the newest records of the job are searched: the run ended while it was followed.
const NEWEST_SEARCHED: usize = 200;

/// A run in a daemon.
#[derive(Debug)]
pub(in crate::cli) struct FollowedRun {
    pub(in crate::cli) job: JobName,
    pub(in crate::cli) lock: Lock,
    pub(in crate::cli) run_id: RunId,
    pub(in crate::cli) host: HostName,
}

/// Where the lines of a run go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum LinePrinter {
    /// Standard output and standard error, as the run wrote them.
    AsWritten,
    /// Standard error: standard output is for JSON.
    StandardError,
}

impl LinePrinter {
    fn print(self, (is_error, text): &(bool, String)) -> Result<(), Failure> {
        if *is_error || self == Self::StandardError {
            let mut err = io::stderr().lock();
            // Without a reader the run goes on, and its record is waited for.
            let _ = writeln!(err, "{}", plain(text));
            return Ok(());
        }
        output::print(&format!("{text}\n"))
    }

    fn chunk(self, chunk: &OutputChunk) -> Result<(), Failure> {
        if chunk.dropped > 0 {
            let n = chunk.dropped;
            output::report(&format!(
                "-- {n} {} dropped, because the output came faster than it was read; the host has \
                 all of it --",
                if n == 1 { "line was" } else { "lines were" }
            ));
        }
        chunk.lines.iter().try_for_each(|line| self.print(line))
    }
}

impl FollowedRun {
    /// Prints the output of the run until it ends. Returns its record.
    pub(in crate::cli) async fn follow(
        &self,
        store: &dyn Store,
        printer: LinePrinter,
    ) -> Result<Record, Failure> {
        let (mut next, mut looked, mut failing) = (0, Instant::now(), None);
        let (mut heard, mut recorded, mut unrecorded) = (Instant::now(), None, None);
        loop {
            let parts = match store.receive_output(&self.run_id, next).await {
                Ok(parts) => parts,
                Err(error) => {
                    self.wait_for_store(&mut failing, error)?;
                    tokio::time::sleep(LOOK_EVERY).await;
                    continue;
                }
            };
            failing = None;
            for (number, chunk) in parts {
                next = number + 1;
                heard = Instant::now();
                printer.chunk(&chunk)?;
                if chunk.last {
                    // This deletes what was read.
                    let _ = store.receive_output(&self.run_id, next).await;
                    return self.record(store).await;
                }
            }
            if looked.elapsed() > LOOK_FOR_RECORD {
                looked = Instant::now();
                match self.look_for_record(store).await {
                    Ok(Some(record)) => {
                        // What the run wrote may still be on its way.
                        let recorded = *recorded.get_or_insert_with(Instant::now);
                        if recorded.max(heard).elapsed() > REST_OF_OUTPUT {
                            output::report("the end of the run's output did not arrive");
                            return Ok(record);
                        }
                    }
                    Ok(None) => {
                        if let Ok(in_progress) = self.is_in_progress(store).await {
                            self.expect_record(in_progress, &mut unrecorded)?;
                        }
                    }
                    // Whether there is a record is unknown: the next look may succeed.
                    Err(_) => {}
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits for the record of the run.
    pub(in crate::cli) async fn record(&self, store: &dyn Store) -> Result<Record, Failure> {
        let (mut failing, mut unrecorded) = (None, None);
        loop {
            match self.look_for_record(store).await {
                Ok(Some(record)) => return Ok(record),
                Ok(None) => failing = None,
                Err(error) => self.wait_for_store(&mut failing, error)?,
            }
            if failing.is_none() {
                let in_progress = retry(ASKING, || self.is_in_progress(store)).await?;
                self.expect_record(in_progress, &mut unrecorded)?;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Fails when a run that is not in progress has had no record for too long.
    fn expect_record(
        &self,
        in_progress: bool,
        unrecorded: &mut Option<Instant>,
    ) -> Result<(), Failure> {
        if in_progress {
            *unrecorded = None;
        } else if unrecorded.get_or_insert_with(Instant::now).elapsed() > UNRECORDED_FOR {
            return Err(Failure::Unavailable(format!(
                "run {} of job {} on host {} has ended or lost its lease, and no host has recorded its \
                 end",
                self.run_id, self.job, self.host
            )));
        }
        Ok(())
    }

    /// Whether the run may go on: it has a lease, or its host is live. Without a lock, the ledger keeps only
    /// the newest run.
    async fn is_in_progress(&self, store: &dyn Store) -> Result<bool, StoreError> {
        let open = self.open(store).await?;
        if (open.as_ref()).is_some_and(|open| !open.remaining.is_zero()) {
            return Ok(true);
        }
        let hosts = store.hosts().await?;
        let is_live = hosts.iter().any(|report| report.info.host == self.host);
        Ok(is_live && (open.is_some() || !self.lock.exclusive))
    }

    async fn open(&self, store: &dyn Store) -> Result<Option<OpenRun>, StoreError> {
        let asked = [(self.job.clone(), self.lock.clone())];
        let reports = store.jobs(&asked).await?;
        let mut open = reports.into_iter().filter_map(|report| report.open);
        Ok(open.find(|open| open.run_id == self.run_id))
    }

    async fn look_for_record(&self, store: &dyn Store) -> Result<Option<Record>, StoreError> {
        // Of the runs of a job without a lock, the ledger keeps only the newest.
        if self.open(store).await?.is_some() {
            return Ok(None);
        }
        let history = store
            .history(&self.job, &self.lock, NEWEST_SEARCHED)
            .await?;
        let mut records = history.records.into_iter();
        let record = records.find(|record| record.run_id.as_ref() == Some(&self.run_id));
        match record {
            Some(record) if self.may_go_on(store, &record).await? => Ok(None),
            record => Ok(record),
        }
    }

    /// Whether the run may be in progress in spite of its record: without a lock, an earlier run is
    /// recorded as interrupted when the next one starts. It goes on while its daemon is live.
    async fn may_go_on(&self, store: &dyn Store, record: &Record) -> Result<bool, StoreError> {
        if self.lock.exclusive || record.outcome != Outcome::Interrupted {
            return Ok(false);
        }
        let hosts = store.hosts().await?;
        Ok(hosts.iter().any(|report| {
            let began_with = Some(report.info.started_at) < record.started_at;
            report.info.host == self.host && began_with
        }))
    }

    /// Fails when the store has not replied for too long.
    fn wait_for_store(
        &self,
        failing: &mut Option<Instant>,
        error: StoreError,
    ) -> Result<(), Failure> {
        let since = failing.get_or_insert_with(Instant::now);
        if matches!(
            error,
            StoreError::Unreachable(_) | StoreError::PartUnreachable(_)
        ) && since.elapsed() < PATIENCE
        {
            return Ok(());
        }
        output::report(&format!(
            "run {} of job {} continues on host {}",
            self.run_id, self.job, self.host
        ));
        Err(error.into())
    }
}

/// The exit code for the record of a run: that of the run itself if it failed.
pub(in crate::cli) fn code(record: &Record) -> u8 {
    const FAILED: u8 = 1;
    let own = record.exit_code.and_then(|code| u8::try_from(code).ok());
    let by_signal = record
        .signal
        .and_then(|signal| u8::try_from(128 + signal).ok());
    match record.outcome {
        Outcome::Succeeded => 0,
        Outcome::LeaseLost => failure::NOT_ACQUIRED,
        _ => own
            .or(by_signal)
            .filter(|code| *code != 0)
            .unwrap_or(FAILED),
    }
}

#[cfg(test)]
mod tests;
