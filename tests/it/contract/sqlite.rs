//! The contract on the embedded store: a file of its own for each case.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use cronlatch::names::HostName;
use cronlatch::store::{Lock, LockKey, Store, StoreSettings, open};

use super::Subject;

struct Sqlite {
    path: PathBuf,
    store: Arc<dyn Store>,
    _directory: tempfile::TempDir,
}

fn open_at(path: PathBuf) -> Arc<dyn Store> {
    open(&StoreSettings::Sqlite { path }).expect("a store")
}

async fn sqlite() -> Sqlite {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store.db");
    Sqlite {
        store: open_at(path.clone()),
        path,
        _directory: directory,
    }
}

impl Sqlite {
    fn execute(&self, sql: &str, lock: &Lock) {
        let id = match &lock.key {
            LockKey::Named => lock.name.clone(),
            LockKey::Raw(key) => format!("key:{key}"),
        };
        self.open().execute(sql, [id]).expect("the statement");
    }

    fn open(&self) -> rusqlite::Connection {
        let db = rusqlite::Connection::open(&self.path).expect("the file");
        db.busy_timeout(std::time::Duration::from_secs(60))
            .expect("a time-out");
        db
    }
}

#[async_trait]
impl Subject for Sqlite {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    fn another(&self) -> Arc<dyn Store> {
        open_at(self.path.clone())
    }

    fn answers_first(&self) -> bool {
        false
    }

    fn loses_data(&self) -> bool {
        false
    }

    async fn evict(&self, lock: &Lock) {
        self.execute(
            "UPDATE locks SET key_value = NULL, key_end = NULL WHERE lock = ?",
            lock,
        );
    }

    async fn copy_listed(&self, _: &HostName) {
        let copy = "CREATE TABLE copy AS SELECT * FROM listings";
        self.open().execute_batch(copy).expect("the statement");
    }

    async fn restore_listed(&self, _: &HostName) {
        let restore = "BEGIN IMMEDIATE;
            DELETE FROM listings; INSERT INTO listings SELECT * FROM copy; COMMIT";
        self.open().execute_batch(restore).expect("the statements");
    }

    async fn expire(&self, lock: &Lock) {
        self.execute(
            "UPDATE locks SET key_value = NULL, key_end = NULL,
                lease_end = max(1, lease_end - 300000) WHERE lock = ?",
            lock,
        );
    }
}

contract!(sqlite);
