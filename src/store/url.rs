//! From the text of a URL, or of several, to settings.

use std::path::PathBuf;
use std::time::Duration;

use redis::ConnectionAddr;

use super::redis::connection_info;
use super::settings::{
    ClusterSettings, RedisSettings, RedlockSettings, Secret, SentinelSettings, StoreSettings,
};
use crate::names::Prefix;

/// Where Sentinels listen unless said otherwise.
const SENTINEL_PORT: u16 = 26379;
/// Where servers listen unless said otherwise.
const REDIS_PORT: u16 = 6379;

/// How often a claim on several servers is tried unless the list says otherwise.
pub(crate) const TRIES: u32 = 3;
/// The pause between tries unless the list says otherwise.
pub(crate) const RETRY_DELAY: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_millis(200));

const EXAMPLES: &str = "redis://10.0.0.5:6379/0, rediss://user@redis.example:6379, \
                        redis+unix:///run/redis/redis.sock, \
                        redis+sentinel://10.0.0.1,10.0.0.2,10.0.0.3/mymaster or \
                        sqlite:/var/lib/cronlatch/store.db";

/// Checks a store URL, as `--store`, `CRONLATCH_STORE` and the YAML have it; several, separated
/// by commas, are the servers of a Redlock.
///
/// The answer to a wrong one says what is wrong and what would be right, and never shows a
/// password.
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
        retry_delay: RETRY_DELAY,
    }))
}

/// The first two servers of a list that are one and the same, as positions in it.
pub(crate) fn doubled(servers: &[RedisSettings]) -> Option<(usize, usize)> {
    let addresses: Vec<String> = servers.iter().map(address).collect();
    addresses.iter().enumerate().find_map(|(second, address)| {
        let first = addresses[..second].iter().position(|a| a == address)?;
        Some((first, second))
    })
}

/// What makes a server the same one however its URL is written: host in lower case and port, or
/// the socket's path. Users, databases and TLS do not count.
pub(crate) fn address(server: &RedisSettings) -> String {
    let Ok(info) = connection_info(server) else {
        return server.shown();
    };
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            let host = host.trim_end_matches('.').to_ascii_lowercase();
            let host = if host == "localhost" {
                "127.0.0.1".to_owned()
            } else {
                host
            };
            format!("{host}:{port}")
        }
        other => other.to_string(),
    }
}

fn check_one(url: &str) -> Result<StoreSettings, String> {
    if url.is_empty() {
        return Err(format!("the store URL is empty; write {EXAMPLES}"));
    }
    if let Some(path) = url.strip_prefix("sqlite:") {
        return sqlite(path);
    }
    let settings = server(url);
    let shown = settings.shown();
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(no_scheme(&shown));
    };
    match scheme {
        "redis" | "rediss" | "redis+unix" => {}
        "redis+sentinel" => return sentinel("redis", rest, &shown),
        "rediss+sentinel" => return sentinel("rediss", rest, &shown),
        "redis+cluster" => return cluster("redis", rest, &shown),
        "rediss+cluster" => return cluster("rediss", rest, &shown),
        _ => {
            return Err(format!(
                "{shown} is not a store URL: {scheme}:// is unknown; write {EXAMPLES}"
            ));
        }
    }
    check_parts(scheme, rest, &shown)?;
    connection_info(&settings).map_err(|e| format!("{shown} is not a store URL: {e}"))?;
    Ok(StoreSettings::Redis(settings))
}

/// The settings of one server under this URL, which is not checked.
fn server(url: &str) -> RedisSettings {
    RedisSettings {
        url: Secret(url.to_owned()),
        password_file: None,
        ca_file: None,
        prefix: Prefix::default(),
        wait_replicas: 0,
    }
}

/// `[user:password@]host[:port],…/MASTER[/DATABASE]`; user and password are the servers'.
fn sentinel(scheme: &str, rest: &str, shown: &str) -> Result<StoreSettings, String> {
    let wrong = |what: &str| format!("{shown} is not a store URL: {what}");
    let (user, hosts, path) = parts(rest).map_err(wrong)?;
    let (master, database) = path.split_once('/').unwrap_or((path, ""));
    if master.is_empty() {
        return Err(wrong(
            "it names no master, as in redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster",
        ));
    }
    let sentinels = hosts
        .split(',')
        .map(|host| node(host, scheme, Role::Sentinel))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| wrong(&e))?;
    check_distinct(&sentinels).map_err(|e| wrong(&e))?;
    let servers = master_template(scheme, user, master, database).map_err(|e| wrong(&e))?;
    Ok(StoreSettings::Sentinel(SentinelSettings {
        master: master.to_owned(),
        sentinels,
        servers,
    }))
}

/// How to get into a master whose host the Sentinels know: `user` is empty or ends with `@`.
pub(crate) fn master_template(
    scheme: &str,
    user: &str,
    master: &str,
    database: &str,
) -> Result<RedisSettings, String> {
    // What a Sentinel itself takes for a name.
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !master.chars().all(fits) {
        return Err("a master's name is made of letters, digits, '.', '_' and '-'".to_owned());
    }
    if !database.is_empty() && database.parse::<u32>().is_err() {
        return Err("after the master's name may stand the number of a database".to_owned());
    }
    let template = server(&format!("{scheme}://{user}{master}/{database}"));
    connection_info(&template)?;
    Ok(template)
}

