//! From tokens to commands.

mod attributes;
mod definitions;

use super::lex::{Token, lex};
use super::syntax::{Assigned, Command, Flowop, Place, Quit, Script, Value};
use super::words::{self, FLOWOPS};
use super::{WmlError, did_you_mean};

/// Gives the text of a script that another loads by name, or says why it cannot.
pub type Source<'a> = &'a mut dyn FnMut(&str) -> Result<String, String>;

/// Scripts that load each other, at most so deep.
const LOADS_MAX: usize = 16;
/// Commands Filebench once had, and what to write instead.
const GONE: &[(&str, &str)] = &[
    (
        "usage",
        "take it out: `teal lab workloads` describes workloads",
    ),
    (
        "stats",
        "take it out: figures are taken over the whole run and for each second of it",
    ),
    (
        "foreach",
        "write the runs out, or call the program with --set for each",
    ),
    (
        "shutdown",
        "take it out: a run ends by its time or its end rule",
    ),
];
const COMMANDS: &[&str] = &[
    "set",
    "define",
    "eventgen",
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
    "domultisync",
    "load",
];

/// Reads a script called `name`, and what it loads.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub fn parse(name: &str, text: &str, source: Source<'_>) -> Result<Script, WmlError> {
    let mut script = Script::default();
    script.files.push(name.to_owned());
    read(&mut script, 0, text, source, &mut vec![name.to_owned()])?;
    for (place, command) in &script.commands {
        check_composites(&script, *place, command)?;
    }
    Ok(script)
}

fn read(
    script: &mut Script,
    file: u16,
    text: &str,
    source: Source<'_>,
    open: &mut Vec<String>,
) -> Result<(), WmlError> {
    let tokens = lex(text, file).map_err(|(place, message)| script.error(place, message))?;
    let mut parser = Parser {
        tokens,
        next: 0,
        remarks: Vec::new(),
    };
    loop {
        let place = parser.place();
        if parser.peek() == &Token::End {
            script.remarks.append(&mut parser.remarks);
            return Ok(());
        }
        let parsed = match parser.loaded() {
            Some(Ok(name)) => {
                load(script, place, &name, source, open)?;
                continue;
            }
            Some(Err(wrong)) => Err(wrong),
            None => parser.command(),
        };
        match parsed {
            Ok(command) => script.commands.push((place, command)),
            Err((place, message)) => return Err(script.error(place, message)),
        }
    }
}

fn load(
    script: &mut Script,
    place: Place,
    name: &str,
    source: Source<'_>,
    open: &mut Vec<String>,
) -> Result<(), WmlError> {
    if open.iter().any(|above| above == name) {
        let chain = format!("{} -> {name}", open.join(" -> "));
        return Err(script.error(
            place,
            format!("cyclic load: {chain}; take one of these loads out"),
        ));
    }
    if open.len() >= LOADS_MAX {
        return Err(script.error(
            place,
            format!("scripts load each other more than {LOADS_MAX} deep"),
        ));
    }
    let text =
        source(name).map_err(|why| script.error(place, format!("cannot load '{name}': {why}")))?;
    let file =
        u16::try_from(script.files.len()).map_err(|_| script.error(place, "too many loads"))?;
    script.files.push(name.to_owned());
    open.push(name.to_owned());
    read(script, file, &text, source, open)?;
    open.pop();
    Ok(())
}

/// Refuses commands that cannot be called: what is called but is neither in the library nor defined
/// is an error where it is called.
fn check_composites(script: &Script, place: Place, command: &Command) -> Result<(), WmlError> {
    let bodies: Vec<&[Flowop]> = match command {
        Command::Process(process) => process
            .threads
            .iter()
            .map(|thread| &thread.body[..])
            .collect(),
        Command::Composite(composite) => vec![&composite.body],
        _ => return Ok(()),
    };
    let defined = || {
        script
            .commands
            .iter()
            .filter_map(|(_, command)| match command {
                Command::Composite(composite) => Some(composite.name.as_str()),
                _ => None,
            })
    };
    let _ = place;
    for flowop in bodies
        .into_iter()
        .flatten()
        .filter(|flowop| flowop.kind.is_none())
    {
        if !defined().any(|name| name == flowop.name) {
            let known = FLOWOPS.iter().map(|(name, _)| *name).chain(defined());
            let hint = did_you_mean(&flowop.name, known);
            let message = format!("unknown flowop '{}'{hint}", flowop.name);
            let message = if hint.is_empty() {
                message + "; docs/wml.md lists them"
            } else {
                message
            };
            return Err(script.error(flowop.place, message));
        }
    }
    Ok(())
}

type Parsed<T> = Result<T, (Place, String)>;

