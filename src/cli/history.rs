//! `cronlatch history`: what became of occurrences, oldest first, as `journalctl` has it.

use std::collections::BTreeMap;
use std::process::ExitCode;

use super::{Failure, Target, output};
use crate::config::JobList;
use crate::names::{HostName, JobName, LockName};
use crate::observe::plain;
use crate::store::{self, Listing, Lock, LockId, Record, Store, StoreError};
use crate::time::Timestamp;

/// Options of `history`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The job [default: all jobs of the list]
    job: Option<JobName>,
    /// The number of records per job (the newest)
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Only what came due or ran since this time (RFC 3339) or this long ago (`2h`)
    #[arg(long, value_name = "T", value_parser = instant)]
    since: Option<Timestamp>,
    /// Also show the last lines of output of each run
    #[arg(long, conflicts_with = "json")]
    output: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let host = args.target.host()?;
    let list = match &args.job {
        Some(_) => args.target.list_if_any()?,
        None => Some(args.target.list()?),
    };
    let settings = args.target.settings(list.as_ref())?;
    let wanted = wanted(args.job.as_ref(), list.as_ref(), &host);
    let (mut records, damage, away) = output::ask(async {
        let store = store::open(&settings)?;
        let (mut records, mut damage, mut away) = (Vec::new(), Vec::new(), None);
        let earlier = earlier(&*store, &wanted, &host).await?;
        for (job, lock, _) in wanted.iter().chain(&earlier) {
            match store.history(job, lock, args.limit).await {
                Ok(found) => {
                    records.extend(dated(found.records));
                    let unreadable = found.unreadable.into_iter();
                    damage.extend(unreadable.map(|fault| (job.clone(), fault)));
                }
                Err(StoreError::Key(fault)) => damage.push((job.clone(), fault)),
                // What the rest of the store keeps is shown all the same.
                Err(error @ StoreError::PartUnreachable(_)) => away = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        Ok((records, damage, away))
    })?;
    let nothing = records.is_empty() && damage.is_empty();
    if let (Some(job), true, None) = (&args.job, nothing, &away) {
        known(job, list.as_ref())?;
    }
    records.retain(|(at, _)| args.since.is_none_or(|since| *at >= since));
    // Stable: records of one instant stay as the store had them, turned round.
    records.reverse();
    records.sort_by_key(|(at, _)| *at);
    let mut records: Vec<Record> = records.into_iter().map(|(_, record)| record).collect();
    keep_newest(&mut records, args.limit);
    output::print(&if args.json {
        output::json_lines(&records)?
    } else {
        for_people(&records, args.output)
    })?;
    for (job, fault) in damage {
        let warning = format!(
            "warning: part of the history of job {job} cannot be shown: {fault}\n  help: {}",
            fault.repair(Some(job.as_str()))
        );
        anstream::eprintln!("{}", plain(&warning));
    }
    match away {
        None => Ok(ExitCode::SUCCESS),
        Some(error) => Err(Failure::Unavailable(format!(
            "{error}: its records are missing above"
        ))),
    }
}

/// A job, the lock under which its history lies, and how its list calls that lock.
type Wanted = (JobName, Lock, LockId);

/// The jobs asked for, with the locks that keep their histories.
///
/// A job that is gone from the list may still have a history, under the lock of its own name.
fn wanted(job: Option<&JobName>, list: Option<&JobList>, host: &HostName) -> Vec<Wanted> {
    let listed = list.into_iter().flat_map(|list| &list.jobs);
    let mut wanted: Vec<_> = listed
        .filter(|entry| job.is_none_or(|job| entry.name == *job))
        .map(|entry| (entry.name.clone(), entry.lock_on(host), entry.lock_id()))
        .collect();
    if let (Some(job), true) = (job, wanted.is_empty()) {
        let lock = LockName::parse(job.as_str()).map(|name| Lock::named(&name));
        let id = LockId::Fleet(job.to_string());
        wanted.extend(lock.ok().map(|lock| (job.clone(), lock, id)));
    }
    wanted
}

/// The same jobs under the locks that they had before, where older records are.
async fn earlier(
    store: &dyn Store,
    wanted: &[Wanted],
    host: &HostName,
) -> Result<Vec<Wanted>, StoreError> {
    let names: Vec<JobName> = wanted.iter().map(|(job, ..)| job.clone()).collect();
    let listings = match store.listings(&names).await {
        Err(StoreError::PartUnreachable(_) | StoreError::Key(_)) => return Ok(Vec::new()),
        answer => answer?,
    };
    let of_one = |((job, _, id), listing): (&Wanted, Listing)| {
        let locks = listing.other_locks(host, id).into_iter();
        let wanted = |lock| (job.clone(), lock, id.clone());
        locks.map(wanted).collect::<Vec<_>>()
    };
    let mut all: Vec<Wanted> = wanted.iter().zip(listings).flat_map(of_one).collect();
    // Locks that share a hash tag share their histories, too.
    all.retain(|(job, lock, _)| {
        let shares = |(other, known, _): &Wanted| other == job && known.name == lock.name;
        !wanted.iter().any(shares)
    });
    Ok(all)
}

/// Leaves the newest `limit` records of each job, of which several locks may have kept so many.
fn keep_newest(records: &mut Vec<Record>, limit: usize) {
    let mut counts: BTreeMap<JobName, usize> = BTreeMap::new();
    let mut keep: Vec<bool> = records
        .iter()
        .rev()
        .map(|record| {
            let count = counts.entry(record.job.clone()).or_default();
            *count += 1;
            *count <= limit
        })
        .collect();
    records.retain(|_| keep.pop().unwrap_or(true));
}

/// Fails for a job that is in no list and of which nothing was recorded.
fn known(job: &JobName, list: Option<&JobList>) -> Result<(), Failure> {
    match list {
        Some(list) if list.jobs.iter().all(|entry| entry.name != *job) => {
            Err(super::unknown_job(job, list))
        }
        _ => Ok(()),
    }
}

/// When it ran, else when it was due: what the history is sorted by. Nothing ran after it was
/// recorded: if it seems so, the clock was ahead when it started.
fn instant_of(record: &Record) -> Timestamp {
    let began = (record.until).or(record.started_at).or(record.scheduled_at);
    match (began, record.finished_at) {
        (Some(began), Some(finished)) => began.min(finished),
        (began, finished) => began.or(finished).unwrap_or(Timestamp::EPOCH),
    }
}

/// The records of one job, newest first, each with the instant that it is sorted by.
///
/// What was recorded before the ledger was set back may have instants of a clock that was wrong: it
/// counts as no later than that.
fn dated(records: Vec<Record>) -> Vec<(Timestamp, Record)> {
    let mut corrected = None;
    let date = |record: Record| {
        let own = instant_of(&record);
        let at = corrected.map_or(own, |corrected| own.min(corrected));
        if record.is_correction() {
            corrected = Some(at);
        }
        (at, record)
    };
    records.into_iter().map(date).collect()
}

fn for_people(records: &[Record], with_output: bool) -> String {
    if records.is_empty() {
        return "nothing recorded yet\n".to_owned();
    }
    let header = [
        "DUE", "JOB", "VERDICT", "STARTED", "TOOK", "HOST", "EXIT", "TRIES", "WHY",
    ];
    let mut text = output::table(header, records.iter().map(row));
    let tails = records
        .iter()
        .filter_map(|r| Some((r, r.output_tail.as_deref()?)));
    for (record, tail) in tails.filter(|(_, tail)| with_output && !tail.is_empty()) {
        let instant = instant_of(record);
        text += &format!("\n{instant}  {}  {}\n", record.job, record.outcome.word());
        for line in tail.lines() {
            text += &format!("  {line}\n");
        }
    }
    text
}

fn row(record: &Record) -> [String; 9] {
    let dash = || "-".to_owned();
    let due = match (record.scheduled_at, record.until, record.count) {
        (Some(from), Some(until), Some(count)) => format!("{from} .. {until} ({count})"),
        (Some(at), ..) => at.to_string(),
        (None, ..) if record.is_correction() => dash(),
        (None, ..) => "by hand".to_owned(),
    };
    let took = match (record.started_at, record.finished_at) {
        (Some(from), Some(to)) => output::short(to.since(from)),
        _ => dash(),
    };
    [
        due,
        record.job.to_string(),
        record.outcome.word().to_owned(),
        record.started_at.map_or_else(dash, |at| at.to_string()),
        took,
        record.host.as_ref().map_or_else(dash, ToString::to_string),
        exit(record).unwrap_or_else(dash),
        match record.attempts {
            0 => dash(),
            attempts => attempts.to_string(),
        },
        why(record),
    ]
}

/// The exit code, or the signal by its name.
pub(super) fn exit(record: &Record) -> Option<String> {
    let named = |number| {
        nix::sys::signal::Signal::try_from(number)
            .map_or_else(|_| format!("signal {number}"), |signal| signal.to_string())
    };
    record
        .signal
        .map(named)
        .or_else(|| record.exit_code.map(|code| code.to_string()))
}

fn why(record: &Record) -> String {
    let by = record.by.as_ref().map(|by| format!("held by {by}"));
    let parts = [record.reason.clone(), by];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// An instant in RFC 3339, or a length of time before now.
fn instant(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text)
        .ok()
        .or_else(|| Some(Timestamp::now().minus(humantime::parse_duration(text).ok()?)))
        .ok_or_else(|| {
            "neither a time such as 2026-01-31T02:30:00Z nor a duration such as 2h".to_owned()
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Kind, Outcome};

    fn record(job: &str) -> Record {
        Record {
            job: JobName::parse(job).unwrap(),
            run_id: None,
            kind: Kind::Schedule,
            scheduled_at: Some(Timestamp::from_secs(60)),
            until: None,
            count: None,
            started_at: Some(Timestamp::from_millis(60_002)),
            finished_at: Some(Timestamp::from_millis(61_502)),
            host: HostName::parse("web1").ok(),
            outcome: Outcome::Failed,
            reason: None,
            by: None,
            exit_code: Some(3),
            signal: None,
            attempts: 2,
            fence: Some(7),
            output_tail: Some("no space left\n".to_owned()),
        }
    }

    #[test]
    fn the_table_shows_runs_ranges_and_output() {
        let missed = Record {
            until: Some(Timestamp::from_secs(300)),
            count: Some(5),
            started_at: None,
            finished_at: Some(Timestamp::from_secs(400)),
            outcome: Outcome::Missed,
            reason: Some("no host was up".to_owned()),
            exit_code: None,
            attempts: 0,
            output_tail: None,
            ..record("backup")
        };
        let killed = Record {
            signal: Some(9),
            scheduled_at: None,
            kind: Kind::Manual,
            outcome: Outcome::LeaseLost,
            by: Some("web2".to_owned()),
            ..record("mail")
        };
        insta::assert_snapshot!(for_people(&[missed, record("backup"), killed], true));
    }

    #[test]
    fn what_was_recorded_before_the_ledger_was_set_back_comes_before_the_correction() {
        let ran = |seconds| Record {
            started_at: Some(Timestamp::from_secs(seconds)),
            finished_at: Some(Timestamp::from_secs(seconds + 1)),
            ..record("backup")
        };
        let interrupted = Record {
            finished_at: Some(Timestamp::from_secs(502)),
            ..ran(90_030)
        };
        let correction = Record {
            run_id: None,
            scheduled_at: None,
            started_at: None,
            finished_at: Some(Timestamp::from_secs(500)),
            outcome: Outcome::Unknown,
            ..record("backup")
        };
        assert_eq!(row(&correction)[0], "-");
        // Newest first: what a crash left under the clock that was ahead, a run after the correction,
        // and two before it.
        let newest_first = vec![
            interrupted,
            ran(501),
            correction,
            ran(90_020),
            ran(90_010),
            ran(400),
        ];
        let at: Vec<_> = dated(newest_first)
            .iter()
            .map(|(at, _)| at.millis() / 1000)
            .collect();
        assert_eq!(at, [502, 501, 500, 500, 500, 400]);
    }

    #[test]
    fn since_takes_an_instant_or_a_length_of_time() {
        assert_eq!(instant("1970-01-01T01:00:00+01:00"), Ok(Timestamp::EPOCH));
        let ago = instant("2h").unwrap();
        assert!(Timestamp::now().since(ago) >= std::time::Duration::from_secs(7200));
        assert!(instant("yesterday").is_err());
    }
}
