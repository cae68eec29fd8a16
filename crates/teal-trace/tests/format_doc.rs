//! `docs/format-trace.md` and the tables beside the code say the same.
#![allow(clippy::unwrap_used, reason = "tests panic where they fail")]

use std::path::Path;

/// The Markdown tables in the comments of a source file.
fn tables(source: &str) -> Vec<String> {
    let mut found = vec![Vec::new()];
    for line in source.lines() {
        let text = line.strip_prefix("//!").map(str::trim);
        match text.filter(|t| t.starts_with('|')) {
            Some(row) => found.last_mut().unwrap().push(row.to_owned()),
            None if !found.last().unwrap().is_empty() => found.push(Vec::new()),
            None => {}
        }
    }
    found
        .into_iter()
        .filter(|t| !t.is_empty())
        .map(|t| t.join("\n"))
        .collect()
}

#[test]
fn the_document_has_every_table_of_the_code() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let doc = std::fs::read_to_string(here.join("../../docs/format-trace.md")).unwrap();
    let mut seen = 0;
    for file in [
        "format",
        "text",
        "import/blktrace/record",
        "import/oracle_general",
        "import/vscsi",
    ] {
        let file = format!("src/{file}.rs");
        for table in tables(&std::fs::read_to_string(here.join(&file)).unwrap()) {
            seen += 1;
            assert!(
                doc.contains(&table),
                "docs/format-trace.md lacks or changes this table of {file}:\n{table}"
            );
        }
    }
    assert_eq!(seen, 8, "has the form of the tables changed?");
}
