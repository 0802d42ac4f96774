//! Parses URLs that name several servers: Sentinels and their master, the servers of a Cluster. A
//! list of independent servers is parsed in [`url`](super::url).

use super::characters::check_characters;
use super::mask::shown_url;
use super::server::{Encryption, Endpoint, why_unreadable};
use super::settings::{ClusterSettings, RedisSettings, SentinelSettings, StoreSettings};

/// The port of a Sentinel whose URL names none.
const SENTINEL_PORT: u16 = 26379;
/// The port of a server whose URL names none.
const REDIS_PORT: u16 = 6379;

/// `[user:password@]host[:port],…/MASTER[/DATABASE]`; user and password are the servers'.
pub(super) fn sentinel(
    encryption: Encryption,
    rest: &str,
    shown: &str,
) -> Result<StoreSettings, String> {
    let wrong = |what: &str| format!("{shown} is not a store URL: {what}");
    let UrlParts { user, hosts, path } = parts(rest).map_err(wrong)?;
    let (master, database) = path.split_once('/').unwrap_or((path, ""));
    if master.is_empty() {
        return Err(wrong(
            "it names no master, as in redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster",
        ));
    }
    let sentinels = hosts
        .split(',')
        .map(|host| listed_server(host, encryption, ServerRole::Sentinel))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| wrong(&e))?;
    check_distinct(&sentinels).map_err(|e| wrong(&e))?;
    let database = match database {
        "" => None,
        number => {
            let number = number
                .parse::<u32>()
                .map_err(|_| wrong("only the number of a database may follow the master's name"))?;
            Some(number)
        }
    };
    let servers = master_endpoint(encryption, user, master, database).map_err(|e| wrong(&e))?;
    Ok(StoreSettings::Sentinel(SentinelSettings {
        master: master.to_owned(),
        sentinels,
        servers: RedisSettings::new(servers),
    }))
}

/// Returns how to log in to a master whose address the Sentinels know; its host is the master's
/// name. `userinfo` is empty or ends with `@`.
pub(crate) fn master_endpoint(
    encryption: Encryption,
    userinfo: &str,
    master: &str,
    database: Option<u32>,
) -> Result<Endpoint, String> {
    // The characters that a Sentinel itself accepts in a name.
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !master.chars().all(fits) {
        return Err("a master's name is made of letters, digits, '.', '_' and '-'".to_owned());
    }
    let endpoint = Endpoint::parse(&format!("{}://{userinfo}{master}", encryption.scheme()))?;
    Ok(match database {
        Some(database) => endpoint.with_database(database),
        None => endpoint,
    })
}

/// `[user:password@]host[:port],…`; user and password are those of all servers.
pub(super) fn cluster(
    encryption: Encryption,
    rest: &str,
    shown: &str,
) -> Result<StoreSettings, String> {
    let wrong = |what: &str| format!("{shown} is not a store URL: {what}");
    let UrlParts { user, hosts, path } = parts(rest).map_err(wrong)?;
    if !matches!(path, "" | "0") {
        return Err(wrong("a Cluster has no databases but 0"));
    }
    let seeds = hosts
        .split(',')
        .map(|host| listed_server(&format!("{user}{host}"), encryption, ServerRole::Data))
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

/// What stands after `://`.
struct UrlParts<'a> {
    /// With its `@`.
    user: &'a str,
    hosts: &'a str,
    /// Without the `/` before and after it.
    path: &'a str,
}

/// Splits the text after `://`.
fn parts(rest: &str) -> Result<UrlParts<'_>, &'static str> {
    let (user, rest) = match rest.rfind('@') {
        Some(at) => rest.split_at(at + 1),
        None => ("", rest),
    };
    check_characters(user.strip_suffix('@').unwrap_or(""), rest)?;
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    Ok(UrlParts {
        user,
        hosts,
        path: path.strip_suffix('/').unwrap_or(path),
    })
}

/// What a server of a list is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerRole {
    /// It knows where the master is.
    Sentinel,
    /// It keeps data.
    Data,
}

/// Parses one of several servers: `HOST[:PORT]`, or a URL, which may contain a user and a password.
pub(crate) fn listed_server(
    text: &str,
    encryption: Encryption,
    role: ServerRole,
) -> Result<RedisSettings, String> {
    let text = text.trim();
    let url = match text.split_once("://") {
        None => format!("{}://{text}", encryption.scheme()),
        Some(("redis" | "rediss", _)) => text.to_owned(),
        Some(_) => {
            return Err(format!(
                "{} is neither HOST:PORT nor redis://HOST:PORT nor rediss://HOST:PORT",
                shown_url(text)
            ));
        }
    };
    let shown = shown_url(text);
    let wrong = |what: &str| format!("{shown} is not a server: {what}");
    let (_, rest) = url.split_once("://").unwrap_or(("", text));
    let UrlParts {
        hosts: host, path, ..
    } = parts(rest).map_err(wrong)?;
    if !path.is_empty() {
        return Err(wrong("nothing may follow its port"));
    }
    if host.is_empty() || host.starts_with(':') {
        return Err("a server has no host, as in 10.0.0.1:6379".to_owned());
    }
    let port = match role {
        ServerRole::Sentinel => SENTINEL_PORT,
        ServerRole::Data => REDIS_PORT,
    };
    let endpoint = Endpoint::parse(&url).map_err(|_| wrong(why_unreadable(&url)))?;
    Ok(RedisSettings::new(endpoint.or_port(port)))
}

/// Returns the positions of the first two servers of a list that are the same server.
pub(super) fn doubled(servers: &[RedisSettings]) -> Option<(usize, usize)> {
    let addresses: Vec<String> = servers.iter().map(|s| s.endpoint.server()).collect();
    addresses.iter().enumerate().find_map(|(second, address)| {
        let first = addresses[..second].iter().position(|a| a == address)?;
        Some((first, second))
    })
}
