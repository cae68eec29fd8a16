//! `cargo xtask tidy`: the rules of the repository that the compiler does not know.
//!
//! # Guarantees
//! 1. Every rule has a test that breaks it.
//! 2. Every finding says where, which rule, and what to do.

mod figures;
mod finding;
mod layers;
mod manifests;
mod sources;

use anyhow::{Context as _, Result};
use figures::FiguresMode;
use serde_json::Value;
use std::path::Path;

/// Checks what the compiler cannot: layers, sizes, names, words.
#[derive(Debug, clap::Args)]
pub(crate) struct TidyArguments {
    /// Prints the figures of the chapter *Words*, for each crate and in sum.
    #[arg(long)]
    figures: bool,
    /// Records the figures that are better than those on record (`xtask/words.toml`).
    #[arg(long, requires = "figures")]
    write: bool,
}

/// Checks every rule.
pub(crate) fn run(plan: &TidyArguments) -> Result<bool> {
    let mode = match (plan.figures, plan.write) {
        (false, _) => FiguresMode::Check,
        (true, false) => FiguresMode::Print,
        (true, true) => FiguresMode::PrintAndWrite,
    };
    let root = crate::workspace::workspace_root();
    // All rules are checked before any finding is printed, so that one run shows everything.
    let mut findings = sources::check_tree(root)?;
    findings.extend(figures::check_tree(root, mode)?);
    let rooms = manifests::read_manifests(&cargo_metadata(root)?, root)?;
    findings.extend(layers::check_layers(&rooms));
    findings.extend(manifests::check_manifests(
        &rooms,
        std::fs::read_to_string(root.join("ARCHITECTURE.md"))
            .ok()
            .as_deref(),
    ));
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} crates, {} findings", rooms.len(), findings.len());
    Ok(findings.is_empty())
}

fn cargo_metadata(root: &Path) -> Result<Value> {
    let out = crate::workspace::cargo_command()
        .current_dir(root)
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cargo metadata")?;
    serde_json::from_slice(&out.stdout).context("cargo metadata")
}
