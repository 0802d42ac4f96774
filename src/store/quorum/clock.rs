//! The clocks of the nodes: which of them decides what is due, and which are wrong.

use std::time::Duration;

use crate::store::protocol::{Clock, Past};
use crate::store::redis::node::{NodeState, PrepareReply};
use crate::store::{NodeClock, StoreError};
use crate::time::Timestamp;

/// Nodes whose clocks differ by more than this disagree about the time.
pub(super) const APART: Duration = Duration::from_secs(1);

/// Returns the lower median of the nodes' clocks: of an even number, the earlier of the middle
/// two. So one node that is ahead makes nothing early, even when only two nodes reply.
pub(super) fn deciding_clock(mut micros: Vec<u64>) -> Clock {
    micros.sort_unstable();
    let micros = micros
        .get(micros.len().saturating_sub(1) / 2)
        .copied()
        .unwrap_or(0);
    Clock {
        micros,
        lease: micros / 1000,
        past: Past::default(),
    }
}

/// Whether these clocks are within [`APART`] of one another. Where they are not, the remaining
/// nodes are worth waiting for: with all of them, one wrong clock decides nothing.
pub(super) fn agree(micros: impl Iterator<Item = u64> + Clone) -> bool {
    let first = micros.clone().min().unwrap_or(0);
    let last = micros.max().unwrap_or(0);
    Duration::from_micros(last - first) <= APART
}

/// The nodes' clocks must agree to within a TTL; of longer TTLs only so much counts.
const MOST_APART: Duration = Duration::from_secs(30);

/// Returns the latest clock that can have decided in the past, in microseconds: the largest lower
/// median that any majority has. Nodes that are not among `replies` may be ahead of all that are.
///
/// A node that is ahead of the clock that decides now (of the `counted` replies) by more than clocks
/// may differ is wrong, and a majority never decided by it: otherwise one node whose clock is a
/// year ahead would make all occurrences of that year undecidable.
pub(super) fn latest_deciding(replies: &[PrepareReply], counted: &[usize], quorum: usize) -> u64 {
    let mut micros: Vec<u64> = replies.iter().map(|reply| reply.micros).collect();
    micros.sort_unstable_by(|one, other| other.cmp(one));
    // An even number of nodes is one less: then this is the cautious side.
    let unheard = (2 * quorum - 1).saturating_sub(replies.len());
    let at = (quorum / 2).saturating_sub(unheard);
    let latest = micros.get(at).or(micros.last()).copied().unwrap_or(0);
    let deciding = deciding_clock(counted.iter().map(|at| replies[*at].micros).collect()).micros;
    latest.min(deciding.saturating_add(may_differ(replies)))
}

/// By how much the clocks of nodes may differ, in microseconds: the longest TTL that they know of.
fn may_differ(replies: &[PrepareReply]) -> u64 {
    let ttl = replies.iter().map(|reply| reply.longest).max();
    let ttl = ttl.unwrap_or_default().clamp(APART, MOST_APART);
    u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX)
}

/// Returns when a node lost its data, by the latest clock that can have decided before that.
pub(super) fn lost_at(reply: &PrepareReply, latest: u64) -> Option<Timestamp> {
    let now = |micros: u64| Timestamp::from_millis(i64::try_from(micros / 1000).unwrap_or(0));
    let ago = now(reply.micros).millis() - reply.lost_at?.millis();
    Some(Timestamp::from_millis(now(latest).millis() - ago))
}

/// Returns the instant in milliseconds at which a span is over.
pub(super) fn after(clock: Clock, left: Duration) -> u64 {
    clock.lease.saturating_add(whole_millis(left))
}

pub(super) fn whole_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Returns, for each node, how far its clock is from the one that decides.
pub(super) fn offsets(said: &[Result<NodeState, StoreError>]) -> Vec<Option<NodeClock>> {
    let mut all: Vec<i64> = said.iter().flatten().map(|it| it.clock.offset_ms).collect();
    all.sort_unstable();
    let deciding = all.get(all.len().saturating_sub(1) / 2).copied();
    said.iter()
        .map(|answer| {
            let clock = answer.as_ref().ok()?.clock;
            Some(NodeClock {
                offset_ms: clock.offset_ms - deciding?,
                error: clock.error,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_clocks_the_earlier_decides_and_of_three_the_middle() {
        let decides = |micros: &[u64]| deciding_clock(micros.to_vec()).micros;
        assert_eq!(decides(&[7]), 7);
        assert_eq!(decides(&[9, 4]), 4);
        assert_eq!(decides(&[9, 4, 5]), 5);
        assert_eq!(decides(&[9, 8, 4, 5]), 5);
        assert_eq!(decides(&[]), 0);
    }

    #[test]
    fn clocks_agree_within_a_second() {
        assert!(agree([0, 1_000_000].into_iter()));
        assert!(!agree([1_000_001, 0, 5].into_iter()));
        assert!(agree(std::iter::empty()));
    }
}
