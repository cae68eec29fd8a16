//! Access control lists and the modes that go with them.

use crate::fixture::{CALLER, ROOT, Volume, refused};
use rustix::io::Errno;
use teal_posix::{Caller, FsError, SetAttrRequest, XattrMode};
use teal_types::ObjectNo;

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
const ANYONE: u32 = u32::MAX;

/// The bytes of a list with a named user, if one is given.
fn list(owner: u16, user: Option<(u32, u16)>, group: u16, mask: u16, other: u16) -> Vec<u8> {
    let mut entries = vec![(1u16, owner, ANYONE)];
    entries.extend(user.map(|(id, perm)| (2, perm, id)));
    entries.push((4, group, ANYONE));
    entries.extend(user.map(|_| (16, mask, ANYONE)));
    entries.push((32, other, ANYONE));
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        out.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        out.extend(id.to_le_bytes());
    }
    out
}

fn minimal(mode: u16) -> Vec<u8> {
    list(mode >> 6, None, mode >> 3 & 7, 0, mode & 7)
}

impl Volume {
    fn set(&self, no: ObjectNo, name: &[u8], value: &[u8]) -> Result<(), FsError> {
        self.client.setxattr(no, name, value, XattrMode::Any, false)
    }

    fn get(&self, no: ObjectNo, name: &[u8]) -> Option<Vec<u8>> {
        self.client.getxattr(no, name).ok()
    }

    fn chmod(&self, no: ObjectNo, perm: u16) {
        self.client
            .setattr(
                no,
                &SetAttrRequest {
                    perm: Some(perm),
                    ..SetAttrRequest::default()
                },
            )
            .unwrap();
    }
}

#[test]
fn a_list_and_its_mode_change_together() {
    let mut v = Volume::new();
    let f = v.file(ROOT, "f");
    v.chmod(f, 0o4640);
    let before = v.attr(f).ctime;
    v.clock.advance(std::time::Duration::from_secs(1));
    v.set(f, ACCESS, &list(7, Some((5, 6)), 4, 6, 1)).unwrap();
    assert_eq!(v.attr(f).perm, 0o4761);
    assert!(v.attr(f).ctime > before);
    v.chmod(f, 0o514);
    assert_eq!(v.get(f, ACCESS), Some(list(5, Some((5, 6)), 4, 1, 4)));
    assert_eq!(v.client.listxattr(&CALLER, f).unwrap(), [ACCESS]);
    v.client.sync().unwrap();
    v.reopen();
    assert_eq!(
        (v.attr(f).perm, v.get(f, ACCESS)),
        (0o514, Some(list(5, Some((5, 6)), 4, 1, 4)))
    );
    v.client.removexattr(f, ACCESS).unwrap();
    assert_eq!(
        (v.attr(f).perm, v.get(f, ACCESS)),
        (0o514, None),
        "the mask stays as the group's bits"
    );
    v.client.removexattr(f, ACCESS).unwrap();
    assert_eq!(refused(v.client.getxattr(f, ACCESS)), Errno::NODATA);
}

#[test]
fn a_list_that_is_a_mode_is_not_kept() {
    let v = Volume::new();
    let (f, d) = (v.file(ROOT, "f"), v.dir(ROOT, "d"));
    v.set(f, ACCESS, &list(7, Some((5, 6)), 4, 6, 1)).unwrap();
    v.set(f, ACCESS, &minimal(0o631)).unwrap();
    assert_eq!((v.attr(f).perm, v.get(f, ACCESS)), (0o631, None));
    // As a default it is a rule of its own.
    v.set(d, DEFAULT, &minimal(0o750)).unwrap();
    assert_eq!(
        (v.attr(d).perm, v.get(d, DEFAULT)),
        (0o755, Some(minimal(0o750)))
    );
    v.set(d, DEFAULT, b"").unwrap();
    assert_eq!(v.get(d, DEFAULT), None);
}

#[test]
fn set_group_id_goes_when_the_kernel_says_so() {
    let v = Volume::new();
    let d = v.dir(ROOT, "d");
    for (value, perm) in [
        (list(7, Some((5, 6)), 4, 6, 1), 0o761),
        (minimal(0o751), 0o751),
    ] {
        v.chmod(d, 0o2770);
        v.client
            .setxattr(d, DEFAULT, &value, XattrMode::Any, true)
            .unwrap();
        assert_eq!(
            v.attr(d).perm,
            0o2770,
            "a default list says nothing of the mode"
        );
        v.client
            .setxattr(d, ACCESS, &value, XattrMode::Any, true)
            .unwrap();
        assert_eq!(v.attr(d).perm, perm);
    }
}

