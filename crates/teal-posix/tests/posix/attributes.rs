//! Mode, owner, times, length, extended attributes.

use crate::fixture::{CALLER, ROOT, Volume, refused};
use rustix::io::Errno;
use std::time::Duration;
use teal_posix::{Caller, SetAttrRequest, TimeChange, WriteFlags, XattrMode};
use teal_types::{ObjectNo, Timestamp};

const NONE: SetAttrRequest = SetAttrRequest {
    is_held: false,
    perm: None,
    uid: None,
    gid: None,
    size: None,
    atime: None,
    mtime: None,
    ctime: None,
    kill_suidgid: false,
};

impl Volume {
    fn perm(&self, no: ObjectNo, perm: u16) {
        assert_eq!(
            self.client
                .setattr(
                    no,
                    &SetAttrRequest {
                        perm: Some(perm),
                        ..NONE
                    }
                )
                .unwrap()
                .perm,
            perm
        );
    }
}

#[test]
fn a_length_that_stays_moves_the_times_too() {
    let v = Volume::new();
    let f = v.file(ROOT, "f");
    v.clock.advance(Duration::from_secs(3));
    let attr = v
        .client
        .setattr(
            f,
            &SetAttrRequest {
                size: Some(0),
                ..NONE
            },
        )
        .unwrap();
    assert_eq!(attr.mtime.secs, attr.btime.secs + 3);
    assert_eq!(attr.ctime, attr.mtime);
    assert_eq!(
        refused(v.client.setattr(
            ROOT,
            &SetAttrRequest {
                size: Some(0),
                ..NONE
            }
        )),
        Errno::ISDIR
    );
    assert_eq!(
        refused(v.client.setattr(
            f,
            &SetAttrRequest {
                size: Some(u64::MAX),
                ..NONE
            }
        )),
        Errno::FBIG
    );
}

#[test]
fn times_are_set_as_asked() {
    let v = Volume::new();
    let f = v.file(ROOT, "f");
    v.clock.advance(Duration::from_secs(1));
    let past = Timestamp::new(-5, 7);
    let set = SetAttrRequest {
        atime: Some(TimeChange::Set(past)),
        mtime: Some(TimeChange::Now),
        ..NONE
    };
    let attr = v.client.setattr(f, &set).unwrap();
    assert_eq!(
        (attr.atime, attr.mtime, attr.ctime),
        (past, attr.ctime, attr.mtime)
    );
    let attr = v
        .client
        .setattr(
            f,
            &SetAttrRequest {
                ctime: Some(past),
                ..NONE
            },
        )
        .unwrap();
    assert_eq!(attr.ctime, past);
}

#[test]
fn privileges_go_with_a_change_of_owner_or_content() {
    let v = Volume::new();
    let f = v.file(ROOT, "f");
    let capability = || {
        v.client
            .setxattr(f, b"security.capability", b"x", XattrMode::Any, false)
            .unwrap()
    };
    v.perm(f, 0o6755);
    capability();
    let set = SetAttrRequest {
        uid: Some(5),
        ..NONE
    };
    assert_eq!(v.client.setattr(f, &set).unwrap().perm, 0o755);
    assert_eq!(
        refused(v.client.getxattr(f, b"security.capability")),
        Errno::NODATA
    );
    v.perm(f, 0o6745);
    assert_eq!(
        v.client.setattr(f, &set).unwrap().perm,
        0o2745,
        "the group may not execute it"
    );
    v.perm(f, 0o6755);
    capability();
    v.write(f, 0, b"by root");
    assert_eq!(v.attr(f).perm, 0o6755);
    assert_eq!(
        refused(v.client.getxattr(f, b"security.capability")),
        Errno::NODATA
    );
    v.client
        .write(
            f,
            0,
            b"by others",
            WriteFlags {
                kill_suidgid: true,
                ..WriteFlags::default()
            },
        )
        .unwrap();
    assert_eq!(v.attr(f).perm, 0o755);
    let d = v.dir(ROOT, "d");
    v.perm(d, 0o6755);
    assert_eq!(
        v.client.setattr(d, &set).unwrap().perm,
        0o6755,
        "directories keep theirs"
    );
}

#[test]
fn symbolic_links_have_no_mode_to_set() {
    let v = Volume::new();
    let link = v.client.symlink(&CALLER, ROOT, b"l", b"x").unwrap().object;
    assert_eq!(
        refused(v.client.setattr(
            link,
            &SetAttrRequest {
                perm: Some(0),
                ..NONE
            }
        )),
        Errno::OPNOTSUPP
    );
}

#[test]
fn reading_moves_the_access_time_once_and_commits_nothing() {
    let v = Volume::new();
    let f = v.file(ROOT, "f");
    v.write(f, 0, b"x");
    v.client.sync().unwrap();
    v.clock.advance(Duration::from_secs(5));
    v.client.read(f, 0, 1).unwrap();
    let atime = v.attr(f).atime;
    assert!(atime > v.attr(f).mtime);
    v.clock.advance(Duration::from_secs(5));
    v.client.read(f, 0, 1).unwrap();
    assert_eq!(
        (v.attr(f).atime, v.client.status().unwrap().dirty),
        (atime, false)
    );
}

#[test]
fn extended_attributes_have_names_limits_and_namespaces() {
    let v = Volume::new();
    let f = v.file(ROOT, "f");
    let set = |name: &[u8], value: &[u8], mode| v.client.setxattr(f, name, value, mode, false);
    set(b"user.a", b"1", XattrMode::Create).unwrap();
    assert_eq!(
        refused(set(b"user.a", b"2", XattrMode::Create)),
        Errno::EXIST
    );
    assert_eq!(
        refused(set(b"user.b", b"2", XattrMode::Replace)),
        Errno::NODATA
    );
    set(b"user.a", b"", XattrMode::Replace).unwrap();
    set(b"trusted.t", b"3", XattrMode::Any).unwrap();
    assert_eq!(v.client.getxattr(f, b"user.a").unwrap(), b"");
    assert_eq!(v.client.listxattr(&CALLER, f).unwrap().len(), 2);
    assert_eq!(
        v.client.listxattr(&Caller { uid: 9, ..CALLER }, f).unwrap(),
        [b"user.a"]
    );
    for (name, errno) in [
        (&b"system.nfs4_acl"[..], Errno::OPNOTSUPP),
        (b"nowhere.x", Errno::OPNOTSUPP),
        (b"user.", Errno::INVAL),
        (b"", Errno::RANGE),
        (&[b'u'; 256], Errno::RANGE),
    ] {
        assert_eq!(refused(set(name, b"x", XattrMode::Any)), errno);
        assert_eq!(refused(v.client.getxattr(f, name)), errno);
        assert_eq!(refused(v.client.removexattr(f, name)), errno);
    }
    assert_eq!(
        refused(set(b"user.big", &[0; 65537], XattrMode::Any)),
        Errno::TOOBIG
    );
    set(b"user.big", &[1; 65536], XattrMode::Any).unwrap();
    assert_eq!(
        refused(set(b"user.big2", &[1; 65536], XattrMode::Any)),
        Errno::NOSPC
    );
    v.client.removexattr(f, b"user.a").unwrap();
    assert_eq!(refused(v.client.removexattr(f, b"user.a")), Errno::NODATA);
    let pipe = v
        .client
        .mknod(&CALLER, ROOT, b"p", 0o010_644, 0)
        .unwrap()
        .object;
    assert_eq!(
        refused(
            v.client
                .setxattr(pipe, b"user.a", b"1", XattrMode::Any, false)
        ),
        Errno::PERM
    );
    assert_eq!(XattrMode::from_flags(3), None);
}
