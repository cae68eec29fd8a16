//! Runs the host's side of a guest: its disk, its network, and its end. It is the first process of
//! namespaces of its own, so that everything in them ends with it.
//!
//! # Guarantees
//! 1. *No guest is killed alone*: its kernel traces its programs, which would go on as programs of
//!    this machine if the kernel were gone before them. The end of a first process takes all of its
//!    namespace at once.

use super::job::{
    ADDRESSES, CountedPart, GuestJob, GuestOutcome, GuestTask, MEMORY, PORTS, require_program,
};
use crate::command;
use crate::disk::{DiskBacking, DiskModel, RequestSums, WriteCache};
use anyhow::{Context, Result, bail};
use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use teal_command::say::say;
use teal_emulator::{EmulatedDisk, EmulationPace, VirtualClock, nbd};
use teal_env::{Clock as _, SystemClock, Timer as _};

type GuestDisk = Arc<EmulatedDisk<DiskBacking>>;

/// Limits the looks at which a guest has asked nothing of its disk; its task adds the seconds that
/// it may be busy without.
const LOOKS_MAX: u64 = 300;
/// Time that a finished guest may take to switch itself off, and time between looks at it.
const OFF_MAX: Duration = Duration::from_secs(30);
const OFF_LOOK: Duration = Duration::from_millis(50);
/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Limits the lines of its console that are kept.
const LINES_MAX: usize = 12;
/// Name of the network device.
const TAP: &str = "guest";
/// Stands for no directory: the guest keeps nothing on this machine, and has no console that could
/// command it.
const NOWHERE: &str = "/dev/null";

/// Names the events that end the waiting.
enum GuestEvent {
    Finished(GuestOutcome),
    Failed(String),
    /// The outcome is no longer wanted.
    Unwanted,
}

