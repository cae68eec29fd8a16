//! What a drive says of itself, signed with the key of the volume.

use super::super::{Replica, SyncError};
use teal_device::{Drive, DriveLabel};

/// Changes a label, with the proof that this client knows the volume.
pub(super) fn sign_label(
    replica: &Replica,
    drive: &Drive,
    change: impl FnOnce(&mut DriveLabel),
) -> Result<(), SyncError> {
    let mut signed = Ok(());
    drive.update_label(|label| {
        change(label);
        match replica.label_proof(&label.signed_bytes()) {
            Ok(proof) => label.proof = proof,
            Err(e) => signed = Err(e),
        }
    })?;
    Ok(signed?)
}
