//! `store:` — a URL, a list of them, or a mapping.

mod nodes;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use super::mask;
use super::node::{KeyValue, Node, Value};
use super::problem::{Problem, Problems};
use super::section::{Section, ValueError, Vocabulary};
use super::source::Span;
use super::values;
use crate::names::Prefix;
use crate::store::endpoint::{RetryDelay, TRIES};
use crate::store::{RedlockSettings, StartupQuorum, StoreSettings, check_url};

/// The fields of `store:`.
pub(super) const STORE: Vocabulary = Vocabulary {
    what: "`store`",
    fields: &[
        "redis",
        "sentinel",
        "cluster",
        "sqlite",
        "password_file",
        "ca_file",
        "prefix",
        "wait_replicas",
        "redlock",
    ],
    other_words: &[
        ("url", "write `redis: redis://…` or `sqlite: /path`"),
        ("host", "write `redis: redis://HOST:PORT/DATABASE`"),
        ("port", "write `redis: redis://HOST:PORT/DATABASE`"),
        ("db", "write `redis: redis://HOST:PORT/DATABASE`"),
        (
            "user",
            "write `redis: redis://USER@HOST`, and the password into a `password_file`",
        ),
        (
            "username",
            "write `redis: redis://USER@HOST`, and the password into a `password_file`",
        ),
        (
            "password",
            "put it into a file of its own and name that: `password_file: /path`",
        ),
        (
            "pass",
            "put it into a file of its own and name that: `password_file: /path`",
        ),
        ("tls", "write `redis: rediss://…`"),
        (
            "sentinels",
            "write `sentinel: { master: NAME, nodes: [HOST:PORT, …] }`",
        ),
        ("strict", "write it at the top level, beside `store`"),
        (
            "max_clock_skew",
            "write it at the top level, beside `store`",
        ),
    ],
    elsewhere: &[],
    not_yet: &[],
};

/// The fields of `store.redlock:`.
const REDLOCK: Vocabulary = Vocabulary {
    what: "`redlock`",
    fields: &["tries", "retry_delay", "at_start"],
    other_words: &[
        (
            "nodes",
            "write `redis: [redis://…, redis://…, redis://…]` beside `redlock`",
        ),
        ("retries", "did you mean `tries`? The first one counts too"),
    ],
    elsewhere: &[],
    not_yet: &[],
};

/// The kinds of store.
const KINDS: [&str; 4] = ["redis", "sentinel", "cluster", "sqlite"];

/// The most that a pause between two tries may be.
const LONGEST_RETRY_DELAY: Duration = Duration::from_secs(10);

/// What `store:` says, and whether the file itself holds a password.
#[derive(Debug)]
pub(super) struct StorePart {
    pub(super) settings: StoreSettings,
    /// True when a password stands in the file, not in the environment or a file of its own.
    pub(super) password_in_file: bool,
}

/// Reads `store:`; `None` when something in it was refused.
pub(super) fn read(node: &Node, problems: &mut Problems) -> Option<StorePart> {
    match &node.value {
        Value::Broken => None,
        Value::Map(entries) => mapping(node, entries, problems),
        _ => redis(node, problems).map(|settings| StorePart {
            password_in_file: holds_password(node),
            settings,
        }),
    }
}

fn mapping(node: &Node, entries: &[KeyValue], problems: &mut Problems) -> Option<StorePart> {
    let meant = STORE.check(entries, problems);
    let section = Section::new(entries, &[]);
    let mut kinds = KINDS.iter().filter_map(|key| section.entry(key));
    let Some(kind) = kinds.next() else {
        if !KINDS.iter().any(|key| meant.contains(key)) {
            problems.add(Problem::new(node.span, "`store` names no store").help(
                "write `redis: redis://10.0.0.5:6379/0`; without `store` the embedded store \
                     is used",
            ));
        }
        return None;
    };
    let mut is_single = true;
    for other in kinds {
        is_single = false;
        let text = "a store is one of `redis`, `sentinel`, `cluster` and `sqlite`";
        problems.add(Problem::new(other.span, text).other(kind.span, "another one is at"));
    }
    if matches!(kind.value.value, Value::Null) {
        problems.add(
            Problem::new(kind.span, format!("`{}` has no value", kind.key))
                .help("give it a value, or remove the line"),
        );
        return None;
    }
    if !is_single || matches!(kind.value.value, Value::Broken) {
        return None;
    }
    let settings = match kind.key.as_str() {
        "sqlite" => return sqlite_store(section, problems),
        "sentinel" => nodes::sentinel(section, problems),
        "cluster" => nodes::cluster(&kind.value, problems),
        _ => redis(&kind.value, problems).filter(|settings| {
            let is_redis = !matches!(settings, StoreSettings::Sqlite { .. });
            if !is_redis {
                problems.add(
                    Problem::new(kind.value.span, "not a Redis URL").help("write `sqlite: /path`"),
                );
            }
            is_redis
        }),
    };
    let settings = common(section, kind, settings, problems)?;
    Some(StorePart {
        settings,
        password_in_file: holds_password(&kind.value),
    })
}

