//! A majority of independent nodes under fire: nodes die, come back empty, answer late or not at
//! all, and hosts disagree about which of them is there.

mod acceptor;
mod clocks;
mod frozen;
mod lists;
mod memory;
mod repair;
mod rivals;
mod seen;
mod verdicts;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cronlatch::names::{HostName, JobName, LockName, RunId, Token};
use cronlatch::store::protocol::{FORGOTTEN_AHEAD, LEAD};
use cronlatch::store::{
    Claim, ClaimReply, ClaimTarget, Due, Fingerprint, Finish, FinishReply, Grant, Kind, Late, Lock,
    Outcome, Overlap, Record, RedlockSettings, Registration, RenewReply, RetryDelay, RunStatus,
    StartupQuorum, Store, StoreError, StoreSettings, check_url, open,
};
use cronlatch::time::{BootInstant, Timestamp};

use crate::contract::eventually;
use crate::support::claims::{job, record};
use crate::support::redis::documented_rights;
use crate::support::wait::{INTERVAL, LIMIT};
use crate::support::{Daemon, Mode, Proxy, RedisServer, RunLog, cronlatch, wait_until};

/// Long enough that no lease ends by itself while it is needed.
const LONG: Duration = Duration::from_secs(300);
/// How long before its instant a claim is sent ahead.
const NEAR: Duration = Duration::from_millis(900);
/// How long a node that lost its data does not count.
const TTL: Duration = Duration::from_millis(1500);

pub(crate) fn store_at(urls: &[String]) -> Arc<dyn Store> {
    let nodes = urls.iter().map(|url| {
        let StoreSettings::Redis(node) = check_url(url).unwrap() else {
            panic!("not a Redis URL: {url}");
        };
        node
    });
    let settings = RedlockSettings {
        nodes: nodes.collect(),
        tries: 3,
        retry_delay: RetryDelay {
            shortest: Duration::from_millis(10),
            longest: Duration::from_millis(50),
        },
        at_start: StartupQuorum::Wait,
    };
    open(&StoreSettings::Redlock(settings)).unwrap()
}

/// A proxy before each server, and the URLs of the servers through them.
pub(crate) fn proxied(servers: &[RedisServer]) -> (Vec<Proxy>, Vec<String>) {
    let proxies: Vec<Proxy> = servers.iter().map(|s| Proxy::to(s.port())).collect();
    let with_proxy = servers.iter().zip(&proxies);
    let urls = with_proxy.map(|(server, proxy)| server.url_via(proxy.port()));
    let urls = urls.collect();
    (proxies, urls)
}

/// A job on three nodes that were declared new.
struct Scene {
    servers: Vec<RedisServer>,
    store: Arc<dyn Store>,
    start: Timestamp,
    ttl: Duration,
}

fn lock() -> Lock {
    Lock::named(&LockName::parse("l").unwrap())
}

fn token(who: &str) -> Token {
    let random = who.bytes().fold(7_u128, |sum, b| sum * 256 + u128::from(b));
    Token::from_text(&format!("host-{who}:1:run-{who}:{random:032x}"))
}

impl Scene {
    async fn new(ttl: Duration) -> Self {
        let servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();
        let urls = urls(&servers);
        Self::by_way_of(servers, &urls, ttl).await
    }

    /// The same, with a store that reaches the servers under these URLs.
    async fn by_way_of(servers: Vec<RedisServer>, urls: &[String], ttl: Duration) -> Self {
        let store = store_at(urls);
        assert_eq!(store.init().await.unwrap(), None);
        let registration = Registration {
            job: job(),
            lock: lock(),
            fingerprint: Fingerprint("f".into()),
            ttl,
        };
        let registered = store.register(&[registration]).await.unwrap();
        Self {
            servers,
            store,
            start: registered[0].decided_until,
            ttl,
        }
    }

    fn another(&self) -> Arc<dyn Store> {
        store_at(&urls(&self.servers))
    }

