//! What is counted, and the page that shows it.

use std::collections::BTreeSet;

use super::catalog::{ALL, FamilyKind};
use super::jobs::{JOBS_MAX, OTHERS};
use super::*;
use crate::names::{HostName, RunId};
use crate::store::Kind;

#[derive(Debug)]
struct NoObserver;

impl RunObserver for NoObserver {
    fn started(&self) {}
}

fn job(name: &str) -> JobName {
    JobName::parse(name).expect("a name")
}

fn jobs(text: &str) -> Vec<Arc<Job>> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("jobs.yaml");
    std::fs::write(&path, format!("jobs:\n{text}")).expect("a file");
    let list = crate::config::load(&path).expect("a list");
    list.jobs
}

fn quiet(names: impl Iterator<Item = String>) -> Vec<Arc<Job>> {
    let job = |name| format!("  - {{ name: {name}, schedule: '@yearly', command: 'true' }}\n");
    jobs(&names.map(job).collect::<String>())
}

fn record(name: &str, outcome: Outcome) -> Record {
    Record {
        run_id: Some(RunId::new()),
        scheduled_at: Some(Timestamp::from_secs(100)),
        started_at: Some(Timestamp::from_secs(100)),
        finished_at: Some(Timestamp::from_millis(102_500)),
        attempts: 1,
        ..Record::blank(job(name), Kind::Schedule, outcome)
    }
}

async fn page(metrics: &Metrics) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = crate::store::StoreSettings::Sqlite {
        path: dir.path().join("s.db"),
    };
    let store = crate::store::open(&settings).expect("a store");
    let host = HostName::parse("web1").expect("a name");
    let page = MetricsPage::new(metrics.clone(), host, store);
    page.text(TextFormat::Prometheus).await
}

#[tokio::test]
async fn a_run_counts_while_it_is_in_progress_and_its_verdict_afterwards() {
    let metrics = Metrics::new();
    metrics.set_jobs(&quiet(["a".to_owned(), "b".to_owned()].into_iter()));
    let now = Timestamp::from_secs(1_000);
    let due = LatenessClock::new(now.minus(Duration::from_secs(20)), now);
    let run = metrics.follow(&job("a"), Some(due), NoObserver);
    let in_progress = |count| format!("cronlatch_runs_in_progress{{job_name=\"a\"}} {count}\n");
    assert!(page(&metrics).await.contains(&in_progress(0)));
    run.started();
    // A retry is the same run.
    run.started();
    let text = page(&metrics).await;
    assert!(text.contains(&in_progress(1)), "{text}");
    assert!(text.contains("cronlatch_start_lateness_seconds_bucket{le=\"10.0\"} 0\n"));
    assert!(text.contains("cronlatch_start_lateness_seconds_bucket{le=\"30.0\"} 1\n"));
    drop(run);
    metrics.recorded(&record("a", Outcome::Failed));
    let missed = Record {
        run_id: None,
        started_at: None,
        count: Some(7),
        ..record("b", Outcome::Missed)
    };
    metrics.recorded(&missed);
    let text = page(&metrics).await;
    for line in [
        &in_progress(0),
        "cronlatch_verdicts_total{job_name=\"a\",outcome=\"failed\"} 1\n",
        "cronlatch_verdicts_total{job_name=\"b\",outcome=\"missed\"} 7\n",
        "cronlatch_run_duration_seconds_sum{job_name=\"a\"} 2.5\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    assert!(
        !text.contains("run_duration_seconds_count{job_name=\"b\"}"),
        "it did not run"
    );
}

#[tokio::test]
async fn the_labels_of_jobs_are_bounded_and_a_reload_keeps_the_counters_of_those_that_stay() {
    let metrics = Metrics::new();
    metrics.set_jobs(&quiet((0..JOBS_MAX + 5).map(|n| format!("j{n}"))));
    let last = format!("j{}", JOBS_MAX + 4);
    metrics.recorded(&record("j0", Outcome::Succeeded));
    metrics.recorded(&record(&last, Outcome::Succeeded));
    let text = page(&metrics).await;
    assert!(text.contains(&format!("cronlatch_jobs {}\n", JOBS_MAX + 5)));
    assert!(!text.contains(&format!("job_name=\"{last}\"")));
    let others = format!("verdicts_total{{job_name=\"{OTHERS}\",outcome=\"succeeded\"}} 1\n");
    assert!(text.contains(&others), "{text}");
    metrics.set_jobs(&quiet(["j0".to_owned()].into_iter()));
    let text = page(&metrics).await;
    assert!(text.contains("verdicts_total{job_name=\"j0\",outcome=\"succeeded\"} 1\n"));
    assert!(!text.contains("job_name=\"j1\""));
}

