//! An emulated disk as a file in a small FUSE file system.
//!
//! | file | is |
//! |---|---|
//! | `disk.img` | the disk: reads, writes and fsyncs of it are the drive's requests |
//! | `stat` | read: the text of the [`ImageOwner`], made when the file is opened |
//! | `control` | write: one command, which the [`ImageOwner`] follows |
//!
//! # Guarantees
//! 1. A request for `disk.img` is modelled when it comes, in the order in which it comes, and
//!    answered when the drive is done.
//! 2. Commands are followed one after the other on a thread of their own, so that they may do what
//!    takes requests.
//! 3. The number of open `stat` files is limited.

use crate::disk::{CompletionTicket, EmulatedDisk};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroUsize;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;
use teal_energy::mechanics::SectorRequest as Asked;
use teal_env::Disk;
use teal_fuse::{
    DirBuffer, FuseOperation, FuseSession, Handle, InitConfig, InitFlags, KernelRequest,
    LookupEntry, NodeId, OpenFlags, ReplySender, RequestHandler, SessionError, StatfsReply,
};
use teal_types::{Attr, BLOCK, FileType, ObjectNo, SECTOR, Sector, Timestamp};

/// Open `stat` files at once.
const STATS_MAX: usize = 64;
/// Answers and commands on their way.
const QUEUE: usize = 1024;
/// Nothing here changes its name or attributes.
const EVER: Duration = Duration::MAX;
const FILES: [(u64, &str); 3] = [(2, "disk.img"), (3, "stat"), (4, "control")];
const ROOT: u64 = 1;
const IMAGE: u64 = 2;
const STAT: u64 = 3;
const CONTROL: u64 = 4;

/// The program that runs the disk.
pub trait ImageOwner: Sync {
    /// Returns the content of the file `stat`.
    fn stat_text(&self) -> Vec<u8>;

    /// Follows a command.
    ///
    /// # Errors
    /// Returns the error for the writer of the command.
    fn run_command(&self, command: &str) -> Result<(), Errno>;
}

/// An answer that waits for the drive.
struct DueAnswer {
    ticket: CompletionTicket,
    reply: ReplySender,
    body: AnswerBody,
}

/// The body of an answer.
enum AnswerBody {
    Data(Vec<u8>),
    Written(u32),
    Done,
    Failed(Errno),
}

impl AnswerBody {
    fn send_to(self, reply: ReplySender) {
        match self {
            Self::Data(data) => reply.send_data(&data),
            Self::Written(bytes) => reply.send_written(bytes),
            Self::Done => reply.send_ok(),
            Self::Failed(errno) => reply.send_error(errno),
        }
    }
}

/// The `stat` files that are open.
#[derive(Default)]
struct OpenStats {
    /// Their contents, by handle.
    contents: BTreeMap<u64, Vec<u8>>,
    last_handle: u64,
}

/// The file system.
pub struct ImageFs<'a, D, O> {
    disk: &'a EmulatedDisk<D>,
    owner: &'a O,
    made: Timestamp,
    due: SyncSender<DueAnswer>,
    commands: SyncSender<(String, ReplySender)>,
    /// Guards the `stat` files that are open.
    stats: Mutex<OpenStats>,
}

impl<D, O> std::fmt::Debug for ImageFs<'_, D, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ImageFs")
    }
}

