//! Implements `teal lab trace`: shows, imports and sums up traces.

use crate::cli::{ImportArgs, ImportFormat, RequestBegin, TraceCommand};
use crate::figures;
use anyhow::{Context, Result, bail};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use teal_command::say::say;
use teal_study::characterise::TreeSurvey;
use teal_trace::import::{
    ImportSummary, RequestStage, TraceOrigin, import_blktrace, import_oracle_general, import_vscsi,
};
use teal_trace::{
    PathTracker, Text, TextReader, TraceEnding, TraceItem, TraceReader, TraceStatistics,
    TraceWriter, text_header,
};

/// Runs the command.
pub(crate) fn run_trace(what: &TraceCommand) -> Result<ExitCode> {
    match what {
        TraceCommand::Show { file, paths } => match show_trace(file, *paths) {
            // The reader of a pipe has seen enough.
            Err(e)
                if e.downcast_ref::<io::Error>()
                    .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) => {}
            done => done?,
        },
        TraceCommand::Characterise { file, wml } => {
            crate::characterise::write_workload(
                file,
                &TreeSurvey::default(),
                wml,
                &file.display().to_string(),
            )?;
        }
        TraceCommand::Import(args) => import_trace(args)?,
        TraceCommand::Stat { file, json } => print_statistics(file, *json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn open_input(path: &Path) -> Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = OpenOptions::new()
        .read(true)
        .open(path)
        .with_context(|| path.display().to_string())?;
    Ok(Box::new(BufReader::with_capacity(1 << 16, file)))
}

pub(crate) fn open_trace(path: &Path) -> Result<TraceReader<Box<dyn Read>>> {
    TraceReader::new(open_input(path)?).with_context(|| path.display().to_string())
}

/// Reports on standard error that the trace does not end as it should.
pub(crate) fn say_ending(path: &Path, ending: Option<&TraceEnding>) {
    if let Some(ending @ TraceEnding::CutOff { .. }) = ending {
        let _ = writeln!(io::stderr(), "teal: {}: {ending}", path.display());
    }
}

fn show_trace(path: &Path, with_paths: bool) -> Result<()> {
    let mut reader = open_trace(path)?;
    let mut out = BufWriter::new(io::stdout().lock());
    out.write_all(text_header(reader.header()).as_bytes())?;
    let mut paths = PathTracker::default();
    for item in reader.by_ref() {
        let item = item.with_context(|| path.display().to_string())?;
        write!(out, "{item}")?;
        if with_paths {
            paths.follow_item(&item);
            if let TraceItem::Event(event) = &item
                && let Some(path) = paths.path_of(event.object)
            {
                let path = if path.is_empty() { b"/".to_vec() } else { path };
                write!(out, " # {}", path.escape_ascii())?;
            }
        }
        writeln!(out)?;
    }
    if let Some(ending @ TraceEnding::CutOff { .. }) = reader.ending() {
        writeln!(out, "# {ending}")?;
    }
    out.flush()?;
    say_ending(path, reader.ending());
    Ok(())
}

fn print_statistics(path: &Path, json: bool) -> Result<()> {
    let mut reader = open_trace(path)?;
    let mut stat = TraceStatistics::default();
    for item in reader.by_ref() {
        stat.add_item(&item.with_context(|| path.display().to_string())?);
    }
    let ending = reader.ending().cloned().unwrap_or(TraceEnding::Complete);
    if json {
        say!(
            "{}",
            serde_json::to_string_pretty(&figures::statistics_json(
                reader.header(),
                &stat,
                &ending
            ))?
        );
    } else {
        for line in figures::statistics_lines(reader.header(), &stat) {
            say!("{line}");
        }
        say_ending(path, Some(&ending));
    }
    Ok(())
}

fn import_trace(args: &ImportArgs) -> Result<()> {
    if args.input.len() > 1 && args.from != ImportFormat::Blktrace {
        bail!("only blktrace has several files of one run; import the others one by one");
    }
    if args.unit.is_some() && args.from != ImportFormat::OracleGeneral {
        bail!("--unit is for oracle-general");
    }
    if args.unit.is_some_and(|unit| unit == 0 || unit % 512 != 0) {
        bail!("--unit must be a multiple of 512 bytes");
    }
    let out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&args.out);
    let out = out.with_context(|| args.out.display().to_string())?;
    let done = convert_input(args, out);
    if done.is_err() {
        // Nothing of a trace that was refused is left behind.
        let _ = std::fs::remove_file(&args.out);
    }
    let done = done.with_context(|| list_inputs(args))?;
    say!(
        "{}: {} events from {} records; {} skipped",
        args.out.display(),
        done.events,
        done.records,
        done.skipped
    );
    Ok(())
}

fn list_inputs(args: &ImportArgs) -> String {
    let names: Vec<_> = args
        .input
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    names.join(", ")
}

fn convert_input(args: &ImportArgs, out: File) -> Result<ImportSummary> {
    let format = match args.from {
        ImportFormat::Text => return from_text(&args.input[0], out),
        ImportFormat::Blktrace => "blktrace",
        ImportFormat::Vscsi => "vscsi",
        ImportFormat::OracleGeneral => "oracleGeneral",
    };
    let source = args
        .source
        .clone()
        .unwrap_or_else(|| format!("{format}: {}", list_inputs(args)));
    let origin = TraceOrigin {
        machine: Text::default(),
        source: Text::truncated(source.as_bytes()),
    };
    let inputs = args
        .input
        .iter()
        .map(|path| open_input(path))
        .collect::<Result<Vec<_>>>()?;
    let mut first = inputs.into_iter();
    let mut one = || first.next().context("an input is named");
    Ok(match args.from {
        ImportFormat::Vscsi => import_vscsi(one()?, origin, out)?,
        ImportFormat::OracleGeneral => import_oracle_general(one()?, args.unit, origin, out)?,
        ImportFormat::Blktrace | ImportFormat::Text => {
            let stage = match args.at {
                RequestBegin::Issue => RequestStage::Issue,
                RequestBegin::Queue => RequestStage::Queue,
            };
            import_blktrace(first, stage, origin, out)?
        }
    })
}

fn from_text(path: &Path, out: File) -> Result<ImportSummary> {
    let reader = TextReader::new(BufReader::new(open_input(path)?))?;
    let mut writer = TraceWriter::new(out, reader.header())?;
    let mut done = ImportSummary::default();
    let mut lines = reader;
    while let Some(item) = lines.next() {
        let item = item?;
        done.records += 1;
        done.events += u64::from(matches!(item, TraceItem::Event(_)));
        writer
            .write_item(&item)
            .with_context(|| format!("line {}", lines.line_number()))?;
    }
    writer.finish()?;
    Ok(done)
}
