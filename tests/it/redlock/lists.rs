//! Lists of nodes: long ones, even ones, some with nodes that are down at the start.

use std::fs;

use crate::support::redis::PASSWORD;
use crate::support::{Daemon, Output, RedisServer, RunLog, command, cronlatch, wait_for};

use super::urls;

/// A job every second.
fn every_second(runs: &RunLog) -> String {
    format!(
        "jobs:\n  - {{ name: tick, every: 1s, lock: {{ ttl: 3s }}, kill_grace: 200ms, \
         command: '{}' }}\n",
        runs.job("0.01")
    )
}

/// Declares the nodes new; a busy machine may be late.
fn init(store: &str) -> Output {
    wait_for("the nodes are declared new", || {
        let said = cronlatch(&["init", "--store", store]);
        (said.code() == 0).then_some(said)
    })
}

fn wait_for_runs(daemon: &mut Daemon, runs: &RunLog, more: usize) {
    let before = runs.entries().len();
    daemon.wait_until("it runs", |_| runs.entries().len() >= before + more);
}

#[test]
fn five_nodes_with_tls_and_a_password_from_a_file_lose_two_and_go_on() {
    let mut servers: Vec<RedisServer> = (0..5)
        .map(|_| RedisServer::builder().tls().password().start())
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let (password, authorities) = (dir.path().join("password"), dir.path().join("ca.pem"));
    fs::write(&password, format!("{PASSWORD}\n")).unwrap();
    let pems: Vec<String> = servers
        .iter()
        .map(|server| fs::read_to_string(server.ca_file()).unwrap())
        .collect();
    fs::write(&authorities, pems.concat()).unwrap();
    let nodes: Vec<String> = servers.iter().map(|server| server.url_with("")).collect();
    let runs = RunLog::new();
    let list = format!(
        "store:\n  redis: [{}]\n  password_file: {}\n  ca_file: {}\n{}",
        nodes.join(", "),
        password.display(),
        authorities.display(),
        every_second(&runs)
    );
    let mut host = Daemon::on("one", list).start();
    wait_for_runs(&mut host, &runs, 1);
    servers[0].stop();
    servers[3].stop();
    wait_for_runs(&mut host, &runs, 2);
    servers[4].stop();
    host.wait_log(&["2 of 5 nodes respond, and 3 must"]);
    let refused = host.ask(&["exec", "--lock", "other", "--", "true"]);
    assert_eq!(refused.code(), 69, "{refused:?}");
    servers[4].crash_and_restart();
    wait_for_runs(&mut host, &runs, 1);
    assert!(host.terminate().success());
    runs.assert_each_once();
    runs.assert_no_overlap();
    assert!(!host.log().contains(PASSWORD));
}

#[test]
fn an_even_number_of_nodes_works_and_is_warned_of_wherever_it_is_named() {
    let mut servers: Vec<RedisServer> = (0..4).map(|_| RedisServer::start()).collect();
    let store = urls(&servers).join(",");
    let said = init(&store);
    assert!(said.stderr.contains("take an odd number"), "{said:?}");
    let mut from_environment = command::command(command::BINARY);
    from_environment
        .arg("status")
        .env("CRONLATCH_STORE", &store);
    let said = command::output(from_environment);
    assert!(said.stderr.contains("take an odd number"), "{said:?}");

    let runs = RunLog::new();
    let mut host = Daemon::on("one", every_second(&runs)).store(&store).start();
    host.wait_log(&["store.nodes", "take an odd number"]);
    servers[2].stop();
    wait_for_runs(&mut host, &runs, 2);
    assert!(host.terminate().success());
    runs.assert_each_once();

    let two = urls(&servers[..2]).join(",");
    let said = cronlatch(&["init", "--store", &two]).expect_code(64);
    assert!(said.stderr.contains("at least three servers"), "{said:?}");
    let twice = format!("{two},{}", servers[0].url());
    let said = cronlatch(&["init", "--store", &twice]).expect_code(64);
    assert!(said.stderr.contains("the same server"), "{said:?}");
}

#[test]
fn a_daemon_starts_without_a_minority_says_so_and_waits_for_a_majority_unless_told_otherwise() {
    let mut servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();
    let store = urls(&servers).join(",");
    init(&store);
    servers[0].stop();
    let runs = RunLog::new();
    let mut host = Daemon::on("one", every_second(&runs)).store(&store).start();
    host.wait_log(&[
        "1 of 3 nodes cannot be used: ",
        &format!("{}: Connection refused", servers[0].url()),
        "continuing with the majority",
    ]);
    wait_for_runs(&mut host, &runs, 1);
    assert!(host.terminate().success());

    servers[1].stop();
    let mut host = Daemon::on("one", every_second(&runs)).store(&store).start();
    host.wait_log(&["ready, but the store cannot be used: "]);
    let list = format!(
        "store: {{ redis: [{}], redlock: {{ at_start: refuse }} }}\n{}",
        store.replace(',', ", "),
        every_second(&runs)
    );
    let mut refuses = Daemon::on("two", list).spawn();
    let exit = refuses.wait_exit();
    assert_eq!(exit.code(), Some(69), "{}", refuses.log());
    assert_eq!(
        refuses.lines_with(&["at_start: refuse", "1 of 3 nodes respond"]),
        1
    );
    let log = refuses.log();
    let line = log
        .lines()
        .find(|line| line.contains("1 of 3 nodes respond"));
    let line = line.unwrap_or_default();
    assert_eq!(
        line.matches("the store is unreachable").count(),
        1,
        "{line}"
    );
    for server in &servers[..2] {
        assert!(line.contains(&format!("{}: ", server.url())), "{line}");
    }
    servers[1].crash_and_restart();
    wait_for_runs(&mut host, &runs, 1);
    assert!(host.terminate().success());
    runs.assert_each_once();
}

#[test]
fn a_daemon_whose_list_names_a_replica_or_one_server_twice_ends_with_the_code_for_a_wrong_list() {
    let (one, two) = (RedisServer::builder().unix().start(), RedisServer::start());
    let replica = RedisServer::builder()
        .unmarked()
        .arg("--replicaof")
        .arg(&format!("127.0.0.1 {}", one.port()))
        .start();
    let runs = RunLog::new();
    for (third, said) in [
        (one.url_on_port(), "the same server"),
        (replica.url(), "replica"),
    ] {
        let store = [one.url(), two.url(), third].join(",");
        let mut host = Daemon::on("one", every_second(&runs)).store(&store).spawn();
        let exit = host.wait_exit();
        assert_eq!(exit.code(), Some(78), "{}", host.log());
        assert!(
            host.lines_with(&["the store URL names unsuitable servers", said]) > 0,
            "{}",
            host.log()
        );
        let refused = cronlatch(&["exec", "--store", &store, "--lock", "l", "--", "true"]);
        assert_eq!(refused.code(), 78, "{refused:?}");
    }
    assert_eq!(runs.entries().len(), 0);
}
