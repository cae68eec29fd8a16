//! Lists the words of the language: keywords, flowops, and the type of each attribute.

/// Names a flowop of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(
    missing_docs,
    reason = "each is what its name says; docs/wml.md has the table"
)]
pub enum FlowopKind {
    OpenFile,
    CreateFile,
    CloseFile,
    DeleteFile,
    StatFile,
    Read,
    Write,
    ReadWholeFile,
    WriteWholeFile,
    AppendFile,
    AppendFileRand,
    Fsync,
    FsyncSet,
    MakeDir,
    RemoveDir,
    ListDir,
    AioWrite,
    AioWait,
    Block,
    Wakeup,
    SemBlock,
    SemPost,
    EventLimit,
    IopsLimit,
    OpsLimit,
    BwLimit,
    FinishOnCount,
    FinishOnBytes,
    Hog,
    Delay,
    Print,
    TestRandVar,
}

use FlowopKind::*;

/// All flowops with their names.
pub(super) const FLOWOPS: [(&str, FlowopKind); 32] = [
    ("openfile", OpenFile),
    ("createfile", CreateFile),
    ("closefile", CloseFile),
    ("deletefile", DeleteFile),
    ("statfile", StatFile),
    ("read", Read),
    ("write", Write),
    ("readwholefile", ReadWholeFile),
    ("writewholefile", WriteWholeFile),
    ("appendfile", AppendFile),
    ("appendfilerand", AppendFileRand),
    ("fsync", Fsync),
    ("fsyncset", FsyncSet),
    ("makedir", MakeDir),
    ("removedir", RemoveDir),
    ("listdir", ListDir),
    ("aiowrite", AioWrite),
    ("aiowait", AioWait),
    ("block", Block),
    ("wakeup", Wakeup),
    ("semblock", SemBlock),
    ("sempost", SemPost),
    ("eventlimit", EventLimit),
    ("iopslimit", IopsLimit),
    ("opslimit", OpsLimit),
    ("bwlimit", BwLimit),
    ("finishoncount", FinishOnCount),
    ("finishonbytes", FinishOnBytes),
    ("hog", Hog),
    ("delay", Delay),
    ("print", Print),
    ("testrandvar", TestRandVar),
];

impl FlowopKind {
    /// Returns the flowop of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        FLOWOPS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, kind)| *kind)
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        FLOWOPS
            .iter()
            .find(|(_, kind)| *kind == self)
            .map_or("", |(name, _)| name)
    }

    /// Returns whether it counts in the summary: I/O, asynchronous too.
    pub fn is_io(self) -> bool {
        (self as usize) <= AioWait as usize
    }

    /// Returns whether it counts as a read in the summary.
    pub fn is_read(self) -> bool {
        matches!(self, Read | ReadWholeFile)
    }

    /// Returns whether it counts as a write in the summary. Filebench counts aiowait too, which is
    /// no write here.
    pub fn is_write(self) -> bool {
        matches!(
            self,
            Write | WriteWholeFile | AppendFile | AppendFileRand | AioWrite
        )
    }
}

/// Names the type of an attribute's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttributeType {
    Int,
    Bool,
    Text,
    /// Number or truth: `prealloc`.
    Share,
    /// Text or number.
    Any,
    /// Word of the language: `type=uniform`.
    Word,
    /// Any value; it is accepted and has no effect.
    Ignored,
}

use AttributeType::{Any, Bool, Ignored, Int, Share, Text, Word};

/// Lists attributes with their types, for one kind of definition.
pub(super) type AttributeTable = &'static [(&'static str, AttributeType)];

pub(super) const FILE: AttributeTable = &[
    ("name", Text),
    ("path", Text),
    ("size", Int),
    ("prealloc", Share),
    ("paralloc", Bool),
    ("reuse", Bool),
    ("trusttree", Bool),
    ("readonly", Bool),
    ("writeonly", Bool),
    ("cached", Ignored),
];
pub(super) const FILESET: AttributeTable = &[
    ("name", Text),
    ("path", Text),
    ("entries", Int),
    ("size", Int),
    ("dirwidth", Int),
    ("dirdepthrv", Int),
    ("dirgamma", Int),
    ("leafdirs", Int),
    ("prealloc", Share),
    ("paralloc", Bool),
    ("reuse", Bool),
    ("trusttree", Bool),
    ("readonly", Bool),
    ("writeonly", Bool),
    ("cached", Ignored),
];
pub(super) const PROCESS: AttributeTable = &[("name", Text), ("instances", Int), ("nice", Int)];
pub(super) const THREAD: AttributeTable = &[
    ("name", Text),
    ("instances", Int),
    ("memsize", Int),
    ("useism", Bool),
    ("ioprio", Int),
];
pub(super) const COMPOSITE: AttributeTable = &[("name", Text), ("iters", Int)];
pub(super) const FLOWOP: AttributeTable = &[
    ("name", Text),
    ("iters", Int),
    ("filename", Text),
    ("fd", Int),
    ("srcfd", Int),
    ("iosize", Int),
    ("workingset", Int),
    ("random", Bool),
    ("dsync", Bool),
    ("directio", Bool),
    ("opennext", Bool),
    ("indexed", Int),
    ("value", Any),
    ("target", Text),
    ("blocking", Bool),
    ("highwater", Int),
    ("noreadahead", Bool),
    ("cached", Ignored),
];
pub(super) const RANDVAR: AttributeTable = &[
    ("name", Any),
    ("type", Word),
    ("seed", Int),
    ("gamma", Int),
    ("mean", Int),
    ("min", Int),
    ("round", Int),
    ("randsrc", Word),
    ("randtable", Word),
];
pub(super) const CVAR: AttributeTable = &[
    ("type", Word),
    ("parameters", Text),
    ("min", Int),
    ("max", Int),
    ("round", Int),
];
pub(super) const EVENTGEN: AttributeTable = &[("rate", Int)];
pub(super) const MULTI: AttributeTable = &[("master", Text), ("client", Text), ("value", Int)];

/// Resolves an alias.
pub(super) fn canonical_name(name: &str) -> &str {
    match name {
        "filesetname" => "filename",
        "filesize" => "size",
        other => other,
    }
}

/// Returns whether a word has a meaning everywhere, and can be a string only in quotes.
pub(super) fn is_keyword(word: &str) -> bool {
    // The commands and their words; attributes follow from the tables.
    const COMMANDS: &[&str] = &[
        "set",
        "define",
        "create",
        "run",
        "psrun",
        "sleep",
        "system",
        "echo",
        "list",
        "version",
        "quit",
        "debug",
        "enable",
        "eventgen",
        "domultisync",
        "mode",
        "timeout",
        "firstdone",
        "alldone",
        "nousestats",
        "lathist",
        "multi",
        "in",
        "file",
        "files",
        "fileset",
        "filesets",
        "process",
        "processes",
        "thread",
        "flowop",
        "randvar",
        "cvar",
        "uniform",
        "tabular",
        "rand48",
        "urandom",
        "true",
        "false",
        "filesetname",
        "filesize",
    ];
    // Attributes are keywords too, in whatever definition they occur.
    let tables = [
        FILE, FILESET, PROCESS, THREAD, COMPOSITE, FLOWOP, RANDVAR, CVAR, EVENTGEN, MULTI,
    ];
    COMMANDS.contains(&word)
        || tables
            .iter()
            .any(|table| table.iter().any(|(name, _)| *name == word))
}
