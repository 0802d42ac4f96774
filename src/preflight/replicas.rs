//! Replicas: whether a failover can lose a claim, and whether an old master can go on alone.

use std::sync::Arc;
use std::time::Duration;

use super::facts::Facts;
use super::{Finding, ids};
use crate::config::{Job, show_duration};
use crate::store::StoreSettings;

/// A server's own words on its replicas.
struct Replicas {
    good: u64,
    all: u64,
    /// `min-replicas-to-write`, if the user may ask.
    to_write: Option<u64>,
    /// `min-replicas-max-lag`.
    max_lag: Option<Duration>,
}

impl Replicas {
    fn of(facts: &Facts) -> Option<Self> {
        let all = facts.number("connected_slaves")?;
        let online = (0..all)
            .filter_map(|i| facts.info(&format!("slave{i}")))
            .filter(|line| line.contains("state=online"))
            .count();
        let setting = |new, old| facts.setting(new).or_else(|| facts.setting(old));
        let lag = setting("min-replicas-max-lag", "min-slaves-max-lag");
        Some(Self {
            good: u64::try_from(online).unwrap_or(all),
            all,
            to_write: setting("min-replicas-to-write", "min-slaves-to-write")
                .and_then(|n| n.parse().ok()),
            max_lag: lag.and_then(|n| n.parse().ok()).map(Duration::from_secs),
        })
    }
}

pub(super) fn judge(facts: &Facts, settings: &StoreSettings, jobs: &[Arc<Job>]) -> Vec<Finding> {
    if matches!(settings, StoreSettings::Redlock(_)) || facts.info("role") == Some("slave") {
        // Independent servers; what a replica among them means is said by `nodes`.
        return Vec::new();
    }
    let Some(replicas) = Replicas::of(facts) else {
        return Vec::new();
    };
    let mut found = vec![match settings {
        StoreSettings::Cluster(_) if replicas.all == 0 && facts.wait_replicas == 0 => {
            without_successor(facts)
        }
        _ => acknowledged(facts, &replicas),
    }];
    found.extend(old_master(facts, &replicas, jobs));
    found
}

/// In a Cluster no other server has what this one keeps.
fn without_successor(facts: &Facts) -> Finding {
    ids::REPLICAS.warning(
        &facts.shown,
        "no replica: if it dies, its locks cannot be claimed or renewed until it is back, and the \
         jobs that hold them are killed",
        "give every primary a replica, or two with wait_replicas: 1",
    )
}

fn acknowledged(facts: &Facts, replicas: &Replicas) -> Finding {
    let (good, wanted) = (replicas.good, u64::from(facts.wait_replicas));
    let text = format!("{good} of {} replicas in step", replicas.all);
    if good < wanted {
        return ids::REPLICAS.danger(
            &facts.shown,
            format!(
                "{text}, and wait_replicas is {wanted}: no claim is granted and no lease is \
                 renewed"
            ),
            "bring the replicas back, or lower wait_replicas",
        );
    }
    if wanted == 0 && replicas.all > 0 {
        return ids::REPLICAS.warning(
            &facts.shown,
            format!(
                "{text}, and wait_replicas is 0: a promoted replica may lack the last claims, so a \
                 running job may be started a second time (with a larger fencing token)"
            ),
            "set wait_replicas: 1 in the list's store",
        );
    }
    if wanted > 0 && good == wanted {
        return ids::REPLICAS.hint(
            &facts.shown,
            format!("{text}, and wait_replicas is {wanted}: when one fails, nothing is started"),
            "add a replica",
        );
    }
    ids::REPLICAS.ok(&facts.shown, text)
}

/// Checks whether a master that was cut off would continue to accept writes.
fn old_master(facts: &Facts, replicas: &Replicas, jobs: &[Arc<Job>]) -> Option<Finding> {
    let to_write = replicas.to_write?;
    if to_write > replicas.good {
        return Some(ids::OLD_MASTER.danger(
            &facts.shown,
            format!(
                "min-replicas-to-write is {to_write} and {} replicas are in step: the server rejects \
                 every claim and renewal",
                replicas.good
            ),
            "bring the replicas back, or lower min-replicas-to-write",
        ));
    }
    if replicas.all == 0 {
        return None;
    }
    let wanted = u64::from(facts.wait_replicas);
    if to_write == 0 && wanted == 0 {
        return Some(ids::OLD_MASTER.warning(
            &facts.shown,
            "min-replicas-to-write is 0: a master that was cut off keeps granting and renewing \
             leases while its successor grants the same ones",
            "CONFIG SET min-replicas-to-write 1, with min-replicas-max-lag below the shortest ttl \
             (or set wait_replicas)",
        ));
    }
    if to_write < wanted {
        return Some(ids::OLD_MASTER.hint(
            &facts.shown,
            format!(
                "min-replicas-to-write is {to_write}, wait_replicas {wanted}: a master that was cut \
                 off still accepts claims, which are then returned for want of replicas"
            ),
            format!("CONFIG SET min-replicas-to-write {wanted}"),
        ));
    }
    let shortest = jobs.iter().map(|job| job.lock.ttl).min()?;
    let lag = replicas.max_lag?;
    if wanted == 0 && lag >= shortest {
        return Some(ids::OLD_MASTER.warning(
            &facts.shown,
            format!(
                "min-replicas-max-lag is {} s, and the shortest ttl {}: a master that was cut off \
                 renews leases that have expired on its successor",
                lag.as_secs(),
                show_duration(shortest)
            ),
            "CONFIG SET min-replicas-max-lag to less than the shortest ttl, in seconds",
        ));
    }
    Some(ids::OLD_MASTER.ok(
        &facts.shown,
        format!("min-replicas-to-write is {to_write}, wait_replicas {wanted}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Severity::{self, Danger, Hint, Ok, Warning};

    fn judged(wait: u32, online: usize, to_write: &str) -> Vec<(&'static str, Severity)> {
        let count = online.to_string();
        let mut info = vec![("role", "master"), ("connected_slaves", count.as_str())];
        let line = "ip=10.0.0.2,port=6379,state=online,offset=1,lag=0";
        info.extend(
            [("slave0", line), ("slave1", line)]
                .into_iter()
                .take(online),
        );
        let config = [
            ("min-replicas-to-write", to_write),
            ("min-replicas-max-lag", "10"),
        ];
        let mut facts = Facts::forged(&info, &config);
        facts.wait_replicas = wait;
        let settings = StoreSettings::Sqlite {
            path: "unused".into(),
        };
        let found = judge(&facts, &settings, &[]);
        found.iter().map(|f| (f.id, f.severity)).collect()
    }

    #[test]
    fn replicas_are_weighed_against_what_claims_wait_for() {
        let (replicas, old) = (ids::REPLICAS.0, ids::OLD_MASTER.0);
        assert_eq!(judged(0, 0, "0"), [(replicas, Ok)]);
        assert_eq!(judged(1, 0, "0"), [(replicas, Danger)]);
        assert_eq!(judged(0, 1, "0"), [(replicas, Warning), (old, Warning)]);
        assert_eq!(judged(1, 1, "0"), [(replicas, Hint), (old, Hint)]);
        assert_eq!(judged(1, 2, "2"), [(replicas, Ok)]);
        assert_eq!(judged(1, 1, "2"), [(replicas, Hint), (old, Danger)]);
    }
}
