//! The unit and its drop-ins under a real system manager: systemd as process 1 of a sandbox.
//!
//! A user manager never takes the paths that matter here: `User=`, system call filters, and a
//! control group that the manager delegates.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{SHIPPED, unit};
use crate::support::{Output, command, wait_for, wait_until};

const BOOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/systemd/boot.sh");

/// Leaves a process that has no session, no parent and no environment in common with its run.
const SCRIPT: &str = "(setsid env -i sh -c 'exec sleep 600' &) ; \
    cat /proc/self/cgroup >$STATE_DIRECTORY/cgroup.new; id -un >>$STATE_DIRECTORY/cgroup.new; \
    mv $STATE_DIRECTORY/cgroup.new $STATE_DIRECTORY/cgroup";

#[test]
fn jobs_start_in_their_own_control_groups_under_the_unit_and_each_drop_in() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: only root can start a system manager in a sandbox");
        return;
    }
    let system = System::start();
    let cases: [(&str, &[&str], &str); 3] = [
        ("plain", &[], "root"),
        ("unprivileged", &["10-unprivileged.conf"], "cronlatch"),
        (
            "strict",
            &[
                "10-unprivileged.conf",
                "20-strict.conf",
                "30-long-drain.conf",
            ],
            "cronlatch",
        ),
    ];
    for (name, drop_ins, user) in cases {
        let unit = system.install(name, drop_ins, SCRIPT, "");
        let started = system.systemctl(&["start", &unit]);
        let status = || system.property(&unit, "ExecMainStatus");
        assert_eq!(
            started.code(),
            0,
            "{name} ended with {}\n{started:?}",
            status()
        );
        let seen = system.seen_by_job(name);
        let (cgroup, who) = seen.trim().rsplit_once('\n').expect("two lines");
        assert_eq!(who, user, "{name}");
        let own = format!("0::/system.slice/{unit}/cronlatch-");
        assert!(
            cgroup.lines().any(|line| line.starts_with(&own)),
            "{name}: {cgroup}"
        );
        // Runs count as tasks of the unit; the manager's default would be too few of them.
        assert_eq!(system.property(&unit, "TasksMax"), "infinity", "{name}");

        system.systemctl(&["stop", &unit]).expect_code(0);
        assert_eq!(system.property(&unit, "Result"), "success", "{name}");
        // Only its control group says whose the process is that the job hid.
        let log = system.log(name);
        assert!(
            log.contains("left 1 process behind, which was killed"),
            "{name}: {log}"
        );
    }
}

/// Leaves the control group of the unit, and all below it, with a process of its own.
const MIGRATING: &str = "mkdir -p /sys/fs/cgroup/elsewhere; \
    sh -c 'echo 0 >/sys/fs/cgroup/elsewhere/cgroup.procs; exec sleep 600' & wait";

#[test]
fn a_process_in_another_control_group_dies_with_a_killed_daemon_under_the_unit() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: only root can start a system manager in a sandbox");
        return;
    }
    let system = System::start();
    let unit = system.install("killed", &[], MIGRATING, "Restart=no\n");
    system.systemctl(&["start", &unit]).expect_code(0);
    let populated = || {
        let events = system.cgroup.join("elsewhere/cgroup.events");
        fs::read_to_string(events).is_ok_and(|events| events.contains("populated 1"))
    };
    wait_until("a process has left", populated);

    // The daemon first, because it would send the guard SIGCONT. What a stopped guard does not see,
    // systemd's SIGKILL keeps from a running one.
    for argument in ["run", "__guard"] {
        let pid = system.process_of(&unit, argument);
        kill(pid, Signal::SIGSTOP).unwrap();
        let stat = format!("/proc/{pid}/stat");
        wait_until("it is stopped", || {
            fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "))
        });
    }
    kill(system.process_of(&unit, "run"), Signal::SIGKILL).unwrap();
    wait_until("the process is dead", || !populated());
    wait_until("it is reported", || {
        let line = "killed 1 process of runs that had left the control group";
        system.log("killed").contains(line)
    });
    wait_until("the unit has ended", || {
        system.property(&unit, "ActiveState") == "failed"
    });
    assert_eq!(system.property(&unit, "Result"), "signal");
}

/// systemd as process 1 of a sandbox, with a directory of units.
struct System {
    child: Child,
    cgroup: PathBuf,
    dir: tempfile::TempDir,
}

