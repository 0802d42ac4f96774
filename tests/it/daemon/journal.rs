//! The log in the journal, with native fields.

use std::os::unix::net::UnixDatagram;

use crate::support::{Daemon, journald, wait};

#[test]
fn the_journal_has_fields_and_message_ids_for_the_start_the_output_and_the_end_of_a_run() {
    if !journald::is_possible() {
        eprintln!("SKIPPED: this process may not create a mount namespace");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = UnixDatagram::bind(directory.path().join("socket")).unwrap();
    socket.set_read_timeout(Some(wait::LIMIT)).unwrap();
    let list = "jobs:\n  - { name: job, every: 1s, command: 'echo out; echo err >&2; exit 7' }\n";
    let mut daemon = Daemon::on("host", list)
        .on_journald(directory.path())
        .start();
    let next = |id: &str, also: &str| {
        loop {
            let entry = journald::receive(&socket);
            assert_eq!(entry["SYSLOG_IDENTIFIER"], "cronlatch");
            let is = entry.get("MESSAGE_ID").is_some_and(|found| found == id);
            if is && entry["MESSAGE"].starts_with(also) {
                return entry;
            }
        }
    };
    let started = next("56ab80c72f8c476db47dbabd85c3df20", "started job=job");
    let run = &started["CRONLATCH_RUN_ID"];
    assert_eq!(
        (&*started["CRONLATCH_JOB"], &*started["PRIORITY"]),
        ("job", "6")
    );
    assert_eq!(started["CRONLATCH_HOST"], "host");
    assert!(started["CRONLATCH_SCHEDULED_AT"].ends_with('Z'));
    // Standard output and standard error may be read in any order.
    let output = "e7f446c3a86442a5bc368f15daf04328";
    let mut seen = [next(output, ""), next(output, "")].map(|entry| {
        assert_eq!(&entry["CRONLATCH_RUN_ID"], run);
        (entry["CRONLATCH_STREAM"].clone(), entry["PRIORITY"].clone())
    });
    seen.sort();
    let expected = [("stderr", "4"), ("stdout", "6")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(seen, expected);
    let finished = next("a5c010de6fd24d5d93cf75a6efb74eb5", "finished after");
    assert_eq!(&finished["CRONLATCH_RUN_ID"], run);
    assert_eq!(
        (
            &*finished["CRONLATCH_OUTCOME"],
            &*finished["CRONLATCH_EXIT_CODE"]
        ),
        ("failed", "7")
    );
    assert_eq!(finished["PRIORITY"], "3");
    drop(socket);
    // Without a journald the daemon goes on.
    assert!(daemon.terminate().success());
}
