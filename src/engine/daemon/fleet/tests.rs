use super::*;
use crate::store::HostInfo;
use crate::store::stub::host_info;
use crate::time::{Timestamp, seconds_after_boot as at};

fn name(text: &str) -> HostName {
    HostName::parse(text).expect("a name")
}

fn list(text: &str) -> Fingerprint {
    Fingerprint(text.into())
}

fn report(host: &str, config: &str) -> HostReport {
    HostReport {
        info: HostInfo {
            config: list(config),
            ..host_info(host)
        },
        seen_at: Timestamp::EPOCH,
    }
}

fn live(hosts: &[&str]) -> BTreeSet<HostName> {
    hosts.iter().map(|host| name(host)).collect()
}

#[test]
fn the_first_live_host_reports_once_that_another_one_vanished_and_one_that_stopped_is_none() {
    let (mut first, mut second) = (OtherHosts::default(), OtherHosts::default());
    let expired = || vec![report("c", "l"), report("long-ago", "l")];
    for fleet in [&mut first, &mut second] {
        assert_eq!(fleet.looked(live(&["a", "b", "c", "d"]), at(0)), []);
        // `d` has stopped, and `c` has vanished.
        assert_eq!(fleet.looked(live(&["a", "b"]), at(10)), []);
        assert_eq!(fleet.left.len(), 2);
    }
    assert_eq!(
        first.report_vanished(&name("a"), expired()),
        [report("c", "l")]
    );
    assert_eq!(first.report_vanished(&name("a"), expired()), [], "once");
    assert_eq!(second.report_vanished(&name("b"), expired()), []);
    // The host that would have reported it has vanished, too.
    assert_eq!(second.looked(live(&["b"]), at(40)), []);
    let mut both = expired();
    both.push(report("a", "l"));
    let found = second.report_vanished(&name("b"), both);
    assert_eq!(found, [report("c", "l"), report("a", "l")]);
    assert_eq!(second.looked(live(&["b"]), at(101)), []);
    assert!(second.left.is_empty(), "they are not asked about for ever");
    assert_eq!(second.looked(live(&["b", "c"]), at(111)), [name("c")]);
}

#[test]
fn lists_that_differ_are_reported_once_by_one_host_of_each_list() {
    let hosts = [report("a", "x"), report("b", "x"), report("c", "y")];
    let other = |list: &str, hosts: &[&str]| OtherListSeen {
        list: Fingerprint(list.into()),
        hosts: hosts.iter().map(|host| name(host)).collect(),
    };
    let mut fleets: BTreeMap<&str, OtherHosts> = ["a", "b", "c"]
        .map(|host| (host, OtherHosts::default()))
        .into();
    let mut compare = |host: &str, own: &str, hosts: &[HostReport]| {
        let fleet = fleets.get_mut(host).expect("a host");
        fleet.compare_lists((&name(host), &list(own)), hosts)
    };
    assert_eq!(
        compare("a", "x", &hosts),
        Some(ListNews::Differ(vec![other("y", &["c"])]))
    );
    assert_eq!(compare("a", "x", &hosts), None, "once");
    assert_eq!(compare("b", "x", &hosts), None, "the first host does");
    let at_c = Some(ListNews::Differ(vec![other("x", &["a", "b"])]));
    assert_eq!(compare("c", "y", &hosts), at_c);
    let alike = [report("a", "x"), report("b", "x"), report("c", "x")];
    assert_eq!(compare("a", "x", &alike), Some(ListNews::AllAlike));
    assert_eq!(compare("a", "x", &alike), None);
    assert_eq!(compare("b", "x", &alike), None);
    assert_eq!(
        compare("a", "x", &hosts),
        Some(ListNews::Differ(vec![other("y", &["c"])])),
        "again, after they had been alike"
    );
}
