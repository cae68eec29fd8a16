//! `teal serve`, `teal join`: a volume gets a server, and other machines a part in it.

mod revocation;

use self::revocation::{readmit, shut_out};
use crate::cli::{JoinArgs, MountArgs, ServeArgs};
use crate::control::{self, ControlAnswer, ControlRequest, MountStatus};
use crate::mounts::no_daemon_error;
use crate::replica::{self, ReplicaSetting};
use crate::rollback::Rollback;
use crate::{launch, private, serving, up};
use anyhow::{Context, Result, bail};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use teal_command::path_context::PathContext as _;
use teal_command::paths::{self, MountPointState};
use teal_command::say::{say, shell_quoted};
use teal_env::{Clock, SystemClock};
use teal_types::ReplicaNo;

/// The port of a server unless another one is named.
pub(crate) const PORT: u16 = 4717;
/// Enrolling takes one request.
const ENROLMENT: Duration = Duration::from_secs(20);

/// Runs `teal serve`.
pub(crate) fn serve_volume(args: &ServeArgs) -> Result<ExitCode> {
    let dir = paths::mount_point_for(args.dir.clone())?;
    if let Some(replica) = args.revoke {
        return shut_out(&dir, ReplicaNo::new(replica), args.yes);
    }
    if let Some(replica) = args.readmit {
        return readmit(&dir, ReplicaNo::new(replica));
    }
    let mounted = mounted_on(&dir)?;
    let store = wanted_store(mounted.as_ref(), &dir, args)?;
    let known = load_own_setting(&store)?;
    let own = mounted.as_ref().and_then(own_address);
    // A volume that is served on the wanted address needs no new start, only a new token.
    if own.is_some() && is_served_as_asked(known.as_ref(), args) {
        return print_invitation(&dir);
    }
    if mounted.is_none() {
        launch::check_mount_point(&dir, &store)?;
    }
    let mut made = Rollback::default();
    let fresh = if store.exists() {
        None
    } else {
        Some(up::make_store(&store, args.size, &dir, &mut made)?)
    };
    let places = (&*store, &*dir);
    let setting = prepare_server(args, places, known.as_ref(), own.as_deref(), &mut made)?;
    let code = match mounted {
        Some(status) => remount_with_server(args, &status, (known, &setting), made)?,
        None => {
            // The setting is written before the mount, because the daemon reads it.
            made.setting_changes(&store, known);
            replica::save_setting(&store, &setting)?;
            up::bring_up(mount_of(&store, &dir, args.foreground), made)?
        }
    };
    // In the foreground the mount has ended by now, so there is nothing to tell.
    if !args.foreground {
        if let Some(size) = fresh {
            up::say_made(&store, size);
        }
        print_invitation(&dir)?;
    }
    Ok(code)
}

/// Returns the store that is to be served: the one that is mounted, or the one that the arguments
/// name.
fn wanted_store(mounted: Option<&MountStatus>, dir: &Path, args: &ServeArgs) -> Result<PathBuf> {
    let store = match mounted {
        // The store of a mount is known; the arguments may only name the same.
        Some(status) => store_of(status, args)?,
        None => paths::mount_and_store(Some(dir), args.store.as_deref())?.1,
    };
    if args.size.is_some() && store.exists() {
        bail!(
            "{} exists already: --size is for a new store",
            store.display()
        );
    }
    Ok(store)
}

/// Returns where the server in the process of a mount listens, if there is one.
fn own_address(status: &MountStatus) -> Option<String> {
    status.upstream.as_ref()?.served.clone()
}

/// Returns the setting of a volume that can have a server here, if it has one already.
fn load_own_setting(store: &Path) -> Result<Option<ReplicaSetting>> {
    let known = replica::load_setting(store)?;
    if let Some(ReplicaSetting::Joined { address, .. }) = &known {
        bail!(
            "{} belongs to the server at {address}; a volume has one server",
            store.display()
        );
    }
    Ok(known)
}

/// Returns whether the server of a volume listens where these arguments want it.
fn is_served_as_asked(known: Option<&ReplicaSetting>, args: &ServeArgs) -> bool {
    match known {
        Some(ReplicaSetting::Served { listen, .. }) => {
            args.listen.as_ref().is_none_or(|new| new == listen)
        }
        _ => false,
    }
}

/// Returns a mount without options.
fn mount_of(store: &Path, dir: &Path, foreground: bool) -> MountArgs {
    let (path, dir) = (store.to_owned(), dir.to_owned());
    MountArgs {
        path,
        dir,
        options: Vec::new(),
        foreground,
        tell: false,
        take_over: false,
    }
}

