//! Computes the slot of a key: one of the 16384 parts of a Cluster.
//!
//! Source: the Redis Cluster specification, "Key distribution model" and "Hash tags".

use std::sync::OnceLock;

use crate::names::Prefix;
use crate::store::redis::codec::call::Call;
use crate::store::redis::codec::keys::{self, hash_tag};
use crate::store::redis::failure::RedisFailure;

/// How many slots a Cluster has.
pub(super) const SLOTS: u16 = 16384;

/// Returns the slot of a key.
pub(super) fn of(key: &str) -> u16 {
    crc16(hash_tag(key).as_bytes()) % SLOTS
}

/// CRC16, XMODEM: polynomial 0x1021, no reflection, initial value 0.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}

/// Returns the smallest number whose decimal text, as a hash tag, is in the slot.
fn tag(slot: u16) -> u32 {
    static TAGS: OnceLock<Vec<u32>> = OnceLock::new();
    let tags = TAGS.get_or_init(|| {
        let mut tags = vec![None; usize::from(SLOTS)];
        let mut missing = tags.len();
        let mut number = 0_u32;
        while missing > 0 {
            let slot = usize::from(crc16(number.to_string().as_bytes()) % SLOTS);
            if tags[slot].is_none() {
                tags[slot] = Some(number);
                missing -= 1;
            }
            number += 1;
        }
        tags.into_iter().flatten().collect()
    });
    tags[usize::from(slot)]
}

/// Returns the key of the store's marker in a slot. Each slot has one, because slots move and lose data
/// separately. With a marker for each lock, every new lock would have to wait.
pub(super) fn marker(prefix: &Prefix, slot: u16) -> String {
    format!("{prefix}:{{{}}}:store", tag(slot))
}

/// Returns the slot of a call's keys, and replaces the marker of a single server in the call with the
/// marker of this slot. A call without keys goes to the slot where the hosts announce themselves.
pub(super) fn settle(prefix: &Prefix, call: &mut Call) -> Result<u16, RedisFailure> {
    let single = keys::store(prefix).to_string();
    let slots = || call.keys().filter(|key| *key != single).map(of);
    let slot = slots().next();
    let slot = slot.unwrap_or_else(|| of(&keys::hosts(prefix).to_string()));
    if slots().any(|other| other != slot) {
        let key = call.keys().next().unwrap_or_default();
        return Err(RedisFailure::refused(keys::spread(key)));
    }
    call.replace_key(&single, &marker(prefix, slot));
    Ok(slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lie_where_the_specification_says() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        // As in the reply to CLUSTER KEYSLOT.
        assert_eq!(of("foo"), 12182);
        assert_eq!(of("{user1000}.following"), of("{user1000}.followers"));
        assert_eq!(of("foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(of("foo{{bar}}zap"), crc16(b"{bar") % SLOTS);
    }

    #[test]
    fn every_slot_has_a_marker_in_it() {
        let prefix = Prefix::parse("p").expect("a name");
        for slot in 0..SLOTS {
            assert_eq!(of(&marker(&prefix, slot)), slot);
        }
    }

    #[test]
    fn a_call_whose_keys_would_spread_is_refused() {
        let prefix = Prefix::parse("p").expect("a name");
        let mut call = Call::default();
        call.key("a}b").key("p:{a}b}:state:a}b").key("p:store");
        assert!(settle(&prefix, &mut call).is_err());
        let mut call = Call::default();
        call.key("p:{l}:lock").key("p:{l}:state").key("p:store");
        let slot = settle(&prefix, &mut call).expect("one slot");
        assert_eq!(slot, of("l"));
        assert!(call.keys().all(|key| of(key) == slot), "{call:?}");
    }
}
