//! Collectives with data that identifies its source, and their expected results.

use bruckner_config::ProfileFile;
use bruckner_engine::backend::Communicators as _;
use bruckner_engine::call::{Call, Lists};
use bruckner_engine::mpi::Function;
use bruckner_engine::{Engine, EntryPoint, Error, Persistent};
use bruckner_threads::{BYTE, COMPOSE, F64, F64_WITH_GAP, I64, IN_PLACE, MAX, PAIR, SUM, ThreadRank, compose};

/// Type of the elements of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Type {
    Byte,
    I64,
    F64,
    Gap,
    Pair,
}

impl Type {
    pub(crate) const ALL: [Type; 5] = [Type::Byte, Type::I64, Type::F64, Type::Gap, Type::Pair];

    fn word(self) -> u64 {
        match self {
            Type::Byte => BYTE,
            Type::I64 => I64,
            Type::F64 => F64,
            Type::Gap => F64_WITH_GAP,
            Type::Pair => PAIR,
        }
    }

    fn extent(self) -> usize {
        match self {
            Type::Byte => 1,
            Type::I64 | Type::F64 => 8,
            Type::Gap | Type::Pair => 16,
        }
    }

    /// Returns the element for a number. Floating-point numbers are small integers, so that sums are exact.
    fn element(self, number: u64) -> [u64; 2] {
        match self {
            Type::Byte => [number & 0xff, 0],
            Type::I64 => [number, 0],
            Type::F64 | Type::Gap => [((number % 4096) as f64).to_bits(), 0],
            Type::Pair => [2 * number + 1, number],
        }
    }

    fn write(self, to: &mut [u8], element: [u64; 2]) {
        match self {
            Type::Byte => to[0] = element[0] as u8,
            Type::I64 | Type::F64 | Type::Gap => to[..8].copy_from_slice(&element[0].to_ne_bytes()),
            Type::Pair => {
                to[..8].copy_from_slice(&element[0].to_ne_bytes());
                to[8..].copy_from_slice(&element[1].to_ne_bytes());
            }
        }
    }

    fn reduce(self, op: u64, left: [u64; 2], right: [u64; 2]) -> [u64; 2] {
        match (self, op) {
            (Type::I64, SUM) => [left[0].wrapping_add(right[0]), 0],
            (Type::I64, _) => [(left[0] as i64).max(right[0] as i64) as u64, 0],
            (Type::F64, SUM) => [(f64::from_bits(left[0]) + f64::from_bits(right[0])).to_bits(), 0],
            (Type::F64, _) => [f64::from_bits(left[0]).max(f64::from_bits(right[0])).to_bits(), 0],
            _ => compose(left, right),
        }
    }
}

/// Returns a profile file as a rank finds it, with tuning results of a collective for a topology: a winner for each size in bytes.
pub(crate) fn profile(topology: &str, collective: &str, results: &[(u32, &str)]) -> ProfileFile {
    let result = |(bytes, winner): &(u32, &str)| {
        format!(
            "  {{ collective = \"{collective}\", bytes = {bytes}, winner = \"{winner}\", native = 1e-6, ratio = 0.5, low = 0.4, high = 0.6, launches = 2 }},\n"
        )
    };
    let results: String = results.iter().map(result).collect();
    let machine = "name = 'm'\nabout = ''\n[network]\nsource = ''\nprotocols = [{ latency = 1e-6, per_byte = 1e-9 }]\n";
    let text = format!(
        "{machine}[tune]\nversion = 2\nmpi = \"threads\"\n[[shape]]\ntopology = \"{topology}\"\nraces = [\n{results}]\n"
    );
    ProfileFile::Found { path: "p.toml".into(), text }
}

/// The parameters of a collective call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Collective {
    pub(crate) function: Function,
    pub(crate) of: Type,
    pub(crate) count: usize,
    pub(crate) in_place: bool,
    pub(crate) root: u32,
    pub(crate) maximum: bool,
}

impl Collective {
    pub(crate) fn new(function: Function, of: Type, count: usize) -> Collective {
        Collective { function, of, count, in_place: false, root: 0, maximum: false }
    }

