//! Modelled disks under the kernel's own file systems: what is logged, what comes back, what is
//! left behind.

use crate::support::{
    PATIENCE, ProgramOutput, World, find_program, has_loop_devices, run_program, wait_until,
};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A modelled disk in a world of its own; it goes with the test, and so does what is mounted from
/// it.
struct Emulated {
    world: World,
    device: PathBuf,
}

const NAME: &str = "tested";
const MICRODRIVE: [&str; 4] = ["--profile", "ibm-microdrive-1gb", "--size", "512M"];

impl Emulated {
    /// `None`, on record as skipped, where nothing can be mounted.
    fn new(test: &str, more: &[&str]) -> Option<Self> {
        if !has_loop_devices(test) {
            return None;
        }
        let mut this = Self {
            world: World::new(test)?,
            device: PathBuf::new(),
        };
        this.start(more).expect_success();
        Some(this)
    }

    fn start(&mut self, more: &[&str]) -> ProgramOutput {
        let said = self.lab(&[&["start"], &MICRODRIVE[..], more, &[NAME]].concat());
        self.device = said.stdout.trim().into();
        said
    }

    fn lab(&self, args: &[&str]) -> ProgramOutput {
        self.world.teal(&[&["lab", "disk"], args].concat())
    }

    fn stat(&self) -> Value {
        serde_json::from_str(&self.lab(&["stat", NAME, "--json"]).expect_success()).unwrap()
    }

    fn kill(&self) {
        let pid =
            Pid::from_raw(i32::try_from(self.stat()["pid"].as_i64().unwrap()).unwrap()).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        assert!(wait_until(PATIENCE, || rustix::process::test_kill_process(
            pid
        )
        .is_err()
            || is_zombie(pid)));
    }

    fn mounted(&self) -> PathBuf {
        let point = self.world.path("mnt");
        std::fs::create_dir_all(&point).unwrap();
        run_program(Command::new("mount").arg(&self.device).arg(&point)).expect_success();
        point
    }

    fn unmount(&self) {
        run_program(Command::new("umount").arg(self.world.path("mnt"))).expect_success();
    }

    /// The log: kind, sector, sectors.
    fn log(&self, file: &Path) -> Vec<(String, u64, u64)> {
        let said = self.lab(&["log", file.to_str().unwrap()]).expect_success();
        let lines = said.lines().filter(|line| !line.starts_with('#'));
        let words = lines.map(|line| line.split(' ').collect::<Vec<_>>());
        words
            .map(|w| {
                (
                    w[0].to_owned(),
                    w[1].parse().unwrap(),
                    w[2].parse().unwrap(),
                )
            })
            .collect()
    }
}

fn is_zombie(pid: Pid) -> bool {
    let stat =
        std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(')')
        .is_none_or(|(_, rest)| rest.starts_with(" Z"))
}

impl Drop for Emulated {
    fn drop(&mut self) {
        while rustix::mount::unmount(self.world.path("mnt"), UnmountFlags::DETACH).is_ok() {}
        // Mounts of a killed disk are gone with the first.
        for _ in 0..2 {
            if self.lab(&["stop", NAME]).code == 0 {
                return;
            }
        }
    }
}

/// The kernel's own list of the requests it issues to one device.
struct Issued {
    tracefs: tempfile::TempDir,
    instance: PathBuf,
}

impl Issued {
    /// `None` where there is no tracefs.
    fn new(device: &Path) -> Option<Self> {
        let tracefs = tempfile::tempdir().unwrap();
        let done = Command::new("mount")
            .args(["-t", "tracefs", "none"])
            .arg(tracefs.path())
            .status()
            .unwrap();
        if !done.success() {
            return None;
        }
        let instance = tracefs
            .path()
            .join(format!("instances/teal-{}", std::process::id()));
        let this = Self { tracefs, instance };
        std::fs::create_dir(&this.instance).ok()?;
        let event = this.instance.join("events/block/block_rq_issue");
        let rdev = std::os::unix::fs::MetadataExt::rdev(&std::fs::metadata(device).unwrap());
        let dev = rustix::fs::major(rdev) << 20 | rustix::fs::minor(rdev);
        std::fs::write(event.join("filter"), format!("dev == {dev}")).ok()?;
        std::fs::write(event.join("enable"), "1").ok()?;
        Some(this)
    }

