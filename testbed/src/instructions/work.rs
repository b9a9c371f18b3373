//! The work whose instructions are counted. Valgrind counts while [`counted_by_valgrind`] runs, and stops at [`left_the_engine`]; each time that `counted_by_valgrind`
//! returns is a figure, whose name the program prints.

use std::cell::Cell;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use bruckner_algorithms::lower::{OnNode, Room};
use bruckner_algorithms::{Task, plan};
use bruckner_choose::{Ability, Knowledge, Menus, Name, Policy, Question, Rules, Vendor, choose};
use bruckner_engine::backend::Communicators as _;
use bruckner_engine::{Call, Engine, EntryPoint};
use bruckner_runtime::readback::deeds;
use bruckner_runtime::{Limits, Target, compile};
use bruckner_schedule::Collective::{self, Allgather, Allreduce, Alltoall, ReduceScatter};
use bruckner_schedule::{Counts, Problem, Rank, Topology};
use bruckner_threads::{I64, Options, PAIR, Rank as Thread, SUM, run};

/// What one rank plans, compiles and binds.
const ALGORITHMS: [(Collective, &str); 6] = [
    (Allgather, "locality(node)"),
    (Allreduce, "locality(node)"),
    (Allgather, "sparbit"),
    (ReduceScatter, "recursive-halving"),
    (Allreduce, "lanes(node, between=rabenseifner)"),
    (Alltoall, "bruck(2)"),
];

/// On how many ranks.
const TOPOLOGIES: [&str; 3] = ["64x128", "10000x128", "65536x16"];

/// Calls before the one that is counted: that one takes the fast path.
const CALLS_BEFORE: usize = 20;

/// What [`run_in_process`] runs: each is one process, because a call that leaves the engine ends it.
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

/// Runs a part of the work in this process, which valgrind watches.
pub(crate) fn run_in_process(part: &str) -> Result<()> {
    match part {
        "plans" => plans(),
        "choices" => choices(),
        "call to send" => call(part, "", allreduce),
        "call to native" => call(part, "BRUCKNER_ALGORITHM=allreduce=native", allreduce),
        "counted call to send" => call(part, "BRUCKNER_REPORT=stderr", allreduce),
        "call of a derived type to send" => call(part, "", allgather_of_pairs),
        "call of a derived type to native" => {
            call(part, "BRUCKNER_ALGORITHM=allgather=native", allgather_of_pairs)
        }
        "persistent init to its agreement" => call(part, "", persistent_allreduce),
        _ => bail!("`{part}` is no part of the work: {PARTS:?}"),
    }
}

/// Valgrind counts what this function runs.
#[inline(never)]
fn counted_by_valgrind<R>(work: impl FnOnce() -> R) -> R {
    std::hint::black_box(work())
}

/// How often work is repeated in a figure: what the allocator does once, and differently from build to build, weighs little then.
const TIMES: u64 = 8;

/// The figure of work that was done before.
fn count_again<R>(name: &str, mut work: impl FnMut(u64) -> R) -> R {
    work(0);
    count(name, || {
        (1..TIMES).for_each(|time| drop(work(time)));
        work(TIMES)
    })
}

/// A figure.
fn count<R>(name: &str, work: impl FnOnce() -> R) -> R {
    println!("{name}");
    let result = counted_by_valgrind(work);
    end_of_figure();
    result
}

/// Valgrind writes here what it has counted since it was here before.
#[inline(never)]
fn end_of_figure() {
    std::hint::black_box(());
}

/// One rank of a large machine: its schedule is planned and lowered, compiled, and bound to another size.
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
                let code = plan.code(rank, &expression, OnNode::Segment, Room::Shared).context("no code")?;
                anyhow::Ok((plan, code))
            })?;
            let target = Target { topology: &task.topology, even: true, orders_memory: true };
            let compiled = count_again(&name("compile"), |_| compile(&plan.problem, rank, &code, &target));
            let compiled = compiled.map_err(|unfit| anyhow::anyhow!("{unfit:?}"))?;
            let pieces = plan.problem.pieces;
            let sized =
                |count: u64| Problem { counts: Counts::Equal(count * pieces), ..plan.problem.clone() };
            let mut bound = deeds(&compiled, &sized(3), &Limits::MEASURED);
            let sizes: Vec<Problem> = (0..=TIMES).map(|more| sized(4 + more)).collect();
            count_again(&name("bind"), |time| {
                bound.bind(&compiled, &sizes[time as usize], &Limits::MEASURED);
            });
        }
    }
    Ok(())
}

