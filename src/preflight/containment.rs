//! Whether whatever a job starts can be found and ended, and whether jobs can be other users.

use super::{Finding, ids};
use crate::config::Job;
use crate::process;

pub(super) fn look(jobs: &[Job]) -> Vec<Finding> {
    let root = nix::unistd::geteuid().is_root();
    let mut found = vec![containment(root, process::delegated())];
    found.extend(users(root, jobs));
    found
}

fn containment(root: bool, delegated: bool) -> Finding {
    let host = "this host";
    match (delegated, root) {
        (true, _) => ids::CONTAINMENT.ok(
            host,
            "a delegated cgroup: whatever a job starts is found and ended",
        ),
        (false, true) => ids::CONTAINMENT.hint(
            host,
            "no delegated cgroup here: what a job starts is found by its parents and its \
             environment, and a program that clears its environment ends only with the last run",
            "run cronlatch by its systemd unit, which has Delegate=yes; `systemd-run \
             -p Delegate=yes cronlatch doctor` looks as the unit would",
        ),
        (false, false) => ids::CONTAINMENT.warning(
            host,
            "no delegated cgroup here, and not root: a set-uid program that a job starts (sudo, \
             ping) cannot be ended, and may outlive the lease",
            "run cronlatch by its systemd unit, which has Delegate=yes",
        ),
    }
}

/// A job that names a user cannot run under a daemon that is not root.
fn users(root: bool, jobs: &[Job]) -> Option<Finding> {
    let mut others = jobs
        .iter()
        .filter(|job| job.user.is_some() || job.group.is_some());
    let first = others.next().filter(|_| !root)?;
    Some(ids::USERS.warning(
        &format!("job {}", first.name),
        format!(
            "{} jobs name a user or group, and this process is not root: started by this account \
             they fail unless it is that user",
            others.count() + 1
        ),
        "run the daemon as root, or leave user and group out",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Severity::{Hint, Ok, Warning};

    #[test]
    fn without_a_cgroup_root_is_hinted_and_others_are_warned() {
        assert_eq!(containment(false, true).severity, Ok);
        assert_eq!(containment(true, false).severity, Hint);
        assert_eq!(containment(false, false).severity, Warning);
    }
}
