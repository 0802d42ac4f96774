//! The parts of the program whose instructions are counted. Each checks that it does the work which
//! it is there to measure.

use std::hint::black_box;
use std::time::Duration;

use chrono_tz::Tz;
use cronlatch::config;
use cronlatch::engine::simulated::{
    Action, ClaimContext, ClaimSpec, Core, Event, JobIx, Now, Policy,
};
use cronlatch::lease::table::{LeaseId, LeaseTable, RenewedLease};
use cronlatch::names::{HostName, Prefix};
use cronlatch::schedule::Schedule;
use cronlatch::store::measured::Encoder;
use cronlatch::store::{ClaimReply, Grant, Registered, RenewReply, RunStatus};
use cronlatch::time::{BootInstant, Timestamp};

use crate::requests::{lease, occurrence};

/// A part of the program.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    /// How many operations are counted.
    pub(crate) operations: u64,
    /// Runs as many operations.
    pub(crate) run: fn(u64) -> Result<(), String>,
}

pub(crate) const PARTS: [Part; 9] = [
    part("claim", 2_000, claim),
    part("next_daily", 4_000, |n| next("30 2 * * *", n)),
    part("next_often", 4_000, |n| next("*/5 8-18 * * 1-5", n)),
    part("next_last_friday", 1_000, |n| next("0 9 * * 5L", n)),
    part("next_every", 10_000, every),
    part("last_daily", 4_000, last),
    part("renewal_of_500", 40, renewal),
    part("handle_won", 4_000, |n| handle(n, Rival::None)),
    part("handle_lost", 4_000, |n| handle(n, Rival::Wins)),
];

const fn part(name: &'static str, operations: u64, run: fn(u64) -> Result<(), String>) -> Part {
    Part {
        name,
        operations,
        run,
    }
}

/// The request of a claim, from the claim to the bytes.
fn claim(operations: u64) -> Result<(), String> {
    let encoder = encoder()?;
    let (claim, _) = occurrence(1)?;
    for _ in 0..operations {
        black_box(encoder.claim(black_box(&claim)));
    }
    Ok(())
}

/// The occurrences of a cron expression, one after the other, changes of the clock included.
fn next(expression: &str, operations: u64) -> Result<(), String> {
    let schedule = Schedule::cron(expression, Tz::Europe__Berlin).map_err(|e| e.to_string())?;
    walk(operations, |at| schedule.next_after(at))
}

/// The same of an interval.
fn every(operations: u64) -> Result<(), String> {
    let period = Duration::from_secs(15 * 60);
    let schedule = Schedule::every(period).map_err(|e| e.to_string())?;
    walk(operations, |at| schedule.next_after(at))
}

/// Backwards, as for the `prev` of a claim.
fn last(operations: u64) -> Result<(), String> {
    let schedule = Schedule::cron("30 2 * * *", Tz::Europe__Berlin).map_err(|e| e.to_string())?;
    walk(operations, |at| schedule.last_before(at))
}

fn walk(operations: u64, step: impl Fn(Timestamp) -> Option<Timestamp>) -> Result<(), String> {
    let mut at = Timestamp::from_secs(1_700_000_000);
    for _ in 0..operations {
        at = step(black_box(at)).ok_or("the schedule has ended")?;
    }
    black_box(at);
    Ok(())
}

/// One round of the watchdog with 500 leases: which are due, the request, and the replies.
fn renewal(operations: u64) -> Result<(), String> {
    const LEASES: u64 = 500;
    let encoder = encoder()?;
    let mut table = LeaseTable::default();
    for n in 0..LEASES {
        let (_, renewal) = lease(usize::try_from(n).map_err(|e| e.to_string())?)?;
        let lease = RenewedLease {
            renewal,
            renew_until: None,
        };
        table.add(LeaseId(n), lease);
    }
    let replies = vec![RenewReply::Renewed; 500];
    for _ in 0..operations {
        let now = table.next_wake().ok_or("no lease is left")?;
        if !table.expire(now).is_empty() {
            return Err("a lease has expired".to_owned());
        }
        let batches = table.due(now);
        let [batch] = batches.as_slice() else {
            return Err(format!("{} batches", batches.len()));
        };
        black_box(encoder.renew(&batch.renewals));
        let changes = table.replied(batch.sent, &batch.ids, &replies);
        if changes.extended.len() != 500 {
            return Err(format!("{} leases were renewed", changes.extended.len()));
        }
    }
    Ok(())
}

