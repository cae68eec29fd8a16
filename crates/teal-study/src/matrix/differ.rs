//! What two matrices have different, and whether their figures can be compared all the same.
//!
//! # Guarantees
//! 1. Whoever did other work is not comparable: another scale, other variables, another number of
//!    operations, another length. Scripts are the caller's, who has their text.
//! 2. Whoever did the same work elsewhere is: another device, another state. That is named.

use super::file::{Device, Matrix, Runs, Workload};

/// What is different, as `what this and that`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Differences {
    /// Figures still mean something: that may be what is to be compared.
    pub remarks: Vec<String>,
    /// They do not.
    pub reasons: Vec<String>,
}

fn size(of: Option<u64>) -> String {
    match of {
        None => "none".into(),
        Some(bytes) if bytes % (1 << 20) == 0 => format!("{}M", bytes >> 20),
        Some(bytes) => bytes.to_string(),
    }
}

fn number(of: Option<u64>) -> String {
    of.map_or("none".into(), |of| of.to_string())
}

fn device(of: &Device) -> String {
    of.profile
        .as_ref()
        .or(of.path.as_ref())
        .cloned()
        .unwrap_or_default()
}

fn tell(list: &mut Vec<String>, what: &str, a: String, b: String) {
    if a != b {
        list.push(format!("{what} {a} and {b}"));
    }
}

/// Returns what two matrices have different. Workloads and file systems that only one of them has
/// are not looked at.
pub fn differences(before: &Matrix, after: &Matrix) -> Differences {
    let Differences {
        mut remarks,
        mut reasons,
    } = Differences::default();
    let (a, b): (&Runs, &Runs) = (&before.runs, &after.runs);
    let list = &mut remarks;
    tell(
        list,
        "device",
        device(&before.device),
        device(&after.device),
    );
    tell(
        list,
        "size",
        size(before.device.size),
        size(after.device.size),
    );
    tell(
        list,
        "cache",
        format!("{:?}", a.cache).to_lowercase(),
        format!("{:?}", b.cache).to_lowercase(),
    );
    tell(list, "memory", size(a.memory), size(b.memory));
    tell(list, "aged", number(a.aged), number(b.aged));
    tell(list, "seed", a.seed.to_string(), b.seed.to_string());
    for system in &before.systems {
        if let Some(other) = after.systems.iter().find(|of| of.name == system.name)
            && (system.kind, &system.mkfs, &system.mount) != (other.kind, &other.mkfs, &other.mount)
        {
            remarks.push(format!("what {} is", system.name));
        }
    }
    let list = &mut reasons;
    tell(list, "scale", a.scale.to_string(), b.scale.to_string());
    for one in &before.workloads {
        let Some(other) = after.workloads.iter().find(|of| of.name == one.name) else {
            continue;
        };
        let set = |of: &Workload| format!("[{}]", of.set.join(" "));
        tell(
            list,
            &format!("variables of {}", one.name),
            set(one),
            set(other),
        );
        tell(
            list,
            &format!("operations of {}", one.name),
            number(one.operations),
            number(other.operations),
        );
        if one.operations.is_none() && other.operations.is_none() {
            tell(
                list,
                &format!("seconds of {}", one.name),
                a.seconds.to_string(),
                b.seconds.to_string(),
            );
        }
    }
    Differences { remarks, reasons }
}
