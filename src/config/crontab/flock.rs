//! `flock [OPTION…] FILE COMMAND` of util-linux.

use crate::config::shell::{self, Operator};

/// A command that runs under a lock file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LockedCommand {
    /// The lock file.
    pub(super) file: String,
    /// `skip` with `-n`, else `wait`.
    pub(super) on_overlap: &'static str,
    /// How long it waits for the lock, from `-w`.
    pub(super) patience: Option<String>,
    /// The command under the lock.
    pub(super) command: String,
}

/// Reads a command that begins with `flock`. Returns `None` if it does not, or if a job's lock cannot
/// do the same.
pub(super) fn read(command: &str) -> Option<LockedCommand> {
    let mut words = WordReader { rest: command };
    if !matches!(
        words.next()?.as_str(),
        "flock" | "/usr/bin/flock" | "/bin/flock"
    ) {
        return None;
    }
    let mut on_overlap = "wait";
    let mut patience = None;
    let file = loop {
        let word = words.next()?;
        match word.as_str() {
            "-n" | "--nb" | "--nonblock" | "-xn" | "-nx" | "-en" => on_overlap = "skip",
            "-x" | "-e" | "--exclusive" | "-o" | "--close" | "-F" | "--no-fork" | "--verbose" => {}
            "-w" | "--wait" | "--timeout" => patience = Some(seconds(&words.next()?)?),
            "-E" | "--conflict-exit-code" => {
                words.next()?;
            }
            // Shared locks, and unknown options.
            option if option.starts_with('-') => return None,
            _ => break word,
        }
    };
    // A number is a descriptor that the shell has opened.
    if file.contains('$') || file.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let before = words.rest;
    let command = match words.next()?.as_str() {
        "-c" | "--command" => {
            let script = words.next()?;
            words.rest.trim().is_empty().then_some(script)?
        }
        _ => before.trim_start().to_owned(),
    };
    if command.trim().is_empty() {
        return None;
    }
    // The shell runs what follows `;`, `||` or `&` without the lock.
    let leaves = |(_, operator): &(usize, Operator)| {
        matches!(
            operator,
            Operator::Or | Operator::Sequence | Operator::Background
        )
    };
    if shell::operators(before).iter().any(leaves) {
        return None;
    }
    Some(LockedCommand {
        file,
        on_overlap,
        patience,
        command,
    })
}

fn seconds(text: &str) -> Option<String> {
    let seconds: f64 = text.parse().ok()?;
    (1.0..1e9)
        .contains(&seconds)
        .then(|| format!("{seconds:.0}s"))
}

struct WordReader<'a> {
    rest: &'a str,
}

impl WordReader<'_> {
    fn next(&mut self) -> Option<String> {
        let (word, end) = shell::word(self.rest)?;
        self.rest = self.rest.get(end..)?;
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn a_lock_file_becomes_a_lock_only_if_it_guards_the_whole_command() {
        let of = |text: &str| {
            read(text).map(|l| {
                let patience = l.patience.unwrap_or_default();
                format!("{} {} {patience} {}", l.file, l.on_overlap, l.command)
            })
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            of("flock -n /tmp/a.lock php x.php"),
            some("/tmp/a.lock skip  php x.php")
        );
        assert_eq!(
            of("/usr/bin/flock /tmp/a x > y 2>&1"),
            some("/tmp/a wait  x > y 2>&1")
        );
        assert_eq!(of("flock -w 30 '/t/a b' x"), some("/t/a b wait 30s x"));
        assert_eq!(of("flock -n /a -c 'x; y | z'"), some("/a skip  x; y | z"));
        assert_eq!(of("flock -n /a x | y"), some("/a skip  x | y"));
        assert_eq!(of("flock -n /a x && y"), some("/a skip  x && y"));
        assert_eq!(
            of("flock -n /a -c \"printf 'a\\n' \\$x\""),
            some("/a skip  printf 'a\\n' $x")
        );
        for other in [
            "php flock",
            "flock -s /a x",
            "flock -n 9 x",
            "flock -n $LOCK x",
            "flock -n /a x; y",
            "flock -n /a x || y",
            "flock -n /a -c ''",
            "flock -n /a",
            "cd /x && flock -n /a x",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
