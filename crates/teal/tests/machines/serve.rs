//! One volume on two machines: served here, joined there, with real mounts, a real server and a
//! real network on loopback.

use crate::support::{
    Mounted, Nas, PATIENCE, World, converge, end, fill, join, run_program, seeded, try_join,
    wait_until,
};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

/// Reads whole files at a time, and gives up in time: what hangs in a mount cannot be ended by the
/// test itself.
fn read(path: &Path) -> Result<Vec<u8>, std::io::Error> {
    fs::read(path)
}

#[test]
fn a_volume_that_lived_alone_is_there_on_another_machine_and_changes_go_both_ways() {
    let test = "a_volume_that_lived_alone_is_there_on_another_machine_and_changes_go_both_ways";
    let Some(mut nas) = Nas::of(test, |root| fill(root, 7, 150)) else {
        return;
    };
    let laptop = join(test, &nas.serve());
    converge(&nas.0, &laptop);
    // Changes on one machine make the other's kernel forget what it has cached: missing names,
    // sizes, content.
    assert!(fs::metadata(laptop.path("new")).is_err());
    fs::write(nas.0.path("new"), "from the nas").unwrap();
    fs::write(nas.0.path("d0/f0"), "longer than before, or shorter").unwrap();
    fs::rename(nas.0.path("d1"), nas.0.path("d2/moved")).unwrap();
    fs::remove_dir_all(nas.0.path("d3")).unwrap();
    converge(&nas.0, &laptop);
    assert_eq!(read(&laptop.path("new")).unwrap(), b"from the nas");
    let large = seeded(9, 5_000_000);
    fs::create_dir(laptop.path("made there")).unwrap();
    fs::write(laptop.path("made there/large"), &large).unwrap();
    fs::hard_link(laptop.path("new"), laptop.path("made there/link")).unwrap();
    std::os::unix::fs::symlink("../new", laptop.path("made there/symlink")).unwrap();
    fs::set_permissions(
        laptop.path("new"),
        std::os::unix::fs::PermissionsExt::from_mode(0o640),
    )
    .unwrap();
    converge(&nas.0, &laptop);
    assert_eq!(read(&nas.0.path("made there/large")).unwrap(), large);
    end(vec![laptop, nas.0]);
}

#[test]
fn a_change_elsewhere_is_seen_within_seconds_without_being_asked_for() {
    let test = "a_change_elsewhere_is_seen_within_seconds_without_being_asked_for";
    let Some(mut nas) = Nas::of(test, |root| fs::write(root.join("a"), "one").unwrap()) else {
        return;
    };
    let laptop = join(test, &nas.serve());
    nas.flush();
    assert_eq!(read(&laptop.path("a")).unwrap(), b"one");
    fs::write(nas.0.path("a"), "two, and more").unwrap();
    assert!(wait_until(PATIENCE, || read(&laptop.path("a")).unwrap()
        == b"two, and more"));
    fs::write(laptop.path("b"), "three").unwrap();
    assert!(wait_until(PATIENCE, || read(&nas.0.path("b"))
        .is_ok_and(|bytes| bytes == b"three")));
    end(vec![laptop, nas.0]);
}

