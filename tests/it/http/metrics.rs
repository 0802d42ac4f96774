//! `/metrics`, and the same in a file.

use std::fs;
use std::net::SocketAddr;

use nix::sys::signal::Signal;

use super::{QUIET, READ, address, ask, get, list, serving, write_tokens};
use crate::support::{Daemon, RedisServer, wait_for, wait_until};

/// The value of a sample, by its name with labels.
#[track_caller]
fn sample(page: &str, name: &str) -> Option<f64> {
    let mut lines = page.lines();
    let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

fn metrics(at: SocketAddr) -> String {
    let reply = get(at, "/metrics");
    assert_eq!(reply.status, 200, "{reply:#?}");
    reply.body
}

#[test]
fn a_scrape_shows_what_the_host_and_the_fleet_do() {
    let redis = RedisServer::start();
    let dir = tempfile::tempdir().unwrap();
    let go_on = dir.path().join("go-on");
    let slow = format!(
        "{{ name: slow, every: 1s, command: 'until [ -e {} ]; do sleep 0.05; done' }}",
        go_on.display()
    );
    let fails = "{ name: fails, every: 1s, command: 'exit 3', expect_success_within: 1h }";
    let works = "{ name: works, every: 1s, command: 'true', expect_success_within: 1h }";
    let mut daemon = Daemon::on("web1", serving(&[&slow, fails, works, QUIET]))
        .store(&redis.url())
        .start();
    let at = address(&mut daemon);
    daemon.wait_log(&["started", "job=slow"]);
    let page = wait_for("all of it is on the page", || {
        let page = metrics(at);
        let has = |name: &str| sample(&page, name).is_some_and(|value| value > 0.0);
        let all = [
            "cronlatch_ready",
            "cronlatch_store_up",
            "cronlatch_hosts",
            "cronlatch_runs_in_progress{job_name=\"slow\"}",
            "cronlatch_verdicts_total{job_name=\"fails\",outcome=\"failed\"}",
            "cronlatch_verdicts_total{job_name=\"works\",outcome=\"succeeded\"}",
            "cronlatch_verdicts_total{job_name=\"slow\",outcome=\"skipped\"}",
            "cronlatch_job_last_success_timestamp_seconds{job_name=\"works\"}",
            "cronlatch_job_failed{job_name=\"fails\"}",
            "cronlatch_run_duration_seconds_count{job_name=\"works\"}",
            "cronlatch_start_lateness_seconds_count",
            "cronlatch_claims_total{reply=\"granted\"}",
            "cronlatch_claims_total{reply=\"held\"}",
            "cronlatch_renewals_total{reply=\"renewed\"}",
            "cronlatch_store_request_duration_seconds_count{operation=\"renew\"}",
            "cronlatch_store_request_duration_seconds_count{operation=\"finish\"}",
        ];
        let all = all.iter().all(|name| has(name));
        all.then_some(page)
    });
    for (name, value) in [
        ("cronlatch_jobs", 4.0),
        ("cronlatch_hosts", 1.0),
        ("cronlatch_fleet_read_success", 1.0),
        ("cronlatch_job_list_rejected", 0.0),
        ("cronlatch_job_overdue{job_name=\"works\"}", 0.0),
        ("cronlatch_job_failed{job_name=\"works\"}", 0.0),
        ("cronlatch_job_paused{job_name=\"quiet\"}", 0.0),
        (
            "cronlatch_job_expect_success_within_seconds{job_name=\"fails\"}",
            3600.0,
        ),
        ("cronlatch_leases_lost_total{reason=\"expired\"}", 0.0),
    ] {
        assert_eq!(sample(&page, name), Some(value), "{name}\n{page}");
    }
    let never = "cronlatch_job_last_success_timestamp_seconds{job_name=\"fails\"}";
    assert_eq!(sample(&page, never), None);

    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    let open = ask(at, "GET", "/metrics", &[accept]);
    assert!(open.headers["content-type"].starts_with("application/openmetrics-text"));
    assert!(open.body.ends_with("\n# EOF\n"), "{open:#?}");
    assert!(get(at, "/metrics?job=a").error(400).contains("takes none"));

    // A scrape during a drain.
    daemon.signal(Signal::SIGTERM);
    wait_until("it drains", || {
        sample(&metrics(at), "cronlatch_draining") == Some(1.0)
    });
    assert_eq!(sample(&metrics(at), "cronlatch_ready"), Some(0.0));
    fs::write(&go_on, "").unwrap();
    assert!(daemon.wait_exit().success());
}

#[test]
fn a_scrape_without_the_store_shows_the_host_and_counts_the_errors() {
    let mut redis = RedisServer::start();
    let mut daemon = Daemon::on("web1", serving(&[QUIET]))
        .store(&redis.url())
        .start();
    let at = address(&mut daemon);
    daemon.wait_ready();
    redis.stop();
    let page = wait_for("the outage is on the page", || {
        let page = metrics(at);
        let is_down = sample(&page, "cronlatch_store_up") == Some(0.0)
            && sample(&page, "cronlatch_fleet_read_success") == Some(0.0);
        is_down.then_some(page)
    });
    assert_eq!(sample(&page, "cronlatch_ready"), Some(0.0));
    assert_eq!(sample(&page, "cronlatch_hosts"), None);
    let errors = page
        .lines()
        .filter(|line| line.starts_with("cronlatch_store_errors_total{"))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    assert!(errors.sum::<u64>() > 0, "{page}");
}

#[test]
fn metrics_need_the_token_of_the_api() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    write_tokens(&file, &format!("read prometheus {READ}\n"));
    let http = format!(
        "{{ listen: '127.0.0.1:0', token_file: {} }}",
        file.display()
    );
    let mut daemon = Daemon::on("web1", list(&http, &[QUIET])).start();
    let at = address(&mut daemon);
    get(at, "/metrics").error(401);
    let token = format!("Authorization: Bearer {READ}");
    let page = ask(at, "GET", "/metrics", &[&token]);
    assert_eq!(page.status, 200);
    assert!(page.body.contains("cronlatch_jobs 1\n"), "{page:#?}");
}

