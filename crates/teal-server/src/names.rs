//! Names of machines: each is different within its volume, so that conflicts and lists say which is
//! meant.

use crate::refusal::Outcome;
use teal_meta::ReadTransaction;
use teal_proto::DEVICE_NAME_MAX;

/// The name that a device gets that wants to be called `wanted`: that, or the first of `wanted-2`,
/// `wanted-3`, ... which no other replica has.
pub(crate) fn unique_device(
    txn: &dyn ReadTransaction,
    wanted: &str,
    replica: Option<u32>,
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
    Ok(name)
}

/// The beginning of a text, at most so many bytes of it.
fn cut_at_character(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
