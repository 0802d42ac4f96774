//! Files and directories: what is read, what is not, and what is said then.

use super::{directory, directory_errors};
use crate::config::environment::Environment;
use crate::config::{ConfigErrors, JobList, load_in};

fn load(path: &std::path::Path) -> Result<JobList, ConfigErrors> {
    load_in(path, &Environment::of(&[]))
}

const JOBS: &str = "jobs:\n  - { name: NAME, every: 1h, command: x }\n";

#[test]
fn a_directory_is_read_as_one_list_in_the_order_of_its_names() {
    let (dir, path) = directory(&[
        ("20-b.yml", &JOBS.replace("NAME", "b")),
        ("10-a.yaml", &JOBS.replace("NAME", "a")),
        ("00-top.yaml", "defaults: { timeout: 7m }\n"),
        ("30-empty.yaml", "# nothing yet\n"),
        (".hidden.yaml", "not: read\n"),
        ("README.md", "not: read\n"),
        ("c.yaml~", "not: read\n"),
    ]);
    std::fs::create_dir(dir.path().join("d.yaml")).expect("a directory");
    // As Kubernetes mounts them.
    std::fs::write(dir.path().join(".data"), JOBS.replace("NAME", "linked")).expect("a file");
    std::os::unix::fs::symlink(".data", dir.path().join("40-link.yaml")).expect("a link");
    let list = load(&path).unwrap_or_else(|e| panic!("{e}"));
    let names: Vec<_> = list.jobs.iter().map(|j| j.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "linked"]);
    let minutes = |j: &crate::config::Job| j.policies.timeout.map(|t| t.as_secs() / 60);
    assert!(list.jobs.iter().all(|j| minutes(j) == Some(7)));
}

#[test]
fn what_cannot_be_read_is_said() {
    let (dir, path) = directory(&[]);
    let said = |name: &str| match load(&path.join(name)) {
        Ok(list) => panic!("{list:?}"),
        Err(errors) => errors
            .to_string()
            .replace(&path.display().to_string(), "DIR"),
    };
    assert!(said("").contains("holds no job list"), "{}", said(""));
    assert!(
        said("none.yaml").starts_with("DIR/none.yaml: error: this file cannot be read: No such"),
        "{}",
        said("none.yaml")
    );
    std::fs::write(
        dir.path().join("latin1.yaml"),
        b"# caf\xc3\xa9\njobs: # caf\xe9\n",
    )
    .expect("a file");
    assert!(
        said("latin1.yaml").starts_with("DIR/latin1.yaml:2:12: error: this file is not UTF-8"),
        "{}",
        said("latin1.yaml")
    );
    std::os::unix::fs::symlink("nowhere", dir.path().join("dangling.yaml")).expect("a link");
    assert!(
        said("dangling.yaml").contains("cannot be read"),
        "{}",
        said("dangling.yaml")
    );
    // One file that cannot be read makes the whole directory wrong: no job is left out unseen.
    assert!(said("").contains("DIR/dangling.yaml"), "{}", said(""));
    assert!(said("").contains("DIR/latin1.yaml:2:12"), "{}", said(""));
}

#[test]
fn a_directory_whose_files_have_no_jobs_is_refused() {
    let shown = directory_errors(&[("a.yaml", "history: 5\n"), ("b.yaml", "")]);
    assert!(shown.contains("there is no `jobs:`"), "{shown}");
}

#[test]
fn a_file_that_is_not_utf_8_hides_no_mistake_of_its_own_or_of_others() {
    let (dir, path) = directory(&[("b.yaml", "defaults: { timeout: soon }\n")]);
    let latin1 = b"# caf\xe9\nnotify: { ops: { mail: [a@b] } }\njobs:\n  - { nam: a }\n";
    std::fs::write(dir.path().join("a.yaml"), latin1).expect("a file");
    let jobs = "jobs:\n  - { name: b, every: 1h, command: x, notify: [ops] }\n  - {}\n";
    std::fs::write(dir.path().join("c.yaml"), jobs).expect("a file");
    let errors = load(&path).expect_err("it is wrong");
    let places: Vec<_> = (errors.iter())
        .map(|error| {
            let name = error.path.file_name().expect("a file");
            format!("{}:{}", name.display(), error.line)
        })
        .collect();
    assert_eq!(
        places,
        [
            "a.yaml:1", "a.yaml:4", "a.yaml:4", "a.yaml:4", "b.yaml:1", "c.yaml:2", "c.yaml:2",
            "c.yaml:2"
        ]
    );
    assert!(
        errors.to_string().contains("this file is not UTF-8"),
        "{errors}"
    );
}

#[test]
fn a_file_that_cannot_be_read_hides_no_syntax_error_of_another_one() {
    let (dir, path) = directory(&[("b.yaml", "jobs: [\n")]);
    std::os::unix::fs::symlink("nowhere", dir.path().join("a.yaml")).expect("a link");
    let said = load(&path).expect_err("it is wrong").to_string();
    assert!(
        said.contains("a.yaml: error: this file cannot be read"),
        "{said}"
    );
    assert!(said.contains("b.yaml:1:"), "{said}");
}
