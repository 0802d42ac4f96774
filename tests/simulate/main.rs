//! Simulated fleets: the real engine core, calendar, ticker board, lease table and protocol rules
//! run many hosts in one process on virtual time, by seeded schedules of everything that befalls
//! a fleet. `docs/simulate.md` describes them, and how a failing seed is looked at.
//!
//! | file | tells |
//! | --- | --- |
//! | [`plan`], [`generate`], [`nodes`], [`chance`] | what happens when, from a seed |
//! | [`world`], [`message`] | virtual time, the network |
//! | [`host`] | a host: clock, guard, daemon, `trigger` |
//! | [`store`] | the store on one server, and what befalls it |
//! | [`gate`], [`registry`], [`notes`] | what stores of every kind have in common |
//! | [`quorum`] | the store on several nodes, of which a majority decides |
//! | [`trace`], [`judge`] | what truly happened, and which promise it breaks |
//! | [`shrink`], [`report`] | a short plan that fails, and its timeline |

#[path = "../support/acceptor.rs"]
mod acceptor;
mod chance;
mod gate;
mod generate;
mod host;
mod judge;
mod message;
mod nodes;
mod notes;
mod plan;
mod quorum;
mod registry;
mod report;
mod shrink;
mod store;
mod trace;
mod world;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use generate::theme_of;
use judge::{Rule, Violation};
use plan::Plan;
use world::World;

/// The first seed of `make test`; others are for `make simulate`.
const FIRST_SEED: u64 = 1;
/// How many schedules `make test` runs.
const SCHEDULES: u64 = 2_000;
/// How many of them on several nodes.
const NODE_SCHEDULES: u64 = 100;

/// Runs a plan and returns the promises that it broke, the first first.
fn violations(plan: &Plan) -> Vec<Violation> {
    let mut world = World::new(plan, false);
    world.run();
    judge::judge(plan, &world.sim.trace)
}

/// Reads a number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} must be a number: {text:?}")),
    )
}

/// Whether THEME, if it is set, names the theme of this seed.
fn is_wanted(seed: u64) -> bool {
    let wanted = std::env::var("THEME").unwrap_or_default();
    wanted.is_empty() || wanted == format!("{:?}", theme_of(seed))
}

/// Runs seeds on all processors until `goes_on` says no. Returns how many, and what failed.
fn run_seeds(
    make: fn(u64) -> Plan,
    first: u64,
    goes_on: impl Fn(u64) -> bool + Sync,
) -> (u64, BTreeMap<u64, Vec<Violation>>) {
    let next = AtomicU64::new(first);
    let failed = Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !goes_on(seed) {
                        break;
                    }
                    if !is_wanted(seed) {
                        continue;
                    }
                    let found = std::panic::catch_unwind(|| violations(&make(seed)));
                    let found = found.unwrap_or_else(|panic| {
                        eprintln!("seed {seed} panicked");
                        std::panic::resume_unwind(panic)
                    });
                    if !found.is_empty() {
                        let mut failed = failed.lock().expect("no thread panics with it");
                        failed.insert(seed, found);
                    }
                }
            });
        }
    });
    let count = next.into_inner().saturating_sub(first + threads as u64);
    (count, failed.into_inner().expect("no thread panicked"))
}

/// Shrinks a failing seed's plan, prints its timeline, and returns what is wrong in a line.
fn explain(plan: &Plan, rule: Rule) -> String {
    let plan = shrink::shrink(plan, rule);
    let mut world = World::new(&plan, true);
    world.run();
    let found = judge::judge(&plan, &world.sim.trace);
    report::print(&plan, &world.sim.trace, &found);
    let first = found.iter().find(|violation| violation.rule == rule);
    first.map(ToString::to_string).unwrap_or_default()
}

#[test]
fn thousands_of_schedules_keep_every_promise() {
    keep_every_promise(generate::plan, SCHEDULES, "");
}

