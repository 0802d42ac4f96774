//! Hosts that lack resources.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use nix::sys::resource::Resource;
use nix::sys::signal::Signal;

use super::{assert_no_silence, records};
use crate::support::{Daemon, Proxy, RedisServer, RunLog, command, proxy::Mode, wait_until};

/// Limits the open files of a running daemon to those it has; `None`: no further than its hard
/// limit.
fn limit_files(daemon: &Daemon, limited: bool) {
    let pid = daemon.pid();
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let files = Resource::RLIMIT_NOFILE as libc::__rlimit_resource_t;
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("it runs")
        .count();
    // SAFETY: two pointers, one of which may be null, the other to a structure of ours.
    let done = unsafe {
        let read = libc::prlimit(pid, files, std::ptr::null(), &raw mut limit);
        limit.rlim_cur = if limited {
            // Its numbers are low ones: it opened them one after the other.
            (open as libc::rlim_t).min(limit.rlim_max)
        } else {
            limit.rlim_max
        };
        read | libc::prlimit(pid, files, &raw const limit, std::ptr::null_mut())
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_host_without_file_descriptors_returns_its_occurrences_to_another_host() {
    let redis = RedisServer::start();
    let log = RunLog::new();
    let jobs = format!(
        "\
store: {}
jobs:
  - name: tick
    every: 1s
    command: '{}'
",
        redis.url(),
        log.job("0")
    );
    let mut poor = Daemon::on("poor", jobs.as_str()).start();
    let rich = Daemon::on("rich", jobs.as_str()).start();
    wait_until("it has run a job", || !log.entries().is_empty());
    limit_files(&poor, true);
    let words = [
        "WARN",
        "short of open files",
        "the occurrence goes back to the store",
        "LimitNOFILE",
    ];
    poor.wait_log(&words);
    let hosts = |rich: &Daemon| {
        let status = rich.ask(&["status", "--json"]).expect_code(0).json_lines();
        status[0]["hosts"].as_array().expect("hosts").clone()
    };
    wait_until("status shows what it lacks", || {
        let lacks = |host: &serde_json::Value| {
            host["name"] == "poor" && host["lacks"].as_str() == Some("open files")
        };
        hosts(&rich).iter().any(lacks)
    });
    let by_rich = || {
        log.entries()
            .iter()
            .filter(|run| run.host == "rich")
            .count()
    };
    wait_until("the other host runs the job", || by_rich() >= 4);
    limit_files(&poor, false);
    poor.wait_log(&["INFO", "can start processes again", "short of open files"]);
    assert_eq!(poor.terminate().code(), Some(0));
    let records = records(&rich, "tick");
    assert_no_silence(&records);
    let lost = |record: &&serde_json::Value| {
        record["outcome"] != "succeeded" && record["outcome"] != "skipped"
    };
    assert_eq!(records.iter().find(lost), None, "{records:#?}");
    drop(rich);
    log.assert_each_once();
    log.assert_none_early();
}

#[test]
fn a_host_without_memory_for_a_process_returns_its_occurrences_to_another_host() {
    let redis = RedisServer::start();
    let log = RunLog::new();
    // Several jobs, so that the poor host soon wins one of them.
    let job = |name: &str| {
        format!(
            "  - {{ name: {name}, every: 1s, command: '{}' }}\n",
            log.job("0")
        )
    };
    let jobs: String = ["a", "b", "c"].map(job).concat();
    let jobs = format!("store: {}\njobs:\n{jobs}", redis.url());
    let mut poor = Daemon::on("poor", jobs.as_str())
        .without_memory_for_processes()
        .start();
    let rich = Daemon::on("rich", jobs.as_str()).start();
    let words = [
        "WARN",
        "Cannot allocate memory",
        "short of memory",
        "the occurrence goes back to the store",
        "MemoryMax",
    ];
    let returned = |poor: &Daemon| -> Vec<(String, Option<i64>)> {
        let text = poor.log();
        // The last line may be half there.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let lines = whole
            .lines()
            .filter(|line| words.iter().all(|word| line.contains(word)));
        let field = |line: &str, name: &str| {
            let value = line.split(' ').find_map(|part| part.strip_prefix(name));
            value
                .unwrap_or_else(|| panic!("{name} in {line}"))
                .to_owned()
        };
        let instant = |line: &str| {
            let at = chrono::DateTime::parse_from_rfc3339(&field(line, "scheduled_at="));
            Some(at.expect("an instant").timestamp_millis())
        };
        lines
            .map(|line| (field(line, "job="), instant(line)))
            .collect()
    };
    poor.wait_until("the other host runs what it returned", |poor| {
        let returned = returned(poor);
        let runs = log.entries();
        runs.iter()
            .any(|run| run.host == "rich" && returned.contains(&(run.job.clone(), run.scheduled)))
    });
    poor.wait_until("status shows what it lacks", |_| {
        let status = rich.ask(&["status", "--json"]).expect_code(0).json_lines();
        let hosts = status[0]["hosts"].as_array().expect("hosts").clone();
        let lacks = |host: &serde_json::Value| {
            host["name"] == "poor" && host["lacks"].as_str() == Some("memory")
        };
        hosts.iter().any(lacks)
    });
    assert_eq!(poor.terminate().code(), Some(0));
    for job in ["a", "b", "c"] {
        let records = records(&rich, job);
        assert_no_silence(&records);
        let lost = |record: &&serde_json::Value| {
            record["outcome"] != "succeeded" && record["outcome"] != "skipped"
        };
        assert_eq!(records.iter().find(lost), None, "{records:#?}");
    }
    drop(rich);
    log.assert_each_once();
    assert!(log.entries().iter().all(|run| run.host == "rich"));
}

/// Two hosts and one occurrence, which the first of them was granted while it was stopped before
/// it knew; the second one has come to the run of the first, and would look again at the end of
/// its lease, after 30 s, or at the next occurrence, after a minute.
struct Stopped {
    log: RunLog,
    first: Daemon,
    second: Daemon,
    _proxy: Proxy,
    _redis: RedisServer,
}

impl Stopped {
    fn with_a_grant_under_way(user: u32, prepare: impl FnOnce(&Daemon)) -> Self {
        let redis = RedisServer::start();
        let proxy = Proxy::to(redis.port());
        let log = RunLog::new();
        log.open_to_all();
        let soon = chrono::Utc::now() + Duration::from_secs(5);
        let jobs = |port: u16| {
            format!(
                "\
store: redis://127.0.0.1:{port}
jobs:
  - name: seldom
    schedule: '{} * * * * *'
    working_dir: /
    command: '{}'
",
                soon.format("%S"),
                log.job("0")
            )
        };
        let first = Daemon::on("first", jobs(proxy.port())).run_by(user).start();
        prepare(&first);
        // It is stopped while the reply to its claim is on its way.
        proxy.set(Mode::Delay(Duration::from_millis(300)));
        let granted = || redis.number(&["EXISTS", "cronlatch:{seldom}:lock"]) == 1;
        wait_until("its claim is granted", granted);
        first.signal(Signal::SIGSTOP);
        proxy.set(Mode::Pass);
        let mut second = Daemon::on("second", jobs(redis.port())).start();
        second.wait_until("it knows of the run", |second| {
            let status = second.ask(&["status", "--json"]).expect_code(0);
            !status.json_lines()[0]["jobs"][0]["running"].is_null()
        });
        Self {
            log,
            first,
            second,
            _proxy: proxy,
            _redis: redis,
        }
    }

    /// The second host runs the occurrence before it would look by itself.
    #[track_caller]
    fn assert_second_runs_it(mut self) {
        let log = self.log;
        let run = || log.entries().into_iter().find(|run| run.host == "second");
        self.second.wait_until("it runs it", |_| run().is_some());
        let run = run().expect("it was there");
        let late = run.start - run.scheduled.expect("an occurrence");
        assert!(late < 25_000, "{run:?}");
        log.assert_each_once();
    }
}

#[test]
fn a_host_that_may_start_no_process_returns_its_occurrence_and_another_runs_it_at_once() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: only root can become a user with no other processes");
        return;
    }
    let mut hosts = Stopped::with_a_grant_under_way(31995, |first| {
        // A limit can be lowered by the same user, even where root may not.
        let mut lower = command::command("setpriv");
        lower
            .args(["--reuid=31995", "--regid=31995", "--clear-groups"])
            .args(["prlimit", "--nproc=1:1", "--pid"])
            .arg(first.guard().to_string());
        command::output(lower).expect_code(0);
    });
    hosts.first.signal(Signal::SIGCONT);
    let words = [
        "WARN",
        "job=seldom",
        "short of processes",
        "the occurrence goes back to the store",
        "TasksMax",
    ];
    hosts.first.wait_log(&words);
    hosts.second.wait_until("status shows it", |second| {
        let status = second.ask(&["status", "--json"]).expect_code(0);
        let hosts = status.json_lines()[0]["hosts"].clone();
        let lacks = |host: &serde_json::Value| {
            host["name"] == "first" && host["lacks"].as_str() == Some("processes")
        };
        hosts.as_array().expect("hosts").iter().any(lacks)
    });
    hosts.assert_second_runs_it();
}

