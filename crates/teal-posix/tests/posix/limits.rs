//! The limits in `docs/semantics.md`, each reached and each passed by one; the kernel's share is
//! tested through the mount.

use crate::fixture::{CALLER, ROOT, Volume, refused};
use rustix::io::Errno;
use teal_posix::{FallocateMode, SetAttrRequest, WriteFlags, XattrMode};
use teal_types::limits::{FILE_MAX, TARGET_MAX, XATTR_NAME_MAX, XATTR_VALUE_MAX, XATTRS_BYTES_MAX};

#[test]
fn a_name_has_255_bytes() {
    let mut v = Volume::new();
    let (at, beyond) = ("n".repeat(255), "n".repeat(256));
    let f = v.file(ROOT, &at);
    for made in [
        v.client
            .create(&CALLER, ROOT, beyond.as_bytes(), 0o644, true),
        v.client.mkdir(&CALLER, ROOT, beyond.as_bytes(), 0o755),
        v.client.link(f, ROOT, beyond.as_bytes()),
        v.client.lookup(ROOT, beyond.as_bytes()),
    ] {
        assert_eq!(refused(made), Errno::NAMETOOLONG);
    }
    v.client.sync().unwrap();
    v.reopen();
    assert_eq!(v.find(ROOT, &at), Ok(f));
    assert_eq!(v.client.statfs().name_max, 255);
}

#[test]
fn a_symlink_target_has_4095_bytes() {
    assert_eq!(TARGET_MAX, 4095);
    let mut v = Volume::new();
    let target = vec![b't'; TARGET_MAX];
    let link = v
        .client
        .symlink(&CALLER, ROOT, b"l", &target)
        .unwrap()
        .object;
    assert_eq!(
        refused(
            v.client
                .symlink(&CALLER, ROOT, b"m", &[b't'; TARGET_MAX + 1])
        ),
        Errno::NAMETOOLONG
    );
    v.client.sync().unwrap();
    v.reopen();
    assert_eq!(v.client.readlink(link).unwrap(), target);
}

#[test]
fn a_file_has_an_exbibyte() {
    assert_eq!(FILE_MAX, 1 << 60);
    let mut v = Volume::new();
    let f = v.file(ROOT, "f");
    let write = |v: &Volume, at, data: &[u8]| v.client.write(f, at, data, WriteFlags::default());
    assert_eq!(
        write(&v, FILE_MAX - 2, b"abc").unwrap(),
        2,
        "as much as there is room for"
    );
    assert_eq!(refused(write(&v, FILE_MAX, b"d")), Errno::FBIG);
    let size = |size| {
        v.client.setattr(
            f,
            &SetAttrRequest {
                size: Some(size),
                ..SetAttrRequest::default()
            },
        )
    };
    assert_eq!(size(FILE_MAX).unwrap().size, FILE_MAX);
    assert_eq!(refused(size(FILE_MAX + 1)), Errno::FBIG);
    let zeros = |end: u64| {
        v.client.fallocate(
            f,
            FallocateMode::ZeroRange { keep_size: false },
            end - 1,
            1,
            Default::default(),
        )
    };
    assert_eq!(refused(zeros(FILE_MAX + 1)), Errno::FBIG);
    v.client.sync().unwrap();
    v.reopen();
    assert_eq!(v.client.read(f, FILE_MAX - 2, 9).unwrap(), b"ab");
    v.client
        .fallocate(
            f,
            FallocateMode::PunchHole,
            FILE_MAX - 1,
            1,
            Default::default(),
        )
        .unwrap();
    assert_eq!(v.client.read(f, FILE_MAX - 2, 9).unwrap(), b"a\0");
}

#[test]
fn an_extended_attribute_has_255_bytes_of_name_64_kib_of_value_and_128_kib_in_all() {
    assert_eq!(
        (XATTR_NAME_MAX, XATTR_VALUE_MAX, XATTRS_BYTES_MAX),
        (255, 64 << 10, 128 << 10)
    );
    let mut v = Volume::new();
    let f = v.file(ROOT, "f");
    let set = |v: &Volume, name: &str, value: &[u8]| {
        v.client
            .setxattr(f, name.as_bytes(), value, XattrMode::Any, false)
    };
    let long = format!("user.{}", "n".repeat(250));
    let value = vec![7; XATTR_VALUE_MAX];
    set(&v, &long, &value).unwrap();
    assert_eq!(refused(set(&v, &format!("{long}n"), b"")), Errno::RANGE);
    assert_eq!(
        refused(set(&v, &long, &[7; XATTR_VALUE_MAX + 1])),
        Errno::TOOBIG
    );
    // Each takes 16 bytes besides its name and value.
    let left = XATTRS_BYTES_MAX - (XATTR_VALUE_MAX + 255 + 16) - ("security.x".len() + 16);
    assert_eq!(
        refused(set(&v, "security.x", &value[..=left])),
        Errno::NOSPC
    );
    set(&v, "security.x", &value[..left]).unwrap();
    assert_eq!(refused(set(&v, "user.y", b"")), Errno::NOSPC);
    v.client.sync().unwrap();
    v.reopen();
    assert_eq!(v.client.getxattr(f, long.as_bytes()).unwrap(), value);
    assert_eq!(v.client.getxattr(f, b"security.x").unwrap().len(), left);
}
