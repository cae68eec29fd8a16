//! A store is open for writing once: under whichever name, and on whichever machine.

use super::support::{
    Mounted, PrivateMounts, ProgramOutput, TestLoopDevice, World, has_loop_devices, run_program,
};
use std::path::{Path, PathBuf};

/// A loop device with these options of losetup(8).
fn looped(image: &Path, options: &[&str]) -> (PathBuf, Detach) {
    let mut command = std::process::Command::new("losetup");
    let said =
        run_program(command.args(["--find", "--show"]).args(options).arg(image)).expect_success();
    let device = PathBuf::from(said.trim());
    (device.clone(), Detach(device))
}

struct Detach(PathBuf);

impl Drop for Detach {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup")
            .arg("--detach")
            .arg(&self.0)
            .status();
    }
}

fn mount(world: &World, store: &Path, point: &str) -> ProgramOutput {
    let point = world.path(point);
    std::fs::create_dir_all(&point).unwrap();
    world.teal(&["mount".as_ref(), store.as_os_str(), point.as_os_str()])
}

#[track_caller]
fn down(world: &World, point: &str) {
    world
        .teal(&["down".as_ref(), world.path(point).as_os_str()])
        .expect_success();
}

/// Mounting is refused, and so is everything else that would take the store for itself; nothing is
/// changed by that.
#[track_caller]
fn is_refused(world: &World, store: &Path) {
    let name = store.to_str().unwrap();
    for said in [
        mount(world, store, "second"),
        mount(world, store, "second"),
        world.teal(&["mkfs", name, "--force"]),
        world.teal(&["check", name]),
    ] {
        assert!(
            said.code != 0 && said.to_string().contains("in use"),
            "{name}: {said}"
        );
    }
}

