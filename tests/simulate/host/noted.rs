//! Looking after runs by hand whose `trigger` died, as `store::manual` and `engine::daemon::manual`
//! do it.

use cronlatch::store::{ManualNote, NoteFate};

use super::daemon::{Daemon, KEEP};
use super::tasks::{Ask, RESPONSE};
use super::{Env, Timer};
use crate::message::{Reply, Request};

/// Every how many rounds the notes are read.
pub(super) const EVERY: u32 = 5;
/// A lease that ends before that is looked at when it ends, and how long after.
const SOON: i64 = 5_000;
const MARGIN: i64 = 50;

impl Daemon {
    pub(super) fn read_notes(&mut self, env: &mut Env<'_>) {
        self.ask_about_notes(env, Request::ManualRuns, Ask::Notes);
    }

    fn ask_about_notes(&mut self, env: &mut Env<'_>, request: Request, ask: Ask) {
        let id = env.send(request, RESPONSE);
        self.asked.insert(id, ask);
    }

    /// The store replied to a request about notes.
    pub(super) fn heard_of_notes(&mut self, env: &mut Env<'_>, ask: Ask, reply: Reply) {
        match (ask, reply) {
            (Ask::Notes, Reply::ManualRuns(notes)) => {
                for note in notes {
                    let request = Request::Jobs(note.run.job.clone(), note.run.lock.clone());
                    self.ask_about_notes(env, request, Ask::Noted(Box::new(note)));
                }
            }
            (Ask::Noted(note), Reply::Report(report)) => {
                let fate = note.fate(report.open.as_ref());
                self.decide(env, &note, fate);
            }
            (Ask::Ends(run_id), Reply::Settled(true)) => {
                self.ask_about_notes(env, Request::ForgetManual(run_id), Ask::Nothing);
            }
            _ => {}
        }
    }

    fn decide(&mut self, env: &mut Env<'_>, note: &ManualNote, fate: NoteFate) {
        let run_id = note.run.run_id.clone();
        match fate {
            NoteFate::Lives(left) => {
                let left = i64::try_from(left.as_millis()).unwrap_or(i64::MAX);
                if left < SOON {
                    env.arm(env.sim.now + left + MARGIN, Timer::Notes);
                }
            }
            NoteFate::Ended => {
                let settle = Request::Settle(Box::new(note.settle(KEEP)));
                self.ask_about_notes(env, settle, Ask::Ends(run_id));
            }
            NoteFate::Over => {
                self.ask_about_notes(env, Request::ForgetManual(run_id), Ask::Nothing);
            }
            NoteFate::Unclaimed => {}
        }
    }
}
