//! Carries messages between kernel and server: the real device, and one in memory.

mod channel;
mod dev;
mod memory;

pub use channel::{MessageSink, Transport};
pub(crate) use dev::DEV_FUSE;
pub use dev::DevFuse;
pub use memory::{MemoryKernel, MemoryTransport, ServerMessage, memory_pair};
