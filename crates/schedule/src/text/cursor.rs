//! A position in one line of text, and the parsers that advance it.

use crate::text::TextError;
use crate::{Area, Level, Place, Rank, Run, Set};

pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

type Result<T> = std::result::Result<T, TextError>;

impl<'a> Cursor<'a> {
    /// Creates a cursor at the first word of a line, without the line's comment.
    pub(super) fn new(line: u32, text: &'a str) -> Cursor<'a> {
        let text = text.split(';').next().unwrap_or("").trim_end();
        let mut cursor = Cursor { text, at: 0, line };
        cursor.skip();
        cursor
    }

    pub(super) fn line(&self) -> u32 {
        self.line
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    pub(super) fn error(&self, message: impl Into<String>) -> TextError {
        let column = self.text[..self.at].chars().count() as u32 + 1;
        TextError { line: self.line, column, message: message.into() }
    }

    pub(super) fn expected(&self, what: &str) -> TextError {
        match self.rest() {
            "" => self.error(format!("expected {what}, but the line ends")),
            rest => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                self.error(format!("expected {what}, found `{}`", &rest[..end]))
            }
        }
    }

    pub(super) fn end(&self) -> Result<()> {
        if self.rest().is_empty() { Ok(()) } else { Err(self.expected("the end of the line")) }
    }

    /// Consumes `mark` if it comes next, whatever character follows.
    pub(super) fn mark(&mut self, mark: &str) -> bool {
        let found = self.rest().starts_with(mark);
        if found {
            self.at += mark.len();
        }
        found
    }

    /// Consumes `word` if it comes next as a whole word.
    pub(super) fn keyword(&mut self, word: &str) -> bool {
        let found = self.rest().strip_prefix(word).is_some_and(|r| r.is_empty() || r.starts_with(char::is_whitespace));
        if found {
            self.at += word.len();
            self.skip();
        }
        found
    }

    pub(super) fn expect(&mut self, word: &str) -> Result<()> {
        if self.keyword(word) { Ok(()) } else { Err(self.expected(&format!("`{word}`"))) }
    }

    /// Consumes and returns the next word; `what` describes it in errors.
    pub(super) fn word(&mut self, what: &str) -> Result<&'a str> {
        let rest = self.rest();
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        if end == 0 {
            return Err(self.expected(what));
        }
        self.at += end;
        self.skip();
        Ok(&rest[..end])
    }

    /// Consumes the next word and parses it with `read`; `what` describes it in errors.
    pub(super) fn parse<T>(&mut self, what: &str, read: impl Fn(&str) -> Option<T>) -> Result<T> {
        let start = self.at;
        let word = self.word(what)?;
        read(word).ok_or_else(|| {
            self.at = start;
            self.expected(what)
        })
    }

    fn digits(&mut self, what: &str) -> Result<u64> {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let value = rest[..end].parse().ok().ok_or_else(|| self.expected(what))?;
        self.at += end;
        Ok(value)
    }

    /// Consumes a number that ends at a space or at the end of the line.
    pub(super) fn number(&mut self, what: &str) -> Result<u64> {
        let start = self.at;
        let value = self.digits(what)?;
        if !self.rest().is_empty() && !self.rest().starts_with(char::is_whitespace) {
            self.at = start;
            return Err(self.expected(what));
        }
        self.skip();
        Ok(value)
    }

    pub(super) fn number32(&mut self, what: &str) -> Result<u32> {
        let start = self.at;
        u32::try_from(self.number(what)?).map_err(|_| {
            self.at = start;
            self.expected(what)
        })
    }

    pub(super) fn rank(&mut self) -> Result<Rank> {
        self.number32("a rank").map(Rank)
    }

    /// Parses a run (blocks of consecutive numbers at equal distances): `a`, `a..b`, `a/s*n` or `a..b/s*n`.
    fn run(&mut self) -> Result<Run> {
        let begin = self.at;
        let start = self.digits("a chunk number")?;
        let end = if self.mark("..") {
            self.digits("the end of the block")?
        } else {
            start.checked_add(1).ok_or_else(|| self.error(format!("chunk numbers go up to {}", Run::LIMIT)))?
        };
        let (mut stride, mut count) = (0, 1);
        if self.mark("/") {
            let sign = if self.mark("-") { -1 } else { 1 };
            let step = self.digits("a stride")?.min(Run::LIMIT);
            stride = sign * step as i64;
            if !self.mark("*") {
                return Err(self.expected("`*` and the number of blocks"));
            }
            count = self.digits("the number of blocks")?;
        }
        if end <= start {
            self.at = begin;
            return Err(self.error("this block is empty: the end of a range is exclusive"));
        }
        let run = end.checked_sub(start).and_then(|block| Run::checked(start, block, stride, count));
        run.ok_or_else(|| {
            self.at = begin;
            self.error(format!("chunk numbers and the number of chunks must be within 0..{}", Run::LIMIT))
        })
    }

    /// Parses runs that are separated by commas.
    pub(super) fn set(&mut self) -> Result<Set> {
        let mut set = Set::new();
        loop {
            set.push(self.run()?);
            if !self.mark(",") {
                self.skip();
                return Ok(set);
            }
        }
    }

    /// Whether the next word is a place such as `t0[1]`.
    pub(super) fn at_place(&self) -> bool {
        let rest = self.rest();
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        rest[..end].contains('[')
    }

    pub(super) fn place(&mut self) -> Result<Place> {
        const WHAT: &str = "a place such as `out[0..4]`, `t0[1]`, `node.0[2]` or `in@3[0]`";
        let rest = self.rest();
        let name = &rest[..rest.find('[').ok_or_else(|| self.expected(WHAT))?];
        let area = area(name).ok_or_else(|| self.expected(WHAT))?;
        self.at += name.len();
        Ok(Place { area, set: self.chunks()? })
    }

    /// Parses a set in brackets.
    pub(super) fn chunks(&mut self) -> Result<Set> {
        if !self.mark("[") {
            return Err(self.expected("chunks such as `[0..4]`"));
        }
        let set = self.set()?;
        if !self.mark("]") {
            return Err(self.expected("`]`"));
        }
        if !self.rest().is_empty() && !self.rest().starts_with(char::is_whitespace) {
            return Err(self.expected("a space"));
        }
        self.skip();
        Ok(set)
    }
}

/// Highest number of a line of slots: `t65535` or `node.65535`.
const MOST_LINES: u32 = 65_535;

fn area(name: &str) -> Option<Area> {
    let number = |digits: &str| digits.parse::<u32>().ok().filter(|n| n.to_string() == digits && *n <= MOST_LINES);
    match name {
        "in" => Some(Area::In),
        "out" => Some(Area::Out),
        _ if name.contains('@') => {
            let (side, rank) = name.split_once('@')?;
            let rank = rank.parse::<u32>().ok().filter(|n| n.to_string() == rank).map(Rank)?;
            match side {
                "in" => Some(Area::InOf(rank)),
                "out" => Some(Area::OutOf(rank)),
                _ => None,
            }
        }
        _ => match name.split_once('.') {
            Some((level, line)) => Some(Area::Shared(Level::from_name(level)?, number(line)?)),
            None => Some(Area::Line(number(name.strip_prefix('t')?)?)),
        },
    }
}
