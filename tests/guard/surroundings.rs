//! What a command finds around it: environment, directory, user, signals, files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use cronlatch::guard::{Credentials, Lack, Processes, Spawn, SpawnError, Status};

use crate::support::{command, finish, shell, with_guard};

async fn lines(processes: &Processes, spawn: Spawn) -> Vec<String> {
    let running = processes.spawn(spawn).await.expect("it starts");
    let (lines, exit) = finish(running).await;
    assert_eq!(exit.status, Status::Code(0), "{lines:?}");
    lines
}

async fn refused(processes: &Processes, spawn: Spawn) -> (String, std::io::ErrorKind) {
    match processes.spawn(spawn).await {
        Err(SpawnError::CannotStart { step, source }) => (step, source.kind()),
        other => panic!("refused, not {other:?}"),
    }
}

#[test]
fn a_command_has_the_environment_it_was_given_and_its_run_id() {
    with_guard(async |processes| {
        let mut spawn = command(&["/usr/bin/env"]);
        spawn.env.clear();
        spawn.env.insert("A".into(), "b c".into());
        let run = spawn.run.clone();
        let expected = ["A=b c".to_owned(), format!("CRONLATCH_RUN_ID={run}")];
        assert_eq!(lines(&processes, spawn).await, expected);
    });
}

#[test]
fn an_environment_too_long_for_a_packet_arrives_whole() {
    with_guard(async |processes| {
        let mut spawn = shell("echo ${#LONG}");
        spawn.env.insert("LONG".into(), "x".repeat(100_000).into());
        assert_eq!(lines(&processes, spawn).await, ["100000"]);
    });
}

#[test]
fn directory_mask_and_nice_value_are_set() {
    with_guard(async |processes| {
        let files = tempfile::tempdir().expect("a directory");
        let dir = files.path().canonicalize().expect("it exists");
        let mut spawn = shell("pwd; umask; nice");
        spawn.working_dir = Some(dir.clone());
        spawn.umask = Some(0o027);
        spawn.nice = Some(7);
        let expected = [dir.display().to_string(), "0027".to_owned(), "7".to_owned()];
        assert_eq!(lines(&processes, spawn).await, expected);
    });
}

#[test]
fn user_and_all_groups_are_set() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    with_guard(async |processes| {
        let mut spawn = shell("id -u; id -g; id -G");
        spawn.user = Some(Credentials {
            uid: 12345,
            gid: 23456,
            groups: vec![23456, 34567],
        });
        assert_eq!(
            lines(&processes, spawn).await,
            ["12345", "23456", "23456 34567"]
        );
    });
}

#[test]
fn a_command_that_changed_its_user_dies_with_the_guard() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    crate::support::on_runtime(async {
        let guard = crate::support::guard();
        let guard_pid = guard.pid().cast_signed();
        let processes = guard.serve().expect("on a runtime");
        let mut spawn = command(&["sleep", "600"]);
        spawn.user = Some(Credentials {
            uid: 12345,
            gid: 12345,
            groups: vec![],
        });
        let running = processes.spawn(spawn).await.expect("it starts");
        let main = running.pid;
        crate::support::signal(guard_pid, libc::SIGKILL);
        finish(running).await;
        assert!(!crate::support::is_alive(main));
    });
}

#[test]
fn no_signal_is_ignored_or_blocked() {
    with_guard(async |processes| {
        let shown = lines(
            &processes,
            command(&["grep", "Sig[BI]", "/proc/self/status"]),
        )
        .await;
        for line in shown {
            let (_, mask) = line.split_once('\t').expect("a mask");
            let mask = u64::from_str_radix(mask, 16).expect("hexadecimal");
            // 32 and 33 are the C library's own, and out of its callers' reach.
            assert_eq!(mask & !(0b11 << 31), 0, "{line}");
        }
    });
}

#[test]
fn a_command_has_no_open_files_but_its_own_three() {
    // A file that is not closed on exec, as a careless starter of the daemon might leave it.
    let careless = fs::File::open("/dev/null").expect("it exists");
    // SAFETY: dup on a number only; the copy is left open on purpose.
    let left_open = unsafe { libc::dup(std::os::fd::AsRawFd::as_raw_fd(&careless)) };
    assert!(left_open > 2);
    with_guard(async |processes| {
        // Another command's pipes are open in daemon and guard meanwhile.
        let other = processes
            .spawn(shell("sleep 600"))
            .await
            .expect("it starts");
        let script = "for f in /proc/$$/fd/*; do [ -e $f ] && echo ${f##*/}; done; true";
        assert_eq!(lines(&processes, shell(script)).await, ["0", "1", "2"]);
        other.end();
        finish(other).await;
    });
}

#[test]
fn a_captured_command_reads_an_empty_input_and_leads_its_own_group() {
    with_guard(async |processes| {
        let script = "cat; set -- $(cat /proc/$$/stat); [ $5 = $$ ] && echo leader";
        assert_eq!(lines(&processes, shell(script)).await, ["leader"]);
    });
}

