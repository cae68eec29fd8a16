//! Reads files of results with a line of JSON each.

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use std::fs::OpenOptions;
use std::path::Path;

/// Reads all lines, and removes a last one that is incomplete.
pub(super) fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let text = match std::fs::read_to_string(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.with_context(|| path.display().to_string())?,
    };
    // Only lines with their end were written completely: a killed process leaves the rest.
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    if whole < text.len() {
        let file = OpenOptions::new()
            .write(true)
            .open(path)
            .with_context(|| path.display().to_string())?;
        file.set_len(whole as u64)
            .with_context(|| path.display().to_string())?;
    }
    debug_assert!(
        whole <= text.len(),
        "the whole lines are a part of the text"
    );
    let lines = text[..whole].lines().enumerate();
    // Lines count from 1, as editors do.
    let line = |(at, line)| {
        serde_json::from_str(line).with_context(|| format!("{}, line {}", path.display(), at + 1))
    };
    lines.map(line).collect()
}
