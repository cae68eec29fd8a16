//! Others over the same line, once: sshfs, and juicefs whose metadata and objects are in a Redis.
//!
//! # How
//! 1. What is far is on this machine: an SSH server with keys and a configuration of its own, or a
//!    Redis server (database 0 has the metadata, 1 the objects) with its usual durability.
//!    Everything reaches it through a [`Road`] of the same delay and bandwidth as TealFS.
//! 2. The unpacked source is put there over a line without delay. Then, far away and with an empty
//!    cache, all of it is read; then, mounted anew, it is unpacked, configured, built and cleaned.
//! 3. Reading and building may take [`CAP`] each; what does not end by then is said with the phase
//!    it was in.
//! 4. As mounted by default: neither of them writes back later (`--writeback` of juicefs would, and
//!    lose what has not been sent).

use super::super::meter::now;
use super::super::undo::{self, Undo};
use super::build::{self, PHASES, Phase, Read};
use super::road::Road;
use crate::bench::lab::{juicefs, run};
use anyhow::{Context as _, Result, anyhow, ensure};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Seconds for reading, and for building.
const CAP: f64 = 1200.0;
/// Seconds until a server that was started listens, or a program that was ended is gone.
const PATIENCE: f64 = 20.0;
const PACKAGES: &[&str] = &["openssh-client", "openssh-server", "redis-server", "sshfs"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Juicefs,
    Sshfs,
}

impl Kind {
    pub(super) fn named(name: &str) -> Result<Self> {
        let known = [Self::Juicefs, Self::Sshfs]
            .into_iter()
            .find(|kind| kind.name() == name);
        known.with_context(|| format!("--peers: there is no {name:?}; there are juicefs and sshfs"))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Juicefs => "juicefs",
            Self::Sshfs => "sshfs",
        }
    }
}

/// How far it came.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) kind: Kind,
    /// A round trip, in milliseconds.
    pub(super) delay: u64,
    pub(super) read: Read,
    pub(super) read_seconds: f64,
    /// Seconds of each phase that was begun.
    pub(super) phases: Vec<f64>,
    /// The last phase did not end.
    pub(super) is_capped: bool,
}

/// What all of them are measured with.
pub(super) struct Setting<'a> {
    pub(super) target: &'a Path,
    pub(super) dir: &'a Path,
    pub(super) archive: &'a Path,
    pub(super) jobs: usize,
    /// A round trip, in milliseconds.
    pub(super) delay: u64,
    pub(super) mbit: f64,
}

/// A server that runs as a child.
struct Far(Child);

impl Far {
    fn start(command: &mut Command, log: &Path, port: u16) -> Result<Self> {
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
        undo::note(Undo::Process(child.id()));
        let begun = now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(
                child.try_wait()?.is_none(),
                "{:?} ended at once",
                command.get_program()
            );
            ensure!(
                now() - begun < PATIENCE,
                "{:?} does not listen",
                command.get_program()
            );
            std::thread::yield_now();
        }
        Ok(Self(child))
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
        undo::forget(&Undo::Process(self.0.id()));
    }
}

/// A mount of one kind, and what is at its other end.
struct Peer {
    kind: Kind,
    program: PathBuf,
    dir: PathBuf,
    point: PathBuf,
    /// How often it was mounted: each time with a cache of its own.
    mounts: usize,
    // Before what it leads to.
    road: Road,
    _far: Far,
}

