//! Plans for a store on several nodes: those of one server, and what befalls single nodes besides.

use crate::chance::Dice;
use crate::generate;
use crate::plan::{Act, NodeAct, Plan, StoreKind};

/// When the faults begin, and how long none begins before the calm, in milliseconds.
const FIRST: i64 = 4_000;

/// How many jobs a list has at most: here nodes register them one after the other.
const MOST_JOBS: usize = 20;

/// The plan of a seed on three or five nodes.
///
/// A minority of the nodes, always the same, dies, is paused, loses its data, has a wrong clock or
/// is cut off from hosts. None of this may have an effect. What befalls the store of the plain plan
/// befalls all nodes at once.
pub(crate) fn plan(seed: u64) -> Plan {
    let mut plan = generate::plan(seed);
    let mut dice = Dice::new(seed ^ 0x0DE5);
    let nodes = dice.pick(&[3, 3, 5]);
    plan.store = StoreKind::Quorum(nodes);
    let of_one_server = |act: &Act| {
        matches!(
            act,
            Act::StoreSlow { .. } | Act::ReplicaStops | Act::Failover
        )
    };
    plan.acts.retain(|(_, act)| !of_one_server(act));
    for list in &mut plan.lists {
        list.jobs.truncate(MOST_JOBS);
    }
    let frail = dice.below(nodes);
    for nth in 0..nodes / 2 {
        let node = (frail + nth) % nodes;
        if dice.chance(30) {
            // Clocks within a second of one another count as right: then "now" is off by as much.
            let offset = dice.pick(&[-2_500, -1_500, 1_500, 2_500]);
            let how = NodeAct::Clock { offset };
            plan.acts.push((0, Act::Node { node, how }));
        }
        for _ in 0..dice.range(0, 4) {
            let at = dice.range(FIRST, plan.calm.max(FIRST + 1));
            let how = act(&mut dice, plan.hosts.len());
            plan.acts.push((at, Act::Node { node, how }));
        }
    }
    plan.acts.sort_by_key(|(at, _)| *at);
    plan
}

fn act(dice: &mut Dice, hosts: usize) -> NodeAct {
    let lasts = dice.pick(&[400, 2_000, 8_000, 20_000]);
    match dice.range(0, 8) {
        0 => NodeAct::Down {
            lasts,
            refuses: dice.chance(50),
        },
        1 => NodeAct::Freeze { lasts },
        2 => NodeAct::Restart,
        3 | 4 => NodeAct::Wipe,
        5 => NodeAct::Snapshot,
        6 => NodeAct::Restore,
        _ => NodeAct::Cut {
            host: dice.below(hosts),
            lasts,
        },
    }
}
