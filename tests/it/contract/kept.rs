//! What is kept of a job for people: the summary in its ledger, and failures apart from successes.

use std::time::Duration;

use cronlatch::store::{
    Due, Finish, JobReport, LockId, Outcome, Record, Retention, RunUsage, Summary, relocate,
};

use super::{LONG, Scene, Subject, eventually, run_id};

impl Scene {
    pub(super) async fn report(&self) -> JobReport {
        let asked = [(self.job.clone(), self.lock.clone())];
        let mut reports = self.store.jobs(&asked).await.expect("the store answers");
        reports.remove(0)
    }

    async fn summary(&self) -> Summary {
        self.report().await.summary
    }

    async fn recent(&self) -> Vec<Outcome> {
        let recent = self.summary().await.recent;
        recent.iter().map(|recent| recent.outcome).collect()
    }

    /// The end of a run of the `n`th occurrence.
    fn ends(&self, who: &str, n: u64, outcome: Outcome) -> Finish {
        let mut finish = self.success(who, n);
        if let Some(record) = &mut finish.record {
            record.outcome = outcome;
        }
        finish
    }
}

fn failed_at(summary: &Summary) -> Option<cronlatch::time::Timestamp> {
    summary
        .last_failure()
        .and_then(|record| record.scheduled_at)
}

pub(crate) async fn the_ledger_knows_the_newest_verdicts(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    assert_eq!(scene.summary().await, Summary::default());
    let outcomes = [
        Outcome::Succeeded,
        Outcome::Failed,
        Outcome::TimedOut,
        Outcome::Succeeded,
        Outcome::Skipped,
    ];
    for (n, outcome) in (1..).zip(outcomes) {
        let mut finish = scene.ends(&n.to_string(), n, outcome);
        if let Some(record) = &mut finish.record {
            record.reason = Some(format!("100 %\tof\n{n}"));
            record.output_tail = Some("long".to_owned());
            record.usage = Some(RunUsage {
                cpu_ms: 7,
                peak_memory_bytes: 1 << 20,
            });
        }
        scene.finish(&finish).await;
    }
    assert_eq!(scene.recent().await, outcomes);
    let history = scene.history().await;
    let shown = |n: usize| Record {
        output_tail: None,
        usage: None,
        ..history[n].clone()
    };
    let expected = Summary {
        recent: scene.summary().await.recent,
        newest: Some(shown(4)),
        last_success: Some(shown(3)),
        failures: vec![shown(2)],
    };
    assert_eq!(scene.summary().await, expected);
}

pub(crate) async fn of_the_outcomes_the_newest_thirty_stay(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.finish(&scene.ends("a", 1, Outcome::Failed)).await;
    for n in 2..=29 {
        scene.finish(&scene.success(&n.to_string(), n)).await;
    }
    assert_eq!(scene.recent().await.len(), 29);
    let range = Record {
        run_id: None,
        until: Some(scene.at(32)),
        count: Some(3),
        ..scene.record(Some(scene.at(30)), Outcome::Missed)
    };
    let finish = Finish {
        record: Some(range),
        ..scene.ending("range")
    };
    scene.finish(&finish).await;
    let recent = scene.recent().await;
    let [
        Outcome::Succeeded,
        ..,
        Outcome::Missed,
        Outcome::Missed,
        Outcome::Missed,
    ] = recent[..]
    else {
        panic!("{recent:?}");
    };
    assert_eq!(recent.len(), 30);
    assert_eq!(failed_at(&scene.summary().await), Some(scene.at(1)));
}

pub(crate) async fn a_result_that_arrives_late_is_not_the_last(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    for (who, n, outcome) in [
        ("a", 3, Outcome::Failed),
        ("b", 4, Outcome::Succeeded),
        ("c", 1, Outcome::Failed),
        ("d", 2, Outcome::Succeeded),
    ] {
        scene.finish(&scene.ends(who, n, outcome)).await;
    }
    let summary = scene.summary().await;
    assert_eq!(failed_at(&summary), Some(scene.at(3)));
    let success = summary.last_success.and_then(|record| record.scheduled_at);
    assert_eq!(success, Some(scene.at(4)));
}

pub(crate) async fn the_result_of_an_interrupted_run_replaces_it_in_the_summary(
    subject: &impl Subject,
) {
    let scene = Scene::new(subject).await;
    scene.finish(&scene.ends("f", 1, Outcome::Failed)).await;
    let due = |n| Due {
        max_reruns: 1,
        ..scene.due(n)
    };
    Scene::granted(&scene.send(&scene.claim_due("c", due(2))).await);
    subject.expire(&scene.lock).await;
    Scene::granted(&scene.send(&scene.claim_due("d", due(2))).await);
    assert_eq!(
        scene.recent().await,
        [Outcome::Failed, Outcome::Interrupted]
    );
    assert_eq!(failed_at(&scene.summary().await), Some(scene.at(2)));
    scene.finish(&scene.success("c", 2)).await;
    assert_eq!(scene.recent().await, [Outcome::Failed, Outcome::Succeeded]);
    let summary = scene.summary().await;
    assert_eq!(failed_at(&summary), Some(scene.at(1)));
    let success = summary.last_success.and_then(|record| record.run_id);
    assert_eq!(success, Some(run_id("c")));
    let failures = scene.store.failures(&asked(&scene), 100).await.unwrap();
    let failed: Vec<_> = failures.records.iter().map(|it| it.scheduled_at).collect();
    assert_eq!(failed, [Some(scene.at(1))]);
}

