//! The embedded store: looks at the file.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::{PAUSE, Post};
use crate::checker::{Holding, Sight, Sighting};

/// Looks until all is over.
pub(super) fn watch(post: &Post, path: &Path) {
    while !post.is_over() {
        if let Ok(db) = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY) {
            let _ = db.busy_timeout(std::time::Duration::from_secs(5));
            while !post.is_over() && look(post, &db).is_ok() {
                // A rhythm, and no wait for anything.
                std::thread::sleep(PAUSE);
            }
        }
        std::thread::sleep(PAUSE);
    }
}

fn look(post: &Post, db: &Connection) -> rusqlite::Result<()> {
    let mut all =
        db.prepare_cached("SELECT key_value, key_end, token, lease_end FROM locks WHERE lock = ?")?;
    for watched in &post.locks {
        let mut rows = all.query([&watched.key])?;
        let (boot, at) = (cronlatch::time::BootInstant::now(), crate::fleet::now());
        let boot = i64::try_from(boot.to_duration().as_millis()).unwrap_or(i64::MAX);
        let (mut key, mut beside) = (None, None);
        if let Some(row) = rows.next()? {
            let held = |token: Option<String>, end: Option<i64>| {
                let until = end.map(|end| at + end - boot);
                token
                    .map(|token| Holding { token, until })
                    .filter(|held| held.until.is_none_or(|until| until > at))
            };
            key = held(row.get(0)?, row.get(1)?);
            beside = held(row.get(2)?, row.get(3)?);
        }
        post.note([Sighting {
            at,
            server: post.server.clone(),
            lock: watched.lock,
            sight: Sight::Look {
                process: String::new(),
                key,
                beside,
            },
        }]);
    }
    Ok(())
}
