//! The JSON Schema (`jobs.schema.json`) accepts and refuses what `check` does.

use regex_lite::Regex;
use serde_json::Value;

use super::{errors, list, read};

const SCHEMA: &str = include_str!("../../../jobs.schema.json");
const EXAMPLE: &str = include_str!("../../../jobs.example.yaml");

/// The part of JSON Schema that the schema uses.
struct Schema(Value);

impl Schema {
    fn new() -> Self {
        Self(serde_json::from_str(SCHEMA).expect("JSON"))
    }

    fn at(&self, pointer: &str) -> &Value {
        let found = self.0.pointer(pointer);
        found.unwrap_or_else(|| panic!("{pointer} is not in the schema"))
    }

    /// Whether a list is valid.
    fn accepts(&self, yaml: &str) -> bool {
        let value: Value = serde_yaml::from_str(yaml).expect("YAML");
        self.is_valid(&self.0, &value)
    }

    fn is_valid(&self, schema: &Value, value: &Value) -> bool {
        match schema {
            Value::Bool(allowed) => *allowed,
            Value::Object(keywords) => keywords
                .iter()
                .all(|(keyword, rule)| self.follows(schema, keyword, rule, value)),
            _ => panic!("not a schema: {schema}"),
        }
    }

    /// Whether a value follows one rule of a schema.
    fn follows(&self, schema: &Value, keyword: &str, rule: &Value, value: &Value) -> bool {
        let rules = || rule.as_array().expect("a list of schemas").iter();
        let valid = |schema: &Value| self.is_valid(schema, value);
        match keyword {
            "$schema" | "title" | "description" | "default" | "examples" | "definitions" => true,
            "$ref" => {
                let pointer = rule.as_str().and_then(|text| text.strip_prefix('#'));
                valid(self.at(pointer.expect("a place in this schema")))
            }
            "allOf" => rules().all(valid),
            "anyOf" => rules().any(valid),
            "oneOf" => rules().filter(|schema| valid(schema)).count() == 1,
            "not" => !valid(rule),
            "type" => match rule {
                Value::Array(types) => types.iter().any(|name| has_type(name, value)),
                name => has_type(name, value),
            },
            "enum" => rules().any(|allowed| allowed == value),
            "const" => rule == value,
            "properties"
            | "patternProperties"
            | "propertyNames"
            | "additionalProperties"
            | "required" => self.follows_as_object(schema, keyword, rule, value),
            "items" | "minItems" | "maxItems" => value.as_array().is_none_or(|items| {
                let count = items.len() as u64;
                match keyword {
                    "items" => items.iter().all(|item| self.is_valid(rule, item)),
                    "minItems" => rule.as_u64().is_some_and(|least| count >= least),
                    _ => rule.as_u64().is_some_and(|most| count <= most),
                }
            }),
            "minimum" => value.as_i64() >= rule.as_i64() || !value.is_number(),
            "maximum" => value.as_i64() <= rule.as_i64() || !value.is_number(),
            "minLength" => value
                .as_str()
                .is_none_or(|text| text.chars().count() as u64 >= rule.as_u64().unwrap_or(0)),
            "pattern" => value.as_str().is_none_or(|text| matches(rule, text)),
            other => panic!("this test does not know the keyword {other}"),
        }
    }

    fn follows_as_object(
        &self,
        schema: &Value,
        keyword: &str,
        rule: &Value,
        value: &Value,
    ) -> bool {
        let Some(fields) = value.as_object() else {
            return true;
        };
        let patterns = |name: &str| -> Vec<&Value> {
            let patterns = schema["patternProperties"]
                .as_object()
                .into_iter()
                .flatten();
            let fitting = patterns.filter(|(p, _)| matches(&Value::from(p.as_str()), name));
            fitting.map(|(_, schema)| schema).collect()
        };
        match keyword {
            "properties" => fields.iter().all(|(name, value)| {
                self.is_valid(rule.get(name).unwrap_or(&Value::Bool(true)), value)
            }),
            "patternProperties" => fields
                .iter()
                .all(|(name, value)| patterns(name).iter().all(|s| self.is_valid(s, value))),
            "propertyNames" => fields
                .keys()
                .all(|name| self.is_valid(rule, &Value::from(name.as_str()))),
            "additionalProperties" => fields.iter().all(|(name, value)| {
                let is_known = schema["properties"].get(name).is_some();
                is_known || !patterns(name).is_empty() || self.is_valid(rule, value)
            }),
            _ => rule.as_array().is_some_and(|names| {
                names
                    .iter()
                    .all(|name| name.as_str().is_some_and(|name| fields.contains_key(name)))
            }),
        }
    }

