//! Compares this host's clock with the store's, and reacts to the difference.

use std::time::Duration;

use super::clock_file::ClockFile;
use super::store_clock::{Epoch, StoreClock};
use crate::config::{show_duration, show_roughly};
use crate::engine::core::{Event, Now};
use crate::preflight::{NOTABLE, Offset};
use crate::store::Grant;
use crate::time::{BootInstant, TimeSource, Timestamp};

/// Beyond this a change of what the store's clock is believed to show concerns what is under way.
const MOVED: Duration = Duration::from_millis(250);

/// A wall clock that moved by so much since it was measured was stepped.
const STEPPED: Duration = Duration::from_millis(500);

/// What the host itself does between a firing and a start takes less than this, unless it is busy.
const PREPARATION: Duration = Duration::from_millis(5);

/// No lead is longer.
const LONGEST_LEAD: Duration = Duration::from_millis(50);
/// About what a host needs to claim an occurrence and prepare its process, if many share an instant.
pub(super) const A_START: Duration = Duration::from_millis(1);

/// Whether to compare the clocks before a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    First,
    /// The store's clock is this host's own.
    Not,
}

/// Whether this host may claim by its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockTrust {
    /// It is no further than `max_clock_skew` from the store's clock, or was not compared yet.
    Right,
    /// It is further off, and this host claims nothing.
    Wrong,
}

impl ClockTrust {
    /// Judges a first measurement.
    pub(super) fn of(offset: Offset, max: Duration) -> Self {
        if offset.exceeds(max) {
            Self::Wrong
        } else {
            Self::Right
        }
    }
}

/// How right the clock is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClockState {
    Authority,
    /// Further off than people should have to bear.
    Off,
    /// Further off than `max_clock_skew`.
    Wrong,
}

/// The last measurement, and what was said of it.
#[derive(Debug)]
pub struct HostClock {
    max: Duration,
    compares: bool,
    last: Option<Offset>,
    /// The wall clock at the last measurement.
    epoch: Option<Epoch>,
    store: StoreClock,
    state: ClockState,
    /// How long claims take from their sending to the grant, of late: the slowest counts, and less with each that
    /// was faster. Zero if no claim was granted yet.
    claims_take: Duration,
}

impl HostClock {
    pub fn new(max: Duration, compares: bool) -> Self {
        Self {
            max,
            compares,
            last: None,
            // What the core and the ticker start with.
            epoch: (!compares).then(Epoch::now),
            store: StoreClock::default(),
            state: ClockState::Authority,
            claims_take: Duration::ZERO,
        }
    }

    /// A clock that goes by what an earlier daemon measured, if that is kept.
    pub(super) fn start(max: Duration, compares: bool, kept: &ClockFile) -> Self {
        let clock = Self::new(max, compares);
        if let Some(epoch) = kept.load() {
            clock.recall(epoch);
        }
        clock
    }

    /// Sets how far the clocks may be apart, from the next measurement on.
    pub(super) fn set_max(&mut self, max: Duration) {
        self.max = max;
    }

    /// Whether there is anything to measure.
    pub(super) fn measure(&self) -> Measure {
        if self.compares {
            Measure::First
        } else {
            Measure::Not
        }
    }

    /// Whether it is so far from the store's clock that this host claims nothing.
    pub(super) fn is_wrong(&self) -> bool {
        self.state == ClockState::Wrong
    }

    /// How far the clock is off, if it is so far that this host claims nothing.
    pub(super) fn why_wrong(&self) -> Option<String> {
        let offset = self.last.filter(|_| self.is_wrong())?;
        Some(format!(
            "its clock is {} (max_clock_skew {})",
            offset.roughly(),
            show_duration(self.max)
        ))
    }

    /// Whether this host may claim by its clock, as last measured.
    pub fn trust(&self) -> ClockTrust {
        if self.is_wrong() {
            ClockTrust::Wrong
        } else {
            ClockTrust::Right
        }
    }

