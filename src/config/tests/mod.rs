//! Tests of the whole: from files to a list, or to the text of its errors.

mod errors;
mod fields;
mod files;
mod garbage;
mod identity;
mod long_lists;
mod notify;
mod places;
mod schema;
mod warnings;

use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::{ConfigErrors, JobList, list, load_in};
use crate::config::source::Source;

/// Reads one file of this text, named `jobs.yaml`, in an environment of these variables.
fn read_with(text: &str, variables: &[(&str, &str)]) -> Result<JobList, ConfigErrors> {
    let path = Path::new("jobs.yaml");
    let source = Source::new(path, text.to_owned());
    list::read(path, &[source], &Environment::of(variables))
}

fn read(text: &str) -> Result<JobList, ConfigErrors> {
    read_with(text, &[])
}

/// The list of a file that is right.
#[track_caller]
fn list(text: &str) -> JobList {
    match read(text) {
        Ok(list) => list,
        Err(errors) => panic!("{errors}\n\n{text}"),
    }
}

/// The whole text of the errors of a file that is wrong.
#[track_caller]
fn errors(text: &str) -> String {
    match read(text) {
        Ok(list) => panic!("accepted: {list:#?}\n\n{text}"),
        Err(errors) => errors.to_string(),
    }
}

/// One job of these further fields, each on a line of its own.
fn job(fields: &str) -> String {
    let mut text = String::from(
        r#"jobs:
  - name: j
    every: 1h
    command: ["true"]
"#,
    );
    for line in fields.lines() {
        text.push_str("    ");
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// A directory of these files.
fn directory(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).expect("a file in it");
    }
    let path = dir.path().to_owned();
    (dir, path)
}

/// The errors of a directory, the directory's own path left out.
#[track_caller]
fn directory_errors(files: &[(&str, &str)]) -> String {
    let (_dir, path) = directory(files);
    match load_in(&path, &Environment::of(&[])) {
        Ok(list) => panic!("accepted: {list:#?}"),
        Err(errors) => errors
            .to_string()
            .replace(&format!("{}", path.display()), "DIR"),
    }
}
