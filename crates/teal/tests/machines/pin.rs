//! Files on demand: what is pinned is here, and stays; what is given back comes again; what is only
//! here is not given back.

use crate::support::{Mounted, Nas, PATIENCE, end, flush, join, seeded, wait_until};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The serving machine, with a tree, and one that joined.
fn two(test: &str) -> Option<(Nas, Mounted)> {
    let mut nas = Nas::of(test, |_| {})?;
    fs::create_dir_all(nas.0.path("papers/old")).unwrap();
    fs::write(nas.0.path("papers/one"), seeded(1, 700_000)).unwrap();
    fs::write(nas.0.path("papers/old/two"), seeded(2, 300_000)).unwrap();
    fs::write(nas.0.path("other"), seeded(3, 900_000)).unwrap();
    let home = join(test, &nas.serve_for_good());
    nas.flush();
    Some((nas, home))
}

#[track_caller]
fn said(m: &Mounted, command: &str, name: &str) -> String {
    m.world()
        .teal(&[command, text(&m.path(name))])
        .expect_success()
}

/// Bytes of a file, or of all below a directory, that are on this machine.
#[track_caller]
fn here(m: &Mounted, name: &str) -> u64 {
    let found = m
        .world()
        .teal(&["where", text(&m.path(name)), "--json"])
        .expect_success();
    serde_json::from_str::<Value>(&found).unwrap()["sources"][0]["bytes"]
        .as_u64()
        .unwrap()
}

#[track_caller]
fn comes(m: &Mounted, name: &str, bytes: u64) {
    assert!(
        wait_until(PATIENCE, || here(m, name) == bytes),
        "{name}: {} of {bytes}: {}",
        here(m, name),
        m.status()
    );
}

#[test]
fn what_is_pinned_is_here_and_stays_here_and_follows_changes_and_remounts() {
    let test = "what_is_pinned_is_here_and_stays_here_and_follows_changes_and_remounts";
    let Some((mut nas, mut home)) = two(test) else {
        return;
    };
    let pinned = said(&home, "pin", "papers");
    assert!(
        pinned.contains("2 files") && pinned.contains("on their way"),
        "{pinned}"
    );
    comes(&home, "papers", 1_000_000);
    // The directory changes elsewhere, at any depth, and its files are not read here.
    fs::write(nas.0.path("papers/one"), seeded(4, 600_000)).unwrap();
    fs::write(nas.0.path("papers/old/three"), seeded(5, 50_000)).unwrap();
    nas.flush();
    comes(&home, "papers", 950_000);
    // After a remount it goes on, and it follows renames.
    home.remount();
    fs::rename(home.path("papers"), home.path("kept")).unwrap();
    flush(&home);
    fs::write(nas.0.path("kept/four"), seeded(6, 40_000)).unwrap();
    nas.flush();
    comes(&home, "kept", 990_000);
    let status = home
        .world()
        .teal(&["status", home.point().to_str().unwrap()])
        .expect_success();
    assert!(
        status.contains("pinned   /kept; all of it is here"),
        "{status}"
    );
    let place = said(&home, "where", "kept/old/two");
    assert!(place.contains("always here: /kept is pinned"), "{place}");
    nas.0.kill();
    assert_eq!(fs::read(home.path("kept/one")).unwrap(), seeded(4, 600_000));
    assert_eq!(
        fs::read(home.path("kept/old/three")).unwrap(),
        seeded(5, 50_000)
    );
    home.down();
    home.check();
}

#[test]
fn an_atomic_save_takes_the_pin_along() {
    let test = "an_atomic_save_takes_the_pin_along";
    let Some((nas, home)) = two(test) else { return };
    said(&home, "pin", "papers/one");
    comes(&home, "papers/one", 700_000);
    fs::write(home.path("papers/.one.new"), seeded(7, 200_000)).unwrap();
    fs::rename(home.path("papers/.one.new"), home.path("papers/one")).unwrap();
    flush(&home);
    let place = said(&home, "where", "papers/one");
    assert!(place.contains("always here"), "{place}");
    fs::write(nas.0.path("papers/one"), seeded(8, 100_000)).unwrap();
    nas.flush();
    comes(&home, "papers/one", 100_000);
    end(vec![home, nas.0]);
}

