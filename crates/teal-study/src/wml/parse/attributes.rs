//! Parses lists of `name=value`.

use super::super::did_you_mean;
use super::super::lex::Token;
use super::super::syntax::{
    AssignedValue, AttributeList, AttributeValue, NamedAttribute, ScriptCommand, SourcePosition,
};
use super::super::words::{self, AttributeTable, AttributeType, canonical_name, is_keyword};
use super::{ParseResult, Parser};

/// Holds a local of a composite flowop: its name, its value or default, and its position.
type GivenLocal = (String, Option<AttributeValue>, SourcePosition);

impl Parser {
    pub(super) fn parse_attributes(
        &mut self,
        table: AttributeTable,
        of: &str,
    ) -> ParseResult<AttributeList> {
        let (attributes, locals) = self.parse_attributes_and_locals(table, of)?;
        match locals.first() {
            None => Ok(attributes),
            Some((name, _, place)) => Err((
                *place,
                format!("'${name}' is no attribute of {of}; only flowops have locals"),
            )),
        }
    }

    /// Takes attributes up to the one that no comma follows. An empty list is a list too.
    pub(super) fn parse_attributes_and_locals(
        &mut self,
        table: AttributeTable,
        of: &str,
    ) -> ParseResult<(AttributeList, Vec<GivenLocal>)> {
        let (mut attributes, mut locals) = (AttributeList::default(), Vec::<GivenLocal>::new());
        loop {
            let place = self.position();
            match self.peek().clone() {
                Token::Variable(name) => {
                    self.take_token();
                    let value = if self.is_sign('=') {
                        self.take_token();
                        Some(self.parse_value("a value")?)
                    } else {
                        None
                    };
                    // The second value would silently win in Filebench.
                    if locals.iter().any(|(other, ..)| *other == name) {
                        return Err((place, format!("'${name}' is given twice")));
                    }
                    locals.push((name, value, place));
                }
                // A word that is no attribute here begins the next command, if the list has not
                // begun.
                Token::Word(word)
                    if attributes.0.is_empty()
                        && locals.is_empty()
                        && self.begins_next(&word, table) =>
                {
                    return Ok((attributes, locals));
                }
                Token::Word(word) => {
                    self.take_token();
                    let attribute = self.parse_attribute(place, &word, table, of)?;
                    if attributes.get(attribute.name).is_some() {
                        return Err((place, format!("'{word}' is given twice")));
                    }
                    attributes.0.push(attribute);
                }
                _ if attributes.0.is_empty() && locals.is_empty() => {
                    return Ok((attributes, locals));
                }
                _ => return self.unexpected(&format!("an attribute of {of}")),
            }
            if !self.is_sign(',') {
                return Ok((attributes, locals));
            }
            self.take_token();
        }
    }

    /// Returns whether a word at the beginning of a list is the next command, or the next flowop.
    fn begins_next(&self, word: &str, table: AttributeTable) -> bool {
        let known = table.iter().any(|(name, _)| *name == canonical_name(word));
        !known
            && !matches!(
                self.tokens.get(self.next + 1),
                Some((_, Token::Sign('=' | ',')))
            )
    }

    fn parse_attribute(
        &mut self,
        place: SourcePosition,
        word: &str,
        table: AttributeTable,
        of: &str,
    ) -> ParseResult<NamedAttribute> {
        // An unknown attribute is answered with the nearest known one.
        let Some((name, holds)) = table.iter().find(|(name, _)| *name == canonical_name(word))
        else {
            let hint = did_you_mean(word, table.iter().map(|(name, _)| *name));
            let known: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
            let hint = if hint.is_empty() {
                format!("; it has {}", known.join(", "))
            } else {
                hint
            };
            return Err((place, format!("{of} has no attribute '{word}'{hint}")));
        };
        // An attribute without a value is true.
        if !self.is_sign('=') {
            let attribute = NamedAttribute {
                name,
                place,
                value: AttributeValue::Bool(true),
            };
            return check_type(&attribute, *holds).map(|()| attribute);
        }
        self.take_token();
        let place = self.position();
        // Some values are words that are keywords elsewhere.
        let value = match (holds, self.peek().clone()) {
            (AttributeType::Word, Token::Word(word)) => {
                self.take_token();
                AttributeValue::Text(word)
            }
            _ => self.parse_value(&format!("a value of '{word}'"))?,
        };
        let attribute = NamedAttribute { name, place, value };
        check_type(&attribute, *holds)?;
        // The script runs as it did in Filebench, but the user learns of it.
        if *holds == AttributeType::Ignored {
            self.remarks.push(format!(
                "line {}: '{word}' is ignored: it has no effect",
                place.line
            ));
        }
        Ok(attribute)
    }