impl<'a, D: Disk, O: ImageOwner> ImageFs<'a, D, O> {
    /// Returns the wishes for the handshake with the kernel.
    pub fn init_config() -> InitConfig {
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
        session: &FuseSession,
        disk: &'a EmulatedDisk<D>,
        owner: &'a O,
        made: Timestamp,
    ) -> Result<(), SessionError> {
        // Bounded: when so many answers are on their way, reading requests waits.
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
                .spawn_scoped(scope, || send_due_answers(disk, answers))
                .map_err(|_| Errno::AGAIN)?;
            named("commands")
                .spawn_scoped(scope, || run_commands(owner, orders))
                .map_err(|_| Errno::AGAIN)?;
            // One thread, so that requests are modelled in the order in which the kernel sent them.
            let served = session.run(NonZeroUsize::MIN, &this);
            // The senders go with it, and so the threads end.
            drop(this);
            served
        })
    }

    fn node_attr(&self, node: u64) -> Attr {
        let (kind, perm, size) = match node {
            ROOT => (FileType::Dir, 0o700, 0),
            IMAGE => (FileType::File, 0o600, self.disk.shape().sectors * SECTOR),
            STAT => (FileType::File, 0o400, 0),
            _ => (FileType::File, 0o200, 0),
        };
        // The files belong to the user that runs the disk, and are for that user alone.
        let (uid, gid) = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        let (made, nlink) = (self.made, if node == ROOT { 2 } else { 1 });
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

    fn open_node(&self, node: u64, flags: OFlags, reply: ReplySender) {
        let direct = OpenFlags::DIRECT_IO;
        match node {
            IMAGE => {
                let flags = direct | OpenFlags::PARALLEL_DIRECT_WRITES | OpenFlags::NOFLUSH;
                let _ = reply.send_open(Handle::new(0), flags);
            }
            STAT => {
                let content = self.owner.stat_text();
                let stats = &mut *self.stats.lock();
                if stats.contents.len() >= STATS_MAX {
                    return reply.send_error(Errno::NFILE);
                }
                stats.last_handle += 1;
                let handle = stats.last_handle;
                stats.contents.insert(handle, content);
                let flags = direct | OpenFlags::NOFLUSH;
                let delivery = reply.send_open(Handle::new(handle), flags);
                // The kernel will not release a handle that it did not get.
                if !delivery.is_delivered() {
                    stats.contents.remove(&handle);
                }
            }
            CONTROL if flags.intersects(OFlags::WRONLY | OFlags::RDWR) => {
                let _ = reply.send_open(Handle::new(0), direct | OpenFlags::NOFLUSH);
            }
            CONTROL => reply.send_error(Errno::ACCESS),
            _ => reply.send_error(Errno::ISDIR),
        }
    }

    /// Answers when the drive is done: in real time on another thread, so that the next request is
    /// modelled meanwhile.
    fn answer_when_done(&self, ticket: CompletionTicket, body: AnswerBody, reply: ReplySender) {
        if self.disk.pace().is_real() {
            let due = DueAnswer {
                ticket,
                reply,
                body,
            };
            // The receiver has gone only when the session ends: the reply is dropped then, which
            // answers EIO.
            drop(self.due.send(due));
        } else {
            // In virtual time waiting takes none, and keeps the order of the log.
            self.disk.wait_for(ticket);
            body.send_to(reply);
        }
    }

    /// Returns the sectors of a request, if it lies within the disk.
    fn to_sectors(&self, offset: u64, bytes: u64) -> Option<(Sector, u64)> {
        let size = self.disk.shape().sectors * SECTOR;
        // Direct I/O of a loop device comes in whole sectors; anything else is refused as a disk
        // would.
        let is_whole = offset.is_multiple_of(SECTOR) && bytes.is_multiple_of(SECTOR) && bytes > 0;
        let is_within = offset.checked_add(bytes).is_some_and(|end| end <= size);
        (is_whole && is_within).then(|| (Sector::new(offset / SECTOR), bytes / SECTOR))
    }

    fn read_image(&self, offset: u64, size: u32, reply: ReplySender) {
        let end = self.disk.shape().sectors * SECTOR;
        // A read beyond the end is short, as of any file.
        let size = u64::from(size).min(end.saturating_sub(offset));
        if size == 0 {
            return reply.send_data(&[]);
        }
        let Some((at, count)) = self.to_sectors(offset, size) else {
            return reply.send_error(Errno::INVAL);
        };
        let ticket = self.disk.submit(Asked::Read { at, count });
        // The bytes are read now, as the drive would at its time: later writes are later requests.
        let mut data = vec![0; size as usize];
        let done = self.disk.inner().read_at(at, &mut data);
        self.answer_when_done(ticket, answer_for(done, AnswerBody::Data(data)), reply);
    }

    fn write_image(&self, offset: u64, data: &[u8], reply: ReplySender) {
        let Some((at, count)) = self.to_sectors(offset, data.len() as u64) else {
            return reply.send_error(Errno::INVAL);
        };
        let ticket = self.disk.submit(Asked::Write {
            at,
            count,
            fua: false,
        });
        let done = self.disk.inner().write_at(at, &[io::IoSlice::new(data)]);
        self.answer_when_done(
            ticket,
            answer_for(done, AnswerBody::Written(data.len() as u32)),
            reply,
        );
    }

    fn flush_image(&self, reply: ReplySender) {
        let ticket = self.disk.submit(Asked::Flush);
        let done = self.disk.inner().sync();
        self.answer_when_done(ticket, answer_for(done, AnswerBody::Done), reply);
    }

    fn discard_range(&self, offset: u64, length: u64, mode: FallocateFlags, reply: ReplySender) {
        // Zeroing is answered so that the kernel writes zeros instead, as it does to a drive that
        // cannot zero on its own.
        if !mode.contains(FallocateFlags::PUNCH_HOLE) {
            return reply.send_error(Errno::OPNOTSUPP);
        }
        // A loop device passes discards on as holes.
        match self.to_sectors(offset, length) {
            Some((at, count)) => match self.disk.discard(at, count) {
                Ok(()) => reply.send_ok(),
                Err(error) => reply.send_error(to_errno(&error)),
            },
            None => reply.send_error(Errno::INVAL),
        }
    }

    fn look_up(&self, name: &[u8], reply: ReplySender) {
        let named = FILES.iter().find(|(_, known)| known.as_bytes() == name);
        let Some((node, _)) = named else {
            return reply.send_negative_entry(EVER);
        };
        let entry = LookupEntry {
            node: NodeId::new(*node),
            generation: 0,
            attr: self.node_attr(*node),
            attr_ttl: EVER,
            entry_ttl: EVER,
        };
        let _ = reply.send_entry(&entry);
    }

    fn release_handle(&self, handle: Handle, reply: ReplySender) {
        // Other files have the handle 0, which no `stat` file has.
        self.stats.lock().contents.remove(&handle.get());
        reply.send_ok();
    }

    fn send_statfs(&self, reply: ReplySender) {
        reply.send_statfs(&StatfsReply {
            block_size: BLOCK as u32,
            blocks: self.disk.shape().sectors * SECTOR / BLOCK,
            free: 0,
            available: 0,
            files: 3,
            files_free: 0,
            name_max: 255,
        });
    }

    /// Handles a request for the content of a file.
    fn handle_content_request(&self, node: u64, operation: FuseOperation<'_>, reply: ReplySender) {
        match (node, operation) {
            (IMAGE, FuseOperation::Read { offset, size, .. }) => {
                self.read_image(offset, size, reply)
            }
            (IMAGE, FuseOperation::Write { offset, data, .. }) => {
                self.write_image(offset, data, reply)
            }
            (IMAGE, FuseOperation::Fsync { .. }) => self.flush_image(reply),
            (
                IMAGE,
                FuseOperation::Fallocate {
                    offset,
                    length,
                    mode,
                    ..
                },
            ) => self.discard_range(offset, length, mode, reply),
            (
                STAT,
                FuseOperation::Read {
                    handle,
                    offset,
                    size,
                    ..
                },
            ) => self.read_stat(handle, offset, size, reply),
            (CONTROL, FuseOperation::Write { data, .. }) => self.queue_command(data, reply),
            (_, FuseOperation::Fsync { .. }) => reply.send_ok(),
            _ => reply.send_error(Errno::NOSYS),
        }
    }

    fn read_stat(&self, handle: Handle, offset: u64, size: u32, reply: ReplySender) {
        let stats = self.stats.lock();
        let Some(content) = stats.contents.get(&handle.get()) else {
            return reply.send_error(Errno::BADF);
        };
        // The content is as at the opening of the file, so that a program reads one state.
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(content.len());
        let until = content.len().min(from.saturating_add(size as usize));
        reply.send_data(&content[from..until]);
    }

    /// Hands a command to the thread that follows commands, which answers the write.
    fn queue_command(&self, data: &[u8], reply: ReplySender) {
        match std::str::from_utf8(data) {
            // Answered by the other thread: a command may do what takes requests of this file
            // system.
            Ok(text) => drop(self.commands.send((text.trim().to_owned(), reply))),
            Err(_) => reply.send_error(Errno::INVAL),
        }
    }

    fn list_files(cookie: u64, size: u32, reply: ReplySender) {
        let mut entries = DirBuffer::new(size);
        for (at, (node, name)) in (1..).zip(FILES).filter(|(at, _)| *at > cookie) {
            if entries.push(ObjectNo::new(node), at, FileType::File, name.as_bytes()) {
                break;
            }
        }
        reply.send_directory(&entries);
    }
}

