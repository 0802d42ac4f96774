//! The short ways of claims and finishes (`granted.lua`, `ended.lua`): they leave what the full rules would
//! leave, and leave to these all that is not usual.

use cronlatch::store::protocol::{self, Clock, Effect, FINISHED_KEPT, JobState, Past};
use cronlatch::store::{
    Claim, ClaimReply, Due, Finish, FinishReply, Outcome, Record, Retention, RunUsage, StoreError,
    Summary,
};

use super::{Redis, Scene, calls, reads, redis, store_on};
use crate::contract::{LONG, eventually, run_id, token};
use crate::support::RedisServer;
use crate::support::sentinel::{caught_up, replica_of};

const MARKER: &str = "cronlatch:store";
const LOCK: &str = "cronlatch:{l}:lock";
const STATE: &str = "cronlatch:{l}:state";
const LEDGER: &str = "cronlatch:{l}:job:j";
const RUNS: &str = "cronlatch:{l}:runs:j";
const FAILURES: &str = "cronlatch:{l}:failures:j";
const MINUTE_MS: &str = "60000";
const DAY_MS: i64 = 24 * 3600 * 1000;

/// A job whose first occurrence has run, so that the claim of the next one is usual.
struct Job {
    redis: Redis,
    scene: Scene,
}

impl Job {
    async fn new() -> Self {
        Self::on(redis().await).await
    }

    async fn on(redis: Redis) -> Self {
        let scene = Scene::new(&redis).await;
        let job = Self { redis, scene };
        job.claim(1).await;
        job.scene.finish(&job.ends(1)).await;
        job
    }

    /// Claims the `n`th occurrence, right after the one before it.
    async fn claim(&self, n: u64) {
        let due = Due {
            prev: Some(self.scene.at(n - 1)),
            ..self.scene.due(n)
        };
        let claim = self.scene.claim_due(&n.to_string(), due);
        Scene::granted(&self.scene.send(&claim).await);
    }

    /// The result of that run: a success.
    fn ends(&self, n: u64) -> Finish {
        self.scene.success(&n.to_string(), n)
    }

    fn ends_as(&self, n: u64, change: impl FnOnce(&mut Record)) -> Finish {
        let mut finish = self.ends(n);
        change(finish.record.as_mut().expect("a result"));
        finish
    }

    fn command(&self, words: &[&str]) {
        self.redis.server.command(words);
    }

    /// How many messages about releases were sent.
    fn releases(&self) -> u32 {
        calls(&self.redis.server, "publish")
    }

    fn state(&self, field: &str) -> String {
        self.redis.server.text(&["HGET", STATE, field])
    }

    fn lock_value(&self) -> String {
        self.redis.server.text(&["GET", LOCK])
    }

    /// The reads that a request costs, and its answer.
    async fn reads_of<T>(&self, request: impl Future<Output = T>) -> (u32, T) {
        let before = reads(&self.redis.server);
        let answer = request.await;
        (reads(&self.redis.server) - before, answer)
    }
}

/// Notes a record in a summary as the rules do.
fn noted(summary: &Summary, record: &Record) -> Summary {
    let now = cronlatch::time::Timestamp::now().millis();
    let clock = Clock {
        micros: u64::try_from(now).unwrap() * 1000,
        lease: u64::try_from(now).unwrap(),
        past: Past::default(),
    };
    let effect = Effect::Append {
        record: Box::new(record.clone()),
        keep: None,
        follows: None,
        replaces: false,
    };
    let mut job = Some(JobState {
        summary: summary.clone(),
        ..JobState::starting_after(cronlatch::time::Timestamp::EPOCH)
    });
    protocol::summarize(&mut job, &[effect], clock);
    job.expect("it stays").summary
}

#[tokio::test]
async fn many_runs_in_a_row_leave_the_summary_and_the_history_that_the_rules_name() {
    let job = Job::new().await;
    let keep = Retention::of_records(20);
    let mut summary = job.scene.report().await.summary;
    let mut history = job.scene.history().await;
    for n in 2..=70 {
        job.claim(n).await;
        let finish = job.ends_as(n, |record| match n % 8 {
            1 => record.reason = Some(format!("100 %\tof\r\n{n}")),
            3 => record.output_tail = Some("a line".to_owned()),
            4 => {
                record.usage = Some(RunUsage {
                    cpu_ms: 7,
                    peak_memory_bytes: 1 << 20,
                });
            }
            5 => record.outcome = Outcome::Failed,
            // It ended long before the one before it.
            7 => record.finished_at = Some(job.scene.at(n - 3)),
            _ => {}
        });
        let finish = Finish { keep, ..finish };
        assert_eq!(job.scene.finish(&finish).await, FinishReply::Released);
        let record = finish.record.expect("a result");
        summary = noted(&summary, &record);
        assert_eq!(job.scene.report().await.summary, summary, "run {n}");
        history.push(record);
        protocol::trim(&mut history, keep);
        assert_eq!(job.scene.history().await, history, "run {n}");
    }
    let finished = job.state("finished");
    assert_eq!(finished.lines().count(), FINISHED_KEPT);
    // A copy of any of those changes nothing.
    for n in [70, 70 - u64::try_from(FINISHED_KEPT).unwrap() + 1] {
        assert_eq!(job.scene.finish(&job.ends(n)).await, FinishReply::Released);
    }
    assert_eq!(job.scene.history().await, history);
}

