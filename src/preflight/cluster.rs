//! A Redis Cluster as a whole: whether all of it is served, and what a failover takes.

use std::sync::Arc;
use std::time::Duration;

use super::facts::Facts;
use super::{Finding, ids};
use crate::config::{Job, show_duration};
use crate::ground::sorting::SortShort as _;
use crate::store::redis::Layout;

/// What the other servers need to agree on a successor once they miss a primary.
const ELECTION: Duration = Duration::from_secs(2);

pub(super) fn judge(
    shown: &str,
    layout: &Layout,
    all: &[Facts],
    jobs: &[Arc<Job>],
) -> Vec<Finding> {
    let mut found = slots(shown, layout);
    for facts in all {
        found.extend(coverage(facts));
        found.extend(migration(facts));
        let timeout = facts.setting("cluster-node-timeout");
        if let Some(timeout) = timeout.and_then(|millis| millis.parse().ok()) {
            let timeout = Duration::from_millis(timeout);
            found.push(failover(
                &facts.shown,
                "cluster-node-timeout",
                timeout,
                jobs,
            ));
        }
    }
    found
}

fn slots(shown: &str, layout: &Layout) -> Vec<Finding> {
    let mut found = Vec::new();
    let count = layout.primaries.len();
    if layout.unserved > 0 {
        found.push(ids::SLOTS.danger(
            shown,
            format!(
                "no server serves {} of the 16384 slots: locks in them cannot be claimed, and \
                 their leases cannot be renewed",
                layout.unserved
            ),
            "restore their primary or one of its replicas; `redis-cli --cluster check` names them",
        ));
    } else if !layout.in_order {
        found.push(ids::SLOTS.danger(
            shown,
            "its servers report cluster_state:fail and reject claims and renewals",
            "restore the primaries that are down; `redis-cli --cluster check` names them",
        ));
    }
    if count < 3 {
        found.push(ids::SLOTS.warning(
            shown,
            format!(
                "only {count} of its servers serve slots: when one of them dies, the others are not \
                 a majority and cannot promote its replica"
            ),
            "use three primaries or more",
        ));
    }
    if found.is_empty() {
        let text = format!("all slots are served, by {count} primaries");
        found.push(ids::SLOTS.ok(shown, text));
    }
    found
}

fn coverage(facts: &Facts) -> Option<Finding> {
    Some(match facts.setting("cluster-require-full-coverage")? {
        "no" => ids::COVERAGE.ok(&facts.shown, "cluster-require-full-coverage is no"),
        _ => ids::COVERAGE.warning(
            &facts.shown,
            "cluster-require-full-coverage is yes: while no server serves the slots of one \
             primary, the servers reject all claims and renewals of the whole Cluster",
            "CONFIG SET cluster-require-full-coverage no on every server, and the same line in its \
             configuration file",
        ),
    })
}

/// A replica that wanders off to a primary without one may be missed where it was.
fn migration(facts: &Facts) -> Option<Finding> {
    let wanted = facts.wait_replicas;
    let may_leave = facts.setting("cluster-allow-replica-migration")? == "yes";
    let stay: u32 = facts.setting("cluster-migration-barrier")?.parse().ok()?;
    if wanted == 0 {
        return None;
    }
    Some(if may_leave && stay < wanted {
        ids::MIGRATION.warning(
            &facts.shown,
            format!(
                "cluster-migration-barrier is {stay} and wait_replicas is {wanted}: when a replica \
                 moves to a primary that has none, fewer than {wanted} can remain, and then their \
                 primary grants and renews nothing"
            ),
            format!(
                "CONFIG SET cluster-migration-barrier {wanted} (or cluster-allow-replica-migration \
                 no) on every server, and the same line in its configuration file"
            ),
        )
    } else {
        ids::MIGRATION.ok(
            &facts.shown,
            format!("no replica that wait_replicas {wanted} needs can move to another primary"),
        )
    })
}

/// Whether leases live through a failover: they can be renewed until a third of their TTL is left.
pub(super) fn failover(
    subject: &str,
    setting: &str,
    after: Duration,
    jobs: &[Arc<Job>],
) -> Finding {
    let takes = after + ELECTION;
    let mut short: Vec<&Arc<Job>> = jobs
        .iter()
        .filter(|job| takes > job.lock.ttl / 3 * 2)
        .collect();
    short.sort_short_by_key(|job| job.lock.ttl);
    let after = show_duration(after);
    let Some(shortest) = short.first() else {
        return ids::FAILOVER.ok(subject, format!("{setting} is {after}"));
    };
    let others = match short.len() - 1 {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    ids::FAILOVER.warning(
        subject,
        format!(
            "{setting} is {after}: the leases of {}{others} (ttl {}) expire before a dead master \
             is replaced, and their jobs are killed",
            shortest.name,
            show_duration(shortest.lock.ttl)
        ),
        format!("use a longer ttl for these jobs, or a shorter {setting}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Severity::{self, Danger, Ok, Warning};
    use crate::store::{StoreSettings, check_url};

    fn severities(found: &[Finding]) -> Vec<Severity> {
        found.iter().map(|finding| finding.severity).collect()
    }

    fn judged(primaries: usize, unserved: usize, in_order: bool) -> Vec<Severity> {
        let Result::Ok(StoreSettings::Redis(server)) = check_url("redis://h") else {
            panic!("a URL");
        };
        let layout = Layout {
            primaries: vec![server; primaries],
            unserved,
            in_order,
        };
        severities(&slots("a cluster", &layout))
    }

    #[test]
    fn slots_that_nobody_serves_are_a_danger_and_too_few_primaries_a_warning() {
        assert_eq!(judged(3, 0, true), [Ok]);
        assert_eq!(judged(3, 1, true), [Danger]);
        assert_eq!(judged(3, 0, false), [Danger]);
        assert_eq!(judged(2, 0, true), [Warning]);
        assert_eq!(judged(2, 9, false), [Danger, Warning]);
    }

    fn server(wait: u32, config: &[(&str, &str)]) -> Facts {
        let mut facts = Facts::forged(&[], config);
        facts.wait_replicas = wait;
        facts
    }

    #[test]
    fn a_replica_that_may_leave_is_weighed_against_what_claims_wait_for() {
        let judged = |wait, allow, barrier| {
            let facts = server(
                wait,
                &[
                    ("cluster-allow-replica-migration", allow),
                    ("cluster-migration-barrier", barrier),
                ],
            );
            migration(&facts).map(|finding| finding.severity)
        };
        assert_eq!(judged(0, "yes", "1"), None);
        assert_eq!(judged(1, "yes", "1"), Some(Ok));
        assert_eq!(judged(2, "yes", "1"), Some(Warning));
        assert_eq!(judged(1, "yes", "0"), Some(Warning));
        assert_eq!(judged(2, "no", "1"), Some(Ok));
        assert_eq!(migration(&server(1, &[])), None, "the user may not ask");
    }

    #[test]
    fn one_part_that_stops_all_is_warned_of() {
        let judged = |value| {
            let facts = server(0, &[("cluster-require-full-coverage", value)]);
            coverage(&facts).map(|finding| finding.severity)
        };
        assert_eq!(judged("yes"), Some(Warning));
        assert_eq!(judged("no"), Some(Ok));
    }
}
