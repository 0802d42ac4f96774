//! Nodes whose clocks differ: what is due, and what is reported.

use cronlatch::store::{Registration, Store};

use super::*;
use crate::support::claims::due;
use crate::support::cronlatch;

/// Three nodes whose clocks are shifted by so many milliseconds, declared new.
async fn shifted(shifts: [i64; 3]) -> (Vec<RedisServer>, Arc<dyn Store>) {
    let servers: Vec<RedisServer> = shifts
        .iter()
        .map(|shift| RedisServer::builder().clock_shifted_by(*shift).start())
        .collect();
    let store = store_at(&urls(&servers));
    assert_eq!(store.init().await.unwrap(), None);
    (servers, store)
}

/// How long each of these jobs has to wait for an occurrence that is due in so many milliseconds.
/// Their locks begin with different nodes.
async fn early(store: &dyn Store, due_in: i64) -> Vec<Option<Duration>> {
    let mut waits = Vec::new();
    for name in ["a", "b", "c", "d", "e", "f"] {
        let (job, lock) = (
            JobName::parse(name).unwrap(),
            Lock::named(&LockName::parse(name).unwrap()),
        );
        let at = Timestamp::from_millis(Timestamp::now().millis() + due_in);
        let claim = Claim {
            lock,
            token: token(name),
            run_id: RunId::from_text(name),
            ttl: LONG,
            what: ClaimTarget::Occurrence {
                job,
                kind: Kind::Schedule,
                due: due(at),
                overlap: Overlap::Wait,
                keep: cronlatch::store::Retention::of_records(100),
            },
        };
        let reply = eventually("the claim is answered", async || {
            store.claim(&claim).await.ok()
        })
        .await;
        waits.push(match reply {
            ClaimReply::Early { by } => Some(by),
            _ => None,
        });
    }
    waits
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_whose_clock_is_wrong_makes_nothing_early_or_late_and_no_job_new_too_late() {
    for shift in [5_000, -5_000, 25_000] {
        let (_servers, store) = shifted([0, shift, 0]).await;
        let waits = early(&*store, 3_000).await;
        let right = |wait: &Option<Duration>| {
            wait.is_some_and(|by| by <= Duration::from_secs(3) && by > Duration::from_millis(500))
        };
        assert!(waits.iter().all(right), "{shift}: {waits:?}");
        for name in ["g", "h", "i", "j"] {
            let registration = Registration {
                job: JobName::parse(name).unwrap(),
                lock: Lock::named(&LockName::parse(name).unwrap()),
                fingerprint: Fingerprint("f".into()),
                ttl: LONG,
            };
            let registered = eventually("it is registered", async || {
                store
                    .register(std::slice::from_ref(&registration))
                    .await
                    .ok()
            })
            .await;
            let off = registered[0].decided_until.millis() - Timestamp::now().millis();
            assert!(
                (-2_000..=1_000).contains(&off),
                "{shift}: {name} begins {off} ms from now"
            );
        }
        let off = store.now().await.unwrap().millis() - Timestamp::now().millis();
        assert!(
            off.abs() < 1_000,
            "{shift}: the store's clock is {off} ms off"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_nodes_that_are_left_the_earlier_clock_decides() {
    let (mut servers, store) = shifted([0, 5_000, 0]).await;
    servers[0].stop();
    let waits = early(&*store, 3_000).await;
    assert!(waits.iter().all(Option::is_some), "{waits:?}");
}

/// One node's clock is far ahead, another node loses its data, the third is away for a moment: what
/// was due before the loss cannot be known, and what comes due afterwards runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_loss_a_node_whose_clock_is_far_ahead_makes_nothing_unknown_that_comes_due_later() {
    let servers: Vec<RedisServer> = [0, 300, 25_000]
        .iter()
        .map(|shift| RedisServer::builder().clock_shifted_by(*shift).start())
        .collect();
    let nodes = urls(&servers);
    let mut scene = Scene::by_way_of(servers, &nodes, TTL).await;
    scene.servers[0].stop();
    scene.servers[1].restart();
    let before = settled(&*scene.store, &scene.claim("a", 1)).await;
    assert!(matches!(before, ClaimReply::Unknown), "{before:?}");
    // A TTL, by which clocks may differ, and as much again as servers that replace one another.
    let after = Timestamp::now().plus(TTL + Duration::from_millis(1_500));
    let now = eventually("the nodes' clocks are past the loss", async || {
        let now = scene.store.now().await.ok()?;
        (now > after).then_some(now)
    })
    .await;
    let since = u64::try_from(now.since(scene.start).as_millis()).unwrap();
    let later = settled(&*scene.store, &scene.claim("b", since)).await;
    assert!(matches!(later, ClaimReply::Granted { .. }), "{later:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_that_nodes_noticed_under_clocks_far_ahead_is_waited_out_by_the_right_ones() {
    let mut servers = [(); 3].map(|()| {
        RedisServer::builder()
            .unmarked()
            .clock_shifted_by(400 * 24 * 3_600_000)
            .start()
    });
    let store = store_at(&urls(&servers));
    let claim = Claim {
        lock: lock(),
        token: token("a"),
        run_id: RunId::from_text("a"),
        ttl: Duration::from_secs(2),
        what: ClaimTarget::Lock,
    };
    // Without a list the nodes would wait for the default TTL.
    let listed = Registration {
        job: JobName::parse("j").unwrap(),
        lock: lock(),
        fingerprint: Fingerprint("f".into()),
        ttl: claim.ttl,
    };
    eventually("a loss is noticed", async || {
        let listed = std::slice::from_ref(&listed);
        store.register(listed).await.ok()?;
        let reply = store.claim(&claim).await.ok()?;
        matches!(reply, ClaimReply::Recovering { .. }).then_some(())
    })
    .await;
    for server in &mut servers {
        server.set_clock(0);
    }
    eventually("it is waited out", async || {
        let reply = store.claim(&claim).await.ok()?;
        matches!(reply, ClaimReply::Granted { .. }).then_some(())
    })
    .await;
}

#[test]
fn nodes_whose_clocks_differ_are_named_by_doctor_log_and_status_and_a_right_host_is_not_blamed() {
    for shift in [5_500, -5_500] {
        let servers: Vec<RedisServer> = [0, 0, shift]
            .iter()
            .map(|shift| RedisServer::builder().clock_shifted_by(*shift).start())
            .collect();
        let store = urls(&servers).join(",");
        let wrong = servers[2].url();
        cronlatch(&["init", "--store", &store]).expect_code(0);

        let said = cronlatch(&["doctor", "--json", "--store", &store]);
        let found = said.json_lines().remove(0)["findings"].take();
        let of = |id: &str, subject: &str| -> Vec<(String, String)> {
            let found = found.as_array().unwrap().iter();
            found
                .filter(|f| f["id"] == id && f["subject"] == subject)
                .map(|f| {
                    let text = |field: &str| f[field].as_str().unwrap().to_owned();
                    (text("severity"), text("text"))
                })
                .collect()
        };
        let host = of("clock.offset", "this host");
        assert_eq!(host.len(), 1, "{found:#?}");
        assert_eq!(host[0].0, "ok", "a right host is not blamed: {found:#?}");
        let node = of("clock.nodes", &wrong);
        assert_eq!(node.len(), 1, "{found:#?}");
        assert_eq!(node[0].0, "warning");
        let side = if shift > 0 { "ahead of" } else { "behind" };
        assert!(node[0].1.contains(side), "{node:?}");
        for right in &servers[..2] {
            assert_eq!(of("clock.nodes", &right.url())[0].0, "ok", "{found:#?}");
        }

        let said = cronlatch(&["status", "--json", "--store", &store]);
        let status = said.expect_code(0).json_lines().remove(0);
        for node in status["nodes"].as_array().unwrap() {
            let expected = if node["node"] == wrong.as_str() {
                shift
            } else {
                0
            };
            let off = node["clock_offset_ms"].as_i64().unwrap();
            assert!((off - expected).abs() < 900, "{status:#}");
        }
        let said = cronlatch(&["status", "--store", &store])
            .expect_code(0)
            .stdout;
        let sign = if shift > 0 { "+5." } else { "-5." };
        assert!(said.contains("clocks differ (the median"), "{said}");
        let offset = |server: &RedisServer| {
            let url = server.url();
            let mut lines = said.lines().map(str::trim_start);
            let of_it = lines.find_map(|line| line.strip_prefix(&url));
            of_it
                .unwrap_or_else(|| panic!("no offset for {url}: {said}"))
                .to_owned()
        };
        assert!(offset(&servers[2]).contains(sign), "{said}");
        assert!(offset(&servers[0]).ends_with("ms"), "{said}");
    }

    let servers: Vec<RedisServer> = [0, 5_000, 0]
        .iter()
        .map(|shift| RedisServer::builder().clock_shifted_by(*shift).start())
        .collect();
    let runs = RunLog::new();
    let list = format!(
        "jobs:\n  - {{ name: tick, every: 1s, lock: {{ ttl: 3s }}, kill_grace: 200ms, \
         command: '{}' }}\n",
        runs.job("0.01")
    );
    let store = urls(&servers).join(",");
    cronlatch(&["init", "--store", &store]).expect_code(0);
    let mut host = Daemon::on("one", list)
        .store(&store)
        .clock_shifted_by(4_000)
        .start();
    host.wait_log(&["WARN", "this node's clock is", &servers[1].url()]);
    host.wait_until("it runs", |_| runs.entries().len() >= 3);
    assert!(host.terminate().success());
    runs.assert_none_early();
    assert_eq!(
        host.lines_with(&["this node's clock is"]),
        1,
        "{}",
        host.log()
    );
}
