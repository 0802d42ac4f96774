//! Completions for fish.

use std::fmt::Write as _;

use clap::Command;

use super::arguments::{commands_with, generated, is_job};

/// Prints the names of the jobs in the list that the command line names.
const FUNCTION: &str = r"
function __fish_cronlatch_jobs
    set -l words (commandline -opc)
    set -l list
    for option in -c --config
        if set -l at (contains -i -- $option $words)
            set list --config $words[(math $at + 1)]
        end
    end
    set -l joined (string match -- '--config=*' $words)
    and set list $joined[-1]
    $words[1] completions job-names $list 2>/dev/null
end

";

/// Returns the completion script for fish.
pub(super) fn script(cli: &Command) -> String {
    let jobs = commands_with(cli, is_job).join(" ");
    let mut script = generated(clap_complete::Shell::Fish, cli);
    script += FUNCTION;
    let _ = writeln!(
        script,
        "complete -c cronlatch -n \"__fish_seen_subcommand_from {jobs}\" -f -a \
         \"(__fish_cronlatch_jobs)\""
    );
    script
}
