//! What shells, editors and `man` are given: completions, the schema, manual pages, help.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::docs::ROOT;
use crate::support::{Output, command, cronlatch};

/// The subcommands, from the help.
fn subcommands() -> Vec<String> {
    let help = cronlatch(&["--help"]).expect_code(0).stdout;
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    let names = commands
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// A command that finds the program under test as `cronlatch`.
fn with_program(program: &str) -> Command {
    let directory = Path::new(command::BINARY).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = command::command(program);
    command.env("PATH", format!("{}:{path}", directory.display()));
    command
}

/// A folder with a list of three jobs, and the script of this shell.
fn folder(shell: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let job = |name: &str| format!("  - {{ name: {name}, every: 1h, command: x }}\n");
    let list = format!(
        "jobs:\n{}{}{}",
        job("nightly"),
        job("night-mail"),
        job("daily")
    );
    fs::write(dir.path().join("jobs.yaml"), list).unwrap();
    let script = cronlatch(&["completions", shell]).expect_code(0).stdout;
    fs::write(dir.path().join("script"), script).unwrap();
    dir
}

/// What bash would offer for the last of these words.
fn offered_by_bash(dir: &Path, line: &[&str]) -> Vec<String> {
    let words = line.iter().map(|word| format!("'{word}'"));
    let script = format!(
        "source ./script; COMP_WORDS=({}); COMP_CWORD={}; prev=\"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
         _cronlatch_with_names cronlatch \"${{COMP_WORDS[COMP_CWORD]}}\" \"$prev\"; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.collect::<Vec<_>>().join(" "),
        line.len() - 1
    );
    let mut bash = with_program("bash");
    bash.args(["-c", &script])
        .current_dir(dir)
        .env("CRONLATCH_CONFIG", dir.join("jobs.yaml"));
    let said = command::output(bash).expect_code(0);
    assert_eq!(said.stderr, "", "{said:#?}");
    said.stdout
        .lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn bash_completes_commands_options_and_job_names() {
    let folder = folder("bash");
    let offered = |line: &[&str]| offered_by_bash(folder.path(), line);
    assert_eq!(offered(&["cronlatch", "hist"]), ["history"]);
    assert_eq!(offered(&["cronlatch", "trigger", "--wa"]), ["--wait"]);
    assert_eq!(
        offered(&["cronlatch", "trigger", "night"]),
        ["nightly", "night-mail"]
    );
    assert_eq!(
        offered(&["cronlatch", "history", "daily", "night-"]),
        ["night-mail"]
    );
    assert_eq!(
        offered(&["cronlatch", "next", "jobs.yaml", "--job", "d"]),
        ["daily"]
    );
    // Files are for bash itself.
    assert!(offered(&["cronlatch", "check", "jo"]).is_empty());
    assert!(
        offered(&["cronlatch", "history", "--limit", ""])
            .iter()
            .all(|word| word != "daily")
    );
    fs::write(
        folder.path().join("other.yaml"),
        "jobs: [{ name: noon, every: 1h, command: x }]",
    )
    .unwrap();
    let line = ["cronlatch", "trigger", "--config", "other.yaml", ""];
    assert_eq!(offered(&line), ["noon"]);
    // Bash cuts words at `=`.
    let line = ["cronlatch", "trigger", "--config", "=", "other.yaml", ""];
    assert_eq!(offered(&line), ["noon"]);
    assert_eq!(offered(&["cronlatch", "kill", "da"]), ["daily"]);
    // What the help hides is offered nowhere.
    assert_eq!(offered(&["cronlatch", "s"]), ["status", "schema"]);
    fs::write(folder.path().join("jobs.yaml"), "jobs: broken").unwrap();
    assert!(offered(&["cronlatch", "forget", "n"]).is_empty());
}

/// Whether a program is installed; those shells are optional on a machine that runs the tests.
fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|directory| directory.join(program).exists())
}