#[test]
fn a_host_whose_guard_is_gone_returns_its_occurrence_and_another_runs_it_at_once() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: only root can run a daemon as another user");
        return;
    }
    let mut hosts = Stopped::with_a_grant_under_way(31994, |_| ());
    let guard = hosts.first.guard();
    nix::sys::signal::kill(guard, Signal::SIGKILL).expect("it runs");
    hosts.first.signal(Signal::SIGCONT);
    assert_eq!(hosts.first.wait_exit().code(), Some(70));
    let said = [
        "ERROR",
        "the guard process has died",
        "other hosts run what it had not started",
    ];
    assert_eq!(hosts.first.lines_with(&said), 1);
    // `status` shows no more of it.
    hosts.second.wait_until("the host is gone", |second| {
        let status = second.ask(&["status", "--json"]).expect_code(0);
        let hosts = status.json_lines()[0]["hosts"].clone();
        let hosts = hosts.as_array().expect("hosts");
        !hosts.iter().any(|host| host["name"] == "first")
    });
    hosts.assert_second_runs_it();
}

#[test]
fn want_of_threads_at_the_start_is_an_internal_error_and_no_panic() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: only root can become a user with no other processes");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).expect("ours");
    let list = dir.path().join("jobs.yaml");
    std::fs::write(&list, "jobs: [{ name: job, every: 1h, command: 'true' }]\n").expect("room");
    // Others may not reach the directory of the build.
    let program = dir.path().join("cronlatch");
    std::fs::copy(command::BINARY, &program).expect("room");
    // Not even the guard, the guard alone, some of the threads.
    for processes in [1, 2, 3, 6] {
        let mut daemon = command::command("setpriv");
        daemon
            .args([
                "--reuid=31998",
                "--regid=31998",
                "--clear-groups",
                "prlimit",
            ])
            .arg(format!("--nproc={processes}"))
            .arg(&program)
            .arg("run")
            .arg(&list)
            .args(["--host", "host"])
            .env("STATE_DIRECTORY", dir.path());
        let output = command::output(daemon).expect_code(70);
        assert!(
            !output.stderr.contains("panicked"),
            "{processes}: {output:#?}"
        );
        let said =
            output.stderr.contains("TasksMax") || output.stderr.contains("the guard process");
        assert!(said, "{processes}: {output:#?}");
    }
}

