//! G8: whom the defects of another may hold up.

use cronlatch::store::Outcome;

use super::{START, added, broken, index_of_run, lease, plan, span, start, trouble};
use crate::judge::Rule;
use crate::trace::{Foreign, Held, Hindered, Trace};

/// Returns whether the judge blames a host or a job for the run of 20 s, which begins at 24 s.
fn is_held_up(forge: impl FnOnce(&mut Trace)) -> bool {
    let mut plan = plan(|job| job.start_deadline = 10_000);
    plan.lists[0].max_running = Some(1);
    let rules = broken(&plan, |trace| {
        let at = index_of_run(trace, 20_000);
        let late = &mut trace.starts[at];
        (late.begin, late.end) = (START + 24_000, Some(START + 24_100));
        trace.added[at].at = START + 24_102;
        forge(trace);
    });
    rules.contains(&Rule::Radius)
}

#[test]
fn a_healthy_host_starts_a_job_whatever_befalls_another_host() {
    for how in [
        Hindered::Network,
        Hindered::Lossy,
        Hindered::Stopped,
        Hindered::Suspended,
        Hindered::Short,
    ] {
        let befalls = |hosts: std::ops::Range<usize>| {
            is_held_up(|trace| {
                let troubles = hosts.map(|host| trouble(host, 19_000, 24_000, how));
                trace.troubles.extend(troubles);
            })
        };
        assert!(befalls(1..2), "{how:?}");
        assert!(!befalls(0..2), "{how:?}");
    }
    assert!(is_held_up(|trace| trace.clocks[1].ahead = 25_000));
    let both_wrong =
        is_held_up(|trace| (trace.clocks[0].ahead, trace.clocks[1].ahead) = (25_000, 25_000));
    assert!(!both_wrong);
}

#[test]
fn a_healthy_host_starts_a_job_whatever_befalls_another_job() {
    let foreign = |lock: &str| {
        is_held_up(|trace| {
            let (span, deleted) = (span(19_000, 24_000), false);
            let foreign = Foreign { span, deleted };
            trace.foreign.push((lock.to_owned(), foreign));
        })
    };
    assert!(foreign("other"));
    assert!(!foreign("job"));
    let held =
        |lock: &str| is_held_up(|trace| trace.held.push(lease(lock, "token", 19_900, 23_900)));
    assert!(held("other"));
    assert!(!held("job"));
}

#[test]
fn a_host_that_is_full_holds_up_itself_alone() {
    let full = |hosts: std::ops::Range<usize>| {
        is_held_up(|trace| {
            for host in hosts {
                let mut other = start(host, 18_000, 19_000, 23_900);
                (other.job, other.lock) = ("other".to_owned(), format!("other@{host}"));
                trace.starts.push(other);
            }
        })
    };
    assert!(full(0..1));
    assert!(!full(0..2));
}

#[test]
fn others_wait_for_the_lease_of_a_host_whose_network_loses_that_it_has_returned_an_occurrence() {
    let held_up = |run_id: &str, bad: (usize, i64)| {
        is_held_up(|trace| {
            let token = format!("host-0:1:{run_id}:0");
            trace.held.push(lease("job", &token, 20_001, 23_001));
            let freed = lease("job", "", 20_100, 20_100);
            trace.held.push(Held {
                token: None,
                ..freed
            });
            let (host, from) = bad;
            let bad = trouble(host, from, from + 300, Hindered::Lossy);
            trace.troubles.push(bad);
        })
    };
    assert!(!held_up("returned", (0, 20_050)));
    assert!(held_up("returned", (1, 20_050)), "host 0 could tell");
    assert!(held_up("returned", (0, 21_500)), "it had told them");
    let begun = "run-15000-0-15005";
    assert!(held_up(begun, (0, 20_050)), "it was over");
}

#[test]
fn what_was_decided_in_time_was_not_held_up() {
    let decided = |at: i64| {
        let plan = plan(|job| job.start_deadline = 10_000);
        let rules = broken(&plan, |trace| {
            let place = index_of_run(trace, 20_000);
            trace.starts.remove(place);
            trace.added[place] = added(at, 20_000, Outcome::Skipped, "paused by alice@host");
        });
        rules.contains(&Rule::Radius)
    };
    assert!(!decided(22_900));
    assert!(decided(23_100));
}
