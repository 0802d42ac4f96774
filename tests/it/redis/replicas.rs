//! Claims and renewals that must be known to replicas before they count.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cronlatch::names::{JobName, LockName};
use cronlatch::store::protocol::LEAD;
use cronlatch::store::{
    Claim, ClaimReply, ClaimTarget, Fingerprint, Kind, Lock, Overlap, Registration, RenewReply,
    Store, StoreSettings, check_url, open,
};
use cronlatch::time::Timestamp;

use super::{expect_unreachable, finish, grant, renew, renewal, store};
use crate::support::claims::due;
use crate::support::command::{BINARY, command};
use crate::support::sentinel::{caught_up, replica_of};
use crate::support::wait::{INTERVAL, LIMIT};
use crate::support::{Daemon, Mode, Proxy, RedisServer, wait_until};

/// A store whose claims and renewals so many replicas must know.
fn replicated(url: &str, replicas: u32) -> Arc<dyn Store> {
    let mut settings = check_url(url).unwrap();
    for server in settings.servers_mut() {
        server.wait_replicas = replicas;
    }
    assert!(!matches!(settings, StoreSettings::Redlock(_)));
    open(&settings).unwrap()
}

/// A claim whose lease is short: after a failover that is how long the new master waits.
fn claim() -> Claim {
    Claim {
        ttl: Duration::from_secs(3),
        ..super::claim()
    }
}

/// A claim for an occurrence of a job.
fn occurrence(job: &JobName, at: Timestamp) -> Claim {
    Claim {
        what: ClaimTarget::Occurrence {
            job: job.clone(),
            kind: Kind::Schedule,
            due: due(at),
            overlap: Overlap::Skip,
            keep: cronlatch::store::Retention::of_records(10),
        },
        ..claim()
    }
}

fn master() -> RedisServer {
    RedisServer::builder()
        .arg("--repl-diskless-sync-delay")
        .arg("0")
        .start()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_replica_knows_does_not_count_and_counts_when_one_does() {
    let master = master();
    let replica = replica_of(&master, master.port(), RedisServer::builder());
    let store = replicated(&master.url(), 1);
    let first = claim();
    let fence = grant(&store, &first).await;
    renew(&store, &first).await;
    replica.pause();
    let said = expect_unreachable(store.renew(&[renewal(&first)]).await);
    assert!(said.contains("0 of 1 replicas acknowledged"), "{said}");
    let mut second = claim();
    second.lock = Lock::raw("another");
    let said = expect_unreachable(store.claim(&second).await);
    assert!(said.contains("wait_replicas"), "{said}");
    // What is given up takes its claim back, replicas or not.
    store.finish(&finish(&second)).await.unwrap();
    assert_eq!(master.number(&["EXISTS", "another"]), 0);
    assert_eq!(store.claim(&second).await.unwrap(), ClaimReply::Finished);
    replica.resume();
    renew(&store, &first).await;
    assert_eq!(grant(&store, &first).await, fence);
}

/// A holder learns at once that its lease is lost, also while no replica acknowledges.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loss_of_a_lease_needs_no_replica() {
    let master = master();
    let alone = replicated(&master.url(), 0);
    let (lost, taken) = (super::claim(), super::claim());
    grant(&alone, &lost).await;
    alone.finish(&finish(&lost)).await.unwrap();
    grant(&alone, &taken).await;
    let store = replicated(&master.url(), 1);
    let replies = store.renew(&[renewal(&lost)]).await.unwrap();
    assert_eq!(replies, [RenewReply::Taken]);
    let text = expect_unreachable(store.renew(&[renewal(&lost), renewal(&taken)]).await);
    assert!(text.contains("0 of 1 replicas acknowledged"), "{text}");
}

