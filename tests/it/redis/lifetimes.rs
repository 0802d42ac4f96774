//! How long what the store keeps stays there, and how much of it there is.

use std::sync::Arc;
use std::time::Duration;

use cronlatch::names::{HostName, JobName, LockName, RunId, Token};
use cronlatch::store::{
    Claim, ClaimReply, ClaimTarget, CountsFrom, Entry, IfPaused, Keeping, Lock, LockId, RenewReply,
    Standing, Store,
};
use cronlatch::time::Timestamp;

use super::{finish, grant, renew, store};
use crate::contract::eventually;
use crate::contract::reads::host;
use crate::redlock::store_at;
use crate::support::{Daemon, RedisServer};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
const TTL: Duration = Duration::from_secs(30);

/// A key: its name, how long it lasts yet in ms (-1: for ever), and its size in bytes.
type Kept = (String, i64, i64);

/// All keys of cronlatch but its markers.
fn keys_of(server: &RedisServer) -> Vec<Kept> {
    const LIST: &str = "local all = {} \
        for _, key in ipairs(redis.call('KEYS', 'cronlatch:*')) do \
          if key ~= 'cronlatch:store' and key ~= 'cronlatch:node' then \
            all[#all + 1] = { key, redis.call('PTTL', key), redis.call('MEMORY', 'USAGE', key) } \
          end \
        end return all";
    redis::from_redis_value(server.command(&["EVAL", LIST, "0"])).expect("keys")
}

fn bare(name: &str, ttl: Duration) -> Claim {
    let run_id = RunId::new();
    Claim {
        lock: Lock::named(&LockName::parse(name).unwrap()),
        token: Token::new(&HostName::parse("h1").unwrap(), &run_id),
        run_id,
        ttl,
        what: ClaimTarget::Lock,
    }
}

/// Takes and releases so many locks without a job, each once; the claims.
async fn take_locks(store: &Arc<dyn Store>, count: usize) -> Vec<Claim> {
    let mut claims = Vec::new();
    for n in 0..count {
        let claim = bare(&format!("order-{n:06}"), TTL);
        grant(store, &claim).await;
        // On several nodes the answer may be that it was lost, if one has not heard of the grant yet.
        store.finish(&finish(&claim)).await.unwrap();
        claims.push(claim);
    }
    claims
}

#[track_caller]
fn assert_small_and_short(kept: &[Kept], count: usize, bytes: i64) {
    assert_eq!(kept.len(), count, "{kept:?}");
    for (key, left, _) in kept {
        assert!(
            *left > 0 && *left <= HOUR_MS + 30_000,
            "{key} stays for {left} ms"
        );
    }
    let sum: i64 = kept.iter().map(|(_, _, size)| size).sum();
    let each = sum / i64::try_from(count).expect("few");
    assert!(each <= bytes, "{each} bytes for each lock");
}

#[tokio::test]
async fn of_a_thousand_locks_without_a_job_little_is_left_and_for_an_hour() {
    let server = RedisServer::start();
    let store = store(&server.url());
    let claims = take_locks(&store, 1000).await;
    assert_small_and_short(&keys_of(&server), 1000, 200);
    // Meanwhile a late copy of a claim is refused.
    for claim in claims.iter().step_by(100) {
        assert_eq!(store.claim(claim).await.unwrap(), ClaimReply::Finished);
    }
    // Once it is forgotten, fences rise all the same.
    let next = bare("order-000000", TTL);
    let before = grant(&store, &next).await;
    store.finish(&finish(&next)).await.unwrap();
    server.command(&["DEL", "cronlatch:{order-000000}:state"]);
    assert!(grant(&store, &bare("order-000000", TTL)).await > before);
}

#[tokio::test]
async fn on_several_nodes_too_a_lock_without_a_job_is_forgotten_after_an_hour() {
    let servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();
    let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
    let store = store_at(&urls);
    assert_eq!(store.init().await.unwrap(), None);
    take_locks(&store, 10).await;
    for server in &servers {
        let kept = keys_of(server);
        assert_small_and_short(&kept, kept.len(), 1200);
    }
}

#[tokio::test]
async fn the_state_of_a_held_lock_outlasts_its_lease() {
    let server = RedisServer::start();
    let store = store(&server.url());
    let held = bare("long", Duration::from_secs(24 * 3600));
    let state = "cronlatch:{long}:state";
    grant(&store, &held).await;
    assert!(server.number(&["PTTL", state]) > DAY_MS);
    server.command(&["PEXPIRE", state, "60000"]);
    assert_eq!(renew(&store, &held).await, RenewReply::Renewed);
    assert!(server.number(&["PTTL", state]) > DAY_MS);
}

/// The days that a key stays yet, rounded; -1 for ever.
fn days(left: i64) -> i64 {
    if left < 0 {
        -1
    } else {
        (left + DAY_MS / 2) / DAY_MS
    }
}

