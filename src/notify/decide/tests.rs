//! Which verdicts lead to which messages.

use super::*;
use crate::config::{Command, HttpTarget, HttpUrl};
use crate::names::{JobName, RunId, TargetName};
use crate::store::Kind;

const HOUR: Duration = Duration::from_secs(3600);

fn target(on: &[JobEvent], after: u32, repeat: Option<Duration>) -> NotifyTarget {
    NotifyTarget {
        name: TargetName::parse("ops").expect("a name"),
        channel: Channel::Command(Command::Argv(vec!["tell".to_owned()])),
        on: on.iter().copied().collect(),
        after,
        repeat,
    }
}

fn pager(on: &[JobEvent]) -> NotifyTarget {
    NotifyTarget {
        channel: Channel::Http(HttpTarget {
            kind: "pagerduty",
            url: HttpUrl::parse("https://example.org").expect("a URL"),
            headers: Vec::new(),
            template: Template::PagerDuty { routing_key: None },
        }),
        ..target(on, 1, None)
    }
}

/// The verdict of minute `minute`.
fn record(minute: i64, outcome: Outcome) -> Record {
    let at = Timestamp::from_secs(60 * minute);
    Record {
        run_id: Some(RunId::new()),
        scheduled_at: Some(at),
        started_at: Some(at),
        finished_at: Some(at),
        attempts: 1,
        ..Record::blank(
            JobName::parse("backup").expect("a name"),
            Kind::Schedule,
            outcome,
        )
    }
}

/// What follows from the last of these verdicts, one a minute, oldest first: the events, each with
/// its number in a row.
fn last(target: &NotifyTarget, outcomes: &[Outcome]) -> Vec<(JobEvent, u64)> {
    decided(target, outcomes, Reach::Whole)
}

fn decided(target: &NotifyTarget, outcomes: &[Outcome], reach: Reach) -> Vec<(JobEvent, u64)> {
    let mut records: Vec<Record> = (0..)
        .zip(outcomes)
        .map(|(minute, outcome)| record(minute, *outcome))
        .collect();
    records.reverse();
    let (record, records) = records.split_first().expect("a verdict");
    let rule = NotifyRule {
        target,
        expected: None,
    };
    let merged = None;
    let decided = rule.verdict(
        record,
        Earlier {
            merged,
            records,
            reach,
        },
    );
    let decided = decided.into_iter();
    decided.map(|it| (it.event, it.in_a_row)).collect()
}

use JobEvent::{Failed, Lost, Missed, Overdue, Recovered, Skipped, Succeeded};
use Outcome::{Failed as F, Interrupted as I, Skipped as K, Stopped, Succeeded as S, TimedOut};

#[test]
fn an_event_is_sent_if_the_target_receives_it() {
    let all = target(&[Failed, Lost, Skipped, Succeeded], 1, None);
    assert_eq!(last(&all, &[F]), [(Failed, 1)]);
    assert_eq!(last(&all, &[TimedOut]), [(Failed, 1)]);
    assert_eq!(last(&all, &[Stopped]), [(Failed, 1)]);
    assert_eq!(last(&all, &[I]), [(Lost, 1)]);
    assert_eq!(last(&all, &[Outcome::Unknown]), [(Lost, 1)]);
    assert_eq!(last(&all, &[Outcome::LeaseLost]), [(Lost, 1)]);
    assert_eq!(last(&all, &[K]), [(Skipped, 1)]);
    assert_eq!(last(&all, &[S]), [(Succeeded, 1)]);
    assert_eq!(last(&all, &[Outcome::Missed]), []);
    assert_eq!(
        last(&target(&[Missed], 1, None), &[Outcome::Missed]),
        [(Missed, 1)]
    );
}

#[test]
fn after_counts_bad_verdicts_in_a_row_of_the_kinds_that_the_target_receives() {
    let third = target(&[Failed, Lost], 3, None);
    assert_eq!(last(&third, &[F, F]), []);
    assert_eq!(last(&third, &[F, I, F]), [(Failed, 3)]);
    assert_eq!(last(&third, &[F, F, F, F]), [(Failed, 4)]);
    assert_eq!(last(&third, &[F, F, S, F]), []);
    // A skip says nothing about the job.
    assert_eq!(last(&third, &[F, K, F, K, F]), [(Failed, 3)]);
    assert_eq!(last(&target(&[Failed], 3, None), &[I, I, F]), []);
}

