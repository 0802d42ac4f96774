//! What the user may do on a server, and the smallest rule that is enough.

use super::{Finding, ids};
use crate::names::Prefix;
use crate::store::redis::{Inspector, NoAnswer};
use crate::store::{RedisSettings, StoreError};

/// Commands on keys of ours or of jobs, each with arguments that its syntax asks for.
const ON_LOCKS: [&[&str]; 6] = [
    &["get", KEY],
    &["set", KEY, "v"],
    &["del", KEY],
    &["exists", KEY],
    &["pttl", KEY],
    &["pexpire", KEY, "1"],
];
const ON_OURS: [&[&str]; 9] = [
    &["hget", KEY, "f"],
    &["hmget", KEY, "f"],
    &["hset", KEY, "f", "v"],
    &["hdel", KEY, "f"],
    &["hgetall", KEY],
    &["hvals", KEY],
    &["xadd", KEY, "*", "f", "v"],
    &["xdel", KEY, "0-1"],
    &["xrevrange", KEY, "+", "-"],
];
const ON_CHANNELS: [&[&str]; 3] = [
    &["publish", CHANNEL, "m"],
    &["subscribe", CHANNEL],
    &["unsubscribe", CHANNEL],
];
const ON_NOTHING: [&[&str]; 7] = [
    &["evalsha", "0", "0"],
    &["eval", "return 1", "0"],
    &["time"],
    &["info"],
    &["ping"],
    &["select", "0"],
    &["scan", "0"],
];
/// Asked only of servers whose replicas acknowledge.
const WAIT: &[&str] = &["wait", "1", "1"];
/// Asked only of servers of a Cluster.
const IN_CLUSTER: [&[&str]; 3] = [&["asking"], &["cluster", "slots"], &["cluster", "info"]];
/// Rights that the user of cronlatch does not need.
const TOO_MUCH: &[&str] = &["flushall"];

/// Placeholders for a key and for a channel.
const KEY: &str = "\u{1}key";
const CHANNEL: &str = "\u{1}channel";

/// Asks the server itself, without running anything: which of ARGV may this user not do? Each is a
/// command, its words separated by the unit separator.
const SCRIPT: &str = "local denied = {} \
    for i, line in ipairs(ARGV) do \
      local words = {} \
      for word in string.gmatch(line, '[^\\31]+') do words[#words + 1] = word end \
      local known, allowed = pcall(redis.acl_check_cmd, unpack(words)) \
      if known and not allowed then denied[#denied + 1] = tostring(i) end \
    end \
    return denied";

/// What kind of server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerKind {
    /// A server by itself.
    Alone,
    /// One of a Cluster.
    InCluster,
}

/// What the user may do.
#[derive(Debug)]
pub(super) struct Rights {
    /// What is missing, as a person writes it.
    missing: Vec<String>,
    /// Whether the user may do what cronlatch never does.
    too_much: bool,
    /// The smallest rule that is enough.
    rule: String,
}

/// The smallest set of rights: what `ACL SETUSER` takes after name and password.
fn smallest(settings: &RedisSettings, place: ServerKind, raw_keys: &[String]) -> String {
    let prefix = &settings.prefix;
    let mut rule = format!("~{prefix}:*");
    for key in raw_keys {
        rule += &format!(" ~{key}");
    }
    rule += &format!(" resetchannels &{prefix}:* -@all");
    let commands = [
        &ON_NOTHING[..6],
        &ON_LOCKS[..],
        &ON_OURS[..],
        &ON_NOTHING[6..],
        &ON_CHANNELS[..],
    ];
    for command in commands.concat() {
        rule += &format!(" +{}", command.first().unwrap_or(&""));
    }
    if settings.wait_replicas > 0 {
        rule += " +wait";
    }
    if place == ServerKind::InCluster {
        for command in IN_CLUSTER {
            rule += &format!(" +{}", command.join("|"));
        }
    }
    rule
}

/// Every command with the keys and channels it is used on.
fn wanted(settings: &RedisSettings, place: ServerKind, raw_keys: &[String]) -> Vec<Vec<String>> {
    let ours = format!("{}:{{doctor}}:lock", settings.prefix);
    let fill = |command: &&[&str], key: &str| -> Vec<String> {
        let place = |word: &&str| match *word {
            KEY | CHANNEL => key.to_owned(),
            word => word.to_owned(),
        };
        command.iter().map(place).collect()
    };
    let mut all: Vec<Vec<String>> = [
        &ON_NOTHING[..],
        &ON_LOCKS[..],
        &ON_OURS[..],
        &ON_CHANNELS[..],
    ]
    .concat()
    .iter()
    .map(|command| fill(command, &ours))
    .collect();
    for key in raw_keys {
        all.extend(ON_LOCKS.iter().map(|command| fill(command, key)));
    }
    if settings.wait_replicas > 0 {
        all.push(fill(&WAIT, &ours));
    }
    if place == ServerKind::InCluster {
        all.extend(IN_CLUSTER.iter().map(|command| fill(command, &ours)));
    }
    all
}

