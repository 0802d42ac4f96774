//! What reaches the daemon: replies, releases and timers, as `engine::daemon::serve` takes them.

use std::time::Duration;

use cronlatch::engine::simulated::{Epoch, Event, JobIx, Offset};
use cronlatch::names::JobName;
use cronlatch::store::{Registered, StoreError};
use cronlatch::time::{BootInstant, Timestamp};

use super::Daemon;
use crate::host::finisher::Notice;
use crate::host::registry::Next;
use crate::host::tasks::{Ask, RESPONSE, Then};
use crate::host::ticker::Fired;
use crate::host::{Env, Timer, noted};
use crate::message::{Reply, unanswered};
use crate::trace::Admitted;

impl Daemon {
    pub(super) fn waits_for(&self, id: u64) -> bool {
        self.asked.contains_key(&id) || self.finisher.waits_for(id) || self.runner.waits_for(id)
    }

    /// The store answered, or refused the connection.
    pub(in crate::host) fn answered(
        &mut self,
        env: &mut Env<'_>,
        id: u64,
        result: Result<Box<Reply>, StoreError>,
    ) {
        self.dispatch(env, id, result);
        self.follow(env);
    }

    pub(super) fn dispatch(
        &mut self,
        env: &mut Env<'_>,
        id: u64,
        result: Result<Box<Reply>, StoreError>,
    ) {
        let finished = match result.as_deref() {
            Ok(Reply::Finished(reply)) => Some(reply.clone()),
            _ => None,
        };
        if let Some((lease, notices)) = self.finisher.tried(env, id, finished) {
            if let Some(lease) = lease {
                self.runner.let_go(env, lease);
            }
            for notice in notices {
                self.notice(env, &notice);
            }
            return;
        }
        let replies = match result.as_deref() {
            Ok(Reply::Renew(replies)) => Some(replies.clone()),
            _ => None,
        };
        let reply = result.as_deref().ok();
        if self.runner.counted(env, id, reply) || self.runner.renewed(env, id, replies) {
            return;
        }
        let Some(ask) = self.asked.remove(&id) else {
            return;
        };
        match (ask, result.map(|reply| *reply)) {
            (Ask::Task(id), Ok(reply)) => self.task_answered(env, id, reply),
            (Ask::Task(id), Err(_)) => self.task_failed(env, id),
            (Ask::Measure { sent, began, then }, Ok(Reply::Now(theirs))) => {
                self.compare_clocks(env, (sent, began, theirs), then);
            }
            (Ask::Measure { then, .. }, _) => match then {
                Then::Register(jobs) => self.not_registered(env, jobs),
                Then::Announce => self.store_failed(env),
                Then::Up => self.probe_again(env),
            },
            (Ask::Enter(entering), Ok(reply)) => match entering.go_on(env.name, reply) {
                Next::Send(request, entering) => self.enter(env, request, entering),
                Next::Done(mut entering) => {
                    // A reload may have replaced some of them meanwhile.
                    entering
                        .entries
                        .retain(|(job, ..)| self.jobs.contains_key(job));
                    entering.held.retain(|job| self.jobs.contains_key(job));
                    self.registry.entered(entering.entries);
                    for job in entering.held {
                        if let Some((of, _)) = self.jobs.get(&job) {
                            let (name, host) = (of.name.clone(), env.name.clone());
                            let line = || format!("HELD {host} {name}");
                            env.sim.trace.line(env.sim.now, line);
                        }
                        self.registry.held(job);
                        self.held.insert(job, false);
                        self.ready = true;
                    }
                    self.register_known(env, entering.jobs);
                }
                Next::Failed(entering) => self.not_registered(env, entering.all()),
            },
            (Ask::Enter(entering), Err(_)) => self.not_registered(env, entering.all()),
            (Ask::Registry(round), Ok(reply)) => match round.go_on(env.name, reply) {
                Next::Send(request, round) => {
                    let id = env.send(request, RESPONSE);
                    self.asked.insert(id, Ask::Registry(Box::new(round)));
                }
                Next::Done(round) | Next::Failed(round) => self.registry_news(env, &round),
            },
            (Ask::Registry(_), Err(_)) => {
                self.registry.busy = false;
                self.store_failed(env);
            }
            (Ask::Register(jobs), Ok(Reply::Registered(answers))) => {
                self.registered(env, jobs, answers);
            }
            (Ask::Register(jobs), _) => self.not_registered(env, jobs),
            (Ask::Announce, Err(_)) => self.store_failed(env),
            (Ask::Probe, Ok(_)) if self.compares => self.measure(env, Then::Up),
            (Ask::Probe, Ok(_)) => self.store_answers(env),
            (Ask::Probe, Err(_)) => self.probe_again(env),
            (ask @ (Ask::Notes | Ask::Noted(_) | Ask::Ends(_)), Ok(reply)) => {
                self.heard_of_notes(env, ask, reply);
            }
            (Ask::Announce, Ok(_))
            | (Ask::Notes | Ask::Noted(_) | Ask::Ends(_) | Ask::Nothing, _) => {}
        }
    }

