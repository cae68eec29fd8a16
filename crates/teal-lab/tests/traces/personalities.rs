//! `teal lab run`: scripts of the shapes that Filebench's own have, written for these tests. Each
//! runs, and its operations have the shares that the script asks for.

use crate::support::{ProgramOutput, World, run_program};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

struct Lab {
    world: World,
}

impl Lab {
    fn new() -> Self {
        let world = World::without_mounts();
        fs::create_dir_all(world.path("files")).unwrap();
        Self { world }
    }

    fn args(&self, script: &str, more: &[&str]) -> Vec<String> {
        let path = self.world.path("script.wml");
        fs::write(&path, script).unwrap();
        let (dir, json) = (self.world.path("files"), self.world.path("figures.json"));
        let mut args = vec!["lab", "run", path.to_str().unwrap(), "--dir"];
        args.extend([dir.to_str().unwrap(), "--json", json.to_str().unwrap()]);
        args.extend(more);
        args.into_iter().map(str::to_owned).collect()
    }

    fn try_run(&self, script: &str, more: &[&str]) -> ProgramOutput {
        self.world.teal(&self.args(script, more))
    }

    /// Runs a script to its end, and returns its figures.
    fn run(&self, script: &str, more: &[&str]) -> Figures {
        self.try_run(script, more).expect_success();
        self.figures()
    }

    fn figures(&self) -> Figures {
        let text = fs::read_to_string(self.world.path("figures.json")).unwrap();
        Figures(serde_json::from_str(&text).unwrap())
    }

    /// Runs a script in a shell that may open so many files.
    fn run_with_descriptors(&self, limit: u64, script: &str, more: &[&str]) -> ProgramOutput {
        let command = self.world.command(&self.args(script, more));
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {limit} && exec \"$@\""), "sh"]);
        shell.arg(command.get_program()).args(command.get_args());
        run_program(self.world.furnish(&mut shell))
    }
}

struct Figures(Value);

impl Figures {
    /// Operations by flowop; those that count, or all.
    fn counts(&self, with_control: bool) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for flowop in self.0["flowops"].as_array().unwrap() {
            if with_control || flowop["counts"] == true {
                let name = flowop["name"].as_str().unwrap().to_owned();
                counts.insert(name, flowop["operations"].as_u64().unwrap());
            }
        }
        counts
    }

    fn count(&self, name: &str) -> u64 {
        self.counts(true)[name]
    }

    fn summary(&self, what: &str) -> u64 {
        self.0["summary"][what].as_u64().unwrap()
    }

    /// Every flowop has its share of the operations that count, within one point.
    #[track_caller]
    fn expect_shares(&self, parts: &[(&str, u64)]) {
        let counts = self.counts(false);
        let all: u64 = counts.values().sum();
        assert_eq!(all, self.summary("operations"), "{counts:?}");
        let asked: u64 = parts.iter().map(|(_, part)| part).sum();
        assert_eq!(counts.len(), parts.len(), "{counts:?}");
        for (name, part) in parts {
            let is = counts[*name] as f64 * 100.0 / all as f64;
            let wanted = *part as f64 * 100.0 / asked as f64;
            assert!(
                (is - wanted).abs() <= 1.0,
                "{name}: {is:.2} % instead of {wanted:.2} %: {counts:?}"
            );
        }
    }
}

/// A file server of a network: programs are started, files are copied and the first removed by the
/// slot that it was in, logs grow.
const NETWORK: &str = r#"
set $index=randvar(type=gamma, min=0, gamma=100)
set $size=randvar(type=tabular, min=1k, round=1k, randtable={{60, 1k, 4k}, {40, 4k, 20k}})
define fileset name=shared,path=$dir,size=$size,entries=$files,dirwidth=20,prealloc=60
define flowop name=start {
  flowop openfile name=open-a,filesetname=shared,indexed=$index,fd=3
  flowop readwholefile name=read-a,iosize=8k,fd=3
  flowop openfile name=open-b,filesetname=shared,indexed=$index,fd=4
  flowop readwholefile name=read-b,iosize=8k,fd=4
  flowop closefile name=close-a,fd=3
  flowop closefile name=close-b,fd=4
}
define flowop name=replace {
  flowop openfile name=open-old,filesetname=shared,indexed=$index,fd=1
  flowop readwholefile name=read-old,iosize=8k,fd=1
  flowop createfile name=make-new,filesetname=shared,indexed=$index,fd=2
  flowop writewholefile name=fill-new,fd=2,iosize=8k,srcfd=1
  flowop closefile name=close-old,fd=1
  flowop closefile name=close-new,fd=2
  flowop deletefile name=delete-old,fd=1
}
define flowop name=grow {
  flowop openfile name=open-log,filesetname=shared,indexed=$index,fd=6
  flowop appendfilerand name=append-log,iosize=8k,fd=6
  flowop closefile name=close-log,fd=6
}
define process name=netclient {
  thread name=user,memsize=1m,instances=$threads {
    flowop start name=s,iters=1
    flowop replace name=r,iters=6
    flowop grow name=g,iters=3
    flowop statfile name=stat,filesetname=shared,indexed=$index
    flowop eventlimit name=pace
  }
}
"#;

