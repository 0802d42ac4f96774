//! Each kind of target receives messages in its own form.

use crate::support::{Daemon, Receiver, Reply, wait_for, wait_until};

use super::{list, mails, sendmail, wait_request};

const KEY: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn every_kind_of_target_receives_a_failure_in_its_own_form() {
    let receiver = Receiver::start();
    let dir = tempfile::tempdir().unwrap();
    let (sendmail, file) = (sendmail(dir.path()), dir.path().join("message"));
    let url = |path: &str| receiver.url(path);
    let targets = [
        format!("s: {{ slack: '{}' }}", url("/slack")),
        format!("d: {{ discord: '{}' }}", url("/discord")),
        format!("t: {{ teams: '{}' }}", url("/teams")),
        format!(
            "n: {{ ntfy: '{}', headers: {{ Authorization: Bearer x }} }}",
            url("/ntfy")
        ),
        format!(
            "p: {{ webhook: '{}', template: pagerduty, routing_key: {KEY} }}",
            url("/pagerduty")
        ),
        format!("j: {{ webhook: '{}' }}", url("/json")),
        format!(
            "c: {{ command: 'cat > {0}.new && mv {0}.new {0}' }}",
            file.display()
        ),
        format!(
            "m: {{ mail: ops@example.org, sendmail: {} }}",
            sendmail.display()
        ),
    ];
    let job = "{ name: broken, every: 1s, notify: [s, d, t, n, p, j, c, m], \
               command: 'echo \"last <words>\"; exit 3' }";
    let daemon = Daemon::on("web1", list(None, &targets, &[job.to_owned()])).start();
    let first = |path: &str| wait_request(&receiver, path, |_| true);

    let slack = first("/slack").json();
    let text = slack["text"].as_str().unwrap();
    assert!(
        text.starts_with(":warning: broken failed on web1 with exit code 3"),
        "{text}"
    );
    assert!(text.ends_with("\n```last &lt;words&gt;```"), "{text}");

    let discord = first("/discord").json();
    let content = discord["content"].as_str().unwrap();
    assert!(content.ends_with("\n```last <words>```"), "{content}");
    assert_eq!(
        discord["allowed_mentions"]["parse"]
            .as_array()
            .unwrap()
            .len(),
        0
    );

    let card = &first("/teams").json()["attachments"][0]["content"];
    assert_eq!(card["type"], "AdaptiveCard");
    assert_eq!(card["body"][1]["text"], "last <words>");

    let ntfy = first("/ntfy");
    assert_eq!(ntfy.headers["title"], "[cronlatch] broken: failed");
    assert_eq!(ntfy.headers["priority"], "high");
    assert_eq!(ntfy.headers["authorization"], "Bearer x");
    assert!(
        ntfy.body
            .starts_with("broken failed on web1 with exit code 3"),
        "{ntfy:?}"
    );

    let pagerduty = first("/pagerduty").json();
    assert_eq!(pagerduty["routing_key"], KEY);
    assert_eq!(pagerduty["event_action"], "trigger");
    assert_eq!(pagerduty["dedup_key"], "cronlatch/broken");
    assert_eq!(
        pagerduty["payload"]["custom_details"]["record"]["exit_code"],
        3
    );

    let json = first("/json");
    assert_eq!(json.headers["content-type"], "application/json");
    let json = json.json();
    assert_eq!(json["event"], "failed");
    assert_eq!(json["job"], "broken");
    assert_eq!(json["host"], "web1");
    assert_eq!(json["record"]["outcome"], "failed");

    let message = wait_for("the program has the message", || {
        std::fs::read_to_string(&file).ok()
    });
    let message: serde_json::Value = serde_json::from_str(&message).unwrap();
    assert!(
        ["failed", "digest"]
            .iter()
            .any(|event| message["event"] == *event),
        "{message}"
    );

    let is_first = |mail: &&String| mail.contains("Subject: [cronlatch] broken: failed\n");
    let mail = wait_for("a mail", || {
        mails(dir.path()).iter().find(is_first).cloned()
    });
    assert!(
        mail.starts_with("arguments: -i -- ops@example.org\nTo: ops@example.org\n"),
        "{mail}"
    );
    assert!(
        mail.contains("\nAuto-Submitted: auto-generated\n"),
        "{mail}"
    );
    assert!(mail.contains("\n\nlast <words>\n"), "{mail}");
    drop(daemon);
}

