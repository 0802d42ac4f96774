//! Counters with a fixed set of label values.

use std::sync::atomic::{AtomicU64, Ordering};

/// One counter for each of `N` words.
#[derive(Debug)]
pub(super) struct WordCounters<const N: usize> {
    words: [&'static str; N],
    counts: [AtomicU64; N],
}

impl<const N: usize> WordCounters<N> {
    pub(super) fn new(words: [&'static str; N]) -> Self {
        Self {
            words,
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Adds to the counter of a word; does nothing if it is not one of the words.
    pub(super) fn add(&self, word: &str, count: u64) {
        let known = self.words.iter().position(|known| *known == word);
        debug_assert!(known.is_some(), "{word}");
        if let Some(at) = known {
            self.counts[at].fetch_add(count, Ordering::Relaxed);
        }
    }

    /// The words with their counts.
    pub(super) fn read(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.counts.iter();
        let words = self.words.iter().copied();
        words.zip(counts.map(|count| count.load(Ordering::Relaxed)))
    }
}
