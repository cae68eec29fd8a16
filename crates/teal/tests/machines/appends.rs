//! Two machines that write to the same file, each on what it has seen: what a program acted on
//! decides where its bytes go.

mod many;
mod seen;

use crate::support::{
    Mounted, Nas, converge, end, find_program, flush, is_long, join, let_pass, wait_until,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::ReadWriteFlags;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// `RWF_NOAPPEND` (Linux 6.9).
const NOAPPEND: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x20);

/// A volume on two machines, with a file `log` of 5 bytes that both know.
struct Pair {
    nas: Nas,
    laptop: Mounted,
}

impl Pair {
    fn new(test: &str) -> Option<Self> {
        let mut nas = Nas::of(test, |root| fs::write(root.join("log"), "base\n").unwrap())?;
        let laptop = join(test, &nas.serve());
        let this = Self { nas, laptop };
        this.settle();
        Some(this)
    }

    /// Both have the same.
    fn settle(&self) {
        converge(&self.nas.0, &self.laptop);
    }

    /// Changes something on the serving machine, and returns when the change has come to the other.
    fn elsewhere(&self, change: impl FnOnce(&Path)) {
        // The files of this machine are known on the other.
        flush(&self.laptop);
        flush(&self.nas.0);
        change(&self.nas.0.path("log"));
        flush(&self.nas.0);
        flush(&self.laptop);
    }

    /// A line is appended on the serving machine, and has come to the other.
    fn appended_elsewhere(&self, line: &str) {
        self.elsewhere(|log| append(log, line));
    }

    fn log(&self) -> String {
        fs::read_to_string(self.laptop.path("log")).unwrap()
    }

    /// Both machines have these files, and no other.
    #[track_caller]
    fn ends_with(self, files: &[&str]) {
        self.settle();
        for m in [&self.nas.0, &self.laptop] {
            let mut there: Vec<_> = contents(m).into_values().collect();
            let mut wanted: Vec<_> = files.iter().map(|file| file.as_bytes().to_vec()).collect();
            there.sort();
            wanted.sort();
            assert!(there == wanted, "{:?}", contents(m).keys());
        }
        assert_eq!(contents(&self.laptop)["log"], files[0].as_bytes());
        end(vec![self.laptop, self.nas.0]);
    }
}

fn append(path: &Path, line: &str) {
    held(path).write_all(line.as_bytes()).unwrap();
}

/// A descriptor with `O_APPEND`.
fn held(path: &Path) -> File {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap()
}

/// The content of all files of a volume by name.
fn contents(m: &Mounted) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(m.point()).unwrap().map(Result::unwrap);
    files
        .map(|file| {
            (
                file.file_name().into_string().unwrap(),
                fs::read(file.path()).unwrap(),
            )
        })
        .collect()
}

#[test]
fn a_held_append_descriptor_appends_behind_what_came_from_elsewhere() {
    let test = "a_held_append_descriptor_appends_behind_what_came_from_elsewhere";
    let Some(pair) = Pair::new(test) else { return };
    let mut log = held(&pair.laptop.path("log"));
    // Warm: the page with the end of the file is in the cache.
    assert_eq!(pair.log(), "base\n");
    for n in 0..10 {
        pair.appended_elsewhere(&format!("nas {n}\n"));
        log.write_all(format!("laptop {n}\n").as_bytes()).unwrap();
        let position = log.stream_position().unwrap();
        let said = pair.log();
        assert!(
            said.ends_with(&format!("nas {n}\nlaptop {n}\n")),
            "an immediate reading: {said}"
        );
        assert_eq!(
            position,
            said.len() as u64,
            "lseek(SEEK_CUR) after an append is the end"
        );
        assert_eq!(log.seek(SeekFrom::End(0)).unwrap(), position);
        assert_eq!(log.metadata().unwrap().len(), position);
    }
    let whole = pair.log();
    assert_eq!(whole.lines().count(), 21);
    drop(log);
    pair.ends_with(&[&whole]);
}

#[test]
fn what_is_read_and_then_appended_to_keeps_what_came_in_between() {
    let test = "what_is_read_and_then_appended_to_keeps_what_came_in_between";
    let Some(pair) = Pair::new(test) else { return };
    for n in 0..5 {
        let before = pair.log();
        assert!(before.len() > n);
        pair.appended_elsewhere(&format!("nas {n}\n"));
        append(&pair.laptop.path("log"), &format!("laptop {n}\n"));
        assert_eq!(pair.log(), format!("{before}nas {n}\nlaptop {n}\n"));
    }
    let whole = pair.log();
    pair.ends_with(&[&whole]);
}

