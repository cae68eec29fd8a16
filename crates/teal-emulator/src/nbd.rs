//! An emulated disk over the network block device protocol, for guests with virtual disks that drop
//! flushes.
//!
//! # Guarantees
//! 1. *As it came*: a flush is a flush, and a write with FUA one request; nothing is split or
//!    merged.
//! 2. *No panic on input*, and no more memory than the largest request of 32 MiB.
//! 3. Requests of one connection are answered one after the other, each when the drive is done.
//!
//! # How
//! The fixed newstyle handshake with `EXPORT_NAME`, `INFO` and `GO`, then simple replies. There is
//! one export, whatever name is asked for. Numbers on the wire are big-endian.

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

const COMMAND_READ: u16 = 0;
const COMMAND_WRITE: u16 = 1;
const COMMAND_DISCONNECT: u16 = 2;
const COMMAND_FLUSH: u16 = 3;

const OPTION_EXPORT_NAME: u32 = 1;
const OPTION_ABORT: u32 = 2;
const OPTION_LIST: u32 = 3;
const OPTION_INFO: u32 = 6;
const OPTION_GO: u32 = 7;

const REPLY_ACK: u32 = 1;
const REPLY_SERVER: u32 = 2;
const REPLY_INFO: u32 = 3;
const REPLY_UNSUPPORTED: u32 = 0x8000_0001;

const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

const EIO: u32 = 5;
const EINVAL: u32 = 22;

/// Serves one client until it disconnects.
///
/// # Errors
/// Returns the connection's error; [`ErrorKind::InvalidData`] for bytes that are not the protocol.
pub fn serve_client(
    disk: &EmulatedDisk<impl Disk>,
    client: &mut (impl Read + Write),
) -> io::Result<()> {
    if !shake_hands(disk, client)? {
        return Ok(());
    }
    let mut data = Vec::new();
    while let Some(request) = read_request(client)? {
        data.clear();
        let result = match request.kind {
            COMMAND_READ => read_disk(disk, request.offset, request.length, &mut data),
            COMMAND_WRITE => {
                // Read off the connection even if it is refused: the next request follows it.
                data.resize(request.length as usize, 0);
                client.read_exact(&mut data)?;
                write_disk(disk, request.offset, &data, request.flags & FUA != 0)
            }
            COMMAND_DISCONNECT => return Ok(()),
            COMMAND_FLUSH => disk.sync(),
            _ => Err(ErrorKind::InvalidInput.into()),
        };
        let error = match &result {
            Ok(()) => 0,
            Err(error) => match error.kind() {
                ErrorKind::InvalidInput | ErrorKind::UnexpectedEof => EINVAL,
                _ => EIO,
            },
        };
        let head = [
            &REPLY.to_be_bytes()[..],
            &error.to_be_bytes(),
            &request.cookie,
        ];
        let mut answer = head.concat();
        // Data follows only a read that succeeded.
        if request.kind == COMMAND_READ && error == 0 {
            answer.append(&mut data);
        }
        client.write_all(&answer)?;
    }
    Ok(())
}

/// A request of the client.
struct ClientRequest {
    flags: u16,
    kind: u16,
    /// Chosen by the client, which finds its request by it.
    cookie: [u8; 8],
    offset: u64,
    length: u32,
}

/// Reads the next request; `None` if the client has closed the connection.
fn read_request(client: &mut impl Read) -> io::Result<Option<ClientRequest>> {
    let magic = match read_array(client) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        magic => u32::from_be_bytes(magic?),
    };
    let request = ClientRequest {
        flags: u16::from_be_bytes(read_array(client)?),
        kind: u16::from_be_bytes(read_array(client)?),
        cookie: read_array(client)?,
        offset: u64::from_be_bytes(read_array(client)?),
        length: u32::from_be_bytes(read_array(client)?),
    };
    // A connection that has lost its step cannot be answered any more.
    if magic != REQUEST || request.length > REQUEST_MAX {
        return Err(protocol_error("no request of the protocol"));
    }
    Ok(Some(request))
}

/// Returns the sector at an offset, which must be that of a whole sector.
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
    // Modelled as one request that goes to the surface; the disk that holds the bytes needs a sync
    // for that.
    let count = disk.check_range(at, data.len())?;
    let ticket = disk.submit(SectorRequest::Write { at, count, fua });
    let done = disk
        .inner()
        .write_at(at, &[IoSlice::new(data)])
        .and_then(|()| disk.inner().sync());
    disk.wait_for(ticket);
    done
}

/// What becomes of the connection after an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextPhase {
    /// The client sends its next option.
    Haggling,
    /// The client sends requests.
    Transmission,
    /// The client wants nothing more.
    End,
}

