//! Salvage takes no bytes of files for records: not those of a store in the store, and not those
//! that somebody made to look like a record.

use crate::salvage::{KnownContents, STORE, open, readable_files, sectors_with, write};
use crate::stores::disk_bytes;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use std::sync::Arc;
use teal_env::{Disk, MemDisk, SystemClock};
use teal_log::{MkfsOptions, OpenOptions, Store};
use teal_testkit::SeededEntropy;
use teal_types::SECTOR;

const HEADER: usize = SECTOR as usize;
/// Bytes of the content that holds the forged record, and where the record is in it.
const CARRIER: usize = 64 << 10;
const FORGED: usize = 8192;

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn short(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Makes a store whose numbers, and with them its places, are always the same.
fn made() -> (Arc<MemDisk>, Arc<Store>) {
    let disk = Arc::new(MemDisk::new(STORE / SECTOR));
    let shared = || Arc::clone(&disk) as Arc<dyn Disk>;
    let clock = || Arc::new(SystemClock);
    let options = MkfsOptions::default();
    Store::mkfs(shared(), clock(), &SeededEntropy::new(3), &options).unwrap();
    let (store, _) = Store::open(shared(), clock(), OpenOptions::default()).unwrap();
    (disk, store)
}

/// A life with a file of this content; `successors`: batches behind that.
fn life(content: &[u8], successors: u64) -> (Vec<u8>, KnownContents) {
    let (disk, store) = made();
    let mut contents = KnownContents::new();
    let mut put = |name: &str, bytes: &[u8]| {
        write(&store, name.as_bytes(), 0, bytes, &mut contents);
        store.commit().unwrap();
    };
    put("victim", b"the old content");
    put("victim", b"the new content");
    put("carrier", content);
    for n in 0..successors {
        put(&format!("behind {n}"), &[n as u8; 5000]);
    }
    (disk_bytes(&disk), contents)
}

/// Returns the byte where the content of the carrier begins.
fn carried(image: &[u8], content: &[u8]) -> usize {
    (0..image.len())
        .step_by(HEADER)
        .find(|at| image[*at..].starts_with(&content[..2 * HEADER]))
        .unwrap()
}

/// Returns where the record is that holds this byte.
fn record_before(image: &[u8], byte: usize) -> usize {
    let headers = sectors_with(image, b"TREC");
    headers.into_iter().rev().find(|at| *at < byte).unwrap()
}

/// Returns the record in `image` that set the victim's old content, made to look like one that
/// follows the carrier's from the place `at`.
fn forge(image: &[u8], carrier: usize, at: usize) -> Vec<u8> {
    let old = b"the old content";
    let holds_old = |from: usize| {
        let sectors = 1 + short(image, from + 92) as usize;
        let body = from + HEADER * sectors;
        let end = body + short(image, from + 96) as usize;
        image[body..end].windows(old.len()).any(|part| part == old)
    };
    let headers = sectors_with(image, b"TREC");
    let source = headers.into_iter().find(|from| holds_old(*from)).unwrap();
    assert_eq!(short(image, source + 92), 0, "all of it is in the body");
    let body = short(image, source + 96) as usize;
    let sectors = 1 + body.div_ceil(HEADER);
    let mut forged = image[source..source + sectors * HEADER].to_vec();
    let end = (at + sectors * HEADER).next_multiple_of(short(image, 72) as usize);
    let segment = short(image, 64) as usize * HEADER;
    let seq = number(image, carrier + 32) + 1;
    let mut set = |at: usize, bytes: &[u8]| forged[at..at + bytes.len()].copy_from_slice(bytes);
    set(24, &number(image, carrier + 24).to_le_bytes());
    set(32, &seq.to_le_bytes());
    set(40, &(number(image, carrier + 40) + 1).to_le_bytes());
    set(48, &(seq - 1).to_le_bytes());
    set(64, &((end / HEADER) as u64).to_le_bytes());
    let left = (end.next_multiple_of(segment) - end) / HEADER;
    set(72, &(left as u32).to_le_bytes());
    set(104, &(number(image, carrier + 104) + 1000).to_le_bytes());
    let mut digest = SipHasher24::new_with_key(&image[16..32].try_into().unwrap());
    digest.write(&image[carrier..carrier + HEADER]);
    set(56, &digest.finish().to_le_bytes());
    let sum = crc32c::crc32c(&forged[..HEADER - 4]);
    forged[HEADER - 4..HEADER].copy_from_slice(&sum.to_le_bytes());
    forged
}

/// Returns a store in which the header of a record is lost that holds a forged one in its content.
pub(crate) fn store_with_forged_record() -> (Vec<u8>, KnownContents) {
    let mut carrier: Vec<u8> = (0..CARRIER).map(|n| (n / HEADER) as u8 | 1).collect();
    let (first, _) = life(&carrier, 5);
    let at = carried(&first, &carrier);
    let record = record_before(&first, at);
    let forged = forge(&first, record, at + FORGED);
    carrier[FORGED..FORGED + forged.len()].copy_from_slice(&forged);
    let (mut bytes, contents) = life(&carrier, 5);
    bytes[record..record + HEADER].fill(0);
    (bytes, contents)
}

fn content(bytes: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let store = open(bytes, true).unwrap();
    let name = teal_types::Name::new(name).unwrap();
    let (no, _) = store.lookup(teal_types::ObjectNo::ROOT, &name).ok()??;
    let size = store.attr(no).ok()?.size;
    store.read(no, 0, size as usize).ok()
}

#[test]
fn a_forged_record_in_a_file_is_never_taken_for_one() {
    for successors in [0, 1, 5] {
        let mut carrier: Vec<u8> = (0..CARRIER).map(|n| (n / HEADER) as u8 | 1).collect();
        let (first, _) = life(&carrier, successors);
        let at = carried(&first, &carrier);
        let record = record_before(&first, at);
        let forged = forge(&first, record, at + FORGED);
        carrier[FORGED..FORGED + forged.len()].copy_from_slice(&forged);
        let (mut bytes, contents) = life(&carrier, successors);
        assert_eq!(carried(&bytes, &carrier), at, "the places are the same");
        bytes[record..record + HEADER].fill(0);
        let said = format!("{successors} batches behind");
        assert_eq!(
            content(&bytes, b"victim").as_deref(),
            Some(&b"the new content"[..]),
            "{said}"
        );
        let store = open(&bytes, true).unwrap();
        let readable = readable_files(&store, &contents, &said);
        assert_eq!(readable as u64, 1 + successors, "{said}");
        if successors == 0 {
            // The same bytes where nothing claims them: all else about them is right.
            let end = at + CARRIER;
            bytes[end..end + 16 * HEADER].fill(0);
            assert_eq!(
                content(&bytes, b"victim").as_deref(),
                Some(&b"the old content"[..])
            );
        }
    }
}

#[test]
fn a_store_in_the_store_is_content_and_no_log() {
    let (disk, store) = made();
    let mut contents = KnownContents::new();
    for n in 0..40_u64 {
        write(
            &store,
            format!("{n}").as_bytes(),
            0,
            &[n as u8; 3000],
            &mut contents,
        );
        if n % 10 == 9 {
            let now = disk_bytes(&disk);
            let used = sectors_with(&now, b"TREC").into_iter().max().unwrap();
            let from = used.saturating_sub(256 << 10);
            let name = format!("image {n}");
            write(&store, name.as_bytes(), 0, &now[from..used], &mut contents);
        }
        store.commit().unwrap();
    }
    let whole = disk_bytes(&disk);
    let mut opened = 0;
    for at in sectors_with(&whole, b"TREC") {
        let mut bytes = whole.clone();
        bytes[at..at + HEADER].fill(0);
        if let Some(store) = open(&bytes, true) {
            let readable = readable_files(&store, &contents, &format!("without {at}"));
            opened += 1;
            assert!(readable + 4 >= contents.len(), "{readable} without {at}");
        }
    }
    assert!(opened > 40, "{opened}");
}
