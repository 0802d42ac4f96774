//! The revision of what a host lists, where only Redis can lose it.

use cronlatch::names::{HostName, JobName};
use cronlatch::store::Standing;

use super::{Redis, redis};
use crate::contract::registry::{Writer, revision_of};
use crate::support::RedisServer;

const KEY: &str = "cronlatch:listed:one";
const PLACE: &str = ":revision";
const DAYS_30_MS: i64 = 30 * 24 * 3_600_000;

/// Where a host lists the job `kept`, and `gone` no more.
async fn with_one_job() -> (Redis, HostName) {
    let redis = redis().await;
    let host = HostName::parse("one").unwrap();
    let [kept, gone] = ["kept", "gone"].map(|job| JobName::parse(job).unwrap());
    let mut writer = Writer {
        store: &*redis.store,
        host: &host,
        at: redis.store.now().await.unwrap(),
    };
    writer.write(&kept, Standing::Uses).await;
    writer.write(&gone, Standing::Uses).await;
    writer.write(&gone, Standing::Withdrawn).await;
    (redis, host)
}

/// Whether the job that was withdrawn is found after this, although the host knows the revision.
async fn is_found_after(damage: impl Fn(&RedisServer)) {
    let (redis, host) = with_one_job().await;
    let known = revision_of(&*redis.store, &host).await;
    redis.server.command(&["HSET", KEY, "gone", "1"]);
    let listed = redis.store.listed_since(&host, Some(&known)).await.unwrap();
    assert_eq!(listed, None, "only a script gives another revision");
    damage(&redis.server);
    let listed = redis.store.listed_since(&host, Some(&known)).await.unwrap();
    let listed = listed.expect("it is not unchanged");
    assert_eq!(listed.revision, None);
    assert_eq!(listed.jobs.len(), 2, "{listed:?}");
}

#[tokio::test]
async fn without_a_revision_all_jobs_are_read() {
    is_found_after(|server| {
        server.command(&["HDEL", KEY, PLACE]);
    })
    .await;
}

#[tokio::test]
async fn what_a_version_without_revisions_writes_is_found() {
    // It sets the TTL anew with each write: here a minute after the last one of this version.
    is_found_after(|server| {
        let ttl = (DAYS_30_MS + 60_000).to_string();
        server.command(&["PEXPIRE", KEY, &ttl]);
    })
    .await;
}

#[tokio::test]
async fn a_version_without_revisions_takes_the_revision_for_no_job() {
    let (redis, _) = with_one_job().await;
    let fields = redis.server.command(&["HKEYS", KEY]);
    let mut fields: Vec<String> = ::redis::from_redis_value(fields).unwrap();
    // Such a version reads the names of jobs, and skips what is none.
    fields.retain(|field| JobName::parse(field).is_ok());
    assert_eq!(fields, ["kept"]);
}

#[tokio::test]
async fn the_revision_goes_with_the_last_job_and_stays_as_long_as_the_jobs() {
    let (redis, host) = with_one_job().await;
    let ttl = redis.server.number(&["PTTL", KEY]);
    assert!((DAYS_30_MS - 600_000..=DAYS_30_MS).contains(&ttl), "{ttl}");
    assert_eq!(redis.server.number(&["HLEN", KEY]), 2);
    let mut writer = Writer {
        store: &*redis.store,
        host: &host,
        at: redis
            .store
            .now()
            .await
            .unwrap()
            .plus(std::time::Duration::from_secs(1)),
    };
    let job = JobName::parse("kept").unwrap();
    writer.write(&job, Standing::Withdrawn).await;
    assert_eq!(redis.server.number(&["EXISTS", KEY]), 0);
}
