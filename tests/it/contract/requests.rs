//! Requests to daemons.

use std::time::Duration;

use cronlatch::names::{HostName, RunId};
use cronlatch::store::{
    DaemonRequest, Filed, FiledRequest, IfPaused, OutputChunk, OutputWish, REQUEST_VALID_FOR,
    RefusalKind, RequestOrder, RequestReply, Store,
};

use super::{Scene, Subject, run_id};

fn host(name: &str) -> HostName {
    HostName::parse(name).unwrap()
}

fn request(scene: &Scene, id: &str, of: &HostName) -> DaemonRequest {
    DaemonRequest {
        id: run_id(id),
        host: of.clone(),
        order: RequestOrder::Trigger {
            job: scene.job.clone(),
            if_paused: IfPaused::Refuse,
            output: OutputWish::Keep,
        },
        by: "alice@web1".to_owned(),
        reason: "to test: \"it\"".to_owned(),
    }
}

async fn file(store: &dyn Store, request: &DaemonRequest) -> Filed {
    let deadline = store.now().await.unwrap().plus(REQUEST_VALID_FOR);
    store.file_request(request, deadline).await.unwrap()
}

async fn of(store: &dyn Store, host: &HostName) -> Vec<FiledRequest> {
    store.requests(Some(host)).await.unwrap()
}

pub(crate) async fn a_request_is_found_by_its_host_and_taken_once(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let another = subject.another();
    let (here, there) = (host("here"), host("there"));
    let wanted = request(&scene, "a", &here);
    for _ in 0..2 {
        assert_eq!(file(&*scene.store, &wanted).await, Filed::Kept);
    }
    assert_eq!(of(&*another, &there).await, []);
    let found = of(&*another, &here).await;
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].request, Some(wanted.clone()));
    assert!(!found[0].taken && found[0].reply.is_none());
    assert!(!found[0].left.is_zero() && found[0].left <= REQUEST_VALID_FOR);
    assert!(another.take_request(&wanted.id).await.unwrap());
    assert!(!another.take_request(&wanted.id).await.unwrap());
    assert!(!scene.store.take_request(&wanted.id).await.unwrap());
    // A copy that arrives late does not make it new.
    assert_eq!(file(&*scene.store, &wanted).await, Filed::Kept);
    assert!(!another.take_request(&wanted.id).await.unwrap());
    let reply = RequestReply::Refused {
        kind: RefusalKind::Busy,
        reason: "it drains".to_owned(),
    };
    another.reply_to_request(&wanted.id, &reply).await.unwrap();
    let found = of(&*scene.store, &here).await;
    assert_eq!(found[0].reply, Some(reply));
    assert!(found[0].taken);
    file(&*scene.store, &request(&scene, "b", &there)).await;
    assert_eq!(scene.store.requests(None).await.unwrap().len(), 2);
}

pub(crate) async fn of_many_daemons_one_takes_a_request(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let wanted = request(&scene, "a", &host("here"));
    file(&*scene.store, &wanted).await;
    let mut takers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (store, id) = (subject.another(), wanted.id.clone());
        takers.spawn(async move { store.take_request(&id).await.unwrap() });
    }
    let taken = takers.join_all().await;
    // Among several nodes two takers may hinder each other; never do both get it.
    assert!(
        taken.iter().filter(|taken| **taken).count() <= 1,
        "{taken:?}"
    );
    assert!(of(&*scene.store, &host("here")).await[0].taken);
}

pub(crate) async fn a_request_is_not_taken_after_its_deadline(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let now = scene.store.now().await.unwrap();
    let here = host("here");
    let late = request(&scene, "late", &here);
    let filed = scene.store.file_request(&late, now).await.unwrap();
    assert_eq!(filed, Filed::Late);
    assert!(!scene.store.take_request(&late.id).await.unwrap());
    let brief = request(&scene, "brief", &here);
    let deadline = now.plus(Duration::from_secs(2));
    let filed = scene.store.file_request(&brief, deadline).await.unwrap();
    // A machine that stood still for two seconds files nothing.
    if filed == Filed::Kept {
        while !of(&*scene.store, &here).await[0].left.is_zero() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert!(!scene.store.take_request(&brief.id).await.unwrap());
    assert!(!scene.store.take_request(&run_id("none")).await.unwrap());
}

pub(crate) async fn a_store_keeps_a_limited_number_of_requests(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let here = host("here");
    let mut filed = Vec::new();
    for _ in 0..501 {
        let wanted = DaemonRequest {
            id: RunId::new(),
            ..request(&scene, "a", &here)
        };
        filed.push(file(&*scene.store, &wanted).await);
    }
    assert_eq!(filed.pop(), Some(Filed::Full));
    assert!(filed.iter().all(|it| *it == Filed::Kept));
}

pub(crate) async fn a_filed_request_wakes_its_host(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let here = host("here");
    let another = subject.another();
    let wanted = request(&scene, "a", &here);
    let (waiter, woken_by) = (here.clone(), subject.another());
    let waits = tokio::spawn(async move {
        while of(&*woken_by, &waiter).await.is_empty() {
            let limit = Duration::from_secs(3600);
            woken_by.request_filed(&waiter, limit).await.unwrap();
        }
    });
    file(&*another, &wanted).await;
    let woken = tokio::time::timeout(Duration::from_secs(60), waits).await;
    woken.expect("long before its limit").unwrap();
}

pub(crate) async fn output_is_read_in_order_and_once(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let reader = subject.another();
    let run = run_id("a");
    let chunk = |text: &str, last| OutputChunk {
        lines: vec![(false, text.to_owned()), (true, "alas\"\n".to_owned())],
        dropped: 0,
        last,
    };
    let parts = [chunk("one", false), chunk("two", false), chunk("", true)];
    assert_eq!(reader.receive_output(&run, 0).await.unwrap(), []);
    for (number, part) in (0..).zip(&parts) {
        for _ in 0..2 {
            let wanted = scene.store.send_output(&run, number, part).await.unwrap();
            assert_eq!(wanted, 0);
        }
    }
    let read = reader.receive_output(&run, 0).await.unwrap();
    let expected: Vec<_> = (0..).zip(parts.clone()).collect();
    assert_eq!(read, expected);
    // What was read is deleted, and the sender learns how far the reader is.
    assert_eq!(reader.receive_output(&run, 2).await.unwrap(), expected[2..]);
    let wanted = scene.store.send_output(&run, 2, &parts[2]).await.unwrap();
    assert_eq!(wanted, 2);
    assert_eq!(reader.receive_output(&run, 3).await.unwrap(), []);
    assert_eq!(reader.receive_output(&run_id("b"), 0).await.unwrap(), []);
}
