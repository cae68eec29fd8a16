//! Re-enacts figures and tables of the papers on the models: theirs beside ours.
//!
//! # Guarantees
//! 1. The same name gives the same table: streams are made from a fixed seed.
//! 2. A curve of a paper has no figure here; its words and tables have.
//! 3. A figure that is an input of a profile, and so cannot differ, says so.

mod bluefs;
mod flash;
mod greenfs;
#[cfg(test)]
mod tests;

use crate::replay::ModelledMachine;

/// Compares one figure of a paper with ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaperFigure {
    /// Name of the figure.
    pub what: String,
    /// Figure of the paper.
    pub paper: String,
    /// Figure of ours.
    pub ours: String,
}

/// Holds a re-enactment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaperTable {
    /// Name of the paper and of its table or figure.
    pub title: String,
    /// Profiles behind our figures.
    pub modelled_by: Vec<String>,
    /// Figures of both.
    pub rows: Vec<PaperFigure>,
    /// Assumptions, and reasons for differences.
    pub remarks: Vec<&'static str>,
}

impl PaperTable {
    fn new(title: &str, modelled_by: &[&str], remarks: &[&'static str]) -> Self {
        let modelled_by = modelled_by.iter().map(|&name| name.to_owned()).collect();
        Self {
            title: title.to_owned(),
            modelled_by,
            rows: Vec::new(),
            remarks: remarks.to_vec(),
        }
    }

    fn for_machine(title: &str, machine: &ModelledMachine, remarks: &[&'static str]) -> Self {
        Self::new(title, &machine.profile_names(), remarks)
    }

    fn add_figure(
        &mut self,
        what: impl Into<String>,
        paper: impl Into<String>,
        ours: impl Into<String>,
    ) {
        self.rows.push(PaperFigure {
            what: what.into(),
            paper: paper.into(),
            ours: ours.into(),
        });
    }
}

/// Holds a re-enactment's name, its description, and the function that makes it.
pub type Reenactment = (&'static str, &'static str, fn() -> PaperTable);

/// All re-enactments.
pub const ALL: &[Reenactment] = &[
    (
        "bluefs-4",
        "BlueFS figure 4: masking the start of a disk",
        bluefs::figure_4,
    ),
    (
        "bluefs-7",
        "BlueFS figure 7: delay and energy, everything on the disk",
        bluefs::figure_7,
    ),
    (
        "bluefs-8",
        "BlueFS figure 8: delay and energy, half on the disk",
        bluefs::figure_8,
    ),
    (
        "bluefs-9",
        "BlueFS figure 9: delay and energy, some on flash too",
        flash::figure_9,
    ),
    (
        "greenfs-3",
        "GreenFS table 3 and section 4.2: the traces and the server's load",
        greenfs::table_3,
    ),
    (
        "greenfs-4",
        "GreenFS table 4: power of idle machines",
        greenfs::table_4,
    ),
    (
        "greenfs-jeff",
        "GreenFS section 4.3: a day of JEFF",
        greenfs::jeff_table,
    ),
    (
        "greenfs-5",
        "GreenFS table 5: shocks on the way between two floors",
        greenfs::table_5,
    ),
];

/// Formats the reduction from `theirs` to `ours` in percent, as papers say it: 35 instead of 100 is
/// 65 % less.
fn percent_less(ours: u64, theirs: u64) -> String {
    let percent = (1.0 - ours as f64 / theirs.max(1) as f64) * 100.0;
    if percent < 0.0 {
        format!("{:.0} % more", -percent)
    } else {
        format!("{percent:.0} % less")
    }
}
