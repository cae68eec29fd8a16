//! Provides the testbed of a run: a device, a file system made on it, a mount. All of it goes when
//! it is dropped.

use crate::command::{find_program, run_program, run_self, run_teal};
use crate::disk::RequestSums;
use crate::ownership;
use crate::path_context::PathContext as _;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use teal_command::mount_table;
use teal_env::{Clock as _, SystemClock, Timer as _};
use teal_study::matrix::{CacheState, DeviceUse, EnergySource, FileSystemKind, FileSystemSetup};

/// Time that another process may use what is to be unmounted, and time between attempts.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);

/// Refuses a kind of file system that cannot be made and mounted here.
///
/// # Errors
/// Returns an error if its mkfs is not installed, or the kernel lacks it.
pub fn check_kind(kind: FileSystemKind) -> Result<()> {
    if kind.is_ours() {
        return Ok(());
    }
    let mkfs = format!("mkfs.{}", kind.name());
    if find_program(&mkfs).is_none() {
        bail!("{mkfs} is not installed");
    }
    if !kernel_has(kind) {
        bail!("this kernel has no {}", kind.name());
    }
    Ok(())
}

/// Returns whether this machine's kernel has the file system, or has a module of it.
pub fn kernel_has(kind: FileSystemKind) -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let wanted = format!("fs-{}", kind.name());
    // A module is looked for without loading it.
    let module = || {
        find_program("modprobe")
            .is_some_and(|at| run_program(&at, &["--dry-run", "--quiet", &wanted]).is_ok())
    };
    known
        .lines()
        .any(|line| line.split_whitespace().last() == Some(kind.name()))
        || module()
}

/// Refuses a path that is no block device, or one that is in use.
///
/// # Errors
/// Returns the reason why it is refused.
pub fn check_device(path: &Path) -> Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    let meta = std::fs::metadata(path).at_path(path)?;
    if !meta.file_type().is_block_device() {
        bail!("{} is no block device", path.display());
    }
    // A device that is mounted, part of something else, or swap cannot be opened exclusively.
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::EXCL | rustix::fs::OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, rustix::fs::Mode::empty()) {
        Ok(_) => Ok(()),
        Err(e @ (rustix::io::Errno::PERM | rustix::io::Errno::ACCESS)) => {
            bail!(
                "{} may not be opened here ({e}): neither by this user nor in this container, \
                 perhaps; say another device",
                path.display()
            )
        }
        Err(rustix::io::Errno::BUSY) => {
            bail!("{} is in use; unmount what is on it first", path.display())
        }
        Err(e) => Err(e).at_path(path),
    }
}

/// Returns the number of bytes of a device.
///
/// # Errors
/// Returns an error if it cannot be opened.
pub fn device_size(path: &Path) -> Result<u64> {
    use std::io::Seek as _;
    let device = std::fs::OpenOptions::new().read(true).open(path);
    device
        .and_then(|mut device| device.seek(std::io::SeekFrom::End(0)))
        .at_path(path)
}

/// Holds a device for one run: a modelled disk that lives as long as this does, or a real one.
pub struct Testbed {
    path: PathBuf,
    /// Name of a modelled disk, and its profile.
    modelled: Option<(String, String)>,
}