impl Peer {
    fn begin(kind: Kind, with: &Setting<'_>) -> Result<Self> {
        crate::test::needs::install(PACKAGES)
            .map_err(|list| anyhow!("as root: apt-get install {list}"))?;
        let dir = with.dir.join(kind.name());
        let point = dir.join("mount");
        std::fs::create_dir_all(&point)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let far = match kind {
            Kind::Juicefs => redis(&dir, port)?,
            Kind::Sshfs => sshd(&dir, port)?,
        };
        let road = Road::to(&format!("127.0.0.1:{port}"), 0, with.mbit)?;
        let program = if kind == Kind::Juicefs {
            juicefs(with.target)?
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
        if kind == Kind::Juicefs {
            let (meta, objects) = (this.redis(0), this.redis(1));
            run(this.command().args([
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

    fn redis(&self, database: u32) -> String {
        format!("redis://{}/{database}", self.road.address())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("HOME", &self.dir);
        command
    }

    fn mount(&mut self, delay: u64) -> Result<()> {
        self.road.set_delay(delay);
        self.mounts += 1;
        undo::note(Undo::Servers(self.point.clone()));
        undo::note(Undo::Mount(self.point.clone()));
        let mut command = self.command();
        match self.kind {
            Kind::Juicefs => {
                let cache = self.dir.join(format!("cache-{}", self.mounts));
                command
                    .args(["mount", "-d", "--no-usage-report", "--cache-dir"])
                    .arg(cache);
                command
                    .arg("--log")
                    .arg(self.dir.join("juicefs.log"))
                    .arg(self.redis(0))
                    .arg(&self.point);
            }
            Kind::Sshfs => {
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
        run(&mut command).map(drop)
    }

    /// Also of one that does not answer.
    fn unmount(&self) -> Result<()> {
        let limit = format!("{PATIENCE}");
        let mut command = Command::new("timeout");
        command.args(["-k", "5", &limit]);
        match self.kind {
            Kind::Juicefs => command.arg(&self.program).arg("umount").arg(&self.point),
            Kind::Sshfs => command.args(["fusermount3", "-u"]).arg(&self.point),
        };
        if run(&mut command).is_err() {
            run(Command::new("umount").arg("-l").arg(&self.point))?;
        }
        let begun = now();
        while !undo::servers(&self.point).is_empty() {
            ensure!(
                now() - begun < PATIENCE,
                "{} is unmounted, and its program goes on",
                self.kind.name()
            );
            std::thread::yield_now();
        }
        Ok(())
    }
}

impl Drop for Peer {
    /// Before what is at its other end goes.
    fn drop(&mut self) {
        if !undo::servers(&self.point).is_empty() {
            drop(self.unmount());
        }
    }
}

fn redis(dir: &Path, port: u16) -> Result<Far> {
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
    Far::start(&mut command, &dir.join("redis.log"), port)
}

fn sshd(dir: &Path, port: u16) -> Result<Far> {
    std::fs::create_dir_all(dir.join("far"))?;
    for name in ["host", "key"] {
        run(Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(dir.join(name)))?;
    }
    std::fs::rename(dir.join("key.pub"), dir.join("authorized"))?;
    // It wants an empty directory there.
    let empty = Path::new("/run/sshd");
    if !empty.exists() {
        undo::note(Undo::Tree(empty.to_owned()));
        std::fs::create_dir(empty)?;
    }
    let (config, at) = (dir.join("sshd.conf"), dir.display());
    let lines = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {at}/host\nAuthorizedKeysFile {at}/authorized\nPidFile none\nUsePAM no\n\
         StrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n\
         Subsystem sftp internal-sftp\n"
    );
    std::fs::write(&config, lines)?;
    Far::start(
        Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(&config),
        &dir.join("sshd.log"),
        port,
    )
}

pub(super) fn measure(kind: Kind, with: &Setting<'_>) -> Result<Sample> {
    let mut peer = Peer::begin(kind, with)?;
    let said = with.dir.join("said");
    let (cold, work) = (peer.point.join("cold"), peer.point.join("work"));
    peer.mount(0)?;
    std::fs::create_dir(&cold)?;
    ensure!(
        Phase::Untar.run(with.archive, &cold, &said, with.jobs, CAP)?,
        "unpacking without a delay took too long"
    );
    peer.unmount()?;

    peer.mount(with.delay)?;
    let begun = now();
    let read = build::read_all(&cold, begun + CAP)?;
    let read_seconds = now() - begun;
    eprintln!("  reading    {read_seconds:7.1} s");
    peer.unmount()?;

    peer.mount(with.delay)?;
    std::fs::create_dir(&work)?;
    let (mut phases, mut is_capped, end) = (Vec::new(), false, now() + CAP);
    for phase in PHASES {
        let begun = now();
        is_capped = !phase.run(with.archive, &work, &said, with.jobs, end - begun)?;
        phases.push(now() - begun);
        eprintln!(
            "  {:<10} {:7.1} s{}",
            phase.name(),
            now() - begun,
            if is_capped { ", capped" } else { "" }
        );
        if is_capped {
            break;
        }
    }
    peer.unmount()?;
    Ok(Sample {
        kind,
        delay: with.delay,
        read,
        read_seconds,
        phases,
        is_capped,
    })
}
