//! Durations, counted in buckets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the buckets, in seconds, ascending. Above the last one is one more bucket.
pub(super) type Bounds = &'static [f64];

/// How many durations fell into each bucket, and their sum. Never resets.
#[derive(Debug)]
pub(super) struct Histogram {
    bounds: Bounds,
    counts: Vec<AtomicU64>,
    sum_micros: AtomicU64,
}

/// The state of a histogram at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HistogramReading {
    /// Each bound with the number of durations up to it. The last one is infinity.
    pub(super) buckets: Vec<(f64, u64)>,
    /// In seconds.
    pub(super) sum: f64,
}

impl Histogram {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum_micros: AtomicU64::new(0),
        }
    }

    pub(super) fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> HistogramReading {
        let mut total = 0;
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let buckets = bounds.zip(&self.counts).map(|(bound, count)| {
            total += count.load(Ordering::Relaxed);
            (bound, total)
        });
        HistogramReading {
            buckets: buckets.collect(),
            sum: seconds_of(&self.sum_micros),
        }
    }
}

/// A sum of microseconds, in seconds.
#[expect(clippy::cast_precision_loss, reason = "a sum of 2^53 µs is 285 years")]
pub(super) fn seconds_of(micros: &AtomicU64) -> f64 {
    micros.load(Ordering::Relaxed) as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_at_a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::new(&[0.1, 1.0]);
        for millis in [0, 100, 101, 1_000, 1_001, 60_000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let reading = histogram.read();
        let wanted = [(0.1, 2), (1.0, 4), (f64::INFINITY, 6)];
        assert_eq!(reading.buckets, wanted);
        assert!((reading.sum - 62.202).abs() < 1e-9, "{}", reading.sum);
    }
}
