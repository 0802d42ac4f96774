//! Every answer, from facts that are built by hand.

use std::time::Duration;

use super::answer::explain;
use super::explanation::{ExplainAnswer, Explanation};
use super::facts::{GrantsNothing, OccurrenceFacts};
use super::hosts::ClaimDecision;
use super::text;
use crate::cli::times::Times;
use crate::config;
use crate::names::{HostName, JobName, RunId};
use crate::store::stub::host_info;
use crate::store::{
    CountsFrom, Entry, Fingerprint, Head, HostInfo, HostReport, JobReport, Kind, Listing, LockId,
    OpenRun, Outcome, Pause, Record, Standing, Summary,
};
use crate::time::Timestamp;

fn at(text: &str) -> Timestamp {
    Timestamp::parse(&format!("2026-03-02T{text}Z")).expect("a time")
}

fn host(name: &str) -> HostName {
    HostName::parse(name).expect("a name")
}

/// A job that is due at 02:30, seen for a week by the hosts `a` and `b`; now it is 03:00.
fn facts(fields: &str) -> OccurrenceFacts {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("jobs.yaml");
    let list = format!(
        "\
jobs:
  - name: job
    schedule: 30 2 * * *
    command: x
{fields}"
    );
    std::fs::write(&path, list).expect("room");
    let list = config::load(&path).expect("a list");
    let job = list.jobs[0].clone();
    let seen = at("02:00:00").minus(Duration::from_secs(7 * 86_400));
    let mut listing = Listing::default();
    for name in ["a", "b"] {
        listing.entries.insert(host(name), entry(seen));
    }
    OccurrenceFacts {
        now: at("03:00:00"),
        host: host("a"),
        config: list.fingerprint,
        keeps: list.history.records,
        report: JobReport {
            job: job.name.clone(),
            last: Some(at("02:30:00")),
            open: None,
            waiting: Vec::new(),
            pauses: Vec::new(),
            unacknowledged: None,
            holder: None,
            fence: 7,
            fingerprints: vec![(job.fingerprint.clone(), seen)],
            summary: Summary::default(),
        },
        records: Vec::new(),
        neighbours: Vec::new(),
        open_neighbours: Vec::new(),
        listing,
        hosts: ["a", "b"].map(|name| up(name, seen)).to_vec(),
        grants_nothing: None,
        job,
    }
    .with_config_of_hosts()
}

impl OccurrenceFacts {
    /// All hosts have this list.
    fn with_config_of_hosts(mut self) -> Self {
        for report in &mut self.hosts {
            report.info.config = self.config.clone();
        }
        self
    }

    fn host_mut(&mut self, name: &str) -> &mut HostInfo {
        let mut hosts = self.hosts.iter_mut().map(|report| &mut report.info);
        hosts
            .find(|info| info.host.as_str() == name)
            .expect("a host")
    }
}

fn entry(seen: Timestamp) -> Entry {
    let counts = CountsFrom {
        at: seen,
        again: false,
    };
    Entry {
        standing: Standing::Uses,
        lock: LockId::Fleet("job".into()),
        earlier: Vec::new(),
        fleet: counts,
        own: counts,
        at: seen,
    }
}

fn up(name: &str, since: Timestamp) -> HostReport {
    HostReport {
        info: HostInfo {
            config: Fingerprint("".into()),
            started_at: since,
            ..host_info(name)
        },
        seen_at: since,
    }
}

fn record(outcome: Outcome) -> Record {
    Record {
        run_id: Some(RunId::from_text("run-1")),
        scheduled_at: Some(at("02:30:00")),
        started_at: Some(at("02:30:00.2")),
        finished_at: Some(at("02:31:00")),
        host: Some(host("b")),
        exit_code: Some(0),
        attempts: 1,
        fence: Some(7),
        ..Record::blank(
            JobName::parse("job").expect("a name"),
            Kind::Schedule,
            outcome,
        )
    }
}

