//! A real server and the machines that are enrolled there.
//!
//! # How
//! 1. `teal serve` makes the server's data and is taken down again.
//! 2. Volumes and machines are enrolled by the same server in this process, through a listener that
//!    lets more of them in per second.
//! 3. `teal up` then serves the same data with the limits it always has.

use anyhow::{Context as _, Result, ensure};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use teal_chunk::{AccessMode, ChunkStore, ChunkStoreOptions, DirectoryShelf};
use teal_env::{SystemClock, SystemEntropy};
use teal_meta::Sqlite;
use teal_net::{ClientIdentity, PeerService, ServerIdentity, TransportLimits};
use teal_server::{Peer, Server};
use teal_types::VolumeId;
use tokio::runtime::Handle;

const LONG: Duration = Duration::from_secs(60);

/// A server in a process of its own; ended and taken away when dropped.
pub(crate) struct Town {
    program: PathBuf,
    dir: PathBuf,
    pub(crate) address: String,
}

/// Enrols machines; no other requests come here.
struct Registry(Arc<Server>);

impl PeerService for Registry {
    fn call(&self, _: teal_net::CertifiedPeer, _: &[u8]) -> Vec<u8> {
        Vec::new()
    }
    fn enrol(&self, token: &str, device: &str) -> Result<teal_net::CertifiedPeer, String> {
        let Peer { volume, replica } = self.0.enrol(token, device).map_err(|e| e.to_string())?;
        Ok(teal_net::CertifiedPeer { volume, replica })
    }
    fn check_peer(&self, _: teal_net::CertifiedPeer) -> Result<(), String> {
        Ok(())
    }
}

impl Town {
    /// Makes it in `dir`, with `volumes` volumes of `each` machines; the identities are in the
    /// order of the volumes.
    pub(crate) fn found(
        program: &Path,
        dir: &Path,
        runtime: &Handle,
        volumes: usize,
        each: usize,
    ) -> Result<(Self, Vec<ClientIdentity>)> {
        std::fs::create_dir_all(dir)?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let town = Self {
            program: program.to_owned(),
            dir: dir.canonicalize()?,
            address,
        };
        town.teal(&[
            "serve",
            "--size",
            "256M",
            "--device",
            "nas",
            "--listen",
            &town.address,
        ])?;
        town.teal(&["down"])?;
        let identities = town.enrol(runtime, volumes, each)?;
        town.teal(&["up"])?;
        Ok((town, identities))
    }

    fn teal(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        for variable in ["HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"] {
            command.env(variable, &self.dir);
        }
        let out = command
            .args(args)
            .arg(self.dir.join("Teal"))
            .stdin(Stdio::null())
            .output()?;
        ensure!(
            out.status.success(),
            "teal {args:?}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// Returns where the server keeps its data.
    fn data(&self) -> Result<PathBuf> {
        let stores = std::fs::read_dir(self.dir.join("teal"))?
            .flatten()
            .map(|entry| entry.path().join("server"));
        stores
            .into_iter()
            .find(|path| path.is_dir())
            .context("the server's data")
    }

    fn enrol(&self, runtime: &Handle, volumes: usize, each: usize) -> Result<Vec<ClientIdentity>> {
        let data = self.data()?;
        let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
        let meta = Arc::new(Sqlite::open(&data.join("meta.db"))?);
        let domain = teal_server::load_domain(&*meta, &*entropy)?;
        let shelf = DirectoryShelf::open(&data.join("chunks"), AccessMode::Write, runtime.clone())?;
        let (chunks, _) = ChunkStore::open(
            Arc::new(shelf),
            domain,
            ChunkStoreOptions::default(),
            clock.clone(),
            entropy.clone(),
        )?;
        let server = Arc::new(Server::open(meta, chunks, clock.clone(), entropy)?);
        let identity = ServerIdentity::open(&data.join("identity"), &*clock)?;
        let fingerprint = identity.fingerprint();
        let limits = TransportLimits {
            enrolments_per_second: u32::MAX,
            ..TransportLimits::default()
        };
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let door = Arc::new(Registry(Arc::clone(&server)));
        let listening = teal_net::serve(runtime, listener, identity, limits, clock, door)?;
        let address = listening.address().to_string();
        let mut identities = Vec::new();
        for volume in 0..volumes {
            let volume: VolumeId = server.create_volume(&format!("volume {volume}"))?;
            for machine in 0..each {
                let (token, device) = (
                    server.make_token(volume, LONG)?,
                    format!("machine-{machine}"),
                );
                identities.push(teal_net::enrol(
                    runtime,
                    &address,
                    &fingerprint,
                    &token,
                    &device,
                    LONG,
                )?);
            }
        }
        listening.stop(LONG);
        Ok(identities)
    }

    /// The process that serves.
    pub(crate) fn pid(&self) -> Result<u32> {
        let said: serde_json::Value = serde_json::from_str(&self.teal(&["status", "--json"])?)?;
        Ok(u32::try_from(
            said[0]["pid"].as_u64().context("status without pid")?,
        )?)
    }
}

impl Drop for Town {
    fn drop(&mut self) {
        if let Err(error) = self.teal(&["down"]) {
            eprintln!("{error:#}");
        }
        drop(std::fs::remove_dir_all(&self.dir));
    }
}
