//! A cell as the first program of a guest: it brings up what the phases need, carries them out, and switches the guest off.

use super::super::matrix::ground::Ground;
use super::guest::{ADDRESSES, MODULES, PORTS, program};
use super::kind;
use super::stage::{Count, Machine, Stage};
use crate::cli::lab::PhasesCell;
use anyhow::{Context, Result, bail};
use rustix::mount::MountFlags;
use rustix::system::RebootCommand;
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use teal_lab::matrix::Kind;
use teal_lab::phases::Phase;

/// The disk as the guest has it.
const DISK: &str = "/dev/nbd0";
/// As a modelled disk of the host is set up.
const QUEUE: [(&str, &str); 3] = [("max_sectors_kb", "512"), ("rotational", "1"), ("scheduler", "none")];
/// Where nothing of the host's is.
const PLACE: &str = "/run";

/// Runs the command. It does not return where it should run.
pub(crate) fn inside(of: &PhasesCell) -> Result<ExitCode> {
    if std::process::id() != 1 {
        bail!("this is the first program of a guest; say `teal lab phases`");
    }
    if let Err(error) = live(of) {
        // Without the line to the host the console is all there is.
        crate::say::complain(&error);
    }
    rustix::system::reboot(RebootCommand::PowerOff).context("switching off")?;
    Ok(ExitCode::SUCCESS)
}

fn live(of: &PhasesCell) -> Result<()> {
    for (kind, at) in [("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", PLACE)] {
        rustix::mount::mount(kind, at, kind, MountFlags::empty(), None).context(at)?;
    }
    let address = format!("{}/24", ADDRESSES[1]);
    let ip = program("ip", "iproute2")?;
    for args in
        [&["link", "set", "lo", "up"][..], &["address", "add", &address, "dev", "vec0"], &["link", "set", "vec0", "up"]]
    {
        super::ground::run(&ip, args)?;
    }
    let mut line = Line::open()?;
    let told = match measure(of, &mut line) {
        Ok(()) => format!("finished user-mode Linux {}", release()),
        Err(error) => format!("failed {error:#}").replace('\n', " "),
    };
    line.say(&told)
}

fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

fn measure(of: &PhasesCell, line: &mut Line) -> Result<()> {
    for module in modules(kind(&of.kind)?) {
        let path = format!("{MODULES}/{}/kernel/{module}.ko", release());
        let file = OpenOptions::new().read(true).open(&path).with_context(|| path.clone())?;
        rustix::system::finit_module(file, c"", 0).with_context(|| path)?;
    }
    // From now on without a line on the console for each.
    std::fs::write("/proc/sys/vm/drop_caches", "4").context("/proc/sys/vm/drop_caches")?;
    let client = program("nbd-client", "nbd-client")?;
    let port = PORTS[0].to_string();
    super::ground::run(&client, &["-b", "512", ADDRESSES[0], &port, DISK])?;
    for (setting, value) in QUEUE {
        let file = format!("/sys/block/nbd0/queue/{setting}");
        std::fs::write(&file, value).context(file)?;
    }
    let ground = Ground::real(Path::new(DISK))?;
    let over = AtomicBool::new(false);
    let dir = Path::new(PLACE).join("mount");
    Stage::new(of, ground, &dir, Machine::Own, line, &over)?.perform(of)
}

/// What the guest's kernel loads, in this order.
fn modules(kind: Kind) -> Vec<&'static str> {
    let more: &[&str] = match kind {
        Kind::Nilfs2 => &["fs/nilfs2/nilfs2"],
        Kind::F2fs => &["crypto/crc32_generic", "fs/f2fs/f2fs"],
        Kind::Vfat => &["fs/nls/nls_cp437", "fs/nls/nls_iso8859-1", "fs/fat/fat", "fs/fat/vfat"],
        _ => &[],
    };
    [&["drivers/block/nbd"], more].concat()
}

/// The line to the host, who counts.
struct Line(BufReader<TcpStream>);

impl Line {
    fn open() -> Result<Self> {
        let stream = TcpStream::connect((ADDRESSES[0], PORTS[1])).context("no line to the host")?;
        stream.set_nodelay(true).context("the line to the host")?;
        Ok(Self(BufReader::new(stream)))
    }

    fn say(&mut self, what: &str) -> Result<()> {
        self.0.get_mut().write_all(format!("{what}\n").as_bytes()).context("the host does not listen")?;
        let mut answer = String::new();
        self.0.read_line(&mut answer).context("the host does not answer").map(drop)
    }
}

impl Count for &mut Line {
    fn begin(&mut self, _: &Ground, phase: &Phase) -> Result<()> {
        self.say(&format!("begin {}", phase.name))
    }
    fn ran(&mut self, _: &Ground, _: &Phase) -> Result<()> {
        self.say("ran")
    }
    fn drained(&mut self, _: &Ground, _: &Phase, operations: u64) -> Result<()> {
        self.say(&format!("drained {operations}"))
    }
}
