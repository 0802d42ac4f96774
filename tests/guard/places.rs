//! Daemons in particular places: on a terminal, in a delegated cgroup, as process 1, without
//! privileges.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::FromRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cronlatch::guard::{GuardOptions, Status};

use crate::helper::Setup;
use crate::support::{
    announced, finish, is_alive, on_runtime, pid, pid_in, shell, signal, wait_until,
};

fn group_of(pid: i32) -> i32 {
    let pid = nix::unistd::Pid::from_raw(pid);
    nix::unistd::getpgid(Some(pid))
        .expect("it is there")
        .as_raw()
}

#[test]
fn an_inherited_command_reads_the_callers_input_in_the_callers_group() {
    let files = tempfile::tempdir().expect("a directory");
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let script = r"
        read line; echo $line >$FILES/line
        set -- $(cat /proc/$$/stat); echo $5 >$FILES/group
        sleep 600";
    let daemon = Setup::new(script, files.path())
        .inherit()
        .stdin(reader)
        .start();
    writer.write_all(b"from the caller\n").expect("a reader");
    assert_eq!(announced(&files.path().join("line")), "from the caller");
    let group = announced(&files.path().join("group"));
    assert_eq!(group, group_of(daemon.pid()).to_string());
    assert_ne!(group, group_of(daemon.guard).to_string());
}

#[test]
fn an_inherited_command_has_what_else_its_caller_has_open() {
    let files = tempfile::tempdir().expect("a directory");
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let script = "read line <&9; echo $line >$FILES/line; sleep 600";
    let _daemon = Setup::new(script, files.path())
        .inherit()
        .stdin(reader)
        .input_at(9)
        .start();
    writer.write_all(b"from the caller\n").expect("a reader");
    assert_eq!(announced(&files.path().join("line")), "from the caller");
}

#[test]
fn ctrl_c_on_the_terminal_reaches_an_inherited_command_once() {
    let files = tempfile::tempdir().expect("a directory");
    let (mut controller, terminal) = terminal();
    let script = r#"
        n=0
        trap 'n=$((n + 1))' INT
        echo ready >$FILES/ready
        while [ ! -e $FILES/go ]; do sleep 0.02; done
        (exec </dev/tty) && echo "$n interrupts" >$FILES/count
        while :; do sleep 0.1; done"#;
    let _daemon = Setup::new(script, files.path())
        .inherit()
        .terminal(terminal)
        .start();
    announced(&files.path().join("ready"));
    controller.write_all(b"\x03").expect("a terminal");
    announced(&files.path().join("passed-on"));
    fs::write(files.path().join("go"), "").expect("a directory");
    assert_eq!(announced(&files.path().join("count")), "1 interrupts");
}

/// A new terminal: the side of the person, the side of the programs.
fn terminal() -> (File, File) {
    let (mut person, mut programs) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: two integers to write to; the other three may be null.
    let made = unsafe {
        libc::openpty(
            &raw mut person,
            &raw mut programs,
            none,
            none.cast(),
            none.cast(),
        )
    };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    for fd in [person, programs] {
        // SAFETY: plain integers; other tests' children must not keep the terminal.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    // SAFETY: openpty has just made both for us.
    unsafe { (File::from_raw_fd(person), File::from_raw_fd(programs)) }
}

#[test]
fn a_delegated_cgroup_finds_what_hides_in_every_other_way() {
    a_hidden_process_ends_with_its_run("plain", |setup| setup);
}

#[test]
fn runs_start_in_their_cgroups_where_clone3_is_refused() {
    a_hidden_process_ends_with_its_run("no-clone3", Setup::without_clone3);
}

fn a_hidden_process_ends_with_its_run(name: &str, change: impl FnOnce(Setup) -> Setup) {
    let Some(cgroup) = delegated_cgroup(name) else {
        return;
    };
    let files = tempfile::tempdir().expect("a directory");
    let enter = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", cgroup.display());
    // While another run lives, nothing but the cgroup says whose this is.
    let script = r"
        (setsid env -i FILES=$FILES sh -c 'echo $$ >$FILES/hidden; exec sleep 600' &)
        while [ ! -e $FILES/hidden ]; do sleep 0.02; done";
    let setup = Setup::through(&["sh", "-c", &enter, "sh"], script, files.path())
        .other("echo $$ >$FILES/other; exec sleep 600");
    let daemon = change(setup).start();
    let hidden = pid_in(&files, "hidden");
    announced(&files.path().join("exit"));
    assert!(!is_alive(hidden), "dead before the exit is reported");
    let other = pid_in(&files, "other");
    assert!(is_alive(other), "the other run is untouched");
    let cgroups = || fs::read_dir(&cgroup).expect("it exists").flatten();
    let made = || cgroups().filter(|entry| entry.path().is_dir()).count();
    assert_eq!(made(), 1, "the ended run's is removed");
    // Also when the guard is gone.
    signal(daemon.guard, libc::SIGKILL);
    wait_until("the other's is removed", || made() == 0);
    drop(daemon);
    wait_until("it can be removed", || fs::remove_dir(&cgroup).is_ok());
}

#[test]
fn what_left_the_daemons_control_group_is_killed_first_when_the_daemon_is_killed() {
    let Some(cgroup) = delegated_cgroup("migrant") else {
        return;
    };
    let files = tempfile::tempdir().expect("a directory");
    let enter = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", cgroup.display());
    let outside = cgroup
        .parent()
        .expect("it was made in one")
        .join("cgroup.procs");
    // It has nothing in common with its run, and would say so if it got the first signal.
    let hidden = r#"trap ": >$FILES/told" TERM; echo $$ >$OUTSIDE; echo $$ >$FILES/hidden
        while :; do sleep 60 & wait; done"#;
    let script = format!(
        "setsid -f env -i FILES=$FILES OUTSIDE={} sh -c '{hidden}'; exec sleep 600",
        outside.display()
    );
    let daemon = Setup::through(&["sh", "-c", &enter, "sh"], &script, files.path())
        .other("exec sleep 600")
        .start();
    let hidden = pid_in(&files, "hidden");
    daemon.signal(libc::SIGKILL);
    wait_until("it is gone", || !is_alive(hidden));
    assert!(!files.path().join("told").exists(), "it got no grace");
    drop(daemon);
    wait_until("it can be removed", || remove(&cgroup));
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

/// A new cgroup below our own; `None` where we may make none.
pub(crate) fn new_cgroup(name: &str) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts.lines().find(|line| line.contains(" cgroup2 "))?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let name = format!("cronlatch-test-{name}-{}", std::process::id());
    let dir = Path::new(mount.split(' ').nth(1)?).join(own).join(name);
    fs::create_dir(&dir).ok()?;
    Some(dir)
}

/// The same, marked as systemd marks a delegated one.
fn delegated_cgroup(name: &str) -> Option<PathBuf> {
    let dir = new_cgroup(name)?;
    let path = std::ffi::CString::new(dir.to_str()?).ok()?;
    let name = c"trusted.delegate";
    // SAFETY: two C strings and one byte with its length.
    let set = unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), c"1".as_ptr().cast(), 1, 0) };
    let usable = set == 0 && dir.join("cgroup.kill").exists();
    if !usable {
        fs::remove_dir(&dir).ok()?;
        return None;
    }
    Some(dir)
}

