//! The parts of a file besides its content: privileges, attributes at their limits, birth time,
//! numbers and handles.

use super::support::{Mounted, ProgramOutput, behaves_as_below, find_program, run_program};
use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

const PRIVILEGES: &[super::support::Script] = &[
    (
        "file capabilities are effective",
        "echo text >secret; chmod 600 secret; cp /bin/cat c; as 1001 ./c secret; setcap cap_dac_read_search+ep c; getcap c
         as 1001 ./c secret; as 1001 setcap -r c; as 1001 setcap cap_chown+ep c; cp --preserve=xattr c d; as 1001 ./d secret
         setcap -r c; as 1001 ./c secret; getcap c; setcap cap_chown+ep secret; getcap secret; ln secret t; getcap t",
    ),
    (
        "file capabilities go with any change of content or owner",
        "for n in 1 2 3 4 5 6 7 8 9; do cp /bin/true c$n; chmod 777 c$n; setcap cap_net_raw+ep c$n; done; getcap c*
         echo x >>c1; truncate -s 9 c2; as 1001 sh -c 'echo x >>c3'; as 1001 truncate -s 9 c4; chown 1001 c5; chmod 700 c6
         fallocate -l 99999 c7; fallocate -p -l 4096 c8; touch c9; getcap c*",
    ),
    (
        "set-user-id and set-group-id go when others write",
        "for n in 1 2 3 4 5 6 7; do cp /bin/true c$n; chmod 6777 c$n; done
         echo x >>c1; as 1001 sh -c 'echo x >>c2'; as 1001 truncate -s 9 c3; as 1001 fallocate -l 99999 c4
         as 1001 fallocate -p -l 4096 c5; as 1001 sh -c ': >c6'; as 1001 dd if=c1 of=c7 conv=notrunc bs=100 count=1 status=none",
    ),
    (
        "set-group-id alone goes when others make room, holes or zeros",
        "for n in 1 2 3 4 5 6; do cp /bin/true c$n; chmod 2777 c$n; done
         as 1001 fallocate -l 99999 c1; as 1001 fallocate -n -l 99999 c2; as 1001 fallocate -p -l 4096 c3
         as 1001 fallocate -z -l 4096 c4; fallocate -l 99999 c5; as 1001 sh -c 'echo x >>c6'",
    ),
];

