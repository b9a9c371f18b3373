//! Programs of the testbed that do not use the library's API, and benchmarks by others.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::Table;
use super::mpi4py::not_served;
use crate::frames;
use crate::launch::{Launch, Outcome, library};
use crate::mpis::{Mpi, home, root};
use crate::speed;

/// Launches a program with the library preloaded and with settings for oversubscribed cores.
fn patient_launch<'a>(mpi: Mpi, ranks: u32, program: &'a Path) -> Launch<'a> {
    Launch::preloaded(mpi, ranks, program).oversubscribed()
}

/// Returns all of `of`, or in a quick run only one, a different one for each MPI.
fn some<'a>(quick: bool, mpi: Mpi, of: &[&'a str]) -> Vec<&'a str> {
    let number = mpi as usize % of.len();
    if quick { vec![of[number]] } else { of.to_vec() }
}

pub(crate) fn run(table: &mut Table, quick: bool) -> Result<()> {
    table.tell("", "frames of the library's functions", 0, &frames::check()?);
    for mpi in table.of(Mpi::ALL) {
        let traps = mpi.compile_plain("traps")?;
        for mode in ["always", "on"] {
            let outcome = patient_launch(mpi, 3, &traps).set("BRUCKNER", mode).test()?;
            table.tell(mpi.name(), &format!("traps, {mode}"), 3, &outcome);
        }
        // The library also compares each result with the MPI's own, and must not report a difference.
        let checked = patient_launch(mpi, 3, &traps).set("BRUCKNER", "always").set("BRUCKNER_CHECK", "1");
        let mut outcome = checked.test()?;
        if outcome.talk.contains("bruckner: BRUCKNER_CHECK") {
            outcome.failures += 1;
        }
        table.tell(mpi.name(), "traps, every call checked", 3, &outcome);
        let corners = mpi.compile_plain("corners")?;
        for (mode, ranks) in [("always", 3), ("on", 2)] {
            let outcome = patient_launch(mpi, ranks, &corners).set("BRUCKNER", mode).test()?;
            table.tell(mpi.name(), &format!("corners, {mode}"), ranks, &outcome);
        }
        // Calls are handled by compositions of other MPI functions than were called.
        let parts = mpi.compile_plain("parts")?;
        for way in ["native-rooted", "native-rsag"] {
            let rules = format!("allreduce={way}; allgather=native-rooted");
            for program in [&parts, &traps, &corners] {
                let mut launch = patient_launch(mpi, 3, program).set("BRUCKNER_ALGORITHM", &rules);
                if matches!(mpi, Mpi::Openmpi4 | Mpi::Openmpi5) {
                    launch = launch.argument("aliases");
                }
                let name = program.file_name().unwrap_or_default().to_string_lossy();
                table.tell(mpi.name(), &format!("{name}, {way}"), 3, &launch.test()?);
                if quick && program == &parts {
                    break;
                }
            }
        }
        hangs(table, mpi, quick)?;
        let sizes = mpi.compile_plain("sizes")?;
        for topology in some(quick, mpi, &["1x4", "2,2", "3,1"]) {
            let launch = patient_launch(mpi, 4, &sizes).set("BRUCKNER_TOPOLOGY", topology);
            let outcome = launch.set("BRUCKNER", "always").test()?;
            table.tell(mpi.name(), &format!("sizes, nodes {topology}"), 4, &outcome);
        }
        freed(table, mpi, quick)?;
        padding(table, mpi)?;
        small_stack(table, mpi)?;
        locked(table, mpi)?;
        let churn = mpi.compile_plain("churn")?;
        for topology in some(quick, mpi, &["2,2", "1x4", "3,1"]) {
            let launch = patient_launch(mpi, 4, &churn).set("BRUCKNER_TOPOLOGY", topology);
            table.tell(mpi.name(), &format!("churn, nodes {topology}"), 4, &launch.test()?);
        }
        let rooted = mpi.compile_plain("rooted")?;
        let ways = [
            ("1x4", "shm", Some("ahead")),
            ("2,2", "locality(node)", None),
            ("3,1", "leader(node, between=sparbit)", None),
            ("2,2:cyclic", "lanes(node, between=ring)", None),
        ];
        // Every run includes one node, where the library alone determines how far a root can run ahead.
        for (topology, algorithm, ahead) in if quick { &ways[..1 + mpi as usize % 2] } else { &ways[..] } {
            let rules = format!("bcast={algorithm}; reduce={algorithm}");
            let mut launch = patient_launch(mpi, 4, &rooted).set("BRUCKNER_TOPOLOGY", *topology);
            launch = launch.set("BRUCKNER_ALGORITHM", rules).set("BRUCKNER_AFTER", "0");
            launch.arguments.extend(ahead.map(str::to_owned));
            let what = format!("roots that run ahead, {algorithm} on {topology}");
            table.tell(mpi.name(), &what, 4, &launch.test()?);
        }
        let reads = mpi.compile_plain("reads")?;
        for ranks in if quick { vec![2 + 2 * (mpi as u32 % 2)] } else { vec![2, 4] } {
            // Rooted collectives use the segment, because MPICH itself does not survive a refused read.
            let direct = ["allreduce", "reduce_scatter", "allgather", "alltoall"];
            let rules = direct.map(|name| format!("{name}=direct")).join("; ") + "; bcast=shm; reduce=shm";
            let mut launch = patient_launch(mpi, ranks, &reads).set("BRUCKNER_ALGORITHM", rules);
            launch = launch.set("BRUCKNER_AFTER", "0").set("BRUCKNER_TOPOLOGY", format!("1x{ranks}"));
            if !mpi.has_hook() {
                launch = launch.argument("no requests");
            }
            table.tell(mpi.name(), "peer reads, then refused by the kernel", ranks, &launch.test()?);
        }
        let wrong = mpi.compile_plain("wrong")?;
        for (mode, arguments) in [("always", None), ("on", Some("expecting more"))] {
            // With Intel MPI and the MPI-5 ABI every error ends the job, whatever the error handler.
            if mpi == Mpi::IntelAbi {
                break;
            }
            let mut launch = patient_launch(mpi, 3, &wrong).set("BRUCKNER", mode);
            launch.arguments.extend(arguments.map(str::to_owned));
            table.tell(mpi.name(), &format!("wrong calls, {mode}"), 3, &launch.test()?);
        }
        let values = mpi.compile_plain("values")?;
        let bcasts = ["shm", "locality(node)", "bruck(2)", "pipeline(3, ring)", "lanes(node, between=sparbit)"];
        for bcast in some(quick, mpi, &bcasts) {
            let rules = format!("allreduce=4(1 1); bcast={bcast}");
            let mut launch =
                patient_launch(mpi, 4, &values).set("BRUCKNER_ALGORITHM", rules).set("BRUCKNER_AFTER", "0");
            if !mpi.has_hook() {
                launch = launch.argument("no requests");
            }
            table.tell(mpi.name(), &format!("values, bcast={bcast}"), 4, &launch.test()?);
        }
        let requests = mpi.compile_plain("requests")?;
        // Three ranks need several rounds. Without a hook (see `has_hook`) such requests are passed through, and the MPI's own do not pass
        // this test.
        for ranks in if quick || !mpi.has_hook() { vec![2] } else { vec![2, 3] } {
            let mut launch = patient_launch(mpi, ranks, &requests).set("BRUCKNER", "always");
            if mpi.has_hook() {
                launch = launch.argument("handled");
            }
            table.tell(mpi.name(), "life cycle of a persistent request", ranks, &launch.test()?);
        }
        reused(table, mpi, quick)?;
        tools(table, mpi)?;
        // MPICH's launcher cannot spawn processes where ranks are bound to cores, and Intel's cannot here at all.
        if mpi.is_open_mpi() {
            let spawn = mpi.compile_plain("spawn")?;
            let outcome = Launch::preloaded(mpi, 1, &spawn).test()?;
            table.tell(mpi.name(), "spawned processes", 1, &outcome);
        }
        if mpi != Mpi::Openmpi4 {
            let sessions = mpi.compile_plain("sessions")?;
            let outcome = Launch::preloaded(mpi, 2, &sessions).set("BRUCKNER", "always").test()?;
            table.tell(mpi.name(), "a session instead of MPI_Init", 2, &outcome);
        }
    }
    for mpi in table.of(&[Mpi::Openmpi4, Mpi::Mpich4]) {
        for name in ["fortran_mpif", "fortran_mpi", "fortran_f08"] {
            let program = fortran(mpi, name)?;
            let report = home().join(format!("{name}-{}.json", mpi.name()));
            let launch = patient_launch(mpi, 3, &program).set("BRUCKNER", "always");
            let mut outcome = launch.set("BRUCKNER_REPORT", report.display().to_string()).test()?;
            let text = std::fs::read_to_string(&report).context("there is no report")?;
            let missing = not_served(&serde_json::from_str(&text)?, false);
            for name in ["allreduce", "allgather", "bcast", "barrier"] {
                if missing.iter().any(|missing| missing == name) {
                    outcome.failures += 1;
                    outcome.talk += &format!("no call of {name} was handled\n");
                }
            }
            table.tell(mpi.name(), name, 3, &outcome);
        }
    }
    // Open MPI has no functions for big counts, and MPICH has. Each run touches gigabytes.
    let big: &[Mpi] = if quick { &[Mpi::Openmpi5] } else { &[Mpi::Openmpi4, Mpi::Openmpi5, Mpi::Mpich5, Mpi::Intel] };
    for mpi in table.of(big) {
        let big = mpi.compile_plain("big")?;
        for mode in if quick { vec!["on"] } else { vec!["off", "on", "always"] } {
            let mut launch = Launch::preloaded(mpi, 2, &big).set("BRUCKNER", mode);
            if mode == "off" && mpi.is_open_mpi() {
                launch = launch.argument("no lists");
            }
            let outcome = launch.test()?;
            table.tell(mpi.name(), &format!("big counts, {mode}"), 2, &outcome);
        }
    }
    for mpi in table.of(&[Mpi::Intel]) {
        table.tell(mpi.name(), "IMB-MPI1, all collectives", 2, &imb(quick)?);
    }
    Ok(())
}

