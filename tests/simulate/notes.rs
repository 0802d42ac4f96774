//! The notes of runs by hand, as every kind of store keeps them.

use std::collections::BTreeMap;
use std::time::Duration;

use cronlatch::names::RunId;
use cronlatch::store::{ManualNote, ManualRun};

use crate::message::{Reply, Request};

/// The noted runs, each with when it was noted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes(BTreeMap<RunId, (ManualRun, i64)>);

impl Notes {
    pub(crate) fn serve(&mut self, now: i64, request: &Request) -> Reply {
        match request {
            Request::NoteManual(run) => {
                self.0.insert(run.run_id.clone(), ((**run).clone(), now));
                Reply::Noted
            }
            Request::ForgetManual(run_id) => {
                self.0.remove(run_id);
                Reply::Noted
            }
            _ => {
                let note = |(run, noted): &(ManualRun, i64)| ManualNote {
                    run: run.clone(),
                    age: Duration::from_millis(u64::try_from(now - noted).unwrap_or(0)),
                };
                Reply::ManualRuns(self.0.values().map(note).collect())
            }
        }
    }
}
