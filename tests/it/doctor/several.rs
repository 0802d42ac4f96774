//! `doctor` where several servers are the store: a Cluster, and a master with its Sentinels.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use super::{Place, list, of};
use crate::support::cluster::Replicas;
use crate::support::redis::{PASSWORD, documented_cluster_rights};
use crate::support::sentinel::{Door, Sentinel, Watched, replica_of};
use crate::support::wait::wait_for;
use crate::support::{Cluster, RedisServer};

/// The severities of all findings of a kind, and all that they say.
fn all(findings: &[Value], id: &str) -> (Vec<String>, String) {
    let found = findings.iter().filter(|finding| finding["id"] == id);
    let severities = found
        .clone()
        .map(|f| f["severity"].as_str().unwrap().to_owned());
    let texts: Vec<_> = found.clone().map(|f| f["text"].as_str().unwrap()).collect();
    (severities.collect(), texts.join("\n"))
}

/// What `doctor` finds when it has reached so many servers: a busy machine may miss one.
fn of_all(place: &Place, servers: usize) -> (Vec<Value>, i32) {
    wait_for("doctor reaches all servers", || {
        let (found, code) = place.findings();
        (all(&found, "store.version").0.len() == servers).then_some((found, code))
    })
}

#[test]
fn a_cluster_is_judged_as_a_whole_and_by_every_primary() {
    let mut cluster = Cluster::start(Replicas::None, &documented_cluster_rights());
    // As one who may ask for settings.
    let store = format!("redis://127.0.0.1:{}", cluster.servers[0].port());
    let place = Place::with(&list("", &json!({ "store": { "cluster": [store] } })));
    let (found, code) = of_all(&place, 3);
    assert_eq!(code, 0, "{found:#?}");
    let (severity, text) = of(&found, "store.slots");
    assert_eq!(severity, "ok");
    assert!(text.contains("3 primaries"), "{text}");
    assert_eq!(all(&found, "store.coverage").0, ["ok"; 3]);
    assert_eq!(all(&found, "store.failover").0, ["ok"; 3]);
    let (severities, text) = all(&found, "store.replicas");
    assert_eq!(severities, ["warning"; 3]);
    assert!(text.contains("no replica"), "{text}");

    cluster.servers[1].config("cluster-require-full-coverage", "yes");
    cluster.servers[1].config("cluster-node-timeout", "60000");
    let store = json!({ "cluster": [store], "wait_replicas": 2 });
    let place = Place::with(&list("", &json!({ "store": store })));
    let (found, code) = of_all(&place, 3);
    assert_eq!(code, 1, "{found:#?}");
    assert_eq!(all(&found, "store.coverage").0, ["warning", "ok", "ok"]);
    let (severities, text) = all(&found, "store.failover");
    assert_eq!(severities, ["warning", "ok", "ok"]);
    assert!(text.contains("cluster-node-timeout is 1m"), "{text}");
    assert_eq!(all(&found, "store.migration").0, ["warning"; 3]);
    let (severities, text) = all(&found, "store.replicas");
    assert_eq!(severities, ["danger"; 3]);
    assert!(text.contains("wait_replicas is 2"), "{text}");

    cluster.servers[2].stop();
    let (found, _) = of_all(&place, 2);
    assert_eq!(of(&found, "store.reachable").0, "warning");

    let lonely = RedisServer::builder().cluster().unmarked().start();
    let store = format!("redis+cluster://127.0.0.1:{}", lonely.port());
    let (found, _) = of_all(&Place::with(&list(&store, &json!({}))), 1);
    let (severity, text) = of(&found, "store.slots");
    assert_eq!(severity, "danger");
    assert!(text.contains("16384 of the 16384 slots"), "{text}");
}

#[test]
fn sentinels_are_asked_one_by_one_and_their_own_password_file_is_looked_at() {
    let master = RedisServer::builder()
        .arg("--repl-diskless-sync-delay")
        .arg("0")
        .start();
    let _replica = replica_of(&master, master.port(), RedisServer::builder());
    let door = Door {
        user: Some(("watcher".to_owned(), "~* &* +@all".to_owned())),
        ..Door::default()
    };
    let mut sentinels = Sentinel::start(3, &Watched::only(&master), &door);
    let nodes: Vec<String> = sentinels
        .iter()
        .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
        .collect();
    let place = Place::with("");
    let path = place.0.path().join("watcher");
    fs::write(&path, PASSWORD).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let name = |nodes: &[String]| {
        let sentinel = json!({
            "master": "mymaster", "nodes": nodes,
            "sentinel_user": "watcher", "sentinel_password_file": path,
        });
        let list = list("", &json!({ "store": { "sentinel": sentinel } }));
        fs::write(place.0.path().join("jobs.yaml"), list).unwrap();
    };
    // A busy machine may miss one of them, or the master.
    let until = |severities: [&str; 3]| {
        wait_for(&format!("the Sentinels are {severities:?}"), || {
            let (found, _) = of_all(&place, 1);
            (all(&found, "store.sentinels").0 == severities).then_some(found)
        })
    };
    name(&nodes);
    let found = until(["ok"; 3]);
    let (_, text) = all(&found, "store.sentinels");
    assert!(
        text.contains(&format!("names 127.0.0.1:{}", master.port())),
        "{text}"
    );
    assert_eq!(of(&found, "store.failover").0, "ok");
    assert_eq!(of(&found, "store.replicas").0, "warning");
    let secret = found
        .iter()
        .find(|f| f["subject"] == path.display().to_string());
    assert_eq!(secret.expect("it is looked at")["severity"], "warning");

    sentinels[2].stop();
    until(["warning", "ok", "ok"]);
    name(&nodes[..2]);
    let found = until(["warning"; 3]);
    let (_, text) = all(&found, "store.sentinels");
    assert!(
        text.contains("knows 3 Sentinels, and the list names 2"),
        "{text}"
    );
}
