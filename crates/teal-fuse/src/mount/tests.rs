//! What is refused before anything is mounted, and what is handed to the kernel.

use super::*;
use rustix::mount::MountFlags;

#[test]
fn what_cannot_be_mounted_on_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let options = FuseMountOptions::default();
    let missing = mount(&dir.path().join("none"), &options).unwrap_err();
    assert!(matches!(missing, MountError::Missing { .. }), "{missing}");
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let not_directory = mount(&file, &options).unwrap_err();
    assert!(
        matches!(not_directory, MountError::NotDirectory { .. }),
        "{not_directory}"
    );
    let below = mount(&file.join("x"), &options).unwrap_err();
    assert!(matches!(below, MountError::NotDirectory { .. }), "{below}");
}

#[test]
fn errors_name_the_place_and_the_remedy() {
    let at = |errno| MountError::from_errno(Path::new("/m"), errno).to_string();
    assert_eq!(at(Errno::PERM), "mounting at /m is not permitted");
    assert_eq!(at(Errno::BUSY), "/m or its device is busy");
    assert!(at(Errno::NOTCONN).contains("umount -l"));
    assert!(at(Errno::NOMEM).contains("/m"));
}

#[test]
fn options_reach_the_kernel_each_in_its_form() {
    let options = FuseMountOptions {
        source: "pool".into(),
        allow_other: true,
        default_permissions: true,
        flags: GeneralMountFlags::READ_ONLY | GeneralMountFlags::NOATIME,
        max_read: Some(8192),
        ..Default::default()
    };
    assert_eq!(
        options.fuse_options(),
        ["allow_other", "default_permissions", "max_read=8192"]
    );
    assert_eq!(
        options.flags.mount_flags(),
        MountFlags::RDONLY | MountFlags::NOATIME
    );
    assert!(FuseMountOptions::default().fuse_options().is_empty());
}

#[test]
fn only_its_own_mount_is_ever_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    let stale = UnmountHandle {
        point: dir.path().to_owned(),
        device: DeviceNumber(makedev(0, 0)),
    };
    stale.unmount(UnmountMode::IfIdle).unwrap();
    assert!(dir.path().is_dir());
}