    /// Without requests to zero, which a loop device announces and the disk refuses as one without
    /// that command would: the kernel writes zeros then. Kind, sector, sectors, in the order of
    /// issue: `7,0 WS 4096 () 128 + 8 be,0,4 [fio]`.
    fn list(&self) -> Vec<(String, u64, u64)> {
        let text = std::fs::read_to_string(self.instance.join("trace")).unwrap();
        let lines = text
            .lines()
            .filter_map(|line| line.split_once("block_rq_issue: "));
        lines
            .filter(|(_, line)| !line.split_whitespace().nth(1).unwrap().starts_with('N'))
            .map(|(_, line)| {
                let words: Vec<_> = line.split_whitespace().collect();
                let plus = words.iter().position(|word| *word == "+").unwrap();
                let (at, count): (u64, u64) = (
                    words[plus - 1].parse().unwrap(),
                    words[plus + 1].parse().unwrap(),
                );
                match words[1] {
                    flags if flags.starts_with('R') => ("read".to_owned(), at, count),
                    flags if flags.starts_with('W') => ("write".to_owned(), at, count),
                    flags if flags.starts_with('F') => ("flush".to_owned(), 0, 0),
                    flags => (flags.to_owned(), at, count),
                }
            })
            .collect()
    }
}

impl Drop for Issued {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.instance);
        let _ = rustix::mount::unmount(self.tracefs.path(), UnmountFlags::DETACH);
    }
}

fn mkfs(kind: &str, device: &Path) {
    let force = if kind == "xfs" { "-f" } else { "-F" };
    run_program(
        Command::new(format!("mkfs.{kind}"))
            .args(["-q", force])
            .arg(device),
    )
    .expect_success();
}

#[test]
fn requests_are_logged_as_the_kernel_issues_them() {
    let test = "requests_are_logged_as_the_kernel_issues_them";
    let log = tempfile::NamedTempFile::new().unwrap();
    let Some(disk) = Emulated::new(test, &["--log", log.path().to_str().unwrap()]) else {
        return;
    };
    let Some(issued) = Issued::new(&disk.device) else {
        return teal_testkit::skip_test(test, "tracefs cannot be used");
    };
    disk.lab(&["mark", NAME, "begin"]).expect_success();
    mkfs("ext4", &disk.device);
    let point = disk.mounted();
    for n in 0..40 {
        let path = point.join(format!("file-{n}"));
        std::fs::write(&path, vec![n; usize::from(n) * 10_000 + 1]).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.sync_all().unwrap();
    }
    disk.unmount();
    disk.lab(&["mark", NAME, "end"]).expect_success();
    let theirs = issued.list();
    let ours = disk
        .log(log.path())
        .into_iter()
        .skip_while(|(kind, ..)| kind != "mark")
        .skip(1);
    let ours: Vec<_> = ours.take_while(|(kind, ..)| kind != "mark").collect();
    assert!(theirs.len() > 100, "{theirs:?}");
    for kind in ["read", "write", "flush"] {
        assert!(
            theirs.iter().any(|(k, ..)| k == kind),
            "no {kind} in {theirs:?}"
        );
    }
    let at = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
    let around = |list: &[(String, u64, u64)]| {
        format!(
            "{:?}",
            list.iter()
                .skip(at.saturating_sub(3))
                .take(9)
                .collect::<Vec<_>>()
        )
    };
    assert_eq!(
        ours,
        theirs,
        "from request {at} on: {} here, {} there",
        around(&ours),
        around(&theirs)
    );
}

