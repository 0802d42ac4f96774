//! What the tests share: commands, daemons, waiting, and the log that jobs write.

pub(crate) mod claims;
pub(crate) mod cluster;
pub(crate) mod command;
pub(crate) mod daemon;
pub(crate) mod disk;
pub(crate) mod faketime;
pub(crate) mod fork;
pub(crate) mod hosts;
pub(crate) mod journald;
pub(crate) mod proxy;
pub(crate) mod receiver;
pub(crate) mod redis;
pub(crate) mod runlog;
pub(crate) mod schema;
pub(crate) mod sentinel;
pub(crate) mod tree;
pub(crate) mod wait;

pub(crate) use cluster::Cluster;
pub(crate) use command::{Output, cronlatch};
pub(crate) use daemon::Daemon;
pub(crate) use disk::SmallDisk;
pub(crate) use proxy::{Mode, Proxy};
pub(crate) use receiver::{Receiver, Reply, Request};
pub(crate) use redis::RedisServer;
pub(crate) use runlog::RunLog;
pub(crate) use wait::{wait_for, wait_until};

#[test]
fn a_command_is_not_touched_by_what_its_launcher_ignores_or_exports() {
    let mut shell = command::command("/bin/sh");
    shell.args(["-c", "grep SigIgn /proc/self/status; env"]);
    let said = command::output(shell).expect_code(0);
    let ignored = said
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:\t"));
    let ignored = u64::from_str_radix(ignored.unwrap(), 16).unwrap();
    // What lies above 31 belongs to the C library.
    assert_eq!(ignored & 0x7fff_ffff, 0, "{said:?}");
    assert!(!said.stdout.contains("\nCRONLATCH"), "{said:?}");
}

#[test]
fn a_run_log_finds_overlaps_doubles_early_runs_and_falling_fences() {
    let log = RunLog::new();
    let write = |text: &str| std::fs::write(log.path(), text).unwrap();
    let fails = |check: &dyn Fn(&RunLog)| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&log))).is_err()
    };
    let due = "1970-01-01T00:00:01Z";
    write(&format!("begin r1 1 a h1 7 {due} 11 1000\nend r1 1 1050\n"));
    log.assert_each_once();
    log.assert_no_overlap();
    log.assert_none_early();

    write(&format!(
        "begin r1 1 a h1 7 {due} 11 999\nbegin r2 1 a h2 6 {due} 12 1020\nend r1 1 1050\n"
    ));
    assert!(fails(&RunLog::assert_each_once));
    assert!(fails(&RunLog::assert_no_overlap));
    assert!(fails(&RunLog::assert_none_early));
    assert!(fails(&RunLog::assert_fences_rise));

    let later = "1970-01-01T00:00:03Z";
    write(&format!(
        "begin r1 1 a h 1 {due} 1 1000\nbegin r2 1 a h 2 {later} 2 3000\n"
    ));
    assert!(fails(&|log| log.assert_none_missing(1000)));
}

/// How many random sequences a test plays; `CRONLATCH_TEST_CASES` asks for more.
pub(crate) fn test_cases(usual: u32) -> u32 {
    let asked = std::env::var("CRONLATCH_TEST_CASES").ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(usual)
}
