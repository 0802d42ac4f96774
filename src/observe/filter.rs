//! Which lines are logged, as `--log-level` and `RUST_LOG` say.
//!
//! A directive of `RUST_LOG` is a level, a target, or both (`cronlatch::engine=debug`), as in other programs that use
//! tracing. Spans and their fields cannot be selected, because the program has no spans; that would need regular
//! expressions, which are half a megabyte of code.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

use super::logging::LogLevel;

/// The target of all lines of this program.
const OURS: &str = "cronlatch";
/// The library that sends notifications: its details have URLs and headers, which are secrets.
const SECRETIVE: &str = "ureq";
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// What a directive may be.
const HELP: &str = "Write a level (`off`, `error`, `warn`, `info`, `debug`, `trace`), or a target with one, such as \
                    `cronlatch::engine=debug`";

/// What is logged.
#[derive(Debug)]
pub(super) struct Filter {
    pub(super) targets: Targets,
    /// What is wrong in `RUST_LOG`, one sentence for each directive that is ignored.
    pub(super) faults: Vec<String>,
}

/// One part of `RUST_LOG`.
#[derive(Debug)]
struct Directive<'a> {
    /// `None`: everything.
    target: Option<&'a str>,
    level: LevelFilter,
}

impl Filter {
    /// Our own lines from `info` on, those of libraries from `warn` on, where `RUST_LOG` says nothing else. A
    /// level of the command line comes before `RUST_LOG`, except for the targets that `RUST_LOG` names.
    pub(super) fn new(level: Option<LogLevel>, rust_log: &str) -> Self {
        let (directives, faults) = read(rust_log);
        let mut targets = Targets::new().with_default(LevelFilter::WARN);
        let sets_all = directives.iter().any(|it| it.target.is_none());
        let names_secretive = directives.iter().any(|it| it.target == Some(SECRETIVE));
        if !sets_all {
            targets = targets.with_target(OURS, LevelFilter::INFO);
        }
        for Directive { target, level } in directives {
            targets = match target {
                Some(target) => targets.with_target(target, level),
                None => targets.with_default(level),
            };
        }
        if let Some(level) = level {
            let libraries = level.filter().min(LevelFilter::WARN);
            targets = targets.with_default(libraries);
            targets = targets.with_target(OURS, level.filter());
        }
        if !names_secretive {
            let least = targets.default_level().unwrap_or(LevelFilter::OFF);
            targets = targets.with_target(SECRETIVE, least.min(LevelFilter::WARN));
        }
        Self { targets, faults }
    }
}

/// The directives of `RUST_LOG` that can be used, and what is wrong with the others.
fn read(rust_log: &str) -> (Vec<Directive<'_>>, Vec<String>) {
    let (mut directives, mut faults) = (Vec::new(), Vec::new());
    let parts = rust_log.split(',').map(str::trim);
    for text in parts.filter(|part| !part.is_empty()) {
        match directive(text) {
            Ok(directive) => directives.push(directive),
            Err(why) => faults.push(format!("ignoring `{text}` in RUST_LOG: {why}")),
        }
    }
    (directives, faults)
}

fn directive(text: &str) -> Result<Directive<'_>, String> {
    let (target, level) = match text.split_once('=') {
        Some((target, level)) => (target.trim_end(), level.trim_start()),
        None => (text, ""),
    };
    if target == text {
        if let Some(level) = level_of(text) {
            let target = None;
            return Ok(Directive { target, level });
        }
        // Taken for a target it would change nothing, and nobody would notice.
        if level_meant(text).is_some() {
            return Err(not_a_level(text));
        }
    }
    if !is_target(target) {
        return Err(format!(
            "`{target}` is not a target. {HELP}; spans and fields cannot be selected"
        ));
    }
    let level = match level {
        "" => LevelFilter::TRACE,
        level => level_of(level).ok_or_else(|| not_a_level(level))?,
    };
    if target.starts_with(SECRETIVE) && level > LevelFilter::WARN {
        return Err(format!(
            "what {SECRETIVE} logs below `warn` has the secrets of notifications, and is never logged"
        ));
    }
    let target = Some(target);
    Ok(Directive { target, level })
}

fn is_target(word: &str) -> bool {
    let may_be = |c: char| c.is_alphanumeric() || "_:-.".contains(c);
    !word.is_empty() && word.chars().all(may_be)
}

/// The level of this name or number.
fn level_of(word: &str) -> Option<LevelFilter> {
    word.parse().ok().filter(|_| !word.is_empty())
}

fn not_a_level(word: &str) -> String {
    let meant = level_meant(word).map_or_else(String::new, |it| format!("; did you mean `{it}`?"));
    let end = if meant.is_empty() { "." } else { "" };
    format!("`{word}` is not a level{meant}{end} {HELP}")
}