/// Runs legal programs that hung once, on one node and with topologies of several nodes.
pub(super) fn hangs(table: &mut Table, mpi: Mpi, quick: bool) -> Result<()> {
    let hangs = mpi.compile_plain("hangs")?;
    for mode in ["always", "on"] {
        let outcome = Launch::preloaded(mpi, 2, &hangs).set("BRUCKNER", mode).test()?;
        table.tell(mpi.name(), &format!("hangs, {mode}"), 2, &outcome);
    }
    for topology in some(quick, mpi, &["2,2", "3,1", "2,2:cyclic"]) {
        let mut launch = patient_launch(mpi, 4, &hangs).set("BRUCKNER_TOPOLOGY", topology);
        // If the MPI has no hook (see `has_hook`), persistent collectives of several rounds are passed through, and the MPI's own do not
        // pass this test.
        if !mpi.has_hook() {
            launch = launch.argument("no requests");
        }
        table.tell(mpi.name(), &format!("hangs, nodes {topology}"), 4, &launch.test()?);
    }
    // With messages in several rounds, a rank must advance a call that it has started while it waits for something else.
    let rounds = Launch::preloaded(mpi, 2, &hangs).set("BRUCKNER", "always").set("BRUCKNER_SHM", "off");
    let rounds = rounds.set("BRUCKNER_ALGORITHM", "allreduce=ring; allgather=pipeline(3, ring)").test()?;
    table.tell(mpi.name(), "hangs, several rounds", 2, &rounds);
    Ok(())
}

