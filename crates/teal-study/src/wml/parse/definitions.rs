//! What scripts define: file sets, processes with their threads, flowops made of others.

use super::super::lex::Token;
use super::super::syntax::{Command, Composite, Flowop, Place, Process, SetKind, Thread, Value};
use super::super::words::{self, Kind};
use super::{Parsed, Parser};

impl Parser {
    pub(super) fn define(&mut self, place: Place) -> Parsed<Command> {
        const THINGS: &[&str] = &[
            "file",
            "fileset",
            "filesets",
            "process",
            "processes",
            "flowop",
            "randvar",
        ];
        Ok(match self.one_of(THINGS)? {
            "file" => Command::Files(SetKind::File, self.attributes(words::FILE, "define file")?),
            "fileset" | "filesets" => Command::Files(
                SetKind::Fileset,
                self.attributes(words::FILESET, "define fileset")?,
            ),
            "flowop" => self.composite()?,
            "randvar" => self.old_randvar(place)?,
            _ => {
                let attributes = self.attributes(words::PROCESS, "define process")?;
                let mut threads = Vec::new();
                self.sign('{')?;
                while !self.is_sign('}') {
                    let place = self.place();
                    self.one_of(&["thread"])?;
                    let attributes = self.attributes(words::THREAD, "thread")?;
                    threads.push(Thread {
                        place,
                        attributes,
                        body: self.body()?,
                    });
                }
                self.sign('}')?;
                Command::Process(Process {
                    place,
                    attributes,
                    threads,
                })
            }
        })
    }

    fn composite(&mut self) -> Parsed<Command> {
        let place = self.place();
        let (attributes, locals) = self.attributes_and_locals(words::COMPOSITE, "define flowop")?;
        let locals = locals
            .into_iter()
            .map(|(name, value, _)| (name, value))
            .collect();
        let Some(Value::Text(name)) = attributes.get("name").map(|name| name.value.clone()) else {
            return Err((
                place,
                "a composite flowop needs a name: define flowop name=…".into(),
            ));
        };
        if Kind::named(&name).is_some() {
            return Err((
                place,
                format!("'{name}' is a flowop of the library; call this one differently"),
            ));
        }
        let body = self.body()?;
        Ok(Command::Composite(Composite {
            name,
            place,
            attributes,
            locals,
            body,
        }))
    }

    fn body(&mut self) -> Parsed<Vec<Flowop>> {
        let mut body = Vec::new();
        self.sign('{')?;
        while !self.is_sign('}') {
            self.one_of(&["flowop"])?;
            let place = self.place();
            let Token::Word(name) = self.peek().clone() else {
                return self.wrong("the name of a flowop");
            };
            self.take();
            let kind = Kind::named(&name);
            let (attributes, locals) =
                self.attributes_and_locals(words::FLOWOP, &format!("flowop {name}"))?;
            if attributes.get("name").is_none() {
                return Err((
                    place,
                    format!("a flowop needs a name: flowop {name} name=…"),
                ));
            }
            if let (Some(_), Some((local, _, place))) = (kind, locals.first()) {
                return Err((
                    *place,
                    format!("'${local}' is set for '{name}'; only composite flowops have locals"),
                ));
            }
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
        self.sign('}')?;
        Ok(body)
    }
}
