//! A request reaches the store: the protocol's own functions answer it, an onlooker watches.

use std::time::Duration;

use cronlatch::store::protocol::{self, Effect, Key, REASON_UNKNOWN};
use cronlatch::store::{
    Claim, ClaimReply, ClaimTarget, DroppedRange, Due, Finish, GapAnswer, Grant, GrantedRun, Kind,
    Late, OpenRun, Outcome, Overlap, Range, Record, Registration, RenewReply, Renewal, RunStatus,
    RunTerms, Settle,
};
use cronlatch::time::BootInstant;

use crate::ids::{self, Tick, Ticket, fingerprint, in_ticks, instant, tick_of, ticks};
use crate::rules::{Defect, Rules};
use crate::world::{Answer, As, Ask, Gap, Message, Watch, Word, World, verdict};

const KEEP: cronlatch::store::Retention = cronlatch::store::Retention::of_records(100);

impl World {
    /// Serves a request and answers it.
    pub(crate) fn serve(&mut self, rules: &Rules, message: &Message) -> Answer {
        let before = self.lock.key.clone();
        let began: Vec<bool> = self.jobs.iter().map(Option::is_some).collect();
        let answer = match &message.ask {
            Ask::Claim { ticket, .. } => self.serve_claim(rules, message, *ticket),
            Ask::Renew { .. } => self.serve_renewal(rules, message),
            Ask::Finish {
                job,
                at,
                ticket,
                word,
            } => self.serve_finish(rules, message.host, (*job, *at), *ticket, *word),
            Ask::Settle { job, run } => self.serve_settle(rules, *job, *run),
            Ask::Register { job, version } => self.serve_registration(rules, *job, *version),
        };
        if rules.is(Defect::NoRing) {
            self.lock.finished.clear();
        }
        for (job, known) in began.into_iter().enumerate() {
            if !known
                && self.seen.began[job].is_none()
                && let Some(state) = &self.jobs[job]
            {
                let prev = match &message.ask {
                    Ask::Claim { at, version, .. } => rules.before(job, *version, *at),
                    _ => tick_of(state.last),
                };
                self.seen.began[job] = Some(prev);
            }
        }
        self.watch_lock(rules, &message.ask, &before);
        answer
    }

    /// No request changes a lock that is another's, and none that finished takes it again.
    fn watch_lock(&mut self, rules: &Rules, ask: &Ask, before: &Key) {
        let own = match ask {
            Ask::Claim { ticket, .. } | Ask::Renew { ticket, .. } | Ask::Finish { ticket, .. } => {
                Some(ticket.token())
            }
            Ask::Settle { .. } | Ask::Register { .. } => None,
        };
        if let Key::Value { text, .. } = before
            && own.is_none_or(|own| own.as_str() != text)
            && self.lock.key != *before
            // Data of the past may tell of a lease that has long ended.
            && self.is_running(Ticket::of_token(text), rules)
        {
            self.seen.trespass = true;
        }
        if let Key::Value { text, .. } = &self.lock.key
            && self.seen.finished.contains(&Ticket::of_token(text))
        {
            self.seen.revived = true;
        }
    }

    fn serve_claim(&mut self, rules: &Rules, message: &Message, ticket: Ticket) -> Answer {
        let Some((job, claim)) = claim_of(rules, message, ticket) else {
            return Answer::Finished;
        };
        if rules.is(Defect::EvictedIsFree) && self.lock.key == Key::Absent {
            self.lock.token = None;
            self.lock.lease_end = 0;
        }
        let now = self.now;
        let (bare, known) = (ids::clock(now + self.ahead), self.jobs[job].as_ref());
        let clock = match protocol::settled(&self.lock, known, bare, &claim) {
            // The short way does not look at the marker.
            Some(_) => bare,
            None => self.clock(rules),
        };
        let (reply, effects) = protocol::claim(&mut self.lock, &mut self.jobs[job], clock, &claim);
        self.record(rules, message, effects);
        match reply {
            ClaimReply::Granted {
                fence,
                attempt,
                starts_in,
                ..
            } => {
                let own = self.seen.fence_of == Some(ticket);
                let rises = fence > self.seen.fence || own && fence == self.seen.fence;
                self.seen.fence_fell |= !rises;
                self.seen.fence = fence;
                self.seen.fence_of = Some(ticket);
                Answer::Granted {
                    fence: if rules.is_forgetful() { fence } else { 0 },
                    attempt,
                    begins: match in_ticks(starts_in) {
                        0 => 0,
                        wait => now + wait,
                    },
                }
            }
            ClaimReply::Recovering { remaining } => Answer::Recovering {
                until: now + in_ticks(remaining),
            },
            ClaimReply::Unknown => Answer::Unknown,
            ClaimReply::Early { by } => Answer::Early {
                until: now + in_ticks(by),
            },
            ClaimReply::AlreadyClaimed(RunStatus::Running {
                run_id, remaining, ..
            }) => Answer::Running(Watch {
                run: Ticket::of_run(run_id.as_str()),
                at: at_of(&message.ask),
                over: now + in_ticks(remaining),
            }),
            // But for the first, nothing in these worlds asks for them: no limit, no pause, no outage,
            // no clock that is set back.
            ClaimReply::AlreadyClaimed(RunStatus::Decided)
            | ClaimReply::QueueFull
            | ClaimReply::Paused(_)
            | ClaimReply::Stale
            | ClaimReply::Moved { .. }
            | ClaimReply::Dropped
            | ClaimReply::Ahead { .. } => Answer::Decided,
            ClaimReply::Gap { last, horizon, .. } => Answer::Gap {
                last: tick_of(last),
                horizon: horizon.map(tick_of),
            },
            ClaimReply::TooLate => Answer::TooLate,
            ClaimReply::Held { .. } => Answer::Held,
            ClaimReply::Waits {
                head, entered, by, ..
            } => Answer::Waits {
                head: tick_of(head.scheduled_at),
                free: by.is_none(),
                entered,
            },
            ClaimReply::Finished => Answer::Finished,
        }
    }

