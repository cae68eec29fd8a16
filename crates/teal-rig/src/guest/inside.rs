//! Runs the first program of a guest: it brings up what its task needs, does it, and switches the
//! guest off.

use super::host_line::HostLine;
use super::job::{ADDRESSES, GuestFeatures, GuestTask, MODULES, MOUNT_DIR, PORTS, require_program};
use super::runs;
use crate::command;
use crate::testbed::Testbed;
use anyhow::{Context, Result, bail};
use rustix::mount::MountFlags;
use rustix::system::RebootCommand;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::path::Path;
use std::process::ExitCode;
use teal_study::matrix::{CacheState, FileSystemKind};

/// Path of the disk in the guest.
const DISK: &str = "/dev/nbd0";
/// Settings of the disk's queue, as on a modelled disk of the host.
const QUEUE: [(&str, &str); 3] = [
    ("max_sectors_kb", "512"),
    ("rotational", "1"),
    ("scheduler", "none"),
];
/// Directory of a file system of its own, apart from the host's files.
const PLACE: &str = "/run";

/// Does the host's task as the first program of a guest, and switches the guest off.
///
/// # Errors
/// Returns an error if this is no guest.
pub fn run_inside() -> Result<ExitCode> {
    if std::process::id() != 1 {
        bail!("this is the first program of a guest; say `teal lab matrix` or `phases`");
    }
    if let Err(error) = do_one_task() {
        // Without the line to the host the console is the only way out.
        teal_command::say::print_error(&error);
    }
    rustix::system::reboot(RebootCommand::PowerOff).context("switching off")?;
    Ok(ExitCode::SUCCESS)
}

fn do_one_task() -> Result<()> {
    // A first program finds nothing mounted but its root.
    for (kind, at) in [("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", PLACE)] {
        rustix::mount::mount(kind, at, kind, MountFlags::empty(), None).context(at)?;
    }
    let address = format!("{}/24", ADDRESSES[1]);
    let ip = require_program("ip", "iproute2")?;
    for args in [
        &["link", "set", "lo", "up"][..],
        &["address", "add", &address, "dev", "vec0"],
        &["link", "set", "vec0", "up"],
    ] {
        command::run_program(&ip, args)?;
    }
    let mut line = HostLine::connect()?;
    // A failure is an answer too: only without a line there is none.
    let told = match carry_out_task(&mut line) {
        Ok(answer) => format!("finished {}", json!([kernel_name(), answer])),
        Err(error) => format!("failed {error:#}").replace('\n', " "),
    };
    line.send_word(&told).map(drop)
}

fn kernel_release() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

fn kernel_name() -> String {
    format!("user-mode Linux {}", kernel_release())
}

fn carry_out_task(line: &mut HostLine) -> Result<Value> {
    let task: GuestTask =
        serde_json::from_str(&line.send_word("task")?).context("the task cannot be understood")?;
    // The kernel's modules depend on the file system.
    let kind = match &task {
        GuestTask::Phases(of) => Some(of.kind),
        GuestTask::Run(of) => Some(of.system.kind),
        GuestTask::Try(system) => Some(system.kind),
        GuestTask::Look => None,
    };
    ["drivers/block/nbd"]
        .into_iter()
        .chain(modules_for(kind))
        .try_for_each(load_module)?;
    // From now on dropping caches prints no line on the console.
    std::fs::write("/proc/sys/vm/drop_caches", "4").context("/proc/sys/vm/drop_caches")?;
    let client = require_program("nbd-client", "nbd-client")?;
    // Sectors of 512 bytes are those of a modelled disk on the host.
    let port = PORTS[0].to_string();
    command::run_program(&client, &["-b", "512", ADDRESSES[0], &port, DISK])?;
    for (setting, value) in QUEUE {
        let file = format!("/sys/block/nbd0/queue/{setting}");
        std::fs::write(&file, value).context(file)?;
    }
    let testbed = Testbed::open_real(Path::new(DISK))?;
    match task {
        GuestTask::Phases(of) => Ok(json!(runs::phases_inside(&of, testbed, line)?)),
        GuestTask::Run(of) => {
            // The controller is mounted only if it is needed: it costs time in each allocation.
            if of.memory.is_some() {
                limit_memory()?;
            }
            load_schedulers();
            Ok(json!(runs::cell_inside(&of, &testbed, line)?))
        }
        GuestTask::Try(system) => {
            testbed.make_filesystem(&system)?;
            testbed
                .mount(&system, Path::new(MOUNT_DIR), CacheState::Cold)?
                .finish()?;
            Ok(Value::Null)
        }
        GuestTask::Look => {
            load_schedulers();
            Ok(json!(GuestFeatures {
                schedulers: testbed.schedulers()?
            }))
        }
    }
}

fn load_module(module: &str) -> Result<()> {
    let path = format!("{MODULES}/{}/kernel/{module}.ko", kernel_release());
    let file = OpenOptions::new()
        .read(true)
        .open(&path)
        .with_context(|| path.clone())?;
    rustix::system::finit_module(file, c"", 0).with_context(|| path)
}

/// Loads the schedulers that are not part of the kernel. Without them the disk lacks these
/// schedulers.
fn load_schedulers() {
    if let Err(error) = load_module("block/bfq") {
        log::debug!("{error:#}");
    }
}

/// Mounts the memory controller at the place where it is looked for.
fn limit_memory() -> Result<()> {
    let at = Path::new(PLACE).join("memory");
    std::fs::create_dir(&at).with_context(|| at.display().to_string())?;
    rustix::mount::mount("cgroup", &at, "cgroup", MountFlags::empty(), c"memory")
        .context("the memory controller")
}

/// Returns the modules that the guest's kernel loads for a file system, in this order.
fn modules_for(kind: Option<FileSystemKind>) -> impl Iterator<Item = &'static str> {
    let these: &[&str] = match kind {
        Some(FileSystemKind::Nilfs2) => &["fs/nilfs2/nilfs2"],
        Some(FileSystemKind::F2fs) => &["crypto/crc32_generic", "fs/f2fs/f2fs"],
        Some(FileSystemKind::Vfat) => &[
            "fs/nls/nls_cp437",
            "fs/nls/nls_iso8859-1",
            "fs/fat/fat",
            "fs/fat/vfat",
        ],
        _ => &[],
    };
    these.iter().copied()
}
