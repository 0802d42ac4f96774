//! Which process opened a connection: its socket, found in `/proc`.

use std::collections::BTreeSet;
use std::fs;

/// The inode of the socket that connects from local port `from` to local port `to`, if it is
/// there.
pub(super) fn inode(from: u16, to: u16) -> Option<u64> {
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let (from, to) = (format!(":{from:04X}"), format!(":{to:04X}"));
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, remote) = (words.next()?, words.next()?);
        if !local.ends_with(&from) || !remote.ends_with(&to) {
            return None;
        }
        let inode = words.nth(6)?.parse().ok()?;
        (inode != 0).then_some(inode)
    })
}

/// The inodes of all sockets that a process has.
pub(super) fn sockets_of(pid: i32) -> BTreeSet<u64> {
    let all = fs::read_dir(format!("/proc/{pid}/fd"));
    let all = all.into_iter().flatten().flatten();
    all.filter_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?;
        let name = target.to_str()?.strip_prefix("socket:[")?;
        name.strip_suffix(']')?.parse().ok()
    })
    .collect()
}
