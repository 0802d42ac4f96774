//! What the documentation states is true: its lists load, its commands, links and tests exist, and
//! the rights that it asks for in Redis are enough.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Output, RedisServer, command};

pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The pages, by path and text.
fn pages() -> Vec<(PathBuf, String)> {
    let docs = fs::read_dir(Path::new(ROOT).join("docs")).unwrap();
    let mut paths: Vec<PathBuf> = docs.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    for page in ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        paths.push(Path::new(ROOT).join(page));
    }
    paths.sort();
    let read = |path: PathBuf| (path.clone(), fs::read_to_string(path).unwrap());
    paths.into_iter().map(read).collect()
}

/// The fenced blocks of this language, each with the line it begins at.
pub(crate) fn blocks(page: &str, language: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String, bool)> = None;
    for (number, line) in page.lines().enumerate() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(opened)) => {
                open = Some((number + 1, String::new(), opened.trim() == language));
            }
            (Some(_), Some(_)) => {
                if let Some((at, text, true)) = open.take() {
                    found.push((at, text));
                }
            }
            (Some((_, text, _)), None) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    found
}

fn run(dir: &Path, args: &[&str]) -> Output {
    let mut command = command::command(command::BINARY);
    command
        .args(args)
        .current_dir(dir)
        .env("STATE_DIRECTORY", dir)
        .env("CRONLATCH_HOST", "web1")
        .env("PAGERDUTY_KEY", "0123456789abcdef0123456789abcdef")
        .envs(["NTFY_TOKEN", "HOOK_KEY"].map(|name| (name, "key")))
        .envs(
            ["SLACK_URL", "DISCORD_URL", "TEAMS_URL"]
                .map(|name| (name, "https://example.org/hook")),
        );
    command::output(command)
}

#[test]
fn every_list_in_the_documentation_loads() {
    let mut lists = 0;
    for (path, page) in pages() {
        for (line, text) in blocks(&page, "yaml") {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("jobs.yaml"), whole(&text)).unwrap();
            let said = run(dir.path(), &["check", "jobs.yaml"]);
            assert_eq!(said.code(), 0, "{}:{line}: {}", path.display(), said.stderr);
            lists += 1;
        }
    }
    assert!(lists >= 3, "{lists} lists found");
}

/// A list around what is shown: a job, a few fields of one, or settings without jobs.
fn whole(text: &str) -> String {
    let has = |key: &str| text.lines().any(|line| line.starts_with(key));
    if has("jobs:") {
        return text.to_owned();
    }
    if has("- name:") {
        return format!("jobs:\n{text}");
    }
    if has("store:")
        || has("defaults:")
        || has("spread:")
        || has("drain_timeout:")
        || has("max_running:")
        || has("output:")
    {
        return format!("{text}\njobs: [{{ name: a, schedule: '@daily', command: 'true' }}]\n");
    }
    let job = "\
jobs:
  - name: a
    schedule: '@daily'
    command: 'true'";
    let fields = text.lines().map(|line| format!("    {line}\n"));
    std::iter::once(format!("{job}\n")).chain(fields).collect()
}

#[test]
fn every_command_in_the_documentation_is_understood() {
    let mut commands = 0;
    for (path, page) in pages() {
        let shown = ["sh", "console", "crontab"].map(|language| blocks(&page, language));
        for (line, text) in shown.concat() {
            // A backslash at the end of a line goes on in the next.
            for shown in text.replace("\\\n", " ").lines() {
                let Some(words) = words_of(shown) else {
                    continue;
                };
                let said = understood(&words);
                let place = format!("{}:{line}: {shown}", path.display());
                assert_eq!(said.code(), 0, "{place}\n{}", said.stderr);
                commands += 1;
            }
        }
    }
    assert!(commands >= 10, "{commands} commands found");
}

/// The arguments of cronlatch in a line of shell, if it is called there, as a shell splits them.
fn words_of(line: &str) -> Option<Vec<String>> {
    const COMMANDS: [&str; 22] = [
        "run",
        "check",
        "next",
        "exec",
        "trigger",
        "kill",
        "status",
        "history",
        "logs",
        "explain",
        "init",
        "doctor",
        "forget",
        "health",
        "import",
        "unlock",
        "pause",
        "resume",
        "notify-test",
        "schema",
        "completions",
        "man",
    ];
    let (_, tail) = line.split_once("cronlatch ")?;
    // Behind `install cronlatch` and the like it is no command.
    if !COMMANDS.contains(&tail.split(' ').next()?) {
        return None;
    }
    // What the shell would do with the output is no business of ours.
    let mut tail = tail;
    for end in [" | ", " && ", " > ", " >> "] {
        tail = tail.split(end).next()?;
    }
    let mut shell = command::command("sh");
    shell.args(["-c", &format!("printf '%s\\n' {tail}")]);
    let words = command::output(shell).expect_code(0).stdout;
    let words = words.lines().take_while(|word| *word != "--");
    Some(words.map(str::to_owned).collect())
}

/// Whether the command line would be taken: asked for help, the parser judges what comes before.
fn understood(words: &[String]) -> Output {
    let mut command = command::command(command::BINARY);
    command.args(words).arg("--help");
    command::output(command)
}

