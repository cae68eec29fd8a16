//! Refusals, and how errors of the stores become words for people.

use teal_chunk::{ChunkError, PinError, ShelfError};
use teal_meta::MetaError;
use teal_proto::{RefusalCode, RefusalReply, ServerReply};

/// An error on its way to a client.
#[derive(Debug)]
pub(crate) struct RequestRefusal(pub(crate) RefusalReply);

pub(crate) type Outcome<T> = Result<T, RequestRefusal>;

/// Returns a refusal with the meaning of `code`.
pub(crate) fn refuse<T>(code: RefusalCode, words: impl Into<String>) -> Outcome<T> {
    Err(RequestRefusal::new(code, words))
}

/// Returns the refusal of a request that makes no sense.
pub(crate) fn bad_request<T>(words: impl Into<String>) -> Outcome<T> {
    refuse(RefusalCode::BadRequest, words)
}

/// Refuses a peer that isn't enrolled, or not any more.
pub(crate) fn refuse_stranger<T>() -> Outcome<T> {
    let words = "this device is not enrolled any more: it was shut out; \
        let it in again on the serving machine, or enrol it \
                 with a new token";
    refuse(RefusalCode::Denied, words)
}

/// Returns whether an error says that the chunks' place is full.
pub(crate) fn is_no_room(error: &ChunkError) -> bool {
    matches!(error, ChunkError::Shelf(ShelfError::NoSpace { .. }))
}

impl RequestRefusal {
    pub(crate) fn new(code: RefusalCode, words: impl Into<String>) -> Self {
        Self(RefusalReply {
            code,
            words: words.into(),
        })
    }
}

/// Returns the refusal because of stored bytes that make no sense.
pub(crate) fn damaged(error: impl std::fmt::Display) -> RequestRefusal {
    RequestRefusal::new(RefusalCode::Damaged, error.to_string())
}

impl From<RequestRefusal> for RefusalReply {
    fn from(refusal: RequestRefusal) -> Self {
        refusal.0
    }
}

impl From<RequestRefusal> for ServerReply {
    fn from(refusal: RequestRefusal) -> Self {
        Self::Refused(refusal.0)
    }
}

impl From<MetaError> for RequestRefusal {
    fn from(error: MetaError) -> Self {
        let code = match &error {
            MetaError::NoSpace { .. } => RefusalCode::NoSpace,
            MetaError::ReadOnly { .. } => RefusalCode::ReadOnly,
            MetaError::Damaged { .. } | MetaError::Foreign { .. } | MetaError::Io { .. } => {
                RefusalCode::Damaged
            }
            MetaError::Busy { .. } => RefusalCode::Busy,
        };
        log::warn!("{error}");
        Self::new(code, error.to_string())
    }
}

impl From<ChunkError> for RequestRefusal {
    fn from(error: ChunkError) -> Self {
        // The code says what the client does next; the words are for people.
        let code = match &error {
            ChunkError::Absent { .. } => RefusalCode::NeedsChunks,
            ChunkError::Size { .. } => RefusalCode::BadRequest,
            ChunkError::ReadOnly { .. } | ChunkError::Shelf(ShelfError::ReadOnly { .. }) => {
                RefusalCode::ReadOnly
            }
            ChunkError::TooManyPins | ChunkError::Collecting => RefusalCode::Busy,
            ChunkError::Shelf(ShelfError::NoSpace { .. }) => RefusalCode::NoSpace,
            ChunkError::Damaged { .. }
            | ChunkError::WrongKey { .. }
            | ChunkError::WrongDomain { .. }
            | ChunkError::Shelf(
                ShelfError::NotFound { .. }
                | ShelfError::InUse { .. }
                | ShelfError::Unreachable { .. },
            ) => RefusalCode::Damaged,
        };
        log::warn!("{error}");
        Self::new(code, error.to_string())
    }
}

impl From<PinError> for RequestRefusal {
    fn from(error: PinError) -> Self {
        match error {
            PinError::Missing(_) => Self::new(
                RefusalCode::NeedsChunks,
                format!("{error}; send them, then commit again"),
            ),
            PinError::Store(error) => error.into(),
        }
    }
}
