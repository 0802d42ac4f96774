//! The jobs of the lists that daemons have.

use rusqlite::{OptionalExtension as _, params};

use super::context::WorkContext;
use super::error::SqliteFailure;
use crate::store::contract::LIST_KEPT_FOR;
use crate::store::{Fingerprint, ListedJobs};

pub(super) fn keep(
    work: &WorkContext<'_>,
    list: &Fingerprint,
    jobs: Option<&ListedJobs>,
) -> Result<bool, SqliteFailure> {
    let now = work.now.clock.utc();
    let until = now.plus(LIST_KEPT_FOR).millis();
    work.db
        .prepare_cached("DELETE FROM lists WHERE until <= ?")?
        .execute([now.millis()])?;
    let changed = match jobs {
        None => work
            .db
            .prepare_cached("UPDATE lists SET until = ? WHERE fingerprint = ?")?
            .execute(params![until, &*list.0])?,
        Some(jobs) => work
            .db
            .prepare_cached("INSERT OR REPLACE INTO lists VALUES (?, ?, ?)")?
            .execute(params![&*list.0, jobs.text(), until])?,
    };
    Ok(changed > 0)
}

pub(super) fn read(
    work: &WorkContext<'_>,
    list: &Fingerprint,
) -> Result<Option<ListedJobs>, SqliteFailure> {
    let text: Option<String> = work
        .db
        .prepare_cached("SELECT jobs FROM lists WHERE fingerprint = ?")?
        .query_row([&*list.0], |row| row.get(0))
        .optional()?;
    // A text that cannot be read is as good as none: it is shown to people, and decides nothing.
    Ok(text.and_then(|text| ListedJobs::parse(list.clone(), &text)))
}
