//! Claims that fail one by one, and claims that wait for their turn.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::newcomer::Newcomer;
use super::*;
use crate::engine::spool::Spool;
use crate::names::{HostName, JobName, LockName, RunId, Token};
use crate::store::stub::{away, host_info, stub_store};
use crate::store::{
    Beginning, Claim, ClaimReply, ClaimTarget, CountsFrom, Entry, Fingerprint, HostReport, Keeping,
    Listing, LockId, Standing,
};
use crate::time::Timestamp;

/// Answers claims for all locks but `deaf`; with `hangs`, it answers none.
#[derive(Debug, Default)]
struct ScriptedStore {
    asked: Mutex<Vec<String>>,
    hangs: bool,
    /// What it says of the time, if it says anything.
    clock: Mutex<Option<Timestamp>>,
    announced: AtomicUsize,
    /// How often the host had announced itself when it last looked at the listings.
    announced_before_look: AtomicUsize,
    listing: Mutex<Listing>,
    /// What another host writes right after this one has read the listing.
    arrives: Mutex<Option<(HostName, Entry)>>,
}

stub_store! {
    ScriptedStore {
        async fn claim(&self, claim: &Claim) -> Result<ClaimReply, StoreError> {
            let lock = claim.lock.name.clone();
            self.asked
                .lock()
                .expect("no holder panics")
                .push(lock.clone());
            if self.hangs {
                std::future::pending::<()>().await;
            }
            if lock == "deaf" {
                return away();
            }
            Ok(ClaimReply::TooLate)
        }

        async fn announce(&self, _: &HostInfo, _: Duration) -> Result<(), StoreError> {
            self.announced.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
        async fn now(&self) -> Result<Timestamp, StoreError> {
            let clock = *self.clock.lock().expect("no holder panics");
            clock.map_or_else(away, Ok)
        }
        async fn hosts(&self) -> Result<Vec<HostReport>, StoreError> {
            let listing = self.listing.lock().expect("no holder panics");
            let report = |host: &HostName| HostReport {
                info: host_info(host.as_str()),
                seen_at: Timestamp::EPOCH,
            };
            Ok(listing.entries.keys().map(report).collect())
        }
        async fn listings(&self, _: &[JobName]) -> Result<Vec<Listing>, StoreError> {
            let announced = self.announced.load(Ordering::SeqCst);
            self.announced_before_look
                .store(announced, Ordering::SeqCst);
            let mut listing = self.listing.lock().expect("no holder panics");
            let read = listing.clone();
            let arrives = self.arrives.lock().expect("no holder panics").take();
            listing.entries.extend(arrives);
            Ok(vec![read])
        }
        async fn enlist(&self, host: &HostName, jobs: &[(JobName, Entry)]) -> Result<(), StoreError> {
            let mut listing = self.listing.lock().expect("no holder panics");
            let entries = jobs.iter().map(|(_, entry)| (host.clone(), entry.clone()));
            listing.entries.extend(entries);
            Ok(())
        }
    }
    away: renew finish settle note_attempt register released jobs history forget init
}

struct TaskBench {
    link: TaskContext,
    store: Arc<ScriptedStore>,
    messages: mpsc::UnboundedReceiver<Message>,
    health: watch::Sender<Health>,
}

fn bench(store: ScriptedStore) -> TaskBench {
    let store = Arc::new(store);
    let (inbox, messages) = mpsc::unbounded_channel();
    let (health, watched) = watch::channel(Health::Up);
    let link = TaskContext {
        store: Arc::clone(&store) as Arc<dyn Store>,
        inbox,
        health: watched,
        turns: RequestTurns::of_claims(),
        last_answer: LastAnswer::default(),
        siblings: Siblings::none(),
        replaced_namesake: ReplacedNamesake::default(),
        earlier: Arc::default(),
        reporter: Reporter::quiet(host_info("a").host),
    };
    TaskBench {
        link,
        store,
        messages,
        health,
    }
}

pub(in crate::engine::daemon) fn claimant(lock: &str) -> Claimant {
    let (host, run_id) = (HostName::parse("a").expect("a name"), RunId::new());
    let claim = Claim {
        lock: Lock::named(&LockName::parse(lock).expect("a name")),
        token: Token::new(&host, &run_id),
        run_id,
        ttl: Duration::from_secs(30),
        what: ClaimTarget::Lock,
    };
    Claimant::new(claim, crate::store::Retention::DEFAULT)
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_fails_while_others_are_answered_is_no_outage() {
    let mut bench = bench(ScriptedStore::default());
    let sending = (bench.link.clone()).claim(JobIx(0), ClaimId(0), claimant("deaf"));
    let sending = tokio::spawn(sending);
    let mut failure = None;
    while failure.is_none() {
        // Another job's claim, which is answered, before each try.
        let other = bench.link.clone();
        other.claim(JobIx(1), ClaimId(1), claimant("other")).await;
        tokio::task::yield_now().await;
        tokio::time::advance(Duration::from_millis(20)).await;
        while let Ok(message) = bench.messages.try_recv() {
            if let Message::ClaimFailed { error, .. } = message {
                failure = Some(error);
            }
        }
    }
    sending.abort();
    assert!(matches!(failure, Some(StoreError::PartUnreachable(_))));
    let asked = bench.store.asked.lock().expect("no holder panics");
    let copies = asked.iter().filter(|lock| *lock == "deaf").count();
    assert_eq!(copies, 4, "sent again three times before it is reported");
}

#[tokio::test]
async fn claims_that_wait_for_their_turn_are_not_sent_to_a_store_that_is_down() {
    let mut bench = bench(ScriptedStore {
        hangs: true,
        ..ScriptedStore::default()
    });
    let mut asking = tokio::task::JoinSet::new();
    for n in 0..100 {
        let link = bench.link.clone();
        asking.spawn(link.claim(JobIx(n), ClaimId(n.into()), claimant("lock")));
    }
    while bench.store.asked.lock().expect("no holder panics").len() < 64 {
        tokio::task::yield_now().await;
    }
    bench.health.send_replace(Health::Down);
    for _ in 64..100 {
        let message = bench.messages.recv().await.expect("the bench lives");
        assert!(
            matches!(message, Message::ClaimFailed { .. }),
            "{message:?}"
        );
    }
    assert_eq!(
        bench.store.asked.lock().expect("no holder panics").len(),
        64
    );
    asking.abort_all();
}

/// Verdicts and claims that follow an outage go by the clock as it is then.
#[tokio::test]
async fn after_an_outage_the_clocks_are_compared_before_the_store_counts_as_up() {
    let mut bench = bench(ScriptedStore::default());
    let delay = Duration::from_millis(1);
    let probing = tokio::spawn(
        bench
            .link
            .clone()
            .probe(host_info("a"), Measure::First, delay),
    );
    // It takes requests again, and does not say what time it is: that is not enough.
    while bench.store.announced.load(Ordering::SeqCst) < 3 {
        assert!(!probing.is_finished(), "it counts as up, unmeasured");
        tokio::task::yield_now().await;
    }
    assert!(bench.messages.try_recv().is_err());
    let theirs = Timestamp::now().plus(Duration::from_secs(3_600));
    *bench.store.clock.lock().expect("no holder panics") = Some(theirs);
    let Some(Message::Clock(offset, _)) = bench.messages.recv().await else {
        panic!("the clocks are compared first");
    };
    assert!(offset.millis < -3_500_000, "{offset:?}");
    assert!(matches!(
        bench.messages.recv().await,
        Some(Message::StoreAnswers)
    ));
    probing.await.expect("it ends");
}

fn newcomer(lock: &str) -> (JobIx, Newcomer) {
    let (job, name) = (
        JobName::parse("job").expect("a name"),
        LockName::parse(lock).expect("a name"),
    );
    let beginning = Beginning {
        job: job.clone(),
        lock: Lock::named(&name),
        fingerprint: Fingerprint("f".into()),
        ttl: Duration::from_secs(30),
        counts: CountsFrom {
            at: Timestamp::EPOCH,
            again: false,
        },
    };
    let keeping = Keeping {
        job,
        lock: Lock::named(&name),
        span: Duration::from_secs(60),
    };
    let lock = LockId::Fleet(lock.into());
    let newcomer = Newcomer {
        lock,
        known: None,
        beginning,
        keeping,
    };
    (JobIx(0), newcomer)
}

/// Two hosts enter a job under different new locks, and both read before either has written.
#[tokio::test]
async fn of_hosts_that_enter_a_job_under_different_locks_at_once_one_is_admitted() {
    let now = Timestamp::from_secs(1_700_000_000);
    for (name, other, first) in [("a", "b", Standing::Uses), ("b", "a", Standing::Waits)] {
        let [host, other] = [name, other].map(|name| HostName::parse(name).expect("a name"));
        let bench = bench(ScriptedStore::default());
        let store = &bench.store;
        *store.clock.lock().expect("no holder panics") = Some(now);
        let uses = Listing::default().enter(&other, LockId::Fleet("m".into()), now);
        *store.arrives.lock().expect("no holder panics") = Some((other.clone(), uses.clone()));
        let enter = async || {
            let host = (&host, ClockTrust::Right);
            bench.link.enter(host, vec![newcomer("l")]).await
        };
        let standing = || {
            let listing = store.listing.lock().expect("no holder panics");
            listing.entries[&host].standing
        };
        assert_eq!(enter().await.expect("it answers").len(), 1, "host {name}");
        assert_eq!(standing(), first, "host {name}");
        // As long as the other is there, it is held back, and now it says that it waits.
        assert_eq!(enter().await.expect("it answers").len(), 1, "host {name}");
        assert_eq!(standing(), Standing::Waits, "host {name}");
        // The other gave way as well: this one is admitted.
        let gave_way = [(JobName::parse("job").expect("a name"), uses.waiting())];
        store
            .enlist(&other, &gave_way)
            .await
            .expect("it is written");
        assert_eq!(enter().await.expect("it answers").len(), 0, "host {name}");
        assert_eq!(standing(), Standing::Uses, "host {name}");
    }
}

/// Otherwise hosts that enter the job under another lock at the same time pass over this one.
#[tokio::test]
async fn a_host_says_that_it_lives_before_it_looks_which_hosts_use_which_lock() {
    let mut bench = bench(ScriptedStore::default());
    *bench.store.clock.lock().expect("no holder panics") = Some(Timestamp::EPOCH);
    let dir = tempfile::tempdir().expect("a directory");
    let settings = crate::store::StoreSettings::Sqlite {
        path: dir.path().join("store.db"),
    };
    let (place, newcomer) = newcomer("l");
    let registration = Registration {
        job: newcomer.beginning.job.clone(),
        lock: newcomer.beginning.lock.clone(),
        fingerprint: newcomer.beginning.fingerprint.clone(),
        ttl: newcomer.beginning.ttl,
    };
    let host = host_info("a").host;
    let store = Arc::clone(&bench.link.store);
    let reporter = bench.link.reporter.clone();
    let finisher = Finisher::start(store, Spool::of(&host, &settings), |_| {}, reporter);
    let entrance = Entrance {
        host,
        newcomers: BTreeMap::from([(place, newcomer)]),
        measure: Measure::Not,
        clock: ClockTrust::Right,
        max_clock_skew: Duration::from_secs(30),
        first: None,
        announces: Some(host_info("a")),
        waits_for_earlier: false,
    };
    let link = bench.link.clone();
    link.register(vec![(place, registration)], entrance, finisher)
        .await;
    let message = bench.messages.recv().await;
    assert!(matches!(message, Some(Message::Entered(_))), "{message:?}");
    let before = bench.store.announced_before_look.load(Ordering::SeqCst);
    assert_eq!(before, 1);
}