    pub(crate) fn reduces(&self) -> bool {
        use Function::{Allreduce, Reduce, ReduceScatter, ReduceScatterBlock};
        matches!(self.function, Allreduce | Reduce | ReduceScatter | ReduceScatterBlock)
    }

    /// Whether the combination of parameters is valid.
    pub(crate) fn is_defined(&self) -> bool {
        let reduced = matches!(self.of, Type::I64 | Type::F64) || (self.of == Type::Pair && !self.maximum);
        let in_place = !matches!(self.function, Function::Bcast | Function::Barrier);
        (!self.reduces() || reduced) && (in_place || !self.in_place)
    }

    fn op(&self) -> u64 {
        match self.of {
            Type::Pair => COMPOSE,
            _ if self.maximum => MAX,
            _ => SUM,
        }
    }

    /// Returns the element at index `at` of a rank's input, in a round.
    fn given(&self, round: u64, rank: usize, at: usize) -> [u64; 2] {
        self.of.element((round * 7919 + rank as u64 * 131 + at as u64 * 17) % (1 << 20))
    }

    /// Returns the number of elements in the block that rank `from` has for rank `to`, or for all ranks.
    fn block(&self, from: usize, to: usize) -> usize {
        match self.function {
            Function::Alltoallv => (self.count + 3 * from + to) % 5,
            Function::Allgatherv => (self.count + from) % 4 * self.count.min(3),
            Function::ReduceScatter => (self.count + to) % 4,
            Function::Barrier => 0,
            _ => self.count,
        }
    }
}

/// A buffer of consecutive blocks, with gaps between them if the function has displacements.
struct Side {
    bytes: Vec<u8>,
    counts: Vec<i64>,
    starts: Vec<i64>,
}

const CANARY: u8 = 0xa5;

impl Side {
    fn new(of: Type, counts: impl Iterator<Item = usize>, gap: usize) -> Side {
        let counts: Vec<i64> = counts.map(|n| n as i64).collect();
        let starts: Vec<i64> =
            counts.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + n + gap as i64))).collect();
        let end = starts.last().map_or(0, |start| start + counts[counts.len() - 1]) as usize;
        Side { bytes: vec![CANARY; (end + 1) * of.extent()], counts, starts }
    }

    fn put(&mut self, of: Type, block: usize, at: usize, element: [u64; 2]) {
        let start = (self.starts[block] as usize + at) * of.extent();
        of.write(&mut self.bytes[start..start + of.extent()], element);
    }
}

/// Input, output and expected output of a call, for one rank.
pub(crate) struct Prepared {
    #[expect(dead_code, reason = "the call points into it")]
    input: Side,
    output: Side,
    expected: Vec<u8>,
    #[expect(dead_code, reason = "the call points into them")]
    lists: Lists,
    pub(crate) call: Call,
}

