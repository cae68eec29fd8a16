//! Other file systems over the same line, once: sshfs, and juicefs with metadata and objects in a
//! Redis.
//!
//! # How
//! 1. The far server is on this machine: an SSH server with keys and a configuration of its own, or
//!    a Redis server (database 0 has the metadata, 1 the objects) with its usual durability. It is
//!    reached through a [`DelayProxy`] of the same delay and bandwidth as for TealFS.
//! 2. The unpacked source is put there over a line without delay. Then, far away and with an empty
//!    cache, all of it is read; then, mounted anew, it is unpacked, configured, built and cleaned.
//! 3. Reading and building may take [`CAP`] each; a build that does not end by then is reported
//!    with the phase it was in.
//! 4. As mounted by default: neither of them writes back later (`--writeback` of juicefs would, and
//!    lose what has not been sent).

use super::super::meter::monotonic_seconds;
use super::super::undo::{self, UndoStep};
use super::build::{self, BuildPhase, PHASES, TreeRead};
use super::delay_proxy::DelayProxy;
use crate::bench::lab::install_juicefs;
use crate::bench::programs::run_program;
use anyhow::{Context as _, Result, anyhow, ensure};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Seconds for reading, and for building.
const CAP: f64 = 1200.0;
/// The seconds within which a server that was started listens, and a program that was ended is
/// gone.
const PATIENCE: f64 = 20.0;
const PACKAGES: &[&str] = &["openssh-client", "openssh-server", "redis-server", "sshfs"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PeerKind {
    Juicefs,
    Sshfs,
}

impl PeerKind {
    pub(super) fn named(name: &str) -> Result<Self> {
        let known = [Self::Juicefs, Self::Sshfs]
            .into_iter()
            .find(|kind| kind.label() == name);
        known.with_context(|| format!("--peers: there is no {name:?}; there are juicefs and sshfs"))
    }

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Juicefs => "juicefs",
            Self::Sshfs => "sshfs",
        }
    }
}

/// The measurements of one peer, as far as it came.
#[derive(Debug)]
pub(super) struct PeerSample {
    pub(super) kind: PeerKind,
    /// A round trip, in milliseconds.
    pub(super) delay: u64,
    pub(super) read: TreeRead,
    pub(super) read_seconds: f64,
    /// The seconds of each phase that was begun.
    pub(super) phases: Vec<f64>,
    /// Is true if the last phase did not end.
    pub(super) is_capped: bool,
}

/// The setting in which all peers are measured.
pub(super) struct PeerSetting<'a> {
    pub(super) target: &'a Path,
    pub(super) dir: &'a Path,
    pub(super) archive: &'a Path,
    pub(super) jobs: usize,
    /// A round trip, in milliseconds.
    pub(super) delay: u64,
    pub(super) mbit: f64,
}

/// A server that runs as a child.
struct PeerServer(Child);

impl PeerServer {
    fn start_server(command: &mut Command, log: &Path, port: u16) -> Result<Self> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let mut child = command
            .spawn()
            .with_context(|| format!("{:?}", command.get_program()))?;
        undo::note_undo(UndoStep::Process(child.id()));
        let begun = monotonic_seconds();
        // The server may end at once or listen late: both are noticed.
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(
                child.try_wait()?.is_none(),
                "{:?} ended at once",
                command.get_program()
            );
            ensure!(
                monotonic_seconds() - begun < PATIENCE,
                "{:?} does not listen",
                command.get_program()
            );
            std::thread::yield_now();
        }
        Ok(Self(child))
    }
}

impl Drop for PeerServer {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
        undo::forget_undo(&UndoStep::Process(self.0.id()));
    }
}

/// A mount of one kind, with its server.
struct PeerMount {
    kind: PeerKind,
    program: PathBuf,
    dir: PathBuf,
    point: PathBuf,
    /// The number of times it was mounted, each time with a cache of its own.
    mounts: usize,
    // Fields are dropped in this order: the proxy goes before the server behind it.
    road: DelayProxy,
    _far: PeerServer,
}

