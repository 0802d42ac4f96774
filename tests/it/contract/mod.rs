//! What every store must do, said once: each store runs these cases through [`contract`].
//!
//! A store comes in as a [`Subject`]: the store itself and the few things that only its own
//! backend can do, such as losing a key.

pub(crate) mod agreement;
pub(crate) mod claims;
pub(crate) mod endings;
pub(crate) mod gaps;
pub(crate) mod kept;
pub(crate) mod moves;
pub(crate) mod pause;
pub(crate) mod reads;
pub(crate) mod registry;
pub(crate) mod requests;
pub(crate) mod sharing;
pub(crate) mod waiting;

/// One test for each case, on the store that `$subject` (an async function) makes; or one test
/// for all of them, one after the other on one `$home`, whose servers take long to start.
macro_rules! contract {
    (in one test: $home:path) => { $crate::contract::contract! { @list one $home } };
    ($subject:path) => { $crate::contract::contract! { @list cases $subject } };
    (@list $how:ident $subject:path) => {
        $crate::contract::contract! { @$how $subject,
            claims: [
                an_occurrence_is_granted_once_even_when_the_lock_is_free_again,
                the_same_claim_again_gets_the_same_answer,
                a_copy_of_a_claim_that_arrives_after_its_finish_is_not_granted,
                a_claim_cancelled_before_it_arrives_is_not_granted,
                the_loser_learns_who_runs_it,
                who_asks_first_learns_what_the_claim_would_reply,
                an_early_claim_is_told_how_long_to_wait_and_leaves_no_trace,
                a_claim_ahead_of_its_instant_is_granted_for_it,
                before_its_instant_a_claim_finds_a_held_lock_and_decides_nothing,
                past_its_deadline_an_occurrence_is_missed_once,
                with_skip_a_held_lock_decides_the_occurrence,
                with_wait_a_held_lock_makes_the_occurrence_wait,
                a_lease_ends_by_itself_and_not_before,
                fences_rise_whoever_takes_the_lock,
                of_many_hosts_one_is_granted_the_occurrence,
                a_manual_run_never_moves_the_watermark,
                an_orphan_is_run_again_as_often_as_allowed,
                a_rerun_waits_for_a_held_lock,
            ],
            gaps: [
                a_gap_is_answered_with_the_watermark_and_filled_in_one_step,
                a_stale_gap_answer_changes_nothing,
                an_unknown_job_starts_from_the_occurrence_before_the_claimed_one,
                a_new_job_starts_from_now,
                a_changed_schedule_has_no_gap_before_it_was_first_seen,
                of_four_schedules_the_one_first_seen_first_is_forgotten,
            ],
            endings: [
                a_finish_is_written_once_however_often_it_comes,
                a_finish_without_the_lock_touches_nothing_of_another,
                what_is_given_back_may_be_taken_by_another,
                what_is_given_back_after_a_later_one_waits_again,
                a_rerun_that_is_given_back_is_still_to_be_rerun,
                a_run_without_the_store_decides_its_occurrence_and_none_before_it,
                what_is_given_back_stays_decided_by_a_run_without_the_store,
                a_run_closed_without_a_verdict_gets_one,
                a_renewal_says_renewed_taken_or_absent,
                a_lock_gone_before_its_lease_end_is_its_holders_alone,
                many_leases_are_renewed_in_one_batch,
                an_orphan_is_settled_once_and_a_living_run_never,
                a_noted_run_by_hand_is_settled_once_its_lease_is_over,
                a_release_wakes_who_waits_for_it,
                waiting_for_a_release_ends_at_its_limit,
                a_returned_occurrence_is_told_to_other_hosts,
            ],
            waiting: [
                a_queue_keeps_its_order_and_its_limit,
                a_newer_occurrence_supersedes_what_waits,
                what_waits_past_its_deadline_is_missed,
                a_late_occurrence_is_caught_up_or_missed_as_the_store_judges,
                a_late_result_cancels_the_rerun_and_replaces_the_interrupted_record,
                a_rerun_continues_the_count_of_attempts,
                drops_are_recorded_unless_the_ledger_moved,
                the_ledger_never_passes_the_clock_of_the_store,
                a_ledger_far_ahead_of_the_clock_is_set_back,
            ],
            sharing: [
                jobs_that_share_a_lock_exclude_each_other,
                a_shared_lock_lost_under_one_job_is_not_given_to_the_other,
                without_exclusion_runs_overlap_and_each_has_one_verdict,
                a_raw_key_is_a_lock_of_its_own,
                a_foreign_value_under_a_raw_key_is_respected,
                a_key_of_another_type_counts_as_held,
            ],
            reads: [
                a_record_comes_back_as_it_went_in,
                the_history_is_newest_first_and_capped,
                equal_skips_lose_no_occurrence,
                a_job_is_reported_with_its_run_and_its_holder,
                an_unknown_job_is_reported_as_such,
                a_host_is_forgotten_when_it_falls_silent,
                a_host_takes_its_word_back,
                a_host_takes_back_no_word_of_a_namesake,
                a_host_that_falls_silent_has_vanished_and_one_that_takes_its_word_back_has_not,
                the_jobs_of_a_list_are_kept_under_its_fingerprint,
                only_an_empty_store_can_be_declared_new,
                a_connected_daemon_is_found_whatever_the_data_say,
                the_clock_of_the_store_is_read,
            ],
            kept: [
                the_ledger_knows_the_newest_verdicts,
                of_the_outcomes_the_newest_thirty_stay,
                a_result_that_arrives_late_is_not_the_last,
                the_result_of_an_interrupted_run_replaces_it_in_the_summary,
                successes_do_not_displace_failures,
                the_failures_of_all_jobs_are_read_at_once,
                what_is_older_than_its_time_is_deleted,
                the_summary_moves_with_the_ledger,
            ],
            registry: [
                what_hosts_say_about_a_job_is_kept_by_host,
                a_late_copy_of_an_entry_does_not_replace_a_later_one,
                an_entry_from_far_ahead_of_the_clock_is_replaced,
                a_ledger_begins_where_the_job_counts_and_only_a_disabled_jobs_moves,
                a_job_is_kept_by_its_hosts_and_a_forgotten_one_is_not_listed,
                what_a_host_lists_is_unchanged_until_it_is_written,
                what_a_host_lists_is_not_unchanged_when_older_data_come_back,
            ],
            requests: [
                a_request_is_found_by_its_host_and_taken_once,
                of_many_daemons_one_takes_a_request,
                a_request_is_not_taken_after_its_deadline,
                a_store_keeps_a_limited_number_of_requests,
                a_filed_request_wakes_its_host,
                output_is_read_in_order_and_once,
            ],
            pause: [
                a_paused_job_starts_nothing_and_its_occurrences_are_skipped,
                what_was_due_during_a_pause_is_skipped_after_it,
                a_pause_ends_by_itself,
                nothing_that_is_missed_hides_a_pause,
                what_waits_is_skipped_when_a_paused_job_is_claimed,
                a_crashed_run_is_not_repeated_while_its_job_is_paused,
                a_run_by_hand_heeds_a_pause_unless_it_says_otherwise,
                of_several_requests_the_newest_counts,
                a_job_that_no_host_has_is_not_paused,
                a_pause_moves_with_the_ledger,
                a_lock_without_exclusion_is_paused_like_any_other,
            ],
            moves: [
                a_ledger_moves_with_all_it_knows_there_and_back,
                runs_without_the_store_move_along_in_whatever_order_they_are_reported,
                after_a_move_a_claim_ahead_of_its_instant_is_granted,
                a_move_waits_for_the_run_under_the_old_lock,
                a_verdict_that_comes_after_the_move_replaces_the_provisional_one,
                a_rerun_has_its_window_from_the_end_of_the_lease_across_a_move_too,
                a_step_of_a_move_that_comes_late_changes_nothing,
                any_host_completes_a_move_that_stopped_half_way,
                two_hosts_that_move_a_ledger_at_once_bring_nothing_back,
                ledgers_of_hosts_become_one_and_lose_no_run,
            ],
            agreement: [the_store_does_what_the_protocol_says_call_by_call],
        }
    };
    (@one $home:path, $($part:ident: [$($case:ident),* $(,)?],)*) => {
        #[test]
        fn every_case_of_the_contract_holds() {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .expect("a runtime");
            let home = $home();
            $($(
                eprintln!("case {}", stringify!($case));
                runtime.block_on(async {
                    let subject = home.subject().await;
                    $crate::contract::$part::$case(&subject).await;
                });
            )*)*
        }
    };
    (@cases $subject:path, $($part:ident: [$($case:ident),* $(,)?],)*) => {
        $($(
            #[test]
            fn $case() {
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .enable_all()
                    .build()
                    .expect("a runtime");
                runtime.block_on(async {
                    let subject = $subject().await;
                    $crate::contract::$part::$case(&subject).await;
                });
            }
        )*)*
    };
}
pub(crate) use contract;

