//! Hosts of one fleet whose lists name different servers.

use crate::support::{Daemon, RedisServer, RunLog, wait_until};

use super::urls;

fn list(runs: &RunLog) -> String {
    format!(
        "jobs:\n  - {{ name: tick, every: 1s, lock: {{ ttl: 3s }}, kill_grace: 200ms, \
         command: '{}' }}\n",
        runs.job("0.01")
    )
}

fn host_in(status: &crate::support::Output, name: &str) -> serde_json::Value {
    let status = &status.json_lines()[0];
    let hosts = status["hosts"].as_array().expect("hosts");
    let host = hosts.iter().find(|host| host["name"] == name);
    host.unwrap_or_else(|| panic!("{name} is not in {status:#}"))
        .clone()
}

/// The second host, whose list names one of the servers of the first, waits until that has ended.
fn the_second_waits(before: &str, after: &str, uses: &str) {
    let runs = RunLog::new();
    let mut old = Daemon::on("old", list(&runs)).store(before).start();
    old.wait_until("it runs", |_| runs.entries().len() >= 2);
    let mut new = Daemon::on("new", list(&runs)).store(after).start();
    let words = ["ERROR", "claims nothing", "host old uses", uses];
    new.wait_log(&words);
    let said = ["WARN", "host new uses a majority of 3", "it waits"];
    old.wait_log(&said);

    wait_until("status says what it waits for", || {
        let status = new.ask(&["status", "--store", after, "--json"]);
        let waits = &host_in(&status.expect_code(0), "new")["waits"];
        waits.as_str().is_some_and(|waits| waits.contains(uses))
    });
    let status = new.ask(&["status", "--store", after]).expect_code(0);
    assert!(
        status.stdout.contains("host new claims nothing"),
        "{status:?}"
    );
    let doctor = new.ask(&["doctor", "--store", after]).expect_code(1);
    assert!(doctor.stdout.contains("host old"), "{doctor:?}");

    let count = runs.entries().len();
    old.wait_until("it goes on", |_| runs.entries().len() >= count + 2);
    assert!(old.terminate().success());
    new.wait_log(&["INFO", "this host continues"]);
    let by_new = || runs.entries().iter().any(|run| run.host == "new");
    wait_until("the other one runs the job", by_new);
    assert!(new.terminate().success());
    runs.assert_each_once();
    runs.assert_no_overlap();
    assert_eq!(new.lines_with(&words), 1);
    assert_eq!(old.lines_with(&said), 1);
}

#[test]
fn a_host_whose_list_names_other_nodes_waits_and_says_so() {
    let servers: Vec<RedisServer> = (0..5).map(|_| RedisServer::start()).collect();
    let urls = urls(&servers);
    let uses = "a majority of 3 servers, of which this host's list names 1";
    the_second_waits(&urls[..3].join(","), &urls[2..].join(","), uses);
}

#[test]
fn a_majority_waits_for_hosts_that_use_one_of_its_servers_alone() {
    let servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();
    let urls = urls(&servers);
    the_second_waits(&urls[0], &urls.join(","), "one of these servers alone");
}
