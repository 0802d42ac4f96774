//! The job list of the campaign, and what is known of its jobs.

use crate::checker::JobRule;
use crate::ground::{Ground, Kind};
use crate::support::RunLog;
use crate::watch::Watched;

/// The TTL of all leases, in milliseconds: faults of a few seconds lie on both sides of it.
pub(crate) const TTL: i64 = 3_000;

/// The key that a job shares with programs that are not ours.
pub(crate) const SHARED_KEY: &str = "app:lock";

/// What the jobs of the list are; the list itself is [`text`].
pub(crate) const JOBS: [JobRule; 6] = [
    rule("beat", "beat", 1_000, 0),
    rule("long", "long", 3_600, 0),
    rule("again", "again", 3_000, 3),
    rule("left", "pair", 2_000, 0),
    rule("right", "pair", 3_000, 0),
    rule("shared", "shared", 2_000, 0),
];

const fn rule(name: &'static str, lock: &'static str, interval: i64, reruns: u32) -> JobRule {
    JobRule {
        name,
        lock,
        interval,
        reruns,
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
pub(crate) fn text(ground: &Ground, log: &RunLog) -> String {
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
    format!(
        "{store}history: 100000
defaults:
  lock: {{ ttl: {TTL}ms }}
  kill_grace: 200ms
  start_deadline: 1m
jobs:
  - {{ name: beat, every: 1s, on_overlap: wait, command: '{short}' }}
  - {{ name: long, every: 3600ms, catch_up: all, command: '{long}' }}
  - {{ name: again, every: 3s, on_crash: rerun, command: '{half}' }}
  - {{ name: left, every: 2s, lock: {{ name: pair }}, command: '{half}' }}
  - {{ name: right, every: 3s, lock: {{ name: pair }}, on_overlap: queue, command: '{short}' }}
  - {{ name: shared, every: 2s, lock: {{ key: '{SHARED_KEY}' }}, command: '{half}' }}
",
        store = ground.section()
    )
}
