//! `history:` at the top of a list: how much the store keeps of what each job did.

use std::time::Duration;

use super::node::Value;
use super::problem::Problems;
use super::section::{Section, Vocabulary};
use super::values;
use crate::store::Retention;

/// The fields of `history:`.
const HISTORY: Vocabulary = Vocabulary {
    what: "`history`",
    fields: &["records", "failures", "keep"],
    other_words: &[
        ("runs", "did you mean `records`?"),
        ("limit", "did you mean `records`?"),
        ("age", "did you mean `keep`?"),
        ("for", "did you mean `keep`?"),
        ("retention", "did you mean `keep`?"),
    ],
    elsewhere: &[],
    not_yet: &[],
};

/// A shorter time would lose last night's runs before somebody is at work.
const SHORTEST: Duration = Duration::from_secs(3600);
const LONGEST: Duration = Duration::from_secs(3650 * 86_400);

/// Reads `history`: a number of records, or a mapping.
pub(super) fn read(top: Section<'_>, problems: &mut Problems) -> Retention {
    let default = Retention::DEFAULT;
    let Some(entry) = top.entry("history") else {
        return default;
    };
    if !matches!(entry.value.value, Value::Map(_)) {
        let records = top.read("history", problems, |n| values::number(n, 1..=100_000));
        return records.map_or(default, Retention::of_records);
    }
    let Some(section) = top.within("history", &HISTORY, problems) else {
        return default;
    };
    let records = section.read("records", problems, |n| values::number(n, 1..=100_000));
    let failures = section.read("failures", problems, |n| values::number(n, 0..=100_000));
    let age = section.read("keep", problems, |n| {
        values::duration_in(n, SHORTEST..=LONGEST, "")
    });
    Retention {
        records: records.unwrap_or(default.records),
        failures: failures.unwrap_or(default.failures),
        age: age.unwrap_or(default.age),
    }
}
