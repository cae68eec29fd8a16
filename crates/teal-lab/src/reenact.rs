//! Implements `teal lab reenact`: figures of the papers, theirs beside ours.

use anyhow::{Result, bail};
use serde_json::json;
use std::process::ExitCode;
use teal_command::profile::nearest_name;
use teal_command::say::say;
use teal_study::reenact::{ALL, PaperFigure, PaperTable};

/// Runs the command.
pub(crate) fn run_reenact(name: &str, json: bool) -> Result<ExitCode> {
    // The name `all` stands for every table.
    let wanted: Vec<_> = ALL
        .iter()
        .filter(|(known, ..)| name == "all" || name == *known)
        .collect();
    if wanted.is_empty() {
        let names = ALL.iter().map(|(known, ..)| *known);
        match nearest_name(name, names.clone()) {
            Some(known) => bail!("nothing is called {name}; did you mean {known}?"),
            None => bail!(
                "nothing is called {name}; there are {}, all",
                names.collect::<Vec<_>>().join(", ")
            ),
        }
    }
    for (known, _, make) in wanted {
        let table = make();
        if json {
            say!("{}", as_json(known, &table));
        } else {
            print_table(&table);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a table for people.
fn print_table(table: &PaperTable) {
    say!("{}", table.title);
    if !table.modelled_by.is_empty() {
        say!("ours modelled by {}", table.modelled_by.join(", "));
    }
    // Columns are as wide as their longest entry; the head of the second has five letters.
    let width = |of: fn(&PaperFigure) -> &str| {
        table
            .rows
            .iter()
            .map(|row| of(row).len())
            .max()
            .unwrap_or(0)
    };
    let (what, paper) = (width(|row| &row.what), width(|row| &row.paper).max(5));
    say!("  {:what$}  {:paper$}  ours", "", "paper");
    for row in &table.rows {
        say!("  {:what$}  {:paper$}  {}", row.what, row.paper, row.ours);
    }
    table.remarks.iter().for_each(|remark| say!("  - {remark}"));
    say!("");
}

/// Returns a table as one line, so that several tables can be told apart.
fn as_json(name: &str, table: &PaperTable) -> serde_json::Value {
    let row = |row: &PaperFigure| {
        json!({
            "what": row.what,
            "paper": row.paper,
            "ours": row.ours,
        })
    };
    json!({
        "name": name,
        "title": table.title,
        "modelled_by": table.modelled_by,
        "rows": table.rows.iter().map(row).collect::<Vec<_>>(),
        "remarks": table.remarks,
    })
}
