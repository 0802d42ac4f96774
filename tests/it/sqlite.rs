//! The embedded store: what only a file can suffer, and many processes on one.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cronlatch::names::{HostName, LockName, RunId, Token};
use cronlatch::store::{
    Claim, ClaimReply, ClaimTarget, Due, Fingerprint, Finish, FinishReply, GapAnswer, Grant, Kind,
    Lock, Outcome, Overlap, Record, Registration, RenewReply, Store, StoreError, StoreSettings,
    open,
};
use cronlatch::time::{BootInstant, Timestamp};

use crate::contract::eventually;
use crate::support::SmallDisk;
use crate::support::claims::{due, job, record};
use crate::support::command;

/// How a child of this test receives its task: `MODE START PATH`.
const ORDERS: &str = "CRONLATCH_TEST_SQLITE_CHILD";

fn store_at(path: &Path) -> Arc<dyn Store> {
    let path = path.to_owned();
    open(&StoreSettings::Sqlite { path }).unwrap()
}

fn lock() -> Lock {
    Lock::named(&LockName::parse("j").unwrap())
}

fn bare(ttl: Duration) -> Claim {
    let run_id = RunId::new();
    Claim {
        lock: lock(),
        token: Token::new(&HostName::parse("h").unwrap(), &run_id),
        run_id,
        ttl,
        what: ClaimTarget::Lock,
    }
}

/// The occurrence `n` seconds after `start`.
fn occurrence(start: Timestamp, n: u64) -> Claim {
    let due = Due {
        not_before: Timestamp::EPOCH,
        deadline: start.plus(Duration::from_secs(1_000_000)),
        rerun_window: Duration::from_secs(3600),
        ..due(start.plus(Duration::from_secs(n)))
    };
    Claim {
        what: ClaimTarget::Occurrence {
            job: job(),
            kind: Kind::Schedule,
            due,
            overlap: Overlap::Queue { limit: u32::MAX },
            keep: cronlatch::store::Retention::of_records(1_000_000),
        },
        ..bare(Duration::from_secs(60))
    }
}

fn success(claim: &Claim, at: Timestamp, output: &str) -> Finish {
    Finish {
        lock: claim.lock.clone(),
        token: claim.token.clone(),
        record: Some(Record {
            run_id: Some(claim.run_id.clone()),
            exit_code: Some(0),
            attempts: 1,
            output_tail: Some(output.to_owned()),
            ..record(job(), Some(at), Outcome::Succeeded)
        }),
        job: Some(job()),
        give_back: false,
        keep: cronlatch::store::Retention::of_records(1_000_000),
    }
}

/// The ledger of the job begins an hour ago, so that its occurrences are due.
async fn start_of(store: &dyn Store) -> Timestamp {
    let drops = Claim {
        what: ClaimTarget::Drops {
            job: job(),
            fingerprint: Fingerprint("f".into()),
            answer: GapAnswer {
                if_last: Timestamp::now().minus(Duration::from_secs(3600)),
                drop: Vec::new(),
            },
            keep: cronlatch::store::Retention::of_records(1),
        },
        ..bare(Duration::from_secs(60))
    };
    store.claim(&drops).await.unwrap();
    let registration = Registration {
        job: job(),
        lock: lock(),
        fingerprint: Fingerprint("f".into()),
        ttl: Duration::from_secs(30),
    };
    store.register(&[registration]).await.unwrap()[0].decided_until
}

/// Which occurrences have a record, oldest first.
async fn ran(store: &dyn Store, start: Timestamp) -> Vec<u64> {
    let records = store.history(&job(), &lock(), usize::MAX).await.unwrap();
    let mut ran: Vec<u64> = records
        .records
        .iter()
        .filter(|record| record.outcome == Outcome::Succeeded)
        .filter_map(|record| Some(record.scheduled_at?.since(start).as_secs()))
        .collect();
    ran.reverse();
    ran
}

