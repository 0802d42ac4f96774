//! The output of a run of this host, for the HTTP server of its daemon.

use super::show::{StreamName, json_of};
use super::{WantedRun, newest_of, stored_run};
use crate::config::state_directory;
use crate::http::{OutputPosition, ViewError, ViewText};
use crate::output::{
    LineEnd, OutputItem, OutputOrigin, Progress, RunReader, StoredRun, directory_in,
};

/// Returns the output as `logs --json` prints it: the lines of the command from this many bytes on, and
/// all notes.
pub(in crate::cli) fn over_http(
    wanted: &WantedRun,
    only: Option<StreamName>,
    from: u64,
) -> Result<ViewText, ViewError> {
    let stored = find(wanted)?;
    let failed = |error: std::io::Error| {
        let run = stored.run_id();
        ViewError::Internal(format!("cannot read the output of run {run}: {error}"))
    };
    let mut reader = RunReader::open(&stored).map_err(failed)?;
    let (mut text, mut offset) = (String::new(), 0);
    let read = reader.read(|item| {
        let entry = match item {
            OutputItem::Missing(bytes) => {
                offset += bytes;
                return Ok(());
            }
            OutputItem::Entry(entry) => entry,
        };
        let is_note = entry.origin == OutputOrigin::Note;
        let is_wanted = only.is_none_or(|only| only.is(entry.origin));
        if is_note || (offset >= from && is_wanted) {
            text.extend(json_of(&entry)?.map(|line| line + "\n"));
        }
        if !is_note {
            offset += entry.text.len() as u64 + u64::from(entry.end == LineEnd::Whole);
        }
        Ok(())
    });
    let progress = read.map_err(failed)?;
    Ok(ViewText {
        text,
        missing: None,
        position: Some(OutputPosition {
            offset,
            is_complete: progress == Progress::Complete,
        }),
    })
}

fn find(wanted: &WantedRun) -> Result<StoredRun, ViewError> {
    let here = state_directory().map(|state| directory_in(&state));
    let found = match (&here, wanted) {
        (None, _) => None,
        (Some(here), WantedRun::Run(run)) => stored_run(here, run)?,
        (Some(here), WantedRun::NewestOf(job)) => newest_of(here, job),
    };
    found.ok_or_else(|| {
        ViewError::NotFound(match wanted {
            WantedRun::Run(run) => format!("this host keeps no output of run {run}"),
            WantedRun::NewestOf(job) => format!("this host keeps no output of job {job}"),
        })
    })
}
