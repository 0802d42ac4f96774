//! Turns the command line into a plan.

use std::ffi::OsString;
use std::time::Duration;

use super::{Args, show};
use crate::cli::Failure;
use crate::config::OnLost;
use crate::ground::timing;
use crate::latch::WaitLimit;
use crate::store::Lock;

/// What `exec` is to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) lock: Lock,
    pub(super) ttl: Duration,
    pub(super) wait: WaitLimit,
    pub(super) grace: Duration,
    pub(super) on_lost: OnLost,
    pub(super) timeout: Option<Duration>,
    pub(super) argv: Vec<OsString>,
}

impl Plan {
    pub(super) fn new(args: Args) -> Result<Self, Failure> {
        let lock = match (&args.lock, &args.key) {
            (Some(name), _) => Lock::named(name),
            (None, Some(key)) => Lock::raw(key),
            (None, None) => {
                return Err(Failure::Usage("--lock or --key must be given".to_owned()));
            }
        };
        let grace = args
            .kill_grace
            .unwrap_or_else(|| timing::default_kill_grace(args.ttl));
        let on_lost = OnLost::from(args.on_lost);
        check_ttl(args.ttl, grace)?;
        if args.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(Failure::Usage(
                "--timeout must be greater than 0".to_owned(),
            ));
        }
        Ok(Self {
            lock,
            ttl: args.ttl,
            wait: match args.wait {
                None => WaitLimit::UpTo(Duration::ZERO),
                Some(None) => WaitLimit::Forever,
                Some(Some(wait)) => WaitLimit::UpTo(wait),
            },
            grace,
            on_lost,
            timeout: args.timeout,
            argv: args.command,
        })
    }
}

fn check_ttl(ttl: Duration, grace: Duration) -> Result<(), Failure> {
    let needed = timing::needed(ttl, grace);
    if ttl >= needed {
        return Ok(());
    }
    let [renewal, answers, drift] =
        [ttl / 3, 2 * timing::response_timeout(ttl), ttl / 100].map(show);
    Err(Failure::Usage(format!(
        "--ttl {} is too short: {} are needed, namely {renewal} until the next renewal, {answers} \
         for two replies that do not arrive, {} for --kill-grace, {drift} for clock drift and {} \
         for the kill; use a longer --ttl{}",
        show(ttl),
        show(needed),
        show(grace),
        show(timing::KILL_MARGIN),
        if grace.is_zero() {
            ""
        } else {
            " or a shorter --kill-grace"
        },
    )))
}

/// Reads a raw key.
pub(in crate::cli) fn key(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("a key cannot be empty".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;

    use super::Plan;
    use crate::cli::exec::Args;
    use crate::config::OnLost;
    use crate::latch::WaitLimit;
    use crate::store::Lock;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn plan(line: &str) -> Result<Plan, String> {
        let words = std::iter::once("exec").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|e| e.to_string())?;
        Plan::new(line.args).map_err(|e| e.to_string())
    }

    #[test]
    fn defaults_are_those_of_the_design() {
        let plan = plan("--lock a -- echo").expect("a sound command line");
        assert_eq!(plan.ttl, Duration::from_secs(30));
        assert_eq!(plan.grace, Duration::from_millis(7500));
        assert_eq!(plan.wait, WaitLimit::UpTo(Duration::ZERO));
        assert_eq!(plan.on_lost, OnLost::Kill);
        assert_eq!(plan.timeout, None);
    }

    #[test]
    fn wait_takes_a_duration_or_none() {
        for (line, wait) in [
            ("--lock a --wait -- echo", WaitLimit::Forever),
            ("--lock a --wait 0 -- echo", WaitLimit::UpTo(Duration::ZERO)),
            (
                "--lock a --wait 10s -- echo",
                WaitLimit::UpTo(Duration::from_secs(10)),
            ),
            (
                "--lock a --wait=2m -- echo",
                WaitLimit::UpTo(Duration::from_secs(120)),
            ),
            ("--wait --lock a echo", WaitLimit::Forever),
        ] {
            assert_eq!(plan(line).map(|p| p.wait), Ok(wait), "{line}");
        }
    }

    #[test]
    fn everything_after_the_command_is_the_commands() {
        for line in [
            "--key app:1 -- cmd --lock b -c x -- y",
            "--key app:1 cmd --lock b -c x -- y",
        ] {
            let plan = plan(line).expect("a sound command line");
            assert_eq!(plan.lock, Lock::raw("app:1"));
            assert_eq!(plan.argv, ["cmd", "--lock", "b", "-c", "x", "--", "y"]);
        }
    }

    #[test]
    fn a_ttl_too_short_for_the_grace_is_refused_with_the_sum() {
        for line in [
            "--lock a --ttl 1s -- echo",
            "--lock a --ttl 30s --kill-grace 20s -- echo",
            "--lock a --ttl 0 -- echo",
        ] {
            let error = plan(line).expect_err(line);
            assert!(error.contains("is too short"), "{error}");
        }
        insta::assert_snapshot!(plan("--lock a --ttl 3s --kill-grace 2s -- echo").expect_err("short"), @"--ttl 3s is too short: 4s30ms are needed, namely 1s until the next renewal, 500ms for two replies that do not arrive, 2s for --kill-grace, 30ms for clock drift and 500ms for the kill; use a longer --ttl or a shorter --kill-grace");
    }

    #[test]
    fn command_lines_that_mean_nothing_are_refused() {
        for line in [
            "-- echo",
            "--lock a",
            "--lock a --key b -- echo",
            "--lock a/b -- echo",
            "--key= -- echo",
            "--lock a --wait echo",
            "--lock a --ttl 30 -- echo",
            "--lock a --timeout 0 -- echo",
            "--lock a --on-lost ignore -- echo",
        ] {
            assert!(plan(line).is_err(), "{line}");
        }
    }
}
