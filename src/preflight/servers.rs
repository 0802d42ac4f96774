//! The servers of the store, one by one.

use std::sync::Arc;

use super::facts::Facts;
use super::{
    Finding, Subject, cluster, ids, latency, memory, nodes, persistence, replicas, rights,
    sentinels,
};
use crate::config::Job;
use crate::ground::tasks::SpawnBoxed as _;
use crate::store::redis::{Layout, layout_of, master_of};
use crate::store::{RedisSettings, StoreError, StoreSettings};

/// The oldest server that will do.
const OLDEST: (u32, u32) = (7, 0);

/// Queries every server concurrently, and checks the replies.
pub(super) async fn look(subject: &Subject) -> Vec<Finding> {
    let jobs = subject.list.as_ref().map_or(&[][..], |list| &list.jobs);
    let keys: Vec<String> = jobs.iter().filter_map(|job| job.lock.key.clone()).collect();
    let mut found = Vec::new();
    let (servers, layout) = whom_to_ask(subject, jobs, &mut found).await;
    let mut asked = tokio::task::JoinSet::new();
    for server in servers {
        let keys = keys.clone();
        asked.spawn_boxed(async move { (server.shown(), Facts::of(&server, &keys).await) });
    }
    let mut all = Vec::new();
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok((_, Ok(facts))) => all.push(facts),
            Ok((shown, Err(error))) => found.push(one_away(&subject.settings, &shown, &error)),
            Err(error) => tracing::error!(
                "a check of a server failed, which is a bug: please report it with this log: {error}"
            ),
        }
    }
    for facts in &all {
        found.extend(version(facts));
        found.extend((facts.rights.as_ref()).map(|it| rights::judge(&facts.shown, it)));
        found.extend(memory::judge(facts));
        found.extend(persistence::judge(facts, &subject.settings));
        found.extend(replicas::judge(facts, &subject.settings, jobs));
        found.push(latency::judge(facts, jobs));
    }
    found.extend(nodes::judge(&all, &subject.settings));
    if let Some(layout) = layout {
        let shown = subject.settings.shown();
        found.extend(cluster::judge(&shown, &layout, &all, jobs));
    }
    found
}

/// The servers that keep data. If the list names Sentinels or seeds of a Cluster, these name the
/// servers.
async fn whom_to_ask(
    subject: &Subject,
    jobs: &[Arc<Job>],
    found: &mut Vec<Finding>,
) -> (Vec<RedisSettings>, Option<Layout>) {
    let settings = &subject.settings;
    let mut servers: Vec<RedisSettings> = settings.servers().into_iter().cloned().collect();
    match settings {
        StoreSettings::Sentinel(sentinel) => {
            found.extend(sentinels::look(sentinel, jobs).await);
            match master_of(sentinel).await {
                Ok(master) => (vec![master], None),
                Err(error) => {
                    found.push(away(&settings.shown(), &error));
                    (Vec::new(), None)
                }
            }
        }
        StoreSettings::Cluster(cluster) => match layout_of(cluster).await {
            Ok(layout) => {
                let known: Vec<String> = servers.iter().map(|s| s.endpoint.server()).collect();
                let others = layout.primaries.iter();
                servers.extend(
                    others
                        .filter(|p| !known.contains(&p.endpoint.server()))
                        .cloned(),
                );
                (servers, Some(layout))
            }
            // The findings of the single servers name the reason.
            Err(_) => (servers, None),
        },
        _ => (servers, None),
    }
}

const UNREACHABLE_FIX: &str =
    "check the server and the network, and in the list the address, the password and TLS";

const REJECTED_FIX: &str = "correct what the message names, in the list or on the server";

const REPLICA_FIX: &str = "in the list, write the URL of its master";

/// The store does not reply.
pub(super) fn away(shown: &str, error: &StoreError) -> Finding {
    let fix = UNREACHABLE_FIX;
    if matches!(error, StoreError::PartUnreachable(_)) {
        let text = format!(
            "{error}: none of its locks is granted or renewed; those of other servers \
             are"
        );
        return ids::REACHABLE.warning(shown, text, fix);
    }
    match error {
        StoreError::Refused(_) => ids::REACHABLE.danger(
            shown,
            format!("{error}: no occurrence starts until this is corrected"),
            REJECTED_FIX,
        ),
        StoreError::Replica(_) => ids::REACHABLE.danger(
            shown,
            format!("{error}: no occurrence starts until this is corrected"),
            REPLICA_FIX,
        ),
        _ => ids::REACHABLE.danger(
            shown,
            format!("{error}: no occurrence starts until it replies"),
            fix,
        ),
    }
}

/// One server of the store does not reply.
fn one_away(settings: &StoreSettings, shown: &str, error: &StoreError) -> Finding {
    match settings {
        StoreSettings::Redlock(_) | StoreSettings::Cluster(_) => ids::REACHABLE.warning(
            shown,
            format!("{error}: the others must do without it"),
            match error {
                StoreError::Refused(_) => REJECTED_FIX,
                StoreError::Replica(_) => REPLICA_FIX,
                _ => UNREACHABLE_FIX,
            },
        ),
        _ => away(shown, error),
    }
}

fn version(facts: &Facts) -> Option<Finding> {
    let version = facts
        .info("valkey_version")
        .or_else(|| facts.info("redis_version"))?;
    let mut numbers = version.split('.').map(|n| n.parse().unwrap_or(0));
    let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let name = facts.info("server_name").unwrap_or("redis");
    Some(if number < OLDEST {
        ids::VERSION.danger(
            &facts.shown,
            format!("version {version}: its scripts lack functions that cronlatch needs"),
            "upgrade to Redis 7.0 or later, or to Valkey",
        )
    } else {
        ids::VERSION.ok(&facts.shown, format!("{name} {version}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Severity;

    #[test]
    fn a_server_before_seven_is_dangerous() {
        let judged = |version| {
            let facts = Facts::forged(&[("redis_version", version)], &[]);
            version_of(&facts)
        };
        assert_eq!(judged("6.2.14"), Some(Severity::Danger));
        assert_eq!(judged("7.0.15"), Some(Severity::Ok));
        assert_eq!(judged("10.1.0"), Some(Severity::Ok));
    }

    fn version_of(facts: &Facts) -> Option<Severity> {
        version(facts).map(|finding| finding.severity)
    }
}
