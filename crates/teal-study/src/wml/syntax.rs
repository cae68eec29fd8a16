//! What a script says: its commands in their order.

use super::WmlError;
use super::words::Kind;

/// A place in a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// Which of [`Script::files`].
    pub file: u16,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// A value as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
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
pub struct Attribute {
    /// The name, aliases resolved.
    pub name: &'static str,
    /// Where the value (or the name, if there is none) is.
    pub place: Place,
    /// The value.
    pub value: Value,
}

/// Attributes in their order; none comes twice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes(pub Vec<Attribute>);

impl Attributes {
    /// The attribute of that name, if it is given.
    pub fn get(&self, name: &str) -> Option<&Attribute> {
        self.0.iter().find(|attribute| attribute.name == name)
    }
}

/// What a variable is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assigned {
    /// A value, or another variable's.
    Value(Value),
    /// `randvar(…)` and rows of its `randtable` as percent, low, high.
    Random(Attributes, Vec<[Value; 3]>),
    /// `cvar(…)`.
    Custom(Attributes),
}

/// One flowop of a thread or of a composite one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flowop {
    /// The library's name, or that of a composite flowop.
    pub name: String,
    /// Of the library, which; `None`: a composite one.
    pub kind: Option<Kind>,
    /// Where its name is.
    pub place: Place,
    /// Its attributes.
    pub attributes: Attributes,
    /// `$local=value`, for composite ones.
    pub locals: Vec<(String, Value, Place)>,
}

/// `define flowop`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Composite {
    /// Its name.
    pub name: String,
    /// Where that is.
    pub place: Place,
    /// `name` and `iters`.
    pub attributes: Attributes,
    /// Locals and their defaults.
    pub locals: Vec<(String, Option<Value>)>,
    /// What it runs.
    pub body: Vec<Flowop>,
}

/// One `thread` of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Where it begins.
    pub place: Place,
    /// Its attributes.
    pub attributes: Attributes,
    /// What it runs, for ever.
    pub body: Vec<Flowop>,
}

/// `define process`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Where it begins.
    pub place: Place,
    /// Its attributes.
    pub attributes: Attributes,
    /// Its threads.
    pub threads: Vec<Thread>,
}

/// What ends a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quit {
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
pub enum Command {
    /// `set $name=…`
    Set(String, Assigned),
    /// `set mode quit …`
    Mode(Quit),
    /// `define file`, `define fileset`.
    Files(SetKind, Attributes),
    /// `define process`.
    Process(Process),
    /// `define flowop`.
    Composite(Composite),
    /// `eventgen rate=…`
    Eventgen(Option<Attribute>),
    /// `create files`
    Create,
    /// `run`, with seconds.
    Run(Option<Value>),
    /// `psrun`: period, seconds.
    Psrun(i64, Option<Value>),
    /// `sleep`, seconds.
    Sleep(Value),
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
pub struct Script {
    /// The files it came from; the first is the script itself.
    pub files: Vec<String>,
    /// Commands and where they begin.
    pub commands: Vec<(Place, Command)>,
    /// Words about what was accepted although it means nothing.
    pub remarks: Vec<String>,
}

impl Script {
    /// A place in words: file, line, column.
    pub fn at(&self, place: Place) -> String {
        let file = self
            .files
            .get(usize::from(place.file))
            .map_or("", String::as_str);
        format!("{file}:{}:{}", place.line, place.column)
    }

    /// An error at a place of this script.
    pub fn error(&self, place: Place, message: impl Into<String>) -> WmlError {
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
