//! Jobs of crontabs as the text of a job list.

use std::collections::BTreeMap;

use super::model::{CrontabJob, Crontabs, FieldValue, Fields, ImportedList};

/// Returns the list, with the comments of the crontabs.
pub(super) fn of(crontabs: &Crontabs) -> ImportedList {
    let common = common(crontabs);
    let from: Vec<String> = (crontabs.paths.iter())
        .map(|path| visible(&path.display().to_string()))
        .collect();
    let mut text = format!(
        "# Imported from {}.\n\
         #\n\
         # Unlike under cron, the runs of a job do not overlap (`on_overlap`), and a run that came due\n\
         # while the host was down is caught up for one hour (`catch_up`). With `scope: host` each host\n\
         # runs the job, as under cron; without it the job runs once in the whole fleet.\n",
        from.join(", ")
    );
    if !crontabs.targets.is_empty() {
        text += "\nnotify:\n";
        for target in &crontabs.targets {
            let fields: Vec<String> = (target.fields().iter())
                .map(|(name, value)| field(name, value, ""))
                .map(|line| line.trim_end().to_owned())
                .collect();
            text += &format!("  {}: {{ {} }}\n", scalar(&target.name), fields.join(", "));
        }
    }
    if !common.is_empty() {
        text += "\ndefaults:\n";
        for (name, value) in &common {
            text += &field(name, value, "  ");
        }
    }
    text += if crontabs.job_count() == 0 {
        "\njobs: []\n"
    } else {
        "\njobs:\n"
    };
    let mut origins = Vec::new();
    for job in &crontabs.jobs {
        for comment in &job.comments {
            text += &comment_line(comment);
        }
        origins.push((text.lines().count() + 1, job.line));
        text += &job_text(job, &own_fields(job, &common));
    }
    for comment in &crontabs.trailing {
        text += &comment_line(comment);
    }
    ImportedList { text, origins }
}

/// The fields that all jobs have alike, for `defaults:`.
fn common(crontabs: &Crontabs) -> Fields {
    const SHARED: [&str; 8] = [
        "timezone",
        "shell",
        "user",
        "working_dir",
        "env",
        "lock",
        "start_deadline",
        "notify",
    ];
    let jobs: Vec<&CrontabJob> = crontabs.valid_jobs().collect();
    let Some(first) = jobs.first() else {
        return Vec::new();
    };
    let mut common = Vec::new();
    for name in SHARED {
        match first.field(name) {
            Some(FieldValue::Map(map)) => {
                let mut shared = map.clone();
                shared.retain(|key, value| {
                    jobs.iter().all(|job| {
                        matches!(job.field(name), Some(FieldValue::Map(map)) if map.get(key) == Some(value))
                    })
                });
                if !shared.is_empty() {
                    common.push((name, FieldValue::Map(shared)));
                }
            }
            Some(value) if jobs.iter().all(|job| job.field(name) == Some(value)) => {
                common.push((name, value.clone()));
            }
            _ => {}
        }
    }
    common
}

/// The fields of a job that differ from the common ones.
fn own_fields(job: &CrontabJob, common: &Fields) -> Fields {
    let mut own = Vec::new();
    for (name, value) in &job.fields {
        let shared = common.iter().find(|(field, _)| field == name);
        match (value, shared.map(|(_, value)| value)) {
            (FieldValue::Map(map), Some(FieldValue::Map(shared))) => {
                let mut rest = map.clone();
                rest.retain(|key, value| shared.get(key) != Some(value));
                if !rest.is_empty() {
                    own.push((*name, FieldValue::Map(rest)));
                }
            }
            (value, Some(shared)) if value == shared => {}
            (value, _) => own.push((*name, value.clone())),
        }
    }
    own
}

/// A text on one line, for a comment.
fn visible(text: &str) -> String {
    let is_odd = |c: char| (c.is_control() && c != '\t') || is_special(c);
    text.chars()
        .map(|c| if is_odd(c) { ' ' } else { c })
        .collect()
}

/// Characters that YAML takes for line ends or does not allow, but for control characters.
fn is_special(c: char) -> bool {
    matches!(
        c,
        '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
    )
}

fn comment_line(comment: &str) -> String {
    format!("  #{}\n", visible(comment).trim_end())
}

fn job_text(job: &CrontabJob, fields: &Fields) -> String {
    let mut text = format!("  - name: {}\n", scalar(&job.name));
    for (name, value) in fields {
        text += &field(name, value, "    ");
    }
    let Some(why) = &job.refused else {
        return text;
    };
    let mut refused = comment_line(&format!(" refused: {why}"));
    for line in text.lines() {
        refused += &comment_line(&format!(" {}", line.get(2..).unwrap_or("")));
    }
    refused
}

fn field(name: &str, value: &FieldValue, indent: &str) -> String {
    match value {
        FieldValue::Text(value) if is_block(value) => {
            let chomping = if value.ends_with('\n') { "|" } else { "|-" };
            let mut text = format!("{indent}{name}: {chomping}\n");
            for line in escaped(value).lines() {
                if line.is_empty() {
                    text.push('\n');
                } else {
                    text += &format!("{indent}  {line}\n");
                }
            }
            text
        }
        FieldValue::Text(value) if name == "schedule" => {
            let fields: Vec<&str> = value.split_whitespace().collect();
            format!("{indent}{name}: {}\n", scalar(&fields.join(" ")))
        }
        FieldValue::Text(value) => format!("{indent}{name}: {}\n", scalar(value)),
        FieldValue::Expanded(written) => format!("{indent}{name}: \"{written}\"\n"),
        FieldValue::Map(map) => format!("{indent}{name}: {}\n", flow(map)),
        FieldValue::List(items) => {
            let items: Vec<String> = items.iter().map(|item| scalar(item)).collect();
            format!("{indent}{name}: [{}]\n", items.join(", "))
        }
    }
}

fn flow(map: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = map
        .iter()
        .map(|(key, value)| format!("{}: {}", json(key), scalar(value)))
        .collect();
    format!("{{ {} }}", pairs.join(", "))
}

/// Whether a text of several lines can be written as a block.
fn is_block(value: &str) -> bool {
    value.contains('\n')
        && !value.starts_with([' ', '\t', '\n'])
        && !value.ends_with("\n\n")
        && !value.contains(|c: char| (c.is_control() && c != '\n' && c != '\t') || is_special(c))
}

/// A text with `$$` where the list would replace a variable.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut chars = value.chars().peekable();
    while let Some(c) = chars.next() {
        text.push(c);
        if c == '$' && matches!(chars.peek(), Some('$' | '{')) {
            text.push('$');
        }
    }
    text
}

/// A value as a YAML scalar.
fn scalar(value: &str) -> String {
    json(&escaped(value))
}

/// A text as a YAML scalar: plain where that cannot be read as anything else, otherwise a string of
/// JSON, which YAML reads, too.
fn json(text: &str) -> String {
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_./-@".contains(c))
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "true" | "false" | "yes" | "no" | "on" | "off" | "null" | "y" | "n"
        );
    if is_plain {
        return text.to_owned();
    }
    let mut out = String::new();
    for c in serde_json::Value::from(text).to_string().chars() {
        if c.is_control() || is_special(c) {
            out += &format!("\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}
