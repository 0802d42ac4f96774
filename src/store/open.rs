//! Opens the store that the settings name. Its callers then use only the trait [`Store`].

#[cfg(feature = "program")]
use std::io::ErrorKind;
use std::sync::Arc;

use super::endpoint::StoreSettings;
use super::quorum::QuorumStore;
use super::redis::RedisStore;
#[cfg(feature = "sqlite")]
use super::sqlite::SqliteStore;
use super::{Store, StoreError};

#[cfg(not(feature = "sqlite"))]
const NO_SQLITE: &str =
    "this program was built without the embedded store (the feature `sqlite` of cronlatch)";

/// Opens the store on the current tokio runtime. The store connects at its first operation, which also
/// reports an unreachable server.
pub fn open(settings: &StoreSettings) -> Result<Arc<dyn Store>, StoreError> {
    match settings {
        StoreSettings::Redis(settings) => Ok(Arc::new(RedisStore::single(settings))),
        #[cfg(feature = "sqlite")]
        StoreSettings::Sqlite { path } => Ok(Arc::new(SqliteStore::new(path)?)),
        #[cfg(not(feature = "sqlite"))]
        StoreSettings::Sqlite { path } => {
            let path = path.display();
            Err(StoreError::refused(format!("sqlite:{path}: {NO_SQLITE}")))
        }
        StoreSettings::Sentinel(settings) => Ok(Arc::new(RedisStore::sentinel(settings))),
        StoreSettings::Redlock(settings) => Ok(Arc::new(QuorumStore::new(settings)?)),
        StoreSettings::Cluster(settings) => Ok(Arc::new(RedisStore::cluster(settings)?)),
    }
}

/// Whether this is an embedded store whose file does not exist: [`open`] would create it.
#[cfg(feature = "program")]
pub(crate) fn is_absent(settings: &StoreSettings) -> bool {
    let StoreSettings::Sqlite { path } = settings else {
        return false;
    };
    let found = std::fs::metadata(path).map_err(|error| error.kind());
    matches!(found, Err(ErrorKind::NotFound | ErrorKind::NotADirectory))
}

/// Opens an empty store in memory, in the place of an embedded one that does not exist yet.
#[cfg(feature = "program")]
pub(crate) fn open_empty() -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(SqliteStore::in_memory()?))
}
