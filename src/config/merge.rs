//! Merge keys: `<<: *name` takes over the fields of another mapping; own fields win.

use super::node::{KeyValue, Node, Value};
use super::problem::{Problem, Problems};

/// Replaces all merge keys of a tree.
pub(super) fn apply(node: &mut Node, problems: &mut Problems) {
    match &mut node.value {
        Value::List(list) => {
            for item in list {
                apply(item, problems);
            }
        }
        Value::Map(entries) => {
            for entry in &mut *entries {
                apply(&mut entry.value, problems);
            }
            if entries.iter().any(|e| e.key == "<<") {
                merge(entries, problems);
            }
        }
        _ => {}
    }
}

fn merge(entries: &mut Vec<KeyValue>, problems: &mut Problems) {
    let (merges, own): (Vec<_>, Vec<_>) = std::mem::take(entries)
        .into_iter()
        .partition(|e| e.key == "<<");
    *entries = own;
    for merge in merges {
        let parts = match merge.value.value {
            Value::List(list) => list,
            _ => vec![merge.value],
        };
        for part in parts {
            match part.value {
                // The first mapping of a list wins over later ones, as the merge key's text says.
                Value::Map(fields) => {
                    for field in fields {
                        if !entries.iter().any(|e| e.key == field.key) {
                            entries.push(field);
                        }
                    }
                }
                Value::Broken => {}
                _ => problems.add(
                    Problem::new(
                        part.span,
                        format!("`<<` merges a mapping, not {}", part.found()),
                    )
                    .help("write `<<: *name`, with `&name` before a mapping"),
                ),
            }
        }
    }
}
