//! A client by hand against the server, over a socket pair.

use super::*;
use crate::log::{DiskEventKind, RecordRing};
use crate::{EmulationPace, EmulationSetup, VirtualClock};
use proptest::prelude::*;
use std::io::Cursor;
use std::os::unix::net::UnixStream;
use teal_energy::Profile;
use teal_env::MemDisk;

fn disk(has_cache: bool) -> (EmulatedDisk<MemDisk>, RecordRing) {
    let setup = EmulationSetup::new(
        Profile::find_shipped("ibm-microdrive-1gb").unwrap(),
        1 << 20,
    )
    .unwrap();
    let setup = if has_cache {
        setup
    } else {
        setup.without_cache()
    };
    let (ring, pace) = (
        RecordRing::new(100),
        EmulationPace::Virtual(VirtualClock::default()),
    );
    (
        EmulatedDisk::new(MemDisk::new(2048), &setup, pace, Box::new(ring.clone())).unwrap(),
        ring,
    )
}

/// Does what a client does on a connection whose server runs beside it.
fn session(disk: &EmulatedDisk<MemDisk>, client: impl FnOnce(&mut UnixStream)) -> io::Result<()> {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || serve_client(disk, &mut there));
        client(&mut here);
        drop(here);
        server.join().unwrap()
    })
}

fn take<const N: usize>(stream: &mut UnixStream) -> [u8; N] {
    read_array(stream).unwrap()
}

/// Greets with `EXPORT_NAME`; the size and flags.
fn greeted(stream: &mut UnixStream) -> (u64, u16) {
    assert_eq!(&take::<18>(stream), b"NBDMAGICIHAVEOPT\0\x03");
    stream
        .write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x01a")
        .unwrap();
    (
        u64::from_be_bytes(take(stream)),
        u16::from_be_bytes(take(stream)),
    )
}

fn ask(
    stream: &mut UnixStream,
    flags: u16,
    kind: u16,
    offset: u64,
    length: u32,
    data: &[u8],
) -> u32 {
    let (head, place) = (
        [flags.to_be_bytes(), kind.to_be_bytes()].concat(),
        offset.to_be_bytes(),
    );
    let request = [
        &REQUEST.to_be_bytes()[..],
        &head,
        b"cookie42",
        &place,
        &length.to_be_bytes(),
        data,
    ]
    .concat();
    stream.write_all(&request).unwrap();
    assert_eq!(take(stream), REPLY.to_be_bytes());
    let error = u32::from_be_bytes(take(stream));
    assert_eq!(&take::<8>(stream), b"cookie42");
    error
}

#[test]
fn requests_are_logged_with_flush_and_fua() {
    let (disk, ring) = disk(true);
    let done = session(&disk, |stream| {
        assert_eq!(
            greeted(stream),
            (1 << 20, HAS_FLAGS | SEND_FLUSH | SEND_FUA | ROTATIONAL)
        );
        assert_eq!(ask(stream, 0, 1, 4096, 1024, &[7; 1024]), 0);
        assert_eq!(ask(stream, FUA, 1, 8192, 512, &[8; 512]), 0);
        assert_eq!(ask(stream, 0, 3, 0, 0, &[]), 0);
        assert_eq!(ask(stream, 0, 0, 4608, 512, &[]), 0);
        assert_eq!(take::<512>(stream), [7; 512]);
        assert_eq!(
            ask(stream, 0, 0, 1 << 20, 512, &[]),
            EINVAL,
            "beyond the end"
        );
        assert_eq!(ask(stream, 0, 0, 100, 512, &[]), EINVAL, "within a sector");
        assert_eq!(ask(stream, 0, 4, 0, 512, &[]), EINVAL, "no such request");
        stream
            .write_all(&[&REQUEST.to_be_bytes()[..], &[0, 0, 0, 2], &[0; 20]].concat())
            .unwrap();
    });
    done.unwrap();
    let logged: Vec<_> = ring
        .records()
        .iter()
        .map(|r| (r.kind, r.at.get(), r.count))
        .collect();
    assert_eq!(
        logged,
        [
            (DiskEventKind::Write, 8, 2),
            (DiskEventKind::WriteThrough, 16, 1),
            (DiskEventKind::Flush, 0, 0),
            (DiskEventKind::Read, 9, 1)
        ]
    );
}

#[test]
fn a_disk_without_a_cache_asks_for_no_flush() {
    let (disk, _) = disk(false);
    let done = session(&disk, |stream| {
        assert_eq!(greeted(stream).1, HAS_FLAGS | ROTATIONAL)
    });
    done.unwrap();
}

#[test]
fn go_tells_the_sizes_and_unknown_options_are_refused() {
    let (disk, _) = disk(true);
    let done = session(&disk, |stream| {
        take::<18>(stream);
        stream
            .write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x63\0\0\0\0")
            .unwrap();
        assert_eq!(take::<20>(stream)[12..], *b"\x80\0\0\x01\0\0\0\0");
        stream
            .write_all(b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0")
            .unwrap();
        let info = take::<32>(stream);
        assert_eq!(
            (&info[8..12], &info[12..22]),
            (&b"\0\0\0\x07"[..], &b"\0\0\0\x03\0\0\0\x0c\0\0"[..])
        );
        assert_eq!(info[22..30], (1_u64 << 20).to_be_bytes());
        assert_eq!(take::<34>(stream)[20..22], [0, 3]);
        assert_eq!(take::<20>(stream)[12..16], [0, 0, 0, 1]);
        assert_eq!(ask(stream, 0, 3, 0, 0, &[]), 0);
    });
    done.unwrap();
}

/// A connection whose client has said all it will say.
struct Said(Cursor<Vec<u8>>);

impl Read for Said {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

proptest! {
    #[test]
    fn garbage_ends_a_connection_without_a_panic(garbage in prop::collection::vec(any::<u8>(), 0..300), is_greeted in any::<bool>()) {
        let (disk, _) = disk(true);
        let greeting: &[u8] = if is_greeted { b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0" } else { b"" };
        let _ = serve_client(&disk, &mut Said(Cursor::new([greeting, &garbage].concat())));
    }
}
