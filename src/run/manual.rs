//! The claim of a run by hand: for `trigger --here`, and for a daemon that was asked for a run.
//!
//! A note in the store lets any daemon record the end of the run if its process dies.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use super::{Assignment, Authority, Cause};
use crate::config::Job;
use crate::latch::waits_text;
use crate::names::{HostName, RunId, Token};
use crate::observe::plain_line;
use crate::store::relocate::{Destination, Relocated, Relocation, relocate};
use crate::store::{
    Claim, ClaimReply, ClaimTarget, Claimant, CopyReply, IfPaused, Kind, ManualRun, Pause,
    Retention, RetryPace, RunTerms, Store, StoreError, retry,
};

/// How a claim is repeated, and the requests before it.
const CLAIMING: RetryPace = RetryPace::no_reply(Duration::from_secs(5));
/// How often the note is written again: the store may have lost it with other data.
const NOTE_AGAIN: Duration = Duration::from_secs(20);
/// How long the store may take to forget the note.
const TAKE_BACK: Duration = Duration::from_secs(2);

/// Why a run by hand does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManualRefusal {
    /// The lock, a pause, or a store that recovers is in the way.
    #[error("{0}")]
    NotNow(String),
    /// The store does not reply, or rejects the request.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store returned what no manual claim gets.
    #[error("the store returned an unexpected reply to a manual claim: {0}")]
    Unexpected(String),
}

/// A run by hand that is to be claimed.
#[derive(Debug, Clone)]
pub(crate) struct ManualClaim {
    /// The job.
    pub(crate) job: Arc<Job>,
    /// This host.
    pub(crate) host: HostName,
    /// The run.
    pub(crate) run_id: RunId,
    /// What happens if the job is paused.
    pub(crate) if_paused: IfPaused,
    /// What the job's history keeps.
    pub(crate) keep: Retention,
    /// Who asks, and why.
    pub(crate) cause: Cause,
}

impl ManualClaim {
    /// Takes the job's lock for the run. Passes the store's reply to the claim to `replied`.
    pub(crate) async fn send(
        &self,
        store: &dyn Store,
        replied: &(dyn Fn(&Claim, &CopyReply) + Sync),
    ) -> Result<Assignment, ManualRefusal> {
        let claim = Claim {
            lock: self.job.lock_on(&self.host),
            token: Token::new(&self.host, &self.run_id),
            run_id: self.run_id.clone(),
            ttl: self.job.lock.ttl,
            what: ClaimTarget::Manual {
                job: self.job.name.clone(),
                if_paused: self.if_paused,
            },
        };
        retry(CLAIMING, || self.lock_in_use(store)).await??;
        // Before the claim, so that the end of every open run is recorded by some daemon.
        let run = ManualRun {
            run_id: claim.run_id.clone(),
            job: self.job.name.clone(),
            lock: claim.lock.clone(),
        };
        retry(CLAIMING, || leave_note(store, &run)).await?;
        let granted = self.claim_noted(store, claim, replied).await;
        if granted.is_err() {
            take_back_note(store, &run.run_id).await;
        }
        granted
    }

    async fn claim_noted(
        &self,
        store: &dyn Store,
        claim: Claim,
        replied: &(dyn Fn(&Claim, &CopyReply) + Sync),
    ) -> Result<Assignment, ManualRefusal> {
        let claimant = Claimant::new(claim, self.keep);
        let reply = retry(CLAIMING, || claimant.send(store)).await;
        if let Ok(reply) = &reply {
            replied(claimant.claim(), reply);
        }
        if let Ok(CopyReply::Granted { grant, attempt }) = reply {
            claimant.hand_over();
            return Ok(Assignment {
                job: Arc::clone(&self.job),
                host: self.host.clone(),
                kind: Kind::Manual,
                scheduled_at: None,
                attempt,
                authority: Authority::Granted {
                    grant,
                    terms: RunTerms::NONE,
                },
                cause: Some(self.cause.clone()),
            });
        }
        claimant.cancel(store).await;
        Err(match reply? {
            CopyReply::Refused(ClaimReply::Held { by, remaining }) => {
                self.held(store, &by, remaining).await
            }
            CopyReply::Refused(ClaimReply::Recovering { remaining }) => self.recovering(remaining),
            CopyReply::Refused(ClaimReply::Paused(pause)) => self.paused(&pause),
            CopyReply::Refused(ClaimReply::Moved { to }) => ManualRefusal::NotNow(format!(
                "job {}: its lock has just changed to {}; nothing was started. Start the hosts \
                 with this list, or use theirs",
                self.job.name, to.name
            )),
            other => ManualRefusal::Unexpected(format!("{other:?}")),
        })
    }

