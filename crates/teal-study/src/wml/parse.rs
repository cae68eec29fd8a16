//! Parses tokens into commands.

mod attributes;
mod definitions;

use super::lex::{Token, tokenize};
use super::syntax::{
    AssignedValue, AttributeValue, Flowop, QuitMode, ScriptCommand, SourcePosition, WorkloadScript,
};
use super::words::{self, FLOWOPS};
use super::{WmlError, did_you_mean};

/// Returns the text of a script that another loads by name, or the reason why it cannot.
pub type ScriptLoader<'a> = &'a mut dyn FnMut(&str) -> Result<String, String>;

/// Limits the depth of scripts that load each other.
const LOADS_MAX: usize = 16;
/// Commands that Filebench once had, and their replacements.
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

/// Reads a script called `name`, and the scripts that it loads.
///
/// # Errors
/// Returns the first fault, with its position.
pub fn parse_script(
    name: &str,
    text: &str,
    source: ScriptLoader<'_>,
) -> Result<WorkloadScript, WmlError> {
    let mut script = WorkloadScript::default();
    script.files.push(name.to_owned());
    parse_file(&mut script, 0, text, source, &mut vec![name.to_owned()])?;
    // Composite flowops may be defined after their use, so calls are checked last.
    for (_, command) in &script.commands {
        check_composites(&script, command)?;
    }
    Ok(script)
}

fn parse_file(
    script: &mut WorkloadScript,
    file: u16,
    text: &str,
    source: ScriptLoader<'_>,
    open: &mut Vec<String>,
) -> Result<(), WmlError> {
    // The script keeps the first error only: later ones often follow from it.
    let tokens =
        tokenize(text, file).map_err(|(place, message)| script.error_at(place, message))?;
    let mut parser = Parser {
        tokens,
        next: 0,
        remarks: Vec::new(),
    };
    // A script ends at the end of its text, without a closing command.
    loop {
        let place = parser.position();
        if parser.peek() == &Token::End {
            script.remarks.append(&mut parser.remarks);
            return Ok(());
        }
        // `load` is handled here, because it needs the script's other files.
        let parsed = match parser.parse_load() {
            Some(Ok(name)) => {
                load_script(script, place, &name, source, open)?;
                continue;
            }
            Some(Err(wrong)) => Err(wrong),
            None => parser.parse_command(),
        };
        match parsed {
            Ok(command) => script.commands.push((place, command)),
            Err((place, message)) => return Err(script.error_at(place, message)),
        }
    }
}

fn load_script(
    script: &mut WorkloadScript,
    place: SourcePosition,
    name: &str,
    source: ScriptLoader<'_>,
    open: &mut Vec<String>,
) -> Result<(), WmlError> {
    if open.iter().any(|above| above == name) {
        let chain = format!("{} -> {name}", open.join(" -> "));
        return Err(script.error_at(
            place,
            format!("cyclic load: {chain}; take one of these loads out"),
        ));
    }
    if open.len() >= LOADS_MAX {
        return Err(script.error_at(
            place,
            format!("scripts load each other more than {LOADS_MAX} deep"),
        ));
    }
    // The chain of open scripts is known, so a cycle is found before its text is read again.
    let text = source(name)
        .map_err(|why| script.error_at(place, format!("cannot load '{name}': {why}")))?;
    let file =
        u16::try_from(script.files.len()).map_err(|_| script.error_at(place, "too many loads"))?;
    script.files.push(name.to_owned());
    open.push(name.to_owned());
    parse_file(script, file, &text, source, open)?;
    open.pop();
    Ok(())
}

/// Refuses calls of unknown flowops: a flowop that is neither in the library nor defined is an
/// error at its call.
fn check_composites(script: &WorkloadScript, command: &ScriptCommand) -> Result<(), WmlError> {
    // Bodies of threads and of composite flowops can both call.
    let bodies: Vec<&[Flowop]> = match command {
        ScriptCommand::Process(process) => process
            .threads
            .iter()
            .map(|thread| &thread.body[..])
            .collect(),
        ScriptCommand::Composite(composite) => vec![&composite.body],
        _ => return Ok(()),
    };
    // The library is searched too, for a typing error in one of its names.
    let defined = composite_names(script);
    for flowop in bodies.into_iter().flatten() {
        if flowop.kind.is_some() || defined.contains(&flowop.name.as_str()) {
            continue;
        }
        let library = FLOWOPS.iter().map(|(name, _)| *name);
        let mut hint = did_you_mean(&flowop.name, library.chain(defined.iter().copied()));
        if hint.is_empty() {
            hint.push_str("; docs/wml.md lists them");
        }
        let message = format!("unknown flowop '{}'{hint}", flowop.name);
        return Err(script.error_at(flowop.place, message));
    }
    Ok(())
}

