//! What `make bench-instructions` concludes from counts.

use std::collections::BTreeMap;

use crate::bench_counts::{Builder, Comparison, Counts};

fn counts(compiler: &str, parts: &[(&str, u64)]) -> Counts {
    let part = |(part, count): &(&str, u64)| ((*part).to_owned(), *count);
    Counts {
        builder: Builder {
            processor: "x86_64".to_owned(),
            compiler: compiler.to_owned(),
        },
        of_part: parts.iter().map(part).collect::<BTreeMap<_, _>>(),
    }
}

#[test]
fn a_count_that_has_risen_by_more_than_five_percent_fails() {
    let reference = counts("rustc 1", &[("claim", 1000)]);
    let passes =
        |count| Comparison::of(&counts("rustc 1", &[("claim", count)]), &reference).passed();
    assert!(passes(1050));
    assert!(!passes(1051));
    assert!(passes(500), "less work is no regression");
}

#[test]
fn another_compiler_may_need_a_fifth_more() {
    let reference = counts("rustc 1", &[("claim", 1000)]);
    let passes =
        |count| Comparison::of(&counts("rustc 2", &[("claim", count)]), &reference).passed();
    assert!(passes(1200));
    assert!(!passes(1201));
}

#[test]
fn a_part_without_a_count_in_the_file_fails() {
    let reference = counts("rustc 1", &[("claim", 1000)]);
    let counted = counts("rustc 1", &[("claim", 1000), ("finish", 1)]);
    let comparison = Comparison::of(&counted, &reference);
    assert!(!comparison.passed());
    assert!(comparison.to_string().contains("finish"));
}

#[test]
fn counts_of_another_processor_are_not_judged() {
    let mut reference = counts("rustc 1", &[("claim", 1000)]);
    reference.builder.processor = "riscv64".to_owned();
    let comparison = Comparison::of(&counts("rustc 1", &[("claim", 9000)]), &reference);
    assert!(comparison.passed());
    assert!(comparison.to_string().contains("not judged"));
}

#[test]
fn the_file_of_counts_is_read_as_it_was_written() {
    let written = counts("rustc 1 (a b)", &[("claim", 1000), ("next_daily", 7)]);
    assert_eq!(written.to_string().parse(), Ok(written));
}
