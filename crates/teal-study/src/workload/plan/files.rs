//! Turns `define file` and `define fileset` into sets of files.

use super::super::random::FixedOrDrawn;
use super::attributes::ResolvedAttributes;
use super::builder::PlanBuilder;
use super::scaling::{scale_entries, scaled_count};
use super::values::Scope;
use super::{ExistingFiles, Fileset, OpenAccess, Populating};
use crate::wml::{AttributeList, ScriptCommand, SetKind, SourcePosition, WmlError};
use std::path::{Component, Path, PathBuf};

/// Limits the files of a set.
const ENTRIES_MAX: u64 = 1 << 24;
/// Size of files, and shape of trees, when the script does not set them.
const SIZE_DEFAULT: u64 = 1024;
const GAMMA_DEFAULT: u64 = 1500;

impl PlanBuilder<'_> {
    pub(super) fn make_filesets(&mut self) -> Result<(), WmlError> {
        self.created = true;
        // Sets are resolved at their creation, when the variables have their values.
        for (place, command) in self.defined.clone() {
            if let ScriptCommand::Files(kind, attributes) = command {
                let set = self.resolve_fileset(place, *kind, attributes)?;
                if self
                    .plan
                    .filesets
                    .iter()
                    .any(|other| other.name == set.name)
                {
                    let message = format!(
                        "a fileset '{}' is defined already; call this one differently",
                        set.name
                    );
                    return Err(self.script.error_at(place, message));
                }
                self.plan.filesets.push(set);
            }
        }
        Ok(())
    }

    fn resolve_fileset(
        &self,
        place: SourcePosition,
        kind: SetKind,
        attributes: &AttributeList,
    ) -> Result<Fileset, WmlError> {
        let script = self.script;
        let read = ResolvedAttributes {
            script,
            scope: Scope::global(&self.variables),
            given: attributes,
        };
        let Some(name) = read.text("name")? else {
            return Err(script.error_at(place, "a fileset needs a name: name=…"));
        };
        let Some(path) = read.text("path")? else {
            return Err(script.error_at(
                place,
                format!("fileset '{name}' has no path; say path=$dir"),
            ));
        };
        let root = self.resolve_root(
            read.position("path", place),
            read.position("name", place),
            &path,
            &name,
        )?;
        // The shape comes before the scaling, which needs the number of files that was asked for.
        let shape = resolve_shape(&read, place, kind, &name)?;
        let count = self.scale_fileset(&shape, attributes);
        Ok(Fileset {
            place: script.describe_position(place),
            name,
            root,
            entries: count.entries,
            entries_asked: count.asked,
            size: read.number("size", SIZE_DEFAULT)?,
            size_scale: count.size_scale,
            dirwidth: shape.dirwidth,
            dirdepth: shape.dirdepth,
            dirgamma: shape.dirgamma,
            leafdirs: count.leafdirs,
            prealloc: self.resolve_prealloc(attributes)?,
            populating: resolve_populating(&read)?,
            existing: resolve_existing(&read)?,
            access: resolve_access(&read)?,
        })
    }

    /// Returns the numbers of files and leaf directories after scaling.
    fn scale_fileset(&self, shape: &FilesetShape, attributes: &AttributeList) -> ScaledCounts {
        let scale = self.plan.options.scale;
        // A variable that counts files has been scaled already where it was set.
        let before = match attributes.get("entries") {
            Some(found) => self.variables.asked_before_scaling(&found.value),
            None => None,
        };
        let asked = before.unwrap_or(shape.entries);
        // Few files keep their number, many keep their sizes.
        let (scaled, size_scale) = scale_entries(asked, scale);
        let leafdirs = match shape.leafdirs {
            0 => 0,
            asked => scaled_count(asked, scale),
        };
        ScaledCounts {
            entries: if before.is_some() {
                shape.entries
            } else {
                scaled
            },
            asked,
            size_scale,
            leafdirs,
        }
    }

    /// Returns the percent of the files that exist from the beginning: `true` is all of them, 1 is
    /// one percent.
    fn resolve_prealloc(&self, attributes: &AttributeList) -> Result<u64, WmlError> {
        let Some(found) = attributes.get("prealloc") else {
            return Ok(0);
        };
        match (
            &found.value,
            Scope::global(&self.variables).resolve_fixed(self.script, found)?,
        ) {
            (crate::wml::AttributeValue::Bool(true), _) => Ok(100),
            (_, percent) if percent <= 100 => Ok(percent),
            (_, percent) => Err(self.script.error_at(
                found.place,
                format!("'prealloc' is {percent}, which is no percentage"),
            )),
        }
    }

    /// Returns the root of a fileset. It must lie below the directory of the run, because existing
    /// files there are removed.
    fn resolve_root(
        &self,
        place: SourcePosition,
        at_name: SourcePosition,
        path: &str,
        name: &str,
    ) -> Result<PathBuf, WmlError> {
        let dir = &self.plan.options.dir;
        debug_assert!(
            dir.is_absolute(),
            "paths are compared with an absolute directory"
        );
        let full = dir.join(path);
        // A path that climbs could leave the directory again.
        let climbs = |path: &Path| {
            path.components()
                .any(|part| matches!(part, Component::ParentDir))
        };
        if !full.starts_with(dir) || climbs(&full) {
            let message = format!(
                "the fileset '{name}' lies in {path}, outside of {}; say path=$dir, or --dir \
                 {path}",
                dir.display()
            );
            return Err(self.script.error_at(place, message));
        }
        // A name with a slash would leave the directory that was checked.
        let mut parts = Path::new(name).components();
        if !matches!(
            (parts.next(), parts.next()),
            (Some(Component::Normal(_)), None)
        ) {
            return Err(self.script.error_at(
                at_name,
                format!("the fileset's name '{name}' is no name of a directory"),
            ));
        }
        Ok(full.join(name))
    }
}

