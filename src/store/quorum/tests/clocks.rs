//! Nodes whose clocks differ, and a loss of data: up to when what came due cannot be known.

use super::super::merge::{QuorumCheck, check_quorum};
use super::{NOW, forgot, ms, on, reply};
use crate::store::redis::node::PrepareReply;

/// A node that is ahead by so many milliseconds; leases have a TTL of at most `ttl`.
fn ahead(by: u64, ttl: u64, reply: PrepareReply) -> PrepareReply {
    PrepareReply {
        micros: NOW + by * 1000,
        longest: ms(ttl),
        ..reply
    }
}

/// The horizon, in milliseconds after the loss by the clock of the node that lost its data.
fn horizon(replies: &[PrepareReply], quorum: usize) -> Option<i64> {
    match check_quorum(replies, quorum) {
        QuorumCheck::Met { horizon, .. } => Some(horizon?.millis() - LOST),
        other => panic!("{other:?}"),
    }
}

const LOST: i64 = 7;

/// [`FORGOTTEN_AHEAD`](crate::store::protocol::FORGOTTEN_AHEAD) in milliseconds.
const AHEAD: i64 = 2_000;

#[test]
fn a_node_whose_clock_is_far_ahead_makes_nothing_unknown_that_came_due_after_a_loss() {
    let lost = || forgot(LOST, 0);
    let year = 365 * 86_400_000;
    for wrong in [25_000, year] {
        // The third node is away. Clocks may differ by a TTL; FORGOTTEN_AHEAD is two seconds more.
        let replies = [ahead(0, 3_000, lost()), ahead(wrong, 3_000, reply())];
        assert_eq!(horizon(&replies, 2), Some(3_000 + AHEAD));
        // Of a TTL of an hour no more counts than of the usual one.
        let replies = [ahead(0, 3_600_000, lost()), ahead(wrong, 0, reply())];
        let most = i64::try_from(wrong).unwrap().min(30_000);
        assert_eq!(horizon(&replies, 2), Some(most + AHEAD));
        // The node that is wrong is the one that lost its data.
        let replies = [ahead(wrong, 3_000, lost()), ahead(0, 3_000, reply())];
        let behind = i64::try_from(wrong).unwrap();
        assert_eq!(horizon(&replies, 2), Some(3_000 + AHEAD - behind));
        // All nodes are heard: then the middle one has decided.
        let replies = [
            ahead(0, 3_000, lost()),
            ahead(300, 3_000, lost()),
            ahead(wrong, 3_000, reply()),
        ];
        assert_eq!(horizon(&replies, 2), Some(300 + AHEAD));
    }
}

#[test]
fn clocks_that_differ_by_less_than_a_ttl_may_each_have_decided() {
    let replies = [
        ahead(0, 10_000, forgot(LOST, 0)),
        ahead(5_000, 10_000, reply()),
    ];
    assert_eq!(horizon(&replies, 2), Some(5_000 + AHEAD));
    let replies = [ahead(0, 0, forgot(LOST, 0)), ahead(1_000, 0, reply())];
    assert_eq!(horizon(&replies, 2), Some(1_000 + AHEAD), "no TTL is known");
    let replies = [ahead(0, 0, reply()), ahead(25_000, 0, reply())];
    assert_eq!(
        check_quorum(&replies, 2),
        on(&[0, 1], None),
        "nothing was lost"
    );
}