/// Checks that the padding of pair types is neither written nor compared.
fn padding(table: &mut Table, mpi: Mpi) -> Result<()> {
    let program = mpi.compile_plain("padding")?;
    for (topology, check) in [("", "0"), ("2,2", "0"), ("2,2", "1")] {
        let mut launch = patient_launch(mpi, 4, &program).set("BRUCKNER", "always").set("BRUCKNER_CHECK", check);
        // If the MPI has no hook (see `has_hook`), persistent collectives of several rounds are passed through, and Intel MPI's own write
        // to padding.
        if mpi.has_hook() {
            launch = launch.argument("requests");
        }
        let mut outcome = launch.set("BRUCKNER_TOPOLOGY", topology).test()?;
        outcome.failures += u64::from(outcome.talk.contains("bruckner: BRUCKNER_CHECK"));
        table.tell(mpi.name(), &format!("padding of pairs, nodes {topology}, check {check}"), 4, &outcome);
    }
    Ok(())
}

/// Runs a program in a thread with the smallest stack that the MPI itself can use; Debian's MPICH does not finish with 64 KiB.
fn small_stack(table: &mut Table, mpi: Mpi) -> Result<()> {
    let kib = match mpi {
        Mpi::Mpich4 => return Ok(()),
        Mpi::Intel | Mpi::IntelAbi => 48,
        _ => 32,
    };
    let program = mpi.compile_plain("stack")?;
    for (mode, topology) in [("on", ""), ("always", "2,2")] {
        let report = home().join("stack.json").display().to_string();
        let launch = patient_launch(mpi, 4, &program).argument(kib.to_string()).set("BRUCKNER", mode);
        let outcome = launch.set("BRUCKNER_TOPOLOGY", topology).set("BRUCKNER_REPORT", report).test()?;
        table.tell(mpi.name(), &format!("a stack of {kib} KiB, {mode}"), 4, &outcome);
    }
    Ok(())
}

