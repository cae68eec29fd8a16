//! Affinity that is taken away, follows saves, and is shown.

use crate::support::{self, Mounted, Nas, PATIENCE, check, end, seeded, wait_until};
use crate::{carried, catches_up, count, device, shown, text, work_and_home};
use std::fs;
use std::path::Path;
use support::Cable;

fn affinity(m: &Mounted, args: &[&str]) -> support::ProgramOutput {
    m.world().teal(&[&["affinity"], args].concat())
}

fn listed(m: &Mounted) -> String {
    affinity(m, &["ls", "usb", text(m.point())]).expect_success()
}

/// A machine with a drive, beside its server.
fn at_home(test: &str) -> Option<(Cable, Nas, Mounted, std::path::PathBuf)> {
    let (cable, nas, home, drive) = work_and_home(test)?;
    let there = carried(&nas, &home, &drive);
    catches_up(&nas, &home);
    Some((cable, nas, home, there))
}

/// As an editor saves.
fn save(file: &Path, bytes: &[u8]) {
    let new = file.with_file_name(".new");
    fs::write(&new, bytes).unwrap();
    fs::rename(&new, file).unwrap();
}

/// Waits until a drive has taken in all that waited for it.
fn settles(m: &Mounted) {
    support::flush(m);
    let before = count(&shown(m, "usb")["counts"], "bursts");
    fs::write(m.path("beside"), seeded(before, 100)).unwrap();
    support::flush(m);
    let is_done =
        |usb: &serde_json::Value| count(&usb["counts"], "bursts") > before && usb["queued"] == 0;
    assert!(
        wait_until(PATIENCE, || is_done(&shown(m, "usb"))),
        "{}",
        shown(m, "usb")
    );
}

#[test]
fn affinity_that_was_taken_away_stays_away() {
    let Some((_cable, nas, home, there)) = at_home("affinity_that_was_taken_away_stays_away")
    else {
        return;
    };
    let (doc, dir) = (home.path("doc"), home.path("sd"));
    fs::write(&doc, "one").unwrap();
    support::flush(&home);
    affinity(&home, &["add", text(&doc), "usb"]).expect_success();
    settles(&home);
    // Taken away while its successors wait for the drive.
    save(&doc, b"two");
    save(&doc, b"three");
    affinity(&home, &["rm", text(&doc), "usb"]).expect_success();
    assert_eq!(listed(&home), "");
    settles(&home);
    assert_eq!(listed(&home), "");
    let said = affinity(&home, &["rm", text(&doc), "usb"]).expect_refusal();
    assert!(said.contains("/doc has no affinity to usb"), "{said}");
    // Below a directory that gives it to whatever comes.
    fs::create_dir_all(dir.join("x/y")).unwrap();
    fs::write(dir.join("x/1"), "one").unwrap();
    affinity(&home, &["add", text(&dir), "usb", "--sticky"]).expect_success();
    settles(&home);
    for below in ["x", "x/y", "x/1"] {
        let said = affinity(&home, &["rm", text(&dir.join(below)), "usb"]).expect_refusal();
        assert!(
            said.contains(&format!("/sd/{below} is in /sd, which is sticky on usb")),
            "{said}"
        );
    }
    // Elsewhere it can be.
    fs::rename(dir.join("x"), home.path("x")).unwrap();
    affinity(&home, &["rm", text(&home.path("x")), "usb"]).expect_success();
    fs::write(home.path("x/2"), "two").unwrap();
    settles(&home);
    assert_eq!(
        listed(&home).lines().count(),
        1,
        "only /sd: {}",
        listed(&home)
    );
    affinity(&home, &["rm", text(&dir), "usb"]).expect_success();
    assert_eq!(listed(&home), "");
    device(&home, &["detach", "usb"]);
    check(home.world(), &there);
    end(vec![home, nas.0]);
}

#[test]
fn what_is_shown_to_have_affinity_is_there_and_says_how_much_of_it_is_on_the_drive() {
    let test = "what_is_shown_to_have_affinity_is_there_and_says_how_much_of_it_is_on_the_drive";
    let Some((_cable, nas, mut home, there)) = at_home(test) else {
        return;
    };
    fs::create_dir(home.path("d")).unwrap();
    let doc = home.path("d/doc");
    fs::write(&doc, seeded(1, 2 << 20)).unwrap();
    affinity(&home, &["add", text(&home.path("d")), "usb", "--sticky"]).expect_success();
    settles(&home);
    assert!(
        listed(&home).contains("   2.0 MiB  /d/doc"),
        "{}",
        listed(&home)
    );
    // Nothing is sent by itself from now on.
    home.down();
    home.mount("flush=600");
    assert!(wait_until(PATIENCE, || shown(&home, "usb")["place"].is_string()));
    for n in 2..5 {
        save(&doc, &seeded(n, 3 << 20));
        let now = listed(&home);
        assert!(
            now.contains("0 B of 3.0 MiB  /d/doc") && !now.contains('#'),
            "{now}"
        );
    }
    // A stale version is not what it was.
    support::flush(&home);
    device(&home, &["detach", "usb"]);
    device(&home, &["attach", text(&there)]);
    let now = listed(&home);
    assert!(
        now.contains("   3.0 MiB  /d/doc") && !now.contains('#'),
        "{now}"
    );
    let file = fs::OpenOptions::new().append(true).open(&doc).unwrap();
    std::io::Write::write_all(&mut &file, &seeded(9, 1 << 20)).unwrap();
    drop(file);
    assert!(
        listed(&home).contains("0 B of 4.0 MiB  /d/doc"),
        "{}",
        listed(&home)
    );
    // Removed files are not shown; neither are files that no other machine has heard of.
    fs::write(home.path("d/short"), "lived").unwrap();
    affinity(&home, &["add", text(&home.path("d")), "usb", "--sticky"]).expect_success();
    assert!(listed(&home).contains("/d/short"), "{}", listed(&home));
    fs::remove_file(home.path("d/short")).unwrap();
    fs::remove_file(&doc).unwrap();
    for _ in 0..2 {
        let now = listed(&home);
        assert!(now.lines().count() == 1 && now.contains("  /d,"), "{now}");
        device(&home, &["detach", "usb"]);
        device(&home, &["attach", text(&there)]);
    }
    device(&home, &["detach", "usb"]);
    check(home.world(), &there);
    end(vec![home, nas.0]);
}