mod cluster;
mod redis;
mod redlock;
mod sentinel;
mod sqlite;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cronlatch::names::{HostName, JobName, LockName, RunId, Token};
use cronlatch::store::{
    Attempt, Claim, ClaimReply, ClaimTarget, Due, Fingerprint, Finish, FinishReply, GapAnswer,
    Grant, Kind, Late, Lock, Outcome, Overlap, Record, Registered, Registration, RenewReply,
    Renewal, Settle, Store,
};
use cronlatch::time::{BootInstant, Timestamp};

/// A store under test, empty when it is handed over.
#[async_trait]
pub(crate) trait Subject: Send + Sync {
    /// The store as one host has it.
    fn store(&self) -> Arc<dyn Store>;

    /// The same store as another host has it: with a connection of its own.
    fn another(&self) -> Arc<dyn Store>;

    /// Deletes the lock itself, as an eviction would, and leaves its state.
    async fn evict(&self, lock: &Lock);

    /// Brings the end of the lock's lease: the lock is gone, its lease end has passed.
    async fn expire(&self, lock: &Lock);

    /// Writes what another program would; false where no other program can.
    async fn foreign(&self, key: &str, value: Foreign<'_>) -> bool {
        let _ = (key, value);
        false
    }

    /// Takes away what says that the store was declared new, where there is such a thing.
    async fn unmark(&self) {}

