//! What each rank does: blocks of all contenders in random order, on the same communicator and buffers.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bruckner::{Collective, Communicator, Name, Plan};
use bruckner_engine::Mpi;
use bruckner_engine::mpi::{Messages, Requests};
use bruckner_measure::{Block, Case, Look, Random, Run, median, median_interval};
use bruckner_runtime::Transport;

use super::contender::{Contender, Ready};
use super::problem::{Buffers, Problem, Size};

/// How long to measure.
#[derive(Clone, Debug)]
pub(crate) struct Effort {
    /// At least so many blocks.
    pub(crate) blocks: usize,
    /// No more after so long.
    pub(crate) most: Duration,
    /// Enough when every ratio is known to within this part of it.
    pub(crate) precision: f64,
    /// The confidence of intervals.
    pub(crate) confidence: f64,
    /// The fewest blocks, however long they take.
    pub(crate) least: usize,
    /// A contender that takes so many times as long as the best, or more, in each of the first blocks is not measured any more.
    pub(crate) hopeless: Option<f64>,
}

/// The most blocks of a case.
const MOST_BLOCKS: usize = 400;
/// Blocks after which it is seen who is hopeless.
const FIRST_BLOCKS: usize = 3;
/// How late the last rank is where a barrier is checked.
const LATE: Duration = Duration::from_millis(20);
/// What is said of a contender that was wrong.
pub(crate) const WRONG: &str = "WRONG RESULT";
/// Lines of memory that may be taken before a plan is made.
const BALLAST: usize = 64;
/// A contender's share of a block.
const SHARE: Duration = Duration::from_millis(4);
/// What takes so long takes as long the first time, and one behind the other.
const SLOW: Duration = Duration::from_millis(40);

/// How many calls a run has: not timed, each from a barrier, and one behind the other.
#[derive(Clone, Copy)]
struct Calls {
    before: usize,
    apart: usize,
    together: usize,
}

/// The ranks of a communicator, ready to measure.
pub(crate) struct Ranks {
    mpi: &'static Mpi,
    world: Communicator,
    /// For a message that no other meets.
    apart: Messages,
    requests: Requests,
    barrier: Plan<'static>,
    pub(crate) barrier_name: &'static str,
    /// When this rank's clock began.
    zero: Instant,
    /// What must be added to it so that it shows rank 0's.
    offset: i64,
    random: Random,
}

/// A contender and its number among all; and what is added to its calls for each look, to test the bench itself.
#[derive(Clone, Copy)]
struct Runner<'a> {
    number: usize,
    contender: &'a Contender,
    handicaps: [Delay; 2],
}

/// What was measured of a case.
#[derive(Default)]
struct Measured {
    blocks: Vec<Block>,
    skew: Vec<u64>,
    hops: Vec<u64>,
}

/// One repetition on one rank: when it left the barrier, and how long it took.
type Sample = (u64, u64);

impl Ranks {
    /// Of `MPI_COMM_WORLD`. Collective.
    pub(crate) fn new(mpi: &'static Mpi, seed: u64) -> Result<Ranks> {
        Ranks::on(mpi, Communicator::world()?, seed)
    }

