//! Damage of the server's data under a server that goes on: what is said of it, and what brings the
//! content back.

use super::support::{Mounted, Nas, PATIENCE, converge, end, flush, join, seeded, wait_until};
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

/// The packs of the server's content, in the order of their names; an empty file marks the place.
fn packs(nas: &Mounted) -> Vec<PathBuf> {
    let dir = nas.store().with_extension("teal.d").join("server/chunks");
    let mut packs = Vec::new();
    let mut dirs = vec![dir];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.metadata().unwrap().len() > 0 {
                packs.push(path);
            }
        }
    }
    packs.sort();
    packs
}

/// Inverts a byte in the middle of a pack, as a disk does that forgets.
fn damage(pack: &PathBuf) {
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(pack)
        .unwrap();
    let middle = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle).unwrap();
    file.write_all_at(&[!byte[0]], middle).unwrap();
}

/// Checks the server's data; returns what is said, and expects `is_whole`.
#[track_caller]
fn check_server(nas: &Mounted, is_whole: bool) -> String {
    let point = nas.point().to_str().unwrap();
    let output = nas.world().teal(&["check", "--server", point]);
    assert_eq!(output.code, i32::from(!is_whole), "{output}");
    output.stdout
}

/// Returns what `teal status` says on whether everything is safe.
fn safety(nas: &Mounted) -> String {
    let point = nas.point().to_str().unwrap();
    let status = nas.world().teal(&["status", point]).expect_success();
    let line = status.lines().find(|line| line.contains("safe?"));
    line.unwrap().to_owned()
}

#[test]
fn damaged_content_is_brought_back_from_the_serving_machine() {
    let test = "damaged_content_is_brought_back_from_the_serving_machine";
    let begin = |root: &std::path::Path| fs::write(root.join("known"), seeded(1, 300_000)).unwrap();
    let Some(mut nas) = Nas::of(test, begin) else {
        return;
    };
    let _ = nas.serve();
    nas.flush();
    let whole = check_server(&nas.0, true);
    assert!(whole.contains("the server's data is whole"), "{whole}");
    assert!(!whole.contains("stored again"), "{whole}");
    packs(&nas.0).iter().for_each(damage);
    let mended = check_server(&nas.0, true);
    assert!(
        mended.contains("of damaged content stored again"),
        "{mended}"
    );
    let again = check_server(&nas.0, true);
    assert!(!again.contains("stored again"), "{again}");
    assert!(safety(&nas.0).contains("yes"), "{}", safety(&nas.0));
    end(vec![nas.0]);
}

#[test]
fn damage_is_named_until_a_machine_sends_the_content_again() {
    let test = "damage_is_named_until_a_machine_sends_the_content_again";
    let Some(mut nas) = Nas::of(test, |_| ()) else {
        return;
    };
    let laptop = join(test, &nas.serve());
    converge(&nas.0, &laptop);
    let content = seeded(7, 300_000);
    fs::write(laptop.path("report"), &content).unwrap();
    flush(&laptop);
    // The serving machine has the name, and none of the content.
    assert!(wait_until(PATIENCE, || nas.0.path("report").exists()));
    packs(&nas.0).iter().for_each(damage);
    let said = check_server(&nas.0, false);
    assert!(said.contains("/report: "), "{said}");
    assert!(said.contains("cannot be read"), "{said}");
    let unsafe_now = safety(&nas.0);
    assert!(
        unsafe_now.contains("NO") && unsafe_now.contains("teal check --server"),
        "{unsafe_now}"
    );
    let error = fs::read(nas.0.path("report")).unwrap_err();
    assert_eq!(
        error.raw_os_error(),
        Some(rustix::io::Errno::IO.raw_os_error())
    );
    // Content is known by its name: any file with the same bytes brings it back.
    fs::write(laptop.path("the same"), &content).unwrap();
    flush(&laptop);
    let said = check_server(&nas.0, true);
    assert!(said.contains("the server's data is whole"), "{said}");
    assert!(safety(&nas.0).contains("yes"), "{}", safety(&nas.0));
    assert!(wait_until(PATIENCE, || {
        fs::read(nas.0.path("report")).is_ok_and(|bytes| bytes == content)
    }));
    end(vec![nas.0, laptop]);
}
