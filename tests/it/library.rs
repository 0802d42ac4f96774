//! The library: the same claims on both stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tracing_subscriber::layer::SubscriberExt as _;

use cronlatch::names::{HostName, RunId, Token};
use cronlatch::store::{Claim, ClaimReply, ClaimTarget, Finish, Lock, Store};
use cronlatch::{AcquireError, HeldLock, Latch, LeaseLost, OpenError, ReleaseError, RunError};

use crate::support::RedisServer;

/// One test for each store.
macro_rules! on_both_stores {
    ($($name:ident)*) => {
        mod on_sqlite {
            $(#[tokio::test]
            async fn $name() {
                let dir = tempfile::tempdir().expect("a temporary directory");
                let url = format!("sqlite:{}/store.db", dir.path().display());
                super::$name(&url).await;
            })*
        }

        mod on_redis {
            $(#[tokio::test]
            async fn $name() {
                let server = crate::support::RedisServer::start();
                super::$name(&server.url()).await;
            })*
        }
    };
}

mod blocking;
mod ends;
mod errors;
mod features;
mod first;
mod queue;
mod ways;

/// Longer than anything here takes on a machine that is merely slow.
const LONG: Duration = Duration::from_secs(60);

on_both_stores! {
    a_held_lock_excludes_others_until_it_is_released
    one_who_waits_gets_the_lock_when_it_is_released
    a_lock_lives_on_for_as_long_as_it_is_held
    a_lock_taken_by_another_is_lost_and_the_others_stays
    a_dropped_lock_is_released
    work_is_dropped_when_its_lock_is_lost
    one_who_gives_up_waiting_leaves_no_claim
}

fn latch(url: &str, host: &str) -> Latch {
    Latch::builder(url)
        .host(host)
        .open()
        .expect("the store can be opened")
}

async fn acquire(latch: &Latch, ttl: u64) -> HeldLock {
    latch
        .lock("report")
        .expect("a sound name")
        .ttl(Duration::from_secs(ttl))
        .wait(LONG)
        .acquire()
        .await
        .expect("the lock is free, or will be")
}

async fn is_held(latch: &Latch) -> bool {
    let request = latch.lock("report").expect("a sound name");
    match request.acquire().await {
        Ok(held) => {
            held.release().await.expect("it was ours");
            false
        }
        Err(AcquireError::Held { .. }) => true,
        Err(error) => panic!("the store fails: {error}"),
    }
}

fn finish_of(lock: &str, token: &str) -> Finish {
    Finish {
        lock: Lock::named(&lock.parse().expect("a sound name")),
        token: Token::from_text(token),
        record: None,
        job: None,
        give_back: false,
        keep: cronlatch::store::Retention::of_records(0),
    }
}

/// The debug messages of this thread about claims that wait for a lock.
///
/// The tests run on a runtime of one thread, so the claims that they spawn log on it.
struct Waits {
    messages: mpsc::UnboundedReceiver<()>,
    _subscriber: tracing::subscriber::DefaultGuard,
}

impl Waits {
    fn listen() -> Self {
        let (sender, messages) = mpsc::unbounded_channel();
        let layer = WaitMessages(sender);
        let subscriber = tracing_subscriber::registry().with(layer);
        Self {
            messages,
            _subscriber: tracing::subscriber::set_default(subscriber),
        }
    }

    /// Waits until a claim has found its lock held and waits for it.
    async fn begun(&mut self) {
        let message = tokio::time::timeout(LONG, self.messages.recv()).await;
        message.expect("a claim waits").expect("the layer lives");
    }
}

/// Reports every event that ends with `; retrying`.
struct WaitMessages(mpsc::UnboundedSender<()>);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for WaitMessages {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        event.record(
            &mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
                if field.name() == "message" && format!("{value:?}").ends_with("; retrying") {
                    let _ = self.0.send(());
                }
            },
        );
    }
}