    /// Of a communicator. Collective.
    pub(crate) fn on(mpi: &'static Mpi, world: Communicator, seed: u64) -> Result<Ranks> {
        if world.size()? == 1 {
            bail!("one rank has nobody to exchange with: start two or more");
        }
        let mut refused = None;
        for name in ["locality(node)", "sparbit"] {
            match world.barrier().and_then(|barrier| barrier.plan(name)) {
                Ok(barrier) => {
                    let (zero, random) = (Instant::now(), Random::new(seed));
                    let apart = Messages::new(mpi, mpi.hide(world.handle())?, 1, false);
                    let requests = apart.requests(1);
                    let mut ranks = Ranks {
                        mpi,
                        world,
                        apart,
                        requests,
                        barrier,
                        barrier_name: name,
                        zero,
                        offset: 0,
                        random,
                    };
                    ranks.set_clocks()?;
                    return Ok(ranks);
                }
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.expect("there are two").into())
    }

    /// Nanoseconds since this rank began.
    fn now(&self) -> u64 {
        self.zero.elapsed().as_nanos() as u64
    }

    /// Finds out by how much clocks differ: rank 0 reads its clock after all others have read theirs and before they do so
    /// again, which bounds the difference from both sides; the narrowest bounds of many count.
    fn set_clocks(&mut self) -> Result<()> {
        let comm = self.world.handle();
        let (mut low, mut high) = (i64::MIN, i64::MAX);
        for _ in 0..20 {
            self.barrier.run()?;
            let before = self.now() as i64;
            self.barrier.run()?;
            // Between two barriers: after everybody's `before`, ahead of everybody's `after`.
            let between = self.now();
            self.barrier.run()?;
            let after = self.now() as i64;
            let zeros = self.mpi.gather(comm, &[between])?[0] as i64;
            // It is `zeros` on rank 0's clock at some moment between `before` and `after` on this one's.
            low = low.max(zeros - after);
            high = high.min(zeros - before);
        }
        self.offset = low + (high - low) / 2;
        Ok(())
    }

    /// Measures one case; ranks other than the first get what they measured, too. `told` hears how much of it is done.
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
        // Still right after all those calls?
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

    /// Runs a contender once, untimed, and looks at the result. Why it is not measured, if it is not.
    fn check(&mut self, buffers: &mut Buffers, name: Name, contender: &Contender) -> Result<Option<String>> {
        buffers.fill();
        let mut collective = buffers.collective()?;
        let ready = contender.ready(&mut collective);
        // A library may be missing on one node only.
        let on_all = self.on_all(ready.is_ok())?;
        let ready = match ready {
            Ok(ready) if on_all => ready,
            Ok(_) => return Ok(Some("refused on another rank".to_owned())),
            Err(error) => return Ok(Some(error.to_string())),
        };
        // Nobody leaves a barrier before the last one has come.
        let late = name == Name::Barrier && self.world.rank()? + 1 == self.world.size()?;
        self.barrier.run()?;
        if late {
            std::thread::sleep(LATE);
        }
        let start = Instant::now();
        let ran = ready.run(&mut collective);
        let waited = name != Name::Barrier || late || start.elapsed() > LATE / 2;
        drop(collective);
        let served = self.on_all(ran.is_ok())?;
        if !served && *contender != Contender::Native {
            let why = ran.map_or_else(|error| error.to_string(), |()| "refused on another rank".to_owned());
            return Ok(Some(why));
        }
        ran.with_context(|| contender.to_string())?;
        let right = waited && buffers.is_right()?;
        self.judged(contender, right)
    }

    /// Whether something holds on all ranks. Collective.
    fn on_all(&self, holds: bool) -> Result<bool> {
        Ok(self.mpi.gather(self.world.handle(), &[u64::from(holds)])?.iter().all(|holds| *holds == 1))
    }

    /// What becomes of a contender whose result was right, or not, on this rank.
    fn judged(&self, contender: &Contender, right: bool) -> Result<Option<String>> {
        match (self.on_all(right)?, contender) {
            (true, _) => Ok(None),
            // The others can still be compared.
            (false, Contender::Library(_)) => Ok(Some(WRONG.to_owned())),
            (false, _) => bail!("{contender} gave a wrong result"),
        }
    }

    /// A contender against itself, the second time slowed down by a part of its time: for the test of the bench itself.
    pub(crate) fn handicapped(
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

    /// How long a call of the first contender takes on the slowest rank, for each look: by one call, and by more if that takes no time.
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
            // The first may have been unlucky.
            if found[0] > SLOW || (calls > 1 && found[0] > SHARE) {
                break;
            }
        }
        Ok(found)
    }

