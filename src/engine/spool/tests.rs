//! What is written to the spool, and what is believed of it.

use super::*;
use crate::names::LockName;

fn spool(dir: &tempfile::TempDir, store: &str) -> Spool {
    Spool {
        path: Some(dir.path().join("deep/undelivered-a.jsonl")),
        left: Vec::new(),
        former: Vec::new(),
        store: store.to_owned(),
    }
}

fn finish(lock: &str) -> Finish {
    let host = HostName::parse("a").expect("a name");
    Finish {
        lock: Lock::named(&LockName::parse(lock).expect("a name")),
        token: Token::new(&host, &RunId::new()),
        record: None,
        job: Some(JobName::parse("job").expect("a name")),
        give_back: true,
        keep: crate::store::Retention::of_records(100),
    }
}

#[test]
fn what_is_kept_is_loaded_in_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let spool = spool(&dir, "one");
    let kept = [finish("x"), finish("y")];
    spool.keep(&kept).expect("it can be written");
    assert_eq!(spool.load(), kept);
    spool.clear();
    assert_eq!(spool.load(), []);
}

#[test]
fn verdicts_of_another_store_are_neither_delivered_nor_lost() {
    let dir = tempfile::tempdir().expect("a directory");
    let other = finish("x");
    let kept = std::slice::from_ref(&other);
    spool(&dir, "one").keep(kept).expect("it can be written");
    assert_eq!(spool(&dir, "two").load(), []);
    spool(&dir, "two").clear();
    assert_eq!(spool(&dir, "one").load(), [other]);
}

#[test]
fn what_runs_by_hand_have_left_is_the_daemons_and_of_no_other_host() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = StoreSettings::Sqlite {
        path: dir.path().join("store.db"),
    };
    let host = |name: &str| HostName::parse(name).expect("a name");
    let kept = [finish("x"), finish("y"), finish("z")];
    let (a, other) = (host("a"), host("a.b"));
    let keep = |spool: Spool, at: usize| spool.keep(&kept[at..=at]).expect("it can be written");
    keep(Spool::of(&a, &settings), 0);
    keep(Spool::of_run(&a, &RunId::new(), &settings), 1);
    keep(Spool::of_run(&other, &RunId::new(), &settings), 2);
    let spool = Spool::of(&a, &settings);
    assert_eq!(spool.load(), kept[..2]);
    // One that comes while the daemon is up waits for its next start.
    keep(Spool::of_run(&a, &RunId::new(), &settings), 0);
    spool.keep(&kept[1..2]).expect("it can be written");
    assert_eq!(
        Spool::of(&a, &settings).load(),
        [kept[1].clone(), kept[0].clone()]
    );
    Spool::of(&a, &settings).clear();
    assert_eq!(Spool::of(&a, &settings).load(), []);
    assert_eq!(Spool::of(&other, &settings).load(), kept[2..]);
}

fn sqlite(dir: &tempfile::TempDir, file: &str) -> StoreSettings {
    StoreSettings::Sqlite {
        path: dir.path().join(file),
    }
}

#[test]
fn daemons_of_a_host_with_different_stores_write_to_files_of_their_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let host = HostName::parse("a").expect("a name");
    let [one, two] = ["one.db", "two.db"].map(|file| sqlite(&dir, file));
    let kept = [finish("x"), finish("y")];
    let by_hand = Spool::of_run(&host, &RunId::new(), &two);
    by_hand.keep(&kept[1..]).expect("it can be written");
    let first = Spool::of(&host, &one);
    assert_ne!(first.path, Spool::of(&host, &two).path);
    first.keep(&kept[..1]).expect("it can be written");
    first.clear();
    // It may not move the result that the other store is to have: that daemon may be up already.
    assert!(by_hand.path().is_some_and(Path::exists));
    assert_eq!(Spool::of(&host, &two).load(), kept[1..]);
}