/// Shakes hands. Returns false if the client wants nothing more.
fn shake_hands(
    disk: &EmulatedDisk<impl Disk>,
    client: &mut (impl Read + Write),
) -> io::Result<bool> {
    let client_flags = exchange_greetings(client)?;
    let export = export_description(disk);
    loop {
        let option = read_option(client)?;
        match answer_option(client, option, client_flags, &export)? {
            NextPhase::Haggling => {}
            NextPhase::Transmission => return Ok(true),
            NextPhase::End => return Ok(false),
        }
    }
}

/// Greets the client. Returns the flags that it sends back.
fn exchange_greetings(client: &mut (impl Read + Write)) -> io::Result<u32> {
    let flags = FIXED_NEWSTYLE | NO_ZEROES;
    let greeting = [
        &GREETING.to_be_bytes()[..],
        &OPTION.to_be_bytes(),
        &flags.to_be_bytes(),
    ];
    client.write_all(&greeting.concat())?;
    Ok(u32::from_be_bytes(read_array(client)?))
}

/// Reads an option, and leaves out its data.
fn read_option(client: &mut impl Read) -> io::Result<u32> {
    let magic = u64::from_be_bytes(read_array(client)?);
    let option = u32::from_be_bytes(read_array(client)?);
    let length = u32::from_be_bytes(read_array(client)?);
    if magic != OPTION || length > OPTION_MAX {
        return Err(protocol_error("no option of the protocol"));
    }
    // The name of the export among it, which does not matter: there is one.
    let mut data = vec![0; length as usize];
    client.read_exact(&mut data)?;
    Ok(option)
}

/// Answers an option. Returns what follows it.
fn answer_option(
    client: &mut impl Write,
    option: u32,
    client_flags: u32,
    export: &[u8],
) -> io::Result<NextPhase> {
    match option {
        OPTION_EXPORT_NAME => {
            // The old option has no reply but the description, padded unless that was declined.
            let has_declined = client_flags & u32::from(NO_ZEROES) != 0;
            let zeroes = if has_declined { 0 } else { 124 };
            client.write_all(&[export, &vec![0; zeroes]].concat())?;
            Ok(NextPhase::Transmission)
        }
        OPTION_ABORT => {
            reply_option(client, option, REPLY_ACK, &[])?;
            Ok(NextPhase::End)
        }
        OPTION_LIST => {
            // One export without a name.
            reply_option(client, option, REPLY_SERVER, &[0; 4])?;
            reply_option(client, option, REPLY_ACK, &[])?;
            Ok(NextPhase::Haggling)
        }
        OPTION_INFO => {
            describe_export(client, option, export)?;
            Ok(NextPhase::Haggling)
        }
        OPTION_GO => {
            describe_export(client, option, export)?;
            Ok(NextPhase::Transmission)
        }
        _ => {
            reply_option(client, option, REPLY_UNSUPPORTED, &[])?;
            Ok(NextPhase::Haggling)
        }
    }
}

/// Answers an option with the export's size, flags and block sizes.
fn describe_export(client: &mut impl Write, option: u32, export: &[u8]) -> io::Result<()> {
    let description = [&INFO_EXPORT.to_be_bytes()[..], export];
    reply_option(client, option, REPLY_INFO, &description.concat())?;
    // The smallest, the best and the largest request.
    let sizes = [512, 4096, REQUEST_MAX].map(u32::to_be_bytes).concat();
    let block_sizes = [&INFO_BLOCK_SIZE.to_be_bytes()[..], &sizes];
    reply_option(client, option, REPLY_INFO, &block_sizes.concat())?;
    reply_option(client, option, REPLY_ACK, &[])
}

/// Returns size and flags of the export.
fn export_description(disk: &EmulatedDisk<impl Disk>) -> Vec<u8> {
    let size = (disk.shape().sectors * SECTOR).to_be_bytes();
    let mut flags = HAS_FLAGS | ROTATIONAL;
    // To a drive without a cache a flush is nothing, and it does not ask for any.
    if disk.has_cache() {
        flags |= SEND_FLUSH | SEND_FUA;
    }
    [&size[..], &flags.to_be_bytes()].concat()
}

/// Sends one reply to an option.
fn reply_option(client: &mut impl Write, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let length = data.len() as u32;
    let reply = [
        &OPTION_REPLY.to_be_bytes()[..],
        &option.to_be_bytes(),
        &kind.to_be_bytes(),
        &length.to_be_bytes(),
        data,
    ];
    client.write_all(&reply.concat())
}

/// Reads `N` bytes.
fn read_array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn protocol_error(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}
