//! Names of machines: each is different within its volume, so that conflicts and lists say which is
//! meant.

use crate::refusal::Outcome;
use teal_meta::ReadTransaction;
use teal_proto::DEVICE_NAME_MAX;
use teal_types::ReplicaNo;

/// Returns the name for a device that wants to be called `wanted`: that, or the first of
/// `wanted-2`, `wanted-3`, ... that no other replica has.
pub(crate) fn unique_device(
    txn: &dyn ReadTransaction,
    wanted: &str,
    replica: Option<ReplicaNo>,
) -> Outcome<String> {
    let others = txn.replicas()?;
    let is_taken = |name: &str| {
        others
            .iter()
            .any(|(number, row)| Some(*number) != replica && row.device == name)
    };
    let mut name = wanted.to_owned();
    // Among one name more than there are others, one is free.
    for number in 2..others.len() + 3 {
        if !is_taken(&name) {
            break;
        }
        let suffix = format!("-{number}");
        name = format!(
            "{}{suffix}",
            cut_at_character(wanted, DEVICE_NAME_MAX - suffix.len())
        );
    }
    debug_assert!(
        !is_taken(&name),
        "one name more than there are replicas is tried"
    );
    Ok(name)
}

/// Returns the beginning of a text, cut between characters to at most `bytes` bytes.
fn cut_at_character(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    debug_assert!(end <= bytes, "a cut text is no longer than allowed");
    &text[..end]
}
