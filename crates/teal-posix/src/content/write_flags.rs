//! The options of a write besides its place and content.

/// The options of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteFlags {
    /// At the end of the file as it stands, whatever the offset.
    pub append: bool,
    /// The file is open with `O_APPEND`, and the caller takes the offset for its end: where that is
    /// the size the caller was last given of it, the write [appends](Self::append).
    pub asks_for_end: bool,
    /// The caller may not keep set-user-id and set-group-id.
    pub kill_suidgid: bool,
}

impl WriteFlags {
    /// Returns whether the write may go behind everything that is there.
    pub(super) fn may_append(self) -> bool {
        self.append || self.asks_for_end
    }
}
