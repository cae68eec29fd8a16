//! Runs the process behind a modelled disk: the model, its file system, and the loop device over
//! it.
//!
//! # How it ends
//! 1. `teal lab disk stop` is refused while something is mounted from the device. Then the device
//!    goes, its last data is written, and the file system goes with it.
//! 2. SIGTERM and SIGINT do the same, but requests to the device are served until it is closed. The
//!    second signal ends at once.
//! 3. A killed process leaves the mount and, if it is in use, the device behind, dead. The next
//!    `start` or `stop` of the name clears them away.

use super::backing::DiskBacking;
use super::report::{DiskReport, RequestSums};
use super::start::DiskStart;
use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use teal_command::READY;
use teal_command::say::say;
use teal_emulator::{
    EmulatedDisk, EmulationPace, EmulationSetup, ImageFs, ImageOwner, VirtualClock,
};
use teal_env::{Clock as _, SystemClock};
use teal_fuse::{FuseMountOptions, FuseSession, LoopDevice, UnmountHandle, UnmountMode};
use teal_types::TimeSpan;

/// Bytes of a sector as the kernel sees it.
const LOGICAL: u32 = 512;
/// Largest request in KiB. With at most 128 segments it fits one FUSE request of 256 pages, however
/// they are aligned.
const LARGEST_KB: &str = "512";

struct DiskDaemon {
    disk: EmulatedDisk<DiskBacking>,
    /// Constant part of the report.
    report: DiskReport,
    unmounter: UnmountHandle,
    device: Mutex<Option<LoopDevice>>,
    path: OnceLock<std::path::PathBuf>,
    is_ending: AtomicBool,
}

/// Serves a disk until it is stopped.
pub(super) fn serve_disk(args: &DiskStart, setup: EmulationSetup, dir: &Path) -> Result<ExitCode> {
    match start_session(args, &setup, dir)
        .and_then(|(daemon, session)| run_session(&Arc::new(daemon), &session))
    {
        Ok(()) => {
            let _ = std::fs::remove_dir(dir);
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            say!("{}", format!("{error:#}").replace('\n', " "));
            Ok(ExitCode::FAILURE)
        }
    }
}

fn start_session(
    args: &DiskStart,
    setup: &EmulationSetup,
    dir: &Path,
) -> Result<(DiskDaemon, FuseSession)> {
    // Requests of the device must not wait for memory that only their service would free.
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        log::warn!("under memory pressure, requests may wait for each other: {error}");
    }
    // In virtual time requests are answered at once, and only the clock goes on.
    let pace = if args.real_time {
        EmulationPace::real_time(Arc::new(SystemClock))
    } else {
        EmulationPace::Virtual(VirtualClock::default())
    };
    let disk = args.model.emulate(setup, &args.name, pace)?;
    let report = DiskReport {
        name: args.name.clone(),
        pid: i32::try_from(std::process::id()).context("a process number")?,
        device: std::path::PathBuf::new(),
        modelled_by: setup.profile().name.clone(),
        assumed: setup.assumptions().to_vec(),
        bytes: args.model.size,
        write_cache_bytes: setup.profile().electronics.write_cache.get(),
        real_time: args.real_time,
        state: String::new(),
        unwritten_bytes: 0,
        cycles: 0,
        log: args.model.log.clone(),
        log_records: 0,
        log_error: None,
        total: RequestSums::default(),
        mark: None,
        since_mark: RequestSums::default(),
    };
    let options = FuseMountOptions {
        source: format!("disk-{}", args.name),
        ..FuseMountOptions::default()
    };
    // The unmounter is taken here, because the session is lent to its thread later.
    let session = FuseSession::mount(
        dir,
        &options,
        &ImageFs::<DiskBacking, DiskDaemon>::init_config(),
    )?;
    let unmounter = session.unmount_handle().context("a mount without an end")?;
    let (device, path, is_ending) = (Mutex::default(), OnceLock::new(), AtomicBool::new(false));
    Ok((
        DiskDaemon {
            disk,
            report,
            unmounter,
            device,
            path,
            is_ending,
        },
        session,
    ))
}