    /// Keeps a copy of what the store lists for a host.
    async fn copy_listed(&self, host: &HostName);

    /// Brings that copy back, as a replica does that takes over with older data.
    async fn restore_listed(&self, host: &HostName);

    /// In how many places the store keeps a history, each by itself.
    fn copies(&self) -> usize {
        1
    }

    /// Whether the store answers a question about another host's claim, and does not leave it to the claim.
    fn answers_first(&self) -> bool {
        true
    }

    /// Whether the store can lose its data.
    fn loses_data(&self) -> bool {
        true
    }
}

/// The key of what Redis lists for a host, and one for a copy of it on the same server.
fn listed_keys(host: &HostName) -> [String; 2] {
    let key = format!("cronlatch:listed:{host}");
    let copy = format!("{{{key}}}:copy");
    [key, copy]
}

/// What another program may have under a raw key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Foreign<'a> {
    /// `SET key value`, with `PX` if there is a TTL.
    Value(&'a str, Option<Duration>),
    /// A key of another type, a list for instance.
    List,
}

/// Long enough to outlast any test.
pub(crate) const LONG: Duration = Duration::from_secs(300);

/// The end of a lease that is over, in milliseconds of UTC.
pub(crate) fn just_now() -> String {
    let end = Timestamp::now().minus(Duration::from_millis(1));
    end.millis().to_string()
}

/// A lease that is meant to end within the test.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

/// How far back the ledger of a [`Scene`] begins.
pub(crate) const BACK: Duration = Duration::from_secs(3600);

/// A job of the schedule `f1` with an occurrence every second.
///
/// Its ledger begins an hour ago: nobody has to wait for its occurrences, and the watermark stays
/// behind the store's clock.
pub(crate) struct Scene {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lock: Lock,
    pub(crate) job: JobName,
    /// The watermark at the start.
    pub(crate) start: Timestamp,
}

