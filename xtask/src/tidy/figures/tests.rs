//! Every figure counted in a text made for it, and every rule of the ratchet and of the vocabulary
//! broken once.

use super::ratchet::figures_at_aim;
use super::rules::WordFigure;
use super::sources::SourceFile;
use super::*;

fn sources(name: &str, files: &[(&str, &str)]) -> CrateSources {
    let files = files.iter().map(|(path, text)| SourceFile {
        path: (*path).to_owned(),
        text: (*text).to_owned(),
    });
    CrateSources {
        name: name.to_owned(),
        files: files.collect(),
    }
}

fn figure_of(text: &str, figure: WordFigure) -> f64 {
    sources("teal-log", &[("src/lib.rs", text)]).measure_figures()[&figure]
}

fn rules(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.rule).collect()
}

/// Returns the rows of one crate, `teal-log`, whose only figure off its aim is the share of
/// one-word types.
fn rows(one_word_types: f64) -> BTreeMap<String, CrateFigures> {
    let figures = figures_at_aim(&[(WordFigure::OneWordTypes, one_word_types)]);
    BTreeMap::from([("teal-log".to_owned(), figures)])
}

#[test]
fn names_are_counted_by_their_words() {
    let text = "struct Log;\npub(crate) enum LogError {}\nfn open() {}\npub fn open_file() {}\n";
    assert_eq!(figure_of(text, WordFigure::OneWordTypes), 50.0);
    assert_eq!(figure_of(text, WordFigure::OneWordFunctions), 50.0);
}

#[test]
fn a_name_that_two_types_share_counts_for_both() {
    let text =
        "struct Plan;\nmod inner {\n    struct Plan;\n    struct Step;\n    struct Way;\n}\n";
    assert_eq!(figure_of(text, WordFigure::SharedTypeNames), 50.0);
}

#[test]
fn tests_are_left_out() {
    let text = "struct LogError;\n#[cfg(test)]\nmod tests {\n    struct Log;\n}\n";
    assert_eq!(figure_of(text, WordFigure::OneWordTypes), 0.0);
}

#[test]
fn a_comment_or_string_about_tests_begins_none() {
    for quoting in [
        "// #[cfg(test)]\nmod tests {}\n",
        "/* \n#[cfg(test)]\nmod tests {} */\n",
        "const TEXT: &str = \"\n#[cfg(test)]\nmod tests {\";\n",
        "const TEXT: &str = r#\"\"\n#[cfg(test)]\nmod tests {\"#;\n",
    ] {
        let text = format!("struct LogError;\n{quoting}struct Log;\n");
        assert_eq!(
            figure_of(&text, WordFigure::OneWordTypes),
            50.0,
            "{quoting}"
        );
        // The arrow back, behind the quotation, closes the circle.
        let b = format!("struct Bean;\n{quoting}use crate::a::Apple;\n");
        let files = [
            ("src/lib.rs", "mod a;\nmod b;\n"),
            ("src/a.rs", "use crate::b::Bean;\nstruct Apple;\n"),
            ("src/b.rs", &*b),
        ];
        let circle = sources("x", &files).measure_figures()[&WordFigure::LargestCircle];
        assert!(circle > 0.0, "{quoting}");
    }
}

#[test]
fn tokens_are_counted_a_line_and_a_function() {
    let text = "fn three_lines() {\n    let text = \"a { in a string\";\n}\n";
    // fn three_lines ( ) { / let text = "…" ; / }
    assert_eq!(figure_of(text, WordFigure::LongestFunctionTokens), 11.0);
    assert_eq!(figure_of(text, WordFigure::TokensPerLine), 3.7);
    let declared = "trait Disk {\n    fn read(&self) -> [u8; 4];\n}\n";
    assert_eq!(figure_of(declared, WordFigure::LongestFunctionTokens), 0.0);
}