#[test]
fn a_file_is_deleted_by_the_slot_that_it_was_in() {
    let lab = Lab::new();
    let script = format!("set $files=400\nset $threads=1\n{NETWORK}");
    let figures = lab.run(&script, &["--operations", "5500"]);
    let mut parts = vec![("stat", 1)];
    for name in ["open-a", "read-a", "open-b", "read-b", "close-a", "close-b"] {
        parts.push((name, 1));
    }
    for name in [
        "open-old",
        "read-old",
        "make-new",
        "fill-new",
        "close-old",
        "close-new",
        "delete-old",
    ] {
        parts.push((name, 6));
    }
    for name in ["open-log", "append-log", "close-log"] {
        parts.push((name, 3));
    }
    let names: Vec<String> = parts
        .iter()
        .map(|(name, part)| match part {
            1 if *name == "stat" => (*name).to_owned(),
            1 => format!("s.{name}"),
            3 => format!("g.{name}"),
            _ => format!("r.{name}"),
        })
        .collect();
    let parts: Vec<(&str, u64)> = names
        .iter()
        .zip(&parts)
        .map(|(name, (_, part))| (name.as_str(), *part))
        .collect();
    figures.expect_shares(&parts);
    assert_eq!(
        figures.summary("skipped"),
        0,
        "each deletion found its file"
    );
    let (deleted, made) = (figures.count("r.delete-old"), figures.count("r.make-new"));
    assert!(
        deleted.abs_diff(made) <= 1,
        "as many files as before: {deleted} deleted, {made} made"
    );
}

#[test]
fn threads_that_meet_at_a_file_delete_it_once() {
    let lab = Lab::new();
    // A deletion that is passed over leaves a file, so there is room for some of these.
    let script = format!("set $files=6000\nset $threads=8\n{NETWORK}");
    let figures = lab.run(&script, &["--operations", "10000"]);
    let (deleted, made) = (figures.count("r.delete-old"), figures.count("r.make-new"));
    let skipped = figures.summary("skipped");
    assert!(
        deleted + skipped <= made && made <= deleted + skipped + 8,
        "{deleted} deleted, {skipped} skipped, {made} made"
    );
}

#[test]
fn a_script_without_run_runs_if_the_caller_says_how_long() {
    let lab = Lab::new();
    let script = "define fileset name=ff,path=$dir,size=8k,entries=20,dirwidth=5,prealloc
        define process name=pp { thread name=tt,memsize=16k {
          flowop readwholefile name=rr,filesetname=ff,iosize=8k
          flowop closefile name=cc
        } }";
    let refused = lab.try_run(script, &[]).expect_refusal();
    assert!(
        refused.contains("there is no 'run'") && refused.contains("--seconds"),
        "{refused}"
    );
    let by_count = lab.run(script, &["--operations", "500"]);
    by_count.expect_shares(&[("rr", 1), ("cc", 1)]);
    assert_eq!(by_count.summary("operations"), 500);
    let by_time = lab.run(script, &["--seconds", "1"]);
    assert_eq!(by_time.0["ended"], "the time was over");
    assert!(by_time.summary("operations") > 0);
}

