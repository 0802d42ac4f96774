//! Addresses and keys of targets are shown nowhere.

use crate::support::{Daemon, Receiver, Reply, wait_until};

use super::{list, wait_request};

const SECRETS: [&str; 4] = [
    "S3CRETPATH",
    "S3CRETHEADER",
    "S3CRETKEYS3CRETKEY",
    "S3CRETPING",
];

#[track_caller]
fn assert_hidden(what: &str, text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} is in {what}:\n{text}");
    }
}

fn secret_list(receiver: &Receiver) -> String {
    let targets = [
        format!(
            "ops: {{ webhook: '{}', headers: {{ X-Any: S3CRETHEADER }}, on: [failed] }}",
            receiver.url("/S3CRETPATH?key=S3CRETPATH")
        ),
        format!(
            "pager: {{ webhook: '{}', template: pagerduty, routing_key: S3CRETKEYS3CRETKEY }}",
            receiver.url("/pager")
        ),
    ];
    let job = format!(
        "{{ name: job, every: 1s, notify: [ops, pager], ping: '{}', command: 'false' }}",
        receiver.url("/S3CRETPING")
    );
    list(None, &targets, &[job])
}

#[test]
fn check_status_and_logs_do_not_show_them() {
    let receiver = Receiver::start().with_reply(Reply::Status(500));
    let builder = Daemon::on("web1", secret_list(&receiver));
    let mut daemon = builder.env("RUST_LOG", "trace,cronlatch=trace").start();
    daemon.wait_log(&["cannot notify ops", "HTTP status 500"]);
    daemon.wait_log(&["cannot notify pager", "HTTP status 500"]);
    receiver.set_reply(Reply::Status(200));
    daemon.wait_log(&["notified ops"]);
    for args in [
        &["check"][..],
        &["check", "--json"],
        &["status"],
        &["status", "--json"],
        &["history", "--json"],
        &["doctor"],
        &["notify-test", "ops"],
        &["notify-test", "pager"],
    ] {
        let list = daemon.list().display().to_string();
        let mut args: Vec<&str> = args.to_vec();
        if args[0] == "check" {
            args.push(&list);
        }
        let said = daemon.ask(&args);
        assert_hidden(&args.join(" "), &format!("{}{}", said.stdout, said.stderr));
    }
    receiver.set_reply(Reply::Status(403));
    let said = daemon.ask(&["notify-test", "ops"]).expect_code(69);
    assert_hidden("the error of notify-test", &said.stderr);
    assert!(daemon.terminate().success());
    assert_hidden("the log", &daemon.log());
}

#[test]
fn jobs_do_not_inherit_the_variables_that_hold_them() {
    let receiver = Receiver::start();
    let dir = tempfile::tempdir().unwrap();
    let seen = dir.path().join("seen");
    let targets = ["ops: { webhook: '${HOOK_URL}', headers: { X-Any: '${HOOK_KEY}' } }".to_owned()];
    let job = format!(
        "{{ name: job, every: 1s, notify: ops, ping: '${{PING_URL}}', \
         command: 'env > {0}.new && mv {0}.new {0}; false' }}",
        seen.display()
    );
    let _daemon = Daemon::on("web1", list(None, &targets, &[job]))
        .env("HOOK_URL", receiver.url("/S3CRETPATH"))
        .env("HOOK_KEY", "S3CRETHEADER")
        .env("PING_URL", receiver.url("/S3CRETPING"))
        .env("PLAIN", "inherited")
        .start();
    wait_until("the job has run", || seen.exists());
    let environment = std::fs::read_to_string(&seen).unwrap();
    assert!(environment.contains("PLAIN=inherited"), "{environment}");
    assert_hidden("the environment of the job", &environment);
    let request = wait_request(&receiver, "/S3CRETPATH", |_| true);
    assert_eq!(request.headers["x-any"], "S3CRETHEADER");
}