/// fio writes, the file system is mounted anew, fio verifies; the file system's own check agrees.
fn verified_on(kind: &str, check: &[&str]) {
    let test = format!("verified_on_{kind}");
    let Some(disk) = Emulated::new(&test, &["--spin-down", "5"]) else {
        return;
    };
    let check_program = find_program(check[0], &[]);
    if find_program("fio", &[]).is_none()
        || find_program(&format!("mkfs.{kind}"), &[]).is_none()
        || check_program.is_none()
    {
        return teal_testkit::skip_test(
            &test,
            "fio, mkfs or the check of the file system is missing",
        );
    }
    mkfs(kind, &disk.device);
    let fio = |point: &Path, how: &str| {
        let jobs = format!(
            "[global]\nverify=crc32c\nverify_fatal=1\nsize=16m\nrandseed=7\ndirectory={}\n\
             [random]\nrw=randwrite\nbsrange=1k-64k\nbs_unaligned=1\nfsync=64\n\
             [direct]\nrw=randwrite\nbsrange=4k-128k\ndirect=1\nfsync=64\n\
             [sequential]\nrw=write\nbs=64k\nend_fsync=1\n",
            point.display()
        );
        let file = disk.world.path("jobs.fio");
        std::fs::write(&file, jobs).unwrap();
        run_program(
            Command::new("fio")
                .arg(how)
                .arg(&file)
                .current_dir(disk.world.path("")),
        )
    };
    let point = disk.mounted();
    fio(&point, "--do_verify=1").expect_success();
    disk.unmount();
    let point = disk.mounted();
    fio(&point, "--verify_only").expect_success();
    disk.unmount();
    run_program(
        Command::new(check_program.unwrap())
            .args(&check[1..])
            .arg(&disk.device),
    )
    .expect_success();
    let total = &disk.stat()["total"];
    assert!(
        total["bytes_written"].as_u64().unwrap() > 48 << 20,
        "{total}"
    );
    assert!(total["flushes"].as_u64().unwrap() > 5, "{total}");
    disk.lab(&["stop", NAME]).expect_success();
}

#[test]
fn ext4_passes_fio_verify() {
    verified_on("ext4", &["e2fsck", "-fn"]);
}

#[test]
fn xfs_passes_fio_verify() {
    verified_on("xfs", &["xfs_repair", "-n"]);
}

#[test]
fn accounts_add_up_and_begin_anew_at_a_mark() {
    let Some(disk) = Emulated::new(
        "accounts_add_up_and_begin_anew_at_a_mark",
        &["--cache", "off"],
    ) else {
        return;
    };
    let dd = |args: &[&str]| {
        run_program(
            Command::new("dd")
                .args(args)
                .arg(format!("of={}", disk.device.display())),
        )
        .expect_success()
    };
    dd(&["if=/dev/zero", "bs=64k", "count=16", "oflag=direct"]);
    disk.lab(&["mark", NAME, "second phase"]).expect_success();
    dd(&[
        "if=/dev/zero",
        "bs=4k",
        "count=10",
        "seek=5000",
        "oflag=direct",
    ]);
    disk.lab(&["idle", NAME, "100"]).expect_success();
    let stat = disk.stat();
    let (total, since) = (&stat["total"], &stat["since_mark"]);
    assert_eq!(
        (&stat["mark"], &stat["modelled_by"]),
        (&"second phase".into(), &"ibm-microdrive-1gb".into())
    );
    assert_eq!(
        (&since["writes"], &since["bytes_written"], &since["seeks"]),
        (&10.into(), &40960.into(), &1.into())
    );
    // Making the device flushes once; a disk without a cache is not flushed for its writes.
    assert_eq!(
        (&total["writes"], &total["flushes"]),
        (&26.into(), &1.into())
    );
    assert_eq!(since["flushes"], 0);
    let number = |of: &Value, what: &str| of[what].as_u64().unwrap();
    for sums in [total, since] {
        let uses = sums["uses"].as_array().unwrap();
        assert_eq!(
            number(sums, "microjoules"),
            uses.iter()
                .map(|used| number(used, "microjoules"))
                .sum::<u64>()
        );
        assert_eq!(
            number(sums, "elapsed_ns"),
            uses.iter().map(|used| number(used, "ns")).sum::<u64>()
        );
    }
    // The same over time, since the mark.
    let bins = since["power"]["microjoules"].as_array().unwrap();
    let (width, elapsed) = (
        number(&since["power"], "bin_ns"),
        number(since, "elapsed_ns"),
    );
    assert_eq!(
        bins.iter().map(|bin| bin.as_u64().unwrap()).sum::<u64>(),
        number(since, "microjoules")
    );
    assert_eq!(
        (bins.len() as u64, total["power"].is_null()),
        (elapsed.div_ceil(width), true)
    );
    assert!(
        (33..=64).contains(&bins.len()) && width.is_multiple_of(1_000_000),
        "{since}"
    );
    // Whatever it did, it did in the first two seconds; then it rested at 222 mW.
    let rests = bins[1..bins.len() - 1]
        .iter()
        .map(|bin| bin.as_u64().unwrap());
    assert!(
        rests
            .clone()
            .all(|bin| bin.abs_diff(width * 222 / 1_000_000) <= 1),
        "{since}"
    );
    assert!(
        bins[0].as_u64().unwrap() > width * 223 / 1_000_000,
        "{since}"
    );
    // 100 s at 222 mW, a seek, and ten writes of which nine just missed their place: a turn each.
    let joules = number(since, "microjoules") as f64 / 1e6;
    assert!((22.2 + 0.08..22.2 + 0.13).contains(&joules), "{joules} J");
    let text = disk.lab(&["stat", NAME]).expect_success();
    assert!(
        text.contains("modelled by ibm-microdrive-1gb") && text.contains("assumed"),
        "{text}"
    );
    assert!(text.contains("power     0.222 to "), "{text}");
    assert!(
        disk.lab(&["ls"])
            .expect_success()
            .starts_with("tested: ibm-microdrive-1gb on /dev/loop")
    );
    disk.lab(&["sleep", NAME]).expect_success();
    assert_eq!(disk.stat()["state"], "asleep");
}

