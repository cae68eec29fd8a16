//! The first program of a guest: it brings up what its task needs, does it, and switches the guest off.

use super::super::matrix::far as matrix;
use super::super::matrix::ground::{self, Ground};
use super::super::phases::far as phases;
use super::{ADDRESSES, Has, MODULES, PORTS, Task, program};
use anyhow::{Context, Result, bail};
use rustix::mount::MountFlags;
use rustix::system::RebootCommand;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;
use teal_study::matrix::{Cache, Kind};

/// The disk as the guest has it.
const DISK: &str = "/dev/nbd0";
/// As a modelled disk of the host is set up.
const QUEUE: [(&str, &str); 3] = [
    ("max_sectors_kb", "512"),
    ("rotational", "1"),
    ("scheduler", "none"),
];
/// Where nothing of the host's is.
const PLACE: &str = "/run";
/// Where file systems are mounted.
pub(in crate::lab) const DIR: &str = "/run/mount";

/// Runs the command. It does not return where it should run.
pub(crate) fn inside() -> Result<ExitCode> {
    if std::process::id() != 1 {
        bail!("this is the first program of a guest; say `teal lab matrix` or `phases`");
    }
    if let Err(error) = live() {
        // Without the line to the host the console is all there is.
        crate::say::complain(&error);
    }
    rustix::system::reboot(RebootCommand::PowerOff).context("switching off")?;
    Ok(ExitCode::SUCCESS)
}

fn live() -> Result<()> {
    for (kind, at) in [("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", PLACE)] {
        rustix::mount::mount(kind, at, kind, MountFlags::empty(), None).context(at)?;
    }
    let address = format!("{}/24", ADDRESSES[1]);
    let ip = program("ip", "iproute2")?;
    for args in [
        &["link", "set", "lo", "up"][..],
        &["address", "add", &address, "dev", "vec0"],
        &["link", "set", "vec0", "up"],
    ] {
        ground::run(&ip, args)?;
    }
    let mut line = Line::open()?;
    let told = match work(&mut line) {
        Ok(answer) => format!("finished {}", json!([kernel(), answer])),
        Err(error) => format!("failed {error:#}").replace('\n', " "),
    };
    line.say(&told).map(drop)
}

fn release() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

fn kernel() -> String {
    format!("user-mode Linux {}", release())
}

fn work(line: &mut Line) -> Result<Value> {
    let task: Task =
        serde_json::from_str(&line.say("task")?).context("the task cannot be understood")?;
    let kind = match &task {
        Task::Phases(of) => Some(of.kind),
        Task::Run(of) => Some(of.system.kind),
        Task::Try(system) => Some(system.kind),
        Task::Look => None,
    };
    ["drivers/block/nbd"]
        .into_iter()
        .chain(modules(kind))
        .try_for_each(load)?;
    // From now on without a line on the console for each.
    std::fs::write("/proc/sys/vm/drop_caches", "4").context("/proc/sys/vm/drop_caches")?;
    let client = program("nbd-client", "nbd-client")?;
    let port = PORTS[0].to_string();
    ground::run(&client, &["-b", "512", ADDRESSES[0], &port, DISK])?;
    for (setting, value) in QUEUE {
        let file = format!("/sys/block/nbd0/queue/{setting}");
        std::fs::write(&file, value).context(file)?;
    }
    let ground = Ground::real(Path::new(DISK))?;
    match task {
        Task::Phases(of) => Ok(json!(phases::inside(&of, ground, line)?)),
        Task::Run(of) => {
            if of.memory.is_some() {
                limit_memory()?;
            }
            schedulers();
            Ok(json!(matrix::inside(&of, &ground, line)?))
        }
        Task::Try(system) => {
            ground.make(&system)?;
            ground.mount(&system, Path::new(DIR), Cache::Cold)?.end()?;
            Ok(Value::Null)
        }
        Task::Look => {
            schedulers();
            Ok(json!(Has {
                schedulers: ground.schedulers()?
            }))
        }
    }
}

fn load(module: &str) -> Result<()> {
    let path = format!("{MODULES}/{}/kernel/{module}.ko", release());
    let file = OpenOptions::new()
        .read(true)
        .open(&path)
        .with_context(|| path.clone())?;
    rustix::system::finit_module(file, c"", 0).with_context(|| path)
}

/// Loads the schedulers that are not part of the kernel. Where one is not there, the disk does not have it.
fn schedulers() {
    if let Err(error) = load("block/bfq") {
        log::debug!("{error:#}");
    }
}

/// What a limit on memory needs: the controller, where it is looked for.
fn limit_memory() -> Result<()> {
    let at = Path::new(PLACE).join("memory");
    std::fs::create_dir(&at).with_context(|| at.display().to_string())?;
    rustix::mount::mount("cgroup", &at, "cgroup", MountFlags::empty(), c"memory")
        .context("the memory controller")
}

/// What the guest's kernel loads for a file system, in this order.
fn modules(kind: Option<Kind>) -> impl Iterator<Item = &'static str> {
    let these: &[&str] = match kind {
        Some(Kind::Nilfs2) => &["fs/nilfs2/nilfs2"],
        Some(Kind::F2fs) => &["crypto/crc32_generic", "fs/f2fs/f2fs"],
        Some(Kind::Vfat) => &[
            "fs/nls/nls_cp437",
            "fs/nls/nls_iso8859-1",
            "fs/fat/fat",
            "fs/fat/vfat",
        ],
        _ => &[],
    };
    these.iter().copied()
}

/// The line to the host, who counts.
#[derive(Debug)]
pub(in crate::lab) struct Line(BufReader<TcpStream>);

impl Line {
    fn open() -> Result<Self> {
        let stream = TcpStream::connect((ADDRESSES[0], PORTS[1])).context("no line to the host")?;
        stream.set_nodelay(true).context("the line to the host")?;
        Ok(Self(BufReader::new(stream)))
    }

    fn say(&mut self, what: &str) -> Result<String> {
        self.0
            .get_mut()
            .write_all(format!("{what}\n").as_bytes())
            .context("the host does not listen")?;
        let mut answer = String::new();
        self.0
            .read_line(&mut answer)
            .context("the host does not answer")?;
        Ok(answer)
    }

    /// From here on is counted.
    pub(in crate::lab) fn begin(&mut self) -> Result<()> {
        self.say("begin").map(drop)
    }

    /// The last operation is done.
    pub(in crate::lab) fn ran(&mut self) -> Result<()> {
        self.say("ran").map(drop)
    }

    /// All is written.
    pub(in crate::lab) fn drained(&mut self) -> Result<()> {
        self.say("drained").map(drop)
    }
}
