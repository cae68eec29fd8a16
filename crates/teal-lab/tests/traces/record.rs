//! Recording at a real mount: what programs do is in the trace, in order; nothing that happens to
//! the trace harms the mount.

use crate::support::{Mounted, PATIENCE, ProgramOutput, World, seeded, wait_until};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

/// A `teal lab record` that runs beside the test.
struct Recording {
    child: Option<Child>,
    file: PathBuf,
}

impl Recording {
    /// Starts it and waits until requests are recorded.
    #[track_caller]
    fn start(m: &Mounted, file: PathBuf, more: &[&str]) -> Self {
        let args = [
            &["lab", "record", str(m.point()), "--out", str(&file)],
            more,
        ]
        .concat();
        let mut command = m.world().command(&args);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        assert!(
            wait_until(PATIENCE, || recording(m)["ended"] == false),
            "{}",
            m.status()
        );
        Self {
            child: Some(child),
            file,
        }
    }

    /// Waits until it has ended by itself.
    #[track_caller]
    fn ended(mut self) -> (ProgramOutput, PathBuf) {
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap();
        (
            ProgramOutput {
                code,
                stdout: text(output.stdout),
                stderr: text(output.stderr),
            },
            self.file.clone(),
        )
    }

    /// Bytes in the trace.
    fn size(&self) -> u64 {
        fs::metadata(&self.file).unwrap().len()
    }

