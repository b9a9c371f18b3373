//! The work whose instructions are counted. Valgrind counts while [`counted_by_valgrind`] runs, and stops at [`left_the_engine`]. A
//! *figure* is a count with a name, which the program prints; it ends when [`end_of_figure`] is called or the process ends.

use std::cell::Cell;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use bruckner_algorithms::lower::{LineMemory, OnNode};
use bruckner_algorithms::{Task, plan};
use bruckner_choose::{Ability, DecisionTables, Knowledge, Name, Policy, Question, Rules, Vendor, choose};
use bruckner_engine::backend::Communicators as _;
use bruckner_engine::{Call, Engine, EntryPoint};
use bruckner_runtime::readback::bound_actions;
use bruckner_runtime::{Limits, Target, compile};
use bruckner_schedule::Collective::{self, Allgather, Allreduce, Alltoall, ReduceScatter};
use bruckner_schedule::{Counts, Problem, Rank, Topology};
use bruckner_threads::{I64, Options, PAIR, SUM, ThreadRank as Thread, run};

/// Algorithms that one rank plans, compiles and binds.
const ALGORITHMS: [(Collective, &str); 6] = [
    (Allgather, "locality(node)"),
    (Allreduce, "locality(node)"),
    (Allgather, "sparbit"),
    (ReduceScatter, "recursive-halving"),
    (Allreduce, "lanes(node, between=rabenseifner)"),
    (Alltoall, "bruck(2)"),
];

/// Topologies on which the algorithms are planned, compiled and bound, each for one rank.
const TOPOLOGIES: [&str; 3] = ["64x128", "10000x128", "65536x16"];

/// Number of calls before the counted one, which takes the fast path.
const CALLS_BEFORE: usize = 20;

/// Parts of the work for [`run_in_process`], each in its own process, because a call that leaves the engine ends the process.
pub(super) const PARTS: [&str; 8] = [
    "plans",
    "choices",
    "call to send",
    "call to native",
    "counted call to send",
    "call of a derived type to send",
    "call of a derived type to native",
    "persistent init to its agreement",
];

/// Runs one of [`PARTS`], the work whose instructions are counted. `cargo testbed instructions` starts a process under valgrind for each
/// part, which calls this.
pub(crate) fn run_in_process(part: &str) -> Result<()> {
    match part {
        "plans" => plans(),
        "choices" => choices(),
        "call to send" => call(part, "", allreduce),
        "call to native" => call(part, "BRUCKNER_ALGORITHM=allreduce=native", allreduce),
        "counted call to send" => call(part, "BRUCKNER_REPORT=stderr", allreduce),
        "call of a derived type to send" => call(part, "", allgather_of_pairs),
        "call of a derived type to native" => call(part, "BRUCKNER_ALGORITHM=allgather=native", allgather_of_pairs),
        "persistent init to its agreement" => call(part, "", persistent_allreduce),
        _ => bail!("unknown part `{part}`; the parts are {PARTS:?}"),
    }
}

/// Runs work whose instructions valgrind counts.
#[inline(never)]
fn counted_by_valgrind<R>(work: impl FnOnce() -> R) -> R {
    std::hint::black_box(work())
}

/// Number of repetitions in a figure, so that one-time work of the allocator, which differs from build to build, has little weight.
const TIMES: u64 = 8;

/// Counts [`TIMES`] repetitions of work that was done once before.
fn count_again<R>(name: &str, mut work: impl FnMut(u64) -> R) -> R {
    work(0);
    count(name, || {
        (1..TIMES).for_each(|time| drop(work(time)));
        work(TIMES)
    })
}

/// Prints `name`, then runs `work`. Valgrind counts its instructions as one result.
fn count<R>(name: &str, work: impl FnOnce() -> R) -> R {
    println!("{name}");
    let result = counted_by_valgrind(work);
    end_of_figure();
    result
}

/// Does nothing: valgrind writes the number of instructions since the last dump whenever this function is called (`--dump-before`).
#[inline(never)]
fn end_of_figure() {
    std::hint::black_box(());
}

/// For each topology and algorithm, counts the planning (with lowering), the compilation and the binding to sizes of one rank's program.
fn plans() -> Result<()> {
    for text in TOPOLOGIES {
        let topology: Topology = text.parse()?;
        for (collective, algorithm) in ALGORITHMS {
            let task = Task::new(collective, topology.clone());
            let expression = algorithm.parse()?;
            let rank = Rank(topology.ranks() / 2 + 5);
            let name = |what: &str| format!("{what} {collective} {algorithm} on {text}");
            let (plan, code) = count_again(&name("plan"), |_| {
                let plan = plan(&task, &expression)?.for_every_size();
                let code = plan.code(rank, &expression, OnNode::Segment, LineMemory::Shared).context("no code")?;
                anyhow::Ok((plan, code))
            })?;
            let target = Target { topology: &task.topology, even: true, orders_memory: true };
            let compiled = count_again(&name("compile"), |_| compile(&plan.problem, rank, &code, &target));
            let compiled = compiled.map_err(|unfit| anyhow::anyhow!("{unfit:?}"))?;
            let pieces = plan.problem.pieces;
            let sized = |count: u64| Problem { counts: Counts::Equal(count * pieces), ..plan.problem.clone() };
            let mut bound = bound_actions(&compiled, &sized(3), &Limits::MEASURED);
            let sizes: Vec<Problem> = (0..=TIMES).map(|more| sized(4 + more)).collect();
            count_again(&name("bind"), |time| {
                bound.bind(&compiled, &sizes[time as usize], &Limits::MEASURED);
            });
        }
    }
    Ok(())
}

