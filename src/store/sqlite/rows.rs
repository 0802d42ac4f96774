//! Converts between rows and the states of the protocol. A row that cannot be converted is a fault of
//! its key.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::clock::TransactionTime;
use super::error::{RowKey, SqliteFailure};
use crate::names::{JobName, RunId, Token};
use crate::store::protocol::{
    Ending, JobState, Key, LockState, Open, decided_beyond_of_text, decided_beyond_text,
    pauses_of_text, pauses_text, terms_of_text, terms_text, waiting_of_text, waiting_text,
};
use crate::store::{Fingerprint, Lock, LockKey, RunTerms};
use crate::time::Timestamp;

/// Returns the id of a lock in the tables. Names contain no colon, so the two kinds differ.
pub(super) fn id_of(lock: &Lock) -> String {
    match &lock.key {
        LockKey::Named => lock.name.clone(),
        LockKey::Raw(key) => format!("key:{key}"),
    }
}

/// `SQLite` has no unsigned integers. No value here reaches the upper half.
pub(super) fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn restored(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn read_lock(row: &Row<'_>, now: &TransactionTime) -> rusqlite::Result<LockState> {
    let this_boot = row.get_ref("boot")?.as_str()? == now.boot;
    let end: Option<i64> = row.get("key_end")?;
    let value: Option<String> = row.get("key_value")?;
    let end = end.map(restored);
    // As in Redis, a key that has expired does not exist. After a restart of the machine no process
    // can hold a lock.
    let lives = this_boot && end.is_none_or(|end| end > now.clock.lease);
    let key = match value {
        Some(text) if lives => Key::Value { text, end },
        _ => Key::Absent,
    };
    let token: Option<String> = row.get("token")?;
    let run_id: Option<String> = row.get("run_id")?;
    Ok(LockState {
        key,
        fence: restored(row.get("fence")?),
        token: token.as_deref().map(Token::from_text),
        lease_end: if this_boot {
            restored(row.get("lease_end")?)
        } else {
            0
        },
        run_id: run_id.as_deref().map(RunId::from_text),
        finished: Vec::new(),
    })
}

/// Reads a lock without its finished tokens, which a renewal does not need.
pub(super) fn load_lease(
    db: &Connection,
    id: &str,
    now: &TransactionTime,
) -> Result<LockState, SqliteFailure> {
    let state = db
        .prepare_cached("SELECT * FROM locks WHERE lock = ?")?
        .query_row([id], |row| read_lock(row, now))
        .optional()
        .map_err(|e| RowKey::of("locks", id).blamed(e))?;
    Ok(state.unwrap_or_default())
}

/// Reads a whole lock.
pub(super) fn load_lock(
    db: &Connection,
    id: &str,
    now: &TransactionTime,
) -> Result<LockState, SqliteFailure> {
    let mut state = load_lease(db, id, now)?;
    let tokens: Option<String> = db
        .prepare_cached("SELECT tokens FROM finished WHERE lock = ?")?
        .query_row([id], |row| row.get(0))
        .optional()?;
    if let Some(tokens) = tokens {
        state.finished =
            read_finished(&tokens).map_err(|e| RowKey::of("finished", id).unreadable(e))?;
    }
    Ok(state)
}

fn read_finished(text: &str) -> serde_json::Result<Vec<(Token, Ending)>> {
    let pairs: Vec<(String, char)> = serde_json::from_str(text)?;
    Ok(pairs
        .into_iter()
        .map(|(token, letter)| {
            let ending = match letter {
                'R' => Ending::Released,
                'I' => Ending::Interrupted,
                _ => Ending::Lost,
            };
            (Token::from_text(&token), ending)
        })
        .collect())
}

fn write_finished(finished: &[(Token, Ending)]) -> String {
    let pairs: Vec<(&str, &str)> = finished
        .iter()
        .map(|(token, ending)| {
            let letter = match ending {
                Ending::Released => "R",
                Ending::Lost => "L",
                Ending::Interrupted => "I",
            };
            (token.as_str(), letter)
        })
        .collect();
    serde_json::json!(pairs).to_string()
}

/// Writes a lock without its finished tokens.
pub(super) fn save_lease(
    db: &Connection,
    id: &str,
    state: &LockState,
    now: &TransactionTime,
) -> Result<(), SqliteFailure> {
    let (value, end) = match &state.key {
        Key::Value { text, end } => (Some(text), *end),
        // No other program writes to this file, so no key has another type.
        Key::Absent | Key::OtherType { .. } => (None, None),
    };
    db.prepare_cached("INSERT OR REPLACE INTO locks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")?
        .execute(params![
            id,
            now.boot,
            value,
            end.map(stored),
            stored(state.fence),
            state.token.as_ref().map(Token::as_str),
            stored(state.lease_end),
            state.run_id.as_ref().map(RunId::as_str),
            now.clock.utc().millis(),
        ])?;
    Ok(())
}

/// A state before and after an operation.
pub(super) struct Change<T> {
    pub(super) before: T,
    pub(super) after: T,
}

/// Writes what an operation changed in a lock.
pub(super) fn save_lock(
    db: &Connection,
    id: &str,
    Change { before, after }: Change<&LockState>,
    now: &TransactionTime,
) -> Result<(), SqliteFailure> {
    if before.finished != after.finished {
        db.prepare_cached("INSERT OR REPLACE INTO finished VALUES (?, ?)")?
            .execute(params![id, write_finished(&after.finished)])?;
    }
    if before != after {
        save_lease(db, id, after, now)?;
    }
    Ok(())
}

/// Reads a ledger; `None` for an unknown job.
pub(super) fn load_job(
    db: &Connection,
    id: &str,
    job: &JobName,
) -> Result<Option<JobState>, SqliteFailure> {
    let of_job = || RowKey::of("jobs", format!("{job} (lock {id})"));
    let mut statement = db.prepare_cached("SELECT * FROM jobs WHERE lock = ? AND job = ?")?;
    let Some((last, fingerprints, lists, (moved, summary), open)) = statement
        .query_row(params![id, job.as_str()], |row| {
            let last: i64 = row.get("last")?;
            let fingerprints: String = row.get("fingerprints")?;
            let lists: [String; 3] = [row.get("waiting")?, row.get("beyond")?, row.get("pauses")?];
            let moved: Option<String> = row.get("moved")?;
            let summary: Option<String> = row.get("summary")?;
            let open = read_open(row)?;
            Ok((last, fingerprints, lists, (moved, summary), open))
        })
        .optional()
        .map_err(|e| of_job().blamed(e))?
    else {
        return Ok(None);
    };
    let unreadable = |e: serde_json::Error| of_job().unreadable(e);
    let pairs: Vec<(String, i64)> = serde_json::from_str(&fingerprints).map_err(unreadable)?;
    let open = match open {
        Some((open, kind, terms)) => Some(Open {
            kind: serde_json::from_value(kind.into()).map_err(unreadable)?,
            // A run that an earlier version without terms has opened is not repeated.
            terms: terms
                .as_deref()
                .and_then(terms_of_text)
                .unwrap_or(RunTerms::NONE),
            ..open
        }),
        None => None,
    };
    let [waiting, beyond, pauses] = lists;
    let waiting = waiting_of_text(&waiting)
        .ok_or_else(|| of_job().unreadable("the waiting list is not valid"))?;
    let beyond = decided_beyond_of_text(&beyond)
        .ok_or_else(|| of_job().unreadable("the instants beyond the watermark are not valid"))?;
    let pauses =
        pauses_of_text(&pauses).ok_or_else(|| of_job().unreadable("the pauses are not valid"))?;
    let moved = moved.map(|text| serde_json::from_str(&text));
    Ok(Some(JobState {
        moved: moved.transpose().map_err(unreadable)?,
        // Nothing depends on it, so one that cannot be read counts as empty.
        summary: summary
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default(),
        last: Timestamp::from_millis(last),
        decided_beyond: beyond,
        pauses,
        open,
        waiting,
        fingerprints: pairs
            .into_iter()
            .map(|(text, seen)| (Fingerprint(text.into()), Timestamp::from_millis(seen)))
            .collect(),
    }))
}

/// Reads the open run, and its kind and terms as text, which the caller parses.
fn read_open(row: &Row<'_>) -> rusqlite::Result<Option<(Open, String, Option<String>)>> {
    let Some(run_id) = row.get::<_, Option<String>>("run_id")? else {
        return Ok(None);
    };
    let scheduled_at: Option<i64> = row.get("scheduled_at")?;
    let token: String = row.get("token")?;
    let open = Open {
        scheduled_at: scheduled_at.map(Timestamp::from_millis),
        run_id: RunId::from_text(&run_id),
        token: Token::from_text(&token),
        attempt: row.get("attempt")?,
        kind: crate::store::Kind::Schedule,
        fence: restored(row.get("fence")?),
        started_at: Timestamp::from_millis(row.get("started_at")?),
        host: row.get("host")?,
        terms: RunTerms::NONE,
    };
    Ok(Some((open, row.get("kind")?, row.get("terms")?)))
}

/// Writes what an operation changed in a ledger.
pub(super) fn save_job(
    db: &Connection,
    id: &str,
    job: &JobName,
    Change { before, after }: Change<Option<&JobState>>,
) -> Result<(), SqliteFailure> {
    let Some(state) = after.filter(|_| before != after) else {
        return Ok(());
    };
    let pairs: Vec<(&str, i64)> = state
        .fingerprints
        .iter()
        .map(|(fingerprint, seen)| (&*fingerprint.0, seen.millis()))
        .collect();
    let open = state.open.as_ref();
    let kind = open.and_then(|open| {
        let kind = serde_json::to_value(open.kind).ok()?;
        kind.as_str().map(str::to_owned)
    });
    let moved = (state.moved.as_ref()).map(|moved| serde_json::json!(moved).to_string());
    db.prepare_cached(
        "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?
    .execute(params![
        id,
        job.as_str(),
        state.last.millis(),
        serde_json::json!(pairs).to_string(),
        open.map(|open| open.run_id.as_str()),
        open.map(|open| open.token.as_str()),
        open.and_then(|open| open.scheduled_at)
            .map(Timestamp::millis),
        open.map(|open| open.attempt),
        kind,
        open.map(|open| stored(open.fence)),
        open.map(|open| open.started_at.millis()),
        open.map(|open| open.host.as_str()),
        open.map(|open| terms_text(&open.terms)),
        waiting_text(&state.waiting),
        moved,
        decided_beyond_text(&state.decided_beyond),
        pauses_text(&state.pauses),
        serde_json::json!(state.summary).to_string(),
    ])?;
    Ok(())
}
