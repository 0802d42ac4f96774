//! How long to wait between two claims of a lock that is held, or of a store that fails.

use std::time::Duration;

use crate::store::LockKey;

/// How long to wait for a lock that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    /// At most this long; zero asks once.
    UpTo(Duration),
    /// Until it is free.
    Forever,
}

/// What is left of a [`WaitLimit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeLeft {
    Time(Duration),
    Unbounded,
}

/// Why a claim was not granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setback {
    /// The lock is held for this long, unless it is renewed.
    Held(Option<Duration>),
    /// The store may have lost data, and grants nothing for this long.
    Recovering(Duration),
    /// The store did not reply.
    Silence,
    /// The store rejected the request.
    Refusal,
}

/// The first pause; each further one doubles it.
const FIRST: Duration = Duration::from_millis(100);
/// The minimum pause while a store recovers, even if it suggests a shorter one.
const SOONEST: Duration = Duration::from_millis(20);
/// The longest pause while releases are announced: a lost announcement costs no more than this.
const LONGEST: Duration = Duration::from_secs(2);
/// The longest pause for a raw key: the programs that share it announce nothing.
const LONGEST_RAW: Duration = Duration::from_millis(400);
/// The pause after a failure of the store, for a caller that does not want to wait.
const RETRIES: u32 = 2;
/// The pause after a rejection by the store, for a caller that waits. The store may be loading or
/// out of memory for a moment; a wrong password stays wrong.
const REFUSALS: u32 = 9;

/// The pauses of one acquisition.
#[derive(Debug)]
pub(super) struct RetryPauses {
    longest: Duration,
    tries: u32,
    failures: u32,
}

impl RetryPauses {
    pub(super) fn new(key: &LockKey) -> Self {
        Self {
            longest: match key {
                LockKey::Named => LONGEST,
                LockKey::Raw(_) => LONGEST_RAW,
            },
            tries: 0,
            failures: 0,
        }
    }

    /// How long to pause (or to listen for a release) before the next claim; `None` to give up.
    /// `spread` draws from the upper half, so that those who wait do not all ask at once.
    pub(super) fn after(
        &mut self,
        setback: Setback,
        left: TimeLeft,
        spread: u8,
    ) -> Option<Duration> {
        let waits = left != TimeLeft::Time(Duration::ZERO);
        let pause = match setback {
            Setback::Held(_) | Setback::Recovering(_) if !waits => return None,
            // Before that nothing changes.
            Setback::Recovering(remaining) => {
                self.failures = 0;
                remaining.max(SOONEST) + Duration::from_millis(spread.into()) / 8
            }
            Setback::Held(remaining) => {
                self.failures = 0;
                let pause = self.drawn(spread);
                // A holder that died leaves at the end of its lease, and nobody announces it.
                let end = remaining.map_or(pause, |r| r + Duration::from_millis(spread.into()) / 8);
                pause.min(end)
            }
            Setback::Silence | Setback::Refusal => {
                self.failures += 1;
                let allowed = match setback {
                    _ if !waits => RETRIES,
                    Setback::Refusal => REFUSALS,
                    _ => u32::MAX,
                };
                if self.failures > allowed {
                    return None;
                }
                self.drawn(spread)
            }
        };
        match left {
            TimeLeft::Time(left) if waits => Some(pause.min(left)),
            _ => Some(pause),
        }
    }

    fn drawn(&mut self, spread: u8) -> Duration {
        let pause = FIRST
            .saturating_mul(1 << self.tries.min(16))
            .min(self.longest);
        self.tries += 1;
        pause / 2 + pause / 2 * u32::from(spread) / 255
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{RetryPauses, Setback, TimeLeft};
    use crate::store::LockKey;

    const HELD: Setback = Setback::Held(Some(Duration::from_secs(30)));

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_store_that_recovers_is_asked_again_when_it_says_and_never_in_a_storm() {
        let mut patience = RetryPauses::new(&LockKey::Named);
        let mut after = |remaining, left| patience.after(Setback::Recovering(remaining), left, 0);
        let unbounded = TimeLeft::Unbounded;
        assert_eq!(after(millis(4000), unbounded), Some(millis(4000)));
        for _ in 0..100 {
            assert_eq!(after(Duration::ZERO, unbounded), Some(millis(20)));
        }
        // The last look comes when the wait is over.
        assert_eq!(
            after(millis(4000), TimeLeft::Time(millis(9))),
            Some(millis(9))
        );
        assert_eq!(after(millis(4000), TimeLeft::Time(Duration::ZERO)), None);
    }

    #[test]
    fn one_who_does_not_wait_gives_up_on_a_held_lock_at_once() {
        let mut patience = RetryPauses::new(&LockKey::Named);
        assert_eq!(
            patience.after(HELD, TimeLeft::Time(Duration::ZERO), 0),
            None
        );
    }

    #[test]
    fn pauses_grow_to_their_longest_and_never_beyond_the_wait() {
        let mut patience = RetryPauses::new(&LockKey::Named);
        let pauses: Vec<_> = (0..7)
            .map(|_| patience.after(HELD, TimeLeft::Unbounded, 255))
            .collect();
        let expected = [100, 200, 400, 800, 1600, 2000, 2000].map(|n| Some(millis(n)));
        assert_eq!(pauses, expected);
        let left = TimeLeft::Time(millis(7));
        assert_eq!(patience.after(HELD, left, 255), Some(millis(7)));
    }

    #[test]
    fn the_end_of_a_dead_holder_is_waited_for_closely() {
        let mut patience = RetryPauses::new(&LockKey::Named);
        for _ in 0..6 {
            patience.after(HELD, TimeLeft::Unbounded, 255);
        }
        let soon = Setback::Held(Some(millis(300)));
        assert_eq!(
            patience.after(soon, TimeLeft::Unbounded, 0),
            Some(millis(300))
        );
    }

    #[test]
    fn a_raw_key_is_asked_for_more_often() {
        let mut patience = RetryPauses::new(&LockKey::Raw("k".to_owned()));
        let forever = Setback::Held(None);
        let longest = (0..9).filter_map(|_| patience.after(forever, TimeLeft::Unbounded, 255));
        assert_eq!(longest.max(), Some(millis(400)));
    }

    #[test]
    fn a_silent_store_is_asked_until_the_wait_is_over_and_then_twice_more() {
        let mut patience = RetryPauses::new(&LockKey::Named);
        for _ in 0..100 {
            assert!(
                patience
                    .after(Setback::Silence, TimeLeft::Unbounded, 0)
                    .is_some()
            );
        }
        let mut patience = RetryPauses::new(&LockKey::Named);
        let over = TimeLeft::Time(Duration::ZERO);
        assert!(patience.after(Setback::Silence, over, 0).is_some());
        assert!(patience.after(Setback::Silence, over, 0).is_some());
        assert_eq!(patience.after(Setback::Silence, over, 0), None);
    }

    #[test]
    fn a_store_that_goes_on_refusing_is_not_asked_for_ever() {
        let mut patience = RetryPauses::new(&LockKey::Named);
        let asked = (0..100)
            .take_while(|_| {
                patience
                    .after(Setback::Refusal, TimeLeft::Unbounded, 0)
                    .is_some()
            })
            .count();
        assert_eq!(asked, 9);
    }
}
