//! Stores of unit tests that reply to a few requests only, and what hosts say of themselves there.

use crate::names::HostName;
use crate::store::{Fingerprint, HostInfo, StoreError};
use crate::time::Timestamp;

/// The reply to a request that a test does not expect.
pub(crate) fn away<T>() -> Result<T, StoreError> {
    Err(StoreError::unreachable("away".to_owned()))
}

/// What a daemon of this name says of itself that has nothing to report.
pub(crate) fn host_info(name: &str) -> HostInfo {
    HostInfo {
        host: HostName::parse(name).expect("a name"),
        config: Fingerprint("c".into()),
        version: "0".to_owned(),
        running: 0,
        pid: 1,
        draining: false,
        started_at: Timestamp::EPOCH,
        clock_offset_ms: None,
        lacks: None,
        held_back: Vec::new(),
        nodes: None,
        waits: None,
        clock_wrong: None,
        up: None,
        namesake: None,
        output: None,
        http: None,
    }
}

/// Implements [`Store`](crate::store::Store) with the given methods. The required methods that are named
/// behind `away:` reply that the store is unreachable.
///
/// Without a macro, each stub would repeat a dozen signatures that have nothing to do with its test.
macro_rules! stub_store {
    ($stub:ty { $($own:tt)* } away: $($names:ident)*) => {
        $crate::store::stub::stub_store! { @add $stub { $($own)* } $($names)* }
    };
    (@add $stub:ty { $($done:tt)* }) => {
        #[async_trait::async_trait]
        impl $crate::store::Store for $stub { $($done)* }
    };
    (@add $stub:ty { $($done:tt)* } claim $($names:ident)*) => {
        $crate::store::stub::stub_store! { @add $stub {
            $($done)*
            async fn claim(&self, _: &$crate::store::Claim) -> Result<$crate::store::ClaimReply, $crate::store::StoreError> {
                $crate::store::stub::away()
            }
        } $($names)* }
    };
    (@add $stub:ty { $($done:tt)* } renew $($names:ident)*) => {
        $crate::store::stub::stub_store! { @add $stub {
            $($done)*
            async fn renew(&self, _: &[$crate::store::Renewal]) -> Result<Vec<$crate::store::RenewReply>, $crate::store::StoreError> {
                $crate::store::stub::away()
            }
        } $($names)* }
    };
    (@add $stub:ty { $($done:tt)* } finish $($names:ident)*) => {
        $crate::store::stub::stub_store! { @add $stub {
            $($done)*
            async fn finish(&self, _: &$crate::store::Finish) -> Result<$crate::store::FinishReply, $crate::store::StoreError> {
                $crate::store::stub::away()
            }
        } $($names)* }
    };
    (@add $stub:ty { $($done:tt)* } settle $($names:ident)*) => {
        $crate::store::stub::stub_store! { @add $stub {
            $($done)*
            async fn settle(&self, _: &$crate::store::Settle) -> Result<bool, $crate::store::StoreError> {
                $crate::store::stub::away()
            }
        } $($names)* }
    };
    (@add $stub:ty { $($done:tt)* } note_attempt $($names:ident)*) => {
        $crate::store::stub::stub_store! { @add $stub {
            $($done)*
            async fn note_attempt(&self, _: &$crate::store::Attempt) -> Result<bool, $crate::store::StoreError> {
                $crate::store::stub::away()
            }
        } $($names)* }
    };
    (@add $stub:ty { $($done:tt)* } register $($names:ident)*) => {
        $crate::store::stub::stub_store! { @add $stub {
            $($done)*
            async fn register(&self, _: &[$crate::store::Registration]) -> Result<Vec<$crate::store::Registered>, $crate::store::StoreError> {
                $crate::store::stub::away()
            }
        } $($names)* }
    };
    (@add $stub:ty { $($done:tt)* } announce $($names:ident)*) => {
        $crate::store::stub::stub_store! { @add $stub {
            $($done)*
            async fn announce(&self, _: &$crate::store::HostInfo, _: std::time::Duration) -> Result<(), $crate::store::StoreError> {
                $crate::store::stub::away()
            }
        } $($names)* }
    };
    (@add $stub:ty { $($done:tt)* } released $($names:ident)*) => {
        $crate::store::stub::stub_store! { @add $stub {
            $($done)*
            async fn released(&self, _: &$crate::store::Lock, _: std::time::Duration) -> Result<(), $crate::store::StoreError> {
                $crate::store::stub::away()
            }
        } $($names)* }
    };
    (@add $stub:ty { $($done:tt)* } now $($names:ident)*) => {
        $crate::store::stub::stub_store! { @add $stub {
            $($done)*
            async fn now(&self) -> Result<$crate::time::Timestamp, $crate::store::StoreError> {
                $crate::store::stub::away()
            }
        } $($names)* }
    };
    (@add $stub:ty { $($done:tt)* } jobs $($names:ident)*) => {
        $crate::store::stub::stub_store! { @add $stub {
            $($done)*
            async fn jobs(&self, _: &[($crate::names::JobName, $crate::store::Lock)]) -> Result<Vec<$crate::store::JobReport>, $crate::store::StoreError> {
                $crate::store::stub::away()
            }
        } $($names)* }
    };
    (@add $stub:ty { $($done:tt)* } history $($names:ident)*) => {
        $crate::store::stub::stub_store! { @add $stub {
            $($done)*
            async fn history(&self, _: &$crate::names::JobName, _: &$crate::store::Lock, _: usize) -> Result<$crate::store::History, $crate::store::StoreError> {
                $crate::store::stub::away()
            }
        } $($names)* }
    };
    (@add $stub:ty { $($done:tt)* } hosts $($names:ident)*) => {
        $crate::store::stub::stub_store! { @add $stub {
            $($done)*
            async fn hosts(&self) -> Result<Vec<$crate::store::HostReport>, $crate::store::StoreError> {
                $crate::store::stub::away()
            }
        } $($names)* }
    };
    (@add $stub:ty { $($done:tt)* } forget $($names:ident)*) => {
        $crate::store::stub::stub_store! { @add $stub {
            $($done)*
            async fn forget(&self, _: &$crate::store::Forget) -> Result<$crate::store::Forgotten, $crate::store::StoreError> {
                $crate::store::stub::away()
            }
        } $($names)* }
    };
    (@add $stub:ty { $($done:tt)* } init $($names:ident)*) => {
        $crate::store::stub::stub_store! { @add $stub {
            $($done)*
            async fn init(&self) -> Result<Option<u64>, $crate::store::StoreError> {
                $crate::store::stub::away()
            }
        } $($names)* }
    };
}

pub(crate) use stub_store;
