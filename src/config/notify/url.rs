//! URLs of targets and monitoring services. Their paths and queries are secrets.

use std::fmt;

/// An `http://` or `https://` URL that is never shown whole.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct HttpUrl(String);

/// Why a text is not a URL to send to. The text may be secret, so errors do not contain it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUrl {
    /// Another scheme, or none.
    #[error("expected a URL that begins with `https://` or `http://`")]
    Scheme,
    /// Nothing before the path.
    #[error("this URL names no host")]
    NoHost,
    /// What follows the last colon of the authority.
    #[error("the port of this URL is not a number from 1 to 65535")]
    Port,
    /// A space, a control character or a letter beyond ASCII.
    #[error("this URL has a space or another character that must be written as `%XX`")]
    Character,
    /// `user:password@`.
    #[error("this URL has a user or a password in it")]
    UserInfo,
}

impl InvalidUrl {
    /// What to do.
    pub(super) fn help(self) -> &'static str {
        match self {
            Self::UserInfo => "write `headers: { Authorization: \"Basic …\" }`",
            _ => "",
        }
    }
}

impl HttpUrl {
    /// Reads a URL.
    pub fn parse(text: &str) -> Result<Self, InvalidUrl> {
        let rest = after_scheme(text).ok_or(InvalidUrl::Scheme)?;
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(InvalidUrl::Character);
        }
        let authority = authority(rest);
        if authority.contains('@') {
            return Err(InvalidUrl::UserInfo);
        }
        let (host, port) = split_port(authority);
        if host.is_empty() || host.contains(['[', ']']) != host.starts_with('[') {
            return Err(InvalidUrl::NoHost);
        }
        let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
        if !port.is_none_or(is_port) {
            return Err(InvalidUrl::Port);
        }
        Ok(Self(text.to_owned()))
    }

    /// The whole URL: for requests alone.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Scheme, host and port.
    pub fn origin(&self) -> &str {
        let rest = after_scheme(&self.0).unwrap_or_default();
        let scheme = self.0.len() - rest.len();
        &self.0[..scheme + authority(rest).len()]
    }

    /// The URL as people may see it.
    pub fn shown(&self) -> String {
        if self.0.len() > self.origin().len() + 1 {
            format!("{}/***", self.origin())
        } else {
            self.0.clone()
        }
    }
}

/// What follows `http://` or `https://`.
fn after_scheme(text: &str) -> Option<&str> {
    (text.strip_prefix("https://")).or_else(|| text.strip_prefix("http://"))
}

/// Host and port of what follows the scheme.
fn authority(rest: &str) -> &str {
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_shows_its_host_and_nothing_that_follows() {
        for (text, shown) in [
            (
                "https://hooks.slack.com/services/T/B/x",
                "https://hooks.slack.com/***",
            ),
            ("http://[::1]:8080/a?b=c", "http://[::1]:8080/***"),
            ("https://example.org?key=1", "https://example.org/***"),
            ("https://example.org/", "https://example.org/"),
            ("https://example.org", "https://example.org"),
        ] {
            let url = HttpUrl::parse(text).expect("a URL");
            assert_eq!(url.shown(), shown);
            assert_eq!(format!("{url:?}"), shown);
            assert_eq!(url.secret(), text);
        }
    }

    #[test]
    fn what_cannot_be_sent_to_is_refused_without_being_repeated() {
        for (text, why) in [
            ("", InvalidUrl::Scheme),
            ("hooks.slack.com/services", InvalidUrl::Scheme),
            ("ftp://a/b", InvalidUrl::Scheme),
            ("https://", InvalidUrl::NoHost),
            ("https:///secret", InvalidUrl::NoHost),
            ("https://:80/", InvalidUrl::NoHost),
            ("https://a:port/", InvalidUrl::Port),
            ("https://a:0/", InvalidUrl::Port),
            ("https://a/b c", InvalidUrl::Character),
            ("https://a/ä", InvalidUrl::Character),
            ("https://user:hunter2@a/", InvalidUrl::UserInfo),
        ] {
            assert_eq!(HttpUrl::parse(text), Err(why), "{text}");
            assert!(!why.to_string().contains("hunter2"));
        }
    }
}
