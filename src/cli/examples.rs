//! Examples of the commands, for `--help` and the man pages.

use std::fmt::Write as _;

/// A command line and what it does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Example {
    pub(super) line: &'static str,
    pub(super) does: &'static str,
}

const fn example(does: &'static str, line: &'static str) -> Example {
    Example { line, does }
}

/// The examples of each command, by name.
pub(super) const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "run",
        &[
            example(
                "Run the jobs of a list until Ctrl-C",
                "cronlatch run jobs.yaml",
            ),
            example("Run a crontab as it is", "cronlatch run crontab.txt"),
            example(
                "Put each change of the list into force while the daemon runs",
                "cronlatch run jobs.yaml --watch",
            ),
            example(
                "Share the jobs with all hosts that use this Redis",
                "cronlatch run jobs.yaml --store redis://10.0.0.5:6379/0",
            ),
        ],
    ),
    (
        "check",
        &[
            example(
                "Check a list before it is deployed",
                "cronlatch check jobs.yaml",
            ),
            example(
                "Show what the list means on another host",
                "cronlatch check jobs.yaml --host web2",
            ),
        ],
    ),
    (
        "next",
        &[
            example(
                "Show the next three occurrences of each job",
                "cronlatch next jobs.yaml --count 3",
            ),
            example(
                "Show how an expression behaves when the clocks change",
                "cronlatch next --expr '30 2 * * *' --tz Europe/Berlin --from 2026-03-28T00:00:00Z",
            ),
        ],
    ),
    (
        "import",
        &[
            example(
                "Turn the crontabs of a host into a job list",
                "cronlatch import /etc/crontab /etc/cron.d --output jobs.yaml",
            ),
            example(
                "Turn your own crontab into a job list",
                "crontab -l | cronlatch import - --user backup > jobs.yaml",
            ),
        ],
    ),
    (
        "exec",
        &[
            example(
                "Run a migration once, whichever host deploys first; the others wait",
                "cronlatch exec --lock migrate --wait 5m -- ./migrate.sh",
            ),
            example(
                "Use a lock that applications take themselves",
                "cronlatch exec --key app:reindex --ttl 1m -- ./reindex.sh",
            ),
        ],
    ),
    (
        "trigger",
        &[
            example("Start a run of a job", "cronlatch trigger nightly-backup"),
            example(
                "Start a run on a host, show its output and wait for its result",
                "cronlatch trigger nightly-backup --on web2 --wait --reason 'after the repair'",
            ),
            example(
                "Run a job in this terminal, without a daemon",
                "cronlatch trigger nightly-backup --here --wait",
            ),
        ],
    ),
    (
        "kill",
        &[
            example(
                "Kill the run of a job, on whichever host it is",
                "cronlatch kill nightly-backup --reason 'it hangs'",
            ),
            example(
                "Have a run read its configuration again",
                "cronlatch kill 01a200cc-51c1-772e-90ed-bdf0bfb054e1 --signal HUP",
            ),
        ],
    ),
    (
        "status",
        &[
            example("Show hosts, jobs and current runs", "cronlatch status"),
            example("Keep the same on the screen", "cronlatch status --watch"),
            example(
                "Report failed, overdue and stuck jobs to a monitoring system",
                "cronlatch status --check --max-age 26h",
            ),
            example(
                "List the jobs whose lock is held",
                "cronlatch status --json | jq '.jobs[] | select(.running)'",
            ),
        ],
    ),
    (
        "history",
        &[
            example(
                "Show the runs that failed since yesterday",
                "cronlatch history --failed --since yesterday",
            ),
            example(
                "Show the last runs of a job with their output",
                "cronlatch history nightly-backup --output --limit 3",
            ),
            example(
                "Show what was missed on two hosts",
                "cronlatch history 'web*' --on 'web[12]' --outcome missed,skipped",
            ),
        ],
    ),
    (
        "logs",
        &[
            example(
                "Show the whole output of the newest run of a job",
                "cronlatch logs nightly-backup",
            ),
            example(
                "Watch the run that is in progress, with times and streams",
                "cronlatch logs nightly-backup --follow --timestamps",
            ),
        ],
    ),
    (
        "explain",
        &[
            example(
                "Explain what became of the newest occurrence of a job",
                "cronlatch explain nightly-backup",
            ),
            example(
                "Explain why nobody ran it in the night",
                "cronlatch explain nightly-backup --at 'yesterday 02:30'",
            ),
        ],
    ),
    (
        "doctor",
        &[example(
            "Look for trouble before the first start",
            "cronlatch doctor --config /etc/cronlatch/jobs.yaml",
        )],
    ),
    (
        "init",
        &[example(
            "Mark an empty Redis as new, so that the first start need not wait",
            "cronlatch init --store redis://10.0.0.5:6379/0",
        )],
    ),
    (
        "forget",
        &[example(
            "Delete what the store keeps of a job that no list has any more",
            "cronlatch forget old-report",
        )],
    ),
    (
        "notify-test",
        &[example(
            "Send a sample message to the target `ops` of a list",
            "cronlatch notify-test ops -c jobs.yaml",
        )],
    ),
    (
        "pause",
        &[
            example(
                "Start no backup while the disk is replaced",
                "cronlatch pause 'backup-*' --for 2h --reason 'new disk'",
            ),
            example(
                "Start nothing in the whole fleet until somebody resumes it",
                "cronlatch pause --all --reason 'database upgrade'",
            ),
        ],
    ),
    (
        "resume",
        &[
            example(
                "Start the runs of a job again",
                "cronlatch resume nightly-backup",
            ),
            example("Resume every job that is paused", "cronlatch resume --all"),
        ],
    ),
    (
        "health",
        &[example(
            "Check a daemon that was started with `run --health-file /run/cronlatch/health`",
            "cronlatch health /run/cronlatch/health",
        )],
    ),
    (
        "unlock",
        &[
            example(
                "Show who holds the lock of a job, and release it if the holder is gone",
                "cronlatch unlock nightly-backup",
            ),
            example(
                "Release the lock of an application without a question",
                "cronlatch unlock --key app:reindex --yes --reason 'host was replaced'",
            ),
        ],
    ),
    (
        "schema",
        &[
            example(
                "Let an editor complete and check job lists",
                "cronlatch schema > jobs.schema.json",
            ),
            example(
                "Let a program check what commands print with --json",
                "cronlatch schema output > output.schema.json",
            ),
        ],
    ),
    (
        "completions",
        &[
            example(
                "Complete commands, options and job names in bash",
                "cronlatch completions bash > /usr/share/bash-completion/completions/cronlatch",
            ),
            example(
                "The same in zsh",
                "cronlatch completions zsh > /usr/local/share/zsh/site-functions/_cronlatch",
            ),
            example(
                "The same in fish",
                "cronlatch completions fish > ~/.config/fish/completions/cronlatch.fish",
            ),
        ],
    ),
    (
        "man",
        &[
            example("Read the manual", "cronlatch man | man -l -"),
            example(
                "Write a page for each command",
                "cronlatch man /usr/local/share/man/man1",
            ),
        ],
    ),
];

/// The examples of a command.
pub(super) fn of(command: &str) -> &'static [Example] {
    let found = EXAMPLES.iter().find(|(name, _)| *name == command);
    found.map_or(&[], |(_, examples)| examples)
}

/// Adds to the long help of each command its examples.
pub(super) fn add(mut cli: clap::Command) -> clap::Command {
    for (name, examples) in EXAMPLES {
        cli = cli.mut_subcommand(name, |command| {
            let mut text = String::new();
            if let Some(help) = command.get_after_help() {
                let _ = write!(text, "{help}\n\n");
            }
            text += "Examples:";
            for example in *examples {
                let _ = write!(text, "\n  # {}\n  {}", example.does, example.line);
            }
            command.after_long_help(text)
        });
    }
    cli
}
