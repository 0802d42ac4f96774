//! What can be read: histories, ledgers, holders, hosts.

use std::time::Duration;

use cronlatch::names::{HostName, JobName};
use cronlatch::store::{
    ClaimTarget, Fingerprint, Finish, HostInfo, JobDigest, Kind, ListedJobs, Outcome, Record,
    RunUsage,
};
use cronlatch::time::Timestamp;

use super::{LONG, SHORT, Scene, Subject, eventually, token};
use crate::support::hosts::host_info;

pub(crate) async fn a_record_comes_back_as_it_went_in(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let full = Record {
        kind: Kind::CatchUp,
        until: None,
        outcome: Outcome::Failed,
        reason: Some("exit 3, \"quoted\" and: {braces}".to_owned()),
        by: Some("someone".to_owned()),
        exit_code: Some(-3),
        signal: Some(9),
        attempts: 7,
        fence: Some(1_790_000_000_123_456),
        started_at: Some(Timestamp::from_millis(1_700_000_000_001)),
        finished_at: Some(Timestamp::from_millis(1_700_000_000_999)),
        output_tail: Some("one\n\u{0}two\ttäglich \u{1F980}\n".to_owned()),
        usage: Some(RunUsage {
            cpu_ms: 61_001,
            peak_memory_bytes: 5_000_000_000,
        }),
        ..scene.record(Some(scene.at(1)), Outcome::Succeeded)
    };
    let bare = Record {
        run_id: None,
        host: None,
        started_at: None,
        finished_at: None,
        exit_code: None,
        fence: None,
        ..scene.record(None, Outcome::Unknown)
    };
    let range = Record {
        until: Some(scene.at(9)),
        count: Some(8),
        ..scene.record(Some(scene.at(2)), Outcome::TimedOut)
    };
    for (n, record) in [&full, &bare, &range].into_iter().enumerate() {
        let finish = Finish {
            record: Some(record.clone()),
            ..scene.ending(&n.to_string())
        };
        scene.finish(&finish).await;
    }
    assert_eq!(scene.history().await, [full, bare, range]);
    assert_eq!(scene.last().await, Some(scene.at(9)));
}

pub(crate) async fn the_history_is_newest_first_and_capped(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    for n in 1..=20 {
        let finish = Finish {
            keep: cronlatch::store::Retention::of_records(5),
            ..scene.success(&n.to_string(), n)
        };
        scene.finish(&finish).await;
    }
    let newest = async |limit| {
        let records = scene.store.history(&scene.job, &scene.lock, limit).await;
        let records = records.unwrap().records;
        let at: Vec<_> = records.iter().filter_map(|r| r.scheduled_at).collect();
        at
    };
    let at = |n| scene.at(n);
    assert_eq!(newest(5).await, [at(20), at(19), at(18), at(17), at(16)]);
    assert_eq!(newest(2).await, [at(20), at(19)]);
    assert_eq!(newest(0).await, []);
    // A node that missed a record keeps an older one for it, and all of them are shown.
    let kept = newest(100).await.len();
    assert!(kept <= 5 * subject.copies(), "{kept} records");
    let stranger = JobName::parse("stranger").unwrap();
    let none = scene.store.history(&stranger, &scene.lock, 5).await;
    assert_eq!(none.unwrap().records, []);
}

pub(crate) async fn equal_skips_lose_no_occurrence(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.send(&scene.claim("a", 1)).await;
    for n in 2..=200 {
        let mut claim = scene.claim(&format!("w{n}"), n);
        if let ClaimTarget::Occurrence { keep, .. } = &mut claim.what {
            *keep = cronlatch::store::Retention::of_records(1000);
        }
        scene.send(&claim).await;
    }
    // Whether a store merges them or not, and in whatever pieces: together they cover each
    // occurrence, and where there is one copy of the history, once.
    let mut records = scene.history().await;
    records.sort_by_key(|record| record.scheduled_at);
    let (mut next, mut total) = (2, 0);
    for record in records {
        assert_eq!(record.outcome, Outcome::Skipped);
        let from = record.scheduled_at.expect("it is of an occurrence");
        let until = record.until.unwrap_or(from);
        let count = record.count.unwrap_or(1);
        assert_eq!(until, from.plus(scene.at(count).since(scene.at(1))));
        assert!(from <= scene.at(next), "none before {from} from {next} on");
        while scene.at(next) <= until {
            next += 1;
        }
        total += count;
    }
    assert!(total == 199 || subject.copies() > 1, "{total} in all");
    assert_eq!(next, 201);
}