/// This test binary again, as another process on the same file.
fn child(mode: &str, start: Timestamp, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sqlite::another_process", "--nocapture"])
        .env(
            ORDERS,
            format!("{mode} {} {}", start.millis(), path.display()),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Not a test: what a child of this file's tests does. It says each occurrence that it finished.
#[tokio::test]
async fn another_process() {
    let Ok(orders) = std::env::var(ORDERS) else {
        return;
    };
    let mut orders = orders.splitn(3, ' ');
    let forever = orders.next() == Some("forever");
    let start = Timestamp::from_millis(orders.next().unwrap().parse().unwrap());
    let store = store_at(Path::new(orders.next().unwrap()));
    let mut n = 1;
    while forever || n <= 60 {
        let claim = occurrence(start, n);
        match store.claim(&claim).await.unwrap() {
            ClaimReply::Granted { .. } => {
                let finish = success(&claim, start.plus(Duration::from_secs(n)), "done");
                assert_eq!(store.finish(&finish).await.unwrap(), FinishReply::Released);
                say(n);
                n += 1;
            }
            ClaimReply::AlreadyClaimed(_) => n += 1,
            ClaimReply::Waits { .. } => {
                let limit = Duration::from_millis(20);
                store.released(&lock(), limit).await.unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
}

#[expect(clippy::print_stdout, reason = "the parent reads it")]
fn say(n: u64) {
    println!("\nfinished {n}");
}

fn said(line: &str) -> Option<u64> {
    line.strip_prefix("finished ")?.parse().ok()
}

#[tokio::test]
async fn of_several_processes_on_one_file_each_occurrence_is_granted_to_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let store = store_at(&path);
    let start = start_of(&*store).await;
    let children: Vec<_> = (0..3).map(|_| child("some", start, &path)).collect();
    let mut finished = Vec::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        finished.extend(text.lines().filter_map(said));
    }
    finished.sort_unstable();
    let expected: Vec<u64> = (1..=60).collect();
    assert_eq!(finished, expected);
    assert_eq!(ran(&*store, start).await, expected);
}

#[tokio::test]
async fn a_file_that_many_make_at_once_is_made_once() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let path = directory.path().join(format!("db{round}"));
        let mut opening = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let store = store_at(&path);
            opening.spawn(async move { store.claim(&bare(Duration::from_secs(60))).await });
        }
        let replies = opening.join_all().await;
        let replies: Result<Vec<_>, _> = replies.into_iter().collect();
        let granted = |reply: &&ClaimReply| matches!(reply, ClaimReply::Granted { .. });
        assert_eq!(replies.unwrap().iter().filter(granted).count(), 1);
    }
}

#[tokio::test]
async fn a_process_killed_while_it_writes_loses_nothing_it_was_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let start = start_of(&*store_at(&path)).await;
    let mut told: Vec<u64> = Vec::new();
    for _ in 0..4 {
        let mut child = child("forever", start, &path);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut finished = lines.map_while(Result::ok).filter_map(|line| said(&line));
        told.extend(finished.by_ref().take(15));
        child.kill().unwrap();
        child.wait().unwrap();
        // What it still said before the signal counts as well.
        told.extend(finished);

        let store = store_at(&path);
        let ran = ran(&*store, start).await;
        let lost: Vec<_> = told.iter().filter(|n| !ran.contains(n)).collect();
        assert!(lost.is_empty(), "told, but not there: {lost:?}");
        assert!(ran.is_sorted_by(|a, b| a < b), "each once: {ran:?}");
        // Its lease, if it died holding it, would block the next child for a minute.
        let db = rusqlite::Connection::open(&path).unwrap();
        let sound: String = db
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(sound, "ok");
        db.execute("UPDATE locks SET boot = 'an earlier one'", [])
            .unwrap();
    }
    assert!(told.len() >= 60, "{told:?}");
}

#[tokio::test]
async fn ten_thousand_leases_are_renewed_in_one_transaction() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_at(&directory.path().join("db"));
    let mut claiming = tokio::task::JoinSet::new();
    let mut renewals = Vec::new();
    for n in 0..10_000 {
        let claim = Claim {
            lock: Lock::named(&LockName::parse(&format!("l{n}")).unwrap()),
            ..bare(Duration::from_secs(60))
        };
        renewals.push(Grant::of(&claim, 1, BootInstant::BOOT).renewal());
        let store = Arc::clone(&store);
        claiming.spawn(async move { store.claim(&claim).await.unwrap() });
    }
    for reply in claiming.join_all().await {
        assert!(matches!(reply, ClaimReply::Granted { .. }), "{reply:?}");
    }
    let began = Instant::now();
    let replies = store.renew(&renewals).await.unwrap();
    eprintln!("10,000 renewals took {:?}", began.elapsed());
    assert_eq!(replies, vec![RenewReply::Renewed; renewals.len()]);
}