#[tokio::test]
async fn the_usual_finish_is_written_before_the_full_rules_read_all_over_again() {
    let job = Job::new().await;
    job.claim(2).await;
    let releases = job.releases();
    let (usual, _) = job.reads_of(job.scene.finish(&job.ends(2))).await;
    assert_eq!(job.releases(), releases + 1, "those who wait are told");
    job.claim(3).await;
    // It ended before the one before it.
    let early = job.ends_as(3, |record| record.finished_at = Some(job.scene.at(1)));
    let (unusual, _) = job.reads_of(job.scene.finish(&early)).await;
    assert!(usual < unusual, "{usual} reads, and {unusual}");
}

#[tokio::test]
async fn a_lock_without_a_job_is_taken_and_released_before_the_full_rules_read_all_over_again() {
    let job = Job::new().await;
    let ending = |who: &str| Finish {
        job: None,
        ..job.scene.ending(who)
    };
    let (take, reply) = job.reads_of(job.scene.send(&job.scene.bare("a"))).await;
    let (fence, _) = Scene::granted(&reply);
    let releases = job.releases();
    let (release, reply) = job.reads_of(job.scene.finish(&ending("a"))).await;
    assert_eq!(reply, FinishReply::Released);
    assert_eq!(job.releases(), releases + 1, "those who wait are told");
    // Fences rise from there, whatever the clock does.
    assert_eq!(job.state("fence"), fence.to_string());
    // Its lease ends, and its host comes back after another one.
    Scene::granted(&job.scene.send(&job.scene.bare("b")).await);
    job.command(&["DEL", LOCK]);
    job.command(&["HSET", STATE, "lease_end", "1"]);
    let (take_later, reply) = job.reads_of(job.scene.send(&job.scene.bare("c"))).await;
    Scene::granted(&reply);
    let (release_late, reply) = job.reads_of(job.scene.finish(&ending("b"))).await;
    assert_eq!(reply, FinishReply::Lost);
    assert!(take < take_later, "{take} reads, and {take_later}");
    assert!(
        release < release_late,
        "{release} reads, and {release_late}"
    );
}

#[tokio::test]
async fn what_a_run_of_a_job_leaves_is_kept_from_its_end_on() {
    let job = Job::new().await;
    job.claim(2).await;
    for key in [LEDGER, STATE, RUNS] {
        job.command(&["PEXPIRE", key, MINUTE_MS]);
    }
    job.scene.finish(&job.ends(2)).await;
    for key in [LEDGER, STATE, RUNS] {
        let left = job.redis.server.number(&["PTTL", key]);
        assert!(left > DAY_MS, "{key} stays for {left} ms");
    }
    // The end of a lock without a job does not shorten that.
    Scene::granted(&job.scene.send(&job.scene.bare("a")).await);
    let finish = Finish {
        job: None,
        ..job.scene.ending("a")
    };
    assert_eq!(job.scene.finish(&finish).await, FinishReply::Released);
    let left = job.redis.server.number(&["PTTL", STATE]);
    assert!(left > DAY_MS, "{STATE} stays for {left} ms");
}

#[tokio::test]
async fn a_success_removes_the_records_whose_time_is_over() {
    let job = Job::new().await;
    job.claim(2).await;
    let failed = job.ends_as(2, |record| record.outcome = Outcome::Failed);
    job.scene.finish(&failed).await;
    let n = std::cell::Cell::new(3);
    // What has the same millisecond as the newest is as old.
    eventually("the failure is deleted", async || {
        job.claim(n.get()).await;
        let keep = Retention {
            age: std::time::Duration::ZERO,
            ..Retention::DEFAULT
        };
        let finish = Finish {
            keep,
            ..job.ends(n.get())
        };
        job.scene.finish(&finish).await;
        n.set(n.get() + 1);
        let left = |key| job.redis.server.number(&["XLEN", key]);
        (left(FAILURES) == 0 && left(RUNS) == 1).then_some(())
    })
    .await;
}

