//! What the daemon makes of its clock's distance from the store's.

use std::time::Duration;

use crate::config::show_duration;
use crate::engine::core::Event;
use crate::preflight::{NOTABLE, Offset};

/// Whether to compare the clocks before a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    First,
    /// The store's clock is this host's own.
    Not,
}

/// How right the clock is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Right,
    /// Further off than people should have to bear.
    Off,
    /// Further off than `max_clock_skew`.
    Wrong,
}

/// The last measurement, and what was said of it.
#[derive(Debug)]
pub(super) struct Clock {
    max: Duration,
    compares: bool,
    last: Option<Offset>,
    state: State,
}

impl Clock {
    pub(super) fn new(max: Duration, compares: bool) -> Self {
        Self {
            max,
            compares,
            last: None,
            state: State::Right,
        }
    }

    /// Whether there is anything to measure.
    pub(super) fn measure(&self) -> Measure {
        if self.compares {
            Measure::First
        } else {
            Measure::Not
        }
    }

    /// The last measurement, in milliseconds.
    pub(super) fn offset(&self) -> Option<i64> {
        self.last.map(|offset| offset.millis)
    }

    /// A clock that is no better for certain, by a tenth and more, stays as it was: else one at a
    /// limit would change its state with every measurement.
    fn judge(&self, offset: Offset) -> State {
        if offset.exceeds(self.max) {
            return State::Wrong;
        }
        if self.state == State::Wrong && !offset.is_within(self.max / 10 * 9) {
            return State::Wrong;
        }
        if offset.exceeds(NOTABLE) {
            return State::Off;
        }
        if self.state == State::Right || offset.is_within(NOTABLE / 10 * 9) {
            return State::Right;
        }
        State::Off
    }

    /// Says what has changed, once, and answers what the core must know.
    pub(super) fn measured(&mut self, offset: Offset) -> Option<Event> {
        self.last = Some(offset);
        let before = self.state;
        let now = self.judge(offset);
        self.state = now;
        if before == now {
            return None;
        }
        let shown = offset.shown();
        match now {
            State::Wrong => tracing::error!(
                "this host's clock is {shown}: it makes no claims while that is more than {} \
                 (max_clock_skew)",
                show_duration(self.max)
            ),
            State::Off => tracing::warn!(
                "this host's clock is {shown}: jobs start late, or are asked for in vain; is its \
                 time service running?"
            ),
            State::Right => tracing::info!("this host's clock is right again: {shown}"),
        }
        match (before, now) {
            (_, State::Wrong) => Some(Event::ClockWrong),
            (State::Wrong, _) => Some(Event::ClockRight),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_stop_beyond_the_limit_and_go_on_within_it() {
        let mut clock = Clock::new(Duration::from_secs(30), true);
        let mut measured = |millis| {
            clock.measured(Offset {
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
        let mut clock = Clock::new(Duration::from_secs(30), true);
        let mut state = |millis, error| {
            let error = Duration::from_millis(error);
            clock.measured(Offset { millis, error });
            clock.state
        };
        assert_eq!(state(1_100, 5), State::Off);
        assert_eq!(state(990, 5), State::Off);
        assert_eq!(state(1_100, 900), State::Off);
        assert_eq!(state(800, 5), State::Right);
        assert_eq!(state(990, 5), State::Right);
        assert_eq!(state(30_100, 5), State::Wrong);
        assert_eq!(state(29_900, 5), State::Wrong);
        assert_eq!(state(20_000, 15_000), State::Wrong);
        assert_eq!(state(20_000, 5), State::Off);
    }
}
