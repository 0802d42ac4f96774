//! What a host does: the engine's rules, in ticks.

use cronlatch::store::Overlap;

use crate::ids::{Tick, Ticket};
use crate::rules::{CatchUp, Defect, Rules};
use crate::world::{Answer, As, Ask, Gap, Host, Lane, Message, Phase, Run, Watch, Word, World};

impl As {
    /// What is late already is not lost to the run that made it late.
    pub(crate) fn overlap(self, rules: &Rules) -> Overlap {
        match (self, rules.catch_up) {
            (Self::Current, _) => rules.overlap,
            (Self::CaughtUp, CatchUp::All) => Overlap::Queue { limit: u32::MAX },
            (Self::CaughtUp | Self::Rerun | Self::Head, _) => Overlap::Wait,
        }
    }
}

impl Host {
    /// Whether an answer is one that this host waits for.
    pub(crate) fn awaits(&self, message: &Message) -> bool {
        if !self.up {
            return false;
        }
        let lane = &self.lanes[message.ask.job()];
        match &message.ask {
            Ask::Claim { ticket: asked, .. } => matches!(
                lane.phase,
                Phase::Claiming { ticket, sent, .. } if ticket == *asked && sent == message.sent
            ),
            Ask::Renew { ticket, .. } => self
                .runs
                .iter()
                .any(|run| run.ticket == *ticket && run.renewing == Some(message.sent)),
            Ask::Finish { ticket, .. } => {
                let mut ended = self.runs.iter().filter(|run| !run.alive);
                ended.any(|run| run.ticket == *ticket)
            }
            Ask::Register { version, .. } => {
                lane.phase == Phase::Asking && *version == self.version
            }
            Ask::Settle { .. } => true,
        }
    }

    /// Whether a verdict of this lane's is on the way, and its lease not over.
    fn is_closing(&self, job: usize, now: Tick) -> bool {
        let mut ended = self.runs.iter().filter(|run| !run.alive);
        ended.any(|run| run.job == job && run.end > now)
    }
}

impl Lane {
    fn free(&mut self, from: Tick) {
        self.phase = Phase::Free { from };
    }

    /// The occurrence is decided, here or elsewhere: on to the next.
    fn decided(&mut self, what: As) {
        match what {
            As::Rerun => {}
            As::Head => self.head_decided(),
            As::Current | As::CaughtUp => {
                self.next += 1;
                self.gap = None;
            }
        }
        self.free(0);
    }

    /// The head of the waiting list was decided: the ledger knows who comes next.
    fn head_decided(&mut self) {
        self.wait = None;
        self.blocked = false;
        self.stale = true;
    }
}

impl World {
    /// What the lane would claim now.
    pub(crate) fn to_claim(&self, rules: &Rules, host: usize, job: usize) -> Option<(Tick, As)> {
        let me = &self.hosts[host];
        let lane = me.lanes.get(job).filter(|_| me.up)?;
        let Phase::Free { from } = lane.phase else {
            return None;
        };
        if me.is_closing(job, self.now) {
            return None;
        }
        // The crashed run goes before newer ones: those would close it as interrupted.
        if let Some(watch) = lane.watch.as_ref().filter(|watch| watch.over <= self.now) {
            return Some((watch.at, As::Rerun));
        }
        if let Some((head, _)) = lane.wait.filter(|(_, from)| *from <= self.now) {
            return Some((head, As::Head));
        }
        if lane.blocked {
            return None;
        }
        let at = *rules.schedules[job][me.version].get(lane.next)?;
        let what = if lane.next < lane.late_until {
            As::CaughtUp
        } else {
            As::Current
        };
        let lead = match what {
            As::Current => rules.lead,
            As::CaughtUp | As::Rerun | As::Head => 0,
        };
        let fired = self.now + rules.clocks[host] + lead;
        (from <= self.now && at <= fired).then_some((at, what))
    }

    pub(crate) fn claim(&mut self, host: usize, job: usize, (at, what): (Tick, As)) {
        let ticket = self.new_ticket(host);
        let sent = self.now;
        self.hosts[host].lanes[job].phase = Phase::Claiming {
            ticket,
            at,
            what,
            sent,
        };
        self.send_claim(host, job);
    }

    fn send_claim(&mut self, host: usize, job: usize) {
        let version = self.hosts[host].version;
        let lane = &self.hosts[host].lanes[job];
        let Phase::Claiming {
            ticket,
            at,
            what,
            sent,
        } = lane.phase
        else {
            return;
        };
        let gap = (lane.gap.clone()).filter(|_| !matches!(what, As::Rerun | As::Head));
        let ask = Ask::Claim {
            job,
            at,
            version,
            what,
            ticket,
            gap,
        };
        self.send(host, sent, ask);
    }

    /// No answer: the same claim again.
    pub(crate) fn resend(&mut self, host: usize, job: usize) {
        let now = self.now;
        if let Phase::Claiming { sent, .. } = &mut self.hosts[host].lanes[job].phase {
            *sent = now;
        }
        self.send_claim(host, job);
    }

