//! A bare mirror of a directory: the least a FUSE server in user space can do, as a floor for
//! benchmarks and an example of the crate.
//!
//! `mirror [--threads N] DIRECTORY MOUNTPOINT`, as root. It prints `ready`; each line on its
//! standard input is answered by one line `OPCODE=COUNT …` with the requests so far; when its
//! standard input ends, it unmounts and exits.
//!
//! # How
//! 1. The kernel is told what `teal-mount` tells it: nothing times out, opens are refused with
//!    `ENOSYS`, permissions are the kernel's work. So the directory must not be changed behind the
//!    mirror's back.
//! 2. A node is an inode of the directory's file system and has its number; it holds an `O_PATH`
//!    descriptor from the first lookup to the last forget, from the first read or write on one for
//!    data instead. The number cannot be reused meanwhile.
//! 3. No xattrs, no locks, no other users: what it makes belongs to whoever runs it.

mod node;

use self::node::{Answer, Node, Open, attr, magic, timespec};
use parking_lot::RwLock;
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, RawDir, RawMode, SeekFrom, Stat, Timestamps, Uid,
};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use std::collections::HashMap;
use std::io::{BufRead as _, Write as _};
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use teal_fuse::{
    BdiKnob, Delivery, DirBuffer, FuseMountOptions, FuseOperation, FuseSession, InitConfig,
    InitFlags, KernelRequest, LookupEntry, NodeId, ReplySender, RequestHandler, SetattrRequest,
    StatfsReply, UnmountMode, set_bdi,
};
use teal_types::{Attr, FileType, ObjectNo};

const EVER: Duration = Duration::MAX;
const OPCODES: usize = 64;

struct Mirror {
    root: Arc<Node>,
    nodes: RwLock<HashMap<u64, Arc<Node>>>,
    requests: [AtomicU64; OPCODES],
}

fn entry(stat: &Stat) -> LookupEntry {
    LookupEntry {
        node: NodeId::new(stat.st_ino),
        generation: 0,
        attr: attr(stat),
        attr_ttl: EVER,
        entry_ttl: EVER,
    }
}

impl Mirror {
    fn node(&self, id: NodeId) -> Answer<Arc<Node>> {
        if id == NodeId::ROOT {
            return Ok(Arc::clone(&self.root));
        }
        self.nodes
            .read()
            .get(&id.get())
            .cloned()
            .ok_or(Errno::STALE)
    }

    /// Finds a name and counts one lookup of it.
    fn lookup(&self, dir: &Node, name: &[u8]) -> Answer<LookupEntry> {
        let how = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.remember(Node::new(Open::Path(
            rustix::fs::openat(dir.path(), name, how, Mode::empty())?.into(),
        )))
    }

    fn remember(&self, node: Node) -> Answer<LookupEntry> {
        let stat = node.stat()?;
        if let Some(known) = self.nodes.read().get(&stat.st_ino) {
            known.lookups.fetch_add(1, Relaxed);
            return Ok(entry(&stat));
        }
        self.nodes
            .write()
            .entry(stat.st_ino)
            .or_insert_with(|| Arc::new(node))
            .lookups
            .fetch_add(1, Relaxed);
        Ok(entry(&stat))
    }

    fn forget(&self, id: NodeId, lookups: u64) {
        let mut nodes = self.nodes.write();
        let left = nodes.get(&id.get()).map(|node| {
            node.lookups
                .fetch_sub(lookups, Relaxed)
                .saturating_sub(lookups)
        });
        if left == Some(0) {
            nodes.remove(&id.get());
        }
    }

    fn entry(&self, found: Answer<LookupEntry>, reply: ReplySender) {
        match found {
            Ok(entry) => {
                if reply.send_entry(&entry) == Delivery::Lost {
                    self.forget(entry.node, 1);
                }
            }
            Err(errno) => reply.send_error(errno),
        }
    }

