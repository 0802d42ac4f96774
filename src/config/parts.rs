//! Reads a long list in several parts at the same time.
//!
//! The text is cut between two jobs, where a line looks like the start of one. Each part but the first gets a line
//! before it that opens the list again, and becomes a tree of its own. The trees together are that of the whole text
//! if every cut was indeed between two jobs, and this is so if
//!
//! - each part by itself is valid YAML,
//! - each but the last ends within `jobs:`, which is the last field of the first part (the one in the line where the
//!   list was found, so that a second `jobs:` is noticed) and the only field of the others, and
//! - the text has no anchors, no tags, no unusual line ends, and from the first job to the last cut no line that
//!   ends a document.
//!
//! Then the reader of the whole text is in the same state at a cut as at the end of the part before it. It cannot be
//! in quotes or between brackets, because a part that ends there is not valid. It cannot be in a text without quotes or
//! in a block of text, because these are indented more than the jobs (in JSON, because a closing bracket precedes).
//! A part may have no more values than its length allows, so the whole has no more either.
//! Whenever anything is different or wrong, the whole text is read from its start, which also finds the errors: what
//! is wrong with a part is not reported.

use super::node::{KeyValue, Node, Value};
use super::reader::{self, ParsedText, adopt};
use super::source::Source;
use crate::ground::parallel;

/// A shorter part is not worth a thread.
const LEAST: usize = 256 << 10;

/// Reads a long file in parts; `None` if it is short, or cannot be read in parts.
pub(super) fn read(source: &Source, file: usize) -> Option<Node> {
    match parallel::parts_of(source.text.len(), LEAST) {
        1 => None,
        count => read_in(count, source, file),
    }
}

fn read_in(count: usize, source: &Source, file: usize) -> Option<Node> {
    let layout = ListLayout::of(source)?;
    let parts = layout.cut(source, count)?;
    let read = |part: usize| {
        let part = &parts[part];
        let text = part.text(source, &layout);
        let parsed = ParsedText {
            text: &text,
            added: part.added(&layout).len(),
            begins: part.begins,
            // The added line takes the place of the one before.
            lines_before: source.line_index(part.begins).saturating_sub(1),
        };
        reader::read_text(source, file, parsed, 0).ok().flatten()
    };
    join(parallel::in_parts(parts.len(), read), layout.line)
}

/// How the jobs of a file are laid out.
struct ListLayout {
    /// The line of `jobs:`, from 1.
    line: usize,
    /// Where the first job begins.
    first: usize,
    /// What stands where one job ends and the next begins.
    seam: String,
    /// Where in the seam the part before ends.
    end: usize,
    /// Where in the seam the part behind begins.
    begin: usize,
    /// The line that opens the list again.
    opening: &'static str,
    /// What closes it.
    closing: &'static str,
}

/// One part of the text of a file, as bytes.
struct Part {
    begins: usize,
    ends: usize,
    is_last: bool,
}

impl Part {
    fn added<'l>(&self, layout: &'l ListLayout) -> &'l str {
        if self.begins == 0 { "" } else { layout.opening }
    }

    /// A list that can be read by itself.
    fn text(&self, source: &Source, layout: &ListLayout) -> String {
        let closing = if self.is_last { "" } else { layout.closing };
        let text = &source.text[self.begins..self.ends];
        [self.added(layout), text, closing].concat()
    }
}

impl ListLayout {
    /// `None` if the file has neither of the two layouts that can be cut.
    fn of(source: &Source) -> Option<Self> {
        if !source.has_plain_places {
            return None;
        }
        // JSON first: the first byte decides, while the other layout is looked for in all lines.
        Self::json(source).or_else(|| Self::block(source))
    }

    /// `jobs:` at the left margin, and below it each job behind a `- `.
    fn block(source: &Source) -> Option<Self> {
        let (at, key) = line_that(&source.text, 0, |line| line.starts_with("jobs:"))?;
        let is_empty = |text: &str| text.trim().is_empty() || text.trim_start().starts_with('#');
        if !is_empty(key.strip_prefix("jobs:")?) {
            return None;
        }
        let below = at + key.len() + 1;
        let (first, job) = line_that(&source.text, below, |line| !is_empty(line))?;
        let indent = &job[..job.len() - job.trim_start_matches(' ').len()];
        job[indent.len()..].starts_with("- ").then(|| Self {
            line: source.line_index(at) + 1,
            first,
            seam: format!("\n{indent}- "),
            end: 1,
            begin: 1,
            opening: "jobs:\n",
            closing: "",
        })
    }