fn encoder() -> Result<Encoder, String> {
    let prefix = Prefix::parse("cronlatch").map_err(|e| e.to_string())?;
    Ok(Encoder::new(prefix))
}

/// Whether another host takes every occurrence.
#[derive(Clone, Copy)]
enum Rival {
    None,
    Wins,
}

const JOBS: u32 = 1_000;
const START: i64 = 1_700_000_040;

/// The events of one occurrence, from the instant to the end of its run, in a daemon with a thousand
/// jobs that are due every minute.
fn handle(operations: u64, rival: Rival) -> Result<(), String> {
    let mut core = core_of_thousand()?;
    let grant = Grant::of(&lease(0)?.0, 1, BootInstant::BOOT);
    for n in 0..operations {
        let n = u32::try_from(n).map_err(|e| e.to_string())?;
        let (job, minute) = (JobIx(n % JOBS), i64::from(n / JOBS) + 1);
        let now = now(minute * 60);
        let actions = core.handle(now, Event::Due { job, at: now.utc });
        let [Action::Claim(spec)] = actions.as_slice() else {
            return Err(format!("not a claim: {actions:?}"));
        };
        match rival {
            Rival::None => win(&mut core, now, spec, &grant)?,
            Rival::Wins => lose(&mut core, now, spec)?,
        }
    }
    Ok(())
}

fn win(core: &mut Core, now: Now, spec: &ClaimSpec, grant: &Grant) -> Result<(), String> {
    let job = spec.job;
    let granted = Event::Granted {
        job,
        claim: spec.claim,
        grant: grant.clone(),
        attempt: 1,
    };
    let actions = core.handle(now, granted);
    if !matches!(actions.as_slice(), [Action::Start { .. }]) {
        return Err(format!("not a start: {actions:?}"));
    }
    for event in [Event::RunEnded { job }, Event::RunClosed { job }] {
        black_box(core.handle(now, event));
    }
    Ok(())
}

fn lose(core: &mut Core, now: Now, spec: &ClaimSpec) -> Result<(), String> {
    let replied = Event::Replied {
        job: spec.job,
        claim: spec.claim,
        reply: ClaimReply::AlreadyClaimed(RunStatus::Decided),
    };
    let actions = core.handle(now, replied);
    if matches!(actions.as_slice(), [] | [Action::Report { .. }]) {
        return Ok(());
    }
    Err(format!("a lost occurrence has consequences: {actions:?}"))
}

fn core_of_thousand() -> Result<Core, String> {
    let jobs: Vec<_> = (0..JOBS)
        .map(|n| serde_json::json!({ "name": format!("job-{n}"), "every": "1m", "command": ["true"] }))
        .collect();
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let file = dir.path().join("jobs.yaml");
    std::fs::write(&file, serde_json::json!({ "jobs": jobs }).to_string())
        .map_err(|e| e.to_string())?;
    let list = config::load(&file).map_err(|e| e.to_string())?;
    let host = HostName::parse("bench").map_err(|e| e.to_string())?;
    let context = ClaimContext {
        host: &host,
        shared: true,
        spread: Duration::ZERO,
        max_running: None,
    };
    let policies = list.jobs.into_iter().map(|job| Policy::of(&job, context));
    let mut core = Core::new(policies, None, now(0));
    for job in 0..JOBS {
        let reply = Registered {
            decided_until: now(0).utc,
            decided_beyond: Vec::new(),
            pauses: Vec::new(),
            now: now(0).utc,
            open: None,
            head: None,
            recovering: Duration::ZERO,
            moved: false,
        };
        let job = JobIx(job);
        core.handle(now(0), Event::Registered { job, reply });
    }
    Ok(core)
}

/// Both clocks, `seconds` after the start.
fn now(seconds: i64) -> Now {
    Now {
        utc: Timestamp::from_secs(START + seconds),
        boot: BootInstant::BOOT.plus(Duration::from_secs(seconds.unsigned_abs())),
    }
}
