//! Decisions of a majority, without nodes.

mod clocks;
mod deciding;

use std::slice;
use std::time::Duration;

use super::condition::judge;
use super::history::{merged_failures, merged_records, with_rising_ids};
use super::merge::{QuorumCheck, check_quorum, is_preempted, merge, quorum};
use super::nodes::Nodes;
use super::renew::Tally;
use crate::names::{JobName, RunId, Token};
use crate::store::protocol::{JobState, Key, Open};
use crate::store::redis::node::{
    Ballot, HistoryEntry, JobView, KeyHolder, LedgerPresence, LockView, NodeState, PrepareReply,
    PrepareStatus, StreamId,
};
use crate::store::{
    Condition, ErrorDetail, Kind, NodeClock, NodeStanding, Outcome, Record, RedlockSettings,
    RenewReply, RetryDelay, RunTerms, StartupQuorum, StoreError, StoreSettings, check_url,
};
use crate::time::Timestamp;

const NOW: u64 = 1_700_000_000_000_000;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn token(who: u8) -> Token {
    Token::from_text(&format!("h{who}:1:r{who}:{who:032x}"))
}

fn ballot(number: u64) -> Ballot {
    Ballot { number, id: 1 }
}

/// The reply of a node that knows nothing and lost nothing.
fn reply() -> PrepareReply {
    PrepareReply {
        status: PrepareStatus::Promised,
        promised: 1,
        micros: NOW,
        server: String::new(),
        lost_at: None,
        recovering: Duration::ZERO,
        longest: Duration::ZERO,
        remembers: true,
        held: KeyHolder::Nobody,
        lock: LockView {
            finished: "\n".to_owned(),
            ..LockView::default()
        },
        job: None,
    }
}

fn held(who: u8, left: u64) -> PrepareReply {
    PrepareReply {
        held: KeyHolder::Value(token(who).as_str().to_owned(), Some(ms(left))),
        lock: LockView {
            ballot: ballot(5),
            token: Some(token(who)),
            left: ms(left),
            ..reply().lock
        },
        ..reply()
    }
}

fn forgot(at: i64, recovering: u64) -> PrepareReply {
    PrepareReply {
        lost_at: Some(Timestamp::from_millis(at)),
        recovering: ms(recovering),
        remembers: false,
        ..reply()
    }
}

fn running(number: u64, last: i64, who: u8) -> PrepareReply {
    let state = JobState {
        last: Timestamp::from_millis(last),
        open: Some(Open {
            scheduled_at: Some(Timestamp::from_millis(last)),
            run_id: RunId::from_text("r"),
            token: token(who),
            attempt: 1,
            kind: Kind::Schedule,
            fence: 1,
            started_at: Timestamp::EPOCH,
            host: "h".to_owned(),
            terms: RunTerms::NONE,
        }),
        waiting: Vec::new(),
        fingerprints: Vec::new(),
        moved: None,
        decided_beyond: Vec::new(),
        pauses: Vec::new(),
        summary: crate::store::Summary::default(),
    };
    PrepareReply {
        job: Some(JobView {
            ballot: ballot(number),
            state,
            doubt: false,
            horizon: None,
        }),
        ..reply()
    }
}

fn key(replies: &[PrepareReply], me: Option<&Token>) -> Key {
    let all: Vec<usize> = (0..replies.len()).collect();
    merge(replies, &all, 2, (true, me)).lock.key
}

fn on(counted: &[usize], horizon: Option<i64>) -> QuorumCheck {
    QuorumCheck::Met {
        counted: counted.to_vec(),
        horizon: horizon.map(Timestamp::from_millis),
    }
}

#[test]
fn a_majority_is_more_than_half() {
    assert_eq!([1, 2, 3, 4, 5].map(quorum), [1, 2, 2, 3, 3]);
}