struct Parser {
    tokens: Vec<(Place, Token)>,
    next: usize,
    remarks: Vec<String>,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].1
    }

    fn place(&self) -> Place {
        self.tokens[self.next].0
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        // The end stays.
        if self.next + 1 < self.tokens.len() {
            self.next += 1;
        }
        token
    }

    fn is_sign(&self, sign: char) -> bool {
        *self.peek() == Token::Sign(sign)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(next) if next == word)
    }

    fn wrong<T>(&self, wanted: &str) -> Parsed<T> {
        Err((
            self.place(),
            format!(
                "syntax error at {}: {wanted} is wanted here",
                self.peek().shown()
            ),
        ))
    }

    fn sign(&mut self, sign: char) -> Parsed<()> {
        if !self.is_sign(sign) {
            return self.wrong(&format!("'{sign}'"));
        }
        self.take();
        Ok(())
    }

    /// A word of the language, one of these.
    fn one_of(&mut self, words: &[&'static str]) -> Parsed<&'static str> {
        let found = words.iter().find(|word| self.is_word(word)).copied();
        match found {
            Some(word) => {
                self.take();
                Ok(word)
            }
            None => self.wrong(&words.join(" or ")),
        }
    }

    fn quoted(&mut self, what: &str) -> Parsed<String> {
        match self.peek().clone() {
            Token::Quoted(text) => {
                self.take();
                Ok(text)
            }
            _ => self.wrong(&format!("{what} in double quotes")),
        }
    }

    fn variable(&mut self) -> Parsed<String> {
        match self.peek().clone() {
            Token::Variable(name) => {
                self.take();
                Ok(name)
            }
            _ => self.wrong("a variable such as $name"),
        }
    }

    /// `load NAME`, which the grammar of today's Filebench no longer has.
    fn loaded(&mut self) -> Option<Parsed<String>> {
        if !self.is_word("load") {
            return None;
        }
        self.take();
        Some(match self.peek().clone() {
            Token::Word(name) | Token::Quoted(name) => {
                self.take();
                Ok(name)
            }
            _ => self.wrong("the name of a script"),
        })
    }

    fn command(&mut self) -> Parsed<Command> {
        let place = self.place();
        let Token::Word(word) = self.peek().clone() else {
            return self.wrong("a command");
        };
        self.take();
        match word.as_str() {
            "set" => self.set(),
            "define" => self.define(place),
            "eventgen" => {
                let attributes = self.attributes(words::EVENTGEN, "eventgen")?;
                Ok(Command::Eventgen(attributes.0.into_iter().next()))
            }
            "create" => self
                .one_of(&["files", "file", "fileset", "filesets"])
                .map(|_| Command::Create),
            "run" => self.optional_int().map(Command::Run),
            "psrun" => {
                let period = match self.peek() {
                    Token::Int(period) => *period,
                    _ => return Ok(Command::Psrun(0, None)),
                };
                self.take();
                Ok(Command::Psrun(period, self.optional_int()?))
            }
            "sleep" => match self.optional_int()? {
                Some(seconds) => Ok(Command::Sleep(seconds)),
                None => self.wrong("a number of seconds or a variable"),
            },
            "system" => self.quoted("a command").map(Command::System),
            "echo" => self.quoted("a text").map(Command::Echo),
            "list" => self
                .one_of(&["fileset", "filesets", "flowop"])
                .map(Command::List),
            "version" => Ok(Command::Version),
            "quit" => Ok(Command::Quit),
            "debug" => match *self.peek() {
                Token::Int(level @ 0..=10) => {
                    self.take();
                    Ok(Command::Debug(level))
                }
                _ => self.wrong("a level from 0 to 10"),
            },
            "enable" => self.enable(),
            "domultisync" => self
                .attributes(words::MULTI, "domultisync")
                .map(|_| Command::Multi("domultisync")),
            other => match GONE.iter().find(|(gone, _)| *gone == other) {
                Some((_, advice)) => Err((
                    place,
                    format!("'{other}' is of an older Filebench; {advice}"),
                )),
                None => {
                    let hint = match other.strip_prefix('/') {
                        // As in path=$dir/sub.
                        Some(_) => {
                            "; a variable is not continued: give a variable of its own the whole path".to_owned()
                        }
                        None => did_you_mean(other, COMMANDS.iter().copied()),
                    };
                    Err((
                        place,
                        format!("syntax error at '{other}': no command begins so{hint}"),
                    ))
                }
            },
        }
    }

    fn enable(&mut self) -> Parsed<Command> {
        if self.one_of(&["lathist", "multi"])? == "lathist" {
            return Ok(Command::Lathist);
        }
        self.attributes(words::MULTI, "enable multi")
            .map(|_| Command::Multi("enable multi"))
    }

    fn optional_int(&mut self) -> Parsed<Option<Value>> {
        let place = self.place();
        match self.peek().clone() {
            Token::Int(n) if n < 0 => Err((
                place,
                format!("{n} seconds are no time; only psrun's period is negative"),
            )),
            Token::Int(n) => {
                self.take();
                Ok(Some(Value::Int(n)))
            }
            Token::Variable(name) => {
                self.take();
                Ok(Some(Value::Variable(name)))
            }
            _ => Ok(None),
        }
    }

    fn set(&mut self) -> Parsed<Command> {
        if self.is_word("mode") {
            self.take();
            if self.one_of(&["quit", "nousestats"])? == "nousestats" {
                return Ok(Command::Nothing);
            }
            return Ok(Command::Mode(
                match self.one_of(&["timeout", "firstdone", "alldone"])? {
                    "firstdone" => Quit::FirstDone,
                    "alldone" => Quit::AllDone,
                    _ => Quit::Timeout,
                },
            ));
        }
        let name = self.variable()?;
        self.sign('=')?;
        let assigned = match self.peek().clone() {
            Token::Word(word) if word == "randvar" || word == "cvar" => {
                self.take();
                self.sign('(')?;
                let assigned = if word == "cvar" {
                    Assigned::Custom(self.attributes(words::CVAR, "cvar")?)
                } else {
                    let (attributes, table) = self.randvar()?;
                    Assigned::Random(attributes, table)
                };
                self.sign(')')?;
                assigned
            }
            _ => Assigned::Value(self.value("a value")?),
        };
        Ok(Command::Set(name, assigned))
    }
}
