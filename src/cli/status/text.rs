//! `status` for people.

use std::time::Duration;

use super::notes::{
    clock, clocks_note, damage_note, held_back_note, lists_note, namesake_note, nodes_note,
    unacknowledged_note, vanished_note, waits_note,
};
use super::report::{HostStatus, JobStatus, LockStatus, StatusReport};
use super::requests;
use crate::cli::{history, output};
use crate::store::Outcome;
use crate::store::protocol::LEDGER_AHEAD;
use crate::time::Timestamp;

pub(super) fn for_people(status: &StatusReport) -> String {
    let mut text = format!("store  {}\n", status.store);
    if let Some(until) = status.recovering_until {
        text += &format!(
            "       is new, was restarted or lost data: no locks are granted until {until}\n"
        );
    }
    if let Some(away) = &status.away {
        text += &format!("       {away}\n");
    }
    if let Some(why) = &status.takes_no_writes {
        text += &format!("       nothing is claimed: {why}\n");
    }
    text += &nodes_note(&status.nodes);
    text += &clocks_note(&status.nodes);
    text.push('\n');
    text += &if status.hosts.is_empty() && status.away.is_some() {
        "no daemon reports to this store, or the part of the store that lists the hosts is \
         unreachable\n"
            .to_owned()
    } else if status.hosts.is_empty() {
        format!(
            "no daemon reports to {}: none is up, or none can write to this store\n",
            status.store
        )
    } else {
        let header = ["HOST", "RUNNING", "UP", "SEEN", "CLOCK", "VERSION", "NOTES"];
        let rows = status.hosts.iter().map(|host| host_row(host, status.now));
        output::table(header, rows)
    };
    text += &vanished_note(&status.vanished, status.now);
    text += &lists_note(&status.hosts);
    text.push('\n');
    text += &if status.jobs.is_empty() {
        "no job list was found: name it with -c/--config\n".to_owned()
    } else {
        let header = [
            "JOB", "NEXT", "NOW", "LAST", "VERDICT", "HOST", "SUCCESS", "TREND", "NOTES",
        ];
        let rows = status.jobs.iter();
        output::table(header, rows.flat_map(|job| job_rows(job, status.now)))
    };
    text += &requests::for_people(&status.requests, status.now);
    text += &waits_note(&status.hosts);
    text += &namesake_note(&status.hosts);
    text += &held_back_note(&status.hosts);
    text += &damage_note(&status.jobs);
    text += &unacknowledged_note(&status.jobs);
    text
}

fn host_row(host: &HostStatus, now: Timestamp) -> [String; 7] {
    let mut notes = Vec::new();
    if host.config_differs {
        notes.push("another job list".to_owned());
    }
    if host.draining {
        notes.push("draining".to_owned());
    }
    if host.waits.is_some() {
        notes.push("claims nothing: see below".to_owned());
    }
    if let Some(why) = &host.clock_wrong {
        notes.push(format!("claims nothing: {why}"));
    }
    if host.namesake.is_some() {
        notes.push("two daemons have this name: see below".to_owned());
    }
    match host.held_back.len() {
        0 => {}
        1 => notes.push("holds back 1 job: see below".to_owned()),
        n => notes.push(format!("holds back {n} jobs: see below")),
    }
    if let Some(lacks) = &host.lacks {
        notes.push(format!("starts no jobs: lacks {lacks}"));
    }
    [
        host.name.clone(),
        host.running.to_string(),
        output::short(host.up_at(now)),
        format!("{} ago", output::short(now.since(host.seen_at))),
        host.clock_offset_ms.map_or_else(|| "-".to_owned(), clock),
        host.version.clone(),
        notes.join(", "),
    ]
}

/// The row of a job. If each host has its occurrences for itself, a row for each host follows.
fn job_rows(job: &JobStatus, now: Timestamp) -> Vec<[String; 9]> {
    let row = job_row(job, now);
    if job.on_hosts.is_empty() {
        return vec![row];
    }
    let [name, next, ..] = row;
    let dash = || "-".to_owned();
    let mut rows = vec![[
        name,
        next,
        dash(),
        dash(),
        dash(),
        "each host".to_owned(),
        dash(),
        String::new(),
        nobody_note(job),
    ]];
    rows.extend(job.on_hosts.iter().map(|on_host| {
        let mut row = job_row(&on_host.job, now);
        row[0] = format!("  on {}", on_host.host);
        if !on_host.live {
            "host is down".clone_into(&mut row[1]);
        }
        row[5].clone_from(&on_host.host);
        row
    }));
    rows
}

