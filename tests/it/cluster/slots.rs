//! Slots whose keys lie in two places, and slots that nobody asks about.

use std::sync::Arc;
use std::time::Duration;

use cronlatch::names::JobName;
use cronlatch::store::{Fingerprint, Lock, Registration, RenewReply, StoreError};

use super::{answer, claim, declare_new, grant, renew, renewal, send_keys, store};
use crate::support::cluster::Replicas;
use crate::support::redis::documented_cluster_rights;
use crate::support::wait::wait_until;
use crate::support::{Cluster, RedisServer};

/// How often a server said that some of the keys are here and some are there.
fn try_agains(server: &RedisServer) -> u64 {
    let info = server.text(&["INFO", "errorstats"]);
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("errorstat_TRYAGAIN:count="));
    line.and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

/// The markers of slots on a server.
fn markers(server: &RedisServer) -> Vec<String> {
    let keys = server.command(&["KEYS", "cronlatch:{*}:store"]);
    redis::from_redis_value(keys).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_in_two_places_are_waited_for_and_a_loss_that_no_claim_meets_is_noticed() {
    let mut cluster = Cluster::start(Replicas::None, &documented_cluster_rights());
    let store = store(&cluster.url_of(&[1]));
    declare_new(&cluster, &store).await;
    let name = cluster.name_on(0, "lock");
    let held = claim(&name);
    grant(&store, &held).await;

    let slot = cluster.slot(&name).to_string();
    let [source, target] = [0, 1].map(|at| &cluster.servers[at]);
    let [from, to] = [source, target].map(|server| server.text(&["CLUSTER", "MYID"]));
    target.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from]);
    source.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to]);
    let lock = format!("cronlatch:{{{name}}}:lock");
    let port = target.port().to_string();
    source.command(&["MIGRATE", "127.0.0.1", &port, &lock, "0", "5000"]);
    let asked = tokio::spawn({
        let (store, renewal) = (Arc::clone(&store), renewal(&held));
        async move { store.renew(&[renewal]).await }
    });
    // One operation asks again by itself.
    wait_until("it was asked twice", || try_agains(source) >= 2);
    send_keys(&cluster, &slot, source.port(), target.port());
    match asked.await.unwrap() {
        Ok(replies) => assert_eq!(replies, [RenewReply::Renewed]),
        // A busy machine may take longer than a renewal is given.
        Err(StoreError::Unreachable(_) | StoreError::PartUnreachable(_)) => {}
        Err(other) => panic!("{other}"),
    }
    assert_eq!(renew(&store, &held).await, RenewReply::Renewed);
    for server in [target, source] {
        server.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &to]);
    }

    // A job of the night: nobody asks about it when its server loses all it had.
    let nightly = cluster.name_on(2, "nightly");
    let registration = Registration {
        job: JobName::parse(&nightly).unwrap(),
        lock: Lock::named(&cronlatch::names::LockName::parse(&nightly).unwrap()),
        fingerprint: Fingerprint("f".into()),
        ttl: Duration::from_secs(60),
    };
    answer(async || store.register(std::slice::from_ref(&registration)).await).await;
    cluster.servers[2].crash_and_restart();
    cluster.wait_in_order();
    let server = &cluster.servers[2];
    assert_eq!(markers(server), Vec::<String>::new());
    wait_until("it is noticed", || !markers(server).is_empty());
    let marker = markers(server).remove(0);
    assert_ne!(server.text(&["HGET", &marker, "lost_at"]), "");
}
