//! The layer table, and the refusal of every dependency that does not go strictly down.

use super::Finding;
use super::rooms::{Dep, Room};

/// Where a crate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Uses strictly lower layers only.
    Layer(u8),
    /// Uses layers up to this one; is used by tests and other tools only.
    Tool(u8),
}

const PLACES: &[(&str, Place)] = &[
    ("teal", Place::Layer(7)),
    ("teal-lab", Place::Layer(7)),
    ("teal-rig", Place::Layer(6)),
    ("teal-mount", Place::Layer(6)),
    ("teal-study", Place::Layer(5)),
    ("teal-posix", Place::Layer(5)),
    ("teal-replica", Place::Layer(4)),
    ("teal-server", Place::Layer(4)),
    ("teal-device", Place::Layer(3)),
    ("teal-volume", Place::Layer(3)),
    ("teal-meta", Place::Layer(3)),
    ("teal-trace", Place::Layer(2)),
    ("teal-command", Place::Layer(2)),
    ("teal-log", Place::Layer(2)),
    ("teal-chunk", Place::Layer(2)),
    ("teal-net", Place::Layer(2)),
    ("teal-emulator", Place::Layer(2)),
    ("teal-env", Place::Layer(1)),
    ("teal-fuse", Place::Layer(1)),
    ("teal-energy", Place::Layer(1)),
    ("teal-proto", Place::Layer(1)),
    ("teal-types", Place::Layer(0)),
    ("teal-testkit", Place::Tool(1)),
    ("xtask", Place::Tool(7)),
];

fn place(name: &str) -> Option<Place> {
    PLACES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|&(_, place)| place)
}

pub(super) fn check(rooms: &[Room]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for room in rooms {
        let Some(here) = place(&room.name) else {
            let advice = format!(
                "{} is in no layer; give it one in xtask/src/tidy/layers.rs and the design",
                room.name
            );
            findings.push(Finding::new(&room.manifest, 1, "unknown-crate", advice));
            continue;
        };
        let ours = room
            .deps
            .iter()
            .filter(|dep| place(&dep.name).is_some() || dep.is_local);
        findings.extend(ours.filter_map(|dep| {
            let line = room.line_of(&dep.name);
            refusal(&room.name, here, dep)
                .map(|advice| Finding::new(&room.manifest, line, "layer", advice))
        }));
    }
    findings
}

fn refusal(name: &str, here: Place, dep: &Dep) -> Option<String> {
    let to = &dep.name;
    match (here, place(to)) {
        (_, None) => Some(format!(
            "{to} is in no layer; depend on the crates of the table only"
        )),
        (Place::Layer(_), Some(Place::Tool(_))) if to == "xtask" => {
            Some("nothing depends on xtask".into())
        }
        (Place::Layer(_), Some(Place::Tool(_))) if dep.is_dev => None,
        (Place::Layer(_), Some(Place::Tool(_))) => {
            Some(format!("{to} is for tests: make it a dev-dependency"))
        }
        (Place::Layer(mine), Some(Place::Layer(its))) if its < mine => None,
        (Place::Layer(mine), Some(Place::Layer(its))) => Some(format!(
            "{name} (layer {mine}) may not use {to} (layer {its}): use lower layers only, or move the shared part down"
        )),
        (Place::Tool(_), Some(Place::Tool(_))) if name == "xtask" => None,
        (Place::Tool(_), Some(Place::Tool(_))) => {
            Some(format!("the tool {name} may not use the tool {to}"))
        }
        (Place::Tool(most), Some(Place::Layer(its))) if its <= most => None,
        (Place::Tool(most), Some(Place::Layer(its))) => Some(format!(
            "{name} may use layers up to {most}; {to} is in layer {its}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(name: &str, deps: &[(&str, bool)]) -> Room {
        let deps = deps
            .iter()
            .map(|&(n, is_dev)| Dep {
                name: n.into(),
                is_dev,
                is_local: true,
            })
            .collect();
        Room {
            name: name.into(),
            manifest: format!("crates/{name}/Cargo.toml"),
            text: String::new(),
            deps,
        }
    }
    fn rules(room: Room) -> Vec<&'static str> {
        check(&[room]).into_iter().map(|f| f.rule).collect()
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