#[test]
fn schedules_on_three_and_five_nodes_keep_every_promise() {
    keep_every_promise(nodes::plan, NODE_SCHEDULES, " NODES=1");
}

fn keep_every_promise(make: fn(u64) -> Plan, count: u64, how: &str) {
    let until = FIRST_SEED + count;
    let (_, failed) = run_seeds(make, FIRST_SEED, |seed| seed < until);
    if let Some((seed, found)) = failed.first_key_value() {
        let first = &found[0];
        explain(&make(*seed), first.rule);
        let seeds: Vec<_> = failed.keys().collect();
        panic!(
            "{} of {count} seeds fail: {seeds:?}\nseed {seed} ({:?}), whose shrunk timeline is \
             above: {first}\nlook at it with `make simulate SEED={seed} SECONDS=0{how}`",
            failed.len(),
            theme_of(*seed),
        );
    }
}

#[test]
fn a_seed_runs_the_same_each_time() {
    for (seed, make) in [4, 8, 10, 11, 12, 13, 14, 15, 21]
        .map(|seed| (seed, generate::plan as fn(u64) -> Plan))
        .into_iter()
        .chain([(5, nodes::plan as fn(u64) -> Plan)])
    {
        let timeline = || {
            let plan = make(seed);
            let mut world = World::new(&plan, true);
            world.run();
            world.sim.trace.lines
        };
        assert_eq!(timeline(), timeline(), "seed {seed}");
    }
}

/// `make simulate`: many seeds for SECONDS; with `SECONDS=0` the one seed alone, with its timeline.
#[test]
#[ignore = "takes as long as SECONDS says"]
fn a_long_simulation() {
    let seconds = number("SECONDS").unwrap_or(60);
    let seed = number("SEED");
    let all = number("ALL").is_some();
    let make = if number("NODES").is_some() {
        nodes::plan
    } else {
        generate::plan
    };
    if let (Some(seed), 0) = (seed, seconds) {
        return one_seed(&make(seed));
    }
    let began = Instant::now();
    let first = seed.unwrap_or(1_000_000);
    let goes_on = |_| began.elapsed() < Duration::from_secs(seconds);
    let (count, failed) = run_seeds(make, first, goes_on);
    println!(
        "{count} schedules from seed {first} in {:.0?}",
        began.elapsed()
    );
    let mut by_rule: BTreeMap<Rule, Vec<u64>> = BTreeMap::new();
    for (seed, found) in &failed {
        if all || number("LINES").is_some() {
            let start = make(*seed).start;
            let line = report::relative(&found[0].to_string(), start);
            println!("seed {seed} {:?}: {line}", theme_of(*seed));
        }
        for rule in found.iter().map(|it| it.rule) {
            let seeds = by_rule.entry(rule).or_default();
            if seeds.last() != Some(seed) {
                seeds.push(*seed);
            }
        }
    }
    for (rule, seeds) in &by_rule {
        let themes: Vec<_> = seeds
            .iter()
            .take(8)
            .map(|it| (*it, theme_of(*it)))
            .collect();
        println!("{rule:?}: {} seeds, such as {themes:?}", seeds.len());
    }
    if let Some((seed, found)) = failed.first_key_value().filter(|_| !all) {
        explain(&make(*seed), found[0].rule);
        panic!(
            "{} seeds fail; the shrunk timeline of {seed} is above",
            failed.len()
        );
    }
}

fn one_seed(plan: &Plan) {
    let found = violations(plan);
    let Some(first) = found.first().filter(|_| number("WHOLE").is_none()) else {
        let mut world = World::new(plan, true);
        world.run();
        report::print(plan, &world.sim.trace, &found);
        return;
    };
    let rule = std::env::var("RULE").ok();
    let rule = rule.and_then(|name| found.iter().find(|it| format!("{:?}", it.rule) == name));
    explain(plan, rule.unwrap_or(first).rule);
}