/// The search visits the whole history. What an earlier success has searched, by the store's clock, is not
/// searched again in the same hour.
#[tokio::test]
async fn a_success_searches_for_old_records_unless_one_of_this_hour_has() {
    const HOUR_MICROS: i64 = 3_600_000_000;
    let job = Job::new().await;
    let micros = async || job.scene.store.now().await.expect("it answers").millis() * 1000;
    let began = micros().await;
    // The fence of the run before decides whether this one searches.
    let searches = async |n: u64, fence: i64| {
        job.claim(n).await;
        let fence = u64::try_from(fence).ok();
        let finish = job.ends_as(n, |record| record.fence = fence);
        let before = calls(&job.redis.server, "xrevrange");
        job.scene.finish(&finish).await;
        calls(&job.redis.server, "xrevrange") - before
    };
    let after_the_first = searches(2, began).await;
    let after_one_of_now = searches(3, began - HOUR_MICROS).await;
    let after_one_of_an_hour_ago = searches(4, began + 2 * HOUR_MICROS).await;
    let after_one_ahead = searches(5, began).await;
    // The history and the failures.
    assert_eq!(after_the_first, 2);
    assert_eq!(after_one_of_an_hour_ago, 2);
    assert_eq!(after_one_ahead, 2);
    if began / HOUR_MICROS == micros().await / HOUR_MICROS {
        assert_eq!(after_one_of_now, 0);
    }
}

#[tokio::test]
async fn a_search_for_old_records_removes_as_many_as_an_hour_can_bring() {
    let job = Job::new().await;
    job.command(&["DEL", RUNS]);
    for n in 1..=250 {
        job.command(&["XADD", RUNS, &format!("{n}-0"), "outcome", "succeeded"]);
    }
    job.claim(2).await;
    let mut finish = job.ends(2);
    finish.keep.records = 1_000;
    job.scene.finish(&finish).await;
    let length = job.redis.server.text(&["XLEN", RUNS]);
    assert_eq!(length, "1", "that of the second one");
}

#[tokio::test]
async fn a_usual_claim_keeps_the_list_of_ttls_as_the_full_rules_keep_it() {
    let job = Job::new().await;
    let listed = || job.redis.server.text(&["HGET", MARKER, "longest"]);
    let first = listed();
    let (ttl, _) = first.split_once(' ').expect("a TTL, and until when");
    let ttl: i64 = ttl.parse().expect("a number");
    let n = std::cell::Cell::new(2);
    let reads_of_claim = async || {
        let (reads, ()) = job.reads_of(job.claim(n.get())).await;
        job.scene.finish(&job.ends(n.get())).await;
        n.set(n.get() + 1);
        reads
    };
    let usual = reads_of_claim().await;
    let now = job.scene.store.now().await.expect("it answers").millis();
    let lasts = ttl + ttl / 8;
    let lost = job.scene.start.millis() - 10_000;
    job.command(&["HSET", MARKER, "lost_at", &lost.to_string(), "until", "1"]);
    let rewritten = [
        String::new(),
        format!("{ttl} 1"),
        format!("{} 1", 3 * ttl),
        format!("{ttl} {}", now + ttl / 2),
        format!("{} {}", ttl / 2, now + ttl / 2),
        // Written while the clock was ahead.
        format!("{ttl} {}", now + 9 * ttl),
    ];
    for kept in rewritten {
        job.command(&["HSET", MARKER, "longest", &kept]);
        assert_eq!(reads_of_claim().await, usual, "{kept:?}");
        let noted = listed();
        let (longest, till) = noted.split_once(' ').expect("one TTL");
        assert_eq!(longest, ttl.to_string(), "{kept:?}");
        let till: i64 = till.parse().expect("a number");
        let latest = job.scene.store.now().await.expect("it answers").millis() + lasts;
        assert!((now + lasts..=latest).contains(&till), "{kept:?}: {noted}");
    }
    let outlasting = format!("{} {}", 3 * ttl, now + 3 * ttl);
    job.command(&["HSET", MARKER, "longest", &outlasting]);
    assert_eq!(reads_of_claim().await, usual);
    assert_eq!(listed(), outlasting);
    // Several are left to the full rules.
    let ends_soon = format!("{} {}", 3 * ttl, now + ttl / 2);
    job.command(&["HSET", MARKER, "longest", &ends_soon]);
    assert!(reads_of_claim().await > usual);
    assert!(listed().starts_with(&format!("{ends_soon},{ttl} ")));
    assert!(reads_of_claim().await > usual);
}