/// An occurrence is given back at once: the ledger says that it waits, not that it runs, and the
/// lock is free for others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_occurrence_that_no_replica_knows_waits_in_the_ledger_and_its_lock_is_free() {
    let master = master();
    let replica = replica_of(&master, master.port(), RedisServer::builder());
    let store = replicated(&master.url(), 1);
    let at = store.now().await.unwrap();
    let job = JobName::parse("j").unwrap();
    let occurrence = || occurrence(&job, at);
    replica.pause();
    let first = occurrence();
    let ClaimReply::Waits { by: Some(by), .. } = store.claim(&first).await.unwrap() else {
        panic!("it is not given back");
    };
    assert!(by.contains("0 of 1 replicas acknowledged"), "{by}");
    let asked = [(job.clone(), first.lock.clone())];
    let report = store.jobs(&asked).await.unwrap().remove(0);
    assert_eq!(report.open, None, "nothing runs");
    assert_eq!(report.holder, None);
    assert_eq!(report.waiting.len(), 1);
    assert_eq!(report.waiting[0].scheduled_at, at);
    let short = report.unacknowledged.expect("what is missing");
    assert_eq!((short.acknowledged, short.wanted, short.since), (0, 1, at));
    assert_eq!(short.server, master.url());
    assert_eq!(store.claim(&first).await.unwrap(), ClaimReply::Finished);
    replica.resume();
    caught_up(&master, 1);
    // A busy machine may take longer than one claim is given.
    let began = std::time::Instant::now();
    loop {
        match store.claim(&occurrence()).await {
            Ok(ClaimReply::Granted { attempt, .. }) => {
                assert_eq!(attempt, 1, "what was given back is no attempt");
                break;
            }
            reply => assert!(began.elapsed() < LIMIT, "{reply:?}"),
        }
    }
    let history = store.history(&job, &first.lock, 10).await.unwrap();
    assert_eq!(history.records, [], "no verdict was recorded meanwhile");
    let report = store.jobs(&asked).await.unwrap().remove(0);
    assert_eq!(report.unacknowledged, None, "a claim was acknowledged");
}

/// With the only replica dead, nothing is said to run or to overlap: `status` and history name what
/// is missing, and how much of it.
#[test]
fn status_and_history_say_that_replicas_are_missing() {
    let master = master();
    let mut replica = replica_of(&master, master.port(), RedisServer::builder());
    let store = format!("{{ redis: '{}', wait_replicas: 1 }}", master.url());
    let jobs = |overlap: &str| {
        format!(
            "  - {{ name: {overlap}, every: 1s, command: [\"true\"], start_deadline: 3s, \
             on_overlap: {overlap}, queue_limit: 1 }}\n"
        )
    };
    let names = ["skip", "wait", "queue"];
    let list = format!("store: {store}\njobs:\n{}", names.map(jobs).concat());
    let _other = Daemon::on("h2", list.as_str()).start();
    let mut daemon = Daemon::on("h1", list).start();
    let job = |daemon: &Daemon, at: usize| {
        let status = daemon
            .ask(&["status", "--json"])
            .expect_code(0)
            .json_lines();
        status[0]["jobs"][at].clone()
    };
    for at in 0..names.len() {
        daemon.wait_until("the job has run", |daemon| {
            let job = job(daemon, at);
            job["last"]["outcome"] == "succeeded" && job["unacknowledged"].is_null()
        });
    }
    replica.stop();
    let mut noted: [BTreeSet<String>; 3] = Default::default();
    for (at, noted) in noted.iter_mut().enumerate() {
        // The third claim that is returned was sent when the replica was dead.
        daemon.wait_until("status shows what is missing, again and again", |daemon| {
            let short = job(daemon, at)["unacknowledged"].take();
            if let Some(returned) = short["at"].as_str() {
                assert_eq!(short["server"], master.url().as_str());
                assert_eq!(
                    (&short["acknowledged"], &short["wanted"]),
                    (&0.into(), &1.into())
                );
                noted.insert(returned.to_owned());
            }
            noted.len() >= 3
        });
    }
    let text = daemon.ask(&["status"]).expect_code(0).stdout;
    assert!(
        text.contains("0 of 1 replicas acknowledged the last claim of job"),
        "{text}"
    );

    // What came due after that was written down.
    let reason = format!(
        "too few replicas of {} acknowledged its claim: 0 of 1",
        master.url()
    );
    for (name, noted) in names.iter().zip(&noted) {
        daemon.wait_until("an occurrence is not started", |daemon| {
            let history = daemon.ask(&["history", "--json", name]).expect_code(0);
            let mut later = history.json_lines();
            later.retain(|record| {
                record["scheduled_at"].as_str() > noted.last().map(String::as_str)
            });
            for record in &later {
                assert_eq!(record["reason"], reason.as_str(), "{record}");
            }
            let missed = later.iter().any(|record| record["outcome"] == "missed");
            let skipped = later.iter().any(|record| record["outcome"] == "skipped");
            if *name == "queue" {
                missed || skipped
            } else {
                skipped
            }
        });
    }
    replica.crash_and_restart();
    for at in 0..names.len() {
        daemon.wait_until("the job runs again, and nothing is missing", |daemon| {
            let job = job(daemon, at);
            job["last"]["outcome"] == "succeeded" && job["unacknowledged"].is_null()
        });
    }
}