/// What `chattr` forbids. That a file cannot be opened for writing is left out: the kernel opens
/// files of FUSE without asking, and the write is refused.
const FLAGS: &[super::support::Script] = &[
    (
        "what is immutable stays as it is",
        "t() { if \"$@\" >/dev/null 2>&1; then echo \"$*: done\"; else echo \"$*: refused\"; fi; }
         flags() { lsattr -d \"$@\" | cut -c1-16 | tr -d 'e-'; }
         echo content >f; mkdir d; echo x >d/in; ln f g; t chattr +i f d; flags f d
         t sh -c 'echo more >>f'; t truncate -s 0 f; t truncate -s 100 f; t fallocate -l 9999 f; t fallocate -p -l 4096 f; t chmod 600 f
         t chown 1001 f; t touch f; t touch -d 2001-01-01 f; t setfattr -n user.a -v b f; t setfacl -m u:5:r f; t ln f h; t mv f h; t mv g h
         t rm -f f; t rm -f g; t mv d e; t rmdir d; t touch d/new; t rm -f d/in; t mkdir d/d; t mv d/in out; t sh -c 'echo more >d/in'
         cat f d/in; ls d; t chattr -i f d; t sh -c 'echo more >>f'; t rm d/in; cat f; ls d; flags f d",
    ),
    (
        "what is append-only grows at its end",
        "t() { if \"$@\" >/dev/null 2>&1; then echo \"$*: done\"; else echo \"$*: refused\"; fi; }
         echo content >f; mkdir d; echo x >d/in; t chattr +a f d; t sh -c 'echo more >>f'; t truncate -s 0 f; t fallocate -p -l 4096 f
         t sh -c 'echo over >f'; t dd if=/dev/zero of=f bs=1 count=1 conv=notrunc; t dd if=/dev/zero of=f bs=1 count=1 conv=notrunc oflag=append
         t chmod 600 f; t touch f; t touch -d 2001-01-01 f; t rm -f f; t mv f h; t ln f h; t touch d/new; t mkdir d/d; t rm -f d/in
         t mv d/in d/out; t rmdir d/d; ls d; wc -c f; t chattr -a f d; t rm d/in; t truncate -s 3 f; t rm -r d; ls",
    ),
    (
        "others may not change flags",
        "t() { if \"$@\" >/dev/null 2>&1; then echo done; else echo refused; fi; }
         touch f; chmod 666 f; chown 1001 f; for flag in +i +a; do t setpriv --reuid 1001 --regid 1001 --clear-groups chattr $flag f; done
         t chattr +i f; t setpriv --reuid 1001 --regid 1001 --clear-groups chattr -i f; lsattr f | cut -c1-16 | tr -d 'e-'; t chattr -i f",
    ),
];

#[test]
fn flags_forbid_what_they_forbid_below() {
    if find_program("chattr", &[]).is_none() {
        return teal_testkit::skip_test("flags_forbid_what_they_forbid_below", "needs chattr");
    }
    behaves_as_below("flags_forbid_what_they_forbid_below", FLAGS);
}

#[test]
fn flags_hold_after_a_remount_and_are_no_extended_attribute() {
    let test = "flags_hold_after_a_remount_and_are_no_extended_attribute";
    let Some(mut m) = Mounted::new(test, "64M") else {
        return;
    };
    if !super::support::is_root() || find_program("chattr", &[]).is_none() {
        return teal_testkit::skip_test(test, "needs root and chattr");
    }
    let path = m.path("f");
    let chattr = |flag: &str| {
        run_program(Command::new("chattr").arg(flag).arg(&path)).expect_success();
    };
    std::fs::write(&path, "content").unwrap();
    chattr("+ia");
    let mut names = [0; 100];
    assert_eq!(listxattr(&path, &mut names[..]), Ok(0));
    assert_eq!(
        getxattr(&path, "teal.flags", &mut names[..]),
        Err(Errno::OPNOTSUPP)
    );
    m.remount();
    let said = run_program(Command::new("lsattr").arg(&path)).expect_success();
    let flags: String = said.split(' ').next().unwrap().replace('-', "");
    assert_eq!(flags, "ia");
    assert!(std::fs::write(&path, "other").is_err());
    assert!(std::fs::remove_file(&path).is_err());
    // Flags that mean nothing here are refused.
    let said = run_program(Command::new("chattr").arg("+c").arg(&path));
    assert!(said.code != 0, "{said}");
    chattr("-ia");
    std::fs::write(&path, "other").unwrap();
    m.down();
    m.check();
}

#[test]
fn privileges_go_when_they_must() {
    behaves_as_below("privileges_go_when_they_must", PRIVILEGES);
}

#[test]
fn extended_attributes_reach_their_limits_through_the_kernel() {
    let Some(mut m) = Mounted::new(
        "extended_attributes_reach_their_limits_through_the_kernel",
        "64M",
    ) else {
        return;
    };
    std::fs::write(m.path("f"), "x").unwrap();
    let set = |m: &Mounted, name: &str, value: &[u8]| {
        setxattr(m.path("f"), name, value, XattrFlags::empty())
    };
    let (user, security) = (format!("user.{}", "n".repeat(250)), "security.teal");
    let value = super::support::seeded(1, 65536);
    set(&m, &user, &value).unwrap();
    assert_eq!(set(&m, &format!("{user}n"), b""), Err(Errno::RANGE));
    assert_eq!(
        set(&m, security, &[value.clone(), vec![0]].concat()),
        Err(Errno::TOOBIG)
    );
    assert_eq!(
        set(&m, security, &value),
        Err(Errno::NOSPC),
        "with 128 KiB in all"
    );
    set(&m, security, &value[..60_000]).unwrap();
    m.remount();
    for (name, len) in [(user.as_str(), 65536), (security, 60_000)] {
        let mut found = vec![0; 65536];
        let n = getxattr(m.path("f"), name, &mut found[..]).unwrap();
        assert!(found[..n] == value[..len], "{name} has {n} bytes");
        assert_eq!(
            getxattr(m.path("f"), name, &mut found[..100]),
            Err(Errno::RANGE)
        );
    }
    m.down();
    m.check();
}

#[test]
fn a_thousand_names_and_all_attributes_fit_one_file() {
    let Some(mut m) = Mounted::new("a_thousand_names_and_all_attributes_fit_one_file", "64M")
    else {
        return;
    };
    std::fs::write(m.path("f"), "x").unwrap();
    for n in 1..1000 {
        std::fs::hard_link(m.path("f"), m.path(format!("{n:0>255}"))).unwrap();
    }
    // Names of 256 bytes with their end, as many as fit the 64 KiB that Linux can list.
    let name = |n: usize| format!("user.{n:0>250}");
    let set = |m: &Mounted, n: usize, value: &[u8]| {
        setxattr(m.path("f"), name(n), value, XattrFlags::empty())
    };
    let value = super::support::seeded(2, 200);
    (0..256).for_each(|n| set(&m, n, &value).unwrap());
    let mut list = vec![0; 65536];
    assert_eq!(listxattr(m.path("f"), &mut list[..]), Ok(65536));
    // One more is kept, but no program can list them any more.
    set(&m, 256, &value).unwrap();
    assert_eq!(listxattr(m.path("f"), &mut list[..]), Err(Errno::TOOBIG));
    removexattr(m.path("f"), name(256)).unwrap();
    // And the rest of 128 KiB, less what describes them, in one value.
    let (mut low, mut high) = (0, 65536);
    while low + 1 < high {
        let len = usize::midpoint(low, high);
        let fits = setxattr(m.path("f"), "user.rest", &vec![7; len], XattrFlags::empty()).is_ok();
        (low, high) = if fits { (len, high) } else { (low, len) };
    }
    let rest = vec![9; low];
    setxattr(m.path("f"), "user.rest", &rest, XattrFlags::empty()).unwrap();
    let stored = low + 9 + 256 * (255 + 200);
    assert!(
        (120 << 10..=128 << 10).contains(&stored),
        "{stored} bytes of names and values, {low} in the last"
    );
    m.remount();
    assert_eq!(
        std::os::unix::fs::MetadataExt::nlink(&std::fs::metadata(m.path("f")).unwrap()),
        1000
    );
    let mut found = vec![0; 65536];
    for n in [0, 100, 255] {
        let len = getxattr(m.path("f"), name(n), &mut found[..]).unwrap();
        assert!(found[..len] == value, "attribute {n} has {len} bytes");
    }
    assert_eq!(getxattr(m.path("f"), "user.rest", &mut found[..]), Ok(low));
    for n in 1..1000 {
        std::fs::remove_file(m.path(format!("{n:0>255}"))).unwrap();
    }
    m.down();
    m.check();
}

#[test]
fn the_birth_time_stays_and_numbers_are_not_used_again() {
    let Some(mut m) = Mounted::new("the_birth_time_stays_and_numbers_are_not_used_again", "64M")
    else {
        return;
    };
    let f = m.path("f");
    std::fs::write(&f, "x").unwrap();
    let born = std::fs::metadata(&f).unwrap().created().unwrap();
    super::support::let_pass(std::time::Duration::from_millis(20));
    std::fs::write(&f, "yy").unwrap();
    std::fs::rename(&f, m.path("g")).unwrap();
    m.remount();
    let meta = std::fs::metadata(m.path("g")).unwrap();
    assert_eq!(meta.created().unwrap(), born);
    assert!(meta.modified().unwrap() > born);
    let mut seen = BTreeSet::from([meta.ino()]);
    for n in 0..100 {
        std::fs::write(m.path("h"), "z").unwrap();
        let ino = std::fs::metadata(m.path("h")).unwrap().ino();
        assert!(seen.insert(ino), "{ino} belonged to another file before");
        std::fs::remove_file(m.path("h")).unwrap();
        if n % 25 == 0 {
            m.remount();
        }
    }
}

/// Takes a handle of `$ARGV[1]`, or opens the one in `$ARGV[2]` on the mount `$ARGV[1]`: system
/// calls that no shell has.
const HANDLES: &str = r#"
    use POSIX;
    my ($take, $open) = $ENV{TEAL_ARCH} eq "x86_64" ? (303, 304) : (264, 265);
    my ($what, $path, $hex) = @ARGV;
    if ($what eq "take") {
        my ($handle, $mount) = (pack("I i a128", 128, 0, ""), pack("i", 0));
        syscall($take, -100, $path, $handle, $mount, 0) == 0 or die "errno " . ($! + 0) . "\n";
        my ($bytes) = unpack("I", $handle);
        print unpack("H*", substr($handle, 0, 8 + $bytes));
    } else {
        sysopen(my $mount, $path, O_RDONLY) or die "mount: $!\n";
        my $handle = pack("H*", $hex);
        my $fd = syscall($open, fileno($mount), $handle, O_RDONLY);
        $fd >= 0 or die "errno " . ($! + 0) . "\n";
        print readlink("/proc/self/fd/$fd"), "\n";
        if (-d "/proc/self/fd/$fd") { opendir(my $d, "/proc/self/fd/$fd"); print join(" ", sort readdir $d) }
        else { open(my $f, "<&=", $fd); print <$f> }
    }
"#;

fn handles(args: &[&str]) -> ProgramOutput {
    let mut perl = Command::new("perl");
    run_program(
        perl.args(["-e", HANDLES])
            .args(args)
            .env("TEAL_ARCH", std::env::consts::ARCH),
    )
}

/// Makes the kernel forget names and inodes that are not in use.
fn drop_caches(m: &Mounted) {
    let forgets = |m: &Mounted| -> u64 {
        let status = m.status();
        let counts = status["requests"].as_array().unwrap();
        let forgets = counts
            .iter()
            .filter(|c| c[0].as_str().unwrap().ends_with("forget"));
        forgets.map(|c| c[1].as_u64().unwrap()).sum()
    };
    // Something by name: what was opened by its handle alone is forgotten at once. What has pages
    // is not.
    std::fs::metadata(m.path("a")).unwrap();
    for name in ["a/b/file", "moved"] {
        if let Ok(file) = std::fs::OpenOptions::new().read(true).open(m.path(name)) {
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
    }
    let before = forgets(m);
    let forgotten = super::support::wait_until(super::support::PATIENCE, || {
        std::fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        forgets(m) > before
    });
    assert!(forgotten);
}

#[test]
fn a_handle_leads_to_its_file_as_long_as_that_lives() {
    let test = "a_handle_leads_to_its_file_as_long_as_that_lives";
    let is_known = ["x86_64", "aarch64"].contains(&std::env::consts::ARCH);
    if !is_known
        || find_program("perl", &[]).is_none()
        || !Path::new("/proc/sys/vm/drop_caches").exists()
    {
        return teal_testkit::skip_test(
            test,
            "needs perl, and system call numbers that the test knows",
        );
    }
    let Some(mut m) = Mounted::new(test, "64M") else {
        return;
    };
    std::fs::create_dir_all(m.path("a/b")).unwrap();
    std::fs::write(m.path("a/b/file"), "text of the file").unwrap();
    let take = |m: &Mounted, name: &str| {
        handles(&["take", m.path(name).to_str().unwrap()]).expect_success()
    };
    let open = |m: &Mounted, handle: &str| handles(&["open", m.point().to_str().unwrap(), handle]);
    let (file, dir) = (take(&m, "a/b/file"), take(&m, "a/b"));
    for round in 0..2 {
        assert!(
            open(&m, &file)
                .expect_success()
                .contains("text of the file")
        );
        drop_caches(&m);
        assert!(
            open(&m, &file)
                .expect_success()
                .ends_with("text of the file"),
            "round {round}"
        );
        drop_caches(&m);
        let said = open(&m, &dir).expect_success();
        assert!(
            said.ends_with("\n. .. file") && said.contains("/a/b\n"),
            "{said}"
        );
        // Repeats the comparison after a remount: numbers are for ever.
        m.remount();
    }
    std::fs::rename(m.path("a/b/file"), m.path("moved")).unwrap();
    drop_caches(&m);
    assert!(
        open(&m, &file)
            .expect_success()
            .ends_with("text of the file")
    );
    std::fs::remove_file(m.path("moved")).unwrap();
    std::fs::write(m.path("moved"), "another file").unwrap();
    let stale = open(&m, &file);
    assert_eq!(
        (stale.code != 0, stale.stderr.trim()),
        (true, "errno 116"),
        "ESTALE: {stale}"
    );
    std::fs::remove_dir(m.path("a/b")).unwrap();
    m.remount();
    for handle in [&file, &dir] {
        assert_eq!(open(&m, handle).stderr.trim(), "errno 116", "ESTALE");
    }
}