#[tokio::test]
async fn directory_and_file_are_their_owners_alone() {
    let directory = tempfile::tempdir().unwrap();
    let made = directory.path().join("a/b");
    let path = made.join("db");
    // Kept until the end: the last connection removes its log and its index when it closes.
    let store = store_at(&path);
    store.claim(&bare(Duration::from_secs(1))).await.unwrap();
    let rights = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(rights(&made), 0o700);
    assert_eq!(rights(&directory.path().join("a")), 0o700);
    assert_eq!(rights(&path), 0o600);
    for more in ["db-wal", "db-shm"] {
        assert_eq!(rights(&made.join(more)), 0o600);
    }
    drop(store);
}

#[tokio::test]
async fn a_link_that_another_user_may_have_made_is_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let shared = directory.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o1777)).unwrap();
    let (target, link) = (directory.path().join("target"), shared.join("db"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let error = store_at(&link).now().await.unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
    assert!(!target.exists());
    // A file of that directory is used, also by a path with links in it.
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&shared, directory.path().join("way")).unwrap();
    store_at(&directory.path().join("way/db"))
        .now()
        .await
        .unwrap();
    assert!(link.exists());
    // In a directory of our own a link is the operator's.
    let own = directory.path().join("own");
    std::os::unix::fs::symlink(&target, &own).unwrap();
    store_at(&own).now().await.unwrap();
    assert!(target.exists());
}

/// The error of a claim on the file, which must leave its bytes alone.
async fn refused(path: &Path) -> StoreError {
    let before = std::fs::read(path).unwrap();
    let error = store_at(path)
        .claim(&bare(Duration::from_secs(1)))
        .await
        .unwrap_err();
    assert_eq!(std::fs::read(path).unwrap(), before);
    error
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    store_at(&path).now().await.unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    // Possible only when no other connection has the file: the store's thread outlives it a little.
    eventually("the store's thread has closed the file", async || {
        db.pragma_update(None, "journal_mode", "DELETE").ok()
    })
    .await;
    drop(db);
    let error = refused(&path).await;
    assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("format 99") && text.contains("upgrade"),
        "{text}"
    );
}

#[tokio::test]
async fn what_is_not_a_store_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("other.db");
    let db = rusqlite::Connection::open(&other).unwrap();
    db.execute_batch("CREATE TABLE t (x)").unwrap();
    drop(db);
    let error = refused(&other).await.to_string();
    assert!(error.contains("of another program"), "{error}");

    let garbage = directory.path().join("garbage");
    std::fs::write(&garbage, "schedule: '* * * * *'\n".repeat(500)).unwrap();
    let store = store_at(&garbage);
    let error = refused(&garbage).await;
    assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
    assert!(error.to_string().contains("garbage"), "{error}");
    // And it works as soon as that is out of the way.
    store.now().await.unwrap_err();
    std::fs::remove_file(&garbage).unwrap();
    store.now().await.unwrap();
}

#[tokio::test]
async fn a_file_that_was_deleted_is_not_written_any_more_and_its_leases_are_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let store = store_at(&path);
    let ttl = Duration::from_millis(700);
    let first = bare(ttl);
    let began = Instant::now();
    store.claim(&first).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    for sibling in ["db-wal", "db-shm"] {
        std::fs::remove_file(directory.path().join(sibling)).unwrap();
    }
    let error = store.claim(&bare(ttl)).await.unwrap_err();
    assert!(error.to_string().contains("deleted or replaced"), "{error}");
    eventually("it starts afresh", async || {
        store.claim(&bare(ttl)).await.ok()
    })
    .await;
    assert!(
        began.elapsed() >= ttl,
        "the lost lease may still have been in use"
    );
    // The new file is whole: others see the lease in it.
    let reply = store_at(&path).claim(&bare(ttl)).await.unwrap();
    assert!(
        matches!(reply, ClaimReply::Held { .. } | ClaimReply::Granted { .. }),
        "{reply:?}"
    );
}

#[tokio::test]
async fn a_file_that_others_keep_locked_is_said_to_be_and_used_again_afterwards() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let store = store_at(&path);
    let claim = bare(Duration::from_secs(60));
    store.now().await.unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    let asked = tokio::spawn({
        let (store, claim) = (Arc::clone(&store), claim.clone());
        async move { store.claim(&claim).await }
    });
    // This runtime has one thread: were it blocked by the claim, nothing would go on here.
    let mut ticks = 0;
    while !asked.is_finished() {
        tokio::time::sleep(Duration::from_millis(10)).await;
        ticks += 1;
    }
    assert!(ticks > 3, "{ticks}");
    let error = asked.await.unwrap().unwrap_err();
    assert!(matches!(error, StoreError::Unreachable(_)), "{error}");
    assert!(error.to_string().contains("locked"), "{error}");
    db.execute_batch("ROLLBACK").unwrap();
    let reply = store.claim(&claim).await.unwrap();
    assert!(matches!(reply, ClaimReply::Granted { .. }), "{reply:?}");
}

