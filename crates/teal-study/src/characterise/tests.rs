//! Traces whose workload is known, and the scripts they come to.

use super::*;
use crate::wml::parse_script;
use crate::workload::{WorkloadOptions, WorkloadPlan, plan_script};
use std::fmt::Write as _;
use teal_trace::TextReader;

/// Characterises a trace in text, and plans what comes of it: it must be sound.
#[track_caller]
fn planned(trace: &str) -> (CharacterisedWorkload, WorkloadPlan) {
    let items = TextReader::new(trace.as_bytes())
        .unwrap()
        .map(|item| item.unwrap());
    let character = characterise_trace(items, &TreeSurvey::default(), "a test").unwrap();
    let script = parse_script("t.wml", &character.script, &mut |_| Err("no".into()));
    let script = script.unwrap_or_else(|error| panic!("{error}\n{}", character.script));
    let plan = plan_script(&script, WorkloadOptions::new("/lab"))
        .unwrap_or_else(|error| panic!("{error}\n{}", character.script));
    (character, plan)
}

/// The flowops of the only kind of thread, by name of the composite one.
fn flowops(plan: &WorkloadPlan) -> Vec<String> {
    plan.processes[0].threads[0]
        .ops
        .iter()
        .map(|op| op.name.clone())
        .collect()
}

/// Events one millisecond after the other.
struct Typed {
    text: String,
    at: f64,
}

impl Typed {
    fn new() -> Self {
        Self {
            text: "teal-trace 1 file\ncalled 1 0 \"\"\ncalled 2 1 \"mail\"\ncalled 3 1 \"logs\"\n"
                .into(),
            at: 0.0,
        }
    }

    fn put(&mut self, thread: u32, event: std::fmt::Arguments<'_>) {
        self.at += 0.001;
        writeln!(self.text, "{:.3} {thread} {event}", self.at).unwrap();
    }
}

#[test]
fn visits_of_a_mail_server_become_its_flowops_in_their_order() {
    let mut trace = Typed::new();
    for round in 0..100_u64 {
        let (old, new) = (1000 + round, 5000 + round);
        writeln!(trace.text, "called {old} 2 \"m{old}\"").unwrap();
        let thread = 7 + (round % 2) as u32;
        trace.put(thread, format_args!("2 create name=\"m{new}\" = {new}"));
        trace.put(thread, format_args!("{new} open = 0"));
        trace.put(
            thread,
            format_args!("{new} write offset=0 length=8000 = 8000"),
        );
        trace.put(thread, format_args!("{new} fsync data=no = 0"));
        trace.put(0, format_args!("{new} close = 0"));
        trace.put(thread, format_args!("{old} stat = 0"));
        trace.put(thread, format_args!("{old} open = 0"));
        trace.put(
            thread,
            format_args!("{old} read offset=0 length=1048576 = 16000"),
        );
        trace.put(
            thread,
            format_args!("{old} read offset=16000 length=1048576 = 0"),
        );
        trace.put(
            thread,
            format_args!("{old} write offset=16000 length=4000 = 4000"),
        );
        trace.put(0, format_args!("{old} close = 0"));
        trace.put(thread, format_args!("2 unlink name=\"m{old}\" = 0"));
        trace.put(
            thread,
            format_args!("2 rename name=\"none\" to=3 new=\"else\" exchange=no = 0"),
        );
    }
    let (character, plan) = planned(&trace.text);
    assert_eq!(
        (character.visits, character.threads, character.is_whole),
        ([300, 300], 2, true)
    );
    assert_eq!(character.lost, BTreeMap::from([("rename", 100)]));
    let names = flowops(&plan);
    let want = [
        "v0.go",
        "v0.make",
        "v0.append1",
        "v0.fsync2",
        "v0.close",
        "v1.go",
        "v1.open",
        "v1.read0",
        "v1.append1",
        "v1.close",
        "v2.go",
        "v2.delete",
    ];
    assert_eq!(names, want, "{}", character.script);
    for words in [
        "appendfile name=append1,fd=1,iosize=8000",
        "iosize=1048576",
        "iosize=4000",
        "rename 100",
        "# mail/",
    ] {
        assert!(
            character.script.contains(words),
            "{words}: {}",
            character.script
        );
    }
    assert_eq!(plan.filesets.len(), 1, "{}", character.script);
}

