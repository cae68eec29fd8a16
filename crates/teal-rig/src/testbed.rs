//! Where a run takes place: a device, a file system made on it, a mount. All of it goes when it is
//! dropped.

use crate::command::{found, run, teal, this};
use crate::disk::RequestSums;
use crate::ownership;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use teal_command::mount_table;
use teal_env::{Clock as _, SystemClock, Timer as _};
use teal_study::matrix::{Cache, Kind, Meter, Spent, System};

/// How long another process may use what is to be unmounted, and how often unmounting is tried.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);

/// Refuses a kind of file system that cannot be made and mounted here.
///
/// # Errors
/// Its mkfs is not installed, or the kernel lacks it.
pub fn check_kind(kind: Kind) -> Result<()> {
    if kind.is_ours() {
        return Ok(());
    }
    let mkfs = format!("mkfs.{}", kind.name());
    if found(&mkfs).is_none() {
        bail!("{mkfs} is not installed");
    }
    if !kernel_has(kind) {
        bail!("this kernel has no {}", kind.name());
    }
    Ok(())
}

/// Returns whether this machine's kernel has the file system, or has a module of it.
pub fn kernel_has(kind: Kind) -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let wanted = format!("fs-{}", kind.name());
    let module =
        || found("modprobe").is_some_and(|at| run(&at, &["--dry-run", "--quiet", &wanted]).is_ok());
    known
        .lines()
        .any(|line| line.split_whitespace().last() == Some(kind.name()))
        || module()
}

/// Refuses what is no block device, or one that is in use.
///
/// # Errors
/// Why it is refused.
pub fn check_device(path: &Path) -> Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    let meta = std::fs::metadata(path).with_context(|| path.display().to_string())?;
    if !meta.file_type().is_block_device() {
        bail!("{} is no block device", path.display());
    }
    // Mounted, part of something else, or swap: then it cannot be opened for oneself.
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::EXCL | rustix::fs::OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, rustix::fs::Mode::empty()) {
        Ok(_) => Ok(()),
        Err(e @ (rustix::io::Errno::PERM | rustix::io::Errno::ACCESS)) => {
            bail!(
                "{} may not be opened here ({e}): neither by this user nor in this container, perhaps; say another device",
                path.display()
            )
        }
        Err(rustix::io::Errno::BUSY) => {
            bail!("{} is in use; unmount what is on it first", path.display())
        }
        Err(e) => Err(e).with_context(|| path.display().to_string()),
    }
}

/// Returns how many bytes a device has.
///
/// # Errors
/// It cannot be opened.
pub fn size_of(path: &Path) -> Result<u64> {
    use std::io::Seek as _;
    let device = std::fs::OpenOptions::new().read(true).open(path);
    device
        .and_then(|mut device| device.seek(std::io::SeekFrom::End(0)))
        .with_context(|| path.display().to_string())
}

/// A device for one run: a modelled disk that lives as long as this does, or a real one.
pub struct Testbed {
    path: PathBuf,
    /// The name of a modelled disk, and its profile.
    modelled: Option<(String, String)>,
}

impl Testbed {
    /// A modelled disk of its own.
    pub fn modelled(profile: &str, size: u64) -> Result<Self> {
        // Each has its own name, so that one that another process still holds is not in the way.
        static MADE: AtomicU64 = AtomicU64::new(0);
        let name = ownership::disk(
            ownership::token(),
            &MADE.fetch_add(1, Ordering::Relaxed).to_string(),
        );
        let path = this(&[
            "disk",
            "start",
            "--profile",
            profile,
            "--size",
            &size.to_string(),
            &name,
        ])?;
        Ok(Self {
            path: path.into(),
            modelled: Some((name, profile.to_owned())),
        })
    }

    /// A real device.
    pub fn real(path: &Path) -> Result<Self> {
        check_device(path)?;
        Ok(Self {
            path: path.to_owned(),
            modelled: None,
        })
    }

