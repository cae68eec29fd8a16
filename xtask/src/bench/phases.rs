//! `cargo xtask bench phases`: every file system through the phases of scherlfs, `teal lab phases`
//! with what it needs.

use anyhow::{Result, anyhow, ensure};
use std::process::Command;

/// Takes every file system through the phases of scherlfs and counts joules, here and in a guest
/// (root).
///
/// Installs mkfs programs and user-mode Linux, and runs `teal lab phases` on the Microdrive with
/// ext2, ext3, ext4, xfs, btrfs, teal here, reiserfs, nilfs2, f2fs, jfs, vfat in a guest; results
/// lie in target/bench/phases.
#[derive(Debug, clap::Args)]
pub(crate) struct PhasesArguments {
    /// Passed on to `teal lab phases`, such as --groups 4k --scale 0.1 --mode f --results DIR
    /// --systems teal,ext4
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Debian packages.
const PACKAGES: &[&str] = &[
    "btrfs-progs",
    "dosfstools",
    "e2fsprogs",
    "f2fs-tools",
    "iproute2",
    "jfsutils",
    "nbd-client",
    "nilfs-tools",
    "reiserfsprogs",
    "user-mode-linux",
    "xfsprogs",
];
/// The arguments that are added unless they are given.
const DEFAULTS: [(&str, &str); 2] = [
    ("--profile", "ibm-microdrive-1gb"),
    (
        "--systems",
        "teal,ext2,ext3,ext4,xfs,btrfs,reiserfs,vfat,f2fs,nilfs2,jfs",
    ),
];

pub(crate) fn run_bench(plan: &PhasesArguments) -> Result<bool> {
    let is_said = |name: &str| plan.arguments.iter().any(|argument| argument == name);
    ensure!(
        rustix::process::geteuid().is_root(),
        "bench phases needs root: it makes devices, mounts and a guest"
    );
    crate::test::needs::install_missing(PACKAGES)
        .map_err(|list| anyhow!("as root: apt-get install {list}"))?;
    let target = crate::workspace::target_directory()?;
    let mut build = crate::workspace::cargo_command();
    build.current_dir(crate::workspace::workspace_root()).args([
        "build",
        "--release",
        "--quiet",
        "-p",
        "teal",
        "-p",
        "teal-lab",
        "--bins",
    ]);
    ensure!(build.status()?.success(), "the release build failed");
    let mut command = Command::new(target.join("release/teal"));
    command.args(["lab", "phases"]).args(&plan.arguments);
    for (name, value) in DEFAULTS.into_iter().filter(|(name, _)| !is_said(name)) {
        command.args([name, value]);
    }
    if !is_said("--results") {
        command.arg("--results").arg(target.join("bench/phases"));
    }
    Ok(command.status()?.success())
}
