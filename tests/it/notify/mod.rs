//! Notifications and pings, with real receivers: HTTP servers with faults, programs, and a stand-in
//! for sendmail.

mod events;
mod faults;
mod fleet;
mod pings;
mod reload;
mod secrets;
mod targets;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::receiver::Request;
use crate::support::{Receiver, wait_for};

/// A list: `notify:` with these targets, and these jobs. Each line is one entry.
fn list(store: Option<&str>, targets: &[String], jobs: &[String]) -> String {
    let mut list = String::new();
    if let Some(store) = store {
        let _ = writeln!(list, "store: {store}");
    }
    list += "notify:\n";
    for target in targets {
        let _ = writeln!(list, "  {target}");
    }
    list += "jobs:\n";
    for job in jobs {
        let _ = writeln!(list, "  - {job}");
    }
    list
}

/// Waits for the first request at this path that fits.
#[track_caller]
fn wait_request(receiver: &Receiver, path: &str, fits: impl Fn(&Request) -> bool) -> Request {
    wait_for(&format!("a request at {path}"), || {
        receiver.at(path).into_iter().find(&fits)
    })
}

/// How many occurrences have had this event, by what a JSON target received: single messages and
/// digests.
fn occurrences(requests: &[Request], event: &str) -> u64 {
    let of = |json: &Value| match json["event"].as_str() {
        Some("digest") => json["counts"][event].as_u64().unwrap_or(0),
        Some(own) if own == event => json["record"]["count"].as_u64().unwrap_or(1),
        _ => 0,
    };
    requests.iter().map(|request| of(&request.json())).sum()
}

/// The single messages with this event.
fn singles(requests: &[Request], event: &str) -> Vec<Value> {
    let all = requests.iter().map(Request::json);
    all.filter(|json| json["event"] == event).collect()
}

/// A program that stands in for sendmail: each mail becomes a file of the directory, arguments
/// first.
fn sendmail(dir: &Path) -> PathBuf {
    let path = dir.join("sendmail");
    let mails = dir.join("mails");
    std::fs::create_dir(&mails).unwrap();
    program(
        &path,
        &format!(
            "{{ echo \"arguments: $*\"; cat; }} > {0}/.$$ && mv {0}/.$$ {0}/$$",
            mails.display()
        ),
    );
    path
}

/// What the stand-in in this directory has taken.
fn mails(dir: &Path) -> Vec<String> {
    let files = std::fs::read_dir(dir.join("mails"))
        .unwrap()
        .map(|entry| entry.unwrap());
    let whole = files.filter(|file| !file.file_name().to_string_lossy().starts_with('.'));
    whole
        .map(|file| std::fs::read_to_string(file.path()).unwrap())
        .collect()
}

/// Writes a shell script.
fn program(path: &Path, script: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    // Renamed: a file that is being written, also by a fork of this process, cannot be executed.
    let new = path.with_extension("new");
    std::fs::write(&new, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&new, path).unwrap();
}
