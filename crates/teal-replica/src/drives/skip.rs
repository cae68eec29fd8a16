//! Damage of one object on a drive, which keeps nothing else from going on.

use teal_log::StoreError;

/// What is damaged on a drive stays behind; it is not read.
pub(super) fn skip(done: Result<(), StoreError>) -> Result<(), StoreError> {
    match done {
        Err(e @ StoreError::Corrupt { .. }) => {
            log::warn!("on a drive: {e}");
            Ok(())
        }
        done => done,
    }
}
