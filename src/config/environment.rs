//! The one place where `config` reads the process environment and the machine it runs on.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{Group, Uid, User};

use crate::names::HostName;
use crate::store::StoreSettings;

/// What the process was given: its variables and the machine's time zone.
#[derive(Debug, Clone, Default)]
pub(super) struct Environment {
    variables: BTreeMap<OsString, OsString>,
    /// The machine's time zone, if it is known.
    pub(super) zone: Option<String>,
    /// Whether users and programs are those of this machine; tests have a few fixed ones.
    of_machine: bool,
    /// Whether variables that only notifications and pings need may be unset.
    may_lack_secrets: bool,
}

/// A variable that is no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotText;

impl Environment {
    /// The environment of this process.
    pub(super) fn of_process() -> Self {
        let variables: BTreeMap<_, _> = std::env::vars_os().collect();
        let zone = machine_zone(variables.get(OsStr::new("TZ")).map(OsString::as_os_str));
        Self {
            variables,
            zone,
            of_machine: true,
            may_lack_secrets: false,
        }
    }

    /// The same environment for a command that starts no job: what only notifications and pings need
    /// may be unset.
    pub(super) fn without_secrets(self) -> Self {
        Self {
            may_lack_secrets: true,
            ..self
        }
    }

    /// Gives a variable a value.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.variables.insert(name.into(), value.into());
    }

    /// Whether variables that only notifications and pings need may be unset.
    pub(super) fn may_lack_secrets(&self) -> bool {
        self.may_lack_secrets
    }

    /// An environment of these variables.
    #[cfg(test)]
    pub(super) fn of(variables: &[(&str, &str)]) -> Self {
        Self {
            variables: variables
                .iter()
                .map(|(k, v)| ((*k).into(), (*v).into()))
                .collect(),
            zone: None,
            of_machine: false,
            may_lack_secrets: false,
        }
    }

    /// Whether the files of this machine count.
    pub(super) fn of_machine(&self) -> bool {
        self.of_machine
    }

    /// Whether this machine has a user of this name or number. May block on a name service.
    pub(super) fn has_user(&self, name: &str) -> bool {
        if !self.of_machine {
            return ["root", "backup", "www-data"].contains(&name);
        }
        // An error of the name service proves nothing.
        let found = match name.parse() {
            Ok(uid) => User::from_uid(Uid::from_raw(uid)),
            Err(_) => User::from_name(name),
        };
        found.map_or(true, |user| user.is_some())
    }

    /// Whether this machine has a group of this name; a number needs no name.
    pub(super) fn has_group(&self, name: &str) -> bool {
        if !self.of_machine {
            return name == "root";
        }
        name.parse::<u32>().is_ok() || Group::from_name(name).map_or(true, |group| group.is_some())
    }

    /// Whether this machine has a program: a path, or a name on the usual search path.
    pub(super) fn has_program(&self, program: &str) -> bool {
        const DIRECTORIES: [&str; 6] = [
            "/usr/local/sbin",
            "/usr/local/bin",
            "/usr/sbin",
            "/usr/bin",
            "/sbin",
            "/bin",
        ];
        if !self.of_machine {
            return program.starts_with('/') && program != "/bin/missing" || program == "echo";
        }
        if program.contains('/') {
            return Path::new(program).exists();
        }
        DIRECTORIES
            .iter()
            .any(|directory| Path::new(directory).join(program).exists())
    }

    /// The name of this host: `CRONLATCH_HOST`, else the machine's.
    pub(super) fn host(&self) -> Option<HostName> {
        match self.get("CRONLATCH_HOST") {
            Ok(Some(name)) => name.parse().ok(),
            _ if self.of_machine => HostName::of_machine().ok(),
            _ => None,
        }
    }

    /// The value of a variable.
    pub(super) fn get(&self, name: &str) -> Result<Option<&str>, NotText> {
        self.variables
            .get(OsStr::new(name))
            .map(|value| value.to_str().ok_or(NotText))
            .transpose()
    }

    /// The names of all variables that are text.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.variables.keys().filter_map(|k| k.to_str())
    }

    fn path(&self, name: &str) -> Option<&Path> {
        self.variables
            .get(OsStr::new(name))
            .filter(|v| !v.is_empty())
            .map(Path::new)
    }

    /// The directory for what is kept between starts.
    pub(super) fn state_directory(&self) -> Option<PathBuf> {
        // systemd names several state directories with colons between them; the first is ours.
        let given = self.path("STATE_DIRECTORY").and_then(|dirs| {
            dirs.as_os_str()
                .as_bytes()
                .split(|&b| b == b':')
                .find(|dir| !dir.is_empty())
                .map(|dir| PathBuf::from(OsStr::from_bytes(dir)))
        });
        given
            .or_else(|| {
                // The base directory specification: relative paths are to be ignored.
                self.path("XDG_STATE_HOME")
                    .filter(|p| p.is_absolute())
                    .map(|p| p.join("cronlatch"))
            })
            .or_else(|| {
                self.path("HOME")
                    .filter(|p| p.is_absolute())
                    .map(|p| p.join(".local/state/cronlatch"))
            })
    }

    /// Where the embedded store of this environment lies.
    pub(super) fn embedded_store(&self) -> Result<StoreSettings, String> {
        let directory = self.state_directory().ok_or(
            "no directory for the embedded store: none of STATE_DIRECTORY, XDG_STATE_HOME \
             and HOME is set; name a store in the job list (`store:`) or with --store",
        )?;
        Ok(StoreSettings::Sqlite {
            path: directory.join("cronlatch.db"),
        })
    }
}

