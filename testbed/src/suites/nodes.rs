//! Emulated nodes: that there is a wire between them, with the delay that was asked for; roots that are ahead, across it; and two
//! nodes of which the launcher's environment may reach only one: whatever happens, nothing hangs, and what can be served is.

use std::path::Path;

use anyhow::Result;
use bruckner_choose::Profile;
use bruckner_model::Machine;

use super::Table;
use crate::cluster::{Cluster, Shape};
use crate::launch::{Launch, Outcome, Said, library};
use crate::mpis::{Mpi, home, root};

/// How a program gets the library.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// `mpirun bruckner exec PROGRAM`.
    Exec,
    /// `LD_PRELOAD=… mpirun PROGRAM`.
    Before,
    /// By the launcher's own option.
    Option,
    /// As before, and Hydra is told to hand on nothing.
    Withheld,
    /// Only one of two programs of the job has it.
    OneOfTwo,
    /// `mpirun bruckner exec SCRIPT PROGRAM`, with a script that takes it from one rank.
    Script,
    /// `mpirun bruckner exec --through SCRIPT PROGRAM`, with a script that hands it on.
    Through,
    /// `mpirun SCRIPT PROGRAM`, with a script that runs `bruckner exec`.
    Inside,
}

pub(crate) fn run(table: &mut Table) -> Result<()> {
    across_a_wire(table)?;
    probed(table)?;
    watched(table)?;
    exported(table)?;
    reached_or_not(table)
}

/// Calls that are watched, on one node and on two.
fn watched(table: &mut Table) -> Result<()> {
    let nodes =
        Cluster::up(&Shape::of(&["--nodes", "2", "--ppn", "2", "--delay", "50us", "--rate", "1gbit"])?)?;
    let bruckner = root().join("target/release/bruckner");
    for mpi in table.of(Mpi::TODAY) {
        let program = mpi.compile_plain("watched")?;
        let exec = |launch: Launch<'_>, calls: &str| {
            let launch = launch.patiently().argument("exec").argument(program.display().to_string());
            launch.argument(calls).set("BRUCKNER_PROFILE", "off").test()
        };
        let here = exec(Launch::plain(mpi, 4, &bruckner), "1200")?;
        table.tell(mpi.name(), "watched calls, one node", 4, &here);
        let there = exec(Launch::plain(mpi, 4, &bruckner).across(&nodes), "1200")?;
        table.tell(mpi.name(), "watched calls, two nodes", 4, &there);
    }
    Ok(())
}

/// A profile for an MPI in which each of some settings was the best at one size of a collective.
fn natives(mpi: &str, topology: &str, found: &[(&str, &[&str])]) -> String {
    let mut text = format!(
        "name = 'm'\nabout = ''\n[network]\nsource = ''\nprotocols = [{{ latency = 1e-6, per_byte = 1e-9 }}]\n\
         [tune]\nversion = 1\nmpi = \"{mpi}\"\n[[native]]\ntopology = \"{topology}\"\nsettings = [\n"
    );
    for (collective, settings) in found {
        for (power, setting) in (3..).zip(*settings) {
            let bytes = 1u64 << (2 * power);
            text += &format!(
                "  {{ collective = \"{collective}\", bytes = {bytes}, setting = \"{setting}\", ratio = 0.5, low = 0.4, high = 0.6 }},\n"
            );
        }
    }
    text + "]\n"
}

