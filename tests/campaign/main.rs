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
mod masterless;
mod net;
mod panics;
mod plan;
mod policies;
mod starved;
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
use list::Jobs;
use masterless::Observer;
use plan::Planned;
use starved::Sleeper;

/// How long a short campaign makes trouble, in milliseconds.
const SHORT: u64 = 9_000;

/// Seeds whose short plans have a bit of everything, as a test below holds. Odd ones have clocks of
/// servers that are seconds apart.
const REDIS_SEED: u64 = 2_486;
const SQLITE_SEED: u64 = 10;
const SENTINEL_SEED: u64 = 415_546;
const CLUSTER_SEED: u64 = 895_704;
const REDLOCK_SEED: u64 = 197;

#[test]
fn a_fleet_on_redis_keeps_its_promises_under_faults() {
    campaign("redis", REDIS_SEED, SHORT, Jobs::usual());
}

#[test]
fn hosts_that_share_one_file_keep_their_promises_under_faults() {
    campaign("sqlite", SQLITE_SEED, SHORT, Jobs::usual());
}

#[test]
fn a_fleet_keeps_its_promises_while_servers_watched_by_sentinels_fail() {
    campaign("sentinel", SENTINEL_SEED, SHORT, Jobs::usual());
}

#[test]
fn a_fleet_keeps_its_promises_while_servers_of_a_cluster_fail() {
    campaign("cluster", CLUSTER_SEED, SHORT, Jobs::usual());
}

#[test]
fn a_fleet_keeps_its_promises_while_a_minority_of_its_nodes_fails() {
    campaign("redlock", REDLOCK_SEED, SHORT, Jobs::usual());
}

#[test]
fn the_short_campaigns_have_the_faults_that_matter() {
    for (kind, seed) in [
        ("redis", REDIS_SEED),
        ("sqlite", SQLITE_SEED),
        ("sentinel", SENTINEL_SEED),
        ("cluster", CLUSTER_SEED),
        ("redlock", REDLOCK_SEED),
    ] {
        let lacks = lacks(Kind::named(kind), seed);
        assert!(lacks.is_empty(), "{kind} with seed {seed} lacks {lacks:?}");
    }
}

/// By hand, when a change of the plan makes others of all seeds.
#[test]
#[ignore = "a search: cargo test --test campaign -- --ignored --nocapture seeds_for"]
fn seeds_for_short_campaigns() {
    for kind in ground::KINDS {
        let fits = |seed: &u64| lacks(Kind::named(kind), *seed).is_empty();
        let seeds: Vec<u64> = (1..).filter(fits).take(3).collect();
        eprintln!("{kind}: {seeds:?}");
    }
}

/// What a short campaign would show little without, and this one does.
fn lacks(kind: Kind, seed: u64) -> Vec<&'static str> {
    let plan = plan::plan(kind, seed, SHORT, fleet::HOSTS.len());
    let has = |which: &dyn Fn(&Fault) -> bool| plan.iter().any(|planned| which(&planned.fault));
    let parted = has(&|fault| {
        matches!(
            fault,
            Fault::VanishReplicas | Fault::Halve(_) | Fault::Isolate(_)
        )
    });
    let loses = |fault: &Fault| {
        matches!(
            fault,
            Fault::LoseServer(0) | Fault::RewindServer(0) | Fault::Split(0, _)
        )
    };
    let wanted: [(&str, bool); 7] = [
        ("kill", has(&|fault| matches!(fault, Fault::KillHost(_)))),
        ("pause", has(&|fault| matches!(fault, Fault::PauseHost(_)))),
        ("join", has(&|fault| *fault == Fault::Join)),
        (
            "net",
            may_fail(kind, has(&|fault| matches!(fault, Fault::Net(..)))),
        ),
        ("loss", may_fail(kind, has(&loses))),
        ("servers without one another", parted || !kind.fails_over()),
        (
            "outsider",
            may_fail(kind, has(&|fault| *fault == Fault::Outsider)),
        ),
    ];
    let lacks = wanted.into_iter().filter(|(_, there)| !there);
    lacks.map(|(what, _)| what).collect()
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
    let jobs = if policies::vary() {
        Jobs::drawn(seed)
    } else {
        Jobs::usual()
    };
    campaign(&kind, seed, seconds * 1_000, jobs);
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a whole number"))
}

fn campaign(kind: &str, seed: u64, millis: u64, jobs: Jobs) {
    let kind = Kind::named(kind);
    let clocks = &kind.clocks(seed)[..kind.servers()];
    eprintln!(
        "campaign on {kind:?}, seed {seed}, {millis} ms of faults, clocks of servers {clocks:?}"
    );
    let mut fleet = Fleet::start(Ground::of(kind, seed), jobs);
    let sleeper = Sleeper::start();
    let observer = Observer::start(fleet.ground());
    let began = fleet::now();
    let plan = plan::plan(kind, seed, millis, fleet::HOSTS.len());
    let faults = make_trouble(&mut fleet, began, &plan);
    observer.wait_for_a_master();
    let decided = fleet.wait_decided(fleet::now() + 8_000);
    fleet.deliver_kept();
    fleet.stop();

    let panics = fleet.panics();
    assert!(panics.is_empty(), "seed {seed} on {kind:?}: {panics:#?}");
    let story = story::of(
        &mut fleet,
        &plan,
        (
            faults,
            &[
                (Fault::Starved, sleeper.spans()),
                (Fault::Headless, observer.spans()),
            ],
        ),
        (began, decided),
    );
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
    let further = story.runs.iter().filter(|run| run.attempt > 1);
    eprintln!(
        "{} faults, {} dark times, {} runs, {} further attempts, {} records, {} sightings: \
         no violation",
        plan.len(),
        story.dark.len(),
        story.runs.len(),
        further.count(),
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
            fleet.prepare(planned);
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
