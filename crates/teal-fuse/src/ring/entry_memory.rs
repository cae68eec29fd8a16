//! The memory of one entry, which the kernel and its worker use in turn.

use crate::abi::{fuse_in_header, fuse_out_header, fuse_uring_req_header};
use std::io::{IoSlice, IoSliceMut};
use std::mem::size_of;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Bytes kept free in front of the payload. A request's headers are copied there, and make one
/// message with it. The number is that of a page, so that the payload begins at one.
const HEADROOM: usize = 4096;
/// The longest headers: the common one, and the room for an operation's own.
pub(super) const HEADERS_MAX: usize = size_of::<fuse_in_header>() + 128;

/// Headers and payload of a request, then of its answer.
#[derive(Debug)]
pub(crate) struct EntryMemory {
    header: Box<fuse_uring_req_header>,
    room: Vec<u8>,
}

impl EntryMemory {
    /// Makes memory for payloads of at most `payload` bytes; parts that are never used are never
    /// touched.
    pub(super) fn new(payload: usize) -> Self {
        Self {
            header: Box::new(fuse_uring_req_header::new_zeroed()),
            room: vec![0; HEADROOM + payload],
        }
    }

    /// Returns the parts that the kernel gets, headers first: two `iovec`s.
    pub(crate) fn lend_to_kernel(&mut self) -> [IoSliceMut<'_>; 2] {
        [
            IoSliceMut::new(self.header.as_mut_bytes()),
            IoSliceMut::new(&mut self.room[HEADROOM..]),
        ]
    }

    /// Returns the number by which the request is to be answered.
    pub(super) fn commit_id(&self) -> u64 {
        self.header.ring_ent_in_out.commit_id
    }

    /// Returns whether a payload came with the request's headers.
    pub(super) fn has_payload(&self) -> bool {
        self.header.ring_ent_in_out.payload_sz > 0
    }

    /// Returns the request's headers and their length, which is 0 if they contradict themselves.
    pub(super) fn request_headers(&self) -> ([u8; HEADERS_MAX], usize) {
        const COMMON: usize = size_of::<fuse_in_header>();
        let mut headers = [0; HEADERS_MAX];
        // The kernel keeps the two headers in separate places; a message has them in a row.
        headers[..COMMON].copy_from_slice(&self.header.in_out[..COMMON]);
        headers[COMMON..].copy_from_slice(&self.header.op_in);
        let common = fuse_in_header::read_from_prefix(&headers);
        let total = common.map_or(0, |(header, _)| header.len as usize);
        let length = total.saturating_sub(self.payload_bytes());
        // The kernel is believed no more than a program would be: a length beyond the memory is
        // refused.
        let is_possible = (COMMON..=HEADERS_MAX).contains(&length);
        (headers, if is_possible { length } else { 0 })
    }

    /// Returns the whole request in one piece, for which the headers are copied in front of the
    /// payload.
    pub(super) fn request_message(&mut self) -> &[u8] {
        let (headers, length) = self.request_headers();
        let start = HEADROOM - length;
        self.room[start..HEADROOM].copy_from_slice(&headers[..length]);
        let end = HEADROOM.saturating_add(self.payload_bytes());
        let end = end.min(self.room.len());
        &self.room[start..end]
    }

    fn payload_bytes(&self) -> usize {
        self.header.ring_ent_in_out.payload_sz as usize
    }

    /// Puts the pieces of an answer in place of the payload.
    pub(super) fn write_payload(&mut self, pieces: &[IoSlice<'_>]) {
        // The caller has compared the length with the largest payload: the slices below do not
        // panic.
        let mut at = HEADROOM;
        for piece in pieces {
            self.room[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
    }

    /// Puts an answer's header before a payload of `payload` bytes.
    pub(super) fn write_header(&mut self, header: &fuse_out_header, payload: usize) {
        self.header.in_out[..size_of::<fuse_out_header>()].copy_from_slice(header.as_bytes());
        self.header.ring_ent_in_out.payload_sz = u32::try_from(payload).unwrap_or(u32::MAX);
    }
}