#[tokio::test]
async fn a_full_disk_is_said_to_be_full_and_what_was_told_is_there_when_it_has_space_again() {
    let directory = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::new(directory.path()) else {
        return;
    };
    let path = directory.path().join("db");
    let store = store_at(&path);
    let start = start_of(&*store).await;
    let output = "x".repeat(4000);
    let mut told = Vec::new();
    let (lost, error) = loop {
        let n = told.len() as u64 + 1;
        assert!(n < 1000, "the disk never fills");
        let claim = occurrence(start, n);
        let finish = success(&claim, start.plus(Duration::from_secs(n)), &output);
        let done = match store.claim(&claim).await {
            Ok(ClaimReply::Granted { .. }) => store.finish(&finish).await,
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        };
        match done {
            Ok(_) => told.push(n),
            Err(error) => break (finish, error),
        }
    };
    assert!(matches!(error, StoreError::Refused(_)), "{error}");
    assert!(error.to_string().contains("disk is full"), "{error}");
    assert!(told.len() > 3, "{told:?}");
    store.finish(&lost).await.unwrap_err();
    disk.grow();
    // The same request again, as its owner would send it.
    store.finish(&lost).await.unwrap();
    told.push(told.len() as u64 + 1);
    assert_eq!(ran(&*store, start).await, told);
    drop((store, disk));
}

#[test]
fn a_file_that_this_user_may_not_open_is_reported_with_the_user_and_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let within = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(dir.path(), within(0o755)).unwrap();
    let program = dir.path().join("cronlatch");
    // Others may not reach the directory of the build.
    std::fs::copy(command::BINARY, &program).unwrap();
    let directory = dir.path().join("state");
    std::fs::create_dir(&directory).unwrap();
    let path = directory.join("store.db");
    let store = format!("sqlite:{}", path.display());
    let exec = ["exec", "--lock", "a", "--store", &store, "--", "true"];
    command::cronlatch(&exec).expect_code(0);
    // The file itself, then its directory, then a file that may be read alone.
    for (of_directory, of_file) in [(0o755, 0o600), (0o700, 0o600), (0o755, 0o644)] {
        std::fs::set_permissions(&path, within(of_file)).unwrap();
        std::fs::set_permissions(&directory, within(of_directory)).unwrap();
        let mut asked = command::command("setpriv");
        asked
            .args(["--reuid=1", "--regid=1", "--clear-groups"])
            .arg(&program)
            .args(exec);
        let said = command::output(asked).expect_code(69).stderr;
        let why = format!(
            "{} cannot be opened by user daemon: Permission denied; run this as root or as the \
             daemon's user (sudo)",
            path.display()
        );
        assert!(said.contains(&why), "{said}");
    }
}

/// A mistyped path must not look like a store in which nothing ever ran, and a look makes no store.
#[test]
fn only_what_runs_jobs_makes_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("jobs.yaml");
    std::fs::write(&list, "jobs: [{ name: a, every: 1h, command: 'true' }]\n").unwrap();
    let absent = dir.path().join("mistyped");
    let store = format!("sqlite:{}/store.db", absent.display());
    let commands: [(&[&str], i32); 11] = [
        (&["history"], 0),
        (&["status"], 0),
        (&["explain", "a"], 0),
        (&["unlock", "a"], 0),
        (&["logs", "a"], 64),
        (&["kill", "a"], 75),
        (&["pause", "a"], 64),
        (&["resume", "a"], 64),
        (&["forget", "a"], 0),
        (&["trigger", "a"], 69),
        (&["status", "--check"], 2),
    ];
    for (words, code) in commands {
        let mut command = command::command(command::BINARY);
        command.args(words).args(["--store", &store]);
        command.arg("--config").arg(&list);
        command.env("STATE_DIRECTORY", dir.path());
        let output = command::output(command).expect_code(code);
        let expected = format!("warning: there is no store {store}: no daemon has used this path");
        assert!(output.stderr.contains(&expected), "{words:?}: {output:?}");
        assert!(!absent.exists(), "{words:?}");
    }
}
