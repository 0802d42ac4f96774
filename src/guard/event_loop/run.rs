//! One command under the guard's care: when it gets which signal. Decides, touches no process.

use std::os::fd::OwnedFd;
use std::time::Duration;

use super::child::Permit;
use super::reaper::Reaper;
use super::{FIRST_PAUSE, LAST_PAUSE};
use crate::guard::cgroup::Cgroup;
use crate::guard::wire::StartRequest;
use crate::guard::{EndedBy, Status, Usage};
use crate::time::BootInstant;

/// How long what a main process left behind may take to end by itself before it is signalled: a
/// `tee` at the end of a pipeline has its last lines to write.
const LINGER: Duration = Duration::from_millis(100);

/// A command that was started and is not reported as ended yet.
#[derive(Debug)]
pub(super) struct StartedRun {
    pub(super) serial: u64,
    /// The run's name, shared by its attempts.
    pub(super) name: Vec<u8>,
    pub(super) main: Main,
    /// The number of the main process, also after its end; none until the reaper's child has
    /// announced itself.
    pub(super) leader: Option<i32>,
    pub(super) group: Group,
    pub(super) place: Containment,
    /// When it was started, in ticks as `/proc` counts them.
    pub(super) born: u64,
    /// What was signalled after the main process had ended: process id and start.
    pub(super) left_behind: Vec<(i32, u64)>,
    /// The processes we were not permitted to kill, likewise.
    pub(super) survivors: Vec<(i32, u64)>,
    pub(super) permission: StartPermission,
    deadline: Option<BootInstant>,
    pub(super) signal: i32,
    grace: Duration,
    stage: Stage,
    pub(super) ended_by: EndedBy,
    /// What was used, as far as it was reaped.
    pub(super) usage: Option<Usage>,
}

/// The main process.
#[derive(Debug)]
pub(super) enum Main {
    /// The child is about to execute the command. The pipe reports which step failed, or closes. A
    /// child of a reaper has none: it first reports its process id, and the rest, to the reaper's socket.
    Starting(Option<i32>, Option<OwnedFd>),
    /// The command runs.
    Alive(i32),
    /// Ended and reaped: its number is no longer ours to signal.
    Ended(Status),
}

impl Main {
    /// The process that may be signalled.
    pub(super) fn pid(&self) -> Option<i32> {
        match self {
            Self::Starting(pid, _) => *pid,
            Self::Alive(pid) => Some(*pid),
            Self::Ended(_) => None,
        }
    }
}

/// Whether the command may begin.
#[derive(Debug)]
pub(super) enum StartPermission {
    /// It has begun, or begins as soon as its process is ready.
    Free,
    /// It begins at its instant, with this permit.
    Waits(Permit),
    /// It never begins: the guard has taken its permit.
    Withdrawn,
}

/// What keeps the run's processes apart from those of other runs.
#[derive(Debug)]
pub(super) enum Containment {
    /// A control group.
    Cgroup(Cgroup),
    /// A sub-reaper that is alive.
    Reaper(Reaper),
    /// The reaper has reported that nothing is left.
    Empty,
    /// The reaper was killed: only the environment of the processes still names their run.
    Nowhere,
}

impl Containment {
    /// The control group, if it is one.
    pub(super) fn cgroup(&self) -> Option<&Cgroup> {
        match self {
            Self::Cgroup(cgroup) => Some(cgroup),
            Self::Reaper(_) | Self::Empty | Self::Nowhere => None,
        }
    }

    /// The living reaper, if it is one.
    pub(super) fn reaper(&self) -> Option<Reaper> {
        match self {
            Self::Reaper(reaper) => Some(*reaper),
            Self::Cgroup(_) | Self::Empty | Self::Nowhere => None,
        }
    }

    /// Whether what descends from the run can become a child of the guard.
    pub(super) fn lets_strays_out(&self) -> bool {
        matches!(self, Self::Cgroup(_) | Self::Nowhere)
    }
}

/// The process group of the main process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    /// Its own, which has its number.
    Own,
    /// The daemon's, which holds others and is not ours to signal.
    Callers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    /// The main process ended, something is left.
    Lingering {
        until: BootInstant,
    },
    /// The first signal was sent; `again` to what the main process, ending, forked meanwhile.
    Signalled {
        kill_at: BootInstant,
        again: Option<BootInstant>,
    },
    /// SIGKILL is being sent until nothing is left.
    Killing {
        next: BootInstant,
        pause: Duration,
    },
}

/// What is to be sent to the whole tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KillStep {
    /// The first signal.
    First,
    /// SIGKILL.
    Kill,
}

impl StartedRun {
    pub(super) fn new(
        order: &StartRequest<'_>,
        main: Main,
        group: Group,
        place: Containment,
    ) -> Self {
        Self {
            serial: order.serial,
            name: order.run.to_vec(),
            leader: main.pid(),
            main,
            group,
            place,
            born: 0,
            left_behind: Vec::new(),
            survivors: Vec::new(),
            permission: StartPermission::Free,
            deadline: order.deadline,
            signal: order.signal,
            grace: order.grace,
            stage: Stage::Running,
            ended_by: EndedBy::Itself,
            usage: None,
        }
    }

