//! The table of the registry: one entry for each host and job. The rules are in
//! [`registry`](crate::store::registry).

use rusqlite::{Connection, params};

use super::clock::TransactionTime;
use super::context::WorkContext;
use super::error::SqliteFailure;
use super::rows::{Change, id_of, load_job, save_job};
use crate::names::{HostName, JobName};
use crate::store::registry::{FAR_AHEAD, LISTED_FOR};
use crate::store::{Beginning, Entry, Listing, Standing, protocol};

pub(super) fn begin(
    work: &WorkContext<'_>,
    jobs: &[Beginning],
) -> Result<Vec<bool>, SqliteFailure> {
    jobs.iter()
        .map(|beginning| {
            let id = id_of(&beginning.lock);
            let before = load_job(work.db, &id, &beginning.job)?;
            let mut state = before.clone();
            let done = protocol::begin(&mut state, work.now.clock, beginning);
            let change = Change {
                before: before.as_ref(),
                after: state.as_ref(),
            };
            save_job(work.db, &id, &beginning.job, change)?;
            Ok(done)
        })
        .collect()
}

pub(super) fn listings(
    work: &WorkContext<'_>,
    jobs: &[JobName],
) -> Result<Vec<Listing>, SqliteFailure> {
    let mut statement = work
        .db
        .prepare_cached("SELECT host, entry FROM listings WHERE job = ?")?;
    let mut all = Vec::with_capacity(jobs.len());
    for job in jobs {
        let mut listing = Listing::default();
        let mut rows = statement.query([job.as_str()])?;
        while let Some(row) = rows.next()? {
            listing.read(
                job,
                row.get_ref(0)?.as_str().unwrap_or(""),
                row.get_ref(1)?.as_str().unwrap_or(""),
            );
        }
        all.push(listing);
    }
    Ok(all)
}

pub(super) fn enlist(
    work: &WorkContext<'_>,
    host: &HostName,
    entries: &[(JobName, Entry)],
) -> Result<(), SqliteFailure> {
    // As `Entry::replaces`: a late copy changes nothing.
    let mut statement = work.db.prepare_cached(
        "INSERT INTO listings (job, host, listed, entry, at) VALUES (?1, ?2, ?3, ?4, ?5)
            ON CONFLICT (job, host) DO UPDATE SET listed = ?3, entry = ?4, at = ?5
            WHERE at <= ?5 OR at > ?6",
    )?;
    let far_ahead = work.now.clock.utc().plus(FAR_AHEAD).millis();
    for (job, entry) in entries {
        statement.execute(params![
            job.as_str(),
            host.as_str(),
            entry.standing != Standing::Withdrawn,
            entry.text(),
            entry.at.millis(),
            far_ahead,
        ])?;
    }
    Ok(())
}

pub(super) fn listed_by(
    work: &WorkContext<'_>,
    host: &HostName,
) -> Result<Vec<JobName>, SqliteFailure> {
    let mut statement = work
        .db
        .prepare_cached("SELECT job FROM listings WHERE host = ? AND listed")?;
    let names = statement
        .query_map([host.as_str()], |row| row.get::<_, String>(0))?
        .collect::<Result<Vec<_>, _>>()?;
    Ok(names
        .iter()
        .filter_map(|name| JobName::parse(name).ok())
        .collect())
}

/// Deletes entries that were not refreshed for so long that they no longer count.
pub(super) fn forget_old(db: &Connection, now: &TransactionTime) -> Result<(), rusqlite::Error> {
    let before = now.clock.utc().minus(LISTED_FOR).millis();
    db.execute("DELETE FROM listings WHERE at < ?", [before])?;
    Ok(())
}
