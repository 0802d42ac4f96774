//! The two clocks: UTC for what is due and what happened, boot time for how long a lease lasts.
//!
//! Hosts compare wall clocks only through the store. The end of a lease is measured on
//! `CLOCK_BOOTTIME`, which cannot be stepped and continues during suspend.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeZone as _, Utc};

/// An instant in UTC, in whole milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The start of the epoch.
    pub const EPOCH: Self = Self(0);

    /// This host's wall clock.
    pub fn now() -> Self {
        Self(Utc::now().timestamp_millis())
    }

    /// The instant `millis` milliseconds after the epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// The instant `seconds` seconds after the epoch.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds * 1000)
    }

    /// Milliseconds since the epoch.
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Reads RFC 3339, any offset.
    pub fn parse(text: &str) -> Result<Self, chrono::ParseError> {
        DateTime::parse_from_rfc3339(text).map(|t| Self(t.timestamp_millis()))
    }

    /// The instant for calendar work; instants beyond chrono's range become its ends.
    pub fn to_utc(self) -> DateTime<Utc> {
        Utc.timestamp_millis_opt(self.0)
            .single()
            .unwrap_or(if self.0 < 0 {
                DateTime::<Utc>::MIN_UTC
            } else {
                DateTime::<Utc>::MAX_UTC
            })
    }

    /// How long after `earlier` this is; zero when it is not after.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// This instant and `duration` more, at most the end of the representable range.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)),
        )
    }

    /// This instant less `duration`.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)),
        )
    }
}

/// RFC 3339 in UTC, with milliseconds only if they are not zero.
/// Where the time in UTC is read: this host's wall clock, or a clock that is known to be better.
#[derive(Clone)]
pub(crate) struct TimeSource(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl TimeSource {
    /// A clock that `now` reads.
    pub(crate) fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time now.
    pub(crate) fn now(&self) -> Timestamp {
        (self.0)()
    }
}

/// This host's wall clock.
impl Default for TimeSource {
    fn default() -> Self {
        Self::new(Timestamp::now)
    }
}

impl fmt::Debug for TimeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TimeSource").field(&self.now()).finish()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let format = if self.0 % 1000 == 0 {
            SecondsFormat::Secs
        } else {
            SecondsFormat::Millis
        };
        f.pad(&self.to_utc().to_rfc3339_opts(format, true))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// An instant on `CLOCK_BOOTTIME` of this machine: monotonic, counts suspend, the same for every
/// process since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(Duration);

impl BootInstant {
    /// The boot of this machine.
    pub const BOOT: Self = Self(Duration::ZERO);

    /// Now.
    ///
    /// # Panics
    ///
    /// Never on Linux 2.6.39 or later, where the clock exists.
    pub fn now() -> Self {
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
            .expect("CLOCK_BOOTTIME exists on every supported kernel");
        Self(Duration::from(now))
    }

    /// The instant that lies `since_boot` after boot.
    pub const fn from_duration(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// How long after boot this is.
    pub const fn to_duration(self) -> Duration {
        self.0
    }

    /// This instant and `duration` more.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// This instant less `duration`, not before boot.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }

    /// How long after `earlier` this is; zero when it is not after.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// How long it is from now until this instant; zero when it has passed.
    pub fn remaining(self) -> Duration {
        self.since(Self::now())
    }
}

/// Returns the instant so many seconds after boot.
#[cfg(test)]
pub(crate) const fn seconds_after_boot(seconds: u64) -> BootInstant {
    BootInstant::from_duration(Duration::from_secs(seconds))
}
