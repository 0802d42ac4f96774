//! The senders of all targets and monitoring services.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::Arc;

use super::decide::{NotifyRule, event_of};
use super::deliver::http::HttpClient;
use super::deliver::{Delivery, SendEnvironment};
use super::fact::NotifiedList;
use super::notice::Notice;
use super::outbox::{Outbox, Storm};
use super::ping::{PingQueue, PingRequest, PingedRun, Signal};
use super::reading::Question;
use super::sender::Sender;
use crate::config::{Channel, Job, JobEvent, JobList, NotifyTarget, Template};
use crate::names::TargetName;

/// The threads of one monitoring service. All requests about a job go through the same one.
const PINGERS: usize = 4;

/// How many threads the notifications of a list need.
pub(crate) fn threads(list: &JobList) -> usize {
    let pings = list.jobs.iter().filter_map(|job| job.alerts.ping.as_ref());
    let origins: BTreeSet<&str> = pings.map(|ping| ping.url().origin()).collect();
    list.notify.len() + PINGERS * origins.len()
}

/// A target and its sender.
type TargetSender = (NotifyTarget, Sender<Outbox>);

/// The threads of each monitoring service, by origin.
type Pingers = HashMap<String, Vec<Sender<PingQueue>>>;

/// The senders.
pub(super) struct Outbound {
    client: HttpClient,
    environment: SendEnvironment,
    targets: Vec<TargetSender>,
    pingers: Pingers,
}

impl Outbound {
    /// Starts the senders that a list needs.
    pub(super) fn start(list: &NotifiedList) -> io::Result<Self> {
        let mut outbound = Self::empty(HttpClient::default(), &list.environment);
        for target in used(list) {
            let started = outbound.start_target(target)?;
            outbound.targets.push(started);
        }
        for (origin, name) in origins(list) {
            let started = outbound.start_pingers(&name)?;
            outbound.pingers.insert(origin, started);
        }
        Ok(outbound)
    }

    fn empty(client: HttpClient, environment: &SendEnvironment) -> Self {
        Self {
            client,
            environment: Arc::clone(environment),
            targets: Vec::new(),
            pingers: Pingers::new(),
        }
    }

    /// Starts the senders that a new list needs in addition, and returns those that it does not
    /// need. A target with another address gets a new sender.
    pub(super) fn replace(&mut self, list: &NotifiedList) -> Self {
        let same_environment = self.environment == list.environment;
        self.environment = Arc::clone(&list.environment);
        let mut retired = Self::empty(self.client.clone(), &list.environment);
        retired.targets = std::mem::take(&mut self.targets);
        for target in used(list) {
            let is_same = |(before, _): &TargetSender| {
                before.name == target.name
                    && before.channel == target.channel
                    && (same_environment || matches!(target.channel, Channel::Http(_)))
            };
            let kept = retired.targets.iter().position(is_same);
            let started = match kept.map(|at| retired.targets.swap_remove(at)) {
                Some((_, sender)) => Ok((target.clone(), sender)),
                None => self.start_target(target),
            };
            match started {
                Ok(started) => self.targets.push(started),
                Err(error) => not_started(target.name.as_str(), &error),
            }
        }
        retired.pingers = std::mem::take(&mut self.pingers);
        for (origin, name) in origins(list) {
            let started = match retired.pingers.remove(&origin) {
                Some(kept) => Ok(kept),
                None => self.start_pingers(&name),
            };
            match started {
                Ok(started) => drop(self.pingers.insert(origin, started)),
                Err(error) => not_started(&name, &error),
            }
        }
        retired
    }

    fn start_target(&self, target: &NotifyTarget) -> io::Result<TargetSender> {
        let (client, environment) = (self.client.clone(), Arc::clone(&self.environment));
        let delivery = Delivery::new(&target.channel, client, environment);
        let outbox = Outbox::new(storm(target), std::time::Instant::now());
        let name = format!("{} ({})", target.name, target.channel.kind());
        let send = move |message: &_, limit| delivery.deliver(message, limit);
        Ok((target.clone(), Sender::start(name, outbox, send)?))
    }

