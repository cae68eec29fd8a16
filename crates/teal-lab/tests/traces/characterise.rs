//! `teal lab record --wml` at a real mount: what runs there becomes a workload that does the like.

use crate::support::{Mounted, PATIENCE, wait_until};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Requests of a kind that have come.
fn requests(m: &Mounted, name: &str) -> u64 {
    let status = m.status();
    let found = status["requests"]
        .as_array()
        .unwrap()
        .iter()
        .find(|pair| pair[0] == name);
    found.map_or(0, |pair| pair[1].as_u64().unwrap())
}

/// A workload that runs on a mount, until it is dropped.
struct Running(Child);

impl Running {
    /// Starts it and waits until its files are made: nothing is asked of `sign` before.
    #[track_caller]
    fn start(m: &Mounted, workload: &str, sign: &str, more: &[&str]) -> Self {
        let dir = m.path("files");
        let args = [
            "lab",
            "run",
            workload,
            "--dir",
            dir.to_str().unwrap(),
            "--seconds",
            "60",
        ];
        let mut command = m.world().command(&[&args, more].concat());
        let before = requests(m, sign);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let running = Self(child);
        assert!(
            wait_until(PATIENCE, || requests(m, sign) > before + 20),
            "{workload} runs"
        );
        running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(Pid::from_child(&self.0), Signal::INT);
        let _ = self.0.wait();
    }
}

/// What a recording comes to.
struct Recorded {
    stat: Value,
    /// Mean size of the files that were there when it began.
    size: f64,
}

impl Recorded {
    #[track_caller]
    fn take(m: &Mounted, name: &str) -> (Self, PathBuf) {
        let (trace, wml) = (
            m.world().path(format!("{name}.trace")),
            m.world().path(format!("{name}.wml")),
        );
        let size = mean_size(&m.path("files"));
        let args = [
            "lab",
            "record",
            m.point().to_str().unwrap(),
            "--for",
            "4s",
            "--out",
            trace.to_str().unwrap(),
        ];
        m.world()
            .teal(&[&args[..], &["--wml", wml.to_str().unwrap()]].concat())
            .expect_success();
        let stat = m
            .world()
            .teal(&["lab", "trace", "stat", "--json", trace.to_str().unwrap()])
            .expect_success();
        (
            Self {
                stat: serde_json::from_str(&stat).unwrap(),
                size,
            },
            wml,
        )
    }

    fn count(&self, action: &str) -> f64 {
        self.stat["actions"][action]["done"].as_f64().unwrap_or(0.0)
    }

    /// Each kind of operation as a part of all, and bytes read and written by an operation.
    fn figures(&self, kinds: &[&str]) -> Vec<f64> {
        let all: f64 = kinds.iter().map(|kind| self.count(kind)).sum();
        let bytes =
            ["bytes_read", "bytes_written"].map(|key| self.stat[key].as_f64().unwrap() / all);
        kinds
            .iter()
            .map(|kind| self.count(kind) / all)
            .chain(bytes)
            .chain([self.size])
            .collect()
    }
}

fn mean_size(dir: &Path) -> f64 {
    let (mut files, mut bytes, mut todo) = (0, 0, vec![dir.to_owned()]);
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            // Files go while they are looked at.
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => todo.push(entry.path()),
                // The web server's log grows while it runs.
                Ok(meta) if meta.len() > 1 << 20 => {}
                Ok(meta) => (files, bytes) = (files + 1, bytes + meta.len()),
                Err(_) => {}
            }
        }
    }
    bytes as f64 / f64::from(files.max(1))
}

/// Runs a workload that comes along, characterises it, runs what came of that: both do the same
/// operations in the same parts, with the same bytes, on files of the same size. The script.
#[track_caller]
fn is_alike(test: &str, workload: &str, sign: &str, kinds: &[&str], more: &[&str]) -> String {
    let Some(mut m) = Mounted::new(test, "400M") else {
        return String::new();
    };
    m.down();
    m.mount("observed");
    fs::create_dir(m.path("files")).unwrap();
    let running = Running::start(&m, workload, sign, more);
    let (first, wml) = Recorded::take(&m, "first");
    drop(running);
    fs::remove_dir_all(m.path("files")).unwrap();
    fs::create_dir(m.path("files")).unwrap();
    let running = Running::start(&m, wml.to_str().unwrap(), sign, &[]);
    let (second, _) = Recorded::take(&m, "second");
    drop(running);
    let script = fs::read_to_string(&wml).unwrap();
    let names = kinds
        .iter()
        .copied()
        .chain(["bytes read", "bytes written", "mean size"]);
    for ((name, was), is) in names.zip(first.figures(kinds)).zip(second.figures(kinds)) {
        println!(
            "{workload}: {name}: {was:.4} {is:.4} ({:+.1} %)",
            (is / was - 1.0) * 100.0
        );
        assert!(
            was > 0.0 && (is / was - 1.0).abs() < 0.1,
            "{name}: {was} and {is}\n{script}"
        );
    }
    m.down();
    m.check();
    script
}

#[test]
fn what_is_made_of_a_mail_server_does_the_like() {
    let kinds = ["open", "create", "read", "write", "fsync", "unlink"];
    let more = ["--scale", "0.04", "--set", "threads=8"];
    is_alike(
        "what_is_made_of_a_mail_server_does_the_like",
        "mail",
        "fsync",
        &kinds,
        &more,
    );
}

