//! Finding, making, linking and moving names.

use crate::fixture::{CALLER, ROOT, Volume, refused};
use rustix::io::Errno;
use std::ops::ControlFlow;
use teal_posix::{Caller, RenameMode, SetAttrRequest};
use teal_types::limits::LINKS_MAX;
use teal_types::{FileType, ObjectNo};

const REPLACE: RenameMode = RenameMode::Replace;

impl Volume {
    fn rename(
        &self,
        from: (ObjectNo, &str),
        to: (ObjectNo, &str),
        mode: RenameMode,
    ) -> Result<(), Errno> {
        let done = self
            .client
            .rename(from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), mode);
        done.map_err(|e| crate::fixture::errno(&e))
    }
}

#[test]
fn dots_lead_to_the_directory_and_its_parent() {
    let v = Volume::new();
    let a = v.dir(ROOT, "a");
    let b = v.dir(a, "b");
    assert_eq!(
        (v.find(b, "."), v.find(b, ".."), v.find(ROOT, "..")),
        (Ok(b), Ok(a), Ok(ROOT))
    );
    let f = v.file(a, "f");
    for name in ["..", "x"] {
        assert_eq!(v.find(f, name), Err(Errno::NOTDIR));
    }
    assert_eq!(v.find(f, "."), Ok(f), "a handle leads to a file, too");
    v.client.unlink(a, b"f").unwrap();
    assert_eq!(v.find(f, "."), Err(Errno::STALE));
    assert!(
        v.file(a, "f") > f,
        "numbers are not used again: no generation is needed"
    );
}

#[test]
fn bad_names_and_gone_parents_have_their_own_errors() {
    let v = Volume::new();
    let long = "x".repeat(256);
    assert_eq!(v.find(ROOT, &long), Err(Errno::NAMETOOLONG));
    assert_eq!(
        refused(v.client.mkdir(&CALLER, ROOT, long.as_bytes(), 0o755)),
        Errno::NAMETOOLONG
    );
    for name in [&b""[..], b"a/b", b"a\0", b".", b".."] {
        assert_eq!(
            refused(v.client.mkdir(&CALLER, ROOT, name, 0o755)),
            Errno::INVAL
        );
    }
    for no in [0, 15, 9999, u64::MAX] {
        assert_eq!(v.find(ObjectNo::new(no), "x"), Err(Errno::STALE));
        assert_eq!(refused(v.client.getattr(ObjectNo::new(no))), Errno::STALE);
    }
    let f = v.file(ROOT, "f");
    assert_eq!(
        refused(v.client.mkdir(&CALLER, f, b"x", 0o755)),
        Errno::NOTDIR
    );
    assert_eq!(
        refused(v.client.mkdir(&CALLER, ROOT, b"f", 0o755)),
        Errno::EXIST
    );
    assert_eq!(
        refused(v.client.mknod(&CALLER, ROOT, b"d", 0o040_755, 0)),
        Errno::INVAL
    );
    assert_eq!(
        refused(v.client.symlink(&CALLER, ROOT, b"s", b"")),
        Errno::NOENT
    );
    assert_eq!(
        refused(v.client.symlink(&CALLER, ROOT, b"s", &[b'x'; 4096])),
        Errno::NAMETOOLONG
    );
}

#[test]
fn create_opens_what_is_there_unless_exclusive() {
    let v = Volume::new();
    let f = v.file(ROOT, "f");
    assert_eq!(
        v.client
            .create(&CALLER, ROOT, b"f", 0o600, false)
            .unwrap()
            .object,
        f
    );
    assert_eq!(
        refused(v.client.create(&CALLER, ROOT, b"f", 0o600, true)),
        Errno::EXIST
    );
    assert_eq!(v.client.status().unwrap().held, 1);
}

#[test]
fn new_objects_belong_to_the_caller_or_the_setgid_group() {
    let v = Volume::new();
    let caller = Caller {
        uid: 1000,
        gid: 100,
        pid: 1,
        umask: 0o027,
    };
    let made = v.client.mkdir(&caller, ROOT, b"d", 0o6777).unwrap();
    assert_eq!((made.uid, made.gid, made.perm), (1000, 100, 0o750));
    let set = SetAttrRequest {
        perm: Some(0o2775),
        gid: Some(500),
        ..SetAttrRequest::default()
    };
    assert_eq!(v.client.setattr(made.object, &set).unwrap().perm, 0o2775);
    let dir = v.client.mkdir(&caller, made.object, b"d", 0o777).unwrap();
    let file = v
        .client
        .create(&caller, made.object, b"f", 0o666, true)
        .unwrap();
    assert_eq!(
        (dir.gid, dir.perm, file.gid, file.perm),
        (500, 0o2750, 500, 0o640)
    );
    let device = v
        .client
        .mknod(&caller, made.object, b"n", 0o020_666, 0x0103)
        .unwrap();
    assert_eq!(
        (device.kind, device.rdev, device.gid),
        (FileType::Char, 0x0103, 500)
    );
}

