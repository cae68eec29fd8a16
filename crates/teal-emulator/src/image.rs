//! An emulated disk as a file in a small FUSE file system.
//!
//! | file | is |
//! |---|---|
//! | `disk.img` | the disk: reads, writes and fsyncs of it are the drive's requests |
//! | `stat` | read: what the [`Owner`] says of it, made when it is opened |
//! | `control` | write: one command, which the [`Owner`] follows |
//!
//! # Guarantees
//! 1. A request for `disk.img` is modelled when it comes, in the order in which it comes, and
//!    answered when the drive is done.
//! 2. Commands are followed one after the other on a thread of their own, so that they may do what
//!    takes requests.
//! 3. The number of open `stat` files is limited.

use crate::disk::{EmulatedDisk, Ticket};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroUsize;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;
use teal_energy::mechanics::Request as Asked;
use teal_env::Disk;
use teal_fuse::{
    DirBuffer, Entry, Handle, InitConfig, InitFlags, NodeId, OpenFlags, Operation, Reply, Request,
    Serve, Session, SessionError, StatFs,
};
use teal_types::{Attr, BLOCK, FileType, ObjectNo, SECTOR, Sector, Timestamp};

/// Open `stat` files at once.
const STATS_MAX: usize = 64;
/// Answers and commands on their way.
const QUEUE: usize = 1024;
/// Nothing here changes its name or attributes.
const EVER: Duration = Duration::MAX;
const FILES: [(u64, &str); 3] = [(2, "disk.img"), (3, "stat"), (4, "control")];
const IMAGE: u64 = 2;
const STAT: u64 = 3;
const CONTROL: u64 = 4;

/// Who started the disk.
pub trait Owner: Sync {
    /// Returns what the file `stat` holds.
    fn stat(&self) -> Vec<u8>;

    /// Follows a command.
    ///
    /// # Errors
    /// What the writer of the command is told.
    fn command(&self, command: &str) -> Result<(), Errno>;
}

/// An answer that waits for the drive.
struct Due {
    ticket: Ticket,
    reply: Reply,
    what: What,
}

enum What {
    Data(Vec<u8>),
    Written(u32),
    Done,
    Failed(Errno),
}

impl What {
    fn answer(self, reply: Reply) {
        match self {
            Self::Data(data) => reply.data(&data),
            Self::Written(bytes) => reply.written(bytes),
            Self::Done => reply.ok(),
            Self::Failed(errno) => reply.error(errno),
        }
    }
}

/// The file system.
pub struct ImageFs<'a, D, O> {
    disk: &'a EmulatedDisk<D>,
    owner: &'a O,
    made: Timestamp,
    due: SyncSender<Due>,
    commands: SyncSender<(String, Reply)>,
    /// Guards the contents of `stat` files that are open, by handle, and the next handle.
    stats: Mutex<(BTreeMap<u64, Vec<u8>>, u64)>,
}

impl<D, O> std::fmt::Debug for ImageFs<'_, D, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ImageFs")
    }
}

impl<'a, D: Disk, O: Owner> ImageFs<'a, D, O> {
    /// Returns what is to be asked of the kernel.
    pub fn config() -> InitConfig {
        let defaults = InitConfig::default();
        // Asynchronous direct I/O: the loop device does not wait for one request before it sends
        // the next.
        InitConfig {
            wanted: defaults.wanted | InitFlags::ASYNC_DIO,
            ..defaults
        }
    }

    /// Serves a session until its mount is gone. One thread reads requests: their order is the
    /// kernel's.
    ///
    /// # Errors
    /// [`SessionError`] when the device fails.
    pub fn run(
        session: &Session,
        disk: &'a EmulatedDisk<D>,
        owner: &'a O,
        made: Timestamp,
    ) -> Result<(), SessionError> {
        let (due, answers) = mpsc::sync_channel(QUEUE);
        let (commands, orders) = mpsc::sync_channel(QUEUE);
        std::thread::scope(|scope| {
            let this = Self {
                disk,
                owner,
                made,
                due,
                commands,
                stats: Mutex::default(),
            };
            let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
            named("answers")
                .spawn_scoped(scope, || answer(disk, answers))
                .map_err(|_| Errno::AGAIN)?;
            named("commands")
                .spawn_scoped(scope, || follow(owner, orders))
                .map_err(|_| Errno::AGAIN)?;
            let served = session.run(NonZeroUsize::MIN, &this);
            // With it go the senders, and so the threads.
            drop(this);
            served
        })
    }