#[test]
fn closures_are_told_from_alternatives() {
    let closures = "let a = |x| x;\ncall(|| 1);\ncall(a, move |x, y| x);\n";
    assert_eq!(
        figure_of(closures, WordFigure::ClosuresPerThousandLines),
        1000.0
    );
    let alternatives = "let a = b || c;\nmatch a {\n    A | B | C => d | e,\n}\n";
    assert_eq!(
        figure_of(alternatives, WordFigure::ClosuresPerThousandLines),
        0.0
    );
}

#[test]
fn comments_are_read() {
    let text = "/// Whether it is open.\n/// Returns the log.\nfn f() {\n    // A reason.\n}\n";
    assert_eq!(figure_of(text, WordFigure::ClauseComments), 33.3);
    assert_eq!(figure_of(text, WordFigure::InnerComments), 16.7);
    assert_eq!(
        figure_of(
            "/// Asks who was first.\n",
            WordFigure::RiddlesPerThousandWords
        ),
        250.0
    );
}

#[test]
fn assertions_and_wide_lines_are_counted() {
    let text = format!(
        "assert!(true);\ndebug_assert_eq!(1, 1);\n// {}\nx();\ny();\n",
        "w".repeat(98)
    );
    assert_eq!(
        figure_of(&text, WordFigure::AssertionsPerThousandLines),
        500.0
    );
    assert_eq!(figure_of(&text, WordFigure::WideLines), 1.0);
}

#[test]
fn a_circle_is_found_through_names_passed_on() {
    let root = ("src/lib.rs", "mod a;\nmod b;\nmod c;\npub use a::Apple;\n");
    let b = ("src/b.rs", "use super::c::Cherry;\nstruct Bean;\n\n\n");
    let c = ("src/c.rs", "struct Cherry;\n\n");
    let circle = sources(
        "x",
        &[
            root,
            ("src/a.rs", "use crate::b::Bean;\nstruct Apple;\n\n\n"),
            b,
            c,
        ],
    );
    assert_eq!(circle.measure_figures()[&WordFigure::LargestCircle], 0.0);
    let back = (
        "src/b.rs",
        "use crate::{c::Cherry, Apple};\nstruct Bean;\n\n\n",
    );
    let circle = sources(
        "x",
        &[
            root,
            ("src/a.rs", "use crate::b::Bean;\nstruct Apple;\n\n\n"),
            back,
            c,
        ],
    );
    // 4 lines each of a and b, of 14 lines in all.
    assert_eq!(circle.measure_figures()[&WordFigure::LargestCircle], 57.1);
}

#[test]
fn a_use_in_tests_closes_no_circle() {
    let a = ("src/a.rs", "use crate::b::Bean;\nstruct Apple;\n");
    let b = (
        "src/b.rs",
        "struct Bean;\n#[cfg(test)]\nmod tests {\n    use crate::a::Apple;\n}\n",
    );
    let circle = sources("x", &[("src/lib.rs", "mod a;\nmod b;\n"), a, b]);
    assert_eq!(circle.measure_figures()[&WordFigure::LargestCircle], 0.0);
}

#[test]
fn a_figure_may_not_get_worse_by_more_than_its_tolerance() {
    let mut ratchet = Ratchet::default();
    ratchet.record_better(&rows(60.0));
    assert_eq!(rules(&ratchet.check_figures(&rows(63.0))), [""; 0]);
    assert_eq!(rules(&ratchet.check_figures(&rows(63.1))), ["words"]);
}

#[test]
fn writing_only_improves() {
    let mut ratchet = Ratchet::default();
    ratchet.record_better(&rows(60.0));
    ratchet.record_better(&rows(63.0));
    assert_eq!(rules(&ratchet.check_figures(&rows(63.1))), ["words"]);
    ratchet.record_better(&rows(50.0));
    assert_eq!(rules(&ratchet.check_figures(&rows(54.0))), ["words"]);
}

#[test]
fn a_figure_at_its_aim_is_never_refused() {
    let mut ratchet = Ratchet::default();
    ratchet.record_better(&rows(5.0));
    assert_eq!(rules(&ratchet.check_figures(&rows(25.0))), [""; 0]);
}