#[test]
fn every_test_that_a_document_names_exists_under_that_path() {
    let tests = tests_by_path();
    let mut named = 0;
    for (path, page) in pages() {
        for word in page.split('`').skip(1).step_by(2) {
            let Some((_, name)) = word.rsplit_once("::") else {
                continue;
            };
            // Tests have long names; types and their functions do not.
            if name.matches('_').count() < 3 || name.contains('…') {
                continue;
            }
            named += 1;
            let tail = format!("::{word}");
            let exists = tests
                .iter()
                .any(|test| test == word || test.ends_with(&tail));
            assert!(exists, "{}: there is no test {word}", path.display());
        }
    }
    assert!(named >= 100, "{named} tests named");
}

#[test]
fn each_guarantee_has_a_section() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/guarantees.md")).unwrap();
    for guarantee in 1..=8 {
        assert!(page.contains(&format!("## G{guarantee} ")), "G{guarantee}");
    }
}

#[test]
fn every_link_in_the_documentation_leads_to_a_file_and_a_heading() {
    let mut links = 0;
    for (path, page) in pages() {
        let folder = path.parent().unwrap();
        for target in links_of(&page) {
            if target.contains("://") {
                continue;
            }
            links += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = match file {
                "" => path.clone(),
                file => folder.join(file),
            };
            let place = format!("{}: ({target})", path.display());
            assert!(file.exists(), "{place}: there is no such file");
            if !anchor.is_empty() {
                let text = fs::read_to_string(&file).unwrap();
                let found = text.lines().any(|line| anchor_of(line) == anchor);
                assert!(found, "{place}: there is no such heading");
            }
        }
    }
    assert!(links >= 30, "{links} links found");
}

/// The targets of the links of a page: `[text](target)`.
fn links_of(page: &str) -> Vec<String> {
    let ends = page.split("](").skip(1);
    ends.filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.to_owned())
        .filter(|target| !target.contains(char::is_whitespace))
        .collect()
}

/// The anchor that GitHub gives a heading; empty for any other line.
fn anchor_of(line: &str) -> String {
    let title = line.trim_start_matches('#');
    if title.len() == line.len() {
        return String::new();
    }
    let kept = title.trim().to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// The path of every function in the sources: modules within a crate or a test binary, then the name.
fn tests_by_path() -> Vec<String> {
    let mut paths = Vec::new();
    // Below `tests` the first folder is a binary.
    for (folder, skipped) in [("src", 0), ("tests", 1)] {
        let root = Path::new(ROOT).join(folder);
        for file in files_below(&root) {
            let place = file.strip_prefix(&root).unwrap().with_extension("");
            let mut modules: Vec<_> = place
                .iter()
                .skip(skipped)
                .map(|part| part.to_str().unwrap().to_owned())
                .collect();
            modules.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
            functions_of(&fs::read_to_string(&file).unwrap(), &modules, &mut paths);
        }
    }
    paths
}

/// Adds the functions of one file, and of the modules that are written out in it.
fn functions_of(text: &str, modules: &[String], paths: &mut Vec<String>) {
    let mut inner = None;
    let mut add = |inner: Option<&str>, name: &str| {
        let whole = modules.iter().map(String::as_str).chain(inner);
        paths.push(whole.chain([name]).collect::<Vec<_>>().join("::"));
    };
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("mod ") {
            inner = rest.strip_suffix(" {");
        } else if line == "}" {
            inner = None;
        }
        if line.contains("contract!(in one test") {
            add(inner, "every_case_of_the_contract_holds");
        }
        let head = line.split_once("fn ").map(|(_, rest)| rest);
        let end = |rest: &str| rest.find(['(', '<']);
        if let Some(rest) = head
            && let Some(end) = end(rest)
        {
            add(inner, &rest[..end]);
        }
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

#[test]
fn each_hazard_is_named_with_what_happens_and_a_test_of_it() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/guarantees.md")).unwrap();
    let (_, section) = page.split_once("## Hazards\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.starts_with("| **"))
        .map(|line| line.trim_matches('|').split(" | ").collect())
        .collect();
    for hazard in [
        "holder crash",
        "late release",
        "pause",
        "failover",
        "node restart",
        "clock jump",
        "eviction",
        "split vote",
    ] {
        let name = format!("**{hazard}**");
        assert!(
            rows.iter().any(|row| row[0].contains(&name)),
            "{hazard} is not named"
        );
    }
    for row in rows {
        assert_eq!(row.len(), 4, "{row:?}");
        assert!(row[2].matches('`').count() >= 2, "no test: {row:?}");
    }
}

#[test]
fn every_log_line_that_the_documentation_explains_is_logged() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/operations.md")).unwrap();
    let mut sources = String::new();
    collect(&Path::new(ROOT).join("src"), &mut sources);
    // A message may be broken over several lines of source.
    let pieces: Vec<&str> = sources.split("\\\n").map(str::trim_start).collect();
    let sources = pieces.concat();
    let (_, section) = page.split_once("### What the log says").unwrap();
    let (section, _) = section.split_once("### ").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let lines: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    assert!(lines.len() > 10, "{lines:?}");
    for line in lines {
        for part in line.split('…').map(str::trim).filter(|part| part.len() > 3) {
            assert!(
                sources.contains(part),
                "{part:?} of {line:?} is logged nowhere"
            );
        }
    }
}

fn collect(folder: &Path, sources: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn the_rights_that_the_documentation_asks_for_in_redis_are_enough() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/stores.md")).unwrap();
    let acl = blocks(&page, "redis-acl").remove(0).1;
    let (user, rights) = acl.trim().split_once(" on >PASSWORD ").unwrap();
    assert_eq!(user, "user cronlatch");
    let redis = RedisServer::builder()
        .user("cronlatch", rights)
        .unmarked()
        .start();
    let dir = tempfile::tempdir().unwrap();
    let list = serde_json::json!({
        "store": redis.url(),
        "jobs": [{ "name": "a", "schedule": "@daily", "command": "true" }],
    });
    fs::write(dir.path().join("jobs.yaml"), list.to_string()).unwrap();
    for args in [
        &["init", "-c", "jobs.yaml"][..],
        &["trigger", "--here", "a", "--wait", "-c", "jobs.yaml"],
        &[
            "exec",
            "--lock",
            "b",
            "--wait",
            "1s",
            "-c",
            "jobs.yaml",
            "--",
            "true",
        ],
        &["status", "-c", "jobs.yaml"],
        &["history", "-c", "jobs.yaml"],
    ] {
        run(dir.path(), args).expect_code(0);
    }
}

#[test]
fn twenty_lines_of_crontab_have_their_place_in_the_list() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/from-crontab.md")).unwrap();
    let crontab = &blocks(&page, "crontab")[0].1;
    let settings = |line: &&str| line.is_empty() || line.contains('=') && !line.contains("  ");
    let lines = crontab.lines().filter(|line| !settings(line)).count();
    let list = &blocks(&page, "yaml")[0].1;
    let jobs = list
        .lines()
        .filter(|line| line.starts_with("  - name:"))
        .count();
    // `@reboot` becomes a unit.
    assert_eq!((lines, jobs), (20, 19));
}

