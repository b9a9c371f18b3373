//! Measurement on each rank.
//!
//! A *block* is one pass over all contenders in random order, on the same communicator and buffers. In it, each contender has one *run*:
//! some calls that start at a barrier each, then calls back to back. Times are compared only within a block, because the speed of a
//! machine changes slowly.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bruckner::{Collective, Communicator, Name, Plan};
use bruckner_engine::Mpi;
use bruckner_engine::mpi::{MpiTransport, Requests};
use bruckner_measure::{Block, BlockTimes, Case, SplitMix64, TimingMethod, median, median_interval};
use bruckner_runtime::Transport;

use super::contender::{Contender, Ready};
use super::problem::{Buffers, Problem, Size};

/// Limits of the measurement of one case.
#[derive(Clone, Debug)]
pub(crate) struct Effort {
    /// Minimum number of blocks, if time allows.
    pub(crate) blocks: usize,
    /// Time limit for the blocks of a case.
    pub(crate) most: Duration,
    /// Relative error at which the measurement ends, if no ratio of two contenders' times has a larger one.
    pub(crate) precision: f64,
    /// Confidence level of the intervals of these ratios.
    pub(crate) confidence: f64,
    /// Minimum number of blocks, even beyond the time limit.
    pub(crate) least: usize,
    /// Factor by which a contender must be slower than the fastest in each of the first blocks to be dropped; `None` to drop no contender.
    pub(crate) hopeless: Option<f64>,
}

/// Maximum number of blocks of a case.
const MOST_BLOCKS: usize = 400;
/// Number of blocks after which slow contenders are dropped.
const FIRST_BLOCKS: usize = 3;
/// How long the rank with the highest number sleeps before it enters a barrier that is checked: no other rank may leave the barrier before
/// that.
const BARRIER_DELAY: Duration = Duration::from_millis(20);
/// Reason stored for a contender with a wrong result.
pub(crate) const WRONG: &str = "WRONG RESULT";
/// Maximum number of cache lines allocated before a plan is made, to vary the plan's address.
const MAX_PADDING: usize = 64;
/// Approximate time of one contender's calls in a block, for each method of timing (after barriers, back to back).
const TARGET_TIME: Duration = Duration::from_millis(4);
/// A call that takes longer than this needs no warm-up, and takes as long back to back as after a barrier.
const NO_WARM_UP: Duration = Duration::from_millis(40);

/// Numbers of calls in one contender's run: `before` as warm-up, `apart` timed one by one after a barrier, and `together` back to back.
#[derive(Clone, Copy)]
struct Calls {
    before: usize,
    apart: usize,
    together: usize,
}

/// The ranks of a communicator that measure together, as one of them sees them.
pub(crate) struct Ranks {
    mpi: &'static Mpi,
    world: Communicator,
    /// Transport on an internal communicator, for the messages that measure the latency.
    apart: MpiTransport,
    requests: Requests,
    barrier: Plan<'static>,
    pub(crate) barrier_name: &'static str,
    /// Start of this rank's clock.
    zero: Instant,
    /// Nanoseconds to add to this rank's clock to get rank 0's clock.
    offset: i64,
    random: SplitMix64,
}

/// A contender with its index in the list of all contenders. `handicaps` are delays after each call, for calls after a barrier and for
/// calls back to back; they test the bench itself.
#[derive(Clone, Copy)]
struct Runner<'a> {
    number: usize,
    contender: &'a Contender,
    handicaps: [Delay; 2],
}

/// Measurements of a case: its blocks; for each barrier, the time between the first and the last rank that leaves it (`skew`); for each
/// block, the latency of the network (`hops`). Times are in nanoseconds.
#[derive(Default)]
struct Measured {
    blocks: Vec<Block>,
    skew: Vec<u64>,
    hops: Vec<u64>,
}

/// One repetition on one rank: its start and its duration, in nanoseconds.
type Sample = (u64, u64);

impl Ranks {
    /// Prepares measurements on `MPI_COMM_WORLD`. Collective.
    pub(crate) fn new(mpi: &'static Mpi, seed: u64) -> Result<Ranks> {
        Ranks::on(mpi, Communicator::world()?, seed)
    }