#[test]
fn a_new_crate_is_held_to_the_worst_of_the_others() {
    let mut ratchet = Ratchet::default();
    ratchet.record_better(&rows(60.0));
    let named = |one_word_types| {
        let figures = rows(one_word_types).remove("teal-log").unwrap();
        BTreeMap::from([("teal-tree".to_owned(), figures)])
    };
    assert_eq!(rules(&ratchet.check_figures(&named(63.0))), [""; 0]);
    assert_eq!(rules(&ratchet.check_figures(&named(64.0))), ["words"]);
}

#[test]
fn an_exception_needs_a_figure_and_a_reason() {
    let exception = |figure: &str, reason: &str| -> Ratchet {
        let text = format!(
            "[[exceptions]]\ncrate = \"teal-log\"\nfigure = \"{figure}\"\nlimit = 90.0\nreason = \
                \"{reason}\"\n\
             [crates.teal-log]\none-word-types = 60.0\n"
        );
        toml::from_str(&text).unwrap()
    };
    let allowed = exception("one-word-types", "the kernel's own names");
    assert_eq!(rules(&allowed.check_figures(&rows(90.0))), [""; 0]);
    assert_eq!(rules(&allowed.check_figures(&rows(90.1))), ["words"]);
    assert_eq!(
        rules(&exception("one-word-types", " ").check_figures(&rows(60.0))),
        ["words"]
    );
    assert_eq!(
        rules(&exception("words", "none").check_figures(&rows(60.0))),
        ["words"]
    );
}

#[test]
fn words_given_up_do_not_come_back() {
    let list = "[[words]]\nword = \"Room\"\nbetter = \"PresenceRegistry\"\nremains = { \
        teal-server = 1 }\n";
    let vocabulary = Vocabulary::for_test(list, "");
    let moved = [sources(
        "teal-client",
        &[("src/lib.rs", "struct Room;\nstruct RoomList;\n")],
    )];
    assert_eq!(
        rules(&vocabulary.check_words(&moved)),
        [""; 0],
        "code may move"
    );
    let more = [sources(
        "teal-client",
        &[("src/lib.rs", "struct Room;\nenum Room {}\n")],
    )];
    assert_eq!(rules(&vocabulary.check_words(&more)), ["vocabulary"]);
}

#[test]
fn the_list_of_words_only_shrinks() {
    let list = "[[words]]\nword = \"settle\"\nbetter = \"apply\"\nremains = { teal-log = 1 }\n";
    let mut vocabulary = Vocabulary::for_test(list, "");
    let two = [sources(
        "teal-log",
        &[("src/lib.rs", "fn settle() {}\nfn settle() {}\n")],
    )];
    vocabulary.record_fewer(&two);
    assert_eq!(rules(&vocabulary.check_words(&two)), ["vocabulary"]);
    vocabulary.record_fewer(&[]);
    let one = [sources("teal-log", &[("src/lib.rs", "fn settle() {}\n")])];
    assert_eq!(rules(&vocabulary.check_words(&one)), ["vocabulary"]);
}

#[test]
fn types_in_the_glossary_exist_and_terms_are_explained_once() {
    let crates = [sources("teal-log", &[("src/lib.rs", "struct Segment;\n")])];
    let findings = |glossary| rules(&Vocabulary::for_test("", glossary).check_words(&crates));
    assert_eq!(
        findings("- **segment** (`Segment`): A part of the log.\n"),
        [""; 0]
    );
    assert_eq!(findings("- **segment**: A part of a `Disk`.\n"), [""; 0]);
    assert_eq!(
        findings("- **segment** (`Segments`): A part of the log.\n"),
        ["glossary"]
    );
    assert_eq!(findings("- **log**: One.\n- **Log**: Two.\n"), ["glossary"]);
}

#[test]
fn the_table_has_a_line_for_each_crate_the_sum_and_the_aims() {
    let crates = [sources("teal-log", &[("src/lib.rs", "struct Segment;\n")])];
    let table = format_figures(&rows_of(&crates));
    let names: Vec<&str> = table
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(names, ["crate", "teal-log", "workspace", "aim"]);
}