    fn note_admitted(&self, env: &mut Env<'_>, job: JobIx) {
        let Some((job, _)) = self.jobs.get(&job) else {
            return;
        };
        let trace = &mut env.sim.trace;
        trace.admitted.push(Admitted {
            at: env.sim.now,
            host: trace.lives[self.noted].host,
            job: job.name.to_string(),
        });
    }

    /// The store replied to a registration. A reload may have replaced some of the jobs meanwhile.
    fn registered(&mut self, env: &mut Env<'_>, jobs: Vec<JobIx>, answers: Vec<Registered>) {
        self.last_answer = Some(env.sim.now);
        let recovering = answers.iter().map(|answer| answer.recovering).max();
        let recovering = recovering.unwrap_or_default();
        let mut waits = false;
        for (job, answer) in jobs.iter().zip(&answers) {
            let recovers = !answer.recovering.is_zero();
            waits |= recovers && self.registry.waits_for_others(*job);
        }
        self.store_recovers(env, recovering);
        if waits {
            self.look_after_registry(env);
        }
        for (job, answer) in jobs.into_iter().zip(answers) {
            if !self.jobs.contains_key(&job) {
                continue;
            }
            if answer.moved {
                self.registry.leave(job);
            }
            if !self.registry.knows(job) {
                self.to_register.push(job);
                continue;
            }
            let recovers = !answer.recovering.is_zero();
            if !self.registry.is_settled(job, recovers) {
                self.registry.leave(job);
                self.again.push(job);
                env.arm(after(env.sim.now, recovering), Timer::RegisterAgain);
                continue;
            }
            self.held.remove(&job);
            self.note_admitted(env, job);
            self.feed(env, Event::Registered { job, reply: answer });
        }
        self.flush_if_up(env);
        if !self.ready {
            self.ready = true;
            self.measure_and_announce(env);
        }
    }

    /// The store told its clock.
    fn compare_clocks(
        &mut self,
        env: &mut Env<'_>,
        (sent, began, theirs): (Timestamp, BootInstant, Timestamp),
        then: Then,
    ) {
        let epoch = Epoch::of(sent, began);
        if epoch != Epoch::of(env.utc(), env.sim.boot()) {
            // The wall clock was stepped in between.
            return self.measure(env, then);
        }
        let error = env.sim.boot().since(began) / 2;
        let ours = sent.plus(error);
        let millis = ours.millis() - theirs.millis();
        let offset = Offset { millis, error };
        if offset.is_unusable() {
            return self.measure(env, then);
        }
        self.measured = true;
        self.clock_measured(env, offset, epoch);
        match then {
            Then::Up => self.store_answers(env),
            Then::Announce => self.announce(env),
            Then::Register(jobs) => self.when_idle(env, jobs),
        }
    }

    pub(super) fn notice(&mut self, env: &mut Env<'_>, notice: &Notice) {
        match notice {
            Notice::Closed(job) => self.feed(env, Event::RunClosed { job: *job }),
            Notice::StoreFailed => self.store_failed(env),
            Notice::Returned(job) => env.tell_returned(job),
        }
    }