    /// The names of the fields of a mapping.
    fn fields(&self, pointer: &str) -> Vec<&str> {
        let properties = self
            .at(pointer)
            .get("properties")
            .and_then(Value::as_object);
        let mut names: Vec<&str> = properties
            .expect("fields")
            .keys()
            .map(String::as_str)
            .collect();
        names.sort_unstable();
        names
    }
}

fn has_type(name: &Value, value: &Value) -> bool {
    match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("number") => value.is_number(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => panic!("not a type: {name}"),
    }
}

fn matches(pattern: &Value, text: &str) -> bool {
    let pattern = pattern.as_str().expect("a pattern");
    Regex::new(pattern)
        .expect("a regular expression")
        .is_match(text)
}

/// The fields of a mapping, from the error about one that does not exist.
fn known_fields(text: &str) -> Vec<String> {
    let errors = errors(text);
    let (_, names) = errors.split_once("its fields are ").expect(text);
    let names = names.lines().next().unwrap_or("");
    let mut names: Vec<String> = names.split(", ").map(str::to_owned).collect();
    names.sort_unstable();
    names
}

#[test]
fn the_schema_has_the_fields_that_lists_have() {
    let schema = Schema::new();
    let job = "jobs:\n  - name: j\n    every: 1h\n    command: x\n";
    let store = "/properties/store/anyOf/2";
    for (pointer, text) in [
        ("", "zzzzzz: 1\njobs: []\n".to_owned()),
        ("/definitions/job", format!("{job}    zzzzzz: 1\n")),
        (
            "/properties/defaults/properties/lock",
            format!("{job}    lock: {{ zzzzzz: 1 }}\n"),
        ),
        (
            "/properties/defaults/properties/retry/anyOf/1",
            format!("{job}    retry: {{ attempts: 1, zzzzzz: 1 }}\n"),
        ),
        (
            "/properties/notify/additionalProperties",
            format!("notify: {{ ops: {{ slack: x, zzzzzz: 1 }} }}\n{job}"),
        ),
        (
            "/properties/history/anyOf/1",
            format!("history: {{ zzzzzz: 1 }}\n{job}"),
        ),
        (
            "/properties/http/anyOf/1",
            format!("http: {{ listen: 127.0.0.1:1, zzzzzz: 1 }}\n{job}"),
        ),
        (store, format!("store: {{ redis: x, zzzzzz: 1 }}\n{job}")),
        (
            &format!("{store}/properties/redlock"),
            format!("store: {{ redis: x, redlock: {{ zzzzzz: 1 }} }}\n{job}"),
        ),
        (
            &format!("{store}/properties/sentinel"),
            format!("store: {{ sentinel: {{ zzzzzz: 1 }} }}\n{job}"),
        ),
    ] {
        assert_eq!(schema.fields(pointer), known_fields(&text), "{pointer}");
    }
    let of_jobs = ["name", "schedule", "every", "command"];
    let mut inherited = schema.fields("/definitions/job");
    inherited.retain(|name| !of_jobs.contains(name));
    assert_eq!(schema.fields("/properties/defaults"), inherited);
}

#[test]
fn every_field_of_the_schema_has_a_description() {
    fn look(at: &str, schema: &Value, found: &mut usize) {
        let Some(keywords) = schema.as_object() else {
            return;
        };
        for (name, field) in keywords
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let is_elsewhere = field.get("$ref").is_some();
            let described = field["description"]
                .as_str()
                .is_some_and(|text| text.ends_with('.') || text.ends_with(')'));
            assert!(described || is_elsewhere, "{at}/{name} has no description");
            *found += 1;
        }
        for (name, part) in keywords {
            match part {
                Value::Array(parts) => parts
                    .iter()
                    .for_each(|p| look(&format!("{at}/{name}"), p, found)),
                part => look(&format!("{at}/{name}"), part, found),
            }
        }
    }
    let mut found = 0;
    look("", &Schema::new().0, &mut found);
    assert!(found > 80, "{found} fields");
}