impl PeerMount {
    fn begin_peer(kind: PeerKind, with: &PeerSetting<'_>) -> Result<Self> {
        crate::test::needs::install_missing(PACKAGES)
            .map_err(|list| anyhow!("as root: apt-get install {list}"))?;
        let dir = with.dir.join(kind.label());
        let point = dir.join("mount");
        std::fs::create_dir_all(&point)?;
        // The kernel chooses a free port, which is given back at once for the server.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let far = match kind {
            PeerKind::Juicefs => start_redis(&dir, port)?,
            PeerKind::Sshfs => start_sshd(&dir, port)?,
        };
        let road = DelayProxy::to_target(&format!("127.0.0.1:{port}"), 0, with.mbit)?;
        let program = if kind == PeerKind::Juicefs {
            install_juicefs(with.target)?
        } else {
            PathBuf::from("sshfs")
        };
        let this = Self {
            kind,
            program,
            dir,
            point,
            mounts: 0,
            road,
            _far: far,
        };
        if kind == PeerKind::Juicefs {
            let (meta, objects) = (this.redis_url(0), this.redis_url(1));
            run_program(this.program_command().args([
                "format",
                "-q",
                &meta,
                "andrew",
                "--storage",
                "redis",
                "--bucket",
                &objects,
            ]))?;
        }
        Ok(this)
    }

    fn redis_url(&self, database: u32) -> String {
        format!("redis://{}/{database}", self.road.address())
    }

    fn program_command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("HOME", &self.dir);
        command
    }

    fn mount(&mut self, delay: u64) -> Result<()> {
        self.road.set_delay(delay);
        self.mounts += 1;
        undo::note_undo(UndoStep::Servers(self.point.clone()));
        undo::note_undo(UndoStep::Mount(self.point.clone()));
        let mut command = self.program_command();
        match self.kind {
            PeerKind::Juicefs => {
                let cache = self.dir.join(format!("cache-{}", self.mounts));
                command
                    .args(["mount", "-d", "--no-usage-report", "--cache-dir"])
                    .arg(cache);
                command
                    .arg("--log")
                    .arg(self.dir.join("juicefs.log"))
                    .arg(self.redis_url(0))
                    .arg(&self.point);
            }
            PeerKind::Sshfs => {
                let key = format!("IdentityFile={}", self.dir.join("key").display());
                let options = [
                    "StrictHostKeyChecking=no",
                    "UserKnownHostsFile=/dev/null",
                    "BatchMode=yes",
                    &key,
                ];
                let port = self.road.address().port().to_string();
                command
                    .arg(format!("root@127.0.0.1:{}", self.dir.join("far").display()))
                    .arg(&self.point);
                command.args(["-F", "/dev/null", "-p", &port]);
                command.args(options.iter().flat_map(|option| ["-o", option]));
            }
        }
        run_program(&mut command).map(drop)
    }

    /// Unmounts the peer, even if it does not answer.
    fn unmount(&self) -> Result<()> {
        let limit = format!("{PATIENCE}");
        let mut command = Command::new("timeout");
        command.args(["-k", "5", &limit]);
        match self.kind {
            PeerKind::Juicefs => command.arg(&self.program).arg("umount").arg(&self.point),
            PeerKind::Sshfs => command.args(["fusermount3", "-u"]).arg(&self.point),
        };
        if run_program(&mut command).is_err() {
            run_program(Command::new("umount").arg("-l").arg(&self.point))?;
        }
        let begun = monotonic_seconds();
        while !undo::servers_of(&self.point).is_empty() {
            ensure!(
                monotonic_seconds() - begun < PATIENCE,
                "{} is unmounted, and its program goes on",
                self.kind.label()
            );
            std::thread::yield_now();
        }
        Ok(())
    }
}

impl Drop for PeerMount {
    /// Unmounts the peer before its server goes.
    fn drop(&mut self) {
        if !undo::servers_of(&self.point).is_empty() {
            drop(self.unmount());
        }
    }
}

fn start_redis(dir: &Path, port: u16) -> Result<PeerServer> {
    let mut command = Command::new("redis-server");
    command
        .args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--appendonly",
            "yes",
            "--dir",
        ])
        .arg(dir);
    PeerServer::start_server(&mut command, &dir.join("redis.log"), port)
}

fn start_sshd(dir: &Path, port: u16) -> Result<PeerServer> {
    std::fs::create_dir_all(dir.join("far"))?;
    for name in ["host", "key"] {
        run_program(
            Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(dir.join(name)),
        )?;
    }
    std::fs::rename(dir.join("key.pub"), dir.join("authorized"))?;
    // sshd needs this directory, and needs it empty.
    let empty = Path::new("/run/sshd");
    if !empty.exists() {
        undo::note_undo(UndoStep::Tree(empty.to_owned()));
        std::fs::create_dir(empty)?;
    }
    let (config, at) = (dir.join("sshd.conf"), dir.display());
    let lines = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {at}/host\nAuthorizedKeysFile \
            {at}/authorized\nPidFile none\nUsePAM no\n\
         StrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         PermitRootLogin prohibit-password\n\
         Subsystem sftp internal-sftp\n"
    );
    std::fs::write(&config, lines)?;
    PeerServer::start_server(
        Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(&config),
        &dir.join("sshd.log"),
        port,
    )
}

pub(super) fn measure_peer(kind: PeerKind, with: &PeerSetting<'_>) -> Result<PeerSample> {
    let mut peer = PeerMount::begin_peer(kind, with)?;
    let said = with.dir.join("said");
    let (cold, work) = (peer.point.join("cold"), peer.point.join("work"));
    // The source is unpacked over a line without delay: this is not measured.
    peer.mount(0)?;
    std::fs::create_dir(&cold)?;
    ensure!(
        BuildPhase::Untar.run_phase(with.archive, &cold, &said, with.jobs, CAP)?,
        "unpacking without a delay took too long"
    );
    peer.unmount()?;

    peer.mount(with.delay)?;
    let begun = monotonic_seconds();
    let read = build::read_all(&cold, begun + CAP)?;
    let read_seconds = monotonic_seconds() - begun;
    eprintln!("  reading    {read_seconds:7.1} s");
    peer.unmount()?;

    peer.mount(with.delay)?;
    std::fs::create_dir(&work)?;
    let (mut phases, mut is_capped, end) = (Vec::new(), false, monotonic_seconds() + CAP);
    for phase in PHASES {
        let begun = monotonic_seconds();
        is_capped = !phase.run_phase(with.archive, &work, &said, with.jobs, end - begun)?;
        phases.push(monotonic_seconds() - begun);
        eprintln!(
            "  {:<10} {:7.1} s{}",
            phase.label(),
            monotonic_seconds() - begun,
            if is_capped { ", capped" } else { "" }
        );
        if is_capped {
            break;
        }
    }
    peer.unmount()?;
    Ok(PeerSample {
        kind,
        delay: with.delay,
        read,
        read_seconds,
        phases,
        is_capped,
    })
}
