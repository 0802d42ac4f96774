//! `output:` at the top of a list: which output of runs stays in files, for how long, and how much.

use std::time::Duration;

use super::model::{KeepOutput, OutputPolicy};
use super::node::Node;
use super::problem::{Problem, Problems};
use super::section::{Section, ValueError, Vocabulary};
use super::values;

/// The fields of `output:`.
pub(super) const OUTPUT: Vocabulary = Vocabulary {
    what: "`output`",
    fields: &["keep", "for", "per_run", "total"],
    other_words: &[
        ("retention", "write `for: 7d`"),
        ("max_size", "write `per_run: 10MiB` or `total: 1GiB`"),
    ],
    elsewhere: &[],
    not_yet: &[],
};

/// The smallest limit of a run: its lines have at most 8 KiB each.
const LEAST_PER_RUN: u64 = 64 << 10;

/// Reads `output:`.
pub(super) fn read(top: Section<'_>, problems: &mut Problems) -> OutputPolicy {
    let default = OutputPolicy::default();
    let none = top.entry("output").and_then(|entry| entry.value.text()) == Some("none");
    if none {
        return OutputPolicy {
            keep: KeepOutput::None,
            ..default
        };
    }
    let Some(section) = top.within("output", &OUTPUT, problems) else {
        return default;
    };
    let words = [
        ("failures", KeepOutput::Failures),
        ("all", KeepOutput::All),
        ("none", KeepOutput::None),
    ];
    let keep = section.read("keep", problems, |node| values::word(node, &words));
    let kept_for = section.read("for", problems, |node| {
        values::duration_in(node, Duration::from_secs(60)..=Duration::MAX, "")
    });
    let per_run = section.read("per_run", problems, |node| size(node, LEAST_PER_RUN));
    let total = section.read("total", problems, |node| size(node, LEAST_PER_RUN));
    let policy = OutputPolicy {
        keep: keep.unwrap_or(default.keep),
        kept_for: kept_for.unwrap_or(default.kept_for),
        per_run: per_run.unwrap_or(default.per_run),
        total: total.unwrap_or(default.total),
    };
    if policy.total < policy.per_run
        && let Some(span) = section.span("total").or_else(|| section.span("per_run"))
    {
        problems.add(
            Problem::new(span, "`total` is less than `per_run`")
                .help("the output of one run must fit into the total"),
        );
    }
    policy
}

/// Units of sizes, longest first.
const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

/// A number of bytes, not less than `least`.
fn size(node: &Node, least: u64) -> Result<u64, ValueError> {
    const HELP: &str = "write a number and a unit, such as `500KiB`, `10MiB` or `1GiB`";
    let text = node.text().unwrap_or("").trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = UNITS.iter().find(|(name, _)| *name == unit.trim_start());
    let parsed = number.parse::<u64>().ok().zip(factor);
    let Some((number, (_, factor))) = parsed else {
        let message = format!("expected a size, found {}", node.found());
        return Err(ValueError::new(message, HELP));
    };
    match number.checked_mul(*factor) {
        Some(bytes) if bytes >= least => Ok(bytes),
        Some(_) => Err(ValueError::new(
            format!(
                "{} is too small: the minimum is {}KiB",
                node.found(),
                least >> 10
            ),
            "",
        )),
        None => Err(ValueError::new(
            format!("{} is too large", node.found()),
            "",
        )),
    }
}
