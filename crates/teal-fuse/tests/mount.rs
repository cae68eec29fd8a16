//! Real mounts of a tiny read-only file system, through the public API alone. Without `/dev/fuse`
//! nothing is tested here.

#![allow(clippy::unwrap_used, reason = "a test whose ground gives way fails")]

use parking_lot::Mutex;
use rustix::io::Errno;
use std::fs::OpenOptions;
use std::io::{self, Read, Seek};
use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use teal_fuse::{
    BdiKnob, DirBuffer, FuseMountOptions, FuseOperation, FuseSession, GeneralMountFlags, Handle,
    InitConfig, InitFlags, KernelNotifier, KernelRequest, LookupEntry, MountError, NodeId,
    OpenFlags, ReplySender, RequestHandler, SessionError, StatfsReply, Transport, UnmountError,
    UnmountHandle, UnmountMode, set_bdi,
};
use teal_types::{Attr, FileType, ObjectNo, Timestamp};

const HELLO: NodeId = NodeId::new(20);
const PANIC: NodeId = NodeId::new(21);
const FILES: [(NodeId, &str); 2] = [(HELLO, "hello"), (PANIC, "panic")];

/// `/hello` holds some bytes; whoever reads `/panic` makes the server panic.
struct Tiny {
    content: Mutex<Vec<u8>>,
    lookups: AtomicUsize,
    reads: AtomicUsize,
    syncs: AtomicUsize,
    destroyed: AtomicUsize,
}

impl Tiny {
    fn attr(&self, node: NodeId) -> Attr {
        let dir = node == NodeId::ROOT;
        let time = Timestamp::new(1_000_000_000, 5);
        Attr {
            object: ObjectNo::new(node.get()),
            kind: if dir { FileType::Dir } else { FileType::File },
            perm: if dir { 0o755 } else { 0o644 },
            nlink: if dir { 2 } else { 1 },
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            size: if dir {
                0
            } else {
                self.content.lock().len() as u64
            },
            sectors: 8,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
        }
    }

    fn entry(&self, node: NodeId) -> LookupEntry {
        LookupEntry {
            node,
            generation: 0,
            attr: self.attr(node),
            attr_ttl: Duration::MAX,
            entry_ttl: Duration::MAX,
        }
    }

    fn list(&self, size: u32, cookie: u64, plus: bool) -> DirBuffer {
        let mut buffer = DirBuffer::new(size);
        for (next, (node, name)) in (1_u64..).zip(FILES).skip(cookie as usize) {
            let object = ObjectNo::new(node.get());
            let full = if plus {
                buffer.push_plus(
                    Some(&self.entry(node)),
                    object,
                    next,
                    FileType::File,
                    name.as_bytes(),
                )
            } else {
                buffer.push(object, next, FileType::File, name.as_bytes())
            };
            if full {
                break;
            }
        }
        buffer
    }
}

impl RequestHandler for Tiny {
    fn handle_request(&self, request: KernelRequest<'_>, reply: ReplySender) {
        let node = request.header.node;
        match request.operation {
            FuseOperation::Lookup { name } => {
                self.lookups.fetch_add(1, Ordering::Relaxed);
                match FILES.iter().find(|(_, file)| file.as_bytes() == name) {
                    Some((node, _)) => drop(reply.send_entry(&self.entry(*node))),
                    None => reply.send_error(Errno::NOENT),
                }
            }
            FuseOperation::Getattr { .. } => reply.send_attr(&self.attr(node), Duration::MAX),
            FuseOperation::Statx { .. } => reply.send_statx(&self.attr(node), Duration::MAX),
            FuseOperation::Open { .. } => {
                let _delivery = reply.send_open(Handle::new(1), OpenFlags::KEEP_CACHE);
            }
            FuseOperation::Opendir { .. } => {
                let _delivery = reply.send_open(Handle::new(2), OpenFlags::empty());
            }
            FuseOperation::Read { .. } if node == PANIC => panic!("as the test wants"),
            FuseOperation::Read { offset, size, .. } => {
                self.reads.fetch_add(1, Ordering::Relaxed);
                let content = self.content.lock().clone();
                let start = content.len().min(offset as usize);
                let end = content.len().min(start + size as usize);
                let (first, second) = content[start..end].split_at((end - start) / 2);
                reply.send_data_vectored(&[first, second]);
            }
            FuseOperation::Readdir { cookie, size, .. } => {
                reply.send_directory(&self.list(size, cookie, false))
            }
            FuseOperation::Readdirplus { cookie, size, .. } => {
                reply.send_directory(&self.list(size, cookie, true))
            }
            FuseOperation::Statfs => reply.send_statfs(&StatfsReply {
                block_size: 4096,
                blocks: 1000,
                free: 500,
                available: 400,
                files: 2,
                files_free: 7,
                name_max: 255,
            }),
            FuseOperation::Flush { .. }
            | FuseOperation::Release { .. }
            | FuseOperation::Releasedir { .. } => reply.send_ok(),
            FuseOperation::Syncfs => {
                self.syncs.fetch_add(1, Ordering::Relaxed);
                reply.send_ok();
            }
            FuseOperation::Destroy => {
                self.destroyed.fetch_add(1, Ordering::Relaxed);
                reply.send_ok();
            }
            _ => reply.send_error(Errno::NOSYS),
        }
    }
}