#[test]
fn a_state_directory_and_limits_that_do_not_suffice_are_reported_at_the_start() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: only root can become a user with no other processes");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("ours");
    let list = dir.path().join("jobs.yaml");
    // Nothing listens there: what this host lacks is reported although the store is away.
    let text = "store: redis://127.0.0.1:1\nmax_running: 100\njobs: [J]\n";
    let jobs: Vec<String> = (0..120)
        .map(|n| format!("{{ name: job{n}, every: 1h, command: 'true' }}"))
        .collect();
    std::fs::write(&list, text.replace('J', &jobs.join(", "))).expect("room");
    let program = dir.path().join("cronlatch");
    std::fs::copy(command::BINARY, &program).expect("room");
    let log = dir.path().join("log");
    let file = std::fs::File::create(&log).expect("room");
    let group = TaskGroup::of(210);
    if group.is_none() {
        eprintln!("not run for pids.max: no control group here limits tasks");
    }
    let starting = |subcommand: &str| {
        let mut poor = match &group {
            Some(group) => group.entered_by("setpriv"),
            None => command::command("setpriv"),
        };
        poor.args(["--reuid=31997", "--regid=31997", "--clear-groups"])
            .args(["prlimit", "--nproc=200", "--nofile=200:200"])
            .arg(&program)
            .arg(subcommand);
        poor
    };
    let group_said = |text: &str| {
        let words = ["210", "232", "pids.max"];
        let says = |line: &str| words.iter().all(|word| line.contains(word));
        group.is_none() || text.lines().any(says)
    };
    let mut doctor = starting("doctor");
    doctor
        .arg("-c")
        .arg(&list)
        .env("STATE_DIRECTORY", dir.path());
    let doctor = command::output(doctor);
    assert!(group_said(&doctor.stdout), "{doctor:#?}");
    let mut daemon = starting("run");
    daemon
        .arg(&list)
        .args(["--host", "host"])
        .env("STATE_DIRECTORY", dir.path())
        .stderr(file);
    let mut daemon = daemon.spawn().expect("it starts");
    let said = |words: &[&str]| {
        let text = std::fs::read_to_string(&log).expect("a log");
        text.lines()
            .any(|line| words.iter().all(|word| line.contains(word)))
    };
    wait_until("all are reported", || {
        group_said(&std::fs::read_to_string(&log).expect("a log"))
            && said(&["WARN", "disk.state", "cannot be written to"])
            && said(&["WARN", "host.files", "200", "264", "LimitNOFILE"])
            && said(&["WARN", "host.processes", "200", "232", "LimitNPROC"])
    });
    daemon.kill().expect("a child of ours");
    daemon.wait().expect("a child of ours");
}

