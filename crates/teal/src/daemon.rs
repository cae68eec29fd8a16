//! The process that serves one mount: store, client, kernel, control socket, signals.
//!
//! # How it ends
//! 1. `umount`, `teal down` or a signal takes the mount away; the workers return; everything is committed, checkpointed and closed.
//! 2. `teal down` is answered only after that. When files are open, it is refused; a signal detaches the mount and does not wait for them.

use crate::cli::Mount as Args;
use crate::config;
use crate::control::{self, Answer, Ask, DriveHere, Listener, Status, UpstreamShown};
use crate::drives::Drives;
use crate::launch::READY;
use crate::options::MountOptions;
use crate::recording::Recordings;
use crate::replica::{self, Running};
use crate::say::say;
use anyhow::{Context, Result, anyhow};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Write;
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use teal_client::{AtimePolicy, Client, ClientOptions, Freed, FsError, Pinned, UpstreamOptions};
use teal_device::Drive;
use teal_env::{Clock, FileDisk, OpenMode, SystemClock};
use teal_fuse::{Unmount, Unmounter};
use teal_log::{OpenOptions, Recovery, Store};
use teal_mount::{Mount, MountSettings};
use teal_types::ObjectNo;

/// Threads of a mount whose requests may wait for the server: others are to be answered meanwhile.
const WAITING: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");

struct Daemon {
    args: Args,
    client: Arc<Client>,
    mount: Mount,
    unmounter: Unmounter,
    /// Those who asked for the end and wait for the answer.
    waiting: Mutex<Vec<UnixStream>>,
    ending: AtomicBool,
    recordings: Recordings,
    /// What talks to the server; taken at the end.
    running: Mutex<Option<Running>>,
    drives: Arc<Drives>,
}

/// Opens the store, mounts it and serves until the mount is gone.
pub(crate) fn serve(args: &Args, options: MountOptions) -> Result<ExitCode> {
    match start(args, options) {
        Ok((daemon, listener)) => {
            if args.tell {
                let mut out = std::io::stdout();
                writeln!(out, "{READY}").and_then(|()| out.flush()).context("the parent does not listen")?;
                let _ = rustix::process::setsid();
            } else {
                log::info!("serving {} on {}; end with Ctrl-C or `teal down`", args.path.display(), args.dir.display());
            }
            run(&Arc::new(daemon), listener)
        }
        Err(error) if args.tell => {
            say!("{}", format!("{error:#}").replace('\n', " "));
            Ok(ExitCode::FAILURE)
        }
        Err(error) => Err(error),
    }
}

fn start(args: &Args, options: MountOptions) -> Result<(Daemon, Listener)> {
    let mode = if options.read_only { OpenMode::Read } else { OpenMode::Write };
    let disk = Arc::new(FileDisk::open(&args.path, mode)?);
    let clock = Arc::new(SystemClock);
    let how = OpenOptions { read_only: options.read_only, salvage: options.salvage, settings: options.settings };
    let (store, recovery) = Store::open(disk.clone(), clock.clone(), how)
        .with_context(|| format!("cannot open {}", args.path.display()))?;
    told(args, &recovery);
    if Drive::is_one(&store) {
        return Err(anyhow!("{} is a drive: `teal device attach` uses it beside a mount", args.path.display()));
    }
    let listener = Listener::bind(&args.dir)?;
    let atime = if options.noatime { AtimePolicy::Noatime } else { AtimePolicy::Relatime };
    let how = ClientOptions { atime, ..ClientOptions::default() };
    let clock: Arc<dyn Clock> = clock;
    let running = if options.read_only { None } else { replica::start(&args.path, &clock, options.delay)? };
    let client = match &running {
        Some(running) => {
            let upstream = Arc::clone(&running.upstream);
            let defaults = UpstreamOptions::default();
            let flush_age = options.flush_age.unwrap_or(defaults.flush_age);
            let (sync_remote, queue) = (options.sync_remote, options.queue);
            let of_upstream = (running.joins, UpstreamOptions { flush_age, sync_remote, queue, ..defaults });
            Client::replica(store, clock, how, upstream, &running.device, of_upstream)?
        }
        None => Client::new(store, clock, how)?,
    };
    let settings = MountSettings {
        source: args.path.clone(),
        syncfs: options.syncfs,
        read_only: options.read_only,
        nosuid: options.nosuid,
        nodev: options.nodev,
        noexec: options.noexec,
        noatime: options.noatime,
        threads: if client.is_replica() { options.threads.max(WAITING) } else { options.threads },
        uring: options.uring,
        observed: options.observed,
    };
    if options.syncfs {
        // The kernel's claim on the device, which comes with the mount, takes the place of ours.
        disk.release_claim();
    }
    let mount = Mount::new(Arc::clone(&client), &args.dir, settings)?;
    let unmounter = mount.unmounter();
    let drives = Arc::new(Drives::new(&client, &args.path)?);
    let args = Args { path: args.path.clone(), dir: args.dir.clone(), options: Vec::new(), ..*args };
    Ok((
        Daemon {
            args,
            client,
            mount,
            unmounter,
            waiting: Mutex::default(),
            ending: AtomicBool::new(false),
            recordings: Recordings::default(),
            running: Mutex::new(running),
            drives,
        },
        listener,
    ))
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
    named("teal-signals").spawn(move || signals.forever().for_each(|_| for_signals.interrupted()))?;
    let for_control = Arc::clone(daemon);
    let socket = listener.socket.try_clone().context("control socket")?;
    named("teal-control").spawn(move || {
        for stream in socket.incoming().flatten() {
            for_control.asked(stream);
        }
    })?;
    let served = daemon.mount.run();
    daemon.recordings.end();
    let closed = daemon.client.shutdown();
    daemon.stop_serving();
    drop(listener);
    let answer = match &closed {
        Ok(_) => Answer::Done { ok: true },
        Err(e) => Answer::Error { error: format!("unmounted, but the store could not be closed: {e}") },
    };
    for stream in daemon.waiting.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        control::answer(&stream, &answer);
    }
    served?;
    closed.context("closing the store")?;
    Ok(ExitCode::SUCCESS)
}