#[test]
fn a_node_that_forgot_counts_only_when_too_few_remember_and_its_wait_is_over() {
    let lost = forgot(7, 0);
    assert_eq!(
        check_quorum(&[reply(), lost.clone(), reply()], 2),
        on(&[0, 2], None)
    );
    // Two seconds later than noticed: FORGOTTEN_AHEAD.
    assert_eq!(
        check_quorum(&[reply(), lost.clone()], 2),
        on(&[0, 1], Some(2007))
    );
    assert_eq!(
        check_quorum(&[reply(), forgot(7, 300)], 2),
        QuorumCheck::Recovering(ms(300))
    );
    let all = [forgot(7, 300), forgot(8, 200), forgot(9, 400)];
    assert_eq!(check_quorum(&all, 2), QuorumCheck::Recovering(ms(300)));
    assert_eq!(check_quorum(&[reply()], 2), QuorumCheck::TooFew);
    let preempted = PrepareReply {
        status: PrepareStatus::Preempted,
        ..reply()
    };
    assert_eq!(check_quorum(&[reply(), preempted], 2), QuorumCheck::TooFew);
}

#[test]
fn a_ballot_that_a_majority_cannot_promise_any_more_does_not_wait_for_a_silent_node() {
    let preempted = || PrepareReply {
        status: PrepareStatus::Preempted,
        ..reply()
    };
    // Of five nodes, one of which is silent. The first has lost its data, and chose the number.
    let replies = [forgot(7, 300), preempted(), preempted()];
    assert!(!is_preempted(&replies, 2, 3), "two more may promise");
    let replies = [forgot(7, 300), preempted(), preempted(), preempted()];
    assert!(is_preempted(&replies, 1, 3));
    assert!(!is_preempted(&[reply()], 1, 3), "nobody has promised more");
}

#[test]
fn a_lock_is_free_when_a_majority_of_all_nodes_has_it_free() {
    assert_eq!(key(&[reply(), held(1, 500), reply()], None), Key::Absent);
    // The third node did not reply, and may hold the lock as well.
    let lease = |left: u64| Key::Value {
        text: token(1).as_str().to_owned(),
        end: Some(NOW / 1000 + left),
    };
    assert_eq!(key(&[reply(), held(1, 500)], None), lease(500));
    let replies = [held(1, 900), held(1, 500), reply()];
    assert_eq!(key(&replies, Some(&token(2))), lease(500));
    assert_eq!(key(&[held(2, 900), held(2, 500)], Some(&token(3))), {
        Key::Value {
            text: token(2).as_str().to_owned(),
            end: Some(NOW / 1000 + 900),
        }
    });
}

#[test]
fn a_lock_is_ours_when_a_majority_of_all_nodes_has_it_for_us() {
    let ours = |replies: &[PrepareReply]| key(replies, Some(&token(1)));
    let lease = |left: u64| Key::Value {
        text: token(1).as_str().to_owned(),
        end: Some(NOW / 1000 + left),
    };
    assert_eq!(ours(&[held(1, 900), held(1, 500)]), lease(500));
    assert_eq!(ours(&[held(1, 900), reply(), held(1, 500)]), lease(500));
    assert_eq!(
        ours(&[held(1, 900), held(1, 700), held(1, 500)]),
        lease(700)
    );
    // What one node has left over of a proposal that found no majority is no lock.
    assert_eq!(ours(&[held(1, 900), reply(), reply()]), Key::Absent);
    assert_eq!(ours(&[held(1, 900), reply()]), Key::Absent);
}

#[test]
fn a_lease_is_over_when_a_majority_is_free_of_it() {
    let left =
        |replies: &[PrepareReply], counted: &[usize]| merge(replies, counted, 2, (true, None)).left;
    let replies = [held(1, 900), held(1, 500), reply()];
    assert_eq!(left(&replies, &[0, 1, 2]), ms(500));
    assert_eq!(left(&replies, &[0, 2]), ms(900));
    let replies = [held(1, 900), reply(), reply()];
    assert_eq!(left(&replies, &[0, 1, 2]), Duration::ZERO);
}

#[test]
fn a_lease_has_been_over_since_a_majority_was_free_of_it() {
    let over = |who, span| PrepareReply {
        lock: LockView {
            left: Duration::ZERO,
            over_for: Some(ms(span)),
            ..held(who, 0).lock
        },
        ..reply()
    };
    let merged = |replies: &[PrepareReply]| {
        let all: Vec<usize> = (0..replies.len()).collect();
        let merged = merge(replies, &all, 2, (true, None));
        (merged.over_for, merged.lock.lease_end)
    };
    let ended = |span| (Some(ms(span)), NOW / 1000 - span);
    assert_eq!(
        merged(&[over(1, 900), over(1, 500), over(1, 100)]),
        ended(500)
    );
    assert_eq!(
        merged(&[over(1, 900), over(1, 500), held(1, 80)]),
        ended(500)
    );
    assert_eq!(merged(&[over(1, 900), over(1, 500)]), ended(500));
    assert_eq!(merged(&[over(1, 900), reply()]), ended(900));
    assert_eq!(merged(&[over(1, 0), reply()]), ended(0));
    let withdrawn = PrepareReply {
        lock: LockView {
            over_for: None,
            ..over(1, 0).lock
        },
        ..reply()
    };
    assert_eq!(merged(&[withdrawn, reply()]), (None, 0), "it never began");
}

