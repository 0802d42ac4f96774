//! Who may ask.
//!
//! With tokens, a request must carry one. Without, the server listens on loopback or a Unix socket.
//! Then a web page in a browser of this machine is the one client that must be kept out: it can send
//! requests to loopback under a name of its own that resolves there (DNS rebinding), so `Host` must be
//! an address or `localhost`.

use std::net::IpAddr;

use hyper::HeaderMap;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HOST};

use super::listener::Transport;
use super::reply::HttpFailure;
use crate::config::Tokens;

/// Checks a request for something that not everybody may read.
pub(super) fn check(
    headers: &HeaderMap,
    way: Transport,
    tokens: Option<&Tokens>,
) -> Result<(), HttpFailure> {
    match tokens {
        Some(tokens) => check_token(headers, tokens),
        None if way == Transport::Unix => Ok(()),
        None => check_host(headers),
    }
}

fn check_token(headers: &HeaderMap, tokens: &Tokens) -> Result<(), HttpFailure> {
    let bearer = |text: &str| {
        let (scheme, token) = text.split_once(' ')?;
        let token = token.trim_start().to_owned();
        scheme.eq_ignore_ascii_case("bearer").then_some(token)
    };
    let given = headers.get(AUTHORIZATION).and_then(|it| it.to_str().ok());
    let Some(token) = given.and_then(bearer) else {
        return Err(HttpFailure::token(
            "this server wants a token: send `Authorization: Bearer TOKEN`",
        ));
    };
    match tokens.find(&token) {
        Some(_) => Ok(()),
        None => Err(HttpFailure::token("unknown token")),
    }
}

fn check_host(headers: &HeaderMap) -> Result<(), HttpFailure> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    if hosts.next().is_none() && host.is_none_or(is_local) {
        return Ok(());
    }
    Err(HttpFailure::new(
        StatusCode::FORBIDDEN,
        "this server is for this machine: `Host` must be an address or localhost; to serve it under \
         another name, set `token_file`",
    ))
}

/// Whether a `Host` header names an address or `localhost`, with or without a port.
fn is_local(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    };
    let is_address = match name.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
        Some(inner) => inner.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()),
        None => name.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv4()),
    };
    port.is_none_or(|port| port.parse::<u16>().is_ok())
        && (is_address || name.eq_ignore_ascii_case("localhost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_hosts_of_a_server_without_tokens() {
        for local in [
            "127.0.0.1",
            "127.0.0.1:7171",
            "localhost",
            "LOCALHOST:80",
            "[::1]",
            "[::1]:7171",
            "10.0.0.5:7171",
        ] {
            assert!(is_local(local), "{local}");
        }
        for foreign in [
            "",
            "evil.example",
            "evil.example:7171",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1:x",
            "::1",
            "[::1",
            "[evil]",
            "user@127.0.0.1",
        ] {
            assert!(!is_local(foreign), "{foreign}");
        }
    }
}