/// What an operator does who forces a lock open, and what another host does then.
async fn steal(url: &str, victim: &HeldLock) -> (Arc<dyn Store>, Claim) {
    let settings = cronlatch::store::check_url(url).expect("a sound URL");
    let store = cronlatch::store::open(&settings).expect("the store can be opened");
    let lock = Lock::named(&"report".parse().expect("a sound name"));
    let finish = finish_of("report", victim.token());
    store.finish(&finish).await.expect("the store answers");
    let run_id = RunId::new();
    let thief = HostName::parse("thief").expect("a sound name");
    let claim = Claim {
        lock,
        token: Token::new(&thief, &run_id),
        run_id,
        ttl: LONG,
        what: ClaimTarget::Lock,
    };
    let reply = store.claim(&claim).await.expect("the store answers");
    assert!(matches!(reply, ClaimReply::Granted { .. }), "{reply:?}");
    (store, claim)
}

async fn a_held_lock_excludes_others_until_it_is_released(url: &str) {
    let (one, two) = (latch(url, "one"), latch(url, "two"));
    let held = acquire(&one, 30).await;
    assert!(held.token().starts_with("one:"), "{}", held.token());
    assert!(held.validity() > Duration::ZERO);
    assert!(held.validity() < Duration::from_secs(30));

    let refused = two.lock("report").expect("a sound name").acquire().await;
    match refused {
        Err(AcquireError::Held { by, remaining, .. }) => {
            assert_eq!(by, "one");
            assert!(remaining.is_some_and(|left| left <= Duration::from_secs(30)));
        }
        other => panic!("not refused: {other:?}"),
    }
    let first = held.fence();
    held.release().await.expect("it was ours");
    let held = acquire(&two, 30).await;
    assert!(held.fence() > first);
    held.release().await.expect("it was ours");
}

async fn one_who_waits_gets_the_lock_when_it_is_released(url: &str) {
    let (one, two) = (latch(url, "one"), latch(url, "two"));
    let held = acquire(&one, 60).await;
    let mut waits = Waits::listen();
    let waiter = tokio::spawn(async move { acquire(&two, 60).await.release().await });
    waits.begun().await;
    assert!(!waiter.is_finished());
    held.release().await.expect("it was ours");
    let released = waiter.await.expect("the waiter does not panic");
    released.expect("it was its own");
}

