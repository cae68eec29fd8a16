//! What a script comes to before anything runs.

use super::*;
use crate::wml::{WmlError, parse_script};
use crate::workload::random::{Distribution, ThreadDraws};
use crate::workload::shipped::SHIPPED;

fn options() -> WorkloadOptions {
    WorkloadOptions::new("/lab")
}

fn planned_with(text: &str, options: WorkloadOptions) -> Result<WorkloadPlan, WmlError> {
    plan_script(
        &parse_script("t.wml", text, &mut |_| Err("no".into()))?,
        options,
    )
}

#[track_caller]
fn planned(text: &str) -> WorkloadPlan {
    planned_with(text, options()).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn refused(text: &str, line: u32, word: &str) {
    let error = planned_with(text, options()).expect_err(text);
    assert!(
        error.line == line && error.message.contains(word),
        "{error}"
    );
}

const SET: &str = "define fileset name=ff,path=$dir,entries=10,size=16k,dirwidth=5,prealloc\n";

fn thread(body: &str) -> String {
    format!("{SET}define process name=pp {{ thread name=tt {{\n{body}\n}} }}\nrun 1")
}

fn ops(plan: &WorkloadPlan) -> &[PlannedFlowop] {
    &plan.processes[0].threads[0].ops
}

#[test]
fn every_workload_that_comes_along_is_sound() {
    for shipped in SHIPPED {
        let plan = planned(shipped.text);
        assert!(
            plan.thread_count() > 0 && !plan.filesets.is_empty(),
            "{}",
            shipped.name
        );
        assert!(
            shipped.text.starts_with("# ") && shipped.variables().count() > 1,
            "{}",
            shipped.name
        );
    }
}

#[test]
fn the_four_servers_have_the_parameters_of_the_study() {
    let facts = |name: &str| {
        let plan = planned(
            crate::workload::shipped::ShippedWorkload::by_name(name)
                .unwrap()
                .text,
        );
        let set = &plan.filesets[0];
        let size = match set.size {
            FixedOrDrawn::Fixed(size) => size as f64,
            FixedOrDrawn::Drawn(at) => match plan.randoms[at].distribution {
                Distribution::GammaOf(mean, _) => mean,
                _ => panic!("sizes are gamma"),
            },
        };
        let sizes = |is: fn(FlowopKind) -> bool| {
            let of = |op: &&PlannedFlowop| is(op.kind);
            let ops = plan
                .processes
                .iter()
                .flat_map(|p| &p.threads)
                .flat_map(|t| &t.ops);
            ops.filter(of).map(|op| op.iosize).collect::<Vec<_>>()
        };
        let same = |of: Vec<FixedOrDrawn>| {
            assert!(of.iter().all(|one| *one == of[0]));
            of[0]
        };
        (
            size,
            set.entries,
            same(sizes(FlowopKind::is_read)),
            same(sizes(FlowopKind::is_write)),
            plan.thread_count(),
        )
    };
    let (k16, m1, k2) = (
        FixedOrDrawn::Fixed(16 << 10),
        FixedOrDrawn::Fixed(1 << 20),
        FixedOrDrawn::Fixed(2 << 10),
    );
    assert_eq!(facts("webserver"), (32_768.0, 20_000, m1, k16, 100));
    assert_eq!(facts("fileserver"), (262_144.0, 50_000, m1, k16, 100));
    assert_eq!(facts("varmail"), (16_384.0, 50_000, m1, k16, 100));
    assert_eq!(facts("oltp"), (536_870_912.0, 10, k2, k2, 210));
}

#[test]
fn a_variable_is_read_when_it_is_used() {
    let text = format!(
        "set $size=4k\n{}",
        thread("flowop read name=rr,filename=ff,iosize=$size")
    )
    .replace("run 1", "set $size=8k\nrun 1");
    assert_eq!(ops(&planned(&text))[0].iosize, FixedOrDrawn::Fixed(8192));
}

#[test]
fn an_undefined_variable_is_named() {
    refused(
        &thread("flowop read name=rr,filename=ff,iosize=$size"),
        3,
        "undefined variable '$size'",
    );
    refused("set $some=5\nsleep $sone", 2, "did you mean some?");
    refused("echo \"it is $gone\"", 1, "'$gone'");
}

#[test]
fn a_script_without_run_is_refused() {
    refused(SET, 0, "no 'run'");
    refused(&format!("{SET}run 5"), 2, "no process");
    assert_eq!(
        planned("echo \"bye\"\nquit").steps,
        [RunStep::Say("bye".into())],
        "unless it quits"
    );
    assert_eq!(
        planned(&(thread("flowop hog name=hh") + "\necho \"never\"")).steps,
        [RunStep::Run],
        "nothing comes after run"
    );
}

#[test]
fn a_caller_that_says_how_long_it_runs_needs_no_run() {
    let text = thread("flowop hog name=hh");
    let without = text.strip_suffix("\nrun 1").unwrap();
    let options = |seconds, operations| WorkloadOptions {
        seconds,
        operations,
        ..options()
    };
    let timed = planned_with(without, options(Some(7), None)).unwrap();
    assert_eq!(
        (&timed.steps[..], timed.seconds),
        (&[RunStep::Run][..], Some(7))
    );
    let counted = planned_with(without, options(None, Some(9))).unwrap();
    assert_eq!(
        (&counted.steps[..], counted.seconds),
        (&[RunStep::Run][..], Some(60))
    );
    let quits = planned_with(&format!("{without}\nquit"), options(Some(7), None)).unwrap();
    assert_eq!(quits.steps, [], "a script that quits does not run");
    let empty = planned_with(SET, options(Some(7), None)).unwrap_err();
    assert!(empty.message.contains("no process"), "{empty}");
}

#[test]
fn zero_sizes_are_refused() {
    refused(&thread("flowop read name=rr,filename=ff"), 3, "iosize 0");
    refused(
        &thread("flowop aiowrite name=aa,filename=ff,random,iosize=0"),
        3,
        "iosize 0",
    );
    refused(
        "define fileset name=ff,path=$dir,entries=5\nrun",
        1,
        "dirwidth 0",
    );
    refused(
        "define fileset name=ff,path=$dir,dirwidth=5\nrun",
        1,
        "neither files nor leaf",
    );
    refused(&thread("flowop semblock name=ss"), 3, "value of at least 1");
    let empty = |op: &str| thread(op).replace("size=16k", "size=0");
    assert_ne!(
        empty(""),
        thread(""),
        "the set of these tests has that size"
    );
    refused(
        &empty("flowop readwholefile name=rr,filename=ff,iosize=1m"),
        3,
        "the files of 'ff' have size=0",
    );
    planned(&empty(
        "flowop appendfile name=aa,filename=ff,iosize=4k\nflowop readwholefile \
         name=rr,filename=ff,iosize=1m",
    ));
}

#[test]
fn composite_flowops_are_not_nested_without_end() {
    let nested = |deep: usize| {
        let first = "define flowop name=f0 { flowop hog name=hh,value=1 }\n".to_owned();
        let each = |n: usize| format!("define flowop name=f{n} {{ flowop f{} name=xx }}\n", n - 1);
        first
            + &(1..deep).map(each).collect::<String>()
            + &thread(&format!("flowop f{} name=top", deep - 1))
    };
    planned(&nested(90));
    let error = planned_with(&nested(3000), options())
        .unwrap_err()
        .to_string();
    assert!(error.contains("more than 100 deep"), "{error}");
}

#[test]
fn random_variables_that_make_no_sense_are_refused() {
    for (definition, words) in [
        (
            "randvar(type=uniform,mean=1,min=10)",
            "mean 1 below its min 10",
        ),
        (
            "randvar(type=gamma,mean=1,min=10)",
            "mean 1 below its min 10",
        ),
        (
            "cvar(type=cvar-normal,parameters=mean:5;sigma:-1)",
            "sigma is below 0",
        ),
        (
            "cvar(type=cvar-normal,parameters=mean:-5000)",
            "mean is below 0",
        ),
        (
            "cvar(type=cvar-exponential,parameters=mean:-1)",
            "mean is below 0",
        ),
        (
            "cvar(type=cvar-uniform,parameters=lower:9;upper:5)",
            "lower 9 is above upper 5",
        ),
        (
            "cvar(type=cvar-triangular,parameters=lower:1;upper:5;mode:9)",
            "mode 9 is not between",
        ),
        (
            "cvar(type=cvar-erlang,parameters=shape:1e14;rate:1)",
            "shape is more than",
        ),
        (
            "cvar(type=cvar-uniform,parameters=lower:1;upper:5,min=10,max=5)",
            "min 10 above its max 5",
        ),
    ] {
        refused(
            &format!("set $rv={definition}\n{}", thread("flowop hog name=hh")),
            1,
            words,
        );
    }
}

#[test]
fn what_a_flowop_needs_is_said() {
    refused(&thread("flowop openfile name=oo"), 3, "filesetname");
    refused(&thread("flowop read name=rr,iosize=4k"), 3, "fd=N");
    refused(
        &thread("flowop read name=rr,filename=fx,iosize=4k"),
        3,
        "did you mean ff?",
    );
    refused(&thread("flowop makedir name=mm,filename=ff"), 3, "leafdirs");
    let late = format!("create files\n{}", SET.replace("name=ff", "name=late"));
    let late = thread("flowop read name=rr,filename=late,iosize=4k").replacen(
        "define process",
        &(late + "define process"),
        1,
    );
    refused(&late, 5, "define it above 'create files'");
    refused(
        "define fileset name=ff,path=$dir/sub,entries=1",
        1,
        "a variable is not continued",
    );
    refused(
        &thread("flowop aiowrite name=aa,filename=ff,iosize=4k"),
        3,
        "random",
    );
    refused(&thread("flowop wakeup name=ww"), 3, "target");
    refused(
        &thread("flowop read name=rr,fd=128,iosize=4k"),
        3,
        "slots 1 to 127",
    );
    refused(
        &thread("flowop read name=rr,filename=ff,random,iosize=32k"),
        3,
        "16384 bytes it may work on",
    );
    refused(
        &thread("flowop read name=rr,filename=ff,directio,iosize=1000"),
        3,
        "multiple of 512",
    );
}

#[test]
fn targets_are_there_and_of_the_right_kind() {
    refused(&thread("flowop wakeup name=ww,target=xx"), 3, "no flowop");
    refused(
        &thread("flowop hog name=hh\nflowop sempost name=pp,value=1,target=hh"),
        4,
        "no semblock",
    );
    let two = "define process name=qq { thread name=uu { flowop hog name=far } }\n";
    refused(
        &(two.to_owned() + &thread("flowop opslimit name=ll,target=far")),
        4,
        "in this thread",
    );
    let plan =
        planned(&(two.to_owned() + &thread("flowop finishoncount name=ff,value=1,target=far")));
    assert_eq!(
        plan.processes[1].threads[0].ops[0].targets,
        [FlowopId {
            process: 0,
            thread: 0,
            op: 0
        }]
    );
}

#[test]
fn memory_holds_a_transfer() {
    let text = |memory: &str, op: &str| {
        thread(op).replace("name=tt", &format!("name=tt,memsize={memory}"))
    };
    refused(
        &text("4k", "flowop read name=rr,filename=ff,iosize=8k"),
        3,
        "memsize=8192",
    );
    refused(
        &text("8k", "flowop read name=rr,filename=ff,iosize=8k,directio"),
        3,
        "memsize=8704",
    );
    planned(&text("8k", "flowop read name=rr,filename=ff,iosize=8k"));
}

#[test]
fn filesets_have_their_defaults() {
    let plan = planned(
        "define fileset name=ff,path=$dir,entries=9,dirwidth=3\ndefine file \
         name=gg,path=$dir\ncreate files\nquit",
    );
    let (set, file) = (&plan.filesets[0], &plan.filesets[1]);
    assert_eq!(
        (set.size, set.dirgamma, set.prealloc, set.leafdirs),
        (FixedOrDrawn::Fixed(1024), 1500, 0, 0)
    );
    assert_eq!(
        (set.existing, set.populating, set.access),
        (
            ExistingFiles::Removed,
            Populating::OneThread,
            OpenAccess::Both
        )
    );
    assert_eq!(
        (file.entries, file.dirwidth, file.dirgamma),
        (1, FixedOrDrawn::Fixed(10), 0)
    );
    assert_eq!(set.root, std::path::Path::new("/lab/ff"));
    assert_eq!(plan.steps, [RunStep::Create]);
}

#[test]
fn prealloc_is_all_or_a_percentage() {
    let prealloc = |text: &str| {
        let text = format!(
            "define fileset name=ff,path=$dir,entries=9,dirwidth=3,{text}\ncreate files\nquit"
        );
        planned(&text).filesets[0].prealloc
    };
    assert_eq!(
        [
            prealloc("prealloc"),
            prealloc("prealloc=true"),
            prealloc("prealloc=80"),
            prealloc("prealloc=false")
        ],
        [100, 100, 80, 0]
    );
}

#[test]
fn files_are_created_once() {
    let plan = planned(&format!("{SET}create files\ncreate files\nquit"));
    assert_eq!(
        (plan.steps, plan.filesets.len()),
        (vec![RunStep::Create], 1)
    );
    assert!(plan.remarks[0].contains("once"), "{:?}", plan.remarks);
}

#[test]
fn no_fileset_lies_outside_of_the_directory() {
    for path in ["/etc", "\"../up\"", "\"/lab/../etc\"", "/laboratory"] {
        refused(
            &format!("define fileset name=ff,path={path},entries=9,dirwidth=3\nrun"),
            1,
            "outside",
        );
    }
    refused(
        "define fileset name=\"a/b\",path=$dir,entries=9,dirwidth=3\nrun",
        1,
        "no name of a directory",
    );
    refused(
        "define fileset name=\"..\",path=$dir,entries=9,dirwidth=3\nrun",
        1,
        "no name of a directory",
    );
    let plan =
        planned("define fileset name=ff,path=sub/dir,entries=9,dirwidth=3\ncreate files\nquit");
    assert_eq!(
        plan.filesets[0].root,
        std::path::Path::new("/lab/sub/dir/ff")
    );
}

#[test]
fn composite_flowops_are_written_out_with_their_locals_replaced() {
    let composite = "define flowop name=inner,iters=3,$io=4k \
        {\n flowop read name=rr,filename=ff,iosize=$io\n}\ndefine flowop name=outer,$size \
        {\n flowop inner name=ii,$io=$size\n flowop hog name=hh\n}\n";
    let plan = planned(
        &(composite.to_owned()
            + &thread(
                "flowop outer name=aa,$size=8k\nflowop outer name=bb,$size=16k,iters=5\nflowop \
                 inner name=cc",
            )),
    );
    let names: Vec<(&str, FixedOrDrawn)> = ops(&plan)
        .iter()
        .map(|op| (op.name.as_str(), op.iosize))
        .collect();
    let size = |k: u64| FixedOrDrawn::Fixed(k << 10);
    assert_eq!(
        names,
        [
            ("aa.ii.rr", size(8)),
            ("aa.hh", FixedOrDrawn::Fixed(0)),
            ("bb.ii.rr", size(16)),
            ("bb.hh", FixedOrDrawn::Fixed(0)),
            ("cc.rr", size(4))
        ]
    );
    let ProgramNode::Group(times, inside) = &plan.processes[0].threads[0].program[1] else {
        panic!("a group")
    };
    assert!(
        *times == FixedOrDrawn::Fixed(5)
            && matches!(inside[0], ProgramNode::Group(FixedOrDrawn::Fixed(3), _))
    );
    refused(
        &(composite.to_owned() + &thread("flowop outer name=aa")),
        10,
        "needs its local $size",
    );
    refused(
        &(composite.to_owned() + &thread("flowop inner name=aa,$oi=3")),
        10,
        "did you mean io?",
    );
}

#[test]
fn composite_flowops_do_not_go_in_circles() {
    let circle = "define flowop name=aa {\n flowop bb name=xx\n}\ndefine flowop name=bb \
                  {\n flowop aa name=xx\n}\n";
    refused(
        &(circle.to_owned() + &thread("flowop aa name=yy")),
        5,
        "cyclic composite flowop: aa -> bb -> aa",
    );
}

#[test]
fn inside_of_a_composite_flowop_targets_are_its_own_first() {
    let text = "define flowop name=mine \
                {\n flowop hog name=hh\n flowop finishoncount name=ff,value=1,target=hh\n}\n";
    let plan = planned(
        &(text.to_owned()
            + &thread("flowop mine name=aa\nflowop mine name=bb\nflowop hog name=hh")),
    );
    assert_eq!(
        [ops(&plan)[1].targets[0].op, ops(&plan)[3].targets[0].op],
        [0, 2]
    );
}

#[test]
fn time_ends_a_run_unless_a_rule_does() {
    let seconds = |text: &str| planned(text).seconds;
    let with = |mode: &str, run: &str| {
        thread("flowop hog name=hh").replace("run 1", &format!("{mode}\n{run}"))
    };
    assert_eq!(seconds(&with("", "run")), Some(60));
    assert_eq!(seconds(&with("", "run 0")), Some(60));
    assert_eq!(seconds(&with("", "run 7")), Some(7));
    assert_eq!(seconds(&with("set mode quit firstdone", "run")), None);
    assert_eq!(seconds(&with("set mode quit alldone", "run 9")), Some(9));
    let plan = planned(&with("set $tt=3", "psrun -2 $tt"));
    assert_eq!((plan.seconds, plan.period), (Some(3), -2));
    let options = WorkloadOptions {
        seconds: Some(2),
        ..options()
    };
    assert_eq!(
        planned_with(&with("", "run 7"), options).unwrap().seconds,
        Some(2)
    );
}

#[test]
fn the_last_rate_counts_and_zero_is_none() {
    let rate = |text: &str| planned(&(text.to_owned() + &thread("flowop hog name=hh"))).rate;
    assert_eq!(
        rate("eventgen rate=5\neventgen rate=9\n"),
        Some(FixedOrDrawn::Fixed(9))
    );
    assert_eq!(rate("eventgen rate=5\neventgen rate=0\n"), None);
    assert_eq!(rate(""), None);
    assert_eq!(
        rate("set $rr=3\neventgen rate=$rr\n"),
        Some(FixedOrDrawn::Fixed(3))
    );
}

#[test]
fn settings_from_outside_hold() {
    let text = format!(
        "set $files=10\nset $size=4k\n{}",
        thread("flowop read name=rr,filename=ff,iosize=$size")
    );
    let with = |name: &str, value: &str| {
        planned_with(
            &text,
            WorkloadOptions {
                set: vec![(name.into(), value.into())],
                ..options()
            },
        )
    };
    assert_eq!(
        ops(&with("size", "2k").unwrap())[0].iosize,
        FixedOrDrawn::Fixed(2048)
    );
    let error = with("sise", "2k").unwrap_err();
    assert!(error.message.contains("did you mean size?"), "{error}");
    assert!(
        with("size", "large")
            .unwrap_err()
            .message
            .contains("not a number")
    );
}

#[test]
fn scaling_makes_fewer_files_and_what_counts_them_follows() {
    let text = "set $files=2000\ndefine fileset name=ff,path=$dir,entries=$files,dirwidth=20\n\
        define fileset name=gg,path=$dir,entries=10,size=1m,dirwidth=20\n\
        define process name=pp { thread name=tt { flowop hog name=hh,value=$files } }\nrun 1";
    let plan = planned_with(
        text,
        WorkloadOptions {
            scale: 0.02,
            ..options()
        },
    )
    .unwrap();
    let (many, few) = (&plan.filesets[0], &plan.filesets[1]);
    assert_eq!(
        (many.entries, many.entries_asked, many.size_scale),
        (40, 2000, 1.0)
    );
    assert_eq!(
        (few.entries, few.entries_asked, few.size_scale),
        (10, 10, 0.02)
    );
    assert_eq!(ops(&plan)[0].value, FixedOrDrawn::Fixed(40));
}

#[test]
fn random_variables_are_read_from_their_attributes() {
    let plan = planned(
        "set $aa=randvar(type=uniform,mean=10,min=2)\nset \
         $bb=randvar(mean=5,gamma=2000,seed=3,round=4)\n\
        set $cc=cvar(type=cvar-triangular,parameters=lower:1;upper:9;mode:3,max=8)\n\
        set $dd=randvar(type=tabular,randtable={{60,1,2},{40,3,4}},randsrc=urandom)\nquit",
    );
    assert_eq!(
        (
            &plan.randoms[0].distribution,
            plan.randoms[0].mean,
            plan.randoms[0].min
        ),
        (&Distribution::Uniform, Some(10.0), 2.0)
    );
    assert_eq!(
        (
            &plan.randoms[1].distribution,
            plan.randoms[1].seed,
            plan.randoms[1].round
        ),
        (&Distribution::Gamma(2.0), 3, 4.0)
    );
    assert_eq!(
        (&plan.randoms[2].distribution, plan.randoms[2].max),
        (&Distribution::Triangular(1.0, 9.0, 3.0), 8.0)
    );
    assert!(
        matches!(&plan.randoms[3].distribution, Distribution::Tabular(slots) if slots.len() == 100 && slots[60] == (3.0, 4.0))
    );
    refused("set $aa=randvar(type=uniform)", 1, "no mean");
    refused("set $aa=randvar(type=normal)", 1, "no type of randvar");
    refused(
        "set $aa=randvar(type=tabular,randtable={{60,1,2}})",
        1,
        "add up to 100",
    );
    refused(
        "set $aa=cvar(type=cvar-gama)",
        1,
        "did you mean cvar-gamma?",
    );
    refused(
        "set $aa=cvar(type=cvar-normal,parameters=mean:x)",
        1,
        "'mean:x'",
    );
    refused(
        "set $aa=cvar(type=cvar-erlang,parameters=rate:0)",
        1,
        "above 0",
    );
    refused(
        "set $aa=randvar(mean=5)\nset $bb=$aa\nsleep 1\ndefine fileset \
         name=ff,path=$dir,entries=$bb,dirwidth=3\nrun",
        4,
        "cannot be random",
    );
}

#[test]
fn a_random_attribute_is_drawn_at_each_use() {
    let text = "set $io=randvar(type=uniform,mean=8k,min=1,seed=1)\n".to_owned()
        + &thread("flowop write name=ww,filename=ff,iosize=$io");
    let plan = planned(&text);
    let mut draws = ThreadDraws::new(&plan.randoms, 1, 0);
    let drawn: Vec<u64> = (0..4)
        .map(|_| draws.draw_whole(ops(&plan)[0].iosize))
        .collect();
    assert!(drawn.windows(2).any(|pair| pair[0] != pair[1]), "{drawn:?}");
}

#[test]
fn threads_of_several_machines_are_refused() {
    refused("enable multi master=host,client=me", 1, "several machines");
    refused("domultisync value=1", 1, "several machines");
}

#[test]
fn texts_are_expanded_in_echo_and_system() {
    let plan = planned(
        "set $some=5\nset $text=word\necho \"$some of ${text}s for $5\"\nsystem \"ls \
         $text\"\nlist fileset\nversion\nquit",
    );
    assert_eq!(plan.steps[0], RunStep::Say("5 of words for $5".into()));
    assert_eq!(plan.steps[1], RunStep::System("ls word".into()));
    assert_eq!(plan.steps.len(), 4);
}