    fn start_pingers(&self, name: &str) -> io::Result<Vec<Sender<PingQueue>>> {
        let start = |_| {
            let client = self.client.clone();
            let send = move |request: &PingRequest, limit| request.send(&client, limit);
            Sender::start(name.to_owned(), PingQueue::default(), send)
        };
        (0..PINGERS).map(start).collect()
    }

    /// The targets of a job.
    pub(super) fn of<'a>(
        &'a self,
        job: &'a Job,
    ) -> impl Iterator<Item = (&'a NotifyTarget, &'a Sender<Outbox>)> {
        let all = self.targets.iter().map(|(target, sender)| (target, sender));
        all.filter(|(target, _)| job.alerts.targets.contains(&target.name))
    }

    /// Sends a notice to the targets of a job that want its event.
    pub(super) fn push(&self, job: &Job, notice: &Arc<Notice>) {
        for (target, sender) in self.of(job) {
            if target.on.contains(&notice.event) {
                sender.push(Arc::clone(notice));
            }
        }
    }

    /// Whether the answer to a question depends on the job's history.
    pub(super) fn needs_history(&self, job: &Job, question: &Question) -> bool {
        let event = match question {
            Question::Verdict(record) => event_of(record),
            // The verdict itself is read from the history.
            Question::Passing | Question::Settled(_) => return true,
        };
        let expected = job.alerts.expect_success_within;
        let needs = |(target, _): (&NotifyTarget, _)| {
            let rule = NotifyRule { target, expected };
            event.is_some_and(|event| rule.needs_history(event))
        };
        self.of(job).any(needs)
    }

    /// The shortest `repeat` of the targets that receive `overdue` of a job.
    pub(super) fn shortest_repeat(&self, job: &Job) -> Option<std::time::Duration> {
        let targets = self.of(job).map(|(target, _)| target);
        let receive = targets.filter(|target| target.on.contains(&JobEvent::Overdue));
        receive.filter_map(|target| target.repeat).min()
    }

    /// Reports a signal to the job's monitoring service, if it has one.
    pub(super) fn ping(&self, job: &Job, run: PingedRun<'_>, signal: Signal<'_>) {
        let Some(ping) = &job.alerts.ping else { return };
        let threads = self.pingers.get(ping.url().origin());
        if let (Some(threads), Some(request)) = (threads, PingRequest::new(ping, run, signal)) {
            let number = job.name.as_str().bytes().fold(0_usize, |sum, byte| {
                sum.wrapping_mul(31).wrapping_add(usize::from(byte))
            });
            if let Some(thread) = threads.get(number % threads.len().max(1)) {
                thread.with(|queue| queue.push(request));
            }
        }
    }

    /// Has all senders send what they have until then, and waits for their ends.
    pub(super) fn end(&self, until: std::time::Instant) {
        let pingers = || self.pingers.values().flatten();
        for (_, sender) in &self.targets {
            sender.end(until);
        }
        pingers().for_each(|sender| sender.end(until));
        for (_, sender) in &self.targets {
            sender.wait(until);
        }
        pingers().for_each(|sender| sender.wait(until));
    }
}

/// The targets that jobs of this host name.
fn used(list: &NotifiedList) -> impl Iterator<Item = &NotifyTarget> {
    let named = list.jobs.iter().flat_map(|job| &job.alerts.targets);
    let named: BTreeSet<&TargetName> = named.collect();
    let targets = list.targets.iter();
    targets.filter(move |target| named.contains(&target.name))
}

/// The monitoring services by origin, each with its name for the log.
fn origins(list: &NotifiedList) -> BTreeMap<String, String> {
    let pings = list.jobs.iter().filter_map(|job| job.alerts.ping.as_ref());
    pings
        .map(|ping| (ping.url().origin().to_owned(), ping.shown()))
        .collect()
}

fn not_started(name: &str, error: &io::Error) {
    tracing::error!("cannot start the notifications to {name}: {error}; none is sent there");
}

fn storm(target: &NotifyTarget) -> Storm {
    match &target.channel {
        Channel::Http(http) if matches!(http.template, Template::PagerDuty { .. }) => {
            Storm::NewestOfEachJob
        }
        _ => Storm::Digest,
    }
}
