//! Implements `teal lab run` and `teal lab workloads`: workloads in Filebench's language.

mod figures;

use crate::cli::RunArgs;
use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use teal_command::say::say;
use teal_command::size::human_size;
use teal_env::SystemClock;
use teal_rig::path_context::PathContext as _;
use teal_rig::sources::{ScriptSources, no_such_workload};
use teal_study::workload::shipped::{SHIPPED, ShippedWorkload};
use teal_study::workload::{
    FilesetPreview, RunListener, RunOutcome, WorkloadOptions, WorkloadPlan, check_room,
    execute_plan, plan_script, preview_filesets,
};

/// Runs `teal lab run`.
pub(crate) fn run_workload(args: &RunArgs) -> Result<ExitCode> {
    let dir = std::fs::canonicalize(&args.dir).at_path(&args.dir)?;
    if !dir.is_dir() {
        bail!(
            "{} is no directory; --dir says where the files of the workload are made",
            dir.display()
        );
    }
    // Faults of the script show before any file is made.
    let script = ScriptSources::by_name(&args.workload)?.parse_script()?;
    let options = WorkloadOptions {
        dir,
        seconds: args.seconds,
        operations: args.operations,
        scale: args.scale,
        seed: args.seed,
        set: args.set.clone(),
        strict: args.strict_filebench,
    };
    let plan = plan_script(&script, options)?;
    for remark in &plan.remarks {
        say!("{remark}");
    }
    if args.dry_run {
        print_plan(&plan);
        check_room(&plan)?;
        return Ok(ExitCode::SUCCESS);
    }
    check_outputs(args)?;
    let listener = TerminalListener {
        strict: args.strict_filebench,
        ended: Arc::default(),
    };
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&listener.ended)).context("signals")?;
    }
    // A script without a run has no figures.
    let Some(outcome) = execute_plan(&plan, &SystemClock, &listener)? else {
        return Ok(ExitCode::SUCCESS);
    };
    figures::outcome_lines(&outcome, &plan)
        .iter()
        .for_each(|line| say!("{line}"));
    write_outputs(args, &outcome, &plan)?;
    if listener.ended.load(Ordering::Relaxed) {
        bail!("interrupted: the figures are of the time before");
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the files of the figures before the run: a failure afterwards would lose the figures.
fn check_outputs(args: &RunArgs) -> Result<()> {
    for file in [&args.json, &args.csv].into_iter().flatten() {
        let kept = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(file);
        kept.at_path(file)?;
    }
    Ok(())
}

/// Writes the figures into the files that the arguments name.
fn write_outputs(args: &RunArgs, outcome: &RunOutcome, plan: &WorkloadPlan) -> Result<()> {
    if let Some(file) = &args.json {
        let json =
            serde_json::to_string_pretty(&figures::outcome_json(&args.workload, outcome, plan))?;
        std::fs::write(file, json + "\n").at_path(file)?;
    }
    if let Some(file) = &args.csv {
        std::fs::write(file, figures::seconds_csv(outcome)).at_path(file)?;
    }
    Ok(())
}

/// Runs `teal lab workloads`.
pub(crate) fn list_workloads(name: Option<&str>) -> Result<ExitCode> {
    if let Some(name) = name {
        let shipped = ShippedWorkload::by_name(name).with_context(|| no_such_workload(name))?;
        say!("{}", shipped.text.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    // Each workload is one line, and its variables another.
    for shipped in SHIPPED {
        let alias = if shipped.alias == shipped.name {
            String::new()
        } else {
            format!(" ({})", shipped.alias)
        };
        say!("{}{alias}: {}", shipped.name, shipped.about());
        let variables: Vec<String> = shipped
            .variables()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        say!("    {}", variables.join(" "));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the work of a plan.
fn print_plan(plan: &WorkloadPlan) {
    for set in preview_filesets(plan) {
        say!("{}", describe_fileset(&set));
    }
    // Threads come in groups of the same behaviour.
    for process in &plan.processes {
        for thread in &process.threads {
            let flowops: Vec<&str> = thread.ops.iter().map(|op| op.name.as_str()).collect();
            let (name, many) = (&process.name, process.instances * thread.instances);
            say!(
                "process {name}: {many} threads {}: {}",
                thread.name,
                flowops.join(", ")
            );
        }
    }
    match plan.seconds {
        Some(seconds) => say!(
            "{} threads for {seconds} s in {}",
            plan.thread_count(),
            plan.options.dir.display()
        ),
        None => say!(
            "{} threads until they are done, in {}",
            plan.thread_count(),
            plan.options.dir.display()
        ),
    }
}

/// Describes a fileset. The sizes are those after scaling.
fn describe_fileset(set: &FilesetPreview) -> String {
    let FilesetPreview { name, prealloc, .. } = set;
    // A set of directories alone has no depth.
    if set.files == 0 {
        return format!(
            "fileset {name}: no files, {} directories, {prealloc} % there from the beginning",
            set.dirs
        );
    }
    let scaled = if set.files == set.files_asked {
        String::new()
    } else {
        format!(" of {}", set.files_asked)
    };
    format!(
        "fileset {name}: {}{scaled} files, {}, {} directories, mean depth {:.1}, {prealloc} % \
         there from the beginning",
        set.files,
        human_size(set.bytes),
        set.dirs,
        set.depth
    )
}

struct TerminalListener {
    strict: bool,
    ended: Arc<AtomicBool>,
}

impl RunListener for TerminalListener {
    fn print_line(&self, line: &str) {
        say!("{line}");
    }

    fn report_progress(&self, so_far: &RunOutcome) {
        if !self.strict {
            say!(
                "after {:.1} s, of the last {:.1} s:",
                so_far.at as f64 / 1e9,
                so_far.nanos as f64 / 1e9
            );
        }
        figures::outcome_table(so_far, self.strict)
            .iter()
            .for_each(|line| say!("{line}"));
    }

    fn is_interrupted(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}
