//! The judge on forged traces: a true one passes, each excuse forgives what it names and no more.

mod alone;
mod bounds;
mod fleets;
mod locks;
mod radius;
mod reruns;

use cronlatch::config::{CatchUp, OnCrash};
use cronlatch::names::{HostName, JobName, RunId};
use cronlatch::store::{Kind, Outcome, Pause, Record};
use cronlatch::time::Timestamp;

use super::{Rule, judge};
use crate::plan::{Act, HostPlan, JobPlan, ListPlan, NodeAct, Plan, StoreKind, When, host_name};
use crate::trace::{
    Added, ClockStep, Ended, Foreign, Held, Hindered, Life, Ordered, Reloaded, Span, Start, Trace,
    Trouble,
};

const START: i64 = 1_772_712_000_000;

/// A fleet of two hosts with one job, due every five seconds, for a minute.
fn plan(edit: impl FnOnce(&mut JobPlan)) -> Plan {
    let mut job = JobPlan::plain("job", 5_000);
    (job.start_deadline, job.catch_up_window) = (3_000, 5_000);
    edit(&mut job);
    let host = HostPlan {
        offset: 0,
        latency: 1,
    };
    Plan {
        seed: 0,
        start: START,
        store: StoreKind::Redis,
        hosts: vec![host; 2],
        lists: vec![ListPlan {
            jobs: vec![job],
            max_running: None,
            spread: 0,
            drain_timeout: 0,
        }],
        acts: Vec::new(),
        calm: 0,
        end: 60_000,
    }
}

fn start(host: usize, due: i64, begin: i64, end: i64) -> Start {
    Start {
        job: "job".to_owned(),
        lock: "job".to_owned(),
        host,
        run_id: format!("run-{due}-{host}-{begin}"),
        at: Some(START + due),
        attempt: 1,
        fence: Some(u64::try_from(begin).unwrap()),
        begin: START + begin,
        end: Some(START + end),
        ended: Some(Ended::Itself(0)),
    }
}

/// The job is paused from then on.
fn paused(at: i64) -> Ordered {
    Ordered {
        at,
        lock: "job".to_owned(),
        job: "job".to_owned(),
        pauses: vec![Pause {
            asked_at: Timestamp::from_millis(at),
            since: Timestamp::from_millis(at),
            until: None,
            by: "alice@host".to_owned(),
            resumed_by: None,
            reason: String::new(),
        }],
    }
}

fn added(at: i64, due: i64, outcome: Outcome, reason: &str) -> Added {
    let record = Record {
        scheduled_at: Some(Timestamp::from_millis(START + due)),
        reason: Some(reason.to_owned()),
        ..Record::blank(JobName::parse("job").unwrap(), Kind::Schedule, outcome)
    };
    Added {
        at: START + at,
        lock: "job".to_owned(),
        record,
        ballot: None,
        lost: false,
        replaced: false,
    }
}

fn verdict(run: &Start, outcome: Outcome) -> Added {
    let end = run.end.unwrap() - START;
    let mut added = added(end + 2, run.at.unwrap() - START, outcome, "");
    added.record.run_id = Some(RunId::from_text(&run.run_id));
    added.record.attempts = run.attempt;
    added
}

/// A minute in which everything went well.
fn truth() -> Trace {
    let mut trace = Trace {
        clocks: vec![clock_step(0, 0, 0), clock_step(0, 1, 0)],
        ..Trace::default()
    };
    for host in 0..2 {
        trace.lives.push(Life {
            host,
            list: 0,
            from: START,
            until: None,
            drains: None,
            killed: false,
            measured: Some(START),
        });
    }
    for due in (5_000..60_000).step_by(5_000) {
        let run = start(0, due, due + 5, due + 100);
        trace.added.push(verdict(&run, Outcome::Succeeded));
        trace.starts.push(run);
    }
    trace
}

/// The rules that a forged trace breaks.
fn broken(plan: &Plan, forge: impl FnOnce(&mut Trace)) -> Vec<Rule> {
    let mut trace = truth();
    forge(&mut trace);
    let mut rules: Vec<Rule> = judge(plan, &trace).iter().map(|it| it.rule).collect();
    rules.dedup();
    rules
}

/// Returns the index in `trace.starts` of the run that was due then.
fn index_of_run(trace: &Trace, due: i64) -> usize {
    let is_it = |it: &Start| it.at == Some(START + due);
    trace.starts.iter().position(is_it).unwrap()
}

/// The occurrence was not started, for this reason.
fn unstarted(trace: &mut Trace, due: i64, outcome: Outcome, reason: &str) {
    let at = index_of_run(trace, due);
    let run = trace.starts.remove(at);
    let is_its = |it: &&mut Added| {
        let id = it.record.run_id.as_ref();
        id.is_some_and(|id| id.as_str() == run.run_id)
    };
    let record = trace.added.iter_mut().find(is_its).unwrap();
    *record = added(due + 3_050, due, outcome, reason);
}

/// A lock is held under a token.
fn lease(lock: &str, token: &str, from: i64, until: i64) -> Held {
    Held {
        exclusive: true,
        at: START + from,
        lock: lock.to_owned(),
        token: Some(token.to_owned()),
        until: START + until,
    }
}

fn trouble(host: usize, from: i64, until: i64, how: Hindered) -> Trouble {
    let span = Span {
        from: START + from,
        until: START + until,
    };
    Trouble { host, span, how }
}

/// The clock of a host is set to be this far ahead.
fn clock_step(at: i64, host: usize, ahead: i64) -> ClockStep {
    let at = START + at;
    ClockStep { at, host, ahead }
}

fn span(from: i64, until: i64) -> Span {
    trouble(0, from, until, Hindered::Network).span
}

