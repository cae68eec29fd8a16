//! Mount options, from `-o` and from fstab.

use crate::cli::MountArgs;
use crate::namespace;
use anyhow::{Context, Result, anyhow, bail};
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
use teal_command::size::{human_size, parse_size};
use teal_log::{OwnedElsewhere, StoreSettings};
use teal_mount::{GeneralMountFlags, UringMode};
use teal_posix::AtimePolicy;

/// Says if the kernel leaves device nodes, or setuid bits, of a mount without effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MountRestriction {
    /// Nothing was said: it holds where other machines can put things into the tree.
    Default,
    /// `nosuid`, `nodev`.
    Restricted,
    /// `suid`, `dev`.
    Allowed,
}

impl MountRestriction {
    /// Returns what an option of this name asks for.
    fn from_option(option: &str) -> Self {
        if option.starts_with("no") {
            Self::Restricted
        } else {
            Self::Allowed
        }
    }

    /// Returns whether it holds for a volume that is, or is not, shared with other machines.
    pub(crate) fn is_in_force(self, is_shared: bool) -> bool {
        match self {
            Self::Default => is_shared,
            Self::Restricted => true,
            Self::Allowed => false,
        }
    }
}

/// The validated form of `-o`.
#[derive(Debug, Clone)]
pub(crate) struct MountConfig {
    /// The flags that were asked for; [`flags_in_force`](Self::flags_in_force) adds the rest.
    pub(crate) flags: GeneralMountFlags,
    /// When reading changes access times.
    pub(crate) atime: AtimePolicy,
    pub(crate) salvage: bool,
    /// Setuid and setgid bits and file capabilities.
    pub(crate) nosuid: MountRestriction,
    /// Device nodes.
    pub(crate) nodev: MountRestriction,
    /// Be told of `sync(2)`, where that is possible.
    pub(crate) syncfs: SyncFs,
    /// All that programs ask comes as requests, for recordings.
    pub(crate) observed: bool,
    /// Change the flags of what is mounted there already.
    pub(crate) remount: bool,
    /// The way to treat a store that another machine has open.
    pub(crate) elsewhere: OwnedElsewhere,
    pub(crate) threads: NonZeroUsize,
    /// The transport of requests: io_uring or /dev/fuse.
    pub(crate) uring: UringMode,
    pub(crate) settings: StoreSettings,
    /// The longest time for which a change waits before it is sent to the server.
    pub(crate) flush_age: Option<Duration>,
    /// The most content, in bytes, that may be here and not at the server.
    pub(crate) queue: Option<u64>,
    /// The place where content is durable when `fsync` returns.
    pub(crate) sync: SyncTarget,
    /// Added to each way to the server, for measurements.
    pub(crate) delay: Duration,
}

/// The least number of threads that answer requests, unless another one is given.
const THREADS_MIN: NonZeroUsize = NonZeroUsize::new(2).expect("not zero");
/// Threads that answer requests; more wait for each other, and the kernel cannot have so many
/// requests under way.
const THREADS_MAX: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");
/// Has a store mounted that another machine has open.
pub(crate) const TAKE_OVER: &str = "take-over";
const KNOWN: &str = "ro, rw, remount, salvage, take-over, noatime, relatime, strictatime, \
    lazytime, nosuid, suid, nodev, \
    dev, noexec, syncfs, nosyncfs, observed, commit=SECONDS, checkpoint=SECONDS, \
                     checkpoint_bytes=SIZE, threads=N, uring=auto|on|off, \
                     flush=SECONDS, queue=SIZE, sync=local|remote, delay_ms=N";
/// Options of mount(8) and fstab that are none of a file system's business.
const IGNORED: &[&str] = &[
    "",
    "rw",
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "exec",
    "async",
    "allow_other",
    "default_permissions",
    // These are what the kernel itself shows of a FUSE mount.
    "user_id",
    "group_id",
    "max_read",
    "blksize",
    // Access times are always kept in memory until something else of the file is written.
    "lazytime",
    "nolazytime",
    "diratime",
    "nodiratime",
];

/// Options of ours that are there or not.
const FLAGS: &[&str] = &[
    "ro",
    "rw",
    "remount",
    "salvage",
    "noatime",
    "relatime",
    "strictatime",
    "nostrictatime",
    "nosuid",
    "suid",
    "nodev",
    "dev",
    "noexec",
    "syncfs",
    "nosyncfs",
    "observed",
    TAKE_OVER,
];

/// Returns the number given to an option, if it is within `range`. The error names the kind of
/// number wanted (`what`), with an example.
fn parse_in_range(
    option: &str,
    value: Option<&str>,
    range: RangeInclusive<u64>,
    what: &str,
    example: &str,
) -> Result<u64> {
    debug_assert!(!range.is_empty(), "a number of {option} exists");
    if let Some(text) = value
        && let Ok(number) = text.parse()
        && range.contains(&number)
    {
        return Ok(number);
    }
    // The error names the bounds, because the manual may not be at hand.
    let (low, high) = range.into_inner();
    bail!("mount option {option}: give {what} from {low} to {high}, such as {example}")
}