#[test]
fn a_program_is_found_as_a_shell_finds_it() {
    with_guard(async |processes| {
        let files = tempfile::tempdir().expect("a directory");
        let first = files.path().join("first");
        let second = files.path().join("second");
        for dir in [&first, &second] {
            fs::create_dir(dir).expect("a directory");
        }
        // Not executable: passed over while a later one is.
        fs::write(first.join("tool"), "echo wrong\n").expect("a file");
        fs::create_dir(first.join("denied")).expect("a directory");
        fs::write(second.join("denied"), "echo wrong\n").expect("a file");
        // No `#!`: the shell's.
        fs::write(second.join("tool"), "echo \"script $1\"\n").expect("a file");
        fs::set_permissions(second.join("tool"), fs::Permissions::from_mode(0o755)).expect("ours");
        let path = format!("{}:{}:/usr/bin:/bin", first.display(), second.display());
        let mut spawn = command(&["tool", "a"]);
        spawn.env.insert("PATH".into(), path.clone().into());
        assert_eq!(lines(&processes, spawn).await, ["script a"]);
        let mut spawn = command(&["denied"]);
        spawn.env.insert("PATH".into(), path.into());
        let expected = (
            "run \"denied\"".to_owned(),
            std::io::ErrorKind::PermissionDenied,
        );
        assert_eq!(refused(&processes, spawn).await, expected);
    });
}

#[test]
fn the_step_that_failed_is_named() {
    with_guard(async |processes| {
        let mut spawn = shell("true");
        spawn.working_dir = Some("/no/such/place".into());
        let (step, kind) = refused(&processes, spawn).await;
        assert_eq!(step, "change to directory \"/no/such/place\"");
        assert_eq!(kind, std::io::ErrorKind::NotFound);
        let (step, kind) = refused(&processes, command(&["a\0b"])).await;
        assert_eq!(step, "run \"a\\0b\"");
        assert_eq!(kind, std::io::ErrorKind::InvalidInput);
        let (step, _) = refused(&processes, command(&[""])).await;
        assert_eq!(step, "run \"\"");
    });
}

#[test]
fn an_end_by_a_real_time_signal_is_reported() {
    with_guard(async |processes| {
        let running = processes
            .spawn(shell("kill -34 $$; sleep 600"))
            .await
            .expect("it starts");
        assert_eq!(finish(running).await.1.status, Status::Signal(34));
    });
}

/// Lets a process open so many more files, and counts those that it has open.
fn leave_room(pid: i32, room: u64) -> usize {
    let list = fs::read_dir(format!("/proc/{pid}/fd")).expect("it is there");
    let open: Vec<u64> = list
        .map(|file| file.expect("a file").file_name())
        .map(|name| {
            name.to_str()
                .and_then(|name| name.parse().ok())
                .expect("a number")
        })
        .collect();
    let taken = (0..).filter(|number| !open.contains(number));
    let most = taken.take(usize::try_from(room).expect("few") + 1).last();
    limit_files(pid, most.expect("there are more numbers"));
    open.len()
}

fn limit_files(pid: i32, soft: u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limits are read from and written to locals of the right type.
    unsafe {
        assert_eq!(
            libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut limit),
            0
        );
        limit.rlim_cur = soft.min(limit.rlim_max);
        assert_eq!(
            libc::prlimit(
                pid,
                libc::RLIMIT_NOFILE,
                &raw const limit,
                std::ptr::null_mut()
            ),
            0
        );
    }
}

#[test]
fn a_guard_without_room_for_the_files_of_a_command_refuses_that_one_only() {
    crate::support::on_runtime(async {
        let guard = crate::support::guard();
        let guard_pid = guard.pid().cast_signed();
        let processes = guard.serve().expect("on a runtime");
        let mut other = processes
            .spawn(shell("echo here; exec sleep 600"))
            .await
            .expect("it starts");
        assert_eq!(crate::support::line(&mut other).await, "here");
        let mut long = shell("true");
        long.env.insert("LONG".into(), "x".repeat(100_000).into());
        for spawn in [shell("true"), long] {
            for room in 0..=3 {
                let mut spawn = spawn.clone();
                spawn.run = cronlatch::names::RunId::new();
                let open = leave_room(guard_pid, room);
                let refused = processes.spawn(spawn).await;
                assert!(
                    matches!(
                        refused,
                        Err(SpawnError::NoResources {
                            lack: Lack::Files,
                            ..
                        })
                    ),
                    "room for {room}: {refused:?}"
                );
                assert_eq!(leave_room(guard_pid, 3), open, "it keeps none");
            }
        }
        limit_files(guard_pid, u64::MAX);
        assert_eq!(lines(&processes, shell("echo again")).await, ["again"]);
        assert!(crate::support::is_alive(other.pid));
        other.end();
        finish(other).await;
    });
}
