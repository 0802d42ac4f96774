//! What is due when, and what has been fired: the only state of the ticker.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;

use super::clock::WallClock;
use super::firing::{ClaimsAhead, Firing, MOST_AT_ONCE, Skipped, TickerJob};
use crate::time::Timestamp;

/// How long before its instant a job gets a task that fires it: earlier than any job fires, because the library
/// polls every half second and, on a busy machine, less often.
const LEAD: Duration = Duration::from_millis(2500);
/// No job fires further ahead of its instant: the store grants up to a second ahead by its own clock, which this
/// host knows to some milliseconds only.
const MOST_AHEAD: Duration = Duration::from_millis(900);
/// The longest sleep between two readings of the wall clock.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// If the clock is set back by more than this, it was wrong before and is correct now.
const CORRECTION: Duration = Duration::from_secs(3 * 3600);

/// What the task of a job does next.
#[derive(Debug, PartialEq, Eq)]
pub enum ServeStep {
    /// Sleep for this long, then take another step.
    Sleep(Duration),
    /// Return: the job waits on the board again, has no more occurrences, or all is stopped.
    Leave,
}

/// The jobs and their next occurrences.
pub struct Board {
    state: Mutex<BoardState>,
    clock: Arc<dyn WallClock>,
}

/// How long before their instants jobs fire that are claimed ahead.
#[derive(Debug, Clone, Copy, Default)]
struct Ahead {
    /// What each of them has.
    least: Duration,
    /// What each further job of the same instant adds.
    for_each: Duration,
}

struct BoardState {
    /// The jobs, each under a number that no other job has had.
    slots: BTreeMap<usize, Slot>,
    next_number: usize,
    /// The jobs that have no task, by the instant at which they fire.
    waiting: BTreeSet<(Timestamp, usize)>,
    /// How many jobs that fire earlier in a crowd have taken a turn at an instant that is still to come.
    turns: BTreeMap<Timestamp, u32>,
    ahead: Ahead,
    /// The wall clock at the last poll.
    polled_at: Timestamp,
    tx: mpsc::UnboundedSender<Firing>,
    stopped: bool,
}

/// One job.
struct Slot {
    job: TickerJob,
    /// Nothing before this was fired.
    began: Timestamp,
    /// The first occurrence after `job.from`, which moves on as occurrences are fired.
    next: Option<Timestamp>,
    /// Whether a task serves it.
    armed: bool,
    /// How many jobs of the next occurrence's instant fire after it.
    turn: u32,
}

impl Slot {
    fn due(&self) -> Option<Timestamp> {
        self.next.map(|next| next.plus(self.job.delay))
    }

    /// How much earlier than it has to this host claims the next occurrence.
    fn head_start(&self) -> Option<Duration> {
        let claims = self.job.claims_ahead?;
        Some(claims.head_starts.delay(self.next?, Duration::MAX))
    }

    /// How long before its instant the next occurrence fires.
    fn lead(&self, ahead: Ahead) -> Duration {
        self.head_start().map_or(Duration::ZERO, |head_start| {
            let lead = ahead.least + head_start + ahead.for_each.saturating_mul(self.turn);
            lead.min(MOST_AHEAD)
        })
    }

    /// How long before its instant any occurrence may have fired.
    fn longest_lead(&self, ahead: Ahead) -> Duration {
        match self.job.claims_ahead {
            Some(claims) if claims.earlier_in_a_crowd => MOST_AHEAD,
            Some(claims) => ahead.least + claims.head_starts.window(),
            None => Duration::ZERO,
        }
    }

    /// Takes the next turn at the instant of the next occurrence: those that come later fire earlier, because
    /// nobody knows yet how many there will be.
    fn take_turn(&mut self, turns: &mut BTreeMap<Timestamp, u32>) {
        let joins = |claims: ClaimsAhead| claims.earlier_in_a_crowd;
        if let Some(due) = self
            .due()
            .filter(|_| self.job.claims_ahead.is_some_and(joins))
        {
            let taken = turns.entry(due).or_default();
            self.turn = *taken;
            *taken = taken.saturating_add(1);
        }
    }

    fn new(job: TickerJob) -> Self {
        Self {
            next: job.schedule.next_after(job.from),
            began: job.from,
            job,
            armed: false,
            turn: 0,
        }
    }

    fn set_from(&mut self, from: Timestamp) {
        self.job.from = from;
        self.next = self.job.schedule.next_after(from);
    }

    /// The clock shows `now`. What was fired further ahead of that than by `lead` fires again, and so does
    /// what was never fired because the job began by a clock that was ahead.
    fn believe(&mut self, now: Timestamp, lead: Duration) {
        let now = now.minus(self.job.delay);
        let from = if self.began > now {
            now
        } else {
            now.plus(lead)
        };
        if self.job.from > from {
            self.set_from(from);
            self.began = self.began.min(from);
        }
    }
}

