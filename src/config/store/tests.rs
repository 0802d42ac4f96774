//! What each kind of store is read as.

use std::path::Path;
use std::time::Duration;

use super::StorePart;
use crate::config::problem::Problems;
use crate::config::reader;
use crate::config::source::Source;
use crate::store::{Endpoint, RedisSettings, RetryDelay, StoreSettings};

fn read(text: &str) -> StorePart {
    let source = Source::new(Path::new("jobs.yaml"), text.to_owned());
    let mut problems = Problems::default();
    let node = match reader::read(&source, 0) {
        Ok(Some(node)) => node,
        other => panic!("{other:?}"),
    };
    match super::read(&node, &mut problems) {
        Some(part) if problems.is_empty() => part,
        _ => panic!("{}", problems.into_errors(&[source])),
    }
}

fn endpoint(url: &str) -> Endpoint {
    Endpoint::parse(url).expect("a sound URL")
}

fn endpoints(servers: &[RedisSettings]) -> Vec<Endpoint> {
    servers
        .iter()
        .map(|server| server.endpoint.clone())
        .collect()
}

#[test]
fn several_urls_are_a_majority() {
    for text in [
        "{ redis: [redis://a, 'redis://u:p@b', redis+unix:///c], password_file: /p, prefix: x }",
        "[redis://a, 'redis://u:p@b', redis+unix:///c]",
        "'redis://a,redis://u:p@b,redis+unix:///c'",
    ] {
        let part = read(text);
        assert!(part.password_in_file);
        let StoreSettings::Redlock(redlock) = &part.settings else {
            panic!("{part:?}");
        };
        let all = ["redis://a", "redis://u:p@b", "redis+unix:///c"];
        assert_eq!(endpoints(&redlock.nodes), all.map(endpoint));
        assert_eq!(redlock.tries, 3);
        let by_default = RetryDelay {
            shortest: Duration::from_millis(100),
            longest: Duration::from_millis(200),
        };
        assert_eq!(redlock.retry_delay, by_default);
        if text.contains("prefix") {
            assert!(redlock.nodes.iter().all(|n| n.prefix.as_str() == "x"));
            assert!(redlock.nodes.iter().all(|n| n.password_file.is_some()));
        }
    }
    let even =
        read("{ redis: [redis://a, redis://b, redis://c, redis://d], redlock: { tries: 5 } }");
    assert!(even.settings.warnings()[0].contains("odd number"));
    let patient = read(
        "{ redis: [redis://a, redis://b, redis://c], redlock: { tries: 5, retry_delay: 1s, \
         at_start: refuse } }",
    );
    assert!(patient.settings.refuses_to_wait() && !even.settings.refuses_to_wait());
    let StoreSettings::Redlock(redlock) = patient.settings else {
        panic!("{patient:?}");
    };
    let delay = RetryDelay {
        shortest: Duration::from_secs(1),
        longest: Duration::from_secs(1),
    };
    assert_eq!((redlock.tries, redlock.retry_delay), (5, delay));
}

#[test]
fn a_sentinel_store_has_credentials_for_the_sentinels_and_for_the_servers() {
    let part = read(
        "{ sentinel: { master: m, nodes: [a, 'b:1', 'redis://x:y@c'], user: u, database: 2, \
         tls: true, sentinel_user: s, sentinel_password_file: /s }, password_file: /p, \
         ca_file: /ca, wait_replicas: 1 }",
    );
    assert!(part.password_in_file);
    assert_eq!(part.settings.warnings(), Vec::<String>::new());
    let StoreSettings::Sentinel(sentinel) = part.settings else {
        panic!("not a Sentinel");
    };
    assert_eq!(sentinel.master, "m");
    assert_eq!(sentinel.servers.endpoint, endpoint("rediss://u@m/2"));
    assert_eq!(sentinel.servers.wait_replicas, 1);
    let path = |path: &Option<std::path::PathBuf>| path.as_ref().map(|p| p.display().to_string());
    assert_eq!(path(&sentinel.servers.password_file).as_deref(), Some("/p"));
    assert_eq!(path(&sentinel.servers.ca_file).as_deref(), Some("/ca"));
    let all = [
        "rediss://s@a:26379",
        "rediss://s@b:1",
        "redis://x:y@c:26379",
    ];
    assert_eq!(endpoints(&sentinel.sentinels), all.map(endpoint));
    let files = sentinel.sentinels.iter().map(|s| path(&s.password_file));
    assert!(files.into_iter().all(|file| file.as_deref() == Some("/s")));
    assert!(sentinel.sentinels[0].ca_file.is_some());
    assert!(sentinel.sentinels[2].ca_file.is_none());
    let lonely = read("redis+sentinel://:pw@a/m");
    assert!(lonely.password_in_file);
    assert!(lonely.settings.warnings()[0].contains("one Sentinel"));
}

#[test]
fn a_cluster_is_named_by_some_of_its_servers() {
    let part = read("{ cluster: [a, 'rediss://u:${X}@b:7000'], ca_file: /ca }");
    // The password comes from a variable.
    assert!(!part.password_in_file);
    let StoreSettings::Cluster(cluster) = part.settings else {
        panic!("not a Cluster");
    };
    assert_eq!(
        endpoints(&cluster.seeds),
        ["redis://a:6379", "rediss://u:${X}@b:7000"].map(endpoint)
    );
}