    /// Notes how long a claim took that was granted, without the question that may have preceded it. No claim counts
    /// for more than the longest lead covers: otherwise one during an outage would decide the lead of dozens.
    pub(super) fn claim_granted(&mut self, grant: &Grant, now: BootInstant) {
        self.claim_took(now.since(grant.sent));
    }

    fn claim_took(&mut self, took: Duration) {
        let took = took.min(LONGEST_LEAD / 2);
        self.claims_take = took.max(self.claims_take / 8 * 7);
    }

    /// How long before their instants jobs are claimed: long enough for the claim, for what the host does
    /// before a start, and for what the store's clock may be ahead of this host's idea of it.
    pub(super) fn lead(&self) -> Duration {
        let error = self.last.map_or(Duration::ZERO, |offset| offset.error);
        let lead = error * 2 + self.claims_take * 2 + PREPARATION;
        lead.min(LONGEST_LEAD)
    }

    /// Until when the store may be asked something before a claim that is sent ahead of `at`: question, claim and
    /// preparation of the process must end before it. `None` if it is unknown how long claims take.
    pub(super) fn asks_until(&self, at: Timestamp, now: Now) -> Option<BootInstant> {
        let left = at.since(now.utc);
        let left = left.checked_sub(self.claims_take * 2 + A_START)?;
        (!self.claims_take.is_zero()).then(|| now.boot.plus(left))
    }

    /// The last measurement, in milliseconds.
    pub(super) fn offset(&self) -> Option<i64> {
        self.last.map(|offset| offset.millis)
    }

    /// A clock that is no better for certain, by a tenth and more, stays as it was: else one at a
    /// limit would change its state with every measurement.
    fn judge(&self, offset: Offset) -> ClockState {
        if offset.exceeds(self.max) {
            return ClockState::Wrong;
        }
        if self.state == ClockState::Wrong && !offset.is_within(self.max / 10 * 9) {
            return ClockState::Wrong;
        }
        if offset.exceeds(NOTABLE) {
            return ClockState::Off;
        }
        if self.state == ClockState::Authority || offset.is_within(NOTABLE / 10 * 9) {
            return ClockState::Authority;
        }
        ClockState::Off
    }

    /// The store's clock as last measured.
    pub fn store_clock(&self) -> StoreClock {
        self.store.clone()
    }

    /// The store's clock as last measured, for those who only read it.
    pub(super) fn time_source(&self) -> TimeSource {
        let store = self.store_clock();
        TimeSource::new(move || store.read(Timestamp::now(), BootInstant::now()))
    }

    /// Goes by what an earlier daemon of this host measured, until it measures itself.
    pub fn recall(&self, epoch: Epoch) {
        self.store.recall(epoch);
    }

    /// What the core goes by when the host's clocks show this: the store's clock, as last measured.
    pub fn at(&self, wall: Timestamp, boot: BootInstant) -> Now {
        Now {
            utc: self.store.read(wall, boot),
            boot,
        }
    }

    /// Returns [`Self::at`] for now.
    pub(super) fn now(&self) -> Now {
        self.at(Timestamp::now(), BootInstant::now())
    }

    /// Whether the wall clock was stepped since it was last measured.
    pub(super) fn was_stepped(&self) -> bool {
        let moved = (self.epoch).map(|epoch| epoch.distance(Epoch::now()));
        moved.is_some_and(|moved| moved > STEPPED)
    }

    /// Looks at a wall clock that is the store's as well. Says by how much it was stepped since the
    /// last look, and returns what the core must know.
    pub(super) fn look(&mut self, now: Epoch) -> Option<Event> {
        let before = self.epoch.filter(|_| !self.compares)?;
        let by = now.distance(before);
        if by <= STEPPED {
            return None;
        }
        self.epoch = Some(now);
        let shown = show_roughly(by);
        if now.is_before(before) {
            tracing::info!(
                "this host's clock was set back by about {shown}; jobs start by the new time, and what \
                 the store has already decided does not run again"
            );
        } else {
            tracing::info!(
                "this host's clock was set forward by about {shown}; `catch_up` decides what becomes of \
                 the occurrences in between"
            );
        }
        Some(Event::ClockSet)
    }

