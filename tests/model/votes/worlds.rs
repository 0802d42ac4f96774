//! The worlds of several nodes in which everything holds.

use crate::votes::rules::{Budget, Promises, Rules, Sight};
use crate::votes::search::{holds, holds_for};
use crate::world::verdict;

const ALL_RUN: Sight = ("every occurrence runs", |_, world| {
    world.seen.starts.iter().all(|starts| *starts == 1)
});
const LEFT_BEHIND: Sight = (
    "a majority takes what a host that died before the start proposed",
    |_, world| {
        let dead = world.hosts.iter().position(|host| !host.up);
        let token = |node: &crate::votes::world::Shared<_>| {
            let node: &crate::acceptor::Acceptor = node;
            let open = node.ledgers.values().find_map(|it| it.state.open.as_ref());
            open.map(|open| crate::ids::Ticket::of_token(open.token.as_str()).host)
        };
        dead.is_some()
            && world.seen.starts[0] == 0
            && world
                .nodes
                .iter()
                .filter(|node| token(node) == dead)
                .count()
                >= 2
    },
);
const WRITTEN_AGAIN: Sight = ("a node that came back empty counts again", |_, world| {
    world.nodes.iter().any(|node| {
        let marker = node.marker.as_ref();
        let lost = marker.and_then(|it| it.lost_at);
        let now = crate::ids::clock(world.now).lease;
        lost.is_some()
            && marker.is_some_and(|it| it.until <= now)
            && node.register.epoch == lost
            && node.ledgers.values().all(|it| it.epoch == lost)
            && !node.ledgers.is_empty()
    })
});
const INTERRUPTED: Sight = ("a run is recorded as interrupted", |_, world| {
    let mut verdicts = world.seen.verdicts.iter();
    verdicts.any(|it| it & verdict::INTERRUPTED > 0)
});
const RAN: Sight = ("a verdict is delivered", |_, world| {
    let mut verdicts = world.seen.verdicts.iter();
    verdicts.any(|it| it & verdict::RAN > 0)
});
const RENEWED: Sight = ("a lease is renewed", |_, world| world.seen.renewed);

/// One occurrence; hosts die between the phases.
pub(super) fn deaths() -> Rules {
    Rules {
        budget: Budget {
            crashes: 1,
            ..Budget::default()
        },
        sights: vec![ALL_RUN, LEFT_BEHIND],
        ..Rules::of(&[1], 3)
    }
}

/// One occurrence; a node dies and comes back empty.
pub(super) fn wiped() -> Rules {
    Rules {
        budget: Budget {
            wipes: 1,
            ..Budget::default()
        },
        sights: vec![ALL_RUN],
        ..Rules::of(&[1], 2)
    }
}

/// One occurrence; a job ends, and its verdict is on the way with the claims of others.
pub(super) fn ended() -> Rules {
    Rules {
        promises: Promises::Prompt,
        budget: Budget {
            ends: 1,
            give_ups: 1,
            ..Budget::default()
        },
        sights: vec![ALL_RUN, RAN],
        ..Rules::of(&[1], 2)
    }
}

/// Two occurrences; nodes whose clocks differ.
pub(super) fn several() -> Rules {
    Rules {
        clocks: [0, 1, 0],
        promises: Promises::Prompt,
        budget: Budget {
            ends: 1,
            ..Budget::default()
        },
        sights: vec![ALL_RUN, INTERRUPTED, RAN],
        ..Rules::of(&[1, 3], 3)
    }
}

/// Two occurrences; a node comes back empty and counts again.
pub(super) fn recovered(hosts: usize) -> Rules {
    Rules {
        hosts,
        promises: Promises::Prompt,
        budget: Budget {
            wipes: 1,
            ..Budget::default()
        },
        sights: vec![ALL_RUN, WRITTEN_AGAIN],
        ..Rules::of(&[1, 3], 4)
    }
}

/// A lease that is renewed while a node comes back empty.
pub(super) fn renewed() -> Rules {
    Rules {
        promises: Promises::Prompt,
        budget: Budget {
            wipes: 1,
            renewals: 1,
            ..Budget::default()
        },
        sights: vec![RENEWED],
        ..Rules::of(&[1, 3], 3)
    }
}

#[test]
fn on_three_nodes_an_occurrence_starts_once_whatever_is_late_and_whoever_dies_in_between() {
    holds(deaths(), 50_000);
}

#[test]
fn nor_does_a_node_that_comes_back_empty_let_it_start_twice() {
    holds(wiped(), 50_000);
}

#[test]
fn an_occurrence_whose_run_ended_is_granted_to_no_late_proposal() {
    holds(ended(), 20_000);
}

#[test]
fn two_occurrences_start_once_each_and_fences_rise_though_the_nodes_clocks_differ() {
    holds_for(several(), 10, 60_000);
}

#[test]
#[ignore = "larger: run by hand"]
fn nor_in_any_number_of_steps() {
    holds(several(), 1);
}

#[test]
fn a_node_that_came_back_empty_counts_again_and_nothing_starts_twice() {
    holds(recovered(1), 30_000);
    let without_sights = Rules {
        sights: Vec::new(),
        ..recovered(2)
    };
    holds_for(without_sights, 8, 30_000);
}

#[test]
#[ignore = "larger: run by hand"]
fn nor_does_it_in_any_number_of_steps() {
    holds(recovered(2), 1);
}

#[test]
fn a_renewed_lease_outlives_a_node_that_comes_back_empty() {
    holds_for(renewed(), 8, 50_000);
}

#[test]
#[ignore = "larger: run by hand"]
fn a_renewed_lease_does_so_in_any_number_of_steps() {
    holds(renewed(), 1);
}