#[test]
fn process_1_of_a_container_reaps_what_it_adopts() {
    let unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let [program, arguments @ ..] = unshare;
    let may = Command::new(program).args(arguments).arg("true").output();
    if !may.is_ok_and(|output| output.status.success()) {
        return;
    }
    let files = tempfile::tempdir().expect("a directory");
    let daemon = Setup::through(&unshare, "sleep 600", files.path()).start();
    let children = format!("/proc/{0}/task/{0}/children", daemon.pid());
    let init = fs::read_to_string(children).expect("the kernel shows children");
    let inside = |script: &str| {
        let output = Command::new("nsenter")
            .args([
                "--target",
                init.trim(),
                "--pid",
                "--mount",
                "sh",
                "-c",
                script,
            ])
            .env("FILES", files.path())
            .output();
        output.expect("nsenter runs").status.success()
    };
    // As `docker exec` would: no descendant of the guard.
    assert!(inside("(sh -c 'echo $$ >$FILES/orphan' &)"));
    let orphan = announced(&files.path().join("orphan"));
    wait_until("it is reaped", || {
        !inside(&format!("test -e /proc/{orphan}"))
    });
}

#[test]
fn what_we_may_not_kill_is_reported_and_not_waited_for() {
    let sbin = ["/usr/bin/setpriv", "/bin/setpriv"];
    let Some(setpriv) = sbin.iter().find(|path| Path::new(path).exists()) else {
        return;
    };
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let files = tempfile::tempdir().expect("a directory");
    let dir = files.path();
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    };
    mode(dir, 0o777);
    let program = dir.join("cronlatch");
    fs::copy(env!("CARGO_BIN_EXE_cronlatch"), &program).expect("room");
    // What sudo is to an unprivileged daemon.
    let sudo = dir.join("sudo");
    fs::copy(setpriv, &sudo).expect("room");
    mode(&sudo, 0o4755);
    let guard = dir.join("guard");
    let other = "--reuid=12345 --regid=12345 --clear-groups";
    let script = format!(
        "#!/bin/sh\nexec {setpriv} {other} {} \"$@\"\n",
        program.display()
    );
    fs::write(&guard, script).expect("room");
    mode(&guard, 0o755);
    on_runtime(async {
        let options = GuardOptions::default().program(&guard);
        let processes = options
            .start()
            .expect("it starts")
            .serve()
            .expect("on a runtime");
        let script = r"
            $FILES/sudo --reuid=0 sh -c 'echo $$; exec sleep 600' &
            while ! grep -q '^Uid:.0' /proc/$!/status; do sleep 0.02; done";
        let mut spawn = shell(script);
        spawn.env.insert("FILES".into(), dir.into());
        spawn.grace = Duration::from_millis(100);
        let mut running = processes.spawn(spawn).await.expect("it starts");
        let survivor = pid(&mut running).await;
        let (_, exit) = finish(running).await;
        assert_eq!(exit.status, Status::Code(0));
        assert_eq!(exit.survivors, 1);
        assert!(is_alive(survivor));
        signal(survivor, libc::SIGKILL);
    });
}
