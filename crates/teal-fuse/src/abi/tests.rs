//! The layout the kernel expects, as `sizeof` of the kernel's header on Linux 6.18.

use super::*;
use std::mem::{align_of, offset_of, size_of};

macro_rules! sizes {
    ($($name:ident = $size:literal,)*) => { &[$((stringify!($name), size_of::<$name>(), $size)),*] };
}

/// Name, size here, size in the kernel.
const SIZES: &[(&str, usize, usize)] = sizes! {
    fuse_attr = 88,
    fuse_kstatfs = 80,
    fuse_file_lock = 24,
    fuse_entry_out = 128,
    fuse_forget_in = 8,
    fuse_forget_one = 16,
    fuse_batch_forget_in = 8,
    fuse_getattr_in = 16,
    fuse_attr_out = 104,
    fuse_mknod_in = 16,
    fuse_mkdir_in = 8,
    fuse_rename_in = 8,
    fuse_rename2_in = 16,
    fuse_link_in = 8,
    fuse_setattr_in = 88,
    fuse_open_in = 8,
    fuse_create_in = 16,
    fuse_open_out = 16,
    fuse_release_in = 24,
    fuse_flush_in = 24,
    fuse_read_in = 40,
    fuse_write_in = 40,
    fuse_write_out = 8,
    fuse_statfs_out = 80,
    fuse_fsync_in = 16,
    fuse_setxattr_in = 16,
    fuse_getxattr_in = 8,
    fuse_getxattr_out = 8,
    fuse_lk_in = 48,
    fuse_lk_out = 24,
    fuse_access_in = 8,
    fuse_init_in = 64,
    fuse_init_out = 64,
    cuse_init_in = 16,
    cuse_init_out = 72,
    fuse_interrupt_in = 8,
    fuse_bmap_in = 16,
    fuse_bmap_out = 8,
    fuse_ioctl_in = 32,
    fuse_ioctl_iovec = 16,
    fuse_ioctl_out = 16,
    fuse_poll_in = 24,
    fuse_poll_out = 8,
    fuse_notify_poll_wakeup_out = 8,
    fuse_fallocate_in = 32,
    fuse_in_header = 40,
    fuse_out_header = 16,
    fuse_dirent = 24,
    fuse_direntplus = 152,
    fuse_notify_inval_inode_out = 24,
    fuse_notify_inval_entry_out = 16,
    fuse_notify_delete_out = 24,
    fuse_notify_store_out = 24,
    fuse_notify_retrieve_out = 32,
    fuse_notify_retrieve_in = 40,
    fuse_lseek_in = 24,
    fuse_lseek_out = 8,
    fuse_copy_file_range_in = 56,
    fuse_setupmapping_in = 40,
    fuse_removemapping_in = 4,
    fuse_removemapping_one = 16,
    fuse_syncfs_in = 8,
    fuse_secctx = 8,
    fuse_secctx_header = 8,
    fuse_ext_header = 8,
    fuse_statx = 256,
    fuse_sx_time = 16,
    fuse_statx_in = 24,
    fuse_statx_out = 288,
    fuse_supp_groups = 4,
    fuse_copy_file_range_out = 8,
    fuse_notify_prune_out = 16,
    fuse_backing_map = 16,
    fuse_uring_ent_in_out = 32,
    fuse_uring_req_header = 288,
    fuse_uring_cmd_req = 24,
};

#[test]
fn every_struct_has_the_size_the_kernel_checks() {
    for (name, here, kernel) in SIZES {
        assert_eq!(here, kernel, "{name}");
    }
}

#[test]
fn what_was_added_after_the_generated_header_lies_where_the_kernel_reads_it() {
    assert_eq!(align_of::<fuse_init_out>(), 4);
    assert_eq!(offset_of!(fuse_init_out, flags2), 32);
    assert_eq!(offset_of!(fuse_init_out, max_stack_depth), 36);
    assert_eq!(offset_of!(fuse_init_out, request_timeout), 40);
    assert_eq!(opcode::FUSE_STATX, fuse_opcode::FUSE_STATX as u32);
    assert_eq!(opcode::FUSE_TMPFILE, fuse_opcode::FUSE_TMPFILE as u32);
}
