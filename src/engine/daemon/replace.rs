//! Replaces the job list: what the new list means for each job and for the rest of the daemon.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::fleet::OwnList;
use super::requests::{UnscheduledJob, UnscheduledJobs};
use super::shutdown::counted;
use super::{Daemon, by_name};
use crate::config::{Job, JobList, OutputPolicy, changed_fields, is_unchanged};
use crate::engine::core::{ClaimContext, Event, JobIx, LaneChange, ListedJob, NewList, Policy};
use crate::names::JobName;
use crate::notify::{NotifiedList, TargetChange};
use crate::run::inherited;
use crate::schedule::ticker::{Firing, Ticker};
use crate::siblings::ListUse;
use crate::store::Retention;
use crate::time::BootInstant;

/// How many names a log line has.
const NAMES_SHOWN: usize = 10;

/// What a new list changes, for the log.
#[derive(Debug, Default, PartialEq, Eq)]
struct ListChanges {
    added: Vec<String>,
    enabled: Vec<String>,
    /// `hosts` names this host now.
    arrived: Vec<String>,
    changed: Vec<String>,
    removed: Vec<String>,
    disabled: Vec<String>,
    /// `hosts` does not name this host any more.
    departed: Vec<String>,
    unchanged: usize,
    settings: Vec<&'static str>,
}

impl ListChanges {
    /// Notes whether a job has changed, and in what.
    fn compare(&mut self, old: &Job, new: &Job) {
        if is_unchanged(old, new) {
            self.unchanged += 1;
        } else if self.changed.len() < NAMES_SHOWN {
            let fields = changed_fields(old, new).join(", ");
            self.changed.push(format!("{}: {fields}", new.name));
        } else {
            // Only counted: naming the fields of each job of a long list would take seconds.
            self.changed.push(String::new());
        }
    }

    /// Notes a job that this host begins to schedule, and why it did not before.
    fn begins(&mut self, job: &JobName, before: Option<&UnscheduledJob>) {
        let jobs = match before {
            None => &mut self.added,
            Some(UnscheduledJob::Disabled(_)) => &mut self.enabled,
            Some(UnscheduledJob::OfOthers(_)) => &mut self.arrived,
        };
        jobs.push(job.to_string());
    }

    /// Notes a job that this host schedules no longer, and why.
    fn ends(&mut self, job: &JobName, now: Option<&UnscheduledJob>) {
        let jobs = match now {
            None => &mut self.removed,
            Some(UnscheduledJob::Disabled(_)) => &mut self.disabled,
            Some(UnscheduledJob::OfOthers(_)) => &mut self.departed,
        };
        jobs.push(job.to_string());
    }

    /// In one line.
    fn text(&self) -> String {
        let mut text = String::new();
        let kinds = [
            (&self.added, "added", ", "),
            (&self.enabled, "enabled", ", "),
            (&self.arrived, "now meant for this host", ", "),
            // Each has a list of fields of its own.
            (&self.changed, "changed", "; "),
            (&self.removed, "removed", ", "),
            (&self.disabled, "disabled", ", "),
            (&self.departed, "no longer meant for this host", ", "),
        ];
        for (jobs, what, separator) in kinds.into_iter().filter(|(jobs, ..)| !jobs.is_empty()) {
            let shown: Vec<&str> = jobs.iter().take(NAMES_SHOWN).map(String::as_str).collect();
            let n = counted(jobs.len(), "job");
            let _ = write!(text, "{n} {what} ({}", shown.join(separator));
            if jobs.len() > NAMES_SHOWN {
                let _ = write!(text, " and {} more", jobs.len() - NAMES_SHOWN);
            }
            text.push_str("), ");
        }
        if !self.settings.is_empty() {
            let _ = write!(text, "settings changed ({}), ", self.settings.join(", "));
        }
        if text.is_empty() {
            return "nothing has changed for this host".to_owned();
        }
        let n = self.unchanged;
        let _ = write!(text, "{n} unchanged");
        text
    }
}

/// The settings of a list that are in force from a reload on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ListSettings {
    pub(super) max_running: Option<NonZeroUsize>,
    pub(super) drain_timeout: Duration,
    /// What the history of each job keeps.
    pub(super) history: Retention,
    pub(super) spread: Duration,
    pub(super) max_clock_skew: Duration,
    pub(super) output: OutputPolicy,
}

