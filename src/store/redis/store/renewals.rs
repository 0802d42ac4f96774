//! Renewals in one call, also of leases that the server may have lost.

use std::time::Duration;

use crate::store::redis::codec::renew;
use crate::store::redis::failure::RedisFailure;
use crate::store::redis::route::{Route, ScriptReply};
use crate::store::redis::script::Scripts;
use crate::store::{RenewReply, Renewal};

/// Renews leases. Leases that the server may have lost are sent again with everything that it needs to
/// restore them.
pub(super) async fn renew(
    route: &dyn Route,
    scripts: &Scripts,
    renewals: &[Renewal],
    limit: Duration,
) -> Result<Vec<RenewReply>, RedisFailure> {
    let call = renew::call(route.prefix(), renewals);
    let reply = route.run(&scripts.renew, call, limit).await?;
    let replies = acknowledged(route, reply, renewals.len(), limit).await?;
    let forgotten: Vec<&Renewal> = (renewals.iter().zip(&replies))
        .filter_map(|(renewal, reply)| reply.is_none().then_some(renewal))
        .collect();
    let mut restored = Vec::new();
    if !forgotten.is_empty() {
        let call = renew::reassert_call(route.prefix(), &forgotten);
        let reply = route.run(&scripts.reassert, call, limit).await?;
        restored = acknowledged(route, reply, forgotten.len(), limit).await?;
        for (renewal, reply) in forgotten.iter().zip(&restored) {
            if *reply == Some(RenewReply::Renewed) {
                let run = renewal.run.as_ref();
                tracing::warn!(
                    job = run.map(|run| tracing::field::display(&run.job)),
                    run_id = %renewal.grant.run_id,
                    scheduled_at = run.and_then(|run| run.scheduled_at).map(tracing::field::display),
                    lock = renewal.grant.lock.name,
                    "the store lost data, including this lease; the holder re-acquired it"
                );
            }
        }
    }
    let mut restored = restored.into_iter().flatten();
    let replies = replies.into_iter().map(|reply| {
        let reply = reply.or_else(|| restored.next());
        reply.ok_or_else(|| RedisFailure::corrupt("a renewal has no reply".to_owned()))
    });
    replies.collect()
}

/// Reads the replies to renewals and, if any lease was renewed, waits for the replicas. Other replies
/// grant nothing, and a holder must learn at once that its lease is lost.
async fn acknowledged(
    route: &dyn Route,
    ScriptReply { value, origin, .. }: ScriptReply,
    count: usize,
    limit: Duration,
) -> Result<Vec<Option<RenewReply>>, RedisFailure> {
    let replies = renew::read(value, count)?;
    if replies.contains(&Some(RenewReply::Renewed)) {
        route.replicated(&origin, limit).await?;
    }
    Ok(replies)
}