fn job_row(job: &JobStatus, now: Timestamp) -> [String; 9] {
    let dash = || "-".to_owned();
    let running = job.running.as_ref().map(|run| {
        let since = output::short(now.since(run.started_at));
        if run.orphaned {
            format!("orphaned on {}, started {since} ago", run.host)
        } else if run.unacknowledged {
            format!("{} waits for replicas", run.host)
        } else {
            format!("on {} for {since}", run.host)
        }
    });
    let last = job.last.as_ref();
    let last_at = last.and_then(|last| last.until.or(last.scheduled_at).or(last.started_at));
    [
        job.name.clone(),
        job.next_at.map_or_else(
            || if job.enabled { "never" } else { "disabled" }.to_owned(),
            |at| at.to_string(),
        ),
        running.unwrap_or_else(dash),
        last_at.map_or_else(dash, |at| at.to_string()),
        last.map_or_else(dash, |last| {
            let word = last.outcome.word();
            history::exit(last).map_or_else(|| word.to_owned(), |exit| format!("{word} ({exit})"))
        }),
        last.and_then(|last| last.host.as_ref())
            .map_or_else(dash, ToString::to_string),
        (job.last_success.as_ref())
            .and_then(|success| success.finished_at)
            .map_or_else(dash, |at| format!("{} ago", output::short(now.since(at)))),
        trend(&job.recent),
        if let Some(damage) = &job.damaged {
            format!("{}: see below", damage.kind)
        } else if job.unreachable {
            "unknown: its part of the store is unreachable".to_owned()
        } else {
            let lock = job.lock.as_ref().map_or_else(String::new, lock_note);
            let notes = [
                nobody_note(job),
                pause_note(job),
                overdue_note(job, now),
                failure_note(job),
                ahead_note(job, now),
                short_note(job, now),
                waiting_note(job),
                lock,
            ];
            let notes: Vec<String> = notes.into_iter().filter(|note| !note.is_empty()).collect();
            notes.join("; ")
        },
    ]
}

/// Whether nobody runs the job, or a part of its `hosts` names nobody.
fn nobody_note(job: &JobStatus) -> String {
    if job.matches_no_host {
        return "its hosts match no live host".to_owned();
    }
    match job.unmatched_hosts.as_slice() {
        [] => String::new(),
        globs => format!("no host matches {}", globs.join(", ")),
    }
}

