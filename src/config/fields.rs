//! The fields that a job may have, for those who read a job, its lock, or `defaults:`.

use super::foreign;
use super::section::Vocabulary;

/// The fields of a job, in the order of the example.
pub(super) const JOB: Vocabulary = Vocabulary {
    what: "a job",
    fields: &[
        "name",
        "schedule",
        "every",
        "command",
        "timezone",
        "jitter",
        "enabled",
        "hosts",
        "lock",
        "on_overlap",
        "queue_limit",
        "start_deadline",
        "catch_up",
        "catch_up_window",
        "on_crash",
        "max_reruns",
        "on_lost",
        "on_store_down",
        "timeout",
        "kill_grace",
        "kill_signal",
        "retry",
        "success_exit_codes",
        "user",
        "group",
        "umask",
        "nice",
        "working_dir",
        "env",
        "env_file",
        "shell",
        "pipefail",
        "notify",
        "ping",
        "late_after",
        "long_after",
        "expect_success_within",
    ],
    other_words: foreign::JOB_WORDS,
    elsewhere: &[],
    not_yet: &[],
};

/// The fields that `defaults:` may not have.
pub(super) const NOT_IN_DEFAULTS: [&str; 4] = ["name", "schedule", "every", "command"];

/// The fields of `retry:`.
pub(super) const RETRY: Vocabulary = Vocabulary {
    what: "`retry`",
    fields: &["attempts", "delay", "max_delay", "jitter"],
    other_words: &[
        ("count", "did you mean `attempts`?"),
        ("max", "did you mean `attempts` or `max_delay`?"),
        ("backoff", "did you mean `delay`?"),
    ],
    elsewhere: &[],
    not_yet: &[],
};