/// Returns what the daemon of a mount says of itself; `None` when nothing is mounted there.
fn mounted_on(dir: &Path) -> Result<Option<MountStatus>> {
    // Nothing is asked where nothing is mounted.
    if paths::inspect_mount_point(dir)? != MountPointState::Mounted {
        return Ok(None);
    }
    match control::ask(dir, &ControlRequest::Status)? {
        Some(ControlAnswer::Status(status)) => Ok(Some(*status)),
        _ => Err(no_daemon_error(dir).context(format!("cannot serve {}", dir.display()))),
    }
}

/// Returns the store that is mounted and writable, which is the only one that can be served there.
fn store_of(status: &MountStatus, args: &ServeArgs) -> Result<PathBuf> {
    let identity = |path: &Path| {
        std::fs::metadata(path)
            .map(|meta| (meta.dev(), meta.ino()))
            .ok()
    };
    if let Some(named) = &args.store {
        let named = paths::absolute_path(named)?;
        // Two paths may name one file, so the files are compared.
        let is_same = named == status.store
            || identity(&named).is_some_and(|id| Some(id) == identity(&status.store));
        if !is_same {
            bail!(
                "{} is mounted with the store {}, not with {}; leave --store out to serve what is \
                 mounted, or unmount it \
                 first: teal down {}",
                status.mount_point.display(),
                status.store.display(),
                named.display(),
                shell_quoted(&status.mount_point.to_string_lossy())
            );
        }
    }
    if status.read_only {
        bail!(
            "{} is mounted read-only, and a served volume is written to; unmount it and mount it \
             without `ro`",
            status.mount_point.display()
        );
    }
    Ok(status.store.clone())
}

/// Mounts a volume again with its server. When that fails, it is mounted again as it was.
fn remount_with_server(
    args: &ServeArgs,
    status: &MountStatus,
    (before, setting): (Option<ReplicaSetting>, &ReplicaSetting),
    mut made: Rollback,
) -> Result<ExitCode> {
    let (store, dir) = (&status.store, &status.mount_point);
    let as_it_was = |foreground| MountArgs {
        path: store.clone(),
        dir: dir.clone(),
        options: status.options.clone(),
        foreground,
        tell: false,
        take_over: false,
    };
    // Files that are open there refuse this; nothing has changed then.
    control::ask_down(dir)?;
    let unmounted = as_it_was(false);
    // This is undone last: the store is mounted as it was after its old setting is back.
    made.undo_last(move || launch::mount(unmounted, Rollback::default()).map(drop));
    made.setting_changes(store, before);
    replica::save_setting(store, setting)?;
    let done = launch::mount(as_it_was(args.foreground), made);
    // The error tells the state of the mount, because that decides what to do next.
    done.map_err(|error| match mounted_on(dir) {
        Ok(Some(_)) => error.context(format!(
            "{} is not served, and mounted as it was",
            dir.display()
        )),
        _ => error.context(format!(
            "{} is neither served nor mounted: `teal mount {} {}` mounts it as it was",
            dir.display(),
            store.display(),
            dir.display()
        )),
    })
}

/// Refuses an address on which this machine cannot listen. The address of this volume's own server
/// counts as free, because that server ends first.
fn check_address(listen: &str, own: Option<&str>) -> Result<()> {
    // Only the ports are compared, because a server on all addresses occupies its port on each of
    // them.
    let port = |address: &str| address.rsplit_once(':').map(|(_, port)| port.to_owned());
    if own.is_some_and(|own| port(own) == port(listen)) {
        return Ok(());
    }
    serving::bind(listen).map(drop)
}

/// Makes the server's data and the volume in it, if the volume is not served yet. Returns the
/// setting that is to be saved beside the store.
fn prepare_server(
    args: &ServeArgs,
    (store, dir): (&Path, &Path),
    known: Option<&ReplicaSetting>,
    own: Option<&str>,
    made: &mut Rollback,
) -> Result<ReplicaSetting> {
    // The volume was served before, so only its address can change.
    if let Some(ReplicaSetting::Served {
        data,
        volume,
        device,
        listen,
    }) = known
    {
        check_data_stays(args, data)?;
        let listen = args.listen.as_ref().unwrap_or(listen).clone();
        check_address(&listen, own)?;
        return Ok(ReplicaSetting::Served {
            listen,
            data: data.clone(),
            volume: volume.clone(),
            device: device.clone(),
        });
    }
    let device = replica::device_name(args.device.as_deref())?;
    let listen = args
        .listen
        .clone()
        .unwrap_or_else(|| format!("0.0.0.0:{PORT}"));
    check_address(&listen, own)?;
    let data = match &args.data {
        Some(data) => paths::absolute_path(data)?,
        None => {
            made.make_private_tree(&replica::directory_beside(store)?)?;
            replica::directory_beside(store)?.join("server")
        }
    };
    debug_assert!(data.is_absolute(), "the setting outlives this directory");
    if data.exists() {
        // Refused before anything is changed.
        private::enforce_server_data(&data)?;
    }
    made.make_private_tree(&data)?;
    // The mount point's name becomes the volume's label.
    let label = dir
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let volume = create_served_volume(&data, &label)?;
    Ok(ReplicaSetting::Served {
        listen,
        data,
        volume,
        device,
    })
}

