//! The notes of runs by hand. They are rows with the text that Redis keeps too.

use std::time::Duration;

use rusqlite::params;

use super::context::WorkContext;
use super::error::SqliteFailure;
use crate::names::RunId;
use crate::store::contract::NOTED_FOR;
use crate::store::{ManualNote, ManualRun};

pub(super) fn note(work: &WorkContext<'_>, run: &ManualRun) -> Result<(), SqliteFailure> {
    let now = work.now.clock.utc();
    work.db
        .prepare_cached("INSERT OR REPLACE INTO manual VALUES (?, ?, ?)")?
        .execute(params![run.run_id.as_str(), run.text(), now.millis()])?;
    work.db
        .prepare_cached("DELETE FROM manual WHERE noted_at < ?")?
        .execute([now.minus(NOTED_FOR).millis()])?;
    Ok(())
}

pub(super) fn all(work: &WorkContext<'_>) -> Result<Vec<ManualNote>, SqliteFailure> {
    let mut statement = work
        .db
        .prepare_cached("SELECT run_id, run, noted_at FROM manual ORDER BY run_id")?;
    let mut rows = statement.query([])?;
    let mut notes = Vec::new();
    while let Some(row) = rows.next()? {
        let text = |column| Ok::<_, rusqlite::Error>(row.get_ref(column)?.as_str().unwrap_or(""));
        let age = work.now.clock.utc().millis() - row.get::<_, i64>(2)?;
        let age = Duration::from_millis(u64::try_from(age).unwrap_or(0));
        let run = ManualRun::parse(text(0)?, text(1)?);
        notes.extend(run.map(|run| ManualNote { run, age }));
    }
    Ok(notes)
}

pub(super) fn forget(work: &WorkContext<'_>, runs: &[RunId]) -> Result<(), SqliteFailure> {
    let mut statement = work
        .db
        .prepare_cached("DELETE FROM manual WHERE run_id = ?")?;
    for run in runs {
        statement.execute([run.as_str()])?;
    }
    Ok(())
}
