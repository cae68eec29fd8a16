//! Splits text into tokens.

use super::syntax::SourcePosition;

/// Holds a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Int(i64),
    /// Bare word: keyword, name or string.
    Word(String),
    /// Quoted string, with escapes resolved.
    Quoted(String),
    /// Variable, without `$` and brackets.
    Variable(String),
    /// `{ } ( ) , =`
    Sign(char),
    End,
}

impl Token {
    /// Returns its text in messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Int(n) => format!("'{n}'"),
            Self::Word(word) => format!("'{word}'"),
            Self::Quoted(text) => format!("\"{text}\""),
            Self::Variable(name) => format!("'${name}'"),
            Self::Sign(sign) => format!("'{sign}'"),
            Self::End => "the end of the file".into(),
        }
    }
}

/// Reads characters and knows the position of the next.
struct Cursor<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    place: SourcePosition,
}

type LexResult<T> = Result<T, (SourcePosition, String)>;

impl Cursor<'_> {
    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        if c == '\n' {
            self.place.line = self.place.line.saturating_add(1);
            self.place.column = 1;
        } else {
            self.place.column = self.place.column.saturating_add(1);
        }
        Some(c)
    }

    fn take_word(&mut self, first: &str, fits: impl Fn(char) -> bool) -> String {
        let mut word = first.to_owned();
        while let Some(c) = self.peek().filter(|c| fits(*c)) {
            word.push(c);
            self.next();
        }
        word
    }
}

fn is_word_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || "/._:;-".contains(c)
}

/// Returns all tokens of `text` with their positions; the last is [`Token::End`].
pub(super) fn tokenize(text: &str, file: u16) -> LexResult<Vec<(SourcePosition, Token)>> {
    let mut at = Cursor {
        rest: text.chars().peekable(),
        place: SourcePosition {
            file,
            line: 1,
            column: 1,
        },
    };
    // Each token keeps its position for messages.
    let mut tokens = Vec::new();
    while let Some(c) = at.peek() {
        let place = at.place;
        let token = match c {
            '#' => {
                at.take_word("", |c| c != '\n');
                continue;
            }
            c if c.is_whitespace() => {
                at.next();
                continue;
            }
            '{' | '}' | '(' | ')' | ',' | '=' => {
                at.next();
                Token::Sign(c)
            }
            '"' => lex_quoted(&mut at, place)?,
            '$' => lex_variable(&mut at, place)?,
            '0'..='9' => lex_number(&mut at, place, "")?,
            // A word may begin with a dash or a slash: options and paths.
            c if c == '/' || c == '-' || c.is_ascii_alphabetic() => {
                let word = at.take_word("", is_word_character);
                // A dash begins a bare word, unless only digits follow it.
                match word.strip_prefix('-') {
                    Some(digits)
                        if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) =>
                    {
                        Token::Int(parse_whole(&word, 1, place)?)
                    }
                    _ => Token::Word(word),
                }
            }
            c => return Err((place, illegal_character(c))),
        };
        tokens.push((place, token));
    }
    debug_assert!(at.peek().is_none(), "text is left after the last token");
    tokens.push((at.place, Token::End));
    Ok(tokens)
}

fn illegal_character(c: char) -> String {
    let advice = match c {
        '*' | '+' | '%' | '^' => "; the language has no arithmetic: write the result",
        ';' => "; commands end by themselves",
        '.' => {
            "; there are no decimals, and a bare string begins with a letter or '/': write \"…\""
        }
        '\'' => "; strings are in double quotes",
        _ => "; strings with it are written in double quotes",
    };
    format!("illegal character {c:?}{advice}")
}

fn lex_quoted(at: &mut Cursor<'_>, place: SourcePosition) -> LexResult<Token> {
    // The position of an unclosed string is its beginning.
    at.next();
    let mut text = String::new();
    loop {
        match at.next() {
            None => {
                return Err((
                    place,
                    "a string that begins here has no end; close it with '\"'".into(),
                ));
            }
            Some('"') => return Ok(Token::Quoted(text)),
            Some('\\') => match at.next() {
                Some('n') => text.push('\n'),
                Some(c @ ('"' | '\\')) => text.push(c),
                // An unknown escape stays as it is, as in Filebench.
                Some(c) => text.extend(['\\', c]),
                None => {}
            },
            Some(c) => text.push(c),
        }
    }
}

fn lex_variable(at: &mut Cursor<'_>, place: SourcePosition) -> LexResult<Token> {
    at.next();
    // Brackets are optional, and either kind closes by its own.
    let bracket = at.peek().filter(|c| "({".contains(*c));
    if bracket.is_some() {
        at.next();
    }
    let name = at.take_word("", |c| c.is_ascii_alphanumeric() || c == '_');
    if let Some(open) = bracket {
        let close = if open == '(' { ')' } else { '}' };
        if at.peek() != Some(close) {
            return Err((
                place,
                format!("illegal variable '${open}{name}'; close it with '{close}'"),
            ));
        }
        at.next();
    }
    // A name without brackets needs two characters, because Filebench takes one for text.
    match name.as_bytes() {
        [only] if bracket.is_some() && only.is_ascii_alphabetic() => Ok(Token::Variable(name)),
        [first, .., last] if first.is_ascii_alphabetic() && *last != b'_' => {
            Ok(Token::Variable(name))
        }
        _ => Err((
            place,
            format!(
                "illegal variable '${name}'; a name has two characters at least, begins with a \
                 letter and ends with a letter or digit"
            ),
        )),
    }
}

fn lex_number(at: &mut Cursor<'_>, place: SourcePosition, sign: &str) -> LexResult<Token> {
    // Suffixes are powers of two.
    let digits = at.take_word(sign, |c| c.is_ascii_digit());
    let shift = match at.peek() {
        Some('k') => 10,
        Some('m') => 20,
        Some('g') => 30,
        _ => 0,
    };
    if shift > 0 {
        at.next();
    }
    // A letter or a point behind a number is an error, not the next word: Filebench reads it
    // wrongly.
    match at.peek() {
        Some('.') => {
            return Err((
                at.place,
                "there are no decimals; write a whole number, with k, m or g".into(),
            ));
        }
        Some(c) if c.is_ascii_alphanumeric() || c == '_' => {
            let message =
                format!("'{c}' after the number {digits}; suffixes are k, m and g, in lower case");
            return Err((at.place, message));
        }
        _ => {}
    }
    Ok(Token::Int(parse_whole(&digits, 1 << shift, place)?))
}

fn parse_whole(digits: &str, unit: i64, place: SourcePosition) -> LexResult<i64> {
    let number = digits
        .parse::<i64>()
        .ok()
        .and_then(|number| number.checked_mul(unit));
    number.ok_or_else(|| {
        (
            place,
            format!(
                "the number {digits} is too large; the largest is {}",
                i64::MAX
            ),
        )
    })
}
