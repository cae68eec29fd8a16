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

mod crew;
mod init;

pub use init::{InitConfig, InitFlags, Negotiated};

use crate::abi;
use crate::mount::{self, DeviceNumber, MountError, MountOptions, Unmount, Unmounter};
use crate::notify::Notifier;
use crate::reply::{Reply, takes_answer};
use crate::request::{DecodeError, Header, InitRequest, Operation, Request};
use crate::ring::Rings;
use crate::transport::{DEV_FUSE, Outlet, Transport};
use crew::Crew;
use init::OLDEST_MINOR;
use rustix::io::Errno;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// What answers requests.
pub trait Serve: Sync {
    /// Answers one request, now or later: `reply` may be kept. Called by all workers at once.
    fn serve(&self, request: Request<'_>, reply: Reply);
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
pub struct Session {
    // Before the mount, so that it is dropped first: an unmount waits for answers while the device
    // is open.
    transport: Arc<dyn Transport>,
    rings: Option<Rings>,
    negotiated: Negotiated,
    mount: MountGuard,
}

impl Session {
    /// Mounts at `point` and answers `INIT`. Callers may use the mount at once; they wait until
    /// [`Session::run`].
    ///
    /// # Errors
    /// [`SessionError`]; nothing is left mounted.
    pub fn mount(
        point: &Path,
        options: &MountOptions,
        config: &InitConfig,
    ) -> Result<Self, SessionError> {
        let (device, unmounter) = mount::mount(point, options)?;
        let mount = MountGuard(Some(unmounter));
        let session = Self::start(Arc::new(device), config)?;
        Ok(Self { mount, ..session })
    }

    /// Answers `INIT` on a connection that was made elsewhere.
    ///
    /// # Errors
    /// [`SessionError`], except [`SessionError::Mount`].
    pub fn start(transport: Arc<dyn Transport>, config: &InitConfig) -> Result<Self, SessionError> {
        let mut buffer = vec![0; (InitConfig::MAX_WRITE + abi::FUSE_MIN_READ_BUFFER) as usize];
        loop {
            let length = transport
                .receive(&mut buffer)?
                .ok_or(SessionError::Closed)?;
            let Request { header, operation } =
                Request::decode(&buffer[..length], InitFlags::empty())?;
            let reply = Reply::new(Arc::clone(&transport) as Arc<dyn Outlet>, &header);
            let Operation::Init(offer) = operation else {
                return Err(SessionError::NotInit {
                    opcode: header.opcode,
                });
            };
            if offer.major > abi::FUSE_KERNEL_VERSION {
                // The kernel reads the major version alone and begins again with that one.
                let _ = reply.init(&abi::fuse_init_out {
                    major: abi::FUSE_KERNEL_VERSION,
                    ..Default::default()
                });
                continue;
            }
            if offer.major < abi::FUSE_KERNEL_VERSION || offer.minor < OLDEST_MINOR {
                reply.error(Errno::PROTO);
                return Err(SessionError::Version {
                    major: offer.major,
                    minor: offer.minor,
                });
            }
            let (config, rings) = with_rings(&*transport, config, &offer);
            let negotiated = config.negotiate(&offer);
            if !reply.init(&config.answer(&negotiated)).is_delivered() {
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
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// Returns whether requests come over rings.
    pub fn is_over_rings(&self) -> bool {
        self.rings.is_some()
    }

    /// A handle for telling the kernel what changed.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::downgrade(&self.transport), self.negotiated)
    }

    /// A handle by which another thread ends [`Session::run`]; `None` when the connection was made
    /// elsewhere.
    pub fn unmounter(&self) -> Option<Unmounter> {
        self.mount.0.clone()
    }

    /// The device number of the mount.
    pub fn device(&self) -> Option<DeviceNumber> {
        self.mount.0.as_ref().map(Unmounter::device)
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
        serve: &(impl Serve + ?Sized),
    ) -> Result<(), SessionError> {
        match &self.rings {
            Some(rings) => self.run_rings(rings, threads, serve),
            None => self.run_channels(threads, serve),
        }
        .map_err(SessionError::Device)
    }

    fn run_rings(
        &self,
        rings: &Rings,
        each: NonZeroUsize,
        serve: &(impl Serve + ?Sized),
    ) -> Result<(), Errno> {
        std::thread::scope(|scope| {
            rings.start(scope, each, move |message, outlet| {
                self.dispatch(message, outlet, serve)
            });
            // What does not come over rings.
            let alone = Crew::new(1);
            let mine = self.work(&self.transport, serve, &alone, false);
            rings.end();
            mine
        })
    }

    fn run_channels(
        &self,
        threads: NonZeroUsize,
        serve: &(impl Serve + ?Sized),
    ) -> Result<(), Errno> {
        let crew = &Crew::new(threads.get());
        std::thread::scope(|scope| {
            let mut number = 0;
            let mut start = move |is_extra: bool| {
                number += 1;
                let transport = self.transport.channel().unwrap_or_else(|errno| {
                    log::debug!("worker {number} shares a channel: {errno}");
                    Arc::clone(&self.transport)
                });
                let work = move || {
                    let worked = self.work(&transport, serve, crew, is_extra);
                    crew.leave();
                    worked
                };
                std::thread::Builder::new()
                    .name(format!("fuse-{number}"))
                    .spawn_scoped(scope, work)
                    .inspect_err(|error| log::warn!("worker {number} cannot start: {error}"))
                    .ok()
            };
            crew.join();
            let more: Vec<_> = (1..threads.get())
                .filter_map(|_| start(false).inspect(|_| crew.join()))
                .collect();
            let watch = move || crew.watch(|| start(true).is_some());
            if let Err(error) = std::thread::Builder::new()
                .name("fuse-watch".into())
                .spawn_scoped(scope, watch)
            {
                log::warn!("{threads} workers serve, and no more will: {error}");
            }
            let mine = self.work(&self.transport, serve, crew, false);
            crew.is_over();
            let theirs = more
                .into_iter()
                .map(|worker| worker.join().unwrap_or(Err(Errno::IO)));
            std::iter::once(mine)
                .chain(theirs)
                .fold(Ok(()), Result::and)
        })
    }

    /// Serves until the mount is gone; one that is `is_extra`, until there are too many.
    fn work(
        &self,
        transport: &Arc<dyn Transport>,
        serve: &(impl Serve + ?Sized),
        crew: &Crew,
        is_extra: bool,
    ) -> Result<(), Errno> {
        let mut buffer = vec![0; self.negotiated.buffer_size()];
        while let Some(length) = transport
            .receive(&mut buffer)
            .inspect_err(|errno| log::error!("a FUSE worker ends: {errno}"))?
        {
            crew.begin();
            self.dispatch(
                &buffer[..length],
                Arc::clone(transport) as Arc<dyn Outlet>,
                serve,
            );
            if crew.end() && is_extra {
                break;
            }
        }
        Ok(())
    }

    /// Serves one message; whether it gets an answer, now or later.
    fn dispatch(
        &self,
        message: &[u8],
        outlet: Arc<dyn Outlet>,
        serve: &(impl Serve + ?Sized),
    ) -> bool {
        let header = match Header::split(message) {
            Ok((header, _)) => header,
            Err(error) => {
                log::error!("dropped what is no request: {error}");
                return false;
            }
        };
        let reply = Reply::new(outlet, &header);
        match Request::decode(message, self.negotiated.flags) {
            Ok(Request {
                operation: Operation::Init(_),
                ..
            }) => reply.error(Errno::PROTO),
            Ok(request) => {
                // The reply is dropped by the unwinding and so answers. What else a panic leaves
                // behind is the server's own.
                if catch_unwind(AssertUnwindSafe(|| serve.serve(request, reply))).is_err() {
                    log::error!(
                        "operation {} on node {} panicked",
                        header.opcode,
                        header.node.get()
                    );
                }
            }
            Err(error) => {
                log::error!("{error}");
                reply.error(Errno::INVAL);
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
) -> (InitConfig, Option<Rings>) {
    let negotiated = config.negotiate(offer);
    if negotiated.flags.contains(InitFlags::OVER_IO_URING) {
        let device = transport.device().ok_or(Errno::NOTSUP);
        match device.and_then(|device| Rings::new(device, negotiated.payload_size())) {
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
struct MountGuard(Option<Unmounter>);

impl Drop for MountGuard {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.as_ref().map(|mount| mount.unmount(Unmount::Detach)) {
            log::warn!("{error}");
        }
    }
}

#[cfg(test)]
mod tests;
