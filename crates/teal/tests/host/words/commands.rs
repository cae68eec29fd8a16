//! Every command by its name: those that are named exist, and each says with its exit status when
//! it has failed.

use super::str;
use crate::support::{ProgramOutput, World, digest, is_user_able, run_program};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The subcommands that a help text lists.
fn subcommands(help: &str) -> Vec<String> {
    let list = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    let names = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// Every command there is, by its words, with its help.
fn tree(world: &World) -> Vec<(Vec<String>, String)> {
    let mut found = Vec::new();
    let mut open = vec![Vec::<String>::new()];
    while let Some(words) = open.pop() {
        let help = world
            .teal(&[&words[..], &["--help".to_owned()]].concat())
            .expect_success();
        open.extend(
            subcommands(&help)
                .into_iter()
                .map(|name| [&words[..], &[name]].concat()),
        );
        found.push((words, help));
    }
    found
}

/// The commands that a text names: in backquotes, at a prompt, or behind a colon in a message.
fn named(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        // Every second part lies between backquotes.
        let quoted = line.split('`').skip(1).step_by(2);
        found.extend(
            quoted
                .filter(|words| words.starts_with("teal "))
                .map(str::to_owned),
        );
        found.extend(
            line.split("$ teal ")
                .skip(1)
                .map(|rest| format!("teal {rest}")),
        );
    }
    found
}

/// Returns what a command's words name, if it is no command there is.
fn unknown(
    words: &str,
    known: &BTreeSet<Vec<String>>,
    groups: &BTreeSet<Vec<String>>,
) -> Option<String> {
    let mut so_far = Vec::new();
    let is_name = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase()) && !word.is_empty();
    for word in words.split_whitespace().skip(1) {
        let word = word.trim_end_matches([',', '.', ';', ':', ')']);
        if !groups.contains(&so_far) || !is_name(&word) {
            return None;
        }
        so_far.push(word.to_owned());
        if !known.contains(&so_far) {
            return Some(so_far.join(" "));
        }
    }
    None
}

#[test]
fn every_command_that_is_named_anywhere_exists() {
    let world = World::without_mounts();
    let tree = tree(&world);
    let mut known: BTreeSet<Vec<String>> = tree.iter().map(|(words, _)| words.clone()).collect();
    // Hidden: the program calls it inside a guest.
    world.teal(&["lab", "guest", "--help"]).expect_success();
    known.insert(vec!["lab".into(), "guest".into()]);
    let groups = tree
        .iter()
        .filter(|(_, help)| !subcommands(help).is_empty())
        .map(|(words, _)| words.clone())
        .collect();
    assert!(
        known.len() > 40,
        "the help texts list the commands: {known:?}"
    );
    let mut texts: Vec<(String, String)> = tree
        .iter()
        .map(|(words, help)| (format!("teal {} --help", words.join(" ")), help.clone()))
        .collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_dir(root.join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    for page in docs.chain([root.join("README.md"), root.join("ARCHITECTURE.md")]) {
        if page.extension().is_some_and(|kind| kind == "md") {
            texts.push((
                page.display().to_string(),
                fs::read_to_string(&page).unwrap(),
            ));
        }
    }
    // The program's messages lie in its sources, apart from tests of parsers.
    let mut dirs = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let text = fs::read_to_string(&path).unwrap();
                let text = text
                    .split("#[cfg(test)]")
                    .next()
                    .unwrap_or_default()
                    .replace("{", " {");
                texts.push((path.display().to_string(), text));
            }
        }
    }
    let mut count = 0;
    let mut wrong = Vec::new();
    for (place, text) in &texts {
        for words in named(text) {
            count += 1;
            wrong.extend(
                unknown(&words, &known, &groups)
                    .map(|what| format!("{place}: there is no `teal {what}`: {words}")),
            );
        }
    }
    assert!(count > 150, "{count} commands are named");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(
        unknown("teal lab profile ls", &known, &groups).as_deref(),
        Some("lab profile"),
        "the test sees"
    );
}

/// The way to give each command a file; `{}` is the file, `{point}` a directory that is not there.
const WITH_A_FILE: &[&str] = &[
    "up {point} --store {}",
    "down {}",
    "mount {} {point}",
    "check {}",
    "check --quick {}",
    "repair {}",
    "repair {} --to {}.new --yes",
    "dump {} superblock",
    "dump {} anchors",
    "dump {} log",
    "dump {} segment:0",
    "dump {} usage",
    "dump {} object:1",
    "status {}",
    "serve {point} --store {} --listen 127.0.0.1:0",
    "serve {} --revoke 7",
    "join 127.0.0.1:1 {point} --store {} --token a.b",
    "flush {}",
    "conflicts ls {}",
    "conflicts show 1 {}",
    "conflicts resolve 1 {}",
    "device add {}/drive --size 32M --name d {}",
    "device ls {}",
    "device attach {} {}",
    "device detach d {}",
    "device rm d {}",
    "affinity add {} d",
    "affinity ls d {}",
    "affinity rm {} d",
    "pin {}",
    "free {}",
    "where {}",
    "where --json {}",
    "config ls {}",
    "config set commit-seconds 5 {}",
    "lab trace show {}",
    "lab trace stat {}",
    "lab trace import --from blktrace {} --out {}.out",
    "lab trace import --from oracle-general {} --out {}.out",
    "lab trace import --from vscsi {} --out {}.out",
    "lab trace characterise {} --out {}.out",
    "lab replay {}",
    "lab record {point} --out {}",
    "lab run {} {point}",
    "lab matrix {}",
    "lab compare {} {}",
    "lab disk log {}",
];

