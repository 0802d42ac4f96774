//! An occurrence in a lane, and the lane's notes about occurrences that it did not claim.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use crate::store::{GapAnswer, Kind, Late, Overlap, Pause, Range};
use crate::time::Timestamp;

/// How long after the deadline of the head of a waiting list its verdict is asked for. Clocks that differ by
/// a tenth of a second are used as they are, and the store would grant a claim that comes too soon.
const VERDICT_AFTER: Duration = Duration::from_millis(150);

const MILLISECOND: Duration = Duration::from_millis(1);

/// The purpose of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    /// A run.
    Run,
    /// Only the record that the deadline has passed; an unexpected grant is returned.
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
    /// Another occurrence is before it in the waiting list.
    pub(super) blocked: bool,
    /// Occurrences came due just before this one that the lane does not claim one by one, so it
    /// must query the ledger about them first.
    pub(super) needs_ledger_sync: bool,
}

impl Occurrence {
    /// Whether this occurrence runs at its time and is not caught up.
    pub(super) fn is_current(&self) -> bool {
        self.origin == Origin::Lane && self.kind == Kind::Schedule
    }
}

/// The source of an occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The schedule. As far as this host knows, the ledger does not contain it yet.
    Lane,
    /// The head of the job's waiting list.
    Head,
    /// A run whose lease is over.
    Watch,
}

/// Why a lane did not claim an occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotClaimed {
    /// `on_store_down: skip`.
    StoreDown,
    /// `on_store_down: run`, while the previous run was in progress.
    StillRunning,
    /// It ran under `on_store_down: run`. Its record is delivered when it has ended.
    RanWithoutStore,
    /// Another host ran it under `on_store_down: run` and has reported its result.
    RanElsewhere,
}

/// Consecutive occurrences that were not claimed for the same reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) range: Range,
    pub(super) why: NotClaimed,
}

/// The notes of a lane. Most lanes have none, so they have memory of their own.
#[derive(Debug, Default)]
pub(super) struct Notes(Option<Box<NoteLists>>);

#[derive(Debug, Default)]
struct NoteLists {
    /// What this lane did not claim, ascending.
    own: Vec<Note>,
    /// What the ledger has decided after its watermark.
    ran: BTreeSet<Timestamp>,
    /// The pauses of the job, as the ledger last named them, oldest first.
    pauses: Vec<Pause>,
}

impl NoteLists {
    const EMPTY: &Self = &Self {
        own: Vec::new(),
        ran: BTreeSet::new(),
        pauses: Vec::new(),
    };
}

impl Notes {
    fn lists(&self) -> &NoteLists {
        self.0.as_deref().unwrap_or(NoteLists::EMPTY)
    }

    fn lists_mut(&mut self) -> &mut NoteLists {
        self.0.get_or_insert_default()
    }

