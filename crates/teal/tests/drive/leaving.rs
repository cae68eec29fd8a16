//! The content that a drive takes along when it is detached.

use crate::support::{end, seeded};
use crate::{device, shown, text, work_and_home};
use std::fs;

#[test]
fn what_was_written_a_moment_ago_is_on_the_drive_that_is_detached_and_what_could_not_be_is_said() {
    let test = "what_was_written_a_moment_ago_is_on_the_drive_that_is_detached_and_what_could_not_be_is_said";
    let Some((_cable, mut nas, mut home, drive)) = work_and_home(test) else {
        return;
    };
    device(&nas.0, &["detach", "usb"]);
    let there = home.world().path("usb.drive");
    fs::rename(&drive, &there).unwrap();
    home.down();
    // Nothing is sent by itself while this runs.
    home.mount("flush=600");
    device(&home, &["attach", text(&there)]);
    fs::create_dir(home.path("talk")).unwrap();
    home.world()
        .teal(&[
            "affinity",
            "add",
            text(&home.path("talk")),
            "usb",
            "--sticky",
        ])
        .expect_success();
    (0..3).for_each(|n| fs::write(home.path(format!("talk/{n}")), seeded(n, 30_000)).unwrap());
    fs::write(home.path("beside"), "fresh").unwrap();
    assert!(
        home.status()["upstream"]["only_here"].as_u64().unwrap() >= 4,
        "{}",
        home.status()
    );
    let said = device(&home, &["detach", "usb"]);
    assert!(said.contains("it may be unplugged"), "{said}");
    assert_eq!(home.status()["upstream"]["only_here"], 0);
    // Another machine sees the content of the drive.
    fs::rename(&there, &drive).unwrap();
    device(&nas.0, &["attach", text(&drive)]);
    let held = shown(&nas.0, "usb");
    assert!(held["objects"].as_u64().unwrap() >= 4, "{held}");
    for file in ["talk/0", "talk/1", "talk/2", "beside"] {
        let said = nas
            .0
            .world()
            .teal(&["where", text(&nas.0.path(file))])
            .expect_success();
        assert!(
            said.lines()
                .any(|line| line.contains("usb") && !line.contains("does not have")),
            "{file}: {said}"
        );
    }
    device(&nas.0, &["detach", "usb"]);
    fs::rename(&drive, &there).unwrap();
    device(&home, &["attach", text(&there)]);
    fs::write(home.path("late"), "written while nobody hears").unwrap();
    nas.0.down();
    let said = home
        .world()
        .teal(&["device", "detach", "usb", text(home.point())])
        .expect_refusal();
    for word in ["usb is detached", "neither at the server nor on the drive"] {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
    nas.serve();
    // At once: nothing is sent for it.
    device(&home, &["attach", text(&there)]);
    fs::write(home.path("later"), "written before somebody runs").unwrap();
    device(&home, &["detach", "usb", "--fast"]);
    assert!(
        home.status()["upstream"]["only_here"].as_u64().unwrap() >= 1,
        "{}",
        home.status()
    );
    end(vec![home, nas.0]);
}
