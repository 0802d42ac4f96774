//! Entries, listings, and who may run a job.

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_secs(1_700_000_000 + seconds)
}

fn host(name: &str) -> HostName {
    HostName::parse(name).expect("a name")
}

fn lock(name: &str) -> LockId {
    LockId::Fleet(name.into())
}

fn entered(listing: &mut Listing, name: &str, now: Timestamp) -> Entry {
    let entry = listing.enter(&host(name), lock("l"), now);
    listing.entries.insert(host(name), entry.clone());
    entry
}

fn withdrawn(listing: &mut Listing, name: &str, now: Timestamp) {
    let entry = listing.withdraw(&host(name), now).expect("it was listed");
    listing.entries.insert(host(name), entry);
}

#[test]
fn a_job_counts_from_when_the_first_host_listed_it_and_each_host_from_its_own_start() {
    let mut listing = Listing::default();
    let first = entered(&mut listing, "a", at(0));
    let new = |seconds| CountsFrom {
        at: at(seconds),
        again: false,
    };
    assert_eq!((first.fleet, first.own), (new(0), new(0)));
    let second = entered(&mut listing, "b", at(10));
    assert_eq!((second.fleet, second.own), (new(0), new(10)));
    // A restart changes neither, not even when the host was down for a week.
    let again = entered(&mut listing, "a", at(7 * 86_400));
    assert_eq!((again.fleet, again.own), (new(0), new(0)));
}

#[test]
fn a_host_may_take_over_a_ledger_of_the_fleet_if_any_host_has_shared_one() {
    let own = |name: &str| LockId::Host(name.into());
    let mut listing = Listing::default();
    assert!(!listing.may_take_from_fleet(&own("l")));
    entered(&mut listing, "a", at(0));
    assert!(listing.may_take_from_fleet(&own("l")));
    assert!(
        !listing.may_take_from_fleet(&lock("m")),
        "it is the fleet's"
    );
    let moved = listing.enter(&host("a"), own("l"), at(10));
    listing.entries.insert(host("a"), moved);
    assert!(listing.may_take_from_fleet(&own("l")), "it may lie there");
    listing.entries.clear();
    let first = listing.enter(&host("a"), own("l"), at(20));
    listing.entries.insert(host("a"), first);
    assert!(!listing.may_take_from_fleet(&own("l")));
}

#[test]
fn a_job_that_nobody_lists_counts_from_now_on_a_host_that_never_had_it() {
    let mut listing = Listing::default();
    entered(&mut listing, "a", at(0));
    let beside = entered(&mut listing.clone(), "b", at(10));
    assert!(
        !beside.own.again,
        "its ledger may go on from that of host a"
    );
    withdrawn(&mut listing, "a", at(20));
    let later = entered(&mut listing, "b", at(30));
    assert_eq!((later.own.at, later.own.again), (at(30), true));
    assert!(later.fleet.again);
}

#[test]
fn a_job_that_no_host_lists_any_more_counts_from_when_it_is_listed_again() {
    let mut listing = Listing::default();
    entered(&mut listing, "a", at(0));
    entered(&mut listing, "b", at(0));
    withdrawn(&mut listing, "a", at(10));
    assert_eq!(listing.withdraw(&host("a"), at(11)), None, "said already");
    // Host b lists it all the time: the fleet's count goes on, that of host a starts anew.
    let back = entered(&mut listing, "a", at(20));
    assert_eq!(back.fleet.at, at(0));
    let restarted = |seconds| CountsFrom {
        at: at(seconds),
        again: true,
    };
    assert_eq!(back.own, restarted(20));
    withdrawn(&mut listing, "a", at(30));
    withdrawn(&mut listing, "b", at(31));
    let back = entered(&mut listing, "b", at(40));
    assert_eq!((back.fleet, back.own), (restarted(40), restarted(40)));
}

#[test]
fn what_a_host_writes_later_has_a_later_instant_also_if_the_clock_was_set_back() {
    let mut listing = Listing::default();
    let first = entered(&mut listing, "a", at(0));
    withdrawn(&mut listing, "a", at(-600));
    let gone = listing.entries[&host("a")].clone();
    let back = entered(&mut listing, "a", at(-590));
    let waits = back.again(at(-590)).waiting();
    for (earlier, later) in [(&first, &gone), (&gone, &back), (&back, &waits)] {
        assert!(later.replaces(earlier, at(-590)), "{later:?}");
        assert!(
            !earlier.replaces(later, at(-590)),
            "a late copy: {earlier:?}"
        );
        assert!(
            earlier.replaces(earlier, at(-590)),
            "a copy changes nothing"
        );
    }
}

