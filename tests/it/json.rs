//! JSON: one description of what commands print, errors, and no token anywhere.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::docs::ROOT;
use crate::support::{Daemon, Output, RedisServer, cronlatch, schema, wait_for};

/// The commands that take `--json`, from their help.
fn commands_with_json() -> Vec<String> {
    let help = cronlatch(&["--help"]).expect_code(0).stdout;
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let names = list.lines().take_while(|line| line.starts_with("  "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .filter(|name| {
            let help = cronlatch(&[name, "--help"]).stdout;
            help.lines()
                .any(|line| line.trim_start().starts_with("--json"))
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_with_json_is_described() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/json.md")).unwrap();
    let commands = commands_with_json();
    assert!(commands.len() >= 14, "{commands:?}");
    for command in commands {
        let objects = schema::of_command(&command);
        assert!(!objects.is_empty(), "{command} has no schema");
        let row = page.lines().find(|line| {
            let commands = line.split('|').nth(1).unwrap_or_default();
            commands.contains(&format!("`{command} --json`"))
        });
        let row = row.unwrap_or_else(|| panic!("docs/json.md lacks {command}"));
        for object in objects {
            assert!(page.contains(&format!("[{object}](#{object})")), "{row}");
        }
    }
}

/// How the page shows a type.
fn shown_type(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        return format!("[{name}](#{name})");
    }
    if let Some(either) = schema["anyOf"].as_array() {
        return format!("{} or null", shown_type(&either[0]));
    }
    let (name, or_null) = match &schema["type"] {
        Value::Array(types) => (types[0].as_str().unwrap(), " or null"),
        name => (name.as_str().unwrap(), ""),
    };
    match name {
        "array" => format!("list of {}", shown_type(&schema["items"])),
        "string" if schema["format"] == "date-time" => format!("time{or_null}"),
        name => format!("{name}{or_null}"),
    }
}

#[test]
fn the_page_shows_each_object_as_the_schema_has_it() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/json.md")).unwrap();
    for (name, schema) in schema::definitions() {
        let (_, section) = page
            .split_once(&format!("\n### {name}\n"))
            .unwrap_or_else(|| panic!("docs/json.md lacks {name}"));
        let section = section.split("\n### ").next().unwrap();
        let described = schema["description"].as_str().unwrap();
        assert!(section.contains(described), "{name}: {described}");
        for word in schema["enum"].as_array().into_iter().flatten() {
            let word = word.as_str().unwrap();
            assert!(section.contains(&format!("`{word}`")), "{name}: {word}");
        }
        let Some(properties) = schema["properties"].as_object() else {
            continue;
        };
        let required = schema["required"].as_array().unwrap();
        for (property, rule) in properties {
            let is_required = required.contains(&json!(property));
            let optional = if is_required { "" } else { " (optional)" };
            let meaning = rule["description"].as_str().unwrap();
            let row = format!(
                "| `{property}`{optional} | {} | {meaning}",
                shown_type(rule)
            );
            assert!(section.contains(&row), "{name}: {row}");
        }
        let rows = section.lines().filter(|line| line.starts_with("| `"));
        assert_eq!(rows.count(), properties.len(), "{name}");
    }
    let printed = cronlatch(&["schema", "output"]).expect_code(0).stdout;
    let file = fs::read_to_string(Path::new(ROOT).join("docs/json.schema.json")).unwrap();
    assert_eq!(printed, file);
}

/// A job that is held up until a file is there, one that fails, and one that is due once a year.
fn list(store: &str, go_on: &Path) -> String {
    let wait = format!("while ! [ -e {} ]; do sleep 0.05; done", go_on.display());
    json!({
        "store": store,
        "http": { "listen": "127.0.0.1:0" },
        "notify": { "tell": { "command": ["/bin/true"] } },
        "output": { "keep": "all" },
        "jobs": [
            { "name": "held", "every": "1s", "command": wait, "lock": { "ttl": "10s" } },
            { "name": "fails", "every": "1s", "command": "echo out; echo err >&2; exit 3" },
            { "name": "quiet", "schedule": "@yearly", "command": "true", "notify": ["tell"] },
            { "name": "other", "schedule": "@yearly", "command": "sleep 600", "jitter": "5m" },
        ],
    })
    .to_string()
}

/// The run of a job that is in progress.
fn running(daemon: &Daemon, job: &str) -> Value {
    wait_for(&format!("{job} runs"), || {
        let status = daemon.ask(&["status", "--json"]).expect_code(0);
        let status = status.json_lines().remove(0);
        let mut jobs = status["jobs"].as_array()?.iter();
        let run = jobs.find(|it| it["name"] == job)?["running"].clone();
        run.is_object().then_some(run)
    })
}

#[track_caller]
fn lines(said: Output) -> Vec<Value> {
    let lines = said.expect_code(0).json_lines();
    assert!(!lines.is_empty(), "no output");
    lines
}

/// Each output is compared with the schema as it is read (`support::command`).
#[test]
fn what_each_command_prints_follows_the_schema() {
    let redis = RedisServer::start();
    let dir = tempfile::tempdir().unwrap();
    let go_on = dir.path().join("go-on");
    let mut daemon = Daemon::on("web1", list(&redis.url(), &go_on))
        .arg("--log-format=json")
        .start();
    let held = running(&daemon, "held");
    let failed = wait_for("a run has failed", || {
        let said = daemon.ask(&["history", "fails", "--json"]).expect_code(0);
        said.json_lines().pop()
    });
    let ask = |args: &[&str]| daemon.ask(&[args, &["--json"]].concat());
    let (file, run_id) = (daemon.list(), failed["run_id"].as_str().unwrap());
    let file = file.to_str().unwrap();
    assert_eq!(lines(ask(&["check", file])).len(), 1);
    assert_eq!(lines(ask(&["next", file])).len(), 4);
    lines(ask(&["next", "--expr", "@daily"]));
    let checked = ask(&["status", "--check"]).expect_code(2).json_lines();
    assert_eq!(checked[0]["status"], "critical");
    assert!(lines(ask(&["logs", run_id])).len() >= 4);
    assert_eq!(
        lines(ask(&["explain", "held"]))[0]["hosts"][0]["host"],
        "web1"
    );
    lines(ask(&["explain", "quiet"]));
    let doctor = ask(&["doctor"]).json_lines();
    assert!(doctor[0]["findings"].as_array().unwrap().len() > 5);
    assert_eq!(
        lines(ask(&["pause", "quiet", "--reason", "why"]))[0]["paused"],
        true
    );
    assert_eq!(lines(ask(&["resume", "quiet"]))[0]["changed"], true);
    let started = lines(ask(&["trigger", "other"])).remove(0);
    let other = started["run_id"].as_str().unwrap();
    let killed = lines(ask(&["kill", other, "--wait", "--reason", "enough"]));
    assert_eq!(
        (&killed[0]["run_id"], &killed[0]["outcome"]),
        (&started["run_id"], &"stopped".into())
    );
    assert_eq!(
        lines(ask(&["trigger", "quiet", "--wait"]))[0]["outcome"],
        "succeeded"
    );
    let requests = lines(ask(&["status"])).remove(0)["requests"].clone();
    assert_eq!(requests.as_array().unwrap().len(), 5, "{requests:#}");
    assert_eq!(
        lines(ask(&["forget", "other", "--force"]))[0]["job"],
        "other"
    );
    let unlocked = lines(ask(&["unlock", "held", "--force", "--yes"])).remove(0);
    assert_eq!(
        (&unlocked["released"], &unlocked["run_id"]),
        (&true.into(), &held["run_id"])
    );
    let crontab = dir.path().join("crontab");
    fs::write(&crontab, "@reboot true\n* * * * * echo %\n").unwrap();
    let imported = cronlatch(&["import", crontab.to_str().unwrap(), "--json"]);
    assert!(lines(imported)[0]["report"].as_array().unwrap().len() > 1);
    fs::write(&go_on, "").unwrap();
    assert!(daemon.terminate().success());
    let log = daemon.log();
    let log: Vec<&str> = log.lines().collect();
    assert!(log.len() > 10);
    for line in log {
        schema::assert_one_of(&["log_line"], line);
    }
}

#[test]
fn an_error_is_one_object_on_standard_error_with_the_same_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = path(
        "good.yaml",
        "jobs: [{ name: backup, every: 1h, command: 'true' }]",
    );
    let bad = path(
        "bad.yaml",
        "jobs:\n- { name: a, evry: 1h, command: x }\n- { name: b, schedule: 'x', command: x }\n",
    );
    let gone = path(
        "gone.yaml",
        "store: redis://127.0.0.1:1/0\njobs: [{ name: a, every: 1h, command: x }]",
    );
    let store = format!("sqlite:{}", dir.path().join("s.db").display());
    cronlatch(&["init", "--store", &store]).expect_code(0);
    let cases: [(&[&str], i32, &str, &str); 8] = [
        (&["status", "-c", &gone], 69, "unavailable", ""),
        (&["history", "-c", &bad], 78, "config", ""),
        (&["next", "--expr", "61 * * * *"], 78, "config", ""),
        (
            &["explain", "bakcup", "-c", &good, "--store", &store],
            64,
            "usage",
            "did you mean backup?",
        ),
        (
            &["kill", "backup", "-c", &good, "--store", &store],
            75,
            "not_acquired",
            "",
        ),
        (
            &["status", "--jsno"],
            64,
            "usage",
            "a similar argument exists: '--json'",
        ),
        (&["logs"], 64, "usage", "Usage: cronlatch logs"),
        (&["next", "/does/not/exist"], 78, "config", ""),
    ];
    for (args, exit_code, code, hint) in cases {
        let without = cronlatch(args).expect_code(exit_code);
        assert!(
            serde_json::from_str::<Value>(&without.stderr).is_err(),
            "{without:?}"
        );
        let said = cronlatch(&[args, &["--json"]].concat()).expect_code(exit_code);
        assert_eq!(
            (said.stdout.as_str(), said.stderr.lines().count()),
            ("", 1),
            "{said:?}"
        );
        let object: Value = serde_json::from_str(&said.stderr).unwrap();
        schema::assert_valid("error", &object);
        let error = &object["error"];
        assert_eq!(
            (&error["code"], &error["exit_code"]),
            (&code.into(), &exit_code.into())
        );
        assert!(
            !error["message"].as_str().unwrap().starts_with("error"),
            "{error}"
        );
        let found = error["hint"].as_str().unwrap_or_default();
        assert!(found.contains(hint), "{error}");
    }
    let said = cronlatch(&["history", "-c", &bad, "--json"]).expect_code(78);
    let error: Value = serde_json::from_str(&said.stderr).unwrap();
    let errors = error["error"]["errors"].as_array().unwrap();
    assert_eq!(
        (&errors[0]["line"], errors.len()),
        (&2.into(), 2),
        "{error:#}"
    );
    // Behind `--` nothing is an option of ours.
    let said = cronlatch(&["exec", "--lokc", "a", "--", "echo", "--json"]).expect_code(64);
    assert!(said.stderr.starts_with("error: "), "{said:?}");
}

#[test]
fn no_command_log_or_page_contains_the_token_of_a_lock() {
    let redis = RedisServer::start();
    let dir = tempfile::tempdir().unwrap();
    let go_on = dir.path().join("go-on");
    let start = |host: &str| {
        Daemon::on(host, list(&redis.url(), &go_on))
            .arg("--log-level=trace")
            .start()
    };
    let (mut one, mut two) = (start("web1"), start("web2"));
    let held = running(&one, "held");
    let token = redis.text(&["GET", "cronlatch:{held}:lock"]);
    let random = token.rsplit(':').next().unwrap();
    assert_eq!((token.split(':').count(), random.len()), (4, 32), "{token}");
    let run_id = held["run_id"].as_str().unwrap();
    assert!(token.contains(run_id));
    wait_for("the other host finds the lock held", || {
        let skipped = ["skipped", "job=held"];
        (one.lines_with(&skipped) + two.lines_with(&skipped) > 0).then_some(())
    });
    let list = one.list();
    let list = list.to_str().unwrap();
    let mut texts = Vec::new();
    let mut ask = |args: &[&str]| {
        let said = one.ask(args);
        texts.push(format!("{args:?}\n{}{}", said.stdout, said.stderr));
    };
    for command in [
        &["status"][..],
        &["status", "--check"],
        &["history"],
        &["history", "held"],
        &["explain", "held"],
        &["doctor"],
        &["check", list],
        &["next", list],
        &["logs", run_id],
        // These fail, and name the holder.
        &["unlock", "held"],
        &["unlock", "held", "--yes"],
        &["forget", "held"],
        &["trigger", "held"],
        &["trigger", "held", "--here"],
        &["kill", run_id, "--signal", "WINCH"],
    ] {
        ask(command);
        ask(&[command, &["--json"]].concat());
    }
    ask(&["exec", "--lock", "held", "--", "true"]);
    let at = crate::http::address(&mut one);
    for path in [
        "/metrics",
        "/healthz",
        "/readyz",
        "/api/v1/status",
        "/api/v1/history",
        "/api/v1/jobs",
        "/api/v1/runs",
        "/api/v1/hosts",
    ] {
        texts.push(crate::http::get(at, path).body);
    }
    assert!(
        texts
            .iter()
            .any(|text| text.contains(&token.replace(random, "***")))
    );
    fs::write(&go_on, "").unwrap();
    for daemon in [&mut one, &mut two] {
        assert!(daemon.terminate().success());
        texts.push(daemon.log());
    }
    assert!(texts.iter().any(|text| text.contains(run_id)));
    for text in texts {
        assert!(!text.contains(random), "{text}");
    }
}
