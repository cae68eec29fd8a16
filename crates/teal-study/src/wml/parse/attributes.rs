//! Lists of `name=value`.

use super::super::did_you_mean;
use super::super::lex::Token;
use super::super::syntax::{Assigned, Attribute, Attributes, Command, Place, Value};
use super::super::words::{self, Holds, Table, canonical, is_keyword};
use super::{Parsed, Parser};

/// What a composite flowop is given, or has as default.
type Local = (String, Option<Value>, Place);

impl Parser {
    pub(super) fn attributes(&mut self, table: Table, of: &str) -> Parsed<Attributes> {
        let (attributes, locals) = self.attributes_and_locals(table, of)?;
        match locals.first() {
            None => Ok(attributes),
            Some((name, _, place)) => Err((
                *place,
                format!("'${name}' is no attribute of {of}; only flowops have locals"),
            )),
        }
    }

    /// Attributes up to where no comma follows. None at all is a list, too.
    pub(super) fn attributes_and_locals(
        &mut self,
        table: Table,
        of: &str,
    ) -> Parsed<(Attributes, Vec<Local>)> {
        let (mut attributes, mut locals) = (Attributes::default(), Vec::<Local>::new());
        loop {
            let place = self.place();
            match self.peek().clone() {
                Token::Variable(name) => {
                    self.take();
                    let value = if self.is_sign('=') {
                        self.take();
                        Some(self.value("a value")?)
                    } else {
                        None
                    };
                    if locals.iter().any(|(other, ..)| *other == name) {
                        return Err((place, format!("'${name}' is given twice")));
                    }
                    locals.push((name, value, place));
                }
                Token::Word(word)
                    if attributes.0.is_empty()
                        && locals.is_empty()
                        && self.begins_next(&word, table) =>
                {
                    return Ok((attributes, locals));
                }
                Token::Word(word) => {
                    self.take();
                    let attribute = self.attribute(place, &word, table, of)?;
                    if attributes.get(attribute.name).is_some() {
                        return Err((place, format!("'{word}' is given twice")));
                    }
                    attributes.0.push(attribute);
                }
                _ if attributes.0.is_empty() && locals.is_empty() => {
                    return Ok((attributes, locals));
                }
                _ => return self.wrong(&format!("an attribute of {of}")),
            }
            if !self.is_sign(',') {
                return Ok((attributes, locals));
            }
            self.take();
        }
    }

    /// Returns whether a word where a list may begin is the next command, or the next flowop.
    fn begins_next(&self, word: &str, table: Table) -> bool {
        let known = table.iter().any(|(name, _)| *name == canonical(word));
        !known
            && !matches!(
                self.tokens.get(self.next + 1),
                Some((_, Token::Sign('=' | ',')))
            )
    }

    fn attribute(&mut self, place: Place, word: &str, table: Table, of: &str) -> Parsed<Attribute> {
        let Some((name, holds)) = table.iter().find(|(name, _)| *name == canonical(word)) else {
            let hint = did_you_mean(word, table.iter().map(|(name, _)| *name));
            let known: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
            let hint = if hint.is_empty() {
                format!("; it has {}", known.join(", "))
            } else {
                hint
            };
            return Err((place, format!("{of} has no attribute '{word}'{hint}")));
        };
        if !self.is_sign('=') {
            let attribute = Attribute {
                name,
                place,
                value: Value::Bool(true),
            };
            return fits(&attribute, *holds).map(|()| attribute);
        }
        self.take();
        let place = self.place();
        let value = match (holds, self.peek().clone()) {
            (Holds::Word, Token::Word(word)) => {
                self.take();
                Value::Text(word)
            }
            _ => self.value(&format!("a value of '{word}'"))?,
        };
        let attribute = Attribute { name, place, value };
        fits(&attribute, *holds)?;
        if *holds == Holds::Ignored {
            self.remarks.push(format!(
                "line {}: '{word}' is ignored: it has no effect",
                place.line
            ));
        }
        Ok(attribute)
    }

