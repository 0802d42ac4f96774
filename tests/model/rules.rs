//! What a world is made of.

use cronlatch::store::Overlap;

use crate::ids::Tick;
use crate::search::Protocol;
use crate::world::World;

/// How requests and answers travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Net {
    /// At once.
    Instant,
    /// Requests take any time and overtake one another; answers come at once or never.
    SlowRequests,
    /// So do answers.
    Slow,
}

/// What becomes of several occurrences that nobody decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CatchUp {
    All,
    Latest,
}

/// How often what may go wrong still may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Budget {
    /// Requests that are served and stay in the network, their answers lost.
    pub(crate) copies: u8,
    /// Claims sent again for want of an answer.
    pub(crate) resends: u8,
    /// Claims cancelled for want of an answer, and runs withdrawn before their instant.
    pub(crate) give_ups: u8,
    pub(crate) renewals: u8,
    pub(crate) crashes: u8,
    pub(crate) restarts: u8,
    /// The store drops the lock's key.
    pub(crate) evictions: u8,
    /// The store loses its data.
    pub(crate) losses: u8,
    /// Snapshots that the store can come back with.
    pub(crate) saves: u8,
}

/// A mechanism taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    /// A claim takes the lock alone.
    NoLedger,
    /// The ledger is asked about the instant at which the host fired, by its own clock.
    LedgerByFireTime,
    /// Every finish deletes the lock.
    NoToken,
    /// Tokens that finished are forgotten.
    NoRing,
    /// A lease counts from when the answer came.
    LeaseFromReply,
    /// A lock that is gone is free, whatever the state says of its lease.
    EvictedIsFree,
    /// A store that lost its data goes on as if nothing were.
    NoAmnesiaGuard,
    /// The claim carries no preceding occurrence.
    NoGapRule,
    /// Only what was due when a loss was noticed is taken for forgotten.
    NoHorizon,
    /// What may have been granted ahead of its instant is not taken for forgotten.
    NoLeadInHorizon,
}

/// Something that must be seen in a world, or it proves nothing.
pub(crate) type Sight = (&'static str, fn(&Protocol, &World) -> bool);

/// A world.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// How far each host's clock is ahead of the store's.
    pub(crate) clocks: Vec<Tick>,
    /// The schedule that each host starts with.
    pub(crate) versions: Vec<usize>,
    /// Per job and version, its occurrences.
    pub(crate) schedules: Vec<Vec<Vec<Tick>>>,
    /// The last tick.
    pub(crate) end: Tick,
    pub(crate) ttl: Tick,
    /// How late an occurrence may start.
    pub(crate) deadline: Tick,
    pub(crate) overlap: Overlap,
    pub(crate) catch_up: CatchUp,
    pub(crate) max_reruns: u32,
    /// How early hosts claim.
    pub(crate) lead: Tick,
    pub(crate) net: Net,
    pub(crate) budget: Budget,
    /// How far the clock of the first server is ahead of those that may follow.
    pub(crate) ahead: Tick,
    /// Whether the store does not know the jobs.
    pub(crate) fresh: bool,
    pub(crate) defect: Option<Defect>,
    pub(crate) sights: Vec<Sight>,
}

impl Rules {
    /// One job with these occurrences, on hosts whose clocks are off by so much.
    pub(crate) fn one_job(occurrences: &[Tick], clocks: &[Tick]) -> Self {
        Self {
            clocks: clocks.to_vec(),
            versions: vec![0; clocks.len()],
            schedules: vec![vec![occurrences.to_vec()]],
            end: 4,
            ttl: 2,
            deadline: 100,
            overlap: Overlap::Skip,
            catch_up: CatchUp::All,
            max_reruns: 0,
            lead: 0,
            net: Net::Instant,
            budget: Budget::default(),
            ahead: 0,
            fresh: false,
            defect: None,
            sights: Vec::new(),
        }
    }

    pub(crate) fn without(mut self, defect: Defect) -> Self {
        self.defect = Some(defect);
        self.sights.clear();
        self
    }

    /// Whether the store may lose its data.
    pub(crate) fn is_forgetful(&self) -> bool {
        self.budget.losses > 0
    }

    pub(crate) fn is(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    pub(crate) fn before(&self, job: usize, version: usize, at: Tick) -> Tick {
        let schedule = &self.schedules[job][version];
        let before = schedule.iter().rev().find(|other| **other < at);
        // Schedules reach back before the world began.
        before.copied().unwrap_or(-1)
    }
}
