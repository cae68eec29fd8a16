//! Servers that are full, cannot write, or are newer.

use super::identity::old_volume;
use super::support::stranger::{Office, Stranger, call_with, days_ago, identity_dir};
use super::support::{
    Nas, PATIENCE, World, converge, end, flush, is_long, join, run_program, seeded, wait_until,
};
use super::{Volume, flush_fails, trouble};
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use teal_net::ClientIdentity;
use teal_proto::{ClientRequest, PROTOCOL, ServerReply, encode_request};

#[test]
fn another_protocol_is_named_on_both_sides() {
    let test = "another_protocol_is_named_on_both_sides";
    let Some((mut volume, mut other, peer)) = old_volume(test) else {
        return;
    };
    let stranger = Stranger::new(&mut volume.nas);
    let mut newer = encode_request(&ClientRequest::Incarnate).unwrap();
    newer[0] += 1;
    match call_with(&stranger.channel(), &newer).unwrap() {
        ServerReply::Refused(refused) => {
            let ours = format!(
                "the other side speaks protocol {} and this program protocol {PROTOCOL}",
                PROTOCOL + 1
            );
            assert!(
                refused.words.contains(&ours) && refused.words.contains("update the older"),
                "{refused}"
            );
        }
        reply => panic!("{reply:?}"),
    }
    // The program meets a server that is newer.
    let answer = [(PROTOCOL + 1).to_le_bytes().as_slice(), &[0; 9]].concat();
    let office = Office::new(&other.world().path("newer"), days_ago(0), peer, answer);
    let own = ClientIdentity::load(&identity_dir(&other)).unwrap();
    let setting = other.store().with_extension("teal.d").join("replica.toml");
    let before = fs::read_to_string(&setting).unwrap();
    let address = before
        .lines()
        .find_map(|line| line.strip_prefix("address = "))
        .unwrap();
    fs::write(
        &setting,
        before.replace(address, &format!("{:?}", office.address)),
    )
    .unwrap();
    office.identity.save(&identity_dir(&other)).unwrap();
    other.up();
    let (theirs, ours) = (
        format!("protocol {}", PROTOCOL + 1),
        format!("protocol {PROTOCOL}"),
    );
    trouble(&other, &[&theirs, &ours, "update the older of the two"]);
    assert_eq!(fs::read(other.path("only here")).unwrap(), b"not lost");
    other.down();
    fs::write(&setting, before).unwrap();
    own.save(&identity_dir(&other)).unwrap();
    other.up();
    converge(&volume.nas.0, &other);
    volume.is_undisturbed();
    end(vec![other]);
    volume.end();
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

#[test]
fn a_server_without_space_says_so_and_takes_everything_when_it_has_some() {
    let test = "a_server_without_space_says_so_and_takes_everything_when_it_has_some";
    let Some(world) = World::new(test) else {
        return;
    };
    let data = world.path("server's data");
    fs::create_dir(&data).unwrap();
    let disk = Fitting::new(
        &["-t", "tmpfs", "-o", "size=24m,mode=700", "none"],
        data.clone(),
    );
    let mut nas = Nas::alone(world, |root| {
        fs::write(root.join("known"), seeded(1, 200_000)).unwrap()
    });
    let with = nas.serve_with(&["--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]);
    let (laptop, other) = (join(test, &with), join(test, &nas.serve()));
    converge(&nas.0, &laptop);
    // In one file: of several, those that fit would have been committed, and be kept as versions.
    fs::write(laptop.path("large"), seeded(1, 48_000_000)).unwrap();
    let words = [
        "not everything is at the server",
        "no space left for",
        "make room",
        data.to_str().unwrap(),
    ];
    flush_fails(&laptop, &words);
    let stuck = || {
        laptop.status()["upstream"]["stuck"]
            .as_str()
            .is_some_and(|why| why.contains("no space left"))
    };
    assert!(wait_until(PATIENCE, stuck), "{}", laptop.status());
    let shown = laptop
        .world()
        .teal(&["status", laptop.point().to_str().unwrap()])
        .expect_success();
    assert!(
        shown.contains("does not take changes") && shown.contains("safe?    NO"),
        "{shown}"
    );
    // Everything goes on, on all machines: what is known is served, what is new waits.
    assert_eq!(fs::read(other.path("known")).unwrap(), seeded(1, 200_000));
    for (m, name) in [(&other, "of another"), (&nas.0, "of the nas")] {
        fs::write(m.path(name), seeded(50, 4_000_000)).unwrap();
        run_program(Command::new("sync").arg("-f").arg(m.point())).expect_success();
        assert_eq!(fs::read(m.path(name)).unwrap(), seeded(50, 4_000_000));
    }
    let large = fs::read(laptop.path("large")).unwrap();
    assert!(large == seeded(1, 48_000_000), "the large file is whole");
    run_program(
        Command::new("mount")
            .args(["-o", "remount,size=400m"])
            .arg(&data),
    )
    .expect_success();
    // Without being told.
    let all = [&laptop, &other, &nas.0];
    let drained = || all.iter().all(|m| m.status()["upstream"]["only_here"] == 0);
    assert!(wait_until(PATIENCE, drained), "{}", laptop.status());
    converge(&nas.0, &laptop);
    converge(&nas.0, &other);
    assert!(laptop.status()["upstream"]["stuck"].is_null());
    end(vec![laptop, other, nas.0]);
    drop(disk);
}

#[test]
fn chunks_that_cannot_be_written_are_said_and_sent_later() {
    let test = "chunks_that_cannot_be_written_are_said_and_sent_later";
    let Some(mut volume) = Volume::new(test) else {
        return;
    };
    let with = volume.nas.serve();
    let (nas, laptop) = (&volume.nas, &volume.laptop);
    let chunks = nas.0.store().with_extension("teal.d").join("server/chunks");
    let bound = Fitting::new(&["--bind", chunks.to_str().unwrap()], chunks.clone());
    run_program(
        Command::new("mount")
            .args(["-o", "remount,bind,ro"])
            .arg(&chunks),
    )
    .expect_success();
    fs::write(laptop.path("new"), seeded(7, 3_000_000)).unwrap();
    flush_fails(
        laptop,
        &[
            "the server refuses",
            "cannot be written: make the place writable",
            chunks.to_str().unwrap(),
        ],
    );
    let stuck = || {
        laptop.status()["upstream"]["stuck"]
            .as_str()
            .is_some_and(|why| why.contains("cannot be written"))
    };
    assert!(wait_until(PATIENCE, stuck), "{}", laptop.status());
    // The content that exists is served.
    assert_eq!(fs::read(laptop.path("known")).unwrap(), seeded(1, 200_000));
    let third = join(test, &with);
    assert_eq!(fs::read(third.path("known")).unwrap(), seeded(1, 200_000));
    drop(bound);
    assert!(
        wait_until(PATIENCE, || laptop.status()["upstream"]["only_here"] == 0),
        "{}",
        laptop.status()
    );
    converge(&nas.0, &third);
    assert_eq!(fs::read(third.path("new")).unwrap(), seeded(7, 3_000_000));
    end(vec![third]);
    volume.end();
}

/// Bytes of the packs in a server's data, how many there are, and what they take of the disk.
fn packs(data: &Path) -> (u64, usize, u64) {
    let (mut bytes, mut many, mut taken) = (0, 0, 0);
    let mut dirs = vec![data.join("chunks/packs")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten() {
            let path = entry.unwrap().path();
            // One that has just been removed is none.
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_dir() => dirs.push(path),
                Ok(meta) => {
                    (bytes, many, taken) =
                        (bytes + meta.len(), many + 1, taken + meta.blocks() * 512)
                }
                Err(_) => {}
            }
        }
    }
    (bytes, many, taken)
}

#[test]
fn small_changes_of_a_large_file_cost_the_server_little() {
    let test = "small_changes_of_a_large_file_cost_the_server_little";
    const SIZE: u64 = 10_000_000;
    let edits = if is_long() { 1000 } else { 60 };
    let Some(mut nas) = Nas::of(test, |root| {
        fs::write(root.join("large"), seeded(1, SIZE as usize)).unwrap()
    }) else {
        return;
    };
    let laptop = join(test, &nas.serve());
    converge(&nas.0, &laptop);
    let mut expected = fs::read(laptop.path("large")).unwrap();
    let data = nas.0.store().with_extension("teal.d").join("server");
    let before = packs(&data);
    let file = fs::OpenOptions::new()
        .write(true)
        .open(laptop.path("large"))
        .unwrap();
    for n in 0..edits {
        let at = (n * 7_919_317) % (SIZE - 100);
        let bytes = seeded(n, 100);
        file.write_all_at(&bytes, at).unwrap();
        expected[at as usize..at as usize + 100].copy_from_slice(&bytes);
        flush(&laptop);
    }
    drop(file);
    // An edit may lie in two blocks.
    let most = edits * (4096 + 400) + (edits / 8) * 4096;
    let is_little = || {
        let (bytes, many, taken) = packs(&data);
        bytes - before.0 < most && taken - before.2 < most + (64 << 12) && many < before.1 + 48
    };
    assert!(
        wait_until(PATIENCE, is_little),
        "{edits} edits: {:?}, and {before:?} before",
        packs(&data)
    );
    println!(
        "{edits} edits: bytes, packs, bytes of disk: {:?}, and {before:?} before",
        packs(&data)
    );
    converge(&nas.0, &laptop);
    assert!(fs::read(nas.0.path("large")).unwrap() == expected);
    end(vec![laptop, nas.0]);
}

#[test]
fn an_upload_that_failed_gives_its_space_back_to_others() {
    let test = "an_upload_that_failed_gives_its_space_back_to_others";
    let Some(world) = World::new(test) else {
        return;
    };
    let data = world.path("server's data");
    fs::create_dir(&data).unwrap();
    let disk = Fitting::new(&["-t", "tmpfs", "-o", "size=40m", "none"], data.clone());
    let mut nas = Nas::alone(world, |root| {
        fs::write(root.join("known"), seeded(1, 200_000)).unwrap()
    });
    let (address, _) =
        nas.serve_with(&["--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]);
    // At an address that stays.
    let laptop = join(test, &nas.serve_at(&address));
    converge(&nas.0, &laptop);
    // In one file: of several, those that fit would have been committed, and be kept as versions.
    fs::write(laptop.path("large"), seeded(1, 48_000_000)).unwrap();
    flush_fails(
        &laptop,
        &["no space left for", "make room", data.to_str().unwrap()],
    );
    assert!(packs(&data).0 > 20 << 20, "it came far: {:?}", packs(&data));
    // The upload is given up; its content has no name, and makes way when another machine needs the
    // room.
    fs::remove_file(laptop.path("large")).unwrap();
    for n in 0..6 {
        fs::write(nas.0.path(format!("other{n}")), seeded(100 + n, 4_000_000)).unwrap();
    }
    run_program(Command::new("sync").arg("-f").arg(nas.0.point())).expect_success();
    // The server dies at any point of it, and goes on.
    let _ = nas
        .0
        .world()
        .teal(&["flush", nas.0.point().to_str().unwrap()]);
    nas.0.kill();
    nas.0.up();
    assert!(
        wait_until(PATIENCE, || nas.0.status()["upstream"]["only_here"] == 0),
        "{}",
        nas.0.status()
    );
    assert!(
        wait_until(PATIENCE, || packs(&data).0 < 30 << 20),
        "{:?}",
        packs(&data)
    );
    assert!(
        wait_until(PATIENCE, || laptop.status()["upstream"]["only_here"] == 0),
        "{}",
        laptop.status()
    );
    for n in 0..6 {
        assert_eq!(
            fs::read(nas.0.path(format!("other{n}"))).unwrap(),
            seeded(100 + n, 4_000_000)
        );
    }
    assert_eq!(fs::read(nas.0.path("known")).unwrap(), seeded(1, 200_000));
    end(vec![laptop, nas.0]);
    drop(disk);
}
