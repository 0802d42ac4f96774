//! What is forgiven, and when: each excuse has a name, and a test in [`super::tests`].

mod alone;
mod attempts;
mod catch_up;
mod hosts;
mod locks;
mod loss;
mod moves;
mod nodes;
mod reruns;
mod schedules;

pub(super) use self::alone::{
    asked_out, in_doubt, never_began, never_measured, not_noticed, not_told, on_store_down,
    reported_elsewhere, told_by_wall_clock,
};
pub(super) use self::attempts::{
    attempt_not_begun, attempt_under_way, beside, counted_beside, died_unreported,
    forgotten_attempt, not_started, provisional, without_its_lease,
};
pub(super) use self::catch_up::{
    at_its_time, dark_again, noticed_as_it_awoke, still_waiting, superseded,
};
pub(super) use self::hosts::{
    busy_on_its_schedule, chances, heard_from, not_there, on_its_way, stood_still, unheard_return,
    waited_for_place, was_in_trouble,
};
pub(super) use self::locks::{
    begun_out_of_order, being_taken, claim_in_doubt, just_awake, lock_busy_until, opted_out,
    renewed_unheard, unheard_lease_end,
};
pub(super) use self::loss::{
    forgotten_run, forgotten_schedule, lost_beginning, lost_data, lost_meanwhile, lost_result,
    lost_verdict, many_ends, unknown_range,
};
pub(super) use self::moves::{
    copy_after_move, decided_there, held_back, left_behind, moves_by, resumed_elsewhere,
    under_its_old_scope,
};
pub(super) use self::nodes::{
    asked_before, awaits_reports, late_vote, node_behind, node_behind_at, silent_nodes,
};
pub(super) use self::reruns::{
    given_back, last_try_not_begun, lost_count, noticed_late, rerun_beside, rerun_of_not_begun,
    rerun_too_late, rerun_waits, rerun_window, reruns_not_begun, to_be_repeated, tries_used_up,
};
pub(super) use self::schedules::{
    back_on_its_schedule, inherited, never_seen_disabled, owed_together, passed_there,
    two_schedules, verdicts_owed_together,
};
use crate::trace::Span;

/// What a host notices within so many milliseconds is at its time.
const PROMPT: i64 = 1_000;
/// A start that is so fresh when its host dies may not be on record.
const UNDER_WAY: i64 = 2_000;
/// A process begins so many milliseconds after its grant at the latest.
const SPAWNS: i64 = 100;
/// The longest time that a request takes through a bad network.
const ON_ITS_WAY: i64 = 5_000;
/// Hosts announce themselves so often.
const ANNOUNCES: i64 = 10_000;
/// The longest time before its instant at which the store decides an occurrence.
pub(super) const AHEAD: i64 = 1_000;
/// Hosts that are back begin to catch up within so many milliseconds: they leave the newest to hosts whose
/// clocks are behind.
pub(super) const CATCHES_UP: i64 = 4_500;
/// The longest time that moving a ledger takes.
const MOVES: i64 = 4_000;
/// `OwnClock`: a host judges the deadline of what waits for a place of its own, and what is too old
/// to be caught up, by its own clock, which may be off by so much and still count as right.
pub(super) const OWN_CLOCK: i64 = 500;

/// The time within which a host that runs notices what comes due then.
pub(super) fn notices(due: i64) -> Span {
    Span {
        from: due,
        until: due + PROMPT,
    }
}