#[test]
fn an_append_after_a_truncation_elsewhere_leaves_no_hole() {
    let test = "an_append_after_a_truncation_elsewhere_leaves_no_hole";
    let Some(pair) = Pair::new(test) else { return };
    let mut log = held(&pair.laptop.path("log"));
    // In a part of a page, in pages of which some are whole, and in several requests.
    for (n, len) in [3, 9_003, 70_000, 1_100_000, 2_500_000]
        .into_iter()
        .enumerate()
    {
        log.write_all(&[b'x'; 9000]).unwrap();
        assert!(pair.log().len() >= 9000);
        pair.elsewhere(|log| fs::write(log, "new\n").unwrap());
        let line = n.to_string().repeat(len);
        log.write_all(line.as_bytes()).unwrap();
        assert!(
            pair.log() == format!("new\n{line}"),
            "an immediate reading of round {n}"
        );
        assert_eq!(log.metadata().unwrap().len(), 4 + line.len() as u64);
        assert_eq!(log.seek(SeekFrom::End(0)).unwrap(), 4 + line.len() as u64);
        log.write_all(b"\n").unwrap();
        assert!(pair.log() == format!("new\n{line}\n"), "round {n}");
    }
    let whole = pair.log();
    drop(log);
    pair.ends_with(&[&whole]);
}

#[test]
fn a_single_write_says_itself_whether_it_appends() {
    let test = "a_single_write_says_itself_whether_it_appends";
    let Some(pair) = Pair::new(test) else { return };
    let plain = OpenOptions::new()
        .write(true)
        .open(pair.laptop.path("log"))
        .unwrap();
    let appending = held(&pair.laptop.path("log"));
    pair.appended_elsewhere("nas 0\n");
    let write = |file: &File, at, text: &str, flags| {
        rustix::io::pwritev2(file, &[IoSlice::new(text.as_bytes())], at, flags).unwrap()
    };
    assert_eq!(write(&plain, 0, "laptop 0\n", ReadWriteFlags::APPEND), 9);
    assert_eq!(pair.log(), "base\nnas 0\nlaptop 0\n");
    pair.settle();
    pair.appended_elsewhere("nas 1\n");
    let before = pair.log();
    // Not an append: the program has seen the content that it replaces.
    assert_eq!(write(&appending, 5, "NAS", NOAPPEND), 3);
    assert_eq!(pair.log(), before.replace("nas 0", "NAS 0"));
    let whole = pair.log();
    drop((plain, appending));
    pair.ends_with(&[&whole]);
}

#[test]
fn a_positioned_write_at_an_end_that_has_moved_replaces_nothing_unseen() {
    let test = "a_positioned_write_at_an_end_that_has_moved_replaces_nothing_unseen";
    for how in [Some(NOAPPEND), None] {
        let Some(pair) = Pair::new(test) else { return };
        let flags = if how.is_some() {
            OFlags::APPEND
        } else {
            OFlags::empty()
        };
        let path = pair.laptop.path("log");
        let file =
            File::from(rustix::fs::open(&path, OFlags::RDWR | flags, Mode::empty()).unwrap());
        assert_eq!(pair.log(), "base\n");
        pair.appended_elsewhere("nas 0\n");
        let text = [IoSlice::new(b"LAP")];
        assert_eq!(
            rustix::io::pwritev2(&file, &text, 5, how.unwrap_or(ReadWriteFlags::empty())).unwrap(),
            3
        );
        pair.settle();
        let files = contents(&pair.laptop);
        assert_eq!(
            files["log"], b"base\nnas 0\n",
            "who wrote last had not seen this"
        );
        let copies = files
            .iter()
            .filter(|(name, _)| name.starts_with("log (conflict laptop"));
        let copies: Vec<_> = copies.map(|(_, content)| content).collect();
        assert!(
            copies.len() == 1 && copies[0].starts_with(b"base\nLAP"),
            "{copies:?}"
        );
        drop(file);
        end(vec![pair.laptop, pair.nas.0]);
    }
}