    fn list(&self, dir: &Node, cookie: u64, size: u32, plus: bool) -> Answer<DirBuffer> {
        let open = dir.data(OFlags::RDONLY | OFlags::DIRECTORY)?;
        let _position = dir.listing.lock();
        rustix::fs::seek(&open, SeekFrom::Start(cookie))?;
        let mut buffer = DirBuffer::new(size);
        let mut room = [MaybeUninit::uninit(); 32 * 1024];
        let mut entries = RawDir::new(&*open, &mut room);
        while let Some(next) = entries.next() {
            let next = next?;
            let (name, cookie) = (next.file_name().to_bytes(), next.next_entry_cookie());
            let object = ObjectNo::new(next.ino());
            let kind =
                FileType::from_code(RawMode::from(next.file_type().as_raw_mode() >> 12) as u8);
            let kind = kind.unwrap_or(FileType::File);
            let full = if plus {
                let found = if name == b"." || name == b".." {
                    None
                } else {
                    self.lookup(dir, name).ok()
                };
                let full = buffer.push_plus(found.as_ref(), object, cookie, kind, name);
                if let Some(entry) = found.filter(|_| full) {
                    self.forget(entry.node, 1);
                }
                full
            } else {
                buffer.push(object, cookie, kind, name)
            };
            if full {
                break;
            }
        }
        Ok(buffer)
    }

    fn set(&self, node: &Node, set: &SetattrRequest) -> Answer<Attr> {
        if let Some(perm) = set.perm {
            rustix::fs::chmod(magic(&node.path()), Mode::from_raw_mode(u32::from(perm)))?;
        }
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
            rustix::fs::chownat(node.path(), "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(size) = set.size {
            rustix::fs::ftruncate(node.file()?, size)?;
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let times = Timestamps {
                last_access: timespec(set.atime),
                last_modification: timespec(set.mtime),
            };
            rustix::fs::utimensat(node.path(), "", &times, AtFlags::EMPTY_PATH)?;
        }
        node.stat().map(|stat| attr(&stat))
    }

