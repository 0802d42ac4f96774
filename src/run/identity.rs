//! The user and the groups of a job. The daemon looks the names up, never the guard.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};

use nix::errno::Errno;
use nix::unistd::{Gid, Group, Uid, User, getegid, geteuid, getgrouplist, getgroups};

use super::not_prepared::NotPrepared;
use crate::config::Job;
use crate::guard::{Credentials, Lack};

/// What a job's `user` and `group` come to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct JobUser {
    /// `None`: as the daemon.
    pub(super) credentials: Option<Credentials>,
    /// What a login would set.
    pub(super) env: BTreeMap<OsString, OsString>,
}

impl JobUser {
    /// Looks up a job's user and group. May block on a name service.
    pub(super) fn of(job: &Job) -> Result<Self, NotPrepared> {
        let group = job.process.group.as_deref().map(group_id).transpose()?;
        let Some(name) = job.process.user.as_deref() else {
            return Ok(Self {
                credentials: group.map(own_with_group).transpose()?,
                env: BTreeMap::new(),
            });
        };
        let user = user(name)?;
        let gid = group.unwrap_or(user.gid);
        let is_ours = user.uid == geteuid() && group.is_none_or(|gid| gid == getegid());
        // An unprivileged daemon may not set even the groups it has.
        let credentials = if is_ours && !user.uid.is_root() {
            None
        } else {
            Some(Credentials {
                uid: user.uid.as_raw(),
                gid: gid.as_raw(),
                groups: supplementary(&user, gid)?,
            })
        };
        let env = [
            ("USER", OsString::from(&user.name)),
            ("LOGNAME", OsString::from(&user.name)),
            ("HOME", user.dir.into_os_string()),
            ("SHELL", user.shell.into_os_string()),
        ];
        Ok(Self {
            credentials,
            env: env.map(|(k, v)| (OsString::from(k), v)).into(),
        })
    }
}

fn refused(reason: String, errno: Errno) -> NotPrepared {
    NotPrepared {
        reason,
        lack: Lack::of(&errno.into()),
    }
}

fn user(name: &str) -> Result<User, NotPrepared> {
    let found = match name.parse::<u32>() {
        Ok(uid) => User::from_uid(Uid::from_raw(uid)),
        Err(_) => User::from_name(name),
    };
    match found {
        Ok(Some(user)) => Ok(user),
        Ok(None) => Err(format!("there is no user {name:?} on this host").into()),
        Err(error) => Err(refused(
            format!("cannot look up user {name:?}: {error}"),
            error,
        )),
    }
}

fn group_id(name: &str) -> Result<Gid, NotPrepared> {
    if let Ok(gid) = name.parse::<u32>() {
        return Ok(Gid::from_raw(gid));
    }
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid),
        Ok(None) => Err(format!("there is no group {name:?} on this host").into()),
        Err(error) => Err(refused(
            format!("cannot look up group {name:?}: {error}"),
            error,
        )),
    }
}

fn supplementary(user: &User, gid: Gid) -> Result<Vec<u32>, NotPrepared> {
    let name = CString::new(user.name.as_str()).map_err(|e| e.to_string())?;
    let mut groups = getgrouplist(&name, user.gid).map_err(|error| {
        refused(
            format!("cannot look up the groups of {:?}: {error}", user.name),
            error,
        )
    })?;
    if !groups.contains(&gid) {
        groups.push(gid);
    }
    Ok(groups.into_iter().map(Gid::as_raw).collect())
}

fn own_with_group(gid: Gid) -> Result<Credentials, NotPrepared> {
    let groups =
        getgroups().map_err(|error| format!("cannot read this process's groups: {error}"))?;
    Ok(Credentials {
        uid: geteuid().as_raw(),
        gid: gid.as_raw(),
        groups: groups.into_iter().map(Gid::as_raw).collect(),
    })
}
