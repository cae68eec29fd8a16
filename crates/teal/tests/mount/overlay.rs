//! A mount as the upper layer of an overlay: what the kernel asks of it, and a container on it.

use crate::support::{Mounted, PrivateMounts, find_program, seeded};
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

#[test]
fn a_rename_leaves_a_whiteout_that_belongs_to_the_caller() {
    let test = "a_rename_leaves_a_whiteout_that_belongs_to_the_caller";
    let Some(mut m) = Mounted::new(test, "64M") else {
        return;
    };
    let rename =
        |from: &str, to: &str, flags| fs::renameat_with(CWD, m.path(from), CWD, m.path(to), flags);
    let is_whiteout = |m: &Mounted, name: &str| {
        let meta = std::fs::symlink_metadata(m.path(name)).unwrap();
        assert!(meta.file_type().is_char_device(), "{name}: {meta:?}");
        assert_eq!((meta.rdev(), meta.mode() & 0o7777, meta.nlink()), (0, 0, 1));
        assert_eq!(meta.uid(), rustix::process::geteuid().as_raw());
    };
    std::fs::create_dir(m.path("d")).unwrap();
    std::fs::write(m.path("f"), "f").unwrap();
    std::fs::write(m.path("d/there"), "there").unwrap();
    let white = RenameFlags::WHITEOUT;
    rename("f", "d/f", white).unwrap();
    is_whiteout(&m, "f");
    assert_eq!(std::fs::read(m.path("d/f")).unwrap(), b"f");
    // Onto what is there, but not if that must not be.
    assert_eq!(
        rename("d/f", "d/there", white | RenameFlags::NOREPLACE),
        Err(Errno::EXIST)
    );
    rename("d/f", "d/there", white).unwrap();
    is_whiteout(&m, "d/f");
    assert_eq!(std::fs::read(m.path("d/there")).unwrap(), b"f");
    rename("d", "e", white | RenameFlags::NOREPLACE).unwrap();
    is_whiteout(&m, "d");
    assert_eq!(
        rename("e", "d", white | RenameFlags::EXCHANGE),
        Err(Errno::INVAL)
    );
    rename("e", "d", RenameFlags::EXCHANGE).unwrap();
    is_whiteout(&m, "e");
    m.remount();
    is_whiteout(&m, "e");
    is_whiteout(&m, "d/f");
    is_whiteout(&m, "f");
    let mut names: Vec<_> = std::fs::read_dir(m.point())
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            // The type comes with the listing.
            (
                entry.file_name(),
                entry.file_type().unwrap().is_char_device(),
            )
        })
        .collect();
    names.sort();
    let wanted = [("d", false), ("e", true), ("f", true)];
    assert_eq!(names, wanted.map(|(name, is_char)| (name.into(), is_char)));
    m.down();
    m.check();
}

#[test]
fn what_an_upper_layer_needs_is_there() {
    let Some(m) = Mounted::new("what_an_upper_layer_needs_is_there", "64M") else {
        return;
    };
    if !crate::support::is_root() {
        return teal_testkit::skip_test("what_an_upper_layer_needs_is_there", "needs root");
    }
    std::fs::create_dir(m.path("d")).unwrap();
    for (name, value) in [
        ("trusted.overlay.opaque", &b"y"[..]),
        ("user.overlay.origin", b"x"),
    ] {
        fs::setxattr(m.path("d"), name, value, XattrFlags::empty()).unwrap();
        let mut found = [0; 8];
        let len = fs::getxattr(m.path("d"), name, &mut found[..]).unwrap();
        assert_eq!(&found[..len], value, "{name}");
    }
    let nameless = fs::open(m.point(), OFlags::TMPFILE | OFlags::RDWR, Mode::RWXU).unwrap();
    rustix::io::write(&nameless, b"nameless").unwrap();
    let path = format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&nameless)
    );
    fs::linkat(CWD, path, CWD, m.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(std::fs::read(m.path("named")).unwrap(), b"nameless");
    let made = fs::mknodat(
        CWD,
        m.path("whiteout"),
        rustix::fs::FileType::CharacterDevice,
        Mode::empty(),
        0,
    );
    made.unwrap();
    let meta = std::fs::symlink_metadata(m.path("whiteout")).unwrap();
    assert!(meta.file_type().is_char_device() && meta.rdev() == 0);
}

