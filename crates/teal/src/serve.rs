//! `teal serve`, `teal join`: a volume gets a server, and other machines a part in it.

use crate::cli::{Join, Serve, Up};
use crate::control::{self, Answer, Ask};
use crate::paths::{self, Point};
use crate::replica::{self, Setting};
use crate::say::say;
use crate::{serving, up};
use anyhow::{Context, Result, bail};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use teal_env::{Clock, SystemClock};

/// Where servers listen unless told otherwise.
pub(crate) const PORT: u16 = 4717;
/// Enrolling takes one request.
const ENROLMENT: Duration = Duration::from_secs(20);

/// Runs `teal serve`.
pub(crate) fn serve(args: &Serve) -> Result<ExitCode> {
    let (dir, store) = paths::place(args.dir.as_deref(), args.store.as_deref())?;
    if let Some(replica) = args.revoke {
        return revoke(&dir, replica);
    }
    let is_mounted = paths::look_at(&dir)? == Point::Mounted;
    match replica::setting(&store)? {
        Some(Setting::Joined { address, .. }) => {
            bail!("{} belongs to the server at {address}; a volume has one server", store.display())
        }
        Some(Setting::Served { listen, .. }) if is_mounted && args.listen.as_ref().is_none_or(|new| *new == listen) => {
            return tell(&dir);
        }
        known => {
            if is_mounted {
                // It comes up again with its server.
                control::ask_down(&dir)?;
            }
            if !store.exists() {
                up::make_store(&store, args.size, &dir)?;
            }
            prepare(args, &store, &dir, known)?;
        }
    }
    let up = Up { dir: Some(dir.clone()), store: Some(store), size: None, foreground: args.foreground };
    let code = up::up(&up)?;
    if !args.foreground {
        tell(&dir)?;
    }
    Ok(code)
}

/// Makes the server's data and the volume in it, and writes down that it is served.
fn prepare(args: &Serve, store: &Path, dir: &Path, known: Option<Setting>) -> Result<()> {
    let device = replica::device_name(args.device.as_deref())?;
    let setting = match known {
        Some(Setting::Served { data, volume, device, listen }) => {
            if args.data.as_ref().is_some_and(|new| paths::absolute(new).is_ok_and(|new| new != data)) {
                bail!(
                    "the server's data is in {}; move it with its volume unmounted, and correct replica.toml",
                    data.display()
                );
            }
            Setting::Served { listen: args.listen.clone().unwrap_or(listen), data, volume, device }
        }
        _ => {
            let data = match &args.data {
                Some(data) => paths::absolute(data)?,
                None => replica::beside(store)?.join("server"),
            };
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(data.join("chunks"))
                .with_context(|| data.display().to_string())?;
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let runtime = replica::runtime()?;
            let server = serving::open(runtime.handle(), &data, &clock)?;
            let label = dir.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            let volume = format!("{:08x}", server.create_volume(&label)?.get());
            let listen = args.listen.clone().unwrap_or_else(|| format!("0.0.0.0:{PORT}"));
            Setting::Served { listen, data, volume, device }
        }
    };
    replica::keep(store, &setting)
}

/// Prints how others join.
fn tell(dir: &Path) -> Result<ExitCode> {
    let Some(Answer::Token { token, address, fingerprint, minutes }) = control::ask(dir, &Ask::Token)? else {
        bail!("the volume on {} is not served; see `teal status`", dir.display());
    };
    let port = address.rsplit_once(':').map_or("", |(_, port)| port);
    let port = if port == PORT.to_string() { String::new() } else { format!(":{port}") };
    say!("{} is served on {address}, fingerprint {fingerprint}", dir.display());
    say!("on another machine, once and within {minutes} minutes:");
    say!("  teal join HOST{port} --token {token}");
    Ok(ExitCode::SUCCESS)
}

fn revoke(dir: &Path, replica: u32) -> Result<ExitCode> {
    match control::ask(dir, &Ask::Revoke { replica })? {
        Some(Answer::Done { .. }) => say!("replica {replica} is shut out; what it has sent stays"),
        _ => bail!("nothing is served on {}", dir.display()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `teal join`.
pub(crate) fn join(args: &Join) -> Result<ExitCode> {
    let (dir, store) = paths::place(args.dir.as_deref(), args.store.as_deref())?;
    if paths::look_at(&dir)? == Point::Mounted {
        bail!("something is mounted on {} already; name another directory", dir.display());
    }
    if store.exists() {
        bail!(
            "{} exists already: `teal up {}` mounts it; to join with a new one, name it with --store",
            store.display(),
            dir.display()
        );
    }
    let (secret, fingerprint) = args.token.trim().rsplit_once('.').with_context(|| {
        "the token is not whole: it is the long word that `teal serve` prints, with a dot in it".to_owned()
    })?;
    let fingerprint = fingerprint.parse().context("the end of the token")?;
    let address = if args
        .host
        .rsplit_once(':')
        .is_some_and(|(host, port)| port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']')))
    {
        args.host.clone()
    } else if args.host.contains(':') && !args.host.starts_with('[') {
        format!("[{}]:{PORT}", args.host)
    } else {
        format!("{}:{PORT}", args.host)
    };
    let device = replica::device_name(args.device.as_deref())?;
    let runtime = replica::runtime()?;
    let identity = teal_net::enrol(runtime.handle(), &address, &fingerprint, secret, &device, ENROLMENT)?;
    drop(runtime);
    replica::keep(&store, &Setting::Joined { address: address.clone(), device })?;
    let kept = replica::identity_dir(&store)?;
    std::fs::DirBuilder::new().mode(0o700).create(&kept).with_context(|| kept.display().to_string())?;
    identity.save(&kept)?;
    up::make_store(&store, args.size, &dir)?;
    let up = Up { dir: Some(dir.clone()), store: Some(store), size: None, foreground: args.foreground };
    let code = up::up(&up)?;
    if !args.foreground {
        say!("{} is a part of the volume at {address}; what is there comes as it is needed", dir.display());
    }
    Ok(code)
}
