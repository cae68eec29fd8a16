//! The behaviour that programs expect of a file system, through the mount: names, links,
//! attributes, holes, locks, limits.

use crate::support::{Mounted, PATIENCE, World, is_user_able, run_program, seeded, wait_until};
use rustix::fs::{self, AtFlags, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

fn create(path: &Path) -> std::fs::File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
        .unwrap()
}

/// Runs one of these tests again as another process on the same mount: the test sees `ROLE` and
/// does its part.
fn another(test: &str, point: &Path, role: &str) -> Child {
    let (_, module) = module_path!().split_once("::").unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::{test}"), "--nocapture"])
        .env("TEAL_TEST_POINT", point)
        .env("TEAL_TEST_ROLE", role)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Returns what this process is to do if it was started by [`another`].
fn role() -> Option<(PathBuf, String)> {
    Some((
        std::env::var_os("TEAL_TEST_POINT")?.into(),
        std::env::var("TEAL_TEST_ROLE").ok()?,
    ))
}

#[test]
fn a_file_has_up_to_a_thousand_names() {
    let Some(mut m) = Mounted::new("a_file_has_up_to_a_thousand_names", "64M") else {
        return;
    };
    let first = m.path("name1");
    std::fs::write(&first, "content").unwrap();
    let limit = teal_types::limits::LINKS_MAX as u64;
    for n in 2..=limit {
        std::fs::hard_link(&first, m.path(format!("name{n}"))).unwrap();
    }
    let one_more = std::fs::hard_link(&first, m.path("one more")).unwrap_err();
    assert_eq!(one_more.raw_os_error(), Some(Errno::MLINK.raw_os_error()));
    m.remount();
    let last = m.path(format!("name{limit}"));
    assert_eq!(std::fs::metadata(&last).unwrap().nlink(), limit);
    assert_eq!(
        std::fs::metadata(&last).unwrap().ino(),
        std::fs::metadata(&first).unwrap().ino()
    );
    std::fs::remove_file(&first).unwrap();
    std::fs::hard_link(&last, &first).unwrap();
    assert_eq!(std::fs::read(&first).unwrap(), b"content");
}

#[test]
fn an_unlinked_file_lives_as_long_as_it_is_open() {
    let Some(mut m) = Mounted::new("an_unlinked_file_lives_as_long_as_it_is_open", "128M") else {
        return;
    };
    let free = |m: &Mounted| {
        let df = fs::statvfs(m.point()).unwrap();
        df.f_bfree * df.f_frsize
    };
    let start = free(&m);
    let file = create(&m.path("f"));
    file.write_all_at(&seeded(1, 8 << 20), 0).unwrap();
    std::fs::remove_file(m.path("f")).unwrap();
    file.write_all_at(b"still here", 3).unwrap();
    file.sync_all().unwrap();
    let mut bytes = [0; 10];
    file.read_exact_at(&mut bytes, 3).unwrap();
    assert_eq!(
        (&bytes, file.metadata().unwrap().nlink()),
        (b"still here", 0)
    );
    assert_eq!(m.status()["orphans"], 1);
    assert!(free(&m) + (8 << 20) <= start);
    drop(file);
    assert!(
        wait_until(PATIENCE, || m.status()["orphans"] == 0),
        "the space comes back after the last close"
    );
    assert!(
        wait_until(PATIENCE, || free(&m) + (1 << 20) >= start),
        "{} of {start}",
        free(&m)
    );
    // Killed with the file open: it is given back after the next start.
    let file = create(&m.path("g"));
    file.write_all_at(&seeded(2, 8 << 20), 0).unwrap();
    std::fs::remove_file(m.path("g")).unwrap();
    file.sync_all().unwrap();
    m.kill();
    m.up();
    assert!(
        wait_until(PATIENCE, || m.status()["orphans"] == 0
            && free(&m) + (1 << 20) >= start),
        "{}",
        m.status()
    );
    m.down();
    m.check();
}

#[test]
fn rename_keeps_or_exchanges_when_asked() {
    let Some(m) = Mounted::new("rename_keeps_or_exchanges_when_asked", "64M") else {
        return;
    };
    let (a, b) = (m.path("a"), m.path("b"));
    let rename = |flags| fs::renameat_with(fs::CWD, &a, fs::CWD, &b, flags);
    std::fs::write(&a, "a").unwrap();
    assert_eq!(rename(RenameFlags::EXCHANGE), Err(Errno::NOENT));
    std::fs::create_dir(&b).unwrap();
    std::fs::write(b.join("inside"), "b").unwrap();
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
    assert_eq!(rename(RenameFlags::empty()), Err(Errno::ISDIR));
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!(std::fs::read(&b).unwrap(), b"a");
    assert_eq!(std::fs::read(a.join("inside")).unwrap(), b"b");
    assert_eq!(
        fs::renameat_with(fs::CWD, &a, fs::CWD, a.join("x"), RenameFlags::empty()),
        Err(Errno::INVAL)
    );
    std::fs::remove_file(&b).unwrap();
    rename(RenameFlags::NOREPLACE).unwrap();
    assert_eq!(std::fs::read(b.join("inside")).unwrap(), b"b");
}

#[test]
fn a_nameless_file_can_be_given_a_name() {
    let Some(mut m) = Mounted::new("a_nameless_file_can_be_given_a_name", "64M") else {
        return;
    };
    let flags = OFlags::CLOEXEC | OFlags::TMPFILE | OFlags::RDWR;
    let fd = fs::open(m.point(), flags, Mode::from_raw_mode(0o640)).unwrap();
    rustix::io::write(&fd, b"nameless").unwrap();
    assert_eq!(std::fs::read_dir(m.point()).unwrap().count(), 0);
    let proc = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    fs::linkat(
        fs::CWD,
        &proc,
        fs::CWD,
        m.path("named"),
        AtFlags::SYMLINK_FOLLOW,
    )
    .unwrap();
    drop(fd);
    m.remount();
    assert_eq!(std::fs::read(m.path("named")).unwrap(), b"nameless");
    let never = fs::open(m.point(), flags | OFlags::EXCL, Mode::RUSR).unwrap();
    drop(never);
    assert!(wait_until(PATIENCE, || m.status()["orphans"] == 0));
}

#[test]
fn extended_attributes_keep_their_limits() {
    let Some(mut m) = Mounted::new("extended_attributes_keep_their_limits", "64M") else {
        return;
    };
    let file = m.path("f");
    std::fs::write(&file, "").unwrap();
    let name = |len: usize| format!("user.{}", "n".repeat(len - 5));
    let set = |name: &str, value: &[u8]| fs::setxattr(&file, name, value, XattrFlags::empty());
    set(&name(255), b"long").unwrap();
    assert_eq!(set(&name(256), b"longer"), Err(Errno::RANGE));
    let large = seeded(3, 65_536);
    set("user.large", &large).unwrap();
    assert!(set("user.larger", &seeded(3, 65_537)).is_err());
    assert_eq!(
        fs::setxattr(&file, "user.large", b"", XattrFlags::CREATE),
        Err(Errno::EXIST)
    );
    assert_eq!(
        fs::setxattr(&file, "user.new", b"", XattrFlags::REPLACE),
        Err(Errno::NODATA)
    );
    m.remount();
    let mut value = vec![0; 65_536];
    assert_eq!(fs::getxattr(&file, "user.large", &mut value), Ok(65_536));
    assert!(value == large);
    assert_eq!(
        fs::getxattr(&file, "user.large", &mut value[..9]),
        Err(Errno::RANGE)
    );
    assert_eq!(fs::getxattr(&file, name(255).as_str(), &mut value), Ok(4));
    fs::removexattr(&file, "user.large").unwrap();
    assert_eq!(
        fs::getxattr(&file, "user.large", &mut value),
        Err(Errno::NODATA)
    );
    let mut list = vec![0; 4096];
    let len = fs::listxattr(&file, &mut list).unwrap();
    assert_eq!(&list[..len], format!("{}\0", name(255)).as_bytes());
}

#[test]
fn directories_pass_on_their_group_and_guard_names() {
    let test = "directories_pass_on_their_group_and_guard_names";
    if !is_user_able() {
        return teal_testkit::skip_test(test, "needs root and setpriv");
    }
    let m = Mounted::of(World::open_to_all(), "64M");
    fs::chmod(m.point(), Mode::from_raw_mode(0o755)).unwrap();
    let chmod = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap()
    };
    let (group, sticky, private) = (m.path("group"), m.path("sticky"), m.path("private"));
    for dir in [&group, &sticky, &private] {
        std::fs::create_dir(dir).unwrap();
    }
    std::os::unix::fs::chown(&group, None, Some(4242)).unwrap();
    chmod(&group, 0o2777);
    std::fs::write(group.join("f"), "").unwrap();
    std::fs::create_dir(group.join("d")).unwrap();
    assert_eq!(std::fs::metadata(group.join("f")).unwrap().gid(), 4242);
    let sub = std::fs::metadata(group.join("d")).unwrap();
    assert_eq!((sub.gid(), sub.mode() & 0o2000), (4242, 0o2000));
    // A mount made by root serves others, with their permissions checked.
    chmod(&sticky, 0o1777);
    chmod(&private, 0o700);
    std::fs::write(sticky.join("roots"), "r").unwrap();
    std::fs::write(private.join("f"), "").unwrap();
    let nobody = |script: &str| {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "sh",
            "-c",
            script,
        ]);
        run_program(command.current_dir(m.point()))
    };
    nobody("echo mine > sticky/mine && rm sticky/mine && cat sticky/roots").expect_success();
    for (script, why) in [
        ("rm -f sticky/roots", "not permitted"),
        ("mv sticky/roots sticky/other", "not permitted"),
        ("ls private", "ermission denied"),
        ("cat private/f", "ermission denied"),
        ("echo x > new", "ermission denied"),
        ("chmod 777 sticky", "not permitted"),
        ("chown 65534 sticky/roots", "not permitted"),
    ] {
        let said = nobody(script);
        assert!(
            said.code != 0 && said.stderr.contains(why),
            "{script}: {said}"
        );
    }
    let owner = nobody("touch sticky/x && stat -c %u:%g sticky/x").expect_success();
    assert_eq!(owner.trim(), "65534:65534");
}