fn run_session(daemon: &Arc<DiskDaemon>, session: &FuseSession) -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).context("signals")?;
    let for_signals = Arc::clone(daemon);
    // Signals are taken by a thread of their own, so that closing the device can go on.
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || signals.forever().for_each(|_| for_signals.on_signal()))?;
    std::thread::scope(|scope| {
        let serve = || ImageFs::run(session, &daemon.disk, &**daemon, SystemClock.civil_time());
        let served = std::thread::Builder::new()
            .name("requests".to_owned())
            .spawn_scoped(scope, serve)?;
        // The disk is served from here on: the kernel opens the file for the device.
        let attached = daemon.attach_device();
        if attached.is_err() {
            daemon.take_down();
        }
        let ended = served
            .join()
            .map_err(|_| anyhow::anyhow!("the thread that serves requests panicked"))?;
        // The log is written after the last request, whatever the outcome.
        daemon.disk.flush_log();
        attached.and(ended.context("serving the disk"))
    })
}

impl DiskDaemon {
    /// Makes the device, sets it up as the drive it stands for, and tells the parent.
    fn attach_device(&self) -> Result<()> {
        // Direct requests reach the disk without a second page cache.
        let device =
            LoopDevice::attach_file_direct(&self.unmounter.mount_point().join("disk.img"), LOGICAL)
                .context("no loop device over the modelled disk")?;
        let has_cache = self.report.write_cache_bytes > 0;
        let settings = [
            ("max_sectors_kb", LARGEST_KB),
            ("rotational", "1"),
            ("discard_max_bytes", "0"),
            // Without a cache the kernel need not flush, and knows it.
            (
                "write_cache",
                if has_cache {
                    "write back"
                } else {
                    "write through"
                },
            ),
        ];
        for (setting, value) in settings {
            device
                .set_queue(setting, value)
                .with_context(|| format!("setting {setting} of {}", device.path().display()))?;
        }
        let path = device.path().to_owned();
        *self.device.lock().unwrap_or_else(PoisonError::into_inner) = Some(device);
        let path = self.path.get_or_init(|| path);
        let mut out = std::io::stdout();
        writeln!(out, "{READY} {}", path.display())
            .and_then(|()| out.flush())
            .context("the parent does not listen")?;
        // A session of its own: Ctrl-C in the starter's terminal is not for the disk.
        let _ = rustix::process::setsid();
        Ok(())
    }

    /// Takes the device and the mount away, as soon as they are unused.
    fn take_down(&self) {
        // Closing the device writes its dirty data, which another thread serves meanwhile.
        drop(
            self.device
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        if let Err(error) = self.unmounter.unmount(UnmountMode::Detach) {
            log::error!("{error}");
        }
    }

    fn on_signal(&self) {
        // A second signal means that the first one takes too long.
        if self.is_ending.swap(true, Ordering::AcqRel) {
            log::warn!("ending at once");
            std::process::exit(1);
        }
        self.take_down();
    }
}

impl ImageOwner for DiskDaemon {
    fn stat_text(&self) -> Vec<u8> {
        // Only sums and state change; the rest was filled in at the start.
        let mut report = self.report.clone();
        report.device = self.path.get().cloned().unwrap_or_default();
        report.fill_in(&self.disk.snapshot(), self.disk.model());
        serde_json::to_vec(&report).unwrap_or_default()
    }

    fn run_command(&self, command: &str) -> Result<(), Errno> {
        let (word, rest) = command.split_once(' ').unwrap_or((command, ""));
        match word {
            "mark" => self.disk.set_mark(rest),
            "sleep" => {
                // The command returns when the disk is at rest.
                let ticket = self.disk.put_to_sleep();
                self.disk.wait_for(ticket);
            }
            "idle" => self.disk.pass_idle_time(TimeSpan::from_nanos(
                rest.parse().map_err(|_| Errno::INVAL)?,
            )),
            "stop" => {
                let path = self.path.get().ok_or(Errno::AGAIN)?;
                // A mount holds the device exclusively, so an exclusive open finds it.
                rustix::fs::open(
                    path,
                    OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC,
                    Mode::empty(),
                )?;
                self.take_down();
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }
}
