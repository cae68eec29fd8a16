//! `teal`: the program that users run; here the components are put together.

mod cli;
mod config;
mod conflicts;
mod control;
mod daemon;
mod device;
mod doctor;
mod drives;
mod inspect;
mod laboratory;
mod launch;
mod machine;
mod mkfs;
mod mounts;
mod namespace;
mod options;
mod pin;
mod private;
mod probe;
mod record;
mod recording;
mod replica;
mod rollback;
mod serve;
mod serving;
mod status;
mod up;

use clap::Parser;
use cli::{Cli, Command};
use options::Asked;
use rollback::Rollback;
use std::process::ExitCode;
use teal_command::say;

fn main() -> ExitCode {
    teal_command::logging::begin();
    let called = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&called)
        .file_name()
        .unwrap_or_default();
    // mount(8) calls the first for `-t teal` and fstab, the others to remount.
    let done = if ["mount.teal", "mount.fuse.teal", "mount.fuseblk.teal"]
        .iter()
        .any(|known| name == *known)
    {
        options::from_mount_8(std::env::args_os().skip(1)).and_then(|asked| match asked {
            Asked::Mount(mount) => launch::mount(mount, Rollback::default()),
            Asked::Nothing(mount) => launch::pretend(&mount),
        })
    } else {
        run(Cli::parse())
    };
    match done {
        Ok(code) => code,
        Err(error) => say::complain(&error),
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Up(up) => up::up(&up),
        Command::Down { dir } => status::down(dir),
        Command::Mkfs(mkfs) => mkfs::mkfs(&mkfs),
        Command::Mount(mount) => launch::mount(mount, Rollback::default()),
        Command::Check { path, quick } => inspect::check(&path, quick),
        Command::Dump { path, what } => inspect::dump(&path, &what),
        Command::Status { dir, json } => status::status(dir, json),
        Command::Doctor => doctor::doctor(),
        Command::Serve(args) => serve::serve(&args),
        Command::Join(args) => serve::join(&args),
        Command::Flush { dir } => conflicts::flush(dir),
        Command::Conflicts { what } => conflicts::conflicts(what),
        Command::Device { what } => device::device(what),
        Command::Affinity { what } => device::affinity(what),
        Command::Pin { path } => pin::pin(&path),
        Command::Free { path } => pin::free(&path),
        Command::Where { path, json } => device::whereabouts(&path, json),
        Command::Lab { args } => laboratory::start(&args),
        Command::Recording(recording) => record::record(&recording),
        Command::Config { what } => config::config(what),
    }
}
