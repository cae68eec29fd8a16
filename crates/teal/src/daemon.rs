//! The process that serves one mount: store, client, kernel, control socket, signals.
//!
//! # How it ends
//! 1. `umount`, `teal down` or a signal takes the mount away; the workers return; everything is committed, checkpointed and closed.
//! 2. `teal down` is answered only after that. When files are open, it is refused; a signal detaches the mount and does not wait for them.

use crate::cli::Mount as Args;
use crate::config;
use crate::control::{
    self, Answer, Ask, DriveHere, Ended, Listener, Status, Unsent, UpstreamShown,
};
use crate::drives::Drives;
use crate::launch::READY;
use crate::machine;
use crate::mounts;
use crate::options::{MountOptions, SyncFs};
use crate::private;
use crate::recording::Recordings;
use crate::replica::{self, Running};
use crate::rollback::Rollback;
use crate::say::{quoted, say, shown, with_causes};
use anyhow::{Context, Result, anyhow, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Write;
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use teal_device::Drive;
use teal_env::{Clock, FileDisk, OpenMode, SystemClock};
use teal_fuse::{Unmount, Unmounter};
use teal_log::{OpenOptions, Owner, Recovery, Store};
use teal_mount::{Mount, MountSettings};
use teal_posix::{AtimePolicy, Client, ClientOptions, FsError};
use teal_replica::{Freed, PinRefused, Pinned, Replica, UpstreamOptions};
use teal_types::ObjectNo;

/// Threads of a mount whose requests may wait for the server: others are to be answered meanwhile.
const WAITING: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");

/// After so long, a mount that was taken away and lives on has a copy in another mount namespace.
const COPIES: Duration = Duration::from_secs(3);

struct Daemon {
    args: Args,
    client: Arc<Client>,
    mount: Mount,
    unmounter: Unmounter,
    /// Whether `sync(2)` reaches the mount.
    is_on_device: bool,
    /// Those who asked for the end and wait for the answer.
    waiting: Mutex<Vec<UnixStream>>,
    ending: AtomicBool,
    /// Somebody closes the store: whoever comes second leaves it alone.
    closing: AtomicBool,
    /// Whether the kernel has ended the mount, and who waits for that.
    served: (Mutex<bool>, Condvar),
    recordings: Recordings,
    /// What talks to the server; taken at the end.
    running: Mutex<Option<Running>>,
    drives: Arc<Drives>,
}

/// Opens the store, mounts it and serves until the mount is gone. What was made for the mount is kept as soon as it is there.
pub(crate) fn serve(args: &Args, options: MountOptions, made: Rollback) -> Result<ExitCode> {
    match start(args, options) {
        Ok((daemon, listener)) => {
            made.keep();
            if args.tell {
                let mut out = std::io::stdout();
                writeln!(out, "{READY}")
                    .and_then(|()| out.flush())
                    .context("the parent does not listen")?;
                let _ = rustix::process::setsid();
            } else {
                log::info!(
                    "serving {} on {}; end with Ctrl-C or `teal down`",
                    args.path.display(),
                    args.dir.display()
                );
            }
            run(&Arc::new(daemon), listener)
        }
        Err(error) if args.tell => {
            say!("{}", with_causes(&error).replace('\n', " "));
            Ok(ExitCode::FAILURE)
        }
        Err(error) => Err(error),
    }
}

fn start(args: &Args, options: MountOptions) -> Result<(Daemon, Listener)> {
    let mode = if options.read_only {
        OpenMode::Read
    } else {
        OpenMode::Write
    };
    let disk = Arc::new(FileDisk::open(&args.path, mode)?);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = open_store(args, &options, &disk, &clock)?;
    let listener = Listener::bind(&args.dir)?;
    let atime = if options.noatime {
        AtimePolicy::Noatime
    } else {
        AtimePolicy::Relatime
    };
    let how = ClientOptions {
        atime,
        ..ClientOptions::default()
    };
    let running = if options.read_only {
        None
    } else {
        replica::start(&args.path, &clock, options.delay)?
    };
    if let (None, Some(option)) = (&running, options.about_a_server().first()) {
        let why = if options.read_only {
            "a read-only mount sends nothing"
        } else {
            "the volume has no server"
        };
        bail!(
            "mount option {option}: {why}; leave it out, or give the volume a server first (`teal serve`)"
        );
    }
    let client = match &running {
        Some(running) => {
            let upstream = Arc::clone(&running.upstream);
            let defaults = UpstreamOptions::default();
            let flush_age = options.flush_age.unwrap_or(defaults.flush_age);
            let (sync_remote, queue) = (options.sync_remote, options.queue);
            let of_upstream = (
                running.joins,
                UpstreamOptions {
                    flush_age,
                    sync_remote,
                    queue,
                    ..defaults
                },
            );
            Client::replica_of(store, clock, how, upstream, &running.device, of_upstream)?
        }
        None => Client::new(store, clock, how)?,
    };
    let is_shared = replica::setting(&args.path)?.is_some();
    let settings = mount_settings(args, &options, is_shared, client.replica().is_some());
    if settings.syncfs {
        // The kernel's claim on the device, which comes with the mount, takes the place of ours.
        disk.release_claim();
    }
    let mount = Mount::new(Arc::clone(&client), &args.dir, settings)?;
    let unmounter = mount.unmounter();
    let is_on_device = mounts::is_on_device(unmounter.point());
    let drives = Arc::new(Drives::new(&client, &args.path)?);
    let args = Args {
        path: args.path.clone(),
        dir: args.dir.clone(),
        options: args.options.clone(),
        ..*args
    };
    Ok((
        Daemon {
            args,
            client,
            mount,
            unmounter,
            is_on_device,
            waiting: Mutex::default(),
            ending: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            served: (Mutex::default(), Condvar::new()),
            recordings: Recordings::default(),
            running: Mutex::new(running),
            drives,
        },
        listener,
    ))
}

/// Opens the store of a mount, and says what was redone for that.
fn open_store(
    args: &Args,
    options: &MountOptions,
    disk: &Arc<FileDisk>,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<Store>> {
    if !options.read_only {
        private::enforce_store(&args.path)?;
    }
    let how = OpenOptions {
        read_only: options.read_only,
        salvage: options.salvage,
        owner: if options.read_only {
            Owner::default()
        } else {
            machine::owner()?
        },
        elsewhere: options.elsewhere,
        settings: options.settings,
    };
    let (store, recovery) = Store::open(disk.clone(), clock.clone(), how)
        .with_context(|| format!("cannot open {}", args.path.display()))?;
    told(args, &recovery);
    if Drive::is_one(&store) {
        return Err(anyhow!(
            "{} is a drive: `teal device attach` uses it beside a mount",
            args.path.display()
        ));
    }
    Ok(store)
}

/// How a volume is mounted. `is_shared`: it has a server, so that what other machines make is in its tree.
fn mount_settings(
    args: &Args,
    options: &MountOptions,
    is_shared: bool,
    is_replica: bool,
) -> MountSettings {
    let syncfs = options.syncfs.is_wanted();
    if options.syncfs == SyncFs::WhereSafe && !syncfs {
        log::info!(
            "sync(2) and syncfs(2) will not reach this mount, fsync(2) does: this mount namespace may end with the daemon"
        );
    }
    MountSettings {
        source: args.path.clone(),
        syncfs,
        read_only: options.read_only,
        nosuid: options.nosuid.holds(is_shared),
        nodev: options.nodev.holds(is_shared),
        noexec: options.noexec,
        noatime: options.noatime,
        threads: if is_replica {
            options.threads.max(WAITING)
        } else {
            options.threads
        },
        uring: options.uring,
        observed: options.observed,
    }
}

fn told(args: &Args, recovery: &Recovery) {
    if recovery.batches > 0 {
        log::info!(
            "{} was not closed properly; {} batches ({} bytes of log) were redone",
            args.path.display(),
            recovery.batches,
            recovery.bytes
        );
    }
}

fn run(daemon: &Arc<Daemon>, listener: Listener) -> Result<ExitCode> {
    daemon.client.start().context("the background thread")?;
    daemon.drives.start().context("a thread for drives")?;
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).context("signals")?;
    let for_signals = Arc::clone(daemon);
    let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
    named("teal-signals")
        .spawn(move || signals.forever().for_each(|_| for_signals.interrupted()))?;
    let for_control = Arc::clone(daemon);
    let socket = listener.socket.try_clone().context("control socket")?;
    named("teal-control").spawn(move || {
        for stream in socket.incoming().flatten() {
            for_control.asked(stream);
        }
    })?;
    let served = daemon.mount.run();
    *daemon
        .served
        .0
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = true;
    daemon.served.1.notify_all();
    let closed = daemon.close();
    drop(listener);
    served?;
    closed.context("closing the store")?;
    Ok(ExitCode::SUCCESS)
}

fn not_recorded() -> Answer {
    Answer::Error {
        error: "nothing is being recorded".into(),
    }
}

impl Daemon {
    /// Closes the store and answers those who wait for that. Comes back to the first caller only.
    fn close(&self) -> Result<(), FsError> {
        while self.closing.swap(true, Ordering::AcqRel) {
            // The other one ends the process.
            std::thread::park();
        }
        self.recordings.end();
        let closed = self.client.shutdown();
        let (is_served, unsent) = (self.is_served(), replica::unsent(&self.client));
        self.stop_serving();
        if let Unsent::Some { objects, bytes } = &unsent {
            log::warn!(
                "{objects} objects ({bytes} bytes) are only on this machine: the server lacks them"
            );
        }
        let answer = match &closed {
            Ok(_) => Answer::Ended {
                ended: Ended {
                    store: self.args.path.clone(),
                    served: is_served,
                    unsent,
                },
            },
            Err(e) => Answer::Error {
                error: format!("unmounted, but the store could not be closed: {e}"),
            },
        };
        for stream in self
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .drain(..)
        {
            control::answer(&stream, &answer);
        }
        closed.map(drop)
    }

    /// Ends the process without waiting for those who use the mount still: whatever they have written is on the disk.
    fn leave(&self) -> ! {
        let closed = self.close();
        if let Err(error) = &closed {
            log::error!("closing the store: {error}");
        }
        std::process::exit(i32::from(closed.is_err()));
    }

    /// After an unmount: the kernel ends the mount at once, unless another mount namespace has a copy of it. That does not keep it alive:
    /// there, it is as if the disk had gone.
    fn leave_copies(self: &Arc<Self>) {
        let this = Arc::clone(self);
        let watch = move || {
            let served = this.served.0.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = this
                .served
                .1
                .wait_timeout_while(served, COPIES, |served| !*served);
            let has_ended = *waited.unwrap_or_else(PoisonError::into_inner).0;
            if !has_ended {
                log::warn!(
                    "another mount namespace holds a copy of the mount, which is dead from now on"
                );
                this.leave();
            }
        };
        if let Err(error) = std::thread::Builder::new()
            .name("teal-copies".into())
            .spawn(watch)
        {
            log::error!("a thread that waits for the end of the mount: {error}");
        }
    }

    /// A signal: the mount goes, whoever uses it.
    fn interrupted(self: &Arc<Self>) {
        if self.ending.swap(true, Ordering::AcqRel) {
            // The second signal: somebody is impatient. What was synced is safe; recovery does the rest.
            log::warn!("ending at once");
            std::process::exit(1);
        }
        if let Err(error) = self.unmounter.unmount(Unmount::IfIdle) {
            log::warn!("{error}; detaching");
            if let Err(error) = self.unmounter.unmount(Unmount::Detach) {
                log::error!("{error}");
            }
            // Whoever has files open goes on without them: the store is closed and the process ends.
            self.leave();
        }
        self.leave_copies();
    }

    fn asked(self: &Arc<Self>, stream: UnixStream) {
        match control::receive(&stream) {
            Ok(Ask::Status) => control::answer(&stream, &Answer::Status(Box::new(self.status()))),
            Ok(Ask::Set { key, value }) => {
                let store = self.client.store();
                let mut settings = store.settings();
                let done = config::set(&self.client, &mut settings, &key, value);
                store.set_settings(settings);
                self.client.settings_changed();
                control::answer(
                    &stream,
                    &done.map_or_else(
                        |error| Answer::Error { error },
                        |()| Answer::Done { ok: true },
                    ),
                );
            }
            Ok(Ask::Down) => {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                // Listed first: the end may come before this thread runs again.
                match self.unmounter.unmount(Unmount::IfIdle) {
                    Ok(()) => {
                        waiting.push(stream);
                        self.leave_copies();
                    }
                    Err(error) => {
                        let error = format!(
                            "{error}: a program has files open there or works in it (try `fuser -vm {}`)",
                            self.args.dir.display()
                        );
                        control::answer(&stream, &Answer::Error { error });
                    }
                }
            }
            Ok(Ask::Record {
                file,
                anonymous,
                seconds,
            }) => {
                let done = self
                    .record(&file, anonymous, seconds)
                    .map(|()| Answer::Done { ok: true });
                control::answer(
                    &stream,
                    &done.unwrap_or_else(|e| Answer::Error {
                        error: with_causes(&e),
                    }),
                );
            }
            Ok(Ask::RecordMark { text }) => {
                let done = if self.recordings.mark(&text) {
                    Answer::Done { ok: true }
                } else {
                    not_recorded()
                };
                control::answer(&stream, &done);
            }
            Ok(what @ (Ask::RecordProgress | Ask::RecordEnd)) => {
                let is_end = matches!(what, Ask::RecordEnd);
                let found = if is_end {
                    self.recordings.end()
                } else {
                    self.recordings.progress()
                };
                let done =
                    found.map_or_else(not_recorded, |recording| Answer::Recording { recording });
                control::answer(&stream, &done);
            }
            Ok(what) => {
                // These may wait for the server: others are answered meanwhile.
                let this = Arc::clone(self);
                let asked = move || {
                    let done = this.about_the_server(&what);
                    let done = done.unwrap_or_else(|e| Answer::Error {
                        error: with_causes(&e),
                    });
                    control::answer(&stream, &done);
                };
                if let Err(error) = std::thread::Builder::new()
                    .name("teal-asked".into())
                    .spawn(asked)
                {
                    log::error!("a thread for a request of the control socket: {error}");
                }
            }
            Err(error) => control::answer(
                &stream,
                &Answer::Error {
                    error: with_causes(&error),
                },
            ),
        }
    }

    fn stop_serving(&self) {
        let running = self
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(running) = running {
            running.stop();
        }
    }

    fn about_the_server(&self, what: &Ask) -> Result<Answer> {
        match what {
            Ask::Flush if !self.asks_server() => {
                let dir = shown(&self.args.dir);
                if !self.client.replica().is_some() {
                    let dir = quoted(&dir);
                    bail!(
                        "the volume on {dir} has no server to send anything to; give it one: teal serve {dir}"
                    );
                }
                bail!(
                    "nothing was sent to the server of {dir}: {}",
                    self.why_alone()
                );
            }
            Ask::Flush => self.flush_to_server().map_err(|e| match e {
                FsError::Unreachable(why) | FsError::Stuck(why) => {
                    anyhow!("not everything is at the server: {why}")
                }
                e => e.into(),
            })?,
            Ask::Conflicts => {
                return Ok(Answer::Conflicts {
                    conflicts: replica::conflicts(&self.client)?,
                });
            }
            Ask::Resolve { id } => {
                let replica = self.client.replica().ok_or(FsError::NotFound)?;
                replica.resolve_conflict(*id)?;
            }
            Ask::Pin { object } => {
                let Pinned {
                    files,
                    bytes,
                    missing,
                } = self.pinning()?.pin(ObjectNo::new(*object))?;
                return Ok(Answer::Pinned {
                    files,
                    bytes,
                    missing,
                });
            }
            Ask::Free { object } => {
                let Freed {
                    files,
                    bytes,
                    only_here,
                    only_here_bytes,
                } = self.pinning()?.free(ObjectNo::new(*object))?;
                return Ok(Answer::Freed {
                    files,
                    bytes,
                    stay: only_here,
                    stay_bytes: only_here_bytes,
                });
            }
            Ask::Token | Ask::Revoke { .. } | Ask::Readmit { .. } => {
                let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
                let serving = running
                    .as_ref()
                    .and_then(|running| running.serving.as_ref());
                let serving = serving.context("this volume is not served here")?;
                match what {
                    Ask::Revoke { replica } => serving.server.revoke(serving.volume(), *replica)?,
                    Ask::Readmit { replica } => {
                        serving.server.readmit(serving.volume(), *replica)?
                    }
                    _ => return serving.invitation(),
                }
            }
            _ => return self.drives.answer(what),
        }
        Ok(Answer::Done { ok: true })
    }

    fn record(self: &Arc<Self>, file: &Path, anonymous: bool, seconds: Option<u64>) -> Result<()> {
        let mount = Arc::downgrade(self);
        let ended = move || {
            if let Some(daemon) = mount.upgrade() {
                daemon.mount.watch(None);
            }
        };
        let around = (&*self.args.dir, &self.client);
        self.mount.watch(Some(self.recordings.start(
            file,
            (anonymous, seconds),
            self.mount.is_observed(),
            around,
            ended,
        )?));
        Ok(())
    }

    /// Whether this mount knows where the server of its volume is.
    fn asks_server(&self) -> bool {
        self.running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    /// Whether the server of its volume is in this process.
    fn is_served(&self) -> bool {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running
            .as_ref()
            .is_some_and(|running| running.serving.is_some())
    }

    /// Sends what only this machine has, if the volume has a server.
    fn flush_to_server(&self) -> Result<(), FsError> {
        self.client
            .replica()
            .map_or(Ok(()), |replica| replica.flush_upstream())
    }

    /// Returns what keeps and gives back content; a volume without a server keeps all of it.
    fn pinning(&self) -> Result<&Arc<Replica>, PinRefused> {
        self.client.replica().ok_or(PinRefused::Alone)
    }

    fn why_alone(&self) -> String {
        replica::why_alone(&self.args.path, self.client.store().is_read_only())
    }

    fn upstream(&self) -> Result<Option<UpstreamShown>, FsError> {
        let Some(replica) = self.client.replica() else {
            return Ok(None);
        };
        let status = replica.upstream_status()?;
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let serving = running
            .as_ref()
            .and_then(|running| running.serving.as_ref());
        let mut shown = replica::shown(&status, serving);
        if running.is_none() {
            shown.trouble = Some(self.why_alone());
        }
        Ok(Some(shown))
    }

    fn status(&self) -> Status {
        let store = self.client.store();
        let space = store.space();
        let (upstream, upstream_unknown) = match self.upstream() {
            Ok(upstream) => (upstream, None),
            Err(e) => (None, Some(e.to_string())),
        };
        let uuid: String = store
            .superblock()
            .uuid
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        Status {
            mount_point: self.args.dir.clone(),
            store: self.args.path.clone(),
            label: store.superblock().label.clone(),
            uuid,
            options: self.args.options.clone(),
            pid: std::process::id(),
            read_only: store.is_read_only(),
            failed: store.is_poisoned(),
            total_bytes: space.total,
            free_bytes: space.free,
            host_lacks_bytes: space.free_of_capacity - space.free,
            live_bytes: space.live,
            objects: space.objects,
            uncommitted: store.is_dirty(),
            orphans: store.orphans().map_or(0, |o| o.len() as u64),
            settings: config::list(&store.settings())
                .into_iter()
                .chain(config::priority(&self.client))
                .collect(),
            counters: store
                .counts()
                .each()
                .map(|(k, v)| (k.to_owned(), v))
                .collect(),
            requests: self.mount.requests(),
            uring: self.mount.is_over_rings(),
            syncfs: self.is_on_device,
            recording: self.recordings.progress(),
            upstream,
            upstream_unknown,
            drives: {
                let here = self
                    .client
                    .replica()
                    .map_or_else(Vec::new, |replica| replica.drives_here())
                    .into_iter();
                here.map(|(name, place, queued)| DriveHere {
                    name,
                    place,
                    queued,
                })
                .collect()
            },
        }
    }
}