async fn a_lock_lives_on_for_as_long_as_it_is_held(url: &str) {
    let (one, two) = (latch(url, "one"), latch(url, "two"));
    let ttl = Duration::from_secs(3);
    let began = Instant::now();
    let held = acquire(&one, 3).await;
    while began.elapsed() < ttl + ttl / 8 {
        assert!(is_held(&two).await, "free after {:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(held.validity() > Duration::ZERO);
    held.release().await.expect("it was ours");
}

async fn a_lock_taken_by_another_is_lost_and_the_others_stays(url: &str) {
    let latch = latch(url, "one");
    let mut held = acquire(&latch, 6).await;
    let (store, thief) = steal(url, &held).await;
    // Absent, should a renewal have come between the two steps of the theft.
    let lost = held.lost().await;
    assert!(matches!(lost, LeaseLost::Taken | LeaseLost::Absent));
    assert_eq!(held.validity(), Duration::ZERO);
    match held.release().await {
        Err(ReleaseError::Lost(why)) => assert_eq!(why, lost),
        other => panic!("released what was not its own: {other:?}"),
    }
    assert!(is_held(&latch).await);
    let again = store.claim(&thief).await.expect("the store answers");
    assert!(matches!(again, ClaimReply::Granted { .. }), "{again:?}");
}

async fn a_dropped_lock_is_released(url: &str) {
    let (one, two) = (latch(url, "one"), latch(url, "two"));
    drop(acquire(&one, 3600).await);
    let held = acquire(&two, 30).await;
    held.release().await.expect("it was ours");
}

async fn work_is_dropped_when_its_lock_is_lost(url: &str) {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let latch = latch(url, "one");
    let dropped = Arc::new(AtomicBool::new(false));
    let mark = Dropped(Arc::clone(&dropped));
    let request = latch.lock("report").expect("a sound name");
    let done = request
        .ttl(Duration::from_secs(6))
        .run(|ticket| async move {
            let _mark = mark;
            let settings = cronlatch::store::check_url(url).expect("a sound URL");
            let store = cronlatch::store::open(&settings).expect("the store can be opened");
            let finish = finish_of("report", ticket.token());
            store.finish(&finish).await.expect("the store answers");
            std::future::pending::<()>().await;
        })
        .await;
    match done {
        Err(RunError::Lost(LeaseLost::Absent)) => {}
        other => panic!("the work went on: {other:?}"),
    }
    assert!(dropped.load(Ordering::Relaxed));
}

async fn one_who_gives_up_waiting_leaves_no_claim(url: &str) {
    let (one, two) = (latch(url, "one"), latch(url, "two"));
    let held = acquire(&one, 60).await;
    let other = two.clone();
    let mut waits = Waits::listen();
    let waiter = tokio::spawn(async move { acquire(&other, 3600).await });
    waits.begun().await;
    waiter.abort();
    assert!(waiter.await.is_err_and(|e| e.is_cancelled()));
    held.release().await.expect("it was ours");
    // Two claims that the one who gave up might have left would bar this for an hour.
    let held = acquire(&one, 30).await;
    held.release().await.expect("it was ours");
    let held = acquire(&two, 30).await;
    held.release().await.expect("it was ours");
}

#[tokio::test]
async fn a_lock_that_cannot_be_renewed_is_lost_at_its_end() {
    let mut server = RedisServer::start();
    let latch = latch(&server.url(), "one");
    let mut held = acquire(&latch, 2).await;
    server.stop();
    assert_eq!(held.lost().await, LeaseLost::Expired);
    assert_eq!(held.validity(), Duration::ZERO);
    let refused = latch.lock("other").expect("a sound name").acquire().await;
    assert!(
        matches!(refused, Err(AcquireError::Store(_))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_raw_key_is_shared_with_programs_that_set_it_themselves() {
    let server = RedisServer::start();
    let latch = latch(&server.url(), "one");
    let held = latch
        .key("app:lock")
        .unwrap()
        .acquire()
        .await
        .expect("it is free");
    assert_eq!(server.text(&["GET", "app:lock"]), held.token());
    held.release().await.expect("it was ours");
    assert_eq!(server.number(&["EXISTS", "app:lock"]), 0);

    server.text(&["SET", "app:lock", "theirs", "NX", "PX", "60000"]);
    match latch.key("app:lock").unwrap().acquire().await {
        Err(AcquireError::Held { by, .. }) => assert_eq!(by, "theirs"),
        other => panic!("not refused: {other:?}"),
    }
    // No message announces that the key is gone: the waiter must find out by itself.
    let mut waits = Waits::listen();
    let waiter = tokio::spawn(latch.key("app:lock").unwrap().wait(LONG).acquire());
    waits.begun().await;
    server.number(&["DEL", "app:lock"]);
    let held = waiter.await.expect("no panic").expect("it is free now");
    held.release().await.expect("it was ours");
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_a_reason() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let url = format!("sqlite:{}/store.db", dir.path().display());
    assert!(matches!(Latch::open("http://x"), Err(OpenError::Url(_))));
    let named = Latch::builder(&url).host("a b").open();
    assert!(matches!(named, Err(OpenError::Name(_))), "{named:?}");
    let prefixed = Latch::builder(&url).prefix("x").open();
    assert!(matches!(prefixed, Err(OpenError::NotForSqlite(_))));
    let latch = latch(&url, "one");
    assert!(latch.lock("no/slash").is_err());
    assert!(latch.lock("").is_err());
    assert!(latch.key("").is_err());
    for ttl in [Duration::from_millis(999), Duration::MAX] {
        let refused = latch.lock("user:42").unwrap().ttl(ttl).acquire().await;
        assert!(
            matches!(refused, Err(AcquireError::InvalidTtl(given)) if given == ttl),
            "{refused:?}"
        );
    }
}

#[test]
fn a_latch_is_opened_within_a_runtime_only() {
    let opened = Latch::open("redis://127.0.0.1:1");
    assert!(matches!(opened, Err(OpenError::NoRuntime)), "{opened:?}");
}
