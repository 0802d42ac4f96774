//! Who may ask.

use std::net::SocketAddr;

use super::{ACT, READ, Reply, address, ask, get, list, serving, write_tokens};
use crate::support::{Daemon, cronlatch};

#[test]
fn with_tokens_only_who_has_one_reads_and_probes_need_none() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens");
    write_tokens(
        &tokens,
        &format!("read prometheus {READ}\nact alice {ACT}\n"),
    );
    let http = format!(
        "{{ listen: '0.0.0.0:0', token_file: {} }}",
        tokens.display()
    );
    let mut daemon = Daemon::on("web1", list(&http, &[super::QUIET])).start();
    let port = address(&mut daemon).port();
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    let with = |token: &str| -> Reply {
        let header = format!("Authorization: {token}");
        ask(
            at,
            "GET",
            "/api/v1/jobs",
            &[&header, "Host: cron.example.org"],
        )
    };
    for path in ["status", "jobs", "history", "runs", "hosts"] {
        let reply = get(at, &format!("/api/v1/{path}"));
        assert!(reply.error(401).contains("Authorization: Bearer"), "{path}");
        assert_eq!(
            reply.headers["www-authenticate"],
            "Bearer realm=\"cronlatch\""
        );
    }
    for path in ["/healthz", "/readyz"] {
        assert_ne!(get(at, path).status, 401, "{path}");
    }
    assert_eq!(with(&format!("Bearer {READ}")).status, 200);
    assert_eq!(with(&format!("bearer {ACT}")).status, 200);
    for wrong in [
        format!("Bearer {}", &READ[1..]),
        format!("Bearer {READ}0"),
        format!("Basic {READ}"),
        READ.to_owned(),
        "Bearer".to_owned(),
        "Bearer prometheus".to_owned(),
    ] {
        with(&wrong).error(401);
    }
    assert!(!daemon.log().contains(READ));
}

#[test]
fn without_tokens_a_page_under_a_foreign_name_reads_nothing() {
    let mut daemon = Daemon::on("web1", serving(&[super::QUIET])).start();
    let at = address(&mut daemon);
    let named = |host: &str| ask(at, "GET", "/api/v1/jobs", &[&format!("Host: {host}")]);
    assert_eq!(named("localhost:9").status, 200);
    assert_eq!(named("127.0.0.1").status, 200);
    for foreign in [
        "rebound.example",
        "localhost.example:80",
        "127.0.0.1.nip.example",
    ] {
        let error = named(foreign).error(403);
        assert!(error.contains("token_file"), "{error}");
    }
}

#[test]
fn an_address_beyond_loopback_without_tokens_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.yaml");
    let path = path.to_str().unwrap();
    for listen in [
        "0.0.0.0:7171",
        "[::]:7171",
        "192.0.2.1:7171",
        "[::ffff:192.0.2.1]:7171",
    ] {
        let http = format!("{{ listen: '{listen}' }}");
        std::fs::write(path, list(&http, &[super::QUIET])).unwrap();
        for command in ["check", "run"] {
            let said = cronlatch(&[command, path]).expect_code(78);
            let parts = [
                "jobs.yaml:1:",
                "other machines can reach",
                "token_file",
                "127.0.0.1",
            ];
            for part in parts {
                assert!(said.stderr.contains(part), "{part}: {}", said.stderr);
            }
        }
    }
}

#[test]
fn tokens_that_cannot_be_used_stop_the_start_and_check_warns() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens");
    let path = dir.path().join("jobs.yaml");
    let http = format!(
        "{{ listen: '127.0.0.1:0', token_file: {} }}",
        tokens.display()
    );
    std::fs::write(&path, list(&http, &[super::QUIET])).unwrap();
    let path = path.to_str().unwrap();
    let assert_refused = |part: &str| {
        let started = cronlatch(&["run", path]).expect_code(78);
        assert!(started.stderr.contains(part), "{}", started.stderr);
        let checked = cronlatch(&["check", path]).expect_code(0);
        let text = format!("{}{}", checked.stdout, checked.stderr);
        assert!(text.contains(part), "{text}");
        assert!(text.contains("the daemon does not start with it"), "{text}");
        assert!(!text.contains("geheim") && !started.stderr.contains("geheim"));
    };
    assert_refused("No such file");
    write_tokens(&tokens, "read me geheim\n");
    assert_refused("line 1: a token has at least 32");
    std::fs::write(&tokens, format!("read me {READ}\n")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&tokens, mode).unwrap();
    assert_refused("chmod 640");
}