#[test]
fn times_are_kept_to_the_nanosecond_and_relatime_is_the_rule() {
    let Some(mut m) = Mounted::new(
        "times_are_kept_to_the_nanosecond_and_relatime_is_the_rule",
        "64M",
    ) else {
        return;
    };
    let path = m.path("f");
    std::fs::write(&path, "x").unwrap();
    let time = |tv_sec, tv_nsec| fs::Timespec { tv_sec, tv_nsec };
    let set = |atime, mtime| {
        let times = fs::Timestamps {
            last_access: atime,
            last_modification: mtime,
        };
        fs::utimensat(fs::CWD, &path, &times, AtFlags::empty()).unwrap();
    };
    let times = || {
        let meta = std::fs::metadata(&path).unwrap();
        (
            (meta.atime(), meta.atime_nsec()),
            (meta.mtime(), meta.mtime_nsec()),
        )
    };
    let far = (1_i64 << 33) + 5;
    set(time(-7, 123_456_789), time(far, 987_654_321));
    let birth = || {
        let x = fs::statx(fs::CWD, &path, AtFlags::empty(), fs::StatxFlags::BTIME).unwrap();
        assert!(
            x.stx_mask & fs::StatxFlags::BTIME.bits() != 0,
            "the time of birth is known"
        );
        (x.stx_btime.tv_sec, x.stx_btime.tv_nsec)
    };
    let born = birth();
    m.remount();
    assert_eq!(times(), ((-7, 123_456_789), (far, 987_654_321)));
    assert_eq!(birth(), born, "and it is not changed by anything");
    // Older than the last change: reading notes the access. After that it does not, for a day.
    let now = born.0;
    set(time(now - 100, 0), time(now - 50, 0));
    // The kernel's cache answers no read that is to be seen.
    let read_fresh = || {
        let file = OpenOptions::new().read(true).open(&path).unwrap();
        fs::fadvise(&file, 0, None, fs::Advice::DontNeed).unwrap();
        file.read_at(&mut [0; 1], 0).unwrap();
    };
    m.remount();
    read_fresh();
    let (noted, _) = times();
    assert!(noted.0 >= now, "{noted:?} is an access after {now}");
    read_fresh();
    assert_eq!(times().0, noted, "relatime: nothing new");
    // Access times alone are no reason to write before the end.
    m.remount();
    assert_eq!(times().0, noted, "the end has written it");
    // A time that was set after the access is what is kept.
    read_fresh();
    set(time(now - 70, 5), time(now - 50, 0));
    m.remount();
    assert_eq!(times().0, (now - 70, 5));
    m.down();
    m.mount("noatime");
    set(time(now - 100, 0), time(now - 50, 0));
    m.down();
    m.mount("noatime");
    read_fresh();
    assert_eq!(times().0, (now - 100, 0), "noatime: never");
}

