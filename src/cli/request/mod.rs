//! Requests to daemons: sends one and waits for the reply.

mod follow;
mod note;

use std::time::Duration;

use super::{Failure, output};
use crate::names::{HostName, RunId};
use crate::store::{
    DaemonRequest, Filed, HostReport, REQUEST_VALID_FOR, RefusalKind, RequestReply, RetryPace,
    Store, retry,
};

pub(super) use follow::{FollowedRun, LinePrinter, code};
pub(super) use note::note;

/// How each question to the store is repeated.
pub(super) const ASKING: RetryPace = RetryPace::no_reply(Duration::from_secs(5));
/// How often the reply is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a daemon may take to reply once it has taken a request: it may claim for that long.
const REPLY_WITHIN: Duration = Duration::from_secs(40);

/// What the daemon did.
#[derive(Debug)]
pub(super) enum Done {
    /// It started the run.
    Started(RequestReply),
    /// It has these runs killed, or has sent them the signal.
    Signalled(Vec<RunId>),
    /// It refused, for this reason.
    Refused(RefusalKind, Failure),
}

/// Sends a request to a daemon, and waits for what becomes of it.
pub(super) async fn send(store: &dyn Store, request: &DaemonRequest) -> Result<Done, Failure> {
    let host = &request.host;
    let deadline = retry(ASKING, || store.now()).await?.plus(REQUEST_VALID_FOR);
    match retry(ASKING, || store.file_request(request, deadline)).await? {
        Filed::Kept => {}
        Filed::Late => {
            return Err(Failure::Unavailable(
                "the store replied too late to pass on the request; nothing was done".to_owned(),
            ));
        }
        Filed::Full => {
            return Err(Failure::NotAcquired(
                "the store keeps no more requests to daemons than it has now; nothing was done\n\
                 help: `cronlatch status` shows them; each is kept for an hour"
                    .to_owned(),
            ));
        }
    }
    loop {
        let filed = retry(ASKING, || store.requests(Some(host))).await?;
        let Some(filed) = filed.into_iter().find(|filed| filed.id == request.id) else {
            return Err(Failure::Unavailable(format!(
                "the store has lost the request to host {host}; `cronlatch history {}` shows \
                 whether it was acted on",
                request.subject()
            )));
        };
        match filed.reply {
            Some(reply) => return Ok(done(reply)),
            None if !filed.taken && filed.left.is_zero() => return Err(no_reaction(host)),
            None if filed.taken && filed.age > REPLY_WITHIN => {
                return Err(Failure::Unavailable(format!(
                    "host {host} took the request and has not replied for {}: its daemon may have \
                     been killed\nhelp: `cronlatch history {}` shows whether a run was started",
                    output::short(filed.age),
                    request.subject()
                )));
            }
            None => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

fn done(reply: RequestReply) -> Done {
    match reply {
        RequestReply::Started { .. } => Done::Started(reply),
        RequestReply::Signalled { runs } => Done::Signalled(runs),
        RequestReply::Refused { kind, reason } => {
            let failure = match kind {
                RefusalKind::Unknown => Failure::Usage(reason),
                RefusalKind::Busy => Failure::NotAcquired(reason),
                RefusalKind::Store => Failure::Unavailable(reason),
            };
            Done::Refused(kind, failure)
        }
    }
}

fn no_reaction(host: &HostName) -> Failure {
    Failure::Unavailable(format!(
        "host {host} did not take the request within {REQUEST_VALID_FOR:?}, and will not act on it; \
         nothing was done\nhelp: see whether its daemon is up (`cronlatch status` lists one that died for \
         30 s more), and look at its log. Daemons of an older version know no requests"
    ))
}

/// Fails unless the daemon of the host is live.
pub(super) fn check_live(host: &HostName, live: &[HostReport]) -> Result<(), Failure> {
    if live.iter().any(|report| report.info.host == *host) {
        return Ok(());
    }
    Err(Failure::Unavailable(format!(
        "the daemon of host {host} does not report; nothing was done\nhelp: {}",
        match live {
            [] => "no daemon reports to this store".to_owned(),
            _ => format!("live hosts are {}", names(live)),
        }
    )))
}

/// The names of hosts; of many only the first.
fn names(hosts: &[HostReport]) -> String {
    const SHOWN: usize = 12;
    let names: Vec<&str> = hosts
        .iter()
        .take(SHOWN)
        .map(|report| report.info.host.as_str())
        .collect();
    match hosts.len().saturating_sub(SHOWN) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}