/// Does the job on standard input: runs a guest, and prints its outcome.
///
/// # Errors
/// Returns the guest's error, which ends with its last words.
pub fn run_host() -> Result<ExitCode> {
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .context("standard input")?;
    let job: GuestJob = serde_json::from_str(&line)
        .context("this is for guests; say `teal lab matrix` or `phases`")?;
    make_network()?;
    let model = DiskModel {
        profile: job.profile.clone(),
        size: job.size,
        cache: WriteCache::On,
        spin_down: None,
        log: None,
        image: None,
    };
    // The process has this number outside; inside of the namespace it is 1.
    let number = std::fs::read_link("/proc/self").context("/proc/self")?;
    let name = format!("guest-{}", number.display());
    let disk: GuestDisk = Arc::new(model.emulate(
        &model.build_setup()?,
        &name,
        EmulationPace::Virtual(VirtualClock::default()),
    )?);
    let (tell, told) = mpsc::channel();
    // The guest has one connection for its disk and one for its words.
    let [blocks, words] = PORTS;
    serve_blocks(
        Arc::clone(&disk),
        TcpListener::bind((ADDRESSES[0], blocks))?,
    )?;
    serve_words(
        Arc::clone(&disk),
        TcpListener::bind((ADDRESSES[0], words))?,
        &job.task,
        tell.clone(),
    )?;
    // All threads end with this process, which is the first of its namespace.
    watch_input(tell)?;
    let console = Arc::default();
    let mut guest = start_guest(MEMORY.saturating_add(job.memory), &console)?;
    match wait_for_end(&mut guest, &told, &disk, LOOKS_MAX.saturating_add(job.busy)) {
        Ok(Some(outcome)) => {
            say!("{}", serde_json::to_string(&outcome)?);
            wait_switched_off(&mut guest)?;
        }
        Ok(None) => {}
        Err(error) => {
            // Without the console a guest that did not boot could not be understood.
            let lines = console.lock().unwrap_or_else(PoisonError::into_inner);
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            bail!("{error:#}; its last words:\n  {}", lines.join("\n  "));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits until the guest has switched itself off.
fn wait_switched_off(guest: &mut Child) -> Result<()> {
    let deadline = SystemClock.monotonic_time() + OFF_MAX;
    while guest.try_wait().context("looking at the guest")?.is_none()
        && SystemClock.monotonic_time() < deadline
    {
        SystemClock.wait_until(SystemClock.monotonic_time() + OFF_LOOK);
    }
    Ok(())
}

/// Makes a network of two, in the namespace.
fn make_network() -> Result<()> {
    let address = format!("{}/24", ADDRESSES[0]);
    let ip = require_program("ip", "iproute2")?;
    for args in [
        &["link", "set", "lo", "up"][..],
        &["tuntap", "add", "dev", TAP, "mode", "tap"],
        &["address", "add", &address, "dev", TAP],
        &["link", "set", TAP, "up"],
    ] {
        command::run_program(&ip, args)?;
    }
    Ok(())
}

/// Serves the disk to the guest.
fn serve_blocks(disk: GuestDisk, socket: TcpListener) -> Result<()> {
    std::thread::Builder::new()
        .name("blocks".to_owned())
        .spawn(move || {
            for client in socket.incoming() {
                let done = client.and_then(|mut client| {
                    client.set_nodelay(true)?;
                    nbd::serve_client(&disk, &mut client)
                });
                if let Err(error) = done {
                    log::debug!("the disk's client is gone: {error}");
                }
            }
        })?;
    Ok(())
}

/// Follows the guest's words: starts and stops counting.
fn serve_words(
    disk: GuestDisk,
    socket: TcpListener,
    task: &GuestTask,
    tell: Sender<GuestEvent>,
) -> Result<()> {
    let task = serde_json::to_string(task)?;
    std::thread::Builder::new()
        .name("words".to_owned())
        .spawn(move || {
            let talked = socket
                .accept()
                .map_err(anyhow::Error::from)
                .and_then(|(guest, _)| {
                    guest.set_nodelay(true)?;
                    converse(&disk, &task, &guest)
                });
            let event = match talked {
                Ok(outcome) => GuestEvent::Finished(outcome),
                Err(error) => GuestEvent::Failed(format!("{error:#}")),
            };
            drop(tell.send(event));
        })?;
    Ok(())
}

/// Follows the guest's line: it sends a word, and perhaps more, and each is answered with a line.
/// The words of a part come in their order, for each part once.
///
/// | it says | means | answer |
/// |---|---|---|
/// | `task` | what shall it do? | the task |
/// | `begin`, `ran`, `drained` | a part begins, has run, has written all | an empty line |
/// | `finished [KERNEL, ANSWER]`, `failed WHY` | the end | none |
fn converse(
    disk: &EmulatedDisk<impl teal_env::Disk>,
    task: &str,
    guest: &TcpStream,
) -> Result<GuestOutcome> {
    // The order of the words is checked, as wrong counts would look like results.
    let mut counted = Vec::new();
    let mut goes_on = false;
    let mut ran: Option<RequestSums> = None;
    for line in BufReader::new(guest).lines() {
        let line = line.context("the guest is gone")?;
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let sums = || {
            let now = disk.snapshot();
            RequestSums::between_accounts(&now.at_mark, &now.account, disk.model())
                .with_power(&now.series)
        };
        match word {
            "task" => {}
            "begin" => {
                disk.set_mark("begin");
                goes_on = true;
            }
            "ran" if goes_on => ran = Some(sums()),
            "drained" => {
                let ran = ran.take().context("a part ends that has not run")?;
                goes_on = false;
                counted.push(CountedPart { ran, all: sums() });
            }
            "finished" => {
                let (kernel, answer) = serde_json::from_str(rest).context("the guest's answer")?;
                return Ok(GuestOutcome {
                    kernel,
                    counted,
                    answer,
                });
            }
            "failed" => bail!("{rest}"),
            _ => bail!("the guest says '{line}'"),
        }
        // Each word waits for its answer, so that counting starts before the guest goes on.
        let answer = if word == "task" { task } else { "" };
        (&*guest)
            .write_all(format!("{answer}\n").as_bytes())
            .context("the guest is gone")?;
    }
    bail!("the guest went away")
}

/// Watches the input: its end is the end of everything.
fn watch_input(tell: Sender<GuestEvent>) -> Result<()> {
    std::thread::Builder::new()
        .name("input".to_owned())
        .spawn(move || {
            // The input ends when the parent closes it or dies.
            let mut rest = Vec::new();
            let _ = std::io::stdin().read_to_end(&mut rest);
            drop(tell.send(GuestEvent::Unwanted));
        })?;
    Ok(())
}

/// Starts the guest; keeps the last lines of its console.
fn start_guest(memory: u64, console: &Arc<Mutex<VecDeque<String>>>) -> Result<Child> {
    let exe = teal_command::program::current_program()?;
    // The kernel's command line has no quoting.
    let exe = exe
        .to_str()
        .filter(|path| !path.contains([' ', '"', ',']))
        .context("this program's path has blanks")?;
    let mut command = Command::new(require_program("linux.uml", "user-mode-linux")?);
    // Root and console are stated, because the kernel would put its defaults behind the arguments
    // of the first program.
    command.arg(format!("mem={}M", memory.div_ceil(1 << 20)));
    command.args([
        "root=/dev/root",
        "console=tty0",
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
    ]);
    command
        .args(["con=null", "con0=null,fd:1", "umid=guest"])
        .arg(format!("uml_dir={NOWHERE}"));
    command.arg(format!("vec0:transport=tap,ifname={TAP},depth=128,gro=1"));
    command.arg(format!("init={exe}")).args(["--", "guest"]);
    let mut guest = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let out = guest.stdout.take().context("piped")?;
    let console = Arc::clone(console);
    std::thread::Builder::new()
        .name("console".to_owned())
        .spawn(move || {
            for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim().to_owned();
                log::debug!("guest: {line}");
                let mut lines = console.lock().unwrap_or_else(PoisonError::into_inner);
                lines.truncate(LINES_MAX - 1);
                lines.push_front(line);
            }
        })?;
    Ok(guest)
}

/// Waits for the guest's end; returns `None` if its outcome is no longer wanted.
fn wait_for_end(
    guest: &mut Child,
    told: &Receiver<GuestEvent>,
    disk: &GuestDisk,
    looks: u64,
) -> Result<Option<GuestOutcome>> {
    let mut last = 0;
    let mut silent = 0;
    loop {
        match told.recv_timeout(LOOK) {
            Ok(GuestEvent::Finished(outcome)) => return Ok(Some(outcome)),
            Ok(GuestEvent::Failed(why)) => bail!("{why}"),
            Ok(GuestEvent::Unwanted) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the thread that listens to the guest is gone")
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(status) = guest.try_wait().context("looking at the guest")? {
            bail!("it ended: {status}");
        }
        // A guest that uses its disk is alive, however long its task takes.
        let asked = disk.snapshot().account.requests;
        let asked = asked.reads + asked.writes + asked.flushes;
        silent = if asked == last { silent + 1 } else { 0 };
        last = asked;
        if silent == looks {
            bail!("it has asked nothing of its disk for {looks} seconds");
        }
    }
}