/// What all kinds of Redis store have beside the servers.
fn common(
    section: Section<'_>,
    kind: &KeyValue,
    settings: Option<StoreSettings>,
    problems: &mut Problems,
) -> Option<StoreSettings> {
    let password_file = section.read("password_file", problems, values::absolute);
    let ca_file = section.read("ca_file", problems, |node| {
        let path = values::absolute(node)?;
        let has_tls = |settings: &StoreSettings| settings.clone().set_ca_file(&path);
        if settings.as_ref().is_none_or(has_tls) {
            return Ok(path);
        }
        let help = match kind.key.as_str() {
            "sentinel" => "write `tls: true` into `sentinel`, or leave it out",
            _ => "write `redis: rediss://…`, or leave it out",
        };
        Err(ValueError::new("`ca_file` is for TLS", help))
    });
    let prefix = section.read("prefix", problems, values::name::<Prefix>);
    let is_replicated = |settings: &StoreSettings| {
        matches!(
            settings,
            StoreSettings::Redis(_) | StoreSettings::Sentinel(_) | StoreSettings::Cluster(_)
        )
    };
    let wait_replicas = section.read("wait_replicas", problems, |node| {
        if !settings.as_ref().is_none_or(is_replicated) {
            return Err(ValueError::new(
                "`wait_replicas` is for servers that have replicas: one, a Sentinel's, or a Cluster's",
                "leave it out",
            ));
        }
        values::number(node, 0..=100)
    });
    let patience = redlock(section, settings.as_ref(), problems);
    let mut settings = settings?;
    if let (StoreSettings::Redlock(redlock), Some(patience)) = (&mut settings, patience) {
        redlock.tries = patience.tries;
        redlock.retry_delay = patience.retry_delay;
        redlock.at_start = patience.at_start;
    }
    if let Some(path) = ca_file {
        settings.set_ca_file(&path);
    }
    for server in settings.servers_mut() {
        server.password_file.clone_from(&password_file);
        if let Some(prefix) = &prefix {
            server.prefix = prefix.clone();
        }
        server.wait_replicas = wait_replicas.unwrap_or(0);
    }
    Some(settings)
}

/// What `redlock:` says.
struct RedlockRetries {
    tries: u32,
    retry_delay: RetryDelay,
    at_start: StartupQuorum,
}

/// `redlock:` — how often a claim is tried, the pauses between, and a start without a majority.
fn redlock(
    section: Section<'_>,
    settings: Option<&StoreSettings>,
    problems: &mut Problems,
) -> Option<RedlockRetries> {
    let entry = section.entry("redlock")?;
    if settings.is_some_and(|s| !matches!(s, StoreSettings::Redlock(_))) {
        problems.add(
            Problem::new(entry.span, "`redlock` is for a majority of several servers")
                .help("write `redis: [redis://…, redis://…, redis://…]`, or leave it out"),
        );
        return None;
    }
    let patience = section.within("redlock", &REDLOCK, problems)?;
    let tries = patience.read("tries", problems, |node| values::number(node, 1..=100));
    let retry_delay = patience.read("retry_delay", problems, |node| {
        let one = |node: &Node| values::duration_in(node, Duration::ZERO..=LONGEST_RETRY_DELAY, "");
        let Value::List(list) = &node.value else {
            return one(node).map(|delay| RetryDelay {
                shortest: delay,
                longest: delay,
            });
        };
        let [shortest, longest] = list.as_slice() else {
            return Err(ValueError::new(
                "expected the shortest and the longest pause",
                "write `retry_delay: [100ms, 200ms]`",
            ));
        };
        let both = ValueError::of_each([shortest, longest], |item| {
            one(item).map_err(|t| t.with_item(item))
        })?;
        let (shortest, longest) = (both[0], both[1]);
        if shortest > longest {
            return Err(ValueError::new(
                "the shortest pause is longer than the longest",
                "write `retry_delay: [100ms, 200ms]`",
            ));
        }
        Ok(RetryDelay { shortest, longest })
    });
    let at_start = patience.read("at_start", problems, |node| {
        values::word(
            node,
            &[
                ("wait", StartupQuorum::Wait),
                ("refuse", StartupQuorum::Refuse),
            ],
        )
    });
    Some(RedlockRetries {
        tries: tries.unwrap_or(TRIES),
        retry_delay: retry_delay.unwrap_or_default(),
        at_start: at_start.unwrap_or_default(),
    })
}

