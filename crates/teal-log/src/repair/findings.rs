//! The findings of a repair: what is lost, and where the rest of it goes.

use std::collections::BTreeMap;
use std::fmt;
use teal_types::ObjectNo;

/// Losses of each kind kept in [`RepairFindings`]; further ones are only counted.
pub const LOSSES_MAX: usize = 1000;

/// The phase of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairPhase {
    /// Objects are read: `done` of `total`.
    Objects,
    /// The segments are searched for records.
    Records,
    /// The content of files is read: `done` of `total` files.
    Content,
    /// Objects are written: `done` of `total`.
    Copy,
}

/// The progress of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepairProgress {
    /// The present phase.
    pub phase: RepairPhase,
    /// The part of the phase that is done.
    pub done: u64,
    /// Out of how much.
    pub total: u64,
}

/// The kind of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LossKind {
    /// Nothing that can be read has the object, or any of its content.
    Gone,
    /// A part of the content of a file cannot be read.
    Content,
    /// A directory has lost names.
    Names,
    /// The directory of a whole object cannot be read.
    Detached,
    /// The object may have been deleted or changed since what was found of it was written.
    Uncertain,
}

/// One thing that is lost, in part or as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairLoss {
    /// The kind.
    pub kind: LossKind,
    /// The object.
    pub object: ObjectNo,
    /// The path of the object in the damaged store, as far as it is known.
    pub path: String,
    /// The loss, as a sentence without its subject and its end.
    pub what: String,
    /// The path of what there is of it in the new store.
    pub kept_as: Option<String>,
}

impl fmt::Display for RepairLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.what)?;
        match &self.kept_as {
            Some(path) => write!(f, "; it goes to {path}"),
            None => Ok(()),
        }
    }
}

/// The findings of a repair.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepairFindings {
    /// Directories in the tree.
    pub directories: u64,
    /// Files and other objects in the tree, all of them whole.
    pub files: u64,
    /// Bytes of content that the new store takes.
    pub bytes: u64,
    /// The first [`LOSSES_MAX`] losses of each kind, the worst kind first.
    pub losses: Vec<RepairLoss>,
    /// All losses.
    pub total: u64,
    pub(super) counts: BTreeMap<LossKind, usize>,
    /// How often records of the log behind the last checkpoint are missing: what only they changed
    /// is as it was before them, and what only they deleted is there.
    pub log_losses: u64,
    /// Objects that the log counts and of which nothing was found, not even a name.
    pub unknown: u64,
    /// The store belongs to a volume with a server.
    pub has_server: bool,
}

impl RepairFindings {
    /// Returns whether everything that was in the store is in the tree of the new one.
    pub fn is_whole(&self) -> bool {
        self.total == 0 && self.log_losses == 0 && self.unknown == 0
    }

    /// Returns how many losses are of this kind.
    pub fn count_losses(&self, kind: LossKind) -> usize {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    pub(super) fn add_loss(&mut self, loss: RepairLoss) {
        self.total += 1;
        let count = self.counts.entry(loss.kind).or_default();
        *count += 1;
        // The list is bounded; the total counts all.
        if *count <= LOSSES_MAX {
            self.losses.push(loss);
        }
    }

    /// Puts the worst losses first.
    pub(super) fn sort_losses(&mut self) {
        self.losses.sort_by_key(|loss| loss.kind);
    }

    /// Returns the text of the report that lies beside what was lost and found.
    pub(super) fn report(&self) -> String {
        let mut text = String::from(
            "What `teal repair` could not put back in its place.\n\
             damaged: a part of the content is lost and reads as zeros here.\n\
             detached: the content is whole; the directory it was in is lost.\n\
             uncertain: it may be older than what was lost, or may have been deleted.\n\n",
        );
        for loss in &self.losses {
            // A name may hold anything, line ends too.
            text.push_str(&escape_control(&loss.to_string()));
            text.push('\n');
        }
        let others = self.total.saturating_sub(self.losses.len() as u64);
        if others > 0 {
            text.push_str(&format!("and {others} more\n"));
        }
        if self.unknown > 0 {
            text.push_str(&format!(
                "{} objects of which nothing was found\n",
                self.unknown
            ));
        }
        text
    }
}

/// Returns a text on one line, without anything that a terminal obeys: control characters are
/// `\xHH`, byte by byte, and a backslash before an `x` is `\x5c`.
pub(super) fn escape_control(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c.is_control() || (c == '\\' && chars.peek() == Some(&'x')) {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                out.push_str(&format!("\\x{byte:02x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_makes_no_line_of_the_report_and_no_command_of_a_terminal() {
        let mut findings = RepairFindings::default();
        findings.add_loss(RepairLoss {
            kind: LossKind::Gone,
            object: ObjectNo::new(7),
            path: "/a\nb \u{1b}[2J \u{9b} \\x41 \\y".to_owned(),
            what: "cannot be read".to_owned(),
            kept_as: None,
        });
        let report = findings.report();
        let wanted = r"/a\x0ab \x1b[2J \xc2\x9b \x5cx41 \y cannot be read";
        assert_eq!(report.lines().last(), Some(wanted));
    }
}