    /// Presses Ctrl-C.
    #[track_caller]
    fn stop(self) -> PathBuf {
        let pid = Pid::from_child(self.child.as_ref().unwrap());
        rustix::process::kill_process(pid, Signal::INT).unwrap();
        let (said, file) = self.ended();
        assert!(
            said.clone().expect_success().contains(" events in "),
            "{said}"
        );
        file
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn str(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn recording(m: &Mounted) -> Value {
    m.status()["recording"].take()
}

fn show(world: &World, file: &Path, more: &[&str]) -> ProgramOutput {
    world.teal(&[&["lab", "trace", "show", str(file)], more].concat())
}

/// Events as "OBJECT WORD FIELDS… OUTCOME", without times and processes, of these actions.
fn events(text: &str, words: &[&str]) -> Vec<String> {
    let event = |line: &str| {
        let mut parts = line.splitn(3, ' ');
        let time = parts.next()?;
        time.parse::<f64>().ok()?;
        let rest = parts.nth(1)?;
        let rest = rest.split_once(" in ").map_or(rest, |(rest, _)| rest);
        words
            .contains(&rest.split(' ').nth(1)?)
            .then(|| rest.to_owned())
    };
    text.lines().filter_map(event).collect()
}

fn ino(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

/// What programs change, and reads.
const DONE: [&str; 15] = [
    "mkdir", "create", "write", "read", "fsync", "truncate", "symlink", "link", "setxattr",
    "setattr", "rename", "unlink", "rmdir", "mknod", "mark",
];

#[test]
fn what_programs_do_is_in_the_trace_in_order_with_offsets_and_lengths() {
    let test = "what_programs_do_is_in_the_trace_in_order_with_offsets_and_lengths";
    let Some(mut m) = Mounted::new(test, "64M") else {
        return;
    };
    fs::create_dir(m.path("old")).unwrap();
    fs::write(m.path("old/data"), seeded(1, 300_000)).unwrap();
    let (old, data) = (ino(&m.path("old")), ino(&m.path("old/data")));
    m.hide_from_sync();
    let run = Recording::start(&m, m.world().path("day.trace"), &[]);
    let dir = m.path("d");
    fs::create_dir(&dir).unwrap();
    let d = ino(&dir);
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(dir.join("a b"))
        .unwrap();
    let a = file.metadata().unwrap().ino();
    file.write_all_at(&[1; 10_000], 0).unwrap();
    file.write_all_at(&[2; 100], 50_000).unwrap();
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    file.set_len(20_000).unwrap();
    m.world()
        .teal(&["lab", "record", str(m.point()), "--mark", "phase 2"])
        .expect_success();
    let direct = rustix::fs::open(
        m.path("old/data"),
        OFlags::CLOEXEC | OFlags::RDONLY | OFlags::DIRECT,
        Mode::empty(),
    )
    .unwrap();
    // Direct reads want an aligned buffer.
    let mut room = vec![0_u8; 3 * 4096];
    let start = room.as_ptr().align_offset(4096);
    let page = &mut room[start..start + 8192];
    assert_eq!(
        rustix::io::pread(&direct, &mut page[..], 65_536).unwrap(),
        8192
    );
    assert_eq!(
        rustix::io::pread(&direct, &mut page[..], 299_008).unwrap(),
        992,
        "at the end"
    );
    drop(direct);
    symlink("/some/where", dir.join("soft")).unwrap();
    fs::hard_link(dir.join("a b"), m.path("hard")).unwrap();
    rustix::fs::setxattr(
        dir.join("a b"),
        "user.x",
        b"12345",
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
    fs::set_permissions(dir.join("a b"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(dir.join("a b"), m.path("old/c")).unwrap();
    assert!(fs::metadata(m.path("none")).is_err());
    let soft = ino(&dir.join("soft"));
    fs::remove_file(dir.join("soft")).unwrap();
    fs::remove_dir(&dir).unwrap();
    drop(file);
    let trace = run.stop();
    let text = show(m.world(), &trace, &[]).expect_success();
    let want = [
        format!("1 mkdir name=\"d\" = {d}"),
        format!("{d} create name=\"a b\" = {a}"),
        format!("{a} write offset=0 length=10000 = 10000"),
        format!("{a} write offset=50000 length=100 = 100"),
        format!("{a} fsync data=no = 0"),
        format!("{a} fsync data=yes = 0"),
        format!("{a} truncate size=20000 = 0"),
        "0 mark text=\"phase 2\"".into(),
        format!("{data} read offset=65536 length=8192 = 8192"),
        format!("{data} read offset=299008 length=8192 = 992"),
        format!("{d} symlink name=\"soft\" length=11 = {soft}"),
        format!("1 link name=\"hard\" target={a} = {a}"),
        format!("{a} setxattr length=5 = 0"),
        format!("{a} setattr perm=yes owner=no times=no = 0"),
        format!("{d} rename name=\"a b\" to={old} new=\"c\" exchange=no = 0"),
        format!("{d} unlink name=\"soft\" = 0"),
        "1 rmdir name=\"d\" = 0".into(),
    ];
    assert_eq!(events(&text, &DONE), want, "{text}");
    assert!(
        events(&text, &["lookup"]).contains(&"1 lookup name=\"none\" ! 2".to_owned()),
        "{text}"
    );
    let me = std::process::id();
    assert!(text.lines().any(
        |line| line.starts_with("process ") && line.split(' ').nth(2) == Some(&me.to_string())
    ));
    let times: Vec<f64> = text
        .lines()
        .filter_map(|line| line.split(' ').next()?.parse().ok())
        .collect();
    assert!(times.is_sorted() && times.len() > want.len());

    look_at(&m, &trace, &text);
    m.down();
    m.check();
}

/// Paths, text and back, and the figures of the trace above.
#[track_caller]
fn look_at(m: &Mounted, trace: &Path, text: &str) {
    let named = show(m.world(), trace, &["--paths"]).expect_success();
    for line in ["write offset=0 length=10000", "fsync data=no"] {
        assert!(
            named
                .lines()
                .any(|l| l.contains(line) && l.ends_with(" # /d/a b")),
            "{line}: {named}"
        );
    }
    assert!(
        named
            .lines()
            .any(|l| l.contains("read offset=65536") && l.ends_with(" # /old/data")),
        "{named}"
    );
    // Text and back again: the same.
    let (typed, again) = (m.world().path("typed.txt"), m.world().path("again.trace"));
    fs::write(&typed, &named).unwrap();
    m.world()
        .teal(&[
            "lab",
            "trace",
            "import",
            "--from",
            "text",
            str(&typed),
            "--out",
            str(&again),
        ])
        .expect_success();
    assert_eq!(show(m.world(), &again, &[]).expect_success(), text);

    let figures = m
        .world()
        .teal(&["lab", "trace", "stat", str(trace), "--json"])
        .expect_success();
    let figures: Value = serde_json::from_str(&figures).unwrap();
    assert_eq!(
        (&figures["bytes_written"], &figures["bytes_read"]),
        (&10_100.into(), &9184.into()),
        "{figures}"
    );
    assert_eq!(
        (&figures["complete"], &figures["dropped"]),
        (&true.into(), &0.into())
    );
    assert_eq!(figures["actions"]["fsync"]["done"], 2);
    let table = m
        .world()
        .teal(&["lab", "trace", "stat", str(trace)])
        .expect_success();
    assert!(
        table.contains("idle gaps") && table.contains("phase 2"),
        "{table}"
    );
}

#[test]
fn a_recording_survives_the_death_of_the_daemon_up_to_its_last_block() {
    let test = "a_recording_survives_the_death_of_the_daemon_up_to_its_last_block";
    let Some(mut m) = Mounted::new(test, "64M") else {
        return;
    };
    let run = Recording::start(&m, m.world().path("day.trace"), &[]);
    for n in 0..50 {
        fs::write(m.path(format!("f{n}")), "content").unwrap();
    }
    let written =
        |file: &Path| events(&show(m.world(), file, &[]).expect_success(), &["write"]).len();
    assert!(
        wait_until(PATIENCE, || written(&run.file) == 50),
        "within a second or so everything is in the file"
    );
    m.kill();
    let (said, trace) = run.ended();
    assert!(
        said.clone().expect_refusal().contains("can be read"),
        "{said}"
    );
    let said = show(m.world(), &trace, &[]);
    assert!(
        said.stderr.contains("cut off at byte") && said.stderr.lines().count() == 1,
        "{said}"
    );
    assert_eq!(events(&said.expect_success(), &["write"]).len(), 50);
    let figures = m
        .world()
        .teal(&["lab", "trace", "stat", str(&trace), "--json"])
        .expect_success();
    assert_eq!(
        serde_json::from_str::<Value>(&figures).unwrap()["complete"],
        false
    );
    m.up();
    m.down();
    m.check();
}

#[test]
fn a_full_disk_ends_the_recording_with_a_message_and_never_the_mount() {
    let test = "a_full_disk_ends_the_recording_with_a_message_and_never_the_mount";
    let Some(mut m) = Mounted::new(test, "64M") else {
        return;
    };
    let small = Small::new(m.world().path("small"));
    let run = Recording::start(&m, small.0.join("day.trace"), &[]);
    let mut n = 0;
    while recording(&m)["ended"] == false {
        for _ in 0..500 {
            fs::write(
                m.path(format!("a name that takes some room in a trace, {n}")),
                "content",
            )
            .unwrap();
            n += 1;
        }
        assert!(n < 100_000, "the disk never gets full");
    }
    let (said, trace) = run.ended();
    assert!(
        said.clone()
            .expect_refusal()
            .contains("No space left on device"),
        "{said}"
    );
    assert!(
        m.world()
            .teal(&["status", str(m.point())])
            .expect_success()
            .contains("ended early: No space left")
    );
    assert!(m.log().contains("No space left"), "{}", m.log());
    let said = show(m.world(), &trace, &[]);
    assert!(said.stderr.contains("cut off at byte"), "{said}");
    assert!(events(&said.expect_success(), &["create"]).len() > 100);
    // The mount goes on, and so does the next recording.
    fs::write(m.path("after"), seeded(2, 100_000)).unwrap();
    let run = Recording::start(&m, m.world().path("next.trace"), &[]);
    fs::remove_file(m.path("after")).unwrap();
    let trace = run.stop();
    assert_eq!(
        events(&show(m.world(), &trace, &[]).expect_success(), &DONE),
        ["1 unlink name=\"after\" = 0"]
    );
    m.down();
    m.check();
}

/// A file system of a quarter of a megabyte.
struct Small(PathBuf);

impl Small {
    fn new(dir: PathBuf) -> Self {
        fs::create_dir(&dir).unwrap();
        let size = c"size=256k";
        rustix::mount::mount(
            "tmpfs",
            &dir,
            "tmpfs",
            rustix::mount::MountFlags::empty(),
            size,
        )
        .unwrap();
        Self(dir)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_recording_ends_with_its_time_or_with_the_mount_and_can_hide_names() {
    let test = "a_recording_ends_with_its_time_or_with_the_mount_and_can_hide_names";
    let Some(mut m) = Mounted::new(test, "64M") else {
        return;
    };
    fs::create_dir(m.path("secret")).unwrap();
    m.hide_from_sync();
    let run = Recording::start(
        &m,
        m.world().path("short.trace"),
        &["--for", "6s", "--anonymous"],
    );
    fs::write(m.path("secret/diary.odt"), "dear diary").unwrap();
    let is_written = || show(m.world(), &run.file, &[]).stdout.contains(" write ");
    assert!(wait_until(PATIENCE, is_written), "what came is in the file");
    crate::support::let_pass(Duration::from_millis(1200));
    let size = run.size();
    let (said, trace) = run.ended();
    said.expect_success();
    // Nothing came meanwhile, nothing was written: only the last block, with its 32 bytes.
    let grown = fs::metadata(&trace).unwrap().len() - size;
    assert!((32..32 + 256).contains(&grown), "{grown} bytes");
    let said = show(m.world(), &trace, &[]);
    assert_eq!(said.stderr, "", "complete");
    let text = said.expect_success();
    assert!(
        text.contains("\nanonymous\n") && text.contains(".odt\""),
        "{text}"
    );
    let me = fs::read_to_string("/proc/self/comm").unwrap();
    for word in ["secret", "diary", me.trim(), str(m.point())] {
        assert!(!text.contains(word), "{word}: {text}");
    }
    let run = Recording::start(&m, m.world().path("long.trace"), &[]);
    fs::write(m.path("last"), "words").unwrap();
    m.down();
    let (said, trace) = run.ended();
    assert!(said.code == 1 || said.stdout.contains("events"), "{said}");
    let said = show(m.world(), &trace, &[]);
    assert_eq!(said.stderr, "", "ended as it should");
    assert_eq!(events(&said.expect_success(), &["write"]).len(), 1);
    m.up();
    let run = Recording::start(&m, m.world().path("third.trace"), &[]);
    let end = m
        .world()
        .teal(&["lab", "record", str(m.point()), "--stop"])
        .expect_success();
    assert!(end.contains("third.trace"), "{end}");
    run.ended().0.expect_success();
    m.down();
    m.check();
}

#[test]
fn what_cannot_be_recorded_or_imported_is_refused_in_one_line() {
    let test = "what_cannot_be_recorded_or_imported_is_refused_in_one_line";
    let Some(mut m) = Mounted::new(test, "64M") else {
        return;
    };
    let point = str(m.point()).to_owned();
    let file = m.world().path("day.trace");
    let says = |args: &[&str], words: &[&str]| {
        let said = m.world().teal(args).expect_refusal();
        words
            .iter()
            .for_each(|word| assert!(said.contains(word), "{word} is not in: {said}"));
    };
    let record =
        |out: &Path, words: &[&str]| says(&["lab", "record", &point, "--out", str(out)], words);
    record(&m.path("inside"), &["inside", "elsewhere"]);
    assert!(!m.path("inside").exists());
    record(Path::new("/nowhere/at/all"), &["/nowhere/at"]);
    says(
        &["lab", "record", &point, "--stop"],
        &["nothing is being recorded"],
    );
    says(
        &["lab", "record", &point, "--mark", "x"],
        &["nothing is being recorded"],
    );
    let other = m.world().path("home");
    says(
        &["lab", "record", str(&other), "--out", str(&file)],
        &["nothing of TealFS"],
    );
    fs::write(&file, "precious").unwrap();
    record(&file, &["day.trace", "exists"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    let run = Recording::start(&m, m.world().path("first.trace"), &[]);
    record(&m.world().path("second.trace"), &["first.trace", "already"]);
    assert!(!m.world().path("second.trace").exists());
    let trace = run.stop();

    let out = m.world().path("out.trace");
    let import = |format: &str, input: &Path, words: &[&str]| {
        says(
            &[
                "lab",
                "trace",
                "import",
                "--from",
                format,
                str(input),
                "--out",
                str(&out),
            ],
            words,
        );
        assert!(!out.exists(), "nothing is left of it");
    };
    for format in ["blktrace", "vscsi", "oracle-general", "text"] {
        import(format, &trace, &["first.trace"]);
    }
    let cut = m.world().path("cut");
    fs::write(
        &cut,
        [&[7, 0, 0, 0][..], &[1; 12], &[0xff; 8], &[0; 10]].concat(),
    )
    .unwrap();
    import(
        "oracle-general",
        &cut,
        &["cut", "record 1", "byte 24", "incomplete"],
    );
    fs::write(&cut, "teal-trace 1 block\n1 0 0 bflush\n0.5 0 0 bflush\n").unwrap();
    import("text", &cut, &["line 3", "comes after"]);
    says(
        &["lab", "trace", "show", str(&file)],
        &["day.trace", "not a TealFS trace"],
    );
    says(&["lab", "trace", "stat", "/nowhere"], &["/nowhere"]);
    m.down();
    m.check();
}