/// Who paused the job, until when and why.
fn pause_note(job: &JobStatus) -> String {
    job.paused.as_ref().map_or_else(String::new, |pause| {
        let until = pause.until;
        let until = until.map_or_else(String::new, |until| format!(" until {until}"));
        let reason = match pause.reason.as_str() {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        format!("paused{until} by {}{reason}", pause.by)
    })
}

/// How many outcomes the table shows.
const TREND: usize = 10;

/// The newest outcomes, the last one on the right: `.` for success, `-` for what did not start.
fn trend(recent: &[Outcome]) -> String {
    let letter = |outcome: &Outcome| match outcome {
        Outcome::Succeeded => '.',
        Outcome::Failed => 'F',
        Outcome::TimedOut => 'T',
        Outcome::LeaseLost => 'L',
        Outcome::Interrupted => 'I',
        Outcome::Stopped => 'S',
        Outcome::Skipped | Outcome::Missed => '-',
        Outcome::Unknown => '?',
    };
    let first = recent.len().saturating_sub(TREND);
    recent[first..].iter().map(letter).collect()
}

/// Since when a job has not succeeded as often as its list expects.
fn overdue_note(job: &JobStatus, now: Timestamp) -> String {
    let since = job.overdue_since.map(|at| output::short(now.since(at)));
    since.map_or_else(String::new, |since| format!("overdue for {since}"))
}

/// The run to look at, if the job failed last.
fn failure_note(job: &JobStatus) -> String {
    let failed = job.last.as_ref().filter(|last| last.outcome.is_failure());
    let run = failed.and_then(|record| record.run_id.as_ref());
    run.map_or_else(String::new, |run| format!("run {run}"))
}

/// What becomes of a job whose ledger is ahead of the store's clock.
fn ahead_note(job: &JobStatus, now: Timestamp) -> String {
    let Some(by) = job.ledger_ahead_ms.map(Duration::from_millis) else {
        return String::new();
    };
    let ahead = format!(
        "its ledger is {} ahead of the store's clock",
        output::short(by)
    );
    if by > LEDGER_AHEAD {
        format!("continues with its next occurrence: {ahead}")
    } else {
        format!("waits until {}: {ahead}", now.plus(by))
    }
}

/// Why a job does not start whose claims replicas do not acknowledge.
fn short_note(job: &JobStatus, now: Timestamp) -> String {
    let short = job.unacknowledged.as_ref();
    short.map_or_else(String::new, |short| {
        format!(
            "not granted {} ago ({} of {} replicas): see below",
            output::short(now.since(short.at)),
            short.acknowledged,
            short.wanted
        )
    })
}

/// What waits to run.
fn waiting_note(job: &JobStatus) -> String {
    match job.waiting.as_slice() {
        [] => String::new(),
        [one] => format!("{} waits", one.scheduled_at),
        [first, rest @ ..] => format!("{} waits, and {} more", first.scheduled_at, rest.len()),
    }
}

/// What a person should know of the lock: nothing, when the job's own run holds it.
fn lock_note(lock: &LockStatus) -> String {
    let mut note = String::new();
    if lock.by_another {
        note = format!("lock held by {}", lock.held_by);
        if let Some(remaining) = lock.remaining_ms {
            note += &format!(
                " ({} left)",
                output::short(Duration::from_millis(remaining))
            );
        }
    }
    if lock.without_ttl {
        let and = if note.is_empty() { "lock" } else { ", and" };
        note += &format!("{and} has no TTL: it never expires");
    }
    note
}

#[cfg(test)]
mod tests {
    use super::super::report::{
        DifferingJobs, NodeStatus, PauseStatus, RunningStatus, UnacknowledgedStatus, VanishedHost,
    };
    use super::*;

    fn host(name: &str) -> HostStatus {
        HostStatus {
            name: name.to_owned(),
            version: "0.1.0".to_owned(),
            pid: 7,
            running: 1,
            draining: name == "web2",
            lacks: None,
            waits: None,
            clock_wrong: None,
            up: None,
            namesake: None,
            held_back: Vec::new(),
            started_at: Timestamp::from_secs(1_000),
            seen_at: Timestamp::from_secs(9_997),
            clock_offset_ms: (name == "web2").then_some(-1_250),
            config: "c1".to_owned(),
            config_differs: name == "web2",
            differing_jobs: (name == "web2").then(|| DifferingJobs {
                added: vec!["new".to_owned()],
                changed: Vec::new(),
                missing: Vec::new(),
                more: 0,
                text: "has also job new".to_owned(),
            }),
        }
    }

    fn job(name: &str) -> JobStatus {
        JobStatus {
            name: name.to_owned(),
            enabled: name != "off",
            matches_no_host: false,
            unmatched_hosts: Vec::new(),
            next_at: (name != "off").then(|| Timestamp::from_secs(10_800)),
            unreachable: false,
            damaged: None,
            unacknowledged: None,
            paused: None,
            running: None,
            waiting: Vec::new(),
            ledger_ahead_ms: None,
            last: None,
            last_success: None,
            last_failure: None,
            recent: Vec::new(),
            overdue_since: None,
            decided_until: None,
            lock: None,
            fence: 0,
            on_hosts: Vec::new(),
        }
    }

    #[test]
    fn people_see_drift_drains_orphans_and_foreign_locks() {
        let run = RunningStatus {
            host: "web1".to_owned(),
            run_id: "r1".to_owned(),
            scheduled_at: None,
            started_at: Timestamp::from_secs(9_940),
            attempt: 1,
            lease_remaining_ms: 0,
            orphaned: true,
            unacknowledged: false,
        };
        let lock = |remaining_ms: Option<u64>| LockStatus {
            held_by: "deploy-script".to_owned(),
            value: "deploy-script".to_owned(),
            remaining_ms,
            without_ttl: remaining_ms.is_none(),
            by_another: true,
        };
        let status = StatusReport {
            store: "redis://ops:***@10.0.0.5:6379/0".to_owned(),
            now: Timestamp::from_secs(10_000),
            away: None,
            takes_no_writes: None,
            lost_data_at: Some(Timestamp::from_secs(9_990)),
            recovering_until: Some(Timestamp::from_secs(10_020)),
            nodes: Vec::new(),
            requests: Vec::new(),
            hosts: vec![host("web1"), host("web2")],
            vanished: vec![VanishedHost {
                name: "web3".to_owned(),
                version: "0.1.0".to_owned(),
                seen_at: Timestamp::from_secs(6_400),
            }],
            jobs: vec![
                job("idle"),
                job("off"),
                JobStatus {
                    paused: Some(PauseStatus {
                        since: Timestamp::from_secs(9_000),
                        until: Some(Timestamp::from_secs(12_000)),
                        by: "alice@web1".to_owned(),
                        reason: "new disk".to_owned(),
                    }),
                    ..job("paused")
                },
                JobStatus {
                    running: Some(run),
                    lock: Some(lock(Some(5_000))),
                    ..job("crashed")
                },
                JobStatus {
                    lock: Some(lock(None)),
                    ..job("stuck")
                },
            ],
        };
        insta::assert_snapshot!(for_people(&status));
    }

    #[test]
    fn the_trend_shows_the_newest_outcomes_and_a_failure_its_run() {
        let mut outcomes = vec![Outcome::TimedOut; 5];
        outcomes.extend(Outcome::ALL);
        assert_eq!(trend(&outcomes), "T.FTLSI--?");
        assert_eq!(trend(&[]), "");
        let overdue = JobStatus {
            recent: vec![Outcome::Succeeded],
            overdue_since: Some(Timestamp::from_secs(6_400)),
            ..job("backup")
        };
        let row = job_row(&overdue, Timestamp::from_secs(10_000));
        assert_eq!((&*row[7], &*row[8]), (".", "overdue for 1h"));
    }

    #[test]
    fn people_see_what_a_part_of_the_store_that_is_away_keeps() {
        let status = StatusReport {
            store: "cluster of redis://10.0.0.5:6379".to_owned(),
            now: Timestamp::from_secs(10_000),
            away: Some("part of the store is unreachable: refused".to_owned()),
            takes_no_writes: None,
            lost_data_at: None,
            recovering_until: None,
            nodes: Vec::new(),
            hosts: Vec::new(),
            vanished: Vec::new(),
            requests: Vec::new(),
            jobs: vec![
                job("here"),
                JobStatus {
                    unreachable: true,
                    ..job("there")
                },
            ],
        };
        let expected = "\
store  cluster of redis://10.0.0.5:6379
       part of the store is unreachable: refused

no daemon reports to this store, or the part of the store that lists the hosts is unreachable

JOB    NEXT                  NOW  LAST  VERDICT  HOST  SUCCESS  TREND  NOTES
here   1970-01-01T03:00:00Z  -    -     -        -     -
there  1970-01-01T03:00:00Z  -    -     -        -     -               unknown: its part of the store is unreachable
";
        assert_eq!(for_people(&status), expected);
    }

    #[test]
    fn people_see_which_claims_replicas_do_not_acknowledge() {
        let at = Timestamp::from_secs(9_990);
        let run = RunningStatus {
            host: "web1".to_owned(),
            run_id: "r1".to_owned(),
            scheduled_at: Some(at),
            started_at: at,
            attempt: 1,
            lease_remaining_ms: 20_000,
            orphaned: false,
            unacknowledged: true,
        };
        let short = JobStatus {
            unacknowledged: Some(UnacknowledgedStatus {
                server: "redis://10.0.0.5:6379".to_owned(),
                acknowledged: 0,
                wanted: 1,
                since: at,
                at,
            }),
            running: Some(run),
            ..job("backup")
        };
        let row = job_row(&short, Timestamp::from_secs(10_000));
        assert_eq!(row[2], "web1 waits for replicas");
        assert_eq!(row[8], "not granted 10.0s ago (0 of 1 replicas): see below");
        assert_eq!(
            unacknowledged_note(&[short, job("idle")]),
            "\nredis://10.0.0.5:6379: 0 of 1 replicas acknowledged the last claim of job backup\n  \
             nothing starts there while fewer than 1 do (wait_replicas): check that the server's \
             replicas are up\n"
        );
    }

    fn node(name: &str, standing: &'static str) -> NodeStatus {
        let at = |secs: i64| Some(Timestamp::from_secs(secs));
        NodeStatus {
            node: format!("redis://{name}"),
            standing,
            lost_data_at: at(9_990).filter(|_| matches!(standing, "recovering" | "repairing")),
            recovering_until: at(10_020).filter(|_| standing == "recovering"),
            jobs_left: usize::from(standing == "repairing"),
            error: (standing == "away").then(|| "the store is unreachable: refused".to_owned()),
            clock_offset_ms: (standing != "away").then_some(0),
            damaged: Vec::new(),
            clock_is_off: false,
        }
    }

    #[test]
    fn people_see_the_offset_of_each_node_when_one_is_off() {
        let off = NodeStatus {
            clock_offset_ms: Some(-5_000),
            clock_is_off: true,
            ..node("c", "counts")
        };
        let mut nodes = vec![node("a", "counts"), node("b", "away")];
        assert_eq!(clocks_note(&nodes), "");
        nodes.push(off);
        let note = clocks_note(&nodes);
        assert_eq!(
            note,
            "       the nodes' clocks differ (the median decides what is due):\n         \
             redis://a  +0ms\n         redis://b  not known\n         redis://c  -5.0s\n"
        );
    }

    #[test]
    fn people_see_which_nodes_do_not_count_and_what_that_means() {
        let notes = [
            ["counts", "counts", "counts"],
            ["counts", "away", "counts"],
            ["counts", "away", "recovering"],
            ["counts", "repairing", "counts"],
            ["new", "new", "new"],
        ]
        .map(|nodes| {
            let named = ["a", "b", "c"].iter().zip(nodes);
            let nodes: Vec<_> = named.map(|(name, standing)| node(name, standing)).collect();
            nodes_note(&nodes)
        });
        insta::assert_snapshot!(notes.join("--\n"));
    }
}
