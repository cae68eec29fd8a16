//! Memory that direct transfers take as it is, and a pool of it that spares the kernel from making
//! pages anew.
//!
//! # Guarantees
//! 1. A buffer starts at a page of memory, so that a [`crate::FileDisk`] copies neither its writes
//!    nor its reads.
//! 2. The pool keeps no more than its limit, and gives all back when asked.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Buffers start at a multiple of this.
pub(crate) const ALIGN: usize = 4096;
/// The smallest and the largest buffers that are kept: powers of two.
const KEPT_POWER_MIN: u32 = 12;
const KEPT_POWER_MAX: u32 = 21;

/// Bytes that start at a page of memory. Their former content is still there.
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
        // One page more than asked for contains a page's start with `len` bytes behind it.
        let bytes = vec![0; len + ALIGN];
        let start = bytes.as_ptr().align_offset(ALIGN);
        debug_assert!(
            start + len <= bytes.len(),
            "the front is shorter than a page"
        );
        Self {
            bytes,
            start,
            len,
            home: Weak::new(),
        }
    }

    /// Returns the most bytes that it could hold.
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
        // The pool may be gone, or the buffer not be one of its own: then the memory is freed.
        if let Some(home) = self.home.upgrade() {
            let start = self.start;
            home.take_back(Self {
                bytes: std::mem::take(&mut self.bytes),
                start,
                len: 0,
                // A buffer that is not kept must not come back a second time.
                home: Weak::new(),
            });
        }
    }
}

/// The buffers that wait for their next use.
#[derive(Debug, Default)]
struct FreeBuffers {
    /// The lists by size, which is a power of two.
    free: [Vec<AlignedBuffer>; (KEPT_POWER_MAX - KEPT_POWER_MIN + 1) as usize],
    bytes: usize,
}

/// A pool of buffers that come back when they are dropped.
#[derive(Debug)]
pub struct BufferPool {
    /// Guards the lists; nothing is done under it.
    free_buffers: Mutex<FreeBuffers>,
    limit: usize,
}

impl BufferPool {
    /// Makes a pool that keeps at most `limit` bytes for later callers.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            free_buffers: Mutex::default(),
            limit,
        })
    }

    /// Lends a buffer of `len` bytes.
    pub fn lend(self: &Arc<Self>, len: usize) -> AlignedBuffer {
        let size = len.next_power_of_two().max(1 << KEPT_POWER_MIN);
        let Some(class) = size_class(size) else {
            // Too large to be kept: the system gets it back at once.
            return AlignedBuffer::new(len);
        };
        let found = {
            let mut free = self.lock_free();
            let found = free.free[class].pop();
            free.bytes -= found.as_ref().map_or(0, AlignedBuffer::capacity);
            found
        };
        let mut buffer = found.unwrap_or_else(|| AlignedBuffer::new(size));
        debug_assert!(len <= buffer.capacity());
        buffer.len = len;
        buffer.home = Arc::downgrade(self);
        buffer
    }

    /// Gives unused buffers back to the system.
    pub fn release_unused(&self) {
        let unused = std::mem::take(&mut *self.lock_free());
        // Freed without the lock.
        drop(unused);
    }

    /// Locks the lists. A panic while they are locked leaves them whole: nothing is called under
    /// the lock.
    fn lock_free(&self) -> MutexGuard<'_, FreeBuffers> {
        self.free_buffers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn take_back(&self, buffer: AlignedBuffer) {
        let capacity = buffer.capacity();
        let Some(class) = size_class(capacity) else {
            return;
        };
        let mut free = self.lock_free();
        if free.bytes + capacity <= self.limit {
            free.bytes += capacity;
            free.free[class].push(buffer);
        }
    }
}

/// Returns the list in which buffers of this size are kept, if they are.
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