#[test]
fn the_example_is_valid_and_names_the_schema() {
    assert!(Schema::new().accepts(EXAMPLE));
    let first = EXAMPLE.lines().next();
    assert_eq!(
        first,
        Some("# yaml-language-server: $schema=jobs.schema.json")
    );
}

/// The defaults of the schema are those of the program: written out, they change nothing.
#[test]
fn the_defaults_of_the_schema_are_the_defaults() {
    let schema = Schema::new();
    let of = |top: &str, fields: &str| {
        let job = "jobs:\n  - name: j\n    every: 1h\n    command: x\n";
        list(&format!("{top}{job}{fields}")).fingerprint
    };
    let plain = of("", "");
    let mut compared = 0;
    let properties = |pointer: &str| schema.at(pointer)["properties"].as_object().cloned();
    for (name, field) in properties("/properties/defaults").expect("fields") {
        if let Some(default) = field.get("default") {
            // A zone does not matter to `every`.
            assert_eq!(of("", &format!("    {name}: {default}\n")), plain, "{name}");
            compared += 1;
        }
    }
    for (name, field) in properties("/properties/defaults/properties/lock").expect("fields") {
        if let Some(default) = field.get("default") {
            let fields = format!("    lock: {{ {name}: {default} }}\n");
            assert_eq!(of("", &fields), plain, "lock.{name}");
            compared += 1;
        }
    }
    for (name, field) in properties("").expect("fields") {
        if let Some(default) = field.get("default") {
            assert_eq!(of(&format!("{name}: {default}\n"), ""), plain, "{name}");
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared} defaults");
}

/// The words that the schema allows are those that lists take.
#[test]
fn the_words_of_the_schema_are_taken() {
    let schema = Schema::new();
    let mut words = 0;
    let fields = schema
        .at("/properties/defaults/properties")
        .as_object()
        .expect("fields");
    for (name, field) in fields {
        for word in field["anyOf"][0]["enum"].as_array().into_iter().flatten() {
            list(&super::job(&format!("{name}: {word}")));
            words += 1;
        }
    }
    assert_eq!(words, 13);
}

#[test]
fn valid_lists_are_accepted() {
    let schema = Schema::new();
    let fields = [
        "lock: { name: x, ttl: 1m, scope: host }",
        "lock: { key: 'app:x' }",
        "jitter: auto",
        "jitter: 10m",
        "hosts: [web*, 'db-?']",
        "timeout: none",
        "timeout: 1h 30m",
        "retry: none",
        "retry: { attempts: 3, delay: 1s, max_delay: 1m, jitter: false }",
        "success_exit_codes: [0, 3]",
        "user: 1000\ngroup: adm",
        "umask: '027'",
        "umask: 022",
        "nice: -5",
        "env: { A: b, B: 1, C: true, D: '${HOME}' }",
        "kill_signal: SIGINT",
        "kill_signal: hup",
        "enabled: false",
        "on_overlap: queue\nqueue_limit: 3",
        "start_deadline: ${HOME:-5m}",
        "max_reruns: 2\non_crash: rerun",
        "catch_up_window: 0",
    ];
    for fields in fields {
        let text = super::job(fields);
        if let Err(errors) = super::read_with(&text, &[("HOME", "5m")]) {
            panic!("{errors}");
        }
        assert!(schema.accepts(&text), "{fields}");
    }
    for text in [
        "jobs: []\n",
        "jobs: []\nx-anything: { a: 1 }\n",
        "jobs: []\nmax_running: 5\nhistory: 10\nstrict: true\nspread: 1s\ndrain_timeout: 5m\n",
        "jobs: []\nhistory: { records: 10, failures: 0, keep: 30d }\n",
        "jobs: []\nmax_running: none\nmax_clock_skew: 5s\n",
        "jobs: []\noutput: none\n",
        "jobs: []\noutput: { keep: all, for: 1d, per_run: 64KiB, total: '2 GB' }\n",
        "jobs: []\nstore: redis://h\n",
        "jobs: []\nstore: [redis://a, redis://b, redis://c]\n",
        "jobs: []\nstore: { redis: redis://h, prefix: p, password_file: /p, wait_replicas: 1 }\n",
        "jobs: []\nstore: { redis: [redis://a, redis://b, redis://c], redlock: { tries: 2, \
         retry_delay: [1ms, 2ms], at_start: refuse } }\n",
        "jobs: []\nstore: { sentinel: { master: m, nodes: [a, b], user: u, database: 1, tls: true, \
         sentinel_user: s, sentinel_password_file: /p }, ca_file: /c }\n",
        "jobs: []\nstore: { cluster: [a:1, b:2] }\n",
        "jobs: []\nstore: { sqlite: /s.db }\n",
        "jobs: []\nhttp: { listen: 127.0.0.1:7171 }\n",
        "jobs: []\nhttp: { listen: '[::]:7171', token_file: /t }\n",
        "jobs: []\nhttp: { listen: /run/cronlatch/http.sock }\n",
        "jobs: []\nhttp: none\n",
        "defaults: { timezone: Europe/Berlin, lock: { ttl: 1m } }\njobs:\n  - { name: a, \
         schedule: '@daily', command: [a, 1, true] }\n",
    ] {
        list(text);
        assert!(schema.accepts(text), "{text}");
    }
}

#[test]
fn invalid_lists_are_refused() {
    let schema = Schema::new();
    let fields = [
        "evry: 5s",
        "schedule: '@daily'",
        "lock: { name: x, key: y }",
        "lock: { scope: cluster }",
        "lock: { ttl: 30 }",
        "lock: 5",
        "jitter: often",
        "hosts: web*",
        "hosts: []",
        "timeout: 5",
        "timeout: soon",
        "retry: 3",
        "retry: { attempts: 0 }",
        "retry: { attempts: 3, backoff: 2 }",
        "success_exit_codes: []",
        "success_exit_codes: [256]",
        "umask: '999'",
        "nice: 20",
        "nice: high",
        "env: [A]",
        "env: { A: [b] }",
        "env: { 1A: b }",
        "kill_signal: STOPP",
        "enabled: 'on'",
        "on_overlap: forbid",
        "on_overlap: queue\nqueue_limit: 0",
        "catch_up: always",
        "working_dir: here",
        "shell: bash",
        "pipefail: perhaps",
        "max_reruns: -1",
    ];
    for fields in fields {
        let text = super::job(fields);
        assert!(read(&text).is_err(), "accepted by the program: {fields}");
        assert!(!schema.accepts(&text), "accepted by the schema: {fields}");
    }
    for text in [
        "[]\n",
        "jobs: {}\n",
        "jobs: [a]\n",
        "job: []\n",
        "jobs: [{ every: 1h, command: x }]\n",
        "jobs: [{ name: a, command: x }]\n",
        "jobs: [{ name: a, every: 1h }]\n",
        "jobs: [{ name: 'a b', every: 1h, command: x }]\n",
        "jobs: [{ name: a, every: 1h, command: [] }]\n",
        "jobs: [{ name: a, every: 1h, command: { a: b } }]\n",
        "jobs: []\ndefaults: { name: a }\n",
        "jobs: []\ndefaults: []\n",
        "jobs: []\ntimezone: UTC\n",
        "jobs: []\nmax_running: 0\n",
        "jobs: []\nhistory: 0\n",
        "jobs: []\nhistory: { records: 0 }\n",
        "jobs: []\nhistory: { runs: 5 }\n",
        "jobs: []\nhistory: { keep: soon }\n",
        "jobs: []\nspread: 5\n",
        "jobs: []\noutput: some\n",
        "jobs: []\noutput: { keep: some }\n",
        "jobs: []\noutput: { per_run: 10 }\n",
        "jobs: []\noutput: { total: 10M }\n",
        "jobs: []\nstore: { prefix: p }\n",
        "jobs: []\nstore: { redis: redis://h, sqlite: /s }\n",
        "jobs: []\nstore: [redis://a, redis://b]\n",
        "jobs: []\nstore: { sentinel: { nodes: [a] } }\n",
        "jobs: []\nstore: { cluster: [] }\n",
        "jobs: []\nstore: { redis: redis://h, wait_replicas: -1 }\n",
        "jobs: []\nstore: { redis: [redis://a, redis://b, redis://c], redlock: { tries: 0 } }\n",
    ] {
        assert!(read(text).is_err(), "accepted by the program: {text}");
        assert!(!schema.accepts(text), "accepted by the schema: {text}");
    }
}