    /// Returns what measures joules here: the model of a modelled disk, or nothing.
    pub fn meter(&self) -> Meter {
        self.modelled
            .as_ref()
            .map_or(Meter::None, |(_, profile)| Meter::Model(profile.clone()))
    }

    /// The schedulers that the device has, the one it is under first.
    pub fn schedulers(&self) -> Result<Vec<String>> {
        let file = self.queue("queue/scheduler")?;
        let known = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let mut names: Vec<&str> = known.split_whitespace().collect();
        names.sort_by_key(|name| !name.starts_with('['));
        Ok(names
            .into_iter()
            .map(|name| name.trim_matches(['[', ']']).to_owned())
            .collect())
    }

    /// Sets the scheduler, after a look whether the device has all that will be wanted.
    pub fn schedule(&self, scheduler: &str, wanted: &[String]) -> Result<()> {
        let file = self.queue("queue/scheduler")?;
        self.check_schedulers(wanted)?;
        std::fs::write(&file, scheduler).with_context(|| file.display().to_string())
    }

    /// Checks whether the device has these schedulers.
    pub fn check_schedulers(&self, wanted: &[String]) -> Result<()> {
        let names = self.schedulers()?;
        if let Some(missing) = wanted.iter().find(|name| !names.contains(name)) {
            bail!(
                "{} has no scheduler {missing}; it has {}",
                self.path.display(),
                names.join(", ")
            );
        }
        Ok(())
    }

    /// A file that the kernel has of this device, or of the disk it is a partition of.
    fn queue(&self, file: &str) -> Result<PathBuf> {
        let name = self
            .path
            .file_name()
            .with_context(|| self.path.display().to_string())?;
        let of = Path::new("/sys/class/block").join(name);
        let here = of.join(file);
        if here.exists() {
            return Ok(here);
        }
        let disk = std::fs::canonicalize(&of)
            .ok()
            .and_then(|path| Some(path.parent()?.join(file)));
        disk.filter(|path| path.exists())
            .with_context(|| format!("{} has no {file}", self.path.display()))
    }

    /// Its block device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what a modelled disk says of the time since the mark.
    pub fn since_mark(&self) -> Result<serde_json::Value> {
        let (name, _) = self
            .modelled
            .as_ref()
            .context("a real device has no account")?;
        let mut said: serde_json::Value =
            serde_json::from_str(&this(&["disk", "stat", name, "--json"])?)?;
        Ok(said["since_mark"].take())
    }

    /// From here on is counted anew.
    pub fn mark(&self) -> Result<Spent> {
        if let Some((name, _)) = &self.modelled {
            this(&["disk", "mark", name, "run"])?;
            return Ok(Spent::default());
        }
        self.spent()
    }

    /// Returns what the device has done since the mark; of a real one, since it was there.
    pub fn spent(&self) -> Result<Spent> {
        if self.modelled.is_none() {
            return self.counted();
        }
        let of: RequestSums = serde_json::from_value(self.since_mark()?)
            .context("the disk's answer cannot be understood")?;
        Ok((&of).into())
    }

    /// Of a modelled disk: seconds of its time since the mark, and the mean watts around them.
    pub fn power(&self) -> Result<Vec<[f64; 2]>> {
        if self.modelled.is_none() {
            return Ok(Vec::new());
        }
        let sums: RequestSums = serde_json::from_value(self.since_mark()?)
            .context("the disk's answer cannot be understood")?;
        Ok(sums.watts())
    }

    /// The kernel's own counts (Documentation/block/stat.rst): sectors read and written,
    /// milliseconds at work, flushes.
    fn counted(&self) -> Result<Spent> {
        let file = self.queue("stat")?;
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let fields: Vec<u64> = text
            .split_whitespace()
            .filter_map(|field| field.parse().ok())
            .collect();
        let at = |n: usize| fields.get(n).copied().unwrap_or(0);
        let (read, written) = (at(2) * 512, at(6) * 512);
        Ok(Spent {
            joules: 0.0,
            busy: at(9) as f64 / 1e3,
            read,
            written,
            flushes: at(15),
            seeks: 0,
        })
    }

