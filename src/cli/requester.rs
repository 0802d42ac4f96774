//! Who uses a command: what is recorded about interventions.

use nix::unistd::{User, getuid};

use crate::names::HostName;

/// Returns `USER@HOST`. Under sudo this is the user who called it.
pub(super) fn requester(host: &HostName) -> String {
    let uid = getuid();
    let behind_sudo = std::env::var("SUDO_USER").ok();
    let user = behind_sudo
        .filter(|user| uid.is_root() && !user.is_empty())
        .or_else(|| User::from_uid(uid).ok().flatten().map(|user| user.name))
        .unwrap_or_else(|| format!("uid{uid}"));
    format!("{}@{host}", one_word(&user))
}

/// Returns `NAME+http@HOST` for who acts with the token of this name over HTTP, on the server of this host.
pub(super) fn of_token(name: &str, host: &HostName) -> String {
    format!("{}+http@{host}", one_word(name))
}

/// Replaces every character that could separate the fields of stored texts, and limits the length.
fn one_word(user: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+$".contains(c);
    let plain = user.chars().map(|c| if is_plain(c) { c } else { '_' });
    plain.take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::one_word;

    #[test]
    fn a_user_is_one_word() {
        assert_eq!(one_word("alice"), "alice");
        assert_eq!(one_word("CORP\\bob smith\n"), "CORP_bob_smith_");
    }
}
