//! One store at two places.

use crate::support::{Mounted, PATIENCE, is_root, wait_until};

#[test]
fn a_store_at_two_places_is_one_mount() {
    let test = "a_store_at_two_places_is_one_mount";
    let Some(mut m) = Mounted::new(test, "64M") else {
        return;
    };
    if !is_root() {
        return teal_testkit::skip_test(test, "needs root");
    }
    m.down();
    m.mount("commit=7,noatime");
    let second = m.world().path("second");
    std::fs::create_dir(&second).unwrap();
    let (store, there) = (m.store().to_str().unwrap(), second.to_str().unwrap());
    let point = m.point().to_str().unwrap();
    let mount = |options: &[&str]| {
        let args = [&["mount", store, there], options].concat();
        m.world().teal(&args)
    };
    for options in ["ro", "commit=8", "strictatime"] {
        let said = mount(&["-o", options]);
        assert_eq!(said.code, 1, "{options}: {said}");
        let words = ["in use", point, "commit=7,noatime", "same options"];
        assert!(
            words.iter().all(|word| said.stderr.contains(word)),
            "{options}: {said}"
        );
    }
    for options in [
        &[][..],
        &["-o", "noatime"],
        &["-o", "defaults,rw,noatime,commit=7"],
    ] {
        mount(options).expect_success();
        // What one place has, the other has at once.
        std::fs::write(second.join("f"), options.join(" ")).unwrap();
        assert_eq!(
            std::fs::read_to_string(m.path("f")).unwrap(),
            options.join(" ")
        );
        let said = mount(options);
        assert!(said.code != 0 && said.stderr.contains("already"), "{said}");
        // The first place stays while there is a second one.
        let said = m.world().teal(&["down", point]);
        assert!(said.code != 0 && said.stderr.contains(there), "{said}");
        let said = m.world().teal(&["down", there]).expect_success();
        assert!(said.contains(point), "{said}");
        assert!(!second.join("f").exists());
    }
    // Without the first place the daemon serves the second one, until that is taken away.
    mount(&[]).expect_success();
    rustix::mount::unmount(m.point(), rustix::mount::UnmountFlags::empty()).unwrap();
    std::fs::write(second.join("g"), "g").unwrap();
    rustix::mount::unmount(&second, rustix::mount::UnmountFlags::empty()).unwrap();
    m.ended();
    assert!(wait_until(PATIENCE, || !second.join("g").exists()));
    m.check();
    m.up();
    assert_eq!(std::fs::read(m.path("g")).unwrap(), b"g");
    m.down();
}
