//! Defines the items of a trace.

use super::field::{ActionField, ShownField, Text};
use super::field_bytes::FieldReader;
use std::fmt;
use std::time::Duration;
use teal_types::Timestamp;

/// Names the level at which a trace was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// Calls to a file system; objects are files, directories and the like.
    File,
    /// Requests to a device; objects are devices.
    Block,
}

/// Holds the header of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceHeader {
    /// Level of the recording.
    pub level: Level,
    /// Is true when names are hashes.
    pub anonymous: bool,
    /// Civil time of the trace's start, from which all times count; 1970 where it is not known.
    pub start: Timestamp,
    /// Name of the machine, for people.
    pub machine: Text,
    /// Origin of the trace, for people.
    pub source: Text,
}

/// Holds one item of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceItem {
    /// A program or the kernel asked for an action.
    Event(TraceEvent),
    /// An object has a name that the events so far have not told.
    Called(ObjectName),
    /// A process is described.
    Process(TracedProcess),
    /// Events are missing here, this number, because they came faster than they could be written.
    Dropped(u64),
}

/// Describes an action that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceEvent {
    /// Time of its arrival, since the trace's start. It is never before that of the event before
    /// it.
    pub at: Duration,
    /// Thread that asked, as in [`TracedProcess::id`]; 0 is the kernel or unknown.
    pub process: u32,
    /// Object of the action: the directory of a name, else the file; at block level the device. It
    /// is 0 where there is only one.
    pub object: u64,
    /// Action that was asked for.
    pub action: Action,
    /// Result of the action.
    pub outcome: EventOutcome,
    /// Time to the answer, where it is known.
    pub latency: Option<Duration>,
}

/// Holds the result of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventOutcome {
    /// The result is not known.
    Unknown,
    /// The action succeeded. The value is the number of bytes that were transferred, the object
    /// that was found or made, or the offset that was found; else 0.
    Done(u64),
    /// The action failed with this errno.
    Failed(u16),
}

/// Gives an object's name in a directory at this point of the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName {
    /// Number of the object.
    pub object: u64,
    /// Number of the directory; 0 for the root, which has an empty name.
    pub parent: u64,
    /// Name of the object in it.
    pub name: Text,
}

/// Describes a thread, until the same number is described again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedProcess {
    /// Number of the thread in [`TraceEvent::process`].
    pub id: u32,
    /// Process of this thread.
    pub leader: u32,
    /// Session of the process; 0 where it is not known.
    pub session: u32,
    /// Name of the program.
    pub name: Text,
}

/// Is a row of the table of actions: code, level, word, and the names and types of its fields.
#[cfg(test)]
pub(crate) type ActionRow = (
    u8,
    Option<Level>,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// Makes the four forms of an action from one table: code, level, word, fields.
macro_rules! actions {
    ($(
        $(#[$doc:meta])*
        $code:literal $level:ident $name:ident $word:literal { $($field:ident: $type:ty),* }
    )*) => {
        /// Names an action that was asked for. Codes and fields are those of the format.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the fields of an action are named after what they hold; \
            see its own line")]
        pub enum Action { $($(#[$doc])* $name { $($field: $type),* },)* }

        impl Action {
            /// Returns the code on the disk.
            pub(crate) fn code(&self) -> u8 {
                match self { $(Self::$name { .. } => $code,)* }
            }
            /// Returns the word in text.
            pub fn word(&self) -> &'static str {
                match self { $(Self::$name { .. } => $word,)* }
            }
            /// Returns the level of the action; `None` means any.
            pub fn level(&self) -> Option<Level> {
                match self { $(Self::$name { .. } => actions!(@level $level),)* }
            }
            pub(crate) fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$name { $($field),* } => {
                        // An action without fields writes nothing.
                        let _ = &out;
                        $($field.encode(out);)*
                    })*
                }
            }
            pub(crate) fn decode(code: u8, reader: &mut FieldReader<'_>) -> Option<Self> {
                Some(match code {
                    $($code => {
                        let _ = &reader;
                        Self::$name { $($field: ActionField::decode(reader)?),* }
                    })*
                    _ => return None,
                })
            }
            /// Writes ` key=value` for each field.
            pub(crate) fn write_text(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name { $($field),* } => {
                        $(write!(f, " {}={}", stringify!($field), ShownField($field))?;)*
                    })*
                }
                Ok(())
            }
            /// Parses an action by its word; `field` gives each value by its key.
            pub(crate) fn parse<'a>(
                word: &str,
                mut field: impl FnMut(&'static str) -> Result<&'a str, String>,
            ) -> Result<Self, String> {
                let _ = &mut field;
                Ok(match word {
                    $($word => Self::$name {
                        $($field: ActionField::parse(field(stringify!($field))?)?),*
                    },)*
                    _ => return Err(format!("'{word}' is no action")),
                })
            }
            /// Changes every name in it.
            pub(crate) fn change_names(&mut self, change: &mut dyn FnMut(&mut Text)) {
                match self {
                    $(Self::$name { $($field),* } => {
                        let _ = &change;
                        $($field.change_names(change);)*
                    })*
                }
            }
            /// Code, level, word and fields of every action.
            #[cfg(test)]
            pub(crate) const TABLE: &'static [ActionRow] = &[$((
                $code,
                actions!(@level $level),
                $word,
                &[$((stringify!($field), stringify!($type))),*],
            ),)*];
        }
    };
    (@level Any) => { None };
    (@level $level:ident) => { Some(Level::$level) };
}

