//! Several nodes as one store.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Facts;
use super::PROMPT;
use crate::plan::{Act, JobPlan, NodeAct, StoreKind};
use crate::trace::Span;

/// A node that answers does so within so many milliseconds.
const NODE_ANSWERS: i64 = 300;
/// How long a node's vote for a host keeps other hosts out.
const VOTE: i64 = 1_500;
/// Hosts that stepped aside look again within so many milliseconds.
const STEPS_BACK: i64 = 300;
/// A node that failed is not waited for within so many milliseconds.
const NODE_FAILED: i64 = 5_000;

/// `SilentNode`: a host that waits for a node which does not answer decides by what the others said
/// when they were asked, one time-out of a node ago. Returns how long ago that is at most.
pub(in crate::judge) fn asked_before(facts: &Facts<'_>, at: i64) -> i64 {
    let waiting = Span {
        from: at - NODE_ANSWERS,
        until: at,
    };
    let silent = facts.plan.acts.iter().any(|(from, act)| match act {
        Act::Node {
            how: NodeAct::Down { lasts, .. } | NodeAct::Freeze { lasts } | NodeAct::Cut { lasts, .. },
            ..
        } => {
            let from = facts.plan.start + from;
            let until = from + lasts;
            Span { from, until }.meets(waiting)
        }
        _ => false,
    });
    if silent { NODE_ANSWERS } else { 0 }
}

/// `SlowNode`: a host does not wait for nodes that failed a moment ago, and of two clocks the earlier
/// decides what is due. Returns how far behind that may be after an outage.
pub(in crate::judge) fn node_behind(facts: &Facts<'_>, dark: Span) -> i64 {
    let end = Span {
        from: dark.until - NODE_FAILED,
        until: dark.until + 1,
    };
    if !facts.trace.outages.iter().any(|it| it.meets(end)) {
        return 0;
    }
    let mut behind: BTreeMap<usize, i64> = BTreeMap::new();
    for (at, act) in &facts.plan.acts {
        if let Act::Node {
            node,
            how: NodeAct::Clock { offset },
        } = act
            && facts.plan.start + at < dark.until
        {
            behind.insert(*node, -offset);
        }
    }
    behind.into_values().max().unwrap_or(0).max(0)
}

/// As [`node_behind`], for what was claimed then: a while after the outage hosts wait for all nodes again.
pub(in crate::judge) fn node_behind_at(facts: &Facts<'_>, dark: Span, then: i64) -> i64 {
    if then < dark.until + NODE_FAILED {
        node_behind(facts, dark)
    } else {
        0
    }
}

/// `LateVote`: a node that stood still gives its vote to whoever asked for it meanwhile, also to a process
/// that is gone, and for a second and a half others let that one finish what it began; a start deadline
/// that is no longer may pass.
pub(in crate::judge) fn late_vote(facts: &Facts<'_>, plan: &JobPlan, due: i64) -> bool {
    let waiting = Span {
        from: due - VOTE,
        until: due + plan.start_deadline,
    };
    let goes_on = |(from, act): &(i64, Act)| match act {
        Act::Node {
            how: NodeAct::Freeze { lasts },
            ..
        } => waiting.holds(facts.plan.start + from + lasts),
        _ => false,
    };
    plan.start_deadline <= VOTE + STEPS_BACK && facts.plan.acts.iter().any(goes_on)
}

/// `SilentNodes`: a host waits for each node that does not answer, one after the other, before it claims with the
/// others; a start deadline that is no longer than that and `spread` may pass.
pub(in crate::judge) fn silent_nodes(facts: &Facts<'_>, plan: &JobPlan, due: i64) -> bool {
    let claimed = Span {
        from: due,
        until: due + plan.start_deadline,
    };
    let silent = facts.plan.acts.iter().filter_map(|(from, act)| match act {
        Act::Node {
            node,
            how:
                how @ (NodeAct::Down { refuses: false, .. }
                | NodeAct::Freeze { .. }
                | NodeAct::Cut { .. }),
        } => {
            let from = facts.plan.start + from;
            let until = from + how.lasts();
            Span { from, until }.meets(claimed).then_some(*node)
        }
        _ => None,
    });
    let silent: BTreeSet<usize> = silent.collect();
    let answers = i64::try_from(silent.len()).unwrap_or(0) * NODE_ANSWERS;
    !silent.is_empty() && plan.start_deadline <= answers + spread_at(facts, due)
}

/// The longest `spread` of the lists that are in force then.
fn spread_at(facts: &Facts<'_>, then: i64) -> i64 {
    let lives = facts.trace.lives.iter().enumerate();
    let there = lives.filter(|(_, it)| it.from <= then && it.until.is_none_or(|end| then < end));
    let lists = there.filter_map(|(nr, _)| {
        let lists = facts.trace.lists_of(nr);
        lists.iter().rfind(|(from, _)| *from <= then).map(|it| it.1)
    });
    let spreads = lists.map(|list| facts.plan.lists[list].spread);
    spreads.max().unwrap_or(0)
}

/// `AwaitsReports`: after an outage of several nodes, hosts wait for up to a TTL for the results of runs that
/// were open, and start nothing meanwhile. Returns for how long after a time in which nobody could act.
pub(in crate::judge) fn awaits_reports(facts: &Facts<'_>, dark: Span) -> i64 {
    let mut outages = facts.trace.outages.iter();
    match facts.plan.store {
        StoreKind::Quorum(_) if outages.any(|it| it.meets(dark)) => {
            facts.plan.longest_ttl() + PROMPT
        }
        _ => 0,
    }
}
