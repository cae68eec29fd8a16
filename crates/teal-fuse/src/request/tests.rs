//! Hand-made requests of every operation, and broken ones.

use super::*;
use crate::abi::{self, opcode::*};
use rustix::fs::OFlags;
use zerocopy::IntoBytes;

/// A message with extensions of `ext` bytes behind the body.
fn message(opcode: u32, body: &[&[u8]], ext: usize) -> Vec<u8> {
    let body = [body.concat(), vec![0xee; ext]].concat();
    let header = fuse_in_header {
        len: u32::try_from(40 + body.len()).unwrap(),
        opcode,
        unique: 6,
        nodeid: 7,
        uid: 8,
        gid: 9,
        pid: 10,
        total_extlen: u16::try_from(ext / 8).unwrap(),
        padding: 0,
    };
    [header.as_bytes(), &body].concat()
}

/// The operation as text, decoded with and without what may follow it.
fn shown(opcode: u32, body: &[&[u8]]) -> String {
    let text = |message: &[u8]| {
        let request = KernelRequest::decode(message, InitFlags::SETXATTR_EXT).unwrap();
        assert_eq!(
            (request.header.unique.get(), request.header.node.get()),
            (6, 7)
        );
        format!("{:?}", request.operation)
    };
    let plain = text(&message(opcode, body, 0));
    assert_eq!(
        plain,
        text(&message(opcode, body, 16)),
        "extensions are tolerated"
    );
    plain
}

fn error(opcode: u32, body: &[&[u8]]) -> DecodeError {
    KernelRequest::decode(&message(opcode, body, 0), InitFlags::empty()).unwrap_err()
}

#[test]
fn the_header_says_who_asks() {
    let message = message(FUSE_STATFS, &[], 0);
    let (header, body) = RequestHeader::split_message(&message).unwrap();
    assert_eq!(
        (header.uid, header.gid, header.pid, header.opcode),
        (8, 9, 10, FUSE_STATFS)
    );
    assert!(body.is_empty());
}

#[test]
fn operations_on_names() {
    assert_eq!(shown(FUSE_LOOKUP, &[b"a\0"]), "Lookup { name: [97] }");
    assert_eq!(shown(FUSE_UNLINK, &[b"a\0"]), "Unlink { name: [97] }");
    assert_eq!(shown(FUSE_RMDIR, &[b"a\0"]), "Rmdir { name: [97] }");
    assert_eq!(
        shown(FUSE_REMOVEXATTR, &[b"a\0"]),
        "Removexattr { name: [97] }"
    );
    assert_eq!(
        shown(FUSE_SYMLINK, &[b"a\0", b"b\0"]),
        "Symlink { name: [97], target: [98] }"
    );
    let mknod = abi::fuse_mknod_in {
        mode: 0o010_644,
        rdev: 5,
        umask: 0o22,
        padding: 0,
    };
    assert_eq!(
        shown(FUSE_MKNOD, &[mknod.as_bytes(), b"a\0"]),
        "Mknod { name: [97], kind: Fifo, perm: 420, rdev: 5, umask: 18 }"
    );
    let mkdir = abi::fuse_mkdir_in {
        mode: 0o040_755,
        umask: 2,
    };
    assert_eq!(
        shown(FUSE_MKDIR, &[mkdir.as_bytes(), b"a\0"]),
        "Mkdir { name: [97], perm: 493, umask: 2 }"
    );
    let rename = abi::fuse_rename_in { newdir: 3 };
    let to = "Rename { name: [97], new_parent: NodeId(3), new_name: [98], flags: RenameFlags";
    assert_eq!(
        shown(FUSE_RENAME, &[rename.as_bytes(), b"a\0b\0"]),
        format!("{to}(0x0) }}")
    );
    let rename = abi::fuse_rename2_in {
        newdir: 3,
        flags: 2,
        padding: 0,
    };
    assert_eq!(
        shown(FUSE_RENAME2, &[rename.as_bytes(), b"a\0b\0"]),
        format!("{to}(EXCHANGE) }}")
    );
    let link = abi::fuse_link_in { oldnodeid: 5 };
    assert_eq!(
        shown(FUSE_LINK, &[link.as_bytes(), b"a\0"]),
        "Link { target: NodeId(5), name: [97] }"
    );
    let create = abi::fuse_create_in {
        flags: 1,
        mode: 0o100_600,
        umask: 3,
        open_flags: 1,
    };
    assert_eq!(
        shown(FUSE_CREATE, &[create.as_bytes(), b"a\0"]),
        "Create { name: [97], flags: OFlags(WRONLY), perm: 384, umask: 3, kill_suidgid: true }"
    );
    assert_eq!(
        shown(FUSE_TMPFILE, &[create.as_bytes(), b"#1\0"]),
        "Tmpfile { flags: OFlags(WRONLY), perm: 384, umask: 3, kill_suidgid: true }"
    );
}