fn parse_seconds(
    option: &str,
    value: Option<&str>,
    range: RangeInclusive<u64>,
) -> Result<Duration> {
    let key = option.split('=').next().unwrap_or_default();
    let number = parse_in_range(
        option,
        value,
        range,
        "a whole number of seconds",
        &format!("{key}=30"),
    )?;
    Ok(Duration::from_secs(number))
}

fn parse_size_in_range(
    option: &str,
    value: Option<&str>,
    range: RangeInclusive<u64>,
) -> Result<u64> {
    let key = option.split('=').next().unwrap_or_default();
    debug_assert!(!range.is_empty(), "a size of {option} exists");
    let bytes =
        parse_size(value.unwrap_or_default()).map_err(|e| anyhow!("mount option {option}: {e}"))?;
    if !range.contains(&bytes) {
        let (low, high) = (human_size(*range.start()), human_size(*range.end()));
        bail!("mount option {option}: give a size from {low} to {high}, such as {key}=64M");
    }
    Ok(bytes)
}

impl MountConfig {
    pub(crate) fn is_read_only(&self) -> bool {
        self.flags.contains(GeneralMountFlags::READ_ONLY)
    }

    /// Returns the flags of a mount of a volume that is, or is not, shared with other machines.
    pub(crate) fn flags_in_force(&self, is_shared: bool) -> GeneralMountFlags {
        let mut flags = self.flags;
        flags.set(
            GeneralMountFlags::NOSUID,
            self.nosuid.is_in_force(is_shared),
        );
        flags.set(GeneralMountFlags::NODEV, self.nodev.is_in_force(is_shared));
        flags
    }

    /// Returns the given options that concern a server, for a volume that has none or is not
    /// written to.
    pub(crate) fn server_options_given(&self) -> Vec<&'static str> {
        let given = [
            (self.sync == SyncTarget::Remote, "sync=remote"),
            (self.flush_age.is_some(), "flush"),
            (self.queue.is_some(), "queue"),
            (!self.delay.is_zero(), "delay_ms"),
        ];
        let mut names = Vec::new();
        for (is_given, name) in given {
            if is_given {
                names.push(name);
            }
        }
        names
    }
}

/// The place where content is durable when `fsync` returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncTarget {
    /// This machine's store.
    Local,
    /// The server as well: `fsync` waits for it.
    Remote,
}

/// Says if a mount is made on a block device, so that `sync(2)` and `syncfs(2)` reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncFs {
    /// Only if a daemon that is killed cannot make the kernel wait for it.
    WhereSafe,
    Always,
    Never,
}

