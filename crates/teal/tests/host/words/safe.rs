//! Nothing is called safe that is not.

use super::{says, str};
use crate::support::{Mounted, Nas, PATIENCE, flush, join, wait_until};
use std::fs;

#[test]
fn a_volume_without_a_server_is_never_said_to_be_at_one() {
    let test = "a_volume_without_a_server_is_never_said_to_be_at_one";
    let Some(mut m) = Mounted::new(test, "32M") else {
        return;
    };
    fs::write(m.path("f"), "content").unwrap();
    let point = str(m.point()).to_owned();
    says(
        m.world().teal(&["flush", &point]),
        &[&point, "has no server", "teal serve"],
    );
    let shown = m.world().teal(&["status", &point]).expect_success();
    assert!(shown.contains("the only copy"), "{shown}");
    let said = m.world().teal(&["down", &point]).expect_success();
    assert!(
        said.contains("everything is on the disk") && said.contains(str(m.store())),
        "{said}"
    );
    assert!(said.contains("nowhere else"), "{said}");
    m.ended();
    m.check();
}

#[test]
fn what_only_this_machine_has_is_said_when_it_is_unmounted() {
    let test = "what_only_this_machine_has_is_said_when_it_is_unmounted";
    let Some(mut nas) = Nas::of(test, |root| fs::write(root.join("a"), "one").unwrap()) else {
        return;
    };
    let with = nas.serve_for_good();
    let token = nas.serve().1;
    nas.flush();
    let mut laptop = join(test, &(with.0, token));
    assert_eq!(fs::read(laptop.path("a")).unwrap(), b"one");
    let point = str(laptop.point()).to_owned();
    let down = |laptop: &mut Mounted| {
        let said = laptop.world().teal(&["down", &point]).expect_success();
        laptop.ended();
        said
    };
    flush(&laptop);
    let said = down(&mut laptop);
    assert!(said.contains("the server has all of it"), "{said}");
    let said = nas
        .0
        .world()
        .teal(&["down", str(nas.0.point())])
        .expect_success();
    assert!(said.contains("on this machine has all of it"), "{said}");
    nas.0.ended();
    laptop.up();
    fs::write(laptop.path("b"), vec![7; 100_000]).unwrap();
    let said = down(&mut laptop);
    for words in [
        "everything is on the disk, but 1 object (97.7 KiB) is only there",
        "teal up",
        "teal flush",
        &point,
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // A mount that does not ask the server does not say that it has everything.
    laptop.mount("ro");
    let shown = laptop.world().teal(&["status", &point]).expect_success();
    assert!(shown.contains("safe?    NO: 1 object"), "{shown}");
    assert!(
        shown.contains("read-only and does not ask it") && !shown.contains("connected"),
        "{shown}"
    );
    says(
        laptop.world().teal(&["flush", &point]),
        &["nothing was sent", "read-only"],
    );
    assert!(down(&mut laptop).contains("1 object"));
    let (beside, away) = (
        laptop.store().with_extension("teal.d"),
        laptop.world().path("away"),
    );
    fs::rename(&beside, &away).unwrap();
    laptop.up();
    says(
        laptop.world().teal(&["flush", &point]),
        &["nothing was sent", "replica.toml"],
    );
    let shown = laptop.world().teal(&["status", &point]).expect_success();
    assert!(
        shown.contains("safe?    NO: 1 object") && shown.contains("replica.toml"),
        "{shown}"
    );
    down(&mut laptop);
    fs::rename(&away, &beside).unwrap();
    // The commands that are named do it.
    nas.0.up();
    laptop.up();
    let is_sent = || laptop.world().teal(&["flush", &point]).code == 0;
    assert!(wait_until(PATIENCE, is_sent), "{}", laptop.status());
    assert!(down(&mut laptop).contains("the server has all of it"));
    assert_eq!(fs::read(nas.0.path("b")).unwrap(), vec![7; 100_000]);
    nas.0.down();
    nas.0.check();
    laptop.check();
}