/// Runs a program that locks its memory, and checks that the library adds little resident memory.
fn locked(table: &mut Table, mpi: Mpi) -> Result<()> {
    /// Resident memory that the library may add to a rank, in KiB.
    const MORE: u64 = 64 << 10;
    let program = mpi.compile_plain("locked")?;
    let mut outcome = Outcome::default();
    let mut text = Vec::new();
    for when in ["now", "from-the-start"] {
        let resident = |launch: Launch<'_>| -> Result<(Outcome, u64)> {
            let said = launch.oversubscribed().argument(when).run()?;
            let kib = said.out.lines().find_map(|line| line.strip_prefix("resident ")?.parse().ok());
            let right = said.succeeded && said.out.contains("failures 0") && kib.is_some();
            let talk = format!("{}{}", said.out, said.err);
            let outcome = Outcome { cases: 1, failures: u64::from(!right), seconds: said.seconds, talk };
            Ok((outcome, kib.unwrap_or(0)))
        };
        let (native, without) = resident(Launch::plain(mpi, 2, &program))?;
        // If the MPI fails without the library, there is nothing to compare with.
        if native.failures > 0 {
            continue;
        }
        let (mut handled, with) = resident(Launch::preloaded(mpi, 2, &program).set("BRUCKNER", "always"))?;
        handled.failures += u64::from(with > without + MORE);
        outcome.add(&handled);
        text.push(format!("{} MiB, native {}", with >> 10, without >> 10));
    }
    table.tell(mpi.name(), &format!("locked: {}", text.join("; ")), 2, &outcome);
    Ok(())
}

/// Runs attribute callbacks that call collectives on communicators while these are freed.
fn freed(table: &mut Table, mpi: Mpi, quick: bool) -> Result<()> {
    let program = mpi.compile_plain("freed")?;
    for topology in some(quick, mpi, &["", "2,2", "3,1"]) {
        let mut launch = patient_launch(mpi, 4, &program).set("BRUCKNER_TOPOLOGY", topology);
        // Intel MPI itself hangs if messages are in flight, and Open MPI 4 creates no window on one of several similar communicators.
        if !matches!(mpi, Mpi::Intel | Mpi::IntelAbi) {
            launch = launch.argument("pending");
        }
        if mpi != Mpi::Openmpi4 {
            launch = launch.argument("windows");
        }
        // With Intel MPI and the MPI-5 ABI every error ends the job, whatever the error handler.
        if mpi != Mpi::IntelAbi {
            launch = launch.argument("refused");
        }
        table.tell(mpi.name(), &format!("freed in callbacks, nodes {topology}"), 4, &launch.test()?);
    }
    Ok(())
}