#[test]
fn an_access_is_noted_as_the_mount_and_the_opening_say() {
    let test = "an_access_is_noted_as_the_mount_and_the_opening_say";
    let Some(mut m) = Mounted::new(test, "64M") else {
        return;
    };
    let path = m.path("f");
    std::fs::write(&path, "x").unwrap();
    let past = fs::Timespec {
        tv_sec: 1000,
        tv_nsec: 7,
    };
    // The kernel's cache answers no read that is to be seen.
    let read_with = |flags: fs::OFlags| {
        let file = fs::open(&path, fs::OFlags::RDONLY | flags, fs::Mode::empty()).unwrap();
        fs::fadvise(&file, 0, None, fs::Advice::DontNeed).unwrap();
        assert_eq!(rustix::io::pread(&file, &mut [0; 1], 0), Ok(1));
    };
    let atime = || {
        let meta = std::fs::metadata(&path).unwrap();
        (meta.atime(), meta.atime_nsec())
    };
    let make_old = || {
        let times = fs::Timestamps {
            last_access: past,
            last_modification: past,
        };
        fs::utimensat(fs::CWD, &path, &times, AtFlags::empty()).unwrap();
    };
    for options in ["relatime", "lazytime", "strictatime"] {
        m.down();
        m.mount(options);
        make_old();
        read_with(fs::OFlags::NOATIME);
        assert_eq!(atime(), (1000, 7), "{options}: O_NOATIME");
        read_with(fs::OFlags::empty());
        let first = atime();
        assert!(first > (1000, 7), "{options}: a read is an access");
        crate::support::let_pass(std::time::Duration::from_millis(20));
        read_with(fs::OFlags::empty());
        let is_strict = options == "strictatime";
        assert_eq!(atime() > first, is_strict, "{options}: the second read");
        read_with(fs::OFlags::NOATIME);
    }
    m.down();
    m.mount("strictatime,nostrictatime,noatime,nolazytime");
    make_old();
    read_with(fs::OFlags::empty());
    assert_eq!(atime(), (1000, 7), "the last option holds");
    m.down();
    m.check();
}

