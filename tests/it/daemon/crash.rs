//! Hosts that die, leases that are lost.

use super::{has, records, wait_record};
use crate::support::{Daemon, RedisServer, RunLog, wait_until};

const SHORT: &str = "kill_grace: 100ms, lock: { ttl: 1500ms }";

#[test]
fn a_dead_hosts_run_is_run_again_or_recorded_as_interrupted() {
    let redis = RedisServer::start();
    let (again, once) = (RunLog::new(), RunLog::new());
    let list = format!(
        "\
store: {}
defaults: {{ {SHORT} }}
jobs:
  - {{ name: again, every: 10s, on_crash: rerun, command: '{}; test $CRONLATCH_ATTEMPT = 1 && sleep 60; {}' }}
  - {{ name: once, every: 10s, command: '{}' }}
",
        redis.url(),
        again.begin(),
        RunLog::end(),
        once.endless_job(),
    );
    let mut one = Daemon::on("one", list.as_str()).start();
    one.wait_until("both jobs run", |_| {
        !again.entries().is_empty() && !once.entries().is_empty()
    });
    let mut two = Daemon::on("two", list.as_str()).start();
    one.kill();
    let interrupted = |r: &serde_json::Value| r["outcome"] == "interrupted";
    let record = wait_record(&mut two, "once", "interrupted", interrupted);
    assert_eq!(record["host"], "one", "{record:#}");
    let rerun = |r: &serde_json::Value| r["kind"] == "rerun" && r["outcome"] == "succeeded";
    let second = wait_record(&mut two, "again", "a rerun", rerun);
    assert_eq!(
        (&second["host"], &second["attempts"]),
        (&"two".into(), &2.into())
    );
    let entries = again.entries();
    assert_eq!(entries[0].scheduled, entries[1].scheduled, "{entries:?}");
    assert_eq!(entries[1].attempt, 2);
    again.assert_no_overlap();
    again.assert_fences_rise();
}

#[test]
fn a_stolen_lease_ends_the_job_and_stays_with_the_thief() {
    let redis = RedisServer::start();
    let (ending, staying) = (RunLog::new(), RunLog::new());
    let list = format!(
        "\
store: {}
defaults: {{ {SHORT} }}
jobs:
  - {{ name: ends, every: 1s, command: '{}' }}
  - {{ name: stays, every: 1s, on_lost: continue, command: '{}' }}
",
        redis.url(),
        ending.endless_job(),
        staying.job("3"),
    );
    let mut daemon = Daemon::on("host", list).start();
    wait_until("both jobs run", || {
        !ending.entries().is_empty() && !staying.entries().is_empty()
    });
    for job in ["ends", "stays"] {
        redis.text(&["SET", &format!("cronlatch:{{{job}}}:lock"), "thief"]);
    }
    let lost = |r: &serde_json::Value| r["outcome"] == "lease_lost";
    let lost = wait_record(&mut daemon, "ends", "lease lost", lost);
    assert!(has(&lost["reason"], "another holder"), "{lost:#}");
    daemon.wait_log(&["the lease was lost (", "job=stays", "the run continues"]);
    let ran = |r: &serde_json::Value| r["outcome"] == "succeeded";
    wait_record(&mut daemon, "stays", "its own end", ran);
    for job in ["ends", "stays"] {
        let holder = redis.text(&["GET", &format!("cronlatch:{{{job}}}:lock")]);
        assert_eq!(holder, "thief", "{job}");
    }
    assert!(staying.entries()[0].ended);
    assert!(!records(&daemon, "ends").is_empty());
}