/// Runs persistent operations that reuse the plans, tags and memory of freed ones, which each rank frees at its own time.
fn reused(table: &mut Table, mpi: Mpi, quick: bool) -> Result<()> {
    let program = mpi.compile_plain("reused")?;
    for topology in some(quick, mpi, &["", "2,2", "3,1"]) {
        let launch = patient_launch(mpi, 4, &program).set("BRUCKNER", "always");
        let rounds = if quick { "200" } else { "2000" };
        let outcome = launch.argument(rounds).set("BRUCKNER_TOPOLOGY", topology).test()?;
        table.tell(mpi.name(), &format!("persistent operations reused, nodes {topology}"), 4, &outcome);
    }
    Ok(())
}

/// Checks a profiling tool with `MPI_*` functions of its own, preloaded before and behind the library: the tool must count the program's
/// calls and no others, and the library must handle the calls that the tool passes on.
fn tools(table: &mut Table, mpi: Mpi) -> Result<()> {
    let program = mpi.compile_plain("tooled")?;
    let object = tool(mpi, &program, "libtool.so", &[])?;
    let (report, bruckner) = (home().join(format!("tool-{}.json", mpi.name())), root().join("target/release/bruckner"));
    let shown = program.display().to_string();
    let counted = "tool: 1 inits, 100 allreduces, 50 bcasts, 10 waits, 1 duplicates";
    let ways = [
        ("before the library", Launch::preloaded(mpi, 2, &program).preload(&object)),
        ("behind the library", Launch::plain(mpi, 2, &program).preload(&object).preload(&library())),
        ("before bruckner exec", Launch::plain(mpi, 2, &bruckner).preload(&object).argument("exec").argument(shown)),
    ];
    for (way, launch) in ways {
        let launch = launch.set("BRUCKNER", "always").set("BRUCKNER_REPORT", report.display().to_string());
        let mut outcome = launch.test()?;
        let text = std::fs::read_to_string(&report).context("there is no report")?;
        let missing = not_served(&serde_json::from_str(&text)?, false);
        let handled = ["allreduce", "bcast"].iter().all(|name| !missing.iter().any(|missing| missing == name));
        if !outcome.talk.contains(counted) || !handled {
            outcome.failures += 1;
            outcome.talk += &format!("not handled: {missing:?}\n");
        }
        table.tell(mpi.name(), &format!("a tool {way}"), 2, &outcome);
    }
    // A tool that bypasses the library: the program must run as without the library, which prints a line about it.
    let bypass = tool(mpi, &program, "libbypass.so", &["-DBYPASS"])?;
    let launch = Launch::plain(mpi, 2, &program).preload(&bypass).preload(&library());
    let mut outcome = launch.set("BRUCKNER", "always").test()?;
    let told = outcome.talk.contains("no MPI calls are intercepted: a tool preloaded after the library");
    outcome.failures += u64::from(!told || !outcome.talk.contains(counted));
    table.tell(mpi.name(), "a tool that goes past the library", 2, &outcome);
    Ok(())
}

/// Builds the profiling tool `tool.c` as a shared object in the directory of a program.
fn tool(mpi: Mpi, program: &Path, name: &str, flags: &[&str]) -> Result<PathBuf> {
    let compiler = if mpi == Mpi::IntelAbi { Mpi::MpichAbi } else { mpi };
    let object = program.with_file_name(name);
    let mut command = compiler.command(compiler.compiler());
    command.args(["-O2", "-shared", "-fPIC"]).args(flags).arg("-o").arg(&object);
    let made = command.arg(root().join("testbed/programs/tool.c")).output()?;
    if !made.status.success() {
        bail!("tool.c for {}: {}", mpi.name(), String::from_utf8_lossy(&made.stderr));
    }
    Ok(object)
}

