//! Copies of drives that were made while the drive was attached.

use crate::support::{PATIENCE, end, seeded, wait_until};
use crate::{device, refused, shown, text, work_and_home};
use std::fs;

#[test]
fn who_has_a_drive_hears_that_another_machine_has_attached_it_since() {
    let test = "who_has_a_drive_hears_that_another_machine_has_attached_it_since";
    let Some((_cable, nas, home, drive)) = work_and_home(test) else {
        return;
    };
    fs::write(nas.0.path("f"), seeded(1, 200_000)).unwrap();
    nas.flush();
    device(&nas.0, &["detach", "usb"]);
    device(&nas.0, &["attach", text(&drive)]);
    let there = home.world().path("usb.drive");
    fs::copy(&drive, &there).unwrap();
    // The copy cannot be told from a drive that was pulled out.
    device(&home, &["attach", text(&there)]);
    let words = format!("what is in {} is a copy, or was pulled out", text(&drive));
    let said = device(&nas.0, &["ls"]);
    assert!(
        said.contains("usb has been attached to laptop since") && said.contains(&words),
        "{said}"
    );
    assert!(
        shown(&nas.0, "usb")["place"].is_null(),
        "{}",
        shown(&nas.0, "usb")
    );
    refused(
        &nas.0,
        &["detach", "usb"],
        &["usb has been attached to laptop since", &words],
    );
    assert_eq!(nas.0.log().matches(&words).count(), 1, "{}", nas.0.log());
    assert_eq!(
        shown(&home, "usb")["place"],
        text(&there),
        "it stays where it is: {}",
        shown(&home, "usb")
    );
    // While the other has it, what is here is a known copy.
    refused(&nas.0, &["attach", text(&drive)], &["usb", "copy"]);
    device(&home, &["detach", "usb"]);
    device(&nas.0, &["attach", text(&drive)]);
    let again = shown(&nas.0, "usb");
    assert!(
        again["place"] == text(&drive) && again["superseded"].is_null(),
        "{again}"
    );
    // The copy is found out when a drive is detached.
    let second = home.world().path("second.drive");
    fs::copy(&drive, &second).unwrap();
    device(&home, &["attach", text(&second)]);
    refused(
        &nas.0,
        &["detach", "usb"],
        &["usb has been attached to laptop since"],
    );
    assert!(
        wait_until(PATIENCE, || shown(&home, "usb")["place"] == text(&second)),
        "{}",
        shown(&home, "usb")
    );
    assert_eq!(fs::read(home.path("f")).unwrap(), seeded(1, 200_000));
    assert_eq!(fs::read(nas.0.path("f")).unwrap(), seeded(1, 200_000));
    end(vec![home, nas.0]);
}

#[test]
fn a_machine_that_does_nothing_with_its_drive_hears_of_that_with_the_news() {
    let test = "a_machine_that_does_nothing_with_its_drive_hears_of_that_with_the_news";
    let Some((_cable, nas, home, drive)) = work_and_home(test) else {
        return;
    };
    let there = home.world().path("usb.drive");
    fs::copy(&drive, &there).unwrap();
    device(&home, &["attach", text(&there)]);
    let is_told = || {
        nas.0
            .log()
            .contains("usb has been attached to laptop since")
    };
    assert!(wait_until(PATIENCE, is_told), "{}", nas.0.log());
    end(vec![home, nas.0]);
}
