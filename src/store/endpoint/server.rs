//! One Redis server: its address, and what is needed to log in there. It wraps the connection
//! settings of the client library, and prints them without the password.

use std::fmt;
use std::path::Path;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, parse_redis_url};

/// The address of one Redis server, and the user, password and database to log in with.
///
/// [`Display`](fmt::Display) and `Debug` print it as a URL without the password.
#[derive(Clone)]
pub struct Endpoint {
    /// The client library's form. Its protocol and its TCP settings are not used.
    info: ConnectionInfo,
    /// Whether the URL named a port. If not, [`Display`](fmt::Display) prints none.
    has_port: bool,
    /// Whether the URL named a database. If not, [`Display`](fmt::Display) prints none.
    has_database: bool,
}

/// Whether connections to a server are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encryption {
    None,
    Tls,
}

impl Encryption {
    /// The scheme of a URL: `redis` or `rediss`.
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Self::None => "redis",
            Self::Tls => "rediss",
        }
    }
}

/// Returns what is wrong with a URL whose address cannot be read. It does not repeat the port, which
/// may be a password that has no `@` behind it.
pub(super) fn why_unreadable(url: &str) -> &'static str {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    let address = rest.split(['/', '?']).next().unwrap_or(rest);
    let port = address.rsplit_once(':').map_or("", |(_, port)| port);
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && port.parse::<u16>().is_err() {
        "its port is not between 1 and 65535"
    } else {
        "its host or port cannot be read"
    }
}

impl Endpoint {
    /// Parses `redis://`, `rediss://` and `redis+unix://` URLs.
    ///
    /// Returns an error that names what is wrong, without the URL, because that may hold a
    /// password. [`check_url`](super::check_url) has more to say about a wrong URL.
    pub fn parse(url: &str) -> Result<Self, String> {
        let unreadable = || format!("{}, as in redis://10.0.0.5:6379/0", why_unreadable(url));
        let url = parse_redis_url(url).ok_or_else(unreadable)?;
        let is_socket = url.scheme().contains("unix");
        let has_port = url.port().is_some();
        let has_database = if is_socket {
            url.query_pairs().any(|(name, _)| name == "db")
        } else {
            !url.path().trim_matches('/').is_empty()
        };
        // The library's errors do not repeat the URL.
        let info = url.into_connection_info().map_err(|e| e.to_string())?;
        Ok(Self {
            info,
            has_port,
            has_database,
        })
    }

    /// Returns the same user, password, database and encryption at another address. A socket stays
    /// what it is: it has no other address.
    pub(crate) fn at(&self, host: &str, port: u16) -> Self {
        let addr = match self.info.addr() {
            ConnectionAddr::Tcp(..) => ConnectionAddr::Tcp(host.to_owned(), port),
            ConnectionAddr::TcpTls {
                insecure,
                tls_params,
                ..
            } => ConnectionAddr::TcpTls {
                host: host.to_owned(),
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            other => other.clone(),
        };
        Self {
            info: self.info.clone().set_addr(addr),
            has_port: true,
            ..self.clone()
        }
    }

    /// Returns the endpoint with this port, if its URL named none.
    pub(super) fn or_port(self, port: u16) -> Self {
        match self.host_and_port() {
            Some((host, _)) if !self.has_port => self.at(host, port),
            _ => self,
        }
    }

    /// Returns the endpoint with this user, if it has neither a user nor a password of its own.
    pub(crate) fn or_user(self, user: &str) -> Self {
        if self.has_login() {
            return self;
        }
        let login = self.info.redis_settings().clone().set_username(user);
        Self {
            info: self.info.clone().set_redis_settings(login),
            ..self
        }
    }

    /// Returns the endpoint with this database.
    pub(super) fn with_database(self, database: u32) -> Self {
        let login = self.info.redis_settings().clone();
        let login = login.set_db(i64::from(database));
        Self {
            info: self.info.clone().set_redis_settings(login),
            has_database: true,
            ..self
        }
    }

    /// Host and port; `None` for a socket.
    pub(crate) fn host_and_port(&self) -> Option<(&str, u16)> {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host, *port))
            }
            _ => None,
        }
    }

    fn socket(&self) -> Option<&Path> {
        match self.info.addr() {
            ConnectionAddr::Unix(path) => Some(path),
            _ => None,
        }
    }

    pub(crate) fn encryption(&self) -> Encryption {
        match self.info.addr() {
            ConnectionAddr::TcpTls { .. } => Encryption::Tls,
            _ => Encryption::None,
        }
    }

    /// Whether it names a user or a password. A user alone counts, because a password is easily
    /// written in its place.
    pub(crate) fn has_login(&self) -> bool {
        let login = self.info.redis_settings();
        login.username().is_some() || login.password().is_some()
    }

    /// What makes a server the same one however its URL is written: host in lower case and port, or
    /// the socket's path. Users, databases and TLS do not count.
    pub(crate) fn server(&self) -> String {
        let Some((host, port)) = self.host_and_port() else {
            return self.info.addr().to_string();
        };
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let host = if host == "localhost" {
            "127.0.0.1"
        } else {
            &host
        };
        format!("{host}:{port}")
    }

    /// The server's address as it is written, and its database: what does not depend on who logs
    /// in.
    pub(crate) fn server_and_database(&self) -> String {
        format!("{}/{}", self.info.addr(), self.info.redis_settings().db())
    }

    /// The client library's form of it.
    pub(crate) fn connection_info(&self) -> &ConnectionInfo {
        &self.info
    }
}

