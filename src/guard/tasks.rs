//! How many tasks (processes and threads) the control groups and the user of this process may have.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::unistd::geteuid;

/// The control group that allows the fewest tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskLimit {
    /// Its directory.
    pub(crate) group: PathBuf,
    /// Its `pids.max`.
    pub(crate) tasks: u64,
}

/// Returns how many processes this process and its children may have, by its user and its control groups; `None` if
/// nothing limits them.
pub(super) fn process_limit() -> Option<u64> {
    let of_groups = task_limit().map(|limit| limit.tasks);
    of_groups.into_iter().chain(user_limit()).min()
}

/// Returns how many processes the user of this process may have; `None` if that is not limited, as for root.
pub(crate) fn user_limit() -> Option<u64> {
    let (now, _) = getrlimit(Resource::RLIMIT_NPROC).ok()?;
    let is_limited = !geteuid().is_root() && now != RLIM_INFINITY;
    is_limited.then_some(now)
}

/// Returns the tightest limit among this process's control group and those above it; `None` if
/// none of them sets one. What lies outside a container cannot be seen from inside.
pub(crate) fn task_limit() -> Option<TaskLimit> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    tightest(&groups(&own, &mounts))
}

/// The control groups that may limit tasks, each before the one above it: of version 2, and of
/// the `pids` hierarchy of version 1.
fn groups(own: &str, mounts: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let is_v2 = controllers.is_empty();
        if !is_v2 && !controllers.split(',').any(|name| name == "pids") {
            continue;
        }
        let place = mounts.lines().find_map(|mount| {
            let (mounted, kind) = mount.split_once(" - ")?;
            let mut kind = kind.split(' ');
            let fits = match kind.next()? {
                "cgroup2" => is_v2,
                "cgroup" => !is_v2 && kind.nth(1)?.split(',').any(|option| option == "pids"),
                _ => false,
            };
            let mut fields = mounted.split(' ').skip(3);
            let (root, point) = (fields.next()?, fields.next()?);
            let below = path.strip_prefix(root.trim_end_matches('/'))?;
            let dir = Path::new(point).join(below.trim_start_matches('/'));
            fits.then(|| (PathBuf::from(point), dir))
        });
        if let Some((top, dir)) = place {
            let up = dir.ancestors().take_while(|group| group.starts_with(&top));
            found.extend(up.map(Path::to_owned));
        }
    }
    found
}

fn tightest(groups: &[PathBuf]) -> Option<TaskLimit> {
    let limit = |group: &PathBuf| {
        // The text is `max` where there is no limit, and the root has no such file.
        let max = fs::read_to_string(group.join("pids.max")).ok()?;
        Some(TaskLimit {
            group: group.clone(),
            tasks: max.trim().parse().ok()?,
        })
    };
    groups
        .iter()
        .filter_map(limit)
        .min_by_key(|limit| limit.tasks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_are_the_own_one_and_all_above_it_in_both_versions() {
        let own =
            "8:pids:/init.scope\n7:blkio:/\n1:cpu,cpuacct:/a\n0::/system.slice/cron.service\n";
        let mounts = "\
            30 20 0:1 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
            31 20 0:2 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n\
            32 20 0:3 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let expected = [
            "/sys/fs/cgroup/pids/init.scope",
            "/sys/fs/cgroup/pids",
            "/sys/fs/cgroup/unified/system.slice/cron.service",
            "/sys/fs/cgroup/unified/system.slice",
            "/sys/fs/cgroup/unified",
        ];
        assert_eq!(groups(own, mounts), expected.map(PathBuf::from));
    }

    #[test]
    fn in_a_container_the_groups_end_at_its_own_root() {
        let mounts = "32 20 0:3 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let expected = ["/sys/fs/cgroup/y", "/sys/fs/cgroup"];
        let found = groups("0::/docker/x/y\n", mounts);
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn the_smallest_limit_counts_whichever_group_sets_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let inner = dir.path().join("slice/service");
        fs::create_dir_all(&inner).expect("ours");
        let groups: Vec<PathBuf> = inner.ancestors().take(3).map(Path::to_owned).collect();
        assert_eq!(tightest(&groups), None);
        fs::write(inner.join("pids.max"), "max\n").expect("ours");
        assert_eq!(tightest(&groups), None);
        fs::write(dir.path().join("slice/pids.max"), "150\n").expect("ours");
        let limit = tightest(&groups).expect("a limit");
        assert_eq!((limit.tasks, &limit.group), (150, &groups[1]));
        fs::write(inner.join("pids.max"), "40\n").expect("ours");
        let limit = tightest(&groups).expect("a limit");
        assert_eq!((limit.tasks, &limit.group), (40, &groups[0]));
    }
}
