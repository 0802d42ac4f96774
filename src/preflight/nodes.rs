//! Several servers that decide together must be several, and each its own master.

use std::collections::HashMap;

use super::facts::Facts;
use super::{Finding, ids};
use crate::store::{Condition, NodeStanding, StoreSettings};

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
                "{count} servers survive the failure of no more of them than {} do",
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
                format!("it is the same server as {first}: one failure takes two votes along"),
                "name each server once",
            ));
        }
        if facts.info("role") == Some("slave") {
            found.push(ids::NODES.danger(
                &facts.shown,
                "it is a replica: what it holds is another's vote",
                "name independent masters only",
            ));
        }
    }
    found
}

/// What the nodes say of the data that they keep, for those that do not count.
pub(super) fn standing(condition: &Condition) -> Vec<Finding> {
    let wait = "wait until it counts again (`cronlatch status`) before another one is restarted";
    condition
        .nodes
        .iter()
        .filter_map(|node| match &node.standing {
            NodeStanding::New => Some(ids::NODES.hint(
                &node.node,
                "it was never declared new: the first start waits for the longest ttl",
                "`cronlatch init` before the first start spares the wait",
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
            // Which jobs there are is not asked here; who does not answer has a finding already.
            NodeStanding::Counts | NodeStanding::Repairing { .. } | NodeStanding::Away { .. } => {
                None
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Severity::{self, Danger, Warning};
    use crate::store::{AtStart, RedlockSettings, check_url};

    fn judged(nodes: usize, all: &[Facts]) -> Vec<Severity> {
        let Ok(StoreSettings::Redis(node)) = check_url("redis://h") else {
            panic!("a URL");
        };
        let settings = StoreSettings::Redlock(RedlockSettings {
            nodes: vec![node; nodes],
            tries: 3,
            retry_delay: Default::default(),
            at_start: AtStart::Wait,
        });
        judge(all, &settings).iter().map(|f| f.severity).collect()
    }

    fn server(run_id: &str, role: &str) -> Facts {
        Facts::forged(&[("run_id", run_id), ("role", role)], &[])
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
