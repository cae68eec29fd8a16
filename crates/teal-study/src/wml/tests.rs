//! The rules of the language, each by name.

use super::*;
use proptest::prelude::*;

fn nothing(name: &str) -> Result<String, String> {
    Err(format!("no {name}"))
}

fn parsed(text: &str) -> WorkloadScript {
    match parse_script("t.wml", text, &mut nothing) {
        Ok(script) => script,
        Err(error) => panic!("{error}"),
    }
}

fn only(text: &str) -> ScriptCommand {
    let mut script = parsed(text);
    assert_eq!(script.commands.len(), 1, "{text}");
    script.commands.remove(0).1
}

#[track_caller]
fn refused(text: &str, line: u32, column: u32, word: &str) {
    let error = parse_script("t.wml", text, &mut nothing).expect_err(text);
    assert_eq!((error.line, error.column), (line, column), "{error}");
    assert!(error.message.contains(word), "{error}");
}

fn set(text: &str) -> AttributeValue {
    match only(text) {
        ScriptCommand::Set(_, AssignedValue::Value(value)) => value,
        other => panic!("{other:?}"),
    }
}

#[test]
fn newlines_and_comments_are_blanks() {
    assert_eq!(
        parsed("set\n $ab\n=\n5 # a comment, with \"quotes\nrun 3")
            .commands
            .len(),
        2
    );
    assert_eq!(
        set("set $ab=\"# none\""),
        AttributeValue::Text("# none".into())
    );
}

#[test]
fn integers_have_suffixes_and_no_octals() {
    for (text, value) in [
        ("08", 8),
        ("4k", 4096),
        ("3m", 3 << 20),
        ("2g", 2 << 30),
        ("0", 0),
    ] {
        assert_eq!(set(&format!("set $ab={text}")), AttributeValue::Int(value));
    }
    assert_eq!(
        only("psrun -5 10"),
        ScriptCommand::Psrun(-5, Some(AttributeValue::Int(10)))
    );
}

#[test]
fn decimals_arithmetic_and_other_suffixes_are_refused() {
    refused("set $ab=1.5", 1, 10, "decimals");
    refused("set $ab=8K", 1, 10, "lower case");
    refused("set $ab=5 * 3", 1, 11, "arithmetic");
    refused("set $ab=99999999999999999999", 1, 9, "too large");
    refused("set $ab=9999999999g", 1, 9, "too large");
    refused("run -3", 1, 5, "no time");
}

#[test]
fn bare_words_may_be_paths_and_parameters() {
    assert_eq!(
        set("set $ab=/mnt/x.y-z"),
        AttributeValue::Text("/mnt/x.y-z".into())
    );
    assert_eq!(
        set("set $ab=mean:16384;gamma:1.5"),
        AttributeValue::Text("mean:16384;gamma:1.5".into())
    );
    assert_eq!(set("set $ab=-f"), AttributeValue::Text("-f".into()));
}

