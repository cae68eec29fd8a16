//! Re-enactments come out as the papers say, or as the remark beside them says.

use super::*;

fn table(name: &str) -> PaperTable {
    let (_, _, make) = ALL.iter().find(|(known, ..)| *known == name).unwrap();
    make()
}

/// The percentage in "35 % less (…)".
fn reduced(row: &PaperFigure) -> i64 {
    let words: Vec<_> = row.ours.split(' ').collect();
    let percent: i64 = words[0].parse().unwrap();
    if words[2] == "less" {
        percent
    } else {
        -percent
    }
}

#[test]
fn the_start_of_a_disk_is_masked_as_in_figure_4() {
    let table = table("bluefs-4");
    let ours = |what: &str| {
        table
            .rows
            .iter()
            .find(|row| row.what.starts_with(what))
            .unwrap()
            .ours
            .clone()
    };
    assert_eq!(ours("4 KB"), "12.98 ms, ext2 821.55 ms");
    assert_eq!(ours("from this size"), "280 KB", "the paper: 256 KB");
    assert_eq!(ours("first byte"), "808.57 ms", "the paper: 800 ms");
}

#[test]
fn bluefs_saves_time_and_energy_against_coda_whatever_the_gaps() {
    for name in ["bluefs-7", "bluefs-8"] {
        let table = table(name);
        let rows: Vec<_> = table
            .rows
            .iter()
            .filter(|row| row.paper.ends_with("less"))
            .collect();
        assert_eq!(
            rows.len(),
            12,
            "delay and energy, two latencies, three models of gaps"
        );
        for row in rows {
            assert!(reduced(row) > 0, "{name}: {row:?}");
        }
    }
}

#[test]
fn flash_takes_delay_away_and_changes_little_of_the_energy() {
    let table = table("bluefs-9");
    for row in &table.rows {
        let range = if row.what.starts_with("delay") {
            1..50
        } else {
            -12..10
        };
        assert!(range.contains(&reduced(row)), "{row:?}");
    }
    assert!(table.modelled_by[0].ends_with("assumed"));
}

#[test]
fn streams_agree_with_table_3() {
    let table = table("greenfs-3");
    for row in &table.rows {
        let number = |text: &str| text.replace([',', ' ', '%'], "").parse::<f64>().unwrap();
        assert!(
            (number(&row.paper) - number(&row.ours)).abs() < 0.005,
            "{row:?}"
        );
    }
}

#[test]
fn idle_machines_draw_what_table_4_says_but_for_the_server() {
    let watts = |text: &str| {
        text.split([' ', ','])
            .next()
            .unwrap()
            .parse::<f64>()
            .unwrap()
    };
    for row in &table("greenfs-4").rows {
        let apart = (watts(&row.paper) - watts(&row.ours)).abs();
        assert!(
            if row.what == "server" {
                apart > 5.0
            } else {
                apart < 0.3
            },
            "{row:?}"
        );
    }
}
