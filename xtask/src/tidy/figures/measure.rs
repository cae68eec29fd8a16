//! Counts what the table of *Words* shows, in the text of a crate's source files.

use super::circles;
use super::pattern::pattern;
use super::rules::WordFigure;
use super::sources::CrateSources;
use std::collections::BTreeMap;

/// The figures of one crate, each of them present.
pub(super) type CrateFigures = BTreeMap<WordFigure, f64>;

impl CrateSources {
    pub(super) fn measure_figures(&self) -> CrateFigures {
        let mut figures = figures_of_crates(&[self]);
        figures.insert(
            WordFigure::LargestCircle,
            circles::largest_circle_percent(self),
        );
        figures
    }
}

/// Returns the figures of `crates` taken as one; its largest circle is that of the worst crate.
pub(super) fn figures_of_all(crates: &[CrateSources]) -> CrateFigures {
    let mut figures = figures_of_crates(&crates.iter().collect::<Vec<_>>());
    let circles = crates.iter().map(circles::largest_circle_percent);
    figures.insert(WordFigure::LargestCircle, circles.fold(0.0, f64::max));
    figures
}

fn figures_of_crates(crates: &[&CrateSources]) -> CrateFigures {
    let mut counts = LineCounts::default();
    for sources in crates {
        for file in &sources.files {
            counts.add_file(file.product_text());
        }
    }
    let types: Vec<&str> = crates
        .iter()
        .flat_map(|sources| sources.type_names())
        .collect();
    let functions: Vec<&str> = crates
        .iter()
        .flat_map(|sources| sources.function_names())
        .collect();
    let mut figures = counts.into_figures();
    figures.insert(
        WordFigure::OneWordTypes,
        percent_of(one_word_types(&types), types.len()),
    );
    figures.insert(
        WordFigure::SharedTypeNames,
        percent_of(shared_names(&types), types.len()),
    );
    let one_word = functions.iter().filter(|name| !name.contains('_')).count();
    figures.insert(
        WordFigure::OneWordFunctions,
        percent_of(one_word, functions.len()),
    );
    figures
}

fn one_word_types(names: &[&str]) -> usize {
    pattern!(WORD, "[A-Z][a-z0-9]*");
    names
        .iter()
        .filter(|name| WORD.find_iter(name).count() == 1)
        .count()
}

/// Returns how many of `names` occur more than once.
fn shared_names(names: &[&str]) -> usize {
    let mut occurrences = BTreeMap::new();
    for name in names {
        *occurrences.entry(name).or_insert(0) += 1;
    }
    occurrences.values().filter(|count| **count > 1).sum()
}

fn percent_of(part: usize, whole: usize) -> f64 {
    debug_assert!(part <= whole, "a part is no more than the whole");
    rate_of(100.0, part, whole)
}

/// Returns `part` for every `unit` of `whole`; 0 of nothing.
fn rate_of(unit: f64, part: usize, whole: usize) -> f64 {
    let rounded = 10.0 * unit * part as f64 / whole.max(1) as f64;
    rounded.round() / 10.0
}

/// Counts over the lines of source files.
#[derive(Debug, Default)]
struct LineCounts {
    lines: usize,
    code_lines: usize,
    wide_lines: usize,
    tokens: usize,
    closures: usize,
    assertions: usize,
    comment_lines: usize,
    clause_lines: usize,
    inner_comment_lines: usize,
    comment_words: usize,
    riddles: usize,
    function_tokens: Vec<usize>,
}

impl LineCounts {
    fn add_file(&mut self, text: &str) {
        for line in text.split('\n') {
            self.lines += 1;
            self.wide_lines += usize::from(line.chars().count() > 100);
            let bare = line.trim();
            if bare.starts_with("//") {
                self.add_comment(line, bare);
            } else if !bare.is_empty() {
                self.add_code(bare);
            }
        }
        self.function_tokens.extend(tokens_of_functions(text));
    }

