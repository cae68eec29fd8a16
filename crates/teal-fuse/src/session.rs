//! A served connection: the handshake, the worker threads, the end.
//!
//! # Guarantees
//! 1. *Handshake first*: a [`FuseSession`] exists only after `INIT` was answered.
//! 2. *Each request once*: every readable request reaches [`RequestHandler::handle_request`] once,
//!    on one of the workers; one that cannot be decoded is answered `EINVAL` here.
//! 3. *A panic costs one request*: it is logged, the request gets `EIO`, the worker goes on.
//! 4. *Clean end*: after an unmount every worker returns and so does [`FuseSession::run`], without
//!    an error.
//! 5. *Never all held up*: requests that wait do not keep others from being served (`workers`).
//! 6. *No leftovers*: a session that is dropped takes its mount with it.

mod init;
mod workers;

pub use init::{InitConfig, InitFlags, NegotiatedProtocol};

use crate::abi;
use crate::mount::{self, DeviceNumber, FuseMountOptions, MountError, UnmountHandle, UnmountMode};
use crate::notify::KernelNotifier;
use crate::reply::{ReplySender, takes_answer};
use crate::request::{DecodeError, FuseOperation, InitRequest, KernelRequest, RequestHeader};
use crate::ring::UringQueues;
use crate::transport::{DEV_FUSE, MessageSink, Transport};
use init::OLDEST_MINOR;
use rustix::io::Errno;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;
use workers::{WorkerKind, WorkerPool};

/// Answers requests: the file system behind a session.
pub trait RequestHandler: Sync {
    /// Answers one request, now or later: `reply` may be kept. Called by all workers at once.
    fn handle_request(&self, request: KernelRequest<'_>, reply: ReplySender);
}

/// The reason for which a session cannot start or had to end.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Nothing is mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The kernel speaks a protocol that is too old.
    #[error(
        "the kernel speaks FUSE {major}.{minor}; \
         7.{OLDEST_MINOR} (Linux 5.4) is the oldest that is served"
    )]
    Version {
        /// The kernel's major version.
        major: u32,
        /// The kernel's minor version.
        minor: u32,
    },
    /// The first request was something else than `INIT`: another program read from the connection
    /// before.
    #[error("the connection began with operation {opcode} instead of INIT")]
    NotInit {
        /// The operation.
        opcode: u32,
    },
    /// The first request is malformed.
    #[error("the handshake cannot be read")]
    Decode(#[from] DecodeError),
    /// The connection ended before the handshake was done.
    #[error("unmounted during the handshake")]
    Closed,
    /// Rings were asked for and cannot be had.
    #[error(
        "the kernel does not offer FUSE over io_uring: it needs Linux 6.14 and \
         `echo Y > /sys/module/fuse/parameters/enable_uring`; \
         without uring=on requests come over {DEV_FUSE}"
    )]
    NoRings,
    /// The transport failed.
    #[error("the FUSE device failed")]
    Device(#[from] Errno),
}

/// A connection after its handshake.
#[derive(Debug)]
pub struct FuseSession {
    // Before the mount, so that it is dropped first: an unmount waits for answers while the device
    // is open.
    transport: Arc<dyn Transport>,
    rings: Option<UringQueues>,
    negotiated: NegotiatedProtocol,
    mount: MountGuard,
}

impl FuseSession {
    /// Mounts at `point` and answers `INIT`. Callers may use the mount at once; they wait until
    /// [`FuseSession::run`].
    ///
    /// # Errors
    /// [`SessionError`]; nothing is left mounted.
    pub fn mount(
        point: &Path,
        options: &FuseMountOptions,
        config: &InitConfig,
    ) -> Result<Self, SessionError> {
        let (device, unmounter) = mount::mount(point, options)?;
        let mount = MountGuard(Some(unmounter));
        let session = Self::start_on_transport(Arc::new(device), config)?;
        Ok(Self { mount, ..session })
    }

    /// Answers `INIT` on a connection that was made elsewhere.
    ///
    /// # Errors
    /// [`SessionError`], except [`SessionError::Mount`].
    pub fn start_on_transport(
        transport: Arc<dyn Transport>,
        config: &InitConfig,
    ) -> Result<Self, SessionError> {
        // As large as any request can be, since nothing is negotiated yet.
        let mut buffer = vec![0; (InitConfig::MAX_WRITE + abi::FUSE_MIN_READ_BUFFER) as usize];
        loop {
            let (offer, reply) = receive_init(&transport, &mut buffer)?;
            if offer.major > abi::FUSE_KERNEL_VERSION {
                // The kernel reads the major version alone and begins again with that one.
                let _ = reply.send_init(&abi::fuse_init_out {
                    major: abi::FUSE_KERNEL_VERSION,
                    ..Default::default()
                });
                continue;
            }
            if offer.major < abi::FUSE_KERNEL_VERSION || offer.minor < OLDEST_MINOR {
                // The mount fails for its callers instead of waiting for ever.
                reply.send_error(Errno::PROTO);
                return Err(SessionError::Version {
                    major: offer.major,
                    minor: offer.minor,
                });
            }
            // Made before the answer: what is promised there must be had.
            let (config, rings) = with_rings(&*transport, config, &offer);
            let negotiated = config.negotiate(&offer);
            let delivery = reply.send_init(&config.init_reply(&negotiated));
            if !delivery.is_delivered() {
                return Err(SessionError::Closed);
            }
            return Ok(Self {
                transport,
                rings,
                negotiated,
                mount: MountGuard(None),
            });
        }
    }

