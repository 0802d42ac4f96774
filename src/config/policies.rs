//! The policies of a job: what happens when it cannot simply run, how its attempts end, and where it runs.

use std::time::Duration;

use super::fields::RETRY;
use super::foreign;
use super::lock::{self, LockPart};
use super::model::{
    CatchUp, HostPatterns, JobPolicies, OnCrash, OnLost, OnOverlap, OnStoreDown, Retry, Scope,
};
use super::node::{Node, Value};
use super::problem::{Problem, Problems, Warning};
use super::section::{Section, ValueError};
use super::values;
use crate::names::JobName;

/// `start_deadline` of a job that does not set it.
pub(crate) const DEFAULT_START_DEADLINE: Duration = Duration::from_secs(300);
/// `catch_up_window` of a job that does not set it.
pub(crate) const DEFAULT_CATCH_UP_WINDOW: Duration = Duration::from_secs(3600);
/// `max_reruns` of a job that does not set it.
pub(crate) const DEFAULT_MAX_RERUNS: u32 = 3;
/// `queue_limit` of a job that does not set it.
pub(crate) const DEFAULT_QUEUE_LIMIT: usize = 10;

/// Reads the policies of a job, and its lock, which some of them depend on.
pub(super) fn read(
    section: Section<'_>,
    job: Option<&JobName>,
    problems: &mut Problems,
    warnings: &mut Vec<Warning>,
) -> (JobPolicies, LockPart) {
    let on_lost = section
        .read("on_lost", problems, |n| {
            values::word(n, &[("kill", OnLost::Kill), ("continue", OnLost::Continue)])
        })
        .unwrap_or(OnLost::Kill);
    let lock = lock::read(section, job, on_lost, problems);
    let policies = JobPolicies {
        on_overlap: overlap(section, &lock, problems),
        start_deadline: section
            .read("start_deadline", problems, |n| {
                values::duration_in(
                    n,
                    Duration::from_secs(1)..=Duration::MAX,
                    "until then a job waits for the store, its lock and a free slot",
                )
            })
            .unwrap_or(DEFAULT_START_DEADLINE),
        catch_up: catch_up(section, problems),
        catch_up_window: section
            .read("catch_up_window", problems, values::duration)
            .unwrap_or(DEFAULT_CATCH_UP_WINDOW),
        on_crash: on_crash(section, problems),
        on_lost,
        on_store_down: on_store_down(section, problems),
        timeout: timeout(section, problems),
        kill: lock.kill,
        retry: retry(section, problems),
        success_exit_codes: section
            .read("success_exit_codes", problems, values::exit_codes)
            .unwrap_or_else(|| [0].into()),
        hosts: hosts(section, problems, warnings),
    };
    idle(section, &policies, &lock, warnings);
    (policies, lock)
}

fn catch_up(section: Section<'_>, problems: &mut Problems) -> CatchUp {
    let words = [
        ("none", CatchUp::None),
        ("latest", CatchUp::Latest),
        ("all", CatchUp::All),
    ];
    section
        .read("catch_up", problems, |n| {
            values::word_or_foreign(n, &words, foreign::CATCH_UP_WORDS)
        })
        .unwrap_or(CatchUp::Latest)
}

fn on_crash(section: Section<'_>, problems: &mut Problems) -> OnCrash {
    let max_reruns = section
        .read("max_reruns", problems, |n| values::number(n, 1..=1000))
        .unwrap_or(DEFAULT_MAX_RERUNS);
    let words = [
        ("ignore", OnCrash::Ignore),
        ("rerun", OnCrash::Rerun { max_reruns }),
    ];
    section
        .read("on_crash", problems, |n| {
            values::word_or_foreign(n, &words, foreign::CRASH_WORDS)
        })
        .unwrap_or(OnCrash::Ignore)
}

fn on_store_down(section: Section<'_>, problems: &mut Problems) -> OnStoreDown {
    let words = [
        ("wait", OnStoreDown::Wait),
        ("run", OnStoreDown::Run),
        ("skip", OnStoreDown::Skip),
    ];
    section
        .read("on_store_down", problems, |n| values::word(n, &words))
        .unwrap_or(OnStoreDown::Wait)
}