#[test]
fn what_a_version_with_one_file_for_all_stores_has_left_goes_to_the_store_of_each_result() {
    let dir = tempfile::tempdir().expect("a directory");
    let host = HostName::parse("a").expect("a name");
    let [one, two] = ["one.db", "two.db"].map(|file| sqlite(&dir, file));
    let kept = [finish("x"), finish("y"), finish("z")];
    let all = dir.path().join("undelivered-a.jsonl");
    let by_hand = dir.path().join("undelivered-a@01a2.jsonl");
    for (settings, file, finish) in [(&one, &all, 0), (&two, &all, 1), (&one, &by_hand, 2)] {
        let former = Spool {
            path: Some(file.clone()),
            left: Vec::new(),
            former: Vec::new(),
            store: Spool::of(&host, settings).store,
        };
        former
            .keep(&kept[finish..=finish])
            .expect("it can be written");
    }
    let first = Spool::of(&host, &one);
    let ours = [kept[0].clone(), kept[2].clone()];
    assert_eq!(first.load(), ours);
    assert!(
        all.exists() && by_hand.exists(),
        "nothing is kept elsewhere yet"
    );
    first.keep(&ours[1..]).expect("it can be written");
    assert!(!by_hand.exists());
    assert_eq!(Spool::of(&host, &one).load(), ours[1..]);
    let second = Spool::of(&host, &two);
    assert_eq!(second.load(), kept[1..2]);
    second.clear();
    assert!(!all.exists());
    assert_eq!(Spool::of(&host, &one).load(), ours[1..]);
}

#[test]
fn a_former_file_that_cannot_be_read_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    let host = HostName::parse("a").expect("a name");
    let former = dir.path().join("undelivered-a.jsonl");
    let elsewhere = dir.path().join("elsewhere");
    fs::write(&elsewhere, "").expect("it can be written");
    std::os::unix::fs::symlink(&elsewhere, &former).expect("a link");
    let spool = Spool::of(&host, &sqlite(&dir, "one.db"));
    assert_eq!(spool.load(), []);
    spool.clear();
    assert!(former.is_symlink());
}

#[test]
fn a_torn_line_costs_only_itself() {
    let dir = tempfile::tempdir().expect("a directory");
    let spool = spool(&dir, "one");
    let kept = [finish("x")];
    spool.keep(&kept).expect("it can be written");
    let path = spool.path.clone().expect("it has a path");
    let text = fs::read_to_string(&path).expect("it was written");
    fs::write(&path, format!("{text}{{\"store\":\"on")).expect("it can be written");
    assert_eq!(spool.load(), kept);
}

#[test]
fn a_stray_byte_costs_only_its_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let spool = spool(&dir, "one");
    let kept = [finish("x"), finish("y"), finish("z")];
    spool.keep(&kept).expect("it can be written");
    let path = spool.path.clone().expect("it has a path");
    let mut bytes = fs::read(&path).expect("it was written");
    let second = bytes.iter().position(|&b| b == b'\n').expect("a line");
    bytes[second + 20] = 0xff;
    fs::write(&path, &bytes).expect("it can be written");
    assert_eq!(spool.load(), [kept[0].clone(), kept[2].clone()]);
    // It is kept for people, once.
    spool.load();
    spool.clear();
    let aside = fs::read(path.with_extension("damaged")).expect("the line was put aside");
    let lines: Vec<&[u8]> = bytes.split_inclusive(|&b| b == b'\n').collect();
    assert_eq!(aside, lines[1]);
}

#[test]
fn its_files_are_private_and_links_in_their_place_are_not_followed() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    let dir = tempfile::tempdir().expect("a directory");
    let spool = spool(&dir, "one");
    let path = spool.path.clone().expect("it has a path");
    let (fresh, victim) = (path.with_extension("tmp"), dir.path().join("victim"));
    fs::create_dir(dir.path().join("deep")).expect("a directory");
    fs::write(&victim, "precious").expect("a file");
    symlink(&victim, &fresh).expect("a link");
    let kept = [finish("x")];
    spool.keep(&kept).expect("it can be written");
    let mode = fs::metadata(&path).expect("it was written").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    assert_eq!(fs::read_to_string(&victim).expect("a file"), "precious");

    // Nor is it read through a link.
    let moved = dir.path().join("moved");
    fs::rename(&path, &moved).expect("it can be moved");
    symlink(&moved, &path).expect("a link");
    assert_eq!(spool.load(), []);
}