    fn make(&self, dir: &Node, operation: &FuseOperation<'_>) -> Answer<LookupEntry> {
        match *operation {
            FuseOperation::Lookup { name } => self.lookup(dir, name),
            FuseOperation::Mknod {
                name,
                kind: FileType::File,
                perm,
                ..
            } => {
                let how = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
                let file = rustix::fs::openat(
                    dir.path(),
                    name,
                    how,
                    Mode::from_raw_mode(u32::from(perm)),
                )?;
                self.remember(Node::new(Open::Data(file.into())))
            }
            FuseOperation::Mknod {
                name,
                kind,
                perm,
                rdev,
                ..
            } => {
                let kind = rustix::fs::FileType::from_raw_mode(u32::from(kind.code()) << 12);
                let mode = Mode::from_raw_mode(u32::from(perm));
                rustix::fs::mknodat(dir.path(), name, kind, mode, u64::from(rdev))?;
                self.lookup(dir, name)
            }
            FuseOperation::Mkdir { name, perm, .. } => {
                rustix::fs::mkdirat(dir.path(), name, Mode::from_raw_mode(u32::from(perm)))?;
                self.lookup(dir, name)
            }
            FuseOperation::Symlink { name, target } => {
                rustix::fs::symlinkat(target, dir.path(), name)?;
                self.lookup(dir, name)
            }
            FuseOperation::Link { target, name } => {
                let from = self.node(target)?;
                rustix::fs::linkat(
                    CWD,
                    magic(&from.path()),
                    dir.path(),
                    name,
                    AtFlags::SYMLINK_FOLLOW,
                )?;
                self.lookup(dir, name)
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn change(&self, node: &Node, operation: &FuseOperation<'_>) -> Answer<()> {
        match *operation {
            FuseOperation::Unlink { name } => {
                rustix::fs::unlinkat(node.path(), name, AtFlags::empty())
            }
            FuseOperation::Rmdir { name } => {
                rustix::fs::unlinkat(node.path(), name, AtFlags::REMOVEDIR)
            }
            FuseOperation::Rename {
                name,
                new_parent,
                new_name,
                flags,
            } => rustix::fs::renameat_with(
                node.path(),
                name,
                self.node(new_parent)?.path(),
                new_name,
                flags,
            ),
            FuseOperation::Fsync { datasync: true, .. } => rustix::fs::fdatasync(node.file()?),
            FuseOperation::Fsync { .. } => rustix::fs::fsync(node.file()?),
            FuseOperation::Fsyncdir { .. } => {
                rustix::fs::fsync(node.data(OFlags::RDONLY | OFlags::DIRECTORY)?)
            }
            FuseOperation::Fallocate {
                offset,
                length,
                mode,
                ..
            } => rustix::fs::fallocate(node.file()?, mode, offset, length),
            _ => Err(Errno::NOSYS),
        }
    }

    fn answer(&self, node: &Node, operation: &FuseOperation<'_>, reply: ReplySender) -> Answer<()> {
        match *operation {
            FuseOperation::Lookup { .. }
            | FuseOperation::Mknod { .. }
            | FuseOperation::Mkdir { .. }
            | FuseOperation::Symlink { .. }
            | FuseOperation::Link { .. } => match self.make(node, operation) {
                Err(Errno::NOENT) if matches!(operation, FuseOperation::Lookup { .. }) => {
                    reply.send_negative_entry(EVER)
                }
                found => self.entry(found, reply),
            },
            FuseOperation::Getattr { .. } => node_attr(node.stat().map(|stat| attr(&stat)), reply),
            FuseOperation::Setattr(ref set) => node_attr(self.set(node, set), reply),
            FuseOperation::Readlink => match rustix::fs::readlinkat(node.path(), "", Vec::new()) {
                Ok(target) => reply.send_data(target.as_bytes()),
                Err(errno) => reply.send_error(errno),
            },
            FuseOperation::Read { offset, size, .. } => {
                let mut bytes = Vec::with_capacity(size as usize);
                match node.file().and_then(|file| {
                    rustix::io::pread(file, rustix::buffer::spare_capacity(&mut bytes), offset)
                }) {
                    Ok(_) => reply.send_data(&bytes),
                    Err(errno) => reply.send_error(errno),
                }
            }
            FuseOperation::Write { offset, data, .. } => {
                match node
                    .file()
                    .and_then(|f| rustix::io::pwrite(f, data, offset))
                {
                    Ok(count) => reply.send_written(count as u32),
                    Err(errno) => reply.send_error(errno),
                }
            }
            FuseOperation::Readdir { cookie, size, .. } => {
                listing(self.list(node, cookie, size, false), reply)
            }
            FuseOperation::Readdirplus { cookie, size, .. } => {
                listing(self.list(node, cookie, size, true), reply)
            }
            FuseOperation::Statfs => {
                let s = rustix::fs::fstatvfs(node.path())?;
                reply.send_statfs(&StatfsReply {
                    block_size: s.f_bsize as u32,
                    blocks: s.f_blocks,
                    free: s.f_bfree,
                    available: s.f_bavail,
                    files: s.f_files,
                    files_free: s.f_ffree,
                    name_max: s.f_namemax as u32,
                });
            }
            _ => match self.change(node, operation) {
                Ok(()) => reply.send_ok(),
                Err(errno) => reply.send_error(errno),
            },
        }
        Ok(())
    }
}

fn node_attr(found: Answer<Attr>, reply: ReplySender) {
    match found {
        Ok(attr) => reply.send_attr(&attr, EVER),
        Err(errno) => reply.send_error(errno),
    }
}

fn listing(found: Answer<DirBuffer>, reply: ReplySender) {
    match found {
        Ok(buffer) => reply.send_directory(&buffer),
        Err(errno) => reply.send_error(errno),
    }
}

impl RequestHandler for Mirror {
    fn handle_request(&self, request: KernelRequest<'_>, reply: ReplySender) {
        let header = request.header;
        if let Some(count) = self.requests.get(header.opcode as usize) {
            count.fetch_add(1, Relaxed);
        }
        match request.operation {
            FuseOperation::Forget { lookups } => self.forget(header.node, lookups),
            FuseOperation::BatchForget(forgets) => {
                forgets.for_each(|f| self.forget(f.node, f.lookups))
            }
            FuseOperation::Release { .. } | FuseOperation::Releasedir { .. } => reply.send_ok(),
            ref operation => match self.node(header.node) {
                Ok(node) => drop(self.answer(&node, operation, reply)),
                Err(errno) => reply.send_error(errno),
            },
        }
    }
}

/// Returns what `teal-mount` asks of the kernel.
fn config(rings: bool) -> InitConfig {
    let defaults = InitConfig::default();
    let wanted = defaults.wanted
        | InitFlags::DO_READDIRPLUS
        | InitFlags::READDIRPLUS_AUTO
        | InitFlags::CACHE_SYMLINKS
        | InitFlags::NO_OPEN_SUPPORT
        | InitFlags::NO_OPENDIR_SUPPORT
        | InitFlags::EXPLICIT_INVAL_DATA
        | InitFlags::HANDLE_KILLPRIV_V2
        | InitFlags::DIRECT_IO_ALLOW_MMAP
        | InitFlags::ASYNC_DIO;
    let wanted = if rings {
        wanted | InitFlags::OVER_IO_URING
    } else {
        wanted
    };
    InitConfig { wanted, ..defaults }
}

fn run(
    from: &Path,
    point: &Path,
    threads: NonZeroUsize,
    rings: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    // One descriptor for each node the kernel remembers: as many as we may have.
    let most = rustix::process::getrlimit(Resource::Nofile).maximum;
    rustix::process::setrlimit(
        Resource::Nofile,
        Rlimit {
            current: most,
            maximum: most,
        },
    )?;
    let root = rustix::fs::open(
        from,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mirror = Mirror {
        root: Arc::new(Node::new(Open::Path(root.into()))),
        nodes: RwLock::default(),
        requests: std::array::from_fn(|_| AtomicU64::new(0)),
    };
    let options = FuseMountOptions {
        source: "mirror".to_owned(),
        allow_other: true,
        default_permissions: true,
        ..FuseMountOptions::default()
    };
    let session = FuseSession::mount(point, &options, &config(rings))?;
    let (unmounter, device) = (
        session.unmount_handle().ok_or("no mount")?,
        session.device_number().ok_or("no device")?,
    );
    for (knob, value) in [
        (BdiKnob::ReadAheadKb, 1024),
        (BdiKnob::StrictLimit, 0),
        (BdiKnob::MaxRatio, 100),
    ] {
        set_bdi(device, knob, value)?;
    }
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("mirror-asked".to_owned())
            .spawn_scoped(scope, || {
                for _ in std::io::stdin().lock().lines() {
                    let counts = mirror
                        .requests
                        .iter()
                        .enumerate()
                        .map(|(code, count)| (code, count.load(Relaxed)));
                    let counts = counts
                        .filter(|(_, count)| *count > 0)
                        .map(|(code, count)| format!("{code}={count} "));
                    println!("{}", counts.collect::<String>());
                }
                drop(unmounter.unmount(UnmountMode::Detach));
            })?;
        println!("ready");
        std::io::stdout().flush()?;
        Ok(session.run(threads, &mirror)?)
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args: Vec<_> = std::env::args_os().skip(1).collect();
    let mut threads = std::thread::available_parallelism()?;
    if args.first().is_some_and(|arg| arg == "--threads") {
        let number = args.get(1).and_then(|number| number.to_str());
        threads = number.ok_or("--threads needs a number")?.parse()?;
        args.drain(..2);
    }
    let rings = args.first().is_some_and(|arg| arg == "--uring");
    args.drain(..usize::from(rings));
    let [from, point] = args.as_slice() else {
        return Err("usage: mirror [--threads N] [--uring] DIRECTORY MOUNTPOINT".into());
    };
    run(Path::new(from), Path::new(point), threads, rings)
}