#[test]
fn limits_hogs_and_meetings_are_no_operations() {
    let lab = Lab::new();
    // A copy of files under all limits at once.
    let script = "eventgen rate=100000
        define fileset name=old,path=$dir,size=8k,entries=200,dirwidth=20,prealloc
        define fileset name=new,path=$dir,size=8k,entries=200,dirwidth=20
        define process name=pp { thread name=tt,memsize=16k,instances=2 {
          flowop openfile name=open,filesetname=old,fd=1
          flowop readwholefile name=read,iosize=8k,fd=1
          flowop createfile name=make,filesetname=new,fd=2
          flowop writewholefile name=write,iosize=8k,fd=2,srcfd=1
          flowop closefile name=close-old,fd=1
          flowop closefile name=close-new,fd=2
          flowop deletefile name=delete,filesetname=new
          flowop hog name=hog,value=100
          flowop eventlimit name=events
          flowop iopslimit name=iops
          flowop opslimit name=ops,target=read
          flowop bwlimit name=bytes,target=write
        } }
        run 30";
    let figures = lab.run(script, &["--operations", "7000"]);
    let names = [
        "open",
        "read",
        "make",
        "write",
        "close-old",
        "close-new",
        "delete",
    ];
    figures.expect_shares(&names.map(|name| (name, 1)));
    assert_eq!(
        figures.summary("operations"),
        7000,
        "the limits are not among them"
    );
    assert_eq!(
        (figures.summary("reads"), figures.summary("writes")),
        (figures.count("read"), figures.count("write"))
    );
    for name in ["hog", "events", "iops", "ops", "bytes"] {
        assert!(figures.count(name) > 0, "{name} was done");
    }
    let said = lab
        .try_run(script, &["--operations", "700"])
        .expect_success();
    for name in ["hog *", "events *", "iops *", "ops *", "bytes *"] {
        assert!(said.contains(name), "{name}: {said}");
    }
    assert!(said.contains("* no I/O"), "{said}");
}

/// A database: readers that take the next file and the next slot each time, a writer of pages for
/// every hundred reads, a log.
const DATABASE: &str = "
    define fileset name=data,path=$dir,size=256k,entries=10,dirwidth=1024,prealloc
    define fileset name=log,path=$dir,size=256k,entries=1,dirwidth=1024,prealloc
    define process name=lgwr { thread name=lgwr,memsize=64k {
      flowop aiowrite name=log-write,filesetname=log,iosize=16k,random,dsync
      flowop aiowait name=log-wait
      flowop semblock name=log-block,value=320,highwater=100
    } }
    define process name=dbwr,instances=2 { thread name=dbwr,memsize=64k {
      flowop aiowrite name=page-write,filesetname=data,iosize=2k,random,iters=10,opennext,dsync
      flowop hog name=page-hog,value=100
      flowop semblock name=page-block,value=100,highwater=200
      flowop aiowait name=page-wait
    } }
    define process name=shadow,instances=$shadows { thread name=shadow,memsize=16k {
      flowop read name=look,filesetname=data,iosize=2k,random,opennext
      flowop hog name=look-hog,value=$hog
      flowop sempost name=post-log,value=1,target=log-block,blocking
      flowop sempost name=post-page,value=1,target=page-block,blocking
      flowop eventlimit name=pace
    } }
    run 60";

#[test]
fn a_database_with_a_hog_has_the_shares_that_its_meetings_ask_for() {
    let lab = Lab::new();
    let script = format!("set $shadows=20\nset $hog=2000\n{DATABASE}");
    let figures = lab.run(&script, &["--operations", "60000"]);
    // For each hundred reads, each of two writers writes ten pages and waits once; for 320, the
    // log is written and waited for once.
    figures.expect_shares(&[
        ("look", 3200),
        ("page-write", 640),
        ("page-wait", 64),
        ("log-write", 10),
        ("log-wait", 10),
    ]);
}

#[test]
fn two_hundred_readers_with_all_slots_open_share_what_descriptors_there_are() {
    let lab = Lab::new();
    let script = "set mode quit alldone
        define fileset name=data,path=$dir,size=64k,entries=10,dirwidth=1024,prealloc
        define process name=shadow,instances=200 { thread name=shadow,memsize=16k {
          flowop read name=look,filesetname=data,iosize=2k,random,opennext,iters=130
          flowop finishoncount name=end,value=1,target=look
        } }
        run";
    let check = |figures: &Figures| {
        assert_eq!(figures.count("look"), 200 * 130);
        assert_eq!(
            figures.summary("implicit_opens"),
            200 * 128,
            "each slot of each thread was opened"
        );
    };
    lab.run_with_descriptors(1000, script, &[]).expect_success();
    check(&lab.figures());
    check(&lab.run(script, &[]));
}