    /// No answer until the deadline: the claim is cancelled, and the ledger asked afresh.
    pub(crate) fn give_up(&mut self, host: usize, job: usize) {
        if let Phase::Claiming { ticket, at, .. } = self.hosts[host].lanes[job].phase {
            self.finish((host, job), at, ticket, Word::GivenBack);
            self.register(host, job);
        }
    }

    pub(crate) fn register(&mut self, host: usize, job: usize) {
        let version = self.hosts[host].version;
        let lane = &mut self.hosts[host].lanes[job];
        lane.phase = Phase::Asking;
        lane.stale = false;
        lane.gap = None;
        self.send(host, 0, Ask::Register { job, version });
    }

    pub(crate) fn register_all(&mut self, host: usize) {
        for job in 0..self.jobs.len() {
            self.register(host, job);
        }
    }

    fn finish(&mut self, (host, job): (usize, usize), at: Tick, ticket: Ticket, word: Word) {
        let ask = Ask::Finish {
            job,
            at,
            ticket,
            word,
        };
        self.send(host, 0, ask);
    }

    pub(crate) fn renew(&mut self, host: usize, run: usize) {
        let now = self.now;
        let run = &mut self.hosts[host].runs[run];
        run.renewing = Some(now);
        let ask = Ask::Renew {
            job: run.job,
            at: run.at,
            ticket: run.ticket,
            fence: run.fence,
            attempt: run.attempt,
        };
        self.send(host, now, ask);
    }

    /// The processes of a run are gone; its verdict goes out.
    pub(crate) fn end_run(&mut self, host: usize, run: usize, word: Word) {
        let run = &mut self.hosts[host].runs[run];
        run.alive = false;
        let (job, at, ticket) = (run.job, run.at, run.ticket);
        self.finish((host, job), at, ticket, word);
    }

    /// A run ends with its lease. One that still waits for its instant never starts.
    fn lose_run(&mut self, host: usize, run: usize) {
        if self.hosts[host].runs[run].begins > 0 {
            self.withdraw(host, run);
        } else {
            self.end_run(host, run, Word::Lost);
        }
    }

    /// A run is withdrawn before its instant: its occurrence goes back undecided.
    pub(crate) fn withdraw(&mut self, host: usize, run: usize) {
        let job = self.hosts[host].runs[run].job;
        self.hosts[host].lanes[job].stale = true;
        self.end_run(host, run, Word::GivenBack);
    }

    /// The instants of runs come for which they were granted ahead.
    pub(crate) fn start_prepared(&mut self, host: usize) {
        let now = self.now;
        let runs = &mut self.hosts[host].runs;
        let due = |run: &&mut Run| run.alive && run.begins > 0 && run.begins <= now;
        let mut started = Vec::new();
        for run in runs.iter_mut().filter(due) {
            run.begins = 0;
            started.push((run.job, run.at));
        }
        for (job, at) in started {
            self.fate(job, at).starts += 1;
        }
    }

    /// A job is dead before its lease ends; a verdict whose lease is over hinders nobody.
    pub(crate) fn end_leases(&mut self, host: usize) {
        let now = self.now;
        for run in 0..self.hosts[host].runs.len() {
            let it = &self.hosts[host].runs[run];
            if it.alive && it.end <= now {
                self.lose_run(host, run);
            }
        }
        self.hosts[host].runs.retain(|run| run.end > now);
    }

    /// The machine stops: daemon, guard and jobs with it.
    pub(crate) fn crash(&mut self, host: usize) {
        let host = &mut self.hosts[host];
        host.up = false;
        host.runs.clear();
        for lane in &mut host.lanes {
            (lane.next, lane.late_until, lane.gap, lane.watch) = (0, 0, None, None);
            (lane.wait, lane.blocked) = (None, false);
            lane.stale = false;
            lane.free(0);
        }
    }

    /// It starts again, with the newest job list.
    pub(crate) fn restart(&mut self, rules: &Rules, host: usize) {
        self.hosts[host].up = true;
        self.hosts[host].version = rules.schedules[0].len() - 1;
        self.register_all(host);
    }

    /// An answer arrives.
    pub(crate) fn hear(&mut self, rules: &Rules, message: &Message, answer: &Answer) {
        if !self.hosts[message.host].awaits(message) {
            return;
        }
        match &message.ask {
            Ask::Claim {
                job,
                at,
                what,
                ticket,
                ..
            } => self.hear_claimed(rules, message, (*job, *at, *what), *ticket, answer),
            Ask::Renew { ticket, .. } => self.hear_renewed(rules, message, *ticket, answer),
            Ask::Finish { ticket, .. } => {
                let host = &mut self.hosts[message.host];
                host.runs.retain(|run| run.ticket != *ticket);
            }
            Ask::Register { job, version } => {
                if let Answer::Registered { base, open, head } = answer {
                    let schedule = &rules.schedules[*job][*version];
                    self.hear_registered(
                        rules,
                        (message.host, *job),
                        schedule,
                        *base,
                        (open.as_ref(), *head),
                    );
                }
            }
            // Another has settled it, or it was given back: the ledger knows.
            Ask::Settle { job, .. } => {
                if *answer == Answer::NotSettled {
                    self.hosts[message.host].lanes[*job].stale = true;
                }
            }
        }
    }