/// One server by its URL, or several.
fn redis(node: &Node, problems: &mut Problems) -> Option<StoreSettings> {
    if let Value::List(list) = &node.value {
        return several(node.span, list, problems);
    }
    url(node)
        .map_err(|trouble| problems.add(trouble.at(node)))
        .ok()
}

/// The servers of a majority.
fn several(span: Span, list: &[Node], problems: &mut Problems) -> Option<StoreSettings> {
    let nodes = nodes::read(list, problems, |node| match url(node)? {
        StoreSettings::Redis(redis) => Ok(redis),
        other => Err(ValueError::new(
            "each server of a majority is a single one",
            match other {
                StoreSettings::Sqlite { .. } => "expected redis://…, rediss://… or redis+unix://…",
                _ => "a store is either a majority of servers, or a Sentinel's, or a Cluster",
            },
        )),
    })?;
    if nodes.len() < 3 {
        problems.add(
            Problem::new(
                span,
                format!(
                    "a majority needs at least three servers, found {}",
                    nodes.len()
                ),
            )
            .help("name one server without brackets: `redis: redis://10.0.0.5:6379/0`"),
        );
        return None;
    }
    Some(StoreSettings::Redlock(RedlockSettings {
        nodes,
        tries: TRIES,
        retry_delay: RetryDelay::default(),
        at_start: StartupQuorum::Wait,
    }))
}

fn sqlite_store(section: Section<'_>, problems: &mut Problems) -> Option<StorePart> {
    for key in [
        "password_file",
        "ca_file",
        "prefix",
        "wait_replicas",
        "redlock",
    ] {
        if let Some(entry) = section.entry(key) {
            problems.add(Problem::new(
                entry.span,
                format!("`{key}` is for `redis`, not for `sqlite`"),
            ));
        }
    }
    let path = section.read("sqlite", problems, |node| {
        let text = values::filled(node)?;
        Ok(PathBuf::from(text.strip_prefix("sqlite:").unwrap_or(&text)))
    })?;
    Some(StorePart {
        settings: StoreSettings::Sqlite { path },
        password_in_file: false,
    })
}

fn url(node: &Node) -> Result<StoreSettings, ValueError> {
    let text = values::filled(node)?;
    check_url(&text).map_err(|message| {
        // A value from the environment may be secret as a whole.
        match &node.value {
            Value::Text(value) if value.written.is_some() => ValueError::new(
                format!("{} holds no store URL", node.found()),
                "expected redis://HOST:PORT/DATABASE, rediss://…, redis+unix:///PATH or \
                 sqlite:PATH",
            ),
            _ => ValueError::new(mask::urls(&message), ""),
        }
    })
}

/// Whether a password stands in the file: a URL as it is written has one.
fn holds_password(node: &Node) -> bool {
    let text = match &node.value {
        Value::Text(text) => text,
        Value::List(list) => return list.iter().any(holds_password),
        Value::Map(entries) => return entries.iter().any(|entry| holds_password(&entry.value)),
        _ => return false,
    };
    let written = text.written.as_ref().unwrap_or(&text.value);
    written.split(',').any(|url| {
        let userinfo = url
            .split_once("://")
            .and_then(|(_, rest)| rest.rsplit_once('@'))
            .and_then(|(userinfo, _)| userinfo.split_once(':'));
        let in_query = url.split_once("pass=").map(|(_, rest)| rest);
        userinfo
            .map(|(_, password)| password)
            .or(in_query)
            .is_some_and(|password| !password.is_empty() && !password.starts_with("${"))
    })
}
