//! The registry: what hosts say about jobs, and where a job's ledger begins.

use std::time::Duration;

use cronlatch::names::{HostName, JobName, LockName};
use cronlatch::store::{
    Beginning, Claim, ClaimTarget, CountsFrom, Entry, Fingerprint, Forget, Forgotten, HostJobs,
    IfPaused, JobsRevision, Keeping, Lock, LockId, Standing, Store,
};
use cronlatch::time::Timestamp;

use super::{LONG, Scene, Subject, eventually, register};

fn beginning(job: &str, lock: &Lock, at: Timestamp, again: bool) -> Beginning {
    Beginning {
        job: JobName::parse(job).unwrap(),
        lock: lock.clone(),
        fingerprint: Fingerprint("f1".into()),
        ttl: LONG,
        counts: CountsFrom { at, again },
    }
}

pub(crate) async fn what_hosts_say_about_a_job_is_kept_by_host(subject: &impl Subject) {
    let (store, other) = (subject.store(), subject.another());
    let (one, two) = (
        HostName::parse("one").unwrap(),
        HostName::parse("two").unwrap(),
    );
    let jobs = ["a", "b", "c"].map(|job| JobName::parse(job).unwrap());
    let now = store.now().await.unwrap();
    let counts = CountsFrom {
        at: now,
        again: true,
    };
    let entry = |standing, at| Entry {
        standing,
        lock: LockId::Raw("app:{x} with spaces".into()),
        earlier: vec![LockId::Fleet("old".into())],
        fleet: counts,
        own: counts,
        at: now.plus(Duration::from_secs(at)),
    };
    let uses = |job: &JobName| (job.clone(), entry(Standing::Uses, 1));
    store
        .enlist(&one, &[uses(&jobs[0]), uses(&jobs[1])])
        .await
        .unwrap();
    let waits = (jobs[0].clone(), entry(Standing::Waits, 2));
    other.enlist(&two, &[waits]).await.unwrap();
    let listings = other.listings(&jobs).await.unwrap();
    let hosts = |n: usize| listings[n].entries.keys().cloned().collect::<Vec<_>>();
    assert_eq!(hosts(0), [one.clone(), two.clone()]);
    assert_eq!(hosts(1), hosts(0)[..1]);
    assert_eq!(hosts(2), []);
    assert_eq!(listings[0].entries[&one], entry(Standing::Uses, 1));
    assert_eq!(listings[0].entries[&two], entry(Standing::Waits, 2));
    // A withdrawal stays in the listing; the host no longer lists the job.
    let gone = (jobs[0].clone(), entry(Standing::Withdrawn, 3));
    store.enlist(&one, &[gone]).await.unwrap();
    let listings = other.listings(&jobs[..1]).await.unwrap();
    let entry = &listings[0].entries[&one];
    assert_eq!(entry.standing, Standing::Withdrawn);
    assert_eq!(store.listed_by(&one).await.unwrap(), [jobs[1].clone()]);
    assert_eq!(other.listed_by(&two).await.unwrap(), [jobs[0].clone()]);
}

/// An entry of the fleet's lock `l`.
fn entry(standing: Standing, at: Timestamp) -> Entry {
    let counts = CountsFrom { at, again: false };
    Entry {
        standing,
        lock: LockId::Fleet("l".into()),
        earlier: Vec::new(),
        fleet: counts,
        own: counts,
        at,
    }
}

pub(crate) async fn a_late_copy_of_an_entry_does_not_replace_a_later_one(subject: &impl Subject) {
    let store = subject.store();
    let host = HostName::parse("one").unwrap();
    let job = JobName::parse("a").unwrap();
    let now = store.now().await.unwrap();
    let after = |millis| now.plus(Duration::from_millis(millis));
    let write = async |standing, millis| {
        let entries = [(job.clone(), entry(standing, after(millis)))];
        store.enlist(&host, &entries).await.unwrap();
        let listings = store.listings(std::slice::from_ref(&job)).await.unwrap();
        listings[0].entries[&host].clone()
    };
    write(Standing::Uses, 1).await;
    write(Standing::Withdrawn, 2).await;
    let late = write(Standing::Uses, 1).await;
    assert_eq!(late, entry(Standing::Withdrawn, after(2)));
    // The next daemon of the host lists the job again.
    write(Standing::Waits, 3).await;
    let late = write(Standing::Withdrawn, 2).await;
    assert_eq!(late, entry(Standing::Waits, after(3)));
    assert_eq!(
        store.listed_by(&host).await.unwrap(),
        std::slice::from_ref(&job)
    );
    write(Standing::Withdrawn, 4).await;
    assert_eq!(store.listed_by(&host).await.unwrap(), []);
}

