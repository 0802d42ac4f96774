//! Two live daemons under one host name.

use super::{Finding, ids};
use crate::store::{HostReport, Store};

/// The host names that two daemons have, as one of the two announces it.
///
/// It is no danger: `strict` would keep the daemon from starting whose name it rightly is.
pub(super) async fn look(store: &dyn Store) -> Vec<Finding> {
    let hosts = store.hosts().await.unwrap_or_default();
    let found = hosts.iter().filter_map(|HostReport { info, .. }| {
        let other = info.namesake.as_ref()?;
        Some(ids::NAMES.warning(
            &format!("host {}", info.host),
            format!(
                "two daemons have this name: process {}, up since {}, and {other}: jobs with \
                 `scope: host` run on one of the two only, and requests reach either",
                info.pid, info.started_at
            ),
            "give each its own name (--host, CRONLATCH_HOST)",
        ))
    });
    found.collect()
}