/// The process is the same, but its data are those of another server by now.
#[tokio::test]
async fn a_usual_claim_waits_if_its_server_was_a_replica_meanwhile() {
    let with = RedisServer::builder()
        .arg("--repl-diskless-sync-delay")
        .arg("0");
    let server = with.clone().start();
    let store = store_on(&server);
    let job = Job::on(Redis { server, store }).await;
    let server = &job.redis.server;
    let other = replica_of(server, server.port(), with);
    other.command(&["REPLICAOF", "NO", "ONE"]);
    let port = other.port().to_string();
    server.command(&["REPLICAOF", "127.0.0.1", &port]);
    caught_up(&other, 1);
    server.command(&["REPLICAOF", "NO", "ONE"]);
    let before = server.text(&["HGET", MARKER, "replid"]);
    let due = Due {
        prev: Some(job.scene.at(1)),
        ..job.scene.due(2)
    };
    for claim in [job.scene.claim_due("2", due), job.scene.bare("a")] {
        let reply = job.scene.send(&claim).await;
        let waits = matches!(reply, ClaimReply::Recovering { .. });
        assert!(waits, "{reply:?}");
        // As if nobody had noticed yet.
        job.command(&["HDEL", MARKER, "lost_at", "until"]);
        job.command(&["HSET", MARKER, "replid", &before]);
    }
}

#[tokio::test]
async fn a_run_of_which_anything_is_damaged_is_not_ended() {
    let fields = [
        (LEDGER, "last"),
        (LEDGER, "attempt"),
        (LEDGER, "fence"),
        (LEDGER, "started_at"),
        (LEDGER, "scheduled_at"),
        (LEDGER, "fingerprints"),
        (LEDGER, "waiting"),
        (LEDGER, "beyond"),
        (LEDGER, "pauses"),
        (LEDGER, "moved"),
        (STATE, "fence"),
        (STATE, "lease_end"),
    ];
    let lost = ["run_id", "kind", "host"];
    let odd = fields.map(|(key, field)| vec!["HSET", key, field, "odd\n"]);
    let lost = lost.map(|field| vec!["HDEL", LEDGER, field]);
    let job = Job::new().await;
    job.claim(2).await;
    for damage in odd.into_iter().chain(lost) {
        let (key, field) = (damage[1], damage[2]);
        let before = job.redis.server.command(&["HGET", key, field]);
        job.command(&damage);
        let reply = job.scene.store.finish(&job.ends(2)).await;
        let is_reported = matches!(reply, Err(StoreError::Key(_)));
        assert!(is_reported, "{damage:?}: {reply:?}");
        assert_eq!(job.lock_value(), token("2").as_str(), "{damage:?}");
        assert_eq!(job.scene.outcomes().await, [Outcome::Succeeded]);
        match redis::from_redis_value::<Option<String>>(before).unwrap() {
            Some(value) => job.command(&["HSET", key, field, &value]),
            None => job.command(&["HDEL", key, field]),
        }
    }
    assert_eq!(job.scene.finish(&job.ends(2)).await, FinishReply::Released);
    assert_eq!(job.scene.outcomes().await, [Outcome::Succeeded; 2]);
}

#[tokio::test]
async fn a_history_of_another_type_is_reported_and_takes_the_result_once_it_is_removed() {
    let job = Job::new().await;
    job.claim(2).await;
    job.command(&["DEL", RUNS]);
    job.command(&["RPUSH", RUNS, "an element"]);
    let reply = job.scene.store.finish(&job.ends(2)).await;
    assert!(matches!(reply, Err(StoreError::Key(_))), "{reply:?}");
    // The lock is free nevertheless.
    assert_eq!(job.redis.server.number(&["EXISTS", LOCK]), 0);
    job.command(&["DEL", RUNS]);
    job.scene.finish(&job.ends(2)).await;
    let records = job.scene.history().await.into_iter();
    let runs: Vec<_> = records.filter_map(|it| it.run_id).collect();
    assert_eq!(runs, [run_id("2")]);
}

