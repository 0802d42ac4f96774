//! Files of earlier versions, and of a later one.

use rusqlite::Connection;

use super::{at, work};
use crate::names::{JobName, LockName};
use crate::store::sqlite::{history, rows, schema};
use crate::store::{Lock, Outcome};

/// A record as every version has written it, that of a run that failed.
const FAILED: &str = r#"{"job":"j","run_id":"r1","kind":"schedule",
    "scheduled_at":"2026-01-31T02:30:00Z","started_at":"2026-01-31T02:30:00.100Z",
    "finished_at":"2026-01-31T02:31:00Z","host":"web1","outcome":"failed","reason":null,"by":null,
    "exit_code":2,"signal":null,"attempts":1,"fence":7,"output_tail":"alas"}"#;
/// When that run ended, in ms.
const FINISHED: i64 = 1_769_826_660_000;

fn job() -> JobName {
    JobName::parse("j").expect("a name")
}

fn lock() -> Lock {
    Lock::named(&LockName::parse("l").expect("a name"))
}

fn new_file() -> (tempfile::TempDir, Connection) {
    let directory = tempfile::tempdir().expect("a directory");
    let db = Connection::open(directory.path().join("db")).expect("a database");
    (directory, db)
}

/// An empty file of an earlier version.
fn of_version(version: usize) -> (tempfile::TempDir, Connection) {
    let (directory, db) = new_file();
    schema::migrate(&db, 0, version).expect("the steps of that version");
    schema::mark(&db, 1000, version).expect("a marker");
    (directory, db)
}

#[test]
fn a_file_of_any_earlier_version_is_read_with_what_it_has() {
    for version in 1..schema::version() {
        let (_directory, mut db) = of_version(version);
        let succeeded = FAILED
            .replace("\"failed\"", "\"succeeded\"")
            .replace("r1", "r2");
        db.execute_batch(&format!(
            "INSERT INTO locks (lock, boot, fence, lease_end, used_at) VALUES ('l', 'b', 7, 0, 1000);
             INSERT INTO jobs (lock, job, last, fingerprints) VALUES ('l', 'j', 5000, '[[\"f\",1000]]');
             INSERT INTO records (lock, job, record) VALUES ('l', 'j', '{FAILED}');
             INSERT INTO records (lock, job, record) VALUES ('l', 'j', '{succeeded}');
             INSERT INTO records (lock, job, record) VALUES ('l', 'j', 'not JSON');"
        ))
        .expect("rows of that version");
        schema::prepare(&mut db, 2000, "test").expect("a newer version reads it");
        let now = work(&db, at(10_000, 1000, "b"));
        let id = rows::id_of(&lock());
        let ledger = rows::load_job(&db, &id, &job()).expect("a row");
        let last = ledger.expect("a ledger").last.millis();
        assert_eq!(last, 5000, "version {version}");
        let records = history::newest(&now, &job(), &lock(), 10).expect("records");
        let outcomes: Vec<_> = records.records.iter().map(|it| it.outcome).collect();
        assert_eq!(
            outcomes,
            [Outcome::Succeeded, Outcome::Failed],
            "version {version}"
        );
        assert_eq!(records.unreadable.len(), 1, "version {version}");
        if version < 9 {
            // Since then a record says itself whether it is a failure, and how old it is.
            let noted: (i64, i64) = db
                .query_row("SELECT failed, at FROM records WHERE id = 1", [], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .expect("a record");
            assert_eq!(noted, (1, FINISHED), "version {version}");
            let failures = history::failures(&now, 10).expect("records");
            assert_eq!(failures.records.len(), 1, "version {version}");
        }
    }
}

#[test]
fn a_record_without_an_end_or_that_cannot_be_read_is_as_old_as_the_migration() {
    let (_directory, mut db) = of_version(8);
    let interrupted = FAILED
        .replace("\"failed\"", "\"interrupted\"")
        .replace("\"2026-01-31T02:31:00Z\"", "null");
    db.execute_batch(&format!(
        "INSERT INTO records (lock, job, record) VALUES ('l', 'j', '{interrupted}');
         INSERT INTO records (lock, job, record) VALUES ('l', 'j', CAST(x'ff' AS TEXT));"
    ))
    .expect("rows of that version");
    schema::prepare(&mut db, 2000, "test").expect("a newer version reads it");
    let noted: Vec<(i64, bool)> = db
        .prepare(
            "SELECT failed, at > strftime('%s', 'now', '-1 hour') * 1000 FROM records ORDER BY id",
        )
        .and_then(|mut select| {
            let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        })
        .expect("records");
    assert_eq!(noted, [(1, true), (0, true)]);
}

#[test]
fn a_file_that_the_program_of_format_9_has_left_is_read() {
    let (_directory, mut db) = new_file();
    db.execute_batch(include_str!("../../../../tests/fixtures/format-9.sql"))
        .expect("a dump");
    db.execute_batch("PRAGMA application_id = 1131564148; PRAGMA user_version = 9;")
        .expect("its marks");
    schema::prepare(&mut db, 0, "test").expect("a newer version reads it");
    let now = work(&db, at(1_795_550_750_000, 1000, "another boot"));
    for (name, outcome) in [("tick", Outcome::Succeeded), ("bad", Outcome::Failed)] {
        let job = JobName::parse(name).expect("a name");
        let lock = Lock::named(&LockName::parse(name).expect("a name"));
        let ledger = rows::load_job(&db, &rows::id_of(&lock), &job).expect("a row");
        let ledger = ledger.expect("a ledger");
        assert_eq!(ledger.last.millis(), 1_795_550_749_000);
        let newest = ledger.summary.newest.expect("a verdict");
        assert_eq!(newest.outcome, outcome);
        let records = history::newest(&now, &job, &lock, 10)
            .expect("records")
            .records;
        assert_eq!(records.len(), 4);
        assert!(records.iter().all(|record| record.outcome == outcome));
    }
    assert_eq!(
        history::failures(&now, 10).expect("records").records.len(),
        4
    );
}

#[test]
fn a_file_of_a_later_version_is_refused_and_says_what_to_do() {
    let later = schema::version() + 1;
    let (_directory, mut db) = of_version(schema::version());
    db.pragma_update(None, "user_version", i64::try_from(later).expect("small"))
        .expect("its mark");
    let refused = schema::prepare(&mut db, 0, "jobs.db").expect_err("it is newer");
    let text = refused.to_string();
    assert!(text.contains(&format!("format {later}")), "{text}");
    assert!(text.ends_with("upgrade this program"), "{text}");
}
