//! The figures of the chapter *Words*, their aims, and how much worse each may become.

/// One column of the table in the chapter *Words* of the style guide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WordFigure {
    OneWordTypes,
    SharedTypeNames,
    OneWordFunctions,
    TokensPerLine,
    MedianFunctionTokens,
    LongestFunctionTokens,
    ClosuresPerThousandLines,
    WideLines,
    RiddlesPerThousandWords,
    ClauseComments,
    InnerComments,
    AssertionsPerThousandLines,
    LargestCircle,
}

/// Says which direction of a [`WordFigure`] is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BetterDirection {
    Lower,
    Higher,
}

/// The fixed properties of a [`WordFigure`]: its names, its aim, and how much worse it may become
/// before tidy objects.
pub(super) struct FigureRule {
    pub(super) figure: WordFigure,
    /// The key in `xtask/words.toml`.
    pub(super) key: &'static str,
    /// The heading of the column in the printed table.
    pub(super) heading: &'static str,
    pub(super) aim: f64,
    /// A merge of two branches may worsen a figure by this much: each branch was measured without
    /// the other's lines.
    pub(super) tolerance: f64,
    pub(super) better: BetterDirection,
}

impl FigureRule {
    pub(super) fn is_worse(&self, figure: f64, than: f64) -> bool {
        match self.better {
            BetterDirection::Lower => figure > than,
            BetterDirection::Higher => figure < than,
        }
    }

    /// Returns `recorded` made worse by the tolerance. A figure that has reached its aim may go
    /// back to the aim.
    pub(super) fn with_tolerance(&self, recorded: f64) -> f64 {
        match self.better {
            BetterDirection::Lower => (recorded + self.tolerance).max(self.aim),
            BetterDirection::Higher => (recorded - self.tolerance).min(self.aim),
        }
    }
}

const fn figure_rule(
    figure: WordFigure,
    key: &'static str,
    heading: &'static str,
    aim: f64,
    tolerance: f64,
    better: BetterDirection,
) -> FigureRule {
    FigureRule {
        figure,
        key,
        heading,
        aim,
        tolerance,
        better,
    }
}

pub(super) const RULES: &[FigureRule] = &[
    figure_rule(
        WordFigure::OneWordTypes,
        "one-word-types",
        "types 1w%",
        25.0,
        3.0,
        BetterDirection::Lower,
    ),
    figure_rule(
        WordFigure::SharedTypeNames,
        "shared-type-names",
        "share%",
        5.0,
        3.0,
        BetterDirection::Lower,
    ),
    figure_rule(
        WordFigure::OneWordFunctions,
        "one-word-functions",
        "fns 1w%",
        45.0,
        2.0,
        BetterDirection::Lower,
    ),
    figure_rule(
        WordFigure::TokensPerLine,
        "tokens-per-line",
        "tok/line",
        7.5,
        0.3,
        BetterDirection::Lower,
    ),
    figure_rule(
        WordFigure::MedianFunctionTokens,
        "median-function-tokens",
        "fn med",
        60.0,
        5.0,
        BetterDirection::Lower,
    ),
    figure_rule(
        WordFigure::LongestFunctionTokens,
        "longest-function-tokens",
        "fn most",
        300.0,
        30.0,
        BetterDirection::Lower,
    ),
    figure_rule(
        WordFigure::ClosuresPerThousandLines,
        "closures-per-1000-lines",
        "closures",
        25.0,
        3.0,
        BetterDirection::Lower,
    ),
    figure_rule(
        WordFigure::WideLines,
        "lines-over-100-columns",
        "wide",
        0.0,
        5.0,
        BetterDirection::Lower,
    ),
    figure_rule(
        WordFigure::RiddlesPerThousandWords,
        "riddles-per-1000-words",
        "riddles",
        1.0,
        1.0,
        BetterDirection::Lower,
    ),
    figure_rule(
        WordFigure::ClauseComments,
        "clause-comments",
        "clause%",
        1.0,
        1.0,
        BetterDirection::Lower,
    ),
    figure_rule(
        WordFigure::InnerComments,
        "comments-inside-functions",
        "inner%",
        4.0,
        0.3,
        BetterDirection::Higher,
    ),
    figure_rule(
        WordFigure::AssertionsPerThousandLines,
        "assertions-per-1000-lines",
        "asserts",
        5.0,
        0.5,
        BetterDirection::Higher,
    ),
    figure_rule(
        WordFigure::LargestCircle,
        "largest-import-circle",
        "circle%",
        15.0,
        3.0,
        BetterDirection::Lower,
    ),
];