    fn attr(&self, node: u64) -> Attr {
        let (kind, perm, size) = match node {
            1 => (FileType::Dir, 0o700, 0),
            IMAGE => (FileType::File, 0o600, self.disk.shape().sectors * SECTOR),
            STAT => (FileType::File, 0o400, 0),
            _ => (FileType::File, 0o200, 0),
        };
        let (uid, gid) = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        let (made, nlink) = (self.made, if node == 1 { 2 } else { 1 });
        Attr {
            object: ObjectNo::new(node),
            kind,
            perm,
            nlink,
            uid,
            gid,
            rdev: 0,
            size,
            sectors: size / SECTOR,
            atime: made,
            mtime: made,
            ctime: made,
            btime: made,
        }
    }

    fn open(&self, node: u64, flags: OFlags, reply: Reply) {
        let direct = OpenFlags::DIRECT_IO;
        match node {
            IMAGE => {
                let flags = direct | OpenFlags::PARALLEL_DIRECT_WRITES | OpenFlags::NOFLUSH;
                let _ = reply.open(Handle::new(0), flags);
            }
            STAT => {
                let content = self.owner.stat();
                let (open, next) = &mut *self.stats.lock();
                if open.len() >= STATS_MAX {
                    return reply.error(Errno::NFILE);
                }
                *next += 1;
                open.insert(*next, content);
                if !reply
                    .open(Handle::new(*next), direct | OpenFlags::NOFLUSH)
                    .is_delivered()
                {
                    open.remove(next);
                }
            }
            CONTROL if flags.intersects(OFlags::WRONLY | OFlags::RDWR) => {
                let _ = reply.open(Handle::new(0), direct | OpenFlags::NOFLUSH);
            }
            CONTROL => reply.error(Errno::ACCESS),
            _ => reply.error(Errno::ISDIR),
        }
    }

    /// Answers when the drive is done.
    fn later(&self, ticket: Ticket, what: What, reply: Reply) {
        if self.disk.pace().is_real() {
            // Nobody is there to answer only when the session ends: the reply says EIO then.
            drop(self.due.send(Due {
                ticket,
                reply,
                what,
            }));
        } else {
            self.disk.wait(ticket);
            what.answer(reply);
        }
    }

    /// The sectors of a request, if it lies within the disk.
    fn sectors(&self, offset: u64, bytes: u64) -> Option<(Sector, u64)> {
        let size = self.disk.shape().sectors * SECTOR;
        let is_whole = offset.is_multiple_of(SECTOR) && bytes.is_multiple_of(SECTOR) && bytes > 0;
        let is_within = offset.checked_add(bytes).is_some_and(|end| end <= size);
        (is_whole && is_within).then(|| (Sector::new(offset / SECTOR), bytes / SECTOR))
    }

    fn read(&self, offset: u64, size: u32, reply: Reply) {
        let end = self.disk.shape().sectors * SECTOR;
        let size = u64::from(size).min(end.saturating_sub(offset));
        if size == 0 {
            return reply.data(&[]);
        }
        let Some((at, count)) = self.sectors(offset, size) else {
            return reply.error(Errno::INVAL);
        };
        let ticket = self.disk.ask(Asked::Read { at, count });
        let mut data = vec![0; size as usize];
        let done = self.disk.inner().read_at(at, &mut data);
        self.later(ticket, outcome(done, What::Data(data)), reply);
    }

    fn write(&self, offset: u64, data: &[u8], reply: Reply) {
        let Some((at, count)) = self.sectors(offset, data.len() as u64) else {
            return reply.error(Errno::INVAL);
        };
        let ticket = self.disk.ask(Asked::Write {
            at,
            count,
            fua: false,
        });
        let done = self.disk.inner().write_at(at, &[io::IoSlice::new(data)]);
        self.later(
            ticket,
            outcome(done, What::Written(data.len() as u32)),
            reply,
        );
    }

    fn flush(&self, reply: Reply) {
        let ticket = self.disk.ask(Asked::Flush);
        let done = self.disk.inner().sync();
        self.later(ticket, outcome(done, What::Done), reply);
    }