    /// Blocks until they are enough.
    fn blocks(
        &mut self,
        buffers: &mut Buffers,
        runners: &[Runner<'_>],
        effort: &Effort,
        told: &mut dyn FnMut(f64),
    ) -> Result<Measured> {
        let fit = |time: Duration| (SHARE.as_nanos() / time.as_nanos().max(1)) as usize;
        let [one, next] = self.calibrate(buffers, runners)?;
        // Of what takes long one call is enough: blocks are what counts.
        let counts = match one {
            one if one > SLOW => Calls { before: 0, apart: 1, together: 0 },
            one if one > SHARE => Calls { before: 1, apart: 1, together: 1 },
            one => {
                let apart = fit(one).clamp(3, 50);
                Calls { before: 3, apart, together: fit(next).clamp(4, 500) }
            }
        };
        let began = Instant::now();
        let mut measured = Measured::default();
        // The ratio of each contender to the first, for each look.
        let mut runners = runners.to_vec();
        let mut ratios: Vec<[Vec<f64>; 2]> = runners.iter().map(|_| Default::default()).collect();
        loop {
            let (rows, places) = self.block(buffers, &runners, counts, began)?;
            let elapsed = Duration::from_nanos(rows[0][0]);
            measured.hops.push(rows[0][1]);
            let block = sorted_out(&rows, &places, &runners, counts, &mut measured.skew);
            for (at, ratios) in ratios.iter_mut().enumerate() {
                for (look, ratios) in Look::ALL.into_iter().zip(ratios) {
                    let time = |at: usize| median(&block.runs[places[at]].times(look));
                    ratios.push(time(at) / time(0));
                }
            }
            measured.blocks.push(block);
            let blocks = measured.blocks.len();
            // All ranks see the same figures, rank 0's clock among them, and decide alike.
            let known = |ratios: &Vec<f64>| {
                let interval = median_interval(ratios, effort.confidence);
                (interval.high - interval.low) / 2.0 <= effort.precision * median(ratios)
            };
            let enough = is_time_to_look(blocks, effort.blocks) && ratios.iter().flatten().all(known);
            let late = elapsed >= effort.most && blocks >= effort.least;
            if enough || late || blocks >= MOST_BLOCKS {
                told(1.0);
                return Ok(measured);
            }
            if let Some(times) = effort.hopeless.filter(|_| blocks == FIRST_BLOCKS) {
                let best =
                    |block: usize| ratios.iter().map(|ratios| ratios[0][block]).fold(f64::INFINITY, f64::min);
                let fair =
                    |ratios: &[Vec<f64>; 2]| (0..blocks).any(|block| ratios[0][block] < times * best(block));
                // The first is what all are compared with.
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

    /// Half of how long 8 bytes take to the last rank and back, on the first; the others wait meanwhile.
    fn hop(&mut self) -> Result<u64> {
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

    /// All contenders once, in random order: what each rank measured, and at which place each contender ran.
    ///
    /// Plans are made anew for each block: where a plan's memory happens to lie makes a difference of some nanoseconds, which
    /// stays as long as the plan, and would be taken for a difference between algorithms. And each goes before the next is made:
    /// there may be no room for all.
    fn block(
        &mut self,
        buffers: &mut Buffers,
        runners: &[Runner<'_>],
        counts: Calls,
        began: Instant,
    ) -> Result<(Vec<Vec<u64>>, Vec<usize>)> {
        let mut places = vec![0; runners.len()];
        let mut mine: Vec<u64> = vec![began.elapsed().as_nanos() as u64, self.hop()?];
        for (place, at) in self.random.order(runners.len()).into_iter().enumerate() {
            places[at] = place;
            let mut collective = buffers.collective()?;
            // Else a plan would come to lie where its like lay before.
            let _ballast: Vec<u8> = Vec::with_capacity(64 * (1 + self.random.order(BALLAST)[0]));
            let ready = runners[at].contender.ready(&mut collective)?;
            self.one_run(&mut collective, &ready, &runners[at], counts, &mut mine)?;
        }
        let all = self.mpi.gather(self.world.handle(), &mine)?;
        Ok((all.chunks(mine.len()).map(<[u64]>::to_vec).collect(), places))
    }

    /// One contender in one block: starts of repetitions on rank 0's clock, their times, and calls back to back.
    fn one_run(
        &mut self,
        on: &mut Collective<'_>,
        ready: &Ready,
        runner: &Runner<'_>,
        calls: Calls,
        into: &mut Vec<u64>,
    ) -> Result<()> {
        // What ran before has left its traces in caches, and new memory is touched for the first time.
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

/// Whether so many blocks are the least, or twice that, or four times, and so on. Who asks after every block whether an interval is
/// narrow enough stops when it is so by chance, and then its end is no longer where it should be.
fn is_time_to_look(blocks: usize, least: usize) -> bool {
    let times = blocks / least.max(1);
    blocks == times * least.max(1) && times.is_power_of_two()
}

/// What a row begins with: the time since the beginning, and that of a hop.
const AHEAD: usize = 2;

/// What ranks measured in a block, run by run in the order of time.
fn sorted_out(
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
        Run {
            contender: runners[at].number,
            from_barrier: rows.iter().map(|row| row[repetitions..2 * repetitions].to_vec()).collect(),
            back_to_back: rows.iter().map(|row| row[2 * repetitions]).collect(),
            calls: if together == 0 { repetitions } else { together } as u32,
        }
    };
    Block { runs: (0..places.len()).map(run).collect() }
}

/// A delay of so many turns of an empty loop, which can be shorter than a look at the clock.
#[derive(Clone, Copy)]
struct Delay(u64);

impl Delay {
    const NONE: Delay = Delay(0);

    fn new(time: Duration, turns_per_second: f64) -> Delay {
        Delay((time.as_secs_f64() * turns_per_second) as u64)
    }

    /// Turns in a second: the best of several tries.
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
