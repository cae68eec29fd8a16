//! Real mounts and loop devices that are left behind, and those of others that are not touched.

use super::*;
use std::process::Command;

/// Returns whether this runs as root, with loop devices; on record as skipped if not.
fn can(test: &str) -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists();
    if !can {
        teal_testkit::skip_test(test, "needs root and loop devices");
    }
    can
}

fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().unwrap();
    assert!(
        out.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_line_of_the_mount_table_is_read() {
    let line =
        r"36 35 0:52 / /var/tmp/a\040b rw,noatime shared:1 - fuse.teal a\040source rw,user_id=0";
    let mount = parse_mount(line).unwrap();
    assert_eq!(
        (mount.id, mount.number, mount.kind.as_str()),
        (36, 52, "fuse.teal")
    );
    assert_eq!(mount.point, Path::new("/var/tmp/a b"));
    let block = parse_mount("36 35 7:3 / /mnt rw - fuseblk.teal /dev/loop3 rw").unwrap();
    assert!(
        block.number == 7_340_035 && block.is_fuse(),
        "as in /sys/fs/fuse/connections"
    );
    assert_eq!(parse_mount("36 35 0:52"), None);
    assert!(!mounts_of("self").is_empty());
}

#[test]
fn mounts_and_loop_devices_that_appeared_in_our_places_are_taken_away() {
    if !can("mounts_and_loop_devices_that_appeared_in_our_places_are_taken_away") {
        return;
    }
    let (ours, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let point = |dir: &tempfile::TempDir, name: &str| {
        let point = dir.path().join(name);
        std::fs::create_dir(&point).unwrap();
        run("mount", &["-t", "tmpfs", "none", point.to_str().unwrap()]);
        point
    };
    let old = point(&ours, "old");
    let look = SystemSnapshot::take_now();
    let (new, foreign) = (point(&ours, "a new one"), point(&others, "foreign"));
    let image = ours.path().join("image");
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    let device = run("losetup", &["--find", "--show", image.to_str().unwrap()]);

    let places = [ours.path().to_owned()];
    let found = look.clean_since(&places);
    let again = look.clean_since(&places);
    let (is_old_there, is_foreign_there) = (is_mounted_below(&old), is_mounted_below(&foreign));
    for point in [&old, &foreign] {
        run("umount", &[point.to_str().unwrap()]);
    }
    let device = device.strip_prefix("/dev/").unwrap();
    let expected = [
        format!("mount of tmpfs at {}", new.display()),
        format!("loop device {device} of {}", image.display()),
    ];
    assert_eq!(found, expected);
    assert_eq!(again, [""; 0], "they are gone");
    assert!(is_old_there && is_foreign_there, "what is not ours stays");
    assert!(!is_mounted_below(ours.path()));
}

#[test]
fn of_the_mounts_that_were_there_only_those_without_a_daemon_are_taken_away() {
    if !can("of_the_mounts_that_were_there_only_those_without_a_daemon_are_taken_away") {
        return;
    }
    let (ours, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Served as long as the file is open.
    let mounted = |point: &Path| {
        std::fs::create_dir(point).unwrap();
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .unwrap();
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0",
            std::os::fd::AsRawFd::as_raw_fd(&file)
        );
        let options = std::ffi::CString::new(options).unwrap();
        rustix::mount::mount(
            "none",
            point,
            "fuse",
            rustix::mount::MountFlags::empty(),
            &*options,
        )
        .unwrap();
        file
    };
    let (dead, served, foreign) = (
        ours.path().join("dead"),
        ours.path().join("served"),
        others.path().join("dead"),
    );
    drop((mounted(&dead), mounted(&foreign)));
    let server = mounted(&served);

    let places = [ours.path().to_owned()];
    let started = super::super::bounded::time_since_boot();
    let found = clean_dead(&places);
    let took = super::super::bounded::time_since_boot() - started;
    let there = [&dead, &served, &foreign].map(|point| is_mounted_below(point));
    drop(server);
    let (second, others) = (clean_dead(&places), clean_dead(&[others.path().to_owned()]));
    assert_eq!(found, [format!("mount of fuse at {}", dead.display())]);
    assert_eq!(
        there,
        [false, true, true],
        "what answers late and what is not ours stays"
    );
    assert!(took >= PATIENCE, "an answer was waited for");
    assert_eq!(
        (second, others),
        (
            vec![format!("mount of fuse at {}", served.display())],
            vec![format!("mount of fuse at {}", foreign.display())]
        )
    );
}
