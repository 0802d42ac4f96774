//! What a restart of the server leaves: the ledger, or nothing.

use super::facts::Facts;
use super::{Finding, ids};
use crate::store::StoreSettings;

pub(super) fn judge(facts: &Facts, settings: &StoreSettings) -> Vec<Finding> {
    let failing = failing(facts);
    if failing.is_empty() {
        kept(facts, settings).into_iter().collect()
    } else {
        failing
    }
}

fn failing(facts: &Facts) -> Vec<Finding> {
    let fields = [
        ("aof_last_write_status", "the append-only file"),
        ("rdb_last_bgsave_status", "a snapshot"),
    ];
    let broken = fields
        .into_iter()
        .filter(|(field, _)| facts.info(field).is_some_and(|status| status != "ok"));
    broken
        .map(|(_, what)| {
            ids::PERSISTENCE.danger(
                &facts.shown,
                format!(
                    "the server could not write {what}: it may reject claims until it can, and a \
                     restart loses the ledger's changes since then"
                ),
                "check the server's disk and its log",
            )
        })
        .collect()
}

fn kept(facts: &Facts, settings: &StoreSettings) -> Option<Finding> {
    let aof = facts.info("aof_enabled")? == "1";
    let fsync = facts.setting("appendfsync");
    if aof {
        return Some(with_file(facts, fsync, settings));
    }
    let fix = "CONFIG SET appendonly yes, and the same line in the server's configuration file";
    // Who may not ask sees a snapshot that has been taken, at least.
    let snapshots = facts.setting("save").map_or_else(
        || facts.number("rdb_saves").is_some_and(|saves| saves > 0),
        |save| !save.is_empty(),
    );
    Some(if snapshots {
        ids::PERSISTENCE.warning(
            &facts.shown,
            "snapshots only: a crash loses the last minutes of the ledgers; claims then wait for one \
             ttl, and what was due in those minutes is recorded as unknown",
            fix,
        )
    } else {
        ids::PERSISTENCE.warning(
            &facts.shown,
            "nothing is written to disk: a restart of the server loses the ledgers and the history; \
             claims then wait for one ttl, and what was due before is recorded as unknown",
            fix,
        )
    })
}

fn with_file(facts: &Facts, fsync: Option<&str>, settings: &StoreSettings) -> Finding {
    let several = matches!(settings, StoreSettings::Redlock(_));
    match fsync {
        None => ids::PERSISTENCE.ok(&facts.shown, "append-only file; appendfsync cannot be read"),
        Some("no") => ids::PERSISTENCE.warning(
            &facts.shown,
            "append-only file with appendfsync no: a power failure loses up to half a minute of \
             what has run",
            "CONFIG SET appendfsync everysec, and the same line in its configuration file",
        ),
        Some("everysec") if several => ids::PERSISTENCE.hint(
            &facts.shown,
            "append-only file with appendfsync everysec: a node that loses its last second does not \
             count for one ttl",
            "set appendfsync always if the disk is fast enough",
        ),
        Some(policy) => ids::PERSISTENCE.ok(
            &facts.shown,
            format!("append-only file, appendfsync {policy}"),
        ),
    }
}
