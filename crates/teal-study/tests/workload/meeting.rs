//! Threads that wait for each other, limits.

use super::{count, figures, run};

/// Two threads: one posts, one takes.
fn pair(first: &str, second: &str, end: &str) -> String {
    format!(
        "set mode quit firstdone\ndefine process name=pp {{\n thread name=one {{ {first}\n{end} }}\n thread name=two {{ {second} }}\n}}\nrun"
    )
}

#[test]
fn tokens_that_are_taken_have_been_posted() {
    let dir = tempfile::tempdir().unwrap();
    let text = pair(
        "flowop semblock name=take,value=5",
        "flowop sempost name=give,value=1,target=take",
        "flowop finishoncount name=end,value=20,target=take",
    );
    let outcome = run(dir.path(), &text);
    assert_eq!(count(&outcome, "take"), 20);
    // What was on its way at the end is not counted.
    assert!(
        count(&outcome, "give") + 1 >= 100,
        "{}",
        count(&outcome, "give")
    );
}

#[test]
fn whoever_posts_with_blocking_is_a_high_water_ahead_at_most() {
    let dir = tempfile::tempdir().unwrap();
    let text = pair(
        "flowop semblock name=take,value=5,highwater=10",
        "flowop sempost name=give,value=1,target=take,blocking",
        "flowop finishoncount name=end,value=20,target=take",
    );
    let give = count(&run(dir.path(), &text), "give");
    assert!((99..=111).contains(&give), "{give}");
}

#[test]
fn every_instance_of_the_target_gets_its_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let text = "set mode quit alldone\ndefine process name=takers,instances=3 { thread name=taker {\n\
        flowop semblock name=take,value=2\nflowop finishoncount name=end,value=1,target=take } }\n\
        define process name=giver { thread name=giver {\nflowop sempost name=give,value=1,target=take\n\
        flowop finishoncount name=over,value=2,target=give } }\nrun";
    let outcome = run(dir.path(), text);
    assert_eq!((count(&outcome, "take"), count(&outcome, "give")), (3, 2));
}

#[test]
fn blocked_threads_go_on_when_they_are_woken() {
    let dir = tempfile::tempdir().unwrap();
    let text = pair(
        "flowop block name=wait",
        "flowop wakeup name=wake,target=wait",
        "flowop finishoncount name=end,value=10,target=wait",
    );
    let outcome = run(dir.path(), &text);
    assert_eq!(count(&outcome, "wait"), 10);
    assert!(count(&outcome, "wake") + 1 >= 10);
}

#[test]
fn limits_let_as_many_pass_as_there_are_events() {
    let dir = tempfile::tempdir().unwrap();
    let limited = |limit: &str, target: &str, value: u64| {
        let text = format!(
            "set mode quit firstdone\neventgen rate=1000\ndefine fileset name=ff,path=$dir,entries=1,size=1m,dirwidth=5,prealloc\n\
             define process name=pp {{ thread name=tt {{\nflowop read name=rr,filename=ff,fd=1,iosize=512k\n{limit}\n\
             flowop finishoncount name=end,value={value},target={target} }} }}\nrun"
        );
        run(dir.path(), &text)
    };
    // As fast as the events come and not faster: a thousand in a second.
    for (limit, value, events) in [
        ("flowop eventlimit name=ll", 100, 100),
        ("flowop iopslimit name=ll", 100, 99),
        ("flowop opslimit name=ll,target=rr", 100, 99),
        ("flowop bwlimit name=ll", 300, 99),
    ] {
        let outcome = limited(limit, "ll", value);
        assert_eq!(count(&outcome, "ll"), value, "{limit}");
        assert!(
            outcome.nanos >= events * 1_000_000,
            "{limit}: {} ns",
            outcome.nanos
        );
    }
    assert_eq!(
        figures(&limited("flowop hog name=ll,value=3", "rr", 10), "rr").count,
        10
    );
}

#[test]
fn limits_without_a_source_let_everything_pass() {
    let dir = tempfile::tempdir().unwrap();
    let text = pair(
        "flowop eventlimit name=ll",
        "flowop delay name=dd,value=3600",
        "flowop finishoncount name=end,value=1000,target=ll",
    );
    assert_eq!(
        count(&run(dir.path(), &text), "ll"),
        1000,
        "and a thread that sleeps an hour is woken by the end"
    );
}