/// The level whose name is misspelt or shortened in this word, if it is one.
fn level_meant(word: &str) -> Option<&'static str> {
    let word = word.to_lowercase();
    if word == "warning" {
        return Some("warn");
    }
    let reach = if word.len() > 4 { 2 } else { 1 };
    let is_meant = |level: &&str| {
        let is_shortened = word.len() >= 3 && level.starts_with(&word);
        is_shortened || strsim::damerau_levenshtein(level, &word) <= reach
    };
    LEVELS.into_iter().find(is_meant)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    fn filter(rust_log: &str) -> Targets {
        let Filter { targets, faults } = Filter::new(None, rust_log);
        assert_eq!(faults, [""; 0], "{rust_log}");
        targets
    }

    /// The most detailed level that is logged of a target.
    fn least(targets: &Targets, target: &str) -> LevelFilter {
        let levels = [
            Level::TRACE,
            Level::DEBUG,
            Level::INFO,
            Level::WARN,
            Level::ERROR,
        ];
        let mut enabled = levels
            .into_iter()
            .filter(|level| targets.would_enable(target, level));
        enabled.next().map_or(LevelFilter::OFF, LevelFilter::from)
    }

    #[track_caller]
    fn fault(rust_log: &str) -> String {
        let faults = Filter::new(None, rust_log).faults;
        assert_eq!(faults.len(), 1, "{rust_log}");
        faults.concat()
    }

    #[test]
    fn without_rust_log_libraries_log_warnings_alone() {
        for text in ["", " , "] {
            let it = filter(text);
            assert_eq!(least(&it, "cronlatch::store"), LevelFilter::INFO);
            assert_eq!(least(&it, "redis::aio"), LevelFilter::WARN);
        }
    }

    #[test]
    fn a_level_without_a_target_is_the_level_of_everything() {
        let it = filter("debug");
        assert_eq!(least(&it, "cronlatch::store"), LevelFilter::DEBUG);
        assert_eq!(least(&it, "redis::aio"), LevelFilter::DEBUG);
        let it = filter("4, cronlatch::store=ERROR");
        assert_eq!(least(&it, "cronlatch::engine"), LevelFilter::DEBUG);
        assert_eq!(least(&it, "cronlatch::store"), LevelFilter::ERROR);
        assert_eq!(least(&filter("off"), "cronlatch"), LevelFilter::OFF);
    }

    #[test]
    fn a_target_changes_nothing_else_and_the_later_level_wins() {
        let it =
            filter("cronlatch::engine=Debug,,redis,tokio=info,tokio=,cronlatch::engine=trace,");
        assert_eq!(least(&it, "cronlatch::engine::core"), LevelFilter::TRACE);
        assert_eq!(least(&it, "cronlatch::store"), LevelFilter::INFO);
        assert_eq!(least(&it, "redis::aio"), LevelFilter::TRACE);
        assert_eq!(least(&it, "tokio"), LevelFilter::TRACE);
        assert_eq!(least(&it, "hyper"), LevelFilter::WARN);
    }

    #[test]
    fn a_level_of_the_command_line_wins_except_for_the_targets_that_are_named() {
        let targets = |level, rust_log| Filter::new(Some(level), rust_log).targets;
        let it = targets(LogLevel::Info, "trace,cronlatch::store=debug");
        assert_eq!(least(&it, "cronlatch::engine"), LevelFilter::INFO);
        assert_eq!(least(&it, "cronlatch::store"), LevelFilter::DEBUG);
        assert_eq!(least(&it, "redis"), LevelFilter::WARN);
        let it = targets(LogLevel::Off, "");
        assert_eq!(least(&it, "cronlatch"), LevelFilter::OFF);
        assert_eq!(least(&it, "redis"), LevelFilter::OFF);
        let it = targets(LogLevel::Error, "");
        assert_eq!(least(&it, "redis"), LevelFilter::ERROR);
    }

    #[test]
    fn the_secrets_of_notifications_are_not_logged_whatever_is_asked_for() {
        let it = filter("trace");
        assert_eq!(least(&it, "ureq::run"), LevelFilter::WARN);
        assert_eq!(least(&it, "ureq_proto::client"), LevelFilter::WARN);
        let quiet = filter("error");
        assert_eq!(least(&quiet, "ureq"), LevelFilter::ERROR);
        assert_eq!(least(&filter("debug,ureq=off"), "ureq"), LevelFilter::OFF);
        for text in ["ureq=debug", "ureq_proto::client=trace", "ureq"] {
            let Filter { targets, faults } = Filter::new(None, text);
            assert_eq!(faults.len(), 1, "{text}");
            assert_eq!(least(&targets, "ureq_proto::client"), LevelFilter::WARN);
        }
    }

    #[test]
    fn what_cannot_be_used_is_named_and_the_rest_is_in_force() {
        let Filter { targets, faults } = Filter::new(None, "cronlatch=debgu,redis=info");
        assert_eq!(least(&targets, "cronlatch"), LevelFilter::INFO);
        assert_eq!(least(&targets, "redis"), LevelFilter::INFO);
        insta::assert_snapshot!(
            faults.join("\n"),
            @"ignoring `cronlatch=debgu` in RUST_LOG: `debgu` is not a level; did you mean `debug`? Write a level (`off`, `error`, `warn`, `info`, `debug`, `trace`), or a target with one, such as `cronlatch::engine=debug`"
        );
        for (text, why) in [
            ("debgu", "`debgu` is not a level; did you mean `debug`?"),
            ("Warning", "`Warning` is not a level; did you mean `warn`?"),
            ("redis=loud", "`loud` is not a level. Write"),
            ("redis=err", "`err` is not a level; did you mean `error`?"),
            ("redis=6", "`6` is not a level. Write"),
            ("redis=debug=info", "`debug=info` is not a level. Write"),
            ("=debug", "`` is not a target. Write"),
            (
                "debug cronlatch=info",
                "`debug cronlatch` is not a target. Write",
            ),
            (
                "cronlatch[{job}]=debug",
                "`cronlatch[{job}]` is not a target. Write",
            ),
            ("\u{fffd}", "`\u{fffd}` is not a target. Write"),
        ] {
            let said = fault(text);
            let start = format!("ignoring `{text}` in RUST_LOG: {why}");
            assert!(said.starts_with(&start), "{said}");
        }
    }

    #[test]
    fn a_target_is_not_taken_for_a_misspelt_level() {
        for target in [
            "redis", "tokio", "hyper", "want", "ring", "mio", "rustls", "rusqlite", "tracing",
            "tower",
        ] {
            filter(target);
        }
    }
}