pub(crate) async fn a_job_is_reported_with_its_run_and_its_holder(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let (fence, _) = Scene::granted(&scene.send(&scene.claim("a", 1)).await);
    let asked = [(scene.job.clone(), scene.lock.clone())];
    let report = scene.store.jobs(&asked).await.unwrap().remove(0);
    assert_eq!((report.job, report.fence), (scene.job.clone(), fence));
    let holder = report.holder.expect("it is held");
    assert_eq!(holder.value, token("a").as_str());
    assert_eq!(holder.by, "host-a");
    assert!(holder.remaining.is_some_and(|left| left > LONG / 2));
    let open = report.open.expect("a run is open");
    assert_eq!(open.scheduled_at, Some(scene.at(1)));
    assert_eq!((open.by.as_str(), open.attempt), ("host-a", 1));
    assert!(open.started_at >= scene.start);
    assert!(open.remaining > LONG / 2);
    assert_eq!(report.fingerprints.len(), 1);

    subject.expire(&scene.lock).await;
    let over = scene.store.jobs(&asked).await.unwrap().remove(0);
    assert_eq!(over.holder, None);
    assert!(over.open.expect("still open").remaining.is_zero());
    scene.finish(&scene.success("a", 1)).await;
    let after = scene.store.jobs(&asked).await.unwrap().remove(0);
    assert_eq!((after.open, after.fence), (None, fence));
}

pub(crate) async fn an_unknown_job_is_reported_as_such(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let stranger = JobName::parse("stranger").unwrap();
    let asked = [
        (stranger.clone(), scene.lock.clone()),
        (scene.job.clone(), scene.lock.clone()),
    ];
    let reports = scene.store.jobs(&asked).await.unwrap();
    assert_eq!((&reports[0].job, reports[0].last), (&stranger, None));
    assert_eq!(reports[1].last, Some(scene.start));
    assert_eq!(scene.store.jobs(&[]).await.unwrap(), []);
}

/// What a host of this name says of itself.
pub(crate) fn host(name: &str, running: usize) -> HostInfo {
    HostInfo {
        running,
        draining: running == 0,
        clock_offset_ms: Some(-17),
        namesake: (running == 0).then(|| "process 43".to_owned()),
        output: Some("/var/lib/cronlatch/output".to_owned()),
        http: Some("http://h:7171".to_owned()),
        ..host_info(name)
    }
}

pub(crate) async fn a_host_is_forgotten_when_it_falls_silent(subject: &impl Subject) {
    let store = subject.store();
    assert_eq!(store.hosts().await.unwrap(), []);
    let (quiet, first, again) = (host("quiet", 1), host("h", 2), host("h", 0));
    store.announce(&quiet, SHORT).await.unwrap();
    store.announce(&first, LONG).await.unwrap();
    subject.another().announce(&again, LONG).await.unwrap();
    let left = eventually("the quiet host is forgotten", async || {
        let hosts = store.hosts().await.unwrap();
        (hosts.len() == 1).then_some(hosts)
    })
    .await;
    assert_eq!(left[0].info, again);
    let silent = store.now().await.unwrap().since(left[0].seen_at);
    assert!(silent < Duration::from_secs(60), "{silent:?}");
}

pub(crate) async fn a_host_takes_its_word_back(subject: &impl Subject) {
    let store = subject.store();
    let names = async || {
        let hosts = store.hosts().await.unwrap();
        let names = hosts.iter().map(|report| report.info.host.to_string());
        names.collect::<Vec<_>>()
    };
    let (goes, stays) = (host("goes", 0), host("stays", 1));
    store.announce(&goes, Duration::ZERO).await.unwrap();
    assert_eq!(names().await, Vec::<String>::new());
    store.announce(&goes, LONG).await.unwrap();
    store.announce(&stays, LONG).await.unwrap();
    assert_eq!(names().await, ["goes", "stays"]);
    let same = subject.another();
    same.announce(&goes, Duration::ZERO).await.unwrap();
    eventually("it is forgotten, by a late node as well", async || {
        (names().await == ["stays"]).then_some(())
    })
    .await;
}

