//! What only a test that sets the clocks can see.

mod migration;

use std::cell::Cell;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::clock::TransactionTime;
use super::context::{BUSY, WorkContext};
use super::history;
use super::lifetimes;
use super::operations;
use super::rows;
use super::{SqliteStore, schema};
use crate::names::{HostName, JobName, LockName, RunId, Token};
use crate::store::protocol::{Clock, Past};
use crate::store::{
    Claim, ClaimReply, ClaimTarget, DaemonRequest, Filed, Finish, Grant, IfPaused, Intervention,
    Keeping, Kind, Lock, LockId, Outcome, Record, RenewReply, RequestOrder, Returned, Seen,
    Store as _,
};
use crate::time::BootInstant;

const HOUR_MS: u64 = 3_600_000;

/// Longer than any machine should take for anything here.
const LONG: Duration = Duration::from_secs(60);

fn database() -> Connection {
    let directory = tempfile::tempdir().expect("a directory");
    let mut db = Connection::open(directory.path().join("db")).expect("a database");
    schema::prepare(&mut db, 0, "test").expect("a schema");
    // The directory may go: the file lives while it is open.
    db
}

fn at(utc_ms: u64, boot_ms: u64, boot: &str) -> TransactionTime {
    TransactionTime {
        clock: Clock {
            micros: utc_ms * 1000,
            lease: boot_ms,
            past: Past::default(),
        },
        read: BootInstant::BOOT,
        boot: boot.to_owned(),
    }
}

fn work(db: &Connection, now: TransactionTime) -> WorkContext<'_> {
    WorkContext {
        db,
        shown: "test.db",
        now,
        freed: Cell::new(false),
        filed: Cell::new(false),
    }
}

fn lock() -> Lock {
    Lock::named(&LockName::parse("l").expect("a name"))
}

fn claim(token: &str) -> Claim {
    Claim {
        lock: lock(),
        token: Token::from_text(token),
        run_id: RunId::from_text(token),
        ttl: Duration::from_secs(30),
        what: ClaimTarget::Lock,
    }
}

#[test]
fn a_stepped_wall_clock_ends_no_lease() {
    let db = database();
    let utc = 1_700_000_000_000;
    let first = operations::claim(&work(&db, at(utc, 1000, "b")), &claim("a")).expect("an answer");
    let ClaimReply::Granted { fence: first, .. } = first else {
        panic!("not granted: {first:?}");
    };
    for stepped in [utc + 24 * HOUR_MS, utc - 24 * HOUR_MS] {
        let other = operations::claim(&work(&db, at(stepped, 2000, "b")), &claim("b"));
        let other = other.expect("an answer");
        let remaining = Some(Duration::from_secs(29));
        let by = "a".to_owned();
        assert_eq!(other, ClaimReply::Held { by, remaining });
    }
    // And one that was stepped back lets no fence fall.
    let later = work(&db, at(utc - 24 * HOUR_MS, 31_000, "b"));
    let next = operations::claim(&later, &claim("b")).expect("an answer");
    assert!(matches!(next, ClaimReply::Granted { fence, .. } if fence > first));
}

#[test]
fn a_restart_of_the_machine_ends_all_leases() {
    let db = database();
    operations::claim(&work(&db, at(5000, 900_000, "b1")), &claim("a")).expect("an answer");
    let restarted = work(&db, at(6000, 1000, "b2"));
    let renewal = Grant {
        lock: lock(),
        token: Token::from_text("a"),
        run_id: RunId::from_text("r"),
        fence: 1,
        ttl: Duration::from_secs(30),
        sent: BootInstant::BOOT,
        starts_at: None,
    }
    .renewal();
    let renewed = operations::renew(&restarted, &[renewal]).expect("an answer");
    assert_eq!(renewed, [RenewReply::Absent]);
    let reply = operations::claim(&restarted, &claim("b")).expect("an answer");
    assert!(matches!(reply, ClaimReply::Granted { .. }), "{reply:?}");
}