    /// Returns the result of the negotiation.
    pub fn negotiated(&self) -> &NegotiatedProtocol {
        &self.negotiated
    }

    /// Returns whether requests come over rings.
    pub fn is_over_rings(&self) -> bool {
        self.rings.is_some()
    }

    /// Returns a handle for telling the kernel about changes.
    pub fn notifier(&self) -> KernelNotifier {
        KernelNotifier::new(Arc::downgrade(&self.transport), self.negotiated)
    }

    /// Returns a handle by which another thread ends [`FuseSession::run`]; `None` when the
    /// connection was made elsewhere.
    pub fn unmount_handle(&self) -> Option<UnmountHandle> {
        self.mount.0.clone()
    }

    /// Returns the device number of the mount; `None` when the connection was made elsewhere.
    pub fn device_number(&self) -> Option<DeviceNumber> {
        self.mount.0.as_ref().map(UnmountHandle::device_number)
    }

    /// Serves until the mount is gone, on this thread and others: over rings if that was
    /// negotiated, with `threads` threads for each processor, else on `threads` threads, each with
    /// a channel of its own where the system allows it, and more while these are all held up. Where
    /// a thread cannot be had, fewer serve.
    ///
    /// # Errors
    /// The first failure of the device, when all workers have ended.
    pub fn run(
        &self,
        threads: NonZeroUsize,
        serve: &(impl RequestHandler + ?Sized),
    ) -> Result<(), SessionError> {
        match &self.rings {
            Some(rings) => self.run_rings(rings, threads, serve),
            None => self.run_channels(threads, serve),
        }
        .map_err(SessionError::Device)
    }

    fn run_rings(
        &self,
        rings: &UringQueues,
        each: NonZeroUsize,
        serve: &(impl RequestHandler + ?Sized),
    ) -> Result<(), Errno> {
        std::thread::scope(|scope| {
            rings.start_workers(scope, each, move |message, outlet| {
                self.dispatch_message(message, outlet, serve)
            });
            // Some requests come over the device all the same: forgets and interrupts.
            let alone = WorkerPool::new(1);
            let ended = self.serve_requests(&self.transport, serve, &alone, WorkerKind::Permanent);
            // The end of the device is the end of the connection: workers that wait for an answer
            // stop.
            rings.mark_ended();
            ended
        })
    }

    fn run_channels(
        &self,
        threads: NonZeroUsize,
        serve: &(impl RequestHandler + ?Sized),
    ) -> Result<(), Errno> {
        let pool = &WorkerPool::new(threads.get());
        std::thread::scope(|scope| {
            let mut number = 0;
            let mut start = move |kind: WorkerKind| {
                number += 1;
                let transport = self.channel_of_worker(number);
                // The worker is counted by its starter, before it has run, and uncounted by itself.
                let work = move || {
                    let ended = self.serve_requests(&transport, serve, pool, kind);
                    pool.remove_worker();
                    ended
                };
                std::thread::Builder::new()
                    .name(format!("fuse-{number}"))
                    .spawn_scoped(scope, work)
                    .inspect_err(|error| log::warn!("worker {number} cannot start: {error}"))
                    .ok()
            };
            // This thread is the first worker.
            pool.add_worker();
            let mut others = Vec::new();
            for _ in 1..threads.get() {
                if let Some(worker) = start(WorkerKind::Permanent) {
                    pool.add_worker();
                    others.push(worker);
                }
            }
            // One thread more, which sleeps while a worker is free.
            let watch = move || pool.grow_when_stuck(|| start(WorkerKind::Extra).is_some());
            if let Err(error) = std::thread::Builder::new()
                .name("fuse-watch".into())
                .spawn_scoped(scope, watch)
            {
                log::warn!("{threads} workers serve, and no more will: {error}");
            }
            let ended = self.serve_requests(&self.transport, serve, pool, WorkerKind::Permanent);
            pool.mark_over();
            join_workers(others, ended)
        })
    }

    /// Returns a channel for a worker. With one of its own, it does not contend with others for the
    /// requests of one queue.
    fn channel_of_worker(&self, number: u32) -> Arc<dyn Transport> {
        self.transport.open_channel().unwrap_or_else(|errno| {
            log::debug!("worker {number} shares a channel: {errno}");
            Arc::clone(&self.transport)
        })
    }

