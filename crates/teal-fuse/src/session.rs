//! A served connection: the handshake, the worker threads, the end.
//!
//! # Guarantees
//! 1. *Handshake first*: a [`Session`] exists only after `INIT` was answered.
//! 2. *Each request once*: every readable request reaches [`Serve::serve`] once, on one of the
//!    workers; one that cannot be decoded is answered `EINVAL` here.
//! 3. *A panic costs one request*: it is logged, the request gets `EIO`, the worker goes on.
//! 4. *Clean end*: after an unmount every worker returns and so does [`Session::run`], without an
//!    error.
//! 5. *Never all held up*: requests that wait do not keep others from being served (`crew`).
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
use workers::WorkerPool;

/// What answers requests.
pub trait RequestHandler: Sync {
    /// Answers one request, now or later: `reply` may be kept. Called by all workers at once.
    fn handle_request(&self, request: KernelRequest<'_>, reply: ReplySender);
}

/// Why a session cannot start or had to end.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Nothing is mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The kernel speaks a protocol that is too old.
    #[error(
        "the kernel speaks FUSE {major}.{minor}; 7.{OLDEST_MINOR} (Linux 5.4) is the oldest that is served"
    )]
    Version {
        /// The kernel's major version.
        major: u32,
        /// The kernel's minor version.
        minor: u32,
    },
    /// The first request was something else than `INIT`: somebody else read from the connection
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
        "the kernel does not offer FUSE over io_uring: it needs Linux 6.14 and `echo Y > /sys/module/fuse/parameters/enable_uring`; \
         without uring=on requests come over {DEV_FUSE}"
    )]
    NoRings,
    /// The transport failed.
    #[error("the FUSE device failed")]
    Device(#[from] Errno),
}

/// A connection whose handshake is done.
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
    /// [`Session::run`].
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
        let mut buffer = vec![0; (InitConfig::MAX_WRITE + abi::FUSE_MIN_READ_BUFFER) as usize];
        loop {
            let length = transport
                .receive(&mut buffer)?
                .ok_or(SessionError::Closed)?;
            let KernelRequest { header, operation } =
                KernelRequest::decode(&buffer[..length], InitFlags::empty())?;
            let reply = ReplySender::new(Arc::clone(&transport) as Arc<dyn MessageSink>, &header);
            let FuseOperation::Init(offer) = operation else {
                return Err(SessionError::NotInit {
                    opcode: header.opcode,
                });
            };
            if offer.major > abi::FUSE_KERNEL_VERSION {
                // The kernel reads the major version alone and begins again with that one.
                let _ = reply.send_init(&abi::fuse_init_out {
                    major: abi::FUSE_KERNEL_VERSION,
                    ..Default::default()
                });
                continue;
            }
            if offer.major < abi::FUSE_KERNEL_VERSION || offer.minor < OLDEST_MINOR {
                reply.send_error(Errno::PROTO);
                return Err(SessionError::Version {
                    major: offer.major,
                    minor: offer.minor,
                });
            }
            let (config, rings) = with_rings(&*transport, config, &offer);
            let negotiated = config.negotiate(&offer);
            if !reply
                .send_init(&config.init_reply(&negotiated))
                .is_delivered()
            {
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

    /// Returns what was agreed on.
    pub fn negotiated(&self) -> &NegotiatedProtocol {
        &self.negotiated
    }

    /// Returns whether requests come over rings.
    pub fn is_over_rings(&self) -> bool {
        self.rings.is_some()
    }

    /// A handle for telling the kernel what changed.
    pub fn notifier(&self) -> KernelNotifier {
        KernelNotifier::new(Arc::downgrade(&self.transport), self.negotiated)
    }

    /// A handle by which another thread ends [`Session::run`]; `None` when the connection was made
    /// elsewhere.
    pub fn unmount_handle(&self) -> Option<UnmountHandle> {
        self.mount.0.clone()
    }

    /// The device number of the mount.
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
            // What does not come over rings.
            let alone = WorkerPool::new(1);
            let mine = self.serve_requests(&self.transport, serve, &alone, false);
            rings.mark_ended();
            mine
        })
    }

    fn run_channels(
        &self,
        threads: NonZeroUsize,
        serve: &(impl RequestHandler + ?Sized),
    ) -> Result<(), Errno> {
        let crew = &WorkerPool::new(threads.get());
        std::thread::scope(|scope| {
            let mut number = 0;
            let mut start = move |is_extra: bool| {
                number += 1;
                let transport = self.transport.open_channel().unwrap_or_else(|errno| {
                    log::debug!("worker {number} shares a channel: {errno}");
                    Arc::clone(&self.transport)
                });
                let work = move || {
                    let worked = self.serve_requests(&transport, serve, crew, is_extra);
                    crew.remove_worker();
                    worked
                };
                std::thread::Builder::new()
                    .name(format!("fuse-{number}"))
                    .spawn_scoped(scope, work)
                    .inspect_err(|error| log::warn!("worker {number} cannot start: {error}"))
                    .ok()
            };
            crew.add_worker();
            let more: Vec<_> = (1..threads.get())
                .filter_map(|_| start(false).inspect(|_| crew.add_worker()))
                .collect();
            let watch = move || crew.grow_when_stuck(|| start(true).is_some());
            if let Err(error) = std::thread::Builder::new()
                .name("fuse-watch".into())
                .spawn_scoped(scope, watch)
            {
                log::warn!("{threads} workers serve, and no more will: {error}");
            }
            let mine = self.serve_requests(&self.transport, serve, crew, false);
            crew.mark_over();
            let theirs = more
                .into_iter()
                .map(|worker| worker.join().unwrap_or(Err(Errno::IO)));
            std::iter::once(mine)
                .chain(theirs)
                .fold(Ok(()), Result::and)
        })
    }

    /// Serves until the mount is gone; one that is `is_extra`, until there are too many.
    fn serve_requests(
        &self,
        transport: &Arc<dyn Transport>,
        serve: &(impl RequestHandler + ?Sized),
        crew: &WorkerPool,
        is_extra: bool,
    ) -> Result<(), Errno> {
        let mut buffer = vec![0; self.negotiated.buffer_size()];
        while let Some(length) = transport
            .receive(&mut buffer)
            .inspect_err(|errno| log::error!("a FUSE worker ends: {errno}"))?
        {
            crew.begin_request();
            self.dispatch_message(
                &buffer[..length],
                Arc::clone(transport) as Arc<dyn MessageSink>,
                serve,
            );
            if crew.end_request() && is_extra {
                break;
            }
        }
        Ok(())
    }

    /// Serves one message; whether it gets an answer, now or later.
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
        let reply = ReplySender::new(outlet, &header);
        match KernelRequest::decode(message, self.negotiated.flags) {
            Ok(KernelRequest {
                operation: FuseOperation::Init(_),
                ..
            }) => reply.send_error(Errno::PROTO),
            Ok(request) => {
                // The reply is dropped by the unwinding and so answers. What else a panic leaves
                // behind is the server's own.
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

/// Rings, if they are wanted, offered, and can be had: once they are negotiated, nothing works
/// without them. The configuration without them otherwise.
fn with_rings(
    transport: &dyn Transport,
    config: &InitConfig,
    offer: &InitRequest,
) -> (InitConfig, Option<UringQueues>) {
    let negotiated = config.negotiate(offer);
    if negotiated.flags.contains(InitFlags::OVER_IO_URING) {
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

/// Takes its mount away when it is dropped.
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
