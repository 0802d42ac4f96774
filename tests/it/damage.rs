//! Keys and rows that cannot be used: they concern one job, in any store, and `forget` removes them.

use std::sync::Arc;
use std::time::Duration;

use cronlatch::names::{JobName, LockName};
use cronlatch::store::{
    Fingerprint, Forget, Forgotten, KeyFaultKind, Lock, Registration, Store, StoreError, apart,
    check_url, open,
};
use serde_json::json;

use crate::support::cluster::Replicas;
use crate::support::redis::documented_cluster_rights;
use crate::support::{Cluster, Daemon, RedisServer, cronlatch};

const LEDGER: &str = "cronlatch:{b}:job:b";

fn lock(name: &str) -> Lock {
    Lock::named(&LockName::parse(name).unwrap())
}

fn registration(name: &str) -> Registration {
    Registration {
        job: JobName::parse(name).unwrap(),
        lock: lock(name),
        fingerprint: Fingerprint("f".into()),
        ttl: Duration::from_secs(10),
    }
}

/// What is wrong with each of the jobs `a`, `b` and `c`, when they are registered as one batch.
async fn faults(store: &Arc<dyn Store>) -> Vec<Option<(KeyFaultKind, String)>> {
    let jobs = ["a", "b", "c"].map(registration).to_vec();
    let registered = apart(jobs, |part| {
        let store = Arc::clone(store);
        async move { store.register(&part).await }
    });
    let fault = |answer| match answer {
        Ok(_) => None,
        Err(StoreError::Key(fault)) => Some((fault.kind, fault.key)),
        Err(error) => panic!("not a fault of one key: {error}"),
    };
    let registered = registered.await.unwrap();
    registered.into_iter().map(fault).collect()
}

/// With the ledger of `b` damaged, only `b` fails, until it is forgotten.
async fn only_b_fails_until_it_is_forgotten(url: &str, damage: impl FnOnce()) {
    let store = open(&check_url(url).unwrap()).unwrap();
    assert_eq!(faults(&store).await, [None, None, None]);
    damage();
    let found = faults(&store).await;
    let [None, Some((KeyFaultKind::Damaged, key)), None] = &found[..] else {
        panic!("only b should fail: {found:?}");
    };
    assert!(key.contains('b'), "{key}");
    let forget = Forget {
        job: JobName::parse("b").unwrap(),
        lock: lock("b"),
        with_lock: true,
        although_held: false,
    };
    let forgotten = store.forget(&forget).await.unwrap();
    assert!(matches!(forgotten, Forgotten::Done { entries } if entries > 0));
    assert_eq!(faults(&store).await, [None, None, None]);
}