    /// Serves requests until the mount is gone; an extra worker, until there are too many workers.
    fn serve_requests(
        &self,
        transport: &Arc<dyn Transport>,
        serve: &(impl RequestHandler + ?Sized),
        pool: &WorkerPool,
        kind: WorkerKind,
    ) -> Result<(), Errno> {
        // The kernel refuses to fill a smaller buffer than was negotiated.
        let mut buffer = vec![0; self.negotiated.buffer_size()];
        loop {
            let received = transport
                .receive(&mut buffer)
                .inspect_err(|errno| log::error!("a FUSE worker ends: {errno}"))?;
            let Some(length) = received else {
                return Ok(());
            };
            pool.begin_request();
            // The answer goes out on the channel on which the request came.
            let sink = Arc::clone(transport) as Arc<dyn MessageSink>;
            self.dispatch_message(&buffer[..length], sink, serve);
            // An extra worker ends only between requests.
            let has_too_many = pool.end_request();
            if has_too_many && kind == WorkerKind::Extra {
                return Ok(());
            }
        }
    }

    /// Serves one message. Returns whether it gets an answer, now or later.
    fn dispatch_message(
        &self,
        message: &[u8],
        outlet: Arc<dyn MessageSink>,
        serve: &(impl RequestHandler + ?Sized),
    ) -> bool {
        let header = match RequestHeader::split_message(message) {
            Ok((header, _)) => header,
            Err(error) => {
                log::error!("dropped what is no request: {error}");
                return false;
            }
        };
        // From here on the request is answered, whatever happens: by the handler, below, or by the
        // drop of the reply.
        let reply = ReplySender::new(outlet, &header);
        match KernelRequest::decode(message, self.negotiated.flags) {
            Ok(KernelRequest {
                operation: FuseOperation::Init(_),
                ..
            }) => reply.send_error(Errno::PROTO),
            Ok(request) => {
                // Unwinding drops the reply, which answers `EIO`. The state that a panic leaves
                // behind is the handler's own concern.
                if catch_unwind(AssertUnwindSafe(|| serve.handle_request(request, reply))).is_err()
                {
                    log::error!(
                        "operation {} on node {} panicked",
                        header.opcode,
                        header.node.get()
                    );
                }
            }
            Err(error) => {
                log::error!("{error}");
                reply.send_error(Errno::INVAL);
            }
        }
        takes_answer(header.opcode)
    }
}

/// Waits for all workers. Returns the first failure, `ended` before theirs.
fn join_workers(
    workers: Vec<ScopedJoinHandle<'_, Result<(), Errno>>>,
    mut ended: Result<(), Errno>,
) -> Result<(), Errno> {
    for worker in workers {
        let theirs = worker.join().unwrap_or(Err(Errno::IO));
        ended = ended.and(theirs);
    }
    ended
}

/// Receives the kernel's offer, with the reply that it waits for.
fn receive_init(
    transport: &Arc<dyn Transport>,
    buffer: &mut [u8],
) -> Result<(InitRequest, ReplySender), SessionError> {
    let received = transport.receive(buffer)?;
    let length = received.ok_or(SessionError::Closed)?;
    // No flags are in force yet; the layout of `INIT` depends on none.
    let request = KernelRequest::decode(&buffer[..length], InitFlags::empty())?;
    let KernelRequest { header, operation } = request;
    let reply = ReplySender::new(Arc::clone(transport) as Arc<dyn MessageSink>, &header);
    match operation {
        FuseOperation::Init(offer) => Ok((offer, reply)),
        _ => Err(SessionError::NotInit {
            opcode: header.opcode,
        }),
    }
}

/// Returns rings, if they are wanted, offered, and can be had: once they are negotiated, nothing
/// works without them. The configuration returned is without them otherwise.
fn with_rings(
    transport: &dyn Transport,
    config: &InitConfig,
    offer: &InitRequest,
) -> (InitConfig, Option<UringQueues>) {
    let negotiated = config.negotiate(offer);
    if negotiated.flags.contains(InitFlags::OVER_IO_URING) {
        // A transport in memory has no rings, although the kernel's part may have offered them.
        let device = transport.device_fd().ok_or(Errno::NOTSUP);
        match device.and_then(|device| UringQueues::new(device, negotiated.payload_size())) {
            Ok(rings) => return (*config, Some(rings)),
            Err(errno) => log::warn!("requests come over {DEV_FUSE}, not over rings: {errno}"),
        }
    }
    (
        InitConfig {
            wanted: config.wanted - InitFlags::OVER_IO_URING,
            ..*config
        },
        None,
    )
}

/// Unmounts its mount when it is dropped.
#[derive(Debug)]
struct MountGuard(Option<UnmountHandle>);

impl Drop for MountGuard {
    fn drop(&mut self) {
        if let Some(Err(error)) = self
            .0
            .as_ref()
            .map(|mount| mount.unmount(UnmountMode::Detach))
        {
            log::warn!("{error}");
        }
    }
}

#[cfg(test)]
mod tests;