#[test]
fn another_programs_key_leaves_the_lease_its_end() {
    let taken = |held| PrepareReply {
        held,
        ..self::held(1, 900)
    };
    let left = |held: KeyHolder| {
        let replies = [taken(held.clone()), taken(held.clone()), taken(held)];
        merge(&replies, &[0, 1, 2], 2, (true, None)).left
    };
    let foreign = KeyHolder::Value("another program".to_owned(), None);
    assert_eq!(left(foreign), ms(900));
    assert_eq!(left(KeyHolder::OtherType(Some(ms(100)))), ms(900));
}

#[test]
fn the_lock_of_a_token_that_ended_is_free_wherever_its_release_was_missed() {
    let released = PrepareReply {
        lock: LockView {
            ballot: ballot(9),
            finished: format!("\nR{:032x}\n", 1),
            ..LockView::default()
        },
        ..reply()
    };
    let replies = [held(1, 900), released];
    assert_eq!(key(&replies, Some(&token(2))), Key::Absent);
}

#[test]
fn a_lock_is_torn_while_the_nodes_that_answered_cannot_tell_whether_a_majority_has_it_free() {
    let torn = |replies: &[PrepareReply], quorum: usize| {
        let all: Vec<usize> = (0..replies.len()).collect();
        merge(replies, &all, quorum, (true, Some(&token(2)))).torn
    };
    assert!(
        torn(&[held(1, 900), reply()], 2),
        "the third may say either"
    );
    assert!(!torn(&[held(1, 900), reply(), reply()], 2));
    assert!(!torn(&[held(1, 900), held(1, 900)], 2));
    assert!(!torn(&[reply(), reply()], 2));
    assert!(!torn(&[held(2, 900), reply()], 2), "it is ours");
    assert!(torn(&[held(1, 900), reply(), reply()], 3));
    assert!(!torn(&[held(1, 900), reply(), reply(), reply()], 3));
    let without_lock = merge(&[held(1, 900), reply()], &[0, 1], 2, (false, None));
    assert!(!without_lock.torn);
}

#[test]
fn the_proposal_with_the_greatest_number_is_the_ledger() {
    let reader = PrepareReply {
        status: PrepareStatus::Read,
        ..reply()
    };
    let replies = [running(3, 30, 1), running(4, 20, 2), reader];
    let merged = merge(&replies, &[0, 1, 2], 2, (true, None));
    let last = merged.job.as_ref().map(|job| job.last);
    assert_eq!(last, Some(Timestamp::from_millis(20)));
    assert!(!merged.agreed, "it must be proposed again before it counts");
    assert!(merged.is_in_doubt(), "one node of three knows of the run");
    let replies = [running(4, 20, 2), running(4, 20, 2), reply()];
    let merged = merge(&replies, &[0, 1, 2], 2, (true, None));
    assert!(merged.agreed && !merged.is_in_doubt());
}

#[test]
fn a_doubt_that_was_proposed_with_the_run_is_not_worth_waiting_for_a_silent_node() {
    let of = |replies: &[PrepareReply]| {
        let merged = merge(replies, &[0, 1], 2, (false, None));
        (merged.is_in_doubt(), merged.needs_more(false, None))
    };
    let mut doubtful = running(4, 20, 2);
    doubtful.job.as_mut().unwrap().doubt = true;
    assert_eq!(of(&[doubtful.clone(), doubtful.clone()]), (true, false));
    assert_eq!(of(&[doubtful, reply()]), (true, true));
    assert_eq!(of(&[running(4, 20, 2), reply()]), (true, true));
}

