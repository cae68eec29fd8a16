//! Attaching drives that appear, at named places and anywhere else.
//!
//! One thread per mount does this. It sleeps until the kernel reports a mount, or a request wakes
//! it; only while a named drive is away does it look at that place every [`POLL`].

use super::places::{PlaceWatcher, place_signature};
use super::unfit::{describe_damage, explain_failure, is_final, is_fit, is_removed};
use super::{AttachmentState, DriveService};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use teal_env::{FileDisk, OpenMode};
use teal_replica::DriveRefused;

/// The time between two looks at a named place while its drive is away.
const POLL: Duration = Duration::from_secs(2);
/// The number of attempts to attach a store that has appeared: another process may have it open for
/// a moment, only to look at it.
const TRIES: u32 = 15;

impl DriveService {
    /// Attaches the known drives that are there, and from now on those that appear. A volume
    /// without a server has no drives, so its mount never wakes when something is mounted.
    pub(crate) fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let Some(replica) = self.client.replica() else {
            return Ok(());
        };
        let this = Arc::downgrade(self);
        let (mut places, wakeup) = PlaceWatcher::new()?;
        let poll = move || {
            // Holds the service only while it looks, so that the end of the mount ends this thread.
            while let Some(drives) = this.upgrade() {
                drives.forget_left();
                drives.leave_superseded();
                let is_trying = drives.attach_appeared(places.appeared_stores());
                let is_waiting = drives.attach_known() || is_trying;
                drop(drives);
                places.wait_for_change(is_waiting.then_some(POLL));
            }
        };
        std::thread::Builder::new()
            .name("teal-drives".into())
            .spawn(poll)?;
        let _ = self.wakeup.set(wakeup);
        // A place that was named is looked at until it is there again.
        let this = Arc::downgrade(self);
        replica.when_a_drive_is_lost(move || {
            if let Some(drives) = this.upgrade() {
                drives.wake_watcher();
            }
        });
        Ok(())
    }

    /// Forgets the detached places that were away or have changed: a drive there may be attached
    /// again.
    fn forget_left(&self) {
        let mut state = self.lock_state();
        let before = state.known.clone();
        let is_unchanged = |place: &PathBuf, signature: &mut String| {
            place_signature(place).as_ref() == Some(signature)
        };
        state.known.left.retain(is_unchanged);
        if let Err(e) = state.known.save(&self.file, &before) {
            log::warn!("{e:#}");
        }
    }

    /// Notes the places of drives that now belong to another machine: such a drive is not attached
    /// again by itself before its place was empty once.
    fn leave_superseded(&self) {
        let mut state = self.lock_state();
        let before = state.known.clone();
        let places = match self.client.replica() {
            Some(replica) => replica.superseded_places(),
            None => Vec::new(),
        };
        // The signature is that of now: an exchanged medium has another one.
        for place in places {
            if let Some(signature) = place_signature(&place) {
                state.known.left.insert(place, signature);
            }
        }
        if let Err(e) = state.known.save(&self.file, &before) {
            log::warn!("{e:#}");
        }
    }

    /// Attaches drives of this volume that have appeared at places that were never named. Returns
    /// whether some are to be tried again, because another process may have them open for a moment.
    fn attach_appeared(&self, places: Vec<PathBuf>) -> bool {
        for place in self.places_to_try(places) {
            let done = self
                .inspect_place(&place)
                .and_then(|()| self.attach_from(&place));
            // Locked only now: the attempt opens the drive and asks the server.
            let mut state = self.lock_state();
            let left = state.tries.remove(&place).unwrap_or(0);
            debug_assert!(left <= TRIES, "attempts are counted down");
            if let Err(e) = done {
                log::debug!("{} is not attached: {e:#}", place.display());
                if left > 1 && !is_final(&e) {
                    state.tries.insert(place, left - 1);
                }
            }
        }
        !self.lock_state().tries.is_empty()
    }

    /// Adds `places` to those that are tried, drops the ones that need no attempt any more, and
    /// returns the others.
    fn places_to_try(&self, places: Vec<PathBuf>) -> Vec<PathBuf> {
        let attached = self.places_of_attached();
        let mut state = self.lock_state();
        for place in places {
            state.tries.insert(place, TRIES);
        }
        let AttachmentState {
            known,
            detaching,
            tries,
            ..
        } = &mut *state;
        tries.retain(|place, _| {
            // A person has decided about these places: they are handled by name.
            let is_named = known.places.contains(place)
                || detaching.contains(place)
                || known.left.contains_key(place);
            !is_named && !attached.contains(place) && place_signature(place).is_some()
        });
        tries.keys().cloned().collect()
    }

    /// Returns the places of the drives that are attached.
    fn places_of_attached(&self) -> BTreeSet<PathBuf> {
        let mut places = BTreeSet::new();
        for drive in self.attached_drives() {
            places.insert(drive.place.into());
        }
        places
    }

    /// Attaches the drives that have appeared at named places. Returns whether one of them is still
    /// not attached.
    fn attach_known(&self) -> bool {
        let attached = self.places_of_attached();
        let mut away = self.lock_state().known.places.clone();
        away.retain(|place| !attached.contains(place));
        for place in &away {
            self.attach_again(place);
        }
        !away.is_empty()
    }

    /// Attaches the drive at a named place if its file has appeared, unless it is known to be no
    /// drive of this volume.
    fn attach_again(&self, place: &Path) {
        if !self.may_attach_again(place) {
            return;
        }
        let done = self.attach_from(place);
        // Listing the volume's drives forgets the places of those that the volume has forgotten.
        if done.as_ref().is_err_and(is_removed)
            && let Err(e) = self.list_drives()
        {
            log::debug!("{e:#}");
        }
        let failure = match &done {
            Ok(_) => String::new(),
            Err(e) => format!("{e:#}"),
        };
        let mut state = self.lock_state();
        if done.is_err_and(|e| is_final(&e))
            && let Some(signature) = place_signature(place)
        {
            state.unfit.insert(place.to_owned(), signature);
        }
        let last_failure = state
            .last_failures
            .insert(place.to_owned(), failure.clone());
        let is_news = last_failure.unwrap_or_default() != failure;
        if is_news && !failure.is_empty() {
            log::warn!("{} is not attached: {failure}", place.display());
        }
    }

    /// Returns whether an attempt at a named place makes sense: something is there, it was not
    /// detached, and it is not known to be unfit.
    fn may_attach_again(&self, place: &Path) -> bool {
        let signature = place_signature(place);
        let mut state = self.lock_state();
        // A changed file deserves another attempt.
        if state.unfit.get(place) != signature.as_ref() {
            state.unfit.remove(place);
        }
        let is_left = state.detaching.contains(place) || state.known.left.contains_key(place);
        signature.is_some() && !is_left && !state.unfit.contains_key(place)
    }

    /// Checks that a drive of this volume is at `path`, without taking its lock: another program
    /// that opens it finds it free.
    fn inspect_place(&self, path: &Path) -> Result<()> {
        is_fit(path)?;
        let disk = FileDisk::open(path, OpenMode::ReadUnlocked)
            .map_err(|e| explain_failure(e.into(), path))?;
        let looked = self.replica()?.look_at_drive(Arc::new(disk));
        if let Err(DriveRefused::Disk(why)) = &looked
            && let Some(why) = describe_damage(why)
        {
            // This is not final: a store that another process writes to looks damaged, too.
            bail!("{} is damaged, or in use: {why}", path.display());
        }
        looked
            .with_context(|| path.to_string_lossy().into_owned())
            .map_err(|e| explain_failure(e, path))
    }
}
