//! The files that come from the server when they are needed, and those that come along: real
//! mounts, a real server, loopback.

use crate::support::{
    Mounted, Nas, World, converge, end, flush, join, run_program, seeded, wait_until,
};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[test]
fn a_tree_of_small_files_comes_with_few_requests() {
    let test = "a_tree_of_small_files_comes_with_few_requests";
    let made = |root: &Path| {
        for dir in 0..20 {
            let dir = root.join(format!("d{dir}/below/deep"));
            fs::create_dir_all(&dir).unwrap();
            (0..10).for_each(|file| {
                fs::write(dir.join(format!("f{file}")), seeded(file, 4096)).unwrap()
            });
        }
    };
    let Some(mut nas) = Nas::of(test, made) else {
        return;
    };
    let with = nas.serve();
    nas.flush();
    let laptop = join(test, &with);
    for dir in fs::read_dir(laptop.point()).unwrap() {
        for file in fs::read_dir(dir.unwrap().path().join("below/deep")).unwrap() {
            assert_eq!(fs::read(file.unwrap().path()).unwrap().len(), 4096);
        }
    }
    let (waits, lists) = (
        laptop.exchanged("counts", "waits"),
        laptop.exchanged("counts", "request_list"),
    );
    // 260 entries, and 800 KiB of content: 256 KiB, then twice as much, then the rest; not one
    // request for each directory.
    assert!(
        lists <= 2 && waits <= lists + 5,
        "{}",
        laptop.status()["upstream"]
    );
    end(vec![laptop, nas.0]);
}

#[test]
fn who_enters_a_directory_that_has_just_come_knows_where_he_is() {
    let test = "who_enters_a_directory_that_has_just_come_knows_where_he_is";
    let made = |root: &Path| {
        (0..200).for_each(|dir| fs::create_dir_all(root.join(format!("d{dir}/below"))).unwrap())
    };
    let Some(mut nas) = Nas::of(test, made) else {
        return;
    };
    let with = nas.serve();
    nas.flush();
    let laptop = join(test, &with);
    // The names of a directory all come at once, and what the kernel is told of them comes a little
    // later.
    let often = "for dir in d7 below; do cd $dir; for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do /bin/pwd -P; done; done";
    let said = run_program(
        Command::new("sh")
            .args(["-ec", often])
            .current_dir(laptop.point()),
    )
    .expect_success();
    assert!(
        said.lines().last().unwrap().ends_with("/d7/below"),
        "{said}"
    );
    end(vec![laptop, nas.0]);
}

#[test]
fn who_reads_on_finds_the_next_files_there_and_who_does_not_has_no_more_come() {
    const FILES: u64 = 100;
    const SIZE: u64 = 40_000;
    let test = "who_reads_on_finds_the_next_files_there_and_who_does_not_has_no_more_come";
    let made = |root: &Path| {
        (0..FILES).for_each(|file| {
            fs::write(root.join(format!("f{file}")), seeded(file, SIZE as usize)).unwrap()
        });
    };
    let Some(mut nas) = Nas::of(test, made) else {
        return;
    };
    let with = nas.serve();
    nas.flush();
    let laptop = join(test, &with);
    let (fetched, waits) = (
        || laptop.exchanged("counts", "fetched"),
        || laptop.exchanged("counts", "waits"),
    );
    let mut first = None;
    for (file, read) in fs::read_dir(laptop.point())
        .unwrap()
        .zip((1..).map(|n| n * SIZE))
    {
        assert_eq!(fs::read(file.unwrap().path()).unwrap().len() as u64, SIZE);
        let first = *first.get_or_insert_with(&waits);
        // The later one of two parts on their way may arrive first.
        assert!(
            waits() <= first + 1,
            "after {read} bytes: {}",
            laptop.status()["upstream"]
        );
        // The build goes on after a pause, as a person's does: half of the least window, or all
        // there is, has arrived by then.
        let due = (read + (128 << 10) - SIZE).min(FILES * SIZE);
        assert!(
            wait_until(Duration::from_secs(60), || fetched() >= due),
            "{} of {due}",
            fetched()
        );
        assert!(
            read > SIZE || fetched() <= SIZE + (256 << 10),
            "{} for one file",
            fetched()
        );
    }
    assert_eq!(fetched(), FILES * SIZE, "each once");
    end(vec![laptop, nas.0]);
}

#[test]
fn content_stays_when_one_more_name_of_its_file_is_listed() {
    const SIZE: usize = 300_000;
    let test = "content_stays_when_one_more_name_of_its_file_is_listed";
    let made = |root: &Path| {
        fs::create_dir(root.join("near")).unwrap();
        fs::write(root.join("near/file"), seeded(1, SIZE)).unwrap();
        for dir in ["far", "farther"] {
            let dir = root.join(dir);
            fs::create_dir(&dir).unwrap();
            // So many files do not come ahead.
            (0..9_000).for_each(|n| fs::write(dir.join(n.to_string()), b"").unwrap());
            fs::hard_link(root.join("near/file"), dir.join("link")).unwrap();
        }
    };
    let Some(mut nas) = Nas::of(test, made) else {
        return;
    };
    let with = nas.serve();
    nas.flush();
    let laptop = join(test, &with);
    let fetched = || laptop.exchanged("counts", "fetched");
    assert!(fs::read(laptop.path("near/file")).unwrap() == seeded(1, SIZE));
    assert_eq!(fetched(), SIZE as u64);
    assert_eq!(fs::read_dir(laptop.path("far")).unwrap().count(), 9_001);
    assert!(fs::read(laptop.path("far/link")).unwrap() == seeded(1, SIZE));
    assert_eq!(fetched(), SIZE as u64, "once");
    // A file that has changed meanwhile comes anew, under every name.
    fs::write(nas.0.path("near/file"), seeded(2, SIZE)).unwrap();
    nas.flush();
    assert_eq!(fs::read_dir(laptop.path("farther")).unwrap().count(), 9_001);
    assert!(wait_until(Duration::from_secs(60), || fs::read(
        laptop.path("farther/link")
    )
    .unwrap()
        == seeded(2, SIZE)));
    end(vec![laptop, nas.0]);
}