/// Files that say which of the MPI's own algorithms are fastest are read by the MPI, whatever they say, and its results are right.
fn exported(table: &mut Table) -> Result<()> {
    let nodes = Cluster::up(&Shape::of(&["--nodes", "2", "--ppn", "2"])?)?;
    let bruckner = root().join("target/release/bruckner");
    for mpi in table.of(Mpi::TODAY) {
        let (format, name, topology, found): (_, _, _, &[(&str, &[&str])]) = match mpi {
            Mpi::Openmpi5 => (
                "open-mpi",
                "Open MPI 5.0.11",
                "2x2",
                &[
                    (
                        "allgather",
                        &["without HAN", "tuned linear", "tuned bruck", "tuned ring", "tuned sparbit"],
                    ),
                    (
                        "allreduce",
                        &["tuned basic_linear", "", "tuned recursive_doubling", "tuned rabenseifner"],
                    ),
                    (
                        "alltoall",
                        &["tuned linear", "tuned pairwise", "tuned modified_bruck", "tuned linear_sync"],
                    ),
                    (
                        "reduce_scatter",
                        &["tuned recursive_doubling", "tuned butterfly", "", "tuned basic_linear"],
                    ),
                ],
            ),
            Mpi::Mpich5 => (
                "mpich",
                "MPICH 5.0.2",
                "1x4",
                &[
                    ("allgather", &["brucks", "ring"]),
                    (
                        "allreduce",
                        &["recursive_doubling", "ring", "composition 1", "composition 2", "composition 3"],
                    ),
                    ("alltoall", &["brucks", "pairwise", "", "scattered"]),
                    ("reduce_scatter", &["recursive_doubling", "pairwise", "recursive_halving"]),
                ],
            ),
            _ => (
                "intel",
                "Intel MPI 2021.18",
                "1x4",
                &[(
                    "allreduce",
                    &["I_MPI_ADJUST_ALLREDUCE=1", "I_MPI_ADJUST_ALLREDUCE=2", "I_MPI_ADJUST_ALLREDUCE=8"],
                )],
            ),
        };
        let (profile, place) = (home().join("exported.toml"), home().join("exported"));
        std::fs::write(&profile, natives(name, topology, found))?;
        let mut export = mpi.command(&bruckner);
        export.args(["tune", "--export", format, "--from"]).arg(&profile).arg("-o").arg(&place);
        let said = export.output()?;
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let exports = text.lines().filter_map(|line| line.strip_prefix("export "));
        let settings: Vec<String> = exports.map(|setting| setting.replace('\'', "")).collect();
        let mut outcome = Outcome::default();
        if !said.status.success() || settings.is_empty() {
            (outcome.failures, outcome.talk) =
                (1, format!("{text}{}", String::from_utf8_lossy(&said.stderr)));
        }
        // MPICH takes ranks of one machine to be on several nodes, if it is told so: what is for one node must not reach them.
        let more: &[&[&str]] = match mpi {
            Mpi::Mpich5 => &[&[], &["MPIR_CVAR_NUM_CLIQUES=2"], &["MPIR_CVAR_ODD_EVEN_CLIQUES=1"]],
            _ => &[&[]],
        };
        let program = mpi.compile_plain("tuned")?;
        for more in more {
            let launch = Launch::plain(mpi, 4, Path::new("/usr/bin/env")).patiently();
            let launch = if mpi == Mpi::Openmpi5 { launch.across(&nodes) } else { launch };
            let launch = settings.iter().cloned().fold(launch, Launch::argument);
            let launch = more.iter().copied().fold(launch, Launch::argument);
            let launch = launch.argument(program.display().to_string());
            let launch = if mpi == Mpi::Openmpi5 { launch } else { launch.argument("gaps") };
            outcome.add(&launch.test()?);
        }
        table.tell(mpi.name(), "exported files", 4, &outcome);
    }
    Ok(())
}

/// `bruckner probe` finds the wire that there is, and comes to its end where it cannot write down what it finds.
fn probed(table: &mut Table) -> Result<()> {
    let nodes =
        Cluster::up(&Shape::of(&["--nodes", "2", "--ppn", "2", "--delay", "1ms", "--rate", "1gbit"])?)?;
    let bruckner = root().join("target/release/bruckner");
    let file = home().join("probed.toml");
    for mpi in table.of(&[Mpi::Openmpi5, Mpi::Mpich5]) {
        let mut outcome = Outcome::default();
        for path in [file.clone(), home().join("no such directory/probed.toml")] {
            let _ = std::fs::remove_file(&path);
            let launch = Launch::plain(mpi, 4, &bruckner).across(&nodes).patiently();
            let launch = launch.argument("probe").argument("-o").argument(path.display().to_string());
            // It says so where the machine was not quiet, and then its figures mean nothing.
            let mut said = launch.run()?;
            for _ in 0..2 {
                if said.out.contains("the machine is not quiet") {
                    said = launch.run()?;
                }
            }
            outcome.cases += 1;
            outcome.seconds += said.seconds;
            let right = match path == file {
                true => {
                    said.succeeded && std::fs::read_to_string(&path).is_ok_and(|text| is_that_wire(&text))
                }
                // It is refused before anything is measured.
                false => {
                    !said.succeeded && said.err.contains("No such file") && !said.out.contains("one pair")
                }
            };
            if !right {
                outcome.failures += 1;
                outcome.talk += &format!("{}{}", said.out, said.err);
            }
        }
        table.tell(mpi.name(), "bruckner probe, a wire of 1 ms", 4, &outcome);
        if mpi == Mpi::Openmpi5 {
            table.tell(mpi.name(), "bruckner tune, a wire of 1 ms", 4, &tuned(mpi, &nodes, &bruckner)?);
        }
    }
    Ok(())
}

