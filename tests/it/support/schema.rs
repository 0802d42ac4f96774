//! The JSON Schema of what commands print (`docs/json.schema.json`), and whether a value follows it.
//!
//! Stricter than the schema itself: a property that it does not name is an error here, so that nothing
//! is printed that is not described.

use std::sync::LazyLock;

use chrono::DateTime;
use serde_json::{Map, Value};

const TEXT: &str = include_str!("../../../docs/json.schema.json");

static SCHEMA: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(TEXT).expect("JSON"));

/// The definitions, by name.
pub(crate) fn definitions() -> &'static Map<String, Value> {
    object(&SCHEMA["$defs"])
}

/// Fails unless the value follows the definition with this name.
#[track_caller]
pub(crate) fn assert_valid(name: &str, value: &Value) {
    let errors = errors(name, value);
    assert!(errors.is_empty(), "{name}: {errors:#?} in {value:#}");
}

/// Why the value does not follow the definition.
pub(crate) fn errors(name: &str, value: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    let schema = &definitions()[name];
    check(schema, name, value, &mut errors);
    errors
}

/// The objects that a command prints on standard output with `--json`.
pub(crate) fn of_command(command: &str) -> &'static [&'static str] {
    match command {
        "check" => &["check", "check_errors"],
        "next" => &["next"],
        "import" => &["import"],
        "status" => &["status", "status_check"],
        "history" => &["record"],
        "logs" => &["output_line", "output_note", "output_tail"],
        "explain" => &["explain"],
        "doctor" => &["doctor"],
        "trigger" => &["trigger", "record"],
        "kill" => &["kill"],
        "pause" | "resume" => &["pause_change"],
        "forget" => &["forget"],
        "unlock" => &["unlock"],
        _ => &[],
    }
}

/// Fails unless each line that a command with `--json` has printed is an object of that command, and
/// each line on standard error a remark or an error.
#[track_caller]
pub(crate) fn check_output(args: &[&str], stdout: &str, stderr: &str) {
    let options = args.iter().take_while(|arg| **arg != "--");
    let has = |option: &str| options.clone().any(|arg| *arg == option);
    if !has("--json") || has("--help") {
        return;
    }
    let Some(command) = options.clone().find(|arg| !of_command(arg).is_empty()) else {
        return;
    };
    for line in stdout.lines() {
        assert_one_of(of_command(command), line);
    }
    // It also has the output or the log of the run.
    if *command != "trigger" {
        for line in stderr.lines() {
            assert_one_of(&["error", "warning", "note"], line);
        }
    }
}

/// Fails unless the line is one of these objects.
#[track_caller]
pub(crate) fn assert_one_of(names: &[&str], line: &str) {
    let Ok(value) = serde_json::from_str::<Value>(line) else {
        panic!("not JSON: {line:?}");
    };
    let all: Vec<_> = names.iter().map(|name| errors(name, &value)).collect();
    let is_valid = all.iter().any(Vec::is_empty);
    assert!(is_valid, "none of {names:?}: {line}\n{all:#?}");
}

fn check(schema: &Value, at: &str, value: &Value, errors: &mut Vec<String>) {
    for (keyword, rule) in object(schema) {
        match keyword.as_str() {
            "description" | "required" | "additionalProperties" => {}
            "$ref" => {
                let name = rule.as_str().and_then(|it| it.strip_prefix("#/$defs/"));
                let name = name.expect("a definition");
                check(&definitions()[name], name, value, errors);
            }
            "anyOf" => {
                let mut all = Vec::new();
                let valid = list(rule).iter().any(|schema| {
                    let before = all.len();
                    check(schema, at, value, &mut all);
                    all.len() == before
                });
                if !valid {
                    errors.extend(all);
                }
            }
            "type" => {
                let types = match rule {
                    Value::Array(types) => types.clone(),
                    one => vec![one.clone()],
                };
                if !types.iter().any(|name| has_type(text(name), value)) {
                    errors.push(format!("{at} is not {rule}: {value}"));
                }
            }
            "enum" if list(rule).contains(value) => {}
            "enum" | "const" if rule == value => {}
            "enum" | "const" => errors.push(format!("{at} is none of {rule}: {value}")),
            "format" => {
                assert_eq!(rule, "date-time");
                let is_utc =
                    |text: &str| text.ends_with('Z') && DateTime::parse_from_rfc3339(text).is_ok();
                if value.as_str().is_some_and(|text| !is_utc(text)) {
                    errors.push(format!("{at} is no time in UTC: {value}"));
                }
            }
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    check(rule, at, item, errors);
                }
            }
            "properties" => properties(schema, at, value, errors),
            other => panic!("{at}: this checker does not know {other}"),
        }
    }
    if let (None, Some(rule), Some(map)) = (
        schema.get("properties"),
        schema.get("additionalProperties"),
        value.as_object(),
    ) {
        for value in map.values() {
            check(rule, at, value, errors);
        }
    }
}

fn properties(schema: &Value, at: &str, value: &Value, errors: &mut Vec<String>) {
    let Some(map) = value.as_object() else {
        return;
    };
    let known = object(&schema["properties"]);
    let required = list(&schema["required"]);
    for name in required.iter().map(text) {
        if !map.contains_key(name) {
            errors.push(format!("{at} lacks {name}"));
        }
    }
    for (name, value) in map {
        let place = format!("{at}.{name}");
        match known.get(name) {
            Some(schema) => check(schema, &place, value, errors),
            None if schema.get("additionalProperties") == Some(&true.into()) => {}
            None => errors.push(format!("{place} is not described")),
        }
    }
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().expect("an object")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn has_type(name: &str, value: &Value) -> bool {
    match name {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("this checker does not know the type {other}"),
    }
}

#[test]
fn values_that_differ_from_the_schema_are_found() {
    let good = serde_json::json!({ "warning": { "message": "a", "hint": null } });
    assert_valid("warning", &good);
    let bad = [
        (
            "warning",
            serde_json::json!({ "warning": { "message": "a" } }),
            "lacks hint",
        ),
        (
            "warning",
            serde_json::json!({ "warning": { "message": 1, "hint": null } }),
            "is not",
        ),
        (
            "remark",
            serde_json::json!({ "message": "", "hint": "", "x": 1 }),
            "not described",
        ),
        ("outcome", "ended".into(), "is none of"),
        (
            "waiting",
            serde_json::json!({ "kind": "queue", "deadline": "2026-01-01T00:00:00+01:00",
                "scheduled_at": "2026-01-01T00:00:00Z" }),
            "no time in UTC",
        ),
        ("trigger", "text".into(), "is not"),
        (
            "doctor",
            serde_json::json!({ "store": "", "findings": [1] }),
            "is not",
        ),
    ];
    for (name, value, what) in bad {
        let errors = errors(name, &value);
        assert!(
            errors.iter().any(|error| error.contains(what)),
            "{value}: {errors:?}"
        );
    }
}