#[test]
fn a_true_trace_passes() {
    assert_eq!(broken(&plan(|_| {}), |_| {}), []);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one lie for each rule")]
fn each_lie_is_caught() {
    let plain = plan(|_| {});
    let caught = |forge: fn(&mut Trace)| broken(&plain, forge);
    let overlap = caught(|trace| {
        let at = index_of_run(trace, 20_000);
        trace.starts[at].end = Some(START + 25_050);
    });
    assert_eq!(overlap, [Rule::Exclusion]);
    let twice = caught(|trace| {
        let again = start(1, 20_000, 20_300, 20_400);
        trace.added.push(verdict(&again, Outcome::Succeeded));
        trace.starts.push(again);
    });
    assert!(twice.contains(&Rule::Once), "{twice:?}");
    let early = caught(|trace| {
        let at = index_of_run(trace, 20_000);
        trace.starts[at].begin = START + 19_990;
    });
    assert_eq!(early, [Rule::Early]);
    let endless = caught(|trace| trace.endless = Some(START + 20_000));
    assert_eq!(endless, [Rule::Endless]);
    let fence = caught(|trace| {
        let at = index_of_run(trace, 20_000);
        trace.starts[at].fence = Some(1);
    });
    assert_eq!(fence, [Rule::Fencing]);
    let silent = caught(|trace| {
        let at = index_of_run(trace, 20_000);
        trace.starts.remove(at);
        trace.added.remove(at);
    });
    assert_eq!(silent, [Rule::Silence, Rule::Radius]);
    let in_time = plan(|job| job.start_deadline = 10_000);
    let held_up = broken(&in_time, |trace| {
        // By the clock of host 1 it is due half a minute later.
        trace.clocks[1].ahead = -30_000;
        let at = index_of_run(trace, 20_000);
        let late = &mut trace.starts[at];
        (late.begin, late.end) = (START + 23_200, Some(START + 23_300));
        trace.added[at].at = START + 23_302;
    });
    assert_eq!(held_up, [Rule::Radius]);
    let missed = caught(|trace| {
        unstarted(trace, 20_000, Outcome::Missed, "nobody was there in time");
    });
    assert_eq!(missed, [Rule::Missed, Rule::Radius]);
    let forged = caught(|trace| {
        let at = index_of_run(trace, 20_000);
        trace.starts[at].ended = Some(Ended::Itself(1));
    });
    assert_eq!(forged, [Rule::Untrue]);
    let foretold = caught(|trace| {
        let at = index_of_run(trace, 20_000);
        trace.starts.remove(at);
        trace.added[at] = added(15_000, 20_000, Outcome::Skipped, "superseded");
    });
    assert!(foretold.contains(&Rule::Foretold), "{foretold:?}");
    let past = caught(|trace| trace.added.push(added(100, -5_000, Outcome::Missed, "")));
    assert_eq!(past, [Rule::DoesNotCount]);
    let rerun = plan(|job| job.on_crash = OnCrash::Rerun { max_reruns: 1 });
    let no_rerun = broken(&rerun, |trace| {
        let at = index_of_run(trace, 20_000);
        trace.starts[at].ended = Some(Ended::WithMachine);
        trace.added[at].record.outcome = Outcome::Interrupted;
    });
    assert_eq!(no_rerun, [Rule::NoRerun]);
    let too_late = broken(&rerun, |trace| {
        let at = index_of_run(trace, 20_000);
        trace.starts[at].ended = Some(Ended::WithMachine);
        trace.added[at].record.outcome = Outcome::Interrupted;
        let token = format!("host-0:1:{}:0", trace.starts[at].run_id);
        let (lock, until) = ("job".to_owned(), START + 23_000);
        trace.held.push(Held {
            at: START + 20_000,
            lock,
            token: Some(token),
            until,
            exclusive: true,
        });
        let mut again = start(1, 20_000, 28_500, 28_600);
        (again.attempt, again.fence) = (2, Some(28_500));
        trace.added.push(verdict(&again, Outcome::Succeeded));
        trace.starts.push(again);
    });
    assert!(too_late.contains(&Rule::RerunWindow), "{too_late:?}");
    let order = caught(|trace| {
        let (first, second) = (index_of_run(trace, 20_000), index_of_run(trace, 25_000));
        trace.starts[first].begin = START + 26_000;
        trace.starts[first].end = Some(START + 26_100);
        trace.starts[first].fence = Some(26_000);
        trace.added[first].at = START + 26_102;
        assert!(trace.starts[second].begin < START + 26_000);
    });
    assert!(order.contains(&Rule::Order), "{order:?}");
    let progress = caught(|trace| {
        let at = index_of_run(trace, 20_000);
        trace.starts[at].ended = Some(Ended::WithMachine);
        trace.added[at].record.outcome = Outcome::Interrupted;
        let token = format!("host-0:1:{}:0", trace.starts[at].run_id);
        for at in [20_000, 28_000] {
            trace.held.push(lease("job", &token, at, at + 3_000));
        }
    });
    assert!(progress.contains(&Rule::Progress), "{progress:?}");
    let for_long = caught(|trace| {
        let at = index_of_run(trace, 20_000);
        trace.starts[at].ended = Some(Ended::WithMachine);
        trace.added[at].record.outcome = Outcome::Interrupted;
        let token = format!("host-0:1:{}:0", trace.starts[at].run_id);
        trace.held.push(lease("job", &token, 20_000, 24_000));
    });
    assert_eq!(for_long, [Rule::Progress]);
    let trespass = caught(|trace| trace.trespasses.push((START + 20_000, "job".to_owned())));
    assert_eq!(trespass, [Rule::OwnLock]);
    let refused = caught(|trace| trace.refused.push((START + 20_000, "job".to_owned())));
    assert_eq!(refused, [Rule::TakesNoLock]);
    let mut two = plan(|_| {});
    two.lists[0].max_running = Some(1);
    let too_many = broken(&two, |trace| {
        let mut other = start(0, 18_000, 19_000, 20_050);
        (other.job, other.lock) = ("other".to_owned(), "other".to_owned());
        trace.starts.insert(0, other);
    });
    assert_eq!(too_many, [Rule::MaxRunning]);
    let none = plan(|job| job.catch_up = CatchUp::None);
    let caught_up = broken(&none, |trace| {
        for life in &mut trace.lives {
            life.from = START + 22_000;
        }
        trace.lives.extend((0..2).map(|host| Life {
            host,
            list: 0,
            from: START,
            until: Some(START + 16_000),
            drains: None,
            killed: false,
            measured: Some(START),
        }));
        trace.lives.sort_by_key(|life| life.from);
        let at = index_of_run(trace, 20_000);
        (trace.starts[at].begin, trace.starts[at].end) = (START + 22_050, Some(START + 22_100));
    });
    assert_eq!(caught_up, [Rule::CatchUp]);
    let two = caught(|trace| {
        let again = verdict(
            &trace.starts[index_of_run(trace, 20_000)].clone(),
            Outcome::Interrupted,
        );
        trace.added.push(again);
    });
    assert_eq!(two, [Rule::TwoVerdicts]);
    let interrupted_and_missed = caught(|trace| {
        let at = index_of_run(trace, 20_000);
        let run = trace.starts.remove(at);
        let why = "its start deadline had passed";
        trace.added[at] = verdict(&run, Outcome::Interrupted);
        (trace.added).push(added(23_050, 20_000, Outcome::Missed, why));
    });
    assert!(
        interrupted_and_missed.contains(&Rule::TwoVerdicts),
        "{interrupted_and_missed:?}"
    );
    let miscounted = caught(|trace| {
        let at = index_of_run(trace, 20_000);
        trace.added[at].record.attempts = 2;
    });
    assert_eq!(miscounted, [Rule::Attempts]);
    let started = caught(|trace| {
        let at = index_of_run(trace, 20_000);
        let begin = trace.starts[at].begin;
        trace.ordered.push(paused(begin - 3_000));
    });
    assert_eq!(started, [Rule::Paused]);
    let unfounded = caught(|trace| {
        unstarted(trace, 20_000, Outcome::Skipped, "paused by alice@host");
    });
    assert!(unfounded.contains(&Rule::Reason), "{unfounded:?}");
    let reason = caught(|trace| {
        unstarted(
            trace,
            20_000,
            Outcome::Skipped,
            "overlap: the lock was held",
        );
    });
    assert!(reason.contains(&Rule::Reason), "{reason:?}");
}

#[test]
fn a_suspended_machine_may_end_its_jobs_when_it_wakes_and_not_later() {
    let ended_at = |end: i64, how: Hindered| {
        broken(&plan(|_| {}), |trace| {
            let at = index_of_run(trace, 20_000);
            trace.starts[at].end = Some(START + end);
            trace.troubles.push(trouble(0, 20_010, 40_000, how));
            for later in &mut trace.starts[at + 1..] {
                later.host = 1;
            }
        })
    };
    assert!(!ended_at(40_010, Hindered::Suspended).contains(&Rule::Exclusion));
    assert!(ended_at(41_000, Hindered::Suspended).contains(&Rule::Exclusion));
    assert!(ended_at(40_010, Hindered::Stopped).contains(&Rule::Exclusion));
}

#[test]
fn a_run_without_the_store_is_excused_once_a_host_and_while_the_store_is_away() {
    let job = plan(|job| job.on_store_down = cronlatch::config::OnStoreDown::Run);
    let alone = |away: Option<Span>, times: i64| {
        broken(&job, |trace| {
            trace.outages.extend(away);
            for time in 0..times {
                let begin = 20_200 + time * 300;
                let mut run = start(1, 20_000, begin, begin + 50);
                run.fence = None;
                trace.added.push(verdict(&run, Outcome::Succeeded));
                trace.starts.push(run);
            }
        })
    };
    assert!(!alone(Some(span(19_900, 21_000)), 1).contains(&Rule::Once));
    assert!(alone(Some(span(19_900, 21_000)), 2).contains(&Rule::Once));
    assert!(alone(None, 1).contains(&Rule::Once));
}

#[test]
fn nobody_but_its_host_knows_of_a_run_without_the_store_before_that_is_told() {
    let job = plan(|job| job.on_store_down = cronlatch::config::OnStoreDown::Run);
    let skipped = |at: i64, by: usize, died: Option<i64>, kind: Kind| {
        skipped_in_company(&job, (at, by, died), kind, true)
    };
    let plain = Kind::Schedule;
    for rule in [Rule::Untrue, Rule::TwoVerdicts] {
        assert!(!skipped(22_900, 0, None, plain).contains(&rule));
        assert!(skipped(23_100, 0, None, plain).contains(&rule));
    }
    assert!(skipped(22_900, 1, None, plain).contains(&Rule::Untrue));
    assert!(!skipped(22_900, 1, Some(22_000), plain).contains(&Rule::Untrue));
    assert!(
        !skipped(21_050, 1, None, plain).contains(&Rule::Untrue),
        "its claim was late"
    );
    for kind in [Kind::Queue, Kind::CatchUp] {
        assert!(!skipped(22_900, 1, None, kind).contains(&Rule::Untrue));
        assert!(skipped(23_100, 1, None, kind).contains(&Rule::Untrue));
    }
    let by_itself = |kind| skipped_in_company(&job, (22_900, 1, None), kind, false);
    assert!(by_itself(Kind::CatchUp).contains(&Rule::Untrue));
}

/// A run of host 1 without the store is recorded as skipped, then, by that host. Host 0 is there or not.
fn skipped_in_company(
    job: &Plan,
    (at, by, died): (i64, usize, Option<i64>),
    kind: Kind,
    in_company: bool,
) -> Vec<Rule> {
    broken(job, |trace| {
        if !in_company {
            trace.lives[0].until = Some(START + 19_000);
        }
        trace.outages.push(span(19_900, 21_000));
        trace.lives[1].until = died.map(|at| START + at);
        unstarted(
            trace,
            20_000,
            Outcome::Skipped,
            "overlap: the lock was held",
        );
        let place = trace.added.iter().position(|it| it.record.run_id.is_none());
        let record = &mut trace.added[place.unwrap()];
        record.at = START + at;
        record.record.host = Some(HostName::parse(&host_name(by)).unwrap());
        record.record.kind = kind;
        let mut run = start(1, 20_000, 20_200, 23_000);
        run.fence = None;
        trace.added.push(verdict(&run, Outcome::Succeeded));
        trace.starts.push(run);
    })
}

#[test]
fn a_run_by_the_wall_clock_is_excused_only_while_the_host_has_measured_nothing() {
    let job = plan(|job| job.on_store_down = cronlatch::config::OnStoreDown::Run);
    let early = |measured: Option<i64>, fence: Option<u64>| by_clock(&job, 25_000, measured, fence);
    assert!(!early(None, None).contains(&Rule::Foretold));
    assert!(!early(Some(21_000), None).contains(&Rule::Foretold));
    assert!(early(Some(20_000), None).contains(&Rule::Foretold));
    assert!(early(None, Some(1)).contains(&Rule::Foretold));
    let right = by_clock(&job, 19_000, None, None);
    assert!(
        right.contains(&Rule::Foretold),
        "not due by its clock, either"
    );
}

/// Host 1, whose clock is ahead, runs what is due at 40 s at 20 s, without the store.
fn by_clock(job: &Plan, ahead: i64, measured: Option<i64>, fence: Option<u64>) -> Vec<Rule> {
    broken(job, |trace| {
        trace.clocks[1].ahead = ahead;
        trace.outages.push(span(10_000, 25_000));
        trace.lives[1].measured = measured.map(|at| START + at);
        let mut run = start(1, 40_000, 20_200, 20_300);
        run.fence = fence;
        trace.added.push(verdict(&run, Outcome::Succeeded));
        trace.starts.push(run);
    })
}

#[test]
fn only_a_fresh_attempt_of_a_dead_host_may_be_uncounted() {
    let lags = |lived: i64| {
        broken(&plan(|_| {}), |trace| {
            let at = index_of_run(trace, 55_000);
            let end = Some(START + 55_005 + lived);
            let run = &mut trace.starts[at];
            (run.attempt, run.end, run.ended) = (2, end, Some(Ended::WithMachine));
            trace.added[at].record.outcome = Outcome::Interrupted;
        })
    };
    assert!(!lags(500).contains(&Rule::Attempts));
    assert!(lags(4_000).contains(&Rule::Attempts));
}

#[test]
fn a_miss_is_excused_while_others_hold_the_lock_and_not_when_it_was_free() {
    let busy = |until: i64, exclusive: bool| {
        broken(&plan(|_| {}), |trace| {
            unstarted(
                trace,
                20_000,
                Outcome::Missed,
                "its start deadline had passed",
            );
            trace.held.push(Held {
                exclusive,
                at: START + 19_900,
                lock: "job".to_owned(),
                token: Some("host-1:1:other:0".to_owned()),
                until: START + until,
            });
        })
    };
    assert!(!busy(23_100, true).contains(&Rule::Missed));
    assert!(busy(21_000, true).contains(&Rule::Missed));
    assert!(busy(23_100, false).contains(&Rule::Missed));
}

fn missed_beside_a_foreign_key(from: i64, until: i64, deleted: bool) -> bool {
    missed_beside_foreign_keys(&[(from, until, deleted)])
}

/// The occurrence of 20 s is missed; other programs have the lock's key meanwhile.
fn missed_beside_foreign_keys(keys: &[(i64, i64, bool)]) -> bool {
    let plan = plan(|job| job.start_deadline = 10_000);
    let rules = broken(&plan, |trace| {
        let why = "its start deadline had passed";
        unstarted(trace, 20_000, Outcome::Missed, why);
        let record = trace.added.iter_mut().find(|it| it.record.run_id.is_none());
        record.unwrap().at = START + 30_050;
        for (from, until, deleted) in keys {
            let span = span(*from, *until);
            let deleted = *deleted;
            let foreign = Foreign { span, deleted };
            trace.foreign.push(("job".to_owned(), foreign));
        }
    });
    rules.contains(&Rule::Missed)
}

#[test]
fn another_programs_key_keeps_everybody_out_while_it_is_there_and_no_longer() {
    assert!(!missed_beside_a_foreign_key(19_900, 30_000, false));
    assert!(missed_beside_a_foreign_key(19_900, 25_000, false));
}

#[test]
fn a_deadline_may_pass_before_anybody_notices_that_a_key_was_deleted() {
    assert!(!missed_beside_a_foreign_key(19_900, 25_000, true));
    assert!(missed_beside_a_foreign_key(19_900, 22_000, true));
}

#[test]
fn a_deadline_may_pass_before_anybody_notices_that_a_key_was_written_over() {
    let missed = |second: (i64, i64)| {
        let keys = [(19_900, 22_000, false), (second.0, second.1, false)];
        missed_beside_foreign_keys(&keys)
    };
    assert!(!missed((22_000, 25_000)));
    assert!(missed((22_050, 25_000)), "nobody wrote over a key");
    assert!(missed((22_000, 28_000)), "hosts have seen it");
}

#[test]
fn a_host_that_cannot_start_processes_misses_and_its_pause_may_last_as_long_again() {
    let missed = |from: i64, until: i64, hosts: std::ops::Range<usize>| {
        broken(&plan(|_| {}), |trace| {
            let why = "its start deadline had passed";
            unstarted(trace, 50_000, Outcome::Missed, why);
            let short = |host| trouble(host, from, until, Hindered::Short);
            trace.troubles.extend(hosts.map(short));
        })
    };
    // From 30 s on; 4 s more than twice as long is too long.
    assert!(!missed(30_000, 38_000, 0..2).contains(&Rule::Missed));
    assert!(missed(30_000, 38_000, 0..1).contains(&Rule::Missed));
    assert!(missed(30_000, 35_000, 0..2).contains(&Rule::Missed));
}

#[test]
fn a_host_in_a_pause_does_not_notice_that_it_could_start_processes() {
    let missed = |second: i64| {
        broken(&plan(|_| {}), |trace| {
            let why = "its start deadline had passed";
            unstarted(trace, 45_000, Outcome::Missed, why);
            for host in 0..2 {
                for from in [10_000, second] {
                    let short = trouble(host, from, from + 8_000, Hindered::Short);
                    trace.troubles.push(short);
                }
            }
        })
    };
    // 8 s each, with a gap of 2 s: 18 s in all, and as long again.
    assert!(!missed(20_000).contains(&Rule::Missed));
    // The first pause was over.
    assert!(missed(5_000).contains(&Rule::Missed));
}

#[test]
fn hosts_that_share_a_file_may_hear_too_late_that_an_occurrence_was_given_back() {
    let missed = |store: StoreKind, deadline: i64, from: i64| {
        let plan = Plan {
            store,
            ..plan(|job| job.start_deadline = deadline)
        };
        broken(&plan, |trace| {
            let why = "its start deadline had passed";
            unstarted(trace, 20_000, Outcome::Missed, why);
            let short = trouble(0, from, 21_000, Hindered::Short);
            trace.troubles.push(short);
        })
    };
    let file = StoreKind::Sqlite;
    assert!(!missed(file, 1_000, 19_000).contains(&Rule::Missed));
    assert!(missed(file, 3_000, 19_000).contains(&Rule::Missed));
    assert!(missed(file, 1_000, 20_500).contains(&Rule::Missed));
    assert!(missed(StoreKind::Redis, 1_000, 19_000).contains(&Rule::Missed));
}

#[test]
fn a_miss_is_excused_while_a_host_with_another_lock_counts_as_live_and_not_afterwards() {
    let mut changed = plan(|_| {});
    let mut list = changed.lists[0].clone();
    list.jobs[0].lock = Some("other".to_owned());
    changed.lists.push(list);
    let miss = |died: i64, list: usize| {
        broken(&changed, |trace| {
            trace.lives[1].list = list;
            trace.lives[0].until = Some(START + died);
            trace.lives[0].killed = true;
            let reason = "its start deadline had passed";
            unstarted(trace, 50_000, Outcome::Missed, reason);
        })
    };
    // Host 0 dies with the old list; for half a minute nobody can tell.
    assert!(!miss(30_000, 1).contains(&Rule::Missed));
    assert!(miss(10_000, 1).contains(&Rule::Missed));
    assert!(miss(17_000, 1).contains(&Rule::Missed), "there was time");
    assert!(miss(30_000, 0).contains(&Rule::Missed), "the lists agree");
}

#[test]
fn a_miss_is_excused_while_a_run_goes_on_under_the_lock_of_the_list_before_and_not_afterwards() {
    let mut changed = plan(|_| {});
    let mut list = changed.lists[0].clone();
    list.jobs[0].lock = Some("other".to_owned());
    changed.lists.push(list);
    let miss = |ends: i64| {
        broken(&changed, |trace| {
            trace.reloads = (0..2)
                .map(|life| Reloaded {
                    at: START + 41_000,
                    life,
                    list: 1,
                })
                .collect();
            let reason = "its start deadline had passed";
            unstarted(trace, 50_000, Outcome::Missed, reason);
            let long = index_of_run(trace, 40_000);
            trace.starts[long].end = Some(START + ends);
        })
    };
    assert!(!miss(52_000).contains(&Rule::Missed));
    assert!(miss(45_000).contains(&Rule::Missed), "there was time");
}

#[test]
fn a_host_that_drains_while_it_is_cut_off_counts_as_live_as_one_that_died() {
    let mut changed = plan(|_| {});
    let mut list = changed.lists[0].clone();
    list.jobs[0].lock = Some("other".to_owned());
    changed.lists.push(list);
    let miss = |cut_until: i64, how: Hindered| {
        broken(&changed, |trace| {
            trace.lives[1].list = 1;
            trace.lives[0].until = Some(START + 30_000);
            trace.troubles.push(trouble(0, 25_000, cut_until, how));
            let reason = "its start deadline had passed";
            unstarted(trace, 50_000, Outcome::Missed, reason);
        })
        .contains(&Rule::Missed)
    };
    assert!(!miss(31_000, Hindered::Network));
    assert!(miss(29_000, Hindered::Network), "it has told the store");
    assert!(miss(31_000, Hindered::Short));
    // What it tells as it ends may get lost until its network is good again.
    assert!(!miss(50_000, Hindered::Lossy));
    assert!(miss(47_000, Hindered::Lossy), "there was time");
}

#[test]
fn a_host_that_is_hindered_as_it_starts_counts_as_having_its_list_before() {
    let mut changed = plan(|_| {});
    let mut list = changed.lists[0].clone();
    list.jobs[0].lock = Some("other".to_owned());
    changed.lists.push(list);
    let miss = |again: i64, stopped: Option<(i64, i64)>| {
        broken(&changed, |trace| {
            trace.lives[1].list = 1;
            trace.lives[0].until = Some(START + 9_000);
            trace.lives.push(Life {
                from: START + again,
                until: None,
                list: 1,
                ..trace.lives[0]
            });
            let stopped = stopped.map(|(from, until)| trouble(0, from, until, Hindered::Stopped));
            trace.troubles.extend(stopped);
            let reason = "its start deadline had passed";
            unstarted(trace, 50_000, Outcome::Missed, reason);
        })
        .contains(&Rule::Missed)
    };
    assert!(!miss(30_000, Some((30_010, 58_000))));
    assert!(miss(30_000, Some((30_010, 46_000))), "it has told");
    assert!(miss(12_000, Some((12_010, 58_000))), "it no longer lives");
    assert!(miss(30_000, None));
}

#[test]
fn a_host_with_a_ledger_of_its_own_is_held_back_while_another_has_the_job_for_the_fleet() {
    let mut changed = plan(|_| {});
    let mut list = changed.lists[0].clone();
    list.jobs[0].scope = cronlatch::config::Scope::Host;
    changed.lists.push(list);
    let miss = |died: i64| {
        broken(&changed, |trace| {
            trace.lives[1].list = 1;
            trace.lives[0].until = Some(START + died);
            trace.lives[0].killed = true;
            trace.starts.retain(|it| it.begin < START + 10_000);
            trace.added.retain(|it| it.at < START + 10_000);
            let reason = "its start deadline had passed";
            let mut missed = added(53_050, 50_000, Outcome::Missed, reason);
            missed.lock = "job@host-1".to_owned();
            trace.added.push(missed);
        })
    };
    assert!(!miss(30_000).contains(&Rule::Missed));
    assert!(miss(10_000).contains(&Rule::Missed));
}

#[test]
fn what_was_decided_under_the_other_lock_while_a_host_was_held_back_has_its_verdict_there() {
    let mut changed = plan(|_| {});
    let mut list = changed.lists[0].clone();
    list.jobs[0].scope = cronlatch::config::Scope::Host;
    changed.lists.push(list);
    let silent = |decided: bool| {
        broken(&changed, |trace| {
            trace.lives[1].list = 1;
            trace.lives[0].until = Some(START + 30_500);
            // Host 1 has a ledger of its own once host 0 is gone.
            trace.starts.retain(|it| it.at < Some(START + 35_000));
            let late = |it: &Added| it.record.scheduled_at.unwrap().millis() >= START + 35_000;
            trace.added.retain(|it| !late(it));
            for due in (35_000..60_000).step_by(5_000) {
                let mut run = start(1, due, due + 5, due + 100);
                run.lock = "job@host-1".to_owned();
                let mut record = verdict(&run, Outcome::Succeeded);
                record.lock = "job@host-1".to_owned();
                trace.added.push(record);
                trace.starts.push(run);
            }
            if !decided {
                let at = index_of_run(trace, 30_000);
                trace.starts.remove(at);
                trace.added.remove(at);
            }
        })
    };
    assert!(!silent(true).contains(&Rule::Silence));
    assert!(silent(false).contains(&Rule::Silence));
}

#[test]
fn what_waits_in_a_ledger_that_no_host_shares_any_more_is_decided_by_one_that_could() {
    let silent_every = |every: i64, forge: &dyn Fn(&mut Trace)| {
        let mut changed = plan(|_| {});
        for every in [every, 10_000] {
            let mut list = changed.lists[0].clone();
            list.jobs[0].scope = cronlatch::config::Scope::Host;
            list.jobs[0].when = When::Every(every);
            changed.lists.push(list);
        }
        broken(&changed, |trace| {
            // From 32 s on each host has a ledger of its own.
            let reloads = (0..2).map(|life| Reloaded {
                at: START + 32_000,
                life,
                list: 1,
            });
            trace.reloads.extend(reloads);
            trace.starts.retain(|it| it.at < Some(START + 30_000));
            let late = |it: &Added| it.record.scheduled_at.unwrap().millis() >= START + 30_000;
            trace.added.retain(|it| !late(it));
            for (host, due) in (0..2).flat_map(|host| (35..60).step_by(5).map(move |s| (host, s))) {
                let mut run = start(host, due * 1_000, due * 1_000 + 5, due * 1_000 + 100);
                run.lock = format!("job@host-{host}");
                let mut record = verdict(&run, Outcome::Succeeded);
                record.lock.clone_from(&run.lock);
                trace.added.push(record);
                trace.starts.push(run);
            }
            forge(trace);
        })
        .contains(&Rule::Silence)
    };
    let silent = |forge: &dyn Fn(&mut Trace)| silent_every(5_000, forge);
    assert!(silent(&|_| {}));
    assert!(!silent_every(10_000, &|_| {}), "on another schedule");
    // From then on the job is on another schedule.
    let changed_at = |at: i64| {
        silent(&move |trace: &mut Trace| {
            let reloads = (0..2).map(|life| Reloaded {
                at: START + at,
                life,
                list: 2,
            });
            trace.reloads.extend(reloads);
        })
    };
    assert!(changed_at(55_000));
    assert!(!changed_at(41_000), "before they had to decide it");
    let by_heir = |at: i64| {
        silent(&move |trace: &mut Trace| {
            let mut record = added(at, 30_000, Outcome::Missed, "its start deadline had passed");
            record.lock = "job@host-1".to_owned();
            trace.added.push(record);
        })
    };
    assert!(!by_heir(36_000));
    let cut = |hosts: usize| {
        silent(&move |trace: &mut Trace| {
            let cut = (0..hosts).map(|host| trouble(host, 37_000, 60_000, Hindered::Network));
            trace.troubles.extend(cut);
        })
    };
    assert!(cut(1), "host 1 could");
    assert!(!cut(2));
}

/// The occurrence of 20 s is missed, while hosts run another job: which, from when until when, and with
/// which attempt of one run.
fn missed_beside_runs(max_running: usize, runs: &[(usize, i64, i64, u32)]) -> bool {
    let mut full = plan(|_| {});
    full.lists[0].max_running = Some(max_running);
    let rules = broken(&full, |trace| {
        let why = "its start deadline had passed";
        unstarted(trace, 20_000, Outcome::Missed, why);
        for (host, begin, end, attempt) in runs {
            let mut other = start(*host, 18_000, *begin, *end);
            (other.job, other.lock) = ("other".to_owned(), format!("other@{host}"));
            (other.run_id, other.attempt) = (format!("other-{host}-{attempt}"), *attempt);
            if *attempt == 2 {
                other.run_id = format!("other-{host}-1");
            }
            trace.starts.push(other);
        }
    });
    rules.contains(&Rule::Missed)
}

#[test]
fn a_miss_is_excused_while_every_host_is_full_and_not_while_one_could_have_run_it() {
    let whole = |host| (host, 19_000, 23_200, 1);
    assert!(!missed_beside_runs(1, &[whole(0), whole(1)]));
    assert!(missed_beside_runs(1, &[whole(0)]), "host 1 has a place");
    assert!(missed_beside_runs(1, &[whole(0), (1, 19_000, 20_500, 1)]));
    assert!(missed_beside_runs(2, &[whole(0), whole(1)]));
    let pause = |until: i64| {
        let other = [(1, 18_000, 20_500, 1), (1, until, 23_200, 7)];
        missed_beside_runs(1, &[whole(0), other[0], other[1]])
    };
    assert!(!pause(21_900), "claims had the place");
    assert!(pause(22_100));
}

#[test]
fn what_only_a_full_host_has_on_its_schedule_may_be_missed_unless_it_has_waited() {
    let missed = |every: i64, kind: Kind| {
        let mut full = plan(|_| {});
        full.lists[0].max_running = Some(1);
        let mut other = full.lists[0].clone();
        other.jobs[0].when = When::Every(every);
        full.lists.push(other);
        broken(&full, |trace| {
            let why = "its start deadline had passed";
            unstarted(trace, 20_000, Outcome::Missed, why);
            trace.lives[1].list = 1;
            let record = trace.added.iter_mut().find(|it| it.record.run_id.is_none());
            record.unwrap().record.kind = kind;
            let mut other = start(0, 18_000, 19_000, 23_200);
            (other.job, other.lock) = ("other".to_owned(), "other@0".to_owned());
            trace.starts.push(other);
        })
        .contains(&Rule::Missed)
    };
    assert!(!missed(3_000, Kind::Schedule));
    assert!(missed(4_000, Kind::Schedule), "host 1 has it, too");
    assert!(missed(3_000, Kind::Queue), "the ledger names it to all");
}

#[test]
fn without_catch_up_a_host_that_has_come_since_starts_nothing_that_came_due_before() {
    let missed = |catch_up: CatchUp, came: i64, kind: Kind| {
        let mut full = plan(|job| (job.start_deadline, job.catch_up) = (30_000, catch_up));
        full.lists[0].max_running = Some(1);
        broken(&full, |trace| {
            unstarted(trace, 20_000, Outcome::Missed, "a newer one was claimed");
            for added in &mut trace.added {
                if added.record.outcome == Outcome::Missed {
                    (added.at, added.record.kind) = (START + 30_000, kind);
                }
            }
            trace.lives[1].from = START + came;
            let mut other = start(0, 18_000, 18_000, 31_000);
            (other.job, other.lock) = ("other".to_owned(), "other".to_owned());
            trace.starts.push(other);
        })
        .contains(&Rule::Missed)
    };
    let plain = Kind::Schedule;
    assert!(!missed(CatchUp::None, 21_000, plain));
    assert!(missed(CatchUp::Latest, 21_000, plain));
    assert!(missed(CatchUp::None, 15_000, plain), "it was there");
    let waited = missed(CatchUp::None, 21_000, Kind::Queue);
    assert!(waited, "the ledger names it to all");
}

#[test]
fn a_host_is_full_until_the_deadline_or_the_lock_is_held_until_then() {
    let missed = |full: i64, held: (i64, i64)| {
        let mut plan = plan(|_| {});
        plan.lists[0].max_running = Some(1);
        broken(&plan, |trace| {
            let why = "its start deadline had passed";
            unstarted(trace, 20_000, Outcome::Missed, why);
            for host in 0..2 {
                let mut other = start(host, 18_000, 19_000, full);
                (other.job, other.lock) = ("other".to_owned(), format!("other@{host}"));
                trace.starts.push(other);
            }
            trace.held.push(Held {
                exclusive: true,
                at: START + held.0,
                lock: "job".to_owned(),
                token: Some("host-1:1:other:0".to_owned()),
                until: START + held.1,
            });
        })
        .contains(&Rule::Missed)
    };
    assert!(!missed(21_500, (21_000, 23_100)));
    assert!(missed(20_100, (22_000, 23_100)), "there was time");
}

#[test]
fn a_run_has_its_place_until_its_last_attempt() {
    let attempts = |second: u32| {
        let of = |host: usize| [(host, 18_000, 19_900, 1), (host, 22_900, 23_200, second)];
        let runs: Vec<_> = (0..2).flat_map(of).collect();
        missed_beside_runs(1, &runs)
    };
    assert!(!attempts(2));
    assert!(attempts(7), "another run");
}

#[test]
fn a_run_that_waits_for_its_next_attempt_has_its_place_until_it_is_given_up() {
    let missed = |tries: u32, given_up: i64| {
        let mut full = plan(|_| {});
        let mut other = JobPlan::plain("other", 60_000);
        other.retry = Some((tries, 1_000));
        full.lists[0].jobs.push(other);
        full.lists[0].max_running = Some(1);
        broken(&full, |trace| {
            let why = "its start deadline had passed";
            unstarted(trace, 20_000, Outcome::Missed, why);
            for host in 0..2 {
                let mut other = start(host, 18_000, 19_000, 20_500);
                (other.job, other.lock) = ("other".to_owned(), format!("other@{host}"));
                other.ended = Some(Ended::Itself(1));
                let mut record = verdict(&other, Outcome::Failed);
                record.at = START + given_up;
                record.record.job = JobName::parse("other").unwrap();
                trace.added.push(record);
                trace.starts.push(other);
            }
        })
        .contains(&Rule::Missed)
    };
    assert!(!missed(2, 23_200));
    assert!(missed(1, 23_200), "it was its last attempt");
    assert!(missed(2, 21_000));
}

#[test]
fn data_that_were_lost_excuse_silence_near_the_loss_alone() {
    let silent = |due: i64| {
        broken(&plan(|_| {}), |trace| {
            let at = index_of_run(trace, due);
            trace.starts.remove(at);
            trace.added.remove(at);
            trace.losses.push(span(20_000, 24_000));
        })
    };
    assert!(!silent(20_000).contains(&Rule::Silence));
    assert!(silent(40_000).contains(&Rule::Silence));
}

#[test]
fn after_a_loss_what_was_before_may_be_unknown_and_nothing_else() {
    let past = |outcome: Outcome, lost: Option<i64>| {
        broken(&plan(|_| {}), |trace| {
            trace.added.push(added(55_000, -50_000, outcome, ""));
            let lost = lost.map(|from| span(from, from + 4_000));
            trace.losses.extend(lost);
        })
    };
    assert!(!past(Outcome::Unknown, Some(50_000)).contains(&Rule::DoesNotCount));
    assert!(past(Outcome::Unknown, None).contains(&Rule::DoesNotCount));
    assert!(past(Outcome::Missed, Some(50_000)).contains(&Rule::DoesNotCount));
    assert!(past(Outcome::Unknown, Some(55_100)).contains(&Rule::DoesNotCount));
}

#[test]
fn a_result_may_lie_beside_a_range_that_is_unknown_if_the_store_has_lost_the_grant() {
    let two = |until: Option<i64>, recorded: i64, lost: i64| {
        broken(&plan(|_| {}), |trace| {
            let at = index_of_run(trace, 20_000);
            trace.starts.remove(at);
            trace.added.remove(at);
            let at = index_of_run(trace, 15_000);
            let late = &mut trace.starts[at];
            (late.begin, late.end) = (START + 40_008, Some(START + 40_108));
            trace.added[at].at = START + 48_000;
            let mut unknown = added(recorded, 15_000, Outcome::Unknown, "");
            unknown.record.until = until.map(|until| Timestamp::from_millis(START + until));
            trace.added.push(unknown);
            trace.losses.push(span(lost, 47_000));
        })
        .contains(&Rule::TwoVerdicts)
    };
    assert!(!two(Some(20_000), 46_000, 39_000));
    assert!(two(None, 46_000, 39_000), "the result replaces it");
    assert!(two(Some(20_000), 49_000, 39_000), "it was reported before");
    assert!(two(Some(20_000), 46_000, 41_000), "the store knew the run");
}

#[test]
fn a_host_whose_network_loses_messages_may_be_heard_only_when_that_is_over() {
    let wrong = |lossy_until: i64, other_from: i64| {
        let latest = plan(|job| {
            job.when = When::Every(10_000);
            (job.start_deadline, job.catch_up_window) = (30_000, 30_000);
        });
        broken(&latest, |trace| {
            trace.lives[1].from = START + other_from;
            let cut = trouble(0, 7_500, 23_000, Hindered::Network);
            let lossy = trouble(0, 18_000, lossy_until, Hindered::Lossy);
            trace.troubles.extend([cut, lossy]);
            for due in [10_000, 20_000] {
                unstarted(trace, due, Outcome::Missed, "nobody was there in time");
            }
        })
        .contains(&Rule::CatchUp)
    };
    assert!(!wrong(29_000, 50_000), "what comes due at 30 s is newer");
    assert!(wrong(24_000, 50_000), "there was time");
    assert!(wrong(22_000, 50_000), "nothing got lost any more");
    assert!(wrong(29_000, 23_500), "another host was heard");
}

#[test]
fn the_first_of_an_outage_may_run_besides_the_newest_and_not_after_a_pause() {
    let two = |trace: &mut Trace| {
        for due in [25_000, 35_000] {
            let at = index_of_run(trace, due);
            let begin = START + if due == 25_000 { 36_500 } else { 36_700 };
            let run = &mut trace.starts[at];
            (run.begin, run.end) = (begin, Some(begin + 100));
            run.fence = Some(u64::try_from(begin - START).unwrap());
        }
        unstarted(trace, 30_000, Outcome::Missed, "nobody was there in time");
    };
    let latest = plan(|job| (job.start_deadline, job.catch_up_window) = (30_000, 30_000));
    let outage = broken(&latest, |trace| {
        two(trace);
        trace.outages.push(span(21_000, 36_000));
    });
    assert!(!outage.contains(&Rule::CatchUp), "{outage:?}");
    let pause = broken(&latest, |trace| {
        two(trace);
        for host in 0..2 {
            trace
                .troubles
                .push(trouble(host, 21_000, 36_000, Hindered::Stopped));
        }
    });
    assert!(pause.contains(&Rule::CatchUp), "{pause:?}");
}

#[test]
fn a_pause_ends_where_the_ledger_was_resumed_under_the_lock_that_the_job_had_meanwhile() {
    let is_judged_paused = |lock: &str, resumed: Option<i64>| {
        let mut changed = plan(|_| {});
        let mut list = changed.lists[0].clone();
        list.jobs[0].lock = Some("other".to_owned());
        changed.lists.push(list);
        broken(&changed, |trace| {
            for life in 0..2 {
                for (at, list) in [(12_000, 1), (22_000, 0)] {
                    let at = START + at;
                    trace.reloads.push(Reloaded { at, life, list });
                }
            }
            trace.ordered.push(paused(START + 11_000));
            trace.ordered.extend(resumed.map(|at| Ordered {
                lock: lock.to_owned(),
                pauses: Vec::new(),
                ..paused(START + at)
            }));
            for due in [15_000, 20_000] {
                let at = index_of_run(trace, due);
                trace.starts[at].lock = "other".to_owned();
                trace.added[at].lock = "other".to_owned();
            }
        })
        .contains(&Rule::Paused)
    };
    assert!(!is_judged_paused("other", Some(15_000)));
    assert!(is_judged_paused("other", None));
    assert!(is_judged_paused("other", Some(10_000)), "before the pause");
    assert!(
        is_judged_paused("third", Some(15_000)),
        "it was never its lock"
    );
}

#[test]
fn a_host_that_was_started_with_a_wrong_clock_ends_no_time_in_which_nobody_could_act() {
    let wrong = |clocks: &[(i64, i64)]| {
        let latest = plan(|job| {
            job.when = When::Every(10_000);
            (job.start_deadline, job.catch_up_window) = (30_000, 30_000);
        });
        broken(&latest, |trace| {
            // From 8 s to 41 s host 1 alone is up, if any.
            trace.lives[0].until = Some(START + 8_000);
            let again = Life {
                from: START + 41_000,
                until: None,
                ..trace.lives[0]
            };
            trace.lives.push(again);
            trace.lives[1].from = START + 23_000;
            let steps = clocks.iter().map(|(at, ahead)| clock_step(*at, 1, *ahead));
            trace.clocks.extend(steps);
            for due in (10_000..40_000).step_by(5_000) {
                unstarted(trace, due, Outcome::Missed, "nobody was there in time");
            }
            for added in trace
                .added
                .iter_mut()
                .filter(|it| it.record.run_id.is_none())
            {
                added.at = START + 41_200;
            }
        })
        .contains(&Rule::CatchUp)
    };
    assert!(!wrong(&[(22_000, 40_000)]));
    assert!(wrong(&[(22_000, 20_000)]), "it claims");
    assert!(wrong(&[(22_000, 40_000), (24_000, 0)]), "it was corrected");
    assert!(!wrong(&[(22_000, 40_000), (24_000, 900_000)]));
}

#[test]
fn by_a_node_that_is_behind_what_is_newer_may_not_have_been_due_after_an_outage() {
    let wrong = |offset: i64, away: bool| {
        let how = NodeAct::Clock { offset };
        let plan = Plan {
            store: StoreKind::Quorum(3),
            acts: vec![(0, Act::Node { node: 1, how })],
            ..plan(|job| (job.start_deadline, job.catch_up_window) = (30_000, 30_000))
        };
        let rules = broken(&plan, |trace| {
            for (due, begin) in [(30_000, 36_500), (35_000, 36_700)] {
                let at = index_of_run(trace, due);
                let run = &mut trace.starts[at];
                (run.begin, run.end) = (START + begin, Some(START + begin + 100));
                run.fence = Some(u64::try_from(begin).unwrap());
            }
            unstarted(trace, 25_000, Outcome::Missed, "nobody was there in time");
            if away {
                trace.outages.push(span(16_000, 36_000));
            } else {
                let stops = |host| trouble(host, 16_000, 36_000, Hindered::Stopped);
                trace.troubles.extend((0..2).map(stops));
            }
        });
        rules.contains(&Rule::CatchUp)
    };
    assert!(!wrong(-2_500, true));
    assert!(wrong(0, true) && wrong(2_500, true));
    assert!(wrong(-2_500, false), "all nodes are heard");
}

#[test]
fn by_a_node_that_is_behind_a_start_deadline_may_not_have_passed_after_an_outage() {
    let wrong = |offset: i64, (due, begin): (i64, i64)| {
        let how = NodeAct::Clock { offset };
        let plan = Plan {
            store: StoreKind::Quorum(3),
            acts: vec![(0, Act::Node { node: 1, how })],
            ..plan(|job| (job.catch_up, job.catch_up_window) = (CatchUp::None, 30_000))
        };
        let rules = broken(&plan, |trace| {
            let at = index_of_run(trace, due);
            let run = &mut trace.starts[at];
            (run.begin, run.end) = (START + begin, Some(START + begin + 100));
            run.fence = Some(u64::try_from(begin).unwrap());
            trace.outages.push(span(24_000, 36_000));
        });
        rules.contains(&Rule::CatchUp)
    };
    assert!(!wrong(-2_500, (35_000, 40_500)));
    assert!(wrong(0, (35_000, 40_500)) && wrong(2_500, (35_000, 40_500)));
    assert!(wrong(-2_500, (35_000, 40_700)));
    let late = (35_000, 41_100);
    assert!(wrong(-3_500, late), "hosts wait for all nodes again");
    assert!(!wrong(-3_500, (35_000, 40_900)));
}

#[test]
fn what_comes_due_while_results_are_awaited_after_an_outage_of_nodes_is_newer() {
    let caught_up = |store: StoreKind, ttl: i64, away: bool| {
        let seven = |job: &mut JobPlan| {
            (job.start_deadline, job.catch_up_window) = (30_000, 30_000);
            (job.when, job.ttl) = (When::Every(7_000), ttl);
        };
        let plan = Plan {
            store,
            ..plan(seven)
        };
        // It is due at 18, 25 and 32 s.
        let rules = broken(&plan, |trace| {
            unstarted(trace, 25_000, Outcome::Missed, "nobody was there in time");
            let stops = |host| trouble(host, 12_500, 27_000, Hindered::Stopped);
            if away {
                trace.outages.push(span(12_500, 27_000));
            } else {
                trace.troubles.extend((0..2).map(stops));
            }
        });
        !rules.contains(&Rule::CatchUp)
    };
    assert!(caught_up(StoreKind::Quorum(3), 6_000, true));
    assert!(!caught_up(StoreKind::Quorum(3), 3_000, true));
    assert!(!caught_up(StoreKind::Quorum(3), 6_000, false));
    assert!(!caught_up(StoreKind::Redis, 6_000, true));
}

#[test]
fn an_outage_of_several_nodes_is_noticed_later_than_one_of_a_server() {
    let caught_up = |store: StoreKind, away: bool| {
        let plan = Plan {
            store,
            ..plan(|job| (job.start_deadline, job.catch_up_window) = (30_000, 30_000))
        };
        let rules = broken(&plan, |trace| {
            for (due, begin) in [(25_000, 36_500), (30_000, 36_700), (35_000, 36_900)] {
                let at = index_of_run(trace, due);
                let run = &mut trace.starts[at];
                (run.begin, run.end) = (START + begin, Some(START + begin + 100));
                run.fence = Some(u64::try_from(begin).unwrap());
            }
            let stops = |host| trouble(host, 23_500, 36_000, Hindered::Stopped);
            if away {
                trace.outages.push(span(23_500, 36_000));
            } else {
                trace.troubles.extend((0..2).map(stops));
            }
        });
        !rules.contains(&Rule::CatchUp)
    };
    assert!(caught_up(StoreKind::Quorum(3), true));
    assert!(!caught_up(StoreKind::Quorum(3), false));
    assert!(!caught_up(StoreKind::Redis, true));
}

#[test]
fn a_host_may_be_half_a_second_early_by_its_own_clock() {
    let early = |at: i64| {
        broken(&plan(|_| {}), |trace| {
            unstarted(
                trace,
                20_000,
                Outcome::Missed,
                "its start deadline had passed",
            );
            let it = trace.added.iter_mut().find(|it| it.record.run_id.is_none());
            it.unwrap().at = START + at;
        })
    };
    assert!(!early(22_700).contains(&Rule::Reason));
    assert!(early(22_000).contains(&Rule::Reason));
}

#[test]
fn a_host_in_trouble_tells_of_its_run_a_ttl_later() {
    let told = |at: i64, troubled: bool| {
        broken(&plan(|_| {}), |trace| {
            let of = index_of_run(trace, 30_000);
            trace.added[of].at = START + at;
            let cut = trouble(0, 29_900, 30_500, Hindered::Network);
            trace.troubles.extend(troubled.then_some(cut));
        })
    };
    assert!(told(41_000, false).contains(&Rule::Silence));
    assert!(!told(41_000, true).contains(&Rule::Silence));
    assert!(told(52_000, true).contains(&Rule::Silence));
}

/// The runs were those of a job of which each host has a ledger of its own.
fn under_own_lock(trace: &mut Trace) {
    for start in &mut trace.starts {
        start.lock = "job@host-0".to_owned();
    }
    for added in &mut trace.added {
        added.lock = "job@host-0".to_owned();
    }
}

#[test]
fn only_the_newest_run_of_a_job_without_a_lock_is_run_again() {
    use cronlatch::config::{OnCrash, Scope};
    let crashed = |scope: Scope, next: i64| {
        let job = plan(|job| {
            job.scope = scope;
            job.on_crash = OnCrash::Rerun { max_reruns: 3 };
            job.ttl = 3_000;
        });
        broken(&job, |trace| {
            under_own_lock(trace);
            let at = index_of_run(trace, 20_000);
            let run = &mut trace.starts[at];
            (run.end, run.ended) = (Some(START + next), Some(Ended::WithDaemon));
            trace.added[at].record.outcome = Outcome::Interrupted;
        })
    };
    assert!(!crashed(Scope::None, 25_100).contains(&Rule::NoRerun));
    assert!(crashed(Scope::None, 24_000).contains(&Rule::NoRerun));
    assert!(crashed(Scope::Host, 25_100).contains(&Rule::NoRerun));
}

#[test]
fn a_run_without_a_lock_counts_as_going_on_until_its_lease_ends() {
    use cronlatch::config::{OnCrash, Scope};
    let crashed = |lease_end: i64| {
        let job = plan(|job| {
            job.scope = Scope::None;
            job.on_crash = OnCrash::Rerun { max_reruns: 3 };
        });
        broken(&job, |trace| {
            under_own_lock(trace);
            let at = index_of_run(trace, 20_000);
            let run = &mut trace.starts[at];
            (run.end, run.ended) = (Some(START + 20_500), Some(Ended::WithMachine));
            trace.added[at].record.outcome = Outcome::Interrupted;
            trace.held.push(Held {
                exclusive: false,
                at: START + 20_000,
                lock: "job@host-0".to_owned(),
                token: Some(format!("host-0:1:{}:0", run.run_id)),
                until: START + lease_end,
            });
        })
    };
    // The next run begins at 25 s.
    assert!(!crashed(25_500).contains(&Rule::NoRerun));
    assert!(crashed(23_500).contains(&Rule::NoRerun));
}

#[test]
fn a_newer_run_that_was_granted_and_never_began_overtakes_as_well() {
    use cronlatch::config::{OnCrash, Scope};
    let crashed = |granted: i64| {
        let job = plan(|job| {
            job.scope = Scope::None;
            job.on_crash = OnCrash::Rerun { max_reruns: 3 };
        });
        broken(&job, |trace| {
            under_own_lock(trace);
            let at = index_of_run(trace, 20_000);
            let run = &mut trace.starts[at];
            (run.end, run.ended) = (Some(START + 24_000), Some(Ended::WithDaemon));
            trace.added[at].record.outcome = Outcome::Interrupted;
            let mut newer = verdict(&start(0, 24_000, granted, granted), Outcome::Interrupted);
            newer.lock = "job@host-0".to_owned();
            newer.record.started_at = Some(Timestamp::from_millis(START + granted));
            trace.added.push(newer);
        })
    };
    assert!(!crashed(24_050).contains(&Rule::NoRerun));
    assert!(crashed(24_500).contains(&Rule::NoRerun));
}

#[test]
fn of_two_runs_that_begin_at_once_the_one_with_the_higher_fence_is_newer() {
    use cronlatch::config::{OnCrash, Scope};
    let crashed = |is_newer: bool| {
        let job = plan(|job| {
            job.scope = Scope::None;
            job.on_crash = OnCrash::Rerun { max_reruns: 3 };
            job.ttl = 3_000;
        });
        broken(&job, |trace| {
            under_own_lock(trace);
            let (at, other) = (index_of_run(trace, 20_000), index_of_run(trace, 25_000));
            let other = trace.starts[other].clone();
            let fence = other.fence.map(|it| if is_newer { it + 1 } else { it - 1 });
            let run = &mut trace.starts[at];
            (run.begin, run.fence) = (other.begin, fence);
            (run.end, run.ended) = (Some(other.begin + 50), Some(Ended::WithDaemon));
            trace.added[at].record.outcome = Outcome::Interrupted;
        })
    };
    assert!(!crashed(false).contains(&Rule::NoRerun));
    assert!(crashed(true).contains(&Rule::NoRerun));
}

#[test]
fn a_rerun_that_could_not_be_started_is_overtaken_as_well() {
    use cronlatch::config::{OnCrash, Scope};
    use cronlatch::store::protocol::{REASON_INTERRUPTED, REASON_NEWER_RUN};
    let crashed = |hinder: &dyn Fn(&mut Trace), reason: &str| {
        let job = plan(|job| {
            job.scope = Scope::None;
            job.on_crash = OnCrash::Rerun { max_reruns: 3 };
            (job.ttl, job.catch_up_window) = (3_000, 30_000);
        });
        broken(&job, |trace| {
            under_own_lock(trace);
            let at = index_of_run(trace, 20_000);
            let run = &mut trace.starts[at];
            (run.end, run.ended) = (Some(START + 20_500), Some(Ended::WithDaemon));
            trace.added[at].record.outcome = Outcome::Interrupted;
            let mut rerun = verdict(&start(0, 20_000, 23_600, 23_600), Outcome::Interrupted);
            rerun.lock = "job@host-0".to_owned();
            rerun.record.started_at = Some(Timestamp::from_millis(START + 23_600));
            rerun.record.reason = Some(reason.to_owned());
            trace.added.push(rerun);
            hinder(trace);
        })
    };
    let short = |until: i64| {
        move |trace: &mut Trace| {
            (trace.troubles).push(trouble(0, 22_000, until, Hindered::Short));
        }
    };
    assert!(!crashed(&short(24_000), REASON_NEWER_RUN).contains(&Rule::NoRerun));
    assert!(crashed(&short(23_000), REASON_NEWER_RUN).contains(&Rule::NoRerun));
    assert!(crashed(&short(24_000), REASON_INTERRUPTED).contains(&Rule::NoRerun));
    // The daemon dies with the grant of 23.6 s in hand, or later, or another host's dies then.
    let dies = |host: usize, at: i64| {
        move |trace: &mut Trace| {
            trace.lives.push(Life {
                host,
                until: Some(START + at),
                killed: true,
                ..trace.lives[host]
            });
        }
    };
    assert!(!crashed(&dies(0, 23_650), REASON_NEWER_RUN).contains(&Rule::NoRerun));
    assert!(crashed(&dies(0, 24_600), REASON_NEWER_RUN).contains(&Rule::NoRerun));
    assert!(crashed(&dies(1, 23_650), REASON_NEWER_RUN).contains(&Rule::NoRerun));
}

#[test]
fn a_run_without_a_lock_is_overtaken_from_its_first_attempt_on() {
    use cronlatch::config::{OnCrash, Scope};
    // Its second attempt dies; the next run began before that, or there is none.
    let crashed = |second: i64| {
        let job = plan(|job| {
            job.scope = Scope::None;
            job.on_crash = OnCrash::Rerun { max_reruns: 3 };
            job.retry = Some((3, 500));
        });
        broken(&job, |trace| {
            under_own_lock(trace);
            let at = index_of_run(trace, 20_000);
            let mut again = trace.starts[at].clone();
            again.attempt = 2;
            (again.begin, again.end) = (START + second, Some(START + second + 100));
            again.ended = Some(Ended::WithMachine);
            trace.starts.push(again);
            trace.added[at].record.outcome = Outcome::Interrupted;
            trace.added[at].record.attempts = 2;
        })
    };
    assert!(!crashed(27_000).contains(&Rule::NoRerun));
    assert!(crashed(22_000).contains(&Rule::NoRerun));
}

/// An attempt of the run of 20 s fails at 23 s. Its host dies later, and the record counts one more.
fn dies_between_attempts(trace: &mut Trace, died: i64) {
    (trace.lives[0].until, trace.lives[0].killed) = (Some(START + died), true);
    let at = index_of_run(trace, 20_000);
    let failed = &mut trace.starts[at];
    (failed.end, failed.ended) = (Some(START + 23_000), Some(Ended::Itself(1)));
    trace.added[at].record.outcome = Outcome::Interrupted;
    trace.added[at].record.attempts = 2;
}

#[test]
fn an_attempt_may_be_counted_whose_host_died_before_it_could_begin() {
    let miscounts_beside = |died: i64, tries: u32, away: Option<(i64, i64)>| {
        let job = plan(|job| job.retry = Some((tries, 500)));
        let rules = broken(&job, |trace| {
            trace
                .outages
                .extend(away.map(|(from, until)| span(from, until)));
            dies_between_attempts(trace, died);
        });
        rules.contains(&Rule::Attempts)
    };
    let miscounts = |died: i64, tries: u32| miscounts_beside(died, tries, None);
    assert!(!miscounts(23_500, 3));
    assert!(miscounts(30_000, 3));
    assert!(miscounts(23_500, 1));
    let frozen = Some((26_000, 35_000));
    assert!(!miscounts_beside(30_000, 3, frozen));
    assert!(miscounts_beside(36_000, 3, frozen), "it could say so");
    let later = Some((28_000, 35_000));
    assert!(miscounts_beside(30_000, 3, later), "it was counted before");
}

#[test]
fn a_host_that_stood_still_between_two_attempts_may_die_as_it_goes_on() {
    let miscounts = |stopped: usize, how: Hindered, died: i64| {
        let job = plan(|job| job.retry = Some((3, 500)));
        let rules = broken(&job, |trace| {
            trace.troubles.push(trouble(stopped, 23_400, 28_000, how));
            dies_between_attempts(trace, died);
        });
        rules.contains(&Rule::Attempts)
    };
    for how in [Hindered::Suspended, Hindered::Stopped] {
        assert!(!miscounts(0, how, 28_010));
        assert!(miscounts(0, how, 30_010), "it would have begun");
        assert!(miscounts(1, how, 28_010), "another host stood still");
    }
    assert!(miscounts(0, Hindered::Network, 28_010));
}

#[test]
fn an_attempt_that_a_host_could_not_start_has_a_number_and_is_not_counted() {
    // Its attempts 1 and 3 were started.
    let miscounts = |counted: u32, short: bool| {
        let job = plan(|job| job.retry = Some((3, 500)));
        let rules = broken(&job, |trace| {
            let at = index_of_run(trace, 20_000);
            let mut third = trace.starts[at].clone();
            trace.starts[at].ended = Some(Ended::Itself(1));
            third.attempt = 3;
            (third.begin, third.end) = (START + 22_000, Some(START + 22_100));
            trace.starts.push(third);
            trace.added[at].at = START + 22_102;
            trace.added[at].record.attempts = counted;
            let short = short.then(|| trouble(0, 20_500, 21_500, Hindered::Short));
            trace.troubles.extend(short);
        });
        rules.contains(&Rule::Attempts)
    };
    assert!(!miscounts(2, true));
    assert!(miscounts(1, true));
    assert!(miscounts(2, false));
}

#[test]
fn a_run_without_a_lock_that_was_overtaken_counts_the_attempts_until_then() {
    use cronlatch::config::Scope;
    // Due at 20 s; its second attempt begins then, and its daemon dies long after the third.
    let counts = |scope: Scope, dies: bool, second: i64, counted: u32, outcome: Outcome| {
        let job = plan(|job| {
            job.scope = scope;
            job.retry = Some((3, 500));
        });
        broken(&job, |trace| {
            under_own_lock(trace);
            (trace.lives[0].until, trace.lives[0].killed) = (Some(START + 33_000), dies);
            let at = index_of_run(trace, 20_000);
            let mut first = trace.starts[at].clone();
            for (attempt, begin) in [(2, second), (3, 29_000)] {
                first.attempt = attempt;
                (first.begin, first.end) = (START + begin, Some(START + begin + 4_000));
                first.ended = Some(Ended::WithDaemon);
                trace.starts.push(first.clone());
            }
            (
                trace.added[at].record.outcome,
                trace.added[at].record.attempts,
            ) = (outcome, counted);
        })
    };
    let miscounts = |scope, second, counted, outcome| {
        counts(scope, true, second, counted, outcome).contains(&Rule::Attempts)
    };
    let lives = counts(Scope::None, false, 26_000, 1, Outcome::Interrupted);
    assert!(lives.contains(&Rule::Attempts), "its host could report");
    // The next run begins at 25 s.
    assert!(!miscounts(Scope::None, 26_000, 1, Outcome::Interrupted));
    assert!(!miscounts(Scope::None, 21_000, 2, Outcome::Interrupted));
    assert!(miscounts(Scope::None, 21_000, 1, Outcome::Interrupted));
    assert!(miscounts(Scope::None, 26_000, 4, Outcome::Interrupted));
    assert!(miscounts(Scope::None, 26_000, 1, Outcome::Failed));
    assert!(miscounts(Scope::Host, 26_000, 1, Outcome::Interrupted));
}
