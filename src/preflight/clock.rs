//! How far this host's clock is from the store's.

use std::time::Duration;

use super::{Finding, ids};
use crate::config::{show_duration, show_roughly};
use crate::store::{Store, StoreError};
use crate::time::{BootInstant, Timestamp};

/// The smallest offset that is reported as a warning.
pub(crate) const NOTABLE: Duration = Duration::from_secs(1);

/// A store replies within a second, or the request fails: if a measurement may be wrong by more than this, the
/// host was stopped or suspended during the round trip.
const LONGEST_ERROR: Duration = Duration::from_millis(600);
/// An offset of at least this much is shown in minutes, hours or days.
const ROUGH: Duration = Duration::from_secs(60);

/// The host's clock less the store's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset {
    /// In milliseconds; positive when the host is ahead.
    pub millis: i64,
    /// The largest error of the measurement: half of its round trip.
    pub error: Duration,
}

impl Offset {
    /// Asks the store for its clock, and takes the reply to be from the middle of the round trip.
    pub(crate) async fn measure(store: &dyn Store) -> Result<Self, StoreError> {
        let (sent, began) = (Timestamp::now(), BootInstant::now());
        let theirs = store.now().await?;
        let error = BootInstant::now().since(began) / 2;
        let ours = sent.plus(error);
        Ok(Self {
            millis: ours.millis().saturating_sub(theirs.millis()),
            error,
        })
    }

    /// The most exact of several measurements, the first of which may include a log-in.
    pub(crate) async fn measure_well(store: &dyn Store) -> Result<Self, StoreError> {
        let mut best = Self::measure(store).await?;
        for _ in 0..2 {
            let next = Self::measure(store).await?;
            if next.error < best.error {
                best = next;
            }
        }
        Ok(best)
    }

    /// Whether the host was stopped or suspended during the measurement. Such a measurement must not be used: a daemon
    /// takes the earliest time that is possible, and would set its clock back by the length of the pause.
    pub fn is_unusable(self) -> bool {
        self.error > LONGEST_ERROR
    }

    /// Whether the clocks are certainly further apart than `limit`.
    pub(crate) fn exceeds(self, limit: Duration) -> bool {
        let apart = Duration::from_millis(self.millis.unsigned_abs());
        apart.saturating_sub(self.error) > limit
    }

    /// Whether the clocks are certainly no further apart than `limit`.
    pub(crate) fn is_within(self, limit: Duration) -> bool {
        Duration::from_millis(self.millis.unsigned_abs()) + self.error <= limit
    }

    /// `2.1 s ahead of the store's (give or take 0.002 s)`; from a minute on without its error, which is then
    /// negligible.
    pub(crate) fn shown(self) -> String {
        let apart = Duration::from_millis(self.millis.unsigned_abs());
        if apart >= ROUGH && self.error < NOTABLE {
            return self.roughly();
        }
        let (seconds, error) = (apart.as_secs_f64(), self.error.as_secs_f64());
        format!(
            "{seconds:.3} s {} the store's (give or take {error:.3} s)",
            self.side()
        )
    }

    /// `1m30s behind the store's`.
    pub(crate) fn roughly(self) -> String {
        let apart = Duration::from_secs((self.millis.unsigned_abs() + 500) / 1_000);
        format!("{} {} the store's", show_roughly(apart), self.side())
    }

    fn side(self) -> &'static str {
        if self.millis < 0 {
            "behind"
        } else {
            "ahead of"
        }
    }
}

/// Whether the store's clock can be taken for right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trusted {
    Yes,
    /// Several nodes decide, and no majority of them agrees on the time.
    No,
}

/// What an offset means. Unless the store's clock can be `trusted`, this host's may be the right
/// one.
pub(super) fn judge(offset: Offset, max: Duration, trusted: Trusted) -> Finding {
    let shown = offset.shown();
    let mut text = format!("this host's clock is {shown}");
    if trusted == Trusted::No && offset.exceeds(NOTABLE) {
        text += ", but the clocks of the reachable nodes differ, and this host's may be correct";
    }
    let fix = "synchronise the clocks of all hosts and of the store with chrony or systemd-timesyncd \
               (`timedatectl set-ntp true`)";
    if offset.exceeds(max) {
        let max = show_duration(max);
        return ids::CLOCK.danger(
            "this host",
            format!("{text}: more than max_clock_skew ({max}), so this host claims nothing"),
            fix,
        );
    }
    if offset.exceeds(NOTABLE) && trusted == Trusted::No {
        return ids::CLOCK.hint("this host", text, fix);
    }
    if offset.exceeds(NOTABLE) {
        return ids::CLOCK.warning(
            "this host",
            format!(
                "{text}: the daemon uses the store's clock, so nothing runs twice, early or late \
                 because of this, unless the daemon is started while the store is unreachable"
            ),
            fix,
        );
    }
    ids::CLOCK.ok("this host", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(millis: i64, error: u64) -> Offset {
        Offset {
            millis,
            error: Duration::from_millis(error),
        }
    }

    #[test]
    fn a_measurement_during_which_the_host_was_suspended_is_unusable() {
        assert!(!offset(40, 500).is_unusable());
        assert!(offset(14_000, 14_000).is_unusable());
    }

    #[test]
    fn an_offset_of_minutes_is_shown_to_the_second() {
        let error = Duration::from_millis(2);
        let shown = |millis| Offset { millis, error }.shown();
        let exact = "2.100 s ahead of the store's (give or take 0.002 s)";
        assert_eq!(shown(2_100), exact);
        assert_eq!(shown(-89_998), "1m30s behind the store's");
        assert_eq!(shown(599_998), "10m ahead of the store's");
        assert_eq!(shown(-34_560_000_002), "400d behind the store's");
    }

    #[test]
    fn an_offset_counts_only_as_far_as_it_is_certain() {
        assert!(!offset(1_400, 500).exceeds(NOTABLE));
        assert!(offset(1_501, 500).exceeds(NOTABLE));
        assert!(offset(-1_501, 500).exceeds(NOTABLE));
        assert!(!offset(100, 900).exceeds(NOTABLE));
    }

    #[test]
    fn the_further_apart_the_worse() {
        use super::super::Severity::{Danger, Ok, Warning};
        let max = Duration::from_secs(30);
        let judged = |millis| judge(offset(millis, 10), max, Trusted::Yes).severity;
        assert_eq!(judged(900), Ok);
        assert_eq!(judged(-2_000), Warning);
        assert_eq!(judged(31_000), Danger);
        assert_eq!(judged(-31_000), Danger);
        let unsure = judge(offset(5_000, 10), max, Trusted::No);
        assert_eq!(unsure.severity, super::super::Severity::Hint);
        assert!(unsure.text.contains("may be correct"), "{}", unsure.text);
    }
}