#[tokio::test]
async fn requests_to_the_store_are_measured_with_their_errors() {
    let metrics = Metrics::new();
    metrics.store_replied("claim", Duration::from_millis(3), None);
    let error = StoreError::unreachable("refused");
    metrics.store_replied("claim", Duration::from_secs(1), Some(&error));
    metrics.renewed(3, None);
    metrics.renewed(2, Some(&[RenewReply::Renewed, RenewReply::Taken]));
    metrics.lost(LeaseLost::Expired);
    let text = page(&metrics).await;
    for line in [
        "request_duration_seconds_bucket{operation=\"claim\",le=\"0.005\"} 1\n",
        "request_duration_seconds_count{operation=\"claim\"} 2\n",
        "store_errors_total{operation=\"claim\",error=\"unreachable\"} 1\n",
        "renewals_total{reply=\"error\"} 3\n",
        "renewals_total{reply=\"taken\"} 1\n",
        "leases_lost_total{reason=\"expired\"} 1\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

/// The names of all samples in a text.
fn names_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c));
    let words = words.filter(|word| word.starts_with("cronlatch_"));
    words.map(str::to_owned).collect()
}

/// The names of the samples of all metrics.
fn known() -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for family in ALL {
        let suffixes: &[&str] = match family.kind {
            FamilyKind::Counter | FamilyKind::Gauge => &[""],
            FamilyKind::Histogram => &["_bucket", "_sum", "_count"],
            FamilyKind::Summary => &["_sum", "_count"],
        };
        known.extend(
            suffixes
                .iter()
                .map(|suffix| format!("{}{suffix}", family.name)),
        );
    }
    known
}

fn file(path: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(path).expect("a file")
}

#[test]
fn the_page_of_the_docs_lists_every_metric_with_its_kind_and_no_other() {
    let docs = file("docs/metrics.md");
    let rows = docs
        .lines()
        .filter(|line| line.starts_with("| `cronlatch_"));
    let listed: Vec<(String, String)> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let name = cells[1].trim_matches('`').to_owned();
            (name, cells[2].to_owned())
        })
        .collect();
    let mut wanted: Vec<(String, String)> = ALL
        .iter()
        .map(|family| (family.name.to_owned(), family.kind.word().to_owned()))
        .collect();
    assert_eq!(listed.len(), wanted.len(), "each once");
    wanted.sort();
    let mut sorted = listed.clone();
    sorted.sort();
    assert_eq!(sorted, wanted);
}

#[test]
fn alert_rules_and_dashboard_use_metrics_that_exist() {
    let known = known();
    for path in [
        "deploy/monitoring/alerts.yaml",
        "deploy/monitoring/dashboard.json",
    ] {
        let used = names_in(&file(path));
        assert!(used.len() > 8, "{path}: {used:?}");
        let unknown: Vec<_> = used.difference(&known).collect();
        assert!(unknown.is_empty(), "{path}: {unknown:?}");
    }
    let alerts: serde_yaml::Value =
        serde_yaml::from_str(&file("deploy/monitoring/alerts.yaml")).expect("YAML");
    let rules = alerts["groups"][0]["rules"].as_sequence().expect("rules");
    for rule in rules {
        for field in ["alert", "expr"] {
            assert!(rule[field].is_string(), "{rule:?}");
        }
        let name = rule["alert"].as_str().expect("a name");
        assert!(
            file("docs/metrics.md").contains(name),
            "the docs explain {name}"
        );
    }
    let dashboard: serde_json::Value =
        serde_json::from_str(&file("deploy/monitoring/dashboard.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let has_query = |panel: &serde_json::Value| panel["targets"][0]["expr"].is_string();
    assert!(
        panels
            .iter()
            .all(|panel| panel["type"] == "row" || has_query(panel))
    );
}

#[tokio::test]
async fn every_metric_of_the_catalog_is_on_a_page_and_its_samples_follow_it() {
    let metrics = Metrics::new();
    metrics.set_jobs(&quiet(["a".to_owned()].into_iter()));
    metrics.set_daemon(DaemonGauges {
        readiness: Readiness::Ready,
        store: StoreReachability::Up,
        clock_offset_ms: Some(-12),
        list: Fingerprint("f".into()),
        newest_list: ListState::InForce,
        unusable_keys: 0,
        held_back: 0,
        started_at: Timestamp::from_secs(5),
    });
    let text = page(&metrics).await;
    assert!(
        text.contains("cronlatch_clock_offset_seconds -0.012\n"),
        "{text}"
    );
    assert!(text.contains("cronlatch_ready 1\n") && text.contains("cronlatch_hosts 0\n"));
    let heads: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let mut wanted: Vec<&str> = ALL.iter().map(|family| family.name).collect();
    let once: BTreeSet<_> = heads.iter().collect();
    assert_eq!(once.len(), heads.len(), "each family once");
    let mut sorted = heads.clone();
    sorted.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(sorted, wanted);
    let mut family = "";
    for line in text.lines() {
        match line.strip_prefix("# TYPE ") {
            Some(head) => family = head.split(' ').next().expect("a name"),
            None if line.starts_with('#') => {}
            None => assert!(line.starts_with(family), "{family}: {line}"),
        }
    }
}
