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

mod chance;
mod checker;
mod fault;
mod fleet;
mod ground;

#[expect(
    dead_code,
    unused_imports,
    reason = "shared with the other tests, which use more of it"
)]
#[path = "../it/support/mod.rs"]
mod support;

use std::thread;
use std::time::Duration;

use checker::{Fault, Span, Story};
use fault::Planned;
use fleet::Fleet;
use ground::Ground;

/// How long a short campaign makes trouble, in milliseconds.
const SHORT: u64 = 9_000;

/// Seeds whose short plans have a bit of everything, as a test below holds.
const REDIS_SEED: u64 = 15;
const SQLITE_SEED: u64 = 3;
const SENTINEL_SEED: u64 = 4;
const CLUSTER_SEED: u64 = 7;
const REDLOCK_SEED: u64 = 51;

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
    let plan = |seed, servers: usize, net| {
        let of_store: Vec<_> = (0..servers)
            .flat_map(|at| {
                [
                    fault::Fault::PauseServer(at),
                    fault::Fault::KillClients(at),
                    fault::Fault::ForgetScripts(at),
                    fault::Fault::LoseServer(at),
                ]
            })
            .collect();
        format!("{:?}", fault::plan(seed, SHORT, 3, &of_store, net))
    };
    let host = ["KillHost", "PauseHost"];
    let net = ["CutOff", "LoseServer"];
    for (plan, wanted) in [
        (plan(REDIS_SEED, 1, true), net),
        (plan(SQLITE_SEED, 0, false), ["RestartHost", "KillHost"]),
        (plan(SENTINEL_SEED, 3, false), ["LoseServer(0)", "KillHost"]),
        (plan(CLUSTER_SEED, 6, false), ["LoseServer", "KillHost"]),
        (plan(REDLOCK_SEED, 3, true), net),
    ] {
        for fault in host.into_iter().chain(wanted) {
            assert!(plan.contains(fault), "{fault}: {plan}");
        }
    }
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
    let ground = Ground::of(kind);
    eprintln!("campaign on {kind}, seed {seed}, {millis} ms of faults");
    let mut fleet = Fleet::start(ground);
    let began = fleet::now();
    let plan = fault::plan(
        seed,
        millis,
        fleet::HOSTS.len(),
        &fleet.ground().faults(),
        fleet.ground().has_network(),
    );
    let faults = make_trouble(&mut fleet, began, &plan);

    let calm = fleet::now();
    let decided = fleet.wait_decided(calm + 8_000);
    let quiet = quiet_spans(began, decided, &plan, &faults);
    fleet.stop();
    let forgotten_until = last_loss(fleet.ground(), &plan, &faults);
    let story = Story {
        jobs: fleet::JOBS.to_vec(),
        runs: fleet.log().entries(),
        records: fleet.history(),
        faults,
        decided: Some(Span {
            from: began + 4_000,
            until: decided,
        }),
        quiet,
        forgotten_until,
    };
    assert!(
        story.runs.len() > 10 && !story.quiet.is_empty(),
        "the campaign shows nothing: {} runs, quiet {:?}",
        story.runs.len(),
        story.quiet
    );
    if let Some(violation) = story.first_violation() {
        panic!(
            "seed {seed} on {kind}: {violation}\n{}",
            story.timeline(violation.at)
        );
    }
    eprintln!(
        "{} faults, {} runs, {} records: no violation",
        plan.len(),
        story.runs.len(),
        story.records.len()
    );
}

/// Carries out the plan; every fault is over when this returns. Answers when each truly was.
fn make_trouble(fleet: &mut Fleet, began: i64, plan: &[Planned]) -> Vec<Fault> {
    let mut steps: Vec<(u64, usize, bool)> = plan
        .iter()
        .enumerate()
        .flat_map(|(at, planned)| [(planned.from, at, true), (planned.until, at, false)])
        .collect();
    steps.sort_unstable();
    let mut faults: Vec<Option<Fault>> = plan.iter().map(|_| None).collect();
    for (when, at, begins) in steps {
        let elapsed = u64::try_from(fleet::now() - began).unwrap_or(0);
        // The plan is one of time: this is no wait for something to happen.
        thread::sleep(Duration::from_millis(when.saturating_sub(elapsed)));
        let fault = plan[at].fault;
        if begins {
            let from = fleet::now();
            fleet.begin(fault);
            faults[at] = Some(Fault {
                span: Span { from, until: from },
                text: format!("{fault:?}"),
            });
        } else {
            fleet.end(fault);
            if let Some(fault) = &mut faults[at] {
                fault.span.until = fleet::now();
            }
        }
    }
    faults.into_iter().flatten().collect()
}

/// Up to where verdicts may be gone with the data: the last loss or failover, and the recovery.
fn last_loss(ground: &Ground, plan: &[Planned], faults: &[Fault]) -> Option<i64> {
    let lost = |planned: &&Planned| matches!(planned.fault, fault::Fault::LoseServer(_));
    // Of independent nodes a single loss is nobody's; several may be a majority's.
    let forgets = ground.forgets() || plan.iter().filter(lost).count() > 1;
    let is_loss = |planned: &Planned| match planned.fault {
        fault::Fault::LoseServer(_) => forgets,
        // Long enough for its replica to take its place.
        fault::Fault::PauseServer(_) => ground.forgets() && ground.servers().len() > 1,
        _ => false,
    };
    let losses = plan.iter().zip(faults);
    losses
        .filter(|(planned, _)| is_loss(planned))
        .map(|(_, fault)| fleet::trouble(fault.span).until)
        .max()
}

/// The spans in which the store and at least one host had been left alone for a while.
fn quiet_spans(began: i64, until: i64, plan: &[Planned], faults: &[Fault]) -> Vec<Span> {
    let troubled = |host: Option<usize>| -> Vec<Span> {
        plan.iter()
            .zip(faults)
            .filter(|(planned, _)| planned.fault.host().is_none() || planned.fault.host() == host)
            .map(|(_, fault)| fleet::trouble(fault.span))
            .collect()
    };
    let mut quiet = Vec::new();
    for host in 0..fleet::HOSTS.len() {
        let mut from = began + 4_000;
        let mut spans = troubled(Some(host));
        spans.sort_by_key(|span| span.from);
        for span in spans {
            if from < span.from {
                quiet.push(Span {
                    from,
                    until: span.from,
                });
            }
            from = from.max(span.until);
        }
        if from < until {
            quiet.push(Span { from, until });
        }
    }
    quiet
}