impl Prepared {
    pub(crate) fn new(collective: &Collective, round: u64, me: usize, size: usize) -> Prepared {
        let Collective { function, of, count, in_place, root, .. } = *collective;
        let root = root as usize % size;
        let in_place = in_place && (function != Function::Reduce || me == root);
        let all = || 0..size;
        let one = |n: usize| std::iter::once(n);
        let gap = usize::from(matches!(function, Function::Allgatherv | Function::Alltoallv) && count % 2 == 1);
        // In place, an alltoallv sends as much as it receives.
        let block = |from: usize, to: usize| match (function, in_place) {
            (Function::Alltoallv, true) => collective.block(from.min(to), from.max(to)),
            _ => collective.block(from, to),
        };
        let (mut input, mut output) = match function {
            Function::Barrier => (Side::new(of, one(0), 0), Side::new(of, one(0), 0)),
            Function::Allgather | Function::Allgatherv => {
                (Side::new(of, one(block(me, 0)), 0), Side::new(of, all().map(|from| block(from, 0)), gap))
            }
            Function::Alltoall | Function::Alltoallv => (
                Side::new(of, all().map(|to| block(me, to)), gap),
                Side::new(of, all().map(|from| block(from, me)), gap),
            ),
            Function::ReduceScatter | Function::ReduceScatterBlock => {
                let whole = Side::new(of, all().map(|to| block(0, to)), 0);
                let own = if in_place {
                    Side::new(of, all().map(|to| block(0, to)), 0)
                } else {
                    Side::new(of, one(block(0, me)), 0)
                };
                (whole, own)
            }
            _ => (Side::new(of, one(count), 0), Side::new(of, one(count), 0)),
        };
        // Fill the input of this rank.
        let gives = !(function == Function::Bcast && me != root) && function != Function::Barrier;
        let places: Vec<(usize, usize, [u64; 2])> = if gives {
            let number = |block: usize, at: usize| collective.given(round, me, 1000 * block + at);
            let of_block =
                |block: usize| (0..input.counts[block] as usize).map(move |at| (block, at, number(block, at)));
            (0..input.counts.len()).flat_map(of_block).collect()
        } else {
            Vec::new()
        };
        for (block, at, element) in places {
            input.put(of, block, at, element);
            if in_place || function == Function::Bcast {
                let block = if matches!(function, Function::Allgather | Function::Allgatherv) { me } else { block };
                output.put(of, block, at, element);
            }
        }
        // Compute the expected output of this rank.
        let mut expected =
            Side { bytes: output.bytes.clone(), counts: output.counts.clone(), starts: output.starts.clone() };
        let op = collective.op();
        let sum = |block: usize, at: usize| {
            let of_rank = |rank: usize| collective.given(round, rank, 1000 * block + at);
            (0..size).map(of_rank).reduce(|a, b| of.reduce(op, a, b)).expect("there is a rank")
        };
        match function {
            Function::Barrier => {}
            Function::Bcast => {
                (0..count).for_each(|at| expected.put(of, 0, at, collective.given(round, root, at)));
            }
            Function::Allgather | Function::Allgatherv => {
                for from in all() {
                    (0..block(from, 0)).for_each(|at| expected.put(of, from, at, collective.given(round, from, at)));
                }
            }
            Function::Alltoall | Function::Alltoallv => {
                for from in all() {
                    let number = |at| collective.given(round, from, 1000 * me + at);
                    (0..block(from, me)).for_each(|at| expected.put(of, from, at, number(at)));
                }
            }
            Function::Reduce if me != root => {}
            Function::Allreduce | Function::Reduce => {
                (0..count).for_each(|at| expected.put(of, 0, at, sum(0, at)));
            }
            Function::ReduceScatter | Function::ReduceScatterBlock => {
                (0..block(0, me)).for_each(|at| {
                    let start = at * of.extent();
                    of.write(&mut expected.bytes[start..start + of.extent()], sum(me, at));
                });
            }
        }
        let expected = expected.bytes;
        let mut lists = Lists::default();
        let send: *mut u8 = if in_place { IN_PLACE.cast() } else { input.bytes.as_mut_ptr() };
        let (send, recv) = (send.cast_const().cast(), output.bytes.as_mut_ptr().cast());
        let (n, word, root) = (count as i64, of.word(), root as i32);
        let mut list = |side: &Side| (lists.keep(&side.counts), lists.keep(&side.starts));
        let call = match function {
            Function::Barrier => Call::barrier(),
            Function::Bcast => Call::bcast(recv, n, word, root),
            Function::Allgather => Call::allgather(send, n, word, recv, n, word),
            Function::Allgatherv => {
                let (counts, at) = list(&output);
                Call::allgatherv(send, input.counts[0], word, recv, counts, at, word)
            }
            Function::Alltoall => Call::alltoall(send, n, word, recv, n, word),
            Function::Alltoallv => {
                let ((sent, from), (received, to)) = (list(&input), list(&output));
                Call::alltoallv(send, sent, from, word, recv, received, to, word)
            }
            Function::Allreduce => Call::allreduce(send, recv, n, word, op),
            Function::Reduce => Call::reduce(send, recv, n, word, op, root),
            Function::ReduceScatterBlock => Call::reduce_scatter_block(send, recv, n, word, op),
            Function::ReduceScatter => Call::reduce_scatter(send, recv, list(&input).0, word, op),
        };
        Prepared { input, output, expected, lists, call }
    }

