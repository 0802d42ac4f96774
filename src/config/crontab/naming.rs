//! Names for jobs and locks, which crontabs do not name.

use std::path::Path;

use super::model::Crontabs;
use crate::config::shell;
use crate::config::spelling;

/// Programs that run another one, after which the job is named.
const WRAPPERS: [&str; 22] = [
    "bash", "chronic", "command", "dash", "env", "exec", "flock", "ionice", "nice", "node",
    "nohup", "perl", "php", "python", "python3", "ruby", "sh", "setlock", "setsid", "stdbuf",
    "sudo", "timeout",
];
/// Programs whose argument the job is named after.
const BY_ARGUMENT: [&str; 3] = ["run-parts", "source", "."];
/// Commands that only prepare the one after which the job is named.
const STEPS: [&str; 9] = [
    "cd", "test", "[", "[[", "sleep", "export", "umask", "ulimit", "command",
];

/// Returns a name for the job of a command: its program, or the script or directory that the
/// program runs.
pub(super) fn name(command: &str, line: usize) -> String {
    let name = about(command).unwrap_or_default();
    let name = spelling::in_ascii(&name);
    let name = name.trim_matches(['.', '-', '_']);
    if name.is_empty() {
        format!("line-{line}")
    } else {
        name.to_owned()
    }
}

/// Returns the name, with a number behind it if another job or lock has it: a job's own lock has the
/// name of the job.
pub(super) fn unique(name: &str, crontabs: &Crontabs) -> String {
    numbered(name, |name| {
        crontabs.jobs.iter().all(|job| job.name != name)
            && crontabs.locks.values().all(|lock| lock != name)
    })
}

/// Returns the name of the lock that a lock file becomes.
pub(super) fn lock(file: &str, crontabs: &Crontabs) -> String {
    if let Some(name) = crontabs.locks.get(file) {
        return name.clone();
    }
    let base = Path::new(file).file_name().and_then(|name| name.to_str());
    let name = spelling::in_ascii(base.unwrap_or(file));
    let name = name.trim_start_matches('.');
    unique(if name.is_empty() { "lock" } else { name }, crontabs)
}

/// Returns the name, with a number behind it until it is free.
pub(super) fn numbered(name: &str, is_free: impl Fn(&str) -> bool) -> String {
    if is_free(name) {
        return name.to_owned();
    }
    let mut number = 2_usize;
    loop {
        let candidate = format!("{name}-{number}");
        if is_free(&candidate) {
            return candidate;
        }
        number += 1;
    }
}

fn about(command: &str) -> Option<String> {
    let mut rest = command;
    loop {
        // Groups and operators.
        rest = rest.trim_start_matches([' ', '\t', '(', '{', '!', '&', '|', ';', '<', '>']);
        let (word, end) = shell::word(rest)?;
        let base = Path::new(&word).file_name()?.to_str()?.to_owned();
        let tail = rest.get(end..)?;
        if STEPS.contains(&base.as_str()) {
            // Up to the operator that ends the step.
            let Some((at, _)) = shell::operators(tail).into_iter().next() else {
                return Some(base);
            };
            rest = tail.get(at..)?;
        } else if is_setting(&word) || word.starts_with('-') {
            rest = tail;
        } else if WRAPPERS.contains(&base.as_str()) {
            match wrapped(&base, tail) {
                Some(inner) => rest = inner,
                None => return Some(base),
            }
        } else if BY_ARGUMENT.contains(&base.as_str()) {
            return Some(argument(tail).unwrap_or(base));
        } else {
            return Some(without_extension(&base));
        }
    }
}

fn is_setting(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// Options of wrappers that are followed by a value.
fn options_with_value(wrapper: &str) -> &'static [&'static str] {
    match wrapper {
        "bash" | "sh" | "dash" => &["-c", "-o", "+o"],
        "env" => &["-u", "-C"],
        "flock" => &["-c", "-w", "-E"],
        "ionice" => &["-c", "-n", "-p"],
        "nice" => &["-n"],
        "perl" | "ruby" | "node" => &["-e"],
        "php" => &["-c", "-d", "-r"],
        "python" | "python3" => &["-c", "-W", "-X"],
        "stdbuf" => &["-i", "-o", "-e"],
        "sudo" => &["-u", "-g", "-h", "-p"],
        "timeout" => &["-k", "-s"],
        _ => &[],
    }
}

/// The command that a wrapper runs, which follows its options, their values, and settings.
fn wrapped<'a>(wrapper: &str, mut rest: &'a str) -> Option<&'a str> {
    let with_value = options_with_value(wrapper);
    loop {
        let (word, end) = shell::word(rest)?;
        let tail = rest.get(end..)?;
        let is_number = word
            .trim_end_matches(['s', 'm', 'h', 'd'])
            .parse::<f64>()
            .is_ok();
        if with_value.contains(&word.as_str()) {
            let (value, end) = shell::word(tail)?;
            // `bash -c 'script'`: the script is the rest.
            if word == "-c" && wrapper != "ionice" && value.contains([' ', '/']) {
                let at = tail.find(|c: char| c != ' ' && c != '\'' && c != '"')?;
                return tail.get(at..);
            }
            rest = tail.get(end..)?;
        } else if word.starts_with('-') || is_setting(&word) || is_number {
            rest = tail;
        } else {
            return Some(rest);
        }
    }
}

/// The first argument that is not an option.
fn argument(mut rest: &str) -> Option<String> {
    loop {
        let (word, end) = shell::word(rest)?;
        if !word.starts_with('-') {
            let base = Path::new(&word).file_name()?.to_str()?;
            return Some(base.to_owned());
        }
        rest = rest.get(end..)?;
    }
}

fn without_extension(base: &str) -> String {
    const EXTENSIONS: [&str; 7] = [".sh", ".bash", ".py", ".php", ".pl", ".rb", ".js"];
    EXTENSIONS
        .iter()
        .find_map(|extension| base.strip_suffix(extension))
        .filter(|stem| !stem.is_empty())
        .unwrap_or(base)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn a_job_is_named_after_its_program_or_script() {
        for (command, expected) in [
            ("/usr/local/bin/backup --all >> /var/log/x 2>&1", "backup"),
            ("cd / && run-parts --report /etc/cron.hourly", "cron.hourly"),
            (
                "test -x /usr/sbin/anacron || run-parts --report /etc/cron.daily",
                "cron.daily",
            ),
            ("php /srv/app/cron.php", "cron"),
            ("/usr/bin/python3 -u /opt/report_v2.py --x", "report_v2"),
            ("FOO=1 BAR='a b' /opt/x.sh", "x"),
            ("nice -n 19 ionice -c 3 /opt/reindex", "reindex"),
            ("timeout 2h sudo -u app /opt/job", "job"),
            ("bash -c 'cd /x; /opt/deep.sh'", "deep"),
            ("[ -f /x ] && certbot renew -q", "certbot"),
            ("sleep $((RANDOM % 120)); /opt/ping", "ping"),
            ("(cd /srv && ./update)", "update"),
            ("/opt/Übersicht", "Uebersicht"),
            ("echo x", "echo"),
            ("cd /x", "cd"),
            ("\"\"", "line-7"),
        ] {
            assert_eq!(name(command, 7), expected, "{command}");
        }
    }
}
