//! How many queues the kernel wants.

use super::*;

#[test]
fn processors_are_counted() {
    assert_eq!(count_processors("0\n"), Some(1));
    assert_eq!(count_processors("0-1\n"), Some(2));
    assert_eq!(count_processors("0-3,8,10-11"), Some(7));
    assert_eq!(count_processors("3-1"), None);
    assert_eq!(count_processors("all"), None);
}
