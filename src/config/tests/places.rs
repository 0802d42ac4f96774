//! The place of an error is where the mistake stands, however YAML writes it.

use super::{errors, job, read};

/// `LINE:COLUMN` of the only error, and what the carets underline.
#[track_caller]
fn place(text: &str) -> (String, String) {
    let Err(errors) = read(text) else {
        panic!("accepted:\n{text}")
    };
    let shown = errors.to_string();
    let all: Vec<_> = errors.iter().collect();
    let [error] = all.as_slice() else {
        panic!("one error, not:\n{shown}")
    };
    let carets = shown.lines().find(|l| l.contains('^')).unwrap_or("");
    let line = shown.lines().find(|l| l.contains(" | ")).unwrap_or("");
    let from = carets.chars().take_while(|c| *c != '^').count();
    let width = carets.chars().filter(|c| *c == '^').count();
    let marked = line.chars().skip(from).take(width).collect();
    (format!("{}:{}", error.line, error.column), marked)
}

#[test]
fn scalars_of_every_style_are_found() {
    for (field, column, marked) in [
        ("timeout: soon", 14, "soon"),
        ("timeout:    soon", 17, "soon"),
        ("timeout: 'soon'", 14, "'soon'"),
        ("timeout: \"so\\x6fn\"", 14, "\"so\\x6fn\""),
        ("timeout: &x soon", 17, "soon"),
        ("timeout: !!str soon", 20, "soon"),
        ("timeout: 5", 14, "5"),
        ("timeout: -1.5e3", 14, "-1.5e3"),
        ("\"timeout\": soon # comment", 16, "soon"),
        ("? timeout\n: soon", 7, "soon"),
        ("env: { A: ä, 1Ü: y }", 18, "1Ü"),
        ("lock: { key: ö, scope: flete }", 28, "flete"),
    ] {
        let (at, shown) = place(&job(field));
        let line = if field.contains('\n') { 6 } else { 5 };
        assert_eq!(at, format!("{line}:{column}"), "{field}");
        // A variable's value is hidden, and the line begins where its name does.
        assert_eq!(shown, marked, "{field}");
    }
}

#[test]
fn a_place_inside_a_cron_expression_is_exact() {
    for (schedule, at, marked) in [
        ("'5 25 * * *'", "3:18", "25"),
        ("\"5 25 * * *\"", "3:18", "25"),
        ("5 25 * * *", "3:17", "25"),
    ] {
        let text = format!(
            "\
jobs:
  - name: j
    schedule: {schedule}
    command: x
"
        );
        assert_eq!(
            place(&text),
            (at.to_owned(), marked.to_owned()),
            "{schedule}"
        );
    }
    // From the environment there is nothing to point into.
    let text = "\
jobs:
  - name: j
    schedule: ${X:-5 25 * * *}
    command: x
";
    assert_eq!(place(text).1, "${X:-5 25 * * *}");
}

#[test]
fn an_alias_leads_to_where_its_value_stands() {
    let text = "x-t: &t soon\njobs:\n  - { name: j, every: 1h, command: x, timeout: *t }\n";
    assert_eq!(place(text), ("1:9".to_owned(), "soon".to_owned()));
}

#[test]
fn an_inherited_mistake_is_told_once_where_it_stands() {
    let text = "\
defaults: { timeout: soon }
jobs:
  - { name: a, every: 1h, command: x }
  - { name: b, every: 1h, command: x }
";
    assert_eq!(place(text), ("1:22".to_owned(), "soon".to_owned()));
}

#[test]
fn windows_line_ends_and_a_byte_order_mark_shift_nothing() {
    let text = format!("\u{feff}{}", job("timeout: soon").replace('\n', "\r\n"));
    assert_eq!(place(&text), ("5:14".to_owned(), "soon".to_owned()));
    let text = format!("\u{feff}drain_timeout: soon\n{}", job(""));
    assert_eq!(place(&text), ("1:16".to_owned(), "soon".to_owned()));
}

#[test]
fn an_item_of_a_list_has_a_place_of_its_own() {
    let text = job("success_exit_codes: [0, 1, 300]");
    assert_eq!(place(&text), ("5:32".to_owned(), "300".to_owned()));
}

#[test]
fn a_long_line_is_shown_around_its_place() {
    let text = format!(
        "jobs:\n  - {{ name: j, every: 1h, env: {{ A: \"{}\" }}, timeout: soon, command: [{}] }}\n",
        "x".repeat(300),
        "y, ".repeat(100)
    );
    let shown = errors(&text);
    let longest = shown.lines().map(|l| l.chars().count()).max();
    assert!(longest < Some(140), "{shown}");
    assert!(shown.contains("timeout: soon"), "{shown}");
    assert_eq!(place(&text).1, "soon");
}

#[test]
fn a_very_short_ttl_is_refused_with_the_sum_shown() {
    let text = [
        job("lock: { ttl: 2s }"),
        job("lock: { ttl: 10s }\nkill_grace: 6s"),
        job("kill_grace: 1m"),
        job("kill_grace: 25h"),
        format!(
            "defaults: {{ lock: {{ ttl: 5s }} }}\n{}",
            job("kill_grace: 4s")
        ),
    ]
    .map(|text| errors(&text))
    .join("\n\n");
    insta::assert_snapshot!(text);
    // Nothing has to end in time when the job may go on.
    assert!(read(&job("kill_grace: 1m\non_lost: continue")).is_ok());
    assert!(read(&job("lock: { ttl: 3s }")).is_ok());
}