    fn serve_renewal(&mut self, rules: &Rules, message: &Message) -> Answer {
        let Ask::Renew {
            job,
            at,
            ticket,
            fence,
            attempt,
        } = message.ask
        else {
            return Answer::NotRenewed;
        };
        let run = GrantedRun {
            job: ids::job(job),
            scheduled_at: Some(instant(at)),
            attempt,
            kind: Kind::Schedule,
            started_at: instant(0),
            terms: RunTerms {
                reruns: attempt.saturating_sub(1),
                ..terms(rules, at)
            },
        };
        let renewal = Renewal {
            grant: Grant {
                lock: ids::lock(),
                token: ticket.token(),
                run_id: ticket.run_id(),
                fence,
                ttl: ticks(rules.ttl),
                sent: BootInstant::BOOT,
                starts_at: None,
            },
            run: Some(run),
        };
        let clock = self.clock(rules);
        let (reply, effects) =
            protocol::renew(&mut self.lock, &mut self.jobs[job], clock, &renewal);
        self.write(rules, job, 0, effects);
        match reply {
            RenewReply::Renewed => Answer::Renewed,
            RenewReply::Taken | RenewReply::Absent | RenewReply::Unanswered => Answer::NotRenewed,
        }
    }

    /// Whether a run of this claim is alive; where no data are lost, every holder counts.
    fn is_running(&self, ticket: Ticket, rules: &Rules) -> bool {
        let mut runs = self.hosts.iter().flat_map(|host| &host.runs);
        !rules.is_forgetful() || runs.any(|run| run.alive && run.ticket == ticket)
    }

    fn serve_finish(
        &mut self,
        rules: &Rules,
        host: usize,
        (job, at): (usize, Tick),
        ticket: Ticket,
        word: Word,
    ) -> Answer {
        let ledger = !rules.is(Defect::NoLedger);
        let record = (word != Word::GivenBack).then(|| record(job, at, (host, ticket), word));
        let finish = Finish {
            lock: ids::lock(),
            token: ticket.token(),
            record: record.filter(|_| ledger),
            job: ledger.then(|| ids::job(job)),
            give_back: word == Word::GivenBack,
            keep: KEEP,
        };
        let now = self.clock(rules);
        let (_, effects) = protocol::finish(&mut self.lock, &mut self.jobs[job], now, &finish);
        self.write(rules, job, 0, effects);
        if rules.is(Defect::NoToken) {
            self.lock.key = Key::Absent;
            self.lock.token = None;
        }
        if !self.seen.finished.contains(&ticket) {
            self.seen.finished.push(ticket);
        }
        Answer::Done
    }

    fn serve_settle(&mut self, rules: &Rules, job: usize, run: Ticket) -> Answer {
        let settle = Settle {
            lock: ids::lock(),
            job: ids::job(job),
            run_id: run.run_id(),
            keep: KEEP,
        };
        let now = self.clock(rules);
        let (settled, effects) =
            protocol::settle(&mut self.lock, &mut self.jobs[job], now, &settle);
        for effect in effects {
            self.note(&effect, |_| Vec::new());
        }
        if settled {
            Answer::Done
        } else {
            Answer::NotSettled
        }
    }

    fn serve_registration(&mut self, rules: &Rules, job: usize, version: usize) -> Answer {
        let registration = Registration {
            job: ids::job(job),
            lock: ids::lock(),
            fingerprint: fingerprint(version),
            ttl: ticks(rules.ttl),
        };
        let now = self.clock(rules);
        let registered = protocol::register(&self.lock, &mut self.jobs[job], now, &registration);
        Answer::Registered {
            base: tick_of(registered.decided_until),
            open: registered.open.and_then(|open| watch_of(&open, self.now)),
            head: registered.head.map(|head| tick_of(head.scheduled_at)),
        }
    }

    fn record(&mut self, rules: &Rules, message: &Message, effects: Vec<Effect>) {
        let Ask::Claim { job, version, .. } = &message.ask else {
            return;
        };
        self.write(rules, *job, *version, effects);
    }

