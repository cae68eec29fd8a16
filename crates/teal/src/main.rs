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
mod opening;
mod options;
mod pin;
mod private;
mod probe;
mod record;
mod recording;
mod repair;
mod replica;
mod rollback;
mod second_place;
mod serve;
mod server_check;
mod serving;
mod status;
mod up;

use clap::Parser;
use cli::{TealCommand, TealCommandLine};
use options::MountHelperCall;
use rollback::Rollback;
use std::process::ExitCode;
use teal_command::say;

fn main() -> ExitCode {
    teal_command::logging::init_logging();
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
            MountHelperCall::Mount(mount) => launch::mount(mount, Rollback::default()),
            MountHelperCall::DryRun(mount) => launch::check_only(&mount),
        })
    } else {
        run(TealCommandLine::parse())
    };
    match done {
        Ok(code) => code,
        Err(error) => say::print_error(&error),
    }
}

fn run(cli: TealCommandLine) -> anyhow::Result<ExitCode> {
    match cli.command {
        TealCommand::Up(up) => up::mount_or_begin(&up),
        TealCommand::Down { dir } => status::take_down(dir),
        TealCommand::Mkfs(mkfs) => mkfs::make_empty_store(&mkfs),
        TealCommand::Mount(mount) => launch::mount(mount, Rollback::default()),
        TealCommand::Check {
            path, server: true, ..
        } => server_check::check_server(&path),
        TealCommand::Check { path, quick, .. } => inspect::check(&path, quick),
        TealCommand::Repair(args) => repair::repair_store(&args),
        TealCommand::Dump { path, what } => inspect::dump(&path, &what),
        TealCommand::Status { dir, json } => status::show_statuses(dir, json),
        TealCommand::Doctor => doctor::run_doctor(),
        TealCommand::Serve(args) => serve::serve_volume(&args),
        TealCommand::Join(args) => serve::join_volume(&args),
        TealCommand::Flush { dir } => conflicts::flush_to_server(dir),
        TealCommand::Conflicts { what } => conflicts::run_conflicts(what),
        TealCommand::Device { what } => device::run_device(what),
        TealCommand::Affinity { what } => device::run_affinity(what),
        TealCommand::Pin { path } => pin::pin_path(&path),
        TealCommand::Free { path } => pin::free_path(&path),
        TealCommand::Where { path, json } => device::show_whereabouts(&path, json),
        TealCommand::Lab { args } => laboratory::exec_laboratory(&args),
        TealCommand::Recording(recording) => record::run_recording(&recording),
        TealCommand::Config { what } => config::run_config(what),
    }
}
