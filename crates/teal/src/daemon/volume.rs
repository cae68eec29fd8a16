//! The state that the process of a mount holds, and the ways in which it ends.
//!
//! # Guarantees
//! 1. *Closed once*: the store is closed by one thread, whichever comes first; the others wait for
//!    the process to end.
//! 2. *Answered last*: requests for the end (`teal down`) are answered after the store is closed.
//! 3. *Free when unmounted*: `umount` of a mount on a block device, of a volume without a server,
//!    returns when the store is closed and others can open it.
//!
//! # Locks
//! None of them is held while another one is taken, or across I/O, but the one that keeps what came
//! of closing the store: who wants that waits for it.

use crate::cli::MountArgs as Args;
use crate::control::{self, ControlAnswer, UnmountReport, UnsentChanges};
use crate::drives::DriveService;
use crate::mounts;
use crate::recording::{RecordingOrder, RecordingSlot};
use crate::replica::{self, ReplicaRuntime};
use crate::serving::RunningServer;
use anyhow::Result;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use teal_command::mount_table::{self, MountEntry};
use teal_env::FileDisk;
use teal_fuse::{UnmountError, UnmountHandle, UnmountMode};
use teal_mount::VolumeMount;
use teal_posix::{FileSystem, FsError};

/// A mount that lives on for so long after it was taken away has a copy in another mount namespace.
const COPY_SUSPECTED_AFTER: Duration = Duration::from_secs(3);

/// A mounted volume and everything in this process that serves it.
pub(super) struct ServedVolume {
    pub(super) args: Args,
    pub(super) client: Arc<FileSystem>,
    pub(super) mount: VolumeMount,
    pub(super) unmounter: UnmountHandle,
    /// The mount, as the kernel showed it when it was made.
    entry: Option<MountEntry>,
    pub(super) recordings: RecordingSlot,
    pub(super) drives: Arc<DriveService>,
    shutdown: ShutdownState,
    /// The connection to the server; taken at the end.
    running: Mutex<Option<ReplicaRuntime>>,
    disk: Arc<FileDisk>,
    /// What came of closing the store; taken for as long as that lasts.
    closed: Mutex<Option<Result<(), FsError>>>,
}

/// The progress of the end of a mount.
#[derive(Debug, Default)]
struct ShutdownState {
    /// A signal has asked for the end.
    is_interrupted: AtomicBool,
    /// A thread closes the store.
    is_closing: AtomicBool,
    /// True once the kernel has ended the mount.
    is_unmounted: Mutex<bool>,
    unmounted: Condvar,
    /// Connections that asked for the end and wait for the answer.
    waiting: Mutex<Vec<UnixStream>>,
}