#[test]
fn fish_completes_job_names() {
    let folder = folder("fish");
    let script = fs::read_to_string(folder.path().join("script")).unwrap();
    assert!(script.contains("__fish_seen_subcommand_from") && script.contains("trigger"));
    assert!(!script.contains("sweep"), "{script}");
    if !is_installed("fish") {
        return;
    }
    let offered = |line: &str| {
        let mut fish = with_program("fish");
        fish.args([
            "--no-config",
            "-c",
            &format!("source script; complete -C '{line}'"),
        ])
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .env("CRONLATCH_CONFIG", folder.path().join("jobs.yaml"));
        let said = command::output(fish).expect_code(0);
        let words = said
            .stdout
            .lines()
            .filter_map(|line| line.split('\t').next());
        let mut words: Vec<String> = words.map(str::to_owned).collect();
        words.sort_unstable();
        words
    };
    assert_eq!(offered("cronlatch hist"), ["history"]);
    assert_eq!(offered("cronlatch kill da"), ["daily"]);
    assert_eq!(
        offered("cronlatch trigger night"),
        ["night-mail", "nightly"]
    );
    fs::write(
        folder.path().join("other.yaml"),
        "jobs: [{ name: noon, every: 1h, command: x }]",
    )
    .unwrap();
    assert_eq!(offered("cronlatch trigger -c other.yaml no"), ["noon"]);
    assert_eq!(
        offered("cronlatch trigger --config=other.yaml no"),
        ["noon"]
    );
}

#[test]
fn the_script_for_zsh_is_valid_and_names_the_jobs() {
    let folder = folder("zsh");
    let script = fs::read_to_string(folder.path().join("script")).unwrap();
    assert!(script.starts_with("#compdef cronlatch"));
    assert!(script.contains("\n_cronlatch_jobs() {") && script.contains(":_cronlatch_jobs"));
    assert!(!script.contains("_users") && !script.contains("sweep"));
    let takes_jobs = |line: &str| line.contains(":what -- ") && line.contains(":_cronlatch_jobs");
    assert!(
        script.lines().any(takes_jobs),
        "kill has no names: {script}"
    );
    if !is_installed("zsh") {
        return;
    }
    let mut zsh = with_program("zsh");
    zsh.args(["-n", "script"]).current_dir(folder.path());
    command::output(zsh).expect_code(0);
    // The functions of the completion system are replaced; what the names are added with is shown.
    let mut zsh = with_program("zsh");
    let check = "compdef() { :; }; _call_program() { shift; eval \"$@\"; }; \
                 compadd() { print -l -- ${(P)2}; }; words=(cronlatch trigger ''); source ./script; \
                 _cronlatch_jobs; \
                 words=(cronlatch trigger --config=other.yaml ''); _cronlatch_jobs";
    let other = "jobs: [{ name: noon, every: 1h, command: x }]";
    fs::write(folder.path().join("other.yaml"), other).unwrap();
    zsh.args(["-f", "-c", check])
        .current_dir(folder.path())
        .env("CRONLATCH_CONFIG", folder.path().join("jobs.yaml"));
    let said = command::output(zsh).expect_code(0);
    assert_eq!(
        said.stdout.lines().collect::<Vec<_>>(),
        ["nightly", "night-mail", "daily", "noon"]
    );
}

