//! How a job differs from a job with only the defaults.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::config::{
    CatchUp, Command, DEFAULT_CATCH_UP_WINDOW, DEFAULT_MAX_RERUNS, DEFAULT_QUEUE_LIMIT,
    DEFAULT_SHELL, DEFAULT_START_DEADLINE, Job, JobPolicies, LATE_AFTER, OnCrash, OnLost,
    OnOverlap, OnStoreDown, Ping, Scope, has_pipefail_by_default, show_duration,
};
use crate::ground::timing;
use crate::names::TargetName;

/// Returns the fields of a job that differ from the defaults of the program, as text for the report.
/// Values that may be secret are left out.
pub(super) fn of(job: &Job) -> Vec<(&'static str, String)> {
    let Job {
        // The report shows these of every job.
        name: _,
        schedule: _,
        enabled: _,
        fingerprint: _,
        // The functions below show these. With a new field, this is an error until it is shown somewhere.
        lock: _,
        jitter: _,
        policies,
        process: _,
        command: _,
        alerts: _,
    } = job;
    let JobPolicies {
        on_overlap: _,
        start_deadline: _,
        catch_up: _,
        catch_up_window: _,
        on_crash: _,
        on_store_down: _,
        hosts: _,
        on_lost: _,
        timeout: _,
        kill: _,
        retry: _,
        success_exit_codes: _,
    } = &**policies;
    let mut fields = FieldList(Vec::new());
    locking(job, &mut fields);
    starting(job, &mut fields);
    ending(job, &mut fields);
    environment(job, &mut fields);
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
    if job.lock.scope == Scope::None {
        // Its runs may overlap, whatever the section `defaults` of the list says.
        return;
    }
    let waits_by_default = job.lock.is_named;
    match job.policies.on_overlap {
        OnOverlap::Skip => fields.add("on_overlap", waits_by_default.then_some("skip")),
        OnOverlap::Wait => fields.add("on_overlap", (!waits_by_default).then_some("wait")),
        OnOverlap::Queue { limit } => {
            fields.add("on_overlap", Some("queue"));
            let differs = limit != DEFAULT_QUEUE_LIMIT;
            fields.add("queue_limit", differs.then_some(limit));
        }
    }
}

fn starting(job: &Job, fields: &mut FieldList) {
    fields.duration("jitter", job.jitter, Duration::ZERO);
    fields.duration(
        "start_deadline",
        job.policies.start_deadline,
        DEFAULT_START_DEADLINE,
    );
    let catch_up = match job.policies.catch_up {
        CatchUp::Latest => None,
        CatchUp::None => Some("none"),
        CatchUp::All => Some("all"),
    };
    fields.add("catch_up", catch_up);
    fields.duration(
        "catch_up_window",
        job.policies.catch_up_window,
        DEFAULT_CATCH_UP_WINDOW,
    );
    if let OnCrash::Rerun { max_reruns } = job.policies.on_crash {
        fields.add("on_crash", Some("rerun"));
        let differs = max_reruns != DEFAULT_MAX_RERUNS;
        fields.add("max_reruns", differs.then_some(max_reruns));
    }
    let on_store_down = match job.policies.on_store_down {
        OnStoreDown::Wait => None,
        OnStoreDown::Run => Some("run"),
        OnStoreDown::Skip => Some("skip"),
    };
    fields.add("on_store_down", on_store_down);
    let hosts = !job.policies.hosts.0.is_empty();
    fields.add("hosts", hosts.then(|| job.policies.hosts.0.join(" ")));
}

fn ending(job: &Job, fields: &mut FieldList) {
    let on_lost = matches!(job.policies.on_lost, OnLost::Continue);
    fields.add("on_lost", on_lost.then_some("continue"));
    fields.add("timeout", job.policies.timeout.map(show_duration));
    fields.duration(
        "kill_grace",
        job.policies.kill.grace,
        timing::default_kill_grace(job.lock.ttl),
    );
    let signal = job.policies.kill.signal;
    let differs = signal != Signal::SIGTERM;
    fields.add(
        "kill_signal",
        differs.then(|| signal.as_str().trim_start_matches("SIG")),
    );
    let retry = job.policies.retry.map(|retry| {
        format!(
            "{} attempts, {} to {} apart",
            retry.attempts,
            show_duration(retry.delay),
            show_duration(retry.max_delay)
        )
    });
    fields.add("retry", retry);
    let codes = &job.policies.success_exit_codes;
    let text = || {
        let codes: Vec<_> = codes.iter().map(u8::to_string).collect();
        codes.join(" ")
    };
    let differs = codes.len() != 1 || !codes.contains(&0);
    fields.add("success_exit_codes", differs.then(text));
}

fn environment(job: &Job, fields: &mut FieldList) {
    fields.add("user", job.process.user.as_ref());
    fields.add("group", job.process.group.as_ref());
    fields.add("umask", job.process.umask.map(|mask| format!("{mask:03o}")));
    fields.add("nice", job.process.nice);
    let path = |path: &Path| path.display().to_string();
    fields.add("working_dir", job.process.working_dir.as_deref().map(path));
    // Names only: values may be secret.
    let names: Vec<_> = job.process.env.keys().map(String::as_str).collect();
    fields.add("env", (!names.is_empty()).then(|| names.join(" ")));
    fields.add("env_file", job.process.env_file.as_deref().map(path));
    if let Command::Shell {
        shell, pipefail, ..
    } = &*job.command
    {
        let differs = shell != Path::new(DEFAULT_SHELL);
        fields.add("shell", differs.then(|| path(shell)));
        let differs = *pipefail != has_pipefail_by_default(shell);
        fields.add("pipefail", differs.then_some(pipefail));
    }
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
