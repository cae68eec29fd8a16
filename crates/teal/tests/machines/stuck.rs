//! Files that cannot be sent or installed: they are named, and hold up nothing else.

use crate::support::{
    Mounted, Nas, PATIENCE, ProgramOutput, World, apart, compare_replicas, converge, end, flush,
    join, run_program, seeded, wait_until,
};
use rustix::fs::XattrFlags;
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The machines of a cable.
const LAPTOP: usize = 1;

fn try_flush(m: &Mounted) -> ProgramOutput {
    m.world().teal(&["flush", m.point().to_str().unwrap()])
}

fn conflicts(m: &Mounted) -> String {
    m.world()
        .teal(&["conflicts", "ls", m.point().to_str().unwrap()])
        .expect_success()
}

fn shown(m: &Mounted) -> String {
    m.world()
        .teal(&["status", m.point().to_str().unwrap()])
        .expect_success()
}

/// The paths of what is stuck, as `teal status --json` has them.
fn stuck(m: &Mounted) -> Vec<String> {
    let status = m.status();
    let list = status["upstream"]["stuck_files"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    list.iter()
        .map(|one| one["path"].as_str().unwrap().to_owned())
        .collect()
}

/// `teal flush` fails with these words.
#[track_caller]
fn flush_names(m: &Mounted, words: &[&str]) {
    let said = try_flush(m);
    assert_ne!(said.code, 0, "{said}");
    for word in words {
        assert!(said.stderr.contains(word), "no {word:?}: {said}");
    }
}

/// A mount of the test's own.
struct Fitting(PathBuf);

impl Fitting {
    fn new(args: &[&str], point: PathBuf) -> Self {
        run_program(Command::new("mount").args(args).arg(&point)).expect_success();
        Self(point)
    }
}

impl Drop for Fitting {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

fn set_xattr(file: &Path, name: &str, len: usize) {
    let value = vec![name.as_bytes()[5]; len];
    rustix::fs::setxattr(file, name, &value, XattrFlags::empty()).unwrap();
}

#[test]
fn names_and_attributes_that_are_too_many_together_become_a_conflict_and_nothing_stops() {
    let test =
        "names_and_attributes_that_are_too_many_together_become_a_conflict_and_nothing_stops";
    let begin = |root: &Path| {
        fs::write(root.join("linked"), "x").unwrap();
        fs::write(root.join("described"), "x").unwrap();
    };
    let Some((cable, nas, laptop)) = apart(test, begin) else {
        return;
    };
    cable.unplug(LAPTOP);
    for (m, who) in [(&nas.0, "nas"), (&laptop, "laptop")] {
        let dir = m.path(who);
        fs::create_dir(&dir).unwrap();
        for n in 0..600 {
            fs::hard_link(m.path("linked"), dir.join(format!("name {n}"))).unwrap();
        }
        for n in 0..3 {
            set_xattr(&m.path("described"), &format!("user.{who}{n}"), 30_000);
        }
        fs::write(m.path(format!("beside of {who}")), seeded(3, 5000)).unwrap();
    }
    flush(&nas.0);
    cable.plug(LAPTOP);
    converge(&nas.0, &laptop);
    for m in [&nas.0, &laptop] {
        assert_eq!(fs::metadata(m.path("linked")).unwrap().nlink(), 1000);
        assert_eq!(
            fs::metadata(m.path("nas/name 599")).unwrap().nlink(),
            1000,
            "the first to commit keeps all names"
        );
        assert!(m.path("beside of laptop").exists() && m.path("beside of nas").exists());
        assert!(stuck(m).is_empty(), "{}", m.status());
        assert!(shown(m).contains("safe?    yes"), "{}", shown(m));
    }
    // Each name and attribute that is not there is said, with the path of the file.
    let said = conflicts(&laptop);
    assert_eq!(
        said.lines()
            .filter(|line| line.contains("linked") || line.contains("name "))
            .count(),
        201,
        "{said}"
    );
    assert_eq!(
        said.lines()
            .filter(|line| line.contains("described"))
            .count(),
        2,
        "{said}"
    );
    end(vec![laptop, nas.0]);
}

#[test]
fn a_flush_right_after_the_server_was_killed_and_started_again_goes_on_by_itself() {
    let test = "a_flush_right_after_the_server_was_killed_and_started_again_goes_on_by_itself";
    let Some(world) = World::new(test) else {
        return;
    };
    let mut nas = Nas::alone(world, |root| {
        fs::write(root.join("known"), "known").unwrap()
    });
    let with = nas.serve_for_good();
    let laptop = join(test, &with);
    converge(&nas.0, &laptop);
    for round in 0..15 {
        fs::write(laptop.path("file"), seeded(round, 20_000)).unwrap();
        nas.0.kill();
        nas.0.up();
        flush(&laptop);
        assert_eq!(laptop.status()["upstream"]["only_here"], 0);
    }
    converge(&nas.0, &laptop);
    end(vec![laptop, nas.0]);
}

#[test]
fn a_file_too_large_for_the_servers_disk_is_named_and_all_smaller_ones_go() {
    let test = "a_file_too_large_for_the_servers_disk_is_named_and_all_smaller_ones_go";
    let Some(world) = World::new(test) else {
        return;
    };
    let data = world.path("server's data");
    let chunks = data.join("chunks");
    fs::create_dir_all(&chunks).unwrap();
    let disk = Fitting::new(
        &["-t", "tmpfs", "-o", "size=48m,mode=700", "none"],
        chunks.clone(),
    );
    let mut nas = Nas::alone(world, |root| {
        fs::write(root.join("known"), "known").unwrap()
    });
    let with = nas.serve_with(&["--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]);
    let (laptop, other) = (join(test, &with), join(test, &nas.serve()));
    converge(&nas.0, &laptop);
    fs::create_dir(laptop.path("dir")).unwrap();
    for n in 0..20 {
        fs::write(laptop.path(format!("dir/small {n}")), seeded(n, 400)).unwrap();
    }
    fs::write(laptop.path("dir/much too large"), seeded(77, 60_000_000)).unwrap();
    for n in 20..40 {
        fs::write(laptop.path(format!("dir/small {n}")), seeded(n, 400)).unwrap();
    }
    flush_names(&laptop, &["dir/much too large", "no space left"]);
    assert_eq!(
        stuck(&laptop),
        ["/dir/much too large"],
        "{}",
        laptop.status()
    );
    let said = shown(&laptop);
    assert!(
        said.contains("dir/much too large") && said.contains("safe?    NO"),
        "{said}"
    );
    let all_there = || {
        (0..40).all(|n| {
            fs::read(other.path(format!("dir/small {n}"))).is_ok_and(|is| is == seeded(n, 400))
        })
    };
    assert!(wait_until(PATIENCE, all_there), "{}", laptop.status());
    // The changes after it are sent, too, without a message.
    fs::write(laptop.path("later"), "later").unwrap();
    assert!(wait_until(PATIENCE, || fs::read(other.path("later"))
        .is_ok_and(|is| is == b"later")));
    assert!(!other.path("dir/much too large").exists());
    run_program(
        Command::new("mount")
            .args(["-o", "remount,size=400m"])
            .arg(&chunks),
    )
    .expect_success();
    // By itself. The flush takes the file from the list right after the server has it.
    let has_gone = || laptop.status()["upstream"]["only_here"] == 0 && stuck(&laptop).is_empty();
    assert!(wait_until(PATIENCE, has_gone), "{}", laptop.status());
    let said = shown(&laptop);
    assert!(said.contains("safe?    yes"), "{said}");
    converge(&laptop, &other);
    end(vec![laptop, other, nas.0]);
    drop(disk);
}

#[test]
fn a_file_that_cannot_be_read_here_is_named_and_all_others_go() {
    let test = "a_file_that_cannot_be_read_here_is_named_and_all_others_go";
    let Some((cable, nas, mut laptop)) =
        apart(test, |root| fs::write(root.join("known"), "known").unwrap())
    else {
        return;
    };
    cable.unplug(LAPTOP);
    let marked = [
        b"this block of the file is going to be damaged ".repeat(100),
        seeded(1, 9000),
    ]
    .concat();
    fs::create_dir(laptop.path("new")).unwrap();
    fs::write(laptop.path("new/damaged"), &marked).unwrap();
    for n in 0..30 {
        fs::write(laptop.path(format!("new/whole {n}")), seeded(n, 9000)).unwrap();
    }
    laptop.down();
    damage(laptop.store(), &marked[..500]);
    laptop.up();
    cable.plug(LAPTOP);
    let only = |m: &Mounted| stuck(m) == ["/new/damaged"];
    let _ = try_flush(&laptop);
    assert!(
        wait_until(PATIENCE, || try_flush(&laptop)
            .stderr
            .contains("new/damaged")),
        "{}",
        try_flush(&laptop)
    );
    assert!(only(&laptop), "{}", laptop.status());
    assert!(shown(&laptop).contains("safe?    NO"), "{}", shown(&laptop));
    let all_there = || {
        (0..30).all(|n| {
            fs::read(nas.0.path(format!("new/whole {n}"))).is_ok_and(|is| is == seeded(n, 9000))
        })
    };
    assert!(wait_until(PATIENCE, all_there), "{}", laptop.status());
    // Written anew it goes.
    fs::write(laptop.path("new/damaged"), "whole again").unwrap();
    flush(&laptop);
    assert!(stuck(&laptop).is_empty(), "{}", laptop.status());
    flush(&nas.0);
    compare_replicas(nas.0.point(), laptop.point());
    end(vec![laptop, nas.0]);
}

/// Changes a byte of each place where a block of the store begins like this.
fn damage(store: &Path, what: &[u8]) {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(store)
        .unwrap();
    let (mut at, mut places, mut part) = (0, 0, vec![0; 1 << 20]);
    while let Ok(1..) = file.read_at(&mut part, at) {
        for (block, bytes) in (0_u64..).zip(part.chunks(512)) {
            if bytes.starts_with(what) {
                file.write_all_at(&[bytes[0] ^ 0xff], at + 512 * block)
                    .unwrap();
                places += 1;
            }
        }
        at += part.len() as u64;
    }
    assert!(places > 0, "the content is in the store");
}
