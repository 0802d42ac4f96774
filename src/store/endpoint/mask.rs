//! URLs for messages: without passwords. The text need not be a valid URL.

/// Returns the text of a URL with its password, if any, replaced by `***`.
///
/// It need not be a valid URL: everything before the last `@` counts as user and password, so that
/// a password with a character that should have been escaped is not shown either.
pub(crate) fn shown_url(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let rest = match rest.rsplit_once('@') {
        Some((userinfo, host)) => match userinfo.split_once(':') {
            Some((user, _)) => format!("{user}:***@{host}"),
            None => format!("***@{host}"),
        },
        None => rest.to_owned(),
    };
    let shown = match rest.split_once('?') {
        Some((path, query)) => {
            let query: Vec<&str> = query
                .split('&')
                .map(|part| match part.split_once('=') {
                    Some(("db" | "user", _)) | None => part,
                    Some(_) => "***",
                })
                .collect();
            format!("{path}?{}", query.join("&"))
        }
        None => rest,
    };
    format!("{scheme}{shown}")
}