    /// A new file system on all of it.
    pub fn make(&self, system: &System) -> Result<()> {
        let device = self
            .path
            .to_str()
            .with_context(|| self.path.display().to_string())?;
        let more = system.format();
        let args: Vec<&str> = more.iter().map(String::as_str).chain([device]).collect();
        if system.kind.is_ours() {
            return teal(&[&["mkfs"], &args[..]].concat()).map(drop);
        }
        let name = format!("mkfs.{}", system.kind.name());
        run(
            &found(&name).with_context(|| format!("{name} is not installed"))?,
            &args,
        )
        .map(drop)
    }

    /// Mounts it. `sync`: whatever is written waits for the device.
    pub fn mount(&self, system: &System, dir: &Path, cache: Cache) -> Result<Mounted> {
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        let (device, point) = (self.path.display().to_string(), dir.display().to_string());
        let mut options = system.mount.clone();
        if cache == Cache::Sync {
            options = if options.is_empty() {
                "sync".into()
            } else {
                options + ",sync"
            };
        }
        let mut args = vec![];
        if !options.is_empty() {
            args.extend(["-o", &options]);
        }
        if system.kind.is_ours() {
            if cache == Cache::Sync {
                bail!("teal cannot be mounted with sync; say cache = \"cold\"");
            }
            teal(&[&["mount"], &args[..], &[&device, &point]].concat())?;
        } else {
            if system.kind == Kind::Nilfs2 {
                // Without its helper, which would start a cleaner.
                args.push("-i");
            }
            run(
                Path::new("mount"),
                &[&["-t", system.kind.name()], &args[..], &[&device, &point]].concat(),
            )?;
        }
        Ok(Mounted {
            dir: dir.to_owned(),
            is_ours: system.kind.is_ours(),
            is_there: true,
        })
    }
}

impl From<&RequestSums> for Spent {
    fn from(of: &RequestSums) -> Self {
        Self {
            joules: of.microjoules as f64 / 1e6,
            busy: of.elapsed_ns as f64 / 1e9,
            read: of.bytes_read,
            written: of.bytes_written,
            flushes: of.flushes,
            seeks: of.seeks,
        }
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if let Some((name, _)) = &self.modelled
            && let Err(error) = this(&["disk", "stop", name])
        {
            log::warn!("{error:#}");
        }
    }
}

/// A mounted file system.
pub struct Mounted {
    dir: PathBuf,
    is_ours: bool,
    is_there: bool,
}

impl Mounted {
    /// Writes everything and takes the mount away.
    pub fn end(mut self) -> Result<()> {
        self.is_there = false;
        self.unmount()
    }

    fn unmount(&self) -> Result<()> {
        let deadline = SystemClock.monotonic() + PATIENCE;
        loop {
            let point = self.dir.display().to_string();
            let done = if self.is_ours {
                teal(&["down", &point])
            } else {
                run(Path::new("umount"), &[&point])
            };
            match done {
                // Another process looks at it, as mkfs.xfs looks at every mount. What else keeps it
                // mounted is said in the end.
                Err(_) if self.is_mounted() && SystemClock.monotonic() < deadline => {
                    SystemClock.wait_until(SystemClock.monotonic() + PAUSE);
                }
                done => return done.map(drop),
            }
        }
    }

    fn is_mounted(&self) -> bool {
        let is_here =
            |mounts: Vec<mount_table::Mount>| mounts.iter().any(|mount| mount.point == self.dir);
        mount_table::all().is_ok_and(is_here)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_there
            && let Err(error) = self.unmount()
        {
            log::warn!("{error:#}");
        }
    }
}