/// `[user:password@]host[:port],…`; user and password are those of all servers.
fn cluster(scheme: &str, rest: &str, shown: &str) -> Result<StoreSettings, String> {
    let wrong = |what: &str| format!("{shown} is not a store URL: {what}");
    let (user, hosts, path) = parts(rest).map_err(wrong)?;
    if !matches!(path, "" | "0") {
        return Err(wrong("a Cluster has no databases but 0"));
    }
    let seeds = hosts
        .split(',')
        .map(|host| node(&format!("{user}{host}"), scheme, Role::Server))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| wrong(&e))?;
    check_distinct(&seeds).map_err(|e| wrong(&e))?;
    Ok(StoreSettings::Cluster(ClusterSettings { seeds }))
}

fn check_distinct(servers: &[RedisSettings]) -> Result<(), String> {
    match doubled(servers) {
        Some((first, _)) => Err(format!("{} is named twice", servers[first].shown())),
        None => Ok(()),
    }
}

/// User part (with its `@`), hosts and path of what stands behind `://`.
fn parts(rest: &str) -> Result<(&str, &str, &str), &'static str> {
    let (user, rest) = match rest.rfind('@') {
        Some(at) => rest.split_at(at + 1),
        None => ("", rest),
    };
    check_characters(user.strip_suffix('@').unwrap_or(""), rest)?;
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    Ok((user, hosts, path.strip_suffix('/').unwrap_or(path)))
}

/// What a server of a list is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It tells where the master is.
    Sentinel,
    /// It keeps data.
    Server,
}

/// One of several servers: `HOST[:PORT]`, or a URL, which may bring a user and a password.
pub(crate) fn node(text: &str, scheme: &str, role: Role) -> Result<RedisSettings, String> {
    let text = text.trim();
    let url = match text.split_once("://") {
        None => format!("{scheme}://{text}"),
        Some(("redis" | "rediss", _)) => text.to_owned(),
        Some(_) => {
            return Err(format!(
                "{} is neither HOST:PORT nor redis://HOST:PORT nor rediss://HOST:PORT",
                server(text).shown()
            ));
        }
    };
    let shown = server(&url).shown();
    let shown = match shown.split_once("://") {
        Some((_, rest)) if !text.contains("://") => rest,
        _ => shown.as_str(),
    };
    let wrong = |what: &str| format!("{shown} is no server: {what}");
    let (scheme, rest) = url.split_once("://").unwrap_or((scheme, text));
    let (user, host, path) = parts(rest).map_err(wrong)?;
    if !path.is_empty() {
        return Err(wrong("nothing may stand after its port"));
    }
    if host.is_empty() || host.starts_with(':') {
        return Err("a server has no host, as in 10.0.0.1:6379".to_owned());
    }
    let port = match role {
        Role::Sentinel => SENTINEL_PORT,
        Role::Server => REDIS_PORT,
    };
    // An address of version 6 stands in brackets and has colons of its own.
    let has_port = host.rsplit(']').next().unwrap_or(host).contains(':');
    let host = if has_port {
        host.to_owned()
    } else {
        format!("{host}:{port}")
    };
    let settings = server(&format!("{scheme}://{user}{host}"));
    connection_info(&settings).map_err(|_| wrong("its host or port cannot be read"))?;
    Ok(settings)
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
        format!("did you mean redis://{shown}?")
    } else {
        format!("write {EXAMPLES}")
    };
    format!("{shown} is not a store URL: {hint}")
}

/// What the client library would take or pass over in silence.
fn check_parts(scheme: &str, rest: &str, shown: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{shown} is not a store URL: {what}"));
    if scheme == "redis+unix" {
        if rest.contains('#') {
            return wrong(HASH);
        }
        if !rest.starts_with('/') {
            return wrong(
                "the socket's path must be absolute, as in redis+unix:///run/redis/redis.sock",
            );
        }
        let query = rest.split_once('?').map_or("", |(_, query)| query);
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let name = part.split('=').next().unwrap_or(part);
            if !matches!(name, "db" | "user" | "pass") {
                return wrong("after '?' only db, user and pass may stand");
            }
        }
        return Ok(());
    }
    let (user, after_user) = rest.rsplit_once('@').unwrap_or(("", rest));
    if let Err(what) = check_characters(user, after_user) {
        return wrong(what);
    }
    let (host, path) = after_user.split_once('/').unwrap_or((after_user, ""));
    if host.is_empty() || host.starts_with(':') {
        return wrong("it names no host, as in redis://10.0.0.5:6379/0");
    }
    if host.contains(',') {
        return wrong(
            "it names several servers: give each a URL of its own for a majority of them, or \
             write redis+sentinel://… or redis+cluster://…",
        );
    }
    if !path.is_empty() && path.parse::<u32>().is_err() {
        return wrong("after the host may stand the number of a database, as in …:6379/0");
    }
    Ok(())
}