fn not_recorded() -> Answer {
    Answer::Error { error: "nothing is being recorded".into() }
}

impl Daemon {
    /// A signal: the mount goes, whoever uses it.
    fn interrupted(&self) {
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
            self.recordings.end();
            // Whoever has files open goes on without them: the store is closed and the process ends.
            let closed = self.client.shutdown();
            self.stop_serving();
            if let Err(error) = &closed {
                log::error!("closing the store: {error}");
            }
            std::process::exit(i32::from(closed.is_err()));
        }
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
                    &done.map_or_else(|error| Answer::Error { error }, |()| Answer::Done { ok: true }),
                );
            }
            Ok(Ask::Down) => {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                // Listed first: the end may come before this thread runs again.
                match self.unmounter.unmount(Unmount::IfIdle) {
                    Ok(()) => waiting.push(stream),
                    Err(error) => {
                        let error = format!(
                            "{error}: a program has files open there or works in it (try `fuser -vm {}`)",
                            self.args.dir.display()
                        );
                        control::answer(&stream, &Answer::Error { error });
                    }
                }
            }
            Ok(Ask::Record { file, anonymous, seconds }) => {
                let done = self.record(&file, anonymous, seconds).map(|()| Answer::Done { ok: true });
                control::answer(&stream, &done.unwrap_or_else(|e| Answer::Error { error: format!("{e:#}") }));
            }
            Ok(Ask::RecordMark { text }) => {
                let done = if self.recordings.mark(&text) { Answer::Done { ok: true } } else { not_recorded() };
                control::answer(&stream, &done);
            }
            Ok(what @ (Ask::RecordProgress | Ask::RecordEnd)) => {
                let is_end = matches!(what, Ask::RecordEnd);
                let found = if is_end { self.recordings.end() } else { self.recordings.progress() };
                let done = found.map_or_else(not_recorded, |recording| Answer::Recording { recording });
                control::answer(&stream, &done);
            }
            Ok(what) => {
                // These may wait for the server: others are answered meanwhile.
                let this = Arc::clone(self);
                let asked = move || {
                    let done = this.about_the_server(&what);
                    let done = done.unwrap_or_else(|e| Answer::Error { error: format!("{e:#}") });
                    control::answer(&stream, &done);
                };
                if let Err(error) = std::thread::Builder::new().name("teal-asked".into()).spawn(asked) {
                    log::error!("a thread for a request of the control socket: {error}");
                }
            }
            Err(error) => control::answer(&stream, &Answer::Error { error: format!("{error:#}") }),
        }
    }

    fn stop_serving(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(running) = running {
            running.stop();
        }
    }

    fn about_the_server(&self, what: &Ask) -> Result<Answer> {
        match what {
            Ask::Flush => self.client.flush_upstream().map_err(|e| match e {
                FsError::Unreachable(why) => anyhow!("not everything is at the server: {why}"),
                e => e.into(),
            })?,
            Ask::Conflicts => return Ok(Answer::Conflicts { conflicts: replica::conflicts(&self.client)? }),
            Ask::Resolve { id } => self.client.resolve_conflict(*id)?,
            Ask::Pin { object } => {
                let Pinned { files, bytes, missing } = self.client.pin(ObjectNo::new(*object))?;
                return Ok(Answer::Pinned { files, bytes, missing });
            }
            Ask::Free { object } => {
                let Freed { files, bytes, only_here, only_here_bytes } = self.client.free(ObjectNo::new(*object))?;
                return Ok(Answer::Freed { files, bytes, stay: only_here, stay_bytes: only_here_bytes });
            }
            Ask::Token | Ask::Revoke { .. } => {
                let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
                let serving = running.as_ref().and_then(|running| running.serving.as_ref());
                let serving = serving.context("this volume is not served here")?;
                match what {
                    Ask::Revoke { replica } => serving.server.revoke(serving.volume(), *replica)?,
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

    fn upstream(&self) -> Option<UpstreamShown> {
        let status = self.client.upstream_status().ok().flatten()?;
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let serving = running.as_ref().and_then(|running| running.serving.as_ref());
        Some(replica::shown(&status, serving))
    }

    fn status(&self) -> Status {
        let store = self.client.store();
        let space = store.space();
        let uuid: String = store.superblock().uuid.iter().map(|b| format!("{b:02x}")).collect();
        Status {
            mount_point: self.args.dir.clone(),
            store: self.args.path.clone(),
            label: store.superblock().label.clone(),
            uuid,
            pid: std::process::id(),
            read_only: store.is_read_only(),
            failed: store.is_poisoned(),
            total_bytes: space.total,
            free_bytes: space.free,
            live_bytes: space.live,
            objects: space.objects,
            uncommitted: store.is_dirty(),
            orphans: store.orphans().map_or(0, |o| o.len() as u64),
            settings: config::list(&store.settings()).into_iter().chain(config::priority(&self.client)).collect(),
            counters: store.counts().each().map(|(k, v)| (k.to_owned(), v)).collect(),
            requests: self.mount.requests(),
            uring: self.mount.is_over_rings(),
            recording: self.recordings.progress(),
            upstream: self.upstream(),
            drives: {
                let here = self.client.drives_here().into_iter();
                here.map(|(name, place, queued)| DriveHere { name, place, queued }).collect()
            },
        }
    }
}
