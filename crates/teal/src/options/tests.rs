//! The options that mount(8) and people give.

use super::*;

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| (*s).to_owned()).collect()
}

#[test]
fn options_are_validated() {
    let parsed = parse_options(&strings(&[
        "ro",
        "noatime",
        "commit=7",
        "checkpoint_bytes=4M",
        "x-systemd.automount",
    ]))
    .unwrap();
    assert_eq!(
        parsed.flags,
        GeneralMountFlags::READ_ONLY | GeneralMountFlags::NOATIME
    );
    assert_eq!(parsed.settings.commit_interval, Duration::from_secs(7));
    assert_eq!(parsed.settings.checkpoint_bytes, 4 << 20);
    let out_of_range = [
        "commit=0",
        "checkpoint_bytes=1",
        "queue=1",
        "flush=0",
        "checkpoint=100000",
        "noatime=1",
    ];
    let bad = [
        "frobnicate",
        "commit",
        "commit=soon",
        "threads=0",
        "threads=257",
        "threads=100000",
        "uring=maybe",
        "salvage",
    ];
    for bad in bad.into_iter().chain(out_of_range) {
        let said = parse_options(&strings(&[bad])).unwrap_err().to_string();
        assert!(said.contains(bad), "{said}");
    }
}

#[test]
fn the_last_of_contradicting_options_holds() {
    assert!(
        !parse_options(&strings(&["ro", "rw"]))
            .unwrap()
            .is_read_only()
    );
    assert!(
        parse_options(&strings(&["rw", "ro"]))
            .unwrap()
            .is_read_only()
    );
}

#[test]
fn mount_8_is_understood() {
    let asked = |list: &[&str]| from_mount_8(list.iter().map(OsString::from));
    let MountHelperCall::Mount(mount) =
        asked(&["/dev/loop3", "/mnt", "-n", "-o", "rw,noatime", "-t", "teal"]).unwrap()
    else {
        panic!("it is to be mounted");
    };
    assert_eq!(mount.path, PathBuf::from("/dev/loop3"));
    assert_eq!(mount.options, strings(&["rw", "noatime"]));
    for fake in [
        ["/s", "/mnt", "-f"],
        ["/s", "/mnt", "-sfn"],
        ["-vf", "/s", "/mnt"],
    ] {
        assert!(
            matches!(asked(&fake), Ok(MountHelperCall::DryRun(_))),
            "{fake:?}"
        );
    }
    assert!(matches!(
        asked(&["/s", "/mnt", "-t", "fuse"]),
        Ok(MountHelperCall::Mount(_))
    ));
    assert!(asked(&["/dev/loop3"]).is_err());
}