impl SyncFs {
    /// Returns what that means for this process.
    pub(crate) fn is_wanted(self) -> bool {
        match self {
            Self::WhereSafe => namespace::is_first(),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

impl Default for MountConfig {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self {
            flags: GeneralMountFlags::empty(),
            atime: AtimePolicy::default(),
            salvage: false,
            nosuid: MountRestriction::Default,
            nodev: MountRestriction::Default,
            syncfs: SyncFs::WhereSafe,
            observed: false,
            remount: false,
            elsewhere: OwnedElsewhere::Refuse,
            // At least two, so that one slow request does not stop all others.
            threads: processors.max(THREADS_MIN),
            uring: UringMode::default(),
            settings: StoreSettings::default(),
            flush_age: None,
            queue: None,
            sync: SyncTarget::Local,
            delay: Duration::ZERO,
        }
    }
}

impl MountConfig {
    /// Carries out an option without a value. Returns `false` if it is none of [`FLAGS`].
    fn set_flag(&mut self, key: &str) -> bool {
        match key {
            "ro" => self.flags |= GeneralMountFlags::READ_ONLY,
            "rw" => self.flags -= GeneralMountFlags::READ_ONLY,
            "salvage" => self.salvage = true,
            "noatime" => self.set_atime(AtimePolicy::Noatime),
            "relatime" | "nostrictatime" => self.set_atime(AtimePolicy::Relatime),
            "strictatime" => self.set_atime(AtimePolicy::Strictatime),
            "nosuid" | "suid" => self.nosuid = MountRestriction::from_option(key),
            "nodev" | "dev" => self.nodev = MountRestriction::from_option(key),
            "noexec" => self.flags |= GeneralMountFlags::NOEXEC,
            "syncfs" => self.syncfs = SyncFs::Always,
            "nosyncfs" => self.syncfs = SyncFs::Never,
            "observed" => self.observed = true,
            "remount" => self.remount = true,
            TAKE_OVER => self.elsewhere = OwnedElsewhere::TakeOver,
            _ => return false,
        }
        debug_assert!(FLAGS.contains(&key), "{key} is listed");
        true
    }

    fn set_atime(&mut self, policy: AtimePolicy) {
        self.atime = policy;
        // The kernel shows this flag in its table of mounts.
        let is_never = policy == AtimePolicy::Noatime;
        self.flags.set(GeneralMountFlags::NOATIME, is_never);
    }

    /// Carries out an option with a value; `option` is both, for messages.
    fn set_value(&mut self, option: &str, key: &str, value: Option<&str>) -> Result<()> {
        match key {
            "commit" => self.settings.commit_interval = parse_seconds(option, value, 1..=3600)?,
            "sync" if value == Some("remote") => self.sync = SyncTarget::Remote,
            "sync" if value == Some("local") => self.sync = SyncTarget::Local,
            "flush" => self.flush_age = Some(parse_seconds(option, value, 1..=86_400)?),
            "uring" if value == Some("auto") => self.uring = UringMode::Auto,
            "uring" if value == Some("on") => self.uring = UringMode::On,
            "uring" if value == Some("off") => self.uring = UringMode::Off,
            "delay_ms" => {
                let what = "a whole number of milliseconds";
                let number = parse_in_range(option, value, 0..=60_000, what, "delay_ms=40")?;
                self.delay = Duration::from_millis(number);
            }
            "checkpoint" => {
                self.settings.checkpoint_interval = parse_seconds(option, value, 1..=86_400)?
            }
            "checkpoint_bytes" => {
                let bytes = parse_size_in_range(option, value, 1 << 20..=1 << 32)?;
                self.settings.checkpoint_bytes = bytes;
            }
            "queue" => self.queue = Some(parse_size_in_range(option, value, 1 << 20..=1 << 50)?),
            "threads" => self.threads = parse_threads(option, value)?,
            // Options for systemd, and comments, are not meant for the file system.
            key if IGNORED.contains(&key) || key.starts_with("x-") || key == "comment" => {}
            _ => bail!("unknown mount option {option}; known are {KNOWN}"),
        }
        Ok(())
    }
}

fn parse_threads(option: &str, value: Option<&str>) -> Result<NonZeroUsize> {
    if let Some(text) = value
        && let Ok(threads) = text.parse::<NonZeroUsize>()
        && threads <= THREADS_MAX
    {
        return Ok(threads);
    }
    bail!("mount option {option}: give a whole number from 1 to {THREADS_MAX}, such as threads=4")
}

/// Validates options. The last one of those that contradict each other holds, as with mount(8).
pub(crate) fn parse_options(options: &[String]) -> Result<MountConfig> {
    let mut parsed = MountConfig::default();
    for option in options {
        let (key, value) = match option.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (option.as_str(), None),
        };
        // `ro=no` would otherwise be taken for `ro`.
        if value.is_some() && FLAGS.contains(&key) {
            bail!("mount option {option}: {key} takes no value");
        }
        if !parsed.set_flag(key) {
            parsed.set_value(option, key, value)?;
        }
    }
    // Writing to a damaged store could destroy what is left of it.
    if parsed.salvage && !parsed.is_read_only() {
        bail!("mount option salvage needs ro: what is left is to be copied out, not written to");
    }
    Ok(parsed)
}

/// The request that mount(8) makes of `mount.teal`.
#[derive(Debug)]
pub(crate) enum MountHelperCall {
    Mount(MountArgs),
    /// `-f`: everything but the mount itself.
    DryRun(MountArgs),
}

/// Parses the arguments that mount(8) gives to `mount.teal`: `SOURCE DIR [-sfnv] [-N NS] [-t TYPE]
/// [-o OPTIONS]`.
pub(crate) fn from_mount_8(mut args: impl Iterator<Item = OsString>) -> Result<MountHelperCall> {
    let mut places = Vec::new();
    let mut options = Vec::new();
    let mut is_fake = false;
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("-o") => {
                let list = args.next().unwrap_or_default();
                let list = list.to_str().context("the mount options are not UTF-8")?;
                options.extend(list.split(',').map(str::to_owned));
            }
            // These two take an argument, which is of no use here.
            Some("-t" | "-N") => drop(args.next()),
            Some(flags) if flags.starts_with('-') && flags.len() > 1 => {
                // mount(8) writes short flags together, as in `-sfn`.
                is_fake |= flags == "--fake" || contains_fake_flag(flags)
            }
            _ => places.push(PathBuf::from(arg)),
        }
    }
    // mount(8) always gives both places.
    let [path, dir] = <[PathBuf; 2]>::try_from(places)
        .map_err(|_| anyhow!("usage: mount.teal STORE DIR [-o OPTIONS]"))?;
    let mount = MountArgs {
        path,
        dir,
        options,
        foreground: false,
        tell: false,
        take_over: false,
    };
    Ok(if is_fake {
        MountHelperCall::DryRun(mount)
    } else {
        MountHelperCall::Mount(mount)
    })
}

/// Returns whether `-f` is among flags of one letter each.
fn contains_fake_flag(flags: &str) -> bool {
    !flags.starts_with("--") && flags.contains('f')
}

#[cfg(test)]
mod tests;
