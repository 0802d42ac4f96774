//! Monitoring services that expect a request for each start and end.

use crate::support::{Daemon, Receiver};

use super::{list, wait_request};

fn daemon(jobs: &[String]) -> Daemon {
    let text = list(None, &[], jobs).replace("notify:\n", "");
    Daemon::on("web1", text).start()
}

#[test]
fn healthchecks_receives_start_success_and_failure_with_the_run_and_its_output() {
    let receiver = Receiver::start();
    let check = |name: &str| format!("healthchecks:{}", receiver.url(&format!("/{name}")));
    let mut daemon = daemon(&[
        format!(
            "{{ name: good, every: 1s, ping: '{}', command: 'echo fine' }}",
            check("good")
        ),
        format!(
            "{{ name: bad, every: 1s, ping: '{}', command: 'echo oh; exit 3' }}",
            check("bad")
        ),
    ]);
    let start = wait_request(&receiver, "/good/start", |_| true);
    let rid = start.path.split_once("?rid=").unwrap().1.to_owned();
    let success = wait_request(&receiver, "/good", |it| it.path.contains(&rid));
    assert_eq!(success.body, "succeeded\nfine");
    let fail = wait_request(&receiver, "/bad/fail", |_| true);
    assert!(fail.body.starts_with("failed"), "{fail:?}");
    assert!(fail.body.ends_with("\noh"), "{fail:?}");
    assert!(daemon.terminate().success());
    // In order: the requests about a job share one connection.
    let paths: Vec<String> = receiver
        .received()
        .iter()
        .filter(|it| it.path.contains(&rid))
        .map(|it| it.path.clone())
        .collect();
    assert_eq!(
        paths,
        [format!("/good/start?rid={rid}"), format!("/good?rid={rid}")]
    );
}

#[test]
fn sentry_receives_check_ins_of_the_monitor_with_the_jobs_name() {
    let receiver = Receiver::start();
    let dsn = receiver.url("/42").replace("http://", "http://key@");
    let _daemon = daemon(&[format!(
        "{{ name: Nightly.Job, every: 1s, ping: 'sentry:{dsn}', command: 'exit 1' }}"
    )]);
    let path = "/api/42/cron/nightly-job/key/";
    let start = wait_request(&receiver, path, |it| {
        it.path.ends_with("&status=in_progress")
    });
    let id = start.path.split(['?', '&']).nth(1).unwrap().to_owned();
    wait_request(&receiver, path, |it| {
        it.path.contains(&id) && it.path.ends_with("&status=error")
    });
}

#[test]
fn any_url_is_requested_after_a_success_or_for_each_status() {
    let receiver = Receiver::start();
    let mut daemon = daemon(&[
        format!(
            "{{ name: a, every: 1s, ping: '{}', command: 'true' }}",
            receiver.url("/{job}/ok")
        ),
        format!(
            "{{ name: b, every: 1s, ping: '{}', command: 'false' }}",
            receiver.url("/b/ok")
        ),
        format!(
            "{{ name: c, every: 1s, ping: '{}', command: 'false' }}",
            receiver.url("/c?{status}")
        ),
    ]);
    wait_request(&receiver, "/a/ok", |it| it.method == "GET");
    wait_request(&receiver, "/c", |it| it.path == "/c?start");
    wait_request(&receiver, "/c", |it| it.path == "/c?fail");
    assert!(daemon.terminate().success());
    assert_eq!(receiver.at("/b/ok").len(), 0);
}