    /// JSON with a line for each bracket of a job.
    fn json(source: &Source) -> Option<Self> {
        if !source.text.starts_with('{') {
            return None;
        }
        let (at, key) = line_that(&source.text, 0, |line| line.trim() == "\"jobs\": [")?;
        let first = at + key.len() + 1;
        let (_, job) = line_that(&source.text, first, |_| true)?;
        let indent = job.strip_suffix('{')?;
        indent.trim_matches(' ').is_empty().then(|| Self {
            line: source.line_index(at) + 1,
            first,
            seam: format!("\n{indent}}},\n{job}\n"),
            end: indent.len() + 2,
            begin: indent.len() + 4,
            opening: "{\"jobs\": [\n",
            closing: "\n]}",
        })
    }

    /// Cuts the text of a file into at most `count` parts.
    fn cut(&self, source: &Source, count: usize) -> Option<Vec<Part>> {
        let text = &source.text;
        let mut parts: Vec<Part> = Vec::new();
        let mut begins = 0;
        for part in 1..count {
            let wanted = (text.len() / count * part).max(begins).max(self.first);
            let wanted = (wanted..=text.len()).find(|at| text.is_char_boundary(*at))?;
            let Some(at) = text.get(wanted..)?.find(&self.seam).map(|at| wanted + at) else {
                break;
            };
            parts.push(Part {
                begins,
                ends: at + self.end,
                is_last: false,
            });
            begins = at + self.begin;
        }
        // What ends a document would be the end of a part, too.
        let ends_document = |rest: &str| rest.starts_with("---") || rest.starts_with("...");
        if begins == 0
            || source
                .rests_from_lines(self.first, begins)
                .any(ends_document)
        {
            return None;
        }
        parts.push(Part {
            begins,
            ends: text.len(),
            is_last: true,
        });
        Some(parts)
    }
}

/// The first line at or behind `from` for which `has` is true, and where it begins.
fn line_that(text: &str, from: usize, has: impl Fn(&str) -> bool) -> Option<(usize, &str)> {
    let mut at = from;
    for line in text.get(from..)?.split('\n') {
        if has(line) {
            return Some((at, line));
        }
        at += line.len() + 1;
    }
    None
}

/// The tree of the whole text; `None` if a part does not have the expected form. `jobs:` stands in this line.
fn join(parts: Vec<Option<Node>>, line: usize) -> Option<Node> {
    let mut parts = parts.into_iter();
    let mut whole = parts.next()??;
    let Value::Map(all) = &mut whole.value else {
        return None;
    };
    for part in parts {
        let Value::Map(fields) = part?.value else {
            return None;
        };
        let mut fields = fields.into_iter();
        let further = jobs_of(fields.next()?)?;
        // Another field would be the last one if a part before had any behind its jobs.
        let jobs = all.last_mut().filter(|jobs| jobs.span.line == line)?;
        append(jobs, further)?;
        all.extend(fields);
    }
    Some(whole)
}

/// The jobs of `jobs:`.
fn jobs_of(field: KeyValue) -> Option<Vec<Node>> {
    match field.value.value {
        Value::List(jobs) if field.key == "jobs" => Some(jobs),
        _ => None,
    }
}