    pub(super) fn value(&mut self, what: &str) -> Parsed<Value> {
        let place = self.place();
        let value = match self.peek().clone() {
            Token::Int(n) => Value::Int(n),
            Token::Quoted(text) => Value::Text(text),
            Token::Variable(name) => Value::Variable(name),
            Token::Word(word) if word == "true" || word == "false" => Value::Bool(word == "true"),
            Token::Word(word) if is_keyword(&word) => {
                return Err((
                    place,
                    format!(
                        "syntax error at '{word}': it is a keyword; write \"{word}\" if a string is meant"
                    ),
                ));
            }
            Token::Word(word) => Value::Text(word),
            _ => return self.wrong(what),
        };
        self.take();
        Ok(value)
    }

    /// Attributes of a random variable; `randtable` is not a value like others.
    pub(super) fn randvar(&mut self) -> Parsed<(Attributes, Vec<[Value; 3]>)> {
        let (mut attributes, mut rows) = (Attributes::default(), Vec::new());
        loop {
            let place = self.place();
            if self.is_word("randtable") {
                self.take();
                self.sign('=')?;
                rows = self.rows()?;
            } else if let Token::Word(word) = self.peek().clone() {
                self.take();
                let attribute = self.attribute(place, &word, words::RANDVAR, "randvar")?;
                if attributes.get(attribute.name).is_some() {
                    return Err((place, format!("'{word}' is given twice")));
                }
                attributes.0.push(attribute);
            } else {
                return self.wrong("an attribute of randvar");
            }
            if !self.is_sign(',') {
                return Ok((attributes, rows));
            }
            self.take();
        }
    }

    fn rows(&mut self) -> Parsed<Vec<[Value; 3]>> {
        let mut rows = Vec::new();
        self.sign('{')?;
        loop {
            self.sign('{')?;
            let percent = self.value("a percentage")?;
            self.sign(',')?;
            let low = self.value("the least value")?;
            self.sign(',')?;
            let high = self.value("the largest value")?;
            self.sign('}')?;
            rows.push([percent, low, high]);
            if !self.is_sign(',') {
                break;
            }
            self.take();
        }
        self.sign('}')?;
        Ok(rows)
    }

    /// `define randvar name=$x,…`, of older versions.
    pub(super) fn old_randvar(&mut self, place: Place) -> Parsed<Command> {
        let (mut attributes, rows) = self.randvar()?;
        let at = attributes
            .0
            .iter()
            .position(|attribute| attribute.name == "name");
        match at.map(|at| attributes.0.remove(at).value) {
            Some(Value::Variable(name)) => {
                Ok(Command::Set(name, Assigned::Random(attributes, rows)))
            }
            _ => Err((
                place,
                "define randvar needs name=$variable; or write: set $variable=randvar(…)".into(),
            )),
        }
    }
}

fn fits(attribute: &Attribute, holds: Holds) -> Parsed<()> {
    let wanted = match (holds, &attribute.value) {
        (Holds::Int, Value::Int(n)) if *n < 0 => "a number that is not negative",
        (Holds::Share, Value::Int(n)) if !(0..=100).contains(n) => {
            "a percentage from 0 to 100, or true or false"
        }
        (Holds::Int, Value::Text(_)) => "a number",
        (Holds::Share, Value::Text(_)) => "a percentage, or true or false",
        (Holds::Bool, Value::Text(_)) => "true or false",
        (Holds::Text, Value::Int(_) | Value::Bool(_)) => "a string",
        (Holds::Word, Value::Int(_) | Value::Bool(_)) => "a word",
        _ => return Ok(()),
    };
    let shown = match &attribute.value {
        Value::Int(n) => n.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Text(text) => format!("\"{text}\""),
        Value::Variable(name) => format!("${name}"),
    };
    Err((
        attribute.place,
        format!("'{}' is {shown}; it must be {wanted}", attribute.name),
    ))
}
