//! An occurrence in a lane, and the notes about those that the lane did not claim.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::store::{GapAnswer, Kind, Late, Outcome, Overlap, Pause, Range};
use crate::time::Timestamp;

/// What a claim is meant to bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    /// A run.
    Run,
    /// Only the record that its deadline has passed: a grant against expectation is given back.
    Verdict,
}

/// An occurrence that this host acts on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Occurrence {
    pub(super) at: Timestamp,
    pub(super) kind: Kind,
    pub(super) deadline: Timestamp,
    pub(super) overlap: Overlap,
    pub(super) late: Late,
    pub(super) aim: Aim,
    pub(super) gap: Option<GapAnswer>,
    pub(super) origin: Origin,
    /// Another occurrence stands before it in the ledger.
    pub(super) blocked: bool,
    /// Just before it, others came due that this lane does not claim one by one: it must ask the
    /// ledger about them first.
    pub(super) needs_ledger_sync: bool,
}

impl Occurrence {
    /// Whether this is an occurrence at its time, as opposed to one of the past.
    pub(super) fn is_current(&self) -> bool {
        self.origin == Origin::Lane && self.kind == Kind::Schedule
    }

    /// The same occurrence, no longer to be run.
    pub(super) fn for_verdict(mut self) -> Self {
        self.aim = Aim::Verdict;
        self
    }
}

/// Where a lane has an occurrence from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The schedule: the ledger does not know it yet, as far as this host knows.
    Lane,
    /// The head of the job's waiting list.
    Head,
    /// A run whose lease is over.
    Watch,
}

/// Why a lane let occurrences go without a word to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// `on_store_down: skip`.
    StoreDown,
    /// `on_store_down: run`, while the run before went on.
    StillRunning,
    /// `on_store_down: run`: its record follows with its end.
    RanAlone,
    /// Another host ran it so, and has reported its result.
    RanElsewhere,
}

impl Why {
    /// The verdict to record when the ledger asks; `None` when it comes by another way.
    pub(super) fn verdict(self) -> Option<(Outcome, &'static str)> {
        match self {
            Self::StoreDown => Some((
                Outcome::Skipped,
                "the store was unreachable (on_store_down: skip)",
            )),
            Self::StillRunning => Some((
                Outcome::Skipped,
                "the previous run was still in progress while the store was unreachable",
            )),
            Self::RanAlone | Self::RanElsewhere => None,
        }
    }
}

/// Occurrences in a row that were let go for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) range: Range,
    pub(super) why: Why,
}

/// The notes of a lane.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// What this lane let go, ascending.
    own: Vec<Note>,
    /// What the ledger has decided beyond its watermark.
    ran: BTreeSet<Timestamp>,
    /// The pauses of the job, as the ledger last named them, oldest first.
    pauses: Vec<Pause>,
}

impl Notes {
    /// `prev` is the occurrence before `at`. No note reaches over one that went another way.
    pub(super) fn add(&mut self, prev: Option<Timestamp>, at: Timestamp, why: Why) {
        if let Some(last) = self.own.last_mut()
            && last.why == why
            && prev == Some(last.range.until)
        {
            last.range.until = at;
            last.range.count += 1;
            return;
        }
        self.own.push(Note {
            range: Range {
                from: at,
                until: at,
                count: 1,
            },
            why,
        });
    }

    /// Adds the notes that another lane has made of the same job.
    pub(super) fn take_over(&mut self, other: Self) {
        self.own.extend(other.own);
        self.own.sort_by_key(|note| note.range.from);
        self.ran.extend(other.ran);
        let asked_at = |pauses: &[Pause]| pauses.last().map(|pause| pause.asked_at);
        if asked_at(&other.pauses) > asked_at(&self.pauses) {
            self.pauses = other.pauses;
        }
    }

    /// Whether nothing is noted about single occurrences.
    pub(super) fn has_no_instants(&self) -> bool {
        self.own.is_empty() && self.ran.is_empty()
    }

    /// Learns the pauses of the job from the ledger.
    pub(super) fn learn_pauses(&mut self, pauses: Vec<Pause>) {
        self.pauses = pauses;
    }

    /// Learns from a refused claim that the job is paused, or was when the occurrence was due.
    pub(super) fn learn_pause(&mut self, pause: &Pause) {
        self.pauses.retain(|known| known.since != pause.since);
        self.pauses.push(pause.clone());
        self.pauses.sort_by_key(|known| known.since);
    }

    /// Learns from a granted claim that the job is not paused.
    pub(super) fn learn_resumed(&mut self, now: Timestamp) {
        self.pauses.retain(|pause| !pause.is_in_force(now));
    }

    /// Whether nothing of the job starts at `now`, as far as this host knows.
    pub(super) fn is_paused(&self, now: Timestamp) -> bool {
        self.pauses.last().is_some_and(|it| it.is_in_force(now))
    }

    pub(super) fn pauses(&self) -> &[Pause] {
        &self.pauses
    }

    /// The pause during which an occurrence was due.
    pub(super) fn pause_covering(&self, at: Timestamp) -> Option<&Pause> {
        self.pauses.iter().find(|pause| pause.covers(at))
    }

    pub(super) fn of(&self, at: Timestamp) -> Option<Why> {
        let mut own = self.own.iter();
        let own = own.find(|note| note.range.from <= at && at <= note.range.until);
        let own = own.map(|note| note.why);
        let ran = self.ran.contains(&at).then_some(Why::RanElsewhere);
        own.filter(|why| *why == Why::RanAlone).or(ran).or(own)
    }

    /// Learns from the ledger which occurrences are decided although its watermark lies before them.
    pub(super) fn learn(&mut self, beyond: Vec<Timestamp>) {
        self.ran.extend(beyond);
    }

    /// Whether the ledger has decided something between two occurrences: of another schedule.
    pub(super) fn are_parted(&self, one: Timestamp, next: Timestamp) -> bool {
        let between = (Bound::Excluded(one), Bound::Excluded(next));
        one < next && self.ran.range(between).next().is_some()
    }

    /// Whether the job was paused between two occurrences.
    pub(super) fn was_paused_between(&self, one: Timestamp, next: Timestamp) -> bool {
        self.pauses.iter().any(|pause| pause.meets(one, next))
    }

    /// The newest occurrence that is known to have run without the store.
    pub(super) fn newest_ran(&self) -> Option<Timestamp> {
        let own = self.own.iter().filter(|note| note.why == Why::RanAlone);
        let own = own.map(|note| note.range.until).max();
        own.max(self.ran.last().copied())
    }

    /// Forgets why occurrences after `at` were skipped: they are not due yet.
    pub(super) fn forget_skips_after(&mut self, at: Timestamp) {
        self.own
            .retain(|note| note.why == Why::RanAlone || note.range.until <= at);
    }

    /// Everything before `at` is decided: its notes have served.
    pub(super) fn forget_before(&mut self, at: Timestamp) {
        self.own.retain(|note| note.range.until >= at);
        self.ran = self.ran.split_off(&at);
        self.pauses.retain(|pause| pause.is_in_force(at));
    }
}

/// An occurrence that would be skipped waits instead.
pub(super) fn in_order(overlap: Overlap) -> Overlap {
    match overlap {
        Overlap::Skip => Overlap::Queue { limit: u32::MAX },
        other => other,
    }
}
