//! `http:` at the top of a list: where the daemon serves HTTP, and who may ask.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::environment::Environment;
use super::node::{Node, Value, quoted};
use super::problem::{Problem, Problems, Warning};
use super::section::{Section, ValueError, Vocabulary};
use super::tokens::Tokens;
use super::values;

/// The fields of `http`.
pub(super) const HTTP: Vocabulary = Vocabulary {
    what: "`http`",
    fields: &["listen", "token_file"],
    other_words: &[
        ("address", "did you mean `listen`?"),
        ("addr", "did you mean `listen`?"),
        ("bind", "did you mean `listen`?"),
        ("port", "write `listen: 127.0.0.1:7171`"),
        ("host", "write `listen: 127.0.0.1:7171`"),
        ("socket", "write `listen: /run/cronlatch/http.sock`"),
        ("token", "tokens stand in a file: write `token_file: /path`"),
        (
            "tokens",
            "tokens stand in a file: write `token_file: /path`",
        ),
        (
            "tls",
            "the daemon serves plain HTTP: put a proxy with TLS in front, or use an SSH tunnel",
        ),
    ],
    elsewhere: &[],
    not_yet: &[],
};

/// The longest path of a Unix socket, less the ending of its temporary name (`sun_path`, unix(7)).
const SOCKET_PATH_MAX: usize = 103;

/// The HTTP server of a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// Where it listens.
    pub listen: ListenAddress,
    /// The tokens that requests must carry; without a file requests need none.
    pub token_file: Option<PathBuf>,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// An address and a port; the system chooses a port for 0.
    Tcp(SocketAddr),
    /// A Unix socket, which the daemon creates.
    Unix(PathBuf),
}

impl ListenAddress {
    /// Whether other machines can reach it.
    pub fn is_beyond_loopback(&self) -> bool {
        match self {
            Self::Tcp(address) => !address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => false,
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Reads `http:`; `None` without it, or after an error.
pub(super) fn read(top: Section<'_>, problems: &mut Problems) -> Option<HttpSettings> {
    let section = top.within_or_none("http", &HTTP, problems)?;
    let token_file = section.read("token_file", problems, values::absolute);
    let Some(entry) = section.entry("listen") else {
        if let Some(http) = top.entry("http") {
            problems.add(
                Problem::new(http.span, "`http` needs `listen`")
                    .help("write `http: { listen: 127.0.0.1:7171 }`"),
            );
        }
        return None;
    };
    let listen = section.read("listen", problems, listen)?;
    let has_tokens = section
        .entry("token_file")
        .is_some_and(|file| !matches!(file.value.value, Value::Null));
    if listen.is_beyond_loopback() && !has_tokens {
        problems.add(
            Problem::new(
                entry.value.span,
                format!("other machines can reach {listen}, so `http` needs `token_file`"),
            )
            .help(
                "write `token_file: /etc/cronlatch/tokens`, a file with lines such as `read \
                 prometheus TOKEN` (`openssl rand -hex 32` makes a token)",
            )
            .help("or listen on 127.0.0.1, [::1] or a Unix socket (`listen: /run/…`)"),
        );
        return None;
    }
    Some(HttpSettings { listen, token_file })
}

/// Returns a warning if the daemon would refuse the file of tokens as it is on this machine.
pub(super) fn machine_warning(
    top: Section<'_>,
    http: Option<&HttpSettings>,
    environment: &Environment,
) -> Option<Warning> {
    let path = http?.token_file.as_deref()?;
    let error = environment
        .of_machine()
        .then(|| Tokens::read(path).err())??;
    let span = top.entry("http")?.span;
    let text = format!("{error}: the daemon does not start with it");
    Some(Warning::new(span, text))
}

fn listen(node: &Node) -> Result<ListenAddress, ValueError> {
    let text = values::filled(node)?;
    let path = text.strip_prefix("unix:").unwrap_or(&text);
    if path.starts_with('/') {
        if path.len() > SOCKET_PATH_MAX {
            return Err(ValueError::new(
                format!(
                    "the path of a Unix socket has at most {SOCKET_PATH_MAX} bytes, and this one \
                     has {}",
                    path.len()
                ),
                "",
            ));
        }
        return Ok(ListenAddress::Unix(PathBuf::from(path)));
    }
    text.parse().map(ListenAddress::Tcp).map_err(|_| {
        ValueError::new(
            format!(
                "expected an address with a port or a path, found {}",
                node.found()
            ),
            meant(&text),
        )
    })
}

/// What was probably meant by a text that is not an address with a port.
fn meant(text: &str) -> String {
    let port = |port: &str| port.parse::<u16>().ok();
    let digits = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let last = text.rsplit(':').next().unwrap_or(text);
    if digits(last) && port(last).is_none() {
        return "a port is a number from 0 to 65535".to_owned();
    }
    if let Some(port) = port(text).or_else(|| port(text.strip_prefix(':')?)) {
        return format!("write `127.0.0.1:{port}` for this machine, `0.0.0.0:{port}` for all");
    }
    if let Some(port) = text.strip_prefix("localhost:").and_then(port) {
        return format!(
            "write {}",
            quoted(&format!("{}:{port}", Ipv4Addr::LOCALHOST))
        );
    }
    "write `127.0.0.1:7171`, `[::1]:7171` or `/run/cronlatch/http.sock`; names are not looked up"
        .to_owned()
}
