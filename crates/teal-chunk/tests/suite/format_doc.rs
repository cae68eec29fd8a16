//! `docs/format-chunks.md` and the tables beside the code say the same.

use std::path::Path;

/// The Markdown tables in the comments of a source file.
fn tables(source: &str) -> Vec<String> {
    let text = |line: &str| {
        line.trim_start()
            .strip_prefix("//!")
            .map(|text| text.trim().to_owned())
    };
    let rows: Vec<String> = source
        .lines()
        .map(|line| text(line).unwrap_or_default())
        .collect();
    let tables = rows
        .split(|row| !row.starts_with('|'))
        .filter(|table| !table.is_empty());
    tables.map(|table| table.join("\n")).collect()
}

#[test]
fn the_document_has_every_table_of_the_code() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let doc = std::fs::read_to_string(here.join("../../docs/format-chunks.md")).unwrap();
    let mut seen = 0;
    for file in ["header", "chunk", "table"].map(|name| format!("src/format/{name}.rs")) {
        for table in tables(&std::fs::read_to_string(here.join(&file)).unwrap()) {
            seen += 1;
            assert!(
                doc.contains(&table),
                "docs/format-chunks.md lacks or changes this table of {file}:\n{table}"
            );
        }
    }
    assert_eq!(seen, 4, "has the form of the tables changed?");
}