/// A control group that limits tasks; removed in the end.
struct TaskGroup(std::path::PathBuf);

impl TaskGroup {
    /// Makes one of either version below our own; `None` where there is no such controller.
    fn of(tasks: u32) -> Option<Self> {
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
        let name = format!("cronlatch-tasks-{}", std::process::id());
        own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controller, path) = (fields.next()?, fields.next()?);
            let fits = |mount: &&str| match controller {
                "" => mount.contains(" cgroup2 "),
                "pids" => mount.contains(" cgroup ") && mount.contains(",pids"),
                _ => false,
            };
            let point = mounts.lines().find(fits)?.split(' ').nth(1)?;
            let dir = std::path::Path::new(point)
                .join(path.trim_start_matches('/'))
                .join(&name);
            std::fs::create_dir(&dir).ok()?;
            let group = Self(dir);
            std::fs::write(group.0.join("pids.max"), tasks.to_string()).ok()?;
            Some(group)
        })
    }

    /// A command that enters the group before it becomes the program.
    fn entered_by(&self, program: &str) -> std::process::Command {
        let enter = format!("echo 0 >{}/cgroup.procs && exec \"$@\"", self.0.display());
        let mut command = command::command("sh");
        command.args(["-c", &enter, "sh", program]);
        command
    }
}

impl Drop for TaskGroup {
    fn drop(&mut self) {
        // The guard of a killed daemon ends a moment after it.
        wait_until("the control group is empty", || {
            std::fs::remove_dir(&self.0).is_ok()
        });
    }
}

