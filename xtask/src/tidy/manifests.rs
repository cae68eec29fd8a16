//! The crates of the workspace as cargo sees them, and the rules for their manifests and for the
//! architecture page.

use super::finding::Finding;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::path::Path;

/// A dependency of a [`WorkspaceCrate`].
#[derive(Debug)]
pub(super) struct CrateDependency {
    pub(super) name: String,
    pub(super) is_dev: bool,
    /// Is true if it is given by a path: it is a crate of the workspace then.
    pub(super) is_local: bool,
}

/// A crate of the workspace.
#[derive(Debug)]
pub(super) struct WorkspaceCrate {
    pub(super) name: String,
    /// Its manifest, relative to the root.
    pub(super) manifest: String,
    pub(super) text: String,
    pub(super) deps: Vec<CrateDependency>,
}

impl WorkspaceCrate {
    /// Returns the line of the manifest that declares `dep`; 1 if none does.
    pub(super) fn line_of(&self, dep: &str) -> usize {
        let declares = |line: &str| {
            line.strip_prefix(dep)
                .is_some_and(|rest| rest.trim_start().starts_with(['=', '.']))
                || line.ends_with(&format!("dependencies.{dep}]"))
        };
        self.text.lines().position(declares).map_or(1, |at| at + 1)
    }
}

pub(super) fn read_manifests(metadata: &Value, root: &Path) -> Result<Vec<WorkspaceCrate>> {
    let packages = metadata["packages"]
        .as_array()
        .context("metadata without packages")?;
    packages
        .iter()
        .map(|package| {
            let path = Path::new(
                package["manifest_path"]
                    .as_str()
                    .context("package without manifest")?,
            );
            let deps = package["dependencies"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|dep| CrateDependency {
                    name: dep["name"].as_str().unwrap_or_default().to_owned(),
                    is_dev: dep["kind"] == "dev",
                    is_local: dep["path"].is_string(),
                });
            Ok(WorkspaceCrate {
                name: package["name"]
                    .as_str()
                    .context("package without name")?
                    .to_owned(),
                manifest: path
                    .strip_prefix(root)
                    .unwrap_or(path)
                    .display()
                    .to_string(),
                text: std::fs::read_to_string(path).with_context(|| path.display().to_string())?,
                deps: deps.collect(),
            })
        })
        .collect()
}

/// Checks the manifests, and that the page `architecture` names every crate.
pub(super) fn check_manifests(
    rooms: &[WorkspaceCrate],
    architecture: Option<&str>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for room in rooms {
        if !inherits_lints(&room.text) {
            let advice = "add `[lints]` with `workspace = true`";
            findings.push(Finding::new(&room.manifest, 1, "lints", advice));
        }
        if architecture.is_some_and(|page| !page.contains(&format!("`{}`", room.name))) {
            let advice = format!(
                "say in ARCHITECTURE.md what `{}` is, and what it must not know",
                room.name
            );
            findings.push(Finding::new("ARCHITECTURE.md", 1, "architecture", advice));
        }
    }
    findings
}

fn inherits_lints(manifest: &str) -> bool {
    let mut lines = manifest.lines().map(str::trim);
    lines.any(|line| line == "[lints]")
        && lines
            .take_while(|line| !line.starts_with('['))
            .any(|line| line == "workspace = true")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(text: &str) -> WorkspaceCrate {
        WorkspaceCrate {
            name: "teal-log".into(),
            manifest: "Cargo.toml".into(),
            text: text.into(),
            deps: vec![],
        }
    }

    #[test]
    fn every_crate_inherits_the_lints() {
        let rules = |text| {
            check_manifests(&[room(text)], None)
                .into_iter()
                .map(|f| f.rule)
                .collect::<Vec<_>>()
        };
        assert_eq!(rules("[lints]\nworkspace = true\n"), [""; 0]);
        assert_eq!(rules("[package]\n"), ["lints"]);
        assert_eq!(
            rules("[lints]\n[dependencies]\nworkspace = true\n"),
            ["lints"]
        );
    }

    #[test]
    fn every_crate_is_in_the_architecture_page() {
        let rooms = [room("[lints]\nworkspace = true\n")];
        assert_eq!(
            check_manifests(&rooms, Some("| `teal-log` | the store |")),
            []
        );
        assert_eq!(
            check_manifests(&rooms, Some("| `teal-logger` |"))[0].rule,
            "architecture"
        );
    }

    #[test]
    fn a_dependency_is_found_in_the_manifest() {
        let room = room(
            "[dependencies]\nteal-env-x = \"1\"\nteal-env.workspace = \
                true\n[dependencies.teal-types]\n",
        );
        assert_eq!(
            (
                room.line_of("teal-env"),
                room.line_of("teal-types"),
                room.line_of("log")
            ),
            (3, 4, 1)
        );
    }

    #[test]
    fn metadata_names_every_crate_and_its_dependencies() {
        let root = crate::workspace::workspace_root();
        let rooms = read_manifests(&super::super::cargo_metadata(root).unwrap(), root).unwrap();
        let env = rooms.iter().find(|room| room.name == "teal-env").unwrap();
        assert_eq!(env.manifest, "crates/teal-env/Cargo.toml");
        assert!(
            env.deps
                .iter()
                .any(|dep| dep.name == "teal-types" && dep.is_local && !dep.is_dev)
        );
        assert!(
            env.deps
                .iter()
                .any(|dep| dep.name == "tempfile" && !dep.is_local && dep.is_dev)
        );
    }
}