#[test]
fn names_are_counted_right_where_only_one_of_them_has_been_looked_at() {
    let test = "names_are_counted_right_where_only_one_of_them_has_been_looked_at";
    let Some(mut nas) = Nas::of(test, |root| {
        for dir in ["a/x", "b/y/z", "c/u/v"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        fs::write(root.join("a/x/f"), "one").unwrap();
        fs::hard_link(root.join("a/x/f"), root.join("b/y/z/f")).unwrap();
        fs::hard_link(root.join("a/x/f"), root.join("c/u/v/g")).unwrap();
    }) else {
        return;
    };
    let with = nas.serve();
    nas.flush();
    let laptop = join(test, &with);
    assert_eq!(fs::metadata(laptop.path("a/x/f")).unwrap().nlink(), 3);
    fs::remove_file(laptop.path("a/x/f")).unwrap();
    assert_eq!(fs::metadata(laptop.path("b/y/z/f")).unwrap().nlink(), 2);
    assert_eq!(fs::read_dir(laptop.path("b/y/z")).unwrap().count(), 1);
    converge(&nas.0, &laptop);
    end(vec![laptop, nas.0]);
}

#[test]
fn no_time_changes_when_changes_are_sent() {
    let test = "no_time_changes_when_changes_are_sent";
    let Some(mut nas) = Nas::of(test, |root| {
        fs::create_dir_all(root.join("known/to")).unwrap()
    }) else {
        return;
    };
    let laptop = join(test, &nas.serve());
    converge(&nas.0, &laptop);
    let past = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    for (m, place) in [(&nas.0, "of the nas"), (&laptop, "of the laptop")] {
        let made = |name: &str| m.path(place).join(name);
        fs::create_dir_all(made("dir")).unwrap();
        fs::write(made("dir").join("file"), "content").unwrap();
        fs::write(made("moved"), "content").unwrap();
        fs::create_dir(made("untarred")).unwrap();
        fs::write(made("untarred").join("file"), "content").unwrap();
        let dir = fs::OpenOptions::new()
            .read(true)
            .open(made("untarred"))
            .unwrap();
        dir.set_modified(past).unwrap();
        let times = |path: &Path| {
            let meta = fs::symlink_metadata(path).unwrap();
            (
                (meta.mtime(), meta.mtime_nsec()),
                (meta.ctime(), meta.ctime_nsec()),
            )
        };
        let all = || {
            let names = [
                "dir",
                "dir/file",
                "untarred",
                "untarred/file",
                "untarred/link",
                "long untarred",
            ]
            .map(made);
            let all = [m.path("known"), m.path("known/to")]
                .into_iter()
                .chain(names)
                .filter(|path| path.exists());
            all.map(|path| times(&path)).collect::<Vec<_>>()
        };
        // This directory is known to the server already, as when unpacking takes longer than the
        // time to the next flush.
        fs::create_dir(made("long untarred")).unwrap();
        converge(&nas.0, &laptop);
        fs::write(made("long untarred").join("file"), "content").unwrap();
        fs::OpenOptions::new()
            .read(true)
            .open(made("long untarred"))
            .unwrap()
            .set_modified(past)
            .unwrap();
        let before = all();
        // Flushes come by themselves meanwhile: nothing is to be seen of them.
        converge(&nas.0, &laptop);
        assert_eq!(all(), before, "{place}");
        fs::rename(made("moved"), m.path("known/to").join(place)).unwrap();
        fs::hard_link(made("dir/file"), made("untarred/link")).unwrap();
        fs::remove_file(made("untarred/file")).unwrap();
        let before = all();
        converge(&nas.0, &laptop);
        assert_eq!(all(), before, "{place}");
    }
    end(vec![laptop, nas.0]);
}

#[test]
fn both_sides_of_a_conflict_are_kept_shown_and_settled() {
    let test = "both_sides_of_a_conflict_are_kept_shown_and_settled";
    let Some(mut nas) = Nas::of(test, |root| {
        fs::write(root.join("report.txt"), "first").unwrap()
    }) else {
        return;
    };
    let mut laptop = join(test, &nas.serve());
    converge(&nas.0, &laptop);
    let dir = |m: &Mounted| m.point().to_str().unwrap().to_owned();
    // Apart: the server is away while both write.
    laptop.down();
    fs::write(nas.0.path("report.txt"), "of the nas").unwrap();
    nas.flush();
    // The laptop comes up without its server, so that it writes before it hears of the other
    // change.
    let away = laptop.store().with_extension("teal.d");
    let hidden = away.with_extension("away");
    fs::rename(&away, &hidden).unwrap();
    laptop.up();
    fs::write(laptop.path("report.txt"), "of the laptop").unwrap();
    laptop.down();
    fs::rename(&hidden, &away).unwrap();
    laptop.up();
    converge(&nas.0, &laptop);
    assert_eq!(read(&nas.0.path("report.txt")).unwrap(), b"of the nas");
    let copies: Vec<_> = fs::read_dir(nas.0.point())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("(conflict laptop "))
        .collect();
    assert_eq!(copies.len(), 1, "{copies:?}");
    assert!(
        copies[0].starts_with("report (conflict laptop ") && copies[0].ends_with(").txt"),
        "{copies:?}"
    );
    assert_eq!(read(&laptop.path(&copies[0])).unwrap(), b"of the laptop");
    for m in [&nas.0, &laptop] {
        let said = m
            .world()
            .teal(&["conflicts", "ls", &dir(m)])
            .expect_success();
        assert!(
            said.contains("two contents") && said.contains(&copies[0]),
            "{said}"
        );
        let shown = m
            .world()
            .teal(&["conflicts", "show", "1", &dir(m)])
            .expect_success();
        assert!(
            shown.contains("laptop") && shown.contains("report.txt"),
            "{shown}"
        );
    }
    laptop
        .world()
        .teal(&[
            "conflicts",
            "resolve",
            "1",
            "--keep",
            "later",
            &dir(&laptop),
        ])
        .expect_success();
    converge(&nas.0, &laptop);
    assert_eq!(read(&nas.0.path("report.txt")).unwrap(), b"of the laptop");
    assert!(
        nas.0
            .world()
            .teal(&["conflicts", "ls", &dir(&nas.0)])
            .expect_success()
            .contains("no conflicts")
    );
    end(vec![laptop, nas.0]);
}