fn fortran(mpi: Mpi, name: &str) -> Result<PathBuf> {
    let directory = home().join("programs").join(mpi.name());
    let output = directory.join(name);
    let compiler = if mpi.is_open_mpi() { "mpif90.openmpi" } else { "mpif90.mpich" };
    let mut command = mpi.command(compiler);
    let sources = root().join("testbed/programs");
    command.arg("-J").arg(&directory).arg("-I").arg(&sources).arg("-fallow-argument-mismatch");
    command.arg(sources.join(name).with_extension("f90")).arg("-o").arg(&output);
    let made = command.output().with_context(|| format!("{compiler} does not start"))?;
    if !made.status.success() {
        bail!("{name} for {}: {}", mpi.name(), String::from_utf8_lossy(&made.stderr));
    }
    Ok(output)
}

/// Runs Intel's own benchmark, which checks no results; it must finish, and the library must handle its calls.
fn imb(quick: bool) -> Result<Outcome> {
    let program = home().join("intel/bin/IMB-MPI1");
    let names = [
        "Allgather",
        "Allgatherv",
        "Allreduce",
        "Reduce_scatter",
        "Reduce_scatter_block",
        "Alltoall",
        "Alltoallv",
        "Bcast",
        "Reduce",
        "Barrier",
    ];
    let report = home().join("imb.json");
    let mut launch = Launch::preloaded(Mpi::Intel, 2, &program).set("BRUCKNER", "always");
    launch = launch.set("BRUCKNER_REPORT", report.display().to_string());
    for name in names {
        launch = launch.argument(name);
    }
    for argument in
        ["-npmin", "2", "-msglog", if quick { "3:12" } else { "3:22" }, "-iter", if quick { "20" } else { "200" }]
    {
        launch = launch.argument(argument);
    }
    let said = launch.run()?;
    let mut outcome = Outcome { seconds: said.seconds, talk: said.err, ..Outcome::default() };
    for name in names {
        outcome.cases += 1;
        outcome.failures += u64::from(!said.out.contains(&format!("# Benchmarking {name} ")));
    }
    let text = std::fs::read_to_string(&report).context("there is no report")?;
    let missing = not_served(&serde_json::from_str(&text)?, false);
    outcome.failures += missing.len() as u64 + u64::from(!said.succeeded);
    outcome.talk += &format!("not handled: {missing:?}\n");
    Ok(outcome)
}

/// Runs random calls on each MPI.
pub(crate) fn stress(table: &mut Table, quick: bool, seed: u64) -> Result<()> {
    for mpi in table.of(Mpi::ALL) {
        random(table, mpi, quick, seed)?;
    }
    Ok(())
}

/// Runs random calls with several seeds and topologies, half of which are set rather than detected.
pub(super) fn random(table: &mut Table, mpi: Mpi, quick: bool, seed: u64) -> Result<()> {
    let topologies: [(u32, &str); 8] =
        [(2, ""), (4, "2,2"), (4, ""), (4, "3,1"), (3, ""), (4, "2,2:cyclic"), (5, ""), (5, "3,2:permuted=3")];
    let program = mpi.compile_plain("stress")?;
    for (number, (ranks, topology)) in topologies.iter().enumerate() {
        // Where ranks outnumber cores, MPIs that spin take milliseconds for a call.
        let spins = !mpi.is_open_mpi() && mpi != Mpi::Mpich4 && *ranks > 2;
        let calls = match (quick, spins) {
            (true, true) => 200,
            (true, false) => 4_000,
            (false, true) => 8_000,
            (false, false) => 100_000,
        };
        // A quick run takes the first two topologies and two others, which depend on the MPI.
        if quick && number / 2 != mpi as usize % 4 && number > 1 {
            continue;
        }
        let seed = seed + number as u64 + 100 * mpi as u64;
        let launch = patient_launch(mpi, *ranks, &program).set("BRUCKNER", "always");
        let launch = launch.argument(calls.to_string()).argument(seed.to_string()).limit(3600);
        let outcome = launch.set("BRUCKNER_TOPOLOGY", *topology).test()?;
        let place = if topology.is_empty() { "detected topology" } else { topology };
        table.tell(mpi.name(), &format!("stress, seed {seed}, {place}"), *ranks, &outcome);
    }
    Ok(())
}