impl Board {
    pub fn new(
        jobs: Vec<TickerJob>,
        tx: mpsc::UnboundedSender<Firing>,
        clock: Arc<dyn WallClock>,
    ) -> Self {
        let slots: BTreeMap<_, _> = (0..).zip(jobs.into_iter().map(Slot::new)).collect();
        let mut state = BoardState {
            next_number: slots.len(),
            slots,
            waiting: BTreeSet::new(),
            turns: BTreeMap::new(),
            ahead: Ahead::default(),
            polled_at: timestamp(clock.now()),
            tx,
            stopped: false,
        };
        state.rebuild_waiting();
        Self {
            state: Mutex::new(state),
            clock,
        }
    }

    /// Sets how long before their instants jobs fire that are claimed ahead: `least`, and `for_each` more for
    /// each further job that shares the instant, at most 0.9 s in all.
    pub fn set_ahead(&self, least: Duration, for_each: Duration) {
        self.state().ahead = Ahead { least, for_each };
    }

    /// Replaces the jobs. One of the same name, schedule and delay goes on from where it is; any other
    /// begins at its `from`. Once this returns, nothing of the jobs before is fired any more.
    ///
    /// Takes what the jobs before have fired from `firings`, and returns it: a new job that is claimed
    /// ahead may fire before the caller has the new list in force.
    pub fn replace(
        &self,
        jobs: Vec<TickerJob>,
        firings: &mut mpsc::UnboundedReceiver<Firing>,
    ) -> Vec<Firing> {
        let mut guard = self.state();
        let state = &mut *guard;
        let fired = std::iter::from_fn(|| firings.try_recv().ok()).collect();
        let old = std::mem::take(&mut state.slots).into_iter();
        let mut old: HashMap<_, _> = old
            .map(|(number, slot)| (slot.job.name.clone(), (number, slot)))
            .collect();
        for job in jobs {
            let known = old.remove(&job.name).filter(|(_, slot)| {
                (&slot.job.schedule, slot.job.delay) == (&job.schedule, job.delay)
            });
            let claims_ahead = job.claims_ahead;
            let (number, mut slot) = known.unwrap_or_else(|| {
                state.next_number += 1;
                (state.next_number - 1, Slot::new(job))
            });
            slot.job.claims_ahead = claims_ahead;
            state.slots.insert(number, slot);
        }
        state.rebuild_waiting();
        fired
    }

    /// The clock shows another time than it did, and is right now: what was fired ahead of it is
    /// fired again when it is due.
    pub fn clock_set(&self) {
        let now = timestamp(self.clock.now());
        let mut state = self.state();
        state.believe(now);
        state.polled_at = now;
    }

    /// The jobs that need a task now, in the order in which they are to get one. A job stays among them until
    /// [`Board::arm`] has taken it.
    ///
    /// Of a crowd, each host begins with other jobs. If all hosts had the same order, one that is slower than the
    /// others, or whose claims take longer, would come second at every job and run none of them.
    pub fn due_soon(&self) -> Vec<usize> {
        let mut state = self.state();
        let mut soon: Vec<_> = state.due_soon(timestamp(self.clock.now())).collect();
        soon.sort_by_cached_key(|(due, job)| {
            let slot = state.slots.get(job);
            (*due, slot.map(Slot::head_start), *job)
        });
        soon.into_iter().map(|(_, job)| job).collect()
    }

    /// Whether any job needs a task now.
    pub fn is_due_soon(&self) -> bool {
        let now = timestamp(self.clock.now());
        self.state().due_soon(now).next().is_some()
    }

    /// Gives a job to the caller alone; false when another has it, or nothing is ahead of it.
    pub fn arm(&self, job: usize) -> bool {
        let mut guard = self.state();
        let state = &mut *guard;
        let Some(slot) = state.slots.get_mut(&job) else {
            return false;
        };
        let taken = slot
            .due()
            .is_some_and(|due| state.waiting.remove(&(due, job)));
        if taken {
            slot.armed = true;
            slot.take_turn(&mut state.turns);
        }
        taken
    }

