//! When instants come by the store's clock, by what its replies to claims have said.
//!
//! A reply says how long it was until the instant of its claim when the store wrote it: after the claim was sent, and
//! before the reply arrived. So the instant has come by the store's clock once that time has passed since the arrival.
//! While the store decides on thousands of claims, replies wait for many milliseconds before this host reads them. The
//! one that has waited least says best when the instants of the others come.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use crate::store::Grant;
use crate::time::{BootInstant, Timestamp};

/// One part in so many is what two clocks may drift apart: each is slowed or sped up by at most 500 ppm (adjtimex(2)).
const DRIFT: u32 = 1_000;

/// What the replies have said.
#[derive(Debug, Default)]
pub(super) struct ReplyClock {
    /// For each clock of the store ([`Store::clock_of`](crate::store::Store::clock_of)), the reply that says best.
    best: HashMap<u64, Arrival>,
}

/// A reply whose arrival tells the time.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    /// The boot clock less the store's clock, in nanoseconds: at most this, because the reply was written earlier.
    difference: i128,
    /// When that was known.
    at: BootInstant,
}

impl Arrival {
    /// What it says later.
    fn difference(self, now: BootInstant) -> i128 {
        self.difference + nanos(now.since(self.at) / DRIFT)
    }
}

impl ReplyClock {
    /// Returns when a run may start whose claim was granted ahead of `instant` by this clock of the store, given that
    /// this is known by `now`: never before the instant by that clock. It is what the grant says, or earlier if an
    /// earlier reply arrived sooner after it was written. An earlier reply does not count if this one contradicts it,
    /// as after the clock was set back. `None` if the run may start at once.
    pub(super) fn starts_at(
        &mut self,
        grant: &Grant,
        (instant, clock): (Timestamp, u64),
        now: BootInstant,
    ) -> Option<BootInstant> {
        let said = grant.starts_at?;
        let latest = difference(said, instant);
        let possible = Range {
            start: latest - nanos(now.since(grant.sent)),
            end: latest,
        };
        let best = self.best.get(&clock).map(|best| best.difference(now));
        let Some(best) = best.filter(|best| possible.contains(best)) else {
            let arrival = Arrival {
                difference: latest,
                at: now,
            };
            self.best.insert(clock, arrival);
            return Some(said);
        };
        let earlier = u64::try_from(latest - best).unwrap_or(0);
        Some(said.minus(Duration::from_nanos(earlier)))
    }

    /// Forgets what the replies have said: another server may decide from now on.
    pub(super) fn forget(&mut self) {
        self.best.clear();
    }
}

/// How much more the boot clock shows than the store's clock, in nanoseconds, if the one shows `boot` when the other
/// shows `instant`.
fn difference(boot: BootInstant, instant: Timestamp) -> i128 {
    nanos(boot.to_duration()) - i128::from(instant.millis()) * 1_000_000
}

fn nanos(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{RunId, Token};
    use crate::store::Lock;
    use crate::time::seconds_after_boot;

    /// The boot clock at the instant of the tests, by the store's clock.
    const TRUE: BootInstant = seconds_after_boot(1_000);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// What a clock says of a claim for an instant, which was sent before `TRUE` by the first of these times. The reply
    /// was written after the second, and read after the third.
    fn said(replies: &mut ReplyClock, instant: Timestamp, times: [u64; 3]) -> BootInstant {
        said_by(0, replies, instant, times)
    }

    /// The same for a claim on which this clock of the store decided.
    fn said_by(
        clock: u64,
        replies: &mut ReplyClock,
        instant: Timestamp,
        [before, written, read]: [u64; 3],
    ) -> BootInstant {
        let sent = TRUE.minus(ms(before));
        let now = sent.plus(ms(written + read));
        let after = instant.since(INSTANT);
        let starts_in = TRUE.plus(after).since(sent.plus(ms(written)));
        let grant = Grant {
            lock: Lock::raw("lock"),
            token: Token::from_text("token"),
            run_id: RunId::from_text("run"),
            fence: 1,
            ttl: Duration::from_secs(30),
            sent,
            starts_at: None,
        };
        let grant = grant.starting_in(starts_in, now);
        replies
            .starts_at(&grant, (instant, clock), now)
            .expect("it is ahead of its instant")
    }

    const INSTANT: Timestamp = Timestamp::from_secs(1_800_000_000);

    #[test]
    fn the_reply_that_waited_least_says_when_the_instants_of_the_others_come() {
        let mut replies = ReplyClock::default();
        let first = said(&mut replies, INSTANT, [900, 1, 5]);
        assert_eq!(first, TRUE.plus(ms(5)), "nothing else is known");
        let quick = said(&mut replies, INSTANT, [800, 1, 1]);
        assert_eq!(quick, TRUE.plus(ms(1)));
        let slow = said(&mut replies, INSTANT, [798, 1, 40]);
        assert!(slow < TRUE.plus(ms(2)), "{slow:?}");
        assert!(slow >= TRUE);
        let other = INSTANT.plus(ms(500));
        let other = said(&mut replies, other, [790, 1, 40]);
        assert!(other < TRUE.plus(ms(502)) && other >= TRUE.plus(ms(500)));
    }

    #[test]
    fn clocks_may_drift_apart_after_a_reply() {
        let mut replies = ReplyClock::default();
        said(&mut replies, INSTANT, [60_000, 1, 1]);
        let after_ten_seconds = said(&mut replies, INSTANT, [50_000, 1, 40]);
        let margin = after_ten_seconds.since(TRUE);
        assert!((ms(11)..ms(12)).contains(&margin), "{margin:?}");
        let after_a_minute = said(&mut replies, INSTANT, [100, 1, 40]);
        assert_eq!(after_a_minute, TRUE.plus(ms(40)), "the other says less");
    }

    #[test]
    fn nothing_starts_early_by_a_clock_that_was_set_back_meanwhile() {
        let mut replies = ReplyClock::default();
        said(&mut replies, INSTANT, [900, 1, 1]);
        let half_a_second_earlier = INSTANT.minus(ms(500));
        let set_back = said(&mut replies, half_a_second_earlier, [800, 1, 40]);
        assert_eq!(set_back, TRUE.plus(ms(40)));
        let next = said(&mut replies, half_a_second_earlier, [700, 1, 60]);
        assert!(next < TRUE.plus(ms(41)) && next >= TRUE, "{next:?}");
    }
    #[test]
    fn a_reply_says_nothing_about_another_clock_or_after_a_failure() {
        let mut replies = ReplyClock::default();
        said(&mut replies, INSTANT, [900, 1, 1]);
        let other = said_by(1, &mut replies, INSTANT, [800, 1, 40]);
        assert_eq!(other, TRUE.plus(ms(40)));
        replies.forget();
        let same = said(&mut replies, INSTANT, [700, 1, 40]);
        assert_eq!(same, TRUE.plus(ms(40)));
    }
}
