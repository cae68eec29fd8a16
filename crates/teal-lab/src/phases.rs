//! Implements `teal lab phases`: measures the phases of scherlfs on file systems, in joules of a
//! modelled disk, beside the floor.
//!
//! # The directory of results
//! | file | content |
//! |---|---|
//! | `cells.jsonl` | results of a group of phases, one a line; an incomplete last line is removed |
//! | `owner` | the process that measures; it is there as long as one does ([`ownership`]) |
//! | `report.md` | the tables, made anew after every cell |
//!
//! # Guarantees
//! 1. Each cell begins on a fresh file system on a fresh modelled disk; no device of this machine
//!    is touched.
//! 2. An interrupted command goes on with the next cell. The mount and the disk of a cell go with
//!    it or, if this program was killed, when it goes on.
//! 3. A cell that cannot be measured is reported and left out; the others are measured.
//! 4. File systems that this kernel lacks run in a guest, which ends with its cell.

use crate::cli::{PhasesArgs, PhasesMode};
use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use teal_command::paths;
use teal_command::profile::{load_profile, nearest_name};
use teal_command::say::say;
use teal_command::size::human_size;
use teal_emulator::EmulationSetup;
use teal_rig::ownership::{self, ResultsOwnership};
use teal_rig::phases::{PhasesTask, group_named};
use teal_rig::{guest, testbed};
use teal_study::matrix::FileSystemKind;
use teal_study::phases::{
    PhaseCell, PhaseGroup, PhaseSheet, SyncMode, phase_floor, render_markdown,
};

/// Marks a directory of results.
const MARK: &str = "cells.jsonl";

/// Names a file system that is measured, and its kernel.
#[derive(Debug, Clone)]
struct MeasuredSystem {
    /// Name as the user wrote it.
    name: String,
    kind: FileSystemKind,
    in_guest: bool,
}

/// Holds everything that cells have in common.
struct PhasesBench {
    subjects: Vec<MeasuredSystem>,
    groups: Vec<PhaseGroup>,
    mode: SyncMode,
    scale: f64,
    profile: String,
    size: u64,
    setup: EmulationSetup,
    results: PathBuf,
    ended: Arc<AtomicBool>,
}

/// Runs the command.
pub(crate) fn run_phases(args: &PhasesArgs) -> Result<ExitCode> {
    let bench = PhasesBench::new(args)?;
    ownership::check_directory(&bench.results, MARK)?;
    // A dry run writes nothing, so it needs no right to the directory.
    let _owned = if args.kept.dry_run {
        None
    } else {
        Some(ResultsOwnership::claim(&bench.results, MARK)?)
    };
    let mut cells = bench.read_cells()?;
    let todo = bench.missing_cells(&cells);
    if args.kept.dry_run {
        bench.print_plan(&todo);
        return Ok(ExitCode::SUCCESS);
    }
    // Checked before the first cell, so that a missing program costs no hours.
    if !args.kept.only_report {
        for subject in &bench.subjects {
            bench.check_system(subject)?;
        }
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&bench.ended)).context("signals")?;
        }
        bench.measure_cells(&todo, &mut cells)?;
    }
    bench.write_report(&cells)?;
    Ok(ExitCode::SUCCESS)
}

fn sync_mode(of: PhasesMode) -> SyncMode {
    match of {
        PhasesMode::T => SyncMode::T,
        PhasesMode::F => SyncMode::F,
        PhasesMode::C => SyncMode::C,
    }
}

fn filesystem_kind(name: &str) -> Result<FileSystemKind> {
    let names = FileSystemKind::ALL.iter().map(|kind| kind.name());
    match FileSystemKind::ALL
        .iter()
        .copied()
        .find(|kind| kind.name() == name)
    {
        Some(kind) => Ok(kind),
        None => match nearest_name(name, names.clone()) {
            // A typing error is the likely reason.
            Some(known) => bail!("there is no file system {name} here; did you mean {known}?"),
            None => bail!(
                "there is no file system {name} here; there are {}",
                names.collect::<Vec<_>>().join(", ")
            ),
        },
    }
}