#[test]
fn a_renewal_is_lost_only_when_no_majority_can_renew_it_any_more() {
    let verdict = |renewed, taken, absent| {
        let tally = Tally {
            renewed,
            recorded: renewed,
            taken,
            absent,
        };
        tally.verdict(3, 2)
    };
    assert_eq!(verdict(2, 1, 0), RenewReply::Renewed);
    assert_eq!(verdict(1, 1, 0), RenewReply::Unanswered);
    assert_eq!(verdict(1, 0, 1), RenewReply::Unanswered);
    assert_eq!(verdict(0, 2, 0), RenewReply::Taken);
    assert_eq!(verdict(0, 1, 1), RenewReply::Absent);
    assert_eq!(verdict(0, 0, 0), RenewReply::Unanswered);
}

#[test]
fn histories_of_nodes_are_one_history() {
    let at = |n: i64| Some(Timestamp::from_millis(n));
    let skipped = |from: i64, until: Option<i64>, count: Option<u64>| Record {
        until: until.and_then(at),
        count,
        finished_at: at(until.unwrap_or(from)),
        ..run(from)
    };
    let ran = Record {
        run_id: Some(RunId::from_text("r")),
        outcome: Outcome::Succeeded,
        ..skipped(5, None, None)
    };
    let whole = skipped(1, Some(3), Some(3));
    let one = vec![entry(20, None, ran.clone()), entry(10, None, whole.clone())];
    // This node was unreachable for the second decision, and received the run later.
    let two = vec![
        entry(25, None, ran.clone()),
        entry(10, None, skipped(3, None, None)),
        entry(8, None, skipped(1, None, None)),
    ];
    let merged = merged_records(vec![two, one]);
    assert_eq!(merged, [ran.clone(), whole.clone()]);
    // A proposal that skips it reached one node, and a later one replaced it.
    let wrong = vec![
        entry(9, None, skipped(5, None, None)),
        entry(10, None, whole.clone()),
    ];
    let another = skipped(6, None, None);
    let right = vec![
        entry(30, None, another.clone()),
        entry(20, None, ran.clone()),
    ];
    assert_eq!(merged_records(vec![wrong, right]), [another, ran, whole]);
}

#[test]
fn a_provisional_failure_that_a_majority_has_removed_was_replaced_by_a_result() {
    let failed = |n: i64, outcome| Record {
        run_id: Some(RunId::from_text(&format!("r{n}"))),
        outcome,
        ..run(n)
    };
    let interrupted = failed(2, Outcome::Interrupted);
    let lacks = vec![entry(10, None, failed(1, Outcome::Failed))];
    let has = vec![
        entry(20, None, interrupted.clone()),
        entry(10, None, failed(1, Outcome::Failed)),
    ];
    let shows = |nodes: &[&Vec<HistoryEntry>]| {
        let found = nodes.iter().map(|node| (*node).clone()).collect();
        merged_failures(found, 2).contains(&interrupted)
    };
    assert!(!shows(&[&has, &lacks, &lacks]));
    assert!(shows(&[&has, &has, &lacks]));
    // The node that is away may be one of those that have it.
    assert!(shows(&[&has, &lacks]));
    // A node that lost its data, or keeps fewer failures, does not know.
    let lost = vec![entry(30, None, failed(3, Outcome::Failed))];
    assert!(shows(&[&has, &lacks, &lost]));
    assert!(shows(&[&has, &lacks, &Vec::new()]));
    // What is not provisional is not replaced.
    let only = vec![entry(20, None, failed(2, Outcome::Failed))];
    let all = merged_failures(vec![only, lacks.clone(), lacks], 2);
    assert_eq!(all.len(), 2, "{all:?}");
}

