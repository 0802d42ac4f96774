//! The protocol with one mechanism taken out: each time a counterexample is found.

use crate::rules::{CatchUp, Defect};
use crate::search::{ENDED, G1, G2, G5, G7, fails};
use crate::worlds::{
    answers, cancelled, copies, forgetful, gaps, renewed, shared, shared_and_slow,
};

#[test]
fn without_a_ledger_a_host_that_is_behind_runs_the_occurrence_again() {
    fails(copies().without(Defect::NoLedger), G2);
}

#[test]
fn with_a_ledger_of_fire_times_hosts_whose_clocks_differ_run_an_occurrence_twice() {
    fails(copies().without(Defect::LedgerByFireTime), G2);
}

#[test]
fn without_the_token_a_late_finish_frees_the_lock_of_another() {
    fails(renewed().without(Defect::NoToken), G5);
    fails(shared_and_slow(&[1, 2]).without(Defect::NoToken), G1);
}

#[test]
fn without_the_finished_tokens_a_late_copy_takes_the_lock_again() {
    fails(cancelled().without(Defect::NoRing), ENDED);
}

#[test]
fn with_a_lease_that_counts_from_the_answer_two_runs_overlap() {
    fails(answers().without(Defect::LeaseFromReply), G1);
}

#[test]
fn with_an_evicted_lock_that_is_free_two_runs_overlap() {
    fails(shared().without(Defect::EvictedIsFree), G1);
}

#[test]
fn without_the_gap_rule_an_occurrence_is_passed_over_in_silence() {
    fails(gaps(CatchUp::Latest).without(Defect::NoGapRule), G7);
}

#[test]
fn without_the_amnesia_guard_a_restart_lets_two_runs_overlap_and_one_start_twice() {
    fails(forgetful().without(Defect::NoAmnesiaGuard), G1);
    fails(forgetful().without(Defect::NoAmnesiaGuard), G2);
}