    /// Takes a measurement, made while the wall clock was at `epoch`. Says what has changed, once,
    /// and returns what the core must know, in order.
    ///
    /// A first measurement that moves the clock at all counts as a step: the ticker has begun by the clock
    /// before it, and must not leave out what lies between the two.
    pub fn measured(&mut self, offset: Offset, epoch: Epoch) -> Vec<Event> {
        let is_first = self.last.is_none();
        let moved = self.store.measured(offset, epoch);
        self.epoch = Some(epoch);
        let is_set = moved > MOVED || is_first && !moved.is_zero();
        let set = is_set.then_some(Event::ClockSet);
        set.into_iter().chain(self.judged(offset)).collect()
    }

    fn judged(&mut self, offset: Offset) -> Option<Event> {
        self.last = Some(offset);
        let before = self.state;
        let now = self.judge(offset);
        self.state = now;
        if before == now {
            return None;
        }
        let shown = offset.shown();
        match now {
            ClockState::Wrong => tracing::error!(
                "this host's clock is {shown}, which is more than max_clock_skew ({}): this host \
                 starts no due jobs until the clock is corrected; other hosts do. Check its time \
                 service (chrony, systemd-timesyncd); `trigger` still works here",
                show_duration(self.max)
            ),
            ClockState::Off => tracing::warn!(
                "this host's clock is {shown}; jobs still start by the store's clock. Check this \
                 host's time service (chrony, systemd-timesyncd)"
            ),
            ClockState::Authority => tracing::info!("this host's clock is correct again: {shown}"),
        }
        match (before, now) {
            (_, ClockState::Wrong) => Some(Event::ClockWrong),
            (ClockState::Wrong, _) => Some(Event::ClockRight),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{RunId, Token};
    use crate::store::Lock;

    #[test]
    fn a_step_of_the_clock_that_is_the_store_s_as_well_is_noticed_once() {
        let boot = BootInstant::now();
        let shifted = |seconds: i64| {
            let wall = Timestamp::from_millis(Timestamp::now().millis() + seconds * 1_000);
            Epoch::of(wall, boot)
        };
        let mut clock = HostClock::new(Duration::from_secs(30), false);
        for (seconds, set) in [(0, false), (-5_400, true), (-5_400, false), (60, true)] {
            let event = clock.look(shifted(seconds));
            assert_eq!(matches!(event, Some(Event::ClockSet)), set, "{seconds}");
        }
        let mut of_another = HostClock::new(Duration::from_secs(30), true);
        assert!(
            of_another.look(shifted(-5_400)).is_none(),
            "that is measured"
        );
    }

    #[test]
    fn a_first_measurement_that_moves_the_clock_sets_it_and_later_ones_only_if_they_move_it_far() {
        let epoch = Epoch::of(Timestamp::from_secs(1_000), BootInstant::now());
        let mut clock = HostClock::new(Duration::from_secs(30), true);
        let mut is_set = |millis| {
            let error = Duration::from_millis(1);
            let events = clock.measured(Offset { millis, error }, epoch);
            matches!(events[..], [Event::ClockSet])
        };
        assert!(is_set(76), "the ticker began by a clock that was ahead");
        assert!(!is_set(90));
        assert!(is_set(400));
        let mut right = HostClock::new(Duration::from_secs(30), true);
        let error = Duration::from_millis(1);
        assert!(
            right
                .measured(Offset { millis: 3, error }, epoch)
                .is_empty()
        );
    }

    #[test]
    fn the_lead_follows_the_slowest_claims_and_the_error_of_the_measurement_within_limits() {
        let ms = Duration::from_millis;
        let mut clock = HostClock::new(ms(30_000), true);
        assert_eq!(clock.lead(), PREPARATION);
        clock.claim_took(ms(8));
        assert_eq!(clock.lead(), PREPARATION + ms(16));
        clock.claim_took(ms(1));
        assert_eq!(clock.lead(), PREPARATION + ms(14), "that one was faster");
        clock.judged(Offset {
            millis: 0,
            error: ms(3),
        });
        assert_eq!(clock.lead(), PREPARATION + ms(20));
        clock.claim_took(ms(60_000));
        assert_eq!(clock.lead(), LONGEST_LEAD);
        for _ in 0..8 {
            clock.claim_took(ms(1));
        }
        assert!(clock.lead() < ms(30), "{:?}", clock.lead());
    }

    #[test]
    fn a_question_has_time_until_two_round_trips_before_the_start() {
        let ms = Duration::from_millis;
        let mut clock = HostClock::new(ms(30_000), true);
        let (utc, boot) = (
            Timestamp::from_secs(1_000),
            BootInstant::from_duration(ms(5_000)),
        );
        let now = Now { utc, boot };
        assert_eq!(clock.asks_until(utc.plus(ms(50)), now), None, "unknown");
        clock.claim_granted(&sent(boot.minus(ms(8))), boot);
        let until = clock.asks_until(utc.plus(ms(50)), now);
        assert_eq!(until, Some(boot.plus(ms(34)).minus(A_START)));
        assert_eq!(clock.asks_until(utc.plus(ms(16)), now), None);
        assert_eq!(clock.asks_until(utc.minus(ms(1)), now), None);
    }

    #[test]
    fn a_question_before_a_claim_makes_no_lead_longer() {
        let ms = Duration::from_millis;
        let mut clock = HostClock::new(ms(30_000), true);
        let decided = BootInstant::from_duration(ms(5_000));
        // The answer to the question took 20 ms.
        clock.claim_granted(&sent(decided.plus(ms(20))), decided.plus(ms(23)));
        assert_eq!(clock.lead(), PREPARATION + ms(6));
    }

    /// The grant of a claim that was sent then.
    fn sent(sent: BootInstant) -> Grant {
        Grant {
            lock: Lock::raw("lock"),
            token: Token::from_text("token"),
            run_id: RunId::from_text("run"),
            fence: 1,
            ttl: Duration::from_secs(30),
            sent,
            starts_at: None,
        }
    }

    #[test]
    fn claims_stop_beyond_the_limit_and_go_on_within_it() {
        let mut clock = HostClock::new(Duration::from_secs(30), true);
        let mut measured = |millis| {
            clock.judged(Offset {
                millis,
                error: Duration::from_millis(5),
            })
        };
        assert!(measured(0).is_none());
        assert!(measured(-2_000).is_none());
        assert!(matches!(measured(-31_000), Some(Event::ClockWrong)));
        assert!(measured(-32_000).is_none(), "said once");
        assert!(matches!(measured(-2_000), Some(Event::ClockRight)));
        assert!(matches!(measured(31_000), Some(Event::ClockWrong)));
        assert!(matches!(measured(10), Some(Event::ClockRight)));
    }

    #[test]
    fn a_clock_at_the_limit_or_measured_badly_does_not_change_its_mind_every_time() {
        let mut clock = HostClock::new(Duration::from_secs(30), true);
        let mut state = |millis, error| {
            let error = Duration::from_millis(error);
            clock.judged(Offset { millis, error });
            clock.state
        };
        assert_eq!(state(1_100, 5), ClockState::Off);
        assert_eq!(state(990, 5), ClockState::Off);
        assert_eq!(state(1_100, 900), ClockState::Off);
        assert_eq!(state(800, 5), ClockState::Authority);
        assert_eq!(state(990, 5), ClockState::Authority);
        assert_eq!(state(30_100, 5), ClockState::Wrong);
        assert_eq!(state(29_900, 5), ClockState::Wrong);
        assert_eq!(state(20_000, 15_000), ClockState::Wrong);
        assert_eq!(state(20_000, 5), ClockState::Off);
    }
}
