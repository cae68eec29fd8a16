//! Writes and reads a trace as text: one line an item, for people, `grep` and scripts.
//!
//! | line | is |
//! |---|---|
//! | `teal-trace 1 file` | the first line: version and level |
//! | `start 1763769600.000000000` | the trace's start, seconds since 1970-01-01 UTC |
//! | `machine "…"`, `source "…"`, `anonymous` | the rest of the header, each optional |
//! | `TIME PROCESS OBJECT WORD KEY=VALUE… = VALUE in TIME` | an event that was done; `! ERRNO` instead if it failed, nothing if that is not known; `in` its latency, if known |
//! | `called OBJECT PARENT "NAME"` | a name of an object |
//! | `process ID LEADER SESSION "NAME"` | a process |
//! | `dropped COUNT` | events are missing here |
//! | `# …` | a remark, also behind an item |
//!
//! Times are seconds with up to nine decimals. In quotes, `\"`, `\\` and `\xNN` stand for a byte
//! each.

use super::event::{
    Action, EventOutcome, Level, ObjectName, TraceEvent, TraceHeader, TraceItem, TracedProcess,
};
use super::field::{ActionField, ShownField, Text};
use super::format::VERSION;
use std::fmt;
use std::io::{self, BufRead, Read as _};
use std::time::Duration;
use teal_types::Timestamp;

/// Limits a line in bytes: three names of 4096 bytes, each as `\xNN`, and the rest.
pub const LINE_MAX: usize = 64 << 10;

struct DisplaySeconds(Duration);

impl fmt::Display for DisplaySeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0.as_secs(), self.0.subsec_nanos())
    }
}

impl fmt::Display for TraceItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(event) => event.fmt(f),
            Self::Called(c) => write!(
                f,
                "called {} {} {}",
                c.object,
                c.parent,
                ShownField(&c.name)
            ),
            Self::Process(p) => write!(
                f,
                "process {} {} {} {}",
                p.id,
                p.leader,
                p.session,
                ShownField(&p.name)
            ),
            Self::Dropped(count) => write!(f, "dropped {count}"),
        }
    }
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} {}",
            DisplaySeconds(self.at),
            self.process,
            self.object,
            self.action.describe()
        )?;
        match self.outcome {
            EventOutcome::Unknown => {}
            EventOutcome::Done(value) => write!(f, " = {value}")?,
            EventOutcome::Failed(errno) => write!(f, " ! {errno}")?,
        }
        self.latency.map_or(Ok(()), |latency| {
            write!(f, " in {}", DisplaySeconds(latency))
        })
    }
}

/// Returns the header as lines of text.
pub fn text_header(header: &TraceHeader) -> String {
    let level = match header.level {
        Level::File => "file",
        Level::Block => "block",
    };
    let Timestamp { secs, nanos } = header.start;
    format!(
        "teal-trace {VERSION} {level}\nstart {secs}.{nanos:09}\nmachine {}\nsource {}\n{}",
        ShownField(&header.machine),
        ShownField(&header.source),
        if header.anonymous { "anonymous\n" } else { "" }
    )
}

/// Says why a line is refused.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// Reading failed.
    #[error("reading line {line}")]
    Io {
        /// Number of the line, from 1.
        line: u64,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// The line has no meaning.
    #[error("line {line}: {what}")]
    Wrong {
        /// Number of the line, from 1.
        line: u64,
        /// Fault of the line.
        what: String,
    },
}

/// Reads text: an iterator over its items.
#[derive(Debug)]
pub struct TextReader<R> {
    input: R,
    line: u64,
    header: TraceHeader,
    /// First line behind the header.
    first: Option<String>,
}

impl<R: BufRead> TextReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// Returns a [`LineError`].
    pub fn new(input: R) -> Result<Self, LineError> {
        let empty = Text::default();
        let header = TraceHeader {
            level: Level::File,
            anonymous: false,
            start: Timestamp::default(),
            machine: empty.clone(),
            source: empty,
        };
        let mut this = Self {
            input,
            line: 0,
            header,
            first: None,
        };
        let first = this.next_line()?.unwrap_or_default();
        this.header.level = match split_words(&first).as_deref() {
            Ok(["teal-trace", "1", "file"]) => Level::File,
            Ok(["teal-trace", "1", "block"]) => Level::Block,
            _ => {
                return Err(this.line_error(
                    "a trace begins with 'teal-trace 1 file' or 'teal-trace 1 block'".into(),
                ));
            }
        };
        // The first line that is not of the header begins the items, and is kept.
        while let Some(line) = this.next_line()? {
            let said =
                split_words(&line).and_then(|words| parse_header_line(&mut this.header, &words));
            if !said.map_err(|what| this.line_error(what))? {
                this.first = Some(line);
                break;
            }
        }
        Ok(this)
    }

    /// Returns the header.
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// Returns the number of the line read last, from 1.
    pub fn line_number(&self) -> u64 {
        self.line
    }

    fn line_error(&self, what: String) -> LineError {
        LineError::Wrong {
            line: self.line,
            what,
        }
    }

    /// Returns the next line that is neither empty nor a remark.
    fn next_line(&mut self) -> Result<Option<String>, LineError> {
        loop {
            self.line += 1;
            let mut bytes = Vec::new();
            // One byte more than the limit shows a line that is too long.
            let read = (&mut self.input)
                .take(LINE_MAX as u64 + 1)
                .read_until(b'\n', &mut bytes);
            let read = read.map_err(|source| LineError::Io {
                line: self.line,
                source,
            })?;
            if read == 0 {
                return Ok(None);
            }
            if read > LINE_MAX {
                return Err(self.line_error(format!("longer than {LINE_MAX} bytes")));
            }
            let line =
                String::from_utf8(bytes).map_err(|_| self.line_error("not UTF-8 text".into()))?;
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                return Ok(Some(line.to_owned()));
            }
        }
    }
}

