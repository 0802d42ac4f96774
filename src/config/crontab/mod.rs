//! Crontabs: read by cron's rules, to run as they are or to be written as a job list.
//!
//! | file | content |
//! | --- | --- |
//! | `line` | what a line of a crontab is |
//! | `reader`, `settings` | a line and the settings above it -> the fields of a job |
//! | `command`, `input` | what a command does differently here; `%` |
//! | `flock`, `naming` | `flock FILE COMMAND` -> a lock; a command -> a name |
//! | `model` | the jobs of crontabs, before they become a list |
//! | `mail` | `MAILTO` -> a target of notifications |
//! | `directory` | `/etc/cron.daily` and its siblings |
//! | `tree`, `text` | jobs -> the tree that `list` reads; jobs -> the text of a list |

mod command;
mod directory;
mod flock;
mod input;
mod line;
mod mail;
mod model;
mod naming;
mod reader;
mod settings;
mod text;
mod tree;

#[cfg(test)]
mod tests;

use std::path::Path;

use super::environment::Environment;
pub(super) use line::is_crontab;
pub(crate) use model::{CrontabKind, Crontabs, ImportedList, LineRef, ReadOptions, RemarkKind};
pub(super) use tree::read_as_list;

impl Crontabs {
    /// Returns no crontabs; those that are added are read for this machine.
    pub(crate) fn new() -> Self {
        Self::in_environment(&Environment::of_process())
    }

    fn in_environment(environment: &Environment) -> Self {
        Self {
            environment: environment.clone(),
            ..Self::default()
        }
    }

    /// Adds the jobs of a crontab.
    pub(crate) fn add(&mut self, path: &Path, text: &str, options: &ReadOptions) {
        self.paths.push(path.to_owned());
        reader::read_all(self, text, options);
    }

    /// Records that a file was left out because cron ignores files of this name.
    pub(crate) fn add_ignored(&mut self, path: &Path) {
        self.paths.push(path.to_owned());
        self.remark(
            0,
            RemarkKind::NeedsLook,
            "cron ignores this file because of its name, which may have only letters, digits, `_` \
             and `-`; it is left out",
        );
    }

    /// Whether a directory such as `/etc/cron.daily` contains scripts instead of crontabs.
    pub(crate) fn is_script_directory(path: &Path) -> bool {
        directory::schedule(path).is_some()
    }

    /// Adds the scripts of a directory such as `/etc/cron.daily`.
    pub(crate) fn add_scripts(&mut self, path: &Path) -> std::io::Result<()> {
        self.paths.push(path.to_owned());
        directory::read(self, path)
    }

    /// Returns the number of jobs whose schedule is valid.
    pub(crate) fn job_count(&self) -> usize {
        self.valid_jobs().count()
    }

    /// Returns the text of a job list with these jobs.
    pub(crate) fn list(&self) -> ImportedList {
        text::of(self)
    }
}