#[test]
fn operations_on_attributes() {
    let getattr = abi::fuse_getattr_in {
        getattr_flags: 1,
        dummy: 0,
        fh: 4,
    };
    assert_eq!(
        shown(FUSE_GETATTR, &[getattr.as_bytes()]),
        "Getattr { handle: Some(Handle(4)) }"
    );
    let getattr = abi::fuse_getattr_in {
        getattr_flags: 0,
        dummy: 0,
        fh: 4,
    };
    assert_eq!(
        shown(FUSE_GETATTR, &[getattr.as_bytes()]),
        "Getattr { handle: None }"
    );
    let statx = abi::fuse_statx_in {
        getattr_flags: 0,
        reserved: 0,
        fh: 0,
        sx_flags: 1,
        sx_mask: 0xfff,
    };
    assert_eq!(
        shown(FUSE_STATX, &[statx.as_bytes()]),
        "Statx { handle: None, flags: 1, mask: 4095 }"
    );
    assert_eq!(shown(FUSE_READLINK, &[]), "Readlink");
    assert_eq!(shown(FUSE_STATFS, &[]), "Statfs");
    let access = abi::fuse_access_in {
        mask: 4,
        padding: 0,
    };
    assert_eq!(
        shown(FUSE_ACCESS, &[access.as_bytes()]),
        "Access { mask: Access(READ_OK) }"
    );
    let get = abi::fuse_getxattr_in {
        size: 99,
        padding: 0,
    };
    assert_eq!(
        shown(FUSE_GETXATTR, &[get.as_bytes(), b"a\0"]),
        "Getxattr { name: [97], size: 99 }"
    );
    assert_eq!(
        shown(FUSE_LISTXATTR, &[get.as_bytes()]),
        "Listxattr { size: 99 }"
    );
    let set = abi::fuse_setxattr_in {
        size: 2,
        flags: 1,
        setxattr_flags: 1,
        padding: 0,
    };
    let shown_set = "Setxattr { name: [97], value: [1, 0], flags: XattrFlags(CREATE), kill_sgid: ";
    assert_eq!(
        shown(FUSE_SETXATTR, &[set.as_bytes(), b"a\0\x01\0"]),
        format!("{shown_set}true }}")
    );
    let short = message(FUSE_SETXATTR, &[&set.as_bytes()[..8], b"a\0\x01\0"], 0);
    let short = KernelRequest::decode(&short, InitFlags::empty()).unwrap();
    assert_eq!(
        format!("{:?}", short.operation),
        format!("{shown_set}false }}")
    );
}

#[test]
fn a_setattr_holds_what_its_bits_say() {
    let raw = abi::fuse_setattr_in {
        valid: abi::FATTR_MODE
            | abi::FATTR_SIZE
            | abi::FATTR_ATIME
            | abi::FATTR_ATIME_NOW
            | abi::FATTR_MTIME,
        mode: 0o104_755,
        size: 11,
        mtime: (-1_i64).cast_unsigned(),
        mtimensec: 5,
        uid: 77,
        ..Default::default()
    };
    let bytes = message(FUSE_SETATTR, &[raw.as_bytes()], 0);
    let FuseOperation::Setattr(set) = KernelRequest::decode(&bytes, InitFlags::empty())
        .unwrap()
        .operation
    else {
        panic!("another operation")
    };
    let expected = SetattrRequest {
        perm: Some(0o4755),
        size: Some(11),
        atime: Some(TimeSet::Now),
        mtime: Some(TimeSet::At(teal_types::Timestamp::new(-1, 5))),
        ..Default::default()
    };
    assert_eq!(set, expected);
    let raw = abi::fuse_setattr_in {
        valid: u32::MAX,
        ..Default::default()
    };
    assert!(
        shown(FUSE_SETATTR, &[raw.as_bytes()])
            .contains("lock_owner: Some(LockOwner(0)), kill_suidgid: true")
    );
}

