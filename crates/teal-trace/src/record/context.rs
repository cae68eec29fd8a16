//! Holds what a recording is given: its settings, and the answers to its questions.

use crate::event::TraceHeader;
use std::time::Duration;

/// Describes a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessFacts {
    /// Process of the thread.
    pub leader: u32,
    /// Session of the process.
    pub session: u32,
    /// Name of the program.
    pub name: Vec<u8>,
}

/// Answers a recording's questions about the things it records. The recording's own thread calls
/// it.
pub trait RecordingContext: Send {
    /// Returns a directory that holds the object, and the object's name there; `None` for the root
    /// and for an object without a name.
    fn name_of(&mut self, object: u64) -> Option<(u64, Vec<u8>)>;
    /// Describes a thread; returns `None` if it is gone.
    fn process_facts(&mut self, id: u32) -> Option<ProcessFacts>;
}

/// Configures a recording.
#[derive(Debug, Clone)]
pub struct RecordingSettings {
    /// Header of the trace; [`TraceHeader::anonymous`] hides names.
    pub header: TraceHeader,
    /// Object at the top, which has no name.
    pub root: u64,
    /// Time after which the recording ends by itself.
    pub limit: Option<Duration>,
    /// Key for hiding names; it is never written.
    pub key: [u8; 16],
}
