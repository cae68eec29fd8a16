//! The exact bytes of notifications.

use super::*;
use crate::session::InitConfig;
use crate::transport::memory_pair;
use std::sync::Arc;

fn sent(flags: InitFlags, tell: impl Fn(&KernelNotifier) -> Result<bool, Errno>) -> (i32, Vec<u8>) {
    let (transport, kernel) = memory_pair();
    let offer = crate::request::InitRequest {
        major: 7,
        minor: 45,
        max_readahead: 0,
        flags,
    };
    let negotiated = InitConfig::default().negotiate(&offer);
    let transport: Arc<dyn Transport> = Arc::new(transport);
    let notifier = KernelNotifier::new(Arc::downgrade(&transport), negotiated);
    assert_eq!(tell(&notifier), Ok(true));
    drop(transport);
    assert_eq!(
        tell(&notifier),
        Err(Errno::NODEV),
        "no connection is kept alive"
    );
    let message = kernel.receive_message().unwrap();
    assert_eq!(message.unique, 0, "a notification answers nothing");
    (message.error, message.body)
}

fn numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_ne_bytes()).collect()
}

#[test]
fn golden_notifications() {
    let node = NodeId::new(3);
    let none = InitFlags::empty();
    assert_eq!(
        sent(none, |n| n.inval_attr(node)),
        (2, numbers(&[3, u64::MAX, 0]))
    );
    assert_eq!(
        sent(none, |n| n.inval_data(node, 4, 5)),
        (2, numbers(&[3, 4, 5]))
    );
    let name = |head: &[u64]| [numbers(head), b"ab\0".to_vec()].concat();
    assert_eq!(
        sent(none, |n| n.inval_entry(node, b"ab")),
        (3, name(&[3, 2]))
    );
    assert_eq!(
        sent(none, |n| n.expire_entry(node, b"ab")),
        (3, name(&[3, 2])),
        "an old kernel drops it"
    );
    let expiring = InitFlags::HAS_EXPIRE_ONLY;
    assert_eq!(
        sent(expiring, |n| n.expire_entry(node, b"ab")),
        (3, name(&[3, 2 | 1 << 32]))
    );
    assert_eq!(
        sent(none, |n| n.notify_delete(node, NodeId::new(4), b"ab")),
        (6, name(&[3, 4, 2]))
    );
    let store = [numbers(&[3, 4, 2]), b"xy".to_vec()].concat();
    assert_eq!(sent(none, |n| n.store_data(node, 4, b"xy")), (4, store));
    let raised = [numbers(&[3, 8, 1]), vec![0]].concat();
    assert_eq!(
        sent(none, |n| n.raise_size(node, 9)),
        (4, raised),
        "the byte before the end, which nobody can read"
    );
    assert_eq!(sent(none, |n| n.poll_wakeup(9)), (1, numbers(&[9])));
    assert_eq!(sent(none, KernelNotifier::increment_epoch), (8, Vec::new()));
}

#[test]
fn offsets_beyond_what_a_file_can_have_are_refused() {
    let (transport, _kernel) = memory_pair();
    let offer = crate::request::InitRequest {
        major: 7,
        minor: 45,
        max_readahead: 0,
        flags: InitFlags::empty(),
    };
    let transport: Arc<dyn Transport> = Arc::new(transport);
    let notifier = KernelNotifier::new(
        Arc::downgrade(&transport),
        InitConfig::default().negotiate(&offer),
    );
    assert_eq!(
        notifier.inval_data(NodeId::ROOT, 1 << 63, 0),
        Err(Errno::INVAL)
    );
}