    pub(in crate::host) fn released(&mut self, env: &mut Env<'_>, lock: &str) {
        if let Some(eventful) = self.channels.get_mut(lock) {
            *eventful = env.sim.now;
        }
        let woken = self.waits.iter().filter(|(_, of)| *of == lock);
        for (job, claim) in woken.map(|(wait, _)| *wait).collect::<Vec<_>>() {
            self.waits.remove(&(job, claim));
            self.feed(env, Event::Woken { job, claim });
        }
        self.follow(env);
    }

    /// Another host returned an occurrence undecided.
    pub(in crate::host) fn returned(&mut self, env: &mut Env<'_>, job: &JobName) {
        if let Some(job) = self.names.get(job).copied() {
            self.feed(env, Event::Returned { job: Some(job) });
            self.follow(env);
        }
    }

    pub(in crate::host) fn timer(&mut self, env: &mut Env<'_>, timer: Timer) {
        match timer {
            Timer::GiveUp(id) if self.waits_for(id) => self.dispatch(env, id, Err(unanswered())),
            Timer::GiveUp(_) => return,
            Timer::Core => {
                self.core_armed = None;
                self.feed(env, Event::Timer);
            }
            Timer::Poll => {
                self.ticker.poll(env, &self.clock);
                self.fire(env);
            }
            Timer::Tick(job) => {
                self.ticker.tick(env, &self.clock, job);
                self.fire(env);
            }
            Timer::Round => {
                env.arm(env.sim.now + 1_000, Timer::Round);
                self.rounds += 1;
                self.recovers = self.recovers.filter(|until| env.sim.now < *until);
                if !self.compares {
                    // A file does not name the job, so any job may be concerned.
                    self.feed(env, Event::Returned { job: None });
                }
                if self.up && self.shutdown.is_none() {
                    for (job, asked) in &mut self.held {
                        if !std::mem::replace(asked, true) {
                            self.to_register.push(*job);
                        }
                    }
                    self.flush(env);
                }
                if self.rounds.is_multiple_of(10) && self.ready {
                    self.measure_and_announce(env);
                    self.look_after_registry(env);
                }
                if self.rounds.is_multiple_of(noted::EVERY) && self.ready && self.up {
                    self.read_notes(env);
                }
            }
            Timer::Notes => {
                if self.up {
                    self.read_notes(env);
                }
            }
            Timer::Task(id) => {
                if self.up {
                    self.send_task(env, id);
                } else if let Some(task) = self.tasks.get_mut(&id) {
                    task.waits = true;
                }
            }
            Timer::Waited(job, claim) => {
                if self.waits.remove(&(job, claim)).is_some() {
                    self.feed(env, Event::Woken { job, claim });
                }
            }
            Timer::Finisher => {
                for notice in self.finisher.wake(env, &self.runner) {
                    self.notice(env, &notice);
                }
            }
            Timer::Probe => {
                let id = self.announcement(env);
                self.asked.insert(id, Ask::Probe);
            }
            Timer::Watchdog => self.runner.tend(env),
            Timer::Started => self.resources_back(env),
            Timer::Exited(process, report) => self.runner.exited(env, process, report),
            Timer::Retry(run) => self.runner.retry(env, run),
            Timer::TimedOut(run, tries) => self.runner.timed_out(env, run, tries),
            Timer::RegisterAgain => {
                self.to_register.append(&mut self.again);
                if self.up {
                    self.flush(env);
                }
            }
            Timer::Idle | Timer::Hand => {}
            Timer::Shutdown => self.deadline_passed(env),
        }
        self.follow(env);
    }

    pub(super) fn fire(&mut self, env: &mut Env<'_>) {
        let fired = self.ticker.fired();
        self.fire_all(env, fired);
    }

    pub(super) fn fire_all(&mut self, env: &mut Env<'_>, fired: Vec<Fired>) {
        for (name, at) in fired {
            if let Some(job) = self.names.get(&name).copied() {
                self.feed(env, Event::Due { job, at });
            }
        }
    }
}

fn after(now: i64, wait: Duration) -> i64 {
    now + i64::try_from(wait.as_millis()).unwrap_or(0).max(1)
}