impl MeasuredSystem {
    fn parse(text: &str) -> Result<Self> {
        let (name, place) = text.split_once('@').unwrap_or((text, ""));
        let kind = filesystem_kind(name)?;
        // Without a place, a file system that this kernel lacks runs in a guest.
        let in_guest = match place {
            "" => !kind.is_ours() && !testbed::kernel_has(kind),
            "guest" => true,
            "host" => false,
            _ => bail!("'{text}': behind @ comes guest or host"),
        };
        if kind.is_ours() && in_guest {
            bail!("teal runs on this kernel: say teal");
        }
        Ok(Self {
            name: text.to_owned(),
            kind,
            in_guest,
        })
    }
}

impl PhasesBench {
    fn new(args: &PhasesArgs) -> Result<Self> {
        let subjects = args
            .systems
            .iter()
            .map(|text| MeasuredSystem::parse(text))
            .collect::<Result<Vec<_>>>()?;
        for names in [&args.systems, &args.groups] {
            if let Some((_, twice)) = names
                .iter()
                .enumerate()
                .find(|(at, name)| names[..*at].contains(name))
            {
                bail!("{twice} is named twice; each is measured once");
            }
        }
        let groups = args
            .groups
            .iter()
            .map(|name| group_named(name))
            .collect::<Result<Vec<_>>>()?;
        let of = load_profile(&args.profile)?;
        // The disk has the size of the profile, unless another one is named.
        let holds = of.media.map_or(0, |media| media.capacity.get());
        // Whole MiB, so that partitions and images have round sizes.
        let size = args.size.unwrap_or(holds >> 20 << 20);
        let setup = EmulationSetup::new(of, size)?;
        Ok(Self {
            subjects,
            groups: if groups.is_empty() {
                PhaseGroup::ALL.to_vec()
            } else {
                groups
            },
            mode: sync_mode(args.mode),
            scale: args.scale,
            profile: absolute_profile(&args.profile)?,
            size,
            setup,
            results: paths::absolute_path(&args.kept.results)?,
            ended: Arc::default(),
        })
    }

    fn check_system(&self, subject: &MeasuredSystem) -> Result<()> {
        let checked = if subject.in_guest {
            guest::check_guest(subject.kind)
        } else {
            testbed::check_kind(subject.kind)
        };
        checked.with_context(|| format!("system {}", subject.name))
    }

    /// Returns the missing cells in the order in which they are measured: all file systems of a
    /// group, then the next group.
    fn missing_cells(&self, cells: &[PhaseCell]) -> Vec<(MeasuredSystem, PhaseGroup)> {
        let has = |subject: &MeasuredSystem, group: PhaseGroup| {
            cells
                .iter()
                .any(|cell| cell.system == subject.name && cell.group == group.name())
        };
        let of = |group: &PhaseGroup| {
            let group = *group;
            self.subjects
                .iter()
                .filter(move |subject| !has(subject, group))
                .map(move |s| (s.clone(), group))
        };
        self.groups.iter().flat_map(of).collect()
    }

    fn print_plan(&self, todo: &[(MeasuredSystem, PhaseGroup)]) {
        say!(
            "{} cells to be measured, on modelled disks of {}: no device of this machine is \
             touched",
            todo.len(),
            self.profile
        );
        // Sizes are those at the scale of the run.
        for (subject, group) in todo {
            let phases = group.phases_at_scale(self.scale);
            let bytes: u64 = phases
                .iter()
                .map(teal_study::phases::WorkloadPhase::user_bytes)
                .sum();
            let place = if subject.in_guest {
                "in a guest"
            } else {
                "here"
            };
            say!(
                "{} on {}, {place}: {} phases, {}",
                group.name(),
                subject.name,
                phases.len(),
                human_size(bytes)
            );
        }
    }

    fn cells_file(&self) -> PathBuf {
        self.results.join(MARK)
    }

    /// Reads the existing cells; refuses those of another mode, scale or disk.
    fn read_cells(&self) -> Result<Vec<PhaseCell>> {
        let cells: Vec<PhaseCell> = crate::json_lines::read_lines(&self.cells_file())?;
        for (at, cell) in cells.iter().enumerate() {
            // Results of an older program have other fields.
            let name = self.cells_file();
            if cell.version != PhaseCell::VERSION {
                bail!(
                    "{}, line {}: version {} is not known here",
                    name.display(),
                    at + 1,
                    cell.version
                );
            }
            // Cells of other conditions must not stand in one table.
            let is_same = cell.mode == self.mode
                && cell.scale == self.scale
                && cell.size == self.size
                && cell.profile == self.setup.profile().name;
            if !is_same {
                bail!(
                    "{} has results of another mode, scale or disk; say another --results",
                    self.results.display()
                );
            }
        }
        Ok(cells)
    }