#[tokio::test]
async fn a_damaged_row_fails_its_own_job_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    only_b_fails_until_it_is_forgotten(&format!("sqlite:{}", path.display()), || {
        let db = rusqlite::Connection::open(&path).unwrap();
        let damage = "UPDATE jobs SET fingerprints = 'odd' WHERE job = 'b'";
        assert_eq!(db.execute(damage, []).unwrap(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_damaged_key_fails_its_own_job_alone_in_a_cluster() {
    let cluster = Cluster::start(Replicas::None, &documented_cluster_rights());
    let url = cluster.url_of(&[0]);
    crate::support::wait_for("it is declared new", || {
        let said = cronlatch(&["init", "--store", &url]);
        (said.code() == 0).then_some(())
    });
    only_b_fails_until_it_is_forgotten(&url, || {
        cluster.command(LEDGER, &["HSET", LEDGER, "last", "odd"]);
    })
    .await;
}

#[test]
fn doctor_reports_a_ledger_ahead_of_the_store_s_clock() {
    let redis = RedisServer::start();
    let job = |name: &str| json!({ "name": name, "every": "1h", "command": "true" });
    let list = json!({ "store": redis.url(), "jobs": [job("right"), job("ahead")] });
    let mut daemon = Daemon::on("one", list.to_string()).start();
    daemon.terminate();
    let now = cronlatch::time::Timestamp::now().millis();
    let last = (now + 2 * 3600 * 1000).to_string();
    redis.command(&["HSET", "cronlatch:{ahead}:job:ahead", "last", &last]);
    let found = daemon.ask(&["doctor", "--json"]).json_lines();
    let all = found[0]["findings"].as_array().unwrap_or(&found);
    let of_ledgers: Vec<_> = all.iter().filter(|f| f["id"] == "store.ledger").collect();
    assert_eq!(of_ledgers.len(), 1, "{found:#?}");
    assert_eq!(of_ledgers[0]["subject"], "job ahead");
    let text = of_ledgers[0]["text"].as_str().unwrap();
    assert!(text.contains("ahead of the store's clock"), "{text}");
    assert!(
        text.contains("until the store's clock has reached"),
        "{text}"
    );
}

#[tokio::test]
async fn a_key_that_is_damaged_on_a_majority_of_nodes_fails_its_own_job_alone() {
    let nodes = [(); 3].map(|()| RedisServer::start());
    let urls = nodes.each_ref().map(RedisServer::url).join(",");
    cronlatch(&["init", "--store", &urls]);
    let damage = |node: &RedisServer| {
        node.command(&["DEL", LEDGER]);
        node.command(&["SET", LEDGER, "odd"]);
    };
    let store = open(&check_url(&urls).unwrap()).unwrap();
    assert_eq!(faults(&store).await, [None, None, None]);
    damage(&nodes[0]);
    assert_eq!(faults(&store).await, [None, None, None], "two are enough");
    only_b_fails_until_it_is_forgotten(&urls, || damage(&nodes[1])).await;
}

#[test]
fn forget_deletes_a_job_that_nobody_lists_and_whose_lock_is_free() {
    let redis = RedisServer::start();
    let job = |name: &str| json!({ "name": name, "every": "1h", "command": "true" });
    let mut shared = job("shared");
    shared["lock"] = json!({ "name": "both" });
    let mut partner = job("partner");
    partner["lock"] = json!({ "name": "both" });
    let list = json!({ "store": redis.url(), "jobs": [job("a"), shared, partner] });
    let mut daemon = Daemon::on("one", list.to_string()).start();
    for name in ["a", "shared"] {
        daemon
            .ask(&["trigger", "--here", name, "--wait"])
            .expect_code(0);
    }
    let refused = daemon.ask(&["forget", "a"]).expect_code(75).stderr;
    assert!(refused.contains("host one reported "), "{refused}");
    assert!(
        refused.contains(" ago, and its list names job a"),
        "{refused}"
    );
    assert!(refused.contains("--force"), "{refused}");
    daemon.terminate();

    let key = "cronlatch:{a}:lock";
    redis.command(&["SET", key, "somebody", "PX", "60000"]);
    let refused = daemon.ask(&["forget", "a"]).expect_code(75).stderr;
    assert!(refused.contains("held by somebody"), "{refused}");
    assert_eq!(redis.number(&["EXISTS", "cronlatch:{a}:job:a"]), 1);
    daemon.ask(&["forget", "a", "--force"]).expect_code(0);
    assert_eq!(
        redis.text(&["GET", key]),
        "somebody",
        "the lock is not ours"
    );
    redis.command(&["DEL", key]);

    let done = daemon.ask(&["forget", "shared", "--json"]).expect_code(0);
    let expected = json!({ "job": "shared", "lock": "both", "entries": 3, "with_lock": false });
    assert_eq!(done.json_lines(), [expected]);
    assert_eq!(redis.number(&["EXISTS", "cronlatch:{both}:state"]), 1);
    let keys = [
        "cronlatch:{a}:job:a",
        "cronlatch:{a}:runs:a",
        "cronlatch:{a}:state",
    ];
    let left = keys
        .iter()
        .filter(|key| redis.number(&["EXISTS", key]) == 1);
    assert_eq!(left.count(), 0);
    daemon.ask(&["forget", "a"]).expect_code(0);
    let unknown = daemon.ask(&["forget", "sharde"]).expect_code(64).stderr;
    assert!(unknown.contains("did you mean shared"), "{unknown}");
}

#[test]
fn forget_compares_lists_without_the_secrets_of_the_daemon() {
    let redis = RedisServer::start();
    let list = |ping: &str| {
        json!({
            "store": redis.url(),
            "notify": { "ops": { "slack": "${SLACK_URL}" } },
            "jobs": [
                { "name": "a", "every": "1h", "command": "true", "notify": ["ops"], "ping": ping },
                { "name": "gone", "every": "1h", "command": "true", "enabled": false },
            ],
        })
        .to_string()
    };
    let daemon = |ping: &str| {
        Daemon::on("one", list(ping))
            .env("SLACK_URL", "https://hooks.example/secret")
            .env("PING", "https://ping.example/secret")
            .start()
    };
    let known = daemon("https://ping.example/${PING}");
    known.ask(&["forget", "gone"]).expect_code(0);
    let refused = known.ask(&["forget", "a"]).expect_code(75).stderr;
    assert!(refused.contains("its list names job a"), "{refused}");
    drop(known);
    // Which service that is, the variable alone tells.
    let unknown = daemon("${PING}");
    let refused = unknown.ask(&["forget", "gone"]).expect_code(75).stderr;
    assert!(
        refused.contains("cannot be compared") && refused.contains("are not set: PING, SLACK_URL"),
        "{refused}"
    );
}