impl Testbed {
    /// Starts a modelled disk of its own.
    pub fn start_modelled(profile: &str, size: u64) -> Result<Self> {
        // Each has its own name, so that one that another process still holds is not in the way.
        static MADE: AtomicU64 = AtomicU64::new(0);
        let name = ownership::disk_name(
            ownership::process_token(),
            &MADE.fetch_add(1, Ordering::Relaxed).to_string(),
        );
        let path = run_self(&[
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

    /// Opens a real device.
    pub fn open_real(path: &Path) -> Result<Self> {
        check_device(path)?;
        Ok(Self {
            path: path.to_owned(),
            modelled: None,
        })
    }

    /// Returns the source of joules: the model of a modelled disk, or none.
    pub fn energy_source(&self) -> EnergySource {
        self.modelled
            .as_ref()
            .map_or(EnergySource::None, |(_, profile)| {
                EnergySource::Model(profile.clone())
            })
    }

    /// Returns the schedulers that the device has, the current one first.
    pub fn schedulers(&self) -> Result<Vec<String>> {
        let file = self.sysfs_file("queue/scheduler")?;
        let known = std::fs::read_to_string(&file).at_path(&file)?;
        // The kernel puts the current one into brackets.
        let mut names: Vec<&str> = known.split_whitespace().collect();
        names.sort_by_key(|name| !name.starts_with('['));
        Ok(names
            .into_iter()
            .map(|name| name.trim_matches(['[', ']']).to_owned())
            .collect())
    }

    /// Sets the scheduler, after a check that the device has all that will be wanted.
    pub fn set_scheduler(&self, scheduler: &str, wanted: &[String]) -> Result<()> {
        let file = self.sysfs_file("queue/scheduler")?;
        self.check_schedulers(wanted)?;
        std::fs::write(&file, scheduler).at_path(&file)
    }

    /// Checks that the device has these schedulers.
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

    /// Returns a file that the kernel has of this device, or of the disk it is a partition of.
    fn sysfs_file(&self, file: &str) -> Result<PathBuf> {
        let name = self.path.file_name().at_path(&self.path)?;
        let of = Path::new("/sys/class/block").join(name);
        let here = of.join(file);
        if here.exists() {
            return Ok(here);
        }
        // A partition has no queue of its own; its disk is the directory above.
        let disk = std::fs::canonicalize(&of)
            .ok()
            .and_then(|path| Some(path.parent()?.join(file)));
        disk.filter(|path| path.exists())
            .with_context(|| format!("{} has no {file}", self.path.display()))
    }

    /// Returns its block device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the report of a modelled disk since the mark.
    pub fn since_mark(&self) -> Result<serde_json::Value> {
        let (name, _) = self
            .modelled
            .as_ref()
            .context("a real device has no account")?;
        let mut said: serde_json::Value =
            serde_json::from_str(&run_self(&["disk", "stat", name, "--json"])?)?;
        Ok(said["since_mark"].take())
    }

    /// Starts counting anew.
    pub fn set_mark(&self) -> Result<DeviceUse> {
        if let Some((name, _)) = &self.modelled {
            run_self(&["disk", "mark", name, "run"])?;
            return Ok(DeviceUse::default());
        }
        self.device_use()
    }

    /// Returns the work of the device since the mark; of a real one, since it was there.
    pub fn device_use(&self) -> Result<DeviceUse> {
        if self.modelled.is_none() {
            return self.kernel_counts();
        }
        let of: RequestSums = serde_json::from_value(self.since_mark()?)
            .context("the disk's answer cannot be understood")?;
        Ok((&of).into())
    }

    /// Returns seconds of a modelled disk's time since the mark, and the mean watts around them.
    pub fn watts_over_time(&self) -> Result<Vec<[f64; 2]>> {
        if self.modelled.is_none() {
            return Ok(Vec::new());
        }
        let sums: RequestSums = serde_json::from_value(self.since_mark()?)
            .context("the disk's answer cannot be understood")?;
        Ok(sums.watts_over_time())
    }

    /// Returns the kernel's own counts (Documentation/block/stat.rst): sectors read and written,
    /// milliseconds at work, flushes.
    fn kernel_counts(&self) -> Result<DeviceUse> {
        let file = self.sysfs_file("stat")?;
        let text = std::fs::read_to_string(&file).at_path(&file)?;
        let fields: Vec<u64> = text
            .split_whitespace()
            .filter_map(|field| field.parse().ok())
            .collect();
        // Older kernels have fewer fields.
        let at = |n: usize| fields.get(n).copied().unwrap_or(0);
        // The kernel counts sectors of 512 bytes on every device.
        let (read, written) = (at(2) * 512, at(6) * 512);
        Ok(DeviceUse {
            joules: 0.0,
            busy: at(9) as f64 / 1e3,
            read,
            written,
            flushes: at(15),
            seeks: 0,
        })
    }

    /// Makes a new file system on the whole device.
    pub fn make_filesystem(&self, system: &FileSystemSetup) -> Result<()> {
        let device = self.path.to_str().at_path(&self.path)?;
        let more = system.mkfs_arguments();
        // The device comes behind the options.
        let args: Vec<&str> = more.iter().map(String::as_str).chain([device]).collect();
        if system.kind.is_ours() {
            return run_teal(&[&["mkfs"], &args[..]].concat()).map(drop);
        }
        let name = format!("mkfs.{}", system.kind.name());
        run_program(
            &find_program(&name).with_context(|| format!("{name} is not installed"))?,
            &args,
        )
        .map(drop)
    }

    /// Mounts it. With `sync` every write waits for the device.
    pub fn mount(
        &self,
        system: &FileSystemSetup,
        dir: &Path,
        cache: CacheState,
    ) -> Result<TestbedMount> {
        std::fs::create_dir_all(dir).at_path(dir)?;
        let device = self.path.display().to_string();
        let point = dir.display().to_string();
        // The mode of the cache adds to the options of the system.
        let mut options = system.mount.clone();
        if cache == CacheState::Sync {
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
            if cache == CacheState::Sync {
                bail!("teal cannot be mounted with sync; say cache = \"cold\"");
            }
            run_teal(&[&["mount"], &args[..], &[&device, &point]].concat())?;
        } else {
            if system.kind == FileSystemKind::Nilfs2 {
                // The helper of NILFS2 would start a cleaner, which would work during the run.
                args.push("-i");
            }
            run_program(
                Path::new("mount"),
                &[&["-t", system.kind.name()], &args[..], &[&device, &point]].concat(),
            )?;
        }
        Ok(TestbedMount {
            dir: dir.to_owned(),
            is_ours: system.kind.is_ours(),
            is_there: true,
        })
    }
}

impl From<&RequestSums> for DeviceUse {
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
            && let Err(error) = run_self(&["disk", "stop", name])
        {
            log::warn!("{error:#}");
        }
    }
}

/// Holds a mounted file system.
pub struct TestbedMount {
    dir: PathBuf,
    is_ours: bool,
    is_there: bool,
}

impl TestbedMount {
    /// Writes everything and unmounts.
    pub fn finish(mut self) -> Result<()> {
        // Dropping it must not unmount twice.
        self.is_there = false;
        self.unmount()
    }

    fn unmount(&self) -> Result<()> {
        let deadline = SystemClock.monotonic_time() + PATIENCE;
        loop {
            let point = self.dir.display().to_string();
            let done = if self.is_ours {
                run_teal(&["down", &point])
            } else {
                run_program(Path::new("umount"), &[&point])
            };
            match done {
                // Another process looks at the mount, as mkfs.xfs looks at every mount. The last
                // error tells what else keeps it mounted.
                Err(_) if self.is_mounted() && SystemClock.monotonic_time() < deadline => {
                    SystemClock.wait_until(SystemClock.monotonic_time() + PAUSE);
                }
                done => return done.map(drop),
            }
        }
    }

    fn is_mounted(&self) -> bool {
        let is_here = |mounts: Vec<mount_table::MountEntry>| {
            mounts.iter().any(|mount| mount.point == self.dir)
        };
        mount_table::list_mounts().is_ok_and(is_here)
    }
}

impl Drop for TestbedMount {
    fn drop(&mut self) {
        if self.is_there
            && let Err(error) = self.unmount()
        {
            log::warn!("{error:#}");
        }
    }
}