/// Programs of the container, and how it is built from what the machine has.
const CONTAINER: &str = r#"
    mount="$1"; world="${2%/}"
    lower="$world/lower"; merged="$world/merged"
    mkdir -p "$lower/bin" "$lower/etc" "$lower/data/deep" "$lower/proc" "$lower/tmp" "$merged" "$mount/upper" "$mount/work"
    for program in sh cat mv rm mkdir ln chmod ls cp rmdir touch seq stat sync; do
        file=$(command -v "$program" || true)
        case "$file" in /*) ;; *) file=/bin/$program;; esac
        cp -L "$file" "$lower/bin/$program"
        for library in $(ldd "$file" | grep -o '/[^ )]*'); do
            mkdir -p "$lower$(dirname "$library")"
            cp -nL "$library" "$lower$library" 2>/dev/null || true
        done
    done
    echo lower > "$lower/etc/name"; echo two > "$lower/etc/two"; echo three > "$lower/data/deep/three"
    for n in $(seq 100); do echo "$n" > "$lower/data/$n"; done
    mount -t overlay teal -o "lowerdir=$lower,upperdir=$mount/upper,workdir=$mount/work" "$merged"
    options=$(grep " $merged overlay " /proc/self/mounts)
    case "$options" in *" rw,"*) ;; *) echo "not writable: $options"; exit 1;; esac
    unshare --mount --pid --fork chroot "$merged" /bin/sh -e -c '
        cd /
        echo upper >> etc/name; rm etc/two; mv data/deep data/moved; echo new > etc/new
        ln etc/new etc/other; ln -s new etc/link; chmod 600 etc/name; mkdir -p tmp/a/b; touch tmp/a/b/c
        for n in $(seq 1 2 100); do rm data/$n; done
        for n in $(seq 2 2 100); do mv data/$n data/m$n; done
        rm -r tmp/a; mkdir tmp/a; cp bin/cat tmp/a/cat; tmp/a/cat etc/name; sync
    '
    look() {
        cat "$merged/etc/name" "$merged/etc/link" "$merged/data/moved/three"
        ls "$merged/etc"; ls "$merged/tmp/a"; ls "$merged/data" | wc -l
        test ! -e "$merged/etc/two"; test ! -e "$merged/data/1"; test ! -e "$merged/data/deep"
        stat -c "%h %a" "$merged/etc/other" "$merged/etc/name"
        cat "$merged/data/m100"
    }
    look > "$world/first"
    umount "$merged"
    test -c "$mount/upper/etc/two"; test -c "$mount/upper/data/1"
    mount -t overlay teal -o "lowerdir=$lower,upperdir=$mount/upper,workdir=$mount/work" "$merged"
    look > "$world/second"
    umount "$merged"
    cmp "$world/first" "$world/second"
    cat "$world/first"
"#;

#[test]
fn a_container_runs_on_an_overlay_with_its_upper_layer_here() {
    let test = "a_container_runs_on_an_overlay_with_its_upper_layer_here";
    let Some(mut m) = Mounted::new(test, "256M") else {
        return;
    };
    let has_overlay = std::fs::read_to_string("/proc/filesystems")
        .is_ok_and(|all| all.lines().any(|line| line.ends_with("\toverlay")));
    let tools = ["unshare", "chroot", "ldd"];
    if !crate::support::is_root()
        || !has_overlay
        || tools.iter().any(|name| find_program(name, &[]).is_none())
    {
        return teal_testkit::skip_test(test, "needs root, overlayfs, unshare, chroot and ldd");
    }
    // Something beside the layers, which they leave alone.
    std::fs::write(m.path("beside"), seeded(1, 100_000)).unwrap();
    let said = {
        let Some(mounts) = PrivateMounts::new(m.world()) else {
            return teal_testkit::skip_test(test, "needs mount namespaces");
        };
        mounts.run(CONTAINER, &[m.point(), &m.world().path("")])
    };
    let said = said.expect_success();
    let wanted = "lower\nupper\nnew\nthree\nlink\nname\nnew\nother\ncat\n51\n2 644\n1 600\n100\n";
    assert!(said.ends_with(wanted), "{said}");
    m.remount();
    assert!(std::fs::read(m.path("beside")).unwrap() == seeded(1, 100_000));
    let meta = std::fs::symlink_metadata(m.path("upper/etc/two")).unwrap();
    assert!(meta.file_type().is_char_device(), "a whiteout");
    m.down();
    m.check();
}
