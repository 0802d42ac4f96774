//! Lists that are long enough to be read in several parts at the same time.

use std::sync::Arc;

use super::{errors, list};

/// Long enough for four parts.
const JOBS: usize = 9_000;

fn text(of: impl Fn(usize) -> String) -> String {
    let jobs = (0..JOBS).map(|n| job(n, &of(n)));
    format!("jobs:\n{}", jobs.collect::<String>())
}

fn job(n: usize, own: &str) -> String {
    format!(
        "  - name: job-{n}\n    schedule: {} 3 * * *\n    command: [x, yyyyyyyyyyyyyyyyyyyyyyy]\n{own}",
        n % 60
    )
}

#[test]
fn errors_of_all_parts_are_reported_in_the_order_of_the_file() {
    let wrong = [7, 2_900, 4_501, 4_502, 8_999];
    let text = text(|n| match n {
        n if wrong.contains(&n) => format!("    timeout: soon{n}\n    nice: 99\n"),
        _ => String::new(),
    });
    let text = format!("defaults: {{ late_after: never }}\n{text}");
    let shown = errors(&text);
    let found = shown.lines().filter(|line| line.contains(": error: "));
    let expected = wrong.iter().flat_map(|n| {
        [
            format!("`soon{n}`"),
            "from -20 to 19, found `99`".to_owned(),
        ]
    });
    let expected: Vec<String> = std::iter::once("`never`".to_owned())
        .chain(expected)
        .collect();
    let found: Vec<&str> = found.collect();
    assert_eq!(found.len(), expected.len(), "{shown}");
    for (line, part) in found.iter().zip(&expected) {
        assert!(line.contains(part.as_str()), "{line}: {part}");
    }
    let place = text.lines().position(|line| line.contains("soon8999"));
    let place = format!("jobs.yaml:{}:14: ", place.expect("a line") + 1);
    assert!(shown.contains(&place), "{place}\n{shown}");
}

#[test]
fn a_name_that_two_parts_have_is_refused() {
    let text = text(|_| String::new()).replace("job-8888\n", "job-11\n");
    let shown = errors(&text);
    assert!(
        shown.contains("a job named `job-11` already exists"),
        "{shown}"
    );
    assert!(shown.contains("first named at jobs.yaml:35:11"), "{shown}");
    assert!(shown.ends_with("1 error"), "{shown}");
}

#[test]
fn equal_parts_of_jobs_are_shared_by_the_whole_list() {
    let list = list(&text(|_| String::new()));
    assert_eq!(list.jobs.len(), JOBS);
    let first = &list.jobs[0];
    for (n, job) in list.jobs.iter().enumerate() {
        assert_eq!(job.name.as_str(), format!("job-{n}"));
        assert!(Arc::ptr_eq(&job.command, &first.command), "{n}");
        assert!(Arc::ptr_eq(&job.policies, &first.policies), "{n}");
        assert!(Arc::ptr_eq(&job.process, &first.process), "{n}");
        assert!(Arc::ptr_eq(&job.alerts, &first.alerts), "{n}");
        let alike = &list.jobs[n % 60];
        assert_eq!(job.schedule, alike.schedule, "{n}");
        assert!(Arc::ptr_eq(&job.fingerprint.0, &alike.fingerprint.0), "{n}");
    }
}

#[test]
fn jobs_of_all_parts_have_the_fingerprints_that_they_have_alone() {
    let jitter = |n: usize| match n % 3 {
        0 => "    jitter: 1h\n".to_owned(),
        _ => String::new(),
    };
    let together = list(&text(jitter)).jobs;
    for n in [0, 1, 3, 60, 4_499, 4_500, 6_001, 8_997, 8_998] {
        let alone = &list(&format!("jobs:\n{}", job(n, &jitter(n)))).jobs[0];
        assert_eq!(together[n].name, alone.name);
        assert_eq!(together[n].fingerprint, alone.fingerprint, "{n}");
    }
}

#[test]
fn a_list_means_the_same_as_yaml_and_as_json() {
    let as_yaml = list(&text(|_| String::new()));
    let jobs = as_yaml.jobs.iter().map(|job| {
        let name = job.name.as_str();
        let schedule = job.schedule.to_string();
        serde_json::json!({ "name": name, "schedule": schedule, "command": ["x", "yyyyyyyyyyyyyyyyyyyyyyy"] })
    });
    let jobs: Vec<_> = jobs.collect();
    let as_json = list(&format!("{:#}", serde_json::json!({ "jobs": jobs })));
    assert_eq!(as_json.fingerprint, as_yaml.fingerprint);
    assert_eq!(as_json.warnings.len(), as_yaml.warnings.len());
}