#[test]
fn a_thousand_links_and_no_more() {
    let v = Volume::new();
    let f = v.file(ROOT, "f");
    let long = "n".repeat(250);
    for n in 1..LINKS_MAX {
        v.client
            .link(f, ROOT, format!("{long}{n}").as_bytes())
            .unwrap();
    }
    assert_eq!(refused(v.client.link(f, ROOT, b"more")), Errno::MLINK);
    // At the limit a name can still be moved.
    assert_eq!(v.rename((ROOT, "f"), (ROOT, "g"), REPLACE), Ok(()));
    v.client.release(f, LINKS_MAX as u64);
    v.client.sync().unwrap();
    let mut v = v;
    v.reopen();
    assert_eq!(v.attr(f).nlink as usize, LINKS_MAX);
    assert_eq!(v.names(ROOT).len(), 2 + LINKS_MAX);
}

#[test]
fn links_are_for_what_is_no_directory_and_has_a_name() {
    let v = Volume::new();
    let (f, d) = (v.file(ROOT, "f"), v.dir(ROOT, "d"));
    assert_eq!(refused(v.client.link(d, ROOT, b"x")), Errno::PERM);
    assert_eq!(refused(v.client.link(f, ROOT, b"d")), Errno::EXIST);
    assert_eq!(v.client.link(f, d, b"g").unwrap().nlink, 2);
    v.client.unlink(ROOT, b"f").unwrap();
    v.client.unlink(d, b"g").unwrap();
    assert_eq!(
        (v.attr(f).nlink, refused(v.client.link(f, ROOT, b"x"))),
        (0, Errno::NOENT)
    );
}

#[test]
fn renaming_onto_the_same_object_does_nothing() {
    let v = Volume::new();
    let f = v.file(ROOT, "f");
    v.client.link(f, ROOT, b"g").unwrap();
    for to in ["f", "g"] {
        assert_eq!(v.rename((ROOT, "f"), (ROOT, to), REPLACE), Ok(()));
    }
    assert_eq!(v.names(ROOT), [".", "..", "f", "g"]);
    assert_eq!(
        v.rename((ROOT, "f"), (ROOT, "g"), RenameMode::NoReplace),
        Err(Errno::EXIST)
    );
}

#[test]
fn renaming_replaces_only_like_with_like() {
    let v = Volume::new();
    let (d, e) = (v.dir(ROOT, "d"), v.dir(ROOT, "e"));
    v.file(ROOT, "f");
    v.file(e, "x");
    assert_eq!(
        v.rename((ROOT, "f"), (ROOT, "d"), REPLACE),
        Err(Errno::ISDIR)
    );
    assert_eq!(
        v.rename((ROOT, "d"), (ROOT, "f"), REPLACE),
        Err(Errno::NOTDIR)
    );
    assert_eq!(
        v.rename((ROOT, "d"), (ROOT, "e"), REPLACE),
        Err(Errno::NOTEMPTY)
    );
    assert_eq!(v.rename((ROOT, "e"), (ROOT, "d"), REPLACE), Ok(()));
    assert_eq!((v.find(ROOT, "d"), v.attr(ROOT).nlink), (Ok(e), 3));
    assert_eq!(refused(v.client.getattr(d)), Errno::STALE);
    assert_eq!(
        v.rename((ROOT, "none"), (ROOT, &"x".repeat(256)), REPLACE),
        Err(Errno::NOENT)
    );
    assert_eq!(
        v.rename((ROOT, "f"), (ROOT, &"x".repeat(256)), REPLACE),
        Err(Errno::NAMETOOLONG)
    );
    assert_eq!(RenameMode::from_flags(4), None);
    assert_eq!(RenameMode::from_flags(3), None);
}