/// Launches a program that compares the library with the MPI's own functions.
fn compared(mpi: Mpi, program: &Path, quick: bool) -> Launch<'_> {
    let launch = Launch::preloaded(mpi, 2, program);
    if quick { launch.argument("quick") } else { launch }
}

/// Measures the overhead of interception where the choice is native (at most 40 ns, by the median of a few launches), and of derived types
/// and persistent operations that are made anew for each call. A quick run only prints the times.
pub(crate) fn interception(table: &mut Table, quick: bool) -> Result<()> {
    for mpi in table.of(Mpi::CURRENT) {
        let program = mpi.compile_plain("interception")?;
        // Rooted collectives and alltoallv are native anyway.
        let names = ["allreduce", "allgather", "reduce_scatter", "alltoall", "barrier"];
        let rules: Vec<String> = names.iter().map(|name| format!("{name}=native")).collect();
        let launch = || compared(mpi, &program, quick).set("BRUCKNER_ALGORITHM", rules.join("; "));
        let start = std::time::Instant::now();
        let lines = speed::medians(if quick { 1 } else { 15 }, launch)?;
        let mut outcome = Outcome { cases: lines.len() as u64, ..Outcome::default() };
        let mut all = Vec::new();
        for line in &lines {
            // Derived from the ratio of pairs of blocks, which are measured close to each other in time.
            let more = (line.ratio - 1.0) * line.other;
            all.push(format!("{} {more:+.0}", line.name));
            outcome.failures += u64::from(!quick && more > 40.0);
        }
        outcome.seconds = start.elapsed().as_secs_f64();
        outcome.talk = format!("nanoseconds: {}\n", all.join(", "));
        table.tell(mpi.name(), &format!("ns: {}", all.join(" ")), 2, &outcome);
        // Derived types and persistent operations that a program makes anew for each call.
        let anew = mpi.compile_plain("anew")?;
        let start = std::time::Instant::now();
        let lines = speed::medians(if quick { 1 } else { 5 }, || compared(mpi, &anew, quick))?;
        let mut outcome = Outcome { cases: lines.len() as u64, ..Outcome::default() };
        for line in &lines {
            let most = match line.name.as_str() {
                "init" => (2.0 * line.other).max(5000.0),
                _ => (1.2 * line.other).max(line.other + 500.0),
            };
            // Derived from the ratio of pairs of blocks, which are measured close to each other in time.
            let ours = line.ratio * line.other;
            outcome.failures += u64::from(!quick && ours > most);
            outcome.talk += &format!("{} {:.2} us, native {:.2}\n", line.name, ours / 1e3, line.other / 1e3);
        }
        outcome.seconds = start.elapsed().as_secs_f64();
        let text = outcome.talk.trim_end().replace('\n', "; ");
        table.tell(mpi.name(), &format!("anew: {text}"), 2, &outcome);
        // Alternating sizes are compared with each size alone; new lists of counts and a duplicate are compared with the MPI's own.
        let sizes = mpi.compile_plain("sizes")?;
        let outcome = Launch::preloaded(mpi, 2, &sizes).argument(if quick { "times" } else { "judged" }).test()?;
        let ratios = outcome.talk.lines().find(|line| line.starts_with("in turn")).unwrap_or("no ratios");
        table.tell(mpi.name(), &format!("ratios: {ratios}"), 2, &outcome);
    }
    Ok(())
}
