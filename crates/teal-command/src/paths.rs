//! The places of things: mount points, stores, sockets, logs.

use crate::path_context::PathContext as _;
use anyhow::{Result, bail};
use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use std::path::{Path, PathBuf};

/// Returns the home directory; `way_out` tells the user what to do if there is none.
fn home_dir(way_out: &str) -> Result<PathBuf> {
    let home = match std::env::var_os("HOME") {
        Some(home) if !home.is_empty() => PathBuf::from(home),
        _ => bail!("HOME is not set, and the default place is below it: {way_out}"),
    };
    if !home.is_absolute() {
        // The daemon works in another directory than its caller.
        bail!(
            "HOME is '{}', and must begin with '/': set it, or {way_out}",
            home.display()
        );
    }
    Ok(home)
}

fn xdg_dir(variable: &str, default: &str, way_out: &str) -> Result<PathBuf> {
    // The specification lets relative paths be ignored.
    match std::env::var_os(variable).map(PathBuf::from) {
        Some(path) if path.is_absolute() => Ok(path),
        _ => {
            let home = home_dir(&format!("{way_out}, or set {variable}"))?;
            Ok(home.join(default))
        }
    }
}

/// Returns the mount point to use when none was named.
pub fn default_mount_point() -> Result<PathBuf> {
    Ok(home_dir("name the mount point (an absolute path)")?.join("Teal"))
}

/// Returns an absolute path without symlinks, `.` and `..` as far as it exists. A dead mount point
/// at its end is not touched.
pub fn absolute_path(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).with_path(path)?;
    if path.file_name().is_none() {
        return Ok(path);
    }
    // Only the parent is resolved: touching a dead mount point would fail or hang.
    let (parent, name) = (
        path.parent().unwrap_or(Path::new("/")),
        path.file_name().unwrap_or_default(),
    );
    match parent.canonicalize() {
        Ok(parent) => {
            let whole = parent.join(name);
            Ok(whole.canonicalize().unwrap_or(whole))
        }
        Err(_) => Ok(path),
    }
}

/// Returns a short name that stands for a mount point.
pub fn mount_key(dir: &Path) -> String {
    let mut hasher = SipHasher24::new();
    hasher.write(dir.as_os_str().as_encoded_bytes());
    format!("{:016x}", hasher.finish())
}

/// Returns the mount point that a command means.
pub fn mount_point_for(dir: Option<PathBuf>) -> Result<PathBuf> {
    dir.map_or_else(default_mount_point, |dir| absolute_path(&dir))
}

/// Returns the store that belongs to a mount point.
pub fn store_for(dir: &Path) -> Result<PathBuf> {
    let name = dir
        .file_name()
        .map_or("root".into(), |n| n.to_string_lossy().into_owned());
    Ok(xdg_dir(
        "XDG_DATA_HOME",
        ".local/share",
        "name the store with --store",
    )?
    .join("teal")
    .join(format!("{name}-{}.teal", &mount_key(dir)[..8])))
}

/// Returns the mount point and the store that a command means.
pub fn mount_and_store(dir: Option<&Path>, store: Option<&Path>) -> Result<(PathBuf, PathBuf)> {
    let dir = dir.map_or_else(default_mount_point, absolute_path)?;
    let store = store.map_or_else(|| store_for(&dir), absolute_path)?;
    Ok((dir, store))
}

/// Returns the default place of the bytes of a modelled disk.
pub fn disk_image(name: &str) -> Result<PathBuf> {
    // HOME is not set where systemd starts programs.
    let data =
        if rustix::process::geteuid().is_root() && std::env::var_os("XDG_DATA_HOME").is_none() {
            PathBuf::from("/var/tmp/teal-disks")
        } else {
            xdg_dir(
                "XDG_DATA_HOME",
                ".local/share",
                "name the image of the disk",
            )?
            .join("teal/disks")
        };
    make_private(&data)?;
    Ok(data.join(format!("{name}.img")))
}

/// Returns the directory in which modelled disks are mounted; it is made if missing.
pub fn disks_dir() -> Result<PathBuf> {
    let dir = runtime_dir()?.join("disks");
    make_private(&dir)?;
    Ok(dir)
}

/// Returns the directory of control sockets; it is made if missing.
pub fn runtime_dir() -> Result<PathBuf> {
    let uid = rustix::process::geteuid();
    let dir = match std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|p| p.is_dir())
    {
        Some(dir) => dir.join("teal"),
        None if uid.is_root() => PathBuf::from("/run/teal"),
        None => std::env::temp_dir().join(format!("teal-{}", uid.as_raw())),
    };
    make_private(&dir)?;
    Ok(dir)
}

/// Returns the log of the daemon that serves a mount point.
pub fn log_file(dir: &Path) -> Result<PathBuf> {
    // mount(8) and systemd start programs without HOME.
    let logs =
        if rustix::process::geteuid().is_root() && std::env::var_os("XDG_STATE_HOME").is_none() {
            PathBuf::from("/var/log/teal")
        } else {
            xdg_dir("XDG_STATE_HOME", ".local/state", "set it")?.join("teal")
        };
    make_private(&logs)?;
    Ok(logs.join(format!("{}.log", mount_key(dir))))
}

/// Returns the file with the number of this machine, for systems that have none.
pub fn machine_file() -> Result<PathBuf> {
    let dir = match rustix::process::geteuid().is_root()
        && std::env::var_os("XDG_STATE_HOME").is_none()
    {
        true => PathBuf::from("/var/lib/teal"),
        false => xdg_dir("XDG_STATE_HOME", ".local/state", "set it")?.join("teal"),
    };
    make_private(&dir)?;
    Ok(dir.join("machine-id"))
}

fn make_private(dir: &Path) -> Result<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_path(dir)?;
    let meta = std::fs::symlink_metadata(dir).with_path(dir)?;
    // Another user could have made the directory first, in a place such as /tmp.
    if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() {
        bail!("{} belongs to somebody else", dir.display());
    }
    Ok(())
}

/// The state of a path that is to be a mount point.
#[derive(Debug, PartialEq, Eq)]
pub enum MountPointState {
    /// Nothing is there.
    Missing,
    /// An empty directory.
    Empty,
    /// A directory with something in it.
    NotEmpty,
    /// Something other than a directory.
    NotDirectory,
    /// Something is mounted there and works.
    Mounted,
    /// A FUSE mount without its daemon.
    Dead,
}

/// Returns the state of a path that is to be a mount point.
pub fn inspect_mount_point(dir: &Path) -> Result<MountPointState> {
    use std::os::unix::fs::MetadataExt;
    let meta = match std::fs::symlink_metadata(dir) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(MountPointState::Missing),
        // A dead mount fails every call; the kernel tells it apart from other errors.
        Err(_) if teal_fuse::is_dead(dir) => return Ok(MountPointState::Dead),
        Err(e) => return Err(e).with_path(dir),
    };
    if !meta.is_dir() {
        return Ok(MountPointState::NotDirectory);
    }
    let parent = dir
        .parent()
        .map(std::fs::metadata)
        .transpose()
        .with_path(dir)?;
    // A mount point has another device than its parent.
    if parent.is_none_or(|p| p.dev() != meta.dev()) {
        return Ok(if teal_fuse::is_dead(dir) {
            MountPointState::Dead
        } else {
            MountPointState::Mounted
        });
    }
    // One entry is enough to know.
    let mut entries = std::fs::read_dir(dir).with_path(dir)?;
    Ok(if entries.next().is_some() {
        MountPointState::NotEmpty
    } else {
        MountPointState::Empty
    })
}