    pub(super) fn parse_value(&mut self, what: &str) -> ParseResult<AttributeValue> {
        let place = self.position();
        // Bare words are strings unless the language uses them.
        let value = match self.peek().clone() {
            Token::Int(n) => AttributeValue::Int(n),
            Token::Quoted(text) => AttributeValue::Text(text),
            Token::Variable(name) => AttributeValue::Variable(name),
            Token::Word(word) if word == "true" || word == "false" => {
                AttributeValue::Bool(word == "true")
            }
            Token::Word(word) if is_keyword(&word) => {
                return Err((
                    place,
                    format!(
                        "syntax error at '{word}': it is a keyword; write \"{word}\" if a string \
                         is meant"
                    ),
                ));
            }
            Token::Word(word) => AttributeValue::Text(word),
            _ => return self.unexpected(what),
        };
        self.take_token();
        Ok(value)
    }

    /// Takes attributes of a random variable; `randtable` is not a value like others.
    pub(super) fn parse_randvar(
        &mut self,
    ) -> ParseResult<(AttributeList, Vec<[AttributeValue; 3]>)> {
        let (mut attributes, mut rows) = (AttributeList::default(), Vec::new());
        loop {
            // `randtable` has brackets instead of a value.
            let place = self.position();
            if self.is_word("randtable") {
                self.take_token();
                self.expect_sign('=')?;
                rows = self.parse_rows()?;
            } else if let Token::Word(word) = self.peek().clone() {
                self.take_token();
                let attribute = self.parse_attribute(place, &word, words::RANDVAR, "randvar")?;
                if attributes.get(attribute.name).is_some() {
                    return Err((place, format!("'{word}' is given twice")));
                }
                attributes.0.push(attribute);
            } else {
                return self.unexpected("an attribute of randvar");
            }
            if !self.is_sign(',') {
                return Ok((attributes, rows));
            }
            self.take_token();
        }
    }

    fn parse_rows(&mut self) -> ParseResult<Vec<[AttributeValue; 3]>> {
        let mut rows = Vec::new();
        self.expect_sign('{')?;
        loop {
            // Each row is percent, low, high, in brackets of its own.
            self.expect_sign('{')?;
            let percent = self.parse_value("a percentage")?;
            self.expect_sign(',')?;
            let low = self.parse_value("the least value")?;
            self.expect_sign(',')?;
            let high = self.parse_value("the largest value")?;
            self.expect_sign('}')?;
            rows.push([percent, low, high]);
            if !self.is_sign(',') {
                break;
            }
            self.take_token();
        }
        self.expect_sign('}')?;
        Ok(rows)
    }

    /// Takes `define randvar name=$x,…`, of older versions.
    pub(super) fn parse_old_randvar(
        &mut self,
        place: SourcePosition,
    ) -> ParseResult<ScriptCommand> {
        let (mut attributes, rows) = self.parse_randvar()?;
        let at = attributes
            .0
            .iter()
            .position(|attribute| attribute.name == "name");
        match at.map(|at| attributes.0.remove(at).value) {
            Some(AttributeValue::Variable(name)) => Ok(ScriptCommand::Set(
                name,
                AssignedValue::Random(attributes, rows),
            )),
            _ => Err((
                place,
                "define randvar needs name=$variable; or write: set $variable=randvar(…)".into(),
            )),
        }
    }
}

fn check_type(attribute: &NamedAttribute, holds: AttributeType) -> ParseResult<()> {
    // Variables are checked later, when their values are known.
    let wanted = match (holds, &attribute.value) {
        (AttributeType::Int, AttributeValue::Int(n)) if *n < 0 => "a number that is not negative",
        (AttributeType::Share, AttributeValue::Int(n)) if !(0..=100).contains(n) => {
            "a percentage from 0 to 100, or true or false"
        }
        (AttributeType::Int, AttributeValue::Text(_)) => "a number",
        (AttributeType::Share, AttributeValue::Text(_)) => "a percentage, or true or false",
        (AttributeType::Bool, AttributeValue::Text(_)) => "true or false",
        (AttributeType::Text, AttributeValue::Int(_) | AttributeValue::Bool(_)) => "a string",
        (AttributeType::Word, AttributeValue::Int(_) | AttributeValue::Bool(_)) => "a word",
        _ => return Ok(()),
    };
    // The message shows the value as it was written.
    let shown = match &attribute.value {
        AttributeValue::Int(n) => n.to_string(),
        AttributeValue::Bool(truth) => truth.to_string(),
        AttributeValue::Text(text) => format!("\"{text}\""),
        AttributeValue::Variable(name) => format!("${name}"),
    };
    Err((
        attribute.place,
        format!("'{}' is {shown}; it must be {wanted}", attribute.name),
    ))
}