impl<D: Disk, O: ImageOwner> RequestHandler for ImageFs<'_, D, O> {
    fn handle_request(&self, request: KernelRequest<'_>, reply: ReplySender) {
        let node = request.header.node.get();
        match request.operation {
            FuseOperation::Lookup { name } if node == ROOT => self.look_up(name, reply),
            FuseOperation::Getattr { .. } => reply.send_attr(&self.node_attr(node), EVER),
            // Truncating at an open, and times, change nothing.
            FuseOperation::Setattr(set) if set.size.is_none() || node != IMAGE => {
                reply.send_attr(&self.node_attr(node), EVER)
            }
            FuseOperation::Open { flags, .. } => self.open_node(node, flags, reply),
            FuseOperation::Release { handle, .. } => self.release_handle(handle, reply),
            FuseOperation::Opendir { .. } => {
                let _ = reply.send_open(Handle::new(0), OpenFlags::empty());
            }
            FuseOperation::Readdir { cookie, size, .. } => Self::list_files(cookie, size, reply),
            FuseOperation::Releasedir { .. } => reply.send_ok(),
            FuseOperation::Statfs => self.send_statfs(reply),
            // The files are there for ever: their lookups need not be counted.
            FuseOperation::Forget { .. } | FuseOperation::BatchForget(_) => drop(reply),
            FuseOperation::Destroy => reply.send_ok(),
            operation => self.handle_content_request(node, operation, reply),
        }
    }
}

/// Sends the answers, each when the drive is done, in the order of the requests.
fn send_due_answers<D: Disk>(disk: &EmulatedDisk<D>, answers: Receiver<DueAnswer>) {
    for DueAnswer {
        ticket,
        reply,
        body: what,
    } in answers
    {
        disk.wait_for(ticket);
        what.send_to(reply);
    }
}

/// Follows commands, one after the other.
fn run_commands(owner: &impl ImageOwner, orders: Receiver<(String, ReplySender)>) {
    for (command, reply) in orders {
        match owner.run_command(&command) {
            Ok(()) => reply.send_written(command.len() as u32),
            Err(errno) => reply.send_error(errno),
        }
    }
}

fn answer_for(done: io::Result<()>, good: AnswerBody) -> AnswerBody {
    match done {
        Ok(()) => good,
        Err(error) => AnswerBody::Failed(to_errno(&error)),
    }
}

fn to_errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
