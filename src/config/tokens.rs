//! The tokens of the HTTP server, in a file of their own.
//!
//! Each line is `RIGHT NAME TOKEN`; blank lines and lines that begin with `#` are skipped.

use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};

/// The shortest token, in characters: 32 hexadecimal digits are 128 bits.
const TOKEN_MIN: usize = 32;
/// The largest file.
const FILE_MAX: u64 = 1 << 20;

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenRight {
    /// To read.
    Read,
    /// To read and to act.
    Act,
}

/// A token, as the hash of its text.
#[derive(Clone, PartialEq, Eq)]
struct ListedToken {
    right: TokenRight,
    name: String,
    hash: [u8; 32],
}

impl fmt::Debug for ListedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} ***", self.right, self.name)
    }
}

/// The tokens of a file. There is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens(Vec<ListedToken>);

/// Why a file of tokens cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("token_file {path}: {what}")]
pub struct TokenFileError {
    path: String,
    what: String,
}

impl Tokens {
    /// Reads a file of tokens.
    pub fn read(path: &Path) -> Result<Self, TokenFileError> {
        let refused = |what: String| TokenFileError {
            path: path.display().to_string(),
            what,
        };
        let io = |error: std::io::Error| refused(error.to_string());
        let metadata = std::fs::metadata(path).map_err(io)?;
        if !metadata.is_file() {
            return Err(refused("not a regular file".to_owned()));
        }
        if metadata.permissions().mode() & 0o007 != 0 {
            return Err(refused(format!(
                "every user of this machine has access to it; run `chmod 640 {}`",
                path.display()
            )));
        }
        if metadata.len() > FILE_MAX {
            return Err(refused("larger than 1 MiB".to_owned()));
        }
        let text = std::fs::read_to_string(path).map_err(io)?;
        Self::parse(&text).map_err(refused)
    }

    /// Parses the text of such a file. An error never contains a token.
    fn parse(text: &str) -> Result<Self, String> {
        let mut tokens: Vec<ListedToken> = Vec::new();
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let token = token(line).map_err(|what| format!("line {number}: {what}"))?;
            if tokens.iter().any(|other| other.name == token.name) {
                let name = token.name;
                return Err(format!(
                    "line {number}: the name {name} is given twice; give each token its own name"
                ));
            }
            tokens.push(token);
        }
        if tokens.is_empty() {
            return Err("it has no token; a line is `read NAME TOKEN` or `act NAME TOKEN`".into());
        }
        Ok(Self(tokens))
    }

    /// Returns right and name of a token, or `None` if the file does not have it.
    ///
    /// Takes equally long for every text of the same length: the hashes of all tokens are compared,
    /// each in constant time.
    pub fn find(&self, presented: &str) -> Option<(TokenRight, &str)> {
        let hash: [u8; 32] = Sha256::digest(presented).into();
        let mut found = u32::MAX;
        for (at, token) in (0..).zip(&self.0) {
            let is_same: Choice = token.hash.ct_eq(&hash);
            found = u32::conditional_select(&found, &at, is_same);
        }
        let token = self.0.get(usize::try_from(found).ok()?)?;
        Some((token.right, &token.name))
    }
}

fn token(line: &str) -> Result<ListedToken, String> {
    let mut words = line.split_whitespace();
    let right = match words.next() {
        Some("read") => TokenRight::Read,
        Some("act") => TokenRight::Act,
        _ => return Err("expected `read NAME TOKEN` or `act NAME TOKEN`".to_owned()),
    };
    let (Some(name), Some(token), None) = (words.next(), words.next(), words.next()) else {
        return Err("expected three words: a right, a name and a token".to_owned());
    };
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if !name.bytes().all(fits) || name.len() > 64 {
        return Err("a name has at most 64 letters, digits, `.`, `_` and `-`".to_owned());
    }
    if token.len() < TOKEN_MIN || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(format!(
            "a token has at least {TOKEN_MIN} ASCII characters without blanks; `openssl rand -hex \
             32` makes one"
        ));
    }
    Ok(ListedToken {
        right,
        name: name.to_owned(),
        hash: Sha256::digest(token).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: &str = "0123456789abcdef0123456789abcdef";
    const ACT: &str = "fedcba9876543210fedcba9876543210";

    #[test]
    fn a_token_is_found_with_its_right_and_its_name() {
        let text = format!("# comment\n\nread prometheus {READ}\n  act alice\t{ACT}\n");
        let tokens = Tokens::parse(&text).expect("it is right");
        assert_eq!(tokens.find(READ), Some((TokenRight::Read, "prometheus")));
        assert_eq!(tokens.find(ACT), Some((TokenRight::Act, "alice")));
        for wrong in [
            "",
            "x",
            &READ[1..],
            &READ.to_uppercase(),
            &format!("{READ} "),
        ] {
            assert_eq!(tokens.find(wrong), None, "{wrong:?}");
        }
        assert!(!format!("{tokens:?}").contains(READ));
    }

    #[test]
    fn what_is_no_file_of_tokens_is_refused_without_showing_them() {
        let secret = "geheim-geheim-geheim-geheim-geheim";
        let refused = [
            String::new(),
            "# nothing\n".to_owned(),
            secret.to_owned(),
            format!("read {secret}\n"),
            format!("write me {secret}\n"),
            format!("read me {secret} more\n"),
            "read me geheim\n".to_owned(),
            format!("read m/e {secret}\n"),
            format!("read me {secret}\nact me {secret}\n"),
            format!("read me {secret}ü\n"),
        ]
        .map(|text| Tokens::parse(&text).expect_err(&text));
        assert!(refused.iter().all(|what| !what.contains("geheim")));
        insta::assert_snapshot!(refused.join("\n"), @r"
        it has no token; a line is `read NAME TOKEN` or `act NAME TOKEN`
        it has no token; a line is `read NAME TOKEN` or `act NAME TOKEN`
        line 1: expected `read NAME TOKEN` or `act NAME TOKEN`
        line 1: expected three words: a right, a name and a token
        line 1: expected `read NAME TOKEN` or `act NAME TOKEN`
        line 1: expected three words: a right, a name and a token
        line 1: a token has at least 32 ASCII characters without blanks; `openssl rand -hex 32` makes one
        line 1: a name has at most 64 letters, digits, `.`, `_` and `-`
        line 2: the name me is given twice; give each token its own name
        line 1: a token has at least 32 ASCII characters without blanks; `openssl rand -hex 32` makes one
        ");
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("tokens");
        let with_mode = |mode| {
            std::fs::write(&path, format!("read a {READ}\n")).expect("writable");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("our own");
            Tokens::read(&path)
        };
        assert!(with_mode(0o640).is_ok());
        let refused = with_mode(0o644).expect_err("everybody reads it");
        assert!(refused.to_string().contains("chmod 640"), "{refused}");
        let missing = Tokens::read(Path::new("/nowhere/tokens")).expect_err("there is none");
        assert!(missing.to_string().contains("/nowhere/tokens"), "{missing}");
        let refused = Tokens::read(dir.path()).expect_err("no file");
        assert!(refused.to_string().contains("regular"), "{refused}");
    }
}
