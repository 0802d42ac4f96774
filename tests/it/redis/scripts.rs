//! Compares the scripts with the plain functions, call by call.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cronlatch::names::{JobName, LockName};
use cronlatch::store::Lock;
use cronlatch::store::protocol::{waiting_of_text, waiting_text};
use cronlatch::time::Timestamp;
use proptest::test_runner::{Config as ProptestConfig, TestCaseError, TestRunner};

use super::property::{self, Meddler};
use super::store;
use crate::steps::Meddling;
use crate::support::{RedisServer, test_cases};

/// Reaches into the server as another program would.
struct Hands<'a>(&'a RedisServer);

impl Meddler for Hands<'_> {
    fn meddle(&self, lock: &Lock, meddling: Meddling, ttl: Duration, ended: u64) {
        let key = format!("cronlatch:{{{}}}:lock", lock.name);
        let state = format!("cronlatch:{{{}}}:state", lock.name);
        let ttl_ms = ttl.as_millis().to_string();
        match meddling {
            Meddling::End => {
                self.0.command(&["DEL", &key]);
                if self.0.number(&["HEXISTS", &state, "token"]) == 1 {
                    let ended = ended.to_string();
                    self.0.command(&["HSET", &state, "lease_end", &ended]);
                }
            }
            Meddling::Late => {
                for job in ["job:j0", "job:j1"] {
                    self.pass_deadlines(&format!("cronlatch:{{{}}}:{job}", lock.name));
                }
            }
            Meddling::Evict => {
                self.0.command(&["DEL", &key]);
            }
            Meddling::Foreign { ttl: false } => {
                self.0.command(&["SET", &key, "another program"]);
            }
            Meddling::Foreign { ttl: true } => {
                self.0
                    .command(&["SET", &key, "another program", "PX", &ttl_ms]);
            }
            Meddling::List => {
                self.0.command(&["DEL", &key]);
                self.0.command(&["RPUSH", &key, "x"]);
                self.0.command(&["PEXPIRE", &key, &ttl_ms]);
            }
            Meddling::Persist => {
                self.0.command(&["PERSIST", &key]);
            }
            Meddling::Save => self.copy(lock, "", ":saved"),
            Meddling::Restore => {
                self.copy(lock, ":saved", "");
                self.elsewhere();
            }
            Meddling::Flush => {
                let mut keys = keys_of(lock);
                keys.push(MARKER.to_owned());
                for key in keys {
                    self.0.command(&["DEL", &key]);
                }
            }
            Meddling::Restart => self.elsewhere(),
            Meddling::Age => {
                if self.0.number(&["HEXISTS", MARKER, "lost_at"]) == 1 {
                    let back = format!("-{}", property::AGE.as_millis());
                    for field in ["lost_at", "until"] {
                        self.0.command(&["HINCRBY", MARKER, field, &back]);
                    }
                    forget_ttls(self.0, MARKER);
                }
            }
        }
    }

    fn lock_kept(&self, lock: &Lock) -> [Option<String>; 4] {
        let state = format!("cronlatch:{{{}}}:state", lock.name);
        ["token", "run_id", "lease_end", "finished"].map(|field| self.field(&state, field))
    }

    fn job_kept(&self, lock: &Lock, job: &JobName) -> [Option<String>; 6] {
        let key = format!("cronlatch:{{{}}}:job:{job}", lock.name);
        ["waiting", "status", "token", "kind", "fence", "terms"]
            .map(|field| self.field(&key, field))
    }

    fn begin(&self) {
        self.0.declare_new();
    }
}

/// Makes it long ago that the TTLs were in use which the marker keeps.
fn forget_ttls(server: &RedisServer, marker: &str) {
    let kept = server.command(&["HGET", marker, "longest"]);
    let kept: Option<String> = redis::from_redis_value(kept).unwrap();
    let past = kept.unwrap_or_default();
    let past = past.split(',').filter_map(|kept| kept.split_once(' '));
    let past: Vec<String> = past.map(|(ttl, _)| format!("{ttl} 1")).collect();
    server.command(&["HSET", marker, "longest", &past.join(",")]);
}

const MARKER: &str = "cronlatch:store";

/// All that is kept of a lock and its jobs.
fn keys_of(lock: &Lock) -> Vec<String> {
    let names = ["lock", "state", "job:j0", "job:j1", "runs:j0", "runs:j1"];
    let failures = ["failures:j0", "failures:j1"];
    let keys = names.into_iter().chain(failures);
    keys.map(|name| format!("cronlatch:{{{}}}:{name}", lock.name))
        .collect()
}

impl Hands<'_> {
    fn field(&self, key: &str, field: &str) -> Option<String> {
        let value = self.0.command(&["HGET", key, field]);
        redis::from_redis_value(value).unwrap()
    }

    fn pass_deadlines(&self, key: &str) {
        let Some(text) = self.field(key, "waiting") else {
            return;
        };
        let mut list = waiting_of_text(&text).expect("a waiting list");
        for entry in &mut list {
            entry.deadline = Timestamp::EPOCH;
        }
        self.0
            .command(&["HSET", key, "waiting", &waiting_text(&list)]);
    }

    fn copy(&self, lock: &Lock, from: &str, to: &str) {
        for key in keys_of(lock) {
            let (from, to) = (format!("{key}{from}"), format!("{key}{to}"));
            self.0.command(&["DEL", &to]);
            self.0.command(&["COPY", &from, &to]);
        }
    }

    /// The data were written by another process.
    fn elsewhere(&self) {
        if self.0.number(&["EXISTS", MARKER]) == 1 {
            self.0.command(&["HSET", MARKER, "run_id", "another"]);
        }
    }
}

#[test]
fn the_scripts_do_what_the_plain_function_does() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let store = runtime.block_on(async { store(&server.url()) });
    let hands = Hands(&server);
    let next = AtomicU32::new(0);
    let config = ProptestConfig {
        cases: test_cases(40),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&property::sequences(), |(exclusive, steps)| {
        // A shrunk sequence must not find what the longer one left.
        let nr = next.fetch_add(1, Ordering::Relaxed);
        let lock = Lock {
            exclusive,
            ..Lock::named(&LockName::parse(&format!("s{nr}")).unwrap())
        };
        let compared = property::compare(store.clone(), &hands, lock, &steps);
        runtime.block_on(compared).map_err(TestCaseError::fail)
    });
    if let Err(e) = outcome {
        panic!("{e}");
    }
}
