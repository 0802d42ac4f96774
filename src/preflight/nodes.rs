//! Several servers that decide together must be several, and each its own master.

use std::collections::HashMap;

use super::clock::Trusted;
use super::facts::Facts;
use super::{Finding, NOTABLE, Severity, Subject, ids};
use crate::siblings;
use crate::store::{Condition, HostReport, NodeCondition, NodeStanding, Store, StoreSettings};

pub(super) fn judge(all: &[Facts], settings: &StoreSettings) -> Vec<Finding> {
    let StoreSettings::Redlock(redlock) = settings else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let count = redlock.nodes.len();
    if count.is_multiple_of(2) {
        found.push(ids::NODES.warning(
            &settings.shown(),
            format!(
                "{count} servers survive no more failures than {} do",
                count.saturating_sub(1)
            ),
            "take an odd number",
        ));
    }
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for facts in all {
        if let Some(run_id) = facts.info("run_id")
            && let Some(first) = seen.insert(run_id, &facts.shown)
        {
            found.push(ids::NODES.danger(
                &facts.shown,
                format!("it is the same server as {first}: its failure costs two votes"),
                "name each server once",
            ));
        }
        if facts.info("role") == Some("slave") {
            found.push(ids::NODES.danger(
                &facts.shown,
                "it is a replica: its vote is a copy of its master's",
                "name independent masters only",
            ));
        }
    }
    found
}

/// The live hosts that use other servers than the list names, as far as any server knows of them.
pub(super) async fn rivals(store: &dyn Store) -> Vec<Finding> {
    let (Ok(Some(ours)), Ok(hosts)) = (store.nodes().await, store.peers().await) else {
        return Vec::new();
    };
    let rival = |report: &HostReport| {
        let theirs = report.info.nodes.as_ref()?;
        ours.differ_from(theirs).then(|| {
            ids::NODES.danger(
                &format!("host {}", report.info.host),
                format!(
                    "it uses {}: with this list jobs would run on both",
                    theirs.shown(&ours)
                ),
                "give all hosts the same list (docs/stores.md, \"Moving to another store\")",
            )
        })
    };
    hosts.iter().filter_map(rival).collect()
}

/// The daemons of this host that run the same list on another store.
pub(super) async fn siblings(subject: &Subject) -> Vec<Finding> {
    let Some(list) = &subject.list else {
        return Vec::new();
    };
    let place = siblings::ListUse::of(list, &subject.settings);
    let all = place.siblings().await.into_iter();
    all.filter(|sibling| sibling.differs)
        .map(|sibling| {
            ids::NODES.danger(
                &sibling.who(),
                format!("it uses {}: jobs would run on both", sibling.uses()),
                "stop it before a daemon starts with this list (docs/stores.md, \"Moving to \
                 another store\")",
            )
        })
        .collect()
}

/// Findings about the nodes that do not count, from what they report about their data. A server
/// that `found` already lists as unreachable is left out.
pub(super) fn standing(condition: &Condition, found: &[Finding]) -> Vec<Finding> {
    let is_reported = |node: &str| {
        let mut away = found
            .iter()
            .filter(|finding| finding.id == ids::REACHABLE.0);
        away.any(|finding| finding.subject == node && finding.severity != Severity::Ok)
    };
    let wait = "wait until it counts again (`cronlatch status`) before another one is restarted";
    condition
        .nodes
        .iter()
        .filter_map(|node| match &node.standing {
            NodeStanding::New => Some(ids::NODES.hint(
                &node.node,
                "it was never initialised: its first start waits for the longest ttl",
                "run `cronlatch init` before the first start to avoid the wait",
            )),
            NodeStanding::Recovering { lost_at, remaining } => Some(ids::NODES.warning(
                &node.node,
                format!(
                    "it was restarted or lost its data, noticed at {lost_at}, and does not count \
                     for another {:.1} s: the others must do without it",
                    remaining.as_secs_f64()
                ),
                wait,
            )),
            NodeStanding::Away { error } if !is_reported(&node.node) => Some(ids::NODES.warning(
                &node.node,
                format!("it does not count, and the others must do without it: {error}"),
                "fix the cause that is named here",
            )),
            // This check does not read the jobs.
            NodeStanding::Counts | NodeStanding::Repairing { .. } | NodeStanding::Away { .. } => {
                None
            }
        })
        .collect()
}