/// Builds the decision table of a communicator of 10,000 nodes with 128 ranks each, and looks up one call in it.
fn choices() -> Result<()> {
    let topology: Arc<Topology> = Arc::new("10000x128".parse()?);
    let known = Arc::new(Knowledge::defaults(Vendor::OpenMpi));
    let tables = count("decision table of 10000x128", || {
        let tables = DecisionTables::new(topology, known, Policy::default(), Ability::default());
        for collective in Collective::ALL {
            let Some(name) = Name::read(&collective.to_string()) else { continue };
            let Ok(problem) = Problem::new(collective, 1_280_000, Counts::Equal(1), 8) else { continue };
            for shows_order in [false, true] {
                let question = Question { name, problem: &problem, is_order_sensitive: shows_order };
                std::hint::black_box(choose(&tables.kind(&question), &tables, &Rules::default()));
            }
        }
        tables
    });
    let problem = Problem::new(Allgather, 1_280_000, Counts::Equal(1), 8).map_err(anyhow::Error::msg)?;
    let question = Question { name: Name::Allgather, problem: &problem, is_order_sensitive: false };
    count("size range of one call on 10000x128", || tables.kind(&question));
    Ok(())
}

thread_local! {
    /// Whether this thread is inside the call that is counted.
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}

/// Counts the instructions of a call that was made often before, from its entry point until it leaves the engine to send a message or to
/// call the MPI's function. There the process ends.
fn call(name: &str, settings: &str, work: fn(&Engine<Thread>, &'static Thread)) -> Result<()> {
    let settings = format!("BRUCKNER=always\nBRUCKNER_ONLINE_TUNING=off\n{settings}");
    let options = |number: u32| Options {
        settings: settings.clone(),
        on_leave: (number == 0).then_some(leave as fn()),
        ..Options::default()
    };
    run("2x1", options, |engine, rank| {
        for _ in 0..CALLS_BEFORE {
            work(engine, rank);
        }
        if rank.number() == 0 {
            COUNTED.set(true);
            count(name, || work(engine, rank));
        } else {
            work(engine, rank);
        }
    });
    bail!("{name}: the call did not leave the engine")
}

/// Makes an allreduce of 8 bytes.
fn allreduce(engine: &Engine<Thread>, rank: &'static Thread) {
    let (mine, mut sum) = (u64::from(rank.number()), 0u64);
    let call = Call::allreduce((&raw const mine).cast(), (&raw mut sum).cast(), 1, I64, SUM);
    make(engine, rank, &call);
}

/// Makes an allgather of a derived type.
fn allgather_of_pairs(engine: &Engine<Thread>, rank: &'static Thread) {
    let (mine, mut all) = ([u64::from(rank.number()); 2], [0u64; 4]);
    let call = Call::allgather(mine.as_ptr().cast(), 1, PAIR, all.as_mut_ptr().cast(), 1, PAIR);
    make(engine, rank, &call);
}

/// Makes a call as an entry point of the preloaded library does.
#[inline(always)]
#[allow(unsafe_code, reason = "calls take addresses")]
fn make(engine: &Engine<Thread>, rank: &'static Thread, call: &Call) {
    let comm = rank.comm_world();
    // SAFETY: the callers pass buffers as long as the counts in `call`.
    unsafe {
        if engine.is_cached_native(call, comm) {
            engine.native(call, comm);
        } else if engine.run_cached_handled(call, comm).is_none() {
            let _ = engine.run(call, comm, EntryPoint::Mpi);
        }
    }
}

/// Makes a persistent allreduce and frees it.
#[allow(unsafe_code, reason = "calls take addresses")]
fn persistent_allreduce(engine: &Engine<Thread>, rank: &'static Thread) {
    let (mine, mut sum) = (u64::from(rank.number()), 0u64);
    let call = Call::allreduce((&raw const mine).cast(), (&raw mut sum).cast(), 1, I64, SUM);
    // SAFETY: input and output are one integer each.
    let _ = unsafe { engine.persistent(call, rank.comm_world(), "") };
}

/// Ends the process if this thread is inside the call that is counted.
fn leave() {
    if COUNTED.get() {
        left_the_engine();
    }
}

/// Ends the process; valgrind stops counting at this function.
#[inline(never)]
fn left_the_engine() -> ! {
    std::process::exit(0)
}
