//! Eviction and memory: a server that throws keys away forgets who holds what, and what has run.

use super::facts::Facts;
use super::{Finding, ids};

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    [eviction(facts), fill(facts)]
        .into_iter()
        .flatten()
        .collect()
}

fn eviction(facts: &Facts) -> Option<Finding> {
    let policy = facts.info("maxmemory_policy")?;
    Some(if policy == "noeviction" {
        ids::EVICTION.ok(&facts.shown, "maxmemory-policy is noeviction")
    } else {
        ids::EVICTION.danger(
            &facts.shown,
            format!(
                "maxmemory-policy is {policy}: when memory runs short, the server evicts leases, so \
                 jobs are killed, and ledgers, so occurrences may run twice"
            ),
            "CONFIG SET maxmemory-policy noeviction, and the same line in the server's \
             configuration file",
        )
    })
}

/// Claims are refused when memory is full.
fn fill(facts: &Facts) -> Option<Finding> {
    let (used, max) = (facts.number("used_memory")?, facts.number("maxmemory")?);
    if max == 0 {
        return Some(ids::MEMORY.ok(&facts.shown, format!("{} MiB used, no limit", mib(used))));
    }
    let text = format!("{} of {} MiB used", mib(used), mib(max));
    Some(if used >= max {
        ids::MEMORY.danger(
            &facts.shown,
            format!("{text}: the server rejects claims, so nothing starts"),
            "raise maxmemory, or delete other data from this server",
        )
    } else if used / 9 >= max / 10 {
        ids::MEMORY.warning(
            &facts.shown,
            format!("{text}: when it is full, the server rejects claims"),
            "raise maxmemory; `cronlatch check` shows how much this list needs at most",
        )
    } else {
        ids::MEMORY.ok(&facts.shown, text)
    })
}

fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}