fn open(started: Timestamp) -> OpenRun {
    OpenRun {
        scheduled_at: Some(at("02:30:00")),
        run_id: RunId::from_text("run-1"),
        by: "b".to_owned(),
        attempt: 1,
        started_at: started,
        remaining: Duration::from_secs(20),
    }
}

fn at_half_past(facts: &OccurrenceFacts) -> Explanation {
    explain(facts, at("02:30:00"))
}

#[track_caller]
fn says(explanation: &Explanation, part: &str) {
    let text = text::for_people(explanation, Times::Utc);
    assert!(text.contains(part), "{part:?} is not in:\n{text}");
}

#[test]
fn who_won_and_what_the_others_did() {
    let mut facts = facts("");
    facts.records = vec![record(Outcome::Succeeded)];
    let found = at_half_past(&facts);
    assert_eq!(found.answer, ExplainAnswer::Ran);
    assert_eq!(found.late_ms, Some(200));
    let decisions: Vec<_> = found.hosts.iter().map(|host| host.decision).collect();
    assert_eq!(decisions, [ClaimDecision::Lost, ClaimDecision::Won]);
    insta::assert_snapshot!(text::for_people(&found, Times::Utc), @r"
    job, 2026-03-02T02:30:00Z: ran on host b: succeeded
      run run-1, started 2026-03-02T02:30:00.200Z, finished 2026-03-02T02:31:00Z
      previous occurrence 2026-03-01T02:30:00Z, next occurrence 2026-03-03T02:30:00Z

    HOST  DECISION       WHY
    a     lost the race  b claimed first
    b     won
    ");
}

#[test]
fn why_other_hosts_could_not() {
    let mut facts = facts("    hosts: [a, b, c, d, e, f]\n");
    let seen = facts.hosts[0].seen_at;
    for name in ["c", "d", "e", "f", "other"] {
        facts.hosts.push(up(name, seen));
        facts.listing.entries.insert(host(name), entry(seen));
    }
    facts = facts.with_config_of_hosts();
    facts.records = vec![record(Outcome::Failed)];
    facts.host_mut("a").waits = Some("another store is in use".to_owned());
    facts.host_mut("c").lacks = Some("open files".to_owned());
    facts.host_mut("d").draining = true;
    facts.host_mut("e").started_at = at("02:45:00");
    facts.host_mut("e").config = Fingerprint("other".into());
    facts
        .listing
        .entries
        .get_mut(&host("f"))
        .expect("listed")
        .standing = Standing::Withdrawn;
    let found = at_half_past(&facts);
    let decisions: Vec<_> = found.hosts.iter().map(|host| host.decision).collect();
    assert_eq!(
        decisions,
        [
            ClaimDecision::Waits,
            ClaimDecision::Won,
            ClaimDecision::Waits,
            ClaimDecision::Draining,
            ClaimDecision::StartedLater,
            ClaimDecision::NotListed,
            ClaimDecision::NotMatched,
        ]
    );
    let differ = found.hosts.iter().filter(|host| host.list_differs);
    assert_eq!(
        differ.map(|host| host.host.as_str()).collect::<Vec<_>>(),
        ["e"]
    );
    says(&found, "it lacks open files");
    says(&found, "another store is in use");
}

#[test]
fn why_a_run_was_late() {
    let mut facts = facts("");
    let mut late = record(Outcome::Succeeded);
    late.started_at = Some(at("02:40:00"));
    for (kind, why) in [
        (Kind::Schedule, "the store was unreachable"),
        (Kind::CatchUp, "it was caught up"),
        (Kind::Queue, "it waited for an earlier run"),
        (Kind::Rerun, "it was run again"),
    ] {
        late.kind = kind;
        facts.records = vec![late.clone()];
        let found = at_half_past(&facts);
        assert_eq!(found.late_ms, Some(600_000));
        says(&found, "it started 10m late: ");
        says(&found, why);
    }
    let mut jittered = self::facts("    jitter: 20m\n");
    let mut on_time = record(Outcome::Succeeded);
    on_time.started_at = Some(at("02:30:00").plus(jittered.job.delay()));
    jittered.records = vec![on_time];
    says(&at_half_past(&jittered), "it started on time, ");
}

#[test]
fn a_run_in_progress_and_one_whose_host_is_gone() {
    let mut facts = facts("");
    facts.report.open = Some(open(at("02:30:00")));
    let found = at_half_past(&facts);
    assert_eq!(found.answer, ExplainAnswer::Running);
    says(&found, "runs on host b since 2026-03-02T02:30:00Z");
    assert_eq!(found.hosts[1].decision, ClaimDecision::Won);
    facts.report.open = Some(OpenRun {
        remaining: Duration::ZERO,
        ..open(at("02:30:00"))
    });
    says(&at_half_past(&facts), "host b does not respond");
}

#[test]
fn what_waits_names_what_it_waits_for() {
    let mut facts = facts("    on_overlap: wait\n");
    facts.report.open = Some(OpenRun {
        scheduled_at: None,
        ..open(at("02:10:00"))
    });
    facts.report.waiting = vec![Head {
        scheduled_at: at("02:30:00"),
        kind: Kind::Queue,
        deadline: at("02:35:00"),
    }];
    let found = at_half_past(&facts);
    assert_eq!(found.answer, ExplainAnswer::Waiting);
    says(
        &found,
        "waits for its lock, until 2026-03-02T02:35:00Z at the latest",
    );
    says(
        &found,
        "run run-1 of job job on host b holds the lock since",
    );
}

#[test]
fn a_skip_names_the_run_that_held_the_lock() {
    let mut facts = facts("");
    let mut skipped = record(Outcome::Skipped);
    skipped.run_id = None;
    skipped.started_at = None;
    skipped.finished_at = Some(at("02:30:00.1"));
    skipped.by = Some("b".to_owned());
    skipped.host = Some(host("a"));
    let mut holder = record(Outcome::Succeeded);
    holder.scheduled_at = Some(at("02:00:00"));
    holder.started_at = Some(at("02:00:00"));
    holder.run_id = Some(RunId::from_text("run-0"));
    let mut earlier = holder.clone();
    earlier.finished_at = Some(at("02:10:00"));
    earlier.run_id = Some(RunId::from_text("not-this"));
    facts.records = vec![skipped.clone(), earlier, holder.clone()];
    let found = at_half_past(&facts);
    assert_eq!(found.answer, ExplainAnswer::Skipped);
    says(&found, "skipped by host a");
    says(&found, "run run-0 of job job on host b held the lock");
    // The run of another job that shares the lock.
    holder.job = JobName::parse("neighbour").expect("a name");
    facts.records = vec![skipped.clone()];
    facts.neighbours = vec![holder];
    says(
        &at_half_past(&facts),
        "run run-0 of job neighbour on host b held the lock",
    );
    // One that still runs.
    facts.neighbours.clear();
    facts.report.open = Some(OpenRun {
        scheduled_at: Some(at("02:00:00")),
        ..open(at("02:00:00"))
    });
    says(
        &at_half_past(&facts),
        "run run-1 of job job on host b held the lock",
    );
    facts.report.open = None;
    says(
        &at_half_past(&facts),
        "b held the lock; no record shows for which run",
    );
}

#[test]
fn a_range_of_missed_ones_and_what_is_unknown() {
    let mut facts = facts("");
    let mut missed = record(Outcome::Missed);
    missed.run_id = None;
    missed.started_at = None;
    missed.scheduled_at = Some(at("02:30:00").minus(Duration::from_secs(86_400)));
    missed.until = Some(at("02:30:00"));
    missed.count = Some(2);
    missed.reason = Some("too late".to_owned());
    facts.records = vec![missed.clone()];
    let found = at_half_past(&facts);
    assert_eq!(found.answer, ExplainAnswer::Missed);
    says(&found, "missed, recorded by host b: too late");
    says(&found, "one record stands for 2 occurrences");
    missed.outcome = Outcome::Unknown;
    facts.records = vec![missed];
    assert_eq!(at_half_past(&facts).answer, ExplainAnswer::Unknown);
}

#[test]
fn what_is_not_due_names_the_field() {
    let mut facts = facts("");
    let found = explain(&facts, at("03:30:00"));
    assert_eq!(
        (found.answer, found.field),
        (ExplainAnswer::NotDue, Some("hour"))
    );
    says(
        &found,
        "not due: the hour of `30 2 * * *` is `2`, and at this instant it is 3 (UTC)",
    );
    says(&found, "next occurrence 2026-03-03T02:30:00Z");
    let mut by_hand = record(Outcome::Succeeded);
    by_hand.kind = Kind::Manual;
    by_hand.scheduled_at = None;
    facts.records = vec![by_hand];
    says(
        &explain(&facts, at("02:30:30")),
        "was in progress, started by hand",
    );
}

#[test]
fn a_disabled_job_has_nothing_to_run() {
    let mut disabled = facts("    enabled: false\n");
    disabled.listing = Listing::default();
    assert_eq!(at_half_past(&disabled).answer, ExplainAnswer::Disabled);
    let tomorrow = at("02:30:00").plus(Duration::from_secs(86_400));
    assert_eq!(explain(&disabled, tomorrow).answer, ExplainAnswer::Disabled);
    let mut withdrawn = facts("");
    for entry in withdrawn.listing.entries.values_mut() {
        entry.standing = Standing::Withdrawn;
        entry.at = at("01:00:00");
    }
    let found = at_half_past(&withdrawn);
    assert_eq!(found.answer, ExplainAnswer::Disabled);
    says(&found, "disabled since 2026-03-02T01:00:00Z");
}

#[test]
fn a_pause_names_who_asked_for_it_and_why() {
    let mut facts = facts("");
    facts.report.pauses = vec![Pause {
        asked_at: at("01:00:00"),
        since: at("01:00:00"),
        until: None,
        by: "root@desk".to_owned(),
        resumed_by: None,
        reason: "migration".to_owned(),
    }];
    let mut skipped = record(Outcome::Skipped);
    skipped.run_id = None;
    skipped.started_at = None;
    skipped.reason = Some(facts.report.pauses[0].verdict());
    facts.records = vec![skipped];
    let found = at_half_past(&facts);
    assert_eq!(found.answer, ExplainAnswer::Paused);
    says(&found, "skipped by host b: paused by root@desk: migration");
    let tomorrow = at("02:30:00").plus(Duration::from_secs(86_400));
    let found = explain(&facts, tomorrow);
    assert_eq!(found.answer, ExplainAnswer::Paused);
    says(
        &found,
        "paused by root@desk: migration since 2026-03-02T01:00:00Z, until somebody resumes",
    );
    facts.report.pauses[0].until = Some(at("02:45:00"));
    assert_eq!(explain(&facts, tomorrow).answer, ExplainAnswer::Future);
    facts.records.clear();
    facts.report.last = Some(at("02:29:00"));
    let found = at_half_past(&facts);
    assert_eq!(found.answer, ExplainAnswer::Paused);
    says(&found, "until 2026-03-02T02:45:00Z");
}

#[test]
fn before_the_job_was_seen_nobody_ran_it() {
    let mut new = facts("");
    for entry in new.listing.entries.values_mut() {
        entry.fleet.at = at("02:45:00");
    }
    let found = at_half_past(&new);
    assert_eq!(found.answer, ExplainAnswer::BeforeFirstSeen);
    says(
        &found,
        "the store first saw the job at 2026-03-02T02:45:00Z",
    );
    for entry in new.listing.entries.values_mut() {
        entry.fleet.again = true;
    }
    says(
        &at_half_past(&new),
        "was enabled again at 2026-03-02T02:45:00Z",
    );
    let mut changed = facts("");
    changed.report.fingerprints[0].1 = at("02:50:00");
    says(
        &at_half_past(&changed),
        "hosts have this schedule only since 2026-03-02T02:50:00Z",
    );
    let mut unknown = facts("");
    unknown.report.last = None;
    says(
        &at_half_past(&unknown),
        "the store does not know the job yet: a daemon with this list is up",
    );
    let nobody = "the store does not know the job, because no daemon with it has reached";
    for fields in [
        "    hosts: [a]\n",
        "    lock: { scope: host }\n    hosts: [a, b]\n",
    ] {
        // The host with this list is not one that runs the job.
        let mut unknown = facts(fields);
        unknown.report.last = None;
        unknown.host_mut("a").config = Fingerprint("other".into());
        says(&at_half_past(&unknown), nobody);
    }
    unknown.hosts.clear();
    says(&at_half_past(&unknown), nobody);
}

#[test]
fn a_store_that_grants_nothing_keeps_a_host_only_from_what_is_over_before_it_ends() {
    let explained = |fields: &str, until| {
        let mut facts = facts(fields);
        let why = "the store is new".to_owned();
        facts.report.last = Some(at("02:00:00"));
        facts.grants_nothing = Some(GrantsNothing { why, until });
        let explained = at_half_past(&facts);
        says(&explained, "nothing is claimed now: the store is new");
        (explained.answer, explained.hosts[0].decision)
    };
    let waits = (ExplainAnswer::NoHost, ClaimDecision::Waits);
    let may_run = (ExplainAnswer::Undecided, ClaimDecision::MayRun);
    // It is caught up for an hour.
    assert_eq!(explained("", None), waits);
    assert_eq!(explained("", Some(at("03:30:01"))), waits);
    assert_eq!(explained("", Some(at("03:30:00"))), may_run);
    let strict = "    catch_up: none\n    start_deadline: 40m\n";
    assert_eq!(explained(strict, Some(at("03:10:01"))), waits);
    assert_eq!(explained(strict, Some(at("03:10:00"))), may_run);
}

#[test]
fn what_was_decided_without_a_record_that_is_kept() {
    let found = at_half_past(&facts(""));
    assert_eq!(found.answer, ExplainAnswer::NotRecorded);
    says(
        &found,
        "the history keeps 100 records of each job, and the history is empty",
    );
}

#[test]
fn what_is_not_decided_yet() {
    let mut facts = facts("");
    facts.report.last = Some(at("02:29:00"));
    facts.now = at("02:31:00");
    let found = at_half_past(&facts);
    assert_eq!(found.answer, ExplainAnswer::Undecided);
    says(&found, "hosts may claim it until 2026-03-02T02:35:00Z");
    facts.now = at("02:50:00");
    says(
        &at_half_past(&facts),
        "hosts catch it up until 2026-03-02T03:30:00Z",
    );
    facts.now = at("04:00:00");
    says(&at_half_past(&facts), "hosts record it as missed");
    facts.hosts.clear();
    let found = at_half_past(&facts);
    assert_eq!(found.answer, ExplainAnswer::NoHost);
    says(&found, "no daemon is up");
}

#[test]
fn the_future_names_who_may_run_it_and_what_is_in_the_way() {
    let mut facts = facts("");
    let tomorrow = at("02:30:00").plus(Duration::from_secs(86_400));
    let found = explain(&facts, tomorrow);
    assert_eq!(found.answer, ExplainAnswer::Future);
    says(&found, "will run at 2026-03-03T02:30:00Z on one of 2 hosts");
    facts.report.open = Some(open(at("02:30:00")));
    let found = explain(&facts, tomorrow);
    says(
        &found,
        "run run-1 of job job on host b holds the lock since",
    );
    says(&found, "the occurrence is skipped (on_overlap)");
    let none = self::facts("    hosts: [elsewhere]\n");
    let found = explain(&none, tomorrow);
    assert_eq!(found.answer, ExplainAnswer::NoHost);
    says(&found, "is not named by `hosts`");
}

#[test]
fn a_job_of_one_host_is_explained_for_that_host() {
    let found = at_half_past(&facts("    lock: { scope: host }\n"));
    says(&found, "this is about host a");
}