    /// The claim of the occurrence so many milliseconds after the registration.
    fn claim(&self, who: &str, n: u64) -> Claim {
        Claim {
            lock: lock(),
            token: token(who),
            run_id: RunId::from_text(&format!("run-{who}")),
            ttl: self.ttl,
            what: ClaimTarget::Occurrence {
                job: job(),
                kind: Kind::Schedule,
                due: Due {
                    scheduled_at: self.start.plus(Duration::from_millis(n)),
                    not_before: Timestamp::EPOCH,
                    deadline: self.start.plus(Duration::from_secs(3600)),
                    prev: None,
                    fingerprint: Fingerprint("f".into()),
                    gap: None,
                    late: Late::Miss,
                    max_reruns: 0,
                    max_attempts: 0,
                    rerun_window: Duration::ZERO,
                    lead: Duration::ZERO,
                },
                overlap: Overlap::Wait,
                keep: cronlatch::store::Retention::of_records(100),
            },
        }
    }

    async fn granted(&self, who: &str, n: u64) -> u64 {
        let claim = self.claim(who, n);
        granted(&*self.store, &claim).await
    }

    async fn finish(&self, who: &str, n: u64) -> FinishReply {
        self.ends(who, n, Outcome::Succeeded).await
    }

    async fn ends(&self, who: &str, n: u64, outcome: Outcome) -> FinishReply {
        let at = self.start.plus(Duration::from_millis(n));
        let finish = Finish {
            lock: lock(),
            token: token(who),
            record: Some(Record {
                run_id: Some(RunId::from_text(&format!("run-{who}"))),
                started_at: Some(at),
                finished_at: Some(at),
                host: HostName::parse("h").ok(),
                exit_code: Some(0),
                attempts: 1,
                fence: Some(1),
                ..record(job(), Some(at), outcome)
            }),
            job: Some(job()),
            give_back: false,
            keep: cronlatch::store::Retention::of_records(100),
        };
        eventually("the run is finished", async || {
            self.store.finish(&finish).await.ok()
        })
        .await
    }

    async fn renew(&self, who: &str) -> Result<RenewReply, StoreError> {
        let renewal = Grant {
            lock: lock(),
            token: token(who),
            run_id: RunId::from_text(&format!("run-{who}")),
            fence: 0,
            ttl: self.ttl,
            sent: BootInstant::BOOT,
            starts_at: None,
        }
        .renewal();
        let replies = self.store.renew(&[renewal]).await;
        replies.map(|replies| replies[0])
    }

    /// What the nodes say of a renewal once enough of them answer: a busy machine may be late.
    async fn renewed(&self, who: &str) -> RenewReply {
        eventually("the renewal is answered", async || {
            let reply = self.renew(who).await.ok();
            reply.filter(|reply| *reply != RenewReply::Unanswered)
        })
        .await
    }

    /// Renews until each node that runs has the lock: one may have missed the grant.
    async fn renewed_everywhere(&self, who: &str) {
        let has = |server: &RedisServer| {
            server.text(&["GET", "cronlatch:{l}:lock"]) == token(who).as_str()
        };
        eventually("all nodes have the lock", async || {
            let renewed = self.renew(who).await.ok() == Some(RenewReply::Renewed);
            (renewed && self.servers.iter().all(has)).then_some(())
        })
        .await;
    }

    async fn outcomes(&self) -> Vec<(Option<Timestamp>, Outcome)> {
        let records = eventually("the history is read", async || {
            self.store.history(&job(), &lock(), 100).await.ok()
        })
        .await;
        records
            .records
            .iter()
            .map(|record| (record.scheduled_at, record.outcome))
            .collect()
    }
}

fn urls(servers: &[RedisServer]) -> Vec<String> {
    servers.iter().map(RedisServer::url).collect()
}

/// Claims until a lease is granted; a busy machine may not answer in time.
async fn granted(store: &dyn Store, claim: &Claim) -> u64 {
    eventually("the claim is granted", async || {
        match store.claim(claim).await {
            Ok(ClaimReply::Granted { fence, .. }) => Some(fence),
            Ok(ClaimReply::Waits { .. } | ClaimReply::Recovering { .. })
            | Err(StoreError::Unreachable(_)) => None,
            other => panic!("not granted: {other:?}"),
        }
    })
    .await
}

