//! Policies that vary by seed: each job but `long`, at which faults are aimed, gets its own, and other
//! ones in the changed list. `POLICIES=0` in the environment leaves the usual ones.

use cronlatch::config::{CatchUp, OnCrash, OnOverlap, OnStoreDown};

use crate::chance::Chance;

const ON_OVERLAP: [&str; 3] = ["skip", "wait", "queue"];
/// Short ones: on a machine that is short of processor time a long queue outlasts its deadlines.
const QUEUE_LIMIT: [usize; 2] = [1, 3];
const SCOPE: [&str; 2] = ["host", "none"];
const CATCH_UP: [CatchUp; 3] = [CatchUp::None, CatchUp::Latest, CatchUp::All];
const ON_CRASH: [OnCrash; 2] = [OnCrash::Ignore, RERUN];
const ON_STORE_DOWN: [OnStoreDown; 2] = [OnStoreDown::Wait, OnStoreDown::Skip];
/// Most lists let the job that fails now and then try again.
const ATTEMPTS: [u32; 3] = [1, 3, 3];

/// As often as a job list allows by default.
pub(crate) const RERUN: OnCrash = OnCrash::Rerun { max_reruns: 3 };

/// Makes the usual policies of a campaign another seed's chances.
const OTHER_THAN_THE_PLAN: u64 = 0x706f_6c69_6379;

/// The policies of one job in one list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policies {
    pub(crate) on_overlap: OnOverlap,
    pub(crate) catch_up: CatchUp,
    pub(crate) on_crash: OnCrash,
    pub(crate) on_store_down: OnStoreDown,
    /// How many attempts `retry` allows a run in all; 1 without `retry`.
    pub(crate) attempts: u32,
}

impl Policies {
    /// Those of a job that names none.
    pub(crate) const DEFAULT: Self = Self {
        on_overlap: OnOverlap::Skip,
        catch_up: CatchUp::Latest,
        on_crash: OnCrash::Ignore,
        on_store_down: OnStoreDown::Wait,
        attempts: 1,
    };

    /// As fields of a job.
    pub(crate) fn text(self) -> String {
        let on_overlap = match self.on_overlap {
            OnOverlap::Skip => "skip".to_owned(),
            OnOverlap::Wait => "wait".to_owned(),
            OnOverlap::Queue { limit } => format!("queue, queue_limit: {limit}"),
        };
        let catch_up = match self.catch_up {
            CatchUp::None => "none",
            CatchUp::Latest => "latest",
            CatchUp::All => "all",
        };
        let on_crash = match self.on_crash {
            OnCrash::Ignore => "ignore".to_owned(),
            OnCrash::Rerun { max_reruns } => format!("rerun, max_reruns: {max_reruns}"),
        };
        let on_store_down = match self.on_store_down {
            OnStoreDown::Wait => "wait",
            OnStoreDown::Skip => "skip",
            OnStoreDown::Run => "run",
        };
        let retry = match self.attempts {
            1 => String::new(),
            attempts => format!("retry: {{ attempts: {attempts}, delay: 200ms }}, "),
        };
        format!(
            "on_overlap: {on_overlap}, catch_up: {catch_up}, on_crash: {on_crash}, \
             on_store_down: {on_store_down}, {retry}"
        )
    }

    /// How many times a crashed run may be run again.
    pub(crate) fn reruns(self) -> u32 {
        match self.on_crash {
            OnCrash::Ignore => 0,
            OnCrash::Rerun { max_reruns } => max_reruns,
        }
    }
}

/// Whether the policies of a campaign vary.
pub(crate) fn vary() -> bool {
    !std::env::var("POLICIES").is_ok_and(|value| value == "0")
}

/// The policies of so many jobs in the campaign of this seed.
pub(crate) fn drawn(seed: u64, jobs: usize) -> Vec<Policies> {
    let mut chance = Chance::new(seed ^ OTHER_THAN_THE_PLAN);
    let mut one = || {
        let (overlap, limit) = (chance.one_of(&ON_OVERLAP), chance.one_of(&QUEUE_LIMIT));
        Policies {
            on_overlap: match overlap {
                "skip" => OnOverlap::Skip,
                "wait" => OnOverlap::Wait,
                _ => OnOverlap::Queue { limit },
            },
            catch_up: chance.one_of(&CATCH_UP),
            on_crash: chance.one_of(&ON_CRASH),
            on_store_down: chance.one_of(&ON_STORE_DOWN),
            attempts: 1,
        }
    };
    (0..jobs).map(|_| one()).collect()
}

/// How many attempts the job that fails now and then has, in each of the two lists.
pub(crate) fn attempts(seed: u64) -> [u32; 2] {
    let mut chance = Chance::new(seed ^ OTHER_THAN_THE_PLAN ^ 2);
    [chance.one_of(&ATTEMPTS), chance.one_of(&ATTEMPTS)]
}

/// The scope of the job that each host has to itself, in the campaign of this seed.
pub(crate) fn scope(seed: u64) -> &'static str {
    Chance::new(seed ^ OTHER_THAN_THE_PLAN ^ 1).one_of(&SCOPE)
}