#[test]
fn runs_that_cannot_be_ended_are_named_at_the_end_and_the_exit_is_not_0() {
    let setpriv = std::path::Path::new("/usr/bin/setpriv");
    if !nix::unistd::geteuid().is_root() || !setpriv.exists() {
        eprintln!("not run: only root can make a set-uid program");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mode = |path: &std::path::Path, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("ours");
    };
    mode(dir.path(), 0o777);
    let program = dir.path().join("cronlatch");
    std::fs::copy(command::BINARY, &program).expect("room");
    // What sudo is to a daemon that is not root.
    let sudo = dir.path().join("sudo");
    std::fs::copy(setpriv, &sudo).expect("room");
    mode(&sudo, 0o4755);
    let main = dir.path().join("main");
    let list = dir.path().join("jobs.yaml");
    let text = format!(
        r#"drain_timeout: 1s
jobs:
  - {{ name: stubborn, every: 1s, lock: {{ ttl: 4s }}, command: 'exec {} --reuid=0 sh -c "echo \$\$ >{}; exec sleep 600"' }}
"#,
        sudo.display(),
        main.display()
    );
    std::fs::write(&list, text).expect("room");
    let mut daemon = command::command("setpriv");
    daemon
        .args(["--reuid=31996", "--regid=31996", "--clear-groups"])
        .arg(&program)
        .arg("run")
        .arg(&list)
        .args(["--host", "host"])
        .env("STATE_DIRECTORY", dir.path());
    // A file: the guard keeps its end of a pipe open for as long as it tries.
    let log = dir.path().join("log");
    let mut child = daemon
        .stderr(std::fs::File::create(&log).expect("room"))
        .spawn()
        .expect("it starts");
    let read = || std::fs::read_to_string(&main).unwrap_or_default();
    wait_until("the job runs as root", || read().ends_with('\n'));
    let pid: i32 = read().trim().parse().expect("a pid");
    let daemon = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(daemon, nix::sys::signal::Signal::SIGTERM).expect("a child of ours");
    let status = child.wait().expect("a child of ours");
    let text = std::fs::read_to_string(&log).expect("a log");
    let job = nix::unistd::Pid::from_raw(pid);
    nix::sys::signal::kill(job, nix::sys::signal::Signal::SIGKILL).expect("it lives on");
    assert_eq!(status.code(), Some(70), "{text}");
    let named = text.lines().any(|line| {
        let words = [
            "ERROR",
            "run abandoned",
            "job=stubborn",
            "run_id=",
            "scheduled_at=2",
        ];
        words.iter().all(|word| line.contains(word))
    });
    assert!(named, "{text}");
    assert!(text.contains("1 run did not end"), "{text}");
}

/// How many arenas of 64 MB the allocator has made for threads, beside the heap of the program.
#[cfg(all(target_env = "gnu", target_pointer_width = "64"))]
fn arenas_of_threads(daemon: &Daemon) -> usize {
    const ARENA: u64 = 64 << 20;
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", daemon.pid())).expect("it runs");
    let mut anonymous = Vec::new();
    for line in maps.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (from, to) = fields[0].split_once('-').expect("a range");
        let [from, to] = [from, to].map(|at| u64::from_str_radix(at, 16).expect("an address"));
        // The used part can be written, the rest cannot be accessed.
        if fields.len() == 5 && ["rw-p", "---p"].contains(&fields[1]) {
            anonymous.push((from, to, fields[1]));
        }
    }
    let neighbours = anonymous.iter().zip(anonymous.iter().skip(1));
    let arenas = neighbours.filter(|(used, rest)| {
        let whole = used.0.is_multiple_of(ARENA) && rest.1 >= used.0 + ARENA;
        whole && used.1 == rest.0 && (used.2, rest.2) == ("rw-p", "---p")
    });
    arenas.count()
}

#[test]
#[cfg(all(target_env = "gnu", target_pointer_width = "64"))]
fn the_threads_of_a_daemon_share_the_memory_of_the_program() {
    // An arena of its own for each thread would keep what the start has used there. The threads that read a long list
    // may leave theirs.
    for (jobs, most) in [(1, 0), (4_000, 3)] {
        let job = |n| format!("  - {{ name: job-{n}, schedule: '@yearly', command: 'true' }}\n");
        let list: String = (0..jobs).map(job).collect();
        let daemon = Daemon::on("host", format!("jobs:\n{list}")).start();
        let arenas = arenas_of_threads(&daemon);
        assert!(arenas <= most, "{jobs} jobs: {arenas} arenas");
    }
}
