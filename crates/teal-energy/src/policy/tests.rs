//! What makes policies act: each trigger, each weight, each hint, on views made by hand.

use super::bluefs::BlueFs;
use super::choice::{CostWeights, Predictor, WeightedCost};
use super::flush::{FlushConfig, flush_due};
use super::ghost::Ghosts;
use super::greenfs::GreenFs;
use super::teal::Teal;
use super::*;
use crate::device::QueueLimits;
use crate::sim::tests::device;

const HOUR: TimeSpan = TimeSpan::from_hours(1);

fn id(index: usize) -> DeviceId {
    DeviceId::new(index).unwrap()
}

fn after(span: TimeSpan) -> Time {
    Time::after_start(span)
}

fn resting<'a>(device: &'a DeviceModel, state: &str) -> DeviceView<'a> {
    let state = device
        .power
        .state_ids()
        .find(|id| device.power.state_name(*id) == state)
        .unwrap();
    let place = DeviceActivity::Resting {
        state,
        since: Time::ZERO,
    };
    let (last_used, tokens) = (Time::ZERO, 10);
    DeviceView {
        device,
        activity: place,
        queued: 0,
        oldest: None,
        is_wanted: false,
        last_used,
        may_stop: true,
        tokens,
    }
}

fn view<'a>(devices: &'a [DeviceView<'a>], now: TimeSpan) -> MachineView<'a> {
    MachineView {
        now: after(now),
        time_of_day: TimeSpan::from_hours(12),
        devices,
        base: Power::from_milliwatts(1190),
        supply: PowerSupply::Battery,
        is_user_present: false,
    }
}

/// The devices of a handheld.
fn disk_and_link() -> [DeviceModel; 2] {
    ["ibm-microdrive-1gb", "bluefs-802.11b"].map(|name| {
        device(name).with_queue(QueueLimits {
            age: HOUR * 24,
            bytes: 1000,
        })
    })
}

fn ask(offset: u64, bytes: u64, continued: DeviceSet) -> ReadRequest {
    ReadRequest {
        object: 1,
        offset,
        bytes,
        copies: [id(0), id(1)].into_iter().collect(),
        continued,
    }
}

/// The trigger of a sleeping disk with so much in its queue, after so long.
fn trigger(
    queued: u64,
    waited: TimeSpan,
    change: impl Fn(&mut MachineView<'_>),
    signal: Option<MachineSignal>,
) -> Option<FlushTrigger> {
    let devices = disk_and_link();
    let known = [DeviceView {
        queued,
        oldest: Some(Time::ZERO),
        ..resting(&devices[0], "standby")
    }];
    let mut view = view(&known, waited);
    change(&mut view);
    let config = FlushConfig {
        age: (HOUR * 10, HOUR * 20),
        ..FlushConfig::default()
    };
    flush_due(&view, id(0), &config, signal).0
}

#[test]
fn queues_are_written_for_age_and_size() {
    let nothing = |_: &mut MachineView<'_>| {};
    assert_eq!(trigger(10, HOUR * 19, nothing, None), None);
    assert_eq!(
        trigger(10, HOUR * 20, nothing, None),
        Some(FlushTrigger::Age)
    );
    let powered = |view: &mut MachineView<'_>| view.supply = PowerSupply::Powered;
    assert_eq!(
        trigger(10, HOUR * 10, powered, None),
        Some(FlushTrigger::Age),
        "sooner when powered"
    );
    assert_eq!(trigger(749, TimeSpan::ZERO, nothing, None), None);
    assert_eq!(
        trigger(750, TimeSpan::ZERO, nothing, None),
        Some(FlushTrigger::Size),
        "75 % of 1000 bytes"
    );
}

#[test]
fn queues_are_written_in_quiet_hours_once_they_are_old_enough() {
    let three = |view: &mut MachineView<'_>| view.time_of_day = HOUR * 3;
    assert_eq!(
        trigger(10, HOUR * 6, three, None),
        Some(FlushTrigger::Quiet)
    );
    assert_eq!(trigger(10, HOUR * 5, three, None), None, "not old enough");
    assert_eq!(
        trigger(10, HOUR * 6, |view| view.time_of_day = HOUR * 5, None),
        None,
        "not quiet any more"
    );
}

#[test]
fn no_disk_starts_for_age_while_somebody_is_there_but_for_what_they_asked_and_for_safety() {
    let there = |view: &mut MachineView<'_>| {
        view.is_user_present = true;
        view.time_of_day = HOUR * 3;
    };
    assert_eq!(trigger(10, HOUR * 23, there, None), None);
    assert_eq!(
        trigger(10, HOUR, there, Some(MachineSignal::Sync)),
        Some(FlushTrigger::User)
    );
    assert_eq!(
        trigger(10, HOUR, there, Some(MachineSignal::Shutdown)),
        Some(FlushTrigger::Shutdown)
    );
    assert_eq!(
        trigger(10, HOUR, there, Some(MachineSignal::MemoryPressure)),
        Some(FlushTrigger::Memory)
    );
    assert_eq!(trigger(800, HOUR, there, None), Some(FlushTrigger::Size));
    assert_eq!(
        trigger(10, HOUR, there, Some(MachineSignal::Presence(true))),
        None
    );
}

#[test]
fn the_cheapest_device_depends_on_states_and_weights() {
    let devices = disk_and_link();
    let predictor = Predictor::default();
    let best = |disk: &str, link: &str, bytes, weights| {
        let known = [resting(&devices[0], disk), resting(&devices[1], link)];
        predictor
            .best_device(
                &view(&known, HOUR),
                &ask(0, bytes, DeviceSet::EMPTY),
                weights,
            )
            .1
    };
    let (time, energy) = (
        CostWeights {
            second: 1,
            joule: 0,
        },
        CostWeights {
            second: 0,
            joule: 1,
        },
    );
    assert_eq!(
        best("standby", "cam", 4096, CostWeights::EQUAL),
        id(1),
        "a small file while the disk sleeps"
    );
    assert_eq!(
        best("idle", "psm", 4096, CostWeights::EQUAL),
        id(0),
        "the server is 100 ms away"
    );
    assert_eq!(
        best("idle", "cam", 4096, time),
        id(1),
        "13 ms against 21 ms"
    );
    assert_eq!(
        best("idle", "cam", 4_000_000, time),
        id(0),
        "a large file, the disk awake"
    );
    assert_eq!(
        best("standby", "cam", 100_000_000, energy),
        id(0),
        "worth a start"
    );
}

#[test]
fn measurements_replace_what_the_profile_says() {
    let devices = disk_and_link();
    let known = [resting(&devices[0], "idle"), resting(&devices[1], "cam")];
    let view = view(&known, HOUR);
    let mut predictor = Predictor::default();
    let time = CostWeights {
        second: 1,
        joule: 0,
    };
    assert_eq!(
        predictor
            .best_device(&view, &ask(0, 4096, DeviceSet::EMPTY), time)
            .1,
        id(1)
    );
    let state = known[1].target_state();
    let slow = MeasuredRead {
        device: id(1),
        state,
        bytes: 4096,
        is_continued: false,
        time: TimeSpan::from_millis(200),
    };
    predictor.add_measurement(&view, &slow);
    assert_eq!(
        predictor
            .best_device(&view, &ask(0, 4096, DeviceSet::EMPTY), time)
            .1,
        id(0),
        "the network has become slow"
    );
}

#[test]
fn a_device_is_woken_when_what_was_lost_equals_its_start() {
    let devices = disk_and_link();
    let known = [resting(&devices[0], "standby"), resting(&devices[1], "cam")];
    let predictor = Predictor::default();
    let ask = ask(4096, 4096, DeviceSet::EMPTY.with_device(id(1)));
    let hints = |pause: TimeSpan| {
        let mut ghosts = Ghosts::default();
        let mut now = HOUR;
        (1..200).find_map(|n| {
            now += pause;
            let view = view(&known, now);
            let served = predictor.best_device(&view, &ask, CostWeights::EQUAL);
            ghosts
                .hint_of_read(&view, &predictor, &ask, served, CostWeights::EQUAL)
                .map(|woken| (n, woken.0))
        })
    };
    let view = view(&known, HOUR);
    let (served, _) = predictor.best_device(&view, &ask, CostWeights::EQUAL);
    let (ideal, _) = predictor.predict_ideal(&view, id(0), &ask, CostWeights::EQUAL);
    // 605 mJ, as billionths of a joule.
    let needed = 605_000_000_u128.div_ceil(served.0 - ideal.0);
    assert_eq!(
        hints(TimeSpan::from_millis(13)),
        Some((usize::try_from(needed).unwrap(), id(0)))
    );
    // Break-even is 3.45 s: losses that lie further apart are not worth a start.
    assert_eq!(hints(TimeSpan::from_secs(4)), None);
    assert_ne!(served, WeightedCost(0));
}

fn decided(policy: &mut dyn Policy, view: &MachineView<'_>) -> Vec<PolicyAction> {
    let mut actions = Vec::new();
    policy.decide_actions(view, None, &mut actions);
    actions
}

#[test]
fn greenfs_starts_its_disk_for_sustained_traffic_only() {
    let devices = disk_and_link();
    let known = [
        DeviceView {
            queued: 10,
            oldest: Some(after(HOUR)),
            ..resting(&devices[0], "standby")
        },
        resting(&devices[1], "cam"),
    ];
    let mut policy = GreenFs::default();
    let view = view(&known, HOUR);
    assert_eq!(
        policy.choose_device(&view, &ask(0, 1 << 20, DeviceSet::EMPTY)),
        id(1),
        "the disk sleeps"
    );
    assert_eq!(decided(&mut policy, &view), []);
    policy.choose_device(&view, &ask(0, 300 << 20, DeviceSet::EMPTY));
    let idle = devices[0]
        .power
        .nearest_serving(devices[0].power.lowest_state());
    assert_eq!(
        decided(&mut policy, &view),
        [
            PolicyAction::Enter(id(0), idle),
            PolicyAction::Flush(id(0), FlushTrigger::Traffic)
        ]
    );
}

#[test]
fn ours_writes_before_it_lets_a_disk_sleep_and_needs_a_token() {
    let devices = disk_and_link();
    let disk = DeviceView {
        queued: 10,
        oldest: Some(after(HOUR)),
        last_used: after(HOUR),
        ..resting(&devices[0], "idle")
    };
    let later = HOUR + TimeSpan::from_secs(10);
    let act = |disk: DeviceView<'_>| {
        let mut policy = Teal::default();
        assert_eq!(
            decided(&mut policy, &view(&[disk], HOUR)),
            [],
            "idle from now on"
        );
        decided(&mut policy, &view(&[disk], later))
    };
    assert_eq!(act(disk), [PolicyAction::Flush(id(0), FlushTrigger::Awake)]);
    let empty = DeviceView {
        queued: 0,
        oldest: None,
        ..disk
    };
    assert_eq!(
        act(empty),
        [PolicyAction::Enter(id(0), devices[0].power.lowest_state())]
    );
    assert_eq!(
        act(DeviceView {
            may_stop: false,
            ..empty
        }),
        []
    );
}

#[test]
fn bluefs_writes_after_thirty_seconds() {
    let devices = disk_and_link();
    let waiting = DeviceView {
        queued: 10,
        oldest: Some(after(HOUR)),
        ..resting(&devices[1], "cam")
    };
    let known = [DeviceView {
        last_used: after(HOUR + TimeSpan::from_secs(30)),
        ..waiting
    }];
    let mut policy = BlueFs::new(CostWeights::EQUAL);
    assert_eq!(
        decided(&mut policy, &view(&known, HOUR + TimeSpan::from_secs(29))),
        []
    );
    assert_eq!(
        decided(&mut policy, &view(&known, HOUR + TimeSpan::from_secs(30))),
        [PolicyAction::Flush(id(0), FlushTrigger::Age)]
    );
}