#[test]
fn the_record_of_a_run_whose_renewals_no_replica_knows_names_what_is_missing() {
    let master = master();
    let replica = replica_of(&master, master.port(), RedisServer::builder());
    let list = format!(
        "\
store: {{ redis: '{}', wait_replicas: 1 }}
jobs:
  - {{ name: job, every: 1s, command: [sleep, '60'], lock: {{ ttl: 3s }}, kill_grace: 200ms }}
",
        master.url()
    );
    let mut daemon = Daemon::on("host", list).start();
    daemon.wait_log(&["started", "job=job"]);
    replica.pause();
    daemon.wait_log(&["finished", "lease_lost"]);
    replica.resume();
    let mut reason = String::new();
    daemon.wait_until("its end is recorded", |daemon| {
        let history = daemon.ask(&["history", "--json", "job"]).expect_code(0);
        let mut records = history.json_lines().into_iter();
        let lost = records.find(|record| record["outcome"] == "lease_lost");
        reason = lost.map_or_else(String::new, |lost| lost["reason"].to_string());
        !reason.is_empty()
    });
    let missing = format!("{}: 0 of 1 replicas acknowledged", master.url());
    assert!(reason.contains(&missing), "{reason}");
}

/// What was skipped while the first claim waited for the replica was skipped for want of it, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_overlapped_a_claim_that_is_returned_was_short_of_replicas() {
    let master = master();
    let replica = replica_of(&master, master.port(), RedisServer::builder());
    let store = replicated(&master.url(), 1);
    let plain = super::store(&master.url());
    let job = JobName::parse("j").unwrap();
    replica.pause();
    let first = occurrence(&job, store.now().await.unwrap());
    let waits = {
        let (store, first) = (Arc::clone(&store), first.clone());
        tokio::spawn(async move { store.claim(&first).await })
    };
    let began = std::time::Instant::now();
    while plain
        .jobs(&[(job.clone(), first.lock.clone())])
        .await
        .unwrap()[0]
        .open
        .is_none()
    {
        assert!(began.elapsed() < LIMIT, "it is not granted");
        tokio::time::sleep(INTERVAL).await;
    }
    let second = occurrence(&job, store.now().await.unwrap());
    let reply = plain.claim(&second).await.unwrap();
    assert!(matches!(
        waits.await.unwrap().unwrap(),
        ClaimReply::Waits { .. }
    ));
    let history = plain.history(&job, &first.lock, 10).await.unwrap();
    if matches!(reply, ClaimReply::Held { .. }) {
        let [record] = &history.records[..] else {
            panic!("{history:?}");
        };
        let reason = record.reason.clone().unwrap_or_default();
        assert!(
            reason.contains("acknowledged its claim: 0 of 1"),
            "{reason}"
        );
        assert_eq!(record.by, None);
    } else {
        // The machine was so slow that the first claim had been returned.
        assert!(matches!(reply, ClaimReply::Waits { .. }), "{reply:?}");
    }
}

/// Fifty claims that come while one is waited for need one more WAIT, not fifty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_claims_wait_for_the_replicas_together() {
    let master = master();
    let replica = replica_of(&master, master.port(), RedisServer::builder());
    let store = replicated(&master.url(), 1);
    grant(&store, &claim()).await;
    let waits = || {
        let info = master.text(&["INFO", "commandstats"]);
        let line = info.lines().find(|l| l.starts_with("cmdstat_wait:"));
        let calls = line.and_then(|l| l.split_once("calls=")?.1.split(',').next());
        calls.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
    };
    let before = waits();
    replica.pause();
    let all: Vec<_> = (0..50)
        .map(|number| {
            let store = Arc::clone(&store);
            let mut claim = claim();
            claim.lock = Lock::raw(&format!("lock{number}"));
            tokio::spawn(async move { store.claim(&claim).await })
        })
        .collect();
    wait_until("all have been written", || {
        (0..50).all(|n| master.number(&["EXISTS", &format!("lock{n}")]) == 1)
    });
    replica.resume();
    for one in all {
        // A busy machine may take longer than a claim is given.
        let _ = one.await.unwrap();
    }
    assert!(waits() - before < 25, "{} times", waits() - before);
}

/// A claim ahead of its instant waits for the instant while the replica acknowledges it, not afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_in_which_replicas_acknowledge_a_claim_counts_towards_its_instant() {
    let master = master();
    let between = Proxy::to(master.port());
    let _replica = replica_of(&master, between.port(), RedisServer::builder());
    let store = replicated(&master.url(), 1);
    let way = Duration::from_millis(50);
    between.set(Mode::Delay(way));
    let (near, at, starts_in) = granted_ahead(&store).await;
    // The master had replied before it asked the replica, and was answered.
    let left = near.since(at).saturating_sub(way * 2);
    assert!(starts_in <= left, "{starts_in:?} of {left:?}");
}