    /// Fails while the job runs under another lock than the list says: a run under this one could
    /// overlap a scheduled run. If no host uses another lock any more, the ledger moves to this one.
    async fn lock_in_use(
        &self,
        store: &dyn Store,
    ) -> Result<Result<(), ManualRefusal>, StoreError> {
        let (name, id) = (&self.job.name, self.job.lock_id());
        let listings = store.listings(std::slice::from_ref(name)).await?;
        let Some(listing) = listings.into_iter().next() else {
            return Ok(Ok(()));
        };
        if listing.other_locks(&self.host, &id).is_empty() {
            return Ok(Ok(()));
        }
        let hosts = store.hosts().await?;
        let live = |host: &HostName| {
            let mut up = hosts.iter().filter(|report| !report.info.draining);
            up.any(|report| report.info.host == *host)
        };
        let refused = |why: String| {
            ManualRefusal::NotNow(format!(
                "job {name}: this list uses {}, but {why}; nothing was started",
                id.shown()
            ))
        };
        // What this host's own daemon uses counts, too.
        let users = listing.users_of_another(&id, live);
        if !users.is_empty() {
            let users: Vec<_> = users
                .iter()
                .map(|(host, lock)| format!("{host} still uses {}", lock.shown()))
                .collect();
            return Ok(Err(refused(users.join(", "))));
        }
        let now = store.now().await?;
        let destination = Destination {
            job: name,
            lock: &id,
            host: &self.host,
            ttl: self.job.lock.ttl,
            now,
            counts_from: now,
        };
        let relocation = Relocation::new(&destination, listing.other_locks(&self.host, &id));
        Ok(match relocate(store, relocation).await? {
            Relocated::Home { .. } => Ok(()),
            Relocated::Leased { lock, by, .. } => Err(refused(format!(
                "a run on {by} still holds the lock {}",
                lock.name
            ))),
            Relocated::Recovering { remaining } => Err(self.recovering(remaining)),
            Relocated::Contended => Err(refused("its hosts are changing the lock now".to_owned())),
        })
    }

    fn recovering(&self, remaining: Duration) -> ManualRefusal {
        ManualRefusal::NotNow(format!("{}: {}", self.job.name, waits_text(remaining)))
    }

    fn paused(&self, pause: &Pause) -> ManualRefusal {
        let name = &self.job.name;
        let until = pause.until;
        let until = until.map_or_else(String::new, |until| format!(", until {until}"));
        ManualRefusal::NotNow(format!(
            "job {name} is {} since {}{until}; nothing was started\nhelp: `cronlatch resume {name}` \
             ends the pause, and --even-if-paused starts this run all the same",
            plain_line(&pause.verdict()),
            pause.since
        ))
    }

    async fn held(
        &self,
        store: &dyn Store,
        by: &str,
        remaining: Option<Duration>,
    ) -> ManualRefusal {
        let name = &self.job.name;
        // A refused claim does not say whether a run of this job or something else has the lock.
        let lock = self.job.lock_on(&self.host);
        let ledger = tokio::time::timeout(TAKE_BACK, store.ledger(name, &lock)).await;
        let open = ledger.ok().and_then(Result::ok).and_then(|it| it.state);
        let open = open.and_then(|state| state.open);
        let by = plain_line(by);
        ManualRefusal::NotNow(match (open, remaining) {
            (Some(open), _) if open.host == *by => format!(
                "job {name} is in progress on {by} (run {}, since {}); nothing was started\n\
                 help: wait until it has ended, or end it with `cronlatch kill {name}`",
                open.run_id, open.started_at
            ),
            (_, Some(_)) => {
                format!("the lock of {name} is held by {by}; nothing was started")
            }
            (_, None) => format!(
                "the lock of {name} is held by {by} and has no TTL, so it never expires; nothing \
                 was started\nhelp: look at {by}; if it is gone, release the lock with `cronlatch \
                 unlock {name}`"
            ),
        })
    }
}

/// Writes the note. If the key of the notes cannot be used, the run takes place all the same.
async fn leave_note(store: &dyn Store, run: &ManualRun) -> Result<(), StoreError> {
    match store.note_manual(run).await {
        Err(StoreError::Key(fault)) => {
            tracing::warn!(
                job = %run.job,
                run_id = %run.run_id,
                "cannot write the note of this run: {fault}. If this process is killed, the run is \
                 recorded as interrupted only when the job is next due. To repair it, {}",
                fault.repair(None)
            );
            Ok(())
        }
        written => written,
    }
}

/// Writes the note of a run again and again.
pub(crate) async fn note_again(store: &dyn Store, run: &ManualRun) -> Infallible {
    loop {
        tokio::time::sleep(NOTE_AGAIN).await;
        if let Err(error) = store.note_manual(run).await {
            tracing::debug!(job = %run.job, "cannot renew the note of this run: {error}");
        }
    }
}

const KEPT: &str = "cannot delete the note of this run; a daemon deletes it later";

/// Deletes the note. If the store does not reply, a daemon does it later.
pub(crate) async fn take_back_note(store: &dyn Store, run_id: &RunId) {
    let forgotten = store.forget_manual(std::slice::from_ref(run_id));
    match tokio::time::timeout(TAKE_BACK, forgotten).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%run_id, "{KEPT}: {error}"),
        Err(_) => tracing::debug!(%run_id, "{KEPT}: no reply within {TAKE_BACK:?}"),
    }
}
