//! The Debian package: what it contains, and what its scripts do in a root of their own.
//!
//! `make test-packages` installs the packages in whole systems.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::docs::ROOT;
use crate::support::command;

/// A directory with a script that runs the program under test: its package is small and soon made.
static SCRIPT: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("cronlatch");
    let text = format!("#!/bin/sh\nexec '{}' \"$@\"\n", command::BINARY);
    fs::write(&script, text).unwrap();
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
    dir
});

/// Builds the package of a version in a directory, around the script.
#[track_caller]
fn deb(dir: &Path, version: &str) -> PathBuf {
    deb_of(&SCRIPT.path().join("cronlatch"), dir, version)
}

/// Builds the package of a version in a directory, around a program.
#[track_caller]
fn deb_of(program: &Path, dir: &Path, version: &str) -> PathBuf {
    let mut build = command::command("sh");
    build
        .arg("packaging/build-deb.sh")
        .arg(program)
        .arg(dir)
        .current_dir(ROOT)
        .env("VERSION", version)
        .env("COMPRESSION", "none")
        .env("SOURCE_DATE_EPOCH", "1790000000");
    let built = command::output(build).expect_code(0);
    PathBuf::from(built.stdout.trim())
}

#[test]
fn a_debian_package_contains_the_program_its_unit_and_what_is_read() {
    let dir = tempfile::tempdir().unwrap();
    // Without symbols, as it is installed.
    let program = dir.path().join("cronlatch");
    let mut strip = command::command("strip");
    strip.arg("-o").arg(&program).arg(command::BINARY);
    command::output(strip).expect_code(0);
    let package = deb_of(&program, dir.path(), "1.2.3");
    let name = package.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name.starts_with("cronlatch_1.2.3-1_"), "{name}");
    let dpkg_deb = |option: &str| {
        let mut ask = command::command("dpkg-deb");
        ask.arg(option).arg(&package);
        command::output(ask).expect_code(0).stdout
    };
    let contents = dpkg_deb("--contents");
    let has = |mode: &str, path: &str| {
        let found = contents.lines().any(|line| {
            line.starts_with(mode) && line.contains(" root/root ") && line.ends_with(path)
        });
        assert!(found, "no {mode} {path} in\n{contents}");
    };
    has("-rwxr-xr-x", " ./usr/bin/cronlatch");
    has("drwxr-x---", " ./etc/cronlatch/");
    for file in [
        "lib/systemd/system/cronlatch.service",
        "lib/sysusers.d/cronlatch.conf",
        "lib/tmpfiles.d/cronlatch.conf",
        "share/man/man1/cronlatch.1.gz",
        "share/man/man1/cronlatch-run.1.gz",
        "share/bash-completion/completions/cronlatch",
        "share/zsh/vendor-completions/_cronlatch",
        "share/fish/vendor_completions.d/cronlatch.fish",
        "share/doc/cronlatch/jobs.example.yaml",
        "share/doc/cronlatch/jobs.schema.json",
        "share/doc/cronlatch/copyright",
        "share/doc/cronlatch/changelog.gz",
        "share/doc/cronlatch/changelog.Debian.gz",
        "share/doc/cronlatch/drop-ins/20-strict.conf",
        "share/doc/cronlatch/docs/operations.md.gz",
    ] {
        has("-rw-r--r--", &format!(" ./usr/{file}"));
    }
    let control = dpkg_deb("--info");
    for field in [
        "Version: 1.2.3-1",
        "Section: admin",
        "libc6 (>= 2.",
        "systemd-sysusers",
    ] {
        assert!(control.contains(field), "no {field} in {control}");
    }
    assert!(
        !control.contains("@V") && !control.contains("@L"),
        "{control}"
    );
    // The same input makes the same bytes.
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bytes = |dir: &tempfile::TempDir| fs::read(deb(dir.path(), "1.2.3")).unwrap();
    assert!(bytes(&first) == bytes(&second));
}

/// A root with nothing in it but the database of dpkg. `systemctl` writes down its arguments.
struct Root {
    dir: tempfile::TempDir,
}

