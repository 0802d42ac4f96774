//! The examples for Kubernetes and for containers agree with the program. `make test-packages` judges
//! them with the tools that read them.

use std::fs;
use std::path::Path;

use serde::Deserialize as _;
use serde_json::Value;

use crate::docs::ROOT;
use crate::support::{Output, command};

fn cronlatch(dir: &Path, args: &[&str]) -> Output {
    let mut cronlatch = command::command(command::BINARY);
    cronlatch.args(args).current_dir(dir);
    cronlatch.env("STATE_DIRECTORY", dir);
    cronlatch.env("CRONLATCH_HOST", "pod");
    cronlatch.env("CRONLATCH_HEALTH_FILE", "/none");
    command::output(cronlatch)
}

/// Fails if the program does not understand a command line, whose first word is its path.
#[track_caller]
fn assert_understood(dir: &Path, line: &[&str]) {
    assert_eq!(line[0], "/usr/bin/cronlatch");
    let helped = [&line[1..], &["--help"]].concat();
    cronlatch(dir, &helped).expect_code(0);
}

fn words(list: &Value) -> Vec<&str> {
    let words = list.as_array().expect("a list").iter();
    words.map(|word| word.as_str().expect("a word")).collect()
}

#[test]
fn the_kubernetes_example_has_a_list_that_loads_and_commands_that_exist() {
    let text =
        fs::read_to_string(Path::new(ROOT).join("deploy/kubernetes/cronlatch.yaml")).unwrap();
    let objects: Vec<Value> = serde_yaml::Deserializer::from_str(&text)
        .map(|object| Value::deserialize(object).unwrap())
        .collect();
    let of_kind = |kind: &str| {
        let found = objects.iter().find(|object| object["kind"] == kind);
        found.unwrap_or_else(|| panic!("no {kind}"))
    };
    let dir = tempfile::tempdir().unwrap();
    let list = of_kind("ConfigMap")["data"]["jobs.yaml"].as_str().unwrap();
    fs::write(dir.path().join("jobs.yaml"), list).unwrap();
    let checked = cronlatch(dir.path(), &["check", "jobs.yaml", "--json"]).expect_code(0);
    let checked = checked.json_lines().remove(0);
    assert_eq!(checked["warnings"], serde_json::json!([]));

    let pod = &of_kind("Deployment")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_understood(dir.path(), &words(&container["command"]));
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let line = words(&container[probe]["exec"]["command"]);
        assert_understood(dir.path(), &line);
        assert_eq!(line[1], "health");
    }
    // A pod that is killed before its drain is over ends its runs.
    let drain = list.lines().find_map(|l| l.strip_prefix("drain_timeout: "));
    let drain = drain.and_then(|drain| drain.strip_suffix('m'));
    let drain: u64 = drain.expect("minutes").parse::<u64>().unwrap() * 60;
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(grace >= drain + 15, "{grace} s for a drain of {drain} s");
    // What the list and the environment name is mounted.
    let mounts = container["volumeMounts"].as_array().unwrap().iter();
    let mounts: Vec<&str> = mounts.map(|m| m["mountPath"].as_str().unwrap()).collect();
    for place in [
        "/etc/cronlatch",
        "/run/secrets/cronlatch",
        "/var/lib/cronlatch",
    ] {
        assert!(mounts.contains(&place), "{place} in {mounts:?}");
    }
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
}

#[test]
fn the_image_runs_a_daemon_that_is_not_root_and_checks_its_health() {
    let docker = Path::new(ROOT).join("packaging/docker");
    let text = fs::read_to_string(docker.join("Dockerfile")).unwrap();
    // A backslash at the end of a line goes on in the next.
    let text = text.replace("\\\n", " ");
    let (_, image) = text.split_once("\nFROM scratch\n").expect("the last stage");
    let instruction = |name: &str| {
        let found = image.lines().find_map(|line| line.strip_prefix(name));
        found
            .unwrap_or_else(|| panic!("no {name}"))
            .trim()
            .to_owned()
    };
    let list = |json: &str| -> Vec<String> { serde_json::from_str(json).unwrap() };
    let dir = tempfile::tempdir().unwrap();
    let started = [list(&instruction("ENTRYPOINT")), list(&instruction("CMD"))].concat();
    let started: Vec<&str> = started.iter().map(String::as_str).collect();
    assert_understood(dir.path(), &started);
    let health = instruction("HEALTHCHECK");
    let (_, health) = health.split_once("CMD ").expect("a command");
    let health = list(health);
    let health: Vec<&str> = health.iter().map(String::as_str).collect();
    assert_understood(dir.path(), &health);

    let (uid, gid) = instruction("USER")
        .split_once(':')
        .map(owned)
        .expect("both");
    assert_ne!(uid, "0");
    let account = format!("cronlatch:x:{uid}:{gid}:");
    let passwd = fs::read_to_string(docker.join("passwd")).unwrap();
    assert!(passwd.contains(&account), "{account} in {passwd}");
    // Each variable is one that the program reads.
    for variable in [
        "STATE_DIRECTORY",
        "CRONLATCH_CONFIG",
        "CRONLATCH_HEALTH_FILE",
    ] {
        assert!(
            instruction("ENV").contains(&format!("{variable}=")),
            "{variable}"
        );
    }
}

fn owned((a, b): (&str, &str)) -> (String, String) {
    (a.to_owned(), b.to_owned())
}
