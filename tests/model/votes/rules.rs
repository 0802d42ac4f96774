//! What a world of several nodes is made of.

use crate::ids::Tick;
use crate::votes::search::Votes;
use crate::votes::world::World;

pub(super) const NODES: usize = 3;
pub(super) const QUORUM: usize = 2;
pub(super) const TTL: Tick = 2;

/// When the promises that a host asks for come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Promises {
    /// At any time, or never; the host may stop waiting.
    Late,
    /// At once, or never. Proposals come late all the same.
    Prompt,
}

/// How often what may go wrong still may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Budget {
    /// Hosts that die.
    pub(super) crashes: u8,
    /// Nodes that die and come back empty.
    pub(super) wipes: u8,
    /// Renewals that are sent.
    pub(super) renewals: u8,
    /// Jobs that end by themselves, with a verdict that is sent.
    pub(super) ends: u8,
    /// Requests that are served and stay in the network.
    pub(super) copies: u8,
    /// Proposals that are taken back because no majority took them in time.
    pub(super) give_ups: u8,
}

/// A mechanism taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Defect {
    /// A majority of votes, which take the lock, is enough: the job starts, and ledger and fence
    /// are written when they are.
    SinglePhase,
    /// A node takes any proposal, whatever it promised since.
    NoPromise,
    /// A node that comes back empty counts at once.
    NoWait,
    /// A node that forgot counts as soon as it has waited, as if it remembered.
    NoEpoch,
    /// What any node took was granted.
    MinorityCounts,
}

/// Something that must be seen in a world, or it proves nothing.
pub(super) type Sight = (&'static str, fn(&Votes, &World) -> bool);

/// A world.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub(super) occurrences: Vec<Tick>,
    pub(super) hosts: usize,
    /// The last tick.
    pub(super) end: Tick,
    /// How often each host tries each claim.
    pub(super) tries: u8,
    /// How far each node's clock is ahead.
    pub(super) clocks: [Tick; NODES],
    pub(super) promises: Promises,
    /// The nodes that may come back empty.
    pub(super) frail: Vec<usize>,
    pub(super) budget: Budget,
    pub(super) defect: Option<Defect>,
    pub(super) sights: Vec<Sight>,
}

impl Rules {
    /// These occurrences, and two hosts.
    pub(super) fn of(occurrences: &[Tick], end: Tick) -> Self {
        Self {
            occurrences: occurrences.to_vec(),
            hosts: 2,
            end,
            tries: 1,
            clocks: [0; NODES],
            promises: Promises::Late,
            frail: (0..NODES).collect(),
            budget: Budget::default(),
            defect: None,
            sights: Vec::new(),
        }
    }

    pub(super) fn without(mut self, defect: Defect) -> Self {
        self.defect = Some(defect);
        self.sights.clear();
        self
    }

    pub(super) fn is(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// The occurrence before one.
    pub(super) fn before(&self, index: usize) -> Tick {
        index.checked_sub(1).map_or(0, |it| self.occurrences[it])
    }
}