#[test]
fn a_result_replaces_the_record_that_stood_for_its_run_beside_one_that_cannot_be_read() {
    let db = database();
    let now = work(&db, at(1000, 1000, "b"));
    let job = JobName::parse("j").expect("a name");
    let id = rows::id_of(&lock());
    let record = |outcome| Record {
        run_id: Some(RunId::from_text("r")),
        ..Record::blank(job.clone(), Kind::Schedule, outcome)
    };
    history::append(&now, &id, &record(Outcome::Interrupted), None, None).expect("a record");
    db.execute(
        "INSERT INTO records (lock, job, record) VALUES (?, 'j', 'not JSON')",
        [&id],
    )
    .expect("a row");
    history::remove_replaced(&now, &id, &record(Outcome::Succeeded)).expect("it is replaced");
    let left = history::newest(&now, &job, &lock(), 10).expect("records");
    assert_eq!(left.records, []);
    assert_eq!(left.unreadable.len(), 1);
}

#[test]
fn locks_that_nobody_used_for_long_are_forgotten_and_living_ones_are_not() {
    let db = database();
    operations::claim(&work(&db, at(1000, 1000, "b")), &claim("a")).expect("an answer");
    let count = || -> i64 {
        db.query_row("SELECT count(*) FROM locks", [], |row| row.get(0))
            .expect("a number")
    };
    let stepped = 2 * HOUR_MS;
    schema::forget_old_locks(&db, &at(stepped, 2000, "b")).expect("done");
    assert_eq!(count(), 1);
    schema::forget_old_locks(&db, &at(stepped, 31_000, "b")).expect("done");
    assert_eq!(count(), 0);
}

#[test]
fn a_job_that_no_host_lists_is_forgotten_after_thirty_days_and_a_hosts_own_after_a_week() {
    const DAY_MS: u64 = 24 * HOUR_MS;
    let db = database();
    let days = |days: u64| at(1_000_000 + days * DAY_MS, 1000, "b");
    let host = HostName::parse("h").expect("a name");
    let job = |name: &str| JobName::parse(name).expect("a name");
    let of_host = LockId::Host("own".into()).on(&host);
    // A manual run of each leaves a ledger; its end a record.
    for (name, lock) in [("listed", lock()), ("removed", lock()), ("own", of_host)] {
        let what = ClaimTarget::Manual {
            job: job(name),
            if_paused: IfPaused::Refuse,
        };
        let claim = Claim {
            lock,
            what,
            ..claim(name)
        };
        operations::claim(&work(&db, days(0)), &claim).expect("an answer");
        let finish = Finish {
            lock: claim.lock.clone(),
            token: claim.token.clone(),
            record: None,
            job: Some(job(name)),
            give_back: false,
            keep: crate::store::Retention::of_records(10),
        };
        operations::finish(&work(&db, days(0)), &finish).expect("an answer");
        let id = rows::id_of(&claim.lock);
        db.execute(
            "INSERT INTO records (lock, job, record) VALUES (?, ?, '{}')",
            [id.as_str(), name],
        )
        .expect("a record");
    }
    let left = |table: &str| -> Vec<String> {
        let mut query = db
            .prepare(&format!("SELECT DISTINCT job FROM {table} ORDER BY job"))
            .expect("a query");
        let jobs = query.query_map([], |row| row.get(0)).expect("rows");
        jobs.map(|job| job.expect("a name")).collect()
    };
    let keeping = Keeping::of(
        job("listed"),
        &LockId::Fleet("l".into()),
        &host,
        Duration::ZERO,
    );
    for (day, expected) in [
        (6, &["listed", "own", "removed"][..]),
        (9, &["listed", "removed"]),
        (29, &["listed", "removed"]),
        (32, &["listed"]),
        (90, &["listed"]),
    ] {
        // Every day a host keeps the job that its list names.
        for earlier in day - 3..=day {
            lifetimes::keep(&work(&db, days(earlier)), std::slice::from_ref(&keeping))
                .expect("done");
        }
        assert_eq!(left("jobs"), expected, "day {day}");
        assert_eq!(left("records"), expected, "day {day}");
    }
    // A clock that is a year ahead deletes nothing at once.
    operations::claim(
        &work(&db, days(91)),
        &Claim {
            what: ClaimTarget::Manual {
                job: job("new"),
                if_paused: IfPaused::Refuse,
            },
            ..claim("new")
        },
    )
    .expect("an answer");
    lifetimes::keep(&work(&db, days(91)), &[]).expect("done");
    lifetimes::keep(&work(&db, days(460)), &[]).expect("done");
    lifetimes::keep(&work(&db, days(91)), &[keeping]).expect("done");
    assert_eq!(left("jobs"), ["listed", "new"]);
}