pub(crate) async fn an_entry_from_far_ahead_of_the_clock_is_replaced(subject: &impl Subject) {
    let store = subject.store();
    let host = HostName::parse("one").unwrap();
    let job = JobName::parse("a").unwrap();
    let now = store.now().await.unwrap();
    // Written before the clock of the store was set back.
    let ahead = entry(Standing::Uses, now.plus(Duration::from_secs(4 * 3600)));
    store.enlist(&host, &[(job.clone(), ahead)]).await.unwrap();
    let known = store.listings(std::slice::from_ref(&job)).await.unwrap();
    let gone = known[0].withdraw(&host, now).unwrap();
    assert_eq!(gone.at, now);
    store
        .enlist(&host, &[(job.clone(), gone.clone())])
        .await
        .unwrap();
    let known = store.listings(std::slice::from_ref(&job)).await.unwrap();
    assert_eq!(known[0].entries[&host], gone);
    assert_eq!(store.listed_by(&host).await.unwrap(), []);
}

pub(crate) async fn a_ledger_begins_where_the_job_counts_and_only_a_disabled_jobs_moves(
    subject: &impl Subject,
) {
    let scene = Scene::new(subject).await;
    let now = scene.store.now().await.unwrap();
    let earlier = now.minus(Duration::from_secs(100));
    let lock = Lock::named(&LockName::parse("l").unwrap());
    let begin = async |job: &str, at, again| {
        let jobs = [beginning(job, &lock, at, again)];
        assert_eq!(scene.store.begin(&jobs).await.unwrap(), [true]);
        let asked = [(jobs[0].job.clone(), lock.clone())];
        scene.store.jobs(&asked).await.unwrap().remove(0)
    };
    let new = begin("new", earlier, false).await;
    assert_eq!(new.last, Some(earlier));
    assert_eq!(
        new.fingerprints,
        [(Fingerprint("f1".into()), earlier)],
        "its first schedule counts from there too"
    );
    // One that is known goes on where it is, unless it was disabled meanwhile.
    assert_eq!(begin("new", now, false).await.last, Some(earlier));
    assert_eq!(begin("new", now, true).await.last, Some(now));
    assert_eq!(begin("new", earlier, true).await.last, Some(now));
    // No ledger is moved beyond the store's clock.
    let future = now.plus(Duration::from_secs(3600));
    let bounded = begin("new", future, true).await.last.unwrap();
    assert!(bounded < now.plus(Duration::from_secs(600)), "{bounded}");
    // A ledger that only a manual run has made says nothing about the schedule.
    let job = JobName::parse("triggered").unwrap();
    let manual = Claim {
        what: ClaimTarget::Manual {
            job: job.clone(),
            if_paused: IfPaused::Refuse,
        },
        ..scene.claim("m", 1)
    };
    Scene::granted(&scene.send(&manual).await);
    let asked = [(job.clone(), lock.clone())];
    let triggered = scene.store.jobs(&asked).await.unwrap()[0].last.unwrap();
    super::eventually("time passes", async || {
        (scene.store.now().await.unwrap() > triggered).then_some(())
    })
    .await;
    let enabled = scene.store.now().await.unwrap();
    let begun = begin("triggered", enabled, false).await;
    assert_eq!(begun.last, Some(enabled));
    assert!(begun.open.is_some(), "the open run stays");
    let from = register(&*scene.store, &job, &lock, "f1").await;
    assert_eq!(from, enabled);
}

pub(crate) async fn a_job_is_kept_by_its_hosts_and_a_forgotten_one_is_not_listed(
    subject: &impl Subject,
) {
    let scene = Scene::new(subject).await;
    let store = &scene.store;
    let host = HostName::parse("one").unwrap();
    let id = LockId::Fleet("l".into());
    let kept = Keeping::of(scene.job.clone(), &id, &host, LONG);
    let another = Keeping::of(JobName::parse("other").unwrap(), &id, &host, LONG);
    store.keep(&[kept, another]).await.unwrap();
    let asked = [(scene.job.clone(), scene.lock.clone())];
    let report = store.jobs(&asked).await.unwrap().remove(0);
    assert!(report.last.is_some(), "{report:?}");

    let counts = CountsFrom {
        at: scene.start,
        again: false,
    };
    let entry = Entry {
        standing: Standing::Uses,
        lock: id,
        earlier: Vec::new(),
        fleet: counts,
        own: counts,
        at: store.now().await.unwrap(),
    };
    store
        .enlist(&host, &[(scene.job.clone(), entry)])
        .await
        .unwrap();
    let forget = Forget {
        job: scene.job.clone(),
        lock: scene.lock.clone(),
        with_lock: true,
        although_held: false,
    };
    let forgotten = store.forget(&forget).await.unwrap();
    assert!(
        matches!(forgotten, Forgotten::Done { entries } if entries >= 2),
        "{forgotten:?}"
    );
    let job = std::slice::from_ref(&scene.job);
    assert_eq!(store.listings(job).await.unwrap()[0].entries.len(), 0);
    assert_eq!(store.listed_by(&host).await.unwrap(), []);
}