#[test]
fn a_log_that_stays_open_is_a_set_of_its_own_and_pages_are_read_whole() {
    let mut trace = Typed::new();
    let mut log = 1_000_003;
    for round in 0..200_u64 {
        let page = 1000 + round % 50;
        writeln!(trace.text, "called {page} 2 \"p{page}\"").unwrap();
        trace.put(7, format_args!("{page} open = 0"));
        trace.put(
            7,
            format_args!("{page} read offset=0 length=131072 = 30000"),
        );
        trace.put(0, format_args!("{page} close = 0"));
        if round % 10 == 9 {
            writeln!(trace.text, "called 9 3 \"log\"").unwrap();
            trace.put(7, format_args!("9 write offset={log} length=100 = 100"));
            log += 100;
        }
    }
    let (character, plan) = planned(&trace.text);
    assert_eq!(
        flowops(&plan),
        [
            "v0.go",
            "v0.open",
            "v0.read0",
            "v0.close",
            "v1.go",
            "v1.append0"
        ]
    );
    assert_eq!(
        plan.filesets
            .iter()
            .map(|set| set.entries)
            .collect::<Vec<_>>(),
        [1, 50],
        "{}",
        character.script
    );
    // Ten pages to an append: one in a round, and an append in one of ten.
    assert!(
        character.script.contains("name=v0,iters=1\n"),
        "{}",
        character.script
    );
    assert!(
        character.script.contains("{{90,0,0},{10,1,1}}"),
        "{}",
        character.script
    );
}

#[test]
fn without_openings_reads_and_writes_tell_visits_apart() {
    let mut trace = Typed::new();
    for round in 0..50_u64 {
        let file = 1000 + round;
        writeln!(trace.text, "called {file} 2 \"f{file}\"").unwrap();
        trace.put(
            7,
            format_args!("{file} read offset=0 length=131072 = 131072"),
        );
        trace.put(
            7,
            format_args!("{file} read offset=131072 length=131072 = 500"),
        );
        trace.put(
            7,
            format_args!("{file} setattr perm=yes owner=no times=no = 0"),
        );
    }
    let (character, plan) = planned(&trace.text);
    assert!(
        !character.is_whole && character.script.contains("No opening was seen"),
        "{}",
        character.script
    );
    assert_eq!(flowops(&plan), ["v0.go", "v0.open", "v0.read0", "v0.close"]);
    assert_eq!(character.lost, BTreeMap::from([("setattr", 50)]));
}

#[test]
fn places_at_random_and_files_that_are_visited_again_and_again_keep_their_ways() {
    let mut trace = Typed::new();
    for round in 0..2000_u64 {
        // Most visits are of two of fifty files.
        let file = if round % 10 > 0 {
            1000 + round % 2
        } else {
            1000 + round / 10 % 50
        };
        writeln!(trace.text, "called {file} 2 \"f{file}\"").unwrap();
        trace.put(7, format_args!("{file} open = 0"));
        for call in 0..4 {
            let at = (round * 7919 + call * 104_729) % 1000 * 8192;
            trace.put(
                7,
                format_args!("{file} read offset={} length=8192 = 8192", at + 8192),
            );
        }
        trace.put(0, format_args!("{file} close = 0"));
    }
    let (character, plan) = planned(&trace.text);
    let script = &character.script;
    assert!(script.contains("iosize=8192,random,iters=4"), "{script}");
    assert!(
        script.contains("much visited") || script.contains("indexed=$pick"),
        "{script}"
    );
    assert!(plan.filesets.iter().all(|set| set.entries > 0));
}

