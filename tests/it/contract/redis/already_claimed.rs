//! The question whether another host has claimed an occurrence (`already_claimed.lua`): it is answered in the two
//! usual cases alone, and writes nothing.

use std::sync::Arc;
use std::time::Duration;

use cronlatch::store::protocol::LEAD;
use cronlatch::store::{Claim, ClaimReply, Due, Fingerprint, Finish, RunStatus, Store, StoreError};

use super::{Redis, Scene, redis, store_on};
use crate::contract::{run_id, token};

const LOCK: &str = "cronlatch:{l}:lock";
const LEDGER: &str = "cronlatch:{l}:job:j";
const SAVED: &str = "cronlatch:{l}:saved";

/// A job whose first occurrence another host has claimed.
struct Claimed {
    redis: Redis,
    scene: Scene,
}

impl Claimed {
    /// The run is under way.
    async fn running() -> Self {
        let redis = redis().await;
        let scene = Scene::new(&redis).await;
        Scene::granted(&scene.send(&scene.claim("a", 1)).await);
        Self { redis, scene }
    }

    /// It is over.
    async fn decided() -> Self {
        let claimed = Self::running().await;
        let scene = &claimed.scene;
        scene.finish(&scene.success("a", 1)).await;
        claimed
    }

    /// What a host learns that asks first.
    async fn asked(&self, due: Due) -> Option<RunStatus> {
        let claim = self.scene.claim_due("b", due);
        let known = self.scene.store.already_claimed(&claim).await;
        known.expect("it answers")
    }

    async fn answers(&self) -> bool {
        self.asked(self.scene.due(1)).await.is_some()
    }

    fn command(&self, words: &[&str]) {
        self.redis.server.command(words);
    }

    /// Does this to the keys, and takes it back after the question. Returns whether it was answered.
    async fn answers_after(&self, commands: &[&[&str]]) -> bool {
        for key in [LOCK, LEDGER] {
            self.command(&["COPY", key, &format!("{SAVED}:{key}")]);
        }
        for command in commands {
            self.command(command);
        }
        let answered = self.answers().await;
        for key in [LOCK, LEDGER] {
            let saved = format!("{SAVED}:{key}");
            self.command(&["DEL", key]);
            self.command(&["COPY", &saved, key]);
            self.command(&["DEL", &saved]);
        }
        assert!(self.answers().await, "it is as before");
        answered
    }

    /// The names and contents of all keys, and when they expire.
    fn contents(&self) -> Vec<(String, redis::Value, i64)> {
        let keys = self.redis.server.command(&["KEYS", "*"]);
        let mut keys: Vec<String> = redis::from_redis_value(keys).unwrap();
        keys.sort();
        let dump = |key: String| {
            let contents = self.redis.server.command(&["DUMP", &key]);
            let expires = self.redis.server.number(&["PEXPIRETIME", &key]);
            (key, contents, expires)
        };
        keys.into_iter().map(dump).collect()
    }
}

#[tokio::test]
async fn a_question_changes_no_key() {
    for claimed in [Claimed::running().await, Claimed::decided().await] {
        let before = claimed.contents();
        assert!(claimed.answers().await);
        assert_eq!(claimed.asked(claimed.scene.due(2)).await, None);
        assert_eq!(claimed.contents(), before);
    }
}

#[tokio::test]
async fn what_is_unusual_about_the_ledger_is_left_to_the_claim() {
    let moved_away = "1 1 cronlatch:{other}:lock";
    let moved_here = format!("1 1 {LOCK}");
    for claimed in [Claimed::running().await, Claimed::decided().await] {
        let set = async |field: &str, value: &str| {
            claimed
                .answers_after(&[&["HSET", LEDGER, field, value]])
                .await
        };
        assert!(!set("waiting", "an entry").await);
        assert!(!set("moved", moved_away).await);
        assert!(!set("moved", "odd").await);
        assert!(set("moved", &moved_here).await);
        assert!(set("waiting", "").await);
        assert!(!set("last", "odd").await);
        assert!(!set("fingerprints", "").await);
        assert!(
            !claimed
                .answers_after(&[&["HDEL", LEDGER, "fingerprints"]])
                .await
        );
        assert!(!claimed.answers_after(&[&["DEL", LEDGER]]).await);
        assert!(
            !claimed
                .answers_after(&[&["DEL", LEDGER], &["SET", LEDGER, "odd"]])
                .await
        );
        for fingerprint in ["f", "1", "f2"] {
            let due = Due {
                fingerprint: Fingerprint(fingerprint.into()),
                ..claimed.scene.due(1)
            };
            assert_eq!(claimed.asked(due).await, None, "{fingerprint}");
        }
    }
}