/// Reads what is listed for a host until it is unchanged: one of several nodes may be late.
pub(super) async fn revision_of(store: &dyn Store, host: &HostName) -> JobsRevision {
    let mut known = None;
    eventually("what the host lists is unchanged", async || {
        match store.listed_since(host, known.as_ref()).await.unwrap() {
            None => known.clone(),
            Some(listed) => {
                known = listed.revision;
                None
            }
        }
    })
    .await
}

/// Writes entries of a host, each later than the one before.
pub(super) struct Writer<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) host: &'a HostName,
    pub(super) at: Timestamp,
}

impl Writer<'_> {
    pub(super) async fn write(&mut self, job: &JobName, standing: Standing) {
        self.at = self.at.plus(Duration::from_millis(1));
        let entries = [(job.clone(), entry(standing, self.at))];
        self.store.enlist(self.host, &entries).await.unwrap();
    }
}

pub(crate) async fn what_a_host_lists_is_unchanged_until_it_is_written(subject: &impl Subject) {
    let (store, other) = (subject.store(), subject.another());
    let [host, second] = ["one", "two"].map(|name| HostName::parse(name).unwrap());
    let [a, b, c] = ["a", "b", "c"].map(|job| JobName::parse(job).unwrap());
    let none = Some(HostJobs::default());
    assert_eq!(store.listed_since(&host, None).await.unwrap(), none);
    let at = store.now().await.unwrap();
    let mut of_second = Writer {
        store: &*other,
        host: &second,
        at,
    };
    let mut writer = Writer {
        store: &*store,
        host: &host,
        at,
    };
    writer.write(&c, Standing::Uses).await;
    let mut earlier = vec![revision_of(&*store, &host).await];
    let forget = async || {
        let forget = Forget {
            job: a.clone(),
            lock: Lock::named(&LockName::parse("a").unwrap()),
            with_lock: true,
            although_held: false,
        };
        other.forget(&forget).await.unwrap();
    };
    // `None`: the job is forgotten on another host. The last is the job listed as it is already.
    let writes = [
        (&a, Some(Standing::Uses)),
        (&b, Some(Standing::Waits)),
        (&b, Some(Standing::Withdrawn)),
        (&a, None),
        (&a, Some(Standing::Uses)),
        (&a, Some(Standing::Uses)),
    ];
    for (job, standing) in writes {
        match standing {
            Some(standing) => writer.write(job, standing).await,
            None => forget().await,
        }
        // What was known before any of the writes does not come back.
        for known in &earlier {
            for store in [&store, &other] {
                let listed = store.listed_since(&host, Some(known)).await.unwrap();
                assert_ne!(listed, None, "{job} {standing:?}");
            }
        }
        let known = revision_of(&*store, &host).await;
        of_second.write(job, Standing::Uses).await;
        // One of several nodes may have been late before, and answer now.
        if subject.copies() == 1 {
            let listed = other.listed_since(&host, Some(&known)).await.unwrap();
            assert_eq!(listed, None, "{job} {standing:?}");
        }
        earlier.push(known);
    }
    let mut listed = store.listed_by(&host).await.unwrap();
    listed.sort();
    assert_eq!(listed, [a, c]);
}

pub(crate) async fn what_a_host_lists_is_not_unchanged_when_older_data_come_back(
    subject: &impl Subject,
) {
    let store = subject.store();
    let host = HostName::parse("one").unwrap();
    let [kept, gone] = ["kept", "gone"].map(|job| JobName::parse(job).unwrap());
    let mut writer = Writer {
        store: &*store,
        host: &host,
        at: store.now().await.unwrap(),
    };
    writer.write(&kept, Standing::Uses).await;
    writer.write(&gone, Standing::Uses).await;
    revision_of(&*store, &host).await;
    subject.copy_listed(&host).await;
    writer.write(&gone, Standing::Withdrawn).await;
    let known = revision_of(&*store, &host).await;
    subject.restore_listed(&host).await;
    let listed = store.listed_since(&host, Some(&known)).await.unwrap();
    let listed = listed.expect("the older data were told");
    assert!(listed.jobs.contains(&gone), "{listed:?}");
    // As many writes as before the loss.
    writer.write(&kept, Standing::Uses).await;
    let listed = store.listed_since(&host, Some(&known)).await.unwrap();
    let listed = listed.expect("the older data were told");
    assert!(listed.jobs.contains(&gone), "{listed:?}");
}