#[test]
fn a_job_notifies_only_its_own_targets_of_the_events_that_they_receive() {
    let receiver = Receiver::start();
    let targets = [
        format!(
            "all: {{ webhook: '{}', on: [started, succeeded] }}",
            receiver.url("/all")
        ),
        format!("bad: {{ webhook: '{}' }}", receiver.url("/bad")),
        format!(
            "other: {{ webhook: '{}', on: [started] }}",
            receiver.url("/other")
        ),
    ];
    let jobs = [
        "{ name: good, every: 1s, notify: [all, bad], command: 'true' }".to_owned(),
        "{ name: quiet, every: 1s, command: 'true' }".to_owned(),
        "{ name: off, schedule: '@yearly', notify: other, command: 'true' }".to_owned(),
    ];
    let mut daemon = Daemon::on("web1", list(None, &targets, &jobs)).start();
    wait_until("two runs of `good` were reported", || {
        receiver.at("/all").len() >= 4
    });
    assert!(daemon.terminate().success());
    let all = receiver.at("/all");
    let is_expected = |json: &serde_json::Value| json["job"] == "good" || json["event"] == "digest";
    assert!(
        all.iter().all(|request| is_expected(&request.json())),
        "{all:#?}"
    );
    assert_eq!(receiver.at("/bad").len() + receiver.at("/other").len(), 0);
}

#[test]
fn notify_test_sends_a_sample_and_explains_failures() {
    let receiver = Receiver::start();
    let dir = tempfile::tempdir().unwrap();
    let targets = [
        format!("ops: {{ slack: '{}' }}", receiver.url("/slack")),
        format!(
            "pager: {{ webhook: '{}', template: pagerduty }}",
            receiver.url("/pager")
        ),
        format!(
            "post: {{ mail: ops@example.org, sendmail: {} }}",
            sendmail(dir.path()).display()
        ),
        "broken: { command: 'echo no route >&2; exit 3' }".to_owned(),
    ];
    let job =
        "{ name: a, schedule: '@yearly', notify: [ops, pager, post, broken], command: 'true' }";
    let daemon = Daemon::on("web1", list(None, &targets, &[job.to_owned()])).start();

    let sent = daemon.ask(&["notify-test", "ops"]).expect_code(0);
    let expected = format!("sent a sample to ops (slack at {}/***)\n", receiver.url(""));
    assert_eq!(sent.stdout, expected);
    let text = receiver.at("/slack")[0].json()["text"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(text.contains("sample message"), "{text}");

    daemon.ask(&["notify-test", "pager"]).expect_code(0);
    let actions: Vec<_> = receiver
        .at("/pager")
        .iter()
        .map(|it| it.json()["event_action"].clone())
        .collect();
    assert_eq!(actions, ["trigger", "resolve"]);

    daemon.ask(&["notify-test", "post"]).expect_code(0);
    assert_eq!(mails(dir.path()).len(), 1);

    let failed = daemon.ask(&["notify-test", "broken"]).expect_code(69);
    assert!(
        failed.stderr.contains("exit status: 3: no route"),
        "{failed:?}"
    );
    receiver.set_reply(Reply::Status(404));
    let failed = daemon.ask(&["notify-test", "ops"]).expect_code(69);
    assert!(failed.stderr.contains("HTTP status 404"), "{failed:?}");

    let unknown = daemon.ask(&["notify-test", "opz"]).expect_code(64);
    assert!(unknown.stderr.contains("did you mean ops?"), "{unknown:?}");
}
