//! Memory that direct transfers take as it is, and a stock of it that spares the kernel from making
//! pages anew.
//!
//! # Guarantees
//! 1. A buffer starts at a page of memory, so that a [`crate::FileDisk`] neither copies what is
//!    written from it nor what is read into it.
//! 2. The stock keeps no more than its limit, and gives all back when asked.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Where a buffer starts: at a multiple of this.
pub(crate) const ALIGN: usize = 4096;
/// Smallest and largest buffers that are kept: powers of two.
const KEPT_POWER_MIN: u32 = 12;
const KEPT_POWER_MAX: u32 = 21;

/// Bytes that start at a page of memory. What was in them before is still there.
#[derive(Debug)]
pub struct AlignedBuffer {
    /// A little more than is needed, so that no unsafe code is: the front is skipped.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
    home: Weak<BufferPool>,
}

impl AlignedBuffer {
    fn new(len: usize) -> Self {
        let bytes = vec![0; len + ALIGN];
        let start = bytes.as_ptr().align_offset(ALIGN);
        Self {
            bytes,
            start,
            len,
            home: Weak::new(),
        }
    }

    /// Returns what it could hold.
    fn capacity(&self) -> usize {
        self.bytes.len() - ALIGN
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            let start = self.start;
            home.take_back(Self {
                bytes: std::mem::take(&mut self.bytes),
                start,
                len: 0,
                home: Weak::new(),
            });
        }
    }
}

#[derive(Debug, Default)]
struct FreeBuffers {
    /// By size, a power of two.
    free: [Vec<AlignedBuffer>; (KEPT_POWER_MAX - KEPT_POWER_MIN + 1) as usize],
    bytes: usize,
}

/// A stock of buffers that come back when they are dropped.
#[derive(Debug)]
pub struct BufferPool {
    /// Guards the lists; nothing is done under it.
    free_buffers: Mutex<FreeBuffers>,
    limit: usize,
}

impl BufferPool {
    /// A stock that keeps at most `limit` bytes for the next who asks.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            free_buffers: Mutex::default(),
            limit,
        })
    }

    /// Lends a buffer of `len` bytes.
    pub fn lend(self: &Arc<Self>, len: usize) -> AlignedBuffer {
        let size = len.next_power_of_two().max(1 << KEPT_POWER_MIN);
        let Some(kept) = size_class(size) else {
            return AlignedBuffer::new(len);
        };
        let found = {
            let mut stock = self
                .free_buffers
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let found = stock.free[kept].pop();
            stock.bytes -= found.as_ref().map_or(0, AlignedBuffer::capacity);
            found
        };
        let mut buffer = found.unwrap_or_else(|| AlignedBuffer::new(size));
        (buffer.len, buffer.home) = (len, Arc::downgrade(self));
        buffer
    }

    /// Gives back to the system what nobody uses.
    pub fn release_unused(&self) {
        drop(std::mem::take(
            &mut *self
                .free_buffers
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        ));
    }

    fn take_back(&self, buffer: AlignedBuffer) {
        let Some(kept) = size_class(buffer.capacity()) else {
            return;
        };
        let mut stock = self
            .free_buffers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if stock.bytes + buffer.capacity() <= self.limit {
            stock.bytes += buffer.capacity();
            stock.free[kept].push(buffer);
        }
    }
}

fn size_class(size: usize) -> Option<usize> {
    (KEPT_POWER_MIN..=KEPT_POWER_MAX).position(|power| size == 1 << power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(stock: &BufferPool) -> usize {
        stock.free_buffers.lock().unwrap().bytes
    }

    #[test]
    fn a_buffer_starts_at_a_page_and_has_the_length_asked_for() {
        let stock = BufferPool::new(1 << 20);
        for len in [0, 1, 4096, 5000, 1 << 20, 3 << 20] {
            let mut buffer = stock.lend(len);
            assert_eq!((buffer.len(), buffer.as_ptr() as usize % ALIGN), (len, 0));
            buffer.fill(7);
        }
    }

    #[test]
    fn what_comes_back_is_lent_again_up_to_the_limit() {
        let stock = BufferPool::new(16384);
        let mut lent: Vec<_> = (0..3).map(|_| stock.lend(8000)).collect();
        lent[2].fill(9);
        drop(lent);
        assert_eq!(kept(&stock), 16384, "the third is not kept");
        assert_eq!(stock.lend(8192).len(), 8192);
        let again = stock.lend(4096);
        assert_eq!(
            (again.len(), kept(&stock)),
            (4096, 16384),
            "another size is not taken"
        );
        stock.release_unused();
        assert_eq!(kept(&stock), 0);
    }
}