#[test]
fn direct_reads_and_writes_see_what_others_see() {
    let Some(mut m) = Mounted::new("direct_reads_and_writes_see_what_others_see", "64M") else {
        return;
    };
    let path = m.path("f");
    // Memory for O_DIRECT is aligned.
    let mut memory = vec![0_u8; (256 << 10) + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let buffer = &mut memory[start..start + (256 << 10)];
    buffer.copy_from_slice(&seeded(8, 256 << 10));
    let flags = OFlags::CLOEXEC | OFlags::RDWR | OFlags::CREATE | OFlags::DIRECT;
    let direct = fs::open(&path, flags, Mode::RUSR | Mode::WUSR).unwrap();
    assert_eq!(
        rustix::io::pwrite(&direct, &*buffer, 8192),
        Ok(buffer.len())
    );
    assert!(
        std::fs::read(&path).unwrap()[8192..] == *buffer,
        "buffered reads see direct writes"
    );
    let buffered = OpenOptions::new().write(true).open(&path).unwrap();
    buffered.write_all_at(b"buffered", 12_288).unwrap();
    assert_eq!(
        rustix::io::pread(&direct, &mut buffer[..4096], 12_288),
        Ok(4096)
    );
    assert_eq!(
        &buffer[..8],
        b"buffered",
        "direct reads see buffered writes"
    );
    drop((direct, buffered));
    m.remount();
    let mut expected = seeded(8, 256 << 10);
    expected[4096..4104].copy_from_slice(b"buffered");
    assert!(std::fs::read(&path).unwrap()[8192..] == expected);
}

#[test]
fn appends_of_several_processes_do_not_overwrite_each_other() {
    let test = "appends_of_several_processes_do_not_overwrite_each_other";
    const EACH: usize = 400;
    if let Some((point, role)) = role() {
        let mut file = OpenOptions::new()
            .append(true)
            .open(point.join("log"))
            .unwrap();
        for n in 0..EACH {
            let line = format!("{role} {n:04} {}\n", "x".repeat(n % 90));
            assert_eq!(file.write(line.as_bytes()).unwrap(), line.len());
        }
        return;
    }
    let Some(m) = Mounted::new(test, "64M") else {
        return;
    };
    std::fs::write(m.path("log"), "").unwrap();
    let children: Vec<_> = ["a", "b", "c", "d"]
        .map(|role| another(test, m.point(), role))
        .into();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let log = std::fs::read_to_string(m.path("log")).unwrap();
    let mut seen: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for line in log.lines() {
        let words: Vec<_> = line.splitn(3, ' ').collect();
        let n: usize = words[1].parse().unwrap();
        assert_eq!(words[2].len(), n % 90, "{line}");
        seen.entry(words[0]).or_default().push(n);
    }
    assert_eq!(seen.len(), 4);
    assert!(
        seen.values().all(|ns| ns.iter().copied().eq(0..EACH)),
        "every line is there once, in order"
    );
}

/// Reads a directory in small steps, and between them does something to it.
fn read_slowly(dir: &Path, mut between: impl FnMut(usize)) -> Vec<String> {
    let fd = fs::open(
        dir,
        OFlags::CLOEXEC | OFlags::RDONLY | OFlags::DIRECTORY,
        Mode::empty(),
    )
    .unwrap();
    let mut seen = Vec::new();
    for step in 0.. {
        let mut buffer = vec![std::mem::MaybeUninit::uninit(); 2048];
        let mut raw = fs::RawDir::new(&fd, &mut buffer);
        let mut cookie = None;
        // Only some of each answer is used: the next step goes back to the cookie of the last one.
        for _ in 0..20 {
            let Some(entry) = raw.next() else { break };
            let entry = entry.unwrap();
            cookie = Some(entry.next_entry_cookie());
            seen.push(entry.file_name().to_str().unwrap().to_owned());
        }
        let Some(cookie) = cookie else { break };
        between(step);
        fs::seek(&fd, SeekFrom::Start(cookie)).unwrap();
    }
    seen
}

fn a_directory_read_while_it_changes(m: &Mounted, name: &str, count: usize) {
    let dir = m.path(name);
    std::fs::create_dir(&dir).unwrap();
    for n in 0..count {
        std::fs::write(dir.join(format!("stay{n}")), "").unwrap();
        std::fs::write(dir.join(format!("go{n}")), "").unwrap();
    }
    let seen = read_slowly(&dir, |step| {
        for n in step * 9..(step + 1) * 9 {
            if n < count {
                std::fs::remove_file(dir.join(format!("go{n}"))).unwrap();
                std::fs::write(dir.join(format!("new{n}")), "").unwrap();
            }
        }
    });
    let unique: BTreeSet<_> = seen.iter().collect();
    assert_eq!(unique.len(), seen.len(), "nothing is seen twice");
    for n in 0..count {
        assert!(
            unique.contains(&format!("stay{n}")),
            "stay{n} was there all the time"
        );
    }
    assert!(unique.contains(&".".to_owned()) && unique.contains(&"..".to_owned()));
}

#[test]
fn directories_can_be_read_while_they_change() {
    let Some(m) = Mounted::new("directories_can_be_read_while_they_change", "128M") else {
        return;
    };
    a_directory_read_while_it_changes(&m, "small", 40);
    a_directory_read_while_it_changes(&m, "large", 2_500);
}

#[test]
fn locks_hold_between_processes() {
    let test = "locks_hold_between_processes";
    if let Some((point, role)) = role() {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(point.join("f"))
            .unwrap();
        let refused = match role.as_str() {
            "flock" => fs::flock(&file, fs::FlockOperation::NonBlockingLockExclusive),
            _ => fs::fcntl_lock(&file, fs::FlockOperation::NonBlockingLockExclusive),
        };
        std::process::exit(if refused.is_ok() { 0 } else { 3 });
    }
    let Some(m) = Mounted::new(test, "64M") else {
        return;
    };
    let file = create(&m.path("f"));
    let other = |role: &str| another(test, m.point(), role).wait().unwrap().code();
    fs::flock(&file, fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(
        (other("flock"), other("posix")),
        (Some(3), Some(0)),
        "flock and POSIX locks do not meet"
    );
    fs::flock(&file, fs::FlockOperation::Unlock).unwrap();
    fs::fcntl_lock(&file, fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!((other("flock"), other("posix")), (Some(0), Some(3)));
    fs::fcntl_lock(&file, fs::FlockOperation::Unlock).unwrap();
    assert_eq!((other("flock"), other("posix")), (Some(0), Some(0)));
}

#[test]
fn holes_are_free_and_found() {
    let Some(mut m) = Mounted::new("holes_are_free_and_found", "64M") else {
        return;
    };
    let path = m.path("sparse");
    let file = create(&path);
    file.set_len(1 << 40).unwrap();
    file.write_all_at(&seeded(1, 8192), 1 << 39).unwrap();
    file.write_all_at(b"end", (1 << 40) - 3).unwrap();
    file.sync_all().unwrap();
    let look = |file: &std::fs::File| {
        let seek = |from| fs::seek(file, from);
        assert_eq!(seek(SeekFrom::Data(0)), Ok(1 << 39));
        assert_eq!(seek(SeekFrom::Hole(1 << 39)), Ok((1 << 39) + 8192));
        assert_eq!(seek(SeekFrom::Data((1 << 39) + 8192)), Ok((1 << 40) - 4096));
        assert_eq!(seek(SeekFrom::Hole((1 << 40) - 3)), Ok(1 << 40));
        assert_eq!(seek(SeekFrom::Data(1 << 40)), Err(Errno::NXIO));
        let meta = file.metadata().unwrap();
        assert_eq!((meta.len(), meta.blocks() * 512), (1 << 40, 3 * 4096));
    };
    look(&file);
    drop(file);
    m.remount();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    look(&file);
    let mut bytes = [1; 3];
    file.read_exact_at(&mut bytes, (1 << 40) - 3).unwrap();
    assert_eq!(&bytes, b"end");
    file.read_exact_at(&mut bytes, 77).unwrap();
    assert_eq!(bytes, [0; 3]);
    fs::fallocate(
        &file,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        1 << 39,
        4096,
    )
    .unwrap();
    assert_eq!(fs::seek(&file, SeekFrom::Data(0)), Ok((1 << 39) + 4096));
    fs::fallocate(&file, FallocateFlags::ZERO_RANGE, (1 << 39) + 5000, 1000).unwrap();
    let mut bytes = vec![1; 8192];
    file.read_exact_at(&mut bytes, 1 << 39).unwrap();
    let mut expected = seeded(1, 8192);
    expected[..4096].fill(0);
    expected[5000..6000].fill(0);
    assert!(bytes == expected);
}

#[test]
fn copy_file_range_copies() {
    let Some(mut m) = Mounted::new("copy_file_range_copies", "64M") else {
        return;
    };
    let bytes = seeded(6, 300_000);
    std::fs::write(m.path("from"), &bytes).unwrap();
    let (from, to) = (
        OpenOptions::new().read(true).open(m.path("from")).unwrap(),
        create(&m.path("to")),
    );
    let (mut at, mut into) = (1000, 50);
    while at < bytes.len() as u64 {
        let n = fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut into), 1 << 20).unwrap();
        assert!(n > 0);
    }
    drop((from, to));
    m.remount();
    let copy = std::fs::read(m.path("to")).unwrap();
    assert!(copy[..50] == [0; 50] && copy[50..] == bytes[1000..]);
}

#[test]
fn names_paths_and_targets_have_their_limits() {
    let Some(mut m) = Mounted::new("names_paths_and_targets_have_their_limits", "64M") else {
        return;
    };
    let longest = "n".repeat(255);
    std::fs::write(m.path(&longest), "x").unwrap();
    let error = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    let too_long = Some(Errno::NAMETOOLONG.raw_os_error());
    assert_eq!(error(std::fs::write(m.path("n".repeat(256)), "")), too_long);
    // Deeper than any path: step by step, as `mkdir` and `cd` would.
    let mut dir = fs::open(
        m.point(),
        OFlags::CLOEXEC | OFlags::DIRECTORY | OFlags::PATH,
        Mode::empty(),
    )
    .unwrap();
    for _ in 0..40 {
        fs::mkdirat(&dir, "d".repeat(200), Mode::RWXU).unwrap();
        dir = fs::openat(
            &dir,
            "d".repeat(200),
            OFlags::CLOEXEC | OFlags::DIRECTORY | OFlags::PATH,
            Mode::empty(),
        )
        .unwrap();
    }
    let bottom = fs::openat(
        &dir,
        "f",
        OFlags::CLOEXEC | OFlags::CREATE | OFlags::WRONLY,
        Mode::RUSR,
    )
    .unwrap();
    rustix::io::write(&bottom, b"deep").unwrap();
    drop((bottom, dir));
    assert_eq!(
        error(std::fs::metadata(m.path(format!("{}/", "d".repeat(200)).repeat(25))).map(drop)),
        too_long
    );
    let target = "t".repeat(4095);
    std::os::unix::fs::symlink(&target, m.path("link")).unwrap();
    assert_eq!(
        error(std::os::unix::fs::symlink(
            format!("{target}t"),
            m.path("longer")
        )),
        too_long
    );
    for strange in [
        &b"new\nline"[..],
        b"\xff\xfe not utf-8",
        b" ",
        b"...",
        "größe 大".as_bytes(),
    ] {
        std::fs::write(
            m.path(Path::new(std::ffi::OsStr::from_bytes(strange))),
            strange,
        )
        .unwrap();
    }
    m.remount();
    assert_eq!(
        std::fs::read_link(m.path("link"))
            .unwrap()
            .as_os_str()
            .len(),
        4095
    );
    assert_eq!(std::fs::read(m.path(&longest)).unwrap(), b"x");
    assert_eq!(
        std::fs::read(m.path(Path::new(std::ffi::OsStr::from_bytes(b"new\nline")))).unwrap(),
        b"new\nline"
    );
    let mut dir = fs::open(
        m.point(),
        OFlags::CLOEXEC | OFlags::DIRECTORY | OFlags::PATH,
        Mode::empty(),
    )
    .unwrap();
    for _ in 0..40 {
        dir = fs::openat(
            &dir,
            "d".repeat(200),
            OFlags::CLOEXEC | OFlags::DIRECTORY | OFlags::PATH,
            Mode::empty(),
        )
        .unwrap();
    }
    let bottom = fs::openat(&dir, "f", OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty()).unwrap();
    let mut bytes = vec![];
    std::fs::File::from(bottom).read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"deep");
    let df = fs::statvfs(m.point()).unwrap();
    assert_eq!((df.f_namemax, df.f_bsize), (255, 4096));
    assert!(df.f_files > df.f_ffree && df.f_ffree > 1000);
}