    /// Checks the output. In place, memory behind a reduce_scatter's result may have any content.
    pub(crate) fn check(&self, collective: &Collective, what: &str) {
        let Collective { function, of, in_place, .. } = *collective;
        let scattered = in_place && matches!(function, Function::ReduceScatter | Function::ReduceScatterBlock);
        let own = self.expected.len().min(self.output.bytes.len());
        let compared = if scattered { self.own_block(of) } else { own };
        assert_eq!(self.output.bytes[..compared], self.expected[..compared], "{what}: {collective:?}");
    }

    fn own_block(&self, of: Type) -> usize {
        // From the returned offset on, expected and actual output are the same.
        let same = |at: &usize| self.expected[*at..] == self.output.bytes[*at..];
        (0..=self.expected.len()).step_by(of.extent()).find(same).unwrap_or(self.expected.len())
    }
}

/// Runs a collective on this rank, by the fast path if the cache recognises it, and checks the result.
pub(crate) fn perform(
    engine: &Engine<ThreadRank>,
    rank: &ThreadRank,
    comm: u64,
    collective: &Collective,
    round: u64,
    entry_point: EntryPoint,
) {
    let (me, size) = (rank.rank(comm).unwrap() as usize, rank.size(comm).unwrap() as usize);
    let prepared = Prepared::new(collective, round, me, size);
    let _said = Said(rank.number(), *collective, round);
    // SAFETY: buffers and lists are as long as the call says.
    assert_eq!(unsafe { make(engine, &prepared.call, comm, entry_point) }, Ok(0), "{collective:?}");
    prepared.check(collective, "once");
}

/// Makes a call, by the fast path if the cache recognises it.
///
/// # Safety
/// The arguments are valid for the MPI function of the same name.
pub(crate) unsafe fn make(
    engine: &Engine<ThreadRank>,
    call: &Call,
    comm: u64,
    entry_point: EntryPoint,
) -> Result<i32, Error> {
    // SAFETY: the caller guarantees valid arguments.
    unsafe {
        match engine.run_cached(call, comm) {
            Some(result) => result.map_err(Error::from),
            None => engine.run(call, comm, entry_point),
        }
    }
}

/// Runs a collective on this rank without the fast path, and checks the result.
pub(crate) fn perform_anew(
    engine: &Engine<ThreadRank>,
    rank: &ThreadRank,
    comm: u64,
    collective: &Collective,
    round: u64,
) {
    let (me, size) = (rank.rank(comm).unwrap() as usize, rank.size(comm).unwrap() as usize);
    let prepared = Prepared::new(collective, round, me, size);
    let _said = Said(rank.number(), *collective, round);
    // SAFETY: buffers and lists are as long as the call says.
    let result = unsafe { engine.run(&prepared.call, comm, EntryPoint::Mpi) };
    assert_eq!(result, Ok(0), "{collective:?}");
    prepared.check(collective, "anew");
}

/// Makes a persistent operation of a collective, with its buffers.
pub(crate) fn persistent(
    engine: &Engine<ThreadRank>,
    rank: &ThreadRank,
    comm: u64,
    collective: &Collective,
    round: u64,
) -> (Persistent<ThreadRank>, Prepared) {
    let (me, size) = (rank.rank(comm).unwrap() as usize, rank.size(comm).unwrap() as usize);
    let prepared = Prepared::new(collective, round, me, size);
    // SAFETY: buffers and lists are as long as the call says, and live as long as the operation.
    let operation = unsafe { engine.persistent(prepared.call, comm, "") }.expect("an operation");
    (operation, prepared)
}

/// Returns settings under which the library handles every supported call.
pub(crate) fn always() -> bruckner_threads::Options {
    bruckner_threads::Options { settings: "BRUCKNER=always".into(), ..Default::default() }
}

/// Prints what a rank was doing if the test panics.
struct Said(u32, Collective, u64);

impl Drop for Said {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("rank {} was in round {}: {:?}", self.0, self.2, self.1);
        }
    }
}

pub(crate) const SUM_OF_FLOATS: Collective =
    Collective { function: Function::Allreduce, of: Type::F64, count: 5, in_place: false, root: 0, maximum: false };
