//! Mounting as a user, through the set-user-id program `fusermount3`.
//!
//! # How
//! 1. The program opens the device and mounts, then hands the descriptor over a socket
//!    (`_FUSE_COMMFD`). The socket is its standard input, so that no descriptor must be inherited
//!    by number.
//! 2. The program reports failures in words only; those are searched for the cases that callers
//!    tell apart.

use super::error::{MountError, UnmountError};
use super::options::{FuseMountOptions, SUBTYPE, UnmountMode};
use crate::transport::DevFuse;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = "fusermount3";

pub(super) fn mount_as_user(
    point: &Path,
    options: &FuseMountOptions,
) -> Result<DevFuse, MountError> {
    // Asked first, since the program's message for this differs between versions.
    if !std::fs::metadata(crate::transport::DEV_FUSE)
        .is_ok_and(|device| device.file_type().is_char_device())
    {
        return Err(MountError::NoDevice);
    }
    // The program refuses it too, in words that are searched less surely.
    if options.block_device {
        let message = "fuseblk needs root".to_owned();
        return Err(MountError::Denied {
            point: point.to_owned(),
            message,
        });
    }
    let system = |source| MountError::System {
        point: point.to_owned(),
        source,
    };
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|errno| system(errno.into()))?;
    let output = match run_program(point, options, theirs) {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(MountError::NoFusermount);
        }
        Err(error) => return Err(system(error)),
    };
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if !output.status.success() {
        return Err(refusal_error(point, message));
    }
    match receive_descriptor(&ours).map_err(system)? {
        Some(fd) => Ok(DevFuse::from_fd(fd)),
        None => Err(MountError::Fusermount {
            message: format!("no descriptor was handed over: {message}"),
        }),
    }
}

/// Lets the program mount, and hand the descriptor over `socket`.
fn run_program(point: &Path, options: &FuseMountOptions, socket: OwnedFd) -> io::Result<Output> {
    // The command keeps its end of the socket open, so it must be dropped before the answer is
    // awaited; the output holds none.
    Command::new(PROGRAM)
        .arg("-o")
        .arg(option_argument(options))
        .arg("--")
        .arg(point)
        // Messages are searched for words, so they must not be translated.
        .env("_FUSE_COMMFD", "0")
        .env("LC_ALL", "C")
        .stdin(Stdio::from(socket))
        .output()
}

pub(super) fn unmount_as_user(point: &Path, how: UnmountMode) -> Result<(), UnmountError> {
    // Lazily: out of the tree now, and gone when its last file is closed.
    let lazy: &[&str] = if how == UnmountMode::Detach {
        &["-z"]
    } else {
        &[]
    };
    let system = |source| UnmountError::System {
        point: point.to_owned(),
        source,
    };
    let output = Command::new(PROGRAM)
        .arg("-u")
        .args(lazy)
        .arg("--")
        .arg(point)
        .env("LC_ALL", "C")
        .output()
        .map_err(system)?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    // The program has one exit code for all failures; only its words tell.
    if message.contains("busy") {
        return Err(UnmountError::Busy {
            point: point.to_owned(),
        });
    }
    Err(system(io::Error::other(message)))
}

/// Returns the argument of `-o`. In the source, commas and backslashes are escaped, so that it
/// cannot smuggle in options.
fn option_argument(options: &FuseMountOptions) -> String {
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut words = vec![format!("fsname={source}"), format!("subtype={SUBTYPE}")];
    for name in options.flags.option_names() {
        words.push(name.to_owned());
    }
    words.extend(options.fuse_options());
    words.join(",")
}

/// Sorts out the message of a failed mount.
fn refusal_error(point: &Path, message: String) -> MountError {
    let point = point.to_owned();
    let says = |word| message.to_ascii_lowercase().contains(word);
    if says("permitted") || says("permission") || says("allow_other") || says("no write access") {
        MountError::Denied { point, message }
    } else if says("busy") {
        MountError::Busy { point }
    } else if says("device not found") {
        MountError::NoDevice
    } else {
        MountError::Fusermount { message }
    }
}

/// Receives the descriptor of the mount; `None` if the program ended without sending one.
fn receive_descriptor(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    // A descriptor travels with at least one byte.
    let mut byte = [0];
    rustix::io::retry_on_intr(|| {
        recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use super::super::options::GeneralMountFlags;
    use super::*;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::io::IoSlice;
    use std::os::fd::AsFd;

    #[test]
    fn a_source_cannot_smuggle_in_options() {
        let options = FuseMountOptions {
            source: r"a,allow_other\".into(),
            flags: GeneralMountFlags::READ_ONLY,
            ..Default::default()
        };
        assert_eq!(
            option_argument(&options),
            r"fsname=a\,allow_other\\,subtype=teal,ro"
        );
    }

    #[test]
    fn what_fusermount_says_is_told_apart() {
        let told = |message: &str| refusal_error(Path::new("/m"), message.to_owned());
        assert!(matches!(
            told("fusermount3: mount failed: Operation not permitted"),
            MountError::Denied { .. }
        ));
        assert!(matches!(
            told("option allow_other only allowed if 'user_allow_other' is set"),
            MountError::Denied { .. }
        ));
        assert!(matches!(
            told("fusermount3: fuse device not found, try 'modprobe fuse' first"),
            MountError::NoDevice
        ));
        assert!(matches!(
            told("Device or resource busy"),
            MountError::Busy { .. }
        ));
        assert!(matches!(told("anything"), MountError::Fusermount { .. }));
    }

    #[test]
    fn a_descriptor_comes_over_the_socket() {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let sent: [std::os::fd::BorrowedFd<'_>; 1] = [theirs.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&sent)));
        sendmsg(
            &theirs,
            &[IoSlice::new(&[0])],
            &mut control,
            SendFlags::empty(),
        )
        .unwrap();
        assert!(receive_descriptor(&ours).unwrap().is_some());
        drop(theirs);
        assert!(
            receive_descriptor(&ours).unwrap().is_none(),
            "an end of file holds no descriptor"
        );
    }
}
