//! Finds the differences of two matrices, and tells whether their figures can still be compared.
//!
//! # Guarantees
//! 1. Matrices that did other work are not comparable: another scale, other variables, another
//!    number of operations, another length. The caller compares scripts, because it has their text.
//! 2. Matrices that did the same work elsewhere, on another device or in another state, are
//!    comparable. The difference is named.

use super::file::{Matrix, MatrixDevice, MatrixWorkload, RunRules};

/// Lists differences in words, as `name this and that`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MatrixDifferences {
    /// Differences that leave the figures comparable: they may be what is to be compared.
    pub remarks: Vec<String>,
    /// Differences that make the figures incomparable.
    pub reasons: Vec<String>,
}

fn format_size(of: Option<u64>) -> String {
    match of {
        None => "none".into(),
        Some(bytes) if bytes % (1 << 20) == 0 => format!("{}M", bytes >> 20),
        Some(bytes) => bytes.to_string(),
    }
}

fn format_number(of: Option<u64>) -> String {
    of.map_or("none".into(), |of| of.to_string())
}

fn device_name(of: &MatrixDevice) -> String {
    of.profile
        .as_ref()
        .or(of.path.as_ref())
        .cloned()
        .unwrap_or_default()
}

fn note_difference(list: &mut Vec<String>, what: &str, a: String, b: String) {
    if a != b {
        list.push(format!("{what} {a} and {b}"));
    }
}

/// Returns the differences of two matrices. Workloads and file systems that only one of them has
/// are ignored.
pub fn find_differences(before: &Matrix, after: &Matrix) -> MatrixDifferences {
    // A difference is told once, with the figures of both.
    let mut found = MatrixDifferences::default();
    // Remarks come from all that may differ, reasons from all that must not.
    note_devices(before, after, &mut found.remarks);
    note_states(&before.runs, &after.runs, &mut found.remarks);
    note_systems(before, after, &mut found.remarks);
    note_difference(
        &mut found.reasons,
        "scale",
        before.runs.scale.to_string(),
        after.runs.scale.to_string(),
    );
    for one in &before.workloads {
        if let Some(other) = after.workloads.iter().find(|of| of.name == one.name) {
            note_workload(one, other, &mut found.reasons);
            // Only runs that end by time depend on their length.
            if one.operations.is_none() && other.operations.is_none() {
                note_difference(
                    &mut found.reasons,
                    &format!("seconds of {}", one.name),
                    before.runs.seconds.to_string(),
                    after.runs.seconds.to_string(),
                );
            }
        }
    }
    found
}

/// Notes differences of the devices.
fn note_devices(before: &Matrix, after: &Matrix, list: &mut Vec<String>) {
    let [a, b] = [&before.device, &after.device];
    note_difference(list, "device", device_name(a), device_name(b));
    note_difference(list, "size", format_size(a.size), format_size(b.size));
}

/// Notes differences of the state of caches and files. They change figures, but they may be what
/// the user wants to compare.
fn note_states(a: &RunRules, b: &RunRules, list: &mut Vec<String>) {
    // The word is that of the file.
    let cache = |rules: &RunRules| format!("{:?}", rules.cache).to_lowercase();
    note_difference(list, "cache", cache(a), cache(b));
    note_difference(list, "memory", format_size(a.memory), format_size(b.memory));
    note_difference(list, "aged", format_number(a.aged), format_number(b.aged));
    note_difference(list, "seed", a.seed.to_string(), b.seed.to_string());
}

/// Notes file systems that have other options under the same name.
fn note_systems(before: &Matrix, after: &Matrix, list: &mut Vec<String>) {
    for system in &before.systems {
        if let Some(other) = after.systems.iter().find(|of| of.name == system.name)
            && (system.kind, &system.mkfs, &system.mount) != (other.kind, &other.mkfs, &other.mount)
        {
            list.push(format!("what {} is", system.name));
        }
    }
}

/// Notes differences of the work of a workload, which make its figures incomparable.
fn note_workload(one: &MatrixWorkload, other: &MatrixWorkload, list: &mut Vec<String>) {
    // Variables are compared as they are written: their order counts.
    let set = |of: &MatrixWorkload| format!("[{}]", of.set.join(" "));
    note_difference(
        list,
        &format!("variables of {}", one.name),
        set(one),
        set(other),
    );
    note_difference(
        list,
        &format!("operations of {}", one.name),
        format_number(one.operations),
        format_number(other.operations),
    );
}
