//! The protocol with one mechanism taken out: each time a counterexample is found, and of the kind
//! that the mechanism is there against.

use crate::rules::{CatchUp, Defect};
use crate::search::{ENDED, G1, G2, G5, G7, Step, Story, fails};
use crate::world::{Ask, Word, World};
use crate::worlds::{
    answers, cancelled, copies, forgetful, gaps, renewed, shared, shared_and_slow, succeeded,
    succeeded_ahead,
};

fn has(story: &Story, step: impl Fn(&Step) -> bool) -> bool {
    story.iter().filter_map(|(_, it)| it.as_ref()).any(step)
}

fn end(story: &Story) -> &World {
    &story.last().expect("it has an end").0
}

/// The state before the last step.
fn before_the_end(story: &Story) -> &World {
    &story[story.len() - 2].0
}

/// Nobody dies, and no data are lost: clocks and late messages are enough.
fn unharmed(story: &Story) -> bool {
    !has(story, |step| {
        matches!(step, Step::Crash(_) | Step::Lose(_) | Step::Evict)
    })
}

/// The first run was over: the lock was free, and its being held could tell nobody anything.
fn one_after_the_other(story: &Story) -> bool {
    let alive = |world: &World| {
        let mut runs = world.hosts.iter().flat_map(|host| &host.runs);
        runs.any(|run| run.alive)
    };
    let starts = |world: &World| -> u32 {
        let fates = world.seen.fates.iter().flat_map(|fates| fates.values());
        fates.map(|fate| u32::from(fate.starts)).sum()
    };
    let mut worlds = story.iter().map(|(world, _)| world);
    worlds.any(|world| starts(world) == 1 && !alive(world))
}

#[test]
fn without_a_ledger_a_host_that_is_behind_runs_the_occurrence_again() {
    fails(copies().without(Defect::NoLedger), G2, |story| {
        unharmed(story) && one_after_the_other(story)
    });
}

#[test]
fn with_a_ledger_of_fire_times_hosts_whose_clocks_differ_run_an_occurrence_twice() {
    fails(copies().without(Defect::LedgerByFireTime), G2, |story| {
        let hosts = (0..2).all(|host| {
            has(
                story,
                |step| matches!(step, Step::Claim(by, ..) if *by == host),
            )
        });
        unharmed(story) && one_after_the_other(story) && hosts
    });
}

#[test]
fn without_the_token_a_late_finish_frees_the_lock_of_another() {
    fails(renewed().without(Defect::NoToken), G5, |story| {
        let net = &before_the_end(story).net;
        let late = |ask: &Ask| matches!(ask, Ask::Finish { word, .. } if *word != Word::GivenBack);
        unharmed(story) && net.iter().any(|message| late(&message.ask))
    });
    fails(
        shared_and_slow(&[1, 2]).without(Defect::NoToken),
        G1,
        unharmed,
    );
}

#[test]
fn without_the_finished_tokens_a_late_copy_takes_the_lock_again() {
    fails(cancelled().without(Defect::NoRing), ENDED, |story| {
        let copies = |step: &Step| matches!(step, Step::Copy(_) | Step::GiveUp(..));
        unharmed(story) && has(story, copies) && !before_the_end(story).seen.finished.is_empty()
    });
}

#[test]
fn with_a_lease_that_counts_from_the_answer_two_runs_overlap() {
    fails(answers().without(Defect::LeaseFromReply), G1, |story| {
        // Only a grant whose answer was on its way while time passed is believed for too long.
        let ttl = answers().ttl;
        let mut runs = end(story).hosts.iter().flat_map(|host| &host.runs);
        unharmed(story) && runs.any(|run| run.alive && run.end - ttl > run.at)
    });
}

#[test]
fn with_an_evicted_lock_that_is_free_two_runs_overlap() {
    fails(shared().without(Defect::EvictedIsFree), G1, |story| {
        has(story, |step| *step == Step::Evict)
    });
}

#[test]
fn without_the_gap_rule_an_occurrence_is_passed_over_in_silence() {
    fails(
        gaps(CatchUp::Latest).without(Defect::NoGapRule),
        G7,
        |story| {
            // What was passed over has neither a start nor a verdict, and one after it has.
            let fates = &end(story).seen.fates[0];
            let first = fates.keys().next();
            first.is_some_and(|first| {
                gaps(CatchUp::Latest).schedules[0][0]
                    .iter()
                    .any(|at| at < first)
            })
        },
    );
}

#[test]
fn without_the_amnesia_guard_a_restart_lets_two_runs_overlap_and_one_start_twice() {
    let lost = |story: &Story| has(story, |step| matches!(step, Step::Lose(_)));
    fails(forgetful().without(Defect::NoAmnesiaGuard), G1, lost);
    fails(forgetful().without(Defect::NoAmnesiaGuard), G2, |story| {
        lost(story)
    });
}

#[test]
fn without_the_second_that_clocks_may_differ_what_a_failed_server_granted_starts_twice() {
    fails(succeeded().without(Defect::NoHorizon), G2, |story| {
        // It was granted by a clock that is ahead of the one that noticed the loss.
        let twice = end(story).seen.fates[0]
            .iter()
            .find(|(_, fate)| fate.starts > 1);
        let lost_at = end(story).seen.lost_at;
        has(story, |step| matches!(step, Step::Lose(_)))
            && twice.is_some_and(|(at, _)| lost_at.is_some_and(|lost_at| lost_at < *at))
    });
}

#[test]
fn without_the_second_that_claims_may_come_ahead_what_was_granted_ahead_starts_twice() {
    fails(
        succeeded_ahead().without(Defect::NoLeadInHorizon),
        G2,
        |story| {
            // It was due later than the clocks of two servers may differ after the loss was noticed.
            let twice = end(story).seen.fates[0]
                .iter()
                .find(|(_, fate)| fate.starts > 1);
            let lost_at = end(story).seen.lost_at;
            has(story, |step| matches!(step, Step::Lose(_)))
                && twice.is_some_and(|(at, _)| lost_at.is_some_and(|lost_at| lost_at + 1 < *at))
        },
    );
}