#[test]
fn an_entry_from_far_ahead_of_the_clock_gives_way() {
    let mut listing = Listing::default();
    let ahead = entered(&mut listing, "a", at(0));
    let enter = |now| listing.enter(&host("a"), lock("l"), now);
    let little = at(-2 * 3600);
    assert!(enter(little).at > at(0));
    let far = at(-4 * 3600);
    // The scripts have one constant for both.
    assert_eq!(FAR_AHEAD, crate::store::protocol::LEDGER_AHEAD);
    for entry in [ahead.again(far), enter(far)] {
        assert_eq!(entry.at, far);
        assert!(entry.replaces(&ahead, far));
    }
}

#[test]
fn a_host_that_enters_a_job_again_after_a_loss_of_data_keeps_what_it_knows_of_the_job() {
    let mut listing = Listing::default();
    let first = entered(&mut listing, "a", at(0));
    let moved = listing.enter(&host("a"), lock("m"), at(10));
    // The store has nothing any more, or what it had before the lock was changed.
    for lossy in [Listing::default(), listing.clone()] {
        let whole = lossy.with(&host("a"), Some(&moved));
        let again = whole.enter(&host("a"), lock("m"), at(20));
        assert_eq!((again.fleet, again.own), (first.fleet, first.own));
        assert_eq!(again.earlier, [lock("l")]);
    }
    // An older entry than the store's does not count.
    listing.entries.insert(host("a"), moved);
    assert_eq!(listing.with(&host("a"), Some(&first)), listing);
    assert_eq!(listing.with(&host("a"), None), listing);
}

#[test]
fn an_entry_that_was_not_refreshed_for_thirty_days_does_not_count() {
    let mut listing = Listing::default();
    entered(&mut listing, "a", at(0));
    let month = i64::try_from(LISTED_FOR.as_secs()).expect("a small number");
    let late = listing.enter(&host("b"), lock("l"), at(month));
    assert_eq!(late.fleet.at, at(month));
    let in_time = listing.enter(&host("b"), lock("l"), at(month - 1));
    assert_eq!(in_time.fleet.at, at(0));
}

#[test]
fn an_entry_remembers_the_locks_that_its_host_used_before() {
    let mut listing = Listing::default();
    for name in ["l", "m", "n", "o", "p", "o"] {
        let entry = listing.enter(&host("a"), lock(name), at(0));
        listing.entries.insert(host("a"), entry);
    }
    let entry = &listing.entries[&host("a")];
    assert_eq!(entry.lock, lock("o"));
    assert_eq!(entry.earlier, ["p", "n", "m"].map(lock));
}

#[test]
fn an_entry_is_read_as_it_was_written() {
    let all = [
        LockId::Fleet("a-b".into()),
        LockId::Raw("a key\nwith %0A and spaces ".into()),
        LockId::Host("h".into()),
        LockId::None("n".into()),
    ];
    for (n, standing) in [Standing::Uses, Standing::Waits, Standing::Withdrawn]
        .into_iter()
        .enumerate()
    {
        let entry = Entry {
            standing,
            lock: all[n].clone(),
            earlier: all[n + 1..].to_vec(),
            fleet: CountsFrom {
                at: at(1),
                again: true,
            },
            own: CountsFrom {
                at: at(-5),
                again: false,
            },
            at: at(3),
        };
        assert_eq!(Entry::parse(&entry.text()), Some(entry));
    }
    for garbage in [
        "",
        "u",
        "u 1 0 2 0 3",
        "y 1 0 2 0 3 fleet l",
        "u 1 0 2 0 3 l",
    ] {
        assert_eq!(Entry::parse(garbage), None, "{garbage:?}");
    }
}

#[test]
fn locks_conflict_unless_each_host_has_a_ledger_of_its_own() {
    let (one, two) = (lock("l"), lock("m"));
    let own = LockId::Host("l".into());
    assert!(one.conflicts_with(&two) && one.conflicts_with(&own) && own.conflicts_with(&one));
    assert!(!one.conflicts_with(&one));
    assert!(!own.conflicts_with(&LockId::None("m".into())));
}

#[test]
fn of_several_nodes_the_newest_entry_of_each_host_counts() {
    let mut old = Listing::default();
    entered(&mut old, "a", at(0));
    let mut new = old.clone();
    withdrawn(&mut new, "a", at(5));
    entered(&mut new, "b", at(6));
    assert_eq!(Listing::merge([old.clone(), new.clone()]), new);
    assert_eq!(Listing::merge([new.clone(), old]), new);
}