#[test]
fn without_the_server_what_is_here_works_and_what_is_not_fails_at_once() {
    let test = "without_the_server_what_is_here_works_and_what_is_not_fails_at_once";
    let Some(mut nas) = Nas::of(test, |root| {
        fs::write(root.join("read"), "read before").unwrap();
        fs::write(root.join("unread"), seeded(3, 400_000)).unwrap();
        fs::create_dir(root.join("unlisted")).unwrap();
        fs::create_dir(root.join("unlisted/below")).unwrap();
        fs::write(root.join("unlisted/below/file"), "far").unwrap();
    }) else {
        return;
    };
    let with = nas.serve();
    let port = with.0.rsplit_once(':').unwrap().1.to_owned();
    let laptop = join(test, &with);
    nas.flush();
    assert_eq!(read(&laptop.path("read")).unwrap(), b"read before");
    nas.0.kill();
    let host = |e: std::io::Error| e.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    assert_eq!(read(&laptop.path("read")).unwrap(), b"read before");
    assert_eq!(
        host(read(&laptop.path("unread")).unwrap_err()),
        Some(rustix::io::Errno::HOSTUNREACH)
    );
    // Its size and its name are known, its content is not: it is never an empty file.
    assert_eq!(fs::metadata(laptop.path("unread")).unwrap().len(), 400_000);
    fs::write(laptop.path("offline"), "written without the server").unwrap();
    fs::rename(laptop.path("read"), laptop.path("renamed")).unwrap();
    let status = laptop.status();
    assert!(status["upstream"]["trouble"].is_string(), "{status}");
    let shown = laptop
        .world()
        .teal(&["status", laptop.point().to_str().unwrap()])
        .expect_success();
    assert!(
        shown.contains("out of reach") && shown.contains("safe?    NO"),
        "{shown}"
    );
    // The server comes back on its old port.
    let (point, store) = (
        nas.0.point().to_str().unwrap().to_owned(),
        nas.0.store().to_str().unwrap().to_owned(),
    );
    let listen = format!("127.0.0.1:{port}");
    nas.0
        .world()
        .teal(&["serve", &point, "--store", &store, "--listen", &listen])
        .expect_success();
    nas.0.adopt();
    assert!(
        wait_until(PATIENCE, || laptop.status()["upstream"]["only_here"] == 0),
        "{}",
        laptop.status()
    );
    assert!(wait_until(PATIENCE, || read(&laptop.path("unread")).is_ok()));
    converge(&nas.0, &laptop);
    assert_eq!(
        read(&nas.0.path("offline")).unwrap(),
        b"written without the server"
    );
    assert_eq!(read(&nas.0.path("renamed")).unwrap(), b"read before");
    end(vec![laptop, nas.0]);
}

