//! How a job differs from a job with only the defaults.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::config::{
    CatchUp, Command, Job, LATE_AFTER, OnCrash, OnLost, OnOverlap, OnStoreDown, Ping, Scope,
    has_pipefail_by_default, show_duration,
};
use crate::ground::timing;
use crate::names::TargetName;

/// The fields of a job that differ from their defaults, as the list would have them.
pub(super) fn of(job: &Job) -> Vec<(&'static str, String)> {
    let mut fields = FieldList(Vec::new());
    locking(job, &mut fields);
    starting(job, &mut fields);
    ending(job, &mut fields);
    surroundings(job, &mut fields);
    alerts(job, &mut fields);
    fields.0
}

struct FieldList(Vec<(&'static str, String)>);

impl FieldList {
    fn add(&mut self, name: &'static str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.0.push((name, value.to_string()));
        }
    }

    fn duration(&mut self, name: &'static str, value: Duration, default: Duration) {
        self.add(name, (value != default).then(|| show_duration(value)));
    }
}

fn locking(job: &Job, fields: &mut FieldList) {
    let scope = match job.lock.scope {
        Scope::Fleet => None,
        Scope::Host => Some("host"),
        Scope::None => Some("none"),
    };
    fields.add("scope", scope);
    let shared = job.lock.key.is_some() || job.lock.name.as_str() != job.name.as_str();
    if job.lock.scope == Scope::None {
        // Its runs may overlap, whatever `defaults` say.
        return;
    }
    match job.on_overlap {
        OnOverlap::Skip => fields.add("on_overlap", shared.then_some("skip")),
        OnOverlap::Wait => fields.add("on_overlap", (!shared).then_some("wait")),
        OnOverlap::Queue { limit } => {
            fields.add("on_overlap", Some("queue"));
            fields.add("queue_limit", (limit != 10).then_some(limit));
        }
    }
}

fn starting(job: &Job, fields: &mut FieldList) {
    fields.duration("jitter", job.jitter, Duration::ZERO);
    fields.duration(
        "start_deadline",
        job.start_deadline,
        Duration::from_secs(300),
    );
    let catch_up = match job.catch_up {
        CatchUp::Latest => None,
        CatchUp::None => Some("none"),
        CatchUp::All => Some("all"),
    };
    fields.add("catch_up", catch_up);
    fields.duration(
        "catch_up_window",
        job.catch_up_window,
        Duration::from_secs(3600),
    );
    if let OnCrash::Rerun { max_reruns } = job.on_crash {
        fields.add("on_crash", Some("rerun"));
        fields.add("max_reruns", (max_reruns != 3).then_some(max_reruns));
    }
    let on_store_down = match job.on_store_down {
        OnStoreDown::Wait => None,
        OnStoreDown::Run => Some("run"),
        OnStoreDown::Skip => Some("skip"),
    };
    fields.add("on_store_down", on_store_down);
    let hosts = !job.hosts.0.is_empty();
    fields.add("hosts", hosts.then(|| job.hosts.0.join(" ")));
}

fn ending(job: &Job, fields: &mut FieldList) {
    let on_lost = matches!(job.on_lost, OnLost::Continue);
    fields.add("on_lost", on_lost.then_some("continue"));
    fields.add("timeout", job.timeout.map(show_duration));
    fields.duration(
        "kill_grace",
        job.kill.grace,
        timing::default_kill_grace(job.lock.ttl),
    );
    let signal = job.kill.signal;
    let other = signal != Signal::SIGTERM;
    fields.add(
        "kill_signal",
        other.then(|| signal.as_str().trim_start_matches("SIG")),
    );
    let retry = job.retry.map(|retry| {
        format!(
            "{} attempts, {} to {} apart",
            retry.attempts,
            show_duration(retry.delay),
            show_duration(retry.max_delay)
        )
    });
    fields.add("retry", retry);
    let codes = &job.success_exit_codes;
    let text = || {
        let codes: Vec<_> = codes.iter().map(u8::to_string).collect();
        codes.join(" ")
    };
    let other = codes.len() != 1 || !codes.contains(&0);
    fields.add("success_exit_codes", other.then(text));
}

fn alerts(job: &Job, fields: &mut FieldList) {
    let alerts = &job.alerts;
    let names: Vec<_> = alerts.targets.iter().map(TargetName::as_str).collect();
    fields.add("notify", (!names.is_empty()).then(|| names.join(" ")));
    fields.add("ping", alerts.ping.as_ref().map(Ping::shown));
    fields.duration("late_after", alerts.late_after, LATE_AFTER);
    fields.add("long_after", alerts.long_after.map(show_duration));
    let within = alerts.expect_success_within.map(show_duration);
    fields.add("expect_success_within", within);
}

fn surroundings(job: &Job, fields: &mut FieldList) {
    fields.add("user", job.user.as_ref());
    fields.add("group", job.group.as_ref());
    fields.add("umask", job.umask.map(|mask| format!("{mask:03o}")));
    fields.add("nice", job.nice);
    let path = |path: &Path| path.display().to_string();
    fields.add("working_dir", job.working_dir.as_deref().map(path));
    // Names only: values may be secret.
    let names: Vec<_> = job.env.keys().map(String::as_str).collect();
    fields.add("env", (!names.is_empty()).then(|| names.join(" ")));
    fields.add("env_file", job.env_file.as_deref().map(path));
    if let Command::Shell {
        shell, pipefail, ..
    } = &job.command
    {
        let other = shell != Path::new("/bin/sh");
        fields.add("shell", other.then(|| path(shell)));
        let is_chosen = *pipefail != has_pipefail_by_default(shell);
        fields.add("pipefail", is_chosen.then_some(pipefail));
    }
}