#[test]
fn a_direct_append_appends() {
    let test = "a_direct_append_appends";
    let Some(pair) = Pair::new(test) else { return };
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::DIRECT;
    let mut log =
        File::from(rustix::fs::open(pair.laptop.path("log"), flags, Mode::empty()).unwrap());
    assert_eq!(pair.log(), "base\n");
    pair.appended_elsewhere("nas 0\n");
    log.write_all(b"laptop 0\n").unwrap();
    assert_eq!(pair.log(), "base\nnas 0\nlaptop 0\n");
    pair.elsewhere(|log| fs::write(log, "new\n").unwrap());
    log.write_all(b"laptop 1\n").unwrap();
    assert_eq!(pair.log(), "new\nlaptop 1\n");
    drop(log);
    pair.ends_with(&["new\nlaptop 1\n"]);
}

#[test]
fn who_empties_a_file_replaces_what_is_there() {
    let test = "who_empties_a_file_replaces_what_is_there";
    let Some(pair) = Pair::new(test) else { return };
    assert_eq!(pair.log(), "base\n");
    let mut log = held(&pair.laptop.path("log"));
    pair.appended_elsewhere("nas 0\n");
    fs::write(pair.laptop.path("log"), "all\n").unwrap();
    log.write_all(b"more\n").unwrap();
    assert_eq!(pair.log(), "all\nmore\n");
    drop(log);
    pair.ends_with(&["all\nmore\n"]);
}

#[test]
fn who_cuts_a_file_he_holds_has_seen_it_as_it_was() {
    let test = "who_cuts_a_file_he_holds_has_seen_it_as_it_was";
    let Some(pair) = Pair::new(test) else { return };
    let log = OpenOptions::new()
        .write(true)
        .open(pair.laptop.path("log"))
        .unwrap();
    assert_eq!(pair.log(), "base\n");
    pair.appended_elsewhere("nas 0\n");
    log.set_len(2).unwrap();
    drop(log);
    pair.ends_with(&["base\nnas 0\n", "ba"]);
}

#[test]
fn a_copy_to_an_end_that_has_moved_replaces_nothing_unseen() {
    let test = "a_copy_to_an_end_that_has_moved_replaces_nothing_unseen";
    let Some(pair) = Pair::new(test) else { return };
    fs::write(pair.laptop.path("source"), "copied\n").unwrap();
    pair.settle();
    let source = OpenOptions::new()
        .read(true)
        .open(pair.laptop.path("source"))
        .unwrap();
    let log = OpenOptions::new()
        .write(true)
        .open(pair.laptop.path("log"))
        .unwrap();
    assert_eq!(pair.log(), "base\n");
    pair.appended_elsewhere("nas 0\n");
    let (mut from, mut to) = (0, 5);
    assert_eq!(
        rustix::fs::copy_file_range(&source, Some(&mut from), &log, Some(&mut to), 7).unwrap(),
        7
    );
    drop((source, log));
    pair.settle();
    let files = contents(&pair.laptop);
    assert_eq!(files["log"], b"base\nnas 0\n");
    assert_eq!(files.len(), 3, "{files:?}");
    assert!(
        files
            .values()
            .any(|content| content.starts_with(b"base\ncopied\n")),
        "{files:?}"
    );
    end(vec![pair.laptop, pair.nas.0]);
}

/// A program in Python, for what has no safe form here; it does one thing for each line it is sent.
struct Python {
    child: Child,
}

impl Python {
    fn begin(test: &str, script: &str, path: &Path) -> Option<Self> {
        let Some(python) = find_program("python3", &[]) else {
            teal_testkit::skip_test(test, "needs python3");
            return None;
        };
        let mut command = Command::new(python);
        command
            .args(["-u", "-c", script])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut this = Self {
            child: command.spawn().unwrap(),
        };
        this.step();
        Some(this)
    }

