//! Reads schedules and programs from text.

use std::collections::BTreeMap;
use std::iter::Peekable;

use crate::program::{Code, Instr, Layout, Placement};
use crate::schedule::{Area, Claims, End, LocalOp, Message, Payload, Places, RankCode, Round};
use crate::text::cursor::Cursor;
use crate::text::{Document, Read as ParsedText, TextError};
use crate::{Collective, Counts, Flag, Level, Order, Problem, Rank, Request, Set, Tag, Topology};

type Result<T> = std::result::Result<T, TextError>;

/// Reads a schedule or a program from text. An error names the line and column at which the text is invalid.
pub fn read(text: &str) -> Result<ParsedText> {
    let numbered = text.lines().zip(1..).map(|(line, number)| Cursor::new(number, line));
    let mut lines = Lines { lines: numbered.filter(|c| !c.rest().is_empty()).peekable(), last: 1 };
    let mut kind = lines.next("`schedule` or `program`")?;
    let schedule = kind.keyword("schedule");
    if !schedule {
        kind.expect("program")
            .map_err(|e| TextError { message: e.message.replace("`program`", "`schedule` or `program`"), ..e })?;
    }
    kind.end()?;
    let heading = lines.heading()?;
    let mut lines_of = BTreeMap::new();
    let document = if schedule {
        Document::Schedule(lines.ranks(heading, &mut lines_of, Lines::rounds)?)
    } else {
        Document::Program(lines.ranks(heading, &mut lines_of, Lines::code)?)
    };
    Ok(ParsedText { document, lines: lines_of })
}

/// Iterator over the lines that are not empty, with the number of the line that it returned last.
struct Lines<'a, I: Iterator<Item = Cursor<'a>>> {
    lines: Peekable<I>,
    last: u32,
}