/// Claims until the nodes answer.
async fn answer(store: &dyn Store, claim: &Claim) -> ClaimReply {
    let began = std::time::Instant::now();
    loop {
        match store.claim(claim).await {
            Ok(reply) => return reply,
            Err(StoreError::Unreachable(_)) if began.elapsed() < LIMIT => {
                tokio::time::sleep(INTERVAL).await;
            }
            Err(other) => panic!("not answered: {other}"),
        }
    }
}

/// Claims until the nodes have recovered.
async fn settled(store: &dyn Store, claim: &Claim) -> ClaimReply {
    loop {
        match answer(store, claim).await {
            ClaimReply::Recovering { remaining } => tokio::time::sleep(remaining).await,
            reply => return reply,
        }
    }
}

fn is_decided(reply: &ClaimReply) -> bool {
    matches!(reply, ClaimReply::AlreadyClaimed(RunStatus::Decided))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_go_on_without_a_minority_stop_without_a_majority_and_resume() {
    let mut scene = Scene::new(LONG).await;
    let first = scene.granted("a", 1).await;
    scene.renewed_everywhere("a").await;
    scene.servers[0].stop();
    assert_eq!(scene.renewed("a").await, RenewReply::Renewed);
    assert_eq!(scene.finish("a", 1).await, FinishReply::Released);
    let second = scene.granted("b", 2).await;
    assert!(second > first);

    scene.servers[1].pause();
    let refused = scene.store.claim(&scene.claim("c", 3)).await;
    assert!(
        matches!(refused, Err(StoreError::Unreachable(_))),
        "{refused:?}"
    );
    let failed = scene.renew("b").await;
    assert!(
        matches!(
            failed,
            Err(StoreError::Unreachable(_)) | Ok(RenewReply::Unanswered)
        ),
        "a renewal that failed loses nothing: {failed:?}"
    );
    scene.servers[1].resume();
    assert_eq!(scene.renewed("b").await, RenewReply::Renewed);
    assert_eq!(scene.finish("b", 2).await, FinishReply::Released);
    assert!(scene.granted("c", 3).await > second);
    let outcomes = scene.outcomes().await;
    assert_eq!(outcomes.len(), 2, "each record once: {outcomes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_forgot_counts_only_after_a_lease_and_with_its_ledger_repaired() {
    let mut scene = Scene::new(TTL).await;
    scene.granted("a", 1).await;
    scene.finish("a", 1).await;
    scene.servers[0].restart();
    // With the second node silent, the third and one that knows nothing are left.
    scene.servers[1].pause();
    let early = answer(&*scene.another(), &scene.claim("b", 1)).await;
    assert!(matches!(early, ClaimReply::Recovering { .. }), "{early:?}");
    scene.servers[1].resume();
    let reply = answer(&*scene.store, &scene.claim("b", 1)).await;
    assert!(is_decided(&reply), "{reply:?}");
    // The next decision repairs the ledger of the node.
    scene.granted("c", 2).await;
    scene.finish("c", 2).await;
    let last = scene.start.plus(Duration::from_millis(2));
    let last = format!("\"last\":\"{last}\"");
    wait_until("the ledger is repaired", || {
        let ledger = scene.servers[0].text(&["HGET", "cronlatch:{l}:job:j", "ledger"]);
        ledger.contains(&last)
    });
    scene.servers[1].pause();
    let reply = settled(&*scene.another(), &scene.claim("d", 1)).await;
    assert!(is_decided(&reply), "{reply:?}");
    scene.servers[1].resume();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_majority_forgot_nothing_from_before_is_granted_as_new() {
    let mut scene = Scene::new(TTL).await;
    let fence = scene.granted("a", 1).await;
    scene.finish("a", 1).await;
    for server in &mut scene.servers {
        server.restart();
    }
    let early = answer(&*scene.store, &scene.claim("b", 2)).await;
    assert!(matches!(early, ClaimReply::Recovering { .. }), "{early:?}");
    for (who, n) in [("c", 1), ("d", 2)] {
        let reply = settled(&*scene.store, &scene.claim(who, n)).await;
        assert_eq!(reply, ClaimReply::Unknown);
    }
    let mut noticed = Vec::new();
    for server in &scene.servers {
        let noticing = async || {
            let at = server.text(&["HGET", "cronlatch:node", "lost_at"]);
            at.parse().ok().map(Timestamp::from_millis)
        };
        noticed.push(eventually("each node notices its loss", noticing).await);
    }
    // What comes due until then may have been granted ahead before the last of these losses. Nodes that
    // reply late seem to have clocks that differ, which counts up to the longest TTL.
    let horizon = noticed.into_iter().max().unwrap().plus(FORGOTTEN_AHEAD);
    let after = horizon.plus(TTL + Duration::from_millis(1));
    tokio::time::sleep(after.since(Timestamp::now())).await;
    let since = after.since(scene.start).as_millis();
    let later = scene.granted("e", u64::try_from(since).unwrap()).await;
    assert!(later > fence, "fences rise through the loss");
    let records = scene.store.history(&job(), &lock(), 100).await.unwrap();
    let unknown = records
        .records
        .iter()
        .filter(|record| record.outcome == Outcome::Unknown);
    let count: u64 = unknown.map(|record| record.count.unwrap_or(1)).sum();
    assert_eq!(count, 2, "{records:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_hosts_that_see_different_nodes_one_is_granted_each_occurrence() {
    let scene = Scene::new(LONG).await;
    let mut hosts = Vec::new();
    let mut proxies = Vec::new();
    for away in 0..3 {
        let proxy = Proxy::to(scene.servers[away].port());
        proxy.set(Mode::Refuse);
        let mut urls = urls(&scene.servers);
        urls[away] = scene.servers[away].url_via(proxy.port());
        hosts.push(store_at(&urls));
        proxies.push(proxy);
    }
    for n in 1..=6 {
        let mut claims = Vec::new();
        for (at, host) in hosts.iter().enumerate() {
            let host = Arc::clone(host);
            let claim = scene.claim(&format!("{n}-{at}"), n);
            claims.push(tokio::spawn(async move { answer(&*host, &claim).await }));
        }
        let mut winners = Vec::new();
        for (at, claim) in claims.into_iter().enumerate() {
            if matches!(claim.await.unwrap(), ClaimReply::Granted { .. }) {
                winners.push(at);
            }
        }
        assert_eq!(winners.len(), 1, "occurrence {n} is granted to {winners:?}");
        scene.finish(&format!("{n}-{}", winners[0]), n).await;
    }
}

/// As if the host had died after the first node took its proposal, under a token of its own.
async fn granted_by_the_first_node_alone(scene: &Scene) {
    let keys = ["cronlatch:{l}:state", "cronlatch:{l}:job:j"];
    let saved: Vec<Vec<redis::Value>> = scene.servers[1..]
        .iter()
        .map(|server| {
            keys.iter()
                .map(|key| server.command(&["DUMP", key]))
                .collect()
        })
        .collect();
    scene.granted("a", 1).await;
    for (server, saved) in scene.servers[1..].iter().zip(saved) {
        server.command(&["DEL", "cronlatch:{l}:lock"]);
        for (key, value) in keys.iter().zip(saved) {
            server.restore(key, value);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_only_a_minority_took_never_was_one_and_the_occurrence_is_granted() {
    let scene = Scene::new(TTL).await;
    granted_by_the_first_node_alone(&scene).await;
    scene.granted("b", 1).await;
    scene.finish("b", 1).await;
    let at = Some(scene.start.plus(Duration::from_millis(1)));
    assert_eq!(scene.outcomes().await, [(at, Outcome::Succeeded)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_only_a_minority_knows_of_is_unknown_while_the_others_cannot_all_be_asked() {
    let mut scene = Scene::new(TTL).await;
    granted_by_the_first_node_alone(&scene).await;
    scene.servers[2].stop();
    scene.granted("b", 2).await;
    scene.finish("b", 2).await;
    let at = |n| Some(scene.start.plus(Duration::from_millis(n)));
    assert_eq!(
        scene.outcomes().await,
        [(at(2), Outcome::Succeeded), (at(1), Outcome::Unknown)]
    );
}

/// A claim that only one node took is asked again after another host ran the occurrence, and a
/// third node cannot be asked: the lock that it left behind on the one is nobody's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_claim_left_on_one_node_does_not_let_it_run_what_another_has_run() {
    let mut scene = Scene::new(LONG).await;
    scene.granted("b", 1).await;
    scene.finish("b", 1).await;
    let left_over = token("a");
    let set = ["SET", "cronlatch:{l}:lock", left_over.as_str()];
    scene.servers[0].command(&[&set[..], &["PX", "300000"]].concat());
    scene.servers[2].stop();
    let reply = scene.store.claim(&scene.claim("a", 1)).await.unwrap();
    let decided = ClaimReply::AlreadyClaimed(RunStatus::Decided);
    assert_eq!(reply, decided);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_lost_on_the_way_leave_nothing_behind_that_blocks_others() {
    let scene = Scene::new(LONG).await;
    let (proxies, by_proxy) = proxied(&scene.servers);
    let unlucky = store_at(&by_proxy);
    // One node is slow: the other two are enough.
    proxies[2].set(Mode::Delay(Duration::from_millis(400)));
    granted(&*unlucky, &scene.claim("a", 1)).await;
    scene.finish("a", 1).await;
    proxies[2].set(Mode::Pass);
    // All but one take what is sent, and their answers are lost.
    for proxy in &proxies[1..] {
        proxy.set(Mode::DropReplies);
    }
    let lost = unlucky.claim(&scene.claim("b", 2)).await;
    assert!(matches!(lost, Err(StoreError::Unreachable(_))), "{lost:?}");
    granted(&*scene.store, &scene.claim("c", 3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_took_longer_than_its_lease_is_none() {
    let scene = Scene::new(LONG).await;
    let (proxies, by_proxy) = proxied(&scene.servers);
    let far_away = store_at(&by_proxy);
    let claim = |who: &str, ttl: Duration| Claim {
        ttl,
        what: ClaimTarget::Lock,
        ..scene.claim(who, 1)
    };
    granted(&*far_away, &claim("a", LONG)).await;
    for server in &scene.servers {
        server.command(&["DEL", "cronlatch:{l}:lock", "cronlatch:{l}:state"]);
    }
    // Three times there and back take 120 ms, and each is in time.
    for proxy in &proxies {
        proxy.set(Mode::Delay(Duration::from_millis(20)));
    }
    let late = far_away
        .claim(&claim("b", Duration::from_millis(100)))
        .await;
    assert!(matches!(late, Err(StoreError::Unreachable(_))), "{late:?}");
}

/// A claim ahead of its instant waits for the instant while the nodes accept it, not afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_in_which_the_nodes_accept_a_claim_counts_towards_its_instant() {
    let scene = Scene::new(LONG).await;
    let (proxies, by_proxy) = proxied(&scene.servers);
    let store = store_at(&by_proxy);
    let mut claim = scene.claim("a", 1);
    let near = store.now().await.unwrap().plus(NEAR);
    let ClaimTarget::Occurrence { due, .. } = &mut claim.what else {
        panic!("not for an occurrence: {claim:?}");
    };
    *due = Due {
        scheduled_at: near,
        not_before: near,
        prev: Some(scene.start),
        lead: LEAD,
        ..due.clone()
    };
    let way = Duration::from_millis(50);
    for proxy in &proxies {
        proxy.set(Mode::Delay(way));
    }
    let reply = store.claim(&claim).await.unwrap();
    let ClaimReply::Granted { at, starts_in, .. } = reply else {
        panic!("not granted: {reply:?}");
    };
    // The nodes had replied before the proposal went to them and back.
    let left = near.since(at).saturating_sub(way * 2);
    assert!(starts_in <= left, "{reply:?}, for {near}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_released_right_after_its_grant_though_one_node_has_not_taken_it_yet() {
    let scene = Scene::new(LONG).await;
    let (proxies, by_proxy) = proxied(&scene.servers);
    let store = store_at(&by_proxy);
    for behind in 0..3 {
        let who = format!("a{behind}");
        let claim = Claim {
            ttl: LONG,
            what: ClaimTarget::Lock,
            ..scene.claim(&who, 1)
        };
        granted(&*store, &claim).await;
        scene.renewed_everywhere(&who).await;
        // As if the grant were still on its way to this node, while another answers late.
        scene.servers[behind].command(&["DEL", "cronlatch:{l}:lock", "cronlatch:{l}:state"]);
        proxies[(behind + 1) % 3].set(Mode::Delay(Duration::from_millis(50)));
        let ending = Finish {
            lock: lock(),
            token: token(&who),
            record: None,
            job: None,
            give_back: false,
            keep: cronlatch::store::Retention::of_records(100),
        };
        assert_eq!(store.finish(&ending).await.unwrap(), FinishReply::Released);
        proxies[(behind + 1) % 3].set(Mode::Pass);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_only_a_minority_took_is_given_back_long_before_it_ends() {
    // Two of the nodes promise, and then may not take what is proposed.
    let rights = documented_rights().replace(" +set ", " ");
    let refuses = || RedisServer::builder().user("cronlatch", &rights).start();
    let servers = [RedisServer::start(), refuses(), refuses()];
    let store = store_at(&urls(&servers));
    assert_eq!(store.init().await.unwrap(), None);
    let claim = Claim {
        lock: lock(),
        token: token("a"),
        run_id: RunId::from_text("run-a"),
        ttl: LONG,
        what: ClaimTarget::Lock,
    };
    eventually("the first node takes it", async || {
        let reply = store.claim(&claim).await;
        assert!(reply.is_err(), "{reply:?}");
        let taken = servers[0].text(&["HGET", "cronlatch:{l}:state", "token"]);
        (taken == token("a").as_str()).then_some(())
    })
    .await;
    wait_until("the lock is free again", || {
        servers[0].number(&["EXISTS", "cronlatch:{l}:lock"]) == 0
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_set_again_where_it_was_lost_and_taken_only_by_a_majority() {
    let mut scene = Scene::new(LONG).await;
    scene.granted("a", 1).await;
    scene.renewed_everywhere("a").await;
    let key = "cronlatch:{l}:lock";
    scene.servers[0].restart();
    let renewed = eventually("the holder renews on the node that forgot", async || {
        let reply = scene.renew("a").await;
        (scene.servers[0].text(&["GET", key]) == token("a").as_str()).then_some(reply)
    })
    .await;
    assert_eq!(renewed.unwrap(), RenewReply::Renewed);
    scene.servers[1].command(&["SET", key, "thief"]);
    assert_eq!(scene.renewed("a").await, RenewReply::Renewed);
    scene.servers[2].command(&["SET", key, "thief"]);
    assert_eq!(scene.renewed("a").await, RenewReply::Taken);
    // Nothing of it is anybody's but the thief's.
    scene.finish("a", 1).await;
    assert_eq!(scene.servers[1].text(&["GET", key]), "thief");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_away_when_the_lock_was_taken_gets_it_with_a_renewal() {
    let servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();
    let proxy = Proxy::to(servers[2].port());
    let mut urls = urls(&servers);
    urls[2] = servers[2].url_via(proxy.port());
    let scene = Scene::by_way_of(servers, &urls, LONG).await;
    proxy.set(Mode::Refuse);
    scene.granted("a", 1).await;
    let key = "cronlatch:{l}:lock";
    assert_eq!(scene.servers[2].number(&["EXISTS", key]), 0);
    proxy.set(Mode::Pass);
    eventually("it has the lock too", async || {
        let reply = scene.renew("a").await;
        assert_eq!(reply.unwrap(), RenewReply::Renewed);
        (scene.servers[2].text(&["GET", key]) == token("a").as_str()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_the_vote_and_nothing_to_propose_gives_it_back() {
    let scene = Scene::new(LONG).await;
    scene.granted("a", 1).await;
    let waits = scene.store.claim(&scene.claim("b", 2)).await.unwrap();
    assert!(matches!(waits, ClaimReply::Waits { .. }), "{waits:?}");
    let again = scene.store.claim(&scene.claim("b", 2)).await.unwrap();
    assert!(matches!(again, ClaimReply::Waits { .. }), "{again:?}");
    wait_until("nobody has a vote", || {
        scene.servers.iter().all(|server| {
            let state = "cronlatch:{l}:state";
            server.number(&["EXISTS", state]) == 1
                && server.number(&["HEXISTS", state, "vote"]) == 0
        })
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_that_came_too_late_does_not_count_against_a_retry_of_its_own_process() {
    let servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();
    let (proxies, by_proxy) = proxied(&servers);
    let store = store_at(&by_proxy);
    assert_eq!(store.init().await.unwrap(), None);
    let claim = Claim {
        lock: lock(),
        token: token("a"),
        run_id: RunId::from_text("r"),
        ttl: TTL,
        what: ClaimTarget::Lock,
    };
    // All connections stand, and all nodes know the scripts.
    let other = Claim {
        lock: Lock::named(&LockName::parse("other").unwrap()),
        token: token("b"),
        ..claim.clone()
    };
    granted(&*store, &other).await;
    for proxy in &proxies {
        proxy.set(Mode::DropReplies);
    }
    let unanswered = store.claim(&claim).await;
    assert!(unanswered.is_err(), "{unanswered:?}");
    let state = "cronlatch:{l}:state";
    let votes = servers.iter().map(|s| s.text(&["HGET", state, "vote"]));
    let vote = votes.max().unwrap_or_default();
    assert_ne!(vote, "", "it was given, and its answer was lost");
    // As if its votes reached each node this very moment, and lasted.
    for server in &servers {
        let until = "9999999999999";
        server.command(&["HSET", state, "vote", &vote, "vote_until", until]);
    }
    for proxy in &proxies {
        proxy.set(Mode::Pass);
    }
    granted(&*store, &claim).await;
}

#[tokio::test]
async fn nodes_that_are_not_independent_are_refused() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let twice = store_at(&[
        one.url(),
        two.url(),
        one.url().replace("127.0.0.1", "localhost"),
    ]);
    let claim = |who: &str| Claim {
        lock: lock(),
        token: token(who),
        run_id: RunId::from_text("r"),
        ttl: LONG,
        what: ClaimTarget::Lock,
    };
    let refused = twice.claim(&claim("a")).await;
    assert!(
        matches!(&refused, Err(StoreError::WrongList(said)) if said.contains("same server")),
        "{refused:?}"
    );
    let replica = RedisServer::builder()
        .unmarked()
        .arg("--replicaof")
        .arg(&format!("127.0.0.1 {}", one.port()))
        .start();
    let store = store_at(&[one.url(), two.url(), replica.url()]);
    let refused = store.claim(&claim("b")).await;
    assert!(
        matches!(&refused, Err(StoreError::WrongList(said)) if said.contains("replica")),
        "{refused:?}"
    );
}

#[test]
fn three_daemons_run_each_occurrence_once_while_nodes_die_and_come_back() {
    let mut servers = [
        RedisServer::start(),
        RedisServer::start(),
        RedisServer::start(),
    ];
    let runs = RunLog::new();
    let jobs = format!(
        "jobs:\n  - {{ name: tick, every: 1s, lock: {{ ttl: 3s }}, kill_grace: 200ms, \
         on_overlap: queue, catch_up: all, command: '{}' }}\n",
        runs.job("0.05")
    );
    let store = urls(&servers).join(",");
    cronlatch(&["init", "--store", &store]).expect_code(0);
    let mut hosts: Vec<Daemon> = ["one", "two", "three"]
        .map(|host| Daemon::on(host, jobs.as_str()).store(&store).start())
        .into();
    let more = |hosts: &mut [Daemon], what: &str| {
        let before = runs.entries().len();
        hosts[0].wait_until(what, |_| runs.entries().len() >= before + 2);
    };
    more(&mut hosts, "they run");
    servers[0].stop();
    more(&mut hosts, "they run without the first node");
    servers[0].restart();
    more(&mut hosts, "they run with the first node empty");
    servers[1].pause();
    more(&mut hosts, "they run while the second node is silent");
    servers[1].resume();
    more(&mut hosts, "they run after the second node was silent");
    servers[2].stop();
    more(&mut hosts, "they run without the third node");
    for host in &mut hosts {
        assert!(host.terminate().success());
    }
    runs.assert_each_once();
    runs.assert_none_early();
    runs.assert_no_overlap();
    runs.assert_fences_rise();
    let records = hosts[0]
        .ask(&[
            "history", "tick", "--json", "--limit", "1000", "--store", &store,
        ])
        .expect_code(0)
        .json_lines();
    let ran: BTreeSet<String> = records
        .iter()
        .filter(|record| record["outcome"] == "succeeded")
        .map(|record| record["run_id"].to_string())
        .collect();
    assert_eq!(ran.len(), runs.entries().len(), "{records:#?}");
}