/// Two launches of `bruckner tune` make a profile in which a locality-aware allreduce has won; the library takes it and serves by it.
fn tuned(mpi: Mpi, nodes: &Cluster, bruckner: &Path) -> Result<Outcome> {
    let file = home().join("tuned.toml");
    let _ = std::fs::remove_file(&file);
    let mut outcome = Outcome::default();
    let mut judge = |said: &Said, right: bool| {
        outcome.cases += 1;
        outcome.seconds += said.seconds;
        if !right {
            outcome.failures += 1;
            outcome.talk += &format!("{}{}", said.out, said.err);
        }
    };
    for launches in 1..=2 {
        let launch = Launch::plain(mpi, 4, bruckner).across(nodes).patiently();
        let path = file.display().to_string();
        let words = ["tune", "-o", &path, "--budget", "5s", "--collectives", "allreduce", "--bytes", "8"];
        let said = words.into_iter().fold(launch, Launch::argument).run()?;
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let read = Profile::read(&text);
        let raced = read.is_ok_and(|(profile, dropped)| {
            let verdicts = profile.raced.first().map(|raced| &raced.verdicts[..]).unwrap_or_default();
            dropped.is_empty() && verdicts.len() == 1 && verdicts[0].launches <= launches
        });
        judge(&said, said.succeeded && raced);
    }
    let across = mpi.compile_plain("across")?;
    let launch = Launch::preloaded(mpi, 4, &across).across(nodes).patiently().argument("2").argument("200");
    let launch = launch.set("BRUCKNER_PROFILE", file.display().to_string()).set("BRUCKNER_REPORT", "stderr");
    let said = launch.run()?;
    judge(&said, said.succeeded && !said.err.contains("not used"));
    Ok(outcome)
}

/// Messages take at least the wire's time, a millisecond and 8.4 for a megabyte, and everything on the node was found. How much more
/// they take depends on what else the machine does, and is printed.
fn is_that_wire(profile: &str) -> bool {
    let Ok(machine) = Machine::read(profile) else { return false };
    let (short, long) = (machine.network.protocol(8), machine.network.protocol(1 << 20));
    // Of the bytes alone that cannot be said: connections warm up while they send, so longer messages have faster bytes.
    let megabyte = long.latency + long.per_byte * f64::from(1 << 20);
    let rank = &machine.rank;
    println!("a message of 8 B: {:.2} ms; of 1 MiB: {:.1} ms", short.latency * 1e3, megabyte * 1e3);
    short.latency >= 1e-3
        && megabyte >= 8e-3
        && machine.socket.is_some()
        && rank.flag.is_some_and(|flag| flag > 0.0)
        && machine.network.gap.is_some()
        && rank.copy > 0.0
}

/// Two uneven nodes 2 ms apart.
fn across_a_wire(table: &mut Table) -> Result<()> {
    let nodes = Cluster::up(&Shape::of(&["--nodes", "3,1", "--delay", "2ms", "--rate", "1gbit"])?)?;
    for mpi in table.of(&[Mpi::Openmpi4, Mpi::Mpich4, Mpi::Openmpi5, Mpi::Mpich5, Mpi::Intel]) {
        let across = mpi.compile_plain("across")?;
        let of = |launch: Launch<'_>| launch.across(&nodes).patiently().argument("2").argument("2000").test();
        // MPICH 4 alone hangs now and then over UCX's TCP where ranks outnumber cores.
        let mut native = of(Launch::plain(mpi, 4, &across).limit(180))?;
        for _ in 0..2 {
            if native.failures > 0 && mpi == Mpi::Mpich4 {
                native = of(Launch::plain(mpi, 4, &across).limit(180))?;
            }
        }
        table.tell(mpi.name(), "a wire of 2 ms, native", 4, &native);
        let served = of(Launch::preloaded(mpi, 4, &across).set("BRUCKNER", "always"))?;
        table.tell(mpi.name(), "a wire of 2 ms", 4, &served);
    }
    Ok(())
}

