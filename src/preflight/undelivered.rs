//! Results that earlier daemons of this host have kept for a store that the list does not use.
//!
//! A daemon delivers the results for its own store. Those for another one stay in their files, and nothing else
//! would report them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Finding, Subject, disk, ids};
use crate::config::SPOOL_FILES;
use crate::names::HostName;

/// What is read of a line; the daemon reads the rest.
#[derive(Deserialize)]
struct KeptResult {
    store: String,
    /// Without a record it is a claim that could not be returned, which is over with its lease.
    record: Option<IgnoredAny>,
}

pub(super) fn look(subject: &Subject) -> Vec<Finding> {
    let Some((directory, _)) = disk::wanted_directory(subject) else {
        return Vec::new();
    };
    let store = subject.settings.name_of_results();
    let files = files_of(&subject.host, &directory);
    let found = files.iter().flat_map(|file| {
        let others = counts(file).into_iter().filter(|(of, _)| *of != store);
        others.map(|(of, results)| judge(file, &of, results))
    });
    found.collect()
}

/// The files of undelivered results of a host's daemons and manual runs, whatever their store.
fn files_of(host: &HostName, directory: &Path) -> Vec<PathBuf> {
    let is_one = |name: &str| {
        let rest = name.strip_prefix(SPOOL_FILES);
        let rest = rest.and_then(|rest| rest.strip_prefix(host.as_str()));
        rest.and_then(|rest| rest.strip_suffix(".jsonl"))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', '@']))
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    // Others may write to some directories: a link there is not followed.
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let named = files.filter(|entry| is_one(&entry.file_name().to_string_lossy()));
    let mut files: Vec<_> = named.map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// How many results a file has for each store. The daemon reports what it cannot read.
fn counts(file: &Path) -> BTreeMap<String, usize> {
    let text = fs::read(file).unwrap_or_default();
    let mut counts = BTreeMap::new();
    for line in text.split(|&byte| byte == b'\n') {
        if let Ok(KeptResult {
            store,
            record: Some(_),
        }) = serde_json::from_slice(line)
        {
            *counts.entry(store).or_default() += 1;
        }
    }
    counts
}

fn judge(file: &Path, store: &str, results: usize) -> Finding {
    // Behind the URL of a server are the prefixes of its keys; a path may have that character, too.
    let url = store.rsplit_once('#').map(|(url, _)| url);
    let store = url
        .filter(|url| !url.starts_with("sqlite:"))
        .unwrap_or(store);
    let runs = match results {
        1 => "1 run".to_owned(),
        n => format!("{n} runs"),
    };
    ids::RESULTS.warning(
        &file.display().to_string(),
        format!(
            "the results of {runs} are kept for {store}, a store that this list does not use: only a \
             daemon of this host that uses it delivers them"
        ),
        "start the daemon once with that store (--store), or delete the file if nobody needs the \
         results",
    )
}