#[test]
fn of_two_verdicts_on_one_occurrence_the_later_proposal_has_the_right_one() {
    let skipped = |from, until: Option<i64>| Record {
        until: until.map(Timestamp::from_millis),
        count: until.map(|_| 2),
        ..run(from)
    };
    let missed = |from| Record {
        outcome: Outcome::Missed,
        ..skipped(from, None)
    };
    let ran = |from| Record {
        run_id: Some(RunId::from_text("r")),
        outcome: Outcome::Succeeded,
        fence: Some(1),
        ..run(from)
    };
    let shows = |one: &[HistoryEntry], two: &[HistoryEntry]| {
        let mut all = merged_records(vec![one.to_vec(), two.to_vec()]);
        let reversed = merged_records(vec![two.to_vec(), one.to_vec()]);
        assert_eq!(all, reversed);
        all.sort_by_key(|record| record.scheduled_at);
        all
    };
    let first = entry(9, Some(5), skipped(3, None));
    let second = entry(8, Some(6), missed(3));
    assert_eq!(shows(slice::from_ref(&first), &[second]), [missed(3)]);
    // Without ballots nobody can tell.
    let old = entry(8, None, missed(3));
    assert_eq!(shows(&[first], &[old]).len(), 2);

    // A range whose newest occurrence was decided otherwise; the nodes that did so have the rest.
    let range = entry(9, Some(5), skipped(1, Some(3)));
    let rest = entry(4, Some(2), skipped(1, None));
    let again = entry(10, Some(7), ran(3));
    let shown = shows(slice::from_ref(&range), &[rest, again.clone()]);
    assert_eq!(shown, [skipped(1, None), ran(3)]);
    // The rest of this one is nowhere else: the nodes have lost their data in between.
    let shown = shows(slice::from_ref(&range), &[again]);
    assert_eq!(shown, [skipped(1, Some(3)), ran(3)]);
    // The same verdict, in pieces that overlap: none is lost.
    let longer = entry(12, Some(8), skipped(3, Some(6)));
    let shown = shows(&[range], &[longer]);
    assert_eq!(shown, [skipped(1, Some(3)), skipped(3, Some(6))]);
}

fn entry(ms: u64, ballot: Option<u64>, record: Record) -> HistoryEntry {
    HistoryEntry {
        id: StreamId {
            millis: ms,
            number: 0,
        },
        ballot,
        record,
    }
}

/// An occurrence that was skipped.
fn run(at: i64) -> Record {
    let job = JobName::parse("j").expect("a name");
    Record {
        scheduled_at: Some(Timestamp::from_millis(at)),
        ..Record::blank(job, Kind::Schedule, Outcome::Skipped)
    }
}

#[test]
fn a_proposal_that_can_find_no_majority_any_more_never_started_anything() {
    let denies = reply();
    let all = |replies: &[PrepareReply]| {
        merge(
            replies,
            &(0..replies.len()).collect::<Vec<_>>(),
            2,
            (true, None),
        )
    };
    let mut knows = running(5, 100, 1);
    knows.held = held(1, 900).held;
    knows.lock = held(1, 900).lock;

    let merged = all(&[knows.clone(), denies.clone(), denies.clone()]);
    let job = merged.job.clone().unwrap();
    let waits: Vec<_> = job.waiting.iter().map(|entry| entry.scheduled_at).collect();
    assert_eq!((job.open, waits), (None, vec![Timestamp::from_millis(100)]));
    assert_eq!(
        (
            merged.lock.token.clone(),
            merged.is_in_doubt(),
            merged.agreed
        ),
        (None, false, false)
    );

    // The node that is not heard of, forgot, or promised nothing may have made the majority.
    let forgetful = forgot(7, 0);
    let reader = PrepareReply {
        status: PrepareStatus::Read,
        ..reply()
    };
    for replies in [
        vec![knows.clone(), denies.clone()],
        vec![knows.clone(), denies.clone(), forgetful],
        vec![knows.clone(), denies.clone(), reader],
    ] {
        let merged = all(&replies);
        assert!(merged.is_in_doubt());
        assert_eq!(merged.job.unwrap().last, Timestamp::from_millis(100));
    }
    let merged = all(&[knows.clone(), knows, denies]);
    assert!(!merged.is_in_doubt() && merged.job.unwrap().open.is_some());
}

#[test]
fn a_fence_rises_above_all_that_any_node_knows_of() {
    let with = |number: u64, fence: u64| PrepareReply {
        lock: LockView {
            ballot: ballot(number),
            fence,
            ..reply().lock
        },
        ..reply()
    };
    // Accepted by a minority whose proposal was older.
    let replies = [with(5, 10), with(4, 12), with(5, 10)];
    let merged = merge(&replies, &[0, 2], 2, (true, None));
    assert_eq!(merged.lock.fence, 12);
}

