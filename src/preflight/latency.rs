//! Round trips, against what the shortest leases leave time for.

use std::sync::Arc;
use std::time::Duration;

use super::facts::Facts;
use super::{Finding, ids};
use crate::config::{Job, show_duration};
use crate::ground::sorting::SortShort as _;
use crate::ground::timing;

pub(super) fn judge(facts: &Facts, jobs: &[Arc<Job>]) -> Finding {
    let trip = facts.round_trip;
    let text = format!("{trip:.1?} a round trip");
    let mut short: Vec<&Arc<Job>> = jobs
        .iter()
        .filter(|job| trip > timing::response_timeout(job.lock.ttl) / 4)
        .collect();
    short.sort_short_by_key(|job| job.lock.ttl);
    let Some(shortest) = short.first() else {
        return ids::LATENCY.ok(&facts.shown, text);
    };
    let limit = timing::response_timeout(shortest.lock.ttl);
    let others = match short.len() - 1 {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let who = format!(
        "{}{others}, whose ttl of {} leaves {} for a reply",
        shortest.name,
        show_duration(shortest.lock.ttl),
        show_duration(Duration::from_millis(
            u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)
        ))
    );
    let fix = "use a longer ttl for these jobs, or a store that is closer";
    if trip > limit {
        ids::LATENCY.danger(
            &facts.shown,
            format!("{text}: too slow to renew the leases of {who}"),
            fix,
        )
    } else {
        ids::LATENCY.warning(
            &facts.shown,
            format!("{text}: one slow reply may cost the leases of {who}"),
            fix,
        )
    }
}
