//! Two machines change one file, and neither has seen the other's change: in place, by an atomic
//! save, by appending. Real mounts, a real server.

use crate::support::{Mounted, Nas, PATIENCE, converge, end, join, wait_until};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// A laptop that has been where it could not reach its server.
struct Away {
    hidden: PathBuf,
    place: PathBuf,
}

impl Away {
    fn goes(laptop: &mut Mounted) -> Self {
        laptop.down();
        let place = laptop.store().with_extension("teal.d");
        let hidden = place.with_extension("away");
        fs::rename(&place, &hidden).unwrap();
        laptop.up();
        Self { hidden, place }
    }

    fn returns(self, laptop: &mut Mounted) {
        laptop.down();
        fs::rename(&self.hidden, &self.place).unwrap();
        laptop.up();
    }
}

fn edit(path: &Path, content: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(content, 0).unwrap();
    file.sync_all().unwrap();
}

/// As editors do.
fn save(path: &Path, content: &[u8]) {
    let new = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&new)
        .unwrap();
    file.write_all(content).unwrap();
    file.sync_all().unwrap();
    fs::rename(&new, path).unwrap();
}

/// Opened anew for each line, as a shell's `>>` does.
fn append(path: &Path, content: &[u8]) {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap();
    file.write_all(content).unwrap();
    file.sync_all().unwrap();
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The one copy in a directory, beside the file of this name and nothing else.
fn copy_beside(dir: &Path, name: &str) -> PathBuf {
    let all = names(dir);
    let copies: Vec<_> = all
        .iter()
        .filter(|of| of.contains("(conflict laptop "))
        .collect();
    assert!(
        copies.len() == 1 && all.len() == 2 && all.iter().any(|of| of == name),
        "{all:?}"
    );
    dir.join(copies[0])
}

/// The number of the conflict that names both files.
fn shown(m: &Mounted, first: &str, copy: &Path) -> String {
    let dir = m.point().to_str().unwrap();
    let copy = copy.strip_prefix(m.point()).unwrap().to_str().unwrap();
    let found = (1..=9).map(|number| number.to_string()).find(|number| {
        let said = m.world().teal(&["conflicts", "show", number, dir]);
        said.code == 0 && said.stdout.contains(first) && said.stdout.contains(copy)
    });
    found.unwrap_or_else(|| {
        panic!(
            "no conflict names {first} and {copy}: {}",
            m.world().teal(&["conflicts", "ls", dir]).expect_success()
        )
    })
}

#[test]
fn an_edit_in_place_and_an_atomic_save_are_beside_each_other_whoever_comes_first() {
    let test = "an_edit_in_place_and_an_atomic_save_are_beside_each_other_whoever_comes_first";
    let cases = ["save first", "edit first", "chain", "moved"];
    let Some(mut nas) = Nas::of(test, |root| {
        for case in cases {
            fs::create_dir(root.join(case)).unwrap();
            fs::write(root.join(case).join("report.txt"), "first and last").unwrap();
        }
    }) else {
        return;
    };
    let mut laptop = join(test, &nas.serve());
    converge(&nas.0, &laptop);
    let away = Away::goes(&mut laptop);
    let report = |m: &Mounted, case: &str| m.path(case).join("report.txt");
    save(&report(&nas.0, "save first"), b"saved");
    edit(&report(&nas.0, "edit first"), b"EDITED");
    save(&report(&nas.0, "chain"), b"saved");
    save(&report(&nas.0, "moved"), b"saved");
    nas.flush();
    save(&report(&nas.0, "chain"), b"saved again");
    fs::rename(report(&nas.0, "moved"), nas.0.path("moved/final.txt")).unwrap();
    fs::rename(nas.0.path("moved"), nas.0.path("elsewhere")).unwrap();
    nas.flush();
    for case in ["save first", "chain", "moved"] {
        edit(&report(&laptop, case), b"EDITED");
    }
    save(&report(&laptop, "edit first"), b"saved");
    away.returns(&mut laptop);
    converge(&nas.0, &laptop);
    for m in [&nas.0, &laptop] {
        assert_eq!(
            names(m.point()),
            ["chain", "edit first", "elsewhere", "save first"]
        );
        let found = |dir: &str, name: &str, saved: &[u8], copied: &[u8]| {
            let copy = copy_beside(&m.path(dir), name);
            assert_eq!(
                (
                    &fs::read(m.path(dir).join(name)).unwrap()[..],
                    &fs::read(&copy).unwrap()[..]
                ),
                (saved, copied),
                "{dir}"
            );
            shown(m, &format!("{dir}/{name}"), &copy)
        };
        found("save first", "report.txt", b"saved", b"EDITEDand last");
        found("edit first", "report.txt", b"EDITEDand last", b"saved");
        found("chain", "report.txt", b"saved again", b"EDITEDand last");
        found("elsewhere", "final.txt", b"saved", b"EDITEDand last");
    }
    // Kept by people: each outcome, and nothing else.
    for (dir, name, keep, left) in [
        ("save first", "report.txt", "later", &b"EDITEDand last"[..]),
        ("edit first", "report.txt", "first", b"EDITEDand last"),
        ("chain", "report.txt", "first", b"saved again"),
        ("elsewhere", "final.txt", "later", b"EDITEDand last"),
    ] {
        let number = shown(
            &laptop,
            &format!("{dir}/{name}"),
            &copy_beside(&laptop.path(dir), name),
        );
        let point = laptop.point().to_str().unwrap().to_owned();
        laptop
            .world()
            .teal(&["conflicts", "resolve", &number, "--keep", keep, &point])
            .expect_success();
        converge(&nas.0, &laptop);
        assert_eq!(
            (
                names(&nas.0.path(dir)),
                fs::read(nas.0.path(dir).join(name)).unwrap()
            ),
            (vec![name.to_owned()], left.to_vec())
        );
    }
    end(vec![laptop, nas.0]);
}

#[test]
fn lines_that_two_machines_append_are_in_one_file_and_what_is_no_lines_is_beside_it() {
    let test = "lines_that_two_machines_append_are_in_one_file_and_what_is_no_lines_is_beside_it";
    let cases = ["log", "half", "binary"];
    let Some(mut nas) = Nas::of(test, |root| {
        for case in cases {
            fs::create_dir(root.join(case)).unwrap();
            fs::write(root.join(case).join("log"), "begin\n").unwrap();
        }
    }) else {
        return;
    };
    let mut laptop = join(test, &nas.serve());
    converge(&nas.0, &laptop);
    let away = Away::goes(&mut laptop);
    for m in [&nas.0, &laptop] {
        let who = if std::ptr::eq(m, &laptop) {
            "laptop"
        } else {
            "nas"
        };
        for n in 0..20 {
            append(&m.path("log/log"), format!("{who} {n}\n").as_bytes());
        }
        append(&m.path("half/log"), format!("{who} has no").as_bytes());
        append(&m.path("binary/log"), format!("{who}\0\n").as_bytes());
        if who == "nas" {
            nas.flush();
        }
    }
    away.returns(&mut laptop);
    converge(&nas.0, &laptop);
    let lines = |who: &str| (0..20).map(|n| format!("{who} {n}\n")).collect::<String>();
    for m in [&nas.0, &laptop] {
        assert_eq!(names(&m.path("log")), ["log"]);
        let merged = fs::read_to_string(m.path("log/log")).unwrap();
        assert_eq!(
            merged,
            format!("begin\n{}{}", lines("nas"), lines("laptop"))
        );
        for (dir, end) in [("half", " has no"), ("binary", "\0\n")] {
            let copy = copy_beside(&m.path(dir), "log");
            assert_eq!(
                fs::read_to_string(m.path(dir).join("log")).unwrap(),
                format!("begin\nnas{end}")
            );
            assert_eq!(
                fs::read_to_string(copy).unwrap(),
                format!("begin\nlaptop{end}")
            );
        }
    }
    // Both connected, each line on its own way, without a pause.
    let count = 60;
    std::thread::scope(|scope| {
        for (m, who) in [(&nas.0, "N"), (&laptop, "L")] {
            scope.spawn(move || {
                (0..count)
                    .for_each(|n| append(&m.path("log/log"), format!("{who} {n}\n").as_bytes()))
            });
        }
    });
    converge(&nas.0, &laptop);
    assert!(wait_until(PATIENCE, || names(&laptop.path("log"))
        == names(&nas.0.path("log"))));
    assert_eq!(names(&nas.0.path("log")), ["log"]);
    let all = fs::read_to_string(nas.0.path("log/log")).unwrap();
    for who in ["N", "L"] {
        let of: Vec<&str> = all.lines().filter(|line| line.starts_with(who)).collect();
        let wanted: Vec<String> = (0..count).map(|n| format!("{who} {n}")).collect();
        assert_eq!(of, wanted);
    }
    assert_eq!(fs::read_to_string(laptop.path("log/log")).unwrap(), all);
    end(vec![laptop, nas.0]);
}

#[test]
fn a_conflict_whose_files_are_gone_is_shown_by_their_last_paths() {
    let test = "a_conflict_whose_files_are_gone_is_shown_by_their_last_paths";
    let cases = ["first", "later", "both", "dir", "unsent"];
    let Some(mut nas) = Nas::of(test, |root| {
        for case in cases {
            fs::create_dir(root.join(case)).unwrap();
            fs::write(root.join(case).join("report.txt"), "as it was").unwrap();
        }
    }) else {
        return;
    };
    let mut laptop = join(test, &nas.serve());
    converge(&nas.0, &laptop);
    let away = Away::goes(&mut laptop);
    for case in cases {
        save(&nas.0.path(case).join("report.txt"), b"of the nas");
        edit(&laptop.path(case).join("report.txt"), b"EDITED");
    }
    nas.flush();
    away.returns(&mut laptop);
    converge(&nas.0, &laptop);
    let numbers = cases.map(|case| {
        let copy = copy_beside(&laptop.path(case), "report.txt");
        (shown(&laptop, &format!("{case}/report.txt"), &copy), copy)
    });
    for (case, (_, copy)) in cases.iter().zip(&numbers).take(4) {
        if *case != "later" {
            fs::remove_file(laptop.path(case).join("report.txt")).unwrap();
        }
        if *case != "first" {
            fs::remove_file(copy).unwrap();
        }
    }
    fs::remove_dir(laptop.path("dir")).unwrap();
    converge(&nas.0, &laptop);
    let conflicts = |m: &Mounted, args: &[&str]| {
        let dir = m.point().to_str().unwrap();
        let args = [&["conflicts"], args, &[dir]].concat();
        m.world().teal(&args)
    };
    for m in [&nas.0, &laptop] {
        let said = conflicts(m, &["ls"]).expect_success();
        for words in [
            "/first/report.txt (removed) and /first/report (conflict laptop ",
            "/later/report.txt and /later/report (conflict laptop ",
            "/both/report.txt (removed) and /both/report (conflict laptop ",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        // Three copies and three files were removed.
        assert_eq!(said.matches("(removed)").count(), 6, "{said}");
    }
    let [first, later, both, dir, unsent] = numbers.map(|(number, _)| number);
    // What was removed here is not there, even though the server has not heard of it.
    fs::remove_file(laptop.path("unsent").join("report.txt")).unwrap();
    let said = conflicts(&laptop, &["resolve", &unsent, "--keep", "first"]).expect_refusal();
    assert!(said.contains("the state to keep"), "{said}");
    assert_eq!(names(&laptop.path("unsent")).len(), 1);
    conflicts(&laptop, &["resolve", &unsent, "--keep", "both"]).expect_success();
    // The only state that is left is never removed.
    let said = conflicts(&laptop, &["resolve", &first, "--keep", "first"]).expect_refusal();
    assert!(said.contains("the only one left"), "{said}");
    let said = conflicts(&laptop, &["resolve", &later, "--keep", "later"]).expect_refusal();
    assert!(said.contains("the only one left"), "{said}");
    for (number, keep) in [
        (first, "later"),
        (later, "first"),
        (both, "later"),
        (dir, "first"),
    ] {
        conflicts(&laptop, &["resolve", &number, "--keep", keep]).expect_success();
    }
    let said = conflicts(&laptop, &["ls"]).expect_success();
    assert!(said.contains("no conflicts"), "{said}");
    assert_eq!(names(&laptop.path("first")).len(), 1);
    assert_eq!(names(&laptop.path("later")), ["report.txt"]);
    assert!(names(&laptop.path("both")).is_empty());
    end(vec![laptop, nas.0]);
}