impl Root {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["bin", "root/var/lib/dpkg/info", "root/var/lib/dpkg/updates"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        // As on a machine that systemd runs.
        fs::create_dir_all(dir.path().join("root/run/systemd/system")).unwrap();
        fs::write(dir.path().join("root/var/lib/dpkg/status"), "").unwrap();
        let systemctl = dir.path().join("bin/systemctl");
        let script = "#!/bin/sh\necho \"$*\" >>\"${0%/*}/../asked\"\n";
        fs::write(&systemctl, script).unwrap();
        fs::set_permissions(systemctl, fs::Permissions::from_mode(0o755)).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("root").join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Runs dpkg, which calls the scripts with this root in `DPKG_ROOT`. Returns what `systemctl` was
    /// asked meanwhile.
    #[track_caller]
    fn dpkg(&self, action: &str, what: impl AsRef<std::ffi::OsStr>) -> Vec<String> {
        let asked = self.dir.path().join("asked");
        let _ = fs::remove_file(&asked);
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", self.dir.path().join("bin").display());
        let mut dpkg = command::command("dpkg");
        dpkg.arg(format!("--root={}", self.path("").display()))
            .args(["--force-script-chrootless", "--force-depends"])
            .args(["--log=/dev/null", action])
            .arg(what)
            .env("PATH", path)
            .env("DEBIAN_FRONTEND", "noninteractive");
        command::output(dpkg).expect_code(0);
        let asked = fs::read_to_string(asked).unwrap_or_default();
        asked.lines().map(str::to_owned).collect()
    }

    /// The last number is that of the group `cronlatch` of this root.
    fn mode_owner_group(&self, name: &str) -> (u32, u32, u32) {
        let found = fs::metadata(self.path(name)).unwrap();
        (found.mode() & 0o7777, found.uid(), found.gid())
    }
}

#[test]
fn a_debian_package_is_installed_upgraded_removed_and_purged() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: only root can install a package");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (deb(dir.path(), "1.0.0"), deb(dir.path(), "1.1.0~rc1"));
    let root = Root::new();

    assert_eq!(root.dpkg("--install", &first), ["daemon-reload"]);
    let program = root.path("usr/bin/cronlatch");
    let mut version = command::command(&program);
    version.arg("--version");
    command::output(version).expect_code(0);
    let groups = fs::read_to_string(root.path("etc/group")).unwrap();
    let group = groups.lines().find_map(|l| l.strip_prefix("cronlatch:"));
    let group = group.expect("the group of the account");
    let gid: u32 = group.split(':').nth(1).unwrap().parse().unwrap();
    assert_eq!(root.mode_owner_group("etc/cronlatch"), (0o750, 0, gid));

    // An administrator's and the daemon's own files.
    let wanted = "etc/systemd/system/multi-user.target.wants/cronlatch.service";
    root.write("etc/cronlatch/jobs.yaml", "jobs: []\n");
    root.write("var/lib/cronlatch/cronlatch.db", "");
    root.write(wanted, "");
    // Jobs that run are not ended, and dpkg does not wait for them.
    let restart = "--no-block try-restart cronlatch.service";
    assert_eq!(root.dpkg("--install", &second), ["daemon-reload", restart]);
    assert_eq!(root.mode_owner_group("etc/cronlatch"), (0o750, 0, gid));
    // The same or an older version again.
    assert_eq!(root.dpkg("--install", &first), ["daemon-reload", restart]);

    let removed = root.dpkg("--remove", "cronlatch");
    assert_eq!(removed, ["stop cronlatch.service", "daemon-reload"]);
    assert!(
        !program.exists()
            && !root
                .path("usr/lib/systemd/system/cronlatch.service")
                .exists()
    );
    for kept in [
        "etc/cronlatch/jobs.yaml",
        "var/lib/cronlatch/cronlatch.db",
        wanted,
    ] {
        assert!(root.path(kept).exists(), "{kept}");
    }

    assert_eq!(root.dpkg("--purge", "cronlatch"), ["daemon-reload"]);
    assert!(!root.path("var/lib/cronlatch").exists() && !root.path(wanted).exists());
    // Nobody but its author deletes a job list.
    let list = fs::read_to_string(root.path("etc/cronlatch/jobs.yaml"));
    assert_eq!(list.unwrap(), "jobs: []\n");
    let status = fs::read_to_string(root.path("var/lib/dpkg/status")).unwrap();
    assert!(!status.contains("cronlatch"), "{status}");
}
