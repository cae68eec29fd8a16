//! Why something between this replica and the server did not work.

use teal_device::UpstreamError;
use teal_log::StoreError;
use teal_proto::{RefusalCode, RefusalReply};
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
    fn from(error: SyncError) -> Self {
        let words = error.to_string();
        match error {
            SyncError::Fs(error) => error,
            SyncError::Upstream(error) => match error {
                UpstreamError::Unreachable(_) => Self::Unreachable(words),
                UpstreamError::Denied(_) => Self::Denied(words),
                UpstreamError::Refused(refused) => match Refusal::of(refused.code) {
                    Refusal::Stranger => Self::Denied(words),
                    Refusal::ForNow => Self::NotNow(words),
                    Refusal::ForGood => Self::Refused(words),
                },
                UpstreamError::Protocol(_) => Self::Refused(words),
            },
            SyncError::Later => Self::NotNow(words),
            SyncError::TooLarge => Self::LimitReached("the size of a batch"),
        }
    }
}

/// The meaning of a refusal for the operation that met it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The server does not know this replica, or not any more.
    Stranger,
    /// A later attempt may be answered.
    ForNow,
    /// Each further attempt is refused.
    ForGood,
}

impl Refusal {
    pub(crate) const fn of(code: RefusalCode) -> Self {
        match code {
            RefusalCode::Denied => Self::Stranger,
            RefusalCode::NoSpace
            | RefusalCode::ReadOnly
            | RefusalCode::Busy
            | RefusalCode::Stopping
            | RefusalCode::NeedsChunks
            | RefusalCode::NeedsParts
            | RefusalCode::Cloned => Self::ForNow,
            RefusalCode::BadRequest | RefusalCode::Damaged => Self::ForGood,
        }
    }
}

/// Returns the error for a reply that does not fit the request.
pub(crate) fn unexpected(what: &str) -> UpstreamError {
    UpstreamError::Protocol(teal_proto::CodecError::Malformed(format!(
        "an answer that does not fit: {what}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_server_keeps_its_meaning_on_the_way_to_a_program() {
        let refused = |code| {
            SyncError::from(RefusalReply {
                code,
                words: "no".into(),
            })
        };
        let host = FsError::Unreachable(String::new()).errno();
        let damage = FsError::Io(StoreError::Poisoned).errno();
        let cases = [
            (UpstreamError::Unreachable("away".into()).into(), host),
            (UpstreamError::Denied("shut out".into()).into(), host),
            (refused(RefusalCode::Denied), host),
            (refused(RefusalCode::Busy), host),
            (refused(RefusalCode::Damaged), damage),
            (unexpected("to a read").into(), damage),
        ];
        let numbers = cases.map(|(error, errno)| {
            let words = error.to_string();
            let error = FsError::from(error);
            assert!(error.to_string().ends_with(&words), "{error}");
            (error.errno(), errno)
        });
        assert!(numbers.iter().all(|(got, wanted)| got == wanted));
        assert!(matches!(
            FsError::from(refused(RefusalCode::Denied)),
            FsError::Denied(_)
        ));
        assert!(matches!(
            FsError::from(refused(RefusalCode::Stopping)),
            FsError::NotNow(_)
        ));
    }
}