    fn write(&mut self, rules: &Rules, job: usize, version: usize, effects: Vec<Effect>) {
        let schedule = &rules.schedules[job][version];
        for effect in effects {
            self.note(&effect, |(from, until)| {
                let within = schedule.iter().filter(|at| from < **at && **at <= until);
                within.copied().collect()
            });
        }
    }

    /// Keeps what a record says; `between` tells what lies in the rest of its range.
    fn note(&mut self, effect: &Effect, between: impl Fn((Tick, Tick)) -> Vec<Tick>) {
        let Effect::Append { record, .. } = effect else {
            return;
        };
        let Some(from) = record.scheduled_at else {
            return;
        };
        let said = match record.outcome {
            Outcome::Interrupted => verdict::INTERRUPTED,
            Outcome::Skipped => verdict::SKIPPED,
            Outcome::Missed => verdict::MISSED,
            Outcome::Unknown => verdict::UNKNOWN,
            Outcome::LeaseLost if record.attempts == 0 => verdict::LATE,
            _ => verdict::RAN,
        };
        let mut all = vec![tick_of(from)];
        if let Some(until) = record.until {
            all.extend(between((tick_of(from), tick_of(until))));
        }
        let job = ids::index_of(&record.job);
        for at in all {
            self.fate(job, at).verdicts |= said;
        }
    }
}

fn at_of(ask: &Ask) -> Tick {
    match ask {
        Ask::Claim { at, .. } | Ask::Finish { at, .. } => *at,
        Ask::Renew { .. } | Ask::Settle { .. } | Ask::Register { .. } => 0,
    }
}

fn watch_of(open: &OpenRun, now: Tick) -> Option<Watch> {
    Some(Watch {
        run: Ticket::of_run(open.run_id.as_str()),
        at: tick_of(open.scheduled_at?),
        over: now + in_ticks(open.remaining),
    })
}

/// The claim as the daemon writes it.
fn claim_of(rules: &Rules, message: &Message, ticket: Ticket) -> Option<(usize, Claim)> {
    let Ask::Claim {
        job,
        at,
        version,
        what,
        gap,
        ..
    } = &message.ask
    else {
        return None;
    };
    let mut due = Due {
        scheduled_at: instant(*at),
        not_before: instant(*at),
        deadline: instant(at + rules.deadline),
        prev: Some(instant(rules.before(*job, *version, *at))),
        fingerprint: fingerprint(*version),
        gap: gap.as_ref().map(answer_of),
        late: Late::Miss,
        max_reruns: rules.max_reruns,
        max_attempts: 0,
        rerun_window: terms(rules, *at).rerun_window,
        lead: if *what == As::Current && gap.is_none() {
            ticks(rules.lead)
        } else {
            Duration::ZERO
        },
    };
    if rules.is(Defect::NoGapRule) {
        (due.prev, due.gap) = (None, None);
    }
    if rules.is(Defect::LedgerByFireTime) {
        let fired = instant(message.sent + rules.clocks[message.host]);
        (due.scheduled_at, due.not_before, due.prev) = (fired, instant(0), None);
    }
    let what = if rules.is(Defect::NoLedger) {
        ClaimTarget::Lock
    } else {
        ClaimTarget::Occurrence {
            job: ids::job(*job),
            kind: what.kind(),
            due,
            overlap: what.overlap(rules),
            keep: KEEP,
        }
    };
    let claim = Claim {
        lock: ids::lock(),
        token: ticket.token(),
        run_id: ticket.run_id(),
        ttl: ticks(rules.ttl),
        what,
    };
    Some((*job, claim))
}

/// What a claim asks the ledger to keep.
fn terms(rules: &Rules, at: Tick) -> RunTerms {
    RunTerms {
        deadline: instant(at + rules.deadline),
        rerun_window: ticks(100),
        max_reruns: rules.max_reruns,
        yields: rules.overlap == Overlap::Wait,
        ..RunTerms::NONE
    }
}

fn answer_of(gap: &Gap) -> GapAnswer {
    let drop = |all: &[Tick], outcome, reason: &str| {
        let (from, until) = all.first().zip(all.last())?;
        Some(DroppedRange {
            range: Range {
                from: instant(*from),
                until: instant(*until),
                count: all.len() as u64,
            },
            outcome,
            reason: reason.to_owned(),
        })
    };
    let unknown = drop(&gap.unknown, Outcome::Unknown, REASON_UNKNOWN);
    let missed = drop(&gap.missed, Outcome::Missed, "nobody was there in time");
    GapAnswer {
        if_last: instant(gap.last),
        drop: unknown.into_iter().chain(missed).collect(),
    }
}

fn record(job: usize, at: Tick, (host, ticket): (usize, Ticket), word: Word) -> Record {
    let outcome = match word {
        Word::Succeeded => Outcome::Succeeded,
        _ => Outcome::LeaseLost,
    };
    Record {
        run_id: Some(ticket.run_id()),
        scheduled_at: Some(instant(at)),
        host: Some(ids::host_name(host)),
        attempts: u32::from(word != Word::NeverStarted),
        ..Record::blank(ids::job(job), Kind::Schedule, outcome)
    }
}