    /// The process group that the command leads.
    pub(super) fn own_group(&self) -> Option<i32> {
        self.leader.filter(|_| self.group == Group::Own)
    }

    /// When [`StartedRun::advance`] has something to do next.
    pub(super) fn due(&self) -> Option<BootInstant> {
        let stage = match self.stage {
            Stage::Running => return self.deadline.map(|at| at.minus(self.grace)),
            Stage::Lingering { until } => until,
            Stage::Signalled { kill_at, again } => again.map_or(kill_at, |at| at.min(kill_at)),
            Stage::Killing { next, .. } => return Some(next),
        };
        Some(self.deadline.map_or(stage, |at| stage.min(at)))
    }

    /// Takes the next step that is due by the clock.
    pub(super) fn advance(&mut self, now: BootInstant) -> Option<KillStep> {
        if self.due().is_none_or(|due| due > now) {
            return None;
        }
        if let Stage::Killing { pause, .. } = self.stage {
            return Some(self.kill(now, (pause * 2).min(LAST_PAUSE)));
        }
        if self.deadline.is_some_and(|at| at <= now) {
            self.blame(EndedBy::Deadline);
            return Some(self.kill(now, FIRST_PAUSE));
        }
        match self.stage {
            Stage::Running => {
                self.blame(EndedBy::Deadline);
                Some(self.send_first(now, self.grace))
            }
            Stage::Lingering { .. } => Some(self.send_first(now, self.grace)),
            Stage::Signalled { kill_at, .. } if kill_at > now => {
                let again = None;
                self.stage = Stage::Signalled { kill_at, again };
                Some(KillStep::First)
            }
            Stage::Signalled { .. } => Some(self.kill(now, FIRST_PAUSE)),
            Stage::Killing { .. } => None,
        }
    }

    /// Begins to end the tree, unless that has begun: the first signal, then `grace`, but never
    /// longer than the run's own.
    pub(super) fn end(&mut self, now: BootInstant, grace: Duration) -> Option<KillStep> {
        if self.is_ending() {
            return None;
        }
        if let Some(step) = self.withdraw(now) {
            return Some(step);
        }
        self.blame(EndedBy::Request);
        Some(self.send_first(now, self.grace.min(grace)))
    }

    /// Makes sure that a command that waits for its instant never begins, and kills its process. Changes
    /// nothing if the command has begun.
    pub(super) fn withdraw(&mut self, now: BootInstant) -> Option<KillStep> {
        if !self.take_permit() {
            return None;
        }
        self.permission = StartPermission::Withdrawn;
        self.blame(EndedBy::Request);
        Some(self.kill(now, FIRST_PAUSE))
    }

    /// Takes the permit of a command that waits for its instant. Returns whether it was there: the command
    /// then never begins.
    pub(super) fn take_permit(&self) -> bool {
        match &self.permission {
            StartPermission::Waits(permit) => permit.take(),
            StartPermission::Free | StartPermission::Withdrawn => false,
        }
    }

    /// The run has until `to` to live. Never shortens: packets of two threads may overtake.
    pub(super) fn extend(&mut self, now: BootInstant, to: BootInstant) {
        if to > now && !self.is_ending() {
            self.deadline = self.deadline.map(|at| at.max(to));
        }
    }

    /// The main process has ended; something of its tree may be left.
    pub(super) fn main_ended(&mut self, now: BootInstant, status: Status) {
        self.main = Main::Ended(status);
        let until = now.plus(LINGER);
        match &mut self.stage {
            Stage::Running => self.stage = Stage::Lingering { until },
            Stage::Signalled { again, .. } => *again = Some(until),
            Stage::Lingering { .. } | Stage::Killing { .. } => {}
        }
    }

    /// Whether what is left may still end by itself.
    pub(super) fn is_lingering(&self) -> bool {
        matches!(self.stage, Stage::Lingering { .. })
    }

    /// Whether SIGKILL has been sent for a while.
    pub(super) fn resists(&self) -> bool {
        matches!(self.stage, Stage::Killing { pause, .. } if pause == LAST_PAUSE)
    }

    fn is_ending(&self) -> bool {
        matches!(self.stage, Stage::Signalled { .. } | Stage::Killing { .. })
    }

    fn send_first(&mut self, now: BootInstant, grace: Duration) -> KillStep {
        let kill_at = now.plus(grace);
        let again = None;
        self.stage = Stage::Signalled { kill_at, again };
        KillStep::First
    }

    fn kill(&mut self, now: BootInstant, pause: Duration) -> KillStep {
        let next = now.plus(pause);
        self.stage = Stage::Killing { next, pause };
        KillStep::Kill
    }

