//! A server that was put back from an older copy, on real machines: what it lost comes back to it,
//! and nothing else is lost.

use crate::support::{Mounted, Nas, compare_trees, converge, end, fill, join, run_program, seeded};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn copy(from: &Path, to: &Path) {
    run_program(Command::new("cp").arg("-a").arg(from).arg(to)).expect_success();
}

/// A served volume, a machine that joined it, and the server's data as it is to be put back later.
struct RestoredServer {
    nas: Nas,
    laptop: Mounted,
    data: PathBuf,
    backup: PathBuf,
}

impl RestoredServer {
    fn new(test: &str) -> Option<Self> {
        let mut nas = Nas::of(test, |root| fill(root, 7, 60))?;
        let laptop = join(test, &nas.serve_for_good());
        converge(&nas.0, &laptop);
        let data = nas.0.store().with_extension("teal.d").join("server");
        let backup = nas.0.world().path("backup");
        nas.0.down();
        copy(&data, &backup);
        nas.0.up();
        Some(Self {
            nas,
            laptop,
            data,
            backup,
        })
    }

    /// Puts the server back to its earlier state. Machines that are not away notice at once.
    fn restore(&mut self) {
        self.nas.0.down();
        fs::remove_dir_all(&self.data).unwrap();
        copy(&self.backup, &self.data);
        self.nas.0.up();
    }

    #[track_caller]
    fn assert_no_conflicts(&self) {
        let said = run_program(&mut self.laptop.world().command(&[
            "conflicts",
            "ls",
            self.laptop.point().to_str().unwrap(),
        ]))
        .expect_success();
        assert!(said.contains("no conflicts"), "{said}");
    }
}

/// Every kind of change.
fn change(m: &Mounted, name: &str) {
    let dir = m.path(name);
    fs::create_dir(&dir).unwrap();
    fill(&dir, 3, 20);
    fs::write(dir.join("large"), seeded(9, 3_000_000)).unwrap();
    fs::write(m.path("d0/f0"), "changed after the copy").unwrap();
    fs::rename(m.path("d1"), dir.join("moved")).unwrap();
    fs::hard_link(m.path("d0/f0"), dir.join("link")).unwrap();
    fs::set_permissions(
        m.path("d2"),
        std::os::unix::fs::PermissionsExt::from_mode(0o750),
    )
    .unwrap();
    run_program(
        Command::new("setfattr")
            .args(["-n", "user.colour", "-v", "teal"])
            .arg(m.path("d0/f0")),
    )
    .expect_success();
}

#[test]
fn what_a_restored_server_lost_comes_back_from_those_who_have_it() {
    let test = "what_a_restored_server_lost_comes_back_from_those_who_have_it";
    let Some(mut ground) = RestoredServer::new(test) else {
        return;
    };
    change(&ground.laptop, "of the laptop");
    fs::remove_file(ground.laptop.path("d0/f7")).unwrap();
    converge(&ground.nas.0, &ground.laptop);
    let before = ground.nas.0.world().path("before");
    copy(ground.laptop.point(), &before);
    ground.restore();
    // Not sent before the server was lost, and made while it is compared.
    fs::write(ground.laptop.path("of the laptop/later"), "later").unwrap();
    fs::write(before.join("of the laptop/later"), "later").unwrap();
    converge(&ground.nas.0, &ground.laptop);
    // A removal that the server lost is undone: it looks like a file that only that machine has.
    let again = fs::read(ground.laptop.path("d0/f7")).unwrap();
    fs::write(before.join("d0/f7"), &again).unwrap();
    for name in ["of the laptop/later", "d0/f7"] {
        run_program(
            Command::new("touch")
                .arg("-r")
                .arg(ground.laptop.path(name))
                .arg(before.join(name)),
        )
        .expect_success();
        run_program(
            Command::new("chmod")
                .arg("--reference")
                .arg(ground.laptop.path(name))
                .arg(before.join(name)),
        )
        .expect_success();
    }
    // A directory's time is that of the newest change of an entry, and those have been made again.
    let times = "find . -type d -exec touch -r {} \"$0\"/{} \\;";
    run_program(
        Command::new("sh")
            .args(["-c", times])
            .arg(&before)
            .current_dir(ground.laptop.point()),
    )
    .expect_success();
    compare_trees(&before, ground.laptop.point());
    ground.assert_no_conflicts();
    // A machine that joins now gets all of it from the server.
    let desk = join(&format!("{test} at the desk"), &ground.nas.serve());
    compare_trees(&before, desk.point());
    end(vec![desk, ground.laptop, ground.nas.0]);
}

#[test]
fn who_went_on_with_a_restored_server_is_not_set_back_by_who_comes_later() {
    let test = "who_went_on_with_a_restored_server_is_not_set_back_by_who_comes_later";
    let Some(mut ground) = RestoredServer::new(test) else {
        return;
    };
    change(&ground.laptop, "of the laptop");
    converge(&ground.nas.0, &ground.laptop);
    ground.laptop.down();
    ground.restore();
    ground.nas.flush();
    // The serving machine has offered what it had of that, and goes on.
    assert_eq!(
        fs::read(ground.nas.0.path("d0/f0")).unwrap(),
        b"changed after the copy"
    );
    fs::write(
        ground.nas.0.path("d0/f0"),
        "changed again, with the restored server",
    )
    .unwrap();
    fs::write(ground.nas.0.path("d0/f1"), "so was this").unwrap();
    fs::remove_file(ground.nas.0.path("d0/f2")).unwrap();
    fs::rename(ground.nas.0.path("d0/f3"), ground.nas.0.path("d2/f3 moved")).unwrap();
    ground.nas.flush();
    ground.laptop.up();
    converge(&ground.nas.0, &ground.laptop);
    let read = |name: &str| fs::read_to_string(ground.laptop.path(name));
    assert_eq!(read("d0/f1").unwrap(), "so was this");
    assert!(read("d0/f2").is_err(), "removed with the restored server");
    assert!(read("d0/f3").is_err() && read("d2/f3 moved").is_ok());
    // Both offered the same; what the one did since stands.
    assert_eq!(
        read("d0/f0").unwrap(),
        "changed again, with the restored server"
    );
    end(vec![ground.laptop, ground.nas.0]);
}
