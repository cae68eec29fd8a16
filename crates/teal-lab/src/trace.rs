//! `teal lab trace`: showing, importing and summing up traces.

use crate::cli::{At, Format, Import, Trace};
use crate::figures;
use anyhow::{Context, Result, bail};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use teal_command::say::say;
use teal_study::characterise::Survey;
use teal_trace::import::{Imported, Origin, Stage, blktrace, oracle_general, vscsi};
use teal_trace::{Ending, Item, Paths, Reader, Stat, Text, TextReader, Writer, text_header};

/// Runs the command.
pub(crate) fn trace(what: &Trace) -> Result<ExitCode> {
    match what {
        Trace::Show { file, paths } => match show(file, *paths) {
            // The reader of a pipe has seen enough.
            Err(e)
                if e.downcast_ref::<io::Error>()
                    .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) => {}
            done => done?,
        },
        Trace::Characterise { file, wml } => {
            crate::characterise::write(file, &Survey::default(), wml, &file.display().to_string())?;
        }
        Trace::Import(args) => import(args)?,
        Trace::Stat { file, json } => stat(file, *json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn open(path: &Path) -> Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = OpenOptions::new()
        .read(true)
        .open(path)
        .with_context(|| path.display().to_string())?;
    Ok(Box::new(BufReader::with_capacity(1 << 16, file)))
}

pub(crate) fn reader(path: &Path) -> Result<Reader<Box<dyn Read>>> {
    Reader::new(open(path)?).with_context(|| path.display().to_string())
}

/// Says so on standard error when the trace does not end as it should.
pub(crate) fn say_ending(path: &Path, ending: Option<&Ending>) {
    if let Some(ending @ Ending::CutOff { .. }) = ending {
        let _ = writeln!(io::stderr(), "teal: {}: {ending}", path.display());
    }
}

fn show(path: &Path, with_paths: bool) -> Result<()> {
    let mut reader = reader(path)?;
    let mut out = BufWriter::new(io::stdout().lock());
    out.write_all(text_header(reader.header()).as_bytes())?;
    let mut paths = Paths::default();
    for item in reader.by_ref() {
        let item = item.with_context(|| path.display().to_string())?;
        write!(out, "{item}")?;
        if with_paths {
            paths.follow(&item);
            if let Item::Event(event) = &item
                && let Some(path) = paths.path(event.object)
            {
                let path = if path.is_empty() { b"/".to_vec() } else { path };
                write!(out, " # {}", path.escape_ascii())?;
            }
        }
        writeln!(out)?;
    }
    if let Some(ending @ Ending::CutOff { .. }) = reader.ending() {
        writeln!(out, "# {ending}")?;
    }
    out.flush()?;
    say_ending(path, reader.ending());
    Ok(())
}

fn stat(path: &Path, json: bool) -> Result<()> {
    let mut reader = reader(path)?;
    let mut stat = Stat::default();
    for item in reader.by_ref() {
        stat.add(&item.with_context(|| path.display().to_string())?);
    }
    let ending = reader.ending().cloned().unwrap_or(Ending::Complete);
    if json {
        say!(
            "{}",
            serde_json::to_string_pretty(&figures::json(reader.header(), &stat, &ending))?
        );
    } else {
        for line in figures::lines(reader.header(), &stat) {
            say!("{line}");
        }
        say_ending(path, Some(&ending));
    }
    Ok(())
}

fn import(args: &Import) -> Result<()> {
    if args.input.len() > 1 && args.from != Format::Blktrace {
        bail!("only blktrace has several files of one run; import the others one by one");
    }
    if args.unit.is_some() && args.from != Format::OracleGeneral {
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
    let done = convert(args, out);
    if done.is_err() {
        // Nothing of a trace that was refused is left behind.
        let _ = std::fs::remove_file(&args.out);
    }
    let done = done.with_context(|| list(args))?;
    say!(
        "{}: {} events from {} records; {} skipped",
        args.out.display(),
        done.events,
        done.records,
        done.skipped
    );
    Ok(())
}

fn list(args: &Import) -> String {
    let names: Vec<_> = args
        .input
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    names.join(", ")
}

fn convert(args: &Import, out: File) -> Result<Imported> {
    let format = match args.from {
        Format::Text => return from_text(&args.input[0], out),
        Format::Blktrace => "blktrace",
        Format::Vscsi => "vscsi",
        Format::OracleGeneral => "oracleGeneral",
    };
    let source = args
        .source
        .clone()
        .unwrap_or_else(|| format!("{format}: {}", list(args)));
    let origin = Origin {
        machine: Text::default(),
        source: Text::cut(source.as_bytes()),
    };
    let inputs = args
        .input
        .iter()
        .map(|path| open(path))
        .collect::<Result<Vec<_>>>()?;
    let mut first = inputs.into_iter();
    let mut one = || first.next().context("an input is named");
    Ok(match args.from {
        Format::Vscsi => vscsi(one()?, origin, out)?,
        Format::OracleGeneral => oracle_general(one()?, args.unit, origin, out)?,
        Format::Blktrace | Format::Text => {
            let stage = match args.at {
                At::Issue => Stage::Issue,
                At::Queue => Stage::Queue,
            };
            blktrace(first, stage, origin, out)?
        }
    })
}

fn from_text(path: &Path, out: File) -> Result<Imported> {
    let reader = TextReader::new(BufReader::new(open(path)?))?;
    let mut writer = Writer::new(out, reader.header())?;
    let mut done = Imported::default();
    let mut lines = reader;
    while let Some(item) = lines.next() {
        let item = item?;
        done.records += 1;
        done.events += u64::from(matches!(item, Item::Event(_)));
        writer
            .put(&item)
            .with_context(|| format!("line {}", lines.line_number()))?;
    }
    writer.finish()?;
    Ok(done)
}