#[test]
fn a_new_file_that_another_process_is_writing_is_waited_for_like_any_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("db");
    let writer = Connection::open(&path).expect("a database");
    writer.execute_batch("BEGIN IMMEDIATE").expect("its lock");

    let mut late = Connection::open(&path).expect("a database");
    let began = Instant::now();
    let error = schema::prepare(&mut late, 0, "test").expect_err("it is locked");
    assert!(
        began.elapsed() >= BUSY,
        "{error} after {:?}",
        began.elapsed()
    );
    assert!(error.to_string().contains("keep it locked"), "{error}");

    writer.execute_batch("ROLLBACK").expect("an end");
    schema::prepare(&mut late, 0, "test").expect("a schema");
}

/// A store in a file, one of another process in the same file, and a host.
struct SharedFile {
    store: SqliteStore,
    other: SqliteStore,
    host: HostName,
    seen: Mutex<Seen>,
    directory: tempfile::TempDir,
}

impl SharedFile {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || SqliteStore::new(&directory.path().join("db")).expect("a thread");
        let shared = Self {
            store: open(),
            other: open(),
            host: HostName::parse("here").expect("a name"),
            seen: Mutex::default(),
            directory,
        };
        for store in [&shared.store, &shared.other] {
            store.now().await.expect("it opens the file");
        }
        // The first of each says that nothing is known yet.
        shared.requests(LONG).await;
        shared.returned(LONG).await;
        shared
    }

    async fn takes_a_lease(&self) {
        let claimed = self.store.claim(&claim("T1")).await;
        let is_granted = matches!(claimed, Ok(ClaimReply::Granted { .. }));
        assert!(is_granted, "{claimed:?}");
    }

    /// How long it waits for a request.
    async fn requests(&self, limit: Duration) -> Duration {
        let began = Instant::now();
        let waited = self.store.request_filed(&self.host, limit).await;
        waited.expect("the thread lives");
        began.elapsed()
    }

    async fn returned(&self, limit: Duration) -> Returned {
        let mut seen = *self.seen.lock().expect("no panic");
        let returned = self.store.returned(&mut seen, limit).await;
        *self.seen.lock().expect("no panic") = seen;
        returned.expect("the thread lives")
    }

    async fn file(&self, store: &SqliteStore) {
        let request = DaemonRequest {
            id: RunId::new(),
            host: self.host.clone(),
            order: RequestOrder::Note {
                done: Intervention::Pause,
                subject: "a".to_owned(),
            },
            by: "alice".to_owned(),
            reason: String::new(),
        };
        let deadline = store.now().await.expect("it replies").plus(LONG);
        let filed = store.file_request(&request, deadline).await;
        assert_eq!(filed.expect("it replies"), Filed::Kept);
    }
}

#[tokio::test]
async fn a_listener_is_notified_of_what_others_write_and_not_of_what_its_own_process_writes() {
    let shared = SharedFile::new().await;
    shared.takes_a_lease().await;
    // Longer than from one check to the next.
    let limit = Duration::from_millis(800);
    assert!(shared.requests(limit).await >= limit);
    assert_eq!(shared.returned(limit).await, Returned::Jobs(Vec::new()));
    // Nobody waits at that moment, and each learns of it.
    shared.file(&shared.other).await;
    assert!(shared.requests(LONG).await < LONG);
    assert_eq!(shared.returned(LONG).await, Returned::Any);
}

#[tokio::test]
async fn a_listener_is_notified_of_requests_that_its_own_process_files() {
    let shared = SharedFile::new().await;
    let (waited, ()) = tokio::join!(shared.requests(LONG), shared.file(&shared.store));
    assert!(waited < LONG);
}

#[tokio::test]
async fn a_listener_is_notified_when_the_file_is_gone() {
    let shared = SharedFile::new().await;
    // While a lease of the file lasts, the store uses no other file.
    shared.takes_a_lease().await;
    std::fs::remove_file(shared.directory.path().join("db")).expect("it is there");
    assert!(shared.requests(LONG).await < LONG);
    let gone = shared.store.requests(Some(&shared.host)).await;
    assert!(gone.is_err(), "{gone:?}");
}
