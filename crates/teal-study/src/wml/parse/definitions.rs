//! Parses definitions: file sets, processes with their threads, flowops made of others.

use super::super::lex::Token;
use super::super::syntax::{
    AttributeValue, CompositeFlowop, Flowop, ProcessDefinition, ScriptCommand, SetKind,
    SourcePosition, ThreadDefinition,
};
use super::super::words::{self, FlowopKind};
use super::{ParseResult, Parser};

impl Parser {
    pub(super) fn parse_define(&mut self, place: SourcePosition) -> ParseResult<ScriptCommand> {
        // The first word behind `define` says what is defined.
        const THINGS: &[&str] = &[
            "file",
            "fileset",
            "filesets",
            "process",
            "processes",
            "flowop",
            "randvar",
        ];
        Ok(match self.expect_one_of(THINGS)? {
            "file" => ScriptCommand::Files(
                SetKind::File,
                self.parse_attributes(words::FILE, "define file")?,
            ),
            "fileset" | "filesets" => ScriptCommand::Files(
                SetKind::Fileset,
                self.parse_attributes(words::FILESET, "define fileset")?,
            ),
            "flowop" => self.parse_composite()?,
            "randvar" => self.parse_old_randvar(place)?,
            _ => {
                let attributes = self.parse_attributes(words::PROCESS, "define process")?;
                let mut threads = Vec::new();
                // A process holds threads, and nothing else.
                self.expect_sign('{')?;
                while !self.is_sign('}') {
                    let place = self.position();
                    self.expect_one_of(&["thread"])?;
                    let attributes = self.parse_attributes(words::THREAD, "thread")?;
                    threads.push(ThreadDefinition {
                        place,
                        attributes,
                        body: self.parse_body()?,
                    });
                }
                self.expect_sign('}')?;
                ScriptCommand::Process(ProcessDefinition {
                    place,
                    attributes,
                    threads,
                })
            }
        })
    }

    fn parse_composite(&mut self) -> ParseResult<ScriptCommand> {
        let place = self.position();
        let (attributes, locals) =
            self.parse_attributes_and_locals(words::COMPOSITE, "define flowop")?;
        // Defaults of locals have no position of their own.
        let locals = locals
            .into_iter()
            .map(|(name, value, _)| (name, value))
            .collect();
        let Some(AttributeValue::Text(name)) =
            attributes.get("name").map(|name| name.value.clone())
        else {
            return Err((
                place,
                "a composite flowop needs a name: define flowop name=…".into(),
            ));
        };
        // A composite flowop must not hide one of the library.
        if FlowopKind::by_name(&name).is_some() {
            return Err((
                place,
                format!("'{name}' is a flowop of the library; call this one differently"),
            ));
        }
        let body = self.parse_body()?;
        Ok(ScriptCommand::Composite(CompositeFlowop {
            name,
            place,
            attributes,
            locals,
            body,
        }))
    }

    fn parse_body(&mut self) -> ParseResult<Vec<Flowop>> {
        let mut body = Vec::new();
        self.expect_sign('{')?;
        while !self.is_sign('}') {
            // Only flowops stand in a body.
            self.expect_one_of(&["flowop"])?;
            let place = self.position();
            let Token::Word(name) = self.peek().clone() else {
                return self.unexpected("the name of a flowop");
            };
            self.take_token();
            let kind = FlowopKind::by_name(&name);
            let (attributes, locals) =
                self.parse_attributes_and_locals(words::FLOWOP, &format!("flowop {name}"))?;
            if attributes.get("name").is_none() {
                return Err((
                    place,
                    format!("a flowop needs a name: flowop {name} name=…"),
                ));
            }
            // A flowop of the library has no locals that could be set.
            if let (Some(_), Some((local, _, place))) = (kind, locals.first()) {
                return Err((
                    *place,
                    format!("'${local}' is set for '{name}'; only composite flowops have locals"),
                ));
            }
            // A local without a value is a declaration, which has no place in a call.
            let mut set = Vec::new();
            for (local, value, place) in locals {
                let Some(value) = value else {
                    return Err((place, format!("'${local}' needs a value here: ${local}=…")));
                };
                set.push((local, value, place));
            }
            body.push(Flowop {
                name,
                kind,
                place,
                attributes,
                locals: set,
            });
        }
        self.expect_sign('}')?;
        Ok(body)
    }
}