#[test]
fn many_threads_write_many_files() {
    let Some(mut m) = Mounted::new("many_threads_write_many_files", "512M") else {
        return;
    };
    const THREADS: u64 = 8;
    const FILES: u64 = 60;
    let content =
        |thread: u64, n: u64| seeded(thread * 1000 + n, 100 + (n as usize * 7919) % 90_000);
    let point = m.point().to_owned();
    let name = |thread: u64, n: u64| point.join(format!("shared{}/t{thread}-{n}", n % 5));
    for n in 0..5 {
        std::fs::create_dir(m.path(format!("shared{n}"))).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (content, name) = (&content, &name);
            scope.spawn(move || {
                for n in 0..FILES {
                    let path = name(thread, n);
                    let temporary = path.with_extension("new");
                    let mut file = create(&temporary);
                    content(thread, n)
                        .chunks(5000)
                        .for_each(|chunk| file.write_all(chunk).unwrap());
                    if n % 7 == 0 {
                        file.sync_all().unwrap();
                    }
                    std::fs::rename(&temporary, &path).unwrap();
                    if n % 3 == 2 {
                        std::fs::remove_file(name(thread, n - 1)).unwrap();
                    }
                    assert!(std::fs::read(&path).unwrap() == content(thread, n));
                }
            });
        }
    });
    m.remount();
    let mut count = 0;
    for thread in 0..THREADS {
        for n in 0..FILES {
            if n % 3 == 1 {
                assert!(!name(thread, n).exists());
            } else {
                assert!(
                    std::fs::read(name(thread, n)).unwrap() == content(thread, n),
                    "thread {thread}, file {n}"
                );
                count += 1;
            }
        }
    }
    let there: usize = (0..5)
        .map(|n| {
            std::fs::read_dir(m.path(format!("shared{n}")))
                .unwrap()
                .count()
        })
        .sum();
    assert_eq!(there, count);
    m.down();
    m.check();
}
