//! Chance that can be repeated: `SplitMix64` (Steele, Lea, Flood 2014) from a seed.

/// A source of numbers that depend on the seed alone.
#[derive(Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of `from..until`.
    pub(crate) fn between(&mut self, from: u64, until: u64) -> u64 {
        from + self.next() % (until - from)
    }

    /// One of these.
    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        let at = self.between(0, all.len() as u64);
        all[usize::try_from(at).expect("an index of a slice")]
    }
}
