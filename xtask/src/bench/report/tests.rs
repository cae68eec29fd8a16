//! Tests of the rule and of the table.

use super::*;
use crate::bench::meter::SubjectCounts;

fn facts() -> RunFacts {
    let text = String::new;
    RunFacts {
        date: "2026-01-02".to_owned(),
        kernel: text(),
        cores: 2,
        memory_gib: 4,
        disk: text(),
        load: text(),
        commit: text(),
        rounds: 3,
        seconds: 1.0,
    }
}

fn sample(row: &'static str, subject: &'static str, round: usize, wall: f64) -> RowSample {
    RowSample {
        row,
        subject,
        round,
        wall,
        ops: 10,
        client_cpu: wall,
        ..RowSample::default()
    }
}

fn row(name: &str) -> &'static BenchRow {
    all_rows().find(|row| row.name.contains(name)).unwrap()
}

#[test]
fn ratios_are_taken_within_a_round() {
    let row = row("stat, warm");
    let samples = [
        sample(row.name, "ext4", 0, 1.0),
        sample(row.name, "teal", 0, 2.0),
        sample(row.name, "ext4", 1, 10.0),
        sample(row.name, "teal", 1, 10.0),
        sample(row.name, "ext4", 2, 2.0),
        sample(row.name, "teal", 2, 3.0),
        sample(row.name, "teal", 3, 99.0),
    ];
    let found = RowFigures {
        samples: &samples,
        row,
    }
    .ratio_to_ext4("teal", |s| s.wall)
    .unwrap();
    assert_eq!(
        found,
        MedianSpread {
            median: 1.5,
            least: 1.0,
            most: 2.0
        }
    );
}

#[test]
fn a_row_is_met_at_its_goal_or_a_quarter_above_the_mirror() {
    let row = row("create + write");
    let missed = |teal: f64, mirror: Option<f64>| {
        let mut samples = vec![
            sample(row.name, "ext4", 0, 1.0),
            sample(row.name, "teal", 0, teal),
        ];
        samples.extend(mirror.map(|wall| sample(row.name, "mirror", 0, wall)));
        RowFigures {
            samples: &samples,
            row,
        }
        .missed_goals()
        .unwrap()
    };
    assert_eq!(missed(3.0, None), [""; 0]);
    assert_eq!(missed(3.1, Some(1.0)), ["time"]);
    assert_eq!(missed(5.0, Some(4.0)), [""; 0]);
    assert_eq!(missed(5.1, Some(4.0)), ["time"]);
}

#[test]
fn barriers_are_a_count_whatever_the_mirror_does() {
    let row = row("16 threads");
    let mut teal = sample(row.name, "teal", 0, 1.0);
    teal.counts = SubjectCounts {
        barriers: 5,
        ..SubjectCounts::default()
    };
    let mut mirror = teal.clone();
    mirror.subject = "mirror";
    mirror.counts.barriers = 100;
    let samples = [sample(row.name, "ext4", 0, 1.0), teal, mirror];
    assert_eq!(
        RowFigures {
            samples: &samples,
            row
        }
        .missed_goals()
        .unwrap(),
        ["barriers"]
    );
}

#[test]
fn the_table_shows_measured_rows_only_and_every_number_it_has() {
    let row = row("stat, warm");
    let samples = [
        sample(row.name, "ext4", 0, 1.0),
        sample(row.name, "teal", 0, 1.05),
        sample(row.name, "mirror", 0, 14.0),
    ];
    let table = render_markdown(&samples, &facts());
    let line = "| stat, warm | 1.1 | 1.05 | 14.0 | – | yes |";
    assert!(table.contains(line), "{table}");
    assert!(!table.contains("untar"), "{table}");
    let json = render_json(&samples, &facts());
    assert_eq!(json["samples"].as_array().unwrap().len(), 3);
    assert_eq!(json["samples"][1]["wall_seconds"], 1.05);
}

#[test]
fn what_asks_for_nothing_is_neither_met_nor_missed() {
    let row = row("append");
    let samples = [
        sample(row.name, "ext4", 0, 1.0),
        sample(row.name, "teal", 0, 9.0),
    ];
    assert_eq!(
        RowFigures {
            samples: &samples,
            row
        }
        .missed_goals(),
        None
    );
}