#[tokio::test]
async fn a_lock_that_is_anothers_by_the_end_of_a_run_stays_anothers() {
    let job = Job::new().await;
    for n in 2..=3 {
        job.claim(n).await;
        job.command(&["SET", LOCK, "another program"]);
        assert_eq!(job.scene.finish(&job.ends(n)).await, FinishReply::Lost);
        assert_eq!(job.lock_value(), "another program");
        job.command(&["DEL", LOCK]);
    }
    assert_eq!(job.scene.outcomes().await, [Outcome::Succeeded; 3]);
    let finish = Finish {
        job: None,
        ..job.scene.ending("a")
    };
    Scene::granted(&job.scene.send(&job.scene.bare("a")).await);
    job.command(&["SET", LOCK, "another program"]);
    assert_eq!(job.scene.finish(&finish).await, FinishReply::Lost);
    assert_eq!(job.lock_value(), "another program");
}

#[tokio::test]
async fn a_state_or_a_run_that_is_anothers_by_the_end_of_a_run_stays_anothers() {
    let job = Job::new().await;
    job.claim(2).await;
    job.command(&["HSET", STATE, "token", "another"]);
    assert_eq!(job.scene.finish(&job.ends(2)).await, FinishReply::Released);
    assert_eq!(job.state("token"), "another");
    job.command(&["HDEL", STATE, "token", "lease_end", "run_id"]);
    job.claim(3).await;
    job.command(&["HSET", LEDGER, "token", "another"]);
    assert_eq!(job.scene.finish(&job.ends(3)).await, FinishReply::Released);
    let status = job.redis.server.text(&["HGET", LEDGER, "status"]);
    assert_eq!(status, "open");
    assert_eq!(job.scene.outcomes().await, [Outcome::Succeeded; 3]);
}

/// An occurrence that the watermark no longer covers, because the ledger was ahead of the clock.
#[tokio::test]
async fn a_result_beyond_the_watermark_decides_its_occurrence_alone() {
    let job = Job::new().await;
    job.claim(2).await;
    let before = job.scene.at(1).millis().to_string();
    job.command(&["HSET", LEDGER, "last", &before]);
    assert_eq!(job.scene.finish(&job.ends(2)).await, FinishReply::Released);
    let registered = job.scene.register().await;
    assert_eq!(registered.decided_until, job.scene.at(1));
    assert_eq!(registered.decided_beyond, [job.scene.at(2)]);
}

#[tokio::test]
async fn a_lock_whose_state_is_damaged_is_neither_taken_nor_released() {
    let job = Job::new().await;
    let claim = Claim {
        ttl: LONG,
        ..job.scene.bare("a")
    };
    let finish = Finish {
        job: None,
        ..job.scene.ending("a")
    };
    let fence = job.state("fence");
    job.command(&["HSET", STATE, "fence", "odd"]);
    let reply = job.scene.store.claim(&claim).await;
    assert!(matches!(reply, Err(StoreError::Key(_))), "{reply:?}");
    assert_eq!(job.redis.server.number(&["EXISTS", LOCK]), 0);
    job.command(&["HSET", STATE, "fence", &fence]);
    Scene::granted(&job.scene.send(&claim).await);
    for field in ["fence", "lease_end"] {
        let before = job.state(field);
        job.command(&["HSET", STATE, field, "odd"]);
        let reply = job.scene.store.finish(&finish).await;
        assert!(matches!(reply, Err(StoreError::Key(_))), "{reply:?}");
        assert_eq!(job.lock_value(), token("a").as_str());
        job.command(&["HSET", STATE, field, &before]);
    }
    assert_eq!(job.scene.finish(&finish).await, FinishReply::Released);
}

#[tokio::test]
async fn a_lock_without_a_job_is_not_taken_from_another_program_and_its_fence_rises() {
    let job = Job::new().await;
    let claim = job.scene.bare("a");
    job.command(&["SET", LOCK, "another program"]);
    let reply = job.scene.send(&claim).await;
    assert!(matches!(reply, ClaimReply::Held { .. }), "{reply:?}");
    assert_eq!(job.lock_value(), "another program");
    job.command(&["DEL", LOCK]);
    // Granted by a server whose clock was ahead.
    let ahead = 9_000_000_000_000_000_u64;
    job.command(&["HSET", STATE, "fence", &ahead.to_string()]);
    let (fence, _) = Scene::granted(&job.scene.send(&claim).await);
    assert_eq!(fence, ahead + 1);
    assert_eq!(job.state("run_id"), "run-a");
    assert_eq!(job.state("token"), token("a").as_str());
    let left = job.redis.server.number(&["PTTL", LOCK]);
    assert!(left > 0, "the lease ends by itself");
    // It is the holder's until then, also if the lock is lost.
    job.command(&["DEL", LOCK]);
    let reply = job.scene.send(&job.scene.bare("b")).await;
    assert!(matches!(reply, ClaimReply::Held { .. }), "{reply:?}");
}
