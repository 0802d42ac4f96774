//! The rules of the table, for events in any order.

use std::time::Duration;

use super::{Batch, Changes, LeaseId, LeaseTable, RenewedLease};
use crate::lease::LeaseLost;
use crate::names::{RunId, Token};
use crate::store::{Grant, Lock, RenewReply};
use crate::time::BootInstant;

const TTL: Duration = Duration::from_secs(30);

/// An instant; counted from 1000 s, so that a test may look back.
fn at(seconds: f64) -> BootInstant {
    BootInstant::from_duration(Duration::from_secs_f64(1000.0 + seconds))
}

fn lease(ttl: Duration, sent: f64) -> RenewedLease {
    let grant = Grant {
        lock: Lock::raw("k"),
        token: Token::from_text("t"),
        run_id: RunId::from_text("r"),
        fence: 1,
        ttl,
        sent: at(sent),
        starts_at: None,
    };
    RenewedLease {
        renewal: grant.renewal(),
        renew_until: None,
    }
}

fn batch_ids(batches: &[Batch]) -> Vec<Vec<u64>> {
    batches
        .iter()
        .map(|b| b.ids.iter().map(|id| id.0).collect())
        .collect()
}

fn table_with_one_lease(sent: f64) -> LeaseTable {
    let mut table = LeaseTable::default();
    table.add(LeaseId(1), lease(TTL, sent));
    table
}

#[test]
fn a_lease_is_renewed_every_third_of_its_ttl_counted_from_the_send() {
    let mut table = table_with_one_lease(0.0);
    assert_eq!(table.next_wake(), Some(at(10.0)));
    assert!(table.due(at(9.99)).is_empty());
    assert_eq!(batch_ids(&table.due(at(10.0))), [[1]]);
    let changes = table.replied(at(10.0), &[LeaseId(1)], &[RenewReply::Renewed]);
    // The TTL less 1 % (`timing::ends`): 10 + 30 - 0.3.
    assert_eq!(changes.extended, [(LeaseId(1), at(39.7))]);
    assert_eq!(table.next_wake(), Some(at(20.0)));
}

#[test]
fn leases_due_close_together_go_in_one_call() {
    let mut table = LeaseTable::default();
    for n in 0..10_000_u32 {
        table.add(LeaseId(u64::from(n)), lease(TTL, f64::from(n) / 10_001.0));
    }
    table.add(LeaseId(99_999), lease(TTL, 1.5));
    let batches = table.due(at(10.0));
    assert_eq!(batches.len(), 1);
    assert_eq!(batches[0].renewals.len(), 10_000);
    assert!(!batches[0].ids.contains(&LeaseId(99_999)));
}

#[test]
fn a_renewal_without_a_reply_is_resent_at_its_own_time_not_whenever_another_lease_is_due() {
    let mut table = table_with_one_lease(0.0);
    table.due(at(10.0));
    table.add(LeaseId(2), lease(TTL, 0.3));
    assert_eq!(batch_ids(&table.due(at(10.3))), [[2]]);
    assert_eq!(batch_ids(&table.due(at(11.0))), [[1]]);
}

#[test]
fn a_failed_renewal_is_retried_soon_and_until_the_lease_ends() {
    let mut table = table_with_one_lease(0.0);
    let mut now = at(10.0);
    let mut tries = 0;
    while table.expire(now).is_empty() {
        for batch in table.due(now) {
            tries += 1;
            table.failed(now, batch.sent, &batch.ids, 255);
        }
        now = table.next_wake().expect("a lease is held");
    }
    assert_eq!(now, at(29.7));
    // At most 1 s apart (`timing::response_timeout`), for 19.7 s.
    assert!(tries > 20, "tried {tries} times");
    assert_eq!(table.next_wake(), None);
}

#[test]
fn the_first_retry_comes_within_a_twentieth_of_a_second() {
    for spread in [0, 128, 255] {
        let mut table = table_with_one_lease(0.0);
        table.due(at(10.0));
        table.failed(at(10.1), at(10.0), &[LeaseId(1)], spread);
        let pause = table.next_wake().expect("held").since(at(10.1));
        assert!(pause >= Duration::from_millis(25), "{pause:?}");
        assert!(pause <= Duration::from_millis(50), "{pause:?}");
    }
}

#[test]
fn the_failure_of_an_older_attempt_does_not_hurry_the_newer_one() {
    let mut table = table_with_one_lease(0.0);
    table.due(at(10.0));
    table.due(at(11.0));
    table.failed(at(11.5), at(10.0), &[LeaseId(1)], 0);
    assert_eq!(table.next_wake(), Some(at(12.0)));
}

#[test]
fn a_late_reply_counts_from_its_own_send() {
    let mut table = table_with_one_lease(0.0);
    table.due(at(10.0));
    table.due(at(11.0));
    let changes = table.replied(at(10.0), &[LeaseId(1)], &[RenewReply::Renewed]);
    assert_eq!(changes.extended, [(LeaseId(1), at(39.7))]);
    let changes = table.replied(at(11.0), &[LeaseId(1)], &[RenewReply::Renewed]);
    assert_eq!(changes.extended, [(LeaseId(1), at(40.7))]);
    // Replies that arrive out of order never shorten a lease.
    let changes = table.replied(at(10.0), &[LeaseId(1)], &[RenewReply::Renewed]);
    assert_eq!(changes, Changes::default());
    assert!(table.expire(at(40.6)).is_empty());
    assert_eq!(table.expire(at(40.7)), [LeaseId(1)]);
}

#[test]
fn a_lease_taken_or_absent_is_lost_at_once_and_once() {
    for (reply, why) in [
        (RenewReply::Taken, LeaseLost::Taken),
        (RenewReply::Absent, LeaseLost::Absent),
    ] {
        let mut table = table_with_one_lease(0.0);
        table.due(at(10.0));
        let changes = table.replied(at(10.0), &[LeaseId(1)], &[reply]);
        assert_eq!(changes.lost, [(LeaseId(1), why)]);
        let changes = table.replied(at(10.0), &[LeaseId(1)], &[reply]);
        assert_eq!(changes, Changes::default());
        assert_eq!(table.next_wake(), None);
    }
}

#[test]
fn a_reply_for_a_lease_that_was_removed_changes_nothing() {
    let mut table = table_with_one_lease(0.0);
    table.due(at(10.0));
    table.remove(LeaseId(1));
    let changes = table.replied(at(10.0), &[LeaseId(1)], &[RenewReply::Renewed]);
    assert_eq!(changes, Changes::default());
    table.failed(at(10.1), at(10.0), &[LeaseId(1)], 0);
    assert_eq!(table.next_wake(), None);
    assert!(table.due(at(100.0)).is_empty());
}

#[test]
fn a_process_that_wakes_late_loses_the_lease_although_a_reply_is_waiting() {
    let mut table = table_with_one_lease(0.0);
    table.due(at(10.0));
    assert_eq!(table.expire(at(30.0)), [LeaseId(1)]);
    let changes = table.replied(at(10.0), &[LeaseId(1)], &[RenewReply::Renewed]);
    assert_eq!(changes, Changes::default());
    assert!(table.due(at(30.0)).is_empty());
}

#[test]
fn leases_of_different_ttl_are_renewed_in_separate_calls() {
    let mut table = table_with_one_lease(0.0);
    table.add(LeaseId(2), lease(Duration::from_secs(3), 9.0));
    // Both are due at 10 s; batches are ordered by TTL.
    assert_eq!(batch_ids(&table.due(at(10.0))), [[2], [1]]);
}
