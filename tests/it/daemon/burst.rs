//! More jobs at one instant than the way to the store carries in a second.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, Timelike as _, Utc};

use crate::support::{Daemon, Proxy, RedisServer, proxy::Mode, wait_until};

/// What the log says when an outage begins.
const OUTAGE: &[&str] = &["the store is unreachable"];

/// Jobs that are due at one instant, each of which writes its name; they run without the store
/// when it is down.
fn list(store: &str, jobs: usize, due: DateTime<Utc>, file: &Path) -> String {
    let schedule = format!("{} {} {} * * *", due.second(), due.minute(), due.hour());
    let mut list = format!("store: {store}\ndefaults: {{ on_store_down: run }}\njobs:\n");
    for n in 0..jobs {
        list += &format!(
            "  - {{ name: job-{n}, schedule: \"{schedule}\", command: 'echo job-{n} >> {}' }}\n",
            file.display()
        );
    }
    list
}

/// How often each job ran.
fn runs(file: &Path) -> BTreeMap<String, usize> {
    let mut runs = BTreeMap::new();
    for line in std::fs::read_to_string(file).unwrap_or_default().lines() {
        *runs.entry(line.to_owned()).or_default() += 1;
    }
    runs
}

#[test]
fn claims_that_queue_on_a_slow_way_to_the_store_are_no_outage() {
    const JOBS: usize = 120;
    // About sixty claims a second: the last one waits for twice as long as a server may be silent.
    const RATE: u32 = 60_000;
    let redis = RedisServer::start();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("ran");
    let due = (Utc::now() + Duration::from_secs(5)).with_nanosecond(0);
    let due = due.expect("a valid instant");
    let proxies = ["one", "two"].map(|host| (host, Proxy::to(redis.port())));
    let mut hosts: Vec<Daemon> = proxies
        .iter()
        .map(|(host, proxy)| {
            let store = redis.url_via(proxy.port());
            Daemon::on(host, list(&store, JOBS, due, &file)).start()
        })
        .collect();
    for (_, proxy) in &proxies {
        proxy.set(Mode::Narrow(RATE));
    }
    assert!(Utc::now() < due, "the daemons were ready too late");
    wait_until("every job has run", || runs(&file).len() == JOBS);
    for (_, proxy) in &proxies {
        proxy.set(Mode::Pass);
    }
    for host in &mut hosts {
        assert!(host.terminate().success());
        assert_eq!(host.lines_with(OUTAGE), 0, "{}", host.log());
    }
    let twice: Vec<_> = runs(&file).into_iter().filter(|(_, n)| *n > 1).collect();
    assert_eq!(twice, []);
}