impl System {
    /// Boots one. A machine on which root cannot do so fails the test: it has been shown nothing.
    #[track_caller]
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(at("units")).unwrap();
        fs::create_dir(at("lib")).unwrap();
        // What the shipped unit refers to, without what a system does there: these are empty.
        for name in [
            "sysinit.target",
            "basic.target",
            "shutdown.target",
            "system.slice",
        ] {
            let text = "[Unit]\nDefaultDependencies=no\n";
            fs::write(at("units").join(name), text).unwrap();
        }
        for name in ["passwd", "group"] {
            let text = fs::read_to_string(Path::new("/etc").join(name)).unwrap();
            let lines = text.lines().filter(|line| !line.starts_with("cronlatch:"));
            let own = match name {
                "passwd" => "cronlatch:x:31999:31999::/:/bin/sh",
                _ => "cronlatch:x:31999:",
            };
            let lines: Vec<&str> = lines.chain([own, ""]).collect();
            fs::write(at(name), lines.join("\n")).unwrap();
        }
        let cgroup = cgroup();
        // The shell enters the cgroup before the namespace makes it the root of all.
        let enter = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", cgroup.display());
        let mut boot = command::command("sh");
        boot.args([
            "-c",
            &enter,
            "sh",
            "unshare",
            "--fork",
            "--kill-child",
            "--pid",
            "--mount",
        ])
        .args([
            "--mount-proc",
            "--cgroup",
            "--uts",
            "--ipc",
            "--net",
            "sh",
            BOOT,
        ])
        .arg(dir.path())
        .arg(command::BINARY);
        let log = fs::File::create(at("log")).unwrap();
        boot.stdout(log.try_clone().unwrap())
            .stderr(Stdio::from(log));
        let child = boot.spawn().unwrap();
        let mut system = Self { child, cgroup, dir };
        wait_until("the system manager answers", || {
            let ended = system.child.try_wait().unwrap();
            let log = fs::read_to_string(system.dir.path().join("log")).unwrap_or_default();
            assert!(ended.is_none(), "no system manager: {ended:?}\n{log}");
            system.init().is_some() && system.systemctl(&["list-units"]).code() == 0
        });
        system
    }

    /// The shipped unit under a name of its own, with these of its drop-ins, these settings more,
    /// and a job that is due every second.
    fn install(&self, name: &str, drop_ins: &[&str], script: &str, settings: &str) -> String {
        let job = serde_json::json!({
            "name": "job", "schedule": "* * * * * *", "command": script,
            "lock": { "ttl": "10s" }, "kill_grace": "200ms",
        });
        // JSON is YAML.
        let list = serde_json::json!({ "jobs": [job] }).to_string();
        fs::write(self.dir.path().join(format!("{name}.yaml")), list).unwrap();
        let units = self.dir.path().join("units");
        let unit_name = format!("cronlatch-{name}.service");
        let text = unit(&format!("/run/cronlatch run /run/t/{name}.yaml"));
        let text = text.replace(
            "StateDirectory=cronlatch",
            &format!("StateDirectory={name}"),
        );
        fs::write(units.join(&unit_name), text).unwrap();
        let own = units.join(format!("{unit_name}.d"));
        fs::create_dir(&own).unwrap();
        for drop_in in drop_ins {
            fs::copy(
                Path::new(SHIPPED).join("drop-ins").join(drop_in),
                own.join(drop_in),
            )
            .unwrap();
        }
        let log = format!("/run/t/{name}.log");
        let test = format!(
            "[Service]\nStandardOutput=append:{log}\nStandardError=append:{log}\n{settings}"
        );
        fs::write(own.join("99-test.conf"), test).unwrap();
        self.systemctl(&["daemon-reload"]).expect_code(0);
        unit_name
    }

    /// The process of the unit itself, not of a run, with this as its first argument.
    #[track_caller]
    fn process_of(&self, unit: &str, argument: &str) -> Pid {
        let procs = self.cgroup.join("system.slice").join(unit);
        let procs = fs::read_to_string(procs.join("cgroup.procs")).unwrap();
        let first = |pid: &&str| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split('\0').nth(1) == Some(argument)
        };
        let found = procs.lines().find(first);
        Pid::from_raw(found.expect("it runs").parse().unwrap())
    }

    /// What the job wrote into the unit's state directory.
    #[track_caller]
    fn seen_by_job(&self, name: &str) -> String {
        let file = self.dir.path().join("lib").join(name).join("cgroup");
        wait_for("a job has run", || {
            let log = self.log(name);
            assert!(!log.contains("not started"), "{name}: {log}");
            fs::read_to_string(&file).ok()
        })
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.dir.path().join(format!("{name}.log"))).unwrap_or_default()
    }

    /// The manager, as this side of the sandbox numbers it.
    fn init(&self) -> Option<String> {
        let unshare = self.child.id();
        let children = format!("/proc/{unshare}/task/{unshare}/children");
        let first = fs::read_to_string(children).ok()?;
        Some(first.split_ascii_whitespace().next()?.to_owned())
    }

    fn systemctl(&self, args: &[&str]) -> Output {
        let init = self.init().expect("the manager runs");
        let mut command = command::command("nsenter");
        command
            .args(["--target", &init, "--mount", "--pid", "--cgroup", "--net"])
            .args(["systemctl", "--no-pager"])
            .args(args);
        command::output(command)
    }

    fn property(&self, unit: &str, name: &str) -> String {
        let output = self.systemctl(&["show", "--value", "-p", name, unit]);
        output.expect_code(0).stdout.trim().to_owned()
    }
}

/// A cgroup of version 2 for the manager.
#[track_caller]
fn cgroup() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.contains(" cgroup2 "));
    let mount = mount.expect("a mounted cgroup2 hierarchy");
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("cronlatch-system-{}-{number}", std::process::id());
    let dir = Path::new(mount.split(' ').nth(1).unwrap())
        .join(own.expect("a place in it"))
        .join(name);
    fs::create_dir(&dir).unwrap();
    dir
}

impl Drop for System {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for entry in fs::read_dir(self.dir.path())
                .into_iter()
                .flatten()
                .flatten()
            {
                let path = entry.path();
                if path.extension().is_some_and(|kind| kind == "log") || path.ends_with("log") {
                    let text = fs::read_to_string(&path).unwrap_or_default();
                    eprintln!("--- {} ---\n{text}", path.display());
                }
            }
        }
        // Kills every process of the sandbox, and nothing else.
        let _ = fs::write(self.cgroup.join("cgroup.kill"), "1");
        let _ = self.child.wait();
        wait_until("the sandbox is gone", || remove(&self.cgroup));
    }
}

/// Removes a cgroup and those below it; false while one still holds a process.
fn remove(cgroup: &Path) -> bool {
    for entry in fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove(&entry.path());
        }
    }
    fs::remove_dir(cgroup).is_ok() || !cgroup.exists()
}