/// Compares the clocks of the nodes: one finding for each node that replies.
pub(super) fn clocks(condition: &Condition) -> Vec<Finding> {
    let measured = |node: &NodeCondition| node.clock.map(|clock| (node.node.clone(), clock));
    condition
        .nodes
        .iter()
        .filter_map(measured)
        .map(|(node, clock)| {
            let text = format!("its clock is {clock} the clock that decides what is due");
            if clock.exceeds(NOTABLE) {
                ids::NODE_CLOCKS.warning(
                    &node,
                    format!(
                        "{text} (the median of the nodes that reply): if another node fails, jobs \
                         may start late"
                    ),
                    "synchronise the clocks of all nodes with chrony or systemd-timesyncd \
                     (`timedatectl set-ntp true`)",
                )
            } else {
                ids::NODE_CLOCKS.ok(&node, text)
            }
        })
        .collect()
}

/// Whether the clocks of a majority agree, so that they can be taken for right. A store that is not
/// several nodes has one clock, which is trusted.
pub(super) fn trusted(condition: &Condition) -> Trusted {
    let clocks = condition.nodes.iter().filter_map(|node| node.clock);
    let agree = clocks.filter(|clock| !clock.exceeds(NOTABLE)).count();
    if condition.nodes.is_empty() || agree > condition.nodes.len() / 2 {
        Trusted::Yes
    } else {
        Trusted::No
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::preflight::Severity::{self, Danger, Warning};
    use crate::store::{NodeClock, RedlockSettings, RetryDelay, StartupQuorum, check_url};

    fn judged(nodes: usize, all: &[Facts]) -> Vec<Severity> {
        let Ok(StoreSettings::Redis(node)) = check_url("redis://h") else {
            panic!("a URL");
        };
        let settings = StoreSettings::Redlock(RedlockSettings {
            nodes: vec![node; nodes],
            tries: 3,
            retry_delay: RetryDelay::default(),
            at_start: StartupQuorum::Wait,
        });
        judge(all, &settings).iter().map(|f| f.severity).collect()
    }

    fn server(run_id: &str, role: &str) -> Facts {
        Facts::forged(&[("run_id", run_id), ("role", role)], &[])
    }

    #[test]
    fn a_host_is_judged_by_clocks_on_which_a_majority_agrees() {
        let nodes = |offsets: &[Option<i64>]| Condition {
            nodes: offsets
                .iter()
                .map(|offset| NodeCondition {
                    node: "redis://h".to_owned(),
                    standing: NodeStanding::Counts,
                    clock: offset.map(|offset_ms| NodeClock {
                        offset_ms,
                        error: Duration::ZERO,
                    }),
                    unusable: Vec::new(),
                })
                .collect(),
            ..Condition::default()
        };
        assert_eq!(trusted(&nodes(&[])), Trusted::Yes);
        assert_eq!(trusted(&nodes(&[Some(0), Some(900), None])), Trusted::Yes);
        assert_eq!(
            trusted(&nodes(&[Some(0), Some(0), Some(9000)])),
            Trusted::Yes
        );
        assert_eq!(trusted(&nodes(&[Some(0), Some(9000), None])), Trusted::No);
        let findings = clocks(&nodes(&[Some(0), Some(9000), None]));
        let severities: Vec<Severity> = findings.iter().map(|f| f.severity).collect();
        assert_eq!(severities, [Severity::Ok, Warning]);
    }

    #[test]
    fn the_same_server_twice_a_replica_and_an_even_number_are_told() {
        let good = [server("a", "master"), server("b", "master")];
        assert_eq!(judged(3, &good), []);
        assert_eq!(judged(4, &good), [Warning]);
        let twice = [server("a", "master"), server("a", "master")];
        assert_eq!(judged(3, &twice), [Danger]);
        assert_eq!(judged(3, &[server("a", "slave")]), [Danger]);
    }
}