impl<R: BufRead> Iterator for TextReader<R> {
    type Item = Result<TraceItem, LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = match self.first.take() {
            Some(line) => line,
            None => match self.next_line() {
                Ok(line) => line?,
                Err(error) => return Some(Err(error)),
            },
        };
        Some(
            split_words(&line)
                .and_then(|words| parse_item(&words))
                .map_err(|what| self.line_error(what)),
        )
    }
}

/// Splits at blanks, but not inside quotes, up to a remark.
fn split_words(line: &str) -> Result<Vec<&str>, String> {
    let (mut found, mut start, mut quoted, mut escaped) = (Vec::new(), None, false, false);
    for (at, c) in line.char_indices() {
        match c {
            ' ' | '\t' if !quoted => {
                found.extend(start.take().map(|start: usize| &line[start..at]));
                continue;
            }
            '#' if start.is_none() => break,
            '"' if !escaped => quoted = !quoted,
            _ => {}
        }
        // A backslash escapes the next byte, unless it is escaped itself.
        escaped = quoted && c == '\\' && !escaped;
        start.get_or_insert(at);
    }
    if quoted {
        return Err("a quote is not closed".into());
    }
    found.extend(start.map(|start| &line[start..]));
    Ok(found)
}

fn parse_number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("'{text}' is no number, or too large"))
}

/// Parses seconds with up to nine decimals into whole seconds and nanoseconds.
fn parse_decimals(text: &str) -> Result<(&str, u32), String> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 9 || !part.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!(
            "'{text}' is no time in seconds with at most nine decimals"
        ));
    }
    Ok((whole, parse_number(&format!("{part:0<9}"))?))
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let (whole, nanos) = parse_decimals(text)?;
    let time = Duration::new(parse_number(whole)?, nanos);
    // The format has nanoseconds in 64 bits.
    if u64::try_from(time.as_nanos()).is_err() {
        Err(format!("'{text}' is too long a time"))
    } else {
        Ok(time)
    }
}

/// Takes a line of the header; returns `false` if it is none.
fn parse_header_line(header: &mut TraceHeader, words: &[&str]) -> Result<bool, String> {
    match words {
        ["start", at] => {
            let (secs, nanos) = parse_decimals(at)?;
            header.start = Timestamp {
                secs: parse_number(secs)?,
                nanos,
            };
        }
        ["machine", text] => header.machine = Text::parse(text)?,
        ["source", text] => header.source = Text::parse(text)?,
        ["anonymous"] => header.anonymous = true,
        _ => return Ok(false),
    }
    Ok(true)
}

fn parse_item(words: &[&str]) -> Result<TraceItem, String> {
    Ok(match words {
        ["called", object, parent, name] => TraceItem::Called(ObjectName {
            object: parse_number(object)?,
            parent: parse_number(parent)?,
            name: Text::parse(name)?,
        }),
        ["process", id, leader, session, name] => TraceItem::Process(TracedProcess {
            id: parse_number(id)?,
            leader: parse_number(leader)?,
            session: parse_number(session)?,
            name: Text::parse(name)?,
        }),
        ["dropped", count] => TraceItem::Dropped(parse_number(count)?),
        [at, process, object, word, rest @ ..] => {
            TraceItem::Event(parse_event([at, process, object], word, rest)?)
        }
        _ => return Err(format!("'{}' is no item", words.join(" "))),
    })
}

fn is_field(word: &str) -> bool {
    word.split_once('=').is_some_and(|(key, _)| !key.is_empty())
}

/// Parses an action with its fields. A field that the action does not have is an error, not a
/// comment.
fn parse_action(word: &str, fields: &[&str]) -> Result<Action, String> {
    let mut used = 0;
    let action = Action::parse(word, |key| {
        used += 1;
        let mut found = None;
        for field in fields {
            if let Some((name, value)) = field.split_once('=')
                && name == key
                && found.replace(value).is_some()
            {
                return Err(format!("{key}= is there twice"));
            }
        }
        found.ok_or_else(|| format!("'{word}' needs {key}="))
    })?;
    if used != fields.len() {
        return Err(format!("'{word}' has no such field: {}", fields.join(" ")));
    }
    Ok(action)
}

/// Parses an outcome, if there is one; returns the words behind it.
fn parse_outcome<'a, 'b>(words: &'a [&'b str]) -> Result<(EventOutcome, &'a [&'b str]), String> {
    match words {
        ["=", value, behind @ ..] => Ok((EventOutcome::Done(parse_number(value)?), behind)),
        ["!", errno, behind @ ..] => match parse_number(errno) {
            Ok(number) if number > 0 => Ok((EventOutcome::Failed(number), behind)),
            _ => Err(format!("'{errno}' is no errno")),
        },
        _ => Ok((EventOutcome::Unknown, words)),
    }
}

fn parse_event(
    [at, process, object]: [&str; 3],
    word: &str,
    rest: &[&str],
) -> Result<TraceEvent, String> {
    // Fields come first; the outcome and the latency follow.
    let mut count = 0;
    while rest.get(count).is_some_and(|word| is_field(word)) {
        count += 1;
    }
    let (fields, behind) = rest.split_at(count);
    let action = parse_action(word, fields)?;
    let (outcome, behind) = parse_outcome(behind)?;
    let latency = match behind {
        [] => None,
        ["in", time] => Some(parse_seconds(time)?),
        _ => return Err(format!("'{}' means nothing here", behind.join(" "))),
    };
    Ok(TraceEvent {
        at: parse_seconds(at)?,
        process: parse_number(process)?,
        object: parse_number(object)?,
        action,
        outcome,
        latency,
    })
}
