//! The watchdog's loop on a store with scripted replies, on paused time.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::command::{LeaseFields, LeaseState, LeaseSubscriber, WatchdogCommand};
use super::renewal_loop::{Heartbeat, RenewalLoop};
use super::table::{LeaseId, RenewedLease};
use super::{Guarded, LeaseLost, NewLease, Watchdog};
use crate::names::{RunId, Token};
use crate::store::stub::stub_store;
use crate::store::{Grant, Lock, RenewReply, Renewal, Store, StoreError};
use crate::time::BootInstant;

/// How the store treats one call of `renew`.
#[derive(Debug, Clone, Copy)]
enum StoreBehaviour {
    All(RenewReply),
    After(Duration, RenewReply),
    Fails,
    Hangs,
    /// The asking thread itself hangs, its timers with it.
    Blocks,
}

/// Replies to the calls of `renew` in order; the last reply stands for all later calls.
#[derive(Debug)]
struct ScriptedRenewals {
    answers: Vec<StoreBehaviour>,
    calls: AtomicUsize,
    asked: Mutex<Vec<usize>>,
}

impl ScriptedRenewals {
    fn new(answers: &[StoreBehaviour]) -> Arc<Self> {
        Arc::new(Self {
            answers: answers.to_vec(),
            calls: AtomicUsize::new(0),
            asked: Mutex::default(),
        })
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    fn sizes(&self) -> Vec<usize> {
        self.asked.lock().expect("no test panics within").clone()
    }
}

stub_store! {
    ScriptedRenewals {
        async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>, StoreError> {
            let call = self.calls.fetch_add(1, Ordering::Relaxed);
            let size = renewals.len();
            self.asked.lock().expect("no test panics within").push(size);
            match self.answers[call.min(self.answers.len() - 1)] {
                StoreBehaviour::All(reply) => Ok(vec![reply; size]),
                StoreBehaviour::After(pause, reply) => {
                    tokio::time::sleep(pause).await;
                    Ok(vec![reply; size])
                }
                StoreBehaviour::Fails => Err(StoreError::unreachable("scripted".to_owned())),
                StoreBehaviour::Hangs => std::future::pending().await,
                StoreBehaviour::Blocks => loop {
                    std::thread::park();
                },
            }
        }
    }
    away: claim finish settle note_attempt register announce released now jobs history hosts forget init
}

const TTL: Duration = Duration::from_secs(30);

fn grant(ttl: Duration, sent: BootInstant) -> Grant {
    Grant {
        lock: Lock::raw("k"),
        token: Token::from_text("t"),
        run_id: RunId::from_text("r"),
        fence: 1,
        ttl,
        sent,
        starts_at: None,
    }
}

fn new_lease(ttl: Duration) -> NewLease {
    NewLease {
        grant: grant(ttl, BootInstant::now()),
        run: None,
        guarded: Guarded::No,
        renew_until: None,
        while_held: None,
    }
}

/// The loop on paused time: its boot clock is the paused clock.
struct LeaseBench {
    commands: mpsc::UnboundedSender<WatchdogCommand>,
    start: Instant,
    boot: BootInstant,
    /// How long the process was stopped, in milliseconds: the boot clock went on, timers did not.
    stopped_for: Arc<AtomicU64>,
}

impl LeaseBench {
    fn start(store: Arc<dyn Store>) -> Self {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (start, boot) = (Instant::now(), BootInstant::now());
        let stopped_for = Arc::new(AtomicU64::new(0));
        let stop = Arc::clone(&stopped_for);
        let clock = move || {
            let stop = Duration::from_millis(stop.load(Ordering::Relaxed));
            boot.plus(start.elapsed() + stop)
        };
        let rounds = RenewalLoop::new(store, None, inbox, Arc::new(Heartbeat::default()), clock);
        tokio::spawn(rounds.run());
        Self {
            commands,
            start,
            boot,
            stopped_for,
        }
    }

    fn hold(&self, id: u64) -> watch::Receiver<LeaseState> {
        let now = self.boot.plus(self.start.elapsed());
        let (state, view) = watch::channel(LeaseState::Held { ends: now });
        let renewal = grant(TTL, now).renewal();
        let subscriber = LeaseSubscriber {
            trouble: watch::channel(None).0,
            state,
            run: None,
            fields: LeaseFields::of(&renewal),
            run_ended: Arc::default(),
            _while_held: None,
            is_failure_logged: false,
        };
        let lease = RenewedLease {
            renewal,
            renew_until: None,
        };
        self.commands
            .send(WatchdogCommand::Hold(
                LeaseId(id),
                subscriber,
                Box::new(lease),
            ))
            .expect("the loop runs");
        view
    }

    fn seconds(&self) -> f64 {
        (self.start.elapsed().as_secs_f64() * 10.0).round() / 10.0
    }

