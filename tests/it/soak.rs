//! Half an hour of fifty jobs a second on a store with every kind of damaged key.
//!
//! `make soak SECONDS=1800`. What grows is compared between the second quarter of the time, when
//! histories are full and caches warm, and the last one.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::redis::documented_rights;
use crate::support::{Daemon, RedisServer};

const JOBS: usize = 50;
const SAMPLE: Duration = Duration::from_secs(5);

/// What must not grow.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Open descriptors of both daemons and their guards.
    descriptors: u64,
    /// Resident memory of both daemons and their guards, in KiB.
    memory: u64,
    /// Processes of both daemons.
    processes: u64,
    /// Keys of the store.
    keys: u64,
    /// Memory of the store's data, in KiB.
    data: u64,
}

impl Sample {
    fn of(redis: &RedisServer, hosts: &[Daemon]) -> Self {
        let mut sample = Self {
            descriptors: 0,
            memory: 0,
            processes: 0,
            keys: unsigned(redis.number(&["DBSIZE"])),
            data: field(&redis.text(&["INFO", "memory"]), "used_memory_dataset:") / 1024,
        };
        for pid in hosts.iter().flat_map(own_processes) {
            let proc = format!("/proc/{pid}");
            // A process that has just ended has none.
            let open = std::fs::read_dir(Path::new(&proc).join("fd"));
            sample.descriptors += open.map_or(0, |open| open.count() as u64);
            let status = std::fs::read_to_string(Path::new(&proc).join("status"));
            sample.memory += field(&status.unwrap_or_default(), "VmRSS:");
            sample.processes += 1;
        }
        assert!(
            sample.processes >= hosts.len() as u64,
            "the daemons are not there to be measured"
        );
        sample
    }
}

/// The daemon and its guards, without the processes of jobs.
fn own_processes(host: &Daemon) -> Vec<i32> {
    let is_own = |pid: &i32| {
        let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
        // The kernel marks a program that was replaced on disk, by a build, as deleted.
        exe.is_ok_and(|exe| {
            let name = exe.file_name().unwrap_or_default().to_string_lossy();
            name.trim_end_matches(" (deleted)") == "cronlatch"
        })
    };
    host.processes().into_iter().filter(is_own).collect()
}

fn unsigned(number: i64) -> u64 {
    number.try_into().expect("a count")
}

/// The number after a name, as in `/proc/PID/status` and `INFO`.
fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let digits = |rest: &str| -> String {
        rest.trim()
            .chars()
            .take_while(char::is_ascii_digit)
            .collect()
    };
    line.and_then(|rest| digits(rest).parse().ok()).unwrap_or(0)
}

/// The least of a quarter's samples: how much is in use while few jobs run. What leaks raises it,
/// a busy machine does not.
fn least(samples: &[Sample], of: fn(&Sample) -> u64) -> u64 {
    samples.iter().map(of).min().unwrap_or(0)
}

fn list(store: &str) -> String {
    let mut list = format!("store: {store}\njobs:\n");
    for n in 0..JOBS {
        list += &format!("  - {{ name: sound-{n}, every: 1s, command: 'true' }}\n");
    }
    for name in ["ledger", "runs", "state", "stream"] {
        list += &format!(
            "  - {{ name: {name}, every: 1s, command: 'true', lock: {{ ttl: 3s }}, kill_grace: 0s }}\n"
        );
    }
    list += "  - { name: foreign, every: 1s, command: 'true', lock: { key: app-lock } }\n";
    list
}

/// Damages what `forget`, an expiry or a daemon has repaired since.
fn damage(redis: &RedisServer) {
    redis.command(&["HSET", "cronlatch:hosts", "odd", "garbage"]);
    redis.command(&["HSET", "cronlatch:{ledger}:job:ledger", "last", "yesterday"]);
    redis.command(&["SET", "cronlatch:{runs}:runs:runs", "x"]);
    redis.command(&["SET", "cronlatch:{state}:state", "x"]);
    let odd = [
        "XADD",
        "cronlatch:{stream}:runs:stream",
        "MAXLEN",
        "100",
        "*",
        "attempts",
        "many",
    ];
    redis.command(&odd);
}

#[test]
#[ignore = "takes as long as SECONDS says"]
fn a_soak_leaves_descriptors_memory_and_keys_flat() {
    let seconds = std::env::var("SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let length = Duration::from_secs(seconds.unwrap_or(1800));
    assert!(
        length >= Duration::from_secs(480),
        "histories are full only after 120 s"
    );
    let redis = RedisServer::builder()
        .user("cronlatch", documented_rights())
        .start();
    let list = list(&redis.url());
    let mut hosts = ["one", "two"].map(|host| Daemon::on(host, list.as_str()).start());
    let began = Instant::now();
    let mut samples = Vec::new();
    while began.elapsed() < length {
        damage(&redis);
        // The pace of the samples, not a wait for anything.
        std::thread::sleep(SAMPLE);
        samples.push(Sample::of(&redis, &hosts));
    }
    let quarter = samples.len() / 4;
    let (early, late) = (&samples[quarter..2 * quarter], &samples[3 * quarter..]);
    let mut grown = Vec::new();
    let mut judge = |name: &str, of: fn(&Sample) -> u64, more: u64| {
        let (before, after) = (least(early, of), least(late, of));
        println!("{name}: {before} in the second quarter, {after} in the last");
        if after > before + more {
            grown.push(format!("{name} grew from {before} to {after}"));
        }
    };
    judge("descriptors", |sample| sample.descriptors, 4);
    judge("processes", |sample| sample.processes, 0);
    judge(
        "memory of daemons and guards, KiB",
        |sample| sample.memory,
        2048,
    );
    judge("keys", |sample| sample.keys, 4);
    judge("memory of the data, KiB", |sample| sample.data, 512);
    assert_eq!(grown, Vec::<String>::new());
    for host in &mut hosts {
        let asked = ["history", "sound-0", "--json", "--limit", "100"];
        let history = host.ask(&asked).expect_code(0).json_lines();
        let ran = history.iter().filter(|r| r["outcome"] == "succeeded");
        assert!(ran.count() >= 50, "the sound jobs ran: {history:?}");
        assert!(host.terminate().success());
    }
}