#[test]
fn a_large_file_on_its_way_does_not_hold_up_the_rest() {
    let test = "a_large_file_on_its_way_does_not_hold_up_the_rest";
    let Some(mut nas) = Nas::of(test, |root| fs::write(root.join("a"), "one").unwrap()) else {
        return;
    };
    let mut laptop = join(test, &nas.serve());
    nas.flush();
    laptop.down();
    laptop.mount("flush=1,delay_ms=150");
    let count = |name: &str| laptop.exchanged("counts", name);
    let large = seeded(5, 68 << 20);
    fs::write(laptop.path("large"), &large).unwrap();
    assert!(
        wait_until(PATIENCE, || count("sent_bytes") > 6 << 20),
        "it is on its way"
    );
    for n in 0..2 {
        fs::write(laptop.path(format!("small{n}")), "and this").unwrap();
        fs::write(nas.0.path("a"), format!("two{n}")).unwrap();
        assert!(wait_until(PATIENCE, || nas
            .0
            .path(format!("small{n}"))
            .exists()));
        assert!(wait_until(PATIENCE, || read(&laptop.path("a")).unwrap()
            == format!("two{n}").as_bytes()));
    }
    assert!(!nas.0.path("large").exists(), "it is still on its way");
    assert!(wait_until(PATIENCE, || nas.0.path("large").exists()));
    let sent = count("sent_bytes");
    assert!(
        sent < 80 << 20,
        "{sent} bytes were sent: what the server had was not sent again"
    );
    converge(&nas.0, &laptop);
    assert_eq!(read(&nas.0.path("large")).unwrap(), large);
    end(vec![laptop, nas.0]);
}

/// A process that is stopped, as long as this lives.
struct Silence(rustix::process::Pid);

impl Silence {
    fn of(pid: i32) -> Self {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        Self(pid)
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(self.0, rustix::process::Signal::CONT);
    }
}

#[test]
fn while_many_wait_for_a_server_that_says_nothing_everybody_else_goes_on() {
    const FILES: usize = 3;
    let test = "while_many_wait_for_a_server_that_says_nothing_everybody_else_goes_on";
    let Some(mut nas) = Nas::of(test, |root| {
        for n in 0..FILES {
            fs::write(root.join(format!("f{n}")), seeded(n as u64, 50_000)).unwrap();
        }
    }) else {
        return;
    };
    let mut laptop = join(test, &nas.serve());
    nas.flush();
    laptop.down();
    laptop.mount("threads=2");
    assert_eq!(fs::read_dir(laptop.point()).unwrap().count(), FILES);
    let device = fs::metadata(laptop.point()).unwrap().dev();
    let number = (rustix::fs::major(device) << 20) | rustix::fs::minor(device);
    let waiting = || {
        let count =
            fs::read_to_string(format!("/sys/fs/fuse/connections/{number}/waiting")).unwrap();
        count.trim().parse::<usize>().unwrap()
    };
    let silence = Silence::of(nas.0.pid());
    std::thread::scope(|scope| {
        let read_one = |n| {
            let path = laptop.path(format!("f{n}"));
            std::thread::Builder::new()
                .spawn_scoped(scope, move || read(&path))
                .unwrap()
        };
        let readers: Vec<_> = (0..FILES).map(read_one).collect();
        assert!(
            wait_until(PATIENCE, || waiting() >= FILES),
            "they wait for what only the server has"
        );
        fs::write(laptop.path("mine"), "written meanwhile").unwrap();
        fs::OpenOptions::new()
            .append(true)
            .open(laptop.path("mine"))
            .unwrap()
            .sync_all()
            .unwrap();
        fs::rename(laptop.path("mine"), laptop.path("renamed")).unwrap();
        assert_eq!(read(&laptop.path("renamed")).unwrap(), b"written meanwhile");
        let still = readers
            .iter()
            .filter(|reader| !reader.is_finished())
            .count();
        drop(silence);
        assert_eq!(still, FILES, "none of them had an answer");
        for (n, reader) in readers.into_iter().enumerate() {
            assert_eq!(reader.join().unwrap().unwrap(), seeded(n as u64, 50_000));
        }
    });
    converge(&nas.0, &laptop);
    end(vec![laptop, nas.0]);
}

