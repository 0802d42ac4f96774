//! Opens the store that the settings name. Its callers then use only the trait [`Store`].

use std::io::ErrorKind;
use std::sync::Arc;

use super::endpoint::StoreSettings;
use super::quorum::QuorumStore;
use super::redis::RedisStore;
#[cfg(feature = "sqlite")]
use super::sqlite::SqliteStore;
use super::{Store, StoreError};

/// Opens the store on the current tokio runtime. The store connects at its first operation, which also
/// reports an unreachable server.
pub fn open(settings: &StoreSettings) -> Result<Arc<dyn Store>, StoreError> {
    match settings {
        StoreSettings::Redis(settings) => Ok(Arc::new(RedisStore::single(settings))),
        #[cfg(feature = "sqlite")]
        StoreSettings::Sqlite { path } => Ok(Arc::new(SqliteStore::new(path)?)),
        #[cfg(not(feature = "sqlite"))]
        StoreSettings::Sqlite { path } => Err(StoreError::refused(format!(
            "sqlite:{}: this program was built without the embedded store (the feature `sqlite` of \
             cronlatch)",
            path.display()
        ))),
        StoreSettings::Sentinel(settings) => Ok(Arc::new(RedisStore::sentinel(settings))),
        StoreSettings::Redlock(settings) => Ok(Arc::new(QuorumStore::new(settings)?)),
        StoreSettings::Cluster(settings) => Ok(Arc::new(RedisStore::cluster(settings)?)),
    }
}

/// As [`open`], for callers that need what a daemon has written. Fails if the file of an embedded store
/// does not exist, because opening would create it, and the caller would report an empty store.
pub fn open_existing(settings: &StoreSettings) -> Result<Arc<dyn Store>, StoreError> {
    if let StoreSettings::Sqlite { path } = settings
        && let Err(error) = std::fs::metadata(path)
        && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
    {
        return Err(StoreError::absent(&settings.shown()));
    }
    open(settings)
}