#[test]
fn what_is_given_back_comes_again_and_what_is_only_here_stays() {
    let test = "what_is_given_back_comes_again_and_what_is_only_here_stays";
    let Some((mut nas, mut home)) = two(test) else {
        return;
    };
    said(&home, "pin", "papers");
    comes(&home, "papers", 1_000_000);
    let below = home
        .world()
        .teal(&["free", text(&home.path("papers/old"))])
        .expect_refusal();
    assert!(below.contains("/papers is pinned"), "{below}");
    home.down();
    home.mount("flush=3600");
    // Another machine is there: changes would go at once.
    nas.0.down();
    fs::write(home.path("papers/new"), seeded(9, 80_000)).unwrap();
    let away = home
        .world()
        .teal(&["free", text(&home.path("papers"))])
        .expect_refusal();
    assert!(away.contains("nothing was given back"), "{away}");
    assert_eq!(here(&home, "papers"), 1_080_000);
    nas.serve();
    assert!(
        wait_until(PATIENCE, || home.status()["upstream"]["trouble"].is_null()),
        "{}",
        home.status()
    );
    flush(&home);
    fs::write(home.path("papers/new"), seeded(10, 90_000)).unwrap();
    let freed = said(&home, "free", "papers");
    assert!(freed.contains("of 2 files are given back"), "{freed}");
    assert!(freed.contains("1 file (87.9 KiB) stays"), "{freed}");
    assert_eq!(here(&home, "papers"), 90_000);
    assert!(
        home.status()["upstream"]["pinned"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        fs::read(home.path("papers/one")).unwrap(),
        seeded(1, 700_000)
    );
    assert_eq!(
        fs::read(home.path("papers/new")).unwrap(),
        seeded(10, 90_000)
    );
    end(vec![home, nas.0]);
}

#[test]
fn what_does_not_fit_or_cannot_be_pinned_is_said_in_one_line() {
    let test = "what_does_not_fit_or_cannot_be_pinned_is_said_in_one_line";
    let Some((nas, home)) = two(test) else { return };
    fs::File::create_new(nas.0.path("large"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    nas.flush();
    assert!(wait_until(PATIENCE, || home.path("large").exists()));
    let refused = |m: &Mounted, command: &str, path: &Path| {
        m.world().teal(&[command, text(path)]).expect_refusal()
    };
    let large = refused(&home, "pin", &home.path("large"));
    assert!(
        large.contains("1099511627776 bytes do not fit") && large.contains("teal free"),
        "{large}"
    );
    assert!(refused(&home, "pin", &home.path("nowhere")).contains("nowhere"));
    assert!(refused(&home, "free", &home.world().path("store")).contains("store"));
    let Some(mut alone) = Mounted::new(test, "64M") else {
        return;
    };
    fs::write(alone.path("f"), "x").unwrap();
    for command in ["pin", "free"] {
        assert!(refused(&alone, command, &alone.path("f")).contains("no server"));
    }
    alone.down();
    end(vec![home, nas.0]);
}

#[test]
fn as_many_paths_as_a_byte_counts_are_pinned_and_a_directory_takes_the_place_of_those_below_it() {
    let test = "as_many_paths_as_a_byte_counts_are_pinned_and_a_directory_takes_the_place_of_those_below_it";
    let Some((nas, mut home)) = two(test) else {
        return;
    };
    fs::create_dir(home.path("many")).unwrap();
    (0..256).for_each(|n| fs::write(home.path(format!("many/{n}")), "x").unwrap());
    flush(&home);
    let pinned = |m: &Mounted| m.status()["upstream"]["pinned"].as_array().unwrap().len();
    (0..255).for_each(|n| drop(said(&home, "pin", &format!("many/{n}"))));
    home.remount();
    assert_eq!(pinned(&home), 255, "they outlive the mount");
    for path in ["many/255", "other"] {
        let refused = home
            .world()
            .teal(&["pin", text(&home.path(path))])
            .expect_refusal();
        assert!(
            refused.contains("255 paths are pinned; pin a directory above some of them"),
            "{refused}"
        );
    }
    said(&home, "pin", "many/0");
    assert_eq!(pinned(&home), 255, "it was pinned before");
    assert!(said(&home, "pin", "many").contains("256 files"));
    assert_eq!(pinned(&home), 1);
    said(&home, "pin", "other");
    comes(&home, "other", 900_000);
    end(vec![home, nas.0]);
}

#[test]
fn what_is_below_a_pinned_directory_is_given_back_only_with_it_whatever_was_pinned_first() {
    let test =
        "what_is_below_a_pinned_directory_is_given_back_only_with_it_whatever_was_pinned_first";
    let Some((nas, home)) = two(test) else { return };
    let pinned = || {
        home.status()["upstream"]["pinned"]
            .as_array()
            .unwrap()
            .clone()
    };
    for order in [["papers/old", "papers"], ["papers", "papers/old"]] {
        order.iter().for_each(|path| drop(said(&home, "pin", path)));
        for path in ["papers/old", "papers/old/two"] {
            let refused = home
                .world()
                .teal(&["free", text(&home.path(path))])
                .expect_refusal();
            assert!(
                refused.ends_with("it is kept here because /papers is pinned: free that"),
                "{refused}"
            );
        }
        comes(&home, "papers/old/two", 300_000);
        said(&home, "free", "papers");
        assert_eq!(
            (pinned().len(), here(&home, "papers/old/two")),
            (0, 0),
            "{order:?}"
        );
    }
    end(vec![home, nas.0]);
}
