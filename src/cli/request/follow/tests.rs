//! A run that is on record before all of its output has arrived.

use std::sync::Mutex;

use super::*;
use crate::names::LockName;
use crate::store::stub::stub_store;
use crate::store::{History, HostReport, JobReport, Kind};
use crate::time::Timestamp;

/// A store with the first part of the run's output. The last part arrives once the record has been read, if at
/// all.
#[derive(Debug)]
struct LateOutput {
    record: Record,
    /// Before, there is no record.
    recorded_at: Instant,
    arrives: bool,
    seen: Mutex<Observed>,
}

#[derive(Debug, Default)]
struct Observed {
    record_was_read: bool,
    /// The next part that the reader wants.
    wants: u64,
}

fn part(text: &str, last: bool) -> OutputChunk {
    OutputChunk {
        lines: vec![(true, text.to_owned())],
        dropped: 0,
        last,
    }
}

stub_store! {
    LateOutput {
        async fn receive_output(
            &self,
            _: &RunId,
            from: u64,
        ) -> Result<Vec<(u64, OutputChunk)>, StoreError> {
            let mut seen = self.seen.lock().expect("no holder panics");
            seen.wants = from;
            Ok(match from {
                0 => vec![(0, part("first", false))],
                1 if seen.record_was_read && self.arrives => vec![(1, part("last", true))],
                _ => Vec::new(),
            })
        }
        async fn history(&self, _: &JobName, _: &Lock, _: usize) -> Result<History, StoreError> {
            let is_recorded = Instant::now() >= self.recorded_at;
            self.seen.lock().expect("no holder panics").record_was_read = is_recorded;
            let records = is_recorded.then(|| self.record.clone());
            Ok(History {
                records: records.into_iter().collect(),
                unreadable: Vec::new(),
            })
        }
        async fn jobs(&self, _: &[(JobName, Lock)]) -> Result<Vec<JobReport>, StoreError> {
            Ok(Vec::new())
        }
        async fn hosts(&self) -> Result<Vec<HostReport>, StoreError> {
            Ok(Vec::new())
        }
    }
    away: claim renew finish settle note_attempt register announce released now forget init
}

/// Follows a run whose record appears after this time. Returns how long following took, and the number of the last
/// part of its output that was requested.
async fn followed(recorded_after: Duration, arrives: bool) -> (Duration, u64) {
    let job = JobName::parse("a").expect("a name");
    let run = FollowedRun {
        lock: Lock::named(&LockName::parse("a").expect("a name")),
        run_id: RunId::new(),
        host: HostName::parse("one").expect("a name"),
        job: job.clone(),
    };
    let record = Record {
        run_id: Some(run.run_id.clone()),
        started_at: Some(Timestamp::from_secs(100)),
        finished_at: Some(Timestamp::from_secs(101)),
        host: Some(run.host.clone()),
        exit_code: Some(0),
        attempts: 1,
        ..Record::blank(job, Kind::Manual, Outcome::Succeeded)
    };
    let began = Instant::now();
    let store = LateOutput {
        record: record.clone(),
        recorded_at: began + recorded_after,
        arrives,
        seen: Mutex::default(),
    };
    let found = run.follow(&store, LinePrinter::StandardError).await;
    assert_eq!(found.expect("a record"), record);
    let wants = store.seen.lock().expect("no holder panics").wants;
    (began.elapsed(), wants)
}

/// Longer than the rest of the output is waited for.
const SILENT: Duration = Duration::from_secs(20);

#[tokio::test(start_paused = true)]
async fn the_output_of_a_run_on_record_is_shown_to_its_end_however_long_it_was_silent() {
    for recorded_after in [Duration::ZERO, SILENT] {
        let (_, wants) = followed(recorded_after, true).await;
        assert_eq!(wants, 2, "the last part was not read: {recorded_after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn output_whose_end_never_arrives_is_waited_for_with_a_bound() {
    for recorded_after in [Duration::ZERO, SILENT] {
        let (took, wants) = followed(recorded_after, false).await;
        assert_eq!(wants, 1);
        let waited = took.saturating_sub(recorded_after);
        assert!(
            waited > REST_OF_OUTPUT && waited < REST_OF_OUTPUT * 2,
            "{took:?}"
        );
    }
}