#[test]
fn a_directory_never_moves_into_itself() {
    let v = Volume::new();
    let a = v.dir(ROOT, "a");
    let b = v.dir(a, "b");
    let c = v.dir(b, "c");
    assert_eq!(v.rename((ROOT, "a"), (a, "x"), REPLACE), Err(Errno::INVAL));
    assert_eq!(v.rename((ROOT, "a"), (c, "x"), REPLACE), Err(Errno::INVAL));
    assert_eq!(
        v.rename((b, "c"), (ROOT, "a"), REPLACE),
        Err(Errno::NOTEMPTY)
    );
    assert_eq!(
        v.rename((b, "c"), (ROOT, "a"), RenameMode::Exchange),
        Err(Errno::INVAL)
    );
    assert_eq!(
        v.rename((ROOT, "a"), (b, "c"), RenameMode::Exchange),
        Err(Errno::INVAL)
    );
}

#[test]
fn dot_dot_follows_a_moved_directory() {
    let v = Volume::new();
    let (a, b) = (v.dir(ROOT, "a"), v.dir(ROOT, "b"));
    let d = v.dir(a, "d");
    assert_eq!(v.rename((a, "d"), (b, "e"), REPLACE), Ok(()));
    assert_eq!(
        (v.find(d, ".."), v.attr(a).nlink, v.attr(b).nlink),
        (Ok(b), 2, 3)
    );
}

#[test]
fn exchange_swaps_a_file_and_a_directory() {
    let v = Volume::new();
    let (a, f) = (v.dir(ROOT, "a"), v.file(ROOT, "f"));
    let d = v.dir(a, "d");
    assert_eq!(
        v.rename((a, "d"), (ROOT, "none"), RenameMode::Exchange),
        Err(Errno::NOENT)
    );
    assert_eq!(
        v.rename((a, "d"), (ROOT, "f"), RenameMode::Exchange),
        Ok(())
    );
    assert_eq!(
        (v.find(a, "d"), v.find(ROOT, "f"), v.find(d, "..")),
        (Ok(f), Ok(d), Ok(ROOT))
    );
    assert_eq!((v.attr(a).nlink, v.attr(ROOT).nlink), (2, 4));
}

#[test]
fn changes_of_names_move_times() {
    let v = Volume::new();
    let (a, b) = (v.dir(ROOT, "a"), v.dir(ROOT, "b"));
    let f = v.file(a, "f");
    let before = v.attr(a).mtime;
    v.clock.advance(std::time::Duration::from_secs(5));
    assert_eq!(v.rename((a, "f"), (b, "f"), REPLACE), Ok(()));
    let now = v.attr(f).ctime;
    assert!(now > before);
    for dir in [a, b] {
        assert_eq!((v.attr(dir).mtime, v.attr(dir).ctime), (now, now));
    }
    assert_eq!(v.attr(f).mtime, before, "the content stayed");
}

#[test]
fn listing_goes_on_where_it_stopped_whatever_changes() {
    let v = Volume::new();
    let d = v.dir(ROOT, "d");
    for n in 0..300 {
        v.file(d, &format!("stays{n}"));
        v.file(d, &format!("goes{n}"));
    }
    let (mut seen, mut cookie) = (Vec::new(), 0);
    for round in 0.. {
        let (from, mut room) = (cookie, 7);
        let mut got = 0;
        let visit = &mut |entry: &teal_posix::DirEntry| {
            if room == 0 {
                return ControlFlow::Break(());
            }
            room -= 1;
            got += 1;
            cookie = entry.cookie;
            seen.push(String::from_utf8(entry.name.to_vec()).unwrap());
            ControlFlow::Continue(())
        };
        v.client.readdir(d, from, visit).unwrap();
        if got == 0 {
            break;
        }
        if round < 300 {
            v.client
                .unlink(d, format!("goes{round}").as_bytes())
                .unwrap();
            v.file(d, &format!("comes{round}"));
        }
    }
    assert_eq!(seen[..2], [".", ".."]);
    let mut stays: Vec<_> = seen
        .iter()
        .filter(|name| name.starts_with("stays"))
        .collect();
    stays.sort();
    assert_eq!(stays.len(), 300);
    stays.dedup();
    assert_eq!(stays.len(), 300);
    assert_eq!(
        refused(
            v.client
                .readdir(v.file(ROOT, "f"), 0, &mut |_| ControlFlow::Continue(()))
        ),
        Errno::NOTDIR
    );
    v.client
        .readdir(d, u64::MAX, &mut |_| panic!("nothing is behind the end"))
        .unwrap();
}