fn asked(scene: &Scene) -> Vec<(cronlatch::names::JobName, cronlatch::store::Lock)> {
    vec![(scene.job.clone(), scene.lock.clone())]
}

pub(crate) async fn successes_do_not_displace_failures(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let keep = Retention {
        records: 4,
        failures: 2,
        ..Retention::DEFAULT
    };
    for n in 1..=20 {
        let outcome = if n <= 3 {
            Outcome::Failed
        } else {
            Outcome::Succeeded
        };
        let finish = Finish {
            keep,
            ..scene.ends(&n.to_string(), n, outcome)
        };
        scene.finish(&finish).await;
    }
    let history = scene.history().await;
    let failures: Vec<_> = history
        .iter()
        .filter(|record| record.outcome == Outcome::Failed)
        .filter_map(|record| record.scheduled_at)
        .collect();
    // A node that missed a record keeps an older one for it, and all of them are shown.
    assert!(
        failures.ends_with(&[scene.at(2), scene.at(3)]),
        "{failures:?}"
    );
    assert!(failures.len() <= 2 * subject.copies(), "{failures:?}");
    assert!(history.len() <= 6 * subject.copies(), "{history:?}");
    let newest = history.last().and_then(|record| record.scheduled_at);
    assert_eq!(newest, Some(scene.at(20)));
}

pub(crate) async fn the_failures_of_all_jobs_are_read_at_once(subject: &impl Subject) {
    let one = Scene::new(subject).await;
    let two = Scene::of(subject, one.lock.clone(), "k").await;
    one.finish(&one.ends("a", 1, Outcome::Failed)).await;
    two.finish(&two.ends("b", 2, Outcome::TimedOut)).await;
    one.finish(&one.success("c", 3)).await;
    two.finish(&two.ends("d", 4, Outcome::LeaseLost)).await;
    let all = [asked(&one), asked(&two)].concat();
    let shown = async |limit| {
        let failures = one.store.failures(&all, limit).await.unwrap();
        assert_eq!(failures.unreadable, []);
        let shown = failures.records.into_iter();
        shown
            .map(|record| (record.job.to_string(), record.outcome))
            .collect::<Vec<_>>()
    };
    let job = |scene: &Scene| scene.job.to_string();
    let mut expected = vec![
        (job(&two), Outcome::LeaseLost),
        (job(&two), Outcome::TimedOut),
        (job(&one), Outcome::Failed),
    ];
    assert_eq!(shown(100).await, expected);
    expected.truncate(1);
    assert_eq!(shown(1).await, expected);
}

pub(crate) async fn what_is_older_than_its_time_is_deleted(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.finish(&scene.ends("a", 1, Outcome::Failed)).await;
    let keep = Retention {
        age: Duration::ZERO,
        ..Retention::DEFAULT
    };
    let n = std::cell::Cell::new(2);
    // What has the same millisecond as the newest is as old.
    eventually("the failure is deleted", async || {
        let finish = Finish {
            keep,
            ..scene.success(&n.get().to_string(), n.get())
        };
        scene.finish(&finish).await;
        n.set(n.get() + 1);
        let history = scene.history().await;
        let is_gone = history.iter().all(|it| it.outcome != Outcome::Failed);
        is_gone.then_some(())
    })
    .await;
    assert_eq!(failed_at(&scene.summary().await), Some(scene.at(1)));
}

pub(crate) async fn the_summary_moves_with_the_ledger(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.finish(&scene.ends("a", 1, Outcome::Failed)).await;
    scene.finish(&scene.success("b", 2)).await;
    let before = scene.summary().await;
    let host = cronlatch::names::HostName::parse("one").unwrap();
    let id = LockId::Fleet("elsewhere".into());
    let destination = relocate::Destination {
        job: &scene.job,
        lock: &id,
        host: &host,
        ttl: LONG,
        now: scene.store.now().await.unwrap(),
        counts_from: scene.start,
    };
    let relocation = relocate::Relocation::new(&destination, vec![scene.lock.clone()]);
    let moved = relocate::relocate(&*scene.store, relocation).await.unwrap();
    let from = vec![scene.lock.clone()];
    assert_eq!(moved, relocate::Relocated::Home { from });
    let there = Scene {
        store: std::sync::Arc::clone(&scene.store),
        lock: id.on(&host),
        job: scene.job.clone(),
        start: scene.start,
    };
    assert_eq!(there.summary().await, before);
    there.finish(&there.success("c", 3)).await;
    let expected = [Outcome::Failed, Outcome::Succeeded, Outcome::Succeeded];
    assert_eq!(there.recent().await, expected);
}