#[test]
fn every_command_has_a_page_that_man_can_show() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man1");
    let said = cronlatch(&["man", pages.to_str().unwrap()])
        .expect_code(0)
        .stderr;
    let written = format!("pages written to {}\n", pages.display());
    assert!(said.ends_with(&written), "{said}");
    let commands = subcommands();
    assert!(commands.len() >= 13, "{commands:?}");
    for command in commands {
        let path = pages.join(format!("cronlatch-{command}.1"));
        let page = fs::read_to_string(&path).unwrap();
        for section in [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "EXIT STATUS",
            "EXAMPLES",
            "SEE ALSO",
        ] {
            let heading = page
                .lines()
                .any(|line| line.replace('"', "") == format!(".SH {section}"));
            assert!(heading, "{command} has no {section}: {page}");
        }
        // Roff escapes hyphens.
        let text = page.replace('\\', "");
        let repeats_heading = text.contains("Exit codes:") || text.contains("Exit status:");
        assert!(!repeats_heading, "{command}: {text}");
        for (option, said) in [
            ("--store", "The store: "),
            ("--store", "CRONLATCH_STORE"),
            ("--host", "[default: the machine"),
            ("--log-format", "Format of the log"),
        ] {
            let described = !text.contains(option) || text.contains(said);
            assert!(described, "{command}: {option} lacks {said:?}: {text}");
        }
    }
    let main = fs::read_to_string(pages.join("cronlatch.1")).unwrap();
    assert_eq!(cronlatch(&["man"]).expect_code(0).stdout, main);
    assert!(!main.contains("sweep") && !pages.join("cronlatch-sweep.1").exists());
    if !is_installed("groff") {
        return;
    }
    for page in fs::read_dir(&pages).unwrap() {
        let mut groff = command::command("groff");
        groff
            .args(["-man", "-Tutf8", "-ww", "-z"])
            .arg(page.unwrap().path());
        let said: Output = command::output(groff).expect_code(0);
        assert_eq!(said.stderr, "");
    }
}

#[test]
fn the_schema_is_the_one_of_the_repository() {
    let schema = fs::read_to_string(format!("{ROOT}/jobs.schema.json")).unwrap();
    assert_eq!(cronlatch(&["schema"]).expect_code(0).stdout, schema);
}

#[test]
fn short_help_folds_what_commands_share_and_long_help_has_examples() {
    for command in subcommands() {
        let short = cronlatch(&[&command, "-h"]).expect_code(0).stdout;
        let long = cronlatch(&[&command, "--help"]).expect_code(0).stdout;
        for shared in ["--log-format", "--log-level", "--store", "--host"] {
            assert!(
                !short.contains(shared),
                "{command} -h has {shared}: {short}"
            );
        }
        assert!(long.contains("--log-level"), "{long}");
        assert!(
            long.contains("Examples:\n  # "),
            "{command} has no example: {long}"
        );
        assert!(!short.contains("Examples:"), "{short}");
        let widest = long.lines().map(|line| line.chars().count()).max();
        assert!(
            widest <= Some(110),
            "{command}: a line of {widest:?} columns\n{long}"
        );
    }
}

#[test]
fn completions_needs_a_shell_and_its_help_says_so() {
    for help in ["-h", "--help"] {
        let text = cronlatch(&["completions", help]).expect_code(0).stdout;
        assert!(
            text.contains("cronlatch completions [OPTIONS] <SHELL>"),
            "{text}"
        );
        assert!(
            !text.contains("[SHELL]") && !text.contains("job-names"),
            "{text}"
        );
    }
    let refused = cronlatch(&["completions"]).expect_code(64).stderr;
    assert!(
        refused.contains("<SHELL>") && !refused.contains("--jobs"),
        "{refused}"
    );
}

/// The parser judges what comes before `--help`.
#[test]
fn every_example_of_the_help_is_understood() {
    let mut examples = 0;
    for command in subcommands() {
        let long = cronlatch(&[&command, "--help"]).expect_code(0).stdout;
        let (_, shown) = long.split_once("Examples:\n").unwrap();
        for line in shown
            .lines()
            .filter(|line| line.contains("cronlatch ") && !line.contains("  # "))
        {
            let (_, tail) = line.split_once("cronlatch ").unwrap();
            let end = [" | ", " > ", " -- "]
                .iter()
                .filter_map(|end| tail.find(end))
                .min();
            let tail = &tail[..end.unwrap_or(tail.len())];
            let script = format!("exec cronlatch {tail} --help");
            let mut shell = with_program("sh");
            shell.args(["-c", &script]);
            let said = command::output(shell);
            assert_eq!(said.code(), 0, "{line}\n{}", said.stderr);
            examples += 1;
        }
    }
    assert!(examples >= 20, "{examples} examples");
}
