//! Describes what a script says: its commands in their order.

use super::WmlError;
use super::words::FlowopKind;

/// Locates a token of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SourcePosition {
    /// Index in [`WorkloadScript::files`].
    pub file: u16,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// Holds a value as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeValue {
    /// Number, with its suffix multiplied out.
    Int(i64),
    /// `true`, `false`, or an attribute without a value.
    Bool(bool),
    /// Bare word or quoted string.
    Text(String),
    /// Name of a variable, without `$`.
    Variable(String),
}

/// `name=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedAttribute {
    /// Name, with aliases resolved.
    pub name: &'static str,
    /// Position of the value, or of the name if there is no value.
    pub place: SourcePosition,
    /// The value.
    pub value: AttributeValue,
}

/// Attributes in their order; none comes twice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AttributeList(pub Vec<NamedAttribute>);

impl AttributeList {
    /// Returns the attribute of that name, if it is given.
    pub fn get(&self, name: &str) -> Option<&NamedAttribute> {
        self.0.iter().find(|attribute| attribute.name == name)
    }
}

/// Holds the value that a variable is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssignedValue {
    /// Value, or another variable's.
    Value(AttributeValue),
    /// `randvar(…)` and rows of its `randtable` as percent, low, high.
    Random(AttributeList, Vec<[AttributeValue; 3]>),
    /// `cvar(…)`.
    Custom(AttributeList),
}

/// Describes one flowop of a thread or of a composite one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flowop {
    /// Name in the library, or of a composite flowop.
    pub name: String,
    /// Kind in the library; `None` means a composite one.
    pub kind: Option<FlowopKind>,
    /// Position of its name.
    pub place: SourcePosition,
    /// Attributes of the flowop.
    pub attributes: AttributeList,
    /// Locals `$local=value`, for composite ones.
    pub locals: Vec<(String, AttributeValue, SourcePosition)>,
}

/// Describes `define flowop`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompositeFlowop {
    /// Name of the flowop.
    pub name: String,
    /// Position of the name.
    pub place: SourcePosition,
    /// Attributes `name` and `iters`.
    pub attributes: AttributeList,
    /// Locals and their defaults.
    pub locals: Vec<(String, Option<AttributeValue>)>,
    /// Flowops that it runs.
    pub body: Vec<Flowop>,
}

/// Describes one `thread` of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadDefinition {
    /// Position at which it begins.
    pub place: SourcePosition,
    /// Attributes of the thread.
    pub attributes: AttributeList,
    /// Flowops that it runs again and again.
    pub body: Vec<Flowop>,
}

/// Describes `define process`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessDefinition {
    /// Position at which it begins.
    pub place: SourcePosition,
    /// Attributes of the process.
    pub attributes: AttributeList,
    /// Threads of the process.
    pub threads: Vec<ThreadDefinition>,
}

/// Names the event that ends a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QuitMode {
    /// The time ends it; a thread that ends before has spoilt the run.
    #[default]
    Timeout,
    /// The first thread that ends, ends the run.
    FirstDone,
    /// The last thread that ends, ends the run.
    AllDone,
}

/// Says whether a set of files was defined as one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetKind {
    /// `define file`.
    File,
    /// `define fileset`.
    Fileset,
}

/// Holds a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptCommand {
    /// `set $name=…`
    Set(String, AssignedValue),
    /// `set mode quit …`
    Mode(QuitMode),
    /// `define file`, `define fileset`.
    Files(SetKind, AttributeList),
    /// `define process`.
    Process(ProcessDefinition),
    /// `define flowop`.
    Composite(CompositeFlowop),
    /// `eventgen rate=…`
    Eventgen(Option<NamedAttribute>),
    /// `create files`
    Create,
    /// `run`, with seconds.
    Run(Option<AttributeValue>),
    /// `psrun`: period, seconds.
    Psrun(i64, Option<AttributeValue>),
    /// `sleep`, seconds.
    Sleep(AttributeValue),
    /// `system "…"`
    System(String),
    /// `echo "…"`
    Echo(String),
    /// `list fileset`, `list flowop`.
    List(&'static str),
    /// `version`
    Version,
    /// `quit`
    Quit,
    /// `debug N`
    Debug(i64),
    /// `enable lathist`
    Lathist,
    /// `enable multi`, `domultisync`: several machines, which this runner does not lead.
    Multi(&'static str),
    /// A command that is accepted and has no effect here.
    Nothing,
}

/// Holds a script, and those it loads, as commands in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkloadScript {
    /// Files it came from; the first is the script itself.
    pub files: Vec<String>,
    /// Commands and the positions at which they begin.
    pub commands: Vec<(SourcePosition, ScriptCommand)>,
    /// Remarks on commands that were accepted although they have no effect.
    pub remarks: Vec<String>,
}

impl WorkloadScript {
    /// Returns a position in words: file, line, column.
    pub fn describe_position(&self, place: SourcePosition) -> String {
        let file = self
            .files
            .get(usize::from(place.file))
            .map_or("", String::as_str);
        format!("{file}:{}:{}", place.line, place.column)
    }

    /// Returns an error at a position of this script.
    pub fn error_at(&self, place: SourcePosition, message: impl Into<String>) -> WmlError {
        let file = self
            .files
            .get(usize::from(place.file))
            .cloned()
            .unwrap_or_default();
        WmlError {
            file,
            line: place.line,
            column: place.column,
            message: message.into(),
        }
    }
}
