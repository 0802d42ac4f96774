//! The job list of the campaign, and what is known of its jobs.

use crate::checker::{JobRule, SharedBy, Verdicts};
use crate::ground::Kind;
use crate::policies;
use crate::support::RunLog;
use crate::watch::Watched;

/// The TTL of all leases, in milliseconds: faults of a few seconds lie on both sides of it.
pub(crate) const TTL: i64 = 3_000;

/// The key that a job shares with programs that are not ours.
pub(crate) const SHARED_KEY: &str = "app:lock";

/// The jobs of the list with their usual policies.
const JOBS: [JobRule; 9] = [
    rule("beat", "beat", 1_000, 0),
    rule("long", "long", 3_600, 0),
    rule("again", "again", 3_000, 3),
    rule("left", "pair", 2_000, 0),
    rule("right", "pair", 3_000, 0),
    rule("shared", "shared", 2_000, 0),
    JobRule {
        shared_by: SharedBy::Nobody,
        verdicts: Verdicts::None,
        ..rule("own", "own", 6_000, 0)
    },
    JobRule {
        runs_without_store: true,
        ..rule("alone", "alone", 5_000, 0)
    },
    JobRule {
        verdicts: Verdicts::OfRuns,
        ..rule("added", "added", 4_000, 0)
    },
];

/// How many of them have policies that a seed draws.
const DRAWN: usize = 6;

/// The usual policies, in the order of the jobs.
const USUAL: [&str; DRAWN] = [
    "on_overlap: wait, ",
    "catch_up: all, ",
    "on_crash: rerun, ",
    "",
    "on_overlap: queue, ",
    "",
];

/// The job at which faults are aimed: its policies are always the usual ones.
const AIMED_AT: usize = 1;

/// Where among the jobs the one is that each host has to itself.
const OWN: usize = 6;

/// A host's list: every other start of a host changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    First,
    /// Other policies, and a job that the first does not have.
    Changed,
    /// All jobs, for those who read.
    Whole,
}

/// What the jobs are in a campaign, and what their policies are; the list itself is [`text`].
#[derive(Debug, Clone)]
pub(crate) struct Jobs {
    pub(crate) rules: Vec<JobRule>,
    first: [String; DRAWN],
    changed: [String; DRAWN],
    /// The scope of `own`; `None` leaves out the jobs that are not usual.
    scope: Option<&'static str>,
}

impl Jobs {
    /// The usual ones with the usual policies; no list differs.
    pub(crate) fn usual() -> Self {
        Self {
            rules: JOBS[..DRAWN].to_vec(),
            first: USUAL.map(str::to_owned),
            changed: USUAL.map(str::to_owned),
            scope: None,
        }
    }

    /// Those with the policies that a seed draws.
    pub(crate) fn drawn(seed: u64) -> Self {
        let mut jobs = Self {
            rules: JOBS.to_vec(),
            ..Self::usual()
        };
        let drawn = policies::drawn(seed, 2 * DRAWN);
        let (first, changed) = drawn.split_at(DRAWN);
        for at in (0..DRAWN).filter(|at| *at != AIMED_AT) {
            jobs.first[at] = first[at].text();
            jobs.changed[at] = changed[at].text();
            // Hosts may have either list.
            jobs.rules[at].reruns = first[at].reruns().max(changed[at].reruns());
        }
        let scope = policies::scope(seed);
        jobs.scope = Some(scope);
        if scope == "none" {
            jobs.rules[OWN].shared_by = SharedBy::NobodyWithoutLock;
        }
        jobs
    }
}

const fn rule(name: &'static str, lock: &'static str, interval: i64, reruns: u32) -> JobRule {
    JobRule {
        name,
        lock,
        interval,
        reruns,
        shared_by: SharedBy::Fleet,
        runs_without_store: false,
        verdicts: Verdicts::All,
    }
}

/// The locks of these jobs, as a store of this kind keeps them.
pub(crate) fn locks(kind: Kind) -> Vec<Watched> {
    let named = ["beat", "long", "again", "pair"].map(|lock| Watched {
        lock,
        key: if kind == Kind::Sqlite {
            lock.to_owned()
        } else {
            format!("cronlatch:{{{lock}}}:lock")
        },
        state: format!("cronlatch:{{{lock}}}:state"),
    });
    let shared = Watched {
        lock: "shared",
        key: if kind == Kind::Sqlite {
            format!("key:{SHARED_KEY}")
        } else {
            SHARED_KEY.to_owned()
        },
        state: format!("cronlatch:{{{SHARED_KEY}}}:state:{SHARED_KEY}"),
    };
    named.into_iter().chain([shared]).collect()
}

/// The job list.
pub(crate) fn text(store: &str, jobs: &Jobs, log: &RunLog, which: List) -> String {
    let policies = match which {
        List::First | List::Whole => &jobs.first,
        List::Changed => &jobs.changed,
    };
    let [beat, long_one, again, left, right, shared] = policies;
    let short = log.job("0.05");
    let half = log.job("0.4");
    let sign = format!(
        "say sign $CRONLATCH_RUN_ID $CRONLATCH_ATTEMPT {}",
        "$(date +%s%3N)"
    );
    // Longer than a lease, and than it is to its next occurrence, which comes a little after the
    // end of a lease that was not renewed: what frees its lock too early shows.
    let long = format!(
        "{}; for i in 1 2 3 4 5; do for j in 1 2 3 4 5 6 7 8 9; do {sign}; sleep 0.1; done; done; {}",
        log.begin(),
        RunLog::end()
    );
    let mut more = String::new();
    if let Some(scope) = jobs.scope {
        more += &format!(
            "  - {{ name: own, every: 6s, lock: {{ scope: {scope} }}, command: '{short}' }}
  - {{ name: alone, every: 5s, on_store_down: run, command: '{short}' }}\n"
        );
        if which != List::First {
            more +=
                &format!("  - {{ name: added, every: 4s, catch_up: all, command: '{short}' }}\n");
        }
    }
    format!(
        "{store}history: 100000
defaults:
  lock: {{ ttl: {TTL}ms }}
  kill_grace: 200ms
  start_deadline: 1m
jobs:
  - {{ name: beat, every: 1s, {beat}command: '{short}' }}
  - {{ name: long, every: 3600ms, {long_one}command: '{long}' }}
  - {{ name: again, every: 3s, {again}command: '{half}' }}
  - {{ name: left, every: 2s, lock: {{ name: pair }}, {left}command: '{half}' }}
  - {{ name: right, every: 3s, lock: {{ name: pair }}, {right}command: '{short}' }}
  - {{ name: shared, every: 2s, lock: {{ key: '{SHARED_KEY}' }}, {shared}command: '{half}' }}
{more}"
    )
}

#[test]
fn every_list_that_a_seed_draws_is_accepted_and_seeds_differ() {
    let log = RunLog::new();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = "store: redis://127.0.0.1:1\n";
    let of = |seed| text(store, &Jobs::drawn(seed), &log, List::First);
    for seed in 0..6 {
        for which in [List::First, List::Changed, List::Whole] {
            let file = dir.path().join("jobs.yaml");
            let list = text(store, &Jobs::drawn(seed), &log, which);
            std::fs::write(&file, list).expect("a writable directory");
            crate::support::cronlatch(&["check", &file.display().to_string()]).expect_code(0);
        }
    }
    assert_eq!(of(3), of(3));
    assert_ne!(of(3), of(4));
    let long = |list: &str| {
        list.lines()
            .find(|line| line.contains("name: long"))
            .map(str::to_owned)
    };
    assert_eq!(long(&of(3)), long(&of(4)));
}
