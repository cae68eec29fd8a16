//! How runs end; composite flowops, messages, several processes.

use super::{Heard, body, count, figures, options, run, try_run};
use teal_env::SystemClock;
use teal_study::wml::parse_script;
use teal_study::workload::{RunError, WorkloadOptions, execute_plan, plan_script};

const ALL: &str = "flowop createfile name=cc,filename=ff,fd=1\nflowop closefile name=close,fd=1";

#[test]
fn a_thread_that_runs_out_of_files_ends_the_run_as_its_mode_says() {
    let dir = tempfile::tempdir().unwrap();
    let text = |mode: &str| {
        body("entries=7,size=1k", ALL, "cc", 1000).replace("set mode quit firstdone", mode)
    };
    let outcome = run(dir.path(), &text("set mode quit firstdone"));
    assert_eq!(count(&outcome, "cc"), 7);
    assert!(
        outcome
            .ended
            .contains("'cc' found no file in 'ff' that is missing"),
        "{}",
        outcome.ended
    );
    assert_eq!(
        count(&run(dir.path(), &text("set mode quit alldone")), "cc"),
        7
    );
    let error = try_run(dir.path(), false, &text("set mode quit timeout")).unwrap_err();
    assert!(matches!(error, RunError::Early(_)), "{error}");
    assert!(error.to_string().contains("no valid results"), "{error}");
}

#[test]
fn alldone_waits_for_the_last_thread() {
    let dir = tempfile::tempdir().unwrap();
    let text = "set mode quit alldone\ndefine process name=pp,instances=2 {\n thread name=few,instances=2 {\n\
        flowop hog name=aa\n flowop finishoncount name=end1,value=40,target=aa }\n\
        thread name=many {\n flowop hog name=bb,iters=100\n flowop finishoncount name=end2,value=5000,target=bb }\n}\nrun";
    let outcome = run(dir.path(), text);
    assert_eq!(outcome.threads, 6);
    assert!(
        (40..44).contains(&count(&outcome, "aa")),
        "all instances count together: {}",
        count(&outcome, "aa")
    );
    assert!((5000..5200).contains(&count(&outcome, "bb")));
}

#[test]
fn bytes_end_a_run_too_by_target_or_by_process() {
    let dir = tempfile::tempdir().unwrap();
    for target in [",target=ww", ""] {
        let text = body(
            "entries=1,size=4k,prealloc",
            "flowop write name=ww,filename=ff,fd=1,iosize=4k",
            "ww",
            1_000_000,
        )
        .replace(
            "flowop finishoncount name=end",
            &format!(
                "flowop finishonbytes name=by,value=20k{target}\nflowop finishoncount name=end"
            ),
        );
        let outcome = run(dir.path(), &text);
        assert_eq!(
            figures(&outcome, "ww").bytes,
            6 * 4096,
            "more than 20 KiB, not as much"
        );
    }
}

#[test]
fn a_number_of_operations_ends_a_run_and_is_exact() {
    let dir = tempfile::tempdir().unwrap();
    let text = "define fileset name=ff,path=$dir,entries=40,size=1k,dirwidth=100,prealloc\n\
        define process name=pp { thread name=tt,instances=8 {\n flowop hog name=hh\n flowop openfile name=oo,filesetname=ff,fd=1\n\
        flowop read name=rr,fd=1,iosize=1k\n flowop closefile name=cc,fd=1 } }\nrun 600";
    let script = parse_script("t.wml", text, &mut |_| Err("no".into())).unwrap();
    for operations in [1, 1000] {
        let plan = plan_script(
            &script,
            WorkloadOptions {
                operations: Some(operations),
                ..options(dir.path(), false)
            },
        )
        .unwrap();
        let outcome = execute_plan(&plan, &SystemClock, &Heard::default())
            .unwrap()
            .unwrap();
        assert_eq!(
            outcome.summary().all.count,
            operations,
            "those that do no I/O are not among them"
        );
        assert_eq!(outcome.ended, "all operations were done");
    }
}

#[test]
fn composite_flowops_count_by_what_is_in_them() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "define flowop name=pair,$times=1 {{\n flowop statfile name=st,filename=ff,iters=$times\n flowop hog name=hh\n}}\n{}",
        body(
            "entries=3,size=1k,prealloc",
            "flowop pair name=one,iters=4\nflowop pair name=two,$times=3",
            "one.hh",
            20
        )
    );
    let outcome = run(dir.path(), &text);
    let counts = ["one.st", "one.hh", "two.st", "two.hh"].map(|name| count(&outcome, name));
    assert_eq!(counts, [20, 20, 15, 5]);
}

#[test]
fn a_random_number_of_iterations_is_drawn_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "set $some=randvar(type=tabular,randtable={{{{80,1,1}},{{20,0,0}}}},seed=1)\n{}",
        body(
            "entries=3,size=1k,prealloc",
            "flowop statfile name=st,filename=ff,iters=$some\nflowop hog name=hh",
            "hh",
            4000
        )
    );
    let share = count(&run(dir.path(), &text), "st") as f64 / 4000.0;
    assert!((0.77..0.83).contains(&share), "{share}");
}

#[test]
fn names_that_come_twice_are_added_up() {
    let dir = tempfile::tempdir().unwrap();
    let text = "set mode quit alldone\ndefine process name=pp,instances=5 { thread name=tt,instances=3 {\n\
        flowop hog name=hh\nflowop finishoncount name=end,value=1,target=hh } }\nrun";
    let outcome = run(dir.path(), text);
    assert_eq!((outcome.threads, outcome.lines.len()), (15, 2));
    assert_eq!(
        count(&outcome, "hh"),
        count(&outcome, "end"),
        "each has done both once"
    );
}

#[test]
fn messages_are_heard() {
    let dir = tempfile::tempdir().unwrap();
    let text = "echo \"begins\"\nset mode quit firstdone\ndebug 3\nset $rr=randvar(type=uniform,mean=10,min=10)\n\
        define process name=pp { thread name=tt {\nflowop print name=pp,value=\"hello\"\nflowop testrandvar name=rv,value=$rr\n\
        flowop finishoncount name=end,value=2,target=rv } }\nrun";
    let script = parse_script("t.wml", text, &mut |_| Err("no".into())).unwrap();
    let plan = plan_script(&script, options(dir.path(), false)).unwrap();
    let heard = Heard::default();
    let outcome = execute_plan(&plan, &SystemClock, &heard).unwrap().unwrap();
    assert_eq!(*heard.0.lock().unwrap(), ["begins", "hello", "hello"]);
    assert!(
        outcome
            .ended
            .contains("rv: mean 10.000, relative standard deviation 0.000"),
        "{}",
        outcome.ended
    );
}

#[test]
fn the_same_seed_does_the_same() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let text = body(
        "entries=20,size=1k,prealloc=50",
        "flowop appendfilerand name=aa,filename=ff,iosize=4k,opennext",
        "aa",
        200,
    );
    run(one.path(), &text);
    run(two.path(), &text);
    assert_eq!(super::sizes(one.path()), super::sizes(two.path()));
}
