//! Matrices and findings on runs made up for that.

use super::*;
use proptest::prelude::*;

const TEXT: &str = r#"
version = 1
[device]
profile = "wd-re-4tb"
size = "4G"
[runs]
least = 2
most = 8
seed = 7
scale = 0.5
seconds = 10
[[workload]]
name = "web"
script = "web"
[[workload]]
name = "mail"
script = "mail"
set = ["files=100"]
[[system]]
name = "ext4"
kind = "ext4"
[[system]]
name = "xfs noatime"
kind = "xfs"
mkfs = ["-i", "size=1024"]
mount = "noatime"
[schedulers]
names = ["none", "bfq"]
"#;

fn wrong(from: &str, to: &str) -> String {
    let text = TEXT.replacen(from, to, 1);
    assert_ne!(text, TEXT, "{from}");
    Matrix::parse(&text).unwrap_err().to_string()
}

#[test]
fn a_matrix_is_read_and_what_is_wrong_is_told_with_its_place() {
    let matrix = Matrix::parse(TEXT).unwrap();
    assert_eq!(
        (matrix.cells().len(), matrix.device.size, matrix.runs.cache),
        (8, Some(4 << 30), CacheState::Cold)
    );
    assert_eq!(
        matrix.cell_names(matrix.cells()[7]),
        ["mail", "xfs noatime", "bfq"]
    );
    assert_eq!(
        Matrix::parse(&matrix.to_toml()),
        Ok(matrix),
        "it is written as it is read"
    );
    for (from, to, said) in [
        ("version = 1", "version = 2", "version: 2 is not known"),
        ("size = \"4G\"", "", "device: a modelled disk needs a size"),
        (
            "size = \"4G\"",
            "path = \"/dev/sdz\"",
            "say either profile and size, or path",
        ),
        ("size = \"4G\"", "size = \"4 bytes\"", "line 5"),
        ("least = 2", "least = 9", "at least 9 and at most 8"),
        ("least = 2", "lest = 2", "unknown field `lest`"),
        ("seed = 7", "within = 5.0", "runs.within"),
        ("scale = 0.5", "scale = -1.0", "runs.scale"),
        ("seconds = 10", "seconds = 0", "runs.seconds"),
        (
            "seconds = 10",
            "memory = \"23M\"",
            "runs.memory: 24117248 bytes do not hold",
        ),
        (
            "seconds = 10",
            "aged = 81",
            "runs.aged: 81 percent are none",
        ),
        ("seconds = 10", "aged = 0", "runs.aged: 0 percent are none"),
        (
            "set = [\"files=100\"]",
            "operations = 0",
            "workload.operations",
        ),
        ("files=100", "files", "'files' sets nothing"),
        (
            "files=100",
            "files=100\", \"$files=7",
            "workload.set: $files is set twice in mail",
        ),
        (
            "profile = \"wd-re-4tb\"\nsize = \"4G\"",
            "path = \"\"",
            "device.path: it is empty",
        ),
        (
            "name = \"mail\"",
            "name = \"a\\nb\"",
            r#""a\nb" is no name: 1 to 60 bytes without '|', '/' and line breaks"#,
        ),
        ("kind = \"xfs\"", "kind = \"zfs\"", "unknown variant `zfs`"),
        (
            "kind = \"xfs\"",
            "kind = \"xfs\"\nwhere = \"here\"",
            "expected `host` or `guest`",
        ),
        (
            "kind = \"ext4\"",
            "kind = \"teal\"\nwhere = \"guest\"",
            "system.where: ext4: teal runs on this machine's kernel",
        ),
        ("name = \"mail\"", "name = \"web\"", "two are called 'web'"),
        ("[\"none\", \"bfq\"]", "[]", "schedulers: there is none"),
        ("name = \"mail\"", "name = \"a|b\"", "is no name"),
        ("version = 1", "version = ", "line 2"),
        (
            "[runs]",
            "[meter]\nkind = \"rapl\"\n[runs]",
            "meter: a modelled disk has joules of its own",
        ),
    ] {
        let error = wrong(from, to);
        assert!(error.contains(said), "{to}: {error}");
    }
}