#[test]
fn what_is_malformed_or_out_of_place_is_refused() {
    let v = Volume::new();
    let (f, d) = (v.file(ROOT, "f"), v.dir(ROOT, "d"));
    let link = v.client.symlink(&CALLER, ROOT, b"l", b"x").unwrap().object;
    let good = list(7, Some((5, 6)), 4, 6, 1);
    assert_eq!(refused(v.set(f, DEFAULT, &good)), Errno::ACCESS);
    assert_eq!(refused(v.set(link, ACCESS, &good)), Errno::OPNOTSUPP);
    assert_eq!(
        refused(v.set(f, ACCESS, &good[..good.len() - 1])),
        Errno::INVAL
    );
    assert_eq!(
        refused(v.set(d, DEFAULT, &good[..good.len() - 8])),
        Errno::INVAL
    );
    assert_eq!(
        (v.attr(f).perm, v.get(f, ACCESS), v.get(d, DEFAULT)),
        (0o644, None, None)
    );
}

#[test]
fn a_default_list_rules_instead_of_the_umask() {
    let mut v = Volume::new();
    let caller = Caller {
        umask: 0o077,
        ..CALLER
    };
    let d = v.dir(ROOT, "d");
    let rule = list(7, Some((5, 6)), 5, 7, 4);
    v.set(d, DEFAULT, &rule).unwrap();
    let file = v.client.create(&caller, d, b"f", 0o666, true).unwrap();
    let pipe = v.client.mknod(&caller, d, b"p", 0o010_620, 0).unwrap();
    let nameless = v.client.tmpfile(&caller, d, 0o644).unwrap();
    let sub = v.client.mkdir(&caller, d, b"s", 0o777).unwrap();
    let link = v.client.symlink(&caller, d, b"l", b"x").unwrap();
    assert_eq!(
        [file, pipe, nameless, sub, link].map(|attr| attr.perm),
        [0o664, 0o620, 0o644, 0o774, 0o777]
    );
    v.client.sync().unwrap();
    v.reopen();
    assert_eq!(
        v.get(file.object, ACCESS),
        Some(list(6, Some((5, 6)), 5, 6, 4))
    );
    assert_eq!(
        v.get(pipe.object, ACCESS),
        Some(list(6, Some((5, 6)), 5, 2, 0))
    );
    assert_eq!(v.get(sub.object, ACCESS), Some(rule.clone()));
    assert_eq!(
        (v.get(sub.object, DEFAULT), v.get(file.object, DEFAULT)),
        (Some(rule), None)
    );
    assert!(v.client.listxattr(&CALLER, link.object).unwrap().is_empty());
    // A rule that is a mode leaves no list behind.
    v.set(d, DEFAULT, &minimal(0o750)).unwrap();
    let plain = v.client.create(&caller, d, b"g", 0o666, true).unwrap();
    assert_eq!((plain.perm, v.get(plain.object, ACCESS)), (0o640, None));
    v.client.removexattr(d, DEFAULT).unwrap();
    assert_eq!(
        v.client.create(&caller, d, b"h", 0o666, true).unwrap().perm,
        0o600
    );
}

#[test]
fn the_longest_list_is_inherited() {
    let mut v = Volume::new();
    let d = v.dir(ROOT, "d");
    let mut long = list(7, Some((0, 6)), 5, 7, 4);
    let user = long[12..20].to_vec();
    for id in 1..507u32 {
        let named = [&user[..4], &id.to_le_bytes()].concat();
        long.splice(12..12, named);
    }
    assert_eq!(long.len(), 4 + 511 * 8);
    v.set(d, DEFAULT, &long).unwrap();
    let mut dir = d;
    for _ in 0..20 {
        dir = v.client.mkdir(&CALLER, dir, b"d", 0o777).unwrap().object;
    }
    v.client.sync().unwrap();
    v.reopen();
    assert_eq!(
        (v.get(dir, ACCESS), v.get(dir, DEFAULT)),
        (Some(long.clone()), Some(long.clone()))
    );
    long.splice(12..12, user);
    assert_eq!(refused(v.set(d, DEFAULT, &long)), Errno::TOOBIG);
}