#[test]
fn in_real_time_requests_take_what_the_drive_takes() {
    let Some(disk) = Emulated::new(
        "in_real_time_requests_take_what_the_drive_takes",
        &["--real-time"],
    ) else {
        return;
    };
    let device = std::fs::OpenOptions::new()
        .read(true)
        .open(&disk.device)
        .unwrap();
    let begin = teal_env::Clock::monotonic_time(&teal_env::SystemClock);
    for n in 0..20_u64 {
        // Cached by the kernel or not: no page is asked for twice.
        std::os::unix::fs::FileExt::read_exact_at(
            &device,
            &mut [0; 512],
            (n * 7919 % 100) * 4_000_000,
        )
        .unwrap();
    }
    let took = teal_env::Clock::monotonic_time(&teal_env::SystemClock) - begin;
    assert!(
        took.as_millis() >= 20 * 12,
        "20 seeks of 12 ms took {took:?}"
    );
    drop(device);
    disk.lab(&["stop", NAME]).expect_success();
}

#[test]
fn a_killed_disk_leaves_nothing_behind() {
    let Some(mut disk) = Emulated::new("a_killed_disk_leaves_nothing_behind", &[]) else {
        return;
    };
    let devices =
        || run_program(Command::new("losetup").args(["-n", "-O", "BACK-FILE"])).expect_success();
    let place = disk.world.path("run/teal/disks").join(NAME);
    mkfs("ext4", &disk.device);
    let point = disk.mounted();
    std::fs::write(point.join("file"), "gone with the disk").unwrap();
    let busy = disk.lab(&["stop", NAME]).expect_refusal();
    assert!(busy.contains("in use"), "{busy}");
    disk.kill();
    assert!(
        disk.lab(&["ls"])
            .expect_success()
            .contains("its process is gone")
    );
    // The next start of the name clears up what the file system on it held.
    disk.start(&[]).expect_success();
    assert_eq!(disk.stat()["total"]["writes"], 0);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(point.to_str().unwrap()), "{mounts}");
    disk.kill();
    disk.lab(&["stop", NAME]).expect_success();
    assert!(!place.exists());
    let gone = wait_until(PATIENCE, || !devices().contains(place.to_str().unwrap()));
    assert!(gone, "{}", devices());
    assert!(disk.lab(&["ls"]).expect_success().is_empty());
}

#[test]
fn bad_input_is_one_line() {
    let world = World::without_mounts();
    let start = |profile: &str, size: &str, name: &str| {
        world
            .teal(&[
                "lab",
                "disk",
                "start",
                "--profile",
                profile,
                "--size",
                size,
                name,
            ])
            .expect_refusal()
    };
    assert!(start("ibm-microdrive-2gb", "1M", "a").contains("did you mean ibm-microdrive-1gb?"));
    assert!(start("microdrive", "1M", "a").contains("did you mean ibm-microdrive-1gb?"));
    assert!(start("samsung-850-pro", "1M", "a").contains("no spinning disk"));
    assert!(start("ibm-microdrive-1gb", "0", "a").contains("above zero"));
    assert!(start("ibm-microdrive-1gb", "1G", "a").contains("holds 1000000000 bytes"));
    assert!(start("ibm-microdrive-1gb", "1M", "a/b").contains("no name for a disk"));
    assert!(start("./missing.toml", "1M", "a").contains("missing.toml"));
    for command in ["stat", "stop", "sleep"] {
        assert!(
            world
                .teal(&["lab", "disk", command, "nobody"])
                .expect_refusal()
                .contains("there is no disk nobody")
        );
    }
    let foreign = world.path("foreign");
    std::fs::write(&foreign, "no log").unwrap();
    assert!(
        world
            .teal(&["lab", "disk", "log", foreign.to_str().unwrap()])
            .expect_refusal()
            .contains("no log")
    );
}

