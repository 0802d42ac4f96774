//! `every:`: the multiples of a period since the epoch, so that all hosts agree on them.

use std::time::Duration;

use super::IntervalError;
use crate::time::Timestamp;

/// The longest period: a thousand years of 365 days.
const LONGEST: i64 = 1000 * 365 * 86_400_000;

/// A period, in whole milliseconds, at least a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Interval {
    millis: i64,
}

impl Interval {
    pub(super) fn new(period: Duration) -> Result<Self, IntervalError> {
        if period < Duration::from_secs(1) {
            return Err(IntervalError::TooShort);
        }
        if !period.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(IntervalError::TooFine);
        }
        match i64::try_from(period.as_millis()) {
            Ok(millis @ ..=LONGEST) => Ok(Self { millis }),
            _ => Err(IntervalError::TooLong),
        }
    }

    pub(super) fn next_after(self, from: Timestamp) -> Option<Timestamp> {
        let whole = from.millis().div_euclid(self.millis).checked_add(1)?;
        whole.checked_mul(self.millis).map(Timestamp::from_millis)
    }

    pub(super) fn last_before(self, before: Timestamp) -> Option<Timestamp> {
        let whole = before.millis().checked_sub(1)?.div_euclid(self.millis);
        whole.checked_mul(self.millis).map(Timestamp::from_millis)
    }

    pub(super) fn period(self) -> Duration {
        Duration::from_millis(self.millis.unsigned_abs())
    }
}
