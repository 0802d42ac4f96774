//! Where the store is, and how to log in there.
//!
//! The text of a URL is parsed once, into [`Endpoint`]s and the settings around them. After that
//! nothing edits the text of a URL: a server that Sentinels or a Cluster name is the same
//! [`Endpoint`] [at another address](Endpoint::at).

mod characters;
mod mask;
mod server;
mod settings;
mod several;
#[cfg(test)]
mod tests;
mod url;

pub(crate) use self::mask::shown_url;
pub(crate) use self::server::Encryption;
pub use self::server::Endpoint;
pub use self::settings::{
    ClusterSettings, RedisSettings, RedlockSettings, RetryDelay, SentinelSettings, StartupQuorum,
    StoreSettings,
};
pub(crate) use self::several::{ServerRole, listed_server, master_endpoint};
pub(crate) use self::url::TRIES;
pub use self::url::check_url;
