//! Keeps secrets out of what is printed: passwords in URLs, and values whose names show that they
//! are secret (including addresses of notifications).

use super::suggest;

/// The text that replaces a secret.
const STARS: &str = "***";

/// A line of a job list without its secrets. Keeps columns where nothing is hidden before them.
pub(super) fn line(line: &str) -> String {
    values(&urls(line))
}

/// A text with the passwords of all URLs in it replaced.
pub(super) fn urls(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let start = rest.find(|c| !is_between(c)).unwrap_or(rest.len());
        let (between, tail) = rest.split_at(start);
        masked.push_str(between);
        let (word, after) = tail.split_at(end_of_word(tail));
        masked.push_str(&url(word));
        rest = after;
    }
    masked
}

fn is_between(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '\'' | '`')
}

/// Where the word ends that a text begins with. A URL whose password holds a space or a quote is
/// wrong, and hides it nevertheless.
fn end_of_word(text: &str) -> usize {
    let end = text.find(is_between).unwrap_or(text.len());
    let word = &text[..end];
    let cut_password = word.split_once("://").is_some_and(|(_, rest)| {
        let authority = rest.split('/').next().unwrap_or(rest);
        let host_and_port = authority
            .rsplit_once(':')
            .is_none_or(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
        !rest.contains('@') && !host_and_port
    });
    if !cut_password {
        return end;
    }
    match text.rfind('@') {
        Some(at) if at > end => text[at..].find(is_between).map_or(text.len(), |n| at + n),
        _ => end,
    }
}

/// One word, its password replaced if it looks like a URL that has one.
fn url(word: &str) -> String {
    let (scheme, rest) = match word.find("://") {
        Some(at) => word.split_at(at + 3),
        None => ("", word),
    };
    // A password may hold any character, so the last `@` ends it.
    let masked = match rest.rsplit_once('@') {
        Some((userinfo, host)) => match userinfo.split_once(':') {
            Some((user, _)) => format!("{scheme}{user}:{STARS}@{host}"),
            // Without a colon it is a user to the client, and often meant as a password.
            None if !scheme.is_empty() => format!("{scheme}{STARS}@{host}"),
            None => word.to_owned(),
        },
        None => word.to_owned(),
    };
    match masked.find("pass=").or_else(|| masked.find("password=")) {
        Some(at) => {
            let value = at + masked[at..].find('=').map_or(0, |n| n + 1);
            let end = masked[value..]
                .find('&')
                .map_or(masked.len(), |n| value + n);
            format!("{}{STARS}{}", &masked[..value], &masked[end..])
        }
        None => masked,
    }
}

/// The keys of addresses. They are secrets: anyone who knows a webhook's URL can post to it.
const ADDRESSES: [&str; 9] = [
    "slack",
    "discord",
    "teams",
    "ntfy",
    "pagerduty",
    "webhook",
    "routing_key",
    "authorization",
    "ping",
];

/// Mappings whose values are secrets under any key.
const SECRET_MAPPINGS: [&str; 2] = ["env", "headers"];

/// Whether a key is, or was meant to be, that of such a mapping.
fn is_secret_mapping(key: &str) -> bool {
    SECRET_MAPPINGS.contains(&key) || suggest::nearest(key, ["headers"]).is_some()
}

/// A line of a job list without its secrets, below a line that opened the mapping or the value of
/// this key.
pub(super) fn line_below(key: &str, text: &str) -> String {
    let indent = text.len() - text.trim_start().len();
    let (blank, rest) = text.split_at(indent);
    if is_secret_mapping(key) {
        return match rest.split_once(':') {
            Some((key, _)) => format!("{blank}{key}: {STARS}"),
            None => format!("{blank}{STARS}"),
        };
    }
    // The value of a key stands on the next line.
    if is_telling(key) {
        return format!("{blank}{STARS}");
    }
    line(text)
}

/// Whether a key of this name holds a secret.
fn is_telling(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    if ADDRESSES.contains(&key.as_str()) {
        return true;
    }
    let names_a_place = ["_file", "_path", "_dir"].iter().any(|s| key.ends_with(s));
    !names_a_place
        && [
            "pass",
            "secret",
            "token",
            "credential",
            "api_key",
            "apikey",
            "private",
        ]
        .iter()
        .any(|word| key.contains(word))
}

/// Returns a line in which the values of secret keys are replaced.
fn values(line: &str) -> String {
    let mut masked = String::with_capacity(line.len());
    let mut rest = line;
    let mut in_env = false;
    while let Some(at) = rest.find(": ") {
        let (head, tail) = rest.split_at(at + 2);
        masked.push_str(head);
        rest = tail;
        let key: String = head[..at]
            .chars()
            .rev()
            .skip_while(|c| matches!(c, '"' | '\''))
            .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
            .collect();
        let key: String = key.chars().rev().collect();
        // Variables and headers may be secrets under any name.
        let opens = is_secret_mapping(&key) && tail.starts_with('{');
        in_env = (in_env && !head.contains('}')) || opens;
        // Under whatever key, the path of such a URL may let anybody post there.
        let quoted = tail.trim_start_matches(['"', '\'', ' ']);
        let is_address = quoted.starts_with("https://") || quoted.starts_with("http://");
        let from_outside = tail.trim_start_matches(['"', '\'', ' ']).starts_with('$');
        if (!is_telling(&key) && !in_env && !is_address)
            || from_outside
            || tail.trim_start().starts_with(['{', '[', '#'])
        {
            continue;
        }
        let end = match tail.chars().next() {
            Some(quote @ ('"' | '\'')) => tail[1..].find(quote).map_or(tail.len(), |n| n + 2),
            _ => tail
                .find([',', '}', ']'])
                .map_or(tail.len(), |end| tail[..end].trim_end().len()),
        };
        masked.push_str(STARS);
        rest = &tail[end..];
    }
    masked.push_str(rest);
    masked
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn passwords_in_urls_are_hidden_and_the_rest_is_kept() {
        for (text, shown) in [
            (
                "redis: redis://:hunter2@db:6379/0",
                "redis: redis://:***@db:6379/0",
            ),
            (
                "redis: \"rediss://u:p@ss/w@db\" # x",
                "redis: \"rediss://u:***@db\" # x",
            ),
            ("a redis://u@db b", "a redis://***@db b"),
            ("store: u:hunter2@db", "store: u:***@db"),
            ("store: redis://u:hunt er2@db", "store: redis://u:***@db"),
            (
                "redis+unix:///r.sock?pass=x&db=1",
                "redis+unix:///r.sock?pass=***&db=1",
            ),
            (
                "redis://db:6379/0 # for bob@b",
                "redis://db:6379/0 # for bob@b",
            ),
            ("https://example.org/a", "https://example.org/a"),
        ] {
            assert_eq!(line(text), shown);
        }
    }

    #[test]
    fn values_under_telling_names_are_hidden() {
        for (text, shown) in [
            ("  password: hunter2", "  password: ***"),
            (
                "{ env: { A: abc, X: 1 }, nice: 5 }",
                "{ env: { A: ***, X: *** }, nice: 5 }",
            ),
            ("{ API_TOKEN: abc, X: 1 }", "{ API_TOKEN: ***, X: 1 }"),
            ("{ DB_PASS: \"a, b\", X: 1 }", "{ DB_PASS: ***, X: 1 }"),
            ("password_file: /run/x", "password_file: /run/x"),
            ("password: ${REDIS_PASSWORD}", "password: ${REDIS_PASSWORD}"),
            (
                "ops: { slack: \"https://hooks.slack.com/services/T/B/x\", on: [failed] }",
                "ops: { slack: ***, on: [failed] }",
            ),
            (
                "{ webhook: https://a/b, headers: { X-Any: abc, Y: d }, after: 3 }",
                "{ webhook: ***, headers: { X-Any: ***, Y: *** }, after: 3 }",
            ),
            ("    ping: healthchecks:0b5d8a52-aaaa", "    ping: ***"),
            ("slack: ${SLACK_URL}", "slack: ${SLACK_URL}"),
            ("{ slak: 'https://a/b' }", "{ slak: *** }"),
            ("{ hedaers: { X: abc } }", "{ hedaers: { X: *** } }"),
            ("notify: [slack, ops]", "notify: [slack, ops]"),
        ] {
            assert_eq!(line(text), shown);
        }
    }

    #[test]
    fn what_stands_below_a_secret_mapping_is_hidden() {
        assert_eq!(line_below("headers", "    X-Any: abc"), "    X-Any: ***");
        assert_eq!(line_below("env", "  A: b: c"), "  A: ***");
        assert_eq!(line_below("slack", "      \"https://a/b\""), "      ***");
        assert_eq!(line_below("ops", "  after: 3"), "  after: 3");
    }

    proptest! {
        #[test]
        fn no_line_makes_masking_panic(text in "\\PC*") {
            let _ = line(&text);
            let _ = line_below("headers", &text);
        }

        #[test]
        fn a_password_never_survives(password in "[a-z0-9@/:#?]{4,20}z") {
            let shown = line(&format!("redis: redis://user:{password}@host.example/0"));
            prop_assert_eq!(shown, "redis: redis://user:***@host.example/0");
        }
    }
}