/// The decision table of a communicator of 10,000 nodes with 128 ranks each, and the choice for one size after another.
fn choices() -> Result<()> {
    let topology: Arc<Topology> = Arc::new("10000x128".parse()?);
    let known = Arc::new(Knowledge::nominal(Vendor::OpenMpi));
    let menus = count("decision table of 10000x128", || {
        let menus = Menus::new(topology, known, Policy::default(), Ability::default());
        for collective in Collective::ALL {
            let Some(name) = Name::read(&collective.to_string()) else { continue };
            let Ok(problem) = Problem::new(collective, 1_280_000, Counts::Equal(1), 8) else { continue };
            for shows_order in [false, true] {
                let question = Question { name, problem: &problem, shows_order };
                std::hint::black_box(choose(&menus.kind(&question), &menus, &Rules::default()));
            }
        }
        menus
    });
    let problem = Problem::new(Allgather, 1_280_000, Counts::Equal(1), 8).map_err(anyhow::Error::msg)?;
    let question = Question { name: Name::Allgather, problem: &problem, shows_order: false };
    count("size range of one call on 10000x128", || menus.kind(&question));
    Ok(())
}

thread_local! {
    /// Whether this thread is in the call that is counted.
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}

/// A call that came often before, from the entry point to where it leaves the engine: there the process ends.
fn call(name: &str, settings: &str, work: fn(&Engine<Thread>, &'static Thread)) -> Result<()> {
    let settings = format!("BRUCKNER=always\nBRUCKNER_WATCH=off\n{settings}");
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

/// Of 8 bytes.
fn allreduce(engine: &Engine<Thread>, rank: &'static Thread) {
    let (mine, mut sum) = (u64::from(rank.number()), 0u64);
    let call = Call::allreduce((&raw const mine).cast(), (&raw mut sum).cast(), 1, I64, SUM);
    make(engine, rank, &call);
}

/// Of a type of the user's.
fn allgather_of_pairs(engine: &Engine<Thread>, rank: &'static Thread) {
    let (mine, mut all) = ([u64::from(rank.number()); 2], [0u64; 4]);
    let call = Call::allgather(mine.as_ptr().cast(), 1, PAIR, all.as_mut_ptr().cast(), 1, PAIR);
    make(engine, rank, &call);
}

/// A call as an entry point of the preloaded library makes it.
#[inline(always)]
#[allow(unsafe_code, reason = "calls take addresses")]
fn make(engine: &Engine<Thread>, rank: &'static Thread, call: &Call) {
    let comm = rank.comm_world();
    // SAFETY: buffers as long as the callers say.
    unsafe {
        if engine.is_cached_native(call, comm) {
            engine.native(call, comm);
        } else if engine.run_cached_handled(call, comm).is_none() {
            let _ = engine.run(call, comm, EntryPoint::Mpi);
        }
    }
}

/// Made and freed.
#[allow(unsafe_code, reason = "calls take addresses")]
fn persistent_allreduce(engine: &Engine<Thread>, rank: &'static Thread) {
    let (mine, mut sum) = (u64::from(rank.number()), 0u64);
    let call = Call::allreduce((&raw const mine).cast(), (&raw mut sum).cast(), 1, I64, SUM);
    // SAFETY: one number in and one out.
    let _ = unsafe { engine.persistent(call, rank.comm_world(), "") };
}

/// Ends the process, if this is the call that is counted.
fn leave() {
    if COUNTED.get() {
        left_the_engine();
    }
}

/// Valgrind stops counting here.
#[inline(never)]
fn left_the_engine() -> ! {
    std::process::exit(0)
}
