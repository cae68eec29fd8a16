//! `cargo xtask bench clients`: measures the load that one server bears. Runs the example `clients`
//! of `teal` in the release profile against the program itself, once for each arrangement, and
//! prints a table.

use crate::arguments::count;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The seconds of each way to commit.
const COMMITTING: u64 = 10;

/// Measures what a server bears: a thousand clients on it, and how much it commits.
///
/// The arrangements are: four clients to a volume; all in one volume, each in a directory of its
/// own; the same, and no client says what it keeps; and all in one directory.
#[derive(Debug, clap::Args)]
pub(crate) struct ClientsArguments {
    /// Simulated clients
    #[arg(long, value_name = "N", default_value = "1000", value_parser = count(4))]
    clients: usize,
    /// Seconds that they live, for each arrangement
    #[arg(
        long,
        value_name = "N",
        default_value = "120",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    seconds: u64,
    /// Raw figures; the table goes beside them as .md [default: target/bench/clients.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(plan: &ClientsArguments) -> Result<bool> {
    let target = crate::workspace::target_directory()?;
    let json = plan
        .json
        .clone()
        .unwrap_or_else(|| target.join("bench/clients.json"));
    std::fs::create_dir_all(json.parent().context("--json")?)?;
    // Both are built in the release profile: debug builds measure something else.
    for what in [["--bin", "teal"], ["--example", "clients"]] {
        let mut build = crate::workspace::cargo_command();
        let built = build
            .current_dir(crate::workspace::workspace_root())
            .args(["build", "--release", "--quiet", "-p", "teal"])
            .args(what)
            .status()?;
        ensure!(built.success(), "the release build failed");
    }
    let clients = plan.clients.to_string();
    let mut rows = run_example(
        &target,
        &["--commits", "--seconds", &COMMITTING.to_string()],
    )?;
    // From many small volumes to one large one that tells everything to all clients.
    for (volumes, how) in [
        (plan.clients / 4, &[][..]),
        (1, &[]),
        (1, &["--everything"]),
        (1, &["--in-root", "--everything"]),
    ] {
        let (volumes, seconds) = (volumes.to_string(), plan.seconds.to_string());
        let of_all = [
            "--clients",
            &clients,
            "--volumes",
            &volumes,
            "--seconds",
            &seconds,
        ];
        rows.extend(run_example(&target, &[&of_all[..], how].concat())?);
    }
    let table = render_markdown(&rows);
    std::fs::write(
        &json,
        serde_json::to_string_pretty(&json!({ "rows": rows }))?,
    )?;
    std::fs::write(json.with_extension("md"), &table)?;
    println!("{table}\nraw figures: {}", json.display());
    Ok(true)
}

/// Runs the example once, and returns its rows.
fn run_example(target: &Path, args: &[&str]) -> Result<Vec<Value>> {
    eprintln!("clients {}", args.join(" "));
    let dir = target.join(format!("bench/clients-{}", std::process::id()));
    let mut command = Command::new(target.join("release/examples/clients"));
    command
        .arg("--program")
        .arg(target.join("release/teal"))
        .arg("--dir")
        .arg(&dir)
        .args(args);
    let out = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("the example clients")?;
    ensure!(out.status.success(), "clients {args:?}: {}", out.status);
    let said = String::from_utf8_lossy(&out.stdout);
    said.lines()
        .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
        .collect()
}

fn number_at(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or(f64::NAN)
}

fn render_markdown(rows: &[Value]) -> String {
    let mut out = String::from(
        "| committing | operations/s | batches/s | processors of the server | load \
            |\n|---|---:|---:|---:|---|\n",
    );
    let of = |kind: &'static str| rows.iter().filter(move |row| row["kind"] == kind);
    let load = |row: &Value| {
        row["load"]
            .as_str()
            .unwrap_or_default()
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    for row in of("commits") {
        let what = if row["with_content"] == true {
            "files of 16 KiB"
        } else {
            "empty files"
        };
        let (ops, batches) = (
            number_at(row, "ops_per_second"),
            number_at(row, "batches_per_second"),
        );
        let _ = writeln!(
            out,
            "| clients: {}; a batch: {} {what} | {ops:.0} | {batches:.0} | {:.2} | {} |",
            row["clients"],
            row["files"],
            number_at(row, "server_processors"),
            load(row)
        );
    }
    out.push_str(
        "\n| clients | requests/s | p50 ms | p99 ms | flush p50 / p99 ms | begun late | refused | \
            told of news/s | states/s ",
    );
    out.push_str(
        "| processors of the server | its memory MiB | load \
        |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for row in of("clients") {
        let _ = writeln!(
            out,
            "| {} in {} volumes{}{} | {:.0} | {:.2} | {:.1} | {:.1} / {:.1} | {} | {} | {:.0} | \
                {:.0} | {:.2} | {:.0} | {} |",
            row["clients"],
            row["volumes"],
            if row["in_root"] == true {
                ", all in one directory"
            } else {
                ""
            },
            if row["everything"] == true {
                ", told everything"
            } else {
                ""
            },
            number_at(row, "requests_per_second"),
            number_at(row, "p50_ms"),
            number_at(row, "p99_ms"),
            number_at(row, "flush_p50_ms"),
            number_at(row, "flush_p99_ms"),
            row["late"],
            row["refused"],
            number_at(row, "pulls_per_second"),
            number_at(row, "states_per_second"),
            number_at(row, "server_processors"),
            number_at(row, "server_resident") / 1048576.0,
            load(row)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::parse;

    #[test]
    fn arguments_say_what_is_measured() {
        let plan: ClientsArguments = parse(&["--clients", "8", "--seconds", "5"]).unwrap();
        assert_eq!((plan.clients, plan.seconds), (8, 5));
        for refused in [
            &["--clients", "3"][..],
            &["--seconds", "0"],
            &["--seconds"],
            &["--fast"],
        ] {
            assert!(parse::<ClientsArguments>(refused).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn each_kind_of_row_has_its_table() {
        let commits = json!({"kind": "commits", "clients": 8, "files": 100, "with_content": false, "ops_per_second": 5000.4,
            "batches_per_second": 25.0, "server_processors": 0.5, "load": "1.5 1 1"});
        let clients = json!({"kind": "clients", "clients": 1000, "volumes": 250, "everything": true, "p50_ms": 0.8, "late": 3, "load": "2.5 1"});
        let table = render_markdown(&[commits, clients]);
        assert!(
            table.contains("| clients: 8; a batch: 100 empty files | 5000 | 25 | 0.50 | 1.5 |"),
            "{table}"
        );
        assert!(
            table.contains("| 1000 in 250 volumes, told everything | NaN | 0.80 |")
                && table.contains("| 3 |"),
            "{table}"
        );
    }
}
