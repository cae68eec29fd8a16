//! Turns `define file` and `define fileset` into sets of files.

use super::super::random::FixedOrDrawn;
use super::values::Scope;
use super::{Fileset, OpenAccess, PlanBuilder};
use crate::wml::{AttributeList, ScriptCommand, SetKind, SourcePosition, WmlError};
use std::path::{Component, Path, PathBuf};

/// Limits the files of a set.
const ENTRIES_MAX: u64 = 1 << 24;
/// Number of files below which a scaled set keeps all, and makes them smaller.
const FEW: u64 = 100;
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
        let (script, scope) = (self.script, Scope::global(&self.variables));
        // Attributes are read by closures, because each has a default of its own.
        let text = |name: &str| {
            attributes
                .get(name)
                .map(|found| scope.resolve_text(script, found))
                .transpose()
        };
        let number = |name: &str, default: u64| match attributes.get(name) {
            Some(found) => scope.resolve_number(script, found),
            None => Ok(FixedOrDrawn::Fixed(default)),
        };
        // These attributes shape the tree, so they cannot be drawn anew at each use.
        let fixed = |name: &str, default: u64| match attributes.get(name) {
            Some(found) => scope.resolve_fixed(script, found),
            None => Ok(default),
        };
        let is = |name: &str| fixed(name, 0).map(|n| n != 0);
        let Some(name) = text("name")? else {
            return Err(script.error_at(place, "a fileset needs a name: name=…"));
        };
        let Some(path) = text("path")? else {
            return Err(script.error_at(
                place,
                format!("fileset '{name}' has no path; say path=$dir"),
            ));
        };
        let at = |name: &str| attributes.get(name).map_or(place, |found| found.place);
        // Positions of errors are those of the attributes at fault.
        let root = self.resolve_root(at("path"), at("name"), &path, &name)?;
        let single = kind == SetKind::File;
        let entries = if single { 1 } else { fixed("entries", 0)? };
        let leafdirs = fixed("leafdirs", 0)?;
        if entries + leafdirs == 0 {
            return Err(script.error_at(
                at("entries"),
                format!("fileset '{name}' has neither files nor leaf directories; say entries=…"),
            ));
        }
        if entries.max(leafdirs) > ENTRIES_MAX {
            return Err(script.error_at(
                at("entries"),
                format!("fileset '{name}' has more than {ENTRIES_MAX} entries"),
            ));
        }
        // A single file has a directory of its own, and no tree.
        let dirwidth = if single {
            FixedOrDrawn::Fixed(10)
        } else {
            number("dirwidth", 0)?
        };
        if dirwidth.is_zero() {
            let message = format!(
                "fileset '{name}' has dirwidth 0; say how many entries a directory has: dirwidth=20"
            );
            return Err(script.error_at(at("dirwidth"), message));
        }
        let dirdepth = drawn_depth(number("dirdepthrv", 0)?)
            .map_err(|message| script.error_at(at("dirdepthrv"), message))?;
        let prealloc = self.resolve_prealloc(attributes)?;
        let access = match (is("readonly")?, is("writeonly")?) {
            (true, _) => OpenAccess::Read,
            (false, true) => OpenAccess::Write,
            (false, false) => OpenAccess::Both,
        };
        // A variable that counts files has been scaled already where it was set.
        let asked = attributes
            .get("entries")
            .and_then(|found| self.variables.asked_before_scaling(&found.value));
        // Few files keep their number, many keep their sizes.
        let (mut scaled, size_scale) =
            scale_entries(asked.unwrap_or(entries), self.plan.options.scale);
        if asked.is_some() {
            scaled = entries;
        }
        Ok(Fileset {
            place: script.describe_position(place),
            name,
            root,
            entries: scaled,
            entries_asked: asked.unwrap_or(entries),
            size: number("size", SIZE_DEFAULT)?,
            size_scale,
            dirwidth,
            dirdepth,
            dirgamma: if single {
                0
            } else {
                fixed("dirgamma", GAMMA_DEFAULT)?
            },
            leafdirs: if leafdirs == 0 {
                0
            } else {
                scaled_count(leafdirs, self.plan.options.scale)
            },
            prealloc,
            paralloc: is("paralloc")?,
            reuse: is("reuse")? || is("trusttree")?,
            trusttree: is("trusttree")?,
            access,
        })
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

fn scaled_count(count: u64, scale: f64) -> u64 {
    ((count as f64 * scale).round() as u64).max(1)
}

/// Returns the number of files after scaling, and the factor on their sizes.
pub(super) fn scale_entries(entries: u64, scale: f64) -> (u64, f64) {
    // A set of few files loses its character when their number changes.
    if entries < FEW {
        (entries, scale)
    } else {
        (scaled_count(entries, scale), 1.0)
    }
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
