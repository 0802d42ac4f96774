//! Each event is sent when it happens, with what happened.

use crate::support::{Daemon, Receiver, Request, wait_until};

use super::{list, singles, wait_request};

/// A daemon with one target, which receives this event alone, and one job.
fn daemon(receiver: &Receiver, event: &str, job: &str) -> Daemon {
    let targets = [format!(
        "ops: {{ webhook: '{}', on: [{event}] }}",
        receiver.url("/")
    )];
    let job = format!("{{ name: job, notify: ops, {job} }}");
    Daemon::on("web1", list(None, &targets, &[job])).start()
}

fn first(receiver: &Receiver) -> serde_json::Value {
    wait_request(receiver, "/", |_| true).json()
}

#[test]
fn a_start_names_run_and_occurrence_and_a_retry_is_no_further_start() {
    let receiver = Receiver::start();
    let job = "every: 1s, retry: { attempts: 3, delay: 10ms }, command: 'false'";
    let mut daemon = daemon(&receiver, "started", job);
    let started = first(&receiver);
    assert!(
        started["run_id"].is_string() && started["scheduled_at"].is_string(),
        "{started}"
    );
    assert_eq!(started["record"], serde_json::Value::Null);
    wait_request(&receiver, "/", |it| {
        it.json()["run_id"] != started["run_id"]
    });
    assert!(daemon.terminate().success());
    let all = singles(&receiver.received(), "started");
    let same = all
        .iter()
        .filter(|json| json["run_id"] == started["run_id"]);
    assert_eq!(same.count(), 1, "{all:#?}");
}

#[test]
fn a_run_that_takes_long_is_reported_once_while_it_runs() {
    let receiver = Receiver::start();
    let dir = tempfile::tempdir().unwrap();
    let end = dir.path().join("end");
    let job = format!(
        "every: 1s, long_after: 1s, command: 'until test -e {}; do sleep 0.1; done'",
        end.display()
    );
    let mut daemon = daemon(&receiver, "long", &job);
    let long = first(&receiver);
    assert_eq!(
        long["text"],
        "job is taking long on web1: running for more than 1s"
    );
    daemon.wait_log(&["still running after 1s (long_after)"]);
    std::fs::write(&end, "").unwrap();
    daemon.wait_log(&["finished after"]);
    assert!(daemon.terminate().success());
    let all = singles(&receiver.received(), "long");
    assert_eq!(
        all.iter()
            .filter(|json| json["run_id"] == long["run_id"])
            .count(),
        1
    );
}

#[test]
fn a_start_that_is_late_is_reported() {
    let receiver = Receiver::start();
    // The second run waits for the first.
    let job = "every: 2s, late_after: 1s, on_overlap: wait, command: 'sleep 3.5'";
    let _daemon = daemon(&receiver, "late", job);
    let late = first(&receiver);
    let text = late["text"].as_str().unwrap();
    assert!(text.starts_with("job started late on web1: "), "{text}");
    assert!(text.ends_with(" after it was due"), "{text}");
}

#[test]
fn skipped_occurrences_are_reported_with_the_reason() {
    let receiver = Receiver::start();
    let _daemon = daemon(&receiver, "skipped", "every: 1s, command: 'sleep 600'");
    let skipped = first(&receiver);
    assert_eq!(skipped["record"]["outcome"], "skipped");
    let text = skipped["text"].as_str().unwrap();
    assert!(text.starts_with("job was skipped: overlap"), "{text}");
}

#[test]
fn missed_occurrences_are_reported_when_a_host_is_back() {
    let receiver = Receiver::start();
    let targets = [format!(
        "ops: {{ webhook: '{}', on: [missed] }}",
        receiver.url("/")
    )];
    let job = "{ name: job, notify: ops, every: 1s, catch_up: none, command: 'true' }".to_owned();
    let dir = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", dir.path().join("jobs.db").display());
    let text = list(Some(&store), &targets, &[job]);
    let mut daemon = Daemon::on("web1", text.as_str()).start();
    daemon.wait_log(&["finished after"]);
    daemon.kill();
    let ran = chrono::Utc::now();
    wait_until("three occurrences were missed", || {
        chrono::Utc::now() - ran > chrono::Duration::seconds(3)
    });
    let _daemon = Daemon::on("web1", text.as_str()).start();
    let missed = first(&receiver);
    assert_eq!(missed["record"]["outcome"], "missed", "{missed}");
    assert!(missed["record"]["count"].as_u64() >= Some(2), "{missed}");
}

#[test]
fn a_row_of_failures_is_reported_from_the_third_on() {
    let receiver = Receiver::start();
    let targets = [format!(
        "ops: {{ webhook: '{}', after: 3 }}",
        receiver.url("/")
    )];
    let job = "{ name: job, notify: ops, every: 1s, command: 'false' }".to_owned();
    let _daemon = Daemon::on("web1", list(None, &targets, &[job])).start();
    let third = first(&receiver);
    assert_eq!(third["in_a_row"], 3, "{third}");
    assert!(
        third["text"]
            .as_str()
            .unwrap()
            .contains(", 3 occurrences in a row without success"),
        "{third}"
    );
}

#[test]
fn a_run_by_hand_is_reported_as_any_other() {
    a_run_by_hand_is_reported("schedule: '@yearly'");
}

#[test]
fn a_run_by_hand_of_a_disabled_job_is_reported_too() {
    a_run_by_hand_is_reported("schedule: '@yearly', enabled: false");
}

/// The events that a request tells of. A command that ends while the target is slow sends what is left as one
/// digest.
fn events_in(request: &Request) -> Vec<String> {
    if request.path != "/" {
        return vec![request.path.clone()];
    }
    let body = request.json();
    let Some(counts) = body["counts"].as_object() else {
        return vec![body["event"].as_str().expect("a word").to_owned()];
    };
    let times = |count: &serde_json::Value| usize::try_from(count.as_u64().expect("a count"));
    let each = |(event, count): (&String, _)| vec![event.clone(); times(count).expect("a few")];
    counts.iter().flat_map(each).collect()
}

#[track_caller]
fn a_run_by_hand_is_reported(fields: &str) {
    let receiver = Receiver::start();
    let targets = [format!(
        "ops: {{ webhook: '{}', on: [started, failed] }}",
        receiver.url("/")
    )];
    let job = format!(
        "{{ name: job, notify: ops, ping: '{}', {fields}, command: 'exit 4' }}",
        receiver.url("/ping/{status}")
    );
    let daemon = Daemon::on("web1", list(None, &targets, &[job])).start();
    daemon
        .ask(&["trigger", "--here", "job", "--wait"])
        .expect_code(4);
    let events = || {
        let mut events: Vec<_> = receiver.received().iter().flat_map(events_in).collect();
        events.sort();
        events
    };
    assert_eq!(events(), ["/ping/fail", "/ping/start", "failed", "started"]);
    daemon.ask(&["trigger", "--here", "job"]).expect_code(0);
    wait_until("the second run was reported", || events().len() == 8);
    daemon.ask(&["trigger", "job", "--wait"]).expect_code(4);
    wait_until("that of the daemon, too", || events().len() == 12);
}