#[test]
fn what_is_made_of_a_file_server_does_the_like() {
    let kinds = ["open", "create", "read", "write", "stat", "unlink"];
    let more = ["--scale", "0.01", "--set", "threads=8"];
    is_alike(
        "what_is_made_of_a_file_server_does_the_like",
        "file",
        "unlink",
        &kinds,
        &more,
    );
}

#[test]
fn what_is_made_of_a_web_server_does_the_like() {
    let kinds = ["open", "read", "write"];
    let more = ["--scale", "0.05", "--set", "threads=8"];
    is_alike(
        "what_is_made_of_a_web_server_does_the_like",
        "web",
        "read",
        &kinds,
        &more,
    );
}

#[test]
fn what_is_made_of_a_database_whose_threads_differ_does_the_like() {
    let more = [
        "--scale",
        "0.001",
        "--set",
        "posts=100",
        "--set",
        "highwater=100",
    ];
    let test = "what_is_made_of_a_database_whose_threads_differ_does_the_like";
    let script = is_alike(test, "db", "read", &["read", "write"], &more);
    println!("{script}");
    // Those that read are told from those that write.
    assert_eq!(
        script.matches("thread name=worker").count(),
        2 * usize::from(!script.is_empty()),
        "{script}"
    );
}

/// Runs git in a directory, without anything of its user's.
#[track_caller]
fn git(dir: &Path, args: &[&str]) {
    let mut command = Command::new("git");
    command
        .args(["-c", "user.name=t", "-c", "user.email=t@localhost"])
        .args(args)
        .current_dir(dir);
    command
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(Stdio::null());
    let done = command.output().unwrap();
    assert!(
        done.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

#[test]
fn what_is_made_of_a_real_program_runs() {
    let test = "what_is_made_of_a_real_program_runs";
    if crate::support::find_program("git", &[]).is_none() {
        return teal_testkit::skip_test(test, "git is not installed");
    }
    let Some(mut m) = Mounted::new(test, "256M") else {
        return;
    };
    for (at, options) in ["observed", "noatime"].into_iter().enumerate() {
        m.down();
        m.mount(options);
        let (dir, wml) = (
            m.path(format!("repo{at}")),
            m.world().path(format!("git{at}.wml")),
        );
        fs::create_dir(&dir).unwrap();
        let args = [
            "lab",
            "record",
            m.point().to_str().unwrap(),
            "--wml",
            wml.to_str().unwrap(),
        ];
        let recording = m
            .world()
            .command(&args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let recording = Running(recording);
        assert!(wait_until(PATIENCE, || m.status()["recording"]["ended"] == false));
        git(&dir, &["init", "-q"]);
        for round in 0..5 {
            fs::create_dir_all(dir.join(format!("d{round}"))).unwrap();
            for file in 0..20 {
                fs::write(
                    dir.join(format!("d{round}/f{file}")),
                    format!("{round} {file}\n").repeat(100 * file),
                )
                .unwrap();
            }
            git(&dir, &["add", "."]);
            git(&dir, &["commit", "-q", "-m", "more"]);
            git(&dir, &["status", "--short"]);
        }
        git(&dir, &["gc", "-q"]);
        drop(recording);
        assert!(
            !wml.with_extension("trace").exists(),
            "the trace was not wanted"
        );
        let files = m.path(format!("again{at}"));
        fs::create_dir(&files).unwrap();
        let json = m.world().path("git.json");
        let args = [
            "lab",
            "run",
            wml.to_str().unwrap(),
            "--dir",
            files.to_str().unwrap(),
            "--set",
            "rate=0",
        ];
        m.world()
            .teal(
                &[
                    &args[..],
                    &["--operations", "2000", "--json", json.to_str().unwrap()],
                ]
                .concat(),
            )
            .expect_success();
        let ran: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
        let script = fs::read_to_string(&wml).unwrap();
        assert!(
            ran["summary"]["operations"].as_u64().unwrap() > 200,
            "{ran}\n{script}"
        );
        assert_eq!(script.contains("No opening was seen"), at == 1, "{script}");
        let again = m.world().teal(&[
            "lab",
            "record",
            m.point().to_str().unwrap(),
            "--wml",
            wml.to_str().unwrap(),
        ]);
        assert!(again.expect_refusal().contains("exists"));
        let hidden = m.world().path("hidden.wml");
        let args = [
            "lab",
            "record",
            m.point().to_str().unwrap(),
            "--anonymous",
            "--wml",
            hidden.to_str().unwrap(),
        ];
        assert!(
            m.world()
                .teal(&args)
                .expect_refusal()
                .contains("names of directories")
        );
        assert!(!hidden.exists());
    }
    m.down();
    m.check();
}

#[test]
fn of_a_mount_that_nobody_used_nothing_is_left() {
    let Some(mut m) = Mounted::new("of_a_mount_that_nobody_used_nothing_is_left", "64M") else {
        return;
    };
    let wml = m.world().path("idle.wml");
    let args = [
        "lab",
        "record",
        m.point().to_str().unwrap(),
        "--for",
        "1s",
        "--wml",
        wml.to_str().unwrap(),
    ];
    m.world().teal(&args).expect_refusal();
    assert!(
        !wml.exists() && !wml.with_extension("trace").exists(),
        "neither a script nor a trace"
    );
    let help = m.world().teal(&["mount", "--help"]).expect_success();
    assert!(help.contains("observed"), "{help}");
    m.down();
    m.check();
}