#[test]
fn a_copied_history_lies_in_order_whatever_the_places_were() {
    let newest_first = vec![
        entry(7, None, run(3)),
        entry(7, None, run(2)),
        entry(0, None, run(1)),
    ];
    let places: Vec<_> = with_rising_ids(newest_first)
        .into_iter()
        .map(|it| {
            (
                it.id.to_string(),
                it.record.scheduled_at.map(Timestamp::millis),
            )
        })
        .collect();
    // A stream has no entry 0-0.
    let expected = [("0-1", Some(1)), ("7-0", Some(2)), ("7-1", Some(3))];
    assert_eq!(places, expected.map(|(id, at)| (id.to_owned(), at)));
}

#[test]
fn a_node_counts_again_for_all_jobs_that_it_was_told_of() {
    use LedgerPresence::{Absent, Forgotten, Known, Nothing};

    let standing = |lost_at: Option<i64>, recovering: u64, ledgers: &[LedgerPresence]| {
        Ok(NodeState {
            new: false,
            lost_at: lost_at.map(Timestamp::from_millis),
            recovering: ms(recovering),
            longest: ms(1000),
            unusable: Vec::new(),
            ledgers: ledgers.to_vec(),
            clock: NodeClock {
                offset_ms: 0,
                error: Duration::ZERO,
            },
        })
    };
    let applied = |said: &[Result<NodeState, StoreError>]| {
        let shown = (0..said.len()).map(|n| n.to_string()).collect();
        judge(shown, said, 2)
    };
    let sound = || standing(None, 0, &[Known, Known, Nothing]);
    let told = applied(&[
        sound(),
        standing(Some(7), 0, &[Known, Forgotten, Absent]),
        standing(Some(8), 500, &[Absent, Absent, Absent]),
    ]);
    let of = |told: &Condition, at: usize| told.nodes[at].standing.clone();
    let lost_at = Timestamp::from_millis;
    assert_eq!(of(&told, 0), NodeStanding::Counts);
    // The third job is unknown to all.
    let repairing = NodeStanding::Repairing {
        lost_at: lost_at(7),
        jobs: 1,
    };
    assert_eq!(of(&told, 1), repairing);
    let recovering = NodeStanding::Recovering {
        lost_at: lost_at(8),
        remaining: ms(500),
    };
    assert_eq!(of(&told, 2), recovering);
    assert_eq!((told.lost_at, told.recovering), (None, Duration::ZERO));

    let away = Err(StoreError::unreachable("gone".to_owned()));
    let told = applied(&[sound(), away, standing(Some(8), 500, &[Known; 3])]);
    assert!(matches!(of(&told, 1), NodeStanding::Away { .. }));
    assert_eq!((told.lost_at, told.recovering), (Some(lost_at(8)), ms(500)));
}

/// Three nodes, which nobody asks.
fn three_nodes() -> Nodes {
    let nodes = ["a", "b", "c"].map(|host| match check_url(&format!("redis://{host}")) {
        Ok(StoreSettings::Redis(node)) => node,
        other => panic!("{other:?}"),
    });
    Nodes::new(&RedlockSettings {
        nodes: nodes.to_vec(),
        tries: 3,
        retry_delay: RetryDelay::default(),
        at_start: StartupQuorum::Wait,
    })
    .unwrap()
}

#[test]
fn nodes_take_no_writes_if_too_few_are_left_that_may_take_them() {
    let nodes = three_nodes();
    let full = || ErrorDetail::from("full".to_owned()).of_rejected_writes();
    let (refused, unreachable) = (StoreError::Refused(full()), StoreError::Unreachable(full()));
    let away = StoreError::unreachable("gone".to_owned());
    let few = |errors: [&StoreError; 2]| {
        let errors: Vec<_> = (0..).zip(errors.map(|e| Err(e.clone()))).collect();
        nodes.too_few(1, &errors).takes_no_writes()
    };
    assert!(few([&refused, &refused]));
    assert!(few([&refused, &unreachable]));
    assert!(!few([&refused, &away]));
}

#[test]
fn one_server_under_two_names_is_refused_whichever_answers_last() {
    for order in [[0, 1, 2], [2, 1, 0], [2, 0, 1]] {
        let nodes = three_nodes();
        let answers = order.map(|at| {
            let server = if at == 1 { "one" } else { "other" };
            let reply = PrepareReply {
                server: server.to_owned(),
                ..reply()
            };
            nodes.note(at, &reply).is_err()
        });
        assert!(answers.contains(&true), "{order:?}: nobody noticed");
    }
}
