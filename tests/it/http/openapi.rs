//! `docs/openapi.json` compared with the replies of a real daemon, and the calendar.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{ACT, address, get, post, serving};
use crate::docs::ROOT;
use crate::support::{Daemon, schema, wait_for, wait_until};

pub(super) fn description() -> Value {
    let path = Path::new(ROOT).join("docs/openapi.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The name behind the last slash of a reference.
fn name_of(reference: &Value) -> &str {
    reference["$ref"]
        .as_str()
        .unwrap()
        .rsplit('/')
        .next()
        .unwrap()
}

/// Rewrites the references of a definition to where the description has them.
fn moved(schema: &Value) -> Value {
    let text = schema
        .to_string()
        .replace("#/$defs/", "#/components/schemas/");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn the_description_has_the_schemas_of_the_commands() {
    let description = description();
    let schemas = description["components"]["schemas"].as_object().unwrap();
    // Lines of two kinds.
    for (name, schema) in schemas.iter().filter(|(name, _)| *name != "output_item") {
        assert_eq!(*schema, moved(&schema::definitions()[name]), "{name}");
    }
    let text = description.to_string();
    let references = text.split("\"$ref\":\"#/").skip(1);
    for reference in references {
        let pointer = format!("/{}", reference.split('"').next().unwrap());
        assert!(description.pointer(&pointer).is_some(), "{pointer}");
    }
    let page = fs::read_to_string(Path::new(ROOT).join("docs/http.md")).unwrap();
    for path in description["paths"].as_object().unwrap().keys() {
        assert!(page.contains(&format!("\n| `{path}` |")), "{path}");
    }
}

/// Fails unless the reply is as the description of its path and status says.
#[track_caller]
pub(super) fn assert_described(operation: &Value, reply: &super::Reply) {
    let described = &operation["responses"][reply.status.to_string()];
    assert!(described.is_object(), "{reply:#?}");
    let (media, content) = described["content"]
        .as_object()
        .unwrap()
        .iter()
        .next()
        .unwrap();
    let found = reply.headers["content-type"].split(';').next().unwrap();
    assert_eq!(found, media, "{reply:#?}");
    match media.as_str() {
        "application/x-ndjson" => {
            for line in reply.body.lines() {
                match name_of(&content["schema"]) {
                    "output_item" => schema::assert_one_of(&["output_line", "output_note"], line),
                    name => schema::assert_one_of(&[name], line),
                }
            }
        }
        "application/json" if content["schema"]["$ref"].is_string() => {
            schema::assert_valid(name_of(&content["schema"]), &reply.json());
        }
        _ => assert!(!reply.body.is_empty()),
    }
}

#[test]
fn each_path_replies_as_it_is_described() {
    let description = description();
    let slow = "{ name: slow, every: 1s, command: 'sleep 600' }";
    let quick = "{ name: quick, every: 1s, command: 'exit 3' }";
    let mut daemon = Daemon::on("web1", serving(&[slow, quick, super::QUIET])).start();
    let at = address(&mut daemon);
    wait_until("a run is recorded and one in progress", || {
        !get(at, "/api/v1/runs").body.is_empty()
            && !get(at, "/api/v1/history?job=q*").body.is_empty()
    });
    for (path, item) in description["paths"].as_object().unwrap() {
        let operation = &item["get"];
        // The output of runs needs a token: see `logs`.
        if operation.is_null() || path == "/api/v1/logs" {
            continue;
        }
        let parameters = operation["parameters"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let query = |wanted: &dyn Fn(&Value) -> bool| {
            let chosen = parameters.iter().filter(|it| wanted(it)).map(|parameter| {
                let example = parameter["example"].to_string();
                format!(
                    "{}={}",
                    parameter["name"].as_str().unwrap(),
                    example.trim_matches('"')
                )
            });
            format!("{path}?{}", chosen.collect::<Vec<_>>().join("&"))
        };
        // With what it needs alone, and with each of the others.
        let needed = |it: &Value| it["required"] == true;
        let mut paths = vec![query(&needed)];
        paths.extend(
            parameters
                .iter()
                .map(|one| query(&|it| needed(it) || it == one)),
        );
        for path in paths {
            let reply = get(at, &path);
            assert_eq!(reply.status, 200, "{path}: {reply:#?}");
            assert_described(operation, &reply);
        }
        if operation["responses"]["400"].is_null() {
            continue;
        }
        // The error lists the parameters that there are.
        let reply = get(at, &format!("{path}?nothing=1"));
        let error = reply.error(400);
        let operation = &serde_json::json!({ "responses": {
            "400": description["components"]["responses"]["usage"],
        } });
        assert_described(operation, &reply);
        let names = parameters.iter().map(|it| it["name"].as_str().unwrap());
        let names: Vec<&str> = names.collect();
        let listed = match names[..] {
            [] => "this path takes none".to_owned(),
            _ => format!("the parameters are {}", names.join(", ")),
        };
        assert!(error.ends_with(&listed), "{path}: {error}");
        for parameter in parameters.iter().filter(|it| needed(it)) {
            let reply = get(at, path);
            let name = parameter["name"].as_str().unwrap();
            assert!(
                reply.error(400).contains(&format!("--{name}")),
                "{reply:#?}"
            );
        }
    }
    assert_eq!(get(at, "/api/v1/openapi.json").json(), description);
}

#[test]
fn each_action_replies_as_it_is_described() {
    let description = description();
    let dir = tempfile::tempdir().unwrap();
    let slow = "{ name: slow, every: 1s, command: 'sleep 600', kill_grace: 1s }";
    let list = super::with_tokens(dir.path(), &[slow, super::QUIET]);
    let mut daemon = Daemon::on("web1", list).start();
    let at = address(&mut daemon);
    wait_until("a run is in progress", || {
        !daemon
            .ask(&["status", "--json"])
            .expect_code(0)
            .json_lines()[0]["jobs"][0]["running"]
            .is_null()
    });
    let mut actions = 0;
    for (path, item) in description["paths"].as_object().unwrap() {
        let operation = &item["post"];
        if operation.is_null() {
            continue;
        }
        actions += 1;
        let content = &operation["requestBody"]["content"]["application/json"];
        let reply = post(at, path, ACT, &content["example"].to_string());
        assert_eq!(reply.status, 200, "{path}: {reply:#?}");
        assert_described(operation, &reply);
        // The error lists the fields that there are.
        let error = post(at, path, ACT, "{\"nothing\": 1}").error(400);
        let mut properties = content["schema"]["properties"].as_object().unwrap().keys();
        let (_, listed) = error.split_once("expected one of ").expect(&error);
        assert_eq!(
            listed.matches(", `").count(),
            properties.len() - 1,
            "{path}: {error}"
        );
        assert!(
            properties.all(|name| listed.contains(&format!("`{name}`"))),
            "{path}: {error}"
        );
        for name in content["schema"]["required"].as_array().unwrap() {
            let error = post(at, path, ACT, "{}").error(400);
            assert!(error.contains(name.as_str().unwrap()), "{path}: {error}");
        }
    }
    assert_eq!(actions, 4);
}

#[test]
fn an_explanation_is_that_of_the_command_and_a_calendar_names_each_occurrence() {
    let jobs = ["{ name: quick, every: 1s, command: 'true' }", super::QUIET];
    let mut daemon = Daemon::on("web1", serving(&jobs)).start();
    let at = address(&mut daemon);
    let scheduled_at = wait_for("a run has its record", || {
        let said = daemon.ask(&["history", "quick", "--json"]).expect_code(0);
        let record = said.json_lines().pop()?;
        Some(record["scheduled_at"].as_str()?.to_owned())
    });
    let path = format!("/api/v1/explain?job=quick&at={scheduled_at}");
    let said = daemon.ask(&["explain", "quick", "--at", &scheduled_at, "--json"]);
    let mut wanted = said.expect_code(0).json_lines().remove(0);
    let mut found = get(at, &path).json();
    assert_eq!(found["answer"], "ran");
    for value in [&mut wanted, &mut found] {
        value["now"] = Value::Null;
    }
    assert_eq!(found, wanted);
    assert!(
        get(at, "/api/v1/explain?job=qiuck")
            .error(400)
            .contains("quick")
    );

    let coming = get(at, "/api/v1/jobs?job=quiet&count=1").json()["occurrences"][0].clone();
    let coming = coming.as_str().unwrap().replace(['-', ':'], "");
    let events = |path: &str| {
        let reply = get(at, path);
        assert_eq!(
            reply.headers["content-type"],
            "text/calendar; charset=utf-8"
        );
        assert!(reply.body.ends_with("END:VCALENDAR\r\n"), "{reply:#?}");
        let lines = reply.body.lines().map(str::to_owned);
        lines
            .filter(|line| line.starts_with("UID:"))
            .collect::<Vec<_>>()
    };
    let quiet = events("/api/v1/calendar.ics?job=quiet&days=366&count=1");
    assert_eq!(quiet, [format!("UID:quiet-{coming}@cronlatch")]);
    assert_eq!(events("/api/v1/calendar.ics?job=quick&count=7").len(), 7);
    assert_eq!(events("/api/v1/calendar.ics?job=quick").len(), 100);
    for wrong in ["days=367", "days=0", "count=1001", "job=other"] {
        get(at, &format!("/api/v1/calendar.ics?{wrong}")).error(400);
    }
}