impl PartialEq for Endpoint {
    fn eq(&self, other: &Self) -> bool {
        let login = |endpoint: &Self| {
            let login = endpoint.info.redis_settings();
            let texts = [login.username(), login.password()];
            (texts.map(|text| text.map(str::to_owned)), login.db())
        };
        self.info.addr() == other.info.addr() && login(self) == login(other)
    }
}

impl Eq for Endpoint {}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let login = self.info.redis_settings();
        if let Some(path) = self.socket() {
            write!(f, "redis+unix://{}", path.display())?;
            let database = self.has_database.then(|| format!("db={}", login.db()));
            let user = login.username().map(|user| format!("user={user}"));
            let password = login.password().map(|_| "pass=***".to_owned());
            let query = [database, user, password].into_iter().flatten();
            for (at, part) in query.enumerate() {
                write!(f, "{}{part}", if at == 0 { '?' } else { '&' })?;
            }
            return Ok(());
        }
        write!(f, "{}://", self.encryption().scheme())?;
        match (login.username(), login.password()) {
            (user, Some(_)) => write!(f, "{}:***@", user.unwrap_or_default())?,
            (Some(_), None) => write!(f, "***@")?,
            (None, None) => {}
        }
        match self.host_and_port() {
            Some((host, _)) if host.contains(':') => write!(f, "[{host}]")?,
            Some((host, _)) => write!(f, "{host}")?,
            None => {}
        }
        if let Some((_, port)) = self.host_and_port().filter(|_| self.has_port) {
            write!(f, ":{port}")?;
        }
        if self.has_database {
            write!(f, "/{}", login.db())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Endpoint;

    fn endpoint(url: &str) -> Endpoint {
        Endpoint::parse(url).expect("a sound URL")
    }

    #[test]
    fn one_login_holds_at_every_address() {
        let moved = |url: &str| endpoint(url).at("::1", 7);
        let tls = moved("rediss://u:p%40@a:1/0");
        assert_eq!(tls, endpoint("rediss://u:p%40@[::1]:7/0"));
        assert_eq!(tls.to_string(), "rediss://u:***@[::1]:7/0");
        assert_eq!(moved("redis://a"), endpoint("redis://[::1]:7"));
        assert_ne!(moved("redis://:x@a"), moved("redis://:y@a"));
        let socket = endpoint("redis+unix:///r.sock?db=2");
        assert_eq!(socket.at("a", 1), socket);
        assert_eq!(socket.host_and_port(), None);
    }

    #[test]
    fn what_the_url_left_out_can_be_filled_in() {
        let filled = |url: &str| endpoint(url).or_port(26379).or_user("s");
        assert_eq!(filled("redis://a"), endpoint("redis://s@a:26379"));
        assert_eq!(filled("rediss://a:1"), endpoint("rediss://s@a:1"));
        assert_eq!(filled("redis://x:y@c"), endpoint("redis://x:y@c:26379"));
        assert_eq!(filled("redis://:y@c:6379"), endpoint("redis://:y@c"));
    }
}