pub(crate) async fn a_host_takes_back_no_word_of_a_namesake(subject: &impl Subject) {
    let store = subject.store();
    let pids = async || {
        let hosts = store.hosts().await.unwrap();
        hosts.iter().map(|it| it.info.pid).collect::<Vec<_>>()
    };
    let one = host("h", 1);
    let other = HostInfo {
        pid: 43,
        ..one.clone()
    };
    let later = HostInfo {
        started_at: Timestamp::from_secs(1_700_000_001),
        ..one.clone()
    };
    for namesake in [other, later] {
        store.announce(&one, LONG).await.unwrap();
        subject.another().announce(&namesake, LONG).await.unwrap();
        store.announce(&one, Duration::ZERO).await.unwrap();
        assert_eq!(pids().await, [namesake.pid]);
        store.announce(&namesake, Duration::ZERO).await.unwrap();
        eventually("it is forgotten, by a late node as well", async || {
            pids().await.is_empty().then_some(())
        })
        .await;
    }
}

pub(crate) async fn a_host_that_falls_silent_has_vanished_and_one_that_takes_its_word_back_has_not(
    subject: &impl Subject,
) {
    let store = subject.store();
    let vanished = async || {
        let hosts = store.vanished().await.unwrap();
        let names = hosts.iter().map(|report| report.info.host.to_string());
        names.collect::<Vec<_>>()
    };
    let (silent, goes, stays) = (host("silent", 1), host("goes", 1), host("stays", 1));
    store.announce(&silent, SHORT).await.unwrap();
    store.announce(&goes, LONG).await.unwrap();
    store.announce(&stays, LONG).await.unwrap();
    subject
        .another()
        .announce(&goes, Duration::ZERO)
        .await
        .unwrap();
    eventually("the silent host has vanished", async || {
        store.announce(&stays, LONG).await.ok()?;
        (vanished().await == ["silent"]).then_some(())
    })
    .await;
    subject.another().announce(&silent, LONG).await.unwrap();
    assert_eq!(vanished().await, [""; 0]);
}

pub(crate) async fn the_jobs_of_a_list_are_kept_under_its_fingerprint(subject: &impl Subject) {
    let store = subject.store();
    let of = |fingerprint: &str, jobs: &[(&str, &str)]| ListedJobs {
        fingerprint: Fingerprint(fingerprint.into()),
        jobs: (jobs.iter())
            .map(|(job, digest)| {
                let job = JobName::parse(job).unwrap();
                (job, JobDigest::parse(digest).unwrap())
            })
            .collect(),
    };
    for list in [of("f1", &[]), of("f2", &[("a", "1"), ("b", "2")])] {
        let name = &list.fingerprint;
        assert_eq!(store.listed_jobs(name).await.unwrap(), None);
        assert!(
            !store.keep_list(name, None).await.unwrap(),
            "it is not there"
        );
        assert!(store.keep_list(name, Some(&list)).await.unwrap());
        assert!(subject.another().keep_list(name, None).await.unwrap());
        let found = subject.another().listed_jobs(name).await.unwrap();
        assert_eq!(found, Some(list));
    }
}

pub(crate) async fn only_an_empty_store_can_be_declared_new(subject: &impl Subject) {
    let store = subject.store();
    subject.unmark().await;
    assert_eq!(store.init().await.unwrap(), None);
    Scene::new(subject).await;
    let found = store.init().await.unwrap();
    assert!(found.is_some_and(|keys| keys > 0), "{found:?}");
}

pub(crate) async fn a_connected_daemon_is_found_whatever_the_data_say(subject: &impl Subject) {
    if !subject.loses_data() {
        return;
    }
    let asks = subject.another();
    assert_eq!(asks.daemons().await.unwrap(), [""; 0]);
    let daemon = ["one", "two"].map(|name| {
        let (store, host) = (subject.another(), HostName::parse(name).unwrap());
        tokio::spawn(async move { store.attend(&host).await })
    });
    eventually("both are found", async || {
        (asks.daemons().await.ok()? == ["one", "two"]).then_some(())
    })
    .await;
    // Not by anything that was written.
    assert!(asks.hosts().await.unwrap().is_empty());
    for daemon in daemon {
        daemon.abort();
    }
    eventually("they are gone", async || {
        asks.daemons().await.ok()?.is_empty().then_some(())
    })
    .await;
}

pub(crate) async fn the_clock_of_the_store_is_read(subject: &impl Subject) {
    let store = subject.store();
    let first = store.now().await.unwrap();
    let second = subject.another().now().await.unwrap();
    assert!(second >= first);
    assert!(Timestamp::now().since(first) < Duration::from_secs(60));
    assert!(first.since(Timestamp::now()) < Duration::from_secs(60));
}
