//! A connection in memory: tests take the part of the kernel, without one.

use super::channel::{MessageSink, Transport};
use crate::abi::opcode::FUSE_INIT;
use crate::abi::{
    FUSE_KERNEL_MINOR_VERSION, FUSE_KERNEL_VERSION, fuse_in_header, fuse_init_in, fuse_out_header,
};
use crate::request::NodeId;
use crate::session::InitFlags;
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::size_of;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// The most requests, and the most messages, that wait on either side.
const QUEUE_LIMIT: usize = 4096;

#[derive(Debug, Default)]
struct MemoryQueues {
    requests: VecDeque<Vec<u8>>,
    messages: VecDeque<Vec<u8>>,
    last_unique: u64,
    closed: bool,
}

/// The lock guards both queues; nothing is called under it.
#[derive(Debug, Default)]
struct MemoryChannel {
    wire: Mutex<MemoryQueues>,
    changed: Condvar,
}

/// The server's end.
#[derive(Debug, Clone)]
pub struct MemoryTransport(Arc<MemoryChannel>);

/// The kernel's end.
#[derive(Debug)]
pub struct MemoryKernel(Arc<MemoryChannel>);

/// A message of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerMessage {
    /// The request it answers; 0 for a notification.
    pub unique: u64,
    /// A negative errno or 0 in a reply; the positive code of a notification.
    pub error: i32,
    /// The bytes behind the header.
    pub body: Vec<u8>,
}

/// Makes a connection and returns its two ends.
pub fn memory_pair() -> (MemoryTransport, MemoryKernel) {
    let shared = Arc::new(MemoryChannel::default());
    (MemoryTransport(Arc::clone(&shared)), MemoryKernel(shared))
}

impl MemoryKernel {
    /// Sends `INIT` as a kernel of protocol 7.45 that offers `flags`; returns its unique number.
    ///
    /// # Panics
    /// When 4096 requests wait already.
    pub fn send_init(&self, flags: InitFlags) -> u64 {
        let (low, high) = (flags | InitFlags::INIT_EXT).to_words();
        let init = fuse_init_in {
            major: FUSE_KERNEL_VERSION,
            minor: FUSE_KERNEL_MINOR_VERSION,
            max_readahead: 128 << 10,
            flags: low,
            flags2: high,
            ..Default::default()
        };
        self.send_request(FUSE_INIT, NodeId::new(0), &[init.as_bytes()])
    }

    /// Sends an operation with the body of `parts`, as user 0; returns its unique number.
    ///
    /// # Panics
    /// When 4096 requests wait already.
    pub fn send_request(&self, opcode: u32, node: NodeId, parts: &[&[u8]]) -> u64 {
        let body = parts.concat();
        let mut wire = self.0.wire.lock();
        wire.last_unique += 2; // the lowest bit marks interrupts
        let header = fuse_in_header {
            len: u32::try_from(size_of::<fuse_in_header>() + body.len()).unwrap_or(u32::MAX),
            opcode,
            unique: wire.last_unique,
            nodeid: node.get(),
            ..Default::default()
        };
        let unique = wire.last_unique;
        self.enqueue(wire, [header.as_bytes(), &body].concat());
        unique
    }

    /// Sends any bytes at all.
    ///
    /// # Panics
    /// When 4096 requests wait already.
    pub fn send_raw(&self, message: Vec<u8>) {
        self.enqueue(self.0.wire.lock(), message);
    }

    fn enqueue(&self, mut wire: parking_lot::MutexGuard<'_, MemoryQueues>, message: Vec<u8>) {
        assert!(
            wire.requests.len() < QUEUE_LIMIT,
            "{QUEUE_LIMIT} requests wait and nobody reads them"
        );
        wire.requests.push_back(message);
        self.0.changed.notify_all();
    }

    /// Waits for the server's next message; `None` when the connection is closed and all were
    /// taken.
    pub fn receive_message(&self) -> Option<ServerMessage> {
        let mut wire = self.0.wire.lock();
        loop {
            if let Some(bytes) = wire.messages.pop_front() {
                // Checked when the message was sent.
                let (header, body) = fuse_out_header::read_from_prefix(&bytes).ok()?;
                return Some(ServerMessage {
                    unique: header.unique,
                    error: header.error,
                    body: body.to_vec(),
                });
            }
            if wire.closed {
                return None;
            }
            self.0.changed.wait(&mut wire);
        }
    }

    /// Ends the connection, as an unmount does: requests that wait are still read.
    pub fn close(&self) {
        self.0.wire.lock().closed = true;
        self.0.changed.notify_all();
    }
}

impl MessageSink for MemoryTransport {
    /// Fails with `EINVAL` when the length in the header is not that of the message, as the kernel
    /// does.
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        let mut message = Vec::new();
        for part in parts {
            message.extend_from_slice(part);
        }
        let (header, _) = fuse_out_header::read_from_prefix(&message).map_err(|_| Errno::INVAL)?;
        if usize::try_from(header.len) != Ok(message.len()) {
            return Err(Errno::INVAL);
        }
        let mut wire = self.0.wire.lock();
        // A test that does not read its messages fails here instead of taking all memory.
        if wire.messages.len() == QUEUE_LIMIT {
            return Err(Errno::NOBUFS);
        }
        wire.messages.push_back(message);
        self.0.changed.notify_all();
        Ok(())
    }
}

impl Transport for MemoryTransport {
    fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
        let mut wire = self.0.wire.lock();
        loop {
            if let Some(request) = wire.requests.pop_front() {
                // As the kernel does, which drops a request that the buffer cannot hold.
                let room = buffer.get_mut(..request.len()).ok_or(Errno::IO)?;
                room.copy_from_slice(&request);
                return Ok(Some(request.len()));
            }
            if wire.closed {
                return Ok(None);
            }
            self.0.changed.wait(&mut wire);
        }
    }

    fn open_channel(&self) -> Result<Arc<dyn Transport>, Errno> {
        Ok(Arc::new(self.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_of_messages_refuses_more() {
        let (server, _kernel) = memory_pair();
        let header = fuse_out_header {
            len: 16,
            error: 0,
            unique: 2,
        };
        for _ in 0..QUEUE_LIMIT {
            server.send(&[IoSlice::new(header.as_bytes())]).unwrap();
        }
        assert_eq!(
            server.send(&[IoSlice::new(header.as_bytes())]),
            Err(Errno::NOBUFS)
        );
    }

    #[test]
    #[should_panic(expected = "nobody reads them")]
    fn a_full_queue_of_requests_is_a_fault_of_the_test() {
        let (_server, kernel) = memory_pair();
        for _ in 0..=QUEUE_LIMIT {
            kernel.send_raw(Vec::new());
        }
    }

    #[test]
    fn a_message_of_another_length_than_it_says_is_refused() {
        let (server, _kernel) = memory_pair();
        let header = fuse_out_header {
            len: 17,
            error: 0,
            unique: 2,
        };
        assert_eq!(
            server.send(&[IoSlice::new(header.as_bytes())]),
            Err(Errno::INVAL)
        );
    }
}
