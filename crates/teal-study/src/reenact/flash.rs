//! Re-enacts BlueFS, figure 9: the handheld with some flash. The profile of the flash has to be assumed.

use super::PaperTable;
use super::bluefs::{add_comparison, handheld_machine, purcell_replay};
use crate::replay::{InitialShare, ModelledMachine, NamedPolicy};
use teal_energy::Profile;
use teal_energy::device::QueueLimits;
use teal_energy::profile::DeviceKind;
use teal_types::TimeSpan;

/// Profile of the iPAQ's NOR flash under jffs2. The paper says little on it: reading 4 KB takes
/// less than 1 ms and negligible energy, writing is slower than to the Microdrive, and erasing
/// blocks reads for up to several hundred milliseconds.
const NOR: &str = r#"
name = "ipaq-nor-assumed"
title = "NOR flash of the HP iPAQ 3870 under jffs2, assumed"
kind = "flash"

[[state]]
name = "ready"
power = "0 W"
serves = true
source = "assumed: in the machine's base power"

[[service]]
state = "ready"
read_latency = "100 us"
read_rate = "5 MB/s"
read_power = "0 W"
write_latency = "300 ms"
write_rate = "147 KB/s"
write_power = "0.2 W"
source = "write rate: Intel 28F128J3A datasheet, 6.8 us a byte; the rest assumed: BlueFS (2004) 5.6 has 4 KB in less than 1 ms at negligible energy, erasing for several hundred ms"
"#;

/// Bytes of flash that BlueFS could use.
const ROOM: u64 = 16_000_000;
/// Percent of the files that they hold: 16 of 252 MB.
const SHARE: u8 = 6;

fn with_flash(more: TimeSpan) -> ModelledMachine {
    let nor = Profile::parse(NOR).expect("a test reads it");
    let mut machine = handheld_machine(more, vec![nor]);
    for part in machine
        .parts
        .iter_mut()
        .filter(|part| part.device.kind == DeviceKind::Flash)
    {
        // Only this share of the files fits the flash.
        part.holds = InitialShare {
            files: SHARE,
            attributes: true,
        };
        part.room = Some(ROOM);
        // "We also increased the maximum delay of the flash write queue to 300 seconds."
        part.device.queue = Some(QueueLimits {
            age: TimeSpan::from_secs(300),
            ..QueueLimits::BLUEFS
        });
    }
    machine
}

pub(super) fn figure_9() -> PaperTable {
    let mut table = PaperTable::for_machine(
        "BlueFS (2004) figure 9: BlueFS with 16 MB of flash against BlueFS without",
        &with_flash(TimeSpan::ZERO),
        &[
            "the flash is assumed but for its rate of writing: the paper gives no figures; its \
             profile says so",
            "flash has all attributes and 6 % of the files at the beginning (16 of 252 MB); which \
             ones the trace would have had there is lost",
            "every first read is copied to flash (4.3.4): of the stream's 700 new files 29 MB, \
             which take minutes at the flash's rate and power; \
             that is the energy ours spends more. The trace's first 10,000 operations may have \
             met fewer new files",
            "for the rest see bluefs-7",
        ],
    );
    add_comparison(&mut table, [(0, 33, 9), (30, 48, 25)], |more, gaps| {
        [handheld_machine(more, Vec::new()), with_flash(more)]
            .map(|machine| (purcell_replay(machine, gaps), NamedPolicy::BlueFs))
    });
    table
}
