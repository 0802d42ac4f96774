//! Random numbers that depend on a seed alone.

/// A stream of random numbers (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

/// Scrambles a number into one that looks random.
pub(crate) fn scramble(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Combines texts and numbers into one number.
pub(crate) fn hash(parts: &[&[u8]]) -> u64 {
    let mut sum = 0xCBF2_9CE4_8422_2325_u64;
    for part in parts {
        for byte in *part {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
        sum = scramble(sum);
    }
    sum
}

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(scramble(seed))
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        scramble(self.0)
    }

    /// Returns a number in `[from, to)`; `from` when the range is empty.
    pub(crate) fn range(&mut self, from: i64, to: i64) -> i64 {
        match u64::try_from(to - from) {
            Ok(span @ 1..) => from + i64::try_from(self.number() % span).unwrap_or(0),
            _ => from,
        }
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.number() % (n.max(1) as u64)).unwrap_or(0)
    }

    pub(crate) fn chance(&mut self, percent: i64) -> bool {
        percent > 0 && self.range(0, 100) < percent
    }

    pub(crate) fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}