#[test]
fn repeat_limits_the_messages_of_one_row() {
    let hourly = target(&[Failed], 2, Some(HOUR));
    let row = |n| vec![F; n];
    assert_eq!(last(&hourly, &row(1)), []);
    assert_eq!(last(&hourly, &row(2)), [(Failed, 2)]);
    for n in 3..=61 {
        assert_eq!(last(&hourly, &row(n)), [], "{n}");
    }
    assert_eq!(last(&hourly, &row(62)), [(Failed, 62)]);
    assert_eq!(last(&hourly, &row(63)), []);
    assert_eq!(last(&hourly, &[F, F, F, S, F, F]), [(Failed, 2)]);
}

#[test]
fn a_history_that_does_not_reach_back_rather_sends_too_much_than_nothing() {
    let tenth = target(&[Failed], 10, None);
    assert_eq!(decided(&tenth, &[F, F], Reach::Part), [(Failed, 2)]);
    assert_eq!(decided(&tenth, &[S, F, F], Reach::Part), []);
    // When the last message was sent is not known: one for each stretch of `repeat` since the epoch.
    let hourly = target(&[Failed], 1, Some(HOUR));
    let sent = |n: usize| !decided(&hourly, &vec![F; n], Reach::Part).is_empty();
    assert_eq!((2..=180).filter(|n| sent(*n)).count(), 2);
}

#[test]
fn skips_that_share_a_record_count_one_by_one() {
    let third = target(&[Skipped], 3, Some(HOUR));
    let sent = |before: u64, last_minute: i64| {
        let last_at = Timestamp::from_secs(60 * last_minute);
        let merged = (before > 0).then_some(Merged {
            count: before,
            last_at,
        });
        let rule = NotifyRule {
            target: &third,
            expected: None,
        };
        let earlier = Earlier {
            merged,
            records: &[],
            reach: Reach::Whole,
        };
        !rule
            .verdict(&record(last_minute + 1, K), earlier)
            .is_empty()
    };
    assert!(!sent(0, 0));
    assert!(!sent(1, 1));
    assert!(sent(2, 2));
    assert!(!sent(3, 3));
    assert!(sent(59, 59), "the next hour");
}

#[test]
fn a_success_after_what_was_sent_is_recovered() {
    let second = target(&[Failed, Recovered], 2, None);
    assert_eq!(last(&second, &[F, S]), []);
    assert_eq!(last(&second, &[F, F, S]), [(Recovered, 2)]);
    assert_eq!(last(&second, &[F, F, S, S]), []);
    assert_eq!(last(&second, &[S]), []);
    // Without a bad event of its own the target follows all of them.
    let alone = target(&[Recovered], 1, None);
    assert_eq!(last(&alone, &[I, S]), [(Recovered, 1)]);
    assert_eq!(
        last(&target(&[Succeeded], 1, None), &[F, S]),
        [(Succeeded, 1)]
    );
}

#[test]
fn a_success_of_an_overdue_job_is_recovered() {
    let target = target(&[Overdue, Recovered], 1, None);
    let rule = NotifyRule {
        target: &target,
        expected: Some(HOUR),
    };
    let recovers = |minute| {
        let before = [record(0, S)];
        let earlier = Earlier {
            merged: None,
            records: &before,
            reach: Reach::Whole,
        };
        !rule.verdict(&record(minute, S), earlier).is_empty()
    };
    assert!(!recovers(60));
    assert!(recovers(61));
}

#[test]
fn a_success_closes_the_incident_that_a_pager_may_have_open() {
    assert_eq!(last(&pager(&[Failed]), &[F, S]), [(Recovered, 1)]);
    assert_eq!(last(&pager(&[Failed]), &[S, S]), []);
    assert_eq!(last(&pager(&[JobEvent::Long]), &[S, S]), [(Recovered, 0)]);
}

#[test]
fn a_correction_of_the_ledger_is_no_event() {
    let correction = Record {
        scheduled_at: None,
        run_id: None,
        ..record(0, Outcome::Unknown)
    };
    assert_eq!(event_of(&correction), None);
}