    fn measure_cells(
        &self,
        todo: &[(MeasuredSystem, PhaseGroup)],
        cells: &mut Vec<PhaseCell>,
    ) -> Result<()> {
        std::fs::create_dir_all(&self.results)
            .with_context(|| self.results.display().to_string())?;
        let path = self.cells_file();
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| path.display().to_string())?;
        // A cell that fails ends no other; all that failed are named at the end.
        let mut failed = Vec::new();
        for (at, (subject, group)) in todo.iter().enumerate() {
            let what = format!("{} on {}", group.name(), subject.name);
            let cell = self.measure_cell(subject, *group);
            // An interrupted cell fails too, and its error would mislead.
            if self.ended.load(Ordering::Relaxed) {
                bail!(
                    "interrupted after {} cells; the same command goes on",
                    cells.len()
                );
            }
            let cell = match cell {
                Ok(cell) => cell,
                Err(error) => {
                    say!(
                        "{} of {}: {what} came to nothing: {error:#}",
                        at + 1,
                        todo.len()
                    );
                    failed.push(what);
                    continue;
                }
            };
            // The line is synced: a cell may have taken long.
            writeln!(file, "{}", serde_json::to_string(&cell)?)
                .and_then(|()| file.sync_data())
                .with_context(|| path.display().to_string())?;
            let joules: f64 = cell.phases.iter().map(|phase| phase.tally.joules()).sum();
            say!("{} of {}: {what}: {joules:.1} J", at + 1, todo.len());
            cells.push(cell);
            self.write_report(cells)?;
        }
        if !failed.is_empty() {
            bail!(
                "{} of {} cells came to nothing: {}",
                failed.len(),
                todo.len(),
                failed.join(", ")
            );
        }
        Ok(())
    }

    fn measure_cell(&self, subject: &MeasuredSystem, group: PhaseGroup) -> Result<PhaseCell> {
        let of = PhasesTask {
            kind: subject.kind,
            group: group.name(),
            mode: self.mode,
            scale: self.scale,
        };
        let (kernel, mut phases) = if subject.in_guest {
            guest::run_phases((&self.profile, self.size), &of, &self.ended)?
        } else {
            let release = rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned();
            (
                format!("Linux {release}"),
                teal_rig::phases::run_here(
                    (&self.profile, self.size),
                    &self.results.join("mount"),
                    &of,
                    &self.ended,
                )?,
            )
        };
        let plan = group.phases_at_scale(self.scale);
        debug_assert_eq!(
            plan.iter().filter(|phase| phase.counts).count(),
            phases.len(),
            "each phase that counts has a result"
        );
        // The floor depends on the disk's profile, which the guest does not know.
        for (phase, measured) in plan.iter().filter(|phase| phase.counts).zip(&mut phases) {
            measured.floor_microjoules = phase_floor(self.setup.profile(), phase)?.get();
        }
        Ok(PhaseCell {
            version: PhaseCell::VERSION,
            system: subject.name.clone(),
            kernel,
            group: group.name(),
            mode: self.mode,
            scale: self.scale,
            profile: self.setup.profile().name.clone(),
            size: self.size,
            phases,
        })
    }

    fn write_report(&self, cells: &[PhaseCell]) -> Result<()> {
        let text = render_markdown(&PhaseSheet {
            cells,
            assumed: self.setup.assumptions(),
        });
        let path = self.results.join("report.md");
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    }
}

/// Returns a shipped profile's name as it is, and a file's path as an absolute one.
fn absolute_profile(profile: &str) -> Result<String> {
    if teal_energy::Profile::find_shipped(profile).is_some() {
        return Ok(profile.to_owned());
    }
    Ok(paths::absolute_path(Path::new(profile))?
        .display()
        .to_string())
}