impl<'a, I: Iterator<Item = Cursor<'a>>> Lines<'a, I> {
    fn next(&mut self, what: &str) -> Result<Cursor<'a>> {
        let cursor = self.lines.next().ok_or_else(|| TextError {
            line: self.last,
            column: 1,
            message: format!("expected {what} after this line, but the text ends"),
        })?;
        self.last = cursor.line();
        Ok(cursor)
    }

    /// Returns the next line if it starts with `word`, with the cursor behind `word`.
    fn next_if(&mut self, word: &str) -> Option<Cursor<'a>> {
        let mut cursor = self.lines.next_if(|c| c.rest().split_whitespace().next().is_some_and(|w| w == word))?;
        cursor.keyword(word);
        self.last = cursor.line();
        Some(cursor)
    }

    fn heading(&mut self) -> Result<RankCode<()>> {
        let mut line = self.next("`problem`")?;
        line.expect("problem")?;
        let problem = problem(&mut line)?;
        let mut line = self.next("`topology`")?;
        line.expect("topology")?;
        let here = line.error("");
        let text = line.word("a topology")?;
        let topology: Topology = text.parse().map_err(|e| TextError { message: format!("{e}"), ..here.clone() })?;
        if topology.ranks() != problem.ranks {
            let message = format!("the topology has {} ranks, the problem {}", topology.ranks(), problem.ranks);
            return Err(TextError { message, ..here });
        }
        line.end()?;
        let mut overlap = 0;
        if let Some(mut line) = self.next_if("overlap") {
            overlap = line.number32("a number of rounds")?;
            line.end()?;
        }
        let mut claims = Claims::default();
        while let Some(mut line) = self.next_if("claim") {
            let what = "`consistent`, `ordered`, `messages N`, `sent N` or `memory N`";
            match line.parse(what, |word| {
                ["consistent", "ordered", "messages", "sent", "memory"].iter().position(|w| *w == word)
            })? {
                0 => claims.consistent = true,
                1 => claims.ordered = true,
                2 => claims.messages = Some(line.number("a number of messages")?),
                3 => claims.sent = Some(line.number("a number of elements")?),
                _ => claims.memory = Some(line.number("a number of elements")?),
            }
            line.end()?;
        }
        Ok(RankCode { problem, topology, overlap, claims, ranks: BTreeMap::new() })
    }

    fn ranks<B>(
        &mut self,
        heading: RankCode<()>,
        lines_of: &mut BTreeMap<Rank, Vec<u32>>,
        body: impl Fn(&mut Self, &mut Vec<u32>) -> Result<B>,
    ) -> Result<RankCode<B>> {
        let mut ranks = BTreeMap::new();
        while self.lines.peek().is_some() {
            let mut line = self.next("`rank`")?;
            line.expect("rank")?;
            let here = line.error("");
            let rank = line.rank()?;
            line.end()?;
            if rank.0 >= heading.problem.ranks {
                let message = format!("the problem has ranks 0 to {}", heading.problem.ranks - 1);
                return Err(TextError { message, ..here });
            }
            if ranks.contains_key(&rank) {
                return Err(TextError { message: format!("rank {rank} is already defined"), ..here });
            }
            let mut numbers = Vec::new();
            ranks.insert(rank, body(self, &mut numbers)?);
            lines_of.insert(rank, numbers);
        }
        let RankCode { problem, topology, overlap, claims, .. } = heading;
        Ok(RankCode { problem, topology, overlap, claims, ranks })
    }

    fn at_rank(&mut self) -> bool {
        self.lines.peek().is_none_or(|c| c.rest().split_whitespace().next() == Some("rank"))
    }

    fn rounds(&mut self, numbers: &mut Vec<u32>) -> Result<Vec<Round>> {
        let mut rounds = Vec::new();
        while !self.at_rank() {
            let mut line = self.next("`round`")?;
            line.expect("round")?;
            line.end()?;
            let heading = line.line();
            let mut round = Round::default();
            while !self.at_rank() {
                if self.lines.peek().is_some_and(|c| c.rest() == "round") {
                    break;
                }
                let mut line = self.next("an operation")?;
                let word = line.rest().split_whitespace().next().unwrap_or("");
                if ["place", "alternate", "finish"].contains(&word) {
                    return Err(line.error(format!("`{word}` belongs to a `program`, and this is a `schedule`")));
                }
                if let Some(message) = message(&mut line)? {
                    if !round.local.is_empty() {
                        return Err(TextError {
                            line: line.line(),
                            column: 1,
                            message: "messages come before a round's local work: start a new round".to_owned(),
                        });
                    }
                    round.messages.push(message);
                } else {
                    if round.local.is_empty() && !round.messages.is_empty() {
                        numbers.push(heading);
                    }
                    round.local.push(local(&mut line)?);
                }
                line.end()?;
                numbers.push(line.line());
            }
            if round.local.is_empty() && !round.messages.is_empty() {
                numbers.push(heading);
            }
            rounds.push(round);
        }
        Ok(rounds)
    }

    fn code(&mut self, numbers: &mut Vec<u32>) -> Result<Code> {
        let mut placed = Vec::new();
        while let Some(mut line) = self.next_if("place") {
            let here = line.error("");
            let place = line.place()?;
            if matches!(place.area, Area::In | Area::Out) {
                let message = "`in` and `out` are the user's buffers and cannot be placed".to_owned();
                return Err(TextError { message, ..here });
            }
            line.expect("at")?;
            let at = line.number("an offset")?;
            if at > crate::Run::LIMIT {
                return Err(TextError { message: "this offset is too large".to_owned(), ..here });
            }
            line.end()?;
            placed.push(Placement { place, at });
        }
        let mut alternate = Vec::new();
        while let Some(mut line) = self.next_if("alternate") {
            alternate.push(level(&mut line)?);
            line.end()?;
        }
        let mut instrs = Vec::new();
        while !self.at_rank() {
            let mut line = self.next("an instruction")?;
            instrs.push(instr(&mut line)?);
            line.end()?;
            numbers.push(line.line());
        }
        Ok(Code { layout: Layout::Buffers { placed, alternate }, instrs })
    }
}

fn problem(line: &mut Cursor<'_>) -> Result<Problem> {
    let here = line.error("");
    let collective = line.parse("`allgather`, `allreduce`, `reduce_scatter` or `alltoall`", Collective::from_name)?;
    line.expect("ranks")?;
    let ranks = line.number32("a number of ranks")?;
    line.expect("counts")?;
    let counts = if line.keyword("equal") {
        Counts::Equal(line.number("a count")?)
    } else if line.keyword("root") {
        Counts::Root { root: line.rank()?, count: line.number("a count")? }
    } else if line.keyword("listed") {
        let read = |word: &str| word.split(',').map(|n| n.parse().ok()).collect();
        Counts::Listed(line.parse("counts separated by commas", read)?)
    } else if line.keyword("local") {
        Counts::Local
    } else {
        return Err(line.error("expected `equal`, `root`, `listed` or `local`"));
    };
    let pieces = if line.keyword("pieces") { line.number("a number of pieces")? } else { 1 };
    line.expect("element")?;
    let element = line.number32("the bytes of an element")?;
    let order = if line.keyword("ordered") { Order::Ranks } else { Order::Any };
    line.end()?;
    let mut problem = Problem::new(collective, ranks, counts, element)
        .and_then(|whole| whole.cut(pieces))
        .map_err(|message| TextError { message: message.to_owned(), ..here })?;
    problem.order = order;
    Ok(problem)
}

