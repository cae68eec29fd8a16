//! Figures and tables of the papers on the models: theirs beside ours.
//!
//! # Guarantees
//! 1. The same name gives the same table: streams are made from a fixed seed.
//! 2. What a paper shows only as a curve has no figure here; what it says in words or tables has.
//! 3. A figure that is an input of a profile, and so cannot differ, says so.

mod bluefs;
mod flash;
mod greenfs;
#[cfg(test)]
mod tests;

use crate::replay::ModelledMachine;

/// One figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaperFigure {
    /// What it is.
    pub what: String,
    /// The paper's.
    pub paper: String,
    /// Ours.
    pub ours: String,
}

/// A re-enactment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaperTable {
    /// What of which paper.
    pub title: String,
    /// The profiles behind our figures.
    pub modelled_by: Vec<String>,
    /// The figures.
    pub rows: Vec<PaperFigure>,
    /// What was taken for granted, and why ours differ where they do.
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

/// A re-enactment's name, what it is, and how it is made.
pub type Reenactment = (&'static str, &'static str, fn() -> PaperTable);

/// All of them.
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

/// `part` of `whole` less than whole, in percent, as papers say it: 35 of 100 is 65 %.
fn percent_less(ours: u64, theirs: u64) -> String {
    let percent = (1.0 - ours as f64 / theirs.max(1) as f64) * 100.0;
    if percent < 0.0 {
        format!("{:.0} % more", -percent)
    } else {
        format!("{percent:.0} % less")
    }
}
