//! What is refused, and how errors from below become words for people.

use teal_chunk::{ChunkError, PinError, ShelfError};
use teal_meta::MetaError;
use teal_proto::{RefusalCode, Refused, Reply};

/// An error on its way to a client.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) Refused);

pub(crate) type Outcome<T> = Result<T, Refusal>;

/// A refusal of this meaning.
pub(crate) fn refuse<T>(code: RefusalCode, words: impl Into<String>) -> Outcome<T> {
    Err(Refusal::new(code, words))
}

/// The request makes no sense.
pub(crate) fn bad<T>(words: impl Into<String>) -> Outcome<T> {
    refuse(RefusalCode::BadRequest, words)
}

impl Refusal {
    pub(crate) fn new(code: RefusalCode, words: impl Into<String>) -> Self {
        Self(Refused {
            code,
            words: words.into(),
        })
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.0)
    }
}

impl From<MetaError> for Refusal {
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

impl From<ChunkError> for Refusal {
    fn from(error: ChunkError) -> Self {
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

impl From<PinError> for Refusal {
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
