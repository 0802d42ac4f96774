//! The job list of the campaign, and what is known of its jobs.

use cronlatch::config::{CatchUp, OnOverlap, OnStoreDown};

use crate::checker::{JobRule, SharedBy, Verdicts};
use crate::ground::Kind;
use crate::policies::{self, Policies, RERUN};
use crate::support::RunLog;
use crate::watch::Watched;

/// The TTL of all leases, in milliseconds: faults of a few seconds lie on both sides of it.
pub(crate) const TTL: i64 = 3_000;

/// How late a job may start, in milliseconds.
pub(crate) const DEADLINE: i64 = 60_000;

/// The key that a job shares with programs that are not ours.
pub(crate) const SHARED_KEY: &str = "app:lock";

/// The jobs of the list with their usual policies.
const JOBS: [JobRule; 9] = [
    rule(
        ("beat", "beat", 1_000),
        Policies {
            on_overlap: OnOverlap::Wait,
            ..Policies::DEFAULT
        },
    ),
    rule(
        ("long", "long", 3_600),
        Policies {
            catch_up: CatchUp::All,
            ..Policies::DEFAULT
        },
    ),
    JobRule {
        fails,
        ..rule(
            ("again", "again", 3_000),
            Policies {
                on_crash: RERUN,
                attempts: 3,
                ..Policies::DEFAULT
            },
        )
    },
    rule(("left", "pair", 2_000), Policies::DEFAULT),
    rule(
        ("right", "pair", 3_000),
        Policies {
            on_overlap: OnOverlap::Queue { limit: 10 },
            ..Policies::DEFAULT
        },
    ),
    rule(("shared", "shared", 2_000), Policies::DEFAULT),
    JobRule {
        shared_by: SharedBy::Nobody,
        verdicts: Verdicts::None,
        ..rule(("own", "own", 6_000), Policies::DEFAULT)
    },
    JobRule {
        runs_without_store: true,
        ..rule(
            ("alone", "alone", 5_000),
            Policies {
                on_store_down: OnStoreDown::Run,
                ..Policies::DEFAULT
            },
        )
    },
    JobRule {
        verdicts: Verdicts::OfRuns,
        ..rule(
            ("added", "added", 4_000),
            Policies {
                catch_up: CatchUp::All,
                ..Policies::DEFAULT
            },
        )
    },
];

/// How many of them have policies that a seed draws.
const DRAWN: usize = 6;

/// The job at which faults are aimed: its policies are always the usual ones.
const AIMED_AT: usize = 1;

/// Where among the jobs the one is that fails now and then.
const FLAKY: usize = 2;

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
    /// The scope of `own`; `None` leaves out the jobs that are not usual.
    scope: Option<&'static str>,
}

impl Jobs {
    /// The usual ones with the usual policies; no list differs.
    pub(crate) fn usual() -> Self {
        Self {
            rules: JOBS[..DRAWN].to_vec(),
            scope: None,
        }
    }

    /// Those with the policies that a seed draws.
    pub(crate) fn drawn(seed: u64) -> Self {
        let scope = policies::scope(seed);
        let mut rules = JOBS.to_vec();
        let drawn = policies::drawn(seed, 2 * DRAWN);
        let (first, changed) = drawn.split_at(DRAWN);
        for at in (0..DRAWN).filter(|at| *at != AIMED_AT) {
            rules[at].policies = [first[at], changed[at]];
        }
        let attempts = policies::attempts(seed);
        for (policies, attempts) in rules[FLAKY].policies.iter_mut().zip(attempts) {
            policies.attempts = attempts;
        }
        if scope == "none" {
            rules[OWN].shared_by = SharedBy::NobodyWithoutLock;
        }
        Self {
            rules,
            scope: Some(scope),
        }
    }
}

const fn rule(
    (name, lock, interval): (&'static str, &'static str, i64),
    usual: Policies,
) -> JobRule {
    JobRule {
        name,
        lock,
        interval,
        policies: [usual; 2],
        fails: JobRule::never,
        shared_by: SharedBy::Fleet,
        runs_without_store: false,
        verdicts: Verdicts::All,
    }
}

/// Which attempts of `again` fail, by the last digit of the second at which it was due: of 0 three,
/// so that no attempt is left; of 9 two; of 3 and 6 the first. [`FAILS`] says the same in shell.
fn fails(due: i64, attempt: u32) -> bool {
    let failing = match due / 1_000 % 10 {
        0 => 3,
        9 => 2,
        3 | 6 => 1,
        _ => 0,
    };
    attempt <= failing
}

const FAILS: &str = "case $CRONLATCH_SCHEDULED_AT-$CRONLATCH_ATTEMPT in \
                     *0Z-[123]|*9Z-[12]|*[36]Z-1) exit 1;; esac";

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
    let list = usize::from(which == List::Changed);
    let policies = |at: usize| jobs.rules[at].policies[list].text();
    let [beat, long_one, again, left, right, shared] = [0, 1, 2, 3, 4, 5].map(policies);
    let short = log.job("0.05");
    let half = log.job("0.4");
    let flaky = format!("{half}; {FAILS}");
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
  start_deadline: {DEADLINE}ms
jobs:
  - {{ name: beat, every: 1s, {beat}command: '{short}' }}
  - {{ name: long, every: 3600ms, {long_one}command: '{long}' }}
  - {{ name: again, every: 3s, {again}command: '{flaky}' }}
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

#[test]
fn the_job_that_fails_now_and_then_fails_as_the_checker_expects() {
    use cronlatch::time::Timestamp;
    for due in (0..60_000).step_by(3_000) {
        for attempt in 1..=4 {
            let status = std::process::Command::new("sh")
                .args(["-c", FAILS])
                .env(
                    "CRONLATCH_SCHEDULED_AT",
                    Timestamp::from_millis(due).to_string(),
                )
                .env("CRONLATCH_ATTEMPT", attempt.to_string())
                .status()
                .expect("there is a shell");
            assert_eq!(status.success(), !fails(due, attempt), "{due}, {attempt}");
        }
    }
}