#[test]
fn what_was_synced_on_a_machine_that_is_killed_reaches_the_server_when_it_is_back() {
    let test = "what_was_synced_on_a_machine_that_is_killed_reaches_the_server_when_it_is_back";
    let Some(mut nas) = Nas::of(test, |root| fill(root, 4, 30)) else {
        return;
    };
    let mut laptop = join(test, &nas.serve());
    converge(&nas.0, &laptop);
    for round in 0..3_u8 {
        fs::create_dir(laptop.path(format!("round{round}"))).unwrap();
        for n in 0..20 {
            fs::write(laptop.path(format!("round{round}/f{n}")), seeded(n, 9_000)).unwrap();
        }
        fs::rename(
            laptop.path(format!("d0/f{round}")),
            laptop.path(format!("round{round}/taken")),
        )
        .unwrap();
        run_program(Command::new("sync").arg("-f").arg(laptop.point())).expect_success();
        laptop.kill();
        laptop.up();
        assert_eq!(
            fs::read_dir(laptop.path(format!("round{round}")))
                .unwrap()
                .count(),
            21
        );
    }
    converge(&nas.0, &laptop);
    end(vec![laptop, nas.0]);
}

#[test]
fn a_bad_token_a_used_one_and_a_machine_shut_out_are_told_in_words() {
    let test = "a_bad_token_a_used_one_and_a_machine_shut_out_are_told_in_words";
    let Some(mut nas) = Nas::of(test, |root| fs::write(root.join("a"), "one").unwrap()) else {
        return;
    };
    let (address, token) = nas.serve();
    let stranger = World::new(test).unwrap();
    let no = |token: &str, why: &str| {
        let said = try_join(&stranger, &(address.clone(), token.to_owned()));
        assert!(said.code != 0 && said.stderr.contains(why), "{why}: {said}");
        assert!(
            !stranger.path("store.teal").exists(),
            "nothing is left of it"
        );
    };
    let (secret, print) = token.rsplit_once('.').unwrap();
    no("word", "token is not whole");
    no(&format!("{secret}.12"), "fingerprint");
    let (volume, digits) = secret.split_at(9);
    no(
        &format!("{volume}{}{}.{print}", &digits[1..], &digits[..1]),
        "no token of this server",
    );
    let other = print.replace(
        &print[..4],
        if &print[..4] == "0000" {
            "1111"
        } else {
            "0000"
        },
    );
    no(&format!("{secret}.{other}"), "");
    let laptop = join(test, &(address.clone(), token.clone()));
    nas.flush();
    assert_eq!(read(&laptop.path("a")).unwrap(), b"one");
    no(&token, "has been used");
    let replica = laptop.status()["upstream"]["replica"].to_string();
    nas.0
        .world()
        .teal(&[
            "serve",
            nas.0.point().to_str().unwrap(),
            "--store",
            nas.0.store().to_str().unwrap(),
            "--revoke",
            &replica,
            "--yes",
        ])
        .expect_success();
    fs::write(laptop.path("b"), "too late").unwrap();
    assert!(
        wait_until(PATIENCE, || laptop.status()["upstream"]["denied"] == true),
        "{}",
        laptop.status()
    );
    assert_eq!(
        read(&laptop.path("b")).unwrap(),
        b"too late",
        "what is here can be read"
    );
    fs::write(nas.0.path("c"), "undisturbed").unwrap();
    nas.flush();
    let shown = &nas.0.status()["upstream"];
    let is_out = |machine: &&serde_json::Value| machine["revoked"] == true;
    let machines: Vec<_> = shown["machines"]
        .as_array()
        .unwrap()
        .iter()
        .filter(is_out)
        .collect();
    let out: Vec<_> = machines
        .iter()
        .map(|machine| machine["replica"].to_string())
        .collect();
    assert_eq!(out, [replica], "{shown}");
    let count = |name: &str| nas.0.exchanged("server_counts", name);
    assert!(
        count("commits") >= 2 && count("request_pull") > 0,
        "{shown}"
    );
    let said = nas
        .0
        .world()
        .teal(&["status", nas.0.point().to_str().unwrap()])
        .expect_success();
    assert!(
        said.contains("shut out") && said.contains("  served   "),
        "{said}"
    );
    end(vec![laptop, nas.0]);
}