/// Locks a mutex; a thread that panicked with it has left nothing half done in these few fields.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ServedVolume {
    /// Puts together what [`start`](super::start) has opened.
    pub(super) fn new(
        args: Args,
        client: Arc<FileSystem>,
        mount: VolumeMount,
        disk: Arc<FileDisk>,
        drives: Arc<DriveService>,
        running: Option<ReplicaRuntime>,
    ) -> Self {
        let unmounter = mount.unmount_handle();
        let entry = mounts::newest_at(unmounter.mount_point());
        Self {
            args,
            client,
            mount,
            unmounter,
            entry,
            recordings: RecordingSlot::default(),
            drives,
            shutdown: ShutdownState::default(),
            running: Mutex::new(running),
            disk,
            closed: Mutex::new(None),
        }
    }

    /// Runs `ask` on the server of the volume, if it is in this process.
    pub(super) fn with_server<T>(&self, ask: impl FnOnce(Option<&RunningServer>) -> T) -> T {
        // The lock keeps the server from being stopped while it is asked.
        let running = lock(&self.running);
        ask(running
            .as_ref()
            .and_then(|running| running.serving.as_ref()))
    }

    /// Returns whether this mount knows where the server of its volume is.
    pub(super) fn asks_server(&self) -> bool {
        lock(&self.running).is_some()
    }

    /// Says why a mount of a volume with a server does not ask it.
    pub(super) fn why_server_is_not_asked(&self) -> String {
        replica::why_server_is_not_asked(&self.args.path, self.client.store().is_read_only())
    }

    /// Records all requests into a new file, until `seconds` have passed or the recording is ended.
    pub(super) fn begin_recording(
        self: &Arc<Self>,
        file: &Path,
        anonymous: bool,
        seconds: Option<u64>,
    ) -> Result<()> {
        // Holds the volume weakly: a recording must not keep the process from closing its store.
        let mount = Arc::downgrade(self);
        let ended = move || {
            if let Some(volume) = mount.upgrade() {
                volume.mount.set_watcher(None);
            }
        };
        let order = RecordingOrder {
            file,
            mount_point: &self.args.dir,
            is_anonymous: anonymous,
            limit: seconds.map(Duration::from_secs),
            is_observed: self.mount.is_observed(),
        };
        let watcher = self.recordings.start(&order, &self.client, ended)?;
        // Requests are watched only once the file of the trace is open.
        self.mount.set_watcher(Some(watcher));
        Ok(())
    }

    /// Takes the mount away unless it is in use; the connection is answered when the store is
    /// closed.
    ///
    /// # Errors
    /// The connection, and why the mount stays.
    pub(super) fn end_for(
        self: &Arc<Self>,
        stream: UnixStream,
    ) -> Result<(), (UnixStream, UnmountError)> {
        let mut waiting = lock(&self.shutdown.waiting);
        // The list stays locked across the unmount: the end, which empties it, may come before this
        // thread runs again.
        if let Err(error) = self.unmounter.unmount(UnmountMode::IfIdle) {
            return Err((stream, error));
        }
        waiting.push(stream);
        drop(waiting);
        self.exit_if_copied();
        Ok(())
    }

    /// Takes the mount away because of a signal, whether it is in use or not.
    pub(super) fn end_for_signal(self: &Arc<Self>) {
        if self.shutdown.is_interrupted.swap(true, Ordering::AcqRel) {
            // A second signal asks for haste. What was synced is safe, and recovery does the rest.
            log::warn!("ending at once");
            std::process::exit(1);
        }
        // An idle mount is taken away at once; a busy one is detached.
        if let Err(error) = self.unmounter.unmount(UnmountMode::IfIdle) {
            log::warn!("{error}; detaching");
            if let Err(error) = self.unmounter.unmount(UnmountMode::Detach) {
                log::error!("{error}");
            }
            // Programs that have files open go on without them: the store is closed and the process
            // ends.
            self.exit_process();
        }
        self.exit_if_copied();
    }

    /// Wakes the threads that wait until the kernel has ended the mount.
    pub(super) fn mount_has_ended(&self) {
        // Set under the lock, so that a thread that is about to wait cannot miss it.
        *lock(&self.shutdown.is_unmounted) = true;
        self.shutdown.unmounted.notify_all();
    }

    /// Closes the store and answers the requests for that. Returns to the first caller only.
    pub(super) fn close(&self) -> Result<(), FsError> {
        while self.shutdown.is_closing.swap(true, Ordering::AcqRel) {
            // The first caller ends the process.
            std::thread::park();
        }
        // The recording ends first, so that its last event is a request that has been answered.
        self.recordings.end();
        debug_assert!(
            self.shutdown.is_closing.load(Ordering::Acquire),
            "one thread closes the store"
        );
        let closed = self.close_store();
        // The replica is asked what the server lacks while it still runs.
        let is_served = self.with_server(|serving| serving.is_some());
        let unsent = replica::unsent_changes(&self.client);
        self.stop_server();
        if let UnsentChanges::Some { objects, bytes } = &unsent {
            log::warn!(
                "{objects} objects ({bytes} bytes) are only on this machine: the server lacks them"
            );
        }
        let answer = match &closed {
            Ok(()) => ControlAnswer::Ended {
                ended: UnmountReport {
                    store: self.args.path.clone(),
                    served: is_served,
                    unsent,
                },
            },
            Err(e) => ControlAnswer::Error {
                error: format!("unmounted, but the store could not be closed: {e}"),
            },
        };
        // All waiting connections are answered only now, because `teal down` promises that the
        // store is closed.
        for stream in lock(&self.shutdown.waiting).drain(..) {
            control::send_answer(&stream, &answer);
        }
        self.disk.release_locks();
        closed
    }

    /// Ends the file system and closes the store. Later callers wait for the first one.
    fn close_store(&self) -> Result<(), FsError> {
        let mut closed = lock(&self.closed);
        if let Some(closed) = &*closed {
            return closed.clone();
        }
        let outcome = self.client.shutdown().map(drop);
        *closed = Some(outcome.clone());
        outcome
    }

    /// Closes the store and lets others open it before the kernel's last request is answered. With
    /// a server, the end waits for nobody: who opens the store waits instead.
    pub(super) fn close_before_unmounted(&self) {
        if self.client.replica().is_some() {
            return;
        }
        if let Err(error) = self.close_store() {
            log::error!("closing the store: {error}");
        }
        self.disk.release_locks();
    }

    /// Returns whether `sync(2)` reaches the mount: it is on a block device.
    pub(super) fn is_on_device(&self) -> bool {
        self.entry.as_ref().is_some_and(MountEntry::is_on_device)
    }

    /// Returns whether the mount has been taken away, so that this process ends soon.
    pub(super) fn is_ending(&self) -> bool {
        let Some(entry) = &self.entry else {
            return false;
        };
        // A bind mount or a moved one has another place and the same device.
        let mounts = mount_table::list_mounts().unwrap_or_default();
        !mounts.is_empty() && !mounts.iter().any(|mount| mount.device == entry.device)
    }

    fn stop_server(&self) {
        // Taken out of the lock first, because stopping may take seconds.
        let running = lock(&self.running).take();
        if let Some(running) = running {
            running.stop();
        }
    }

    /// Ends the process without waiting for the programs that still use the mount: what they have
    /// written is on the disk.
    fn exit_process(&self) -> ! {
        let closed = self.close();
        if let Err(error) = &closed {
            log::error!("closing the store: {error}");
        }
        std::process::exit(i32::from(closed.is_err()));
    }

    /// Ends the process in a while if the mount, which was taken away, lives on.
    ///
    /// The kernel ends a mount at once, unless another mount namespace has a copy of it. A copy
    /// does not keep the process alive: for its users it is as if the disk had gone.
    fn exit_if_copied(self: &Arc<Self>) {
        // The thread keeps the volume alive until it has seen the end of the mount.
        let this = Arc::clone(self);
        let watch = move || {
            // Waiting on the condition costs no delay where the mount ends at once.
            let is_unmounted = lock(&this.shutdown.is_unmounted);
            let waited = this.shutdown.unmounted.wait_timeout_while(
                is_unmounted,
                COPY_SUSPECTED_AFTER,
                |is_unmounted| !*is_unmounted,
            );
            let is_unmounted = *waited.unwrap_or_else(PoisonError::into_inner).0;
            if !is_unmounted {
                log::warn!(
                    "another mount namespace holds a copy of the mount, which is dead from now on"
                );
                this.exit_process();
            }
        };
        let named = std::thread::Builder::new().name("teal-copies".into());
        if let Err(error) = named.spawn(watch) {
            log::error!("a thread that waits for the end of the mount: {error}");
        }
    }
}