    fn add_comment(&mut self, line: &str, bare: &str) {
        pattern!(MARK, r"^//[/!]?\s?");
        pattern!(WORD, "[A-Za-z']+");
        pattern!(RIDDLE, r"(?i)\b(somebody|nobody|whoever|whose|who)\b");
        pattern!(
            CLAUSE,
            r"^(What|Whether|Who|Where|How|So many|Of |It |The same|That |Those )\b"
        );
        let body = MARK.replace(bare, "");
        self.comment_lines += 1;
        self.comment_words += WORD.find_iter(&body).count();
        self.riddles += RIDDLE.find_iter(&body).count();
        self.clause_lines += usize::from(CLAUSE.is_match(&body));
        let is_inner = bare.starts_with("// ") && line.starts_with("    ");
        self.inner_comment_lines += usize::from(is_inner);
    }

    fn add_code(&mut self, bare: &str) {
        pattern!(
            CLOSURE,
            r"(?:[(,=\[{]|\bmove|\breturn)\s*(?:\|\||\|[^|=]+\|)(?:\s|$)"
        );
        let code = bare.split("//").next().unwrap_or_default();
        self.code_lines += 1;
        self.tokens += split_tokens(code).count();
        self.closures += CLOSURE.find_iter(code).count();
        let is_assertion = bare.starts_with("assert") || bare.starts_with("debug_assert");
        self.assertions += usize::from(is_assertion);
    }

    fn into_figures(mut self) -> CrateFigures {
        // The median needs an order.
        self.function_tokens.sort_unstable();
        // The upper of the two middle ones, if there are two.
        let median = self.function_tokens.get(self.function_tokens.len() / 2);
        let longest = self.function_tokens.last();
        let as_figure = |tokens: Option<&usize>| tokens.copied().unwrap_or_default() as f64;
        BTreeMap::from([
            (
                WordFigure::TokensPerLine,
                rate_of(1.0, self.tokens, self.code_lines),
            ),
            (WordFigure::MedianFunctionTokens, as_figure(median)),
            (WordFigure::LongestFunctionTokens, as_figure(longest)),
            (
                WordFigure::ClosuresPerThousandLines,
                rate_of(1000.0, self.closures, self.code_lines),
            ),
            (WordFigure::WideLines, self.wide_lines as f64),
            (
                WordFigure::RiddlesPerThousandWords,
                rate_of(1000.0, self.riddles, self.comment_words),
            ),
            (
                WordFigure::ClauseComments,
                percent_of(self.clause_lines, self.comment_lines),
            ),
            (
                WordFigure::InnerComments,
                percent_of(self.inner_comment_lines, self.lines),
            ),
            (
                WordFigure::AssertionsPerThousandLines,
                rate_of(1000.0, self.assertions, self.code_lines),
            ),
        ])
    }
}

/// Splits `code`, which has no comments, into tokens. A string is one token, also where it goes on
/// in the next line.
fn split_tokens(code: &str) -> impl Iterator<Item = &str> {
    pattern!(
        TOKEN,
        r##"r#*"|"(?:(?s:\\.)|[^"\\])*"|'(?:\\.|[^'\\])'|[A-Za-z_]\w*|\d[\w.]*|::|->|=>|[-+*/%&|^!=<>]=?|&&|\|\||\.\.=?|[^\s\w]"##
    );
    TOKEN.find_iter(code).map(|found| found.as_str())
}

/// Returns the number of tokens of each function with a body, from `fn` to its last brace.
fn tokens_of_functions(text: &str) -> Vec<usize> {
    pattern!(RAW_STRING, r###"(?s)\br"[^"]*"|\br#".*?"#|\br##".*?"##"###);
    // Raw strings may contain braces and quotes, which would confuse the count.
    let plain = RAW_STRING.replace_all(text, "\"\"");
    let code: Vec<&str> = plain
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let code = code.join("\n");
    let tokens: Vec<&str> = split_tokens(&code).collect();
    let starts = tokens
        .windows(2)
        .enumerate()
        .filter(|(_, pair)| pair[0] == "fn" && pair[1] != "(");
    starts
        .filter_map(|(start, _)| function_length(&tokens[start..]))
        .collect()
}

/// Returns how many of `tokens`, which begin with `fn`, belong to that function; none if it has no
/// body.
fn function_length(tokens: &[&str]) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            ";" if depth == 0 => return None,
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                // A bracket without its partner: the text is not a function.
                depth = depth.checked_sub(1)?;
                if depth == 0 && *token == "}" {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}