/// Holds the attributes that shape the tree of a set. They cannot be drawn anew at each use.
struct FilesetShape {
    entries: u64,
    leafdirs: u64,
    dirwidth: FixedOrDrawn,
    dirdepth: Option<usize>,
    dirgamma: u64,
}

/// Holds the numbers of a set after scaling, and the number of files that the script asks for.
struct ScaledCounts {
    entries: u64,
    asked: u64,
    size_scale: f64,
    leafdirs: u64,
}

fn resolve_shape(
    read: &ResolvedAttributes<'_>,
    place: SourcePosition,
    kind: SetKind,
    name: &str,
) -> Result<FilesetShape, WmlError> {
    let refused = |attribute: &str, message: String| {
        read.script
            .error_at(read.position(attribute, place), message)
    };
    // `define file` is a set of one, and `entries` means nothing there.
    let is_single = kind == SetKind::File;
    let entries = if is_single {
        1
    } else {
        read.fixed_number("entries", 0)?
    };
    let leafdirs = read.fixed_number("leafdirs", 0)?;
    check_entries(name, entries, leafdirs).map_err(|message| refused("entries", message))?;
    // A single file has a directory of its own, and no tree.
    let (dirwidth, dirgamma) = if is_single {
        (FixedOrDrawn::Fixed(10), 0)
    } else {
        (
            read.number("dirwidth", 0)?,
            read.fixed_number("dirgamma", GAMMA_DEFAULT)?,
        )
    };
    // A width of zero has no logarithm, and the depth would be nonsense.
    if dirwidth.is_zero() {
        let message = format!(
            "fileset '{name}' has dirwidth 0; say how many entries a directory has: dirwidth=20"
        );
        return Err(refused("dirwidth", message));
    }
    let dirdepth = drawn_depth(read.number("dirdepthrv", 0)?)
        .map_err(|message| refused("dirdepthrv", message.to_owned()))?;
    Ok(FilesetShape {
        entries,
        leafdirs,
        dirwidth,
        dirdepth,
        dirgamma,
    })
}

fn resolve_populating(read: &ResolvedAttributes<'_>) -> Result<Populating, WmlError> {
    Ok(if read.is_set("paralloc")? {
        Populating::ManyThreads
    } else {
        Populating::OneThread
    })
}

fn resolve_existing(read: &ResolvedAttributes<'_>) -> Result<ExistingFiles, WmlError> {
    // `trusttree` implies `reuse`, whether that is said or not.
    Ok(if read.is_set("trusttree")? {
        ExistingFiles::Trusted
    } else if read.is_set("reuse")? {
        ExistingFiles::Reused
    } else {
        ExistingFiles::Removed
    })
}

fn resolve_access(read: &ResolvedAttributes<'_>) -> Result<OpenAccess, WmlError> {
    // Both attributes are read even if one decides, so that a fault in either is found.
    let for_writing = read.is_set("writeonly")?;
    Ok(if read.is_set("readonly")? {
        OpenAccess::Read
    } else if for_writing {
        OpenAccess::Write
    } else {
        OpenAccess::Both
    })
}

/// Refuses a set without entries, and one with too many.
fn check_entries(name: &str, entries: u64, leafdirs: u64) -> Result<(), String> {
    if entries.saturating_add(leafdirs) == 0 {
        return Err(format!(
            "fileset '{name}' has neither files nor leaf directories; say entries=…"
        ));
    }
    if entries.max(leafdirs) > ENTRIES_MAX {
        return Err(format!(
            "fileset '{name}' has more than {ENTRIES_MAX} entries"
        ));
    }
    Ok(())
}

/// Returns the variable of the depth. It can only be drawn: a fixed depth follows from width and
/// number.
fn drawn_depth(depth: FixedOrDrawn) -> Result<Option<usize>, &'static str> {
    match depth {
        FixedOrDrawn::Drawn(which) => Ok(Some(which)),
        FixedOrDrawn::Fixed(0) => Ok(None),
        FixedOrDrawn::Fixed(_) => Err("'dirdepthrv' is a random variable, not a number"),
    }
}