#[test]
fn operations_on_open_files() {
    let open = abi::fuse_open_in {
        flags: OFlags::RDWR.bits(),
        open_flags: 0,
    };
    assert_eq!(
        shown(FUSE_OPEN, &[open.as_bytes()]),
        "Open { flags: OFlags(RDWR), kill_suidgid: false }"
    );
    assert_eq!(
        shown(FUSE_OPENDIR, &[open.as_bytes()]),
        "Opendir { flags: OFlags(RDWR) }"
    );
    let read = abi::fuse_read_in {
        fh: 1,
        offset: 2,
        size: 3,
        read_flags: 2,
        lock_owner: 4,
        flags: OFlags::RDWR.bits(),
        padding: 0,
    };
    assert_eq!(
        shown(FUSE_READ, &[read.as_bytes()]),
        "Read { handle: Handle(1), offset: 2, size: 3, flags: OFlags(RDWR), lock_owner: Some(LockOwner(4)) }"
    );
    assert_eq!(
        shown(FUSE_READDIR, &[read.as_bytes()]),
        "Readdir { handle: Handle(1), cookie: 2, size: 3 }"
    );
    assert_eq!(
        shown(FUSE_READDIRPLUS, &[read.as_bytes()]),
        "Readdirplus { handle: Handle(1), cookie: 2, size: 3 }"
    );
    let write = abi::fuse_write_in {
        fh: 1,
        offset: 2,
        size: 3,
        write_flags: 5,
        lock_owner: 4,
        flags: OFlags::RDWR.bits(),
        padding: 0,
    };
    assert_eq!(
        shown(FUSE_WRITE, &[write.as_bytes(), b"a\0c"]),
        "Write { handle: Handle(1), offset: 2, data: [97, 0, 99], flags: OFlags(RDWR), lock_owner: None, cached: true, \
         kill_suidgid: true }"
    );
    let release = abi::fuse_release_in {
        fh: 1,
        flags: OFlags::RDWR.bits(),
        release_flags: 2,
        lock_owner: 3,
    };
    assert_eq!(
        shown(FUSE_RELEASE, &[release.as_bytes()]),
        "Release { handle: Handle(1), flags: OFlags(RDWR), lock_owner: LockOwner(3), flush: false, flock_unlock: true }"
    );
    assert_eq!(
        shown(FUSE_RELEASEDIR, &[release.as_bytes()]),
        "Releasedir { handle: Handle(1), flags: OFlags(RDWR) }"
    );
    let fsync = abi::fuse_fsync_in {
        fh: 1,
        fsync_flags: 1,
        padding: 0,
    };
    assert_eq!(
        shown(FUSE_FSYNC, &[fsync.as_bytes()]),
        "Fsync { handle: Handle(1), datasync: true }"
    );
    assert_eq!(
        shown(FUSE_FSYNCDIR, &[fsync.as_bytes()]),
        "Fsyncdir { handle: Handle(1), datasync: true }"
    );
    let flush = abi::fuse_flush_in {
        fh: 1,
        unused: 0,
        padding: 0,
        lock_owner: 2,
    };
    assert_eq!(
        shown(FUSE_FLUSH, &[flush.as_bytes()]),
        "Flush { handle: Handle(1), lock_owner: LockOwner(2) }"
    );
    let fallocate = abi::fuse_fallocate_in {
        fh: 1,
        offset: 2,
        length: 3,
        mode: 1,
        padding: 0,
    };
    assert_eq!(
        shown(FUSE_FALLOCATE, &[fallocate.as_bytes()]),
        "Fallocate { handle: Handle(1), offset: 2, length: 3, mode: FallocateFlags(KEEP_SIZE) }"
    );
    let lseek = abi::fuse_lseek_in {
        fh: 1,
        offset: 2,
        whence: 3,
        padding: 0,
    };
    assert_eq!(
        shown(FUSE_LSEEK, &[lseek.as_bytes()]),
        "Lseek { handle: Handle(1), offset: 2, whence: 3 }"
    );
    let copy = abi::fuse_copy_file_range_in {
        fh_in: 1,
        off_in: 2,
        nodeid_out: 3,
        fh_out: 4,
        off_out: 5,
        len: 6,
        flags: 0,
    };
    for opcode in [FUSE_COPY_FILE_RANGE, FUSE_COPY_FILE_RANGE_64] {
        assert_eq!(
            shown(opcode, &[copy.as_bytes()]),
            "CopyFileRange { handle: Handle(1), offset: 2, to_node: NodeId(3), to_handle: Handle(4), to_offset: 5, \
             length: 6, flags: 0 }"
        );
    }
}