fn message(line: &mut Cursor<'_>) -> Result<Option<Message>> {
    let (end, preposition) = if line.keyword("send") {
        (End::Send, "to")
    } else if line.keyword("recv") {
        (End::Recv, "from")
    } else {
        return Ok(None);
    };
    let payload = if line.keyword("sizes") { Payload::Sizes } else { Payload::Data };
    let mut places = Places::from_elem(line.place()?, 1);
    while line.at_place() {
        places.push(line.place()?);
    }
    line.expect(preposition)?;
    let peer = line.rank()?;
    let tag = if line.keyword("tag") { Tag(line.number32("a tag")?) } else { Tag(0) };
    Ok(Some(Message { end, payload, places, peer, tag }))
}

fn local(line: &mut Cursor<'_>) -> Result<LocalOp> {
    Ok(if line.keyword("copy") {
        let to = line.place()?;
        line.expect("<-")?;
        LocalOp::Copy { to, from: line.place()? }
    } else if line.keyword("reduce") {
        let into = line.place()?;
        line.expect("<-")?;
        LocalOp::Reduce { into, with: line.place()? }
    } else if line.keyword("signal") {
        let flag = Flag(line.number32("a flag")?);
        LocalOp::Signal { flag, chunks: chunks(line)? }
    } else if line.keyword("wait") {
        let flag = Flag(line.number32("a flag")?);
        line.expect("of")?;
        LocalOp::Wait { flag, of: line.rank()?, chunks: chunks(line)? }
    } else if line.keyword("open") {
        LocalOp::Open
    } else if line.keyword("barrier") {
        LocalOp::Barrier(level(line)?)
    } else if line.keyword("enter") {
        LocalOp::Enter { level: level(line)?, chunks: chunks(line)? }
    } else if line.keyword("leave") {
        LocalOp::Leave(level(line)?)
    } else {
        return Err(line.expected("`copy`, `reduce`, `signal`, `wait`, `open`, `barrier`, `enter` or `leave`"));
    })
}

fn level(line: &mut Cursor<'_>) -> Result<Level> {
    line.parse("a level such as `node`", Level::from_name)
}

/// Reads an optional `for [S]`: the chunks for which a signal, wait or enter is needed.
fn chunks(line: &mut Cursor<'_>) -> Result<Option<Set>> {
    if line.keyword("for") { line.chunks().map(Some) } else { Ok(None) }
}

fn instr(line: &mut Cursor<'_>) -> Result<Instr> {
    for (word, message) in [
        ("send", "in a program a message has a request number: `0: send …`"),
        ("recv", "in a program a message has a request number: `0: recv …`"),
        ("round", "rounds belong to a `schedule`, and this is a `program`"),
        ("place", "`place` lines must come before all other lines of a rank"),
        ("alternate", "`alternate` lines must come directly after the `place` lines"),
    ] {
        if line.rest().split_whitespace().next() == Some(word) {
            return Err(line.error(message));
        }
    }
    if line.keyword("finish") {
        let here = line.error("requests are numbered up to 4294967295");
        let requests = line.set()?;
        let known = requests.bounds().is_some_and(|b| b.end <= 1 << 32);
        return if known { Ok(Instr::Finish(requests)) } else { Err(here) };
    }
    if line.rest().starts_with(|c: char| c.is_ascii_digit()) {
        let read = |word: &str| word.strip_suffix(':')?.parse().ok().map(Request);
        let request = line.parse("a request such as `3:`", read)?;
        let message = message(line)?.ok_or_else(|| line.error("expected `send` or `recv`"))?;
        return Ok(Instr::Post(request, message));
    }
    local(line).map(Instr::Local)
}