#[test]
fn who_looks_into_a_directory_all_the_time_sees_each_name_that_comes_and_goes() {
    const FILES: usize = 100;
    let test = "who_looks_into_a_directory_all_the_time_sees_each_name_that_comes_and_goes";
    let Some(mut nas) = Nas::of(test, |root| fs::create_dir(root.join("in")).unwrap()) else {
        return;
    };
    let with = nas.serve();
    nas.flush();
    let laptop = join(test, &with);
    assert_eq!(fs::read_dir(laptop.path("in")).unwrap().count(), 0);
    // The kernel keeps what it has listed, also what it listed while something came.
    let sees = |count: usize| {
        let is_so = || fs::read_dir(nas.0.path("in")).unwrap().count() == count;
        assert!(
            wait_until(Duration::from_secs(30), is_so),
            "{count}: {}",
            nas.0.status()
        );
    };
    for n in 0..FILES {
        fs::write(laptop.path(format!("in/{n}")), b"").unwrap();
        flush(&laptop);
        sees(n + 1);
    }
    for n in 0..FILES {
        fs::remove_file(laptop.path(format!("in/{n}"))).unwrap();
        flush(&laptop);
        sees(FILES - n - 1);
    }
    end(vec![laptop, nas.0]);
}

#[test]
fn what_many_read_at_once_comes_once() {
    const FILES: usize = 120;
    let test = "what_many_read_at_once_comes_once";
    let size = |file: usize| 10_000 + file * 1_000;
    let made = |root: &Path| {
        for file in 0..FILES {
            fs::write(
                root.join(format!("f{file}")),
                seeded(file as u64, size(file)),
            )
            .unwrap();
        }
        fs::write(root.join("large"), seeded(99, 12 << 20)).unwrap();
    };
    let Some(mut nas) = Nas::of(test, made) else {
        return;
    };
    let with = nas.serve();
    nas.flush();
    let laptop = join(test, &with);
    assert_eq!(fs::read_dir(laptop.point()).unwrap().count(), FILES + 1);
    let sent = nas.0.exchanged("server_counts", "sent_bytes");
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let laptop = &laptop;
            let read_all = move || {
                for file in (0..FILES).map(|n| (n * 7 + reader * 31) % FILES) {
                    assert!(
                        fs::read(laptop.path(format!("f{file}"))).unwrap()
                            == seeded(file as u64, size(file))
                    );
                }
                assert!(fs::read(laptop.path("large")).unwrap() == seeded(99, 12 << 20));
            };
            std::thread::Builder::new()
                .spawn_scoped(scope, read_all)
                .unwrap();
        }
    });
    let sent = nas.0.exchanged("server_counts", "sent_bytes") - sent;
    let all = (0..FILES).map(size).sum::<usize>() as u64 + (12 << 20);
    assert_eq!(sent, all, "{}", laptop.status()["upstream"]);
    end(vec![laptop, nas.0]);
}

#[test]
fn a_machine_reads_a_volume_that_is_larger_than_its_store() {
    const FILES: u64 = 30;
    const SIZE: usize = 6 << 20;
    let test = "a_machine_reads_a_volume_that_is_larger_than_its_store";
    let Some(mut nas) = Nas::of(test, |root| {
        for n in 0..FILES {
            fs::write(root.join(format!("f{n}")), seeded(n, SIZE)).unwrap();
        }
        fs::write(root.join("large"), seeded(99, 90 << 20)).unwrap();
    }) else {
        return;
    };
    let with = nas.serve();
    let Some(world) = World::new(test) else {
        return;
    };
    let (point, store) = (world.path("Teal"), world.path("store.teal"));
    let places = [point.to_str().unwrap(), "--store", store.to_str().unwrap()];
    world
        .teal(
            &[
                &["join", &with.0, "--token", &with.1, "--size", "64M"][..],
                &places[..],
            ]
            .concat(),
        )
        .expect_success();
    let laptop = Mounted::found(world, store);
    nas.flush();
    for n in 0..FILES {
        assert!(
            fs::read(laptop.path(format!("f{n}"))).unwrap() == seeded(n, SIZE),
            "file {n}"
        );
    }
    assert!(
        fs::read(laptop.path("large")).unwrap() == seeded(99, 90 << 20),
        "one that is larger than the store"
    );
    // A new file stays here, and makes others make way.
    fs::write(laptop.path("mine"), seeded(7, 30 << 20)).unwrap();
    for n in (0..FILES).rev() {
        assert!(
            fs::read(laptop.path(format!("f{n}"))).unwrap() == seeded(n, SIZE),
            "file {n} again"
        );
    }
    assert!(fs::read(laptop.path("mine")).unwrap() == seeded(7, 30 << 20));
    converge(&nas.0, &laptop);
    end(vec![laptop, nas.0]);
}
