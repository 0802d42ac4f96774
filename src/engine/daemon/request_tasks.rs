//! The tasks behind the requests of people: they read, take and reply to requests in the store, claim the
//! runs, and send their output.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::health::Health;
use super::message::{ClaimedByRequest, Message};
use super::tasks::TaskContext;
use crate::guard::Stream;
use crate::names::{HostName, RunId};
use crate::run::{FollowedLines, ManualClaim, ManualRefusal, take_back_note};
use crate::store::{
    Claim, CopyReply, FiledRequest, ManualRun, OutputChunk, OutputWish, RefusalKind, RequestReply,
    RetryPace, Store, StoreError, retry,
};

/// How long a daemon waits for a message about a request before it reads the requests anyway.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How soon after a failure it reads them again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How a reply is repeated.
const REPLYING: RetryPace = RetryPace::no_reply(Duration::from_secs(30));
/// How long lines are gathered before they are sent.
const GATHERED_FOR: Duration = Duration::from_millis(200);
/// How many lines, and how many bytes, a part of the output has.
const CHUNK_LINES: usize = 256;
const CHUNK_BYTES: usize = 16 * 1024;
/// How many parts may lie in the store unread.
const WINDOW: u64 = 32;
/// How long nobody may have read any part before the rest is not sent.
const UNREAD_FOR: Duration = Duration::from_secs(30);
/// How often the position of the reader is asked for while it is behind.
const ASK_AGAIN: Duration = Duration::from_millis(300);
/// How often, and how often at most, the ledger is read until a run by request has its record.
const CLOSED_AGAIN: Duration = Duration::from_secs(2);
const CLOSED_TRIES: u32 = 30;

impl TaskContext {
    /// Carries the requests to this host's daemon to the loop, until that ends.
    pub(super) async fn listen_for_requests(mut self, host: HostName) {
        while !self.inbox.is_closed() {
            let _ = self.health.wait_for(|health| *health == Health::Up).await;
            let listened = match self.store.requests(Some(&host)).await {
                Ok(filed) => {
                    self.tell(Message::Requests(filed));
                    self.store.request_filed(&host, LOOK_EVERY).await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = listened {
                tracing::debug!("cannot read the requests to this daemon: {error}");
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
    }

    /// Takes a request. A request that another daemon has taken, or that is too late, is dropped.
    pub(super) async fn take_request(self, filed: FiledRequest) {
        let FiledRequest { id, request, .. } = filed;
        match self.store.take_request(&id).await {
            Ok(true) => self.tell(Message::RequestTaken(id, request)),
            Ok(false) => {
                tracing::debug!(request = %id, "a request was taken already, or came too late");
            }
            Err(error) => {
                // It may be taken now, and must not be taken twice.
                let reason = format!("the store did not reply to this host in time: {error}");
                let kind = RefusalKind::Store;
                let refused = RequestReply::Refused { kind, reason };
                self.reply_to_request(id, refused).await;
            }
        }
    }

    /// Writes the reply to a request.
    pub(super) async fn reply_to_request(self, id: RunId, reply: RequestReply) {
        let replied = retry(REPLYING, || self.store.reply_to_request(&id, &reply)).await;
        if let Err(error) = replied {
            tracing::warn!(
                request = %id,
                "cannot reply to a request: {error}; the command that sent it finds the result in \
                 the history"
            );
        }
    }

    /// Claims a run that somebody asked for.
    pub(super) async fn claim_by_request(self, claim: ManualClaim, output: OutputWish) {
        let notifier = &self.reporter.notifier;
        let replied = |claim: &Claim, reply: &CopyReply| notifier.claimed(claim, reply);
        let claimed = claim.send(&*self.store, &replied).await;
        let claimed = claimed.map_err(|refusal| {
            let kind = match refusal {
                ManualRefusal::NotNow(_) => RefusalKind::Busy,
                ManualRefusal::Store(_) | ManualRefusal::Unexpected(_) => RefusalKind::Store,
            };
            let reason = refusal.to_string();
            RequestReply::Refused { kind, reason }
        });
        let asked = format!("`trigger {}` of {}", claim.job.name, claim.cause.by);
        let request = claim.run_id;
        self.tell(Message::ClaimedByRequest(Box::new(ClaimedByRequest {
            request,
            asked,
            output,
            claimed,
        })));
    }

    /// Deletes the note of a run by request once the run has its record.
    pub(super) async fn forget_note(self, noted: ManualRun) {
        let ManualRun { run_id, job, lock } = noted;
        let asked = [(job, lock)];
        for _ in 0..CLOSED_TRIES {
            if let Ok(reports) = self.store.jobs(&asked).await {
                let mut open = reports.iter().filter_map(|report| report.open.as_ref());
                if open.all(|open| open.run_id != run_id) {
                    return take_back_note(&*self.store, &run_id).await;
                }
            }
            tokio::time::sleep(CLOSED_AGAIN).await;
        }
    }
}

/// Sends the output of a run through the store, until the run has ended or nobody reads it.
pub(super) async fn send_output(store: Arc<dyn Store>, run: RunId, mut output: FollowedLines) {
    let mut sender = OutputSender {
        store,
        run,
        number: 0,
        read: 0,
        read_at: Instant::now(),
    };
    loop {
        let mut chunk = gather(&mut output).await;
        chunk.dropped = output.dropped.swap(0, Ordering::Relaxed);
        let last = chunk.last;
        if let Err(error) = sender.send(&chunk).await {
            tracing::debug!(run_id = %sender.run, "the output of this run is not sent on: {error}");
            return;
        }
        if last {
            return;
        }
    }
}

/// Returns the next lines, after a moment in which more may come.
async fn gather(output: &mut FollowedLines) -> OutputChunk {
    let mut chunk = OutputChunk {
        lines: Vec::new(),
        dropped: 0,
        last: false,
    };
    let mut bytes = 0;
    let mut until = None;
    while chunk.lines.len() < CHUNK_LINES && bytes < CHUNK_BYTES {
        let next = match until {
            None => output.lines.recv().await,
            Some(until) => match tokio::time::timeout_at(until, output.lines.recv()).await {
                Ok(next) => next,
                Err(_) => break,
            },
        };
        let Some(line) = next else {
            chunk.last = true;
            break;
        };
        until.get_or_insert_with(|| Instant::now() + GATHERED_FOR);
        bytes += line.text.len();
        chunk.lines.push((line.stream == Stream::Err, line.text));
    }
    chunk
}

struct OutputSender {
    store: Arc<dyn Store>,
    run: RunId,
    /// The number of the next part.
    number: u64,
    /// The number that the reader wanted next, and when it last got further.
    read: u64,
    read_at: Instant,
}

impl OutputSender {
    /// Sends one part, and waits while too many are unread.
    async fn send(&mut self, chunk: &OutputChunk) -> Result<(), StoreError> {
        let number = self.number;
        self.number += 1;
        loop {
            let sent = retry(REPLYING, || {
                self.store.send_output(&self.run, number, chunk)
            });
            let read = sent.await?;
            if read > self.read {
                (self.read, self.read_at) = (read, Instant::now());
            }
            if chunk.last || self.number.saturating_sub(self.read) <= WINDOW {
                return Ok(());
            }
            if self.read_at.elapsed() > UNREAD_FOR {
                return Err(StoreError::refused("nobody reads it".to_owned()));
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }
}