/// Asks a server.
pub(super) async fn ask(
    server: &mut Inspector,
    settings: &RedisSettings,
    place: ServerKind,
    raw_keys: &[String],
) -> Result<Rights, StoreError> {
    let wanted = wanted(settings, place, raw_keys);
    let mut lines: Vec<String> = wanted.iter().map(|words| words.join("\u{1f}")).collect();
    lines.push(TOO_MUCH.join("\u{1f}"));
    let mut call = vec!["EVAL", SCRIPT, "0"];
    call.extend(lines.iter().map(String::as_str));
    let denied: Vec<usize> = match server.texts(&call).await {
        Ok(denied) => denied.iter().filter_map(|n| n.parse().ok()).collect(),
        // Without scripts there is nothing to ask with, and nothing that would work.
        Err(NoAnswer::Denied) => vec![2, lines.len()],
        // Servers before 7.0 do not know the question; they are refused for their version.
        Err(NoAnswer::Failed(StoreError::Refused(_))) => Vec::new(),
        Err(NoAnswer::Failed(error)) => return Err(error),
    };
    Ok(Rights {
        missing: missing(&denied, &wanted, &settings.prefix),
        too_much: !denied.contains(&lines.len()),
        rule: smallest(settings, place, raw_keys),
    })
}

/// Names what was denied, by its numbers from 1. Without any command on our keys, these are named once.
fn missing(denied: &[usize], wanted: &[Vec<String>], prefix: &Prefix) -> Vec<String> {
    let first = ON_NOTHING.len() + 1;
    let on_keys = first..first + ON_LOCKS.len() + ON_OURS.len();
    let no_keys = on_keys.clone().all(|n| denied.contains(&n));
    let keys = no_keys.then(|| format!("use the keys {prefix}:*"));
    let others = denied
        .iter()
        .filter(|n| !no_keys || !on_keys.contains(*n))
        .filter_map(|n| wanted.get(n.checked_sub(1)?));
    keys.into_iter()
        .chain(others.map(|words| shown(words)))
        .collect()
}

/// The command, and the key or channel where there is one.
fn shown(words: &[String]) -> String {
    let name = words.first().map_or("", String::as_str);
    let is = |c: &&[&str]| c.first() == Some(&name);
    if name == "cluster" {
        return words.join(" ").to_uppercase();
    }
    let on_nothing = ON_NOTHING.iter().any(is) || matches!(name, "wait" | "asking");
    let on_something = !on_nothing;
    match words.get(1).filter(|_| on_something) {
        Some(key) => format!("{} {key}", name.to_uppercase()),
        None => name.to_uppercase(),
    }
}

/// Judges the rights on the server `shown`.
pub(super) fn judge(shown: &str, rights: &Rights) -> Finding {
    let rule = format!("ACL SETUSER cronlatch on >PASSWORD {}", rights.rule);
    if !rights.missing.is_empty() {
        return ids::RIGHTS.danger(
            shown,
            format!(
                "the user may not {}: whatever needs this right fails",
                rights.missing.join(", ")
            ),
            format!("the smallest rule that works is: {rule}"),
        );
    }
    if rights.too_much {
        ids::RIGHTS.hint(
            shown,
            "the user may do more than cronlatch needs: anyone who learns the password can delete \
             all data of the server",
            format!("create a user for cronlatch: {rule}"),
        )
    } else {
        ids::RIGHTS.ok(shown, "the user may do what cronlatch needs")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::store::{StoreSettings, check_url};

    fn settings() -> RedisSettings {
        match check_url("redis://h") {
            Ok(StoreSettings::Redis(settings)) => settings,
            other => panic!("a URL: {other:?}"),
        }
    }

    fn granted() -> BTreeSet<String> {
        let rule = smallest(&settings(), ServerKind::Alone, &[]);
        let words = rule.split(' ').filter_map(|word| word.strip_prefix('+'));
        words.map(str::to_owned).collect()
    }

    #[test]
    fn the_documented_rule_is_the_smallest_one() {
        let page = include_str!("../../docs/stores.md");
        let line = page
            .lines()
            .find(|line| line.starts_with("user cronlatch "));
        let rule = smallest(&settings(), ServerKind::Alone, &[]);
        let in_cluster = smallest(&settings(), ServerKind::InCluster, &[]);
        let more = in_cluster.strip_prefix(&rule).expect("more rights").trim();
        assert!(
            page.contains(&format!("On a Redis Cluster it needs `{more}`")),
            "{more}"
        );
        let rule = format!("user cronlatch on >PASSWORD {rule}");
        let with_replicas = format!("{rule} +wait");
        assert!(
            line == Some(&rule) || line == Some(&with_replicas),
            "{line:?} is not {rule}"
        );
    }

    #[test]
    fn a_user_without_our_keys_is_told_so_once() {
        let settings = settings();
        let wanted = wanted(&settings, ServerKind::Alone, &[]);
        let missing = |denied: &[usize]| missing(denied, &wanted, &settings.prefix);
        let all_keys: Vec<usize> = (8..=22).collect();
        assert_eq!(missing(&all_keys), ["use the keys cronlatch:*"]);
        assert_eq!(
            missing(&[&[1], &all_keys[..]].concat()),
            ["use the keys cronlatch:*", "EVALSHA"]
        );
        assert_eq!(
            missing(&all_keys[1..3]),
            ["SET cronlatch:{doctor}:lock", "DEL cronlatch:{doctor}:lock"]
        );
    }

    #[test]
    fn the_rule_has_every_command_of_the_scripts() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/redis/scripts");
        let mut called = BTreeSet::new();
        for entry in std::fs::read_dir(folder).expect("the scripts") {
            let text = std::fs::read_to_string(entry.expect("a script").path()).expect("text");
            for call in text.split("call('").skip(1) {
                let name = call.split('\'').next().unwrap_or_default();
                called.insert(name.to_lowercase());
            }
        }
        assert!(called.len() > 10, "{called:?}");
        let granted = granted();
        let lacking: Vec<_> = called.difference(&granted).collect();
        assert!(lacking.is_empty(), "not granted: {lacking:?}");
    }
}
