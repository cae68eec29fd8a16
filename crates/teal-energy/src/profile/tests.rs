//! Profiles that come with the program, and profiles that are refused.

use super::*;

const GOOD: &str = r#"name = "toy"
title = "A toy"
kind = "disk"

[[state]]
name = "idle"
power = "2 W"
serves = true
source = "a test"

[[state]]
name = "standby"
power = "0.1 W"
source = "a test"

[[transition]]
from = "idle"
to = "standby"
time = "1 s"
energy = "1 J"
cycles = 1
source = "a test"

[[transition]]
from = "standby"
to = "idle"
time = "2 s"
energy = "6 J"
source = "a test"

[seek]
average = "12 ms"
track = "1 ms"
full = "20 ms"
source = "a test"

[media]
capacity = "1 GB"
outer = "50 MB/s"
inner = "25 MB/s"
source = "a test"

[rating]
cycles = 50000
life = "5 years"
source = "a test"
"#;

#[test]
fn every_shipped_profile_is_sound_and_says_where_its_figures_come_from() {
    for (name, text) in shipped::PROFILES {
        let profile = Profile::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(profile.name, *name);
        assert!(
            !profile.sources.is_empty() && !profile.title.is_empty(),
            "{name}"
        );
    }
    assert!(Profile::shipped_names().count() >= 20);
    assert_eq!(Profile::find_shipped("nothing"), None);
}

#[test]
fn a_good_profile_is_taken_as_it_stands() {
    let profile = Profile::parse(GOOD).unwrap();
    let (idle, standby) = (
        profile.state_named("idle").unwrap(),
        profile.state_named("standby").unwrap(),
    );
    assert_eq!(
        (idle.index(), standby.index(), profile.state_named("sleep")),
        (0, 1, None)
    );
    assert_eq!(profile.transitions[1].energy, Energy::from_joules(6));
    assert_eq!(
        profile.seek.unwrap().extremes,
        Some((TimeSpan::from_millis(1), TimeSpan::from_millis(20)))
    );
    assert_eq!(
        (profile.rotation, profile.active, profile.burst),
        (None, None, None)
    );
}

/// Replaces `old`, and expects the refusal at `line`, with `words`.
#[track_caller]
fn refused(old: &str, new: &str, line: usize, words: &str) {
    assert!(GOOD.contains(old), "the test changes nothing");
    let error = Profile::parse(&GOOD.replacen(old, new, 1)).expect_err("accepted");
    assert!(
        error.line == line && error.problem.contains(words),
        "wanted line {line} with `{words}`, got {error}"
    );
}

#[test]
fn unknown_names_are_refused_with_the_nearest_known_one() {
    refused(
        "power = \"2 W\"",
        "powr = \"2 W\"",
        7,
        "did you mean `power`?",
    );
    refused("[rating]", "[ratings]", 43, "did you mean `rating`?");
    refused(
        "kind = \"disk\"",
        "kind = \"dsk\"",
        3,
        "did you mean `disk`?",
    );
    refused(
        "to = \"standby\"",
        "to = \"stand\"",
        16,
        "there are `idle`, `standby`",
    );
    let error = Profile::parse(&GOOD.replacen("power = \"2 W\"", "quux = \"2 W\"", 1)).unwrap_err();
    assert!(!error.problem.contains("did you mean"), "{error}");
}

#[test]
fn negative_and_missing_figures_are_refused() {
    refused(
        "power = \"2 W\"",
        "power = \"-2 W\"",
        7,
        "must not be negative",
    );
    refused("power = \"2 W\"", "power = 2", 7, "expected a string");
    refused("power = \"2 W\"\n", "", 5, "missing field `power`");
    refused(
        "source = \"a test\"\n\n[[state]]",
        "\n[[state]]",
        5,
        "missing field `source`",
    );
    refused(
        "source = \"a test\"\n\n[[state]]",
        "source = \" \"\n[[state]]",
        5,
        "needs a source",
    );
    refused("time = \"1 s\"", "time = \"1 kg\"", 19, "ns, us, ms, s");
    refused(
        "outer = \"50 MB/s\"",
        "outer = \"0 MB/s\"",
        39,
        "above zero",
    );
    refused("cycles = 50000", "cycles = 0", 43, "above zero");
}

#[test]
fn inconsistent_profiles_are_refused() {
    refused(
        "name = \"standby\"",
        "name = \"idle\"",
        11,
        "two states `idle`",
    );
    refused("serves = true\n", "", 5, "no state serves");
    refused(
        "power = \"0.1 W\"",
        "power = \"2.1 W\"",
        11,
        "more than any state that serves",
    );
    refused("to = \"standby\"", "to = \"idle\"", 16, "to itself");
    refused(
        "from = \"standby\"\nto = \"idle\"",
        "from = \"idle\"\nto = \"standby\"",
        24,
        "two transitions",
    );
    let one_way = GOOD.replacen(
        "[[transition]]\nfrom = \"standby\"\nto = \"idle\"\ntime = \"2 s\"\nenergy = \"6 J\"\nsource = \"a test\"\n",
        "",
        1,
    );
    assert!(
        Profile::parse(&one_way)
            .unwrap_err()
            .problem
            .contains("never left")
    );
    refused("track = \"1 ms\"\n", "", 31, "both or not at all");
    refused(
        "track = \"1 ms\"",
        "track = \"13 ms\"",
        31,
        "seeks must grow",
    );
    refused(
        "inner = \"25 MB/s\"",
        "inner = \"51 MB/s\"",
        37,
        "cannot be faster",
    );
    refused(
        "kind = \"disk\"",
        "kind = \"flash\"",
        31,
        "does not describe this kind",
    );
    refused("name = \"toy\"", "name = \"To y\"", 1, "lower-case");
}

#[test]
fn what_is_no_toml_is_refused_with_its_place() {
    refused("kind = \"disk\"", "kind = disk", 3, "");
    assert_eq!(Profile::parse("").unwrap_err().line, 1);
}