    /// Adds a note about `at`; `prev` is the occurrence before it in the schedule. A note covers
    /// only consecutive occurrences.
    pub(super) fn add(&mut self, prev: Option<Timestamp>, at: Timestamp, why: NotClaimed) {
        let own = &mut self.lists_mut().own;
        if let Some(last) = own.last_mut()
            && last.why == why
            && prev == Some(last.range.until)
        {
            last.range.until = at;
            last.range.count += 1;
            return;
        }
        own.push(Note {
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
        let Some(other) = other.0 else { return };
        let lists = self.lists_mut();
        lists.own.extend(other.own);
        lists.own.sort_by_key(|note| note.range.from);
        lists.ran.extend(other.ran);
        let asked_at = |pauses: &[Pause]| pauses.last().map(|pause| pause.asked_at);
        if asked_at(&other.pauses) > asked_at(&lists.pauses) {
            lists.pauses = other.pauses;
        }
    }

    /// Whether nothing is noted about single occurrences.
    pub(super) fn has_no_instants(&self) -> bool {
        self.lists().own.is_empty() && self.lists().ran.is_empty()
    }

    /// Replaces the known pauses by those of the ledger.
    pub(super) fn learn_pauses(&mut self, pauses: Vec<Pause>) {
        if !pauses.is_empty() || self.0.is_some() {
            self.lists_mut().pauses = pauses;
        }
    }

    /// Adds the pause that a rejected claim named.
    pub(super) fn learn_pause(&mut self, pause: &Pause) {
        let pauses = &mut self.lists_mut().pauses;
        pauses.retain(|known| known.since != pause.since);
        pauses.push(pause.clone());
        pauses.sort_by_key(|known| known.since);
    }

    /// Removes pauses in force, because a granted claim shows that the job is not paused.
    pub(super) fn learn_resumed(&mut self, now: Timestamp) {
        if let Some(lists) = &mut self.0 {
            lists.pauses.retain(|pause| !pause.is_in_force(now));
        }
    }

    /// Whether the job is paused at `now`, as far as this host knows.
    pub(super) fn is_paused(&self, now: Timestamp) -> bool {
        self.lists()
            .pauses
            .last()
            .is_some_and(|it| it.is_in_force(now))
    }

    pub(super) fn pauses(&self) -> &[Pause] {
        &self.lists().pauses
    }

    /// Returns the pause during which an occurrence was due.
    pub(super) fn pause_covering(&self, at: Timestamp) -> Option<&Pause> {
        self.lists().pauses.iter().find(|pause| pause.covers(at))
    }

    pub(super) fn of(&self, at: Timestamp) -> Option<NotClaimed> {
        let mut own = self.lists().own.iter();
        let own = own.find(|note| note.range.from <= at && at <= note.range.until);
        let own = own.map(|note| note.why);
        let ran = self
            .lists()
            .ran
            .contains(&at)
            .then_some(NotClaimed::RanElsewhere);
        own.filter(|why| *why == NotClaimed::RanWithoutStore)
            .or(ran)
            .or(own)
    }

    /// Adds occurrences that the ledger has decided after its watermark.
    pub(super) fn learn(&mut self, decided_beyond: Vec<Timestamp>) {
        if !decided_beyond.is_empty() {
            self.lists_mut().ran.extend(decided_beyond);
        }
    }

    /// Whether the ledger has decided an occurrence between these two, or this lane has run one without the
    /// store (from an earlier schedule).
    pub(super) fn are_parted(&self, one: Timestamp, next: Timestamp) -> bool {
        let between = (Bound::Excluded(one), Bound::Excluded(next));
        let ran_here = |note: &Note| {
            let range = note.range;
            note.why == NotClaimed::RanWithoutStore && one < range.until && range.from < next
        };
        let ran = || self.lists().ran.range(between).next().is_some();
        one < next && (ran() || self.lists().own.iter().any(ran_here))
    }

    /// Whether the job was paused between two occurrences.
    pub(super) fn was_paused_between(&self, one: Timestamp, next: Timestamp) -> bool {
        self.lists()
            .pauses
            .iter()
            .any(|pause| pause.meets(one, next))
    }

    /// Returns the newest occurrence that is known to have run without the store.
    pub(super) fn newest_ran(&self) -> Option<Timestamp> {
        let own = self
            .lists()
            .own
            .iter()
            .filter(|note| note.why == NotClaimed::RanWithoutStore);
        let own = own.map(|note| note.range.until).max();
        own.max(self.lists().ran.last().copied())
    }

    /// Removes notes about skipped occurrences after `at`, which are not due yet. `until_then`
    /// shortens the range of a note that begins before.
    pub(super) fn forget_skips_after(
        &mut self,
        at: Timestamp,
        until_then: impl Fn(Range) -> Option<Range>,
    ) {
        let Some(lists) = &mut self.0 else { return };
        lists.own.retain_mut(|note| {
            if note.why == NotClaimed::RanWithoutStore || note.range.until <= at {
                return true;
            }
            let left = until_then(note.range);
            note.range = left.unwrap_or(note.range);
            left.is_some()
        });
    }

    /// Removes notes about occurrences before `at`, which are all decided.
    pub(super) fn forget_before(&mut self, at: Timestamp) {
        let Some(lists) = &mut self.0 else { return };
        lists.own.retain(|note| note.range.until >= at);
        lists.ran = lists.ran.split_off(&at);
        lists.pauses.retain(|pause| pause.is_in_force(at));
        if lists.own.is_empty() && lists.ran.is_empty() && lists.pauses.is_empty() {
            self.0 = None;
        }
    }
}

/// Returns the overlap policy with `skip` replaced by a queue.
pub(super) fn in_order(overlap: Overlap) -> Overlap {
    match overlap {
        Overlap::Skip => Overlap::Queue { limit: u32::MAX },
        other => other,
    }
}

/// Returns when the deadline of the head of a waiting list has passed by the store's clock, too.
pub(super) fn surely_over(deadline: Timestamp) -> Timestamp {
    deadline.plus(VERDICT_AFTER + MILLISECOND)
}
