//! The policies of a job: what happens when it cannot simply run.

use std::time::Duration;

use super::foreign;
use super::lock;
use super::model::{CatchUp, OnCrash, OnLost, OnOverlap, OnStoreDown, Scope};
use super::problem::{Problems, Warning};
use super::section::Section;
use super::values;

/// `start_deadline` of a job that does not set it.
pub(crate) const DEFAULT_START_DEADLINE: Duration = Duration::from_secs(300);
/// `catch_up_window` of a job that does not set it.
pub(crate) const DEFAULT_CATCH_UP_WINDOW: Duration = Duration::from_secs(3600);
/// `max_reruns` of a job that does not set it.
pub(crate) const DEFAULT_MAX_RERUNS: u32 = 3;
/// `queue_limit` of a job that does not set it.
pub(crate) const DEFAULT_QUEUE_LIMIT: usize = 10;

/// The policies that are a word or a duration each.
pub(super) struct Policies {
    pub(super) start_deadline: Duration,
    pub(super) catch_up: CatchUp,
    pub(super) catch_up_window: Duration,
    pub(super) on_crash: OnCrash,
    pub(super) on_lost: OnLost,
    pub(super) on_store_down: OnStoreDown,
}

impl Policies {
    pub(super) fn read(section: Section<'_>, problems: &mut Problems) -> Self {
        let max_reruns = section
            .read("max_reruns", problems, |n| values::number(n, 1..=1000))
            .unwrap_or(DEFAULT_MAX_RERUNS);
        let on_crash = section.read("on_crash", problems, |n| {
            values::word_or_foreign(
                n,
                &[
                    ("ignore", OnCrash::Ignore),
                    ("rerun", OnCrash::Rerun { max_reruns }),
                ],
                foreign::CRASH_WORDS,
            )
        });
        Self {
            start_deadline: section
                .read("start_deadline", problems, |n| {
                    values::duration_in(
                        n,
                        Duration::from_secs(1)..=Duration::MAX,
                        "until then a job waits for the store, its lock and a free slot",
                    )
                })
                .unwrap_or(DEFAULT_START_DEADLINE),
            catch_up: section
                .read("catch_up", problems, |n| {
                    values::word_or_foreign(
                        n,
                        &[
                            ("none", CatchUp::None),
                            ("latest", CatchUp::Latest),
                            ("all", CatchUp::All),
                        ],
                        foreign::CATCH_UP_WORDS,
                    )
                })
                .unwrap_or(CatchUp::Latest),
            catch_up_window: section
                .read("catch_up_window", problems, values::duration)
                .unwrap_or(DEFAULT_CATCH_UP_WINDOW),
            on_crash: on_crash.unwrap_or(OnCrash::Ignore),
            on_lost: section
                .read("on_lost", problems, |n| {
                    values::word(n, &[("kill", OnLost::Kill), ("continue", OnLost::Continue)])
                })
                .unwrap_or(OnLost::Kill),
            on_store_down: section
                .read("on_store_down", problems, |n| {
                    values::word(
                        n,
                        &[
                            ("wait", OnStoreDown::Wait),
                            ("run", OnStoreDown::Run),
                            ("skip", OnStoreDown::Skip),
                        ],
                    )
                })
                .unwrap_or(OnStoreDown::Wait),
        }
    }
}

pub(super) fn overlap(
    section: Section<'_>,
    lock: &lock::LockPart,
    problems: &mut Problems,
) -> OnOverlap {
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
pub(super) fn idle(
    section: Section<'_>,
    policies: &Policies,
    on_overlap: OnOverlap,
    lock: &lock::LockPart,
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
        (section.own_entry("queue_limit"), on_overlap)
    {
        let text = "`queue_limit` has no effect without `on_overlap: queue`";
        warnings.push(Warning::new(entry.span, text));
    }
}