/// A mount that is served on threads of its own and taken away when the test ends, however it ends.
struct Mounted {
    tiny: Arc<Tiny>,
    dir: tempfile::TempDir,
    notifier: KernelNotifier,
    unmounter: UnmountHandle,
    server: Option<JoinHandle<Result<(), SessionError>>>,
}

impl Mounted {
    /// `None`, and a word about it, where there is no FUSE.
    fn new(options: &FuseMountOptions) -> Option<Self> {
        if !Path::new("/dev/fuse").exists() {
            eprintln!("SKIPPED: /dev/fuse is missing");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let wanted =
            InitFlags::DO_READDIRPLUS | InitFlags::READDIRPLUS_AUTO | InitFlags::HAS_EXPIRE_ONLY;
        let config = InitConfig {
            wanted,
            ..Default::default()
        };
        let session = FuseSession::mount(dir.path(), options, &config).unwrap();
        assert!(
            session
                .negotiated()
                .flags
                .contains(InitFlags::MAX_PAGES | InitFlags::HAS_EXPIRE_ONLY)
        );
        assert_eq!(session.negotiated().max_write, 1 << 20);
        let tiny = Arc::new(Tiny {
            content: Mutex::new(b"hello, world\n".to_vec()),
            lookups: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
            syncs: AtomicUsize::new(0),
            destroyed: AtomicUsize::new(0),
        });
        let (notifier, unmounter) = (session.notifier(), session.unmount_handle().unwrap());
        let serve = Arc::clone(&tiny);
        let run = move || session.run(NonZeroUsize::new(2).unwrap(), &*serve);
        let server = Builder::new().name("session".into()).spawn(run).unwrap();
        Some(Self {
            tiny,
            dir,
            notifier,
            unmounter,
            server: Some(server),
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Waits until the session has ended by itself.
    fn ended(&mut self) {
        join(self.server.take().unwrap()).unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let gone = self.unmounter.unmount(UnmountMode::Detach);
        if let (Some(server), Ok(())) = (self.server.take(), gone)
            && !std::thread::panicking()
        {
            join(server).unwrap();
        }
    }
}

/// Returns what the session ended with; that it does not end is a failure and no hang.
fn join(server: JoinHandle<Result<(), SessionError>>) -> Result<(), SessionError> {
    for _ in 0..3000 {
        if server.is_finished() {
            return server.join().unwrap();
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    panic!("the session does not end within a minute");
}

fn options() -> FuseMountOptions {
    FuseMountOptions {
        source: "tiny,test".into(),
        flags: GeneralMountFlags::READ_ONLY,
        default_permissions: true,
        ..Default::default()
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap()
}

#[test]
fn files_directories_and_errors_reach_their_callers() {
    let Some(mut mounted) = Mounted::new(&options()) else {
        return;
    };
    assert_eq!(
        std::fs::read(mounted.path("hello")).unwrap(),
        b"hello, world\n"
    );
    let mut names = std::fs::read_dir(mounted.dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect::<Vec<_>>();
    names.sort();
    assert_eq!(names, ["hello", "panic"]);
    let stat = std::fs::metadata(mounted.path("hello")).unwrap();
    assert_eq!(
        (stat.ino(), stat.size(), stat.mode(), stat.mtime_nsec()),
        (20, 13, 0o100_644, 5)
    );
    assert_eq!(
        rustix::fs::statvfs(mounted.dir.path()).unwrap().f_bavail,
        400
    );
    assert_eq!(
        errno(&std::fs::read(mounted.path("none")).unwrap_err()),
        Errno::NOENT
    );
    assert_eq!(
        errno(&std::fs::write(mounted.path("hello"), b"x").unwrap_err()),
        Errno::ROFS
    );
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let point = mounted.unmounter.mount_point().to_str().unwrap();
    let line = mounts.lines().find(|line| line.contains(point)).unwrap();
    assert!(
        line.starts_with("tiny,test ") && line.contains(" fuse.teal ro,"),
        "{line}"
    );
    mounted.unmounter.unmount(UnmountMode::IfIdle).unwrap();
    mounted.ended();
    assert_eq!(
        std::fs::read_dir(mounted.dir.path()).unwrap().count(),
        0,
        "the mount is gone"
    );
    mounted.unmounter.unmount(UnmountMode::IfIdle).unwrap();
}

#[test]
fn unlimited_time_outs_hold_until_a_notification() {
    let Some(mounted) = Mounted::new(&options()) else {
        return;
    };
    for _ in 0..3 {
        assert_eq!(
            std::fs::read(mounted.path("hello")).unwrap(),
            b"hello, world\n"
        );
    }
    let asked = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    assert_eq!(
        (asked(&mounted.tiny.lookups), asked(&mounted.tiny.reads)),
        (1, 1),
        "the kernel remembers"
    );

    *mounted.tiny.content.lock() = b"something longer\n".to_vec();
    assert_eq!(
        std::fs::read(mounted.path("hello")).unwrap(),
        b"hello, world\n",
        "nobody has told the kernel"
    );
    assert_eq!(mounted.notifier.inval_data(HELLO, 0, 0), Ok(true));
    assert_eq!(
        std::fs::read(mounted.path("hello")).unwrap(),
        b"something longer\n"
    );

    for (round, forget) in [KernelNotifier::inval_entry, KernelNotifier::expire_entry]
        .into_iter()
        .enumerate()
    {
        assert_eq!(forget(&mounted.notifier, NodeId::ROOT, b"hello"), Ok(true));
        assert!(mounted.path("hello").exists());
        assert_eq!(asked(&mounted.tiny.lookups), round + 2);
    }
    assert_eq!(
        mounted.notifier.inval_attr(NodeId::new(999)),
        Ok(false),
        "the kernel never heard of it"
    );
    assert_eq!(
        mounted.notifier.store_data(HELLO, 0, b"SOMETHING STORED\n"),
        Ok(true)
    );
    assert_eq!(
        std::fs::read(mounted.path("hello")).unwrap(),
        b"SOMETHING STORED\n"
    );
}

#[test]
fn a_panic_in_a_handler_is_eio_and_the_mount_goes_on() {
    let Some(mounted) = Mounted::new(&options()) else {
        return;
    };
    for _ in 0..4 {
        assert_eq!(
            errno(&std::fs::read(mounted.path("panic")).unwrap_err()),
            Errno::IO
        );
        assert_eq!(
            std::fs::read(mounted.path("hello")).unwrap(),
            b"hello, world\n"
        );
    }
}

#[test]
fn an_unmount_refuses_or_detaches_while_a_file_is_open() {
    let Some(mut mounted) = Mounted::new(&options()) else {
        return;
    };
    let mut file = OpenOptions::new()
        .read(true)
        .open(mounted.path("hello"))
        .unwrap();
    let busy = mounted.unmounter.unmount(UnmountMode::IfIdle).unwrap_err();
    assert!(matches!(busy, UnmountError::Busy { .. }), "{busy}");
    mounted.unmounter.unmount(UnmountMode::Detach).unwrap();
    assert!(!mounted.path("hello").exists());
    let mut content = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut content).unwrap();
    assert_eq!(content, "hello, world\n", "what is open is served on");
    drop(file);
    mounted.ended();
}

#[test]
fn a_session_that_never_ran_leaves_no_mount() {
    if Mounted::new(&options()).is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    drop(FuseSession::mount(dir.path(), &options(), &InitConfig::default()).unwrap());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Returns how many mounts lie at a directory, one over the other.
fn mounts_at(dir: &Path) -> usize {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table
        .lines()
        .filter(|line| line.split(' ').nth(4) == dir.to_str())
        .count()
}

#[test]
fn a_device_has_channels_and_the_next_mount_takes_the_place_of_a_dead_one() {
    if Mounted::new(&options()).is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (device, dead) = teal_fuse::mount(dir.path(), &options()).unwrap();
    drop(device.open_channel().unwrap());
    drop(device);
    assert!(teal_fuse::is_dead(dir.path()));
    let again = teal_fuse::mount(dir.path(), &options());
    if !rustix::process::geteuid().is_root() {
        dead.unmount(UnmountMode::Detach).unwrap();
        assert!(matches!(again, Err(MountError::Dead { .. })), "{again:?}");
        return;
    }
    let (device, unmounter) = again.unwrap();
    assert_ne!(unmounter.device_number(), dead.device_number());
    // Its mount is gone, and that of its successor is not taken for it.
    dead.unmount(UnmountMode::Detach).unwrap();
    assert_eq!(mounts_at(dir.path()), 1);
    drop(device);
    unmounter.unmount(UnmountMode::Detach).unwrap();
    assert_eq!(mounts_at(dir.path()), 0);
}

#[test]
fn read_ahead_can_be_raised_by_root() {
    let Some(mounted) = Mounted::new(&options()) else {
        return;
    };
    let device = mounted.unmounter.device_number();
    let set = set_bdi(device, BdiKnob::ReadAheadKb, 1024);
    if rustix::process::geteuid().is_root() {
        set.unwrap();
        let file = format!("/sys/class/bdi/{device}/read_ahead_kb");
        assert_eq!(std::fs::read_to_string(file).unwrap().trim(), "1024");
    } else {
        assert_eq!(set.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}

/// A loop device, given back at the end.
struct Loop {
    device: String,
    _backing: tempfile::NamedTempFile,
}

impl Loop {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            eprintln!("SKIPPED: needs root and loop devices");
            return None;
        }
        let backing = tempfile::NamedTempFile::new().unwrap();
        backing.as_file().set_len(1 << 20).unwrap();
        let found = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(backing.path())
            .output()
            .unwrap();
        assert!(
            found.status.success(),
            "{}",
            String::from_utf8_lossy(&found.stderr)
        );
        let device = String::from_utf8(found.stdout).unwrap().trim().to_owned();
        Some(Self {
            device,
            _backing: backing,
        })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let given_back = Command::new("losetup")
            .args(["--detach", &self.device])
            .status();
        assert!(std::thread::panicking() || given_back.is_ok_and(|status| status.success()));
    }
}

#[test]
fn a_block_device_mount_sends_syncfs_and_destroy() {
    let Some(disk) = Loop::new() else { return };
    let options = FuseMountOptions {
        source: disk.device.clone(),
        block_device: true,
        ..Default::default()
    };
    let Some(mut mounted) = Mounted::new(&options) else {
        return;
    };
    assert_eq!(
        std::fs::read(mounted.path("hello")).unwrap(),
        b"hello, world\n"
    );
    let second = teal_fuse::mount(tempfile::tempdir().unwrap().path(), &options).unwrap_err();
    assert!(matches!(second, MountError::Busy { .. }), "{second}");
    // The `sync(2)` of any other program is passed on, too.
    let before = mounted.tiny.syncs.load(Ordering::Relaxed);
    rustix::fs::syncfs(
        OpenOptions::new()
            .read(true)
            .open(mounted.path("hello"))
            .unwrap(),
    )
    .unwrap();
    assert!(mounted.tiny.syncs.load(Ordering::Relaxed) > before);
    mounted.unmounter.unmount(UnmountMode::IfIdle).unwrap();
    mounted.ended();
    assert_eq!(mounted.tiny.destroyed.load(Ordering::Relaxed), 1);
    let dir = tempfile::tempdir().unwrap();
    drop(FuseSession::mount(dir.path(), &options, &InitConfig::default()).unwrap());
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "one that never ran waits for no DESTROY"
    );
}

/// As root, runs itself as `nobody`, in a mount namespace of its own whose `/dev/fuse` is open to
/// all.
#[test]
fn a_user_mounts_through_fusermount3() {
    if rustix::process::geteuid().is_root() {
        return as_nobody("a_user_mounts_through_fusermount3");
    }
    let Some(mut mounted) = Mounted::new(&FuseMountOptions {
        flags: GeneralMountFlags::empty(),
        ..options()
    }) else {
        return;
    };
    assert_eq!(
        std::fs::read(mounted.path("hello")).unwrap(),
        b"hello, world\n"
    );
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let point = mounted.unmounter.mount_point().to_str().unwrap();
    let line = mounts.lines().find(|line| line.contains(point)).unwrap();
    assert!(
        line.starts_with("tiny,test ") && line.contains(" fuse.teal rw,nosuid,nodev"),
        "{line}"
    );
    let file = OpenOptions::new()
        .read(true)
        .open(mounted.path("hello"))
        .unwrap();
    let busy = mounted.unmounter.unmount(UnmountMode::IfIdle).unwrap_err();
    assert!(matches!(busy, UnmountError::Busy { .. }), "{busy}");
    drop(file);
    mounted.unmounter.unmount(UnmountMode::IfIdle).unwrap();
    mounted.ended();
    let others = FuseMountOptions {
        allow_other: true,
        ..options()
    };
    let denied = teal_fuse::mount(Path::new("/proc"), &others).unwrap_err();
    assert!(matches!(denied, MountError::Denied { .. }), "{denied}");
}

fn as_nobody(test: &str) {
    if !Path::new("/dev/fuse").exists() {
        return eprintln!("SKIPPED: /dev/fuse is missing");
    }
    const SCRIPT: &str = r#"
        set -e
        cp "$1" "$2/test"
        chmod 755 "$2" "$2/test"
        mknod -m 666 "$2/fuse" c 10 229
        mount --bind "$2/fuse" /dev/fuse
        cd /
        exec setpriv --reuid 65534 --regid 65534 --clear-groups "$2/test" --exact "$3"
    "#;
    let dir = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", SCRIPT, "sh"])
        .args([program.as_path(), dir.path()])
        .arg(test)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&said)
    );
}
