//! URLs that name several servers: Sentinels and their master, the servers of a Cluster.

use super::characters::check_characters;
use super::{doubled, server};
use crate::store::redis::connection_info;
use crate::store::{ClusterSettings, RedisSettings, SentinelSettings, StoreSettings};

/// Where Sentinels listen unless said otherwise.
const SENTINEL_PORT: u16 = 26379;
/// Where servers listen unless said otherwise.
const REDIS_PORT: u16 = 6379;

/// `[user:password@]host[:port],…/MASTER[/DATABASE]`; user and password are the servers'.
pub(super) fn sentinel(scheme: &str, rest: &str, shown: &str) -> Result<StoreSettings, String> {
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
pub(super) fn cluster(scheme: &str, rest: &str, shown: &str) -> Result<StoreSettings, String> {
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