    /// Prepares measurements on a communicator. Collective.
    pub(crate) fn on(mpi: &'static Mpi, world: Communicator, seed: u64) -> Result<Ranks> {
        if world.size()? == 1 {
            bail!("at least two ranks are needed: start the command with a launcher, such as mpirun -n 2");
        }
        let mut refused = None;
        for name in ["locality(node)", "sparbit"] {
            match world.barrier().and_then(|barrier| barrier.plan(name)) {
                Ok(barrier) => {
                    let (zero, random) = (Instant::now(), SplitMix64::new(seed));
                    let apart = MpiTransport::new(mpi, mpi.create_internal(world.handle())?, 1, false);
                    let requests = apart.requests(1);
                    let mut ranks =
                        Ranks { mpi, world, apart, requests, barrier, barrier_name: name, zero, offset: 0, random };
                    ranks.set_clocks()?;
                    return Ok(ranks);
                }
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.expect("there are two").into())
    }

    /// Returns the time on this rank's clock, in nanoseconds.
    fn now(&self) -> u64 {
        self.zero.elapsed().as_nanos() as u64
    }

    /// Measures the offset to rank 0's clock: rank 0 reads its clock between two barriers, the other ranks before the first and after the
    /// second, which bounds the offset from both sides. The tightest bounds of 20 repetitions are used.
    fn set_clocks(&mut self) -> Result<()> {
        let comm = self.world.handle();
        let (mut low, mut high) = (i64::MIN, i64::MAX);
        for _ in 0..20 {
            self.barrier.run()?;
            let before = self.now() as i64;
            self.barrier.run()?;
            // Read between two barriers, so after `before` and before `after` on every rank.
            let between = self.now();
            self.barrier.run()?;
            let after = self.now() as i64;
            let zeros = self.mpi.gather(comm, &[between])?[0] as i64;
            // Rank 0's clock shows `zeros` at a moment between `before` and `after` on this rank's clock.
            low = low.max(zeros - after);
            high = high.min(zeros - before);
        }
        self.offset = low + (high - low) / 2;
        Ok(())
    }

    /// Measures one case; every rank gets the result. Calls `told` with the fraction of the work that is done.
    pub(crate) fn measure(
        &mut self,
        problem: &Problem,
        contenders: &[Contender],
        effort: &Effort,
        told: &mut dyn FnMut(f64),
    ) -> Result<Case> {
        let mut buffers = Buffers::new(problem, self.world)?;
        let mut listed: Vec<bruckner_measure::Contender> = Vec::new();
        for contender in contenders {
            let refused = self.check(&mut buffers, problem.name, contender)?;
            listed.push(bruckner_measure::Contender { name: contender.to_string(), refused });
        }
        let runners: Vec<Runner<'_>> = contenders
            .iter()
            .enumerate()
            .filter(|(number, _)| listed[*number].refused.is_none())
            .map(|(number, contender)| Runner { number, contender, handicaps: [Delay::NONE; 2] })
            .collect();
        buffers.fill();
        let Measured { blocks, skew, hops } = self.blocks(&mut buffers, &runners, effort, told)?;
        // Results are checked again after all calls.
        for Runner { number, contender, .. } in &runners {
            if let Some(why) = self.check(&mut buffers, problem.name, contender)? {
                listed[*number].refused = Some(why);
            }
        }
        let (bytes, counts) = match &problem.size {
            Size::Bytes(bytes) => (*bytes, None),
            Size::Counts(counts) => {
                let counts: Vec<u64> = counts.iter().map(|count| *count as u64 * 8).collect();
                (counts.iter().sum(), Some(counts))
            }
        };
        let collective = problem.name.to_string();
        Ok(Case { collective, bytes, counts, contenders: listed, blocks, skew, hops })
    }

    /// Runs a contender once, untimed, and checks its result. Returns the reason if the contender cannot be measured.
    fn check(&mut self, buffers: &mut Buffers, name: Name, contender: &Contender) -> Result<Option<String>> {
        buffers.fill();
        let mut collective = buffers.collective()?;
        let ready = contender.ready(&mut collective);
        // A library may be missing on one node only.
        let on_all = self.on_all(ready.is_ok())?;
        let ready = match ready {
            Ok(ready) if on_all => ready,
            Ok(_) => return Ok(Some("another rank cannot run it".to_owned())),
            Err(error) => return Ok(Some(error.to_string())),
        };
        // A barrier is checked by a late rank: no rank may leave before the last one has arrived.
        let late = name == Name::Barrier && self.world.rank()? + 1 == self.world.size()?;
        self.barrier.run()?;
        if late {
            std::thread::sleep(BARRIER_DELAY);
        }
        let start = Instant::now();
        let ran = ready.run(&mut collective);
        let waited = name != Name::Barrier || late || start.elapsed() > BARRIER_DELAY / 2;
        drop(collective);
        let served = self.on_all(ran.is_ok())?;
        if !served && *contender != Contender::Native {
            let why = ran.map_or_else(|error| error.to_string(), |()| "another rank cannot run it".to_owned());
            return Ok(Some(why));
        }
        ran.with_context(|| contender.to_string())?;
        let right = waited && buffers.is_right()?;
        self.excluded(contender, right)
    }

    /// Whether `holds` is true on all ranks. Collective.
    fn on_all(&self, holds: bool) -> Result<bool> {
        Ok(self.mpi.gather(self.world.handle(), &[u64::from(holds)])?.iter().all(|holds| *holds == 1))
    }

    /// Combines the checks of all ranks. A wrong result excludes another library's function, and is an error for any other contender.
    fn excluded(&self, contender: &Contender, right: bool) -> Result<Option<String>> {
        match (self.on_all(right)?, contender) {
            (true, _) => Ok(None),
            // The remaining contenders can still be compared.
            (false, Contender::Library(_)) => Ok(Some(WRONG.to_owned())),
            (false, _) => bail!("{contender} gave a wrong result"),
        }
    }

    /// Measures a contender against itself, the second time slowed down by the fraction `part` of its time, to test the bench itself.
    pub(crate) fn self_test_case(
        &mut self,
        problem: &Problem,
        contender: &Contender,
        part: f64,
        effort: &Effort,
    ) -> Result<Case> {
        let mut buffers = Buffers::new(problem, self.world)?;
        buffers.fill();
        let runner = |number| Runner { number, contender, handicaps: [Delay::NONE; 2] };
        let mut runners = [runner(0), runner(1)];
        if part > 0.0 {
            let speed = Delay::speed();
            let times = self.calibrate(&mut buffers, &runners)?;
            runners[1].handicaps = times.map(|time| Delay::new(time.mul_f64(part), speed));
        }
        let Measured { blocks, skew, hops } = self.blocks(&mut buffers, &runners, effort, &mut |_| {})?;
        let named = |name: &str| bruckner_measure::Contender { name: name.to_owned(), refused: None };
        Ok(Case {
            collective: problem.name.to_string(),
            bytes: 0,
            counts: None,
            contenders: vec![named("A"), named("B")],
            blocks,
            skew,
            hops,
        })
    }

    /// Estimates the time of a call of the first contender on the slowest rank, after a barrier and back to back. Short calls are
    /// repeated.
    fn calibrate(&mut self, buffers: &mut Buffers, runners: &[Runner<'_>]) -> Result<[Duration; 2]> {
        let Some(first) = runners.first() else { return Ok([Duration::ZERO; 2]) };
        let mut collective = buffers.collective()?;
        let ready = first.contender.ready(&mut collective)?;
        let mut found = [Duration::ZERO; 2];
        for calls in [1, 2, 20] {
            let mut mine = Vec::new();
            let all = Calls { before: calls.min(3), apart: calls, together: calls };
            self.one_run(&mut collective, &ready, first, all, &mut mine)?;
            let times: Vec<f64> = mine[calls..2 * calls].iter().map(|time| *time as f64).collect();
            let mine = [median(&times) as u64, mine[2 * calls] / calls as u64];
            let all = self.mpi.gather(self.world.handle(), &mine)?;
            let slowest = |look: usize| all.chunks(2).map(|row| row[look]).max().unwrap_or(0);
            found = [0, 1].map(|look| Duration::from_nanos(slowest(look).max(50)));
            // A single call above `NO_WARM_UP` is long enough; otherwise it may be an outlier, so at least one more round follows.
            if found[0] > NO_WARM_UP || (calls > 1 && found[0] > TARGET_TIME) {
                break;
            }
        }
        Ok(found)
    }

    /// Measures blocks until the ratios are precise enough or a limit of `effort` is reached.
    fn blocks(
        &mut self,
        buffers: &mut Buffers,
        runners: &[Runner<'_>],
        effort: &Effort,
        told: &mut dyn FnMut(f64),
    ) -> Result<Measured> {
        let fit = |time: Duration| (TARGET_TIME.as_nanos() / time.as_nanos().max(1)) as usize;
        let [one, next] = self.calibrate(buffers, runners)?;
        // Long calls run once in each block: precision depends on the number of blocks.
        let counts = match one {
            one if one > NO_WARM_UP => Calls { before: 0, apart: 1, together: 0 },
            one if one > TARGET_TIME => Calls { before: 1, apart: 1, together: 1 },
            one => {
                let apart = fit(one).clamp(3, 50);
                Calls { before: 3, apart, together: fit(next).clamp(4, 500) }
            }
        };
        let began = Instant::now();
        let mut measured = Measured::default();
        // For each contender, the ratios of its times to those of the first contender, one for each block, for both methods of timing.
        let mut runners = runners.to_vec();
        let mut ratios: Vec<[Vec<f64>; 2]> = runners.iter().map(|_| Default::default()).collect();
        loop {
            let (rows, places) = self.block(buffers, &runners, counts, began)?;
            let elapsed = Duration::from_nanos(rows[0][0]);
            measured.hops.push(rows[0][1]);
            let block = to_block(&rows, &places, &runners, counts, &mut measured.skew);
            for (at, ratios) in ratios.iter_mut().enumerate() {
                for (look, ratios) in TimingMethod::ALL.into_iter().zip(ratios) {
                    let time = |at: usize| median(&block.runs[places[at]].times(look));
                    ratios.push(time(at) / time(0));
                }
            }
            measured.blocks.push(block);
            let blocks = measured.blocks.len();
            // All ranks have the same numbers, including the time elapsed on rank 0, and so make the same decision.
            let known = |ratios: &Vec<f64>| {
                let interval = median_interval(ratios, effort.confidence);
                (interval.high - interval.low) / 2.0 <= effort.precision * median(ratios)
            };
            let enough = is_check_due(blocks, effort.blocks) && ratios.iter().flatten().all(known);
            let late = elapsed >= effort.most && blocks >= effort.least;
            if enough || late || blocks >= MOST_BLOCKS {
                told(1.0);
                return Ok(measured);
            }
            if let Some(times) = effort.hopeless.filter(|_| blocks == FIRST_BLOCKS) {
                let best = |block: usize| ratios.iter().map(|ratios| ratios[0][block]).fold(f64::INFINITY, f64::min);
                let fair = |ratios: &[Vec<f64>; 2]| (0..blocks).any(|block| ratios[0][block] < times * best(block));
                // The first contender stays, because all others are compared with it.
                let stays: Vec<bool> = (0..ratios.len()).map(|at| at == 0 || fair(&ratios[at])).collect();
                let mut stay = stays.iter();
                runners.retain(|_| *stay.next().unwrap_or(&true));
                let mut stay = stays.iter();
                ratios.retain(|_| *stay.next().unwrap_or(&true));
            }
            let part = elapsed.as_secs_f64() / effort.most.as_secs_f64();
            told(part.max(blocks as f64 / MOST_BLOCKS as f64).min(0.99));
        }
    }

    /// Measures the latency of 8 bytes between the first and the last rank, as half a round trip on the first; other ranks wait in a
    /// barrier.
    fn latency(&mut self) -> Result<u64> {
        let (me, last) = (self.world.rank()?, self.world.size()? - 1);
        self.barrier.run()?;
        let start = Instant::now();
        if me == 0 || me == last {
            let mut data = [0; 8];
            for sends in [me == 0, me != 0] {
                match sends {
                    true => self.apart.exchange(&mut self.requests, &[(last - me, &data)], &mut [])?,
                    false => self.apart.exchange(&mut self.requests, &[], &mut [(last - me, &mut data)])?,
                }
            }
        }
        let took = start.elapsed().as_nanos() as u64 / 2;
        self.barrier.run()?;
        Ok(took)
    }

    /// Runs all contenders once, in random order. Returns the measurements of each rank, and for each contender its position in the order.
    ///
    /// Each block makes new plans: the address of a plan's memory changes its time by some nanoseconds, constant over the plan's life,
    /// which would look like a difference between algorithms. Each plan is freed before the next is made, because memory may not suffice
    /// for all of them.
    fn block(
        &mut self,
        buffers: &mut Buffers,
        runners: &[Runner<'_>],
        counts: Calls,
        began: Instant,
    ) -> Result<(Vec<Vec<u64>>, Vec<usize>)> {
        let mut places = vec![0; runners.len()];
        let mut mine: Vec<u64> = vec![began.elapsed().as_nanos() as u64, self.latency()?];
        for (place, at) in self.random.order(runners.len()).into_iter().enumerate() {
            places[at] = place;
            let mut collective = buffers.collective()?;
            // Without this allocation a plan would get the same address as in the block before.
            let _ballast: Vec<u8> = Vec::with_capacity(64 * (1 + self.random.order(MAX_PADDING)[0]));
            let ready = runners[at].contender.ready(&mut collective)?;
            self.one_run(&mut collective, &ready, &runners[at], counts, &mut mine)?;
        }
        let all = self.mpi.gather(self.world.handle(), &mine)?;
        Ok((all.chunks(mine.len()).map(<[u64]>::to_vec).collect(), places))
    }

    /// Runs one contender in one block. Appends to `into` the start of each call after a barrier (on rank 0's clock), the durations of
    /// these calls, and the time of all calls back to back.
    fn one_run(
        &mut self,
        on: &mut Collective<'_>,
        ready: &Ready,
        runner: &Runner<'_>,
        calls: Calls,
        into: &mut Vec<u64>,
    ) -> Result<()> {
        // Warm-up: caches hold data of the previous contender, and new memory is touched for the first time.
        for _ in 0..calls.before {
            ready.run(on)?;
        }
        let [single, together] = &runner.handicaps;
        let mut samples: Vec<Sample> = Vec::with_capacity(calls.apart);
        for _ in 0..calls.apart {
            self.barrier.run()?;
            let start = Instant::now();
            ready.run(on)?;
            single.pass();
            let took = start.elapsed();
            samples.push(((start - self.zero).as_nanos() as u64, took.as_nanos() as u64));
        }
        into.extend(samples.iter().map(|(start, _)| start.wrapping_add_signed(self.offset)));
        into.extend(samples.iter().map(|(_, took)| took));
        if calls.together == 0 {
            into.push(samples.iter().map(|(_, took)| took).sum());
            return Ok(());
        }
        self.barrier.run()?;
        let start = Instant::now();
        for _ in 0..calls.together {
            ready.run(on)?;
            together.pass();
        }
        into.push(start.elapsed().as_nanos() as u64);
        Ok(())
    }
}

/// Whether the precision is tested after this number of blocks: `least` times a power of two. Testing the interval after every block would
/// stop at intervals that are narrow by chance, and bias the result.
fn is_check_due(blocks: usize, least: usize) -> bool {
    let times = blocks / least.max(1);
    blocks == times * least.max(1) && times.is_power_of_two()
}

/// Number of values at the start of a rank's measurements of a block, before those of contenders: the elapsed time and the latency.
const AHEAD: usize = 2;

/// Converts the measurements of all ranks to a block, with runs in the order in which they ran. Appends to `skews` the time between the
/// first and the last rank's start of each repetition.
fn to_block(
    rows: &[Vec<u64>],
    places: &[usize],
    runners: &[Runner<'_>],
    Calls { apart: repetitions, together, .. }: Calls,
    skews: &mut Vec<u64>,
) -> Block {
    let each = 2 * repetitions + 1;
    let run = |place: usize| {
        let at = places.iter().position(|one| *one == place).expect("every place has a contender");
        let rows: Vec<&[u64]> = rows.iter().map(|row| &row[AHEAD + place * each..][..each]).collect();
        for repetition in 0..repetitions {
            let starts = || rows.iter().map(|row| row[repetition] as i64);
            let (first, last) = (starts().min().unwrap_or(0), starts().max().unwrap_or(0));
            skews.push((last - first) as u64);
        }
        BlockTimes {
            contender: runners[at].number,
            from_barrier: rows.iter().map(|row| row[repetitions..2 * repetitions].to_vec()).collect(),
            back_to_back: rows.iter().map(|row| row[2 * repetitions]).collect(),
            calls: if together == 0 { repetitions } else { together } as u32,
        }
    };
    Block { runs: (0..places.len()).map(run).collect() }
}

/// A delay by a number of iterations of an empty loop, which can be shorter than reading the clock.
#[derive(Clone, Copy)]
struct Delay(u64);

impl Delay {
    const NONE: Delay = Delay(0);

    fn new(time: Duration, turns_per_second: f64) -> Delay {
        Delay((time.as_secs_f64() * turns_per_second) as u64)
    }

    /// Measures the iterations per second: the best of several tries.
    fn speed() -> f64 {
        const TURNS: u64 = 100_000;
        let tries = (0..20).map(|_| {
            let start = Instant::now();
            Delay(TURNS).pass();
            TURNS as f64 / start.elapsed().as_secs_f64()
        });
        tries.fold(0.0, f64::max)
    }

    #[inline]
    fn pass(self) {
        for turn in 0..self.0 {
            std::hint::black_box(turn);
        }
    }
}
