//! Rejects URLs that the client library would misread, or parts of which it would ignore. It runs
//! before the client library parses the URL.

/// Checks the part after the scheme of one server's URL.
pub(super) fn check_parts(scheme: &str, rest: &str, shown: &str) -> Result<(), String> {
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
                return wrong("only db, user and pass may follow '?'");
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
        return wrong("only the number of a database may follow the host, as in …:6379/0");
    }
    Ok(())
}

const HASH: &str =
    "it has a '#'; there is nothing to write after one, and in a password it reads %23";

/// Characters that the client library reads as the beginning of something else.
pub(super) fn check_characters(user: &str, after_user: &str) -> Result<(), &'static str> {
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
        return Err("nothing may follow '?'");
    }
    Ok(())
}