#[test]
fn all_that_a_daemon_leaves_expires_and_what_is_one_hosts_own_after_a_week() {
    let server = RedisServer::start();
    let list = format!(
        "store: {}
jobs:
  - {{ name: shared, every: 1s, command: 'true' }}
  - {{ name: raw, every: 1s, command: 'true', lock: {{ key: 'app:lock' }} }}
  - {{ name: own, every: 1s, command: 'true', lock: {{ scope: host }} }}
  - {{ name: far, every: 1s, command: 'true', catch_up_window: 20d, lock: {{ scope: host }} }}
  - {{ name: each, every: 1s, command: 'true', lock: {{ scope: none }} }}
",
        server.url()
    );
    let mut daemon = Daemon::on("one", list.as_str()).start();
    let histories = [
        "{shared}:runs:shared",
        "{app:lock}:runs:raw",
        "{own@one}:runs:own",
        "{far@one}:runs:far",
        "{each@one}:runs:each",
    ];
    daemon.wait_until("all jobs have run", |_| {
        let ran = |key: &&str| server.number(&["EXISTS", &format!("cronlatch:{key}")]) == 1;
        histories.iter().all(ran)
    });
    daemon.terminate();
    for (key, left, _) in keys_of(&server) {
        let expected = match key.as_str() {
            // What is kept once for the fleet, and what hosts say of themselves.
            "cronlatch:hosts" => 1,
            key if key.starts_with("cronlatch:list:") => 1,
            key if key.contains("{far@one}:job") => 20,
            // Made after the daemon had said how long its jobs are to be kept.
            key if key.contains("{far@one}") => continue,
            key if key.contains("@one}") => 7,
            _ => 30,
        };
        assert_eq!(days(left), expected, "{key} stays for {left} ms");
    }
}

#[tokio::test]
async fn a_listing_host_keeps_its_jobs_every_day_and_silent_hosts_leave_the_registry() {
    let server = RedisServer::start();
    let store = store(&server.url());
    let (one, two) = (
        HostName::parse("one").unwrap(),
        HostName::parse("two").unwrap(),
    );
    let job = JobName::parse("j").unwrap();
    let shared = LockId::Fleet("l".into());
    let own = LockId::Host("l".into());
    let manual = |lock: Lock| Claim {
        what: ClaimTarget::Manual {
            job: job.clone(),
            if_paused: IfPaused::Refuse,
        },
        lock,
        ..bare("l", TTL)
    };
    for lock in [shared.on(&one), own.on(&one)] {
        grant(&store, &manual(lock)).await;
    }
    let ledgers = ["cronlatch:{l}:job:j", "cronlatch:{l@one}:job:j"];
    let stay = || ledgers.map(|key| days(server.number(&["PTTL", key])));
    assert_eq!(stay(), [30, 7]);
    for key in ledgers {
        server.command(&["PEXPIRE", key, "60000"]);
    }
    let window = Duration::from_secs(60 * 24 * 3600);
    let keep = |id: &LockId, window| Keeping::of(job.clone(), id, &one, window);
    let kept = [keep(&shared, window), keep(&own, window)];
    store.keep(&kept).await.unwrap();
    assert_eq!(stay(), [30, 60]);
    store.keep(&[keep(&own, Duration::ZERO)]).await.unwrap();
    assert_eq!(stay(), [30, 7]);

    let now = store.now().await.unwrap();
    let entry = |at: Timestamp| {
        let counts = CountsFrom { at, again: true };
        Entry {
            standing: Standing::Uses,
            lock: LockId::Raw("a key with spaces".into()),
            earlier: Vec::new(),
            fleet: counts,
            own: counts,
            at,
        }
    };
    let old = now.minus(Duration::from_secs(31 * 24 * 3600));
    store
        .enlist(&two, &[(job.clone(), entry(old))])
        .await
        .unwrap();
    store
        .enlist(&one, &[(job.clone(), entry(now))])
        .await
        .unwrap();
    let listing = store.listings(std::slice::from_ref(&job)).await.unwrap();
    let hosts: Vec<_> = listing[0].entries.keys().collect();
    assert_eq!(hosts, [&one], "host two has been silent for a month");
}

/// A host that died under a clock far ahead does not count as up until that time comes.
#[tokio::test]
async fn what_a_host_said_under_a_clock_far_ahead_is_forgotten_once_the_clock_is_right() {
    let mut server = RedisServer::builder()
        .clock_shifted_by(400 * DAY_MS)
        .start();
    let store = store(&server.url());
    let short = Duration::from_secs(1);
    store.announce(&host("gone", 1), short).await.unwrap();
    server.set_clock(0);
    eventually("it is forgotten", async || {
        store.announce(&host("here", 1), TTL).await.ok()?;
        let hosts = store.hosts().await.ok()?;
        (hosts.len() == 1).then_some(())
    })
    .await;
}