    /// Lets it go on, and waits for what it has to say.
    fn step(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut said = [0];
        self.child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut said)
            .unwrap();
        assert_eq!(said, *b".");
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Maps a file, changes its first byte, and writes that back, each when it is told to.
const MAPPED: &str = r#"
import mmap, os, sys
def step():
    sys.stdout.write("."); sys.stdin.readline()
sys.stdin.readline()
fd = os.open(sys.argv[1], os.O_RDWR)
map = mmap.mmap(fd, 4096)
step()
map[0:3] = b"MAP"
step()
map.flush()
sys.stdout.write(".")
"#;

#[test]
fn a_mapping_that_was_changed_before_replaces_nothing_unseen() {
    let test = "a_mapping_that_was_changed_before_replaces_nothing_unseen";
    let Some(pair) = Pair::new(test) else { return };
    fs::write(pair.laptop.path("log"), [b'-'; 4096]).unwrap();
    pair.settle();
    let Some(mut python) = Python::begin(test, MAPPED, &pair.laptop.path("log")) else {
        return;
    };
    python.step();
    // Another program's `sync(2)` writes the mapping back at once; it comes here as any write then.
    let mut seen_here = Vec::new();
    pair.elsewhere(|log| {
        let log = OpenOptions::new().read(true).write(true).open(log).unwrap();
        seen_here.resize(6, 0);
        log.read_exact_at(&mut seen_here, 0).unwrap();
        log.write_all_at(b"NAS", 0).unwrap();
    });
    python.step();
    drop(python);
    pair.settle();
    let files = contents(&pair.laptop);
    assert_eq!(
        &files["log"][..6],
        b"NAS---",
        "who wrote last had not seen this"
    );
    let is_kept = files.values().any(|content| content.starts_with(b"MAP---"));
    assert!(is_kept || seen_here == b"MAP---", "{:?}", files.keys());
    end(vec![pair.laptop, pair.nas.0]);
}

#[test]
fn a_mapping_shows_what_came_from_elsewhere() {
    let test = "a_mapping_shows_what_came_from_elsewhere";
    let Some(pair) = Pair::new(test) else { return };
    fs::write(pair.laptop.path("log"), [b'-'; 4096]).unwrap();
    pair.settle();
    let Some(mut python) = Python::begin(test, MAPPED, &pair.laptop.path("log")) else {
        return;
    };
    pair.elsewhere(|log| {
        OpenOptions::new()
            .write(true)
            .open(log)
            .unwrap()
            .write_all_at(b"NAS", 3)
            .unwrap()
    });
    python.step();
    python.step();
    drop(python);
    pair.settle();
    let files = contents(&pair.laptop);
    assert_eq!(&files["log"][..9], b"MAPNAS---", "{:?}", files.keys());
    assert_eq!(files.len(), 1);
    end(vec![pair.laptop, pair.nas.0]);
}

/// Writes through a ring at the descriptor's position, which is the offset -1: `open` says with
/// which flags.
const THROUGH_A_RING: &str = r#"
import ctypes, mmap, os, struct, sys
def step():
    sys.stdout.write("."); sys.stdin.readline()
sys.stdin.readline()
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
params = ctypes.create_string_buffer(120)
ring = libc.syscall(425, 2, params)
assert ring >= 0, os.strerror(ctypes.get_errno())
p = struct.unpack("10I", params.raw[:40])
sq = struct.unpack("8IQ", params.raw[40:80])
def mapped(at):
    return libc.mmap(None, 1 << 14, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, ring, at)
rings, entries = mapped(0), mapped(0x10000000)
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
text = ctypes.create_string_buffer(b"laptop 0\n", 9)
step()
sqe = struct.pack("<BBHiQQIIQQQQ", 23, 0, 0, fd, (1 << 64) - 1, ctypes.addressof(text), 9, 0, 0, 0, 0, 0)
ctypes.memmove(entries, sqe, 64)
ctypes.c_uint.from_address(rings + sq[6]).value = 0
ctypes.c_uint.from_address(rings + sq[1]).value += 1
done = libc.syscall(426, ring, 1, 1, 1, None, 0)
assert done == 1, os.strerror(ctypes.get_errno())
cqes = struct.unpack("8IQ", params.raw[80:120])[5]
assert ctypes.c_int.from_address(rings + cqes + 8).value == 9
sys.stdout.write(".")
"#;

#[test]
fn a_write_through_a_ring_appends() {
    let test = "a_write_through_a_ring_appends";
    let Some(pair) = Pair::new(test) else { return };
    let Some(mut python) = Python::begin(test, THROUGH_A_RING, &pair.laptop.path("log")) else {
        return;
    };
    assert_eq!(pair.log(), "base\n");
    pair.appended_elsewhere("nas 0\n");
    python.step();
    drop(python);
    assert_eq!(pair.log(), "base\nnas 0\nlaptop 0\n");
    pair.ends_with(&["base\nnas 0\nlaptop 0\n"]);
}
