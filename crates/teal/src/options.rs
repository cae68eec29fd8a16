//! Mount options, from `-o` and from fstab.

use crate::cli::{Mount, parse_size};
use anyhow::{Context, Result, bail};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;
use teal_log::Settings;
use teal_mount::Uring;

/// What `-o` asks for, validated.
#[derive(Debug, Clone)]
pub(crate) struct MountOptions {
    pub(crate) read_only: bool,
    pub(crate) salvage: bool,
    pub(crate) noatime: bool,
    pub(crate) nosuid: bool,
    pub(crate) nodev: bool,
    pub(crate) noexec: bool,
    /// Be told of `sync(2)`, where that is possible.
    pub(crate) syncfs: bool,
    /// All that programs ask comes as requests, for recordings.
    pub(crate) observed: bool,
    /// Change the flags of what is mounted there already.
    pub(crate) remount: bool,
    pub(crate) threads: NonZeroUsize,
    /// Whether requests come over io_uring.
    pub(crate) uring: Uring,
    pub(crate) settings: Settings,
    /// How old a change may be before it is on its way to the server.
    pub(crate) flush_age: Option<Duration>,
    /// How much content may be here and not at the server, in bytes.
    pub(crate) queue: Option<u64>,
    /// `fsync` waits for the server.
    pub(crate) sync_remote: bool,
    /// Added to each way to the server, for measurements.
    pub(crate) delay: Duration,
}

const KNOWN: &str = "ro, rw, remount, salvage, noatime, relatime, nosuid, nodev, noexec, nosyncfs, observed, commit=SECONDS, checkpoint=SECONDS, \
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
    "suid",
    "dev",
    "exec",
    "async",
    "allow_other",
    "default_permissions",
    // What the kernel itself shows of a FUSE mount.
    "user_id",
    "group_id",
    "max_read",
    "blksize",
    "diratime",
    "nodiratime",
];

/// Validates options.
pub(crate) fn parse(options: &[String]) -> Result<MountOptions> {
    let mut parsed = MountOptions {
        read_only: false,
        salvage: false,
        noatime: false,
        nosuid: false,
        nodev: false,
        noexec: false,
        syncfs: true,
        observed: false,
        remount: false,
        threads: std::thread::available_parallelism()
            .unwrap_or(NonZeroUsize::MIN)
            .max(NonZeroUsize::new(2).unwrap_or(NonZeroUsize::MIN)),
        uring: Uring::default(),
        settings: Settings::default(),
        flush_age: None,
        queue: None,
        sync_remote: false,
        delay: Duration::ZERO,
    };
    for option in options {
        let (key, value) = option.split_once('=').map_or((option.as_str(), None), |(k, v)| (k, Some(v)));
        let seconds = || -> Result<Duration> {
            let text = value.with_context(|| format!("mount option {key} needs a number of seconds"))?;
            let number: u64 =
                text.parse().with_context(|| format!("mount option {option}: not a number of seconds"))?;
            Ok(Duration::from_secs(number))
        };
        let size = || parse_size(value.unwrap_or_default()).map_err(|e| anyhow::anyhow!("mount option {option}: {e}"));
        match key {
            "ro" => parsed.read_only = true,
            "rw" => parsed.read_only = false,
            "salvage" => parsed.salvage = true,
            "noatime" => parsed.noatime = true,
            "relatime" => parsed.noatime = false,
            "nosuid" => parsed.nosuid = true,
            "nodev" => parsed.nodev = true,
            "noexec" => parsed.noexec = true,
            "syncfs" => parsed.syncfs = true,
            "nosyncfs" => parsed.syncfs = false,
            "observed" => parsed.observed = true,
            "remount" => parsed.remount = true,
            "commit" => parsed.settings.commit_interval = seconds()?,
            "sync" if value == Some("remote") => parsed.sync_remote = true,
            "sync" if value == Some("local") => parsed.sync_remote = false,
            "flush" => parsed.flush_age = Some(seconds()?),
            "uring" if value == Some("auto") => parsed.uring = Uring::Auto,
            "uring" if value == Some("on") => parsed.uring = Uring::On,
            "uring" if value == Some("off") => parsed.uring = Uring::Off,
            "delay_ms" => {
                let text = value.unwrap_or_default();
                let number =
                    text.parse().with_context(|| format!("mount option {option}: not a number of milliseconds"))?;
                parsed.delay = Duration::from_millis(number);
            }
            "checkpoint" => parsed.settings.checkpoint_interval = seconds()?,
            "checkpoint_bytes" => parsed.settings.checkpoint_bytes = size()?,
            "queue" => parsed.queue = Some(size()?),
            "threads" => {
                parsed.threads = value.unwrap_or_default().parse().with_context(|| format!("mount option {option}"))?;
            }
            key if IGNORED.contains(&key) || key.starts_with("x-") || key == "comment" => {}
            _ => bail!("unknown mount option {option}; known are {KNOWN}"),
        }
    }
    if parsed.salvage && !parsed.read_only {
        bail!("mount option salvage needs ro: what is left is to be copied out, not written to");
    }
    Ok(parsed)
}

/// The arguments mount(8) gives to `mount.teal`: `SOURCE DIR [-sfnv] [-N NS] [-t TYPE] [-o OPTIONS]`.
pub(crate) fn from_mount_8(args: impl Iterator<Item = String>) -> Result<Mount> {
    let mut places = Vec::new();
    let mut options = Vec::new();
    let mut args = args;
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-o" => options.extend(args.next().unwrap_or_default().split(',').map(str::to_owned)),
            "-t" | "-N" => drop(args.next()),
            flag if flag.starts_with('-') && flag.len() > 1 => {}
            _ => places.push(PathBuf::from(arg)),
        }
    }
    let [path, dir] =
        <[PathBuf; 2]>::try_from(places).map_err(|_| anyhow::anyhow!("usage: mount.teal STORE DIR [-o OPTIONS]"))?;
    Ok(Mount { path, dir, options, foreground: false, tell: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(list: &[&str]) -> Vec<String> {
        list.iter().map(|s| (*s).to_owned()).collect()
    }

    #[test]
    fn options_are_validated() {
        let parsed =
            parse(&strings(&["ro", "noatime", "commit=7", "checkpoint_bytes=4M", "x-systemd.automount"])).unwrap();
        assert!(parsed.read_only && parsed.noatime);
        assert_eq!(parsed.settings.commit_interval, Duration::from_secs(7));
        assert_eq!(parsed.settings.checkpoint_bytes, 4 << 20);
        for bad in ["frobnicate", "commit", "commit=soon", "threads=0", "uring=maybe", "salvage"] {
            let said = parse(&strings(&[bad])).unwrap_err().to_string();
            assert!(said.contains(bad), "{said}");
        }
    }

    #[test]
    fn mount_8_is_understood() {
        let args = strings(&["/dev/loop3", "/mnt", "-n", "-o", "rw,noatime", "-t", "teal"]);
        let mount = from_mount_8(args.into_iter()).unwrap();
        assert_eq!(mount.path, PathBuf::from("/dev/loop3"));
        assert_eq!(mount.options, strings(&["rw", "noatime"]));
        assert!(from_mount_8(strings(&["/dev/loop3"]).into_iter()).is_err());
    }
}
