//! Chores of the workspace: `cargo xtask tidy | test | crash | bench`.
fn main() {}
