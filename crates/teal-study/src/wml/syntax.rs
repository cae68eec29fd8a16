//! What a script says: its commands in their order.

use super::WmlError;
use super::words::FlowopKind;

/// A place in a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SourcePosition {
    /// Which of [`Script::files`].
    pub file: u16,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// A value as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeValue {
    /// A number, its suffix multiplied out.
    Int(i64),
    /// `true`, `false`, or an attribute without a value.
    Bool(bool),
    /// A bare word or a quoted string.
    Text(String),
    /// A variable's name, without `$`.
    Variable(String),
}

/// `name=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedAttribute {
    /// The name, aliases resolved.
    pub name: &'static str,
    /// Where the value (or the name, if there is none) is.
    pub place: SourcePosition,
    /// The value.
    pub value: AttributeValue,
}

/// Attributes in their order; none comes twice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AttributeList(pub Vec<NamedAttribute>);

impl AttributeList {
    /// The attribute of that name, if it is given.
    pub fn get(&self, name: &str) -> Option<&NamedAttribute> {
        self.0.iter().find(|attribute| attribute.name == name)
    }
}

/// What a variable is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssignedValue {
    /// A value, or another variable's.
    Value(AttributeValue),
    /// `randvar(…)` and rows of its `randtable` as percent, low, high.
    Random(AttributeList, Vec<[AttributeValue; 3]>),
    /// `cvar(…)`.
    Custom(AttributeList),
}

/// One flowop of a thread or of a composite one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flowop {
    /// The library's name, or that of a composite flowop.
    pub name: String,
    /// Of the library, which; `None`: a composite one.
    pub kind: Option<FlowopKind>,
    /// Where its name is.
    pub place: SourcePosition,
    /// Its attributes.
    pub attributes: AttributeList,
    /// `$local=value`, for composite ones.
    pub locals: Vec<(String, AttributeValue, SourcePosition)>,
}

/// `define flowop`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompositeFlowop {
    /// Its name.
    pub name: String,
    /// Where that is.
    pub place: SourcePosition,
    /// `name` and `iters`.
    pub attributes: AttributeList,
    /// Locals and their defaults.
    pub locals: Vec<(String, Option<AttributeValue>)>,
    /// What it runs.
    pub body: Vec<Flowop>,
}

/// One `thread` of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadDefinition {
    /// Where it begins.
    pub place: SourcePosition,
    /// Its attributes.
    pub attributes: AttributeList,
    /// What it runs, for ever.
    pub body: Vec<Flowop>,
}

/// `define process`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessDefinition {
    /// Where it begins.
    pub place: SourcePosition,
    /// Its attributes.
    pub attributes: AttributeList,
    /// Its threads.
    pub threads: Vec<ThreadDefinition>,
}

/// What ends a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QuitMode {
    /// The time; a thread that ends before has spoilt the run.
    #[default]
    Timeout,
    /// The first thread that ends.
    FirstDone,
    /// The last.
    AllDone,
}

/// Whether a set of files was defined as one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetKind {
    /// `define file`.
    File,
    /// `define fileset`.
    Fileset,
}

/// A command.
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
    /// What is accepted and means nothing here.
    Nothing,
}

/// A script, and those it loads, as commands in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkloadScript {
    /// The files it came from; the first is the script itself.
    pub files: Vec<String>,
    /// Commands and where they begin.
    pub commands: Vec<(SourcePosition, ScriptCommand)>,
    /// Words about what was accepted although it means nothing.
    pub remarks: Vec<String>,
}

impl WorkloadScript {
    /// A place in words: file, line, column.
    pub fn describe_position(&self, place: SourcePosition) -> String {
        let file = self
            .files
            .get(usize::from(place.file))
            .map_or("", String::as_str);
        format!("{file}:{}:{}", place.line, place.column)
    }

    /// An error at a place of this script.
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