    /// Only what ended a living main process is reported; the rest of its tree is killed with it.
    fn blame(&mut self, by: EndedBy) {
        if self.main.pid().is_some() && self.ended_by == EndedBy::Itself {
            self.ended_by = by;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::seconds_after_boot as at;

    const GRACE: Duration = Duration::from_secs(5);

    fn run(deadline: Option<u64>) -> StartedRun {
        let order = StartRequest::until(1, deadline.map(at));
        StartedRun::new(&order, Main::Alive(2), Group::Own, Containment::Nowhere)
    }

    #[test]
    fn the_first_signal_comes_a_grace_before_the_deadline_and_sigkill_at_it() {
        let mut run = run(Some(100));
        assert_eq!(run.due(), Some(at(95)));
        assert_eq!(run.advance(at(94)), None);
        assert_eq!(run.advance(at(95)), Some(KillStep::First));
        assert_eq!(run.due(), Some(at(100)));
        assert_eq!(run.advance(at(99)), None);
        assert_eq!(run.advance(at(100)), Some(KillStep::Kill));
        assert_eq!(run.ended_by, EndedBy::Deadline);
    }

    #[test]
    fn a_guard_that_wakes_after_the_deadline_kills_at_once() {
        let mut run = run(Some(100));
        assert_eq!(run.advance(at(500)), Some(KillStep::Kill));
    }

    #[test]
    fn an_end_close_to_the_deadline_does_not_outlive_it() {
        let mut run = run(Some(100));
        assert_eq!(run.end(at(93), GRACE * 9), Some(KillStep::First));
        assert_eq!(run.due(), Some(at(98)));
        let mut run = self::run(Some(100));
        run.deadline = Some(at(95));
        assert_eq!(run.end(at(94), GRACE), Some(KillStep::First));
        assert_eq!(run.due(), Some(at(95)));
        assert_eq!(run.ended_by, EndedBy::Request);
    }

    #[test]
    fn a_second_end_neither_repeats_the_signal_nor_restarts_the_grace() {
        let mut run = run(None);
        assert_eq!(run.end(at(10), GRACE), Some(KillStep::First));
        assert_eq!(run.end(at(14), GRACE), None);
        assert_eq!(run.advance(at(15)), Some(KillStep::Kill));
    }

    #[test]
    fn an_extension_moves_the_deadline_forward_only_and_not_once_it_has_passed() {
        let mut run = run(Some(100));
        run.extend(at(50), at(130));
        run.extend(at(51), at(120));
        assert_eq!(run.due(), Some(at(125)));
        run.extend(at(51), at(49));
        assert_eq!(run.due(), Some(at(125)));
        assert_eq!(run.advance(at(126)), Some(KillStep::First));
        run.extend(at(127), at(200));
        assert_eq!(run.advance(at(130)), Some(KillStep::Kill));
    }

    #[test]
    fn an_extension_gives_no_deadline_to_a_run_that_may_outlive_its_lease() {
        let mut run = run(None);
        run.extend(at(50), at(130));
        assert_eq!(run.due(), None);
    }

    #[test]
    fn what_a_signalled_main_process_forked_as_it_ended_is_signalled_too() {
        let mut run = run(None);
        assert_eq!(run.end(at(10), GRACE), Some(KillStep::First));
        run.main_ended(at(11), Status::Code(0));
        assert_eq!(run.advance(at(11)), None);
        assert_eq!(run.advance(at(12)), Some(KillStep::First));
        assert_eq!(run.due(), Some(at(15)), "the grace is the same");
        assert_eq!(run.advance(at(15)), Some(KillStep::Kill));
        assert_eq!(run.ended_by, EndedBy::Request);
    }

    #[test]
    fn what_is_left_gets_a_moment_the_first_signal_the_grace_and_sigkill() {
        let mut run = run(None);
        run.main_ended(at(10), Status::Code(0));
        assert_eq!(run.advance(at(10)), None);
        assert_eq!(run.advance(at(11)), Some(KillStep::First));
        assert_eq!(run.advance(at(16)), Some(KillStep::Kill));
        assert_eq!(run.advance(at(17)), Some(KillStep::Kill));
        assert_eq!(run.ended_by, EndedBy::Itself);
    }

    #[test]
    fn an_end_withdraws_a_command_that_waits_for_its_instant() {
        let mut run = run(None);
        let permit = Permit::new().expect("a descriptor");
        run.permission = StartPermission::Waits(permit);
        assert_eq!(run.end(at(10), GRACE), Some(KillStep::Kill));
        assert!(matches!(run.permission, StartPermission::Withdrawn));
        assert_eq!(run.ended_by, EndedBy::Request);
        assert_eq!(run.withdraw(at(11)), None, "it is gone");
    }

    #[test]
    fn a_command_that_has_begun_cannot_be_withdrawn_and_ends_as_any_other() {
        let mut run = run(None);
        let permit = Permit::new().expect("a descriptor");
        assert!(permit.take() && !permit.take(), "only one side gets it");
        run.permission = StartPermission::Waits(permit);
        assert_eq!(run.withdraw(at(9)), None);
        assert_eq!(run.ended_by, EndedBy::Itself);
        assert_eq!(run.end(at(10), GRACE), Some(KillStep::First));
    }
}
