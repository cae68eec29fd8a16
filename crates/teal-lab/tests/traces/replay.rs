//! Replays by the program: figures that add up, the same every time, and one line for everything
//! that cannot be replayed.

use crate::support::{Mounted, PATIENCE, World, seeded, wait_until};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn str(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A trace given as text.
fn trace(world: &World, name: &str, text: &str) -> PathBuf {
    let (typed, file) = (world.path(format!("{name}.txt")), world.path(name));
    fs::write(&typed, text).unwrap();
    world
        .teal(&[
            "lab",
            "trace",
            "import",
            "--from",
            "text",
            str(&typed),
            "--out",
            str(&file),
        ])
        .expect_success();
    file
}

/// An hour of a person: bursts of reads, some changes, pauses from seconds to minutes.
fn hour() -> String {
    let mut text = String::from("teal-trace 1 file\nstart 1763803800.000000000\ncalled 1 0 \"\"\n");
    let mut at = 0;
    for n in 0_u64..240 {
        at += match n % 12 {
            0 => 150,
            6 => 12,
            _ => 1,
        };
        let file = 20 + n * n % 37;
        let line = match n % 5 {
            4 => format!("{at} 7 {file} write offset=0 length=9000 = 9000\n"),
            _ => format!("{at} 7 {file} read offset=0 length=30000 = 30000\n"),
        };
        text.push_str(&line);
    }
    text
}

fn json(world: &World, args: &[&str]) -> Value {
    let said = world
        .teal(&[&["lab", "replay"], args, &["--json"]].concat())
        .expect_success();
    serde_json::from_str(&said).unwrap()
}

fn sum(values: &Value, key: &str) -> u64 {
    values
        .as_array()
        .unwrap()
        .iter()
        .map(|value| value[key].as_u64().unwrap())
        .sum()
}

#[test]
fn figures_add_up_on_every_machine_and_under_every_policy() {
    let world = World::without_mounts();
    let file = trace(&world, "hour", &hour());
    for machine in ["handheld", "laptop", "desktop", "home-server"] {
        for pace in [&[][..], &["--closed"]] {
            let args = [&[str(&file), "--profiles", machine][..], pace].concat();
            let all = json(&world, &args);
            assert_eq!(
                all,
                json(&world, &args),
                "the same input gives the same figures"
            );
            let runs = all["runs"].as_array().unwrap();
            assert_eq!(runs.len(), 6, "{machine}");
            for run in runs {
                let devices = &run["devices"];
                for device in devices.as_array().unwrap() {
                    assert_eq!(device["uj"], sum(&device["uses"], "uj"), "{machine}: {run}");
                    assert!(
                        sum(&device["uses"], "ns") >= run["elapsed_ns"].as_u64().unwrap(),
                        "every moment is accounted"
                    );
                    assert_eq!(
                        device["starts"],
                        device["started_ns"].as_array().unwrap().len()
                    );
                    let allowed = device["stops_allowed"].as_u64().unwrap_or(u64::MAX);
                    assert!(
                        device["stops"].as_u64().unwrap() <= allowed,
                        "the budget is kept"
                    );
                }
                let total = sum(devices, "uj") + run["waited_uj"].as_u64().unwrap();
                assert_eq!(run["uj"], total, "{machine}");
                assert!(run["uj"].as_u64() >= run["floor_uj"].as_u64());
            }
            assert!(all["modelled_by"].as_array().unwrap().len() >= 3);
        }
    }
}

#[test]
fn what_was_recorded_at_a_mount_is_replayed() {
    let test = "what_was_recorded_at_a_mount_is_replayed";
    let Some(mut m) = Mounted::new(test, "64M") else {
        return;
    };
    for n in 0..20 {
        fs::write(m.path(format!("f{n}")), seeded(n, 100_000)).unwrap();
    }
    m.remount();
    let file = m.world().path("day.trace");
    let mut record = m.world().command(&[
        "lab",
        "record",
        m.point().to_str().unwrap(),
        "--out",
        str(&file),
    ]);
    let mut record = record
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(
        wait_until(PATIENCE, || m.status()["recording"]["ended"] == false),
        "{}",
        m.status()
    );
    for n in 0..20 {
        assert_eq!(
            fs::read(m.path(format!("f{n}"))).unwrap(),
            seeded(n, 100_000)
        );
    }
    fs::write(m.path("new"), seeded(99, 50_000)).unwrap();
    fs::remove_file(m.path("f3")).unwrap();
    m.world()
        .teal(&["lab", "record", m.point().to_str().unwrap(), "--stop"])
        .expect_success();
    assert!(record.wait().unwrap().success());
    m.down();
    let all = json(m.world(), &[str(&file), "--profiles", "laptop"]);
    let trace = &all["trace"];
    assert_eq!(trace["complete"], true);
    // Every byte was read once, from the disk or the server, and copied to flash.
    assert!(
        trace["read_bytes"].as_u64().unwrap() >= 20 * 100_000,
        "{trace}"
    );
    assert_eq!(trace["written_bytes"], 50_000);
    let served: u64 = all["runs"][0]["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["reads"].as_u64().unwrap())
        .sum();
    assert_eq!(all["runs"][0]["delay"]["reads"], served);
    m.check();
}

#[test]
fn a_longer_time_out_never_wakes_more_often() {
    let world = World::without_mounts();
    let file = trace(&world, "hour", &hour());
    // One device: with several, what a time-out leaves awake is read instead of another one.
    let starts = |seconds: &str| {
        let policy = format!("time-out={seconds}");
        let all = json(
            &world,
            &[
                str(&file),
                "--profiles",
                "ibm-microdrive-1gb,ipaq-3870",
                "--policy",
                &policy,
            ],
        );
        all["runs"][0]["starts"].as_u64().unwrap()
    };
    let starts = ["0s", "500ms", "2s", "11s", "30s", "149s", "1000s"].map(starts);
    assert!(
        starts.windows(2).all(|pair| pair[0] >= pair[1]),
        "{starts:?}"
    );
    assert!(starts[0] > 20 && starts[6] <= 1, "{starts:?}");
}

#[test]
fn a_replay_is_told_drawn_and_explained() {
    let world = World::without_mounts();
    let file = trace(&world, "hour", &hour());
    let picture = world.path("hour.svg");
    let told = world
        .teal(&[
            "lab",
            "replay",
            str(&file),
            "--profiles",
            "laptop",
            "--plot",
            str(&picture),
        ])
        .expect_success();
    for words in [
        "modelled by samsung-970-evo-plus-500gb, hitachi-travelstar-5k320, bluefs-802.11b, thinkpad-t42",
        "added delay",
        "cold sole reads",
        "time-out=",
        "stops used",
        "idle to standby",
        "bound",
    ] {
        assert!(told.contains(words), "{words} is not in: {told}");
    }
    let svg = fs::read_to_string(&picture).unwrap();
    for words in [
        "<svg ",
        "hour on laptop",
        "Energy by device and state",
        "at most so long",
        "Wake-ups of disks so far",
        "Wake-ups of links so far",
        "</svg>",
    ] {
        assert!(svg.contains(words), "{words} is not in: {svg}");
    }
    let explain = |which: &str| {
        let args = [
            "lab",
            "replay",
            str(&file),
            "--profiles",
            "laptop",
            "--policy",
            "teal",
            "--explain",
            which,
        ];
        world.teal(&args).expect_success()
    };
    let first = explain("1");
    assert!(
        first.starts_with("teal, decision 1 at 0:") && first.contains("chosen: "),
        "{first}"
    );
    let late = explain("30m");
    let at = late
        .split(" at ")
        .nth(1)
        .unwrap()
        .split(',')
        .next()
        .unwrap();
    assert_eq!(explain(at), late, "a time can be given as it is printed");
}

#[test]
fn the_bound_is_told_for_short_traces_and_no_policy_is_below_it() {
    let world = World::without_mounts();
    let text = hour().lines().take(45).collect::<Vec<_>>().join("\n");
    let file = trace(&world, "short", &text);
    let all = json(&world, &[str(&file), "--profiles", "handheld"]);
    let least = all["bound"]["least_uj"].as_u64().unwrap();
    let feasible = all["bound"]["feasible_uj"].as_u64().unwrap();
    assert!(least <= feasible, "{}", all["bound"]);
    let is_reached = feasible <= least + least / 1000;
    assert_eq!(all["bound"]["exact"], is_reached, "{}", all["bound"]);
    let told = world
        .teal(&["lab", "replay", str(&file), "--profiles", "handheld"])
        .expect_success();
    assert_eq!(told.contains("exactly"), is_reached, "{told}");
    let runs = all["runs"].as_array().unwrap();
    assert!(
        runs.iter().all(|run| run["uj"].as_u64().unwrap() >= least),
        "{all}"
    );
}

#[test]
fn wake_ups_of_links_are_drawn_beside_those_of_disks() {
    let world = World::without_mounts();
    let file = trace(&world, "hour", &hour());
    let picture = world.path("hour.svg");
    let args = [
        str(&file),
        "--profiles",
        "handheld",
        "--policy",
        "time-out=2s",
    ];
    let all = json(&world, &args);
    let devices = all["runs"][0]["devices"].as_array().unwrap();
    let starts: Vec<u64> = devices
        .iter()
        .map(|device| device["starts"].as_u64().unwrap())
        .collect();
    assert!(starts.len() == 2 && starts[0] != starts[1], "{starts:?}");
    world
        .teal(&[&["lab", "replay"], &args[..], &["--plot", str(&picture)]].concat())
        .expect_success();
    let svg = fs::read_to_string(&picture).unwrap();
    let panels: Vec<&str> = svg.split("Wake-ups of ").skip(1).collect();
    assert_eq!(panels.len(), 2, "{svg}");
    // The vertical axis of a picture ends with the most starts of a run.
    for (panel, (name, starts)) in panels
        .iter()
        .zip([("disks", starts[0]), ("links", starts[1])])
    {
        assert!(panel.starts_with(name), "{panel}");
        let most = starts.max(1);
        assert!(
            panel.contains(&format!("text-anchor=\"end\">{most}</text>")),
            "{name} {most}: {panel}"
        );
    }
}

#[test]
fn a_mark_behind_the_last_event_is_the_end_of_the_day() {
    let world = World::without_mounts();
    let text = hour();
    let last: u64 = text
        .lines()
        .last()
        .and_then(|line| line.split(' ').next()?.parse().ok())
        .unwrap();
    let short = trace(&world, "short", &text);
    let marked = |at: u64| format!("{text}{at} 7 0 mark text=\"off\"\n");
    let long = trace(&world, "long", &marked(last + 3600));
    let args = |file| [file, "--profiles", "laptop", "--policy", "time-out=1000s"];
    let (short, long) = (
        json(&world, &args(str(&short))),
        json(&world, &args(str(&long))),
    );
    let nanos = |all: &Value| all["trace"]["ns"].as_u64().unwrap();
    assert_eq!(nanos(&long) - nanos(&short), 3600 * 1_000_000_000);
    assert_eq!(
        short["trace"]["events"], long["trace"]["events"],
        "a mark is no event"
    );
    let spent = |all: &Value| all["runs"][0]["uj"].as_u64().unwrap();
    assert!(spent(&long) > spent(&short), "an hour on costs something");
    // A mark between events moves nothing.
    let first = text.lines().take(20).collect::<Vec<_>>().join("\n");
    let rest = text.lines().skip(20).collect::<Vec<_>>().join("\n");
    let at = first
        .lines()
        .last()
        .and_then(|line| line.split(' ').next())
        .unwrap();
    let within = format!("{first}\n{at} 7 0 mark text=\"lunch\"\n{rest}\n");
    let within = trace(&world, "within", &within);
    assert_eq!(json(&world, &args(str(&within))), short);
}

#[test]
fn a_stream_with_published_totals_is_made_the_same_every_time_and_replayed() {
    let world = World::without_mounts();
    let make = |name: &str, gaps: &str, seed: &str| {
        let file = world.path(format!("{name}-{gaps}-{seed}"));
        let args = [
            "lab",
            "generate",
            name,
            "--gaps",
            gaps,
            "--seed",
            seed,
            "-o",
            str(&file),
        ];
        let said = world.teal(&args).expect_success();
        assert!(said.contains(" events"), "{said}");
        file
    };
    let file = make("berlioz", "sessions", "3");
    let stat = world
        .teal(&["lab", "trace", "stat", str(&file), "--json"])
        .expect_success();
    let stat: Value = serde_json::from_str(&stat).unwrap();
    let done = stat["actions"]
        .as_object()
        .unwrap()
        .values()
        .map(|tally| tally["done"].as_u64().unwrap())
        .sum::<u64>();
    assert_eq!(
        (done, stat["actions"]["write"]["done"].as_u64()),
        (17_917, Some(1_433))
    );
    let bytes = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    assert_eq!(fs::read(make("berlioz", "sessions", "3")).unwrap(), bytes);
    let all = json(
        &world,
        &[
            str(&file),
            "--profiles",
            "handheld",
            "--policy",
            "coda,bluefs",
            "--memory",
            "16M",
            "--closed",
        ],
    );
    assert_eq!(all["trace"]["events"], 17_917);
    assert!(
        all["trace"]["from_memory"].as_u64().unwrap() > 1000,
        "{all}"
    );
    let says = |args: &[&str], words: &[&str]| {
        let said = world
            .teal(&[&["lab", "generate"], args].concat())
            .expect_refusal();
        words
            .iter()
            .for_each(|word| assert!(said.contains(word), "{word} is not in: {said}"));
    };
    says(
        &["berlioz", "--gaps", "even", "-o", str(&file)],
        &["berlioz-sessions-3", "exists"],
    );
    says(
        &["bellioz", "--gaps", "even", "-o", "x"],
        &["bellioz", "did you mean berlioz?"],
    );
    says(&["jeff", "--gaps", "odd", "-o", "x"], &["odd", "sessions"]);
    assert!(
        !world.path("x").exists(),
        "nothing is left of what was refused"
    );
}

#[test]
fn what_cannot_be_replayed_is_refused_in_one_line() {
    let world = World::without_mounts();
    let file = trace(&world, "hour", &hour());
    let block = trace(&world, "block", "teal-trace 1 block\n1 0 0 bflush\n");
    let says = |args: &[&str], words: &[&str]| {
        let said = world
            .teal(&[&["lab", "replay"], args].concat())
            .expect_refusal();
        words
            .iter()
            .for_each(|word| assert!(said.contains(word), "{word} is not in: {said}"));
    };
    let day = str(&file);
    says(
        &[day, "--profiles", "labtop"],
        &["labtop", "did you mean laptop?"],
    );
    says(
        &[day, "--profiles", "ibm-microdrive,ipaq-3870"],
        &["ibm-microdrive", "did you mean ibm-microdrive-1gb?"],
    );
    says(
        &[day, "--profiles", "wd-re-4tb,ipaq-3870"],
        &["wd-re-4tb has no", "cannot be simulated"],
    );
    says(
        &[day, "--profiles", "ipaq-3870,thinkpad-t42"],
        &["both machines"],
    );
    says(
        &[day, "--profiles", "laptop", "--policy", "tael"],
        &["no policy tael", "bluefs"],
    );
    says(
        &[day, "--profiles", "laptop", "--explain", "1"],
        &["--policy"],
    );
    says(
        &[
            day,
            "--profiles",
            "laptop",
            "--policy",
            "teal",
            "--explain",
            "soon",
        ],
        &["'soon'", "90s"],
    );
    says(
        &[
            day,
            "--profiles",
            "laptop",
            "--policy",
            "teal",
            "--explain",
            "999999999",
        ],
        &["no such decision"],
    );
    says(
        &[day, "--profiles", "home-server", "--warm", "50"],
        &["--warm", "link"],
    );
    says(&["/nowhere", "--profiles", "laptop"], &["/nowhere"]);
    says(
        &[str(&block), "--profiles", "laptop"],
        &["only traces of files"],
    );
    let foreign = world.path("foreign");
    fs::write(&foreign, "precious words that are no trace").unwrap();
    says(
        &[str(&foreign), "--profiles", "laptop"],
        &["foreign", "not a TealFS trace"],
    );

    // A profile of one's own: each mistake with its line.
    let shipped = fs::read_to_string("../teal-energy/profiles/ibm-microdrive-1gb.toml").unwrap();
    let own = world.path("own.toml");
    let wrong = |from: &str, to: &str, words: &[&str]| {
        assert!(shipped.contains(from));
        fs::write(&own, shipped.replace(from, to)).unwrap();
        says(
            &[day, "--profiles", &format!("{},ipaq-3870", str(&own))],
            &[&["own.toml", "line "], words].concat(),
        );
    };
    wrong(
        "power = \"222 mW\"",
        "power = \"-222 mW\"",
        &["negative", "line 7"],
    );
    wrong("average = \"12 ms\"", "", &["average"]);
    wrong(
        "average = \"12 ms\"",
        "averag = \"12 ms\"",
        &["did you mean `average`?"],
    );
    wrong("to = \"standby\"", "to = \"asleep\"", &["asleep"]);
    wrong("[rotation]", "[rotatio]", &["did you mean `rotation`?"]);
    wrong("speed = \"3600 rpm\"", "speed = \"0 rpm\"", &["above zero"]);
    wrong("[seek]", "[seek", &[]);
}

#[test]
fn a_trace_that_was_cut_off_is_replayed_as_far_as_it_goes_and_says_so() {
    let world = World::without_mounts();
    let file = trace(&world, "hour", &hour());
    let mut bytes = fs::read(&file).unwrap();
    // The last block is cut: it is all there is of so short a trace, so a second copy of the text
    // makes more.
    bytes.truncate(bytes.len() - 1);
    let cut = world.path("cut");
    fs::write(&cut, &bytes).unwrap();
    let said = world.teal(&["lab", "replay", str(&cut), "--profiles", "laptop"]);
    assert_eq!(said.code, 1, "{said}");
    assert!(said.stderr.contains("no event"), "{said}");
    // Thousands of events are several blocks.
    let many: String = (0..30_000)
        .map(|n| {
            format!(
                "{} 7 {} read offset=0 length=4096 = 4096\n",
                n / 50,
                20 + n % 900
            )
        })
        .collect();
    let long = trace(&world, "long", &format!("teal-trace 1 file\n{many}"));
    let bytes = fs::read(&long).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 100]).unwrap();
    let args = [
        "lab",
        "replay",
        str(&cut),
        "--profiles",
        "laptop",
        "--policy",
        "teal",
        "--json",
    ];
    let said = world.teal(&args);
    assert!(
        said.stderr.contains("cut off at byte") && said.stderr.lines().count() == 1,
        "{said}"
    );
    let all: Value = serde_json::from_str(&said.expect_success()).unwrap();
    assert_eq!(all["trace"]["complete"], false);
    assert!(
        (1..30_000).contains(&all["trace"]["events"].as_u64().unwrap()),
        "{all}"
    );
}