#[test]
fn with_sync_remote_fsync_waits_for_the_server_and_fails_without_it() {
    let test = "with_sync_remote_fsync_waits_for_the_server_and_fails_without_it";
    let Some(mut nas) = Nas::of(test, |_| {}) else {
        return;
    };
    let mut laptop = join(test, &nas.serve());
    laptop.down();
    laptop.mount("sync=remote,flush=3600");
    let file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(laptop.path("a"))
        .unwrap();
    let put = |bytes: &[u8]| std::io::Write::write_all(&mut &file, bytes);
    put(b"one").unwrap();
    file.sync_all().unwrap();
    assert_eq!(
        laptop.status()["upstream"]["only_here"],
        0,
        "the server has it when fsync returns"
    );
    assert!(wait_until(PATIENCE, || read(&nas.0.path("a"))
        .is_ok_and(|bytes| bytes == b"one")));
    nas.0.kill();
    put(b", two").unwrap();
    assert_eq!(
        file.sync_all().unwrap_err().raw_os_error(),
        Some(rustix::io::Errno::IO.raw_os_error())
    );
    assert_eq!(
        read(&laptop.path("a")).unwrap(),
        b"one, two",
        "it is durable here, and can be read"
    );
    put(b", three").unwrap();
    drop(file);
    laptop.kill();
    laptop.mount("sync=local");
    assert!(read(&laptop.path("a")).unwrap().starts_with(b"one, two"));
    end(vec![laptop]);
    nas.0.up();
    end(vec![nas.0]);
}

#[test]
fn a_queue_at_its_cap_makes_writers_wait_for_the_server_and_is_full_without_it() {
    let test = "a_queue_at_its_cap_makes_writers_wait_for_the_server_and_is_full_without_it";
    let Some(mut nas) = Nas::of(test, |_| {}) else {
        return;
    };
    let mut laptop = join(test, &nas.serve_for_good());
    laptop.down();
    laptop.mount("queue=4M,flush=3600");
    // Through the needle's eye: far more than the cap, and nothing is due for an hour but for its
    // sake.
    let large = seeded(3, 20_000_000);
    fs::write(laptop.path("large"), &large).unwrap();
    let only_here = |m: &Mounted| m.status()["upstream"]["only_here_bytes"].as_u64().unwrap();
    assert!(
        only_here(&laptop) <= 5 << 20,
        "{}",
        laptop.status()["upstream"]
    );
    nas.0.kill();
    let full = fs::write(laptop.path("more"), &large).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    assert!(
        only_here(&laptop) <= 5 << 20,
        "{}",
        laptop.status()["upstream"]
    );
    assert_eq!(read(&laptop.path("large")).unwrap(), large);
    fs::remove_file(laptop.path("more")).unwrap();
    fs::write(laptop.path("little"), "removing makes room").unwrap();
    nas.0.up();
    assert!(wait_until(PATIENCE, || fs::write(
        laptop.path("more"),
        &large
    )
    .is_ok()));
    converge(&nas.0, &laptop);
    end(vec![laptop, nas.0]);
}