#[test]
fn quoted_strings_keep_what_is_in_them() {
    assert_eq!(
        set(r#"set $ab="a $b\n{c}""#),
        AttributeValue::Text("a $b\n{c}".into())
    );
    refused("run 1\necho \"x", 2, 6, "no end");
    refused("system ls", 1, 8, "double quotes");
}

#[test]
fn variables_have_two_characters() {
    assert_eq!(set("set $ab=$cd"), AttributeValue::Variable("cd".into()));
    assert_eq!(set("set $ab=${cd}"), AttributeValue::Variable("cd".into()));
    assert_eq!(set("set $ab=$(c)"), AttributeValue::Variable("c".into()));
    refused("set $n=3", 1, 5, "two characters");
    refused("set $=3", 1, 5, "illegal variable");
    refused("set ${ab=3", 1, 5, "close it");
}

#[test]
fn keywords_are_strings_in_quotes_only() {
    refused("define file name=size", 1, 18, "keyword");
    refused("set $ab=random", 1, 9, "keyword");
    assert_eq!(
        set("set $ab=\"random\""),
        AttributeValue::Text("random".into())
    );
}

#[test]
fn an_attribute_without_a_value_is_true() {
    let ScriptCommand::Files(SetKind::Fileset, attributes) =
        only("define fileset name=xx,prealloc,reuse=false,path=/tmp")
    else {
        panic!("a fileset");
    };
    assert_eq!(
        attributes.get("prealloc").unwrap().value,
        AttributeValue::Bool(true)
    );
    assert_eq!(
        attributes.get("reuse").unwrap().value,
        AttributeValue::Bool(false)
    );
}

#[test]
fn aliases_mean_the_same() {
    let text =
        "define processes name=xx { thread name=tt { flowop read name=rr,filesetname=ff,fd=1 } }";
    let ScriptCommand::Process(process) = only(text) else {
        panic!("a process")
    };
    assert_eq!(
        process.threads[0].body[0]
            .attributes
            .get("filename")
            .unwrap()
            .value,
        AttributeValue::Text("ff".into())
    );
    let ScriptCommand::Files(kind, attributes) =
        only("define filesets name=ff,filesize=3,path=/tmp")
    else {
        panic!("a set")
    };
    assert_eq!(
        (kind, &attributes.get("size").unwrap().value),
        (SetKind::Fileset, &AttributeValue::Int(3))
    );
}

#[test]
fn every_command_is_known() {
    use ScriptCommand::*;
    assert_eq!(
        only("set mode quit firstdone"),
        Mode(super::QuitMode::FirstDone)
    );
    assert_eq!(
        only("set mode quit alldone"),
        Mode(super::QuitMode::AllDone)
    );
    assert_eq!(
        only("set mode quit timeout"),
        Mode(super::QuitMode::Timeout)
    );
    assert_eq!(only("set mode nousestats"), Nothing);
    assert!(matches!(only("eventgen rate=5"), Eventgen(Some(_))));
    assert!(matches!(only("eventgen"), Eventgen(None)));
    assert_eq!(only("create files"), Create);
    assert_eq!(only("run"), Run(None));
    assert_eq!(
        only("run $tt"),
        Run(Some(AttributeValue::Variable("tt".into())))
    );
    assert_eq!(only("psrun"), Psrun(0, None));
    assert_eq!(only("sleep 3"), Sleep(AttributeValue::Int(3)));
    assert_eq!(only("system \"ls\""), System("ls".into()));
    assert_eq!(only("echo \"hi\""), Echo("hi".into()));
    assert_eq!(only("list fileset"), List("fileset"));
    assert_eq!(only("list flowop"), List("flowop"));
    assert_eq!(only("version"), Version);
    assert_eq!(only("quit"), Quit);
    assert_eq!(only("debug 3"), Debug(3));
    assert_eq!(only("enable lathist"), Lathist);
    assert_eq!(
        only("enable multi master=hh,client=cc"),
        Multi("enable multi")
    );
    assert_eq!(only("domultisync value=1"), Multi("domultisync"));
    refused("debug 11", 1, 7, "0 to 10");
    refused("rum 5", 1, 1, "did you mean run?");
    refused("usage \"x\"", 1, 1, "older Filebench");
    refused("stats snap", 1, 1, "older Filebench");
}

#[test]
fn what_shipped_scripts_need_of_older_versions_is_taken() {
    let script = parsed(
        "define randvar name=$size, type=gamma, mean=16k\ndefine file \
         name=ff,path=/tmp,cached=false",
    );
    assert!(
        matches!(&script.commands[0].1, ScriptCommand::Set(name, AssignedValue::Random(..)) if name == "size")
    );
    assert!(script.remarks[0].contains("cached"), "{:?}", script.remarks);
    refused("define randvar type=gamma", 1, 1, "name=$variable");
}

#[test]
fn every_flowop_is_known_with_its_attributes() {
    let all = "iters=2,filename=ff,fd=3,srcfd=4,iosize=8k,workingset=1m,random,dsync,directio,opennext,indexed=$ii,value=7,\
               target=tt,blocking,highwater=9,noreadahead=false";
    for (name, kind) in words::FLOWOPS {
        let text = format!(
            "define process name=pp {{ thread name=tt {{ flowop {name} name=xx,{all} }} }}"
        );
        let ScriptCommand::Process(process) = only(&text) else {
            panic!("a process")
        };
        let flowop = &process.threads[0].body[0];
        assert_eq!(
            (flowop.kind, flowop.attributes.0.len()),
            (Some(kind), 17),
            "{name}"
        );
    }
}

fn flowops(body: &str) -> String {
    format!("define process name=pp {{\n thread name=tt {{\n{body}\n}}\n}}")
}

#[test]
fn what_is_unknown_is_named_with_its_place() {
    refused(
        &flowops("  flowop raed name=xx"),
        3,
        10,
        "did you mean read?",
    );
    refused(
        &flowops("  flowop quux name=xx"),
        3,
        10,
        "unknown flowop 'quux'",
    );
    refused(
        &flowops("flowop read name=xx,iosiz=4k"),
        3,
        21,
        "did you mean iosize?",
    );
    refused(
        &flowops("flowop read name=xx,zzzzzzz=4k"),
        3,
        21,
        "it has name, iters",
    );
    refused("define fileset nam=xx", 1, 16, "did you mean name?");
    refused("define files name=xx", 1, 8, "wanted");
}

#[test]
fn attributes_of_the_wrong_kind_are_refused() {
    refused(
        &flowops("flowop read name=xx,iosize=abc"),
        3,
        28,
        "must be a number",
    );
    refused(
        &flowops("flowop read name=xx,iosize=-4"),
        3,
        28,
        "not negative",
    );
    refused(&flowops("flowop read name=5"), 3, 18, "must be a string");
    refused("define fileset name=xx,reuse=maybe", 1, 30, "true or false");
    refused("define fileset name=xx,prealloc=101", 1, 33, "0 to 100");
    refused(
        &flowops("flowop read name=xx,iosize=4k,iosize=8k"),
        3,
        31,
        "given twice",
    );
    refused(&flowops("flowop read iosize=4k"), 3, 8, "needs a name");
    refused(
        &flowops("flowop read name=xx,$loc=4k"),
        3,
        21,
        "only composite",
    );
}

#[test]
fn composite_flowops_have_locals_with_and_without_defaults() {
    let script = parsed(
        "define flowop name=mine,iters=2,$size=4k,$set \
         {\n flowop read name=rr,iosize=$size,filename=$set\n}",
    );
    let ScriptCommand::Composite(composite) = &script.commands[0].1 else {
        panic!("a composite")
    };
    assert_eq!(
        composite.locals,
        [
            ("size".into(), Some(AttributeValue::Int(4096))),
            ("set".into(), None)
        ]
    );
    refused("define flowop name=read { }", 1, 15, "of the library");
    refused("define flowop $aa=1 { }", 1, 15, "needs a name");
}

#[test]
fn tables_are_rows_of_percent_low_high() {
    let text = "set $ab=randvar(type=tabular,min=1,randtable={{50,1,2},{50,$lo,4k}},round=2)";
    let ScriptCommand::Set(_, AssignedValue::Random(attributes, rows)) = only(text) else {
        panic!("a random variable")
    };
    assert_eq!(
        (attributes.0.len(), rows.len(), &rows[1][2]),
        (3, 2, &AttributeValue::Int(4096))
    );
    refused("set $ab=randvar(randtable={50,1,2})", 1, 28, "'{'");
}

#[test]
fn scripts_load_each_other_but_not_in_circles() {
    let mut files = |name: &str| match name {
        "one" => Ok("load two\nset $bb=2".to_owned()),
        "two" => Ok("set $aa=1".to_owned()),
        "snake" => Ok("load tail".to_owned()),
        "tail" => Ok("\n load snake".to_owned()),
        "bad" => Ok("\nrun {".to_owned()),
        _ => Err("it is not there".to_owned()),
    };
    let script = parse_script("t.wml", "load one\nrun", &mut files).unwrap();
    assert_eq!(script.commands.len(), 3);
    let error = parse_script("t.wml", "load snake", &mut files).unwrap_err();
    assert_eq!(
        (error.file.as_str(), error.line, error.column),
        ("tail", 2, 2)
    );
    assert!(
        error
            .message
            .contains("cyclic load: t.wml -> snake -> tail -> snake"),
        "{error}"
    );
    let error = parse_script("t.wml", "load gone", &mut files).unwrap_err();
    assert_eq!(
        error.to_string(),
        "t.wml:1:1: cannot load 'gone': it is not there"
    );
    let error = parse_script("t.wml", "load bad", &mut files).unwrap_err();
    assert_eq!(error.file, "bad");
}

#[test]
fn unfinished_things_are_refused_where_they_end() {
    refused(
        "define process name=pp {\n thread name=tt {",
        2,
        18,
        "the end of the file",
    );
    refused("set $ab=", 1, 9, "the end of the file");
    refused("define", 1, 7, "the end of the file");
    refused("set $ab=randvar(type=gamma", 1, 27, "')'");
    refused("define fileset name=xx,", 1, 24, "an attribute");
}

/// What scripts are made of, in no order.
const WORDS: &[&str] = &[
    "set",
    "define",
    "fileset",
    "process",
    "thread",
    "flowop",
    "read",
    "name",
    "=",
    ",",
    "{",
    "}",
    "(",
    ")",
    "$ab",
    "5k",
    "\"x\"",
    "randvar",
    "cvar",
    "randtable",
    "run",
    "mode",
    "quit",
    "iosize",
    "$",
    "-3",
    "#\n",
    "load",
    "\n",
    "type",
    "eventgen",
];

/// Words that make scripts, in no order.
fn soup() -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(WORDS), 0..60)
        .prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in any::<String>(), soup in soup()) {
        let _ = parse_script("t.wml", &text, &mut nothing);
        let _ = parse_script("t.wml", &soup, &mut |_| Ok("set $aa=1".into()));
    }

    #[test]
    fn errors_lie_within_the_text(soup in soup()) {
        if let Err(error) = parse_script("t.wml", &soup, &mut nothing) {
            let lines: Vec<&str> = soup.split('\n').collect();
            let line = lines.get(error.line as usize - 1).expect("a line of the text");
            prop_assert!(error.column as usize <= line.chars().count() + 1, "{}", error);
        }
    }
}
