//! Bad input: one clear line, exit status 1, and nothing changed.

use super::support::{
    Mounted, PrivateMounts, ProgramOutput, World, digest, find_program, has_loop_devices,
    is_user_able, run_program, shell,
};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// The refusal names what it is about and the reason or the way out.
#[track_caller]
fn says(said: ProgramOutput, words: &[&str]) {
    let line = said.expect_refusal();
    assert!(line.starts_with("teal: "), "{line}");
    for word in words {
        assert!(line.contains(word), "{word:?} is not in: {line}");
    }
}

fn str(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The program refuses, with these words, and the file keeps every byte.
#[track_caller]
fn refused_unchanged(world: &World, args: &[&str], file: &Path, words: &[&str]) {
    let before = digest(file);
    says(world.teal(args), words);
    assert_eq!(digest(file), before, "{} is unchanged", file.display());
}

#[test]
fn mkfs_does_not_overwrite_what_it_knows() {
    let world = World::without_mounts();
    let makers = [
        ("ext4", "mkfs.ext4 -q -F \"$1\"", "ext2/3/4"),
        ("xfs", "mkfs.xfs -q -f \"$1\"", "XFS"),
        ("btrfs", "mkfs.btrfs -q -f \"$1\"", "btrfs"),
        ("vfat", "mkfs.vfat \"$1\"", "FAT"),
        ("swap", "mkswap \"$1\"", "swap"),
        (
            "gpt",
            "echo 'label: gpt' | sfdisk -q \"$1\"",
            "partition table",
        ),
        (
            "mbr",
            "printf 'label: dos\\n,10M\\n' | sfdisk -q \"$1\"",
            "partition table",
        ),
    ];
    let mut seen = 0;
    for (name, script, what) in makers {
        let image = world.path(name);
        std::fs::File::create_new(&image)
            .unwrap()
            .set_len(400 << 20)
            .unwrap();
        if shell(&world, script, &[&image]).code != 0 {
            eprintln!("{name} cannot be made here");
            continue;
        }
        seen += 1;
        refused_unchanged(
            &world,
            &["mkfs", str(&image)],
            &image,
            &[str(&image), what, "--force"],
        );
        world
            .teal(&["mkfs", str(&image), "--force"])
            .expect_success();
        super::support::check(&world, &image);
    }
    assert!(seen >= 2, "ext4 and swap at least can be made anywhere");
    let ours = world.store("ours", "32M");
    refused_unchanged(
        &world,
        &["mkfs", str(&ours)],
        &ours,
        &[str(&ours), "TealFS", "--force"],
    );
    let text = world.path("thesis.txt");
    std::fs::write(&text, "years of work\n".repeat(2_000_000)).unwrap();
    refused_unchanged(
        &world,
        &["mkfs", str(&text)],
        &text,
        &[str(&text), "--force"],
    );
    let point = world.path("point");
    refused_unchanged(
        &world,
        &["up", str(&point), "--store", str(&text)],
        &text,
        &[str(&text)],
    );
}

#[test]
fn mkfs_refuses_sizes_and_labels_that_cannot_be() {
    let world = World::without_mounts();
    let new = world.path("new");
    let long = "l".repeat(65);
    let cases: [(&[&str], &[&str]); 5] = [
        (&["mkfs", str(&new), "--size", "1M"], &["16 MiB"]),
        (&["mkfs", str(&new), "--size", "16777215"], &["16 MiB"]),
        (&["mkfs", str(&new)], &["--size"]),
        (
            &["mkfs", str(&new), "--size", "32M", "--label", &long],
            &["64 bytes"],
        ),
        (
            &["mkfs", "/nowhere/at/all", "--size", "32M"],
            &["/nowhere/at/all"],
        ),
    ];
    for (args, words) in cases {
        says(world.teal(args), words);
        assert!(!new.exists(), "{args:?} leaves nothing behind");
    }
    for size in ["", "big", "1.5G", "3X", "99999999T"] {
        // Arguments that cannot be read are clap's: status 2 and a line of its own.
        let said = world.teal(&["mkfs", str(&new), "--size", size]);
        assert_eq!(said.code, 2, "{said}");
        assert!(said.stderr.contains("--size") && !new.exists(), "{said}");
    }
    world
        .teal(&["mkfs", str(&new), "--size", "16M", "--label", &long[1..]])
        .expect_success();
    super::support::check(&world, &new);
    says(
        world.teal(&["mkfs", str(&world.path("home")), "--size", "32M"]),
        &["home"],
    );
}

#[test]
fn mkfs_never_touches_a_mounted_device() {
    let test = "mkfs_never_touches_a_mounted_device";
    let Some(world) = World::new(test).filter(|_| has_loop_devices(test)) else {
        return;
    };
    let Some(private) = PrivateMounts::new(&world) else {
        return teal_testkit::skip_test(test, "mount namespaces cannot be made here");
    };
    // The loop device goes with its mount, and the mount with the namespace.
    let script = r#"
        mkdir point; truncate -s 64M image; mkfs.ext4 -q -F image
        mount -o loop image point
        device=$(losetup -n -O NAME -j image)
        echo keep > point/file; sync
        for force in "" --force; do
            if "$1" mkfs $device $force; then exit 66; fi
        done
        test "$(cat point/file)" = keep
        umount point
        mount -o loop image point; test "$(cat point/file)" = keep; umount point
        fsck.ext4 -f -n image > /dev/null 2>&1
    "#;
    let said = private.run(script, &[Path::new(env!("CARGO_BIN_EXE_teal"))]);
    assert_eq!(said.code, 0, "{said}");
    let lines: Vec<_> = said.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(
        lines
            .iter()
            .all(|line| line.contains("is mounted on") && line.contains("point")),
        "{said}"
    );
}

fn crc(block: &mut [u8; 4096]) {
    let mut crc = !0_u32;
    for byte in &block[..4092] {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    block[4092..].copy_from_slice(&(!crc).to_le_bytes());
}

/// Both copies of the superblock.
fn superblocks(store: &Path) -> [u64; 2] {
    [
        0,
        std::fs::metadata(store).unwrap().len() / 4096 * 4096 - 4096,
    ]
}

fn patch(store: &Path, places: &[u64], change: impl Fn(&mut [u8; 4096])) {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(store)
        .unwrap();
    for at in places {
        let mut block = [0; 4096];
        file.read_exact_at(&mut block, *at).unwrap();
        change(&mut block);
        file.write_all_at(&block, *at).unwrap();
    }
}

#[test]
fn images_that_are_no_good_are_named_and_left_alone() {
    let Some(mut m) = Mounted::new("images_that_are_no_good_are_named_and_left_alone", "32M")
    else {
        return;
    };
    std::fs::write(m.path("f"), "content").unwrap();
    m.down();
    let point = m.world().path("point");
    std::fs::create_dir(&point).unwrap();
    let (whole, nearby) = (m.store().to_owned(), m.world().path(""));
    let damage = |name: &str| -> PathBuf {
        let copy = nearby.join(name);
        std::fs::copy(&whole, &copy).unwrap();
        copy
    };
    let newer = damage("newer");
    patch(&newer, &superblocks(&newer), |block| {
        block[8] = 3;
        crc(block);
    });
    let older = damage("older");
    patch(&older, &superblocks(&older), |block| {
        block[8] = 1;
        crc(block);
    });
    let newer_too = damage("newer too");
    patch(&newer_too, &superblocks(&newer_too), |block| {
        block[7] = 2;
        block[8] = 3;
        crc(block);
    });
    let feature = damage("feature");
    patch(&feature, &superblocks(&feature), |block| {
        block[48] |= 0x40;
        crc(block);
    });
    let damaged = damage("damaged");
    patch(&damaged, &superblocks(&damaged), |block| block[100] ^= 1);
    let foreign = m.world().path("foreign");
    std::fs::write(&foreign, super::support::seeded(1, 32 << 20)).unwrap();
    let truncated = damage("truncated");
    let half = std::fs::metadata(&truncated).unwrap().len() / 2;
    std::fs::OpenOptions::new()
        .write(true)
        .open(&truncated)
        .unwrap()
        .set_len(half)
        .unwrap();
    let nothing = m.world().path("nothing");
    std::fs::write(&nothing, "").unwrap();
    for (image, words) in [
        (&newer, &["version 3"][..]),
        (&newer_too, &["version 3"]),
        (&older, &["version 1"]),
        (&feature, &["feature"]),
        (&damaged, &["damaged"]),
        (&foreign, &["TealFS"]),
        (&truncated, &[]),
        (&nothing, &[]),
    ] {
        let words = [&[str(image)], words].concat();
        refused_unchanged(
            m.world(),
            &["mount", str(image), str(&point)],
            image,
            &words,
        );
        refused_unchanged(
            m.world(),
            &["up", str(&point), "--store", str(image)],
            image,
            &words,
        );
        assert_eq!(std::fs::read_dir(&point).unwrap().count(), 0);
        let said = m.world().teal(&["check", str(image)]);
        assert_ne!(
            said.code,
            0,
            "check sees what is wrong with {}: {said}",
            image.display()
        );
    }
    for (n, at) in superblocks(m.store()).into_iter().enumerate() {
        // One superblock suffices.
        let half = damage(&format!("half{n}"));
        patch(&half, &[at], |block| block.fill(0x55));
        m.world()
            .teal(&["mount", str(&half), m.point().to_str().unwrap()])
            .expect_success();
        m.adopt();
        assert_eq!(std::fs::read(m.path("f")).unwrap(), b"content");
        m.down();
    }
}

#[test]
fn paths_that_cannot_be_are_named() {
    let Some(mut m) = Mounted::new("paths_that_cannot_be_are_named", "32M") else {
        return;
    };
    let world = World::without_mounts();
    let (store, point) = (world.store("s.teal", "32M"), world.path("point"));
    let (full, file) = (world.path("full"), world.path("file"));
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("something"), "").unwrap();
    std::fs::write(&file, "").unwrap();
    let (missing, home) = (world.path("missing"), world.path("home"));
    let cases: [(&[&str], &[&str]); 9] = [
        (&["mount", str(&missing), str(&home)], &[str(&missing)]),
        (
            &["mount", str(&store), str(&missing)],
            &[str(&missing), "does not exist"],
        ),
        (
            &["mount", str(&store), str(&full)],
            &[str(&full), "not empty"],
        ),
        (
            &["mount", str(&store), str(&file)],
            &[str(&file), "no directory"],
        ),
        (
            &["mount", str(&store), m.point().to_str().unwrap()],
            &[m.point().to_str().unwrap(), "already"],
        ),
        (
            &["up", str(&full), "--store", str(&store)],
            &[str(&full), "not empty"],
        ),
        (
            &["up", str(&file), "--store", str(&store)],
            &[str(&file), "no directory"],
        ),
        (
            &["up", m.point().to_str().unwrap(), "--store", str(&store)],
            &[m.point().to_str().unwrap(), "already"],
        ),
        (
            &["up", str(&point), "--store", str(&store), "--size", "1G"],
            &[str(&store), "--size"],
        ),
    ];
    for (args, words) in cases {
        refused_unchanged(&world, args, &store, words);
    }
    says(
        run_program(world.command(&["up"]).env("HOME", "here")),
        &["HOME", "here", "'/'"],
    );
    // Mounted twice, with other options.
    let twice = m.world().teal(&[
        "mount",
        m.store().to_str().unwrap(),
        str(&world.path("home")),
        "-o",
        "commit=9",
    ]);
    let words = ["in use", "without options", "the same options", "teal down"];
    says(
        twice,
        &[&[m.store().to_str().unwrap()], &words[..]].concat(),
    );
    says(
        m.world().teal(&["check", m.store().to_str().unwrap()]),
        &[m.store().to_str().unwrap(), "in use"],
    );
    says(
        m.world()
            .teal(&["mkfs", "--force", m.store().to_str().unwrap()]),
        &[m.store().to_str().unwrap(), "in use"],
    );
    // Busy.
    std::fs::write(m.path("f"), "x").unwrap();
    let open = std::fs::OpenOptions::new()
        .read(true)
        .open(m.path("f"))
        .unwrap();
    says(
        m.world().teal(&["down", m.point().to_str().unwrap()]),
        &[m.point().to_str().unwrap(), "fuser"],
    );
    assert_eq!(
        std::fs::read(m.path("f")).unwrap(),
        b"x",
        "a refused down changes nothing"
    );
    drop(open);
    m.down();
    m.check();
}

#[test]
fn words_that_are_unknown_are_answered_with_those_that_are_known() {
    let Some(m) = Mounted::new(
        "words_that_are_unknown_are_answered_with_those_that_are_known",
        "32M",
    ) else {
        return;
    };
    let world = World::without_mounts();
    let (store, point) = (world.store("s.teal", "32M"), world.path("point"));
    std::fs::create_dir(&point).unwrap();
    for (options, words) in [
        ("frobnicate", &["frobnicate", "known are", "noatime"][..]),
        ("noatime,commit=soon", &["commit=soon"]),
        ("threads=0", &["threads=0"]),
        ("salvage", &["ro"]),
        ("checkpoint_bytes=7Q", &["checkpoint_bytes=7Q"]),
    ] {
        refused_unchanged(
            &world,
            &["mount", str(&store), str(&point), "-o", options],
            &store,
            words,
        );
    }
    let mounted = m.point().to_str().unwrap();
    for (key, value, words) in [
        ("frobnicate", "1", &["frobnicate", "commit-seconds"][..]),
        ("commit-seconds", "0", &["commit-seconds", "between 1 and"]),
        ("commit-seconds", "4000", &["commit-seconds", "3600"]),
        ("commit-seconds", "soon", &["soon"]),
        ("checkpoint-bytes", "1", &["checkpoint-bytes", "between"]),
        ("clean-below-percent", "99", &["clean-below-percent", "50"]),
    ] {
        let before = m.status()["settings"].clone();
        says(
            m.world().teal(&["config", "set", key, value, mounted]),
            words,
        );
        assert_eq!(m.status()["settings"], before);
    }
    let nothing = str(&point);
    says(
        world.teal(&["config", "set", "commit-seconds", "1", nothing]),
        &[nothing, "nothing"],
    );
    says(
        world.teal(&["config", "ls", nothing]),
        &[nothing, "nothing"],
    );
    says(world.teal(&["status", nothing]), &[nothing, "nothing"]);
    says(world.teal(&["down", nothing]), &[nothing, "nothing"]);
    says(world.teal(&["down", "/proc"]), &["/proc", "not TealFS"]);
    assert!(
        world.teal(&["status"]).expect_success().contains("teal up"),
        "nothing is mounted: what begins is named"
    );
    assert_eq!(
        world.teal(&["status", "--json"]).expect_success().trim(),
        "[]"
    );
    says(
        world.teal(&["dump", str(&store), "everything"]),
        &["everything"],
    );
    says(world.teal(&["check", nothing]), &[nothing]);
}

#[test]
fn users_are_told_what_they_may_not() {
    let test = "users_are_told_what_they_may_not";
    if !is_user_able() {
        return teal_testkit::skip_test(test, "needs root and setpriv");
    }
    let world = World::open_to_all();
    let store = world.store("roots.teal", "32M");
    let nobody = |script: &str| {
        let script = format!(
            r#"mkdir -p mine/home mine/run mine/state mine/bin; cp "$1" mine/teal; chown -R 65534 mine
            export HOME=$PWD/mine/home XDG_RUNTIME_DIR=$PWD/mine/run XDG_STATE_HOME=$PWD/mine/state
            exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -c '{script}' sh "$2""#
        );
        shell(
            &world,
            &script,
            &[Path::new(env!("CARGO_BIN_EXE_teal")), &store],
        )
    };
    let before = digest(&store);
    says(
        nobody(r#"exec mine/teal mkfs --force "$1""#),
        &[str(&store), "ermission denied"],
    );
    says(
        nobody(r#"mkdir mine/t; exec mine/teal mount "$1" mine/t"#),
        &["ermission denied"],
    );
    says(
        nobody(r#"exec mine/teal mkfs ./new --size 32M"#),
        &["new", "ermission denied"],
    );
    assert_eq!(digest(&store), before);
    assert!(!world.path("new").exists());
    says(
        nobody(r#"exec mine/teal mkfs /proc/nothing --size 32M"#),
        &["/proc/nothing"],
    );
    says(
        nobody(r#"PATH=$PWD/mine/bin; exec mine/teal up mine/T --store mine/s --size 32M"#),
        &["fusermount3"],
    );
    assert!(
        find_program("fusermount3", &[]).is_some(),
        "the test before is about PATH"
    );
}

#[test]
fn without_dev_fuse_the_way_out_is_named() {
    let test = "without_dev_fuse_the_way_out_is_named";
    let Some(world) = World::new(test) else {
        return;
    };
    let Some(private) = PrivateMounts::new(&world) else {
        return teal_testkit::skip_test(test, "mount namespaces cannot be made here");
    };
    let store = world.store("s.teal", "32M");
    // An empty /dev but for the null device.
    let script = r#"
        mkdir dev point; mount -t tmpfs dev dev; mknod dev/null c 1 3; mount --rbind dev /dev
        shift; exec "$@"
    "#;
    let teal = Path::new(env!("CARGO_BIN_EXE_teal"));
    let before = digest(&store);
    let run = |args: &[&str]| {
        let _ = std::fs::remove_dir_all(world.path("point"));
        let _ = std::fs::remove_dir_all(world.path("dev"));
        let args: Vec<&Path> = [Path::new("-"), teal]
            .into_iter()
            .chain(args.iter().map(Path::new))
            .collect();
        private.run(script, &args)
    };
    says(
        run(&["up", "point", "--store", "s.teal"]),
        &["/dev/fuse", "module"],
    );
    says(run(&["mount", "s.teal", "point"]), &["/dev/fuse", "module"]);
    says(
        run(&["up", "elsewhere", "--store", "new.teal", "--size", "32M"]),
        &["/dev/fuse"],
    );
    assert_eq!(digest(&store), before);
    assert!(
        !world.path("new.teal").exists() && !world.path("elsewhere").exists(),
        "nothing is made in vain"
    );
}