#[tokio::test]
async fn what_is_unusual_about_the_run_is_left_to_the_claim() {
    let claimed = Claimed::running().await;
    for field in ["token", "host", "run_id", "attempt", "scheduled_at"] {
        let gone = claimed.answers_after(&[&["HDEL", LEDGER, field]]).await;
        assert!(!gone, "{field}");
    }
    for (field, value) in [
        ("scheduled_at", ""),
        ("token", "odd"),
        ("attempt", "odd"),
        ("attempt", "-1"),
        ("attempt", "1 2"),
        ("attempt", "1\n2"),
        ("run_id", "a b"),
        ("run_id", "a\nb"),
        ("host", "a\nb"),
        ("host", ""),
    ] {
        let odd = claimed
            .answers_after(&[&["HSET", LEDGER, field, value]])
            .await;
        assert!(!odd, "{field} {value}");
    }
    let another = claimed.answers_after(&[&["SET", LOCK, "another program", "PX", "60000"]]);
    assert!(!another.await);
    assert!(!claimed.answers_after(&[&["DEL", LOCK]]).await);
    assert!(!claimed.answers_after(&[&["PERSIST", LOCK]]).await);
    let list: [&[&str]; 2] = [&["DEL", LOCK], &["RPUSH", LOCK, "x"]];
    assert!(!claimed.answers_after(&list).await);
    // Neither the ledger nor the lock knows of a run.
    let none: [&[&str]; 2] = [&["DEL", LOCK], &["HDEL", LEDGER, "token"]];
    assert!(!claimed.answers_after(&none).await);
}

#[tokio::test]
async fn what_is_not_due_by_the_stores_clock_is_left_to_the_claim() {
    for claimed in [Claimed::running().await, Claimed::decided().await] {
        let now = claimed.scene.store.now().await.expect("it answers");
        let minute = Duration::from_secs(60);
        let early = Due {
            not_before: now.plus(minute),
            lead: minute * 10,
            ..claimed.scene.due(1)
        };
        assert_eq!(claimed.asked(early).await, None);
        // The ledger is ahead of the clock, by whatever mistake.
        let ahead = now.plus(minute);
        for field in ["last", "scheduled_at"] {
            claimed.command(&["HSET", LEDGER, field, &ahead.millis().to_string()]);
        }
        let due = Due {
            scheduled_at: ahead,
            not_before: now,
            ..claimed.scene.due(1)
        };
        assert_eq!(claimed.asked(due).await, None);
    }
}

#[tokio::test]
async fn a_host_that_asks_ahead_of_the_instant_learns_of_the_claim_that_was_granted_ahead() {
    let redis = redis().await;
    let scene = Scene::new(&redis).await;
    let now = scene.store.now().await.expect("it answers");
    let at = now.plus(LEAD * 3 / 4);
    let due = Due {
        scheduled_at: at,
        not_before: at,
        prev: Some(scene.start),
        lead: LEAD,
        ..scene.due(1)
    };
    Scene::granted(&scene.send(&scene.claim_due("a", due.clone())).await);
    let claim = scene.claim_due("b", due);
    let known = scene
        .store
        .already_claimed(&claim)
        .await
        .expect("it answers");
    let Some(RunStatus::Running {
        by, run_id: run, ..
    }) = known
    else {
        panic!("not told: {known:?}");
    };
    assert_eq!((by.as_str(), run), ("host-a", run_id("a")));
}

/// The data of a replica may be old.
#[tokio::test]
async fn a_server_that_has_become_a_replica_answers_no_question() {
    let claimed = Claimed::decided().await;
    claimed.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let claim = claimed.scene.claim("b", 1);
    for _ in 0..2 {
        let answer = claimed.scene.store.already_claimed(&claim).await;
        let is_rejected = matches!(answer, Err(StoreError::Refused(_) | StoreError::Replica(_)));
        assert!(is_rejected, "{answer:?}");
    }
}

/// What became of an occurrence on one host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Ran,
    /// The store knew of another host's claim when it was asked.
    Answered,
    Refused,
}

/// What one host does about one occurrence, as the daemon does after it has lost the occurrence before.
async fn runs(store: &dyn Store, claim: Claim, finish: &Finish) -> Fate {
    if store
        .already_claimed(&claim)
        .await
        .expect("it answers")
        .is_some()
    {
        return Fate::Answered;
    }
    match store.claim(&claim).await.expect("it answers") {
        ClaimReply::Granted { .. } => {
            let finish = Finish {
                token: claim.token,
                ..finish.clone()
            };
            store.finish(&finish).await.expect("it answers");
            Fate::Ran
        }
        ClaimReply::AlreadyClaimed(_) => Fate::Refused,
        other => panic!("an odd reply: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_hundred_hosts_that_ask_first_one_runs_each_occurrence() {
    const HOSTS: usize = 100;
    const OCCURRENCES: u64 = 20;
    let redis = redis().await;
    let scene = Scene::new(&redis).await;
    let stores: Vec<Arc<dyn Store>> = (0..10).map(|_| store_on(&redis.server)).collect();
    let mut answered = 0;
    for n in 1..=OCCURRENCES {
        let finish = scene.success("a", n);
        let hosts = (0..HOSTS).map(|host| {
            let store = Arc::clone(&stores[host % stores.len()]);
            let who = format!("{host}-{n}");
            let due = Due {
                prev: Some(scene.at(n - 1)),
                ..scene.due(n)
            };
            let claim = Claim {
                token: token(&who),
                ..scene.claim_due(&who, due)
            };
            let finish = finish.clone();
            tokio::spawn(async move { runs(&*store, claim, &finish).await })
        });
        let mut ran = 0;
        for host in hosts.collect::<Vec<_>>() {
            let fate = host.await.expect("no host fails");
            ran += u32::from(fate == Fate::Ran);
            answered += u32::from(fate == Fate::Answered);
        }
        assert_eq!(ran, 1, "occurrence {n}");
    }
    assert!(answered > 0, "nobody was told without a claim");
    assert_eq!(scene.last().await, Some(scene.at(OCCURRENCES)));
    assert_eq!(
        scene.history().await.len(),
        usize::try_from(OCCURRENCES).unwrap()
    );
}
