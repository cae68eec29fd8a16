//! The outside suites on a mount that joined a volume, and whole machines killed while they work.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

#[path = "support/support.rs"]
mod support;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{Mounted, Nas, PATIENCE, converge, digest, end, fill, join, let_pass, run, tool, wait_until};

const FSX: &str = "
flen = 262144
[opsize]
min = 1
max = 65536
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
truncate = 5
fsync = 2
fdatasync = 2
invalidate = 1
punch_hole = 3
sendfile = 1
copy_file_range = 10
posix_fallocate = 2
";

#[test]
fn fsx_sees_its_own_writes_on_a_joined_mount_and_the_other_machine_sees_the_last() {
    let test = "fsx_sees_its_own_writes_on_a_joined_mount_and_the_other_machine_sees_the_last";
    let Some(mut nas) = Nas::of(test, |_| {}) else { return };
    let laptop = join(test, &nas.serve());
    let Some(fsx) = tool("fsx") else {
        return teal_testkit::skip(test, "fsx is not installed; `cargo xtask test` installs it");
    };
    let config = laptop.world().path("fsx.toml");
    fs::write(&config, FSX).unwrap();
    // On both machines at once, each on a file of its own: both flush every second.
    let runs = [(&laptop, 1), (&nas.0, 2)].map(|(m, seed)| {
        let mut command = Command::new(&fsx);
        command
            .args(["-q", "-N", "12000", "-S", &seed.to_string(), "-f"])
            .arg(&config)
            .arg("-P")
            .arg(m.world().path(""));
        m.world().furnish(&mut command).arg(m.path(format!("file{seed}")));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    for run in runs {
        let said = run.wait_with_output().unwrap();
        assert!(
            said.status.success(),
            "{}{}",
            String::from_utf8_lossy(&said.stdout),
            String::from_utf8_lossy(&said.stderr)
        );
    }
    converge(&nas.0, &laptop);
    for name in ["file1", "file2"] {
        assert_eq!(digest(&nas.0.path(name)), digest(&laptop.path(name)));
    }
    end(vec![laptop, nas.0]);
}

/// Files come, change, move and go in `dir`, for ever; every file carries its own name, many times, so that a torn one is known.
const WORK: &str = r#"
    n=0
    while :; do
        n=$((n + 1))
        mkdir -p "$1/d$((n % 7))"
        f="$1/d$((n % 7))/f$((n % 50))"
        yes "$n" | head -c 9000 > "$f.new" && mv "$f.new" "$f"
        [ $((n % 11)) = 0 ] && mv "$1/d$((n % 7))" "$1/e$n"
        [ $((n % 13)) = 0 ] && rm -rf "$1"/e*
        [ $((n % 5)) = 0 ] && ln -f "$f" "$1/link$((n % 9))"
    done
"#;

fn is_whole(path: &Path) -> bool {
    let bytes = fs::read(path).unwrap();
    let line: Vec<u8> = bytes.iter().take_while(|byte| **byte != b'\n').copied().chain([b'\n']).collect();
    bytes.chunks(line.len()).all(|chunk| line.starts_with(chunk))
}

fn whole_files(dir: &Path) -> usize {
    let mut found = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found += whole_files(&path);
        } else if path.extension().is_none() {
            assert!(is_whole(&path), "{}", path.display());
            found += 1;
        }
    }
    found
}

#[test]
fn machines_killed_at_random_while_both_work_lose_nothing_and_agree_in_the_end() {
    let test = "machines_killed_at_random_while_both_work_lose_nothing_and_agree_in_the_end";
    let Some(mut nas) = Nas::of(test, |root| fill(root, 5, 20)) else { return };
    let listen = {
        let with = nas.serve();
        // On a port that stays.
        let port = with.0.rsplit_once(':').unwrap().1.to_owned();
        format!("127.0.0.1:{port}")
    };
    let mut laptop = join(test, &nas.serve_at(&listen));
    let mut rng = teal_testkit::Rng::new(11);
    for _ in 0..5 {
        let work = |m: &Mounted, name: &str| {
            let dir = m.path(name);
            let _ = fs::create_dir(&dir);
            let mut command = Command::new("sh");
            m.world().furnish(&mut command).args(["-c", WORK, "sh"]).arg(&dir);
            command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let mut at_work = [work(&laptop, "of the laptop"), work(&nas.0, "of the nas")];
        let_pass(Duration::from_millis(600 + rng.below(1500)));
        let victim = rng.below(2);
        for m in [&mut laptop, &mut nas.0].into_iter().skip(victim as usize).take(1) {
            m.kill();
        }
        // With all they have started: nothing is to be made on the bare mount point.
        for child in &mut at_work {
            let group = rustix::process::Pid::from_child(child);
            rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
            child.wait().unwrap();
            assert!(wait_until(PATIENCE, || rustix::process::test_kill_process_group(group).is_err()));
        }
        for m in [&mut laptop, &mut nas.0].into_iter().skip(victim as usize).take(1) {
            m.up();
        }
    }
    converge(&nas.0, &laptop);
    let found: usize = ["of the laptop", "of the nas"].iter().map(|dir| whole_files(&nas.0.path(dir))).sum();
    assert!(found > 20, "{found} files");
    let said = run(&mut laptop.world().command(&["conflicts", "ls", laptop.point().to_str().unwrap()])).good();
    assert!(said.contains("no conflicts"), "nobody touched what the other did: {said}");
    end(vec![laptop, nas.0]);
}