#[test]
fn locks_of_both_kinds_differ() {
    let lock = |flags| abi::fuse_lk_in {
        fh: 1,
        owner: 2,
        lk: abi::fuse_file_lock {
            start: 3,
            end: 4,
            type_: 1,
            pid: 5,
        },
        lk_flags: flags,
        padding: 0,
    };
    let request = "LockRequest { handle: Handle(1), owner: LockOwner(2), lock: FileLock { start: 3, end: 4, kind: Write, pid: 5 }, \
                   flock: ";
    assert_eq!(
        shown(FUSE_GETLK, &[lock(0).as_bytes()]),
        format!("Getlk({request}false }})")
    );
    assert_eq!(
        shown(FUSE_SETLK, &[lock(1).as_bytes()]),
        format!("Setlk {{ request: {request}true }}, wait: false }}")
    );
    assert_eq!(
        shown(FUSE_SETLKW, &[lock(0).as_bytes()]),
        format!("Setlk {{ request: {request}false }}, wait: true }}")
    );
    let mut bad = lock(0);
    bad.lk.type_ = 3;
    assert_eq!(
        error(FUSE_GETLK, &[bad.as_bytes()]),
        DecodeError::Value {
            opcode: FUSE_GETLK,
            field: "type"
        }
    );
}

#[test]
fn operations_of_the_connection_and_of_devices() {
    assert_eq!(
        shown(FUSE_FORGET, &[&3_u64.to_ne_bytes()]),
        "Forget { lookups: 3 }"
    );
    let two = [5_u64, 6, 7, 8].map(u64::to_ne_bytes).concat();
    let batch = abi::fuse_batch_forget_in { count: 2, dummy: 0 };
    let bytes = message(FUSE_BATCH_FORGET, &[batch.as_bytes(), &two], 0);
    let FuseOperation::BatchForget(forgets) = KernelRequest::decode(&bytes, InitFlags::empty())
        .unwrap()
        .operation
    else {
        panic!("another operation")
    };
    let expected = [(5, 6), (7, 8)].map(|(node, lookups)| ForgetRecord {
        node: NodeId::new(node),
        lookups,
    });
    assert!(forgets.eq(expected));
    assert_eq!(
        shown(FUSE_INTERRUPT, &[&3_u64.to_ne_bytes()]),
        "Interrupt { unique: Unique(3) }"
    );
    assert_eq!(shown(FUSE_DESTROY, &[]), "Destroy");
    assert_eq!(shown(FUSE_SYNCFS, &[&[0; 8]]), "Syncfs");
    let bmap = abi::fuse_bmap_in {
        block: 1,
        blocksize: 2,
        padding: 0,
    };
    assert_eq!(
        shown(FUSE_BMAP, &[bmap.as_bytes()]),
        "Bmap { block: 1, block_size: 2 }"
    );
    let ioctl = abi::fuse_ioctl_in {
        fh: 1,
        flags: 2,
        cmd: 3,
        arg: 4,
        in_size: 1,
        out_size: 5,
    };
    assert_eq!(
        shown(FUSE_IOCTL, &[ioctl.as_bytes(), b"a"]),
        "Ioctl(IoctlRequest { handle: Handle(1), flags: 2, command: 3, argument: 4, input: [97], output_size: 5 })"
    );
    let poll = abi::fuse_poll_in {
        fh: 1,
        kh: 2,
        flags: 1,
        events: 3,
    };
    assert_eq!(
        shown(FUSE_POLL, &[poll.as_bytes()]),
        "Poll { handle: Handle(1), wakeup: 2, events: 3, schedule_notify: true }"
    );
    let retrieved = abi::fuse_notify_retrieve_in {
        offset: 1,
        size: 1,
        ..Default::default()
    };
    assert_eq!(
        shown(FUSE_NOTIFY_REPLY, &[retrieved.as_bytes(), b"a"]),
        "NotifyReply { offset: 1, data: [97] }"
    );
    let map = abi::fuse_setupmapping_in {
        fh: 1,
        foffset: 2,
        len: 3,
        flags: 4,
        moffset: 5,
    };
    assert_eq!(
        shown(FUSE_SETUPMAPPING, &[map.as_bytes()]),
        "SetupMapping { handle: Handle(1), file_offset: 2, length: 3, flags: 4, window_offset: 5 }"
    );
    let bytes = message(FUSE_REMOVEMAPPING, &[&1_u32.to_ne_bytes(), &two[..16]], 0);
    let FuseOperation::RemoveMapping(ranges) = KernelRequest::decode(&bytes, InitFlags::empty())
        .unwrap()
        .operation
    else {
        panic!("another operation")
    };
    assert!(ranges.eq([RemoveMapping {
        window_offset: 5,
        length: 6
    }]));
    assert_eq!(shown(54, &[b"whatever"]), "Unknown(54)");
    assert_eq!(shown(7, &[]), "Unknown(7)");
}

