//! What a program that wants the lock alone has to build.

use std::process::Command;

/// The names of all crates that this one depends on with these features.
fn crates(features: &[&str]) -> Vec<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let told = Command::new(cargo)
        .args(["tree", "--locked", "--edges", "normal", "--prefix", "none"])
        .args(features)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs the tests");
    assert!(told.status.success(), "{told:?}");
    let told = String::from_utf8(told.stdout).expect("cargo writes UTF-8");
    let mut names: Vec<String> = told
        .lines()
        .filter_map(|line| line.split(' ').next().map(str::to_owned))
        .collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn the_lock_alone_needs_neither_the_commands_nor_the_scheduler_nor_sqlite() {
    const PROGRAM: [&str; 5] = [
        "clap",
        "serde_yaml",
        "tokio-cron-scheduler",
        "tracing-subscriber",
        "chrono-tz",
    ];
    let has = |names: &[String], name: &str| names.iter().any(|known| known == name);
    let all = crates(&[]);
    assert!(PROGRAM.iter().all(|name| has(&all, name)), "{all:?}");
    let lock = crates(&["--no-default-features"]);
    assert!(!PROGRAM.iter().any(|name| has(&lock, name)), "{lock:?}");
    assert!(has(&lock, "redis") && !has(&lock, "rusqlite"), "{lock:?}");
    assert!(lock.len() < 100, "{} crates: {lock:?}", lock.len());
    let sqlite = crates(&["--no-default-features", "--features", "sqlite"]);
    assert!(has(&sqlite, "rusqlite"), "{sqlite:?}");
}