#[test]
fn options_name_no_device_that_nobody_has_allowed_to_be_erased() {
    let parse = |kind: &str, mkfs: &str, mount: &str| {
        let own = format!("kind = \"{kind}\"\nmkfs = [{mkfs}]\nmount = \"{mount}\"");
        Matrix::parse(&TEXT.replacen("kind = \"ext4\"", &own, 1)).map_err(|error| error.to_string())
    };
    for (kind, mkfs, mount) in [
        ("btrfs", r#""/dev/loop3""#, ""),
        ("btrfs", r#""-d", "single", "loop3""#, ""),
        ("btrfs", r#""-K", "../dev/loop3""#, ""),
        ("btrfs", r#""-Kd", "single", "loop3""#, ""),
        ("btrfs", r#""--nodesize=4096", "loop3""#, ""),
        ("btrfs", r#""--", "loop3""#, ""),
        ("btrfs", r#""-""#, ""),
        ("btrfs", r#""--root", "home""#, ""),
        ("btrfs", "", "noatime,device=/dev/loop3"),
        ("ext4", r#""-J", "device=LABEL=j""#, ""),
        ("ext4", r#""-Jsize=4,device=loop3""#, ""),
        ("ext4", r#""-O", "journal_dev""#, ""),
        ("ext4", "", "journal_path=loop3"),
        ("ext4", "", "journal_dev=0x700"),
        ("xfs", r#""-l", "logdev=loop3""#, ""),
        ("xfs", r#""-r", "rtdev=loop3""#, ""),
        ("xfs", r#""-d", "name=loop3""#, ""),
        ("xfs", "", "logdev=loop3"),
        ("jfs", r#""-j", "loop3""#, ""),
        ("f2fs", r#""-fc", "loop3""#, ""),
        ("reiserfs", r#""--journal-device", "loop3""#, ""),
        ("reiserfs", "", "jdev=loop3"),
        ("teal", r#""loop3""#, ""),
    ] {
        let error = parse(kind, mkfs, mount).unwrap_err();
        assert!(
            error.starts_with("system: ext4: m") && error.lines().count() == 1,
            "{kind} {mkfs} {mount}: {error}"
        );
        assert!(
            error.contains("names a device") || error.contains("is no option"),
            "{kind} {mkfs} {mount}: {error}"
        );
    }
    assert!(
        parse("ext4", r#""-b""#, "")
            .unwrap_err()
            .contains("mkfs: '-b' lacks its value")
    );
    for (kind, mkfs, mount) in [
        (
            "ext4",
            r#""-b", "1024", "-O^has_journal", "-J", "size=4""#,
            "noatime,data=journal",
        ),
        (
            "xfs",
            r#""-d", "agcount=2", "-i", "size=1024", "-K""#,
            "noatime",
        ),
        (
            "btrfs",
            r#""-m", "single", "--csum", "xxhash", "-K", "-L", "loop3""#,
            "compress=zstd:1",
        ),
        ("f2fs", r#""-O", "encrypt", "-s1""#, "mode=lfs"),
        ("teal", r#""--label", "loop3""#, "commit=5"),
    ] {
        assert!(
            parse(kind, mkfs, mount).is_ok(),
            "{kind} {mkfs} {mount}: {:?}",
            parse(kind, mkfs, mount)
        );
    }
    let kinds = FileSystemKind::ALL.to_vec();
    let all = known_systems(&kinds, true);
    assert!(
        all.iter()
            .chain(&combine_options(&all))
            .all(|system| system.check_options().is_ok()),
        "what tune tries"
    );
}

#[test]
fn ext_file_systems_are_made_whole_whatever_else_is_asked() {
    let text = |mkfs: &str| {
        TEXT.replacen(
            "kind = \"ext4\"",
            &format!("kind = \"ext4\"\nmkfs = [{mkfs}]"),
            1,
        )
    };
    let format = |mkfs: &str| {
        Matrix::parse(&text(mkfs)).unwrap().systems[0]
            .mkfs_arguments()
            .join(" ")
    };
    assert_eq!(
        format(""),
        "-q -F -E lazy_itable_init=0,lazy_journal_init=0"
    );
    assert_eq!(
        format("\"-b\", \"1024\""),
        "-q -F -b 1024 -E lazy_itable_init=0,lazy_journal_init=0"
    );
    assert_eq!(
        format("\"-E\", \"stride=4\""),
        "-q -F -E lazy_itable_init=0,lazy_journal_init=0,stride=4"
    );
    assert_eq!(
        Matrix::parse(TEXT).unwrap().systems[1]
            .mkfs_arguments()
            .join(" "),
        "-q -f -i size=1024"
    );
}

#[test]
fn every_block_has_every_cell_in_an_order_of_its_own() {
    let matrix = Matrix::parse(TEXT).unwrap();
    let mut orders = Vec::new();
    for block in 0..5 {
        let order = matrix.cells_in_block(block);
        assert_eq!(order, matrix.cells_in_block(block), "and always the same");
        let mut sorted = order.clone();
        sorted.sort();
        assert_eq!(sorted, matrix.cells());
        orders.push(order);
    }
    orders.sort();
    orders.dedup();
    assert_eq!(orders.len(), 5);
    assert_ne!(matrix.block_seed(0), matrix.block_seed(1));
}

/// A run of a cell whose device works for `busy` seconds at `watts`.
pub(super) fn run(names: [&str; 3], block: u32, rate: f64, busy: f64, watts: f64) -> CellRun {
    let spent = |part: f64| DeviceUse {
        joules: busy * watts * part,
        busy: busy * part,
        read: 500_000,
        written: 500_000,
        flushes: 1,
        seeks: 9,
    };
    CellRun {
        version: CellRun::VERSION,
        workload: names[0].into(),
        system: names[1].into(),
        scheduler: names[2].into(),
        block,
        operations: 1000,
        bytes: 2_000_000,
        seconds: 10.0,
        latency_ms: [10.0, 9.0, 20.0, 30.0],
        steady_from: Some(0),
        rate,
        meter: EnergySource::Model("wd-re-4tb".into()),
        run: spent(0.75),
        drain: spent(0.25),
        load_before: 0.1,
        power: Vec::new(),
        guest: None,
        ended: None,
    }
}

#[test]
fn runs_that_did_less_than_was_asked_are_named_and_not_ranked_with_the_rest() {
    let matrix =
        Matrix::parse(&TEXT.replacen("set = [\"files=100\"]", "operations = 1000", 1)).unwrap();
    let mut runs: Vec<CellRun> = (0..3)
        .flat_map(|block| {
            ["ext4", "xfs noatime"].map(|of| run(["mail", of, "none"], block, 9.0, 2.0, 1.0))
        })
        .collect();
    let best = |runs: &[CellRun]| {
        MatrixFindings::from_runs(&matrix, runs).verdicts[1]
            .by_joule
            .as_ref()
            .map(|of| of.ties.len())
    };
    assert_eq!(
        (
            best(&runs),
            MatrixFindings::from_runs(&matrix, &runs).short.len()
        ),
        (Some(1), 0)
    );
    runs[0].operations = 999;
    assert_eq!(
        MatrixFindings::from_runs(&matrix, &runs).short.len(),
        0,
        "one that was on its way"
    );
    for run in runs.iter_mut().filter(|run| run.system == "ext4") {
        (run.operations, run.ended) = (700, Some("<all> files are gone".into()));
    }
    let findings = MatrixFindings::from_runs(&matrix, &runs);
    assert_eq!(
        findings.short,
        ["mail, ext4, none: 3 of 3 runs ended after 700 of 1000 operations: <all> files are gone"]
    );
    assert_eq!(best(&runs), None, "nothing is left that could be compared");
    let page = render_markdown(&matrix, &findings, "modelled");
    assert!(
        page.contains("## What ended early") && page.contains(r"\<all\> files are gone"),
        "{page}"
    );
    // Those that did alike much are ranked.
    runs.iter_mut().for_each(|run| run.operations = 700);
    assert_eq!(best(&runs), Some(1));
}

#[test]
fn what_cannot_be_told_apart_is_a_tie_and_the_rest_is_not() {
    let matrix = Matrix::parse(TEXT).unwrap();
    let mut runs = Vec::new();
    for block in 0..4 {
        // Drift that is in every cell of a block, and noise of half a percent.
        let drift = 1.0 + f64::from(block) * 0.3;
        let noise = 1.0 + f64::from(block % 2) * 0.005;
        for (system, scheduler, busy) in [
            ("ext4", "none", 20.0),
            ("ext4", "bfq", 40.0),
            ("xfs noatime", "none", 10.0 * noise),
            ("xfs noatime", "bfq", 10.01),
        ] {
            runs.push(run(
                ["web", system, scheduler],
                block,
                100.0 / busy / drift,
                busy * drift,
                5.0,
            ));
        }
    }
    let findings = MatrixFindings::from_runs(&matrix, &runs);
    assert_eq!(
        (findings.runs, findings.blocks, findings.widest_interval()),
        (16, 0, None),
        "nothing of mail yet"
    );
    let web = &findings.verdicts[0];
    let choice = web.by_device.as_ref().unwrap();
    assert_eq!(choice.best.names[1], "xfs noatime");
    assert_eq!(choice.ties.len(), 1, "{choice:?}");
    assert_eq!(choice.ties[0].0.names[1], "xfs noatime");
    let (low, high) = choice.gain.unwrap();
    assert!(
        (1.9..2.1).contains(&low) && (3.9..4.1).contains(&high),
        "{low} {high}"
    );
    assert_eq!(web.by_rate.as_ref().unwrap().best.names[1], "xfs noatime");
    // Power is the same everywhere: what is fast is frugal.
    assert!(web.r.unwrap() > 0.999, "{:?}", web.r);
    assert!(
        web.watts
            .is_some_and(|(low, high)| (low - 5.0).abs() < 1e-9 && (high - 5.0).abs() < 1e-9)
    );
    assert!(findings.verdicts[1].by_device.is_none());
    let row = &findings.rows[0];
    assert!((row.drained - 0.25).abs() < 1e-9 && row.runs == 4 && row.steady == 4);
    assert!(
        (row.ai[0].unwrap() - row.performance[0] / row.joules_per_thousand.unwrap().mean).abs()
            < 1e-12
    );
    let page = render_markdown(&matrix, &findings, "modelled");
    assert!(
        page.contains("**xfs noatime,") && page.contains("not to be told from it: xfs noatime"),
        "{page}"
    );
    assert!(page.contains("scaled by 0.5"));
    // Names are names, whatever they look like.
    let odd = "<i>*`x`*";
    let text = TEXT.replacen("xfs noatime", odd, 1);
    let renamed: Vec<CellRun> = runs
        .iter()
        .map(|run| CellRun {
            system: run.system.replace("xfs noatime", odd),
            meter: EnergySource::None,
            ..run.clone()
        })
        .map(|mut run| {
            (run.run.joules, run.drain.joules) = (0.0, 0.0);
            run
        })
        .collect();
    let odd = Matrix::parse(&text).unwrap();
    let page_ = render_markdown(&odd, &MatrixFindings::from_runs(&odd, &renamed), "none");
    assert!(
        page_.contains(r"**\<i\>\*\`x\`\*, ") && !page_.contains("<i>"),
        "{page_}"
    );
    assert!(
        page_.contains("Operations for each joule: not known: the device has no meter"),
        "{page_}"
    );
    let about = PageDetails {
        title: "a & b".into(),
        machine: vec!["Linux <6>".into()],
        meter: "modelled".into(),
        commands: vec!["teal".into()],
    };
    let page = render_html(&matrix, &findings, &about);
    for words in [
        "<title>a &amp; b</title>",
        "Linux &lt;6&gt;",
        "<strong>xfs noatime,",
        "class=\"dot front\"",
        "class=\"bar best\"",
        "[[workload]]",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    for outside in ["http", "src=", "href=", "<script", "url(", "NaN", "inf"] {
        assert!(!page.contains(outside), "{outside}: {page}");
    }
    assert!(!is_settled(&matrix, &findings));
}

#[test]
fn runs_that_are_not_steady_are_not_ranked_by_the_clock() {
    let matrix = Matrix::parse(TEXT).unwrap();
    let runs: Vec<CellRun> = (0..3)
        .flat_map(|block| {
            ["none", "bfq"].map(|s| CellRun {
                steady_from: None,
                ..run(["web", "ext4", s], block, 9.0, 2.0, 1.0)
            })
        })
        .collect();
    let findings = MatrixFindings::from_runs(&matrix, &runs);
    assert!(findings.verdicts[0].by_rate.is_none() && findings.verdicts[0].by_device.is_some());
    assert!(
        render_markdown(&matrix, &findings, "modelled").contains("not steady here: no ranking")
    );
    // A run that left the device alone is said to be one of memory.
    let still = CellRun {
        bytes: 1 << 40,
        ..runs[0].clone()
    };
    assert!(still.is_of_memory() && !runs[0].is_of_memory());
}

#[test]
fn what_ran_in_a_guest_is_compared_by_the_device_and_not_ranked_on_the_clock() {
    let text = TEXT.replacen("kind = \"xfs\"", "kind = \"xfs\"\nwhere = \"guest\"", 1);
    let matrix = Matrix::parse(&text).unwrap();
    assert_eq!(
        (matrix.systems[0].place, matrix.systems[1].place),
        (None, Some(KernelPlace::Guest))
    );
    assert_eq!(
        Matrix::parse(&matrix.to_toml()),
        Ok(matrix.clone()),
        "it is written as it is read"
    );
    let mut runs = Vec::new();
    for block in 0..3 {
        for scheduler in ["none", "bfq"] {
            runs.push(run(["web", "ext4", scheduler], block, 9.0, 4.0, 5.0));
            let guest = Some("user-mode Linux 6.1".into());
            runs.push(CellRun {
                guest,
                ..run(["web", "xfs noatime", scheduler], block, 900.0, 2.0, 5.0)
            });
        }
    }
    let read: CellRun = serde_json::from_str(&serde_json::to_string(&runs[1]).unwrap()).unwrap();
    assert_eq!(read, runs[1]);
    let findings = MatrixFindings::from_runs(&matrix, &runs);
    let web = &findings.verdicts[0];
    assert_eq!(
        web.by_rate.as_ref().unwrap().best.names[1],
        "ext4",
        "a hundred times slower on the clock that counts"
    );
    assert_eq!(web.by_device.as_ref().unwrap().best.names[1], "xfs noatime");
    assert_eq!(web.by_joule.as_ref().unwrap().best.names[1], "xfs noatime");
    let row = findings
        .rows
        .iter()
        .find(|row| row.names[1] == "xfs noatime")
        .unwrap();
    assert!(
        row.rate.is_none() && row.ai[0].is_some() && row.ai[2].is_none(),
        "{row:?}"
    );
    let page = render_markdown(&matrix, &findings, "modelled");
    assert!(
        page.contains("In a guest (user-mode Linux 6.1): xfs noatime. "),
        "{page}"
    );
    assert!(
        page.contains("file systems in a guest are not ranked on the clock"),
        "{page}"
    );
    // None but guests.
    runs.retain(|run| run.guest.is_some());
    let page = render_markdown(
        &matrix,
        &MatrixFindings::from_runs(&matrix, &runs),
        "modelled",
    );
    assert!(
        page.contains("on the clock: in a guest: not ranked on the clock"),
        "{page}"
    );
}

#[test]
fn cemp_is_the_change_of_energy_by_the_change_of_performance() {
    let change = cemp_between((10.0, 100.0), (12.0, 150.0));
    assert!((change.value().unwrap() - 0.4).abs() < 1e-12);
    assert_eq!(cemp_between((10.0, 100.0), (12.0, 100.0)).value(), None);
}

proptest! {
    #[test]
    fn nothing_outside_the_front_is_unbeaten(points in proptest::collection::vec((0.0_f64..10.0, 0.0_f64..10.0), 1..40)) {
        let front = pareto_front(&points);
        prop_assert!(!front.is_empty());
        for (at, (x, y)) in points.iter().enumerate() {
            let is_beaten = points.iter().any(|(a, b)| a >= x && b >= y && (a > x || b > y));
            prop_assert_eq!(front.contains(&at), !is_beaten);
        }
    }
}

#[test]
fn what_the_machine_did_besides_and_how_it_drifted_is_said() {
    let matrix = Matrix::parse(&TEXT.replacen("seed = 7", "aged = 60", 1)).unwrap();
    assert_eq!(Matrix::parse(&matrix.to_toml()), Ok(matrix.clone()));
    // The first system gets a tenth slower from block to block, under both schedulers; the other
    // does not count.
    let runs: Vec<CellRun> = (0..4)
        .flat_map(|block| {
            [("ext4", "none"), ("ext4", "bfq"), ("xfs noatime", "none")].map(
                |(system, scheduler)| {
                    let slower = if system == "ext4" {
                        1.1_f64.powi(block as i32)
                    } else {
                        1.0
                    };
                    let (seconds, load_before) = (10.0 * slower, f64::from(block) + 0.5);
                    CellRun {
                        seconds,
                        load_before,
                        power: vec![[0.5, 4.0], [1.5, 6.0]],
                        ..run(["web", system, scheduler], block, 9.0, 20.0, 5.0)
                    }
                },
            )
        })
        .collect();
    let findings = MatrixFindings::from_runs(&matrix, &runs);
    let drift = findings.verdicts[0].drift.unwrap();
    assert!(
        (drift.ratio - 1.1_f64.powi(-3)).abs() < 1e-9 && drift.n == 4 && !drift.is_inconclusive(),
        "{drift:?}"
    );
    assert_eq!(
        (findings.load, findings.verdicts[1].drift),
        (Some([0.5, 2.0, 3.5]), None)
    );
    // A block that lacks a cell of the first system does not count.
    let lacking: Vec<CellRun> = runs
        .iter()
        .filter(|run| run.block != 3 || run.scheduler != "bfq")
        .cloned()
        .collect();
    assert_eq!(
        MatrixFindings::from_runs(&matrix, &lacking).verdicts[0]
            .drift
            .unwrap()
            .n,
        3
    );
    let about = PageDetails {
        title: "t".into(),
        machine: Vec::new(),
        meter: "modelled".into(),
        commands: Vec::new(),
    };
    let page = render_html(&matrix, &findings, &about);
    for text in [
        render_markdown(&matrix, &findings, "modelled"),
        page.clone(),
    ] {
        assert!(
            text.contains(
                "Drift of ext4, operations a second on the clock, from the first block \
                           to the last: 0.75"
            ),
            "{text}"
        );
        assert!(text.contains("the machine did not stay the same"), "{text}");
        assert!(
            text.contains("0.5 to 3.5 processes wanted to run, 2.0 in the median"),
            "{text}"
        );
        assert!(
            text.contains("of which 60 %, drawn anew in each block, were left"),
            "{text}"
        );
    }
    assert!(
        page.contains("watts over 1.0 s of virtual time, modelled: "),
        "{page}"
    );
    let measured = TEXT.replacen(
        "profile = \"wd-re-4tb\"\nsize = \"4G\"",
        "path = \"/dev/sdz\"",
        1,
    );
    let page = render_html(&Matrix::parse(&measured).unwrap(), &findings, &about);
    assert!(
        page.contains("watts over 1.0 s of a run, measured: "),
        "{page}"
    );
}
