//! Forecasts the work of a matrix, its length, and its risk.

use super::bench::MatrixBench;
use super::room;
use anyhow::Result;
use std::path::Path;
use teal_command::say::say;
use teal_command::size::human_size;
use teal_study::matrix::Matrix;
use teal_study::workload::{plan_script, preview_filesets};

impl MatrixBench {
    /// Prints the work that would be done, its length, and its risk.
    pub(super) fn print_forecast(&self) -> Result<()> {
        let Matrix {
            device,
            runs,
            workloads,
            systems,
            schedulers,
            ..
        } = &self.matrix;
        let cells = self.matrix.cells().len() as u64;
        let [least, most] = [runs.least, runs.most].map(|blocks| u64::from(blocks) * cells);
        debug_assert!(
            least <= most,
            "a matrix has no fewer blocks at most than at least"
        );
        let (w, s, k) = (workloads.len(), systems.len(), schedulers.names.len());
        say!(
            "{w} workloads x {s} file systems x {k} schedulers: {cells} cells, {least} to {most} \
             runs"
        );
        // An upper limit: runs may end after their operations.
        let hours = |runs_: u64| (runs_ * runs.seconds) as f64 / 3600.0;
        say!(
            "{:.1} to {:.1} hours of running; making files and file systems comes on top",
            hours(least),
            hours(most)
        );
        // Sets are counted at the scale of the runs.
        for (at, workload) in workloads.iter().enumerate() {
            let sets = preview_filesets(&plan_script(
                &self.scripts[at],
                self.run_options(at, 0, Path::new("/"))?,
            )?);
            let (files, bytes) = sets
                .iter()
                .fold((0, 0), |(f, b), set| (f + set.files, b + set.bytes));
            say!(
                "workload {}: {files} files, {}",
                workload.name,
                human_size(bytes)
            );
        }
        if let Some(words) = room::describe_ageing(self, [least, most])? {
            say!("{words}");
        }
        for (at, system) in systems
            .iter()
            .enumerate()
            .filter(|(at, _)| self.in_guest(*at))
        {
            // The user learns whether the guest was wanted or is needed.
            let why = if system.place.is_some() {
                "as it says".into()
            } else {
                format!("this kernel has no {}", systems[at].kind.name())
            };
            say!(
                "system {}: in a guest, {why}; each run takes some seconds more, and is not \
                 ranked on the clock",
                system.name
            );
        }
        // The risk comes last, so that it is read.
        match (&device.profile, &device.path) {
            (Some(profile), _) => {
                say!("on modelled disks of {profile}: no device of this machine is touched")
            }
            (_, Some(path)) => say!("on {path}: everything that is on it will be lost"),
            _ => {}
        }
        Ok(())
    }
}
