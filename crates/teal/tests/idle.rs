//! A mounted store that nobody uses: no I/O on whatever it lies on, and a daemon that does not even wake up.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

#[path = "support/support.rs"]
mod support;

use std::path::Path;
use std::time::Duration;
use support::{LoopDevice, Mounted, PATIENCE, Point, World, fill, has_loop_devices, is_long, let_pass, wait_until};

/// A number for everything that could move: I/O of the process and of the device below, wake-ups of each thread.
fn traces(pid: i32, device: Option<&Path>) -> Vec<(String, u64)> {
    let numbers = |path: String, wanted: fn(&str) -> bool| {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().filter_map(|line| line.split_once(':')).filter(move |(name, _)| wanted(name));
        lines.map(|(name, n)| (format!("{path} {name}"), n.trim().parse().unwrap())).collect::<Vec<_>>()
    };
    let mut all = numbers(format!("/proc/{pid}/io"), |_| true);
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let task = task.unwrap().path().join("status");
        all.extend(numbers(task.to_str().unwrap().to_owned(), |name| name.ends_with("ctxt_switches")));
    }
    if let Some(device) = device {
        let stat = Path::new("/sys/class/block").join(device.file_name().unwrap()).join("stat");
        let stat = std::fs::read_to_string(stat).unwrap();
        all.extend(
            stat.split_whitespace().enumerate().map(|(n, field)| (format!("device {n}"), field.parse().unwrap())),
        );
    }
    all
}

/// Requests of the kernel: somebody who looks at all mounts of the machine looks at this one, too.
fn requests(m: &Mounted) -> (String, String) {
    let status = m.status();
    (status["requests"].to_string(), status["counters"].to_string())
}

/// Another file system is there.
fn mounted_beside(m: &Mounted) -> Point {
    let point = m.world().path("other");
    let _ = std::fs::create_dir(&point);
    rustix::mount::mount("none", &point, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
    Point(point)
}

/// Uses it, waits until everything is on the disk, and then nothing moves.
fn falls_silent(m: &Mounted, device: Option<&Path>) {
    m.set("commit-seconds", "1");
    m.set("checkpoint-seconds", "1");
    fill(&m.path("t"), 5, 100);
    std::fs::remove_dir_all(m.path("t")).unwrap();
    std::fs::write(m.path("kept"), "x").unwrap();
    let time = Duration::from_secs(if is_long() { 600 } else { 10 });
    let is_settled = || {
        let before = requests(m);
        let_pass(Duration::from_secs(3));
        requests(m) == before && m.status()["uncommitted"] == false
    };
    for _ in 0..5 {
        assert!(wait_until(PATIENCE, is_settled), "{}", m.status());
        let asked = requests(m);
        // The answer itself was the last thing the daemon did.
        let_pass(Duration::from_millis(300));
        let before = traces(m.pid(), device);
        let_pass(time / 2);
        // Who has a loop device may mount, too, and what others mount does not concern this one.
        drop(device.map(|_| mounted_beside(m)));
        let_pass(time / 2);
        let after = traces(m.pid(), device);
        if requests(m).0 != asked.0 {
            continue;
        }
        assert!(before.len() > 10, "{before:?}");
        assert_eq!(after, before, "in {time:?}");
        assert_eq!(requests(m), asked);
        std::fs::write(m.path("one more"), "x").unwrap();
        let moved = || traces(m.pid(), device).iter().zip(&before).filter(|(now, then)| now.1 > then.1).count();
        assert!(wait_until(PATIENCE, || moved() > 4), "the traces do move when something happens");
        let committed = || m.status()["uncommitted"] == false;
        assert!(wait_until(PATIENCE, committed), "and it is committed without being asked");
        return;
    }
    panic!("somebody asks the mount for something all the time: {:?}", requests(m));
}

#[test]
fn an_unused_mount_neither_reads_nor_writes_nor_wakes() {
    let Some(mut m) = Mounted::new("an_unused_mount_neither_reads_nor_writes_nor_wakes", "128M") else { return };
    falls_silent(&m, None);
    m.remount();
    // Mounted and not touched at all.
    let_pass(Duration::from_millis(300));
    let before = traces(m.pid(), None);
    let_pass(Duration::from_secs(7));
    let after = traces(m.pid(), None);
    let bytes = |all: &[(String, u64)]| all.iter().filter(|t| t.0.contains("/io")).map(|t| t.1).collect::<Vec<_>>();
    assert_eq!(bytes(&after), bytes(&before));
    m.down();
    m.check();
}

#[test]
fn a_device_under_an_unused_mount_is_left_alone() {
    let test = "a_device_under_an_unused_mount_is_left_alone";
    let Some(world) = World::new(test).filter(|_| has_loop_devices(test)) else { return };
    let attached = LoopDevice::new(&world.path("device"), 128 << 20);
    let device = attached.path().to_owned();
    world.teal(&["mkfs".as_ref(), device.as_os_str()]).good();
    let mut m = Mounted::on(world, device.clone());
    // In use: it is detached when the daemon closes it.
    drop(attached);
    falls_silent(&m, Some(&device));
    m.down();
}