actions! {
    /// A file or directory was opened.
    1 File Open "open" {}
    /// A descriptor was closed.
    2 File Close "close" {}
    /// Bytes of a file were read.
    3 File Read "read" { offset: u64, length: u64 }
    /// Bytes of a file were written.
    4 File Write "write" { offset: u64, length: u64 }
    /// A file was made durable; `data` means without its times.
    5 File Fsync "fsync" { data: bool }
    /// Everything was made durable.
    6 File Sync "sync" {}
    /// A file was given a size.
    7 File Truncate "truncate" { size: u64 }
    /// `fallocate(2)` with its mode.
    8 File Allocate "allocate" { offset: u64, length: u64, mode: u64 }
    /// Bytes were copied from one file to another (or the same) by the file system.
    9 File Copy "copy" { offset: u64, target: u64, to: u64, length: u64 }
    /// The next data or hole from here was looked for.
    10 File Seek "seek" { offset: u64, hole: bool }
    /// A name was looked up.
    11 File Lookup "lookup" { name: Text }
    /// Attributes were asked for.
    12 File Stat "stat" {}
    /// Attributes were changed: permissions, owner, times.
    13 File Setattr "setattr" { perm: bool, owner: bool, times: bool }
    /// A regular file was made.
    14 File Create "create" { name: Text }
    /// A directory was made.
    15 File Mkdir "mkdir" { name: Text }
    /// A pipe, socket or device file was made.
    16 File Mknod "mknod" { name: Text }
    /// A symbolic link was made, to a path of so many bytes.
    17 File Symlink "symlink" { name: Text, length: u64 }
    /// A further name was given to the object `target`.
    18 File Link "link" { name: Text, target: u64 }
    /// A file without a name was made in the directory.
    19 File Tmpfile "tmpfile" {}
    /// A name was removed.
    20 File Unlink "unlink" { name: Text }
    /// A directory was removed.
    21 File Rmdir "rmdir" { name: Text }
    /// A name was moved to the directory `to`; `exchange` means that the two swapped places.
    22 File Rename "rename" { name: Text, to: u64, new: Text, exchange: bool }
    /// Entries of a directory were listed; `length` bytes were asked for.
    23 File Readdir "readdir" { length: u64 }
    /// The path in a symbolic link was read.
    24 File Readlink "readlink" {}
    /// An extended attribute was read.
    25 File Getxattr "getxattr" {}
    /// An extended attribute of `length` bytes was set.
    26 File Setxattr "setxattr" { length: u64 }
    /// The names of the extended attributes were listed.
    27 File Listxattr "listxattr" {}
    /// An extended attribute was removed.
    28 File Removexattr "removexattr" {}
    /// Free space was asked for.
    29 File Statfs "statfs" {}
    /// Sectors were read.
    64 Block ReadSectors "bread" { sector: u64, bytes: u64 }
    /// Sectors were written; `flush` empties the cache before, `fua` makes them durable.
    65 Block WriteSectors "bwrite" { sector: u64, bytes: u64, flush: bool, fua: bool }
    /// The device's cache was emptied.
    66 Block Flush "bflush" {}
    /// Sectors were said to hold nothing of value.
    67 Block Discard "bdiscard" { sector: u64, bytes: u64 }
    /// A person or a script set a mark, such as the beginning of a phase.
    127 Any Mark "mark" { text: Text }
}

impl Action {
    /// Returns the word, then every field as `key=value`.
    pub fn describe(&self) -> impl fmt::Display {
        struct DescribedAction<'a>(&'a Action);
        impl fmt::Display for DescribedAction<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.0.word())?;
                self.0.write_text(f)
            }
        }
        DescribedAction(self)
    }
}

impl TraceEvent {
    /// Returns the object that this event gives a name to, or shows the name of.
    pub fn named_object(&self) -> Option<u64> {
        let EventOutcome::Done(value) = self.outcome else {
            return None;
        };
        match self.action {
            Action::Lookup { .. }
            | Action::Create { .. }
            | Action::Mkdir { .. }
            | Action::Mknod { .. }
            | Action::Symlink { .. } => Some(value),
            Action::Link { target, .. } => Some(target),
            _ => None,
        }
    }
}
