//! Policies that vary by seed: each job but `long`, at which faults are aimed, gets its own, and other
//! ones in the changed list. `POLICIES=0` in the environment leaves the usual ones.

use crate::chance::Chance;

const ON_OVERLAP: [&str; 3] = ["skip", "wait", "queue"];
/// Short ones: on a machine that is short of processor time a long queue outlasts its deadlines.
const QUEUE_LIMIT: [u32; 2] = [1, 3];
const SCOPE: [&str; 2] = ["host", "none"];
const CATCH_UP: [&str; 3] = ["none", "latest", "all"];
const ON_CRASH: [&str; 2] = ["ignore", "rerun"];
const ON_STORE_DOWN: [&str; 2] = ["wait", "skip"];

/// Makes the usual policies of a campaign another seed's chances.
const OTHER_THAN_THE_PLAN: u64 = 0x706f_6c69_6379;

/// The policies of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policies {
    on_overlap: &'static str,
    queue_limit: u32,
    catch_up: &'static str,
    on_crash: &'static str,
    on_store_down: &'static str,
}

impl Policies {
    /// As fields of a job.
    pub(crate) fn text(self) -> String {
        let Self {
            on_overlap,
            queue_limit,
            catch_up,
            on_crash,
            on_store_down,
        } = self;
        let limit = match on_overlap {
            "queue" => format!("queue_limit: {queue_limit}, "),
            _ => String::new(),
        };
        format!(
            "on_overlap: {on_overlap}, {limit}catch_up: {catch_up}, on_crash: {on_crash}, \
             on_store_down: {on_store_down}, "
        )
    }

    /// How many times a crashed run may be run again.
    pub(crate) fn reruns(self) -> u32 {
        if self.on_crash == "rerun" { 3 } else { 0 }
    }
}

/// Whether the policies of a campaign vary.
pub(crate) fn vary() -> bool {
    !std::env::var("POLICIES").is_ok_and(|value| value == "0")
}

/// The policies of so many jobs in the campaign of this seed.
pub(crate) fn drawn(seed: u64, jobs: usize) -> Vec<Policies> {
    let mut chance = Chance::new(seed ^ OTHER_THAN_THE_PLAN);
    let mut one = || Policies {
        on_overlap: chance.one_of(&ON_OVERLAP),
        queue_limit: chance.one_of(&QUEUE_LIMIT),
        catch_up: chance.one_of(&CATCH_UP),
        on_crash: chance.one_of(&ON_CRASH),
        on_store_down: chance.one_of(&ON_STORE_DOWN),
    };
    (0..jobs).map(|_| one()).collect()
}

/// The scope of the job that each host has to itself, in the campaign of this seed.
pub(crate) fn scope(seed: u64) -> &'static str {
    Chance::new(seed ^ OTHER_THAN_THE_PLAN ^ 1).one_of(&SCOPE)
}
