//! The rights to read: the server's data on its machine, the tree on a machine that was shut out,
//! and files that other machines put into the tree.

use super::support::{Mounted, Nas, PATIENCE, World, converge, end, join, run_program, wait_until};
use super::{flush_fails, trouble};
use rustix::fs::StatVfsMountFlags;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Everything in a directory, and itself.
fn all_below(dir: &Path) -> Vec<PathBuf> {
    let mut all = vec![dir.to_owned()];
    let mut at = 0;
    while at < all.len() {
        if fs::symlink_metadata(&all[at]).is_ok_and(|meta| meta.is_dir()) {
            let entries = fs::read_dir(&all[at]).unwrap();
            all.extend(entries.map(|entry| entry.unwrap().path()));
        }
        at += 1;
    }
    all
}

#[track_caller]
fn assert_private(dir: &Path) {
    for path in all_below(dir) {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(
            mode(&path) & 0o777,
            expected & mode(&path),
            "{}: {:o}",
            path.display(),
            mode(&path)
        );
        assert_eq!(
            mode(&path) & 0o077,
            0,
            "{}: {:o}",
            path.display(),
            mode(&path)
        );
    }
}

#[test]
fn what_a_server_keeps_is_readable_by_its_owner_alone() {
    let test = "what_a_server_keeps_is_readable_by_its_owner_alone";
    let Some(world) = World::new(test) else {
        return;
    };
    let data = world.path("shared disk");
    fs::create_dir(&data).unwrap();
    set_mode(&data, 0o755);
    fs::write(data.join("of somebody else"), "x").unwrap();
    let mut nas = Nas::alone(world, |root| fs::write(root.join("known"), "one").unwrap());
    let serve = [
        "serve",
        nas.0.point().to_str().unwrap(),
        "--store",
        nas.0.store().to_str().unwrap(),
    ];
    let with_data = [
        &serve[..],
        &["--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()],
    ]
    .concat();
    let said = nas.0.world().teal(&with_data).expect_refusal();
    assert!(
        said.contains("of somebody else") && said.contains("directory of its own"),
        "{said}"
    );
    assert_eq!(mode(&data), 0o755, "nothing of it was changed");
    fs::remove_file(data.join("of somebody else")).unwrap();
    set_mode(&data, 0o755);
    let with = nas.serve_with(&["--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]);
    let mut laptop = join(test, &with);
    fs::write(laptop.path("more"), vec![7; 300_000]).unwrap();
    converge(&nas.0, &laptop);
    let beside = |m: &Mounted| m.store().with_extension("teal.d");
    let names: Vec<_> = all_below(&data)
        .iter()
        .filter_map(|path| path.file_name())
        .map(|name| name.to_owned())
        .collect();
    assert!(
        ["meta.db", "meta.db-wal", "chunks"]
            .iter()
            .all(|name| names.iter().any(|known| known == name)),
        "{names:?}"
    );
    assert_private(&data);
    assert_private(&beside(&nas.0));
    assert_private(&beside(&laptop));
    // Whatever opened it since: it is closed again before anything of it is used.
    for m in [&mut nas.0, &mut laptop] {
        m.down();
        set_mode(m.store(), 0o664);
        for path in all_below(&beside(m)).into_iter().chain(all_below(&data)) {
            set_mode(&path, if path.is_dir() { 0o755 } else { 0o644 });
        }
    }
    for m in [&mut nas.0, &mut laptop] {
        m.up();
        assert_eq!(
            mode(m.store()),
            0o660,
            "its group was given its rights on purpose"
        );
    }
    assert_private(&data);
    assert_private(&beside(&nas.0));
    assert_private(&beside(&laptop));
    end(vec![laptop, nas.0]);
}

/// Returns what `teal serve` says to these arguments.
fn serve(nas: &Nas, args: &[&str]) -> super::support::ProgramOutput {
    let place = [
        "serve",
        nas.0.point().to_str().unwrap(),
        "--store",
        nas.0.store().to_str().unwrap(),
    ];
    nas.0.world().teal(&[&place[..], args].concat())
}

fn shown(m: &Mounted) -> String {
    m.world()
        .teal(&["status", m.point().to_str().unwrap()])
        .expect_success()
}

#[test]
fn a_machine_shut_out_hears_nothing_more_says_so_and_can_be_let_in_again() {
    let test = "a_machine_shut_out_hears_nothing_more_says_so_and_can_be_let_in_again";
    let Some(mut nas) = Nas::of(test, |root| fs::write(root.join("known"), "one").unwrap()) else {
        return;
    };
    let laptop = join(test, &nas.serve());
    let second = join(test, &nas.serve());
    converge(&nas.0, &laptop);
    converge(&nas.0, &second);
    let listing = shown(&nas.0);
    let line = |number: u32, what: &str| format!("machine  {number} \"{what}");
    for words in [
        line(1, "nas\", this machine"),
        line(2, "laptop\", connected"),
        line(3, "laptop-2\", connected"),
    ] {
        assert!(listing.contains(&words), "{words} is not in {listing}");
    }
    // Not the serving machine, not without being asked, not what is not there.
    for (args, words) in [
        (&["--revoke", "1"][..], "which serves the volume"),
        (&["--revoke", "1", "--yes"], "which serves the volume"),
        (&["--revoke", "2"], "--revoke 2 --yes"),
        (&["--revoke", "9", "--yes"], "no machine has the number 9"),
        (&["--readmit", "2"], "is not shut out"),
    ] {
        let said = serve(&nas, args).expect_refusal();
        assert!(said.contains(words), "{args:?}: {said}");
    }
    assert!(!shown(&nas.0).contains("shut out"), "{}", shown(&nas.0));
    // The machine waits for news, and is told that it gets none.
    assert!(wait_until(
        PATIENCE,
        || laptop.status()["upstream"]["only_here"] == 0
    ));
    serve(&nas, &["--revoke", "2", "--yes"]).expect_success();
    fs::write(nas.0.path("secret"), "not for the laptop").unwrap();
    nas.flush();
    assert!(
        wait_until(PATIENCE, || laptop.status()["upstream"]["denied"] == true),
        "{}",
        laptop.status()
    );
    assert_eq!(
        fs::metadata(laptop.path("secret")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    trouble(&laptop, &["shut out"]);
    let said = shown(&laptop);
    assert!(
        said.contains("REFUSES this machine") && said.contains("safe?    unknown"),
        "{said}"
    );
    fs::write(laptop.path("mine"), "only here").unwrap();
    assert!(wait_until(
        PATIENCE,
        || laptop.status()["upstream"]["only_here"] != 0
    ));
    let said = shown(&laptop);
    assert!(
        said.contains("safe?    NO") && said.contains("takes nothing from this machine"),
        "{said}"
    );
    flush_fails(&laptop, &["shut out"]);
    assert!(
        shown(&nas.0).contains(&line(2, "laptop\", shut out")),
        "{}",
        shown(&nas.0)
    );
    converge(&nas.0, &second);
    // The way back.
    serve(&nas, &["--readmit", "2"]).expect_success();
    assert!(
        wait_until(PATIENCE, || laptop.status()["upstream"]["trouble"]
            .is_null()),
        "{}",
        laptop.status()
    );
    converge(&nas.0, &laptop);
    assert_eq!(fs::read(nas.0.path("mine")).unwrap(), b"only here");
    assert_eq!(
        fs::read(laptop.path("secret")).unwrap(),
        b"not for the laptop"
    );
    assert!(
        shown(&nas.0).contains(&line(2, "laptop\", connected")),
        "{}",
        shown(&nas.0)
    );
    end(vec![laptop, second, nas.0]);
}

/// Returns whether a device node can be opened on a mount, and setuid files have their effect.
fn takes_effect(m: &Mounted) -> (bool, bool) {
    let opened = fs::OpenOptions::new().write(true).open(m.path("null"));
    if let Err(error) = &opened {
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    }
    let flags = rustix::fs::statvfs(m.point()).unwrap().f_flag;
    (opened.is_ok(), !flags.contains(StatVfsMountFlags::NOSUID))
}

#[test]
fn device_nodes_and_setuid_files_of_one_machine_do_nothing_on_the_others_unless_allowed() {
    let test =
        "device_nodes_and_setuid_files_of_one_machine_do_nothing_on_the_others_unless_allowed";
    let Some(world) = World::new(test) else {
        return;
    };
    let mut nas = Nas::alone(world, |root| {
        run_program(
            Command::new("mknod")
                .arg(root.join("null"))
                .args(["c", "1", "3"]),
        )
        .expect_success();
    });
    assert_eq!(
        takes_effect(&nas.0),
        (true, true),
        "a volume that lives alone is its machine's"
    );
    let mut laptop = join(test, &nas.serve_with(&["--listen", "127.0.0.1:0"]));
    converge(&nas.0, &laptop);
    assert_eq!(takes_effect(&laptop), (false, false));
    assert_eq!(
        takes_effect(&nas.0),
        (false, false),
        "others can make some there, too"
    );
    laptop.down();
    laptop.mount("dev");
    assert_eq!(takes_effect(&laptop), (true, false));
    laptop.down();
    laptop.mount("dev,suid");
    assert_eq!(takes_effect(&laptop), (true, true));
    end(vec![laptop, nas.0]);
}
