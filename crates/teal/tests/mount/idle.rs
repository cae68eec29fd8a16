//! A mounted store that is not used: no I/O on the device below it, and a daemon that does not even
//! wake up.

use super::support::{
    Mounted, PATIENCE, TestLoopDevice, TestMount, World, fill, has_loop_devices, is_long, let_pass,
    wait_until,
};
use std::path::Path;
use std::time::Duration;

/// A number for everything that could move: I/O of the process and of the device below, wake-ups of
/// each thread.
fn traces(pid: i32, device: Option<&Path>) -> Vec<(String, u64)> {
    let numbers = |path: String, wanted: fn(&str) -> bool| {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .filter(move |(name, _)| wanted(name));
        lines
            .map(|(name, n)| (format!("{path} {name}"), n.trim().parse().unwrap()))
            .collect::<Vec<_>>()
    };
    let mut all = numbers(format!("/proc/{pid}/io"), |_| true);
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let task = task.unwrap().path().join("status");
        all.extend(numbers(task.to_str().unwrap().to_owned(), |name| {
            name.ends_with("ctxt_switches")
        }));
    }
    if let Some(device) = device {
        let stat = Path::new("/sys/class/block")
            .join(device.file_name().unwrap())
            .join("stat");
        let stat = std::fs::read_to_string(stat).unwrap();
        all.extend(
            stat.split_whitespace()
                .enumerate()
                .map(|(n, field)| (format!("device {n}"), field.parse().unwrap())),
        );
    }
    all
}

/// The kernel's requests: a program that looks at all mounts of the machine looks at this one, too.
fn requests(m: &Mounted) -> (String, String) {
    let status = m.status();
    (
        status["requests"].to_string(),
        status["counters"].to_string(),
    )
}

/// Another file system is there.
fn mounted_beside(m: &Mounted) -> TestMount {
    let point = m.world().path("other");
    let _ = std::fs::create_dir(&point);
    rustix::mount::mount(
        "none",
        &point,
        "tmpfs",
        rustix::mount::MountFlags::empty(),
        None,
    )
    .unwrap();
    TestMount(point)
}

/// Lets `time` go by, with something in the middle that is not to concern the mount. The traces
/// with `part` in their names must be those of before, unless another program asked the mount for
/// something meanwhile. Returns whether none did.
fn stays_silent(
    m: &Mounted,
    device: Option<&Path>,
    (time, part): (Duration, &str),
    middle: impl FnOnce(),
) -> bool {
    let traces = || {
        let all = traces(m.pid(), device).into_iter();
        all.filter(|(name, _)| name.contains(part))
            .collect::<Vec<_>>()
    };
    let asked = requests(m);
    // The answer itself was the last thing the daemon did.
    let_pass(Duration::from_millis(300));
    let before = traces();
    assert!(before.len() > 5, "{before:?}");
    let_pass(time / 2);
    middle();
    let_pass(time / 2);
    let after = traces();
    if requests(m).0 != asked.0 {
        return false;
    }
    assert_eq!(after, before, "in {time:?}");
    assert_eq!(requests(m), asked);
    true
}

/// Uses it, waits until everything is on the disk, and then nothing moves.
fn falls_silent(m: &mut Mounted, device: Option<&Path>) {
    let set = |m: &Mounted| {
        ["commit-seconds", "checkpoint-seconds"]
            .iter()
            .for_each(|key| m.set(key, "1"))
    };
    set(m);
    fill(&m.path("t"), 5, 100);
    std::fs::remove_dir_all(m.path("t")).unwrap();
    std::fs::write(m.path("kept"), "x").unwrap();
    let time = Duration::from_secs(if is_long() { 600 } else { 10 });
    for round in 0..5 {
        if round == 1 {
            // Other programs may sync all file systems of the machine all the time.
            m.hide_from_sync();
            set(m);
        }
        let is_settled = || {
            let before = requests(m);
            let_pass(Duration::from_secs(3));
            requests(m) == before && m.status()["uncommitted"] == false
        };
        if !wait_until(if round == 0 { PATIENCE / 4 } else { PATIENCE }, is_settled) {
            continue;
        }
        // With a loop device a machine can mount, too, and what others mount does not concern this
        // one.
        if !stays_silent(m, device, (time, ""), || {
            drop(device.map(|_| mounted_beside(m)))
        }) {
            continue;
        }
        let before = traces(m.pid(), device);
        std::fs::write(m.path("one more"), "x").unwrap();
        let moved = || {
            traces(m.pid(), device)
                .iter()
                .zip(&before)
                .filter(|(now, then)| now.1 > then.1)
                .count()
        };
        assert!(
            wait_until(PATIENCE, || moved() > 4),
            "the traces do move when something happens"
        );
        let committed = || m.status()["uncommitted"] == false;
        assert!(
            wait_until(PATIENCE, committed),
            "and it is committed without being asked"
        );
        return;
    }
    panic!(
        "somebody asks the mount for something all the time: {:?}",
        requests(m)
    );
}

#[test]
fn an_unused_mount_neither_reads_nor_writes_nor_wakes() {
    let Some(mut m) = Mounted::new("an_unused_mount_neither_reads_nor_writes_nor_wakes", "128M")
    else {
        return;
    };
    falls_silent(&mut m, None);
    // Mounted and not touched at all.
    m.remount();
    let bytes = (Duration::from_secs(7), "/io ");
    if !stays_silent(&m, None, bytes, || {}) {
        m.hide_from_sync();
        let is_silent = (0..4).any(|_| stays_silent(&m, None, bytes, || {}));
        assert!(
            is_silent,
            "somebody asks the mount for something all the time: {:?}",
            requests(&m)
        );
    }
    m.down();
    m.check();
}

#[test]
fn a_device_under_an_unused_mount_is_left_alone() {
    let test = "a_device_under_an_unused_mount_is_left_alone";
    let Some(world) = World::new(test).filter(|_| has_loop_devices(test)) else {
        return;
    };
    let attached = TestLoopDevice::new(&world.path("device"), 128 << 20);
    let device = attached.path().to_owned();
    world
        .teal(&["mkfs".as_ref(), device.as_os_str()])
        .expect_success();
    let mut m = Mounted::on(world, device.clone());
    falls_silent(&mut m, Some(&device));
    m.down();
    m.check();
}