/// Claims an occurrence shortly before its instant. Returns the instant, the store's clock at the grant, and
/// for how long the run must wait. A busy machine may take longer than one claim is given.
async fn granted_ahead(store: &Arc<dyn Store>) -> (Timestamp, Timestamp, Duration) {
    let began = std::time::Instant::now();
    let mut number = 0;
    loop {
        number += 1;
        let (near, claim) = claim_ahead(&**store, number).await;
        match store.claim(&claim).await {
            Ok(ClaimReply::Granted { at, starts_in, .. }) => return (near, at, starts_in),
            reply => assert!(began.elapsed() < LIMIT, "{reply:?}"),
        }
    }
}

/// An instant that is near, and the claim of a job of this number for it.
async fn claim_ahead(store: &dyn Store, number: u32) -> (Timestamp, Claim) {
    let job = JobName::parse(&format!("j{number}")).unwrap();
    let lock = Lock::named(&LockName::parse(job.as_str()).unwrap());
    let registration = Registration {
        job: job.clone(),
        lock: lock.clone(),
        fingerprint: Fingerprint("f".into()),
        ttl: claim().ttl,
    };
    let registered = store.register(&[registration]).await.unwrap();
    let near = store.now().await.unwrap().plus(Duration::from_millis(900));
    let mut claim = Claim {
        lock,
        ..occurrence(&job, near)
    };
    if let ClaimTarget::Occurrence { due, .. } = &mut claim.what {
        due.prev = Some(registered[0].decided_until);
        due.lead = LEAD;
    }
    (near, claim)
}

/// A busy host reads a reply long after it has arrived.
#[tokio::test]
async fn the_time_for_which_a_reply_waits_to_be_read_counts_towards_the_instant() {
    let server = master();
    let store = replicated(&server.url(), 0);
    let (near, claim) = claim_ahead(&*store, 1).await;
    let busy = Duration::from_millis(300);
    // This runtime has one thread, so nothing is read meanwhile.
    let until_busy = async {
        while server.number(&["EXISTS", "cronlatch:{j1}:lock"]) == 0 {
            tokio::task::yield_now().await;
        }
        std::thread::sleep(busy);
    };
    let (reply, ()) = tokio::join!(store.claim(&claim), until_busy);
    let Ok(ClaimReply::Granted { at, starts_in, .. }) = reply else {
        panic!("not granted: {reply:?}");
    };
    let left = near.since(at).saturating_sub(busy);
    assert!(starts_in <= left, "{starts_in:?} of {left:?}");
}

/// A master that is cut off from its replica, while a replica has become the master, cannot keep
/// a lease alive: its holder is dead before the lock is another's.
#[test]
fn an_isolated_old_master_keeps_no_lease_alive() {
    let master = master();
    let between = Proxy::to(master.port());
    let replica = replica_of(&master, between.port(), RedisServer::builder());
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("jobs.yaml");
    let text = format!(
        "store: {{ redis: '{}', wait_replicas: 1 }}\njobs: []\n",
        master.url()
    );
    std::fs::write(&list, text).unwrap();
    let (began, alive) = (dir.path().join("began"), dir.path().join("alive"));
    let script = format!(
        "touch {}; while :; do date +%s%3N > {}; sleep 0.05; done",
        began.display(),
        alive.display()
    );
    let mut exec = command(BINARY);
    exec.args(["exec", "--lock", "backup", "--ttl", "3s", "--wait", "60s"])
        .args(["--kill-grace", "100ms", "-c"])
        .arg(&list)
        .args(["--", "/bin/sh", "-c", &script]);
    let log = std::fs::File::create(dir.path().join("log")).unwrap();
    let mut exec = exec.stderr(log).spawn().unwrap();
    wait_until("the command has begun", || {
        assert!(exec.try_wait().unwrap().is_none());
        began.exists()
    });
    caught_up(&master, 1);
    between.set(Mode::DropAll);
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = store(&replica.url());
        let next = claim();
        let began = std::time::Instant::now();
        loop {
            match store.claim(&next).await {
                Ok(ClaimReply::Granted { .. }) => break,
                _ => tokio::time::sleep(INTERVAL).await,
            }
            assert!(began.elapsed() < LIMIT, "never granted");
        }
    });
    let granted = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis();
    let status = crate::support::command::exit_of(&mut exec).unwrap();
    assert_eq!(status.code(), Some(75));
    let last: u128 = std::fs::read_to_string(&alive)
        .unwrap()
        .trim()
        .parse()
        .unwrap_or(0);
    assert!(
        last <= granted,
        "alive at {last}, granted to another at {granted}"
    );
}
