//! Whether whatever a job starts can be found and ended, and whether jobs can be other users.

use std::sync::Arc;

use super::{Finding, ids};
use crate::config::Job;
use crate::guard::{self, NoCgroup};

pub(super) fn look(jobs: &[Arc<Job>]) -> Vec<Finding> {
    let root = nix::unistd::geteuid().is_root();
    let mut found = vec![containment(root, guard::delegated())];
    found.extend(users(root, jobs));
    found
}

fn containment(root: bool, cgroups: Result<(), NoCgroup>) -> Finding {
    let host = "this host";
    let why = match cgroups {
        Ok(()) => {
            return ids::CONTAINMENT.ok(
                host,
                "each run has its own control group: all processes of a job are found and killed",
            );
        }
        Err(why) => why,
    };
    if let NoCgroup::NoProc(_) = why {
        return ids::CONTAINMENT.warning(
            host,
            format!(
                "{why}: processes that a job leaves behind can be neither found nor killed, and \
                 may outlive the lease"
            ),
            "mount /proc where cronlatch runs",
        );
    }
    let advice = advice(&why);
    if root {
        ids::CONTAINMENT.hint(
            host,
            format!(
                "runs have no control group of their own ({why}): each run uses a helper process \
                 `cronlatch-run` instead, which finds all processes of the job and costs one \
                 process and about 0.1 MB"
            ),
            advice,
        )
    } else {
        ids::CONTAINMENT.warning(
            host,
            format!(
                "runs have no control group of their own ({why}), and this process is not root: \
                 a set-uid program that a job starts (sudo, ping) cannot be killed, and may \
                 outlive the lease"
            ),
            advice,
        )
    }
}

/// What the reader can do. A daemon that is run by its unit is not sent there again.
fn advice(why: &NoCgroup) -> &'static str {
    match why {
        NoCgroup::NoProc(_) => "mount /proc where cronlatch runs",
        NoCgroup::NotMounted => {
            "run cronlatch where the cgroup2 file system is mounted, by its systemd unit"
        }
        NoCgroup::NotDelegated(_) => {
            "run cronlatch by its systemd unit, which has Delegate=yes; `systemd-run \
             -p Delegate=yes cronlatch doctor` checks as the unit would"
        }
        NoCgroup::NotWritable { .. } | NoCgroup::NoEntry { .. } => {
            "the control group is delegated, but cannot be used: look for ProtectControlGroups=, \
             ReadOnlyPaths= or SystemCallFilter= in drop-ins of the unit, and for a read-only \
             /sys/fs/cgroup in a container"
        }
        NoCgroup::NoKill => "use Linux 5.14 or later",
    }
}

/// A job that names a user cannot run under a daemon that is not root.
fn users(root: bool, jobs: &[Arc<Job>]) -> Option<Finding> {
    let mut others = jobs
        .iter()
        .filter(|job| job.process.user.is_some() || job.process.group.is_some());
    let first = others.next().filter(|_| !root)?;
    Some(ids::USERS.warning(
        &format!("job {}", first.name),
        format!(
            "{} jobs name a user or group, and this process is not root: they fail unless the user \
             is this account",
            others.count() + 1
        ),
        "run the daemon as root, or remove `user` and `group` from the jobs",
    ))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::preflight::Severity::{Hint, Ok, Warning};

    fn not_delegated() -> Result<(), NoCgroup> {
        Err(NoCgroup::NotDelegated("/sys/fs/cgroup/user.slice".into()))
    }

    #[test]
    fn without_a_cgroup_root_is_hinted_and_others_are_warned() {
        assert_eq!(containment(false, Result::Ok(())).severity, Ok);
        assert_eq!(containment(true, not_delegated()).severity, Hint);
        assert_eq!(containment(false, not_delegated()).severity, Warning);
    }

    #[test]
    fn only_a_daemon_outside_the_unit_is_told_to_use_the_unit() {
        let unit = |why| {
            containment(true, Err(why))
                .fix
                .contains("by its systemd unit")
        };
        assert!(containment(true, not_delegated()).fix.contains("unit"));
        let refused = || io::Error::from_raw_os_error(libc::EROFS);
        let dir = || "/sys/fs/cgroup/system.slice/cronlatch.service".into();
        assert!(!unit(NoCgroup::NotWritable {
            dir: dir(),
            source: refused()
        }));
        assert!(!unit(NoCgroup::NoEntry {
            dir: dir(),
            source: refused()
        }));
        assert!(!unit(NoCgroup::NoKill));
    }

    #[test]
    fn a_missing_proc_is_named_and_is_a_warning_for_root_too() {
        let missing = io::Error::from_raw_os_error(libc::ENOENT);
        let finding = containment(true, Err(NoCgroup::NoProc(missing)));
        assert_eq!(finding.severity, Warning);
        assert!(finding.text.contains("/proc"), "{}", finding.text);
        assert!(finding.fix.contains("mount /proc"), "{}", finding.fix);
    }
}
