//! The layer table, and the refusal of every dependency that does not go strictly down.

use super::finding::Finding;
use super::manifests::{CrateDependency, WorkspaceCrate};

/// The place of a crate in the layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CratePlace {
    /// Uses strictly lower layers only.
    Layer(u8),
    /// Uses layers up to this one; is used by tests and other tools only.
    Tool(u8),
}

const PLACES: &[(&str, CratePlace)] = &[
    ("teal", CratePlace::Layer(7)),
    ("teal-lab", CratePlace::Layer(7)),
    ("teal-rig", CratePlace::Layer(6)),
    ("teal-mount", CratePlace::Layer(6)),
    ("teal-study", CratePlace::Layer(5)),
    ("teal-posix", CratePlace::Layer(5)),
    ("teal-replica", CratePlace::Layer(4)),
    ("teal-server", CratePlace::Layer(4)),
    ("teal-device", CratePlace::Layer(3)),
    ("teal-volume", CratePlace::Layer(3)),
    ("teal-meta", CratePlace::Layer(3)),
    ("teal-trace", CratePlace::Layer(2)),
    ("teal-command", CratePlace::Layer(2)),
    ("teal-log", CratePlace::Layer(2)),
    ("teal-chunk", CratePlace::Layer(2)),
    ("teal-net", CratePlace::Layer(2)),
    ("teal-emulator", CratePlace::Layer(2)),
    ("teal-env", CratePlace::Layer(1)),
    ("teal-fuse", CratePlace::Layer(1)),
    ("teal-energy", CratePlace::Layer(1)),
    ("teal-proto", CratePlace::Layer(1)),
    ("teal-types", CratePlace::Layer(0)),
    ("teal-testkit", CratePlace::Tool(1)),
    ("xtask", CratePlace::Tool(7)),
];

fn place_of(name: &str) -> Option<CratePlace> {
    PLACES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|&(_, place)| place)
}

pub(super) fn check_layers(rooms: &[WorkspaceCrate]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for room in rooms {
        let Some(here) = place_of(&room.name) else {
            let advice = format!(
                "{} is in no layer; give it one in xtask/src/tidy/layers.rs and the design",
                room.name
            );
            findings.push(Finding::new(&room.manifest, 1, "unknown-crate", advice));
            continue;
        };
        // Crates from outside have no layer.
        let ours = room
            .deps
            .iter()
            .filter(|dep| place_of(&dep.name).is_some() || dep.is_local);
        findings.extend(ours.filter_map(|dep| {
            let line = room.line_of(&dep.name);
            refuse_dependency(&room.name, here, dep)
                .map(|advice| Finding::new(&room.manifest, line, "layer", advice))
        }));
    }
    findings
}

fn refuse_dependency(name: &str, here: CratePlace, dep: &CrateDependency) -> Option<String> {
    let to = &dep.name;
    match (here, place_of(to)) {
        (_, None) => Some(format!(
            "{to} is in no layer; depend on the crates of the table only"
        )),
        (CratePlace::Layer(_), Some(CratePlace::Tool(_))) if to == "xtask" => {
            Some("nothing depends on xtask".into())
        }
        (CratePlace::Layer(_), Some(CratePlace::Tool(_))) if dep.is_dev => None,
        (CratePlace::Layer(_), Some(CratePlace::Tool(_))) => {
            Some(format!("{to} is for tests: make it a dev-dependency"))
        }
        (CratePlace::Layer(mine), Some(CratePlace::Layer(its))) if its < mine => None,
        (CratePlace::Layer(mine), Some(CratePlace::Layer(its))) => Some(format!(
            "{name} (layer {mine}) may not use {to} (layer {its}): use lower layers only, or move \
                the shared part down"
        )),
        (CratePlace::Tool(_), Some(CratePlace::Tool(_))) if name == "xtask" => None,
        (CratePlace::Tool(_), Some(CratePlace::Tool(_))) => {
            Some(format!("the tool {name} may not use the tool {to}"))
        }
        (CratePlace::Tool(most), Some(CratePlace::Layer(its))) if its <= most => None,
        (CratePlace::Tool(most), Some(CratePlace::Layer(its))) => Some(format!(
            "{name} may use layers up to {most}; {to} is in layer {its}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(name: &str, deps: &[(&str, bool)]) -> WorkspaceCrate {
        let deps = deps
            .iter()
            .map(|&(n, is_dev)| CrateDependency {
                name: n.into(),
                is_dev,
                is_local: true,
            })
            .collect();
        WorkspaceCrate {
            name: name.into(),
            manifest: format!("crates/{name}/Cargo.toml"),
            text: String::new(),
            deps,
        }
    }
    fn rules(room: WorkspaceCrate) -> Vec<&'static str> {
        check_layers(&[room]).into_iter().map(|f| f.rule).collect()
    }

    #[test]
    fn dependencies_go_strictly_down() {
        assert_eq!(
            rules(room(
                "teal-log",
                &[("teal-env", false), ("teal-types", false)]
            )),
            [""; 0]
        );
        assert_eq!(rules(room("teal-log", &[("teal-chunk", false)])), ["layer"]);
        assert_eq!(rules(room("teal-env", &[("teal-log", true)])), ["layer"]);
        assert_eq!(rules(room("teal-env", &[("teal-stray", false)])), ["layer"]);
    }

    #[test]
    fn a_crate_stands_in_the_table() {
        assert_eq!(rules(room("teal-wolverine", &[])), ["unknown-crate"]);
    }

    #[test]
    fn the_testkit_is_for_tests() {
        assert_eq!(rules(room("teal-log", &[("teal-testkit", true)])), [""; 0]);
        assert_eq!(
            rules(room("teal-log", &[("teal-testkit", false)])),
            ["layer"]
        );
        assert_eq!(rules(room("xtask", &[("teal-testkit", false)])), [""; 0]);
        assert_eq!(
            rules(room("teal-testkit", &[("teal-log", true)])),
            ["layer"]
        );
        assert_eq!(rules(room("teal", &[("xtask", true)])), ["layer"]);
    }
}