    async fn until_lost(&self, view: &mut watch::Receiver<LeaseState>) -> (LeaseLost, f64) {
        let lost = view.wait_for(|state| matches!(state, LeaseState::Lost(_)));
        let lost = tokio::time::timeout(2 * TTL, lost).await;
        let lost = lost.expect("lost in time").expect("the loop runs");
        match *lost {
            LeaseState::Lost(why) => (why, self.seconds()),
            LeaseState::Held { .. } => unreachable!("waited for the other"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_lives_on_for_as_long_as_it_is_renewed() {
    let store = ScriptedRenewals::new(&[StoreBehaviour::All(RenewReply::Renewed)]);
    let bench = LeaseBench::start(store.clone());
    let view = bench.hold(1);
    tokio::time::sleep(Duration::from_secs(3605)).await;
    assert!(matches!(*view.borrow(), LeaseState::Held { .. }));
    assert_eq!(store.calls(), 360);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_lost_at_its_end_even_when_the_store_hangs() {
    let store = ScriptedRenewals::new(&[StoreBehaviour::Hangs]);
    let bench = LeaseBench::start(store.clone());
    let mut view = bench.hold(1);
    let lost = bench.until_lost(&mut view).await;
    assert_eq!(lost, (LeaseLost::Expired, 29.7));
    // Asked again after every response time-out, not only once.
    assert!(store.calls() >= 15, "asked {} times", store.calls());
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_until_one_renewal_succeeds() {
    let mut answers = vec![StoreBehaviour::Fails; 12];
    answers.push(StoreBehaviour::Hangs);
    answers.push(StoreBehaviour::All(RenewReply::Renewed));
    let store = ScriptedRenewals::new(&answers);
    let bench = LeaseBench::start(store.clone());
    let view = bench.hold(1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(matches!(*view.borrow(), LeaseState::Held { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_reply_later_than_the_response_time_out_still_counts_from_its_send() {
    let late = StoreBehaviour::After(Duration::from_secs(4), RenewReply::Renewed);
    let store = ScriptedRenewals::new(&[late, StoreBehaviour::Hangs]);
    let bench = LeaseBench::start(store.clone());
    let mut view = bench.hold(1);
    let lost = bench.until_lost(&mut view).await;
    assert_eq!(lost, (LeaseLost::Expired, 39.7));
}

#[tokio::test(start_paused = true)]
async fn a_reply_read_after_the_end_does_not_revive_the_lease() {
    let answer = StoreBehaviour::After(Duration::from_millis(500), RenewReply::Renewed);
    let store = ScriptedRenewals::new(&[answer]);
    let bench = LeaseBench::start(store.clone());
    let mut view = bench.hold(1);
    tokio::time::sleep(Duration::from_millis(10_300)).await;
    assert_eq!(store.calls(), 1);
    bench.stopped_for.store(25_000, Ordering::Relaxed);
    let lost = bench.until_lost(&mut view).await;
    assert_eq!(lost, (LeaseLost::Expired, 10.5));
    tokio::time::sleep(TTL).await;
    assert_eq!(store.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_taken_by_another_is_lost_with_the_next_renewal() {
    let store = ScriptedRenewals::new(&[StoreBehaviour::All(RenewReply::Taken)]);
    let bench = LeaseBench::start(store.clone());
    let mut view = bench.hold(1);
    let lost = bench.until_lost(&mut view).await;
    assert_eq!(lost, (LeaseLost::Taken, 10.0));
    tokio::time::sleep(TTL).await;
    assert_eq!(store.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_dropped_is_not_renewed_any_more() {
    let store = ScriptedRenewals::new(&[StoreBehaviour::All(RenewReply::Renewed)]);
    let bench = LeaseBench::start(store.clone());
    let view = bench.hold(1);
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench
        .commands
        .send(WatchdogCommand::LetGo(LeaseId(1)))
        .expect("the loop runs");
    tokio::time::sleep(TTL).await;
    assert_eq!(store.calls(), 0);
    assert!(matches!(*view.borrow(), LeaseState::Held { .. }));
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_leases_are_renewed_in_one_call() {
    let store = ScriptedRenewals::new(&[StoreBehaviour::All(RenewReply::Renewed)]);
    let bench = LeaseBench::start(store.clone());
    let views: Vec<_> = (0..10_000).map(|id| bench.hold(id)).collect();
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(store.sizes(), [10_000, 10_000]);
    assert_eq!(views.len(), 10_000);
}

#[test]
fn a_holder_notices_the_end_although_the_watchdog_thread_hangs() {
    let watchdog = Watchdog::start_on(
        || Ok(ScriptedRenewals::new(&[StoreBehaviour::Blocks]) as Arc<dyn Store>),
        None,
    )
    .expect("a thread can be started");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime can be built");
    runtime.block_on(async {
        let mut lease = watchdog.hold(new_lease(Duration::from_millis(300)));
        let limit = Duration::from_secs(60);
        let lost = tokio::time::timeout(limit, lease.lost()).await;
        assert_eq!(lost, Ok(LeaseLost::Expired));
        assert_eq!(lease.validity(), Duration::ZERO);
    });
}

#[test]
fn a_dropped_lease_is_left_out_of_the_next_batch() {
    let store = ScriptedRenewals::new(&[StoreBehaviour::All(RenewReply::Renewed)]);
    let same = Arc::clone(&store);
    let watchdog = Watchdog::start_on(move || Ok(same as Arc<dyn Store>), None)
        .expect("a thread can be started");
    // Due together, in a second.
    let dropped = watchdog.hold(new_lease(Duration::from_secs(3)));
    let kept = watchdog.hold(new_lease(Duration::from_secs(3)));
    drop(dropped);
    while store.calls() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(store.sizes(), [1]);
    drop(kept);
}