#[test]
fn what_is_seldom_is_done_as_seldom_and_places_of_files_that_stay_open_are_short_visits() {
    let mut trace = Typed::new();
    for round in 0..6400_u64 {
        // A thread that always reads, one that writes, and now and then a file that is looked at.
        writeln!(
            trace.text,
            "called 1000 2 \"table\"\ncalled 1001 2 \"other\""
        )
        .unwrap();
        trace.put(
            7,
            format_args!(
                "1000 read offset={} length=2048 = 2048",
                (round * 7919 + 1) % 1000 * 2048
            ),
        );
        trace.put(
            8,
            format_args!(
                "1000 write offset={} length=4096 = 4096",
                (round * 104_729 + 1) % 1000 * 4096
            ),
        );
        if round % 1000 == 999 {
            trace.put(9, format_args!("1001 stat = 0"));
        }
    }
    let (character, plan) = planned(&trace.text);
    let script = &character.script;
    assert!(
        character.visits[1] > 600,
        "neither thread is one visit: {:?}\n{script}",
        character.visits
    );
    assert_eq!(
        character.visits[0], character.visits[1],
        "what is seldom is not left out: {script}"
    );
    assert!(
        script.contains("flowop seldom")
            && flowops(&plan).iter().any(|name| name.ends_with(".v.stat0")),
        "{script}"
    );
}

#[test]
fn nothing_comes_of_nothing() {
    let idle = TextReader::new("teal-trace 1 file\n".as_bytes())
        .unwrap()
        .map(|item| item.unwrap());
    assert_eq!(
        characterise_trace(idle, &TreeSurvey::default(), "idle").unwrap_err(),
        CharacteriseError::Idle
    );
}

/// Calls at random places: eight threads read, two write half as much as all of those.
fn readers_and_writers(lasting: bool) -> Typed {
    let mut trace = Typed::new();
    for round in 0..800_u64 {
        writeln!(trace.text, "called 1000 2 \"table\"").unwrap();
        // Or each number is that of a thread that comes, reads or writes for a while, and goes.
        let now = if lasting {
            0
        } else {
            100 * (round / 100) as u32
        };
        for thread in 0..8 {
            let at = ((round * 7919 + u64::from(thread) * 331) % 1000 + 1) * 2048;
            trace.put(
                now + 10 + thread,
                format_args!("1000 read offset={at} length=2048 = 2048"),
            );
        }
        for call in 0..4 {
            let at = ((round * 104_729 + call * 977) % 1000 + 1) * 4096;
            trace.put(
                now + 30 + (call % 2) as u32,
                format_args!("1000 write offset={at} length=4096 = 4096"),
            );
        }
    }
    trace
}

#[test]
fn threads_that_read_and_threads_that_write_come_back_as_two_kinds() {
    let (character, plan) = planned(&readers_and_writers(true).text);
    let script = &character.script;
    let threads = &plan.processes[0].threads;
    let names = |at: usize| {
        threads[at]
            .ops
            .iter()
            .map(|op| op.name.as_str())
            .collect::<Vec<_>>()
    };
    assert_eq!(threads.len(), 2, "{script}");
    assert_eq!(
        names(0),
        ["v0.go", "v0.open", "v0.read0", "v0.close", "lets1"],
        "{script}"
    );
    assert_eq!(
        names(1),
        ["turn1", "v1.go", "v1.open", "v1.write0", "v1.close"],
        "{script}"
    );
    for words in [
        "set $threads=8\n",
        "set $threads1=2\n",
        "instances=$threads1 {",
        "# Threads of role 1: ",
    ] {
        assert!(script.contains(words), "{words}: {script}");
    }
    assert_eq!(character.visits[0], character.visits[1], "{script}");
    // The visits of a thread's round by tokens: each of eight readers' rounds lets two writers go
    // on.
    let visits = |role: &str| -> f64 {
        let line = script
            .lines()
            .find_map(|line| line.strip_prefix(&format!("# Threads of role {role}: ")));
        line.unwrap()
            .strip_suffix(" visits")
            .unwrap()
            .parse()
            .unwrap()
    };
    let value = |op: &str| -> f64 {
        let line = script.lines().find(|line| line.contains(op)).unwrap();
        line.split("value=")
            .nth(1)
            .unwrap()
            .split(',')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    };
    let each = value("name=lets1") / value("name=turn1") * 2.0;
    assert!(
        (each / (visits("1") / visits("0")) - 1.0).abs() < 0.001,
        "{each}: {script}"
    );
}

#[test]
fn where_threads_come_and_go_all_are_alike() {
    let (character, plan) = planned(&readers_and_writers(false).text);
    assert_eq!(plan.processes[0].threads.len(), 1, "{}", character.script);
    assert!(
        !character.script.contains("semblock"),
        "{}",
        character.script
    );
}
