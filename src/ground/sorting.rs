//! Sorting with little code. Each call of the standard sort with a closure adds five to eight kilobytes to the
//! program.

use std::cmp::Ordering;

/// Sorts as the standard methods do, and keeps the order of what is equal. For lists that are not long.
pub(crate) trait SortShort<T> {
    /// Like `sort_by`.
    fn sort_short_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    /// Like `sort_by_key`.
    fn sort_short_by_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);
}

impl<T> SortShort<T> for [T] {
    fn sort_short_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        if self.len() < 2 {
            return;
        }
        let places = in_order(self.len(), &mut |a, b| compare(&self[a], &self[b]));
        arrange(places, &mut |a, b| self.swap(a, b));
    }

    fn sort_short_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.sort_short_by(|a, b| key(a).cmp(&key(b)));
    }
}

/// Returns the place of each element of the sorted list.
fn in_order(count: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..count).collect();
    places.sort_by(|&a, &b| compare(a, b));
    places
}

/// Swaps until each element is where it belongs. `places` names for each place where its element is.
fn arrange(mut places: Vec<usize>, swap: &mut dyn FnMut(usize, usize)) {
    for start in 0..places.len() {
        let mut at = start;
        while places[at] != start {
            let from = std::mem::replace(&mut places[at], at);
            swap(at, from);
            at = from;
        }
        places[at] = at;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::SortShort as _;

    proptest! {
        #[test]
        fn the_order_is_that_of_the_standard_sort(mut list: Vec<(u8, u32)>) {
            let mut expected = list.clone();
            expected.sort_by_key(|(key, _)| *key);
            list.sort_short_by_key(|(key, _)| *key);
            prop_assert_eq!(list, expected);
        }
    }
}
