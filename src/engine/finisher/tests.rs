//! Verdicts meet a store that is away.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::names::{HostName, JobName, LockName, RunId, Token};
use crate::store::stub::{away, stub_store};
use crate::store::{Lock, StoreSettings};

/// Takes verdicts while it is up, and does nothing else.
#[derive(Debug, Default)]
struct Sink {
    up: AtomicBool,
    taken: Mutex<Vec<Token>>,
    told: Mutex<Vec<JobName>>,
}

stub_store! {
    Sink {
        async fn finish(&self, finish: &Finish) -> Result<FinishReply, StoreError> {
            if !self.up.load(Ordering::SeqCst) {
                return away();
            }
            let mut taken = self.taken.lock().expect("no holder panics");
            taken.push(finish.token.clone());
            Ok(FinishReply::Released)
        }

        /// Takes a while.
        async fn tell_returned(&self, job: &JobName) -> Result<(), StoreError> {
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
            self.told
                .lock()
                .expect("no holder panics")
                .push(job.clone());
            Ok(())
        }
    }
    away: claim renew settle note_attempt register announce released now jobs history hosts forget init
}

fn pending(number: u32) -> PendingFinish {
    let host = HostName::parse("a").expect("a name");
    PendingFinish {
        finish: Finish {
            lock: Lock::named(&LockName::parse("lock").expect("a name")),
            token: Token::new(&host, &RunId::new()),
            record: None,
            job: None,
            give_back: true,
            keep: crate::store::Retention::of_records(100),
        },
        lease: None,
        job: Some(JobIx(number)),
        spooled: false,
    }
}

struct FinisherBench {
    store: Arc<Sink>,
    finisher: Finisher,
    notices: mpsc::UnboundedReceiver<FinisherNotice>,
    spool: Spool,
    _dir: tempfile::TempDir,
}

fn bench() -> FinisherBench {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = StoreSettings::Sqlite {
        path: dir.path().join("store.db"),
    };
    let spool = Spool::of(&HostName::parse("a").expect("a name"), &settings);
    let store = Arc::new(Sink::default());
    let (tx, notices) = mpsc::unbounded_channel();
    FinisherBench {
        finisher: Finisher::start(
            Arc::<Sink>::clone(&store),
            spool.clone(),
            move |notice| {
                let _ = tx.send(notice);
            },
            Reporter::quiet(HostName::parse("a").expect("a name")),
        ),
        store,
        notices,
        spool,
        _dir: dir,
    }
}

#[tokio::test]
async fn what_the_store_did_not_take_it_gets_in_order_once_it_is_back() {
    let mut bench = bench();
    let first = pending(0);
    let mut tokens = vec![first.finish.token.clone()];
    bench.finisher.send(first);
    let Some(FinisherNotice::StoreFailed(_)) = bench.notices.recv().await else {
        panic!("a failure is told");
    };
    for number in 1..20 {
        let pending = pending(number);
        tokens.push(pending.finish.token.clone());
        bench.finisher.send(pending);
    }
    bench.store.up.store(true, Ordering::SeqCst);
    bench.finisher.retry_now();
    bench.finisher.idle(Duration::from_secs(60)).await;
    assert_eq!(*bench.store.taken.lock().expect("no holder panics"), tokens);
    let mut closed = Vec::new();
    while closed.len() < 20 {
        match bench.notices.recv().await {
            Some(FinisherNotice::RunClosed(job)) => closed.push(job.0),
            Some(FinisherNotice::StoreFailed(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(closed, (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_cannot_be_delivered_is_handed_back_also_what_is_under_way() {
    let bench = bench();
    let results = [pending(0), pending(1), pending(2)];
    let finishes = results.each_ref().map(|pending| pending.finish.clone());
    for pending in results {
        bench.finisher.send(pending);
    }
    let rest = bench.finisher.end(Duration::ZERO).await;
    assert_eq!(rest, finishes);
}

#[tokio::test]
async fn other_hosts_are_told_what_came_back_before_the_daemon_ends() {
    let bench = bench();
    bench.store.up.store(true, Ordering::SeqCst);
    let job = JobName::parse("seldom").expect("a name");
    let mut pending = pending(0);
    pending.finish.job = Some(job.clone());
    bench.finisher.send(pending);
    assert_eq!(bench.finisher.end(Duration::from_secs(60)).await, []);
    let told = bench.store.told.lock().expect("no holder panics");
    assert_eq!(*told, [job]);
}

/// Waits until the spool holds exactly these.
async fn wait_spool(bench: &FinisherBench, expected: &[Finish]) {
    for _ in 0..3_000 {
        if bench.spool.load() == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the spool holds {:?}", bench.spool.load());
}

#[tokio::test]
async fn what_the_store_did_not_take_is_on_disk_before_the_daemon_ends() {
    let bench = bench();
    let results = [pending(0), pending(1)];
    let finishes = results.each_ref().map(|pending| pending.finish.clone());
    for pending in results {
        bench.finisher.send(pending);
    }
    wait_spool(&bench, &finishes).await;
    bench.store.up.store(true, Ordering::SeqCst);
    bench.finisher.retry_now();
    wait_spool(&bench, &[]).await;
    bench.finisher.idle(Duration::from_secs(60)).await;
    assert_eq!(bench.store.taken.lock().expect("no holder panics").len(), 2);
}
