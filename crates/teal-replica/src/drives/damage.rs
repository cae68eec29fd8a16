//! Damage of one object on a drive, which keeps nothing else from going on.

use teal_log::StoreError;

/// Passes over what is damaged on a drive: it stays behind and is not read.
pub(super) fn skip_damaged(done: Result<(), StoreError>) -> Result<(), StoreError> {
    match done {
        Err(e @ StoreError::Corrupt { .. }) => {
            log::warn!("on a drive: {e}");
            Ok(())
        }
        done => done,
    }
}