#[test]
fn readers_in_order_are_refused_where_there_are_too_few_descriptors() {
    let lab = Lab::new();
    // These read on where their own descriptor stands.
    let script = "define fileset name=data,path=$dir,size=64k,entries=10,dirwidth=1024,prealloc
        define process name=reader,instances=20 { thread name=reader,memsize=16k {
          flowop read name=look,filesetname=data,iosize=2k,opennext
        } }
        run 1";
    let said = lab.run_with_descriptors(1000, script, &[]);
    // Root may raise the limit, unless it is not allowed to here.
    if said.code == 0 {
        assert!(lab.figures().count("look") > 0);
        return;
    }
    let said = said.expect_refusal();
    for words in [
        "2816 files open at once",
        "may hold 1000",
        "nothing was written",
        "ulimit -n",
        "thread 'reader'",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let left = fs::read_dir(lab.world.path("files")).unwrap().count();
    assert_eq!(left, 0, "nothing was made");
}

#[test]
fn many_single_files_are_not_told_one_by_one_and_no_depth_is_below_zero() {
    let lab = Lab::new();
    let mut script = String::new();
    for n in 0..29 {
        script += &format!("define file name=table{n},path=$dir,size=64k,prealloc\n");
    }
    script += "define fileset name=dirs,path=$dir,entries=0,leafdirs=50,dirwidth=10\n\
               define process name=pp { thread name=tt,memsize=16k {\n\
               flowop read name=rr,filename=table7,iosize=2k,random\n\
               flowop makedir name=mm,filesetname=dirs\n\
               flowop removedir name=dd,filesetname=dirs } }\nrun 30";
    let said = lab
        .try_run(&script, &["--operations", "300", "--scale", "0.5"])
        .expect_success();
    assert!(
        said.contains("scaled by 0.5: 29 filesets have all of their files, of other sizes"),
        "{said}"
    );
    assert!(
        said.contains("29 single files, of which 29 made") && !said.contains("table1"),
        "{said}"
    );
    let plan = lab.try_run(&script, &["--dry-run"]).expect_success();
    assert!(
        plan.contains("fileset dirs: no files") && !plan.contains("depth -0"),
        "{plan}"
    );
    for set in lab.figures().0["filesets"].as_array().unwrap() {
        let depth = set["mean_depth"].as_f64().unwrap();
        assert!(depth.is_sign_positive(), "{set}");
    }
    let figures = lab.run(&script, &["--operations", "300"]);
    figures.expect_shares(&[("rr", 1), ("mm", 1), ("dd", 1)]);
}

#[test]
fn streams_directories_and_small_files_have_the_shares_of_their_scripts() {
    let lab = Lab::new();
    // Five readers of large files in order, each under a limit of its own.
    let mut streams = String::from("eventgen rate=100000\n");
    for n in 1..=5 {
        streams += &format!("define file name=large{n},path=$dir,size=1m,prealloc,reuse\n");
    }
    streams += "define process name=pp {\n";
    for n in 1..=5 {
        streams += &format!(
            "thread name=reader{n},memsize=64k {{\n\
             flowop read name=read{n},filename=large{n},iosize=64k,iters=4\n\
             flowop bwlimit name=limit{n},target=read{n} }}\n"
        );
    }
    streams += "}\nrun 60";
    let figures = lab.run(&streams, &["--operations", "4000"]);
    let counts = figures.counts(false);
    assert_eq!(counts.values().sum::<u64>(), 4000);
    // Each seventeenth read finds the end of its file and begins anew.
    let moved = figures.summary("bytes") as f64 / f64::from(4000 * (64 << 10));
    assert!((moved - 16.0 / 17.0).abs() < 0.01, "{moved}");
    // Small files: made, written, synced, removed until so many have been removed.
    let small = "set mode quit firstdone
        define fileset name=small,path=$dir,size=4k,entries=500,dirwidth=20,prealloc=50
        define process name=pp { thread name=tt,memsize=64k,instances=4 {
          flowop createfile name=make,filesetname=small,fd=1
          flowop writewholefile name=write,fd=1,iosize=4k
          flowop fsync name=sync,fd=1
          flowop closefile name=close,fd=1
          flowop openfile name=open,filesetname=small,fd=1
          flowop readwholefile name=read,fd=1,iosize=4k
          flowop closefile name=close-read,fd=1
          flowop deletefile name=delete,filesetname=small
          flowop finishoncount name=end,value=400,target=delete
        } }
        run";
    let names = [
        "make",
        "write",
        "sync",
        "close",
        "open",
        "read",
        "close-read",
        "delete",
    ];
    lab.run(small, &[])
        .expect_shares(&names.map(|name| (name, 1)));
    // Directories: listed beside being made and removed.
    let dirs =
        "define fileset name=tree,path=$dir,size=1k,entries=50,leafdirs=50,dirwidth=5,prealloc
        define process name=pp { thread name=tt,memsize=1k {
          flowop listdir name=lister,filesetname=tree,iters=3
          flowop removedir name=remover,filesetname=tree
          flowop makedir name=maker,filesetname=tree
          flowop statfile name=looker,filesetname=tree
        } }";
    lab.run(dirs, &["--operations", "3000"]).expect_shares(&[
        ("lister", 3),
        ("remover", 1),
        ("maker", 1),
        ("looker", 1),
    ]);
}
