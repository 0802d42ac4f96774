//! When an attempt may begin, and how the start and the end of a run are recorded and logged.

use super::*;

/// An occurrence that this host was granted, ahead of `starts_at` if that is set.
fn granted(starts_at: Option<BootInstant>) -> Assignment {
    granted_with("", starts_at)
}

/// The same for a job with further fields.
fn granted_with(fields: &str, starts_at: Option<BootInstant>) -> Assignment {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("jobs.yaml");
    let job = "name: a, schedule: '@daily', command: 'true', jitter: 10m";
    let list = format!("jobs:\n  - {{ {job}{fields} }}\n");
    std::fs::write(&path, list).expect("a file");
    let jobs = crate::config::load(&path).expect("a list").jobs;
    let terms = RunTerms {
        deadline: Timestamp::from_secs(1_000_000),
        rerun_window: Duration::ZERO,
        max_reruns: 0,
        max_attempts: 0,
        reruns: 0,
        yields: false,
    };
    let grant = Grant {
        lock: Lock::raw("a"),
        token: Token::from_text("token"),
        run_id: RunId::new(),
        fence: 1,
        ttl: Duration::from_secs(30),
        sent: BootInstant::now(),
        starts_at,
    };
    Assignment {
        job: Arc::clone(&jobs[0]),
        host: HostName::parse("web1").expect("a name"),
        kind: Kind::Schedule,
        scheduled_at: Some(Timestamp::from_secs(86_400)),
        attempt: 1,
        authority: Authority::Granted { grant, terms },
        cause: None,
    }
}

#[test]
fn only_the_first_attempt_has_an_instant_and_keeps_it_when_it_has_passed() {
    let passed = BootInstant::now();
    let ahead = granted(Some(passed));
    assert_eq!(ahead.start_of(1), Some(passed));
    assert_eq!(ahead.start_of(2), None, "a retry");
    assert_eq!(granted(None).start_of(1), None);
}

#[tokio::test]
async fn the_first_attempt_does_not_begin_after_its_lease_even_if_the_run_may_outlive_it() {
    let ends = BootInstant::now().plus(Duration::from_secs(30));
    let kill_at = Some(timing::kill_at(ends));
    let lease = RunLease::new(Some(Lease::unrenewed(ends)));
    let turn = Processes::without_guard().turn(None).await;
    for (fields, deadline) in [("", kill_at), (", on_lost: continue", None)] {
        let assignment = granted_with(fields, None);
        let environment = Arc::default();
        let spawn = command::prepare(&assignment, &environment, 1).await;
        let mut spawn = spawn.expect("there is nothing to look up");
        assignment.set_limits(&mut spawn, &turn, 1, &lease);
        assert_eq!((spawn.start_until, spawn.deadline), (kill_at, deadline));
        assignment.set_limits(&mut spawn, &turn, 2, &lease);
        assert_eq!((spawn.start_until, spawn.deadline), (None, deadline));
    }
}

#[test]
fn a_start_that_was_granted_ahead_is_recorded_at_its_instant_at_the_earliest() {
    let moment = Duration::from_millis(5);
    let ahead = granted(Some(BootInstant::now()));
    let at = ahead.scheduled_at.expect("an occurrence");
    let due = at.plus(ahead.job.delay());
    assert_ne!(due, at, "the job has jitter");
    assert_eq!(ahead.starts_after(due.minus(moment)), due);
    assert_eq!(ahead.starts_after(due.plus(moment)), due.plus(moment));
    // A run that was granted at its instant begins by the clock as this host knows it.
    let early = due.minus(moment);
    assert_eq!(granted(None).starts_after(early), early);
}

#[test]
fn a_run_that_was_not_started_has_not_finished() {
    let text = |verdict: &AttemptResult, took: Option<u64>| {
        end_text(verdict, took.map(Duration::from_secs))
    };
    let absent = AttemptResult::not_started(Outcome::Failed, "no such file".to_owned());
    assert_eq!(text(&absent, None), "not started: no such file");
    assert_eq!(
        text(&absent, Some(2)),
        "finished after 2.0s: the last attempt was not started (no such file)"
    );
    let unknown = AttemptResult::not_started(Outcome::Unknown, "no report".to_owned());
    assert_eq!(text(&unknown, None), "unknown (no report)");
    let failed = AttemptResult {
        started: true,
        status: Some(Status::Code(3)),
        reason: None,
        ..absent
    };
    assert_eq!(
        text(&failed, Some(2)),
        "finished after 2.0s: failed, exit code 3"
    );
}
