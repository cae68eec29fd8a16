//! Operations on a volume that has a server, which cannot be asked.

use crate::fixture::ROOT;
use std::sync::Arc;
use std::time::Duration;
use teal_device::{Upstream, UpstreamError};
use teal_env::MemDisk;
use teal_log::{MkfsOptions, OpenOptions, Store};
use teal_posix::{Caller, FileSystem, FileSystemOptions, SetAttrRequest, WriteFlags};
use teal_proto::{ClientRequest, ServerReply};
use teal_replica::UpstreamOptions;
use teal_testkit::{SeededEntropy, SimClock};

const MIB: u64 = 1 << 20;

#[derive(Debug)]
struct Away;

impl Upstream for Away {
    fn call(&self, _: &ClientRequest, _: Duration) -> Result<ServerReply, UpstreamError> {
        Err(UpstreamError::Unreachable("away".into()))
    }
}

fn file_system() -> Arc<FileSystem> {
    let (disk, clock) = (
        Arc::new(MemDisk::new(64 * MIB / 512)),
        Arc::new(SimClock::default()),
    );
    let (entropy, options) = (SeededEntropy::new(7), MkfsOptions::default());
    Store::mkfs(disk.clone(), clock.clone(), &entropy, &options).unwrap();
    let (store, _) = Store::open(disk, clock.clone(), OpenOptions::default()).unwrap();
    let options = FileSystemOptions {
        reclaim_step: MIB,
        ..FileSystemOptions::default()
    };
    let of_upstream = (false, UpstreamOptions::default());
    FileSystem::replica_of(store, clock, options, Arc::new(Away), "here", of_upstream).unwrap()
}

/// Punching shared content in steps locks the content for each step: the truncation must not hold
/// that lock already.
#[test]
fn a_large_file_of_shared_content_is_truncated_on_a_replica() {
    let fs = file_system();
    let create = |name: &str| {
        let made = fs.create(&Caller::default(), ROOT, name.as_bytes(), 0o644, true);
        made.unwrap().object
    };
    let (file, copy) = (create("file"), create("copy"));
    let data: Vec<u8> = (0..3 * MIB).map(|at| (at / 4096) as u8).collect();
    let flags = WriteFlags::default();
    assert_eq!(fs.write(file, 0, &data, flags).unwrap(), data.len());
    let copied = fs.copy_file_range((file, 0), (copy, 0), 3 * MIB, flags);
    assert_eq!(copied.unwrap(), 3 * MIB);
    let cut = SetAttrRequest {
        size: Some(4096),
        ..SetAttrRequest::default()
    };
    assert_eq!(fs.setattr(copy, &cut).unwrap().size, 4096);
    assert_eq!(fs.read(copy, 0, 8192).unwrap(), data[..4096]);
    assert_eq!(fs.read(file, 0, data.len()).unwrap(), data);
    let left = fs.replica().unwrap().left_to_send().unwrap();
    assert_eq!(
        (left.objects, left.bytes),
        (3, 3 * MIB + 4096),
        "the root, and both files"
    );
}
