//! What a claim costs on each kind of store of several servers, and a renewal that waits for a
//! replica, each beside a floor that is measured in turn with it.
//!
//! `cargo bench --bench kinds` runs all, `cargo bench --bench kinds -- redlock` some.

#[path = "figures/requests.rs"]
mod requests;
#[expect(
    dead_code,
    unused_imports,
    reason = "shared with the tests, which use more of it"
)]
#[path = "../tests/it/support/mod.rs"]
mod support;

use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::redis::aio::MultiplexedConnection;
use cronlatch::store::{self, ClaimReply, RenewReply, Renewal, Store, StoreSettings};
use tokio::task::JoinSet;

use requests::{lease, occurrence};
use support::cluster::Replicas;
use support::sentinel::{self, Door, Sentinel, Watched};
use support::{Cluster, Mode, Proxy, RedisServer};

/// What a figure takes to be measured.
type Measure = fn() -> Result<(), String>;

const KINDS: [(&str, Measure); 4] = [
    ("redlock", redlock),
    ("sentinel", sentinel),
    ("cluster", cluster),
    ("replicas", replicas),
];

const DELAY: Duration = Duration::from_millis(1);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if !args.iter().any(|arg| arg == "--bench") {
        say("run me with `cargo bench`");
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let mut failed = false;
    for (name, measure) in KINDS {
        if !wanted.is_empty() && wanted.iter().all(|wanted| *wanted != name) {
            continue;
        }
        if let Err(error) = measure() {
            say(&format!("{name}: {error}"));
            failed = true;
        }
    }
    ExitCode::from(u8::from(failed))
}

/// Redlock on three and on five nodes, on loopback and where round trips are what takes time.
fn redlock() -> Result<(), String> {
    for nodes in [3, 5] {
        let servers: Vec<RedisServer> = (0..nodes).map(|_| RedisServer::start()).collect();
        let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
        compare(&format!("redlock, {nodes} nodes"), &urls, 1..2_401)?;
        let proxies: Vec<Proxy> = servers.iter().map(|s| Proxy::to(s.port())).collect();
        for proxy in &proxies {
            proxy.set(Mode::Delay(DELAY));
        }
        let far: Vec<String> = servers
            .iter()
            .zip(&proxies)
            .map(|(server, proxy)| server.url_via(proxy.port()))
            .collect();
        let what = format!("redlock, {nodes} nodes, 1 ms each way");
        compare(&what, &far, 2_401..2_641)?;
    }
    Ok(())
}

/// Claims and finishes in turn with one PING to each node, of which a majority has answered;
/// the first sixth is to warm up.
fn compare(what: &str, urls: &[String], occurrences: Range<i64>) -> Result<(), String> {
    runtime()?.block_on(async {
        let store = open(&urls.join(","), 0)?;
        // Where there is something already, this changes nothing.
        store.init().await.map_err(|e| e.to_string())?;
        let mut nodes = Vec::new();
        for url in urls {
            nodes.push(connect(url).await?);
        }
        let (mut claims, mut finishes, mut pings) = (Vec::new(), Vec::new(), Vec::new());
        let warm = occurrences.start + (occurrences.end - occurrences.start) / 6;
        for n in occurrences {
            let ping = majority_pinged(&nodes).await?;
            let (claim, finish) = claimed(store.as_ref(), n).await?;
            if n >= warm {
                pings.push(ping);
                claims.push(claim);
                finishes.push(finish);
            }
        }
        let floor = median(&mut pings);
        for (part, times) in [("claim", &mut claims), ("finish", &mut finishes)] {
            let ours = median(times);
            report(
                &format!("{what}: {part}"),
                ours,
                "PING to a majority",
                floor,
            );
        }
        Ok(())
    })
}

/// How long until a majority of the nodes has answered a PING; none is still under way after it.
async fn majority_pinged(nodes: &[MultiplexedConnection]) -> Result<Duration, String> {
    let began = Instant::now();
    let mut asked = JoinSet::new();
    for node in nodes {
        let mut node = node.clone();
        asked.spawn(async move { ping(&mut node).await });
    }
    let (mut answered, mut took) = (0, Duration::ZERO);
    while let Some(answer) = asked.join_next().await {
        answer.map_err(|e| e.to_string())??;
        answered += 1;
        if answered == nodes.len() / 2 + 1 {
            took = began.elapsed();
        }
    }
    Ok(took)
}

/// A master that three Sentinels name.
fn sentinel() -> Result<(), String> {
    let master = RedisServer::start();
    let sentinels = Sentinel::start(3, &Watched::only(&master), &Door::default());
    runtime()?.block_on(async {
        let store = open(&sentinel::url(&sentinels), 0)?;
        beside_two_pings("sentinel", store.as_ref(), &master.url()).await
    })
}

/// A Cluster of three primaries, one of which keeps the lock.
fn cluster() -> Result<(), String> {
    let cluster = Cluster::start(Replicas::None, &support::redis::documented_cluster_rights());
    let primary = &cluster.servers[cluster.first_primary_of("bench")];
    runtime()?.block_on(async {
        let store = open(&cluster.url_of(&[0, 1, 2]), 0)?;
        store.init().await.map_err(|e| e.to_string())?;
        beside_two_pings("cluster", store.as_ref(), &primary.url_with("")).await
    })
}

