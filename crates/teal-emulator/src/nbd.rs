//! An emulated disk over the network block device protocol, for guests whose own virtual disks drop
//! flushes.
//!
//! # Guarantees
//! 1. *As it came*: a flush is a flush, and a write with FUA one request; nothing is split or
//!    merged.
//! 2. *No panic on input*, and no more memory than the largest request of 32 MiB.
//! 3. Requests of one connection are answered one after the other, each when the drive is done.
//!
//! How: the fixed newstyle handshake with `EXPORT_NAME`, `INFO` and `GO`, then simple replies.
//! There is one export, whatever name is asked for. Numbers on the wire are big-endian.

#[cfg(test)]
mod tests;

use crate::disk::EmulatedDisk;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use teal_energy::mechanics::SectorRequest;
use teal_env::Disk;
use teal_types::{SECTOR, Sector};

/// The most bytes in one request.
const REQUEST_MAX: u32 = 32 << 20;
/// The most bytes with an option.
const OPTION_MAX: u32 = 4096;

const GREETING: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;

const HAS_FLAGS: u16 = 1;
const SEND_FLUSH: u16 = 1 << 2;
const SEND_FUA: u16 = 1 << 3;
const ROTATIONAL: u16 = 1 << 4;
const FUA: u16 = 1;

const EIO: u32 = 5;
const EINVAL: u32 = 22;

/// Serves one client until it disconnects.
///
/// # Errors
/// What the connection says; [`ErrorKind::InvalidData`] for what is not the protocol.
pub fn serve_client(
    disk: &EmulatedDisk<impl Disk>,
    client: &mut (impl Read + Write),
) -> io::Result<()> {
    if !shake_hands(disk, client)? {
        return Ok(());
    }
    let mut data = Vec::new();
    loop {
        let magic = match read_array(client) {
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            magic => u32::from_be_bytes(magic?),
        };
        let (flags, kind) = (
            u16::from_be_bytes(read_array(client)?),
            u16::from_be_bytes(read_array(client)?),
        );
        let cookie: [u8; 8] = read_array(client)?;
        let (offset, length) = (
            u64::from_be_bytes(read_array(client)?),
            u32::from_be_bytes(read_array(client)?),
        );
        if magic != REQUEST || length > REQUEST_MAX {
            return Err(protocol_error("no request of the protocol"));
        }
        data.clear();
        let done = match kind {
            0 => read_disk(disk, offset, length, &mut data),
            1 => {
                data.resize(length as usize, 0);
                client.read_exact(&mut data)?;
                write_disk(disk, offset, &data, flags & FUA != 0)
            }
            2 => return Ok(()),
            3 => disk.sync(),
            _ => Err(ErrorKind::InvalidInput.into()),
        };
        let error = match &done {
            Ok(()) => 0,
            Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::UnexpectedEof) => {
                EINVAL
            }
            Err(_) => EIO,
        };
        let mut answer = [&REPLY.to_be_bytes()[..], &error.to_be_bytes(), &cookie].concat();
        if kind == 0 && error == 0 {
            answer.append(&mut data);
        }
        client.write_all(&answer)?;
    }
}

fn sector_at(offset: u64) -> io::Result<Sector> {
    if offset.is_multiple_of(SECTOR) {
        Ok(Sector::new(offset / SECTOR))
    } else {
        Err(ErrorKind::InvalidInput.into())
    }
}

fn read_disk(
    disk: &EmulatedDisk<impl Disk>,
    offset: u64,
    length: u32,
    into: &mut Vec<u8>,
) -> io::Result<()> {
    let at = sector_at(offset)?;
    into.resize(length as usize, 0);
    disk.read_at(at, into)
}

fn write_disk(
    disk: &EmulatedDisk<impl Disk>,
    offset: u64,
    data: &[u8],
    fua: bool,
) -> io::Result<()> {
    let at = sector_at(offset)?;
    if !fua {
        return disk.write_at(at, &[IoSlice::new(data)]);
    }
    let count = disk.check_range(at, data.len())?;
    let ticket = disk.submit(SectorRequest::Write { at, count, fua });
    let done = disk
        .inner()
        .write_at(at, &[IoSlice::new(data)])
        .and_then(|()| disk.inner().sync());
    disk.wait_for(ticket);
    done
}

/// The handshake. `false` if the client wants nothing more.
fn shake_hands(
    disk: &EmulatedDisk<impl Disk>,
    client: &mut (impl Read + Write),
) -> io::Result<bool> {
    let flags = FIXED_NEWSTYLE | NO_ZEROES;
    client.write_all(
        &[
            &GREETING.to_be_bytes()[..],
            &OPTION.to_be_bytes(),
            &flags.to_be_bytes(),
        ]
        .concat(),
    )?;
    let theirs = u32::from_be_bytes(read_array(client)?);
    let size = (disk.shape().sectors * SECTOR).to_be_bytes();
    // To a drive without a cache a flush is nothing, and it does not ask for any.
    let cached = if disk.has_cache() {
        SEND_FLUSH | SEND_FUA
    } else {
        0
    };
    let export = [&size[..], &(HAS_FLAGS | ROTATIONAL | cached).to_be_bytes()].concat();
    loop {
        let (magic, option, length) = (
            read_array(client)?,
            read_array(client)?,
            u32::from_be_bytes(read_array(client)?),
        );
        if u64::from_be_bytes(magic) != OPTION || length > OPTION_MAX {
            return Err(protocol_error("no option of the protocol"));
        }
        let mut data = vec![0; length as usize];
        client.read_exact(&mut data)?;
        let mut reply = |kind: u32, data: &[u8]| {
            let (kind, length) = (kind.to_be_bytes(), (data.len() as u32).to_be_bytes());
            client.write_all(
                &[
                    &OPTION_REPLY.to_be_bytes()[..],
                    &option,
                    &kind,
                    &length,
                    data,
                ]
                .concat(),
            )
        };
        match u32::from_be_bytes(option) {
            1 => {
                let zeroes = if theirs & u32::from(NO_ZEROES) != 0 {
                    0
                } else {
                    124
                };
                client.write_all(&[&export[..], &vec![0; zeroes]].concat())?;
                return Ok(true);
            }
            2 => {
                reply(1, &[])?;
                return Ok(false);
            }
            3 => {
                reply(2, &[0; 4])?;
                reply(1, &[])?;
            }
            go @ (6 | 7) => {
                reply(3, &[&[0; 2], &export[..]].concat())?;
                let sizes = [512, 4096, REQUEST_MAX].map(u32::to_be_bytes).concat();
                reply(3, &[&3_u16.to_be_bytes(), &sizes[..]].concat())?;
                reply(1, &[])?;
                if go == 7 {
                    return Ok(true);
                }
            }
            _ => reply(0x8000_0001, &[])?,
        }
    }
}

fn read_array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn protocol_error(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}
