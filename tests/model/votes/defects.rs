//! A majority with one mechanism taken out: each time a counterexample is found, and of the kind
//! that the mechanism is there against.

use crate::ids::Tick;
use crate::search::{G1, G2, G6};
use crate::votes::rules::{Budget, Defect, Promises, Rules};
use crate::votes::search::{Step, Story, fails};
use crate::votes::worlds::{deaths, ended, several};

fn wiped(story: &Story) -> bool {
    story
        .iter()
        .any(|(_, step)| matches!(step, Some(Step::Wipe(_))))
}

/// Nobody dies, no data are lost: two hosts and late messages are enough.
fn unharmed(story: &Story) -> bool {
    let harm = |step: &Option<Step>| matches!(step, Some(Step::Wipe(_) | Step::Crash(_)));
    !story.iter().any(|(_, step)| harm(step))
}

#[test]
fn with_a_single_phase_an_occurrence_starts_twice() {
    fails(deaths().without(Defect::SinglePhase), G2, |story| {
        let (last, _) = story.last().expect("it has an end");
        // The first lease ends while its ledger is on the way, and the second host knows nothing.
        last.seen.starts == [2] && last.hosts.iter().all(|host| host.next == 1)
    });
}

#[test]
fn with_a_single_phase_fences_fall() {
    let world = Rules {
        budget: Budget {
            ends: 1,
            ..Budget::default()
        },
        ..several()
    };
    fails(world.without(Defect::SinglePhase), G6, unharmed);
}

#[test]
fn without_promises_that_are_kept_an_occurrence_starts_twice() {
    // The first run is over and its lock free when a proposal arrives that is older than it.
    let mut world = Rules { end: 1, ..ended() };
    world.budget.give_ups = 0;
    fails(world.without(Defect::NoPromise), G2, unharmed);
}

#[test]
fn where_a_minority_is_enough_two_runs_overlap() {
    fails(deaths().without(Defect::MinorityCounts), G1, unharmed);
}

/// One occurrence; the node that comes back empty is the one that the second host asks first.
fn frail(end: Tick) -> Rules {
    Rules {
        promises: Promises::Prompt,
        frail: vec![1],
        budget: Budget {
            wipes: 1,
            ..Budget::default()
        },
        ..Rules::of(&[1], end)
    }
}

#[test]
fn where_a_node_that_comes_back_empty_counts_at_once_an_occurrence_starts_twice() {
    fails(frail(1).without(Defect::NoWait), G2, wiped);
}

#[test]
fn where_a_node_that_forgot_speaks_for_the_past_an_occurrence_starts_twice() {
    fails(frail(3).without(Defect::NoEpoch), G2, |story| {
        // It had waited: the first run's lease is over.
        let (last, _) = story.last().expect("it has an end");
        wiped(story) && last.now == 3
    });
}