/// Refuses another place for the data of a server that exists.
fn check_data_stays(args: &ServeArgs, data: &Path) -> Result<()> {
    let Some(named) = &args.data else {
        return Ok(());
    };
    if paths::absolute_path(named).is_ok_and(|named| named != *data) {
        bail!(
            "the server's data is in {}; move it with its volume unmounted, and correct \
             replica.toml",
            data.display()
        );
    }
    Ok(())
}

/// Makes the two stores of a server in `data`, and a volume in them. Returns the number of the
/// volume in hexadecimal digits.
fn create_served_volume(data: &Path, label: &str) -> Result<String> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data.join("chunks"))
        .with_path(data)?;
    // The files of the new database are private from the start.
    let _private = private::PrivateFiles::begin();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let runtime = replica::build_runtime()?;
    let server = serving::open_server(runtime.handle(), data, &clock)?;
    Ok(format!("{:08x}", server.create_volume(label)?.get()))
}

/// Prints how others join.
fn print_invitation(dir: &Path) -> Result<ExitCode> {
    let Some(ControlAnswer::Token {
        token,
        address,
        fingerprint,
        minutes,
    }) = control::ask(dir, &ControlRequest::Token)?
    else {
        bail!(
            "the volume on {} is not served; see `teal status`",
            dir.display()
        );
    };
    let port = address.rsplit_once(':').map_or("", |(_, port)| port);
    // The usual port need not be typed.
    let port = if port == PORT.to_string() {
        String::new()
    } else {
        format!(":{port}")
    };
    say!(
        "{} is served on {address}, fingerprint {fingerprint}",
        dir.display()
    );
    say!("run this on another machine, once and within {minutes} minutes:");
    say!("  teal join HOST{port} --token {token}");
    Ok(ExitCode::SUCCESS)
}

/// Returns the address of a server from what a person has typed: a host, with or without a port.
fn server_address(host: &str) -> String {
    // A bare IPv6 address has colons and no port; with a port it stands in brackets.
    let has_port = host.rsplit_once(':').is_some_and(|(name, port)| {
        port.parse::<u16>().is_ok() && (!name.contains(':') || name.ends_with(']'))
    });
    if has_port {
        host.to_owned()
    } else if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{PORT}")
    } else {
        format!("{host}:{PORT}")
    }
}

/// Runs `teal join`.
pub(crate) fn join_volume(args: &JoinArgs) -> Result<ExitCode> {
    let (dir, store) = paths::mount_and_store(args.dir.as_deref(), args.store.as_deref())?;
    launch::check_mount_point(&dir, &store)?;
    // A store that exists belongs to another volume.
    if store.exists() {
        bail!(
            "{} exists already: `teal up {}` mounts it; to join with a new one, name it with \
             --store",
            store.display(),
            dir.display()
        );
    }
    let (secret, fingerprint) = args.token.trim().rsplit_once('.').with_context(|| {
        "the token is not whole: it is the long word that `teal serve` prints, with a dot in it"
            .to_owned()
    })?;
    let fingerprint = fingerprint
        .parse()
        .context("the end of the token is wrong")?;
    let address = server_address(&args.host);
    let device = replica::device_name(args.device.as_deref())?;
    // All that is made from here on is taken back unless the server takes this machine in.
    let mut made = Rollback::default();
    let size = up::make_store(&store, args.size, &dir, &mut made)?;
    let runtime = replica::build_runtime()?;
    let identity = teal_net::enrol(
        runtime.handle(),
        &address,
        &fingerprint,
        secret,
        &device,
        ENROLMENT,
    )?;
    // Its threads are not needed any more: the daemon is another process.
    drop(runtime);
    replica::save_setting(
        &store,
        &ReplicaSetting::Joined {
            address: address.clone(),
            device,
        },
    )?;
    let kept = replica::identity_dir(&store)?;
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&kept)
        .with_path(&kept)?;
    identity.save(&kept)?;
    // The token is used up: from here on this machine is known to the server, and `teal up` tries
    // again.
    made.keep_changes();
    up::say_made(&store, size);
    // A failure from here on leaves the joined store in place.
    let code = up::bring_up(mount_of(&store, &dir, args.foreground), Rollback::default())?;
    if !args.foreground {
        say!(
            "{} is a part of the volume at {address}; what is there comes as it is needed",
            dir.display()
        );
    }
    Ok(code)
}
