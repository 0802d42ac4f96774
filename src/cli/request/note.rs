//! Notes for `status` what a command has done without a daemon: who did what, and why.

use crate::cli::output;
use crate::names::{HostName, RunId};
use crate::store::{
    DaemonRequest, Filed, Intervention, NO_HOST, NOTES_BELOW, REQUEST_VALID_FOR, RequestOrder,
    Store, StoreError,
};

/// Notes it. What was done stays done if that fails.
pub(in crate::cli) async fn note(
    store: &dyn Store,
    (done, subject): (Intervention, String),
    (by, reason): (String, String),
) {
    let Ok(host) = HostName::parse(NO_HOST) else {
        return;
    };
    let request = DaemonRequest {
        id: RunId::new(),
        host,
        order: RequestOrder::Note { done, subject },
        by,
        reason,
    };
    if let Err(error) = file(store, &request).await {
        output::report(&format!("warning: `status` does not show this: {error}"));
    }
}

async fn file(store: &dyn Store, request: &DaemonRequest) -> Result<(), StoreError> {
    if store.requests(None).await?.len() >= NOTES_BELOW {
        return Ok(());
    }
    let deadline = store.now().await?.plus(REQUEST_VALID_FOR);
    match store.file_request(request, deadline).await? {
        Filed::Kept | Filed::Late | Filed::Full => Ok(()),
    }
}
