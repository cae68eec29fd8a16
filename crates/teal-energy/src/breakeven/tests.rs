//! GreenFS Table 2 and equation 1, and the break-even times that `docs/energy.md` lists.

use super::*;
use proptest::prelude::*;

fn burst(name: &str) -> BurstEnergy {
    Profile::find_shipped(name).unwrap().burst.unwrap()
}

/// GreenFS, Table 2: start-up energy in mJ, power in mW, bandwidth in MB/s.
const TABLE_2: [(&str, u64, u64, u64); 6] = [
    ("greenfs-server-hdd", 75_000, 15_000, 71),
    ("greenfs-desktop-hdd", 41_000, 11_000, 56),
    ("greenfs-notebook-hdd", 5_000, 2_500, 44),
    ("greenfs-gigabit", 120, 1_500, 86),
    ("greenfs-100mb", 120, 1_200, 11),
    ("greenfs-802.11g", 140, 1_400, 2),
];

#[test]
fn greenfs_table_2_and_equation_1() {
    for (name, start, power, rate) in TABLE_2 {
        let given = burst(name);
        assert_eq!(given.start, Energy::from_millijoules(start), "{name}");
        assert_eq!(given.power, Power::from_milliwatts(power), "{name}");
        assert_eq!(given.rate.get(), rate * 1_000_000, "{name}");
        for megabytes in [0, 1, 10, 100, 1000] {
            // U = U_up + P S / B with S in MB, B in MB/s: microjoules, rounded to the nearest.
            let transfer = (power * 1000 * megabytes * 2 + rate) / (2 * rate);
            let expected = Energy::from_microjoules(start * 1000 + transfer);
            assert_eq!(
                given.energy_for(Bytes::new(megabytes * 1_000_000)),
                expected,
                "{name}, {megabytes} MB"
            );
        }
    }
}

#[test]
fn sizes_from_which_a_disk_is_cheaper_than_the_network() {
    let megabytes = |disk: &str, link: &str| {
        burst(disk)
            .cheaper_from(&burst(link))
            .map(|s| s.get() / 100_000)
    };
    let row = |disk| {
        ["greenfs-gigabit", "greenfs-100mb", "greenfs-802.11g"].map(|link| megabytes(disk, link))
    };
    // In tenths of MB. "Reads as large as hundreds of megabytes can be more efficient over the
    // network" (2.5.3).
    assert_eq!(row("greenfs-server-hdd"), [None, None, Some(1531)]);
    assert_eq!(row("greenfs-desktop-hdd"), [None, None, Some(811)]);
    assert_eq!(row("greenfs-notebook-hdd"), [None, Some(933), Some(75)]);
    assert_eq!(
        burst("greenfs-gigabit").cheaper_from(&burst("greenfs-server-hdd")),
        Some(Bytes::new(0))
    );
}

#[test]
fn break_even_times_of_the_shipped_profiles() {
    let time = |name: &str, from: &str, to: &str| {
        let profile = Profile::find_shipped(name).unwrap();
        let trip = RoundTrip::between_states(
            &profile,
            profile.state_named(from).unwrap(),
            profile.state_named(to).unwrap(),
        )
        .unwrap();
        trip.break_even().unwrap().get() / 1_000_000
    };
    // Milliseconds, as in the table of docs/energy.md.
    assert_eq!(time("ibm-microdrive-1gb", "idle", "standby"), 3454);
    assert_eq!(time("hitachi-travelstar-5k320", "idle", "standby"), 15_500);
    assert_eq!(time("desktop-7200rpm-composed", "idle", "standby"), 17_400);
    assert_eq!(time("bluefs-802.11b", "cam", "psm"), 100);
    assert_eq!(time("samsung-970-evo-plus-500gb", "ps3", "ps4"), 10);
    let partial = Profile::find_shipped("seagate-barracuda-es").unwrap();
    let (idle, standby) = (
        partial.state_named("idle").unwrap(),
        partial.state_named("standby").unwrap(),
    );
    assert_eq!(RoundTrip::between_states(&partial, idle, standby), None);
}

proptest! {
    #[test]
    fn sleeping_pays_exactly_beyond_break_even(
        awake in 1_000_u64..10_000_000, asleep in 0_u64..1_000_000,
        millis in 0_u64..30_000, extra in 0_u64..100_000_000, idle in 0_u64..1_000_000,
    ) {
        let trip = RoundTrip {
            awake: Power::from_microwatts(awake), asleep: Power::from_microwatts(asleep),
            time: TimeSpan::from_millis(millis),
            // Going down and up costs no less than lying there for that time.
            energy: Power::from_microwatts(asleep) * TimeSpan::from_millis(millis) + Energy::from_microjoules(extra),
        };
        let idle = TimeSpan::from_millis(idle).max(trip.time);
        // Two roundings of half a microjoule.
        let near = Energy::from_microjoules(2);
        match trip.break_even() {
            None => prop_assert!(trip.cost_awake(idle) <= trip.cost_asleep(idle) + near),
            Some(time) => {
                prop_assert!(time >= trip.time);
                if idle >= time {
                    prop_assert!(trip.cost_asleep(idle) <= trip.cost_awake(idle) + near);
                } else {
                    prop_assert!(trip.cost_awake(idle) <= trip.cost_asleep(idle) + near);
                }
            }
        }
    }

    #[test]
    fn a_crossover_separates_cheaper_from_dearer(
        starts in (0_u64..100_000_000, 0_u64..100_000_000), powers in (1_u64..20_000_000, 1_u64..20_000_000),
        rates in (1_u64..100_000_000, 1_u64..100_000_000), size in 0_u64..10_000_000_000,
    ) {
        let burst = |start, power, rate| BurstEnergy {
            start: Energy::from_microjoules(start), power: Power::from_microwatts(power),
            rate: crate::quantity::Rate::per_second(rate).expect("above zero"),
        };
        let (a, b) = (burst(starts.0, powers.0, rates.0), burst(starts.1, powers.1, rates.1));
        let (mine, its) = (a.energy_for(Bytes::new(size)), b.energy_for(Bytes::new(size)));
        let near = Energy::from_microjoules(1);
        if let Some(from) = a.cheaper_from(&b) {
            if size >= from.get() {
                prop_assert!(mine <= its + near);
            } else {
                prop_assert!(its <= mine + near);
            }
        }
    }
}
