//! Unlink and rmdir.

use crate::fixture::{CALLER, ROOT, Volume, refused};
use rustix::io::Errno;

#[test]
fn each_is_for_its_own_kind() {
    let v = Volume::new();
    let d = v.dir(ROOT, "d");
    v.file(d, "f");
    assert_eq!(refused(v.client.unlink(ROOT, b"d")), Errno::ISDIR);
    assert_eq!(refused(v.client.rmdir(d, b"f")), Errno::NOTDIR);
    assert_eq!(refused(v.client.rmdir(ROOT, b"d")), Errno::NOTEMPTY);
    assert_eq!(refused(v.client.unlink(d, b"none")), Errno::NOENT);
    v.client.unlink(d, b"f").unwrap();
    v.client.rmdir(ROOT, b"d").unwrap();
    assert_eq!((v.names(ROOT).len(), v.attr(ROOT).nlink), (2, 2));
    assert_eq!(v.client.status().unwrap().space.objects, 1);
}

#[test]
fn nothing_is_made_in_a_removed_directory() {
    let v = Volume::new();
    let d = v.dir(ROOT, "d");
    let f = v.file(ROOT, "f");
    v.client.hold(d, 1);
    v.client.rmdir(ROOT, b"d").unwrap();
    assert_eq!(v.attr(d).nlink, 0);
    for made in [
        v.client.create(&CALLER, d, b"x", 0o644, true),
        v.client.mkdir(&CALLER, d, b"x", 0o755),
        v.client.tmpfile(&CALLER, d, 0o600),
        v.client.link(f, d, b"x"),
    ] {
        assert_eq!(refused(made), Errno::NOENT);
    }
    assert_eq!(
        refused(
            v.client
                .rename(ROOT, b"f", d, b"x", teal_posix::RenameMode::Replace)
        ),
        Errno::NOENT
    );
    v.client.release(d, 1);
    assert_eq!(refused(v.client.getattr(d)), Errno::STALE);
}