fn write_synced(path: &Path, content: &[u8]) {
    let mut file = std::fs::File::create_new(path).unwrap();
    std::io::Write::write_all(&mut file, content).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn a_loop_device_over_a_mounted_store_is_refused_and_every_fsynced_file_stays() {
    let test = "a_loop_device_over_a_mounted_store_is_refused_and_every_fsynced_file_stays";
    let Some(world) = World::new(test).filter(|_| has_loop_devices(test)) else {
        return;
    };
    let mut m = Mounted::of(world, "64M");
    let (link, symlink) = (m.world().path("hard link"), m.world().path("symlink"));
    std::fs::hard_link(m.store(), &link).unwrap();
    std::os::unix::fs::symlink(m.store(), &symlink).unwrap();
    let over = [
        TestLoopDevice::attach_to(m.store()),
        TestLoopDevice::attach_to(&link),
        TestLoopDevice::attach_to(&symlink),
    ];
    let stacked = TestLoopDevice::attach_to(over[0].path());
    let (shifted, _detach) = looped(m.store(), &["--offset", "512"]);
    for round in 0..2 {
        write_synced(
            &m.path(format!("f{round}")),
            &super::support::seeded(round, 100_000),
        );
        for device in over
            .iter()
            .chain([&stacked])
            .map(TestLoopDevice::path)
            .chain([&*shifted])
        {
            is_refused(m.world(), device);
        }
        // Other names of the file lead to the mount that is there.
        for name in [&*link, &*symlink] {
            mount(m.world(), name, "second").expect_success();
            let there = m.world().path("second").join(format!("f{round}"));
            assert!(there.exists());
            down(m.world(), "second");
        }
    }
    m.remount();
    for round in 0..2 {
        assert!(
            std::fs::read(m.path(format!("f{round}"))).unwrap()
                == super::support::seeded(round, 100_000),
            "f{round}"
        );
    }
    m.down();
    m.check();
}

#[test]
fn a_store_mounted_through_a_loop_device_is_refused_under_its_other_names() {
    let test = "a_store_mounted_through_a_loop_device_is_refused_under_its_other_names";
    let Some(world) = World::new(test).filter(|_| has_loop_devices(test)) else {
        return;
    };
    let store = world.store("store.teal", "64M");
    let (one, other) = (
        TestLoopDevice::attach_to(&store),
        TestLoopDevice::attach_to(&store),
    );
    let stacked = TestLoopDevice::attach_to(one.path());
    for device in [one.path(), stacked.path()] {
        mount(&world, device, "first").expect_success();
        is_refused(&world, &store);
        is_refused(&world, other.path());
        down(&world, "first");
        super::support::check(&world, &store);
    }
    mount(&world, &store, "first").expect_success();
    down(&world, "first");
}

/// Two stores in two parts of one file, under two names each, go together, and each only once.
#[track_caller]
fn parts_go_together_and_each_only_once(
    world: &World,
    image: &Path,
    first: [&Path; 2],
    other: [&Path; 2],
) {
    for device in [first[0], other[1]] {
        world
            .teal(&["mkfs".as_ref(), device.as_os_str()])
            .expect_success();
    }
    mount(world, first[0], "first").expect_success();
    mount(world, other[0], "other").expect_success();
    for taken in [first[1], other[1]] {
        is_refused(world, taken);
    }
    // A process that takes the whole file takes the parts; reading it takes nothing.
    for said in [
        mount(world, image, "second"),
        world.teal(&["mkfs", image.to_str().unwrap(), "--force"]),
    ] {
        assert!(
            said.code != 0 && said.to_string().contains("in use"),
            "{said}"
        );
    }
    for point in ["first", "other"] {
        write_synced(&world.path(point).join("f"), b"content");
        down(world, point);
    }
    for device in [first[1], other[1]] {
        super::support::check(world, device);
    }
}

#[test]
fn stores_in_separate_parts_of_one_file_are_mounted_together_and_each_only_once() {
    let test = "stores_in_separate_parts_of_one_file_are_mounted_together_and_each_only_once";
    let Some(world) = World::new(test).filter(|_| has_loop_devices(test)) else {
        return;
    };
    let image = world.path("disk.img");
    std::fs::File::create_new(&image)
        .unwrap()
        .set_len(66 << 20)
        .unwrap();
    let part = |mib: u64| {
        looped(
            &image,
            &[
                "--offset",
                &(mib << 20).to_string(),
                "--sizelimit",
                "33554432",
            ],
        )
    };
    let parts = [part(1), part(1), part(33), part(33)];
    let [a, b, c, d] = parts.each_ref().map(|(device, _)| device.as_path());
    parts_go_together_and_each_only_once(&world, &image, [a, b], [c, d]);
    // A part that overlaps both.
    mount(&world, a, "first").expect_success();
    is_refused(&world, &part(16).0);
    down(&world, "first");
}

#[test]
fn stores_in_partitions_of_a_loop_device_are_mounted_together_and_each_only_once() {
    let test = "stores_in_partitions_of_a_loop_device_are_mounted_together_and_each_only_once";
    let Some(world) = World::new(test).filter(|_| has_loop_devices(test)) else {
        return;
    };
    let image = world.path("disk.img");
    let file = std::fs::File::create_new(&image).unwrap();
    file.set_len(66 << 20).unwrap();
    // Two partitions of 32 MiB behind the first MiB.
    let mut table = [0; 512];
    for (entry, start) in [(446, 2048_u32), (462, 2048 + (32 << 11))] {
        table[entry + 4] = 0x83;
        table[entry + 8..entry + 12].copy_from_slice(&start.to_le_bytes());
        table[entry + 12..entry + 16].copy_from_slice(&(32_u32 << 11).to_le_bytes());
    }
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    std::os::unix::fs::FileExt::write_all_at(&file, &table, 0).unwrap();
    let disks = [
        looped(&image, &["--partscan"]),
        looped(&image, &["--partscan"]),
    ];
    let part =
        |disk: usize, number: u32| PathBuf::from(format!("{}p{number}", disks[disk].0.display()));
    if ![part(0, 2), part(1, 2)].iter().all(|part| part.exists()) {
        return teal_testkit::skip_test(
            test,
            "the kernel shows no partitions of loop devices here",
        );
    }
    let [a, b, c, d] = [part(0, 1), part(1, 1), part(0, 2), part(1, 2)];
    parts_go_together_and_each_only_once(&world, &image, [&a, &b], [&c, &d]);
}

/// Runs a script where machine, boot and name are others: as on another machine that sees the same
/// files.
fn elsewhere(
    world: &World,
    machine: u32,
    boot: u32,
    script: &str,
    args: &[&Path],
) -> ProgramOutput {
    let id = |number: u32| format!("{number:032x}\n");
    for (file, number) in [("machine-id", machine), ("boot-id", boot)] {
        std::fs::write(world.path(file), id(number)).unwrap();
    }
    let script = format!(
        r#"hostname "machine-{machine}"; mount --bind machine-id /etc/machine-id
        mount --bind boot-id /proc/sys/kernel/random/boot_id
        # Daemons of one machine do not hear from another one.
        export XDG_RUNTIME_DIR="$PWD/run-{machine}"; mkdir -p "$XDG_RUNTIME_DIR"
        teal="$1"; store="$2"; shift 2; mkdir -p point
        daemon() {{ "$teal" status --json "$PWD/point" | sed -n 's/.*"pid": \([0-9]*\).*/\1/p'; }}
        {script}"#
    );
    let mut command = std::process::Command::new("unshare");
    command
        .args([
            "--mount",
            "--uts",
            "sh",
            "-e",
            "-c",
            &script,
            "sh",
            super::support::TEAL,
        ])
        .args(args);
    run_program(world.furnish(&mut command))
}

fn has_other_machines(test: &str) -> bool {
    let can = std::process::Command::new("unshare")
        .args(["--mount", "--uts", "true"])
        .output();
    let can = can.is_ok_and(|said| said.status.success()) && Path::new("/etc/machine-id").exists();
    if !can {
        teal_testkit::skip_test(
            test,
            "namespaces cannot be made here, or the system has no /etc/machine-id",
        );
    }
    can
}

/// Writes a synced file and dies with the store open.
const WRITE_AND_DIE: &str = r#"
    "$teal" mount "$store" "$PWD/point"
    echo content > point/f; sync point/f
    pid=$(daemon); kill -9 "$pid"
    while [ -d "/proc/$pid" ]; do :; done
    umount -l point
"#;

#[test]
fn a_store_that_another_machine_has_open_is_refused_until_it_is_taken_over() {
    let test = "a_store_that_another_machine_has_open_is_refused_until_it_is_taken_over";
    let Some(world) = World::new(test).filter(|_| has_other_machines(test)) else {
        return;
    };
    let store = world.store("store.teal", "64M");
    elsewhere(&world, 1, 1, WRITE_AND_DIE, &[&store]).expect_success();
    let point = world.path("here");
    for command in [
        vec!["mount", store.to_str().unwrap(), point.to_str().unwrap()],
        vec![
            "up",
            point.to_str().unwrap(),
            "--store",
            store.to_str().unwrap(),
        ],
    ] {
        std::fs::create_dir_all(&point).unwrap();
        let said = world.teal(&command);
        let words = said.to_string();
        assert!(
            said.code != 0 && words.contains("machine-1") && words.contains("--take-over"),
            "{said}"
        );
    }
    // Looking at it is allowed.
    super::support::check(&world, &store);
    let path = [store.to_str().unwrap(), point.to_str().unwrap()];
    world
        .teal(&["mount", path[0], path[1], "-o", "ro"])
        .expect_success();
    assert_eq!(std::fs::read(point.join("f")).unwrap(), b"content\n");
    down(&world, "here");
    let said = world.teal(&["mount", path[0], path[1]]);
    assert!(said.code != 0, "looking at it takes no mark away: {said}");
    world
        .teal(&["mount", path[0], path[1], "--take-over"])
        .expect_success();
    assert_eq!(std::fs::read(point.join("f")).unwrap(), b"content\n");
    write_synced(&point.join("g"), b"more");
    let said = elsewhere(
        &world,
        1,
        1,
        r#""$teal" mount "$store" "$PWD/point""#,
        &[&store],
    );
    assert!(said.code != 0, "it is in use here: {said}");
    down(&world, "here");
    // The store was closed, so it need not be taken over.
    elsewhere(
        &world,
        1,
        1,
        r#""$teal" mount "$store" "$PWD/point"; cat point/g; "$teal" down "$PWD/point""#,
        &[&store],
    )
    .expect_success();
    super::support::check(&world, &store);
}

#[test]
fn the_same_machine_goes_on_after_a_crash_without_a_word_in_another_life_too() {
    let test = "the_same_machine_goes_on_after_a_crash_without_a_word_in_another_life_too";
    let Some(world) = World::new(test).filter(|_| has_other_machines(test)) else {
        return;
    };
    let store = world.store("store.teal", "64M");
    const LOOK: &str = r#""$teal" mount "$store" "$PWD/point"; grep -q content point/f; "$teal" down "$PWD/point""#;
    for boot in 1..3 {
        elsewhere(&world, 1, boot, WRITE_AND_DIE, &[&store]).expect_success();
    }
    elsewhere(&world, 1, 3, LOOK, &[&store]).expect_success();
    // Closed, though nothing was changed by the last one.
    elsewhere(&world, 2, 4, LOOK, &[&store]).expect_success();
    // A life that only looks leaves no mark, however it ends.
    let looks = WRITE_AND_DIE.replace("echo content > point/f; sync point/f", "cat point/f");
    elsewhere(&world, 2, 4, &looks, &[&store]).expect_success();
    elsewhere(&world, 1, 3, LOOK, &[&store]).expect_success();
}

#[test]
fn a_store_that_appears_is_free_for_everybody_beside_daemons_that_look_for_drives() {
    let test = "a_store_that_appears_is_free_for_everybody_beside_daemons_that_look_for_drives";
    let Some(world) = World::new(test) else {
        return;
    };
    let Some(private) = PrivateMounts::new(&world) else {
        return teal_testkit::skip_test(test, "mount namespaces cannot be made here");
    };
    // In a namespace of its own: no other daemon looks.
    let script = r#"
        teal="$1"; mkdir from to here
        for name in one two; do
            "$teal" up "$PWD/$name" --store "$PWD/$name.teal" --size 64M
            "$teal" serve "$PWD/$name" --store "$PWD/$name.teal" --listen 127.0.0.1:0 --device "$name"
        done
        "$teal" mkfs from/s.teal --size 64M
        for round in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do
            mount --bind from to
            if test $((round % 2)) = 0; then
                "$teal" check to/s.teal
            else
                "$teal" mount to/s.teal "$PWD/here"
                "$teal" down "$PWD/here"
            fi
            # A daemon that looks has the file open for a moment.
            for try in $(seq 200); do
                if umount to; then break; fi
                sleep 0.1
            done
            not mountpoint -q to
        done
        "$teal" down "$PWD/one"; "$teal" down "$PWD/two"
    "#;
    private
        .run(script, &[Path::new(super::support::TEAL)])
        .expect_success();
}
