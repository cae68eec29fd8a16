//! Why something between this replica and the server did not work.

use teal_device::UpstreamError;
use teal_log::StoreError;
use teal_proto::RefusalReply;
use teal_types::limits::BATCH_BYTES_MAX;
use teal_volume::FsError;

/// Why something between this replica and the server did not work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    #[error(transparent)]
    Fs(#[from] FsError),
    /// Other changes go before the content of this batch.
    #[error("other changes go first")]
    Later,
    /// The operations of a batch are more than a server keeps.
    #[error("its operations are more than {BATCH_BYTES_MAX} bytes")]
    TooLarge,
}

impl From<StoreError> for SyncError {
    fn from(e: StoreError) -> Self {
        Self::Fs(e.into())
    }
}

impl From<RefusalReply> for SyncError {
    fn from(refused: RefusalReply) -> Self {
        Self::Upstream(refused.into())
    }
}

impl From<SyncError> for FsError {
    fn from(e: SyncError) -> Self {
        match e {
            SyncError::Fs(e) => e,
            e => Self::Unreachable(e.to_string()),
        }
    }
}

/// A reply that does not fit the request.
pub(crate) fn unexpected(what: &str) -> UpstreamError {
    UpstreamError::Protocol(teal_proto::CodecError::Malformed(format!(
        "an answer that does not fit: {what}"
    )))
}