/// Returns the names of composite flowops. Those of all loaded files count, wherever they are
/// defined.
fn composite_names(script: &WorkloadScript) -> Vec<&str> {
    let mut names = Vec::new();
    for (_, command) in &script.commands {
        if let ScriptCommand::Composite(composite) = command {
            names.push(composite.name.as_str());
        }
    }
    names
}

/// Describes a word with which no command begins, and what may be meant.
fn describe_unknown_command(word: &str) -> String {
    // Old commands are known by name, so that their users learn what to write now.
    if let Some((_, advice)) = GONE.iter().find(|(gone, _)| *gone == word) {
        return format!("'{word}' is of an older Filebench; {advice}");
    }
    // A path such as path=$dir/sub ends at the variable.
    let hint = if word.starts_with('/') {
        "; a variable is not continued: give a variable of its own the whole path".to_owned()
    } else {
        did_you_mean(word, COMMANDS.iter().copied())
    };
    format!("syntax error at '{word}': no command begins so{hint}")
}

type ParseResult<T> = Result<T, (SourcePosition, String)>;

struct Parser {
    tokens: Vec<(SourcePosition, Token)>,
    next: usize,
    remarks: Vec<String>,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].1
    }

    fn position(&self) -> SourcePosition {
        self.tokens[self.next].0
    }

    fn take_token(&mut self) -> Token {
        let token = self.peek().clone();
        // The end token stays, so that reading on finds it again.
        // Every error tells what was expected instead.
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

    fn unexpected<T>(&self, wanted: &str) -> ParseResult<T> {
        Err((
            self.position(),
            format!(
                "syntax error at {}: {wanted} is wanted here",
                self.peek().describe()
            ),
        ))
    }

    fn expect_sign(&mut self, sign: char) -> ParseResult<()> {
        if !self.is_sign(sign) {
            return self.unexpected(&format!("'{sign}'"));
        }
        self.take_token();
        Ok(())
    }

    /// Takes a word of the language, one of these.
    fn expect_one_of(&mut self, words: &[&'static str]) -> ParseResult<&'static str> {
        let found = words.iter().find(|word| self.is_word(word)).copied();
        match found {
            Some(word) => {
                self.take_token();
                Ok(word)
            }
            None => self.unexpected(&words.join(" or ")),
        }
    }

    fn expect_quoted(&mut self, what: &str) -> ParseResult<String> {
        match self.peek().clone() {
            Token::Quoted(text) => {
                self.take_token();
                Ok(text)
            }
            _ => self.unexpected(&format!("{what} in double quotes")),
        }
    }

    fn expect_variable(&mut self) -> ParseResult<String> {
        match self.peek().clone() {
            Token::Variable(name) => {
                self.take_token();
                Ok(name)
            }
            _ => self.unexpected("a variable such as $name"),
        }
    }

    /// Takes `load NAME`, which the grammar of today's Filebench no longer has.
    fn parse_load(&mut self) -> Option<ParseResult<String>> {
        if !self.is_word("load") {
            return None;
        }
        self.take_token();
        Some(match self.peek().clone() {
            Token::Word(name) | Token::Quoted(name) => {
                self.take_token();
                Ok(name)
            }
            _ => self.unexpected("the name of a script"),
        })
    }

    fn parse_command(&mut self) -> ParseResult<ScriptCommand> {
        let place = self.position();
        let Token::Word(word) = self.peek().clone() else {
            return self.unexpected("a command");
        };
        self.take_token();
        // The word decides; each command takes the tokens that belong to it.
        Ok(match word.as_str() {
            "set" => self.parse_set()?,
            "define" => self.parse_define(place)?,
            "eventgen" => {
                let attributes = self.parse_attributes(words::EVENTGEN, "eventgen")?;
                ScriptCommand::Eventgen(attributes.0.into_iter().next())
            }
            "create" => {
                self.expect_one_of(&["files", "file", "fileset", "filesets"])?;
                ScriptCommand::Create
            }
            "run" => ScriptCommand::Run(self.optional_int()?),
            "psrun" => self.parse_psrun()?,
            "sleep" => match self.optional_int()? {
                Some(seconds) => ScriptCommand::Sleep(seconds),
                None => return self.unexpected("a number of seconds or a variable"),
            },
            "system" => ScriptCommand::System(self.expect_quoted("a command")?),
            "echo" => ScriptCommand::Echo(self.expect_quoted("a text")?),
            "list" => ScriptCommand::List(self.expect_one_of(&["fileset", "filesets", "flowop"])?),
            "version" => ScriptCommand::Version,
            "quit" => ScriptCommand::Quit,
            "debug" => self.parse_debug()?,
            "enable" => self.parse_enable()?,
            "domultisync" => {
                self.parse_attributes(words::MULTI, "domultisync")?;
                ScriptCommand::Multi("domultisync")
            }
            other => return Err((place, describe_unknown_command(other))),
        })
    }

    /// Takes the period and the length of `psrun`, as far as they are given.
    fn parse_psrun(&mut self) -> ParseResult<ScriptCommand> {
        let Token::Int(period) = *self.peek() else {
            return Ok(ScriptCommand::Psrun(0, None));
        };
        self.take_token();
        Ok(ScriptCommand::Psrun(period, self.optional_int()?))
    }

    fn parse_debug(&mut self) -> ParseResult<ScriptCommand> {
        let Token::Int(level @ 0..=10) = *self.peek() else {
            return self.unexpected("a level from 0 to 10");
        };
        self.take_token();
        Ok(ScriptCommand::Debug(level))
    }

    fn parse_enable(&mut self) -> ParseResult<ScriptCommand> {
        if self.expect_one_of(&["lathist", "multi"])? == "lathist" {
            return Ok(ScriptCommand::Lathist);
        }
        self.parse_attributes(words::MULTI, "enable multi")
            .map(|_| ScriptCommand::Multi("enable multi"))
    }

    fn optional_int(&mut self) -> ParseResult<Option<AttributeValue>> {
        let place = self.position();
        match self.peek().clone() {
            // Only psrun has a negative number, and a meaning for it.
            Token::Int(n) if n < 0 => Err((
                place,
                format!("{n} seconds are no time; only psrun's period is negative"),
            )),
            Token::Int(n) => {
                self.take_token();
                Ok(Some(AttributeValue::Int(n)))
            }
            Token::Variable(name) => {
                self.take_token();
                Ok(Some(AttributeValue::Variable(name)))
            }
            _ => Ok(None),
        }
    }

    fn parse_set(&mut self) -> ParseResult<ScriptCommand> {
        // `set mode` looks like an assignment without a variable.
        if self.is_word("mode") {
            self.take_token();
            if self.expect_one_of(&["quit", "nousestats"])? == "nousestats" {
                return Ok(ScriptCommand::Nothing);
            }
            return Ok(ScriptCommand::Mode(
                match self.expect_one_of(&["timeout", "firstdone", "alldone"])? {
                    "firstdone" => QuitMode::FirstDone,
                    "alldone" => QuitMode::AllDone,
                    _ => QuitMode::Timeout,
                },
            ));
        }
        let name = self.expect_variable()?;
        self.expect_sign('=')?;
        // Random and custom variables have attributes in brackets.
        let assigned = match self.peek().clone() {
            Token::Word(word) if word == "randvar" || word == "cvar" => {
                self.take_token();
                self.expect_sign('(')?;
                let assigned = if word == "cvar" {
                    AssignedValue::Custom(self.parse_attributes(words::CVAR, "cvar")?)
                } else {
                    let (attributes, table) = self.parse_randvar()?;
                    AssignedValue::Random(attributes, table)
                };
                self.expect_sign(')')?;
                assigned
            }
            _ => AssignedValue::Value(self.parse_value("a value")?),
        };
        Ok(ScriptCommand::Set(name, assigned))
    }
}
