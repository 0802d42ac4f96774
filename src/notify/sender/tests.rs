use std::sync::mpsc;

use super::*;
use crate::config::JobEvent;
use crate::names::{HostName, JobName};
use crate::notify::notice::NoticeKind;
use crate::notify::outbox::Storm;
use crate::time::Timestamp;

const LONG: Duration = Duration::from_secs(60);

fn notice() -> Arc<Notice> {
    Arc::new(Notice {
        event: JobEvent::Failed,
        job: JobName::parse("backup").expect("a name"),
        host: HostName::parse("web1").expect("a name"),
        at: Timestamp::from_secs(0),
        run_id: None,
        scheduled_at: None,
        in_a_row: 1,
        record: None,
        detail: None,
        kind: NoticeKind::Real,
    })
}

/// A sender whose tries arrive at the test, which decides how each ends.
struct SenderBench {
    sender: Sender<Outbox>,
    tries: mpsc::Receiver<Notification>,
    results: mpsc::Sender<Result<(), SendFailure>>,
}

fn bench() -> SenderBench {
    let (tried, tries) = mpsc::channel();
    let (results, result) = mpsc::channel();
    let deliver = move |message: &Notification, _| {
        tried.send(message.clone()).expect("the test listens");
        result.recv_timeout(LONG).unwrap_or(Ok(()))
    };
    let outbox = Outbox::new(Storm::Digest, Instant::now());
    SenderBench {
        sender: Sender::start("ops (slack)".to_owned(), outbox, deliver).expect("a thread"),
        tries,
        results,
    }
}

impl SenderBench {
    fn next(&self) -> Notification {
        self.tries.recv_timeout(LONG).expect("a try")
    }

    fn end(&self, result: Result<(), SendFailure>) {
        self.results.send(result).expect("the thread lives");
    }
}

/// A failure after which the next try comes at once.
fn again() -> SendFailure {
    SendFailure {
        why: "HTTP status 503".to_owned(),
        again: Again::After(Duration::ZERO),
    }
}

#[test]
fn a_message_is_tried_three_times_and_then_counted_in_the_next_one() {
    let bench = bench();
    bench.sender.push(notice());
    for _ in 0..3 {
        assert_eq!(bench.next().undelivered, 0);
        bench.end(Err(again()));
    }
    bench.sender.push(notice());
    assert_eq!(bench.next().undelivered, 1);
    bench.end(Ok(()));
    bench.sender.push(notice());
    assert_eq!(bench.next().undelivered, 0);
    bench.end(Ok(()));
}

#[test]
fn a_rejected_message_is_not_tried_again() {
    let bench = bench();
    bench.sender.push(notice());
    bench.next();
    bench.end(Err(SendFailure::never("HTTP status 404")));
    bench.sender.push(notice());
    assert_eq!(bench.next().undelivered, 1);
    bench.end(Ok(()));
}

#[test]
fn adding_does_not_wait_for_a_message_that_is_being_sent() {
    let bench = bench();
    bench.sender.push(notice());
    bench.next();
    // The thread hangs in its try.
    for _ in 0..10_000 {
        bench.sender.push(notice());
    }
    assert_eq!(bench.sender.shared.lock().queue.len(), 10_000);
    bench.end(Ok(()));
}

#[test]
fn an_end_sends_what_waits_in_one_message() {
    let bench = bench();
    bench.sender.push(notice());
    bench.next();
    for _ in 0..20 {
        bench.sender.push(notice());
    }
    let until = Instant::now() + LONG;
    bench.sender.end(until);
    bench.end(Ok(()));
    assert_eq!(bench.next().events(), 20);
    bench.end(Ok(()));
    bench.sender.wait(until);
    assert!(bench.sender.shared.lock().ended);
}

#[test]
fn an_end_does_not_wait_longer_than_it_may_for_a_target_that_hangs() {
    let bench = bench();
    bench.sender.push(notice());
    bench.next();
    bench.sender.push(notice());
    let until = Instant::now();
    bench.sender.end(until);
    // Returns although the try never ends.
    bench.sender.wait(until);
    let state = bench.sender.shared.lock();
    assert!(!state.ended);
    assert_eq!((state.queue.len(), state.in_hand), (1, 1));
}

#[test]
fn a_target_that_is_down_is_logged_once_every_five_minutes_and_at_its_end() {
    let began = Instant::now();
    let at = |seconds| began + Duration::from_secs(seconds);
    let mut outage = TargetOutage::default();
    assert_eq!(outage.succeeded(), None);
    assert_eq!(outage.failed(at(0)), Some(0));
    assert_eq!(outage.failed(at(60)), None);
    assert_eq!(outage.failed(at(299)), None);
    assert_eq!(outage.failed(at(300)), Some(2));
    assert_eq!(outage.failed(at(400)), None);
    assert_eq!(outage.succeeded(), Some(5));
    assert_eq!(outage.succeeded(), None);
    assert_eq!(outage.failed(at(401)), Some(0), "it is another outage");
}
