//! Who may ask.
//!
//! With tokens, a request must carry one. Without, the server listens on loopback or a Unix socket.
//! Then a web page in a browser of this machine is the one client that must be kept out: it can send
//! requests to loopback under a name of its own that resolves there (DNS rebinding), so `Host` must be
//! an address or `localhost`.

use std::net::IpAddr;

use hyper::HeaderMap;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};

use super::listener::Transport;
use super::reply::HttpFailure;
use crate::config::{TokenRight, Tokens};

/// Checks a request for something that not everybody may read.
pub(super) fn check(
    headers: &HeaderMap,
    transport: Transport,
    tokens: Option<&Tokens>,
) -> Result<(), HttpFailure> {
    match tokens {
        Some(tokens) => check_token(headers, tokens),
        None if transport == Transport::Unix => Ok(()),
        None => check_host(headers),
    }
}

/// Checks a request for the output of a run. Only root and the user of the daemon may read the files, so
/// the other users of this machine need a token.
pub(super) fn check_for_output(
    headers: &HeaderMap,
    transport: Transport,
    tokens: Option<&Tokens>,
) -> Result<(), HttpFailure> {
    if tokens.is_none() && transport != Transport::Unix {
        return Err(HttpFailure::new(
            StatusCode::FORBIDDEN,
            "the output of runs needs a token, and this server has none: set `token_file`",
        ));
    }
    check(headers, transport, tokens)
}

/// Checks a request to do something. Returns the name of its token, which has the right to act.
///
/// A token is needed wherever the server listens: it names who acts. With it, no other site can act
/// through a browser; a foreign `Origin` is rejected all the same.
pub(super) fn check_to_act(
    headers: &HeaderMap,
    tokens: Option<&Tokens>,
) -> Result<String, HttpFailure> {
    let Some(tokens) = tokens else {
        return Err(HttpFailure::new(
            StatusCode::FORBIDDEN,
            "acting needs a token with the right `act`, and this server has no tokens: set \
             `token_file`",
        ));
    };
    let (right, name) = find_token(headers, tokens)?;
    if right != TokenRight::Act {
        return Err(HttpFailure::new(
            StatusCode::FORBIDDEN,
            format!("the token {name} may only read: acting needs one with the right `act`"),
        ));
    }
    check_origin(headers)?;
    check_json(headers)?;
    Ok(name.to_owned())
}

/// A browser says which site sent the request: only pages of this server may.
fn check_origin(headers: &HeaderMap) -> Result<(), HttpFailure> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    let Some(origin) = text(ORIGIN) else {
        return Ok(());
    };
    let site = origin.split_once("://").map(|(_, site)| site);
    if site.is_some() && site == text(HOST) && headers.get_all(HOST).iter().count() == 1 {
        return Ok(());
    }
    Err(HttpFailure::new(
        StatusCode::FORBIDDEN,
        "`Origin` is another site than `Host`",
    ))
}

/// No form of a web page can send this type.
fn check_json(headers: &HeaderMap) -> Result<(), HttpFailure> {
    let given = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let media = given.and_then(|it| it.split(';').next()).unwrap_or("");
    if media.trim().eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(HttpFailure::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "the body is JSON: send `Content-Type: application/json`",
    ))
}

fn check_token(headers: &HeaderMap, tokens: &Tokens) -> Result<(), HttpFailure> {
    find_token(headers, tokens).map(drop)
}

/// Returns right and name of the token that the request carries.
fn find_token<'a>(
    headers: &HeaderMap,
    tokens: &'a Tokens,
) -> Result<(TokenRight, &'a str), HttpFailure> {
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
    let found = tokens.find(&token);
    found.ok_or_else(|| HttpFailure::token("unknown token"))
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
