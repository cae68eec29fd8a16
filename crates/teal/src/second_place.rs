//! A store that is mounted, at one more place: the kernel binds the first mount there.
//!
//! # Guarantees
//! 1. Both places are one mount, with one daemon and one cache: what is written at one is there at
//!    the other.
//! 2. The second place has what was asked for: options that were named are those of the first, and
//!    neither is read-only alone. Otherwise nothing is mounted.
//! 3. The first mount is not taken away by `teal down` while there is a second place: its daemon
//!    would end, and the second place be dead.

use crate::cli::MountArgs;
use crate::control::{self, MountPhase, MountStatus};
use crate::{mounts, opening};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use teal_command::mount_table::{MountEntry, list_mounts};
use teal_command::say::{shell_quoted, shown_path};

/// Options that change nothing, so that they need not be those of the first mount.
const WITHOUT_MEANING: &[&str] = &["", "rw", "defaults"];

/// Returns single options of a list in which several may stand together.
fn named_options(lists: &[String]) -> BTreeSet<&str> {
    lists
        .iter()
        .flat_map(|list| list.split(','))
        .filter(|option| !WITHOUT_MEANING.contains(option))
        .collect()
}

/// Returns whether a mount with these options is what a mount with the other ones asks for.
fn options_agree(first: &[String], asked: &[String]) -> bool {
    let (first, asked) = (named_options(first), named_options(asked));
    let is_read_only = |options: &BTreeSet<&str>| options.contains("ro");
    is_read_only(&first) == is_read_only(&asked) && asked.is_subset(&first)
}

/// Binds the mount of a store to one more place, if the store is mounted. Returns whether it is.
///
/// # Errors
/// That the options differ, or what keeps this process from binding.
pub(crate) fn bind_if_mounted(args: &MountArgs) -> Result<bool> {
    debug_assert!(args.dir.is_absolute(), "the kernel binds by whole paths");
    let is_this = |status: &MountStatus| {
        status.phase != MountPhase::Ending && opening::is_same_file(&args.path, &status.store)
    };
    let Some(first) = control::all_statuses()?.into_iter().find(is_this) else {
        return Ok(false);
    };
    let store = shown_path(&args.path);
    let point = shown_path(&first.mount_point);
    if args.foreground {
        bail!(
            "{store} is in use: it is mounted on {point}, by process {}",
            first.pid
        );
    }
    // Bound to itself, the mount would cover itself and be there twice.
    if first.mount_point == args.dir {
        bail!(
            "{store} is in use: it is mounted here already, by process {}",
            first.pid
        );
    }
    if !options_agree(&first.options, &args.options) {
        let options = match &first.options[..] {
            [] => "without options".to_owned(),
            options => format!("with -o {}", options.join(",")),
        };
        bail!(
            "{store} is in use: it is mounted on {point} {options}, and both places are one mount; \
             mount it here with the same options, or take it down there first: teal down {}",
            shell_quoted(&point)
        );
    }
    if mounts::newest_at(&first.mount_point).is_none_or(|mount| !mount.is_teal()) {
        bail!(
            "{store} is in use: process {} has mounted it on {point}, which cannot be seen from \
             here: is that another mount namespace?",
            first.pid
        );
    }
    rustix::mount::mount_bind(&first.mount_point, &args.dir).with_context(|| {
        format!(
            "{store} is in use: it is mounted on {point}, and only root can have it at one more \
             place"
        )
    })?;
    Ok(true)
}

/// Returns the other places at which a mount is that is on `dir`; the first one first.
pub(crate) fn other_places(dir: &Path) -> Result<Vec<PathBuf>> {
    let Some(mount) = mounts::newest_at(dir).filter(MountEntry::is_teal) else {
        return Ok(Vec::new());
    };
    let others = list_mounts()?.into_iter().filter(|other| {
        // A directory of it may be bound as well.
        other.device == mount.device && other.point != dir
    });
    Ok(others.map(|other| other.point).collect())
}

/// Takes one of several places of a mount away, which is not the one that its daemon knows. Returns
/// where it still is; `None`: `dir` is no such place.
///
/// # Errors
/// Why the kernel does not do it.
pub(crate) fn take_place_away(dir: &Path) -> Result<Option<PathBuf>> {
    let others = other_places(dir)?;
    let Some(first) = others.into_iter().next() else {
        return Ok(None);
    };
    rustix::mount::unmount(dir, rustix::mount::UnmountFlags::NOFOLLOW)
        .with_context(|| format!("unmounting {}", shown_path(dir)))?;
    Ok(Some(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_agree_if_what_is_asked_for_is_there() {
        let list = |text: &str| vec![text.to_owned()];
        for (first, asked, agree) in [
            ("", "", true),
            ("", "defaults,rw", true),
            ("noatime,commit=7", "", true),
            ("noatime,commit=7", "commit=7", true),
            ("noatime", "commit=7", false),
            ("commit=7", "commit=8", false),
            ("ro", "", false),
            ("", "ro", false),
            ("ro,noatime", "ro", true),
        ] {
            assert_eq!(
                options_agree(&list(first), &list(asked)),
                agree,
                "{first:?} and {asked:?}"
            );
        }
    }
}
