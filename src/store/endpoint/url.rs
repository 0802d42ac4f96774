//! Parses the text of a store URL, or of several, into settings. Its errors say what is wrong and
//! what would be right, without passwords.

use std::path::PathBuf;

use super::characters::check_parts;
use super::mask::shown_url;
use super::server::{Encryption, Endpoint};
use super::settings::{RedisSettings, RedlockSettings, RetryDelay, StartupQuorum, StoreSettings};
use super::several::{cluster, doubled, sentinel};

/// How often a claim on several servers is tried unless the list says otherwise.
pub(crate) const TRIES: u32 = 3;

const EXAMPLES: &str = "redis://10.0.0.5:6379/0, rediss://user@redis.example:6379, \
                        redis+unix:///run/redis/redis.sock, \
                        redis+sentinel://10.0.0.1,10.0.0.2,10.0.0.3/mymaster, \
                        redis+cluster://10.0.0.1:7000,10.0.0.2:7000 or \
                        sqlite:/var/lib/cronlatch/store.db";

/// Parses a store URL as `--store`, `CRONLATCH_STORE` and the YAML have it. Several, separated by
/// commas, are the servers of a Redlock.
///
/// The error says what is wrong and what would be right. It never contains a password.
pub fn check_url(url: &str) -> Result<StoreSettings, String> {
    let urls = split(url.trim());
    match urls.as_slice() {
        [one] => check_one(one),
        several => {
            let stores: Result<Vec<_>, _> = several.iter().map(|url| check_one(url)).collect();
            redlock(stores?)
        }
    }
}

/// The URLs of a list. A comma within one (of a Sentinel's or a Cluster's servers, or in a
/// password) is told apart by what follows it: a URL begins with its scheme.
fn split(list: &str) -> Vec<String> {
    let mut urls: Vec<String> = Vec::new();
    for piece in list.split(',') {
        let begins = piece.contains("://") || piece.trim_start().starts_with("sqlite:");
        match urls.last_mut() {
            Some(last) if !begins => {
                last.push(',');
                last.push_str(piece);
            }
            _ => urls.push(piece.to_owned()),
        }
    }
    urls.iter().map(|url| url.trim().to_owned()).collect()
}

fn redlock(stores: Vec<StoreSettings>) -> Result<StoreSettings, String> {
    let mut nodes = Vec::with_capacity(stores.len());
    for store in stores {
        match store {
            StoreSettings::Redis(node) => nodes.push(node),
            other => {
                return Err(format!(
                    "several store URLs mean a majority of single servers: {} cannot be one of \
                     them",
                    other.shown()
                ));
            }
        }
    }
    if let Some((first, second)) = doubled(&nodes) {
        return Err(format!(
            "{} and {} are the same server: each must be one of its own",
            nodes[first].shown(),
            nodes[second].shown()
        ));
    }
    if nodes.len() < 3 {
        return Err(format!(
            "a majority needs at least three servers, and {} are given",
            nodes.len()
        ));
    }
    Ok(StoreSettings::Redlock(RedlockSettings {
        nodes,
        tries: TRIES,
        retry_delay: RetryDelay::default(),
        at_start: StartupQuorum::Wait,
    }))
}

fn check_one(url: &str) -> Result<StoreSettings, String> {
    if url.is_empty() {
        return Err(format!("the store URL is empty; write {EXAMPLES}"));
    }
    if let Some(path) = url.strip_prefix("sqlite:") {
        return sqlite(path);
    }
    let shown = shown_url(url);
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(no_scheme(&shown));
    };
    match scheme {
        "redis" | "rediss" | "redis+unix" => {}
        "redis+sentinel" => return sentinel(Encryption::None, rest, &shown),
        "rediss+sentinel" => return sentinel(Encryption::Tls, rest, &shown),
        "redis+cluster" => return cluster(Encryption::None, rest, &shown),
        "rediss+cluster" => return cluster(Encryption::Tls, rest, &shown),
        _ => {
            return Err(format!(
                "{shown} is not a store URL: {scheme}:// is unknown; write {EXAMPLES}"
            ));
        }
    }
    check_parts(scheme, rest, &shown)?;
    let endpoint = Endpoint::parse(url).map_err(|e| format!("{shown} is not a store URL: {e}"))?;
    Ok(StoreSettings::Redis(RedisSettings::new(endpoint)))
}

fn sqlite(path: &str) -> Result<StoreSettings, String> {
    let path = match path.strip_prefix("//") {
        Some(rest) if rest.starts_with('/') => rest,
        Some(rest) => {
            return Err(format!(
                "sqlite://{rest} is not a store URL: write sqlite:{rest} or sqlite:/{rest}"
            ));
        }
        None => path,
    };
    if path.is_empty() {
        return Err("sqlite: needs a file: sqlite:/var/lib/cronlatch/store.db".to_owned());
    }
    Ok(StoreSettings::Sqlite {
        path: PathBuf::from(path),
    })
}

fn no_scheme(shown: &str) -> String {
    let hint = if shown.starts_with('/') || shown.starts_with('.') {
        format!("did you mean sqlite:{shown}?")
    } else if shown.contains(':') && !shown.contains([' ', ',']) {
        // `redis:HOST:PORT`, and not a host that is called redis.
        let without = |scheme| Some((scheme, shown.strip_prefix(scheme)?.strip_prefix(':')?));
        let (scheme, address) = ["redis", "rediss"]
            .into_iter()
            .find_map(without)
            .filter(|(_, rest)| rest.starts_with('/') || rest.contains(['.', ':']))
            .map_or(("redis", shown), |(scheme, rest)| {
                (scheme, rest.trim_start_matches('/'))
            });
        format!("did you mean {scheme}://{address}?")
    } else {
        format!("write {EXAMPLES}")
    };
    format!("{shown} is not a store URL: {hint}")
}