#[test]
fn the_file_has_the_page_while_the_daemon_runs_and_is_removed_at_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cronlatch.prom");
    let path = file.display().to_string();
    let job = "{ name: shows, every: 1s, command: 'echo \"[$CRONLATCH_METRICS_FILE]\"' }";
    let mut daemon = Daemon::on("web1", format!("jobs:\n  - {job}\n"))
        .env("CRONLATCH_METRICS_FILE", path.as_str())
        .start();
    daemon.wait_until("the file shows its jobs", |_| {
        fs::read_to_string(&file).is_ok_and(|page| sample(&page, "cronlatch_jobs") == Some(1.0))
    });
    // Only the daemon is asked with it.
    daemon.wait_log(&["[]", "job=shows"]);
    assert!(daemon.terminate().success());
    assert!(!file.exists());
}

#[test]
fn a_daemon_does_not_start_if_it_cannot_write_its_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("no/such.prom").display().to_string();
    let mut daemon = Daemon::on("web1", format!("jobs:\n  - {QUIET}\n"))
        .env("CRONLATCH_METRICS_FILE", path.as_str())
        .spawn();
    assert_eq!(daemon.wait_exit().code(), Some(74));
    assert!(daemon.log().contains("cannot write the metrics file"));
    assert!(daemon.log().contains(&path), "{}", daemon.log());
}

#[test]
fn a_daemon_does_not_start_if_its_metrics_would_replace_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("other.yaml");
    fs::write(&list, "jobs: []\n").unwrap();
    let link = dir.path().join("link.prom");
    std::os::unix::fs::symlink(&list, &link).unwrap();
    let folder = dir.path().join("folder");
    fs::create_dir(&folder).unwrap();
    for path in [&list, &link, &folder] {
        let path = path.display().to_string();
        let mut daemon = Daemon::on("web1", format!("jobs:\n  - {QUIET}\n"))
            .env("CRONLATCH_METRICS_FILE", path.as_str())
            .spawn();
        assert_eq!(daemon.wait_exit().code(), Some(64));
        let why = format!(
            "{path}: this file exists and is not a metrics file of cronlatch; name another path"
        );
        assert!(daemon.log().contains(&why), "{}", daemon.log());
    }
    assert_eq!(fs::read_to_string(&list).unwrap(), "jobs: []\n");
    assert!(link.is_symlink() && folder.is_dir());
}

#[test]
fn a_daemon_replaces_the_metrics_of_one_that_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cronlatch.prom");
    let path = file.display().to_string();
    let shows = |page: &str| sample(page, "cronlatch_jobs") == Some(1.0);
    for _ in 0..2 {
        let mut daemon = Daemon::on("web1", format!("jobs:\n  - {QUIET}\n"))
            .env("CRONLATCH_METRICS_FILE", path.as_str())
            .start();
        daemon.wait_until("the file shows its jobs", |_| {
            fs::read_to_string(&file).is_ok_and(|page| shows(&page))
        });
        daemon.kill();
        assert!(shows(&fs::read_to_string(&file).unwrap()), "it stays");
    }
}