#[test]
fn init_of_old_and_new_kernels() {
    let words = |words: &[u32]| {
        words
            .iter()
            .flat_map(|w| w.to_ne_bytes())
            .collect::<Vec<_>>()
    };
    let decoded = |body: &[u32]| {
        let bytes = message(FUSE_INIT, &[&words(body)], 0);
        let FuseOperation::Init(init) = KernelRequest::decode(&bytes, InitFlags::empty())
            .unwrap()
            .operation
        else {
            panic!("another operation")
        };
        init
    };
    let old = InitRequest {
        major: 7,
        minor: 31,
        max_readahead: 9,
        flags: InitFlags::ASYNC_READ,
    };
    assert_eq!(decoded(&[7, 31, 9, 1]), old);
    let ext = InitFlags::INIT_EXT | InitFlags::HAS_EXPIRE_ONLY;
    assert_eq!(decoded(&[7, 45, 9, 1 << 30, 1 << 3]).flags, ext);
    assert_eq!(
        decoded(&[8, 0]),
        InitRequest {
            major: 8,
            minor: 0,
            max_readahead: 0,
            flags: InitFlags::empty()
        }
    );
}

#[test]
fn broken_requests_are_errors() {
    assert_eq!(
        error(FUSE_LOOKUP, &[b"a"]),
        DecodeError::Name {
            opcode: FUSE_LOOKUP
        }
    );
    assert_eq!(
        error(FUSE_LOOKUP, &[b"\0"]),
        DecodeError::Name {
            opcode: FUSE_LOOKUP
        }
    );
    assert_eq!(
        error(FUSE_RENAME, &[&[0; 8], b"a\0b"]),
        DecodeError::Name {
            opcode: FUSE_RENAME
        }
    );
    assert_eq!(
        error(FUSE_GETATTR, &[&[0; 15]]),
        DecodeError::Short {
            opcode: FUSE_GETATTR
        }
    );
    assert_eq!(
        error(FUSE_MKNOD, &[&[0; 16], b"a\0"]),
        DecodeError::Value {
            opcode: FUSE_MKNOD,
            field: "mode"
        }
    );
    for size in [2_u32, 4, u32::MAX] {
        let write = abi::fuse_write_in {
            size,
            ..Default::default()
        };
        assert_eq!(
            error(FUSE_WRITE, &[write.as_bytes(), b"abc"]),
            DecodeError::Short { opcode: FUSE_WRITE }
        );
    }
    let many = abi::fuse_batch_forget_in {
        count: u32::MAX,
        dummy: 0,
    };
    assert_eq!(
        error(FUSE_BATCH_FORGET, &[many.as_bytes()]),
        DecodeError::Short {
            opcode: FUSE_BATCH_FORGET
        }
    );
    let whole = message(FUSE_STATFS, &[b"x"], 0);
    for read in [0, 39, 40] {
        assert_eq!(
            RequestHeader::split_message(&whole[..read]).unwrap_err(),
            DecodeError::Length { read }
        );
    }
    let mut ext = message(FUSE_STATFS, &[], 8);
    ext[36] = 2;
    assert_eq!(
        RequestHeader::split_message(&ext).unwrap_err(),
        DecodeError::Length { read: 48 }
    );
}