/// How the names of the files begin that keep what a daemon knows of the store's clock, in its state directory.
pub(crate) const CLOCK_FILES: &str = "clock-";
/// How the names of the files of undelivered results begin, in the same directory.
pub(crate) const SPOOL_FILES: &str = "undelivered-";
/// The directory of the output of runs, in the same directory.
pub(crate) const OUTPUT_DIRECTORY: &str = "output";

/// The directory for what is kept between starts: `$STATE_DIRECTORY`, else `$XDG_STATE_HOME/cronlatch`,
/// else `~/.local/state/cronlatch`; `None` if no such variable is set.
pub(crate) fn state_directory() -> Option<PathBuf> {
    Environment::of_process().state_directory()
}

/// The embedded store: in `$STATE_DIRECTORY`, else `$XDG_STATE_HOME/cronlatch`, else
/// `~/.local/state/cronlatch`.
pub fn embedded_store() -> Result<StoreSettings, String> {
    Environment::of_process().embedded_store()
}

/// The machine's time zone, when it has a name that is known.
pub(crate) fn machine_time_zone() -> Option<String> {
    Environment::of_process().zone
}

/// The machine's host name; characters that a name cannot have become `-`.
pub fn machine_host_name() -> Result<HostName, String> {
    HostName::of_machine().map_err(|why| format!("{why}; give one with --host"))
}

/// The IANA name of the machine's zone: `TZ`, else what `/etc/localtime` points to, else
/// `/etc/timezone`.
fn machine_zone(tz: Option<&OsStr>) -> Option<String> {
    if let Some(tz) = tz.and_then(OsStr::to_str) {
        return zone_of_path(Path::new(tz.trim_start_matches(':')));
    }
    std::fs::read_link("/etc/localtime")
        .ok()
        .and_then(|target| zone_of_path(&target))
        .or_else(|| {
            let text = std::fs::read_to_string("/etc/timezone").ok()?;
            zone_of_path(Path::new(text.trim()))
        })
}

fn zone_of_path(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    let name = text.rsplit_once("zoneinfo/").map_or(text, |(_, name)| name);
    let zone: chrono_tz::Tz = name.parse().ok()?;
    Some(zone.name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(variables: &[(&str, &str)]) -> Result<StoreSettings, String> {
        Environment::of(variables).embedded_store()
    }

    fn sqlite(path: &str) -> StoreSettings {
        StoreSettings::Sqlite { path: path.into() }
    }

    #[test]
    fn the_embedded_store_lies_in_the_first_directory_that_is_given() {
        assert_eq!(
            place(&[("STATE_DIRECTORY", "/var/lib/a:/var/lib/b"), ("HOME", "/h")]),
            Ok(sqlite("/var/lib/a/cronlatch.db"))
        );
        assert_eq!(
            place(&[
                ("STATE_DIRECTORY", ""),
                ("XDG_STATE_HOME", "/x"),
                ("HOME", "/h")
            ]),
            Ok(sqlite("/x/cronlatch/cronlatch.db"))
        );
        assert_eq!(
            place(&[("XDG_STATE_HOME", "relative"), ("HOME", "/h")]),
            Ok(sqlite("/h/.local/state/cronlatch/cronlatch.db"))
        );
        assert!(place(&[]).is_err());
    }

    #[test]
    fn the_zone_is_read_from_a_path() {
        let zone = |p: &str| zone_of_path(Path::new(p));
        assert_eq!(
            zone("/usr/share/zoneinfo/Europe/Berlin").as_deref(),
            Some("Europe/Berlin")
        );
        assert_eq!(zone("../usr/share/zoneinfo/UTC").as_deref(), Some("UTC"));
        assert_eq!(zone("/etc/adjtime"), None);
    }
}
