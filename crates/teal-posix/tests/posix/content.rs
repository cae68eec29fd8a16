//! Reading, writing, holes, copying, space.

use crate::fixture::{CALLER, ROOT, Volume, refused};
use rustix::io::Errno;
use teal_posix::{FallocateMode, SeekTarget, WRITE_STEP, WriteFlags};
use teal_types::limits::FILE_MAX;

#[test]
fn only_files_have_content() {
    let v = Volume::new();
    let d = v.dir(ROOT, "d");
    let link = v
        .client
        .symlink(&CALLER, ROOT, b"l", b"target")
        .unwrap()
        .object;
    let pipe = v
        .client
        .mknod(&CALLER, ROOT, b"p", 0o010_644, 0)
        .unwrap()
        .object;
    for (no, errno) in [
        (d, Errno::ISDIR),
        (link, Errno::INVAL),
        (pipe, Errno::INVAL),
    ] {
        assert_eq!(refused(v.client.read(no, 0, 1)), errno);
        assert_eq!(
            refused(v.client.write(no, 0, b"x", WriteFlags::default())),
            errno
        );
        assert_eq!(refused(v.client.seek(no, 0, SeekTarget::Data)), errno);
        assert_eq!(
            refused(
                v.client
                    .fallocate(no, FallocateMode::PunchHole, 0, 1, Default::default())
            ),
            errno
        );
    }
    assert_eq!(v.client.readlink(link).unwrap(), b"target");
    assert_eq!(refused(v.client.readlink(d)), Errno::INVAL);
}

#[test]
fn large_writes_are_taken_in_steps() {
    let v = Volume::new();
    let f = v.file(ROOT, "f");
    let data: Vec<u8> = (0..3 * WRITE_STEP + 5).map(|i| (i / 251) as u8).collect();
    v.write(f, 100, &data);
    assert_eq!(v.client.read(f, 100, usize::MAX >> 1).unwrap(), data);
    assert_eq!(v.attr(f).size, 100 + data.len() as u64);
    let flags = WriteFlags {
        append: true,
        ..WriteFlags::default()
    };
    v.client.write(f, 0, b"end", flags).unwrap();
    assert_eq!(
        v.client.read(f, 100 + data.len() as u64, 9).unwrap(),
        b"end"
    );
}

#[test]
fn files_end_at_their_limit() {
    let v = Volume::new();
    let f = v.file(ROOT, "f");
    let write = |offset| v.client.write(f, offset, b"1234", WriteFlags::default());
    assert_eq!(write(FILE_MAX - 2).unwrap(), 2);
    assert_eq!(v.attr(f).size, FILE_MAX);
    for offset in [FILE_MAX, u64::MAX] {
        assert_eq!(refused(write(offset)), Errno::FBIG);
        assert_eq!(v.client.read(f, offset, 4).unwrap(), b"");
        assert_eq!(
            refused(v.client.seek(f, offset, SeekTarget::Hole)),
            Errno::NXIO
        );
        assert_eq!(
            refused(
                v.client
                    .fallocate(f, FallocateMode::PunchHole, offset, 4, Default::default())
            ),
            Errno::FBIG
        );
    }
    assert_eq!(
        v.client.seek(f, 0, SeekTarget::Data).unwrap(),
        FILE_MAX - 4096
    );
    v.client.unlink(ROOT, b"f").unwrap();
    assert_eq!(v.client.status().unwrap().space.objects, 1);
}

#[test]
fn allocation_extends_but_fills_nothing() {
    let v = Volume::new();
    let f = v.file(ROOT, "f");
    let keep = FallocateMode::from_flags(1).unwrap();
    v.client
        .fallocate(f, keep, 0, 10_000, Default::default())
        .unwrap();
    assert_eq!(v.attr(f).size, 0);
    v.client
        .fallocate(
            f,
            FallocateMode::from_flags(0).unwrap(),
            0,
            10_000,
            Default::default(),
        )
        .unwrap();
    assert_eq!(
        (v.attr(f).size, v.client.read(f, 9_999, 5).unwrap()),
        (10_000, vec![0])
    );
    assert_eq!(
        refused(v.client.fallocate(f, keep, 0, 1 << 40, Default::default())),
        Errno::NOSPC
    );
    assert_eq!(
        refused(v.client.fallocate(f, keep, 5, 0, Default::default())),
        Errno::INVAL
    );
    for flags in [2, 8, 32, 64, 19] {
        assert_eq!(refused(FallocateMode::from_flags(flags)), Errno::OPNOTSUPP);
    }
}

#[test]
fn zeroing_makes_holes_that_can_be_sought() {
    let v = Volume::new();
    let f = v.file(ROOT, "f");
    v.write(f, 0, &[1; 40_960]);
    v.client
        .fallocate(
            f,
            FallocateMode::from_flags(3).unwrap(),
            8192,
            8192,
            Default::default(),
        )
        .unwrap();
    v.client
        .fallocate(
            f,
            FallocateMode::from_flags(16).unwrap(),
            40_960 - 10,
            4106,
            Default::default(),
        )
        .unwrap();
    assert_eq!(v.attr(f).size, 40_960 + 4096);
    assert_eq!(v.client.seek(f, 0, SeekTarget::Hole).unwrap(), 8192);
    assert_eq!(v.client.seek(f, 9000, SeekTarget::Data).unwrap(), 16_384);
    assert_eq!(v.client.seek(f, 16_384, SeekTarget::Hole).unwrap(), 40_960);
    assert_eq!(
        refused(v.client.seek(f, 40_960, SeekTarget::Data)),
        Errno::NXIO
    );
    let bytes = v.client.read(f, 0, 50_000).unwrap();
    let expected = |at| !(8192..16_384).contains(&at) && at < 40_950;
    assert!(
        bytes
            .iter()
            .enumerate()
            .all(|(at, &b)| (b == 1) == expected(at))
    );
}

#[test]
fn copying_moves_bytes_between_files() {
    let v = Volume::new();
    let (f, g) = (v.file(ROOT, "f"), v.file(ROOT, "g"));
    let data: Vec<u8> = (0..20 << 20).map(|i| (i >> 9) as u8).collect();
    v.write(f, 0, &data);
    let copy = |at| {
        v.client
            .copy_file_range((f, at), (g, at), u64::MAX, WriteFlags::default())
            .unwrap()
    };
    assert_eq!(
        (copy(0), copy(16 << 20), copy(20 << 20)),
        (20 << 20, 4 << 20, 0)
    );
    assert_eq!(v.client.read(g, 0, 30 << 20).unwrap(), data);
    assert_eq!(
        refused(
            v.client
                .copy_file_range((f, 0), (f, 5), 10, WriteFlags::default())
        ),
        Errno::INVAL
    );
}

#[test]
fn a_full_volume_refuses_and_recovers() {
    let v = Volume::new();
    let f = v.file(ROOT, "f");
    let chunk = vec![3; WRITE_STEP];
    let mut at = 0;
    let error = loop {
        match v.client.write(f, at, &chunk, WriteFlags::default()) {
            Ok(n) => at += n as u64,
            Err(e) => break e,
        }
    };
    assert_eq!(error.errno(), Errno::NOSPC.raw_os_error());
    assert!(at > 40 << 20, "{at} bytes fit");
    v.client.sync().unwrap();
    v.client.unlink(ROOT, b"f").unwrap();
    let g = v.file(ROOT, "g");
    for n in 0..30 {
        v.write(g, n << 20, &chunk);
    }
    assert!(!v.client.status().unwrap().poisoned);
}