impl Scene {
    pub(crate) async fn new(subject: &impl Subject) -> Self {
        Self::with_lock(subject, Lock::named(&LockName::parse("l").unwrap())).await
    }

    pub(crate) async fn with_lock(subject: &impl Subject, lock: Lock) -> Self {
        Self::of(subject, lock, "j").await
    }

    pub(crate) async fn of(subject: &impl Subject, lock: Lock, job: &str) -> Self {
        let store = subject.store();
        let job = JobName::parse(job).unwrap();
        let now = store.now().await.expect("the store answers");
        begin(&*store, &job, &lock, now.minus(BACK)).await;
        let start = register(&*store, &job, &lock, "f1").await;
        Self {
            store,
            lock,
            job,
            start,
        }
    }

    /// The schedule's `n`th occurrence after the registration.
    pub(crate) fn at(&self, n: u64) -> Timestamp {
        self.start.plus(Duration::from_secs(n))
    }

    pub(crate) fn due(&self, n: u64) -> Due {
        Due {
            scheduled_at: self.at(n),
            not_before: self.at(n),
            deadline: self.start.plus(Duration::from_secs(3600 * 24)),
            prev: None,
            fingerprint: Fingerprint("f1".into()),
            gap: None,
            late: Late::Miss,
            max_reruns: 0,
            max_attempts: 0,
            rerun_window: Duration::from_secs(3600),
            lead: Duration::ZERO,
        }
    }

    pub(crate) fn claim_due(&self, who: &str, due: Due) -> Claim {
        self.claim_with(who, due, Overlap::Skip)
    }

    pub(crate) fn claim_with(&self, who: &str, due: Due, overlap: Overlap) -> Claim {
        Claim {
            lock: self.lock.clone(),
            token: token(who),
            run_id: run_id(who),
            ttl: LONG,
            what: ClaimTarget::Occurrence {
                job: self.job.clone(),
                kind: Kind::Schedule,
                due,
                overlap,
                keep: cronlatch::store::Retention::of_records(100),
            },
        }
    }

    /// The claim of the `n`th occurrence by `who`; a held lock skips it.
    pub(crate) fn claim(&self, who: &str, n: u64) -> Claim {
        self.claim_due(who, self.due(n))
    }

    /// The claim of the lock alone.
    pub(crate) fn bare(&self, who: &str) -> Claim {
        Claim {
            what: ClaimTarget::Lock,
            ..self.claim(who, 1)
        }
    }

    pub(crate) async fn send(&self, claim: &Claim) -> ClaimReply {
        self.store.claim(claim).await.expect("the store answers")
    }

    /// Claims and must be granted; answers fence and attempt.
    #[track_caller]
    pub(crate) fn granted(reply: &ClaimReply) -> (u64, u32) {
        match reply {
            ClaimReply::Granted { fence, attempt, .. } => (*fence, *attempt),
            other => panic!("not granted: {other:?}"),
        }
    }

    pub(crate) fn ending(&self, who: &str) -> Finish {
        Finish {
            lock: self.lock.clone(),
            token: token(who),
            record: None,
            job: Some(self.job.clone()),
            give_back: false,
            keep: cronlatch::store::Retention::of_records(100),
        }
    }

    pub(crate) fn record(&self, scheduled_at: Option<Timestamp>, outcome: Outcome) -> Record {
        Record {
            run_id: Some(RunId::from_text("a-run")),
            started_at: scheduled_at,
            finished_at: scheduled_at,
            host: Some(HostName::parse("h").unwrap()),
            exit_code: Some(0),
            attempts: 1,
            fence: Some(1),
            ..crate::support::claims::record(self.job.clone(), scheduled_at, outcome)
        }
    }

    pub(crate) fn success(&self, who: &str, n: u64) -> Finish {
        Finish {
            record: Some(Record {
                run_id: Some(run_id(who)),
                ..self.record(Some(self.at(n)), Outcome::Succeeded)
            }),
            ..self.ending(who)
        }
    }

    pub(crate) async fn finish(&self, finish: &Finish) -> FinishReply {
        self.store.finish(finish).await.expect("the store answers")
    }

