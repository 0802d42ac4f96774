//! The notes of `status` above and below its tables: nodes, clocks, and what keeps jobs from running.

use std::collections::BTreeMap;
use std::time::Duration;

use super::report::{HostStatus, JobStatus, NodeStatus, VanishedHost};
use crate::cli::output;
use crate::time::Timestamp;

/// Names the hosts that claim nothing because another store is in use, and how that ends.
pub(super) fn waits_note(hosts: &[HostStatus]) -> String {
    let note = |host: &HostStatus| {
        let reason = host.waits.as_ref()?;
        Some(format!(
            "\nhost {} claims nothing: {reason}\n  to end this, give all hosts the same `store:` \
             (docs/stores.md, \"Moving to another store\")\n",
            host.name
        ))
    };
    hosts.iter().filter_map(note).collect()
}

/// Names the hosts that have vanished: they did not stop in an orderly way.
pub(super) fn vanished_note(hosts: &[VanishedHost], now: Timestamp) -> String {
    let note = |host: &VanishedHost| {
        let ago = output::short(now.since(host.seen_at));
        format!(
            "host {} has vanished: its daemon last reported {ago} ago and did not stop in an orderly \
             way\n",
            host.name
        )
    };
    hosts.iter().map(note).collect()
}

/// In which jobs the lists of hosts differ.
pub(super) fn lists_note(hosts: &[HostStatus]) -> String {
    let note = |host: &HostStatus| {
        let jobs = host.differing_jobs.as_ref()?;
        Some(format!("the list of host {} {}\n", host.name, jobs.text))
    };
    hosts.iter().filter_map(note).collect()
}

/// Lists the host names that two daemons share, and how that ends.
pub(super) fn namesake_note(hosts: &[HostStatus]) -> String {
    let note = |host: &HostStatus| {
        let other = host.namesake.as_ref()?;
        Some(format!(
            "\nhost {}: two daemons have this name: process {}, up since {}, and {other}\n  give each \
             its own name (--host, CRONLATCH_HOST)\n",
            host.name, host.pid, host.started_at
        ))
    };
    hosts.iter().filter_map(note).collect()
}

/// Names the hosts that claim nothing of a job while its lock changes, and how that ends.
pub(super) fn held_back_note(hosts: &[HostStatus]) -> String {
    let mut note = String::new();
    for host in hosts {
        for held in &host.held_back {
            let remedy = if held.hosts.is_empty() {
                "this resolves itself".to_owned()
            } else {
                format!(
                    "to resolve this, start {} with the list of {}",
                    held.hosts.join(", "),
                    host.name
                )
            };
            note += &format!(
                "\njob {}: held back on {}, whose list uses {}: {}\n  {remedy}\n",
                held.job, host.name, held.lock, held.reason
            );
        }
    }
    note
}

/// What is wrong with the keys of single jobs, and how to repair it.
pub(super) fn damage_note(jobs: &[JobStatus]) -> String {
    let mut note = String::new();
    for job in jobs {
        if let Some(damage) = &job.damaged {
            note += &format!(
                "\njob {}: {} key {}: {}\n  to repair it, {}\n",
                job.name, damage.kind, damage.key, damage.detail, damage.repair
            );
        }
    }
    note
}

/// Names the jobs that do not start because too few replicas acknowledge their claims, each shortfall once.
pub(super) fn unacknowledged_note(jobs: &[JobStatus]) -> String {
    let mut note = String::new();
    let mut servers = BTreeMap::<_, Vec<_>>::new();
    for job in jobs {
        if let Some(short) = &job.unacknowledged {
            let found = servers.entry((&short.server, short.acknowledged, short.wanted));
            found.or_default().push(job.name.as_str());
        }
    }
    for ((server, acknowledged, wanted), names) in servers {
        let jobs = if names.len() == 1 { "job" } else { "jobs" };
        note += &format!(
            "\n{server}: {acknowledged} of {wanted} replicas acknowledged the last claim of {jobs} \
             {}\n  nothing starts there while fewer than {wanted} do (wait_replicas): check that \
             the server's replicas are up\n",
            names.join(", ")
        );
    }
    note
}

/// What a person should know of the nodes: nothing, when all of them count.
pub(super) fn nodes_note(nodes: &[NodeStatus]) -> String {
    let mut note = String::new();
    for node in nodes {
        let name = &node.node;
        let since = node
            .lost_data_at
            .map_or_else(String::new, |at| at.to_string());
        note += &match (node.standing, node.recovering_until, &node.error) {
            ("new", ..) => format!(
                "       {name} is new: its first request starts the recovery wait (to avoid it, \
                 run `cronlatch init`)\n"
            ),
            ("recovering", Some(until), _) => format!(
                "       {name} was restarted or lost its data, noticed at {since}: it does not \
                 count until {until}\n"
            ),
            ("repairing", ..) => format!(
                "       {name} was restarted or lost its data, noticed at {since}: it counts \
                 again, but for {} {} of this list\n",
                node.jobs_left,
                if node.jobs_left == 1 { "job" } else { "jobs" }
            ),
            (_, _, Some(error)) => format!("       {name} does not count: {error}\n"),
            _ => String::new(),
        };
        for damage in &node.damaged {
            note += &format!(
                "       {name} does not count for the job {}: {}: {}\n         -> {}\n",
                damage.job, damage.key, damage.detail, damage.repair
            );
        }
    }
    if note.is_empty() {
        return note;
    }
    let (all, quorum) = (nodes.len(), nodes.len() / 2 + 1);
    let counting = nodes.iter().filter(|node| node.counts()).count();
    note += &if counting < quorum {
        format!(
            "       {counting} of {all} nodes count, and {quorum} must: no locks are granted \
             until then\n"
        )
    } else if counting == quorum && counting < all {
        format!(
            "       {counting} of {all} nodes count, and {quorum} must: if one more fails, no \
             locks are granted\n"
        )
    } else {
        "       do not restart another node before all count for every job\n".to_owned()
    };
    note
}

/// The offset of each node's clock: nothing, when all agree within a second.
pub(super) fn clocks_note(nodes: &[NodeStatus]) -> String {
    if !nodes.iter().any(|node| node.clock_is_off) {
        return String::new();
    }
    let mut note = "       the nodes' clocks differ (the median decides what is due):\n".to_owned();
    for node in nodes {
        let offset = node
            .clock_offset_ms
            .map_or_else(|| "not known".to_owned(), clock);
        note += &format!("         {}  {offset}\n", node.node);
    }
    note
}

/// Returns the offset of a clock as text, with its sign.
pub(super) fn clock(offset: i64) -> String {
    let sign = if offset < 0 { '-' } else { '+' };
    format!(
        "{sign}{}",
        output::short(Duration::from_millis(offset.unsigned_abs()))
    )
}