/// Adds further jobs to `jobs:`.
fn append(jobs: &mut KeyValue, further: Vec<Node>) -> Option<()> {
    let Value::List(list) = &mut jobs.value.value else {
        return None;
    };
    for mut job in further {
        if let Some(before) = list.last() {
            adopt(&mut job, before.span);
        }
        list.push(job);
    }
    (jobs.key == "jobs").then_some(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn source(text: &str) -> Source {
        Source::new(Path::new("jobs.yaml"), text.to_owned())
    }

    /// The tree that is read in so many parts, and that of the whole, with all places.
    fn both(text: &str, count: usize) -> (Option<String>, Option<String>) {
        let source = source(text);
        let shown = |node: Node| format!("{node:?}");
        let whole = reader::read_whole(&source, 0).ok().flatten();
        (read_in(count, &source, 0).map(shown), whole.map(shown))
    }

    /// A field before the jobs and one behind them.
    fn between_fields(jobs: &str) -> String {
        format!("# A list.\nspread: 1s\njobs:\n{jobs}\nnotify:\n  - a\n  - b\nstrict: true\n")
    }

    fn json(indent: usize, job: &str) -> String {
        let pad = " ".repeat(indent);
        let job = |n: usize| {
            let inner = format!("\"name\": \"j{n}\",\n{pad}{pad}{pad}{job}");
            format!("{pad}{pad}{{\n{pad}{pad}{pad}{inner}\n{pad}{pad}}}")
        };
        let jobs: Vec<String> = (0..9).map(job).collect();
        let jobs = jobs.join(",\n");
        format!(
            "{{\n{pad}\"spread\": 1,\n{pad}\"jobs\": [\n{jobs}\n{pad}],\n{pad}\"strict\": true\n}}\n"
        )
    }

    #[test]
    fn a_long_list_is_read_in_parts_with_the_places_of_the_whole() {
        let job = "  - name: ä\n    command: |\n      - x\n\n    # One more.\n    env: { A: 'x\n  y', B: 3 }\n";
        for text in [
            between_fields(&job.repeat(9)),
            between_fields(&job.replace("\n  ", "\n").trim_start().repeat(9)),
            between_fields(&"  # A job.\n  - {}\n".repeat(9)),
            between_fields(&"  - - {}\n    - x\n".repeat(9)),
            format!("jobs: # All.\n\n{}", job.repeat(9)),
            json(2, "\"env\": { \"A\": null }"),
            json(4, "\"command\": [\n\"ä },\"\n]"),
            json(2, "\"notify\": [\n      {\n      },\n      {\n      }]"),
        ] {
            for count in [2, 3, 4] {
                let (parts, whole) = both(&text, count);
                assert!(whole.is_some(), "{text}");
                assert_eq!(parts, whole, "{count} parts of\n{text}");
            }
        }
    }

    #[test]
    fn what_only_looks_like_the_begin_of_a_job_leads_to_the_whole() {
        let quoted = format!("  - name: \"{}\"\n", "\n  - name: x".repeat(9));
        let jobs = "  - name: a\n".repeat(9);
        for text in [
            between_fields(&quoted),
            // The list of another field.
            format!("jobs:\n  - x\nnotify:\n{jobs}"),
            format!("jobs:\n  - x\nnotify:\n{jobs}jobs:\n{jobs}"),
            format!("jobs:\n  - x\njobs:\n- x:\n{jobs}"),
            format!("jobs:\n{jobs}jobs:\n- x:\n{jobs}{jobs}{jobs}"),
            format!("store: |\n  jobs:\njobs: |\n{jobs}"),
            format!("x: \"\njobs:\n{jobs}\"\n"),
            format!("x: [\njobs:\n{jobs}]\n"),
            // A second document.
            format!("jobs:\n{jobs}...\n{jobs}"),
            format!("jobs:\n{jobs}---\n{jobs}"),
            // The YAML library passes over a byte order mark, so a tag may stand behind it.
            format!("jobs:\n{jobs}\n\u{feff}{jobs}"),
            // Anchors and tags.
            between_fields(&format!("  - &a x\n{jobs}")),
            between_fields(&format!("  - !x x\n{jobs}")),
            // Not valid.
            between_fields(&format!("{jobs}  - [\n{jobs}")),
            json(2, "\"env\": [").replace("},", "}, # ["),
            json(2, "\"env\": 1").replace("},", "}  #\n    },"),
            json(2, "\"env\": 1").replace("\"jobs\": [", "\"x\": {\n\"jobs\": ["),
        ] {
            for count in [2, 3, 4] {
                assert_eq!(both(&text, count).0, None, "{count} parts of\n{text}");
            }
        }
    }

    /// Texts of these fragments, which are often valid; the first one most of all.
    fn texts_of(
        begin: &'static str,
        jobs: &'static str,
        others: &'static [&'static str],
        end: &'static str,
    ) -> impl Strategy<Value = String> {
        let fragment = prop_oneof![3 => Just(jobs), 1 => proptest::sample::select(others)];
        proptest::collection::vec(fragment, 4..12)
            .prop_map(move |fragments| format!("{begin}{}{end}", fragments.concat()))
    }

    const BLOCK: &[&str] = &[
        "notify:\n",
        "jobs:\n",
        "...\n",
        "---\n",
        "    x: |\n",
        "    'y\n",
        "  y'\n",
        "  - [\n",
        "  ]\n",
        "  # x\n",
        "\n",
        "      - x\n",
        "    x:\n",
        " - x\n",
        "  - {}\n",
        "  - - a\n",
        "  - é: \"x\n",
        "  - \"\n",
    ];
    const JSON: &[&str] = &[
        "\n    },\n    {\n  ",
        "\n    }\n  ],\n  \"x\": [\n    {\n",
        "\n    }, # x\n    {\n",
        ", \"é\": \"\n",
        ", \"a\": [\n    {\n    },\n    {\n    }\n ]",
        "...\n",
        "\n---\n",
        "#",
        "\n    },\n    {\n",
        ",",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn parts_are_the_whole_or_are_not_used(
            text in prop_oneof![
                texts_of("jobs:\n  - a\n", "  - name: a\n", BLOCK, ""),
                texts_of(
                    "{\n  \"jobs\": [\n    {\n      \"a\": 1",
                    "\n    },\n    {\n      \"a\": 1",
                    JSON,
                    "\n    }\n  ]\n}\n",
                ),
            ],
            count in 2_usize..5,
        ) {
            let (parts, whole) = both(&text, count);
            prop_assert!(parts.is_none() || parts == whole, "{parts:#?}\n{whole:#?}\n{text}");
        }
    }
}