const HASH: &str =
    "it has a '#'; there is nothing to write after one, and in a password it reads %23";

/// Characters that the client library reads as the beginning of something else.
fn check_characters(user: &str, after_user: &str) -> Result<(), &'static str> {
    if user.contains('#') || after_user.contains('#') {
        return Err(HASH);
    }
    if user.contains(['/', '?', '@']) {
        return Err(
            "a '/', '?' or '@' in user or password must be written %2F, %3F or %40 \
             (or put the password into a password_file)",
        );
    }
    if after_user.contains('?') {
        return Err("nothing may stand after '?'");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        match check_url(url) {
            Ok(settings) => settings.shown(),
            Err(e) => format!("error: {e}"),
        }
    }

    #[test]
    fn every_documented_form_is_accepted() {
        for url in [
            "redis://10.0.0.5",
            "redis://10.0.0.5:6379/0",
            "rediss://redis.example:6380",
            "redis://[::1]:6379",
            "redis+unix:///run/redis.sock",
            "redis+unix:///run/redis.sock?db=2",
        ] {
            assert_eq!(shown(url), url);
        }
        for (url, is) in [
            (
                "redis+sentinel://a,b:1,[::1]/mymaster/2",
                "mymaster of sentinels redis://a:26379, redis://b:1, redis://[::1]:26379",
            ),
            (
                "rediss+sentinel://u:pw@a/mymaster",
                "mymaster of sentinels rediss://a:26379",
            ),
            (
                "redis+cluster://u:pw@a,b:7000",
                "cluster of redis://u:***@a:6379, redis://u:***@b:7000",
            ),
            (
                "redis://a, redis://:p,w@b:1/2 ,rediss://c",
                "majority of redis://a, redis://:***@b:1/2, rediss://c",
            ),
        ] {
            assert_eq!(shown(url), is);
        }
        let Ok(StoreSettings::Sentinel(sentinel)) =
            check_url("rediss+sentinel://u:pw@a,b/mymaster/2")
        else {
            panic!("not a Sentinel");
        };
        assert_eq!(sentinel.servers.url.0, "rediss://u:pw@mymaster/2");
        assert_eq!(sentinel.sentinels[1].url.0, "rediss://b:26379");
        assert_eq!(shown("sqlite:state/store.db"), "sqlite:state/store.db");
        assert_eq!(shown("sqlite:///var/x.db"), "sqlite:/var/x.db");
    }

    #[test]
    fn no_password_is_ever_shown() {
        for url in [
            "redis://u:geheim@10.0.0.5:6379/0",
            "redis://:geheim@10.0.0.5",
            "redis://geheim@10.0.0.5",
            "redis://:ge/geheim@10.0.0.5",
            "redis://:ge@geheim@10.0.0.5",
            "redis://:geheim#x@10.0.0.5",
            "redis://u:geheim@",
            "redis+unix:///run/r.sock?pass=geheim&db=1",
            "redis+unix:///run/r.sock?x=1&pass=geheim",
            "redis+sentinel://u:geheim@a,b/mymaster",
            "redis+cluster://:geheim@a",
            "redis+cluster://:geheim@a/x",
            "redis+sentinel://:geheim@a",
            "redis+sentinel://:geh/eim@a/m",
            "redis://:geheim@a,redis://u:geheim@b",
            "redis://:geheim@a,redis://u:geheim@b,redis://geheim@c",
            "redis://:geheim@a,u:geheim@b",
            "http://u:geheim@a",
            "u:geheim@a:6379",
            "redis://u:geheim@host:notaport",
        ] {
            assert!(!shown(url).contains("geheim"), "{}", shown(url));
            if let Ok(settings) = check_url(url) {
                assert!(!format!("{settings:?}").contains("geheim"));
            }
        }
    }

    #[test]
    fn errors_say_what_would_be_right() {
        let all = [
            "",
            "localhost:6379",
            "/var/lib/store.db",
            "http://a",
            "redis+sentinel://a:26379",
            "redis+sentinel://a:26379/m y",
            "redis+sentinel://a/m/x",
            "redis+sentinel://a,,b/m",
            "redis+sentinel://a,A.:26379/m",
            "redis+sentinel://a:x/m",
            "redis+cluster://a,b/1",
            "redis+cluster://a,redis://b",
            "redis+cluster://u:p/w@a",
            "redis://a,b",
            "redis://a,redis://b",
            "redis://a,redis://A:6379/2,redis://c",
            "redis://a,redis://b,sqlite:/c",
            "redis://localhost,redis://127.0.0.1,redis://c",
            "redis+unix:///a,redis://b,redis+unix:///a?db=2",
            "a:1,b:2",
            "redis://",
            "redis://:6379",
            "redis://a/x",
            "redis://a?x=1",
            "redis+unix://run/redis.sock",
            "redis+unix:///r.sock?password=x",
            "redis://:a/b@host",
            "redis://host:port",
            "rediss://host#insecure",
            "sqlite:",
            "sqlite://x.db",
        ]
        .map(shown)
        .join("\n");
        insta::assert_snapshot!(all);
    }
}
