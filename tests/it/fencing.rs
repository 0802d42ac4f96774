//! The examples of docs/fencing.md do what the page says, taken from it as they stand.

use std::fs;
use std::path::Path;

use crate::docs::{ROOT, blocks};
use crate::support::command;

/// The blocks of this language in the page about fencing.
fn fencing(language: &str) -> Vec<String> {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/fencing.md")).unwrap();
    let blocks = blocks(&page, language).into_iter();
    blocks.map(|(_, text)| text).collect()
}

#[test]
fn a_stale_runs_transaction_is_refused_by_the_database() {
    let blocks = fencing("sql");
    let [tables, begin, compare, write, commit] = blocks.as_slice() else {
        panic!("{blocks:#?}");
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.db");
    let open = || rusqlite::Connection::open(&file).unwrap();
    let (older, newer) = (open(), open());
    older.execute_batch(tables).unwrap();
    // One transaction of a run, as the page tells it; whether it was let through.
    let run = |db: &rusqlite::Connection, token: i64, total: i64| {
        db.execute_batch(begin).unwrap();
        let rows = db.execute(compare, rusqlite::named_params! { ":token": token });
        if rows.unwrap() == 0 {
            db.execute_batch("ROLLBACK").unwrap();
            return false;
        }
        let values = rusqlite::named_params! { ":day": "2026-11-22", ":total": total };
        db.execute(write, values).unwrap();
        db.execute_batch(commit).unwrap();
        true
    };
    let total = || -> i64 {
        let query = "SELECT total FROM report";
        open().query_row(query, [], |row| row.get(0)).unwrap()
    };
    let token = 1_795_309_720_001_402;
    assert!(run(&older, token, 1));
    assert!(run(&older, token, 2), "a second write of the same run");
    assert!(run(&newer, token + 1, 3));
    // The older run stood still all the while, and goes on.
    assert!(!run(&older, token, 4));
    assert_eq!(total(), 3);
    assert!(run(&newer, token + 1, 5));
    assert_eq!(total(), 5);
}

#[test]
fn a_stale_runs_file_is_refused_and_the_newest_of_many_at_once_stays() {
    let scripts = fencing("sh");
    let script = scripts.iter().find(|text| text.starts_with("#!/bin/sh"));
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("put-fenced"), script.unwrap()).unwrap();
    let put = |token: u64, text: &str| {
        let new = path(&format!("report.{text}"));
        fs::write(&new, text).unwrap();
        let mut shell = command::command("sh");
        shell
            .arg(path("put-fenced"))
            .args([new, path("report")])
            .arg(token.to_string());
        command::output(shell)
    };
    let report = || fs::read_to_string(path("report")).unwrap();
    let token = 1_795_309_720_001_402;
    put(token, "older").expect_code(0);
    put(token, "older, again").expect_code(0);
    put(token + 1, "newer").expect_code(0);
    let said = put(token, "stale").expect_code(3);
    assert!(said.stderr.contains("stale"), "{said:?}");
    assert_eq!(report(), "newer");
    // A token file that says nothing refuses, rather than letting everybody through.
    fs::write(path("report.fence"), "").unwrap();
    put(token + 1, "blind").expect_code(3);
    fs::write(path("report.fence"), token.to_string()).unwrap();
    std::thread::scope(|scope| {
        for n in [3, 6, 2, 5, 4] {
            let put = &put;
            scope.spawn(move || put(token + n, &n.to_string()));
        }
    });
    assert_eq!(report(), "6");
}