    fn fallocate(&self, offset: u64, length: u64, mode: FallocateFlags, reply: Reply) {
        // Zeroing is answered so that the kernel writes zeros instead, as it does to a drive that
        // cannot zero on its own.
        if !mode.contains(FallocateFlags::PUNCH_HOLE) {
            return reply.error(Errno::OPNOTSUPP);
        }
        match self.sectors(offset, length) {
            Some((at, count)) => match self.disk.discard(at, count) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(&error)),
            },
            None => reply.error(Errno::INVAL),
        }
    }

    fn stat(&self, handle: Handle, offset: u64, size: u32, reply: Reply) {
        let (open, _) = &*self.stats.lock();
        let Some(content) = open.get(&handle.get()) else {
            return reply.error(Errno::BADF);
        };
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(content.len());
        let until = content.len().min(from.saturating_add(size as usize));
        reply.data(&content[from..until]);
    }

    fn command(&self, data: &[u8], reply: Reply) {
        match std::str::from_utf8(data) {
            Ok(text) => drop(self.commands.send((text.trim().to_owned(), reply))),
            Err(_) => reply.error(Errno::INVAL),
        }
    }

    fn list(cookie: u64, size: u32, reply: Reply) {
        let mut entries = DirBuffer::new(size);
        for (at, (node, name)) in (1..).zip(FILES).filter(|(at, _)| *at > cookie) {
            if entries.push(ObjectNo::new(node), at, FileType::File, name.as_bytes()) {
                break;
            }
        }
        reply.directory(&entries);
    }
}

impl<D: Disk, O: Owner> Serve for ImageFs<'_, D, O> {
    fn serve(&self, request: Request<'_>, reply: Reply) {
        let node = request.header.node.get();
        match request.operation {
            Operation::Lookup { name } if node == 1 => {
                match FILES.iter().find(|(_, known)| known.as_bytes() == name) {
                    Some((node, _)) => {
                        let entry = Entry {
                            node: NodeId::new(*node),
                            generation: 0,
                            attr: self.attr(*node),
                            attr_ttl: EVER,
                            entry_ttl: EVER,
                        };
                        let _ = reply.entry(&entry);
                    }
                    None => reply.negative_entry(EVER),
                }
            }
            Operation::Getattr { .. } => reply.attr(&self.attr(node), EVER),
            // Truncating at an open, and times, change nothing.
            Operation::Setattr(set) if set.size.is_none() || node != IMAGE => {
                reply.attr(&self.attr(node), EVER)
            }
            Operation::Open { flags, .. } => self.open(node, flags, reply),
            Operation::Release { handle, .. } => {
                self.stats.lock().0.remove(&handle.get());
                reply.ok();
            }
            Operation::Opendir { .. } => {
                let _ = reply.open(Handle::new(0), OpenFlags::empty());
            }
            Operation::Readdir { cookie, size, .. } => Self::list(cookie, size, reply),
            Operation::Releasedir { .. } => reply.ok(),
            Operation::Read { offset, size, .. } if node == IMAGE => self.read(offset, size, reply),
            Operation::Read {
                handle,
                offset,
                size,
                ..
            } if node == STAT => self.stat(handle, offset, size, reply),
            Operation::Write { offset, data, .. } if node == IMAGE => {
                self.write(offset, data, reply)
            }
            Operation::Write { data, .. } if node == CONTROL => self.command(data, reply),
            Operation::Fsync { .. } if node == IMAGE => self.flush(reply),
            Operation::Fsync { .. } => reply.ok(),
            Operation::Fallocate {
                offset,
                length,
                mode,
                ..
            } if node == IMAGE => {
                self.fallocate(offset, length, mode, reply);
            }
            Operation::Statfs => {
                let blocks = self.disk.shape().sectors * SECTOR / BLOCK;
                let block_size = BLOCK as u32;
                reply.statfs(&StatFs {
                    block_size,
                    blocks,
                    free: 0,
                    available: 0,
                    files: 3,
                    files_free: 0,
                    name_max: 255,
                });
            }
            Operation::Forget { .. } | Operation::BatchForget(_) => drop(reply),
            Operation::Destroy => reply.ok(),
            _ => reply.error(Errno::NOSYS),
        }
    }
}

fn answer<D: Disk>(disk: &EmulatedDisk<D>, answers: Receiver<Due>) {
    for Due {
        ticket,
        reply,
        what,
    } in answers
    {
        disk.wait(ticket);
        what.answer(reply);
    }
}

fn follow(owner: &impl Owner, orders: Receiver<(String, Reply)>) {
    for (command, reply) in orders {
        match owner.command(&command) {
            Ok(()) => reply.written(command.len() as u32),
            Err(errno) => reply.error(errno),
        }
    }
}

fn outcome(done: io::Result<()>, good: What) -> What {
    match done {
        Ok(()) => good,
        Err(error) => What::Failed(errno(&error)),
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