impl ListSettings {
    pub(super) fn of(list: &JobList) -> Self {
        // All fields are named: the compiler then asks what a reload does with a new one.
        let JobList {
            path: _,
            jobs: _,
            store: _,
            strict: _,
            fingerprint: _,
            secret_variables: _,
            unset_variables: _,
            warnings: _,
            notify: _,
            http: _,
            max_running,
            drain_timeout,
            history,
            spread,
            max_clock_skew,
            output,
        } = *list;
        Self {
            max_running,
            drain_timeout,
            history,
            spread,
            max_clock_skew,
            output,
        }
    }

    /// The names of those that differ.
    fn changed(&self, new: &Self) -> Vec<&'static str> {
        let all = [
            ("max_running", self.max_running != new.max_running),
            ("drain_timeout", self.drain_timeout != new.drain_timeout),
            ("history", self.history != new.history),
            ("spread", self.spread != new.spread),
            ("max_clock_skew", self.max_clock_skew != new.max_clock_skew),
            ("output", self.output != new.output),
        ];
        let changed = all.into_iter().filter(|(_, differs)| *differs);
        changed.map(|(name, _)| name).collect()
    }
}

/// The jobs of the new list at their places.
struct Placement {
    jobs: BTreeMap<JobIx, Arc<Job>>,
    listed: Vec<(JobIx, LaneChange)>,
    changes: ListChanges,
}

impl Daemon {
    /// Replaces the list by a valid one.
    pub(super) fn replace_list(
        &mut self,
        list: JobList,
        ticker: &Ticker,
        firings: &mut mpsc::UnboundedReceiver<Firing>,
    ) {
        self.report_restart_needed(&list);
        let http_changes = self.front.differs(list.http.as_ref());
        self.front.replace(&list);
        let place = ListUse::of(&list, self.reloads.settings());
        self.link.siblings.rejoin(place, &self.host);
        let settings = ListSettings::of(&list);
        self.listed = OwnList::of(&list);
        // A job inherits no variable that the store's password may have come from.
        self.secrets.extend(list.secret_variables);
        self.tools.environment = Arc::new(inherited(&self.secrets));
        let (jobs, unscheduled) = UnscheduledJobs::apart(list.jobs, &self.host);
        let notified = self.link.reporter.notifier.replace(NotifiedList {
            targets: list.notify,
            jobs: unscheduled.with_scheduled(&jobs),
            keep: list.history.records,
            environment: Arc::clone(&self.tools.environment),
        });
        let unscheduled_before = self.requests.relist(unscheduled);
        self.link.reporter.metrics.set_jobs(&jobs);
        self.tools.outputs.replace(settings.output);
        let mut placement = self.place_jobs(jobs, &unscheduled_before);
        placement.changes.settings = self.settings.changed(&settings);
        if notified == TargetChange::Changed {
            placement.changes.settings.push("notify");
        }
        if http_changes {
            placement.changes.settings.push("http");
        }
        self.config = list.fingerprint;
        self.settings = settings;
        self.clock.set_max(settings.max_clock_skew);
        let now = self.clock.now().utc;
        let due = placement.jobs.values();
        let due = due.map(|job| self.ticker_job(job, now));
        // What came due so far did so by the old list.
        for firing in ticker.replace(due.collect(), firings) {
            self.fire(&firing);
        }
        let text = placement.changes.text();
        self.put_in_place(placement);
        tracing::info!(host = %self.host, "reloaded {}: {text}", list.path.display());
        self.spare_memory.at_rest_from(BootInstant::now());
        self.keep_list();
        self.announce();
    }