/// Claim and finish in turn with two PINGs to the server that keeps the lock.
async fn beside_two_pings(what: &str, store: &dyn Store, server: &str) -> Result<(), String> {
    const ROUNDS: i64 = 3_000;
    let mut server = connect(server).await?;
    let (mut ours, mut pings) = (Vec::new(), Vec::new());
    for round in -ROUNDS / 5..ROUNDS {
        let began = Instant::now();
        ping(&mut server).await?;
        ping(&mut server).await?;
        let pinged = began.elapsed();
        let (claim, finish) = claimed(store, ROUNDS + round).await?;
        if round >= 0 {
            ours.push(claim + finish);
            pings.push(pinged);
        }
    }
    let (ours, floor) = (median(&mut ours), median(&mut pings));
    report(&format!("{what}: claim + finish"), ours, "two PINGs", floor);
    Ok(())
}

/// Renewals on a master with one replica: without and with its acknowledgement.
fn replicas() -> Result<(), String> {
    let master = RedisServer::start();
    let replica = sentinel::replica_of(
        &master,
        master.port(),
        RedisServer::builder()
            .arg("--repl-diskless-sync-delay")
            .arg("0"),
    );
    let measured = runtime()?.block_on(async {
        let alone = open(&master.url(), 0)?;
        let waiting = open(&master.url(), 1)?;
        let mut leases = Vec::new();
        for n in 0..1_000 {
            let (claim, renewal) = lease(n)?;
            alone.claim(&claim).await.map_err(|e| e.to_string())?;
            leases.push(renewal);
        }
        let mut raw = connect(&master.url()).await?;
        for (count, rounds) in [(1, 2_000), (1_000, 100)] {
            let leases = &leases[..count];
            // Ours and the floor, without and with the replica.
            let mut times = [const { Vec::new() }; 4];
            for _ in 0..rounds {
                times[0].push(renewed(alone.as_ref(), leases).await?);
                times[1].push(expired(&mut raw, count, false).await?);
                times[2].push(renewed(waiting.as_ref(), leases).await?);
                times[3].push(expired(&mut raw, count, true).await?);
            }
            let [ours, floor, with, with_floor] = times.each_mut().map(|t| median(t));
            let what = format!("renew {count}");
            report(&what, ours, "bare PEXPIRE", floor);
            let what = format!("renew {count}, wait_replicas: 1");
            report(&what, with, "PEXPIRE and WAIT 1", with_floor);
        }
        Ok(())
    });
    drop(replica);
    measured
}

async fn renewed(store: &dyn Store, leases: &[Renewal]) -> Result<Duration, String> {
    let began = Instant::now();
    let replies = store.renew(leases).await.map_err(|e| e.to_string())?;
    let took = began.elapsed();
    if replies.len() != leases.len() || replies.iter().any(|r| *r != RenewReply::Renewed) {
        return Err("a lease was not renewed".to_owned());
    }
    Ok(took)
}

/// The same keys, extended in one pipeline; with the replica, then waited for.
async fn expired(
    raw: &mut MultiplexedConnection,
    count: usize,
    wait: bool,
) -> Result<Duration, String> {
    let mut expires = ::redis::pipe();
    for n in 0..count {
        let key = format!("cronlatch:{{lock-{n}}}:lock");
        expires.cmd("PEXPIRE").arg(key).arg(300_000);
    }
    if wait {
        expires.cmd("WAIT").arg(1).arg(1_000);
    }
    let began = Instant::now();
    let answers: Vec<i64> = expires.query_async(raw).await.map_err(|e| e.to_string())?;
    let took = began.elapsed();
    if answers.contains(&0) {
        return Err("a key is gone, or the replica did not answer".to_owned());
    }
    Ok(took)
}

/// How long the claim and the finish of the job's `n`th occurrence take.
async fn claimed(store: &dyn Store, n: i64) -> Result<(Duration, Duration), String> {
    let (claim, finish) = occurrence(n)?;
    let began = Instant::now();
    let reply = store.claim(&claim).await.map_err(|e| e.to_string())?;
    let claimed = began.elapsed();
    if !matches!(reply, ClaimReply::Granted { .. }) {
        return Err(format!("not granted: {reply:?}"));
    }
    let began = Instant::now();
    store.finish(&finish).await.map_err(|e| e.to_string())?;
    Ok((claimed, began.elapsed()))
}

fn open(url: &str, wait_replicas: u32) -> Result<Arc<dyn Store>, String> {
    let mut settings: StoreSettings = store::check_url(url)?;
    for server in settings.servers_mut() {
        server.wait_replicas = wait_replicas;
    }
    store::open(&settings).map_err(|e| e.to_string())
}

async fn connect(url: &str) -> Result<MultiplexedConnection, String> {
    let client = ::redis::Client::open(url).map_err(|e| e.to_string())?;
    let connection = client.get_multiplexed_async_connection().await;
    connection.map_err(|e| e.to_string())
}

async fn ping(server: &mut MultiplexedConnection) -> Result<(), String> {
    let pong: Result<String, _> = ::redis::cmd("PING").query_async(server).await;
    pong.map(drop).map_err(|e| e.to_string())
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("no runtime: {e}"))
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times
        .get(times.len() / 2)
        .map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

fn report(what: &str, ours: f64, floor_is: &str, floor: f64) {
    let times = ours / floor;
    say(&format!(
        "{what:42} {ours:8.0} µs   {floor_is:18} {floor:8.0} µs   {times:5.2} times"
    ));
}

/// A line for the reader.
#[expect(clippy::print_stdout, reason = "figures are what this program is for")]
fn say(line: &str) {
    println!("{line}");
}
