//! Objects without names: kept while held, given back at the last release, or after a crash.

use crate::fixture::{CALLER, ROOT, Volume, refused};
use rustix::io::Errno;
use teal_types::ObjectNo;

impl Volume {
    fn orphans(&self) -> u64 {
        self.client.status().unwrap().orphans
    }

    fn objects(&self) -> u64 {
        self.client.status().unwrap().space.objects
    }

    /// A file held once, whose name is gone.
    fn held_orphan(&self) -> ObjectNo {
        let f = self
            .client
            .create(&CALLER, ROOT, b"held", 0o644, true)
            .unwrap()
            .object;
        self.write(f, 0, b"still here");
        self.client.unlink(ROOT, b"held").unwrap();
        f
    }
}

#[test]
fn an_orphan_lives_until_it_is_released() {
    let v = Volume::new();
    let f = v.held_orphan();
    v.client.hold(f, 2);
    v.client.release(f, 2);
    assert_eq!((v.attr(f).nlink, v.orphans(), v.objects()), (0, 1, 2));
    v.client.sync().unwrap();
    assert_eq!(v.client.read(f, 0, 100).unwrap(), b"still here");
    v.client.release(f, 1);
    assert_eq!(
        (refused(v.client.getattr(f)), v.orphans(), v.objects()),
        (Errno::STALE, 0, 1)
    );
}

#[test]
fn a_large_orphan_goes_in_steps() {
    let mut v = Volume::new();
    // Far more than one step by offsets, with data here and there.
    let f = v.file(ROOT, "f");
    let data = vec![7; 1 << 20];
    for n in 0..20 {
        v.write(f, n << 30, &data);
    }
    v.client.sync().unwrap();
    let free = v.client.statfs().free;
    v.client.unlink(ROOT, b"f").unwrap();
    assert_eq!(
        (v.find(ROOT, "f"), v.orphans()),
        (Err(Errno::NOENT), 1),
        "the first step is not the last"
    );
    for _ in 0..5 {
        assert_eq!(v.client.step(), Some(std::time::Duration::ZERO));
    }
    // A crash in the middle: the rest goes after the next mount.
    v.client.sync().unwrap();
    v.reopen();
    let left = v.attr(f).sectors * 512;
    assert!((10 << 20..18 << 20).contains(&left), "{left}");
    v.client.start().unwrap();
    v.client.shutdown().unwrap();
    v.reopen();
    assert!(v.client.statfs().free >= free + (20 << 20) / 4096 - 64);
    assert_eq!((v.objects(), v.orphans()), (1, 0));
}

#[test]
fn a_file_without_a_name_can_get_one() {
    let v = Volume::new();
    let a = v.client.tmpfile(&CALLER, ROOT, 0o600).unwrap();
    let b = v.client.tmpfile(&CALLER, ROOT, 0o600).unwrap();
    assert_eq!((a.nlink, v.orphans(), v.names(ROOT).len()), (0, 2, 2));
    assert_eq!(v.client.link(a.object, ROOT, b"a").unwrap().nlink, 1);
    v.client.release(a.object, 2);
    v.client.release(b.object, 1);
    assert_eq!(
        (v.orphans(), v.objects(), v.find(ROOT, "a")),
        (0, 2, Ok(a.object))
    );
}

#[test]
fn a_crash_leaves_no_orphans_behind() {
    let mut v = Volume::new();
    let f = v.held_orphan();
    v.client.sync().unwrap();
    v.reopen();
    assert_eq!((v.orphans(), v.attr(f).nlink), (1, 0));
    v.client.start().unwrap();
    assert_eq!(v.client.shutdown().unwrap(), Default::default());
    v.reopen();
    assert_eq!((v.orphans(), v.objects()), (0, 1));
}

#[test]
fn the_end_tells_what_is_still_held() {
    let v = Volume::new();
    v.held_orphan();
    let f = v.file(ROOT, "f");
    v.client.hold(f, 3);
    let remaining = v.client.shutdown().unwrap();
    assert_eq!((remaining.held, remaining.orphans), (2, 1));
    assert_eq!(refused(v.client.unlink(ROOT, b"f")), Errno::IO);
    assert_eq!(v.find(ROOT, "f"), Ok(f), "reading goes on");
}