    /// Gives each job its place, and compares it with the previous list.
    fn place_jobs(&mut self, new: Vec<Arc<Job>>, before: &UnscheduledJobs) -> Placement {
        let mut former = HashMap::clone(&self.names);
        let mut placement = Placement {
            jobs: BTreeMap::new(),
            listed: Vec::new(),
            changes: ListChanges::default(),
        };
        let changes = &mut placement.changes;
        for job in new {
            let place = former.remove(&job.name);
            let old = place.and_then(|place| Some((place, self.jobs.get(&place)?)));
            let (change, kept) = if let Some((place, old)) = old {
                changes.compare(old, &job);
                change_of(place, old, &job)
            } else {
                changes.begins(&job.name, before.get(&job.name));
                let before = self.removed.remove(&job.name);
                (LaneChange::New { before }, None)
            };
            let place = kept.unwrap_or_else(|| {
                self.next_job += 1;
                JobIx(self.next_job - 1)
            });
            placement.listed.push((place, change));
            placement.jobs.insert(place, job);
        }
        let mut gone: Vec<&JobName> = former.keys().collect();
        gone.sort();
        for job in gone {
            changes.ends(job, self.requests.unscheduled().get(job));
        }
        if self.runs.len() == 0 {
            // Nothing of them can still be running.
            self.removed.clear();
        }
        self.removed.extend(former);
        placement
    }

    /// Puts the new list into force.
    fn put_in_place(&mut self, placement: Placement) {
        let Placement { jobs, listed, .. } = placement;
        let context = self.claim_context();
        let listed_job = |(job, change): (JobIx, LaneChange)| {
            let policy = Policy::of(jobs.get(&job)?, context);
            Some(ListedJob {
                job,
                policy,
                change,
            })
        };
        let new = NewList {
            jobs: listed.into_iter().filter_map(listed_job).collect(),
            max_running: self.settings.max_running,
        };
        self.names = by_name(&jobs);
        self.registry.keep_only(|place| jobs.contains_key(&place));
        self.admission.keep_only(|place| jobs.contains_key(&place));
        self.unusable.retain(|place, _| jobs.contains_key(place));
        self.last_waits.keep_only(|place| jobs.contains_key(&place));
        self.to_register.retain(|place| jobs.contains_key(place));
        self.waits_for_earlier = true;
        // The old definitions are needed to cancel their claims.
        self.jobs
            .extend(jobs.iter().map(|(place, job)| (*place, Arc::clone(job))));
        self.feed(Event::Reload(new));
        self.jobs = jobs;
        self.look_after_registry();
        self.status();
    }

    /// Where and in whose company this host makes its claims.
    pub(super) fn claim_context(&self) -> ClaimContext<'_> {
        ClaimContext {
            host: &self.host,
            shared: self.reloads.is_shared(),
            spread: self.settings.spread,
            max_running: self.settings.max_running,
        }
    }
}

/// How a definition relates to the one before at this place, and the place that it keeps, if so.
fn change_of(place: JobIx, old: &Job, new: &Job) -> (LaneChange, Option<JobIx>) {
    if old.fingerprint != new.fingerprint {
        let before = Some(place);
        (LaneChange::New { before }, None)
    } else if old.lock_id() != new.lock_id() {
        (LaneChange::Moved { before: place }, None)
    } else {
        (LaneChange::Kept, Some(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_is_logged_in_one_line_however_much_it_changes() {
        let mut changes = ListChanges {
            unchanged: 3,
            ..ListChanges::default()
        };
        assert_eq!(changes.text(), "nothing has changed for this host");
        changes.added = vec!["a".to_owned()];
        changes.removed = (0..12).map(|n| format!("r{n}")).collect();
        changes.changed = vec!["tick: schedule, command".to_owned(), "b: user".to_owned()];
        changes.settings = vec!["spread"];
        insta::assert_snapshot!(
            changes.text(),
            @"1 job added (a), 2 jobs changed (tick: schedule, command; b: user), 12 jobs removed (r0, r1, r2, r3, r4, r5, r6, r7, r8, r9 and 2 more), settings changed (spread), 3 unchanged"
        );
    }

    #[test]
    fn a_job_that_the_list_keeps_is_neither_added_nor_removed() {
        let name = |name: &str| JobName::parse(name).expect("a name");
        let of_others = UnscheduledJob::OfOthers(vec!["web*".to_owned()]);
        let mut changes = ListChanges::default();
        changes.begins(&name("new"), None);
        changes.begins(&name("comes"), Some(&of_others));
        changes.ends(&name("gone"), None);
        changes.ends(&name("goes"), Some(&of_others));
        assert_eq!(
            changes.text(),
            "1 job added (new), 1 job now meant for this host (comes), 1 job removed (gone), 1 job \
             no longer meant for this host (goes), 0 unchanged"
        );
    }
}