    pub(crate) async fn give_back(&self, who: &str) -> FinishReply {
        let finish = Finish {
            give_back: true,
            ..self.ending(who)
        };
        self.finish(&finish).await
    }

    pub(crate) fn renewal(&self, who: &str) -> Renewal {
        Grant {
            lock: self.lock.clone(),
            token: token(who),
            run_id: run_id(who),
            fence: 0,
            ttl: LONG,
            sent: BootInstant::BOOT,
            starts_at: None,
        }
        .renewal()
    }

    pub(crate) async fn renew(&self, who: &str) -> RenewReply {
        let renewals = [self.renewal(who)];
        let replies = self.store.renew(&renewals).await;
        replies.expect("the store answers")[0]
    }

    pub(crate) async fn settle(&self, who: &str) -> bool {
        let settle = Settle {
            lock: self.lock.clone(),
            job: self.job.clone(),
            run_id: run_id(who),
            keep: cronlatch::store::Retention::of_records(100),
        };
        self.store.settle(&settle).await.expect("the store answers")
    }

    pub(crate) async fn note_attempt(&self, who: &str, attempt: u32) -> bool {
        let attempt = Attempt {
            lock: self.lock.clone(),
            token: token(who),
            job: self.job.clone(),
            attempt,
        };
        let noted = self.store.note_attempt(&attempt).await;
        noted.expect("the store answers")
    }

    /// The newest records, oldest first.
    pub(crate) async fn history(&self) -> Vec<Record> {
        let records = self.store.history(&self.job, &self.lock, 1000).await;
        let mut records = records.expect("the store answers").records;
        records.reverse();
        records
    }

    pub(crate) async fn outcomes(&self) -> Vec<Outcome> {
        let records = self.history().await;
        records.iter().map(|record| record.outcome).collect()
    }

    pub(crate) async fn register(&self) -> Registered {
        let registration = Registration {
            job: self.job.clone(),
            lock: self.lock.clone(),
            fingerprint: Fingerprint("f1".into()),
            ttl: LONG,
        };
        let registered = self.store.register(&[registration]).await;
        registered.expect("the store answers").remove(0)
    }

    pub(crate) async fn last(&self) -> Option<Timestamp> {
        let asked = [(self.job.clone(), self.lock.clone())];
        self.store.jobs(&asked).await.expect("the store answers")[0].last
    }
}

/// Makes the ledger of a job that the store does not know yet begin after `last`.
pub(crate) async fn begin(store: &dyn Store, job: &JobName, lock: &Lock, last: Timestamp) {
    let claim = Claim {
        lock: lock.clone(),
        token: token(&format!("begin-{job}")),
        run_id: run_id("begin"),
        ttl: LONG,
        what: ClaimTarget::Drops {
            job: job.clone(),
            fingerprint: Fingerprint("f1".into()),
            answer: GapAnswer {
                if_last: last,
                drop: Vec::new(),
            },
            keep: cronlatch::store::Retention::of_records(100),
        },
    };
    store.claim(&claim).await.expect("the store answers");
}

/// Registers a job; answers from where on its occurrences are undecided.
pub(crate) async fn register(
    store: &dyn Store,
    job: &JobName,
    lock: &Lock,
    schedule: &str,
) -> Timestamp {
    let registration = Registration {
        job: job.clone(),
        lock: lock.clone(),
        fingerprint: Fingerprint(schedule.into()),
        ttl: LONG,
    };
    let registered = store.register(&[registration]).await;
    registered.expect("the store answers")[0].decided_until
}

pub(crate) fn run_id(who: &str) -> RunId {
    RunId::from_text(&format!("run-{who}"))
}

pub(crate) fn token(who: &str) -> Token {
    // Each its own: what follows the last colon must differ from token to token.
    let random = who
        .bytes()
        .fold(0_u128, |sum, byte| sum * 256 + u128::from(byte));
    Token::from_text(&format!("host-{who}:1:run-{who}:{random:032x}"))
}

/// Asks again and again until the answer suits.
pub(crate) async fn eventually<T, F>(what: &str, mut ask: F) -> T
where
    F: AsyncFnMut() -> Option<T>,
{
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_secs(60) {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited in vain: {what}");
}
