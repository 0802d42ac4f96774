//! The fault campaign: a fleet, a seeded order of faults, and a checker that reads what came of it.
//!
//! A short one for each kind of store is part of the tests. A long one by hand:
//!
//! ```text
//! make campaign KIND=redis SECONDS=600 SEED=7
//! ```
//!
//! The first violation is printed with a timeline of what happened around it and the seed that
//! repeats the order of faults.

mod act;
mod aimed;
mod chance;
mod checker;
mod fault;
mod fleet;
mod ground;
mod list;
mod net;
mod plan;
mod story;
mod watch;

#[expect(
    dead_code,
    unused_imports,
    reason = "shared with the other tests, which use more of it"
)]
#[path = "../it/support/mod.rs"]
mod support;

use std::thread;
use std::time::Duration;

use checker::{Span, Suffered};
use fault::Fault;
use fleet::Fleet;
use ground::{Ground, Kind};
use plan::Planned;

/// How long a short campaign makes trouble, in milliseconds.
const SHORT: u64 = 9_000;

/// Seeds whose short plans have a bit of everything, as a test below holds.
const REDIS_SEED: u64 = 3404;
const SQLITE_SEED: u64 = 8;
const SENTINEL_SEED: u64 = 56_095;
const CLUSTER_SEED: u64 = 83_817;
const REDLOCK_SEED: u64 = 18_080;

#[test]
fn a_fleet_on_redis_keeps_its_promises_under_faults() {
    campaign("redis", REDIS_SEED, SHORT);
}

#[test]
fn hosts_that_share_one_file_keep_their_promises_under_faults() {
    campaign("sqlite", SQLITE_SEED, SHORT);
}

#[test]
fn a_fleet_keeps_its_promises_while_servers_watched_by_sentinels_fail() {
    campaign("sentinel", SENTINEL_SEED, SHORT);
}

#[test]
fn a_fleet_keeps_its_promises_while_servers_of_a_cluster_fail() {
    campaign("cluster", CLUSTER_SEED, SHORT);
}

#[test]
fn a_fleet_keeps_its_promises_while_a_minority_of_its_nodes_fails() {
    campaign("redlock", REDLOCK_SEED, SHORT);
}

/// What a short campaign would show little without.
#[test]
fn the_short_campaigns_have_the_faults_that_matter() {
    for (kind, seed) in [
        ("redis", REDIS_SEED),
        ("sqlite", SQLITE_SEED),
        ("sentinel", SENTINEL_SEED),
        ("cluster", CLUSTER_SEED),
        ("redlock", REDLOCK_SEED),
    ] {
        let kind = Kind::named(kind);
        let plan = plan::plan(kind, seed, SHORT, fleet::HOSTS.len());
        let has = |which: &dyn Fn(&Fault) -> bool| plan.iter().any(|planned| which(&planned.fault));
        let wanted: [(&str, bool); 5] = [
            ("kill", has(&|fault| matches!(fault, Fault::KillHost(_)))),
            ("pause", has(&|fault| matches!(fault, Fault::PauseHost(_)))),
            (
                "net",
                may_fail(kind, has(&|fault| matches!(fault, Fault::Net(..)))),
            ),
            (
                "loss",
                may_fail(
                    kind,
                    has(&|fault| {
                        matches!(
                            fault,
                            Fault::LoseServer(0) | Fault::RewindServer(0) | Fault::Split(0, _)
                        )
                    }),
                ),
            ),
            (
                "outsider",
                may_fail(kind, has(&|fault| *fault == Fault::Outsider)),
            ),
        ];
        for (what, there) in wanted {
            assert!(there, "no {what} on {kind:?}: {plan:#?}");
        }
    }
}

/// Hosts that share a file have neither servers nor a network.
fn may_fail(kind: Kind, there: bool) -> bool {
    there || kind == Kind::Sqlite
}

/// By hand, through `make campaign`.
#[test]
#[ignore = "as long as it is told to be: make campaign"]
fn a_long_campaign() {
    let kind = std::env::var("KIND").unwrap_or_else(|_| "redis".to_owned());
    let seconds: u64 = number("SECONDS").unwrap_or(120);
    let seed = number("SEED").unwrap_or_else(|| u64::from(std::process::id()));
    campaign(&kind, seed, seconds * 1_000);
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a whole number"))
}

fn campaign(kind: &str, seed: u64, millis: u64) {
    let kind = Kind::named(kind);
    eprintln!("campaign on {kind:?}, seed {seed}, {millis} ms of faults");
    let mut fleet = Fleet::start(Ground::of(kind));
    let began = fleet::now();
    let plan = plan::plan(kind, seed, millis, fleet::HOSTS.len());
    let faults = make_trouble(&mut fleet, began, &plan);
    let decided = fleet.wait_decided(fleet::now() + 8_000);
    fleet.stop();

    let story = story::of(&mut fleet, &plan, faults, (began, decided));
    assert!(
        story.runs.len() > 10 && !story.quiet.is_empty() && !story.sightings.is_empty(),
        "the campaign shows nothing: {} runs, quiet {:?}, {} sightings",
        story.runs.len(),
        story.quiet,
        story.sightings.len()
    );
    if let Some(violation) = story.first_violation() {
        panic!(
            "seed {seed} on {kind:?}: {violation}\n{}\n{}",
            story.timeline(violation.at),
            fleet.logs_around(violation.at)
        );
    }
    eprintln!(
        "{} faults, {} runs, {} records, {} sightings: no violation",
        plan.len(),
        story.runs.len(),
        story.records.len(),
        story.sightings.len()
    );
}

/// Carries out the plan; every fault is over when this returns. Answers when each truly was.
fn make_trouble(fleet: &mut Fleet, began: i64, plan: &[Planned]) -> Vec<Suffered> {
    let mut steps: Vec<(u64, usize, bool)> = plan
        .iter()
        .enumerate()
        .flat_map(|(at, planned)| [(planned.from, at, true), (planned.until, at, false)])
        .collect();
    steps.sort_unstable();
    let mut faults: Vec<Option<Suffered>> = plan.iter().map(|_| None).collect();
    for (when, at, begins) in steps {
        let elapsed = u64::try_from(fleet::now() - began).unwrap_or(0);
        // The plan is one of time: this is no wait for something to happen.
        thread::sleep(Duration::from_millis(when.saturating_sub(elapsed)));
        let planned = &plan[at];
        if begins {
            let from = fleet::now();
            fleet.begin(planned);
            let until = fleet::now();
            faults[at] = Some(Suffered {
                span: Span { from, until },
                text: format!("{:?}", planned.fault),
            });
        } else if !planned.fault.is_aimed() {
            fleet.end(planned);
            if let Some(fault) = &mut faults[at] {
                fault.span.until = fleet::now();
            }
        }
    }
    faults.into_iter().flatten().collect()
}