    /// Fires what is due of an armed job and says what its task does next.
    pub fn step(&self, job: usize) -> ServeStep {
        let mut guard = self.state();
        let state = &mut *guard;
        let Some(slot) = state.slots.get_mut(&job).filter(|_| !state.stopped) else {
            return ServeStep::Leave;
        };
        let ahead = state.ahead;
        let clock_of = |slot: &Slot| self.clock.now() + slot.lead(ahead);
        let (now, soon) = (
            timestamp(clock_of(slot)),
            timestamp(self.clock.now() + LEAD),
        );
        if slot.due().is_some_and(|due| due <= now) {
            if fire(slot, now, &state.tx).is_err() {
                // The receiver was dropped.
                state.stopped = true;
                return ServeStep::Leave;
            }
            slot.turn = 0;
            if slot.due().is_some_and(|due| due <= soon) {
                slot.take_turn(&mut state.turns);
            }
        }
        match slot.due() {
            // Again: the next occurrence has a lead of its own.
            Some(due) if due <= soon => {
                ServeStep::Sleep(until(due, clock_of(slot)).min(LONGEST_SLEEP))
            }
            due => {
                slot.armed = false;
                state.waiting.extend(due.map(|due| (due, job)));
                ServeStep::Leave
            }
        }
    }

    pub fn next_due(&self) -> Option<Timestamp> {
        self.state().slots.values().filter_map(Slot::due).min()
    }

    pub fn stop(&self) {
        self.state().stopped = true;
    }

    fn state(&self) -> MutexGuard<'_, BoardState> {
        // No code that holds the lock leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BoardState {
    /// The jobs without a task that need one at `now`, which the wall clock shows, each with its next instant.
    fn due_soon(&mut self, now: Timestamp) -> impl Iterator<Item = (Timestamp, usize)> {
        if !self.stopped {
            if now.plus(CORRECTION) < self.polled_at {
                self.believe(now);
            }
            self.polled_at = now;
            self.turns = self.turns.split_off(&now);
        }
        let soon = self.waiting.range(..=(now.plus(LEAD), usize::MAX));
        soon.copied().filter(|_| !self.stopped)
    }

    fn rebuild_waiting(&mut self) {
        let slots = self.slots.iter();
        self.waiting = slots
            .filter(|(_, slot)| !slot.armed)
            .filter_map(|(job, slot)| Some((slot.due()?, *job)))
            .collect();
    }

    /// Goes on from `now` with jobs that had been fired ahead of it.
    fn believe(&mut self, now: Timestamp) {
        for slot in self.slots.values_mut() {
            slot.believe(now, slot.longest_lead(self.ahead));
        }
        self.rebuild_waiting();
    }
}

/// Sends every occurrence of the job that is due, in order.
fn fire(slot: &mut Slot, now: Timestamp, tx: &mpsc::UnboundedSender<Firing>) -> Result<(), ()> {
    let until = now.minus(slot.job.delay);
    let (occurrences, mut skipped) = passed_over(slot, until);
    for scheduled_at in occurrences {
        let firing = Firing {
            job: slot.job.name.clone(),
            scheduled_at,
            due_at: scheduled_at.plus(slot.job.delay),
            skipped: skipped.take(),
        };
        tx.send(firing).map_err(drop)?;
        slot.set_from(scheduled_at);
    }
    Ok(())
}

/// The occurrences up to `until` that have not been fired, and the range that was left out before
/// them.
fn passed_over(slot: &Slot, until: Timestamp) -> (Vec<Timestamp>, Option<Skipped>) {
    let schedule = &slot.job.schedule;
    let Some(first) = slot.next.filter(|next| *next <= until) else {
        return (Vec::new(), None);
    };
    // No schedule has two occurrences within a second: mostly there is nothing more to look for.
    if until.since(first) < Duration::from_secs(1) {
        return (vec![first], None);
    }
    let all: Vec<_> = std::iter::once(first)
        .chain(schedule.between(first, until))
        .take(MOST_AT_ONCE + 1)
        .collect();
    if all.len() <= MOST_AT_ONCE {
        return (all, None);
    }
    let after_until = until.plus(Duration::from_millis(1));
    let backward = std::iter::successors(schedule.last_before(after_until), |occurrence| {
        schedule.last_before(*occurrence)
    });
    let mut newest: Vec<_> = backward.take(MOST_AT_ONCE).collect();
    newest.reverse();
    let left_out = newest
        .first()
        .and_then(|oldest| schedule.last_before(*oldest));
    let skipped = left_out.map(|last| Skipped { first, last });
    (newest, skipped)
}

/// The clock's time in whole milliseconds, rounded down; not before 1970.
fn timestamp(clock: SystemTime) -> Timestamp {
    let since_epoch = clock.duration_since(SystemTime::UNIX_EPOCH);
    Timestamp::EPOCH.plus(since_epoch.unwrap_or_default())
}

/// The time from now, by the clock, until `due`, to the nanosecond.
fn until(due: Timestamp, clock: SystemTime) -> Duration {
    let due = SystemTime::UNIX_EPOCH + due.since(Timestamp::EPOCH);
    due.duration_since(clock).unwrap_or_default()
}
