//! The table of the registry: one entry for each host and job. The rules are in
//! [`registry`](crate::store::registry).

use rusqlite::{Connection, OptionalExtension as _, params};

use super::clock::TransactionTime;
use super::context::WorkContext;
use super::error::SqliteFailure;
use super::rows::{Change, id_of, load_job, save_job};
use crate::names::{HostName, JobName};
use crate::store::registry::{FAR_AHEAD, LISTED_FOR};
use crate::store::{Beginning, Entry, HostJobs, JobsRevision, Listing, Standing, protocol};

/// What the row with the revision of a host's jobs has in the place of a job. No job can have this name.
const REVISION: &str = ":revision";

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
    give_revision(work, host)
}

/// Gives the jobs of a host another revision: a row like that of a job which the host does not list.
///
/// A version without revisions writes no such row when it writes jobs. That does not matter: it writes
/// them for a host while its daemon runs there, and the next daemon begins by reading all jobs.
fn give_revision(work: &WorkContext<'_>, host: &HostName) -> Result<(), SqliteFailure> {
    let mut statement = work.db.prepare_cached(
        "INSERT OR REPLACE INTO listings (job, host, listed, entry, at) VALUES (?, ?, 0, ?, ?)",
    )?;
    statement.execute(params![
        REVISION,
        host.as_str(),
        JobsRevision::new().0,
        work.now.clock.utc().millis(),
    ])?;
    Ok(())
}

/// Deletes what hosts said about a job. Returns whether there was something.
pub(super) fn forget(work: &WorkContext<'_>, job: &JobName) -> Result<bool, SqliteFailure> {
    let mut statement = work
        .db
        .prepare_cached("DELETE FROM listings WHERE job = ? RETURNING host")?;
    let hosts = statement
        .query_map([job.as_str()], |row| row.get::<_, String>(0))?
        .collect::<Result<Vec<_>, _>>()?;
    for host in hosts.iter().filter_map(|host| HostName::parse(host).ok()) {
        give_revision(work, &host)?;
    }
    Ok(!hosts.is_empty())
}

pub(super) fn listed_since(
    work: &WorkContext<'_>,
    host: &HostName,
    known: Option<&JobsRevision>,
) -> Result<Option<HostJobs>, SqliteFailure> {
    let revision = work
        .db
        .prepare_cached("SELECT entry FROM listings WHERE job = ? AND host = ?")?
        .query_row([REVISION, host.as_str()], |row| row.get(0))
        .optional()?
        .map(JobsRevision);
    if known.is_some() && revision.as_ref() == known {
        return Ok(None);
    }
    let jobs = listed_by(work, host)?;
    Ok(Some(HostJobs { jobs, revision }))
}

fn listed_by(work: &WorkContext<'_>, host: &HostName) -> Result<Vec<JobName>, SqliteFailure> {
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