#[test]
fn the_graph_of_modules_has_every_dependency_and_no_other() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/architecture.md")).unwrap();
    let graphs = blocks(&page, "mermaid");
    let graph = graphs
        .iter()
        .find(|(_, text)| text.starts_with("flowchart"));
    let drawn = drawn_edges(&graph.expect("the page has the graph").1);
    let used = module_dependencies();
    let missing: Vec<_> = used.difference(&drawn).collect();
    let wrong: Vec<_> = drawn.difference(&used).collect();
    assert!(
        missing.is_empty() && wrong.is_empty(),
        "not drawn: {missing:?}; drawn and not there: {wrong:?}"
    );
}

type Edges = BTreeSet<(String, String)>;

/// The edges of a graph of mermaid, such as `a & b --> c` and `a -. text .-> b`.
fn drawn_edges(graph: &str) -> Edges {
    let names = |text: &str| -> Vec<String> {
        let names = text.split('&').map(|name| name.trim().to_owned());
        names.collect()
    };
    let mut edges = Edges::new();
    for line in graph.lines().skip(1) {
        let ends: Vec<&str> = match line.split_once("-.") {
            Some((from, to)) => vec![from, to.split_once(".->").expect(line).1],
            None => line.split("-->").collect(),
        };
        for pair in ends.windows(2) {
            for from in names(pair[0]) {
                let to = names(pair[1]).into_iter();
                edges.extend(to.map(|to| (from.clone(), to)));
            }
        }
    }
    edges
}

/// Which module of the crate names which other one, except in tests. Every one may use `ground`.
fn module_dependencies() -> Edges {
    let source = Path::new(ROOT).join("src");
    let lib = fs::read_to_string(source.join("lib.rs")).unwrap();
    let declared = lib.lines().filter_map(|line| {
        let name = line.trim_start_matches("pub ").strip_prefix("mod ")?;
        name.strip_suffix(';').filter(|name| *name != "ground")
    });
    let modules: BTreeSet<&str> = declared.collect();
    let mut edges = Edges::new();
    for path in files_below(&source) {
        let inside = path.strip_prefix(&source).unwrap();
        let mut parts = inside.iter().map(|part| part.to_str().unwrap());
        let first = parts.next().unwrap();
        let module = first.strip_suffix(".rs").unwrap_or(first);
        let is_test = parts.any(|part| part == "tests" || part == "tests.rs");
        if is_test || !modules.contains(module) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let (text, _tests) = text
            .split_once("#[cfg(test)]\nmod tests {")
            .unwrap_or((&text, ""));
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        for used in code.flat_map(|line| line.split("crate::").skip(1)) {
            assert!(
                !used.starts_with('{'),
                "{}: one import a line",
                path.display()
            );
            let end = used.find(|c: char| !c.is_ascii_lowercase() && c != '_');
            let used = &used[..end.unwrap_or(used.len())];
            if used != module && modules.contains(used) {
                edges.insert((module.to_owned(), used.to_owned()));
            }
        }
    }
    edges
}