#[test]
fn a_device_that_somebody_made_read_only_before_can_be_written() {
    let test = "a_device_that_somebody_made_read_only_before_can_be_written";
    let mut marked = Marked(Vec::new());
    // Which device comes next is the kernel's choice; mostly it is the one that has just gone.
    for _ in 0..3 {
        let Some(disk) = Emulated::new(test, &[]) else {
            return;
        };
        let name = disk.device.file_name().unwrap();
        let mark =
            std::fs::read_to_string(Path::new("/sys/class/block").join(name).join("ro")).unwrap();
        assert_eq!(mark.trim(), "0");
        mkfs("ext4", &disk.device);
        marked.0.push(disk.device.clone());
        run_program(Command::new("blockdev").arg("--setro").arg(&disk.device)).expect_success();
    }
}

/// Devices that get their marks taken off again: they are the machine's.
struct Marked(Vec<PathBuf>);

impl Drop for Marked {
    fn drop(&mut self) {
        for device in &self.0 {
            let _ = Command::new("blockdev").arg("--setrw").arg(device).status();
        }
    }
}

#[test]
fn a_name_is_taken_once() {
    let Some(mut disk) = Emulated::new("a_name_is_taken_once", &[]) else {
        return;
    };
    let device = disk.device.clone();
    assert!(
        disk.start(&[])
            .expect_refusal()
            .contains("there is a disk tested already")
    );
    disk.device = device;
    assert!(
        disk.stat()["device"]
            .as_str()
            .unwrap()
            .starts_with("/dev/loop")
    );
}

/// Ends with the test.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_client_of_the_network_protocol_is_served_and_logged() {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    let world = World::without_mounts();
    let log = world.path("log");
    let fixed = [
        "lab",
        "disk",
        "nbd",
        "--listen",
        "127.0.0.1:0",
        "--log",
        log.to_str().unwrap(),
    ];
    let mut command = world.command(&[&fixed, &MICRODRIVE[..]].concat());
    let mut server = Child(
        command
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(server.0.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let address = lines
        .next()
        .unwrap()
        .strip_prefix("serving on ")
        .unwrap()
        .to_owned();
    let mut client = std::net::TcpStream::connect(&address).unwrap();
    let request = |kind: u16, offset: u64, length: u32| {
        let place = [&offset.to_be_bytes()[..], &length.to_be_bytes()].concat();
        [
            &0x2560_9513_u32.to_be_bytes()[..],
            &[0; 2],
            &kind.to_be_bytes(),
            &[7; 8],
            &place,
        ]
        .concat()
    };
    client
        .write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0")
        .unwrap();
    client
        .write_all(
            &[
                &request(1, 1 << 20, 4096)[..],
                &[9; 4096],
                &request(3, 0, 0),
                &request(0, 1 << 20, 4096),
            ]
            .concat(),
        )
        .unwrap();
    let mut answers = vec![0; 18 + 10 + 3 * 16 + 4096];
    client.read_exact(&mut answers).unwrap();
    assert_eq!(answers[answers.len() - 4096..], [9; 4096]);
    client.write_all(&request(2, 0, 0)).unwrap();
    let said = lines.next().unwrap();
    assert!(
        said.contains("1 reads (4.0 KiB), 1 writes (4.0 KiB), 1 flushes"),
        "{said}"
    );
    let logged = world
        .teal(&["lab", "disk", "log", log.to_str().unwrap()])
        .expect_success();
    let kinds: Vec<_> = logged
        .lines()
        .skip(2)
        .map(|line| line.split(' ').take(3).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(kinds, ["write 2048 8", "flush 0 0", "read 2048 8"]);
}