/// Commands that take no file that is there already: nothing to be wrong with it. `mkfs` has its
/// own tests.
const WITHOUT_A_FILE: &[&str] = &[
    "mkfs",
    "doctor",
    "lab generate",
    "lab reenact",
    "lab phases",
    "lab tune",
    "lab workloads",
    "lab disk start",
    "lab disk ls",
    "lab disk stat",
    "lab disk mark",
    "lab disk idle",
    "lab disk sleep",
    "lab disk nbd",
    "lab disk stop",
];

/// Checks that the program failed, and said so in words.
fn is_refused(args: &str, what: &str, said: &ProgramOutput) -> Option<String> {
    let is_debug = ["NotTeal", "Err(", "Some(", "Error {", "panicked", "Os {"]
        .iter()
        .any(|word| said.stderr.contains(word));
    let is_good = said.code == 1 || said.code == 2;
    let is_silent = said.stderr.trim().is_empty();
    (!is_good || is_silent || is_debug).then(|| format!("teal {args} ({what}): {said}"))
}

fn filled(pattern: &str, file: &Path, point: &Path) -> Vec<String> {
    pattern
        .split(' ')
        .map(|word| word.replace("{point}", str(point)).replace("{}", str(file)))
        .collect()
}

#[test]
fn every_command_fails_with_its_exit_status() {
    let world = World::without_mounts();
    let leaves: Vec<String> = {
        let tree = tree(&world);
        tree.into_iter()
            .filter(|(_, help)| subcommands(help).is_empty())
            .map(|(words, _)| words.join(" "))
            .collect()
    };
    for leaf in &leaves {
        let is_known = WITH_A_FILE.iter().chain(WITHOUT_A_FILE).any(|pattern| {
            pattern
                .strip_prefix(leaf.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        });
        assert!(is_known, "nothing is known of `teal {leaf}`: list it here");
    }
    let point = world.path("point");
    let mut places: Vec<(&str, PathBuf)> = Vec::new();
    for (what, bytes) in [
        ("foreign", &b"just a text, and no store\n".repeat(200)[..]),
        ("empty", &b""[..]),
    ] {
        let file = world.path(what);
        fs::write(&file, bytes).unwrap();
        places.push((what, file));
    }
    fs::create_dir(world.path("directory")).unwrap();
    places.extend([
        ("directory", world.path("directory")),
        ("missing", world.path("missing")),
    ]);
    let mut wrong = Vec::new();
    for (what, file) in &places {
        let before = file.is_file().then(|| digest(file));
        for pattern in WITH_A_FILE {
            // These make what is missing.
            if *what == "missing"
                && ["up ", "serve {point}"]
                    .iter()
                    .any(|makes| pattern.starts_with(makes))
            {
                continue;
            }
            let args = filled(pattern, file, &point);
            wrong.extend(is_refused(&args.join(" "), what, &world.teal(&args)));
            let made: Vec<_> = [&point, &world.path(format!("{what}.out"))]
                .into_iter()
                .filter(|path| path.exists())
                .cloned()
                .collect();
            wrong.extend(
                made.into_iter()
                    .map(|path| format!("teal {} leaves {}", args.join(" "), path.display())),
            );
        }
        assert_eq!(
            file.is_file().then(|| digest(file)),
            before,
            "{what} is unchanged"
        );
    }
    assert!(!world.path("missing").exists());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_command_says_what_it_may_not() {
    let test = "every_command_says_what_it_may_not";
    if !is_user_able() {
        return teal_testkit::skip_test(test, "needs root and setpriv");
    }
    let world = World::open_to_all();
    let teal = world.path("teal");
    fs::copy(env!("CARGO_BIN_EXE_teal"), &teal).unwrap();
    let store = world.store("store.teal", "16M");
    rustix::fs::chmod(&store, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    for dir in ["home", "data", "run", "state"] {
        rustix::fs::chownat(
            rustix::fs::CWD,
            world.path(dir),
            Some(rustix::fs::Uid::from_raw(65534)),
            None,
            rustix::fs::AtFlags::empty(),
        )
        .unwrap();
    }
    let point = world.path("point");
    let before = digest(&store);
    let mut wrong = Vec::new();
    for pattern in WITH_A_FILE {
        let args = filled(pattern, &store, &point);
        let mut command = Command::new("setpriv");
        world
            .furnish(&mut command)
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(&teal)
            .args(&args);
        wrong.extend(is_refused(
            &args.join(" "),
            "no permission",
            &run_program(&mut command),
        ));
    }
    assert_eq!(digest(&store), before);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