fn reached_or_not(table: &mut Table) -> Result<()> {
    let nodes = Cluster::up(&Shape::of(&["--nodes", "2", "--ppn", "2"])?)?;
    let ways = [
        (Way::Exec, "bruckner exec"),
        (Way::Before, "LD_PRELOAD before mpirun"),
        (Way::Option, "LD_PRELOAD by an option"),
        (Way::Withheld, "LD_PRELOAD not handed on"),
        (Way::OneOfTwo, "one of two programs"),
        (Way::Script, "a script takes it from a rank"),
        (Way::Through, "exec --through a script"),
        (Way::Inside, "bruckner exec inside a script"),
    ];
    for mpi in table.of(&[Mpi::Openmpi4, Mpi::Mpich4, Mpi::Openmpi5, Mpi::Mpich5, Mpi::Intel]) {
        for (way, name) in ways {
            // Hydra's environments are one for all programs, and only it can be told not to hand them on.
            let fits = match way {
                Way::Withheld => mpi == Mpi::Mpich5 || mpi == Mpi::Mpich4,
                Way::OneOfTwo => mpi.is_open_mpi(),
                _ => true,
            };
            if fits {
                table.tell(mpi.name(), &format!("two nodes, {name}"), 4, &tried(mpi, &nodes, way)?);
            }
        }
    }
    Ok(())
}

fn tried(mpi: Mpi, nodes: &Cluster, way: Way) -> Result<Outcome> {
    let program = mpi.compile_plain("tooled")?;
    let bruckner = root().join("target/release/bruckner");
    let report = home().join("nodes-report.json");
    let mut outcome = Outcome::default();
    for switched_off in [false, true] {
        let _ = std::fs::remove_file(&report);
        let file = report.display().to_string();
        let of = |program| {
            let launch = Launch::plain(mpi, 4, program).across(nodes).set("BRUCKNER_REPORT", file.clone());
            let launch = launch.set("BRUCKNER_ALGORITHM", "allreduce=locality(node)");
            // Over TCP it does not come to its end where ranks outnumber cores; it may go round the wire here.
            if mpi == Mpi::Mpich4 { launch.set("UCX_TLS", "all") } else { launch }
        };
        let shown = program.display().to_string();
        let exec = |launch: Launch<'_>| launch.argument(&shown).run();
        let launch = match way {
            Way::Exec | Way::OneOfTwo | Way::Script | Way::Through => of(&bruckner),
            Way::Inside => of(Path::new("/bin/sh")),
            Way::Before | Way::Withheld => of(&program).set("LD_PRELOAD", library().display().to_string()),
            Way::Option => of(&program).preload(&library()),
        };
        let launch = if switched_off { launch.set("BRUCKNER", "off") } else { launch };
        let said: Said = match way {
            Way::Exec => exec(launch.argument("exec"))?,
            Way::OneOfTwo => {
                // Two ranks of each.
                let launch = launch.option("-n").option("2").argument("exec");
                let launch = launch.argument(program.display().to_string()).argument(":");
                launch.argument("-n").argument("2").argument(program.display().to_string()).run()?
            }
            Way::Withheld => launch.option("-genvnone").run()?,
            // As sites wrap programs: a script, which ends in running what it is given.
            Way::Script => {
                let rank = "${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-$PMIX_RANK}}";
                let script = format!("if [ \"{rank}\" = 1 ]; then unset LD_PRELOAD; fi; exec \"$@\"");
                exec(
                    launch
                        .argument("exec")
                        .argument("/bin/sh")
                        .argument("-c")
                        .argument(script)
                        .argument("sh"),
                )?
            }
            Way::Through => {
                let launch = launch.argument("exec").argument("--through").argument("/bin/sh").argument("-c");
                exec(launch.argument("exec \"$@\"").argument("sh"))?
            }
            Way::Inside => exec(
                launch
                    .argument("-c")
                    .argument(format!("exec {} exec \"$@\"", bruckner.display()))
                    .argument("sh"),
            )?,
            Way::Before | Way::Option => launch.run()?,
        };
        outcome.seconds += said.seconds;
        outcome.cases += 1;
        // Whether Open MPI's ranks all have the library, only the mark of `bruckner exec` tells.
        let known = matches!(way, Way::Exec | Way::Through | Way::Inside)
            || (!mpi.is_open_mpi() && matches!(way, Way::Before | Way::Option));
        let right = said.succeeded && said.out.contains("cases 100 failures 0");
        let text = std::fs::read_to_string(&report).unwrap_or_default();
        let served = text.contains(r#""algorithm": "locality(node)""#) && text.contains("2x2");
        let told = said.err.matches("bruckner: everything stays with the MPI").count();
        let expected = if switched_off { (false, 0) } else { (known, usize::from(!known)) };
        if !right || (served, told) != expected {
            outcome.failures += 1;
            outcome.talk += &format!("served {served}, told {told} times:\n{}{}{text}\n", said.out, said.err);
        }
    }
    Ok(outcome)
}