    fn hear_claimed(
        &mut self,
        rules: &Rules,
        message: &Message,
        (job, at, what): (usize, Tick, As),
        ticket: Ticket,
        answer: &Answer,
    ) {
        let host = message.host;
        let now = self.now;
        let version = self.hosts[host].version;
        let lane = &mut self.hosts[host].lanes[job];
        match answer {
            Answer::Granted {
                fence,
                attempt,
                begins,
            } => {
                if what == As::Rerun {
                    lane.watch = None;
                    lane.stale |= rules.overlap != Overlap::Skip;
                }
                lane.decided(what);
                let run = Run {
                    ticket,
                    job,
                    at,
                    fence: *fence,
                    attempt: *attempt,
                    begins: if *begins > now { *begins } else { 0 },
                    end: 0,
                    alive: true,
                    renewing: None,
                };
                self.start(rules, message, run);
            }
            Answer::Recovering { until } if what == As::Rerun => {
                if let Some(watch) = &mut lane.watch {
                    watch.over = *until;
                }
                lane.free(0);
            }
            Answer::Early { until } | Answer::Recovering { until } => lane.free(*until),
            Answer::Running(watch) => {
                lane.watch = Some(watch.clone());
                lane.decided(what);
                if watch.over <= now {
                    lane.watch = None;
                    let run = watch.run;
                    self.send(host, 0, Ask::Settle { job, run });
                }
            }
            Answer::Decided => {
                if what == As::Rerun {
                    lane.watch = None;
                }
                lane.decided(what);
            }
            Answer::Waits {
                head,
                free,
                entered,
            } => {
                lane.wait = Some((*head, if *free { now } else { now + 1 }));
                match what {
                    As::Rerun => lane.watch = None,
                    As::Head => {}
                    As::Current | As::CaughtUp => {
                        lane.gap = None;
                        lane.blocked = !entered;
                        lane.next += usize::from(*entered);
                    }
                }
                lane.free(0);
            }
            Answer::Gap { last, horizon } => {
                let schedule = &rules.schedules[job][version];
                lane.answer_gap(rules.catch_up, schedule, *last, *horizon);
            }
            _ => lane.decided(what),
        }
    }

    /// A grant: the run starts, or waits for its instant, unless its lease is over.
    fn start(&mut self, rules: &Rules, message: &Message, mut run: Run) {
        let (job, at, ticket) = (run.job, run.at, run.ticket);
        let from = if rules.is(Defect::LeaseFromReply) {
            self.now
        } else {
            message.sent
        };
        run.end = from + rules.ttl;
        let host = message.host;
        if run.end > self.now {
            if run.begins == 0 {
                self.fate(job, at).starts += 1;
            }
            self.hosts[host].runs.push(run);
        } else {
            self.finish((host, job), at, ticket, Word::NeverStarted);
        }
    }

    fn hear_renewed(&mut self, rules: &Rules, message: &Message, ticket: Ticket, answer: &Answer) {
        let runs = &mut self.hosts[message.host].runs;
        let Some(index) = runs.iter().position(|run| run.ticket == ticket) else {
            return;
        };
        let run = &mut runs[index];
        run.renewing = None;
        if *answer == Answer::Renewed {
            run.end = run.end.max(message.sent + rules.ttl);
        } else if run.alive {
            self.lose_run(message.host, index);
            self.hosts[message.host].runs.remove(index);
        }
    }

    /// The ledger's word: what lies between it and now is caught up with.
    fn hear_registered(
        &mut self,
        rules: &Rules,
        (host, job): (usize, usize),
        schedule: &[Tick],
        base: Tick,
        (open, head): (Option<&Watch>, Option<Tick>),
    ) {
        let now = self.now + rules.clocks[host];
        let me = &mut self.hosts[host];
        let own = me.runs.iter().any(|run| run.job == job);
        let lane = &mut me.lanes[job];
        if !own {
            lane.watch = open.cloned();
        }
        lane.wait = head.map(|head| (head, 0));
        lane.blocked = false;
        lane.next = schedule.partition_point(|at| *at <= base);
        lane.late_until = schedule.partition_point(|at| *at <= now);
        if rules.catch_up == CatchUp::Latest {
            lane.next = lane.next.max(lane.late_until.saturating_sub(1));
        }
        lane.free(0);
    }
}

impl Lane {
    fn answer_gap(
        &mut self,
        policy: CatchUp,
        schedule: &[Tick],
        last: Tick,
        horizon: Option<Tick>,
    ) {
        let first = schedule.partition_point(|at| *at <= last);
        let gap = &schedule[first..self.next];
        let forgotten = gap.partition_point(|at| horizon.is_some_and(|horizon| *at <= horizon));
        let (unknown, rest) = gap.split_at(forgotten);
        let missed = match policy {
            CatchUp::All => {
                self.late_until = self.late_until.max(self.next);
                self.next = first + forgotten;
                Vec::new()
            }
            CatchUp::Latest => rest.to_vec(),
        };
        self.gap = Some(Gap {
            last,
            unknown: unknown.to_vec(),
            missed,
        });
        self.free(0);
    }
}