fn overlap(section: Section<'_>, lock: &LockPart, problems: &mut Problems) -> OnOverlap {
    let limit = section
        .read("queue_limit", problems, |n| values::number(n, 1..=10_000))
        .unwrap_or(DEFAULT_QUEUE_LIMIT);
    section
        .read("on_overlap", problems, |n| {
            values::word_or_foreign(
                n,
                &[
                    ("skip", OnOverlap::Skip),
                    ("wait", OnOverlap::Wait),
                    ("queue", OnOverlap::Queue { limit }),
                ],
                foreign::OVERLAP_WORDS,
            )
        })
        // A lock that others take too is expected to be held now and then.
        .unwrap_or(if lock.is_named() {
            OnOverlap::Wait
        } else {
            OnOverlap::Skip
        })
}

/// Limits of policies that the job does not have.
fn idle(
    section: Section<'_>,
    policies: &JobPolicies,
    lock: &LockPart,
    warnings: &mut Vec<Warning>,
) {
    if let (Some(entry), Scope::None) = (section.own_entry("on_overlap"), lock.scope) {
        let text = "`on_overlap` has no effect with `scope: none`: runs of this job take no lock and \
                    may overlap";
        warnings.push(Warning::new(entry.span, text));
    }
    if let (Some(entry), OnCrash::Ignore) = (section.own_entry("max_reruns"), policies.on_crash) {
        let text = "`max_reruns` has no effect without `on_crash: rerun`";
        warnings.push(Warning::new(entry.span, text));
    }
    if let (Some(entry), OnOverlap::Skip | OnOverlap::Wait) =
        (section.own_entry("queue_limit"), policies.on_overlap)
    {
        let text = "`queue_limit` has no effect without `on_overlap: queue`";
        warnings.push(Warning::new(entry.span, text));
    }
}

fn timeout(section: Section<'_>, problems: &mut Problems) -> Option<Duration> {
    const LEAST: Duration = Duration::from_millis(1);
    section.read_or_none("timeout", problems, |node| {
        values::duration_in(
            node,
            LEAST..=Duration::MAX,
            "`timeout: none` means no limit",
        )
    })
}

fn retry(section: Section<'_>, problems: &mut Problems) -> Option<Retry> {
    let retry = section.within_or_none("retry", &RETRY, problems)?;
    if retry.entry("attempts").is_none() {
        let place = section.entry("retry").map(|e| e.span)?;
        problems.add(
            Problem::new(place, "`retry` has no `attempts`")
                .help("write `retry: { attempts: 3 }`: attempts in all, the first included"),
        );
    }
    let attempts = retry.read("attempts", problems, |n| values::number(n, 1..=1000));
    let delay = retry
        .read("delay", problems, values::duration)
        .unwrap_or(Duration::from_secs(10));
    let max_delay = retry.read("max_delay", problems, |n| {
        let max = values::duration(n)?;
        if max < delay {
            return Err(ValueError::new(
                format!("`max_delay` {} is less than `delay`", n.found()),
                "the delay starts at `delay` and doubles up to `max_delay`",
            ));
        }
        Ok(max)
    });
    let jitter = retry.read("jitter", problems, values::boolean);
    Some(Retry {
        attempts: attempts?,
        delay,
        max_delay: max_delay.unwrap_or(Duration::from_secs(300).max(delay)),
        jitter: jitter.unwrap_or(true),
    })
}

fn hosts(
    section: Section<'_>,
    problems: &mut Problems,
    warnings: &mut Vec<Warning>,
) -> HostPatterns {
    let patterns = section.read("hosts", problems, |node| {
        let patterns = values::texts(node)?;
        if matches!(&node.value, Value::List(list) if list.is_empty()) {
            return Err(ValueError::new(
                "an empty list names no host",
                "remove `hosts` for all hosts, or write `enabled: false`",
            ));
        }
        ValueError::of_each(&patterns, |(pattern, item)| {
            balanced(pattern, item).map_err(|t| t.with_item(item))
        })?;
        for (pattern, item) in &patterns {
            let odd = pattern
                .chars()
                .find(|c| !c.is_ascii_alphanumeric() && !"._-*?[]{},!^\\".contains(*c));
            if let Some(odd) = odd {
                warnings.push(Warning::new(
                    item.span,
                    format!("`hosts: {pattern}` matches no host: none has {odd:?} in its name"),
                ));
            }
        }
        Ok(patterns.into_iter().map(|(pattern, _)| pattern).collect())
    });
    HostPatterns(patterns.unwrap_or_default())
}

fn balanced(pattern: &str, item: &Node) -> Result<(), ValueError> {
    let count = |c: char| pattern.matches(c).count();
    if pattern.is_empty() || count('[') != count(']') || count('{') != count('}') {
        return Err(ValueError::new(
            format!("{} is not a pattern", item.found()),
            "`*` matches any characters, `?` one character, `[ab]` and `{web,db}` one of several",
        ));
    }
    Ok(())
}
