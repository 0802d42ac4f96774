//! Lists of servers: those of a majority, the Sentinels, the nodes of a Cluster.

use crate::config::node::{Node, Value};
use crate::config::problem::{Problem, Problems};
use crate::config::section::{Section, ValueError, Vocabulary};
use crate::config::source::Span;
use crate::config::{mask, values};
use crate::store::endpoint::{Encryption, ServerRole, listed_server, master_endpoint};
use crate::store::{ClusterSettings, RedisSettings, SentinelSettings, StoreSettings};

/// The fields of `store.sentinel:`.
const SENTINEL: Vocabulary = Vocabulary {
    what: "`sentinel`",
    fields: &[
        "master",
        "nodes",
        "user",
        "database",
        "tls",
        "sentinel_user",
        "sentinel_password_file",
    ],
    other_words: &[
        ("name", "did you mean `master`?"),
        ("service", "did you mean `master`?"),
        ("hosts", "did you mean `nodes`?"),
        ("sentinels", "did you mean `nodes`?"),
        ("db", "did you mean `database`?"),
        (
            "password_file",
            "the servers' password belongs in `store`, next to `sentinel`; the Sentinels' own is \
             `sentinel_password_file`",
        ),
        (
            "password",
            "put it into a file: `password_file` in `store` for the servers, \
             `sentinel_password_file` here for the Sentinels",
        ),
    ],
    elsewhere: &[],
    not_yet: &[],
};

/// Reads each server of a list; `None` when one was refused or stands there twice.
pub(super) fn read(
    list: &[Node],
    problems: &mut Problems,
    parse: impl Fn(&Node) -> Result<RedisSettings, ValueError>,
) -> Option<Vec<RedisSettings>> {
    let mut servers = Vec::with_capacity(list.len());
    let mut seen: Vec<(String, Span)> = Vec::with_capacity(list.len());
    let mut is_right = true;
    for item in list {
        if matches!(item.value, Value::Broken) {
            is_right = false;
            continue;
        }
        match parse(item) {
            Err(trouble) => {
                is_right = false;
                problems.add(trouble.at(item));
            }
            Ok(server) => {
                let address = server.endpoint.server();
                if let Some((_, first)) = seen.iter().find(|(known, _)| *known == address) {
                    is_right = false;
                    problems.add(
                        Problem::new(item.span, format!("{address} is named twice"))
                            .help("each entry must be a different server")
                            .other(*first, "first named at"),
                    );
                }
                seen.push((address, item.span));
                servers.push(server);
            }
        }
    }
    is_right.then_some(servers)
}

/// `cluster:` — some of its servers.
pub(super) fn cluster(node: &Node, problems: &mut Problems) -> Option<StoreSettings> {
    let list = items(node, "cluster: [10.0.0.1:6379, 10.0.0.2:6379]", problems)?;
    let seeds = read(list, problems, |node| {
        server(node, Encryption::None, ServerRole::Data)
    })?;
    Some(StoreSettings::Cluster(ClusterSettings { seeds }))
}

/// `sentinel:` — the master's name, the Sentinels, and how to get into both.
pub(super) fn sentinel(section: Section<'_>, problems: &mut Problems) -> Option<StoreSettings> {
    let span = section.entry("sentinel")?.span;
    let part = section.within("sentinel", &SENTINEL, problems)?;
    for key in ["master", "nodes"] {
        if part.entry(key).is_none() {
            problems.add(
                Problem::new(span, format!("`sentinel` has no `{key}`"))
                    .help("write `sentinel: { master: mymaster, nodes: [10.0.0.1:26379, …] }`"),
            );
        }
    }
    let tls = part.read("tls", problems, values::boolean);
    let encryption = match tls {
        Some(true) => Encryption::Tls,
        _ => Encryption::None,
    };
    let user = part.read("user", problems, user);
    let database = part.read("database", problems, |node| {
        values::number::<u32>(node, 0..=i64::from(u32::MAX))
    });
    let servers = part.read("master", problems, |node| {
        let name = values::filled(node)?;
        let mut endpoint = master_endpoint(encryption, "", &name, database)
            .map_err(|message| ValueError::new(message, "as in `master: mymaster`"))?;
        if let Some(user) = &user {
            endpoint = endpoint.or_user(user);
        }
        Ok((name, RedisSettings::new(endpoint)))
    });
    let sentinel_user = part.read("sentinel_user", problems, self::user);
    let password_file = part.read("sentinel_password_file", problems, values::absolute);
    let nodes = part.entry("nodes")?;
    let list = items(
        &nodes.value,
        "nodes: [10.0.0.1:26379, 10.0.0.2:26379]",
        problems,
    )?;
    let mut sentinels = read(list, problems, |node| {
        let mut settings = server(node, encryption, ServerRole::Sentinel)?;
        if let Some(user) = &sentinel_user {
            settings.endpoint = settings.endpoint.or_user(user);
        }
        Ok(settings)
    })?;
    for sentinel in &mut sentinels {
        sentinel.password_file.clone_from(&password_file);
    }
    let (master, servers) = servers?;
    Some(StoreSettings::Sentinel(SentinelSettings {
        master,
        sentinels,
        servers,
    }))
}

/// A user's name as it stands in a URL.
fn user(node: &Node) -> Result<String, ValueError> {
    let name = values::filled(node)?;
    if name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    {
        return Ok(name);
    }
    Err(ValueError::new(
        "a user's name is made of letters, digits, `.`, `_` and `-`",
        "",
    ))
}

/// The items of a list that is not empty.
fn items<'a>(node: &'a Node, example: &str, problems: &mut Problems) -> Option<&'a [Node]> {
    match &node.value {
        Value::List(list) if !list.is_empty() => Some(list),
        Value::Broken => None,
        _ => {
            problems.add(
                Problem::new(
                    node.span,
                    match &node.value {
                        Value::List(_) => "this list is empty".to_owned(),
                        _ => format!("expected a list of servers, found {}", node.found()),
                    },
                )
                .help(format!("write `{example}`")),
            );
            None
        }
    }
}

fn server(
    item: &Node,
    encryption: Encryption,
    role: ServerRole,
) -> Result<RedisSettings, ValueError> {
    let text = values::filled(item)?;
    listed_server(&text, encryption, role).map_err(|message| match &item.value {
        // A value from the environment may be secret as a whole.
        Value::Text(value) if value.written.is_some() => ValueError::new(
            format!("{} names no server", item.found()),
            "expected HOST:PORT, redis://HOST:PORT or rediss://HOST:PORT",
        ),
        _ => ValueError::new(mask::urls(&message), ""),
    })
}
