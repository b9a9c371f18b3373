//! Tests on emulated nodes: messages take the delay of the wire, `bruckner probe` and `tune` measure it, and results stay right during
//! online tuning and with exported files. If the library reaches only some ranks, nothing hangs.

use std::path::Path;

use anyhow::Result;
use bruckner_choose::Profile;
use bruckner_model::Machine;

use super::Table;
use crate::cluster::{Cluster, Shape};
use crate::launch::{Launch, Outcome, Output, library};
use crate::mpis::{Mpi, home, root};

/// Way in which the library is loaded into a program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LoadMethod {
    /// `mpirun bruckner exec PROGRAM`.
    Exec,
    /// `LD_PRELOAD=… mpirun PROGRAM`.
    Before,
    /// `LD_PRELOAD`, set by an option of the launcher.
    Option,
    /// `LD_PRELOAD=… mpirun -genvnone PROGRAM`: Hydra passes no environment on.
    Withheld,
    /// `bruckner exec` before only one of two programs of the job.
    OneOfTwo,
    /// `mpirun bruckner exec SCRIPT PROGRAM`, with a script that unsets `LD_PRELOAD` on rank 1.
    Script,
    /// `mpirun bruckner exec --through SCRIPT PROGRAM`, with a script that runs the program.
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

/// Runs a program long enough for online tuning, on one node and on two.
fn watched(table: &mut Table) -> Result<()> {
    let nodes = Cluster::up(&Shape::of(&["--nodes", "2", "--ppn", "2", "--delay", "50us", "--rate", "1gbit"])?)?;
    let bruckner = root().join("target/release/bruckner");
    for mpi in table.of(Mpi::CURRENT) {
        let program = mpi.compile_plain("watched")?;
        let exec = |launch: Launch<'_>, calls: &str| {
            let launch = launch.oversubscribed().argument("exec").argument(program.display().to_string());
            launch.argument(calls).set("BRUCKNER_PROFILE", "off").test()
        };
        let here = exec(Launch::plain(mpi, 4, &bruckner), "1200")?;
        table.tell(mpi.name(), "online tuning, one node", 4, &here);
        let there = exec(Launch::plain(mpi, 4, &bruckner).across(&nodes), "1200")?;
        table.tell(mpi.name(), "online tuning, two nodes", 4, &there);
    }
    Ok(())
}

/// Returns a profile for an MPI as text, with the MPI's fastest setting for each of some sizes of a collective.
fn natives(mpi: &str, topology: &str, found: &[(&str, &[&str])]) -> String {
    let mut text = format!(
        "name = 'm'\nabout = ''\n[network]\nsource = ''\nprotocols = [{{ latency = 1e-6, per_byte = 1e-9 }}]\n\
         [tune]\nversion = 2\nmpi = \"{mpi}\"\n[[native]]\ntopology = \"{topology}\"\nsettings = [\n"
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

/// Checks that an MPI accepts exported files, whichever of its own algorithms they select, and computes right results.
fn exported(table: &mut Table) -> Result<()> {
    let nodes = Cluster::up(&Shape::of(&["--nodes", "2", "--ppn", "2"])?)?;
    let bruckner = root().join("target/release/bruckner");
    for mpi in table.of(Mpi::CURRENT) {
        let (format, name, topology, found): (_, _, _, &[(&str, &[&str])]) = match mpi {
            Mpi::Openmpi5 => (
                "open-mpi",
                "Open MPI 5.0.11",
                "2x2",
                &[
                    ("allgather", &["without HAN", "tuned linear", "tuned bruck", "tuned ring", "tuned sparbit"]),
                    ("allreduce", &["tuned basic_linear", "", "tuned recursive_doubling", "tuned rabenseifner"]),
                    ("alltoall", &["tuned linear", "tuned pairwise", "tuned modified_bruck", "tuned linear_sync"]),
                    ("reduce_scatter", &["tuned recursive_doubling", "tuned butterfly", "", "tuned basic_linear"]),
                ],
            ),
            Mpi::Mpich5 => (
                "mpich",
                "MPICH 5.0.2",
                "1x4",
                &[
                    ("allgather", &["brucks", "ring"]),
                    ("allreduce", &["recursive_doubling", "ring", "composition 1", "composition 2", "composition 3"]),
                    ("alltoall", &["brucks", "pairwise", "", "scattered"]),
                    ("reduce_scatter", &["recursive_doubling", "pairwise", "recursive_halving"]),
                ],
            ),
            _ => (
                "intel",
                "Intel MPI 2021.18",
                "1x4",
                &[("allreduce", &["I_MPI_ADJUST_ALLREDUCE=1", "I_MPI_ADJUST_ALLREDUCE=2", "I_MPI_ADJUST_ALLREDUCE=8"])],
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
            (outcome.failures, outcome.talk) = (1, format!("{text}{}", String::from_utf8_lossy(&said.stderr)));
        }
        // MPICH can be told to treat ranks of one machine as several nodes: settings for one node must not apply then.
        let more: &[&[&str]] = match mpi {
            Mpi::Mpich5 => &[&[], &["MPIR_CVAR_NUM_CLIQUES=2"], &["MPIR_CVAR_ODD_EVEN_CLIQUES=1"]],
            _ => &[&[]],
        };
        let program = mpi.compile_plain("tuned")?;
        for more in more {
            let launch = Launch::plain(mpi, 4, Path::new("/usr/bin/env")).oversubscribed();
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

/// Checks that `bruckner probe` measures the emulated wire, and that it refuses an output file that cannot be written.
fn probed(table: &mut Table) -> Result<()> {
    let nodes = Cluster::up(&Shape::of(&["--nodes", "2", "--ppn", "2", "--delay", "1ms", "--rate", "1gbit"])?)?;
    let bruckner = root().join("target/release/bruckner");
    let file = home().join("probed.toml");
    for mpi in table.of(&[Mpi::Openmpi5, Mpi::Mpich5]) {
        let mut outcome = Outcome::default();
        for path in [file.clone(), home().join("no such directory/probed.toml")] {
            let _ = std::fs::remove_file(&path);
            let launch = Launch::plain(mpi, 4, &bruckner).across(&nodes).oversubscribed();
            let launch = launch.argument("probe").argument("-o").argument(path.display().to_string());
            // If the machine was not quiet, `bruckner probe` prints that, and its figures mean nothing: it is run again.
            let mut said = launch.run()?;
            for _ in 0..2 {
                if said.out.contains("other load disturbed the measurement") {
                    said = launch.run()?;
                }
            }
            outcome.cases += 1;
            outcome.seconds += said.seconds;
            let right = match path == file {
                true => said.succeeded && std::fs::read_to_string(&path).is_ok_and(|text| is_that_wire(&text)),
                // A file that cannot be written is refused before anything is measured.
                false => !said.succeeded && said.err.contains("No such file") && !said.out.contains("one pair"),
            };
            if !right {
                outcome.failures += 1;
                outcome.talk += &format!("{}{}", said.out, said.err);
            }
        }
        table.tell(mpi.name(), "bruckner probe, delay of 1 ms", 4, &outcome);
        if mpi == Mpi::Openmpi5 {
            table.tell(mpi.name(), "bruckner tune, a wire of 1 ms", 4, &tuned(mpi, &nodes, &bruckner)?);
        }
    }
    Ok(())
}

/// Runs `bruckner tune` in two launches, which makes a profile with a result for the allreduce; the library must then use it.
fn tuned(mpi: Mpi, nodes: &Cluster, bruckner: &Path) -> Result<Outcome> {
    let file = home().join("tuned.toml");
    let _ = std::fs::remove_file(&file);
    let mut outcome = Outcome::default();
    let mut judge = |said: &Output, right: bool| {
        outcome.cases += 1;
        outcome.seconds += said.seconds;
        if !right {
            outcome.failures += 1;
            outcome.talk += &format!("{}{}", said.out, said.err);
        }
    };
    for launches in 1..=2 {
        let launch = Launch::plain(mpi, 4, bruckner).across(nodes).oversubscribed();
        let path = file.display().to_string();
        let words = ["tune", "-o", &path, "--budget", "5s", "--collectives", "allreduce", "--bytes", "8"];
        let said = words.into_iter().fold(launch, Launch::argument).run()?;
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let read = Profile::read(&text);
        let raced = read.is_ok_and(|(profile, dropped)| {
            let verdicts = profile.results.first().map(|raced| &raced.results[..]).unwrap_or_default();
            dropped.is_empty() && verdicts.len() == 1 && verdicts[0].launches <= launches
        });
        judge(&said, said.succeeded && raced);
    }
    let across = mpi.compile_plain("across")?;
    let launch = Launch::preloaded(mpi, 4, &across).across(nodes).oversubscribed().argument("2").argument("200");
    let launch = launch.set("BRUCKNER_PROFILE", file.display().to_string()).set("BRUCKNER_REPORT", "stderr");
    let said = launch.run()?;
    judge(&said, said.succeeded && !said.err.contains("not used") && !said.err.contains("ignored"));
    Ok(outcome)
}

/// Whether a profile fits the wire: a short message takes at least 1 ms, a megabyte at least 8 ms, and all costs within the node are
/// known. Both times are printed, but have no upper limit, because they also depend on other load of the machine.
fn is_that_wire(profile: &str) -> bool {
    let Ok(machine) = Machine::read(profile) else { return false };
    let (short, long) = (machine.network.protocol(8), machine.network.protocol(1 << 20));
    // The time per byte alone proves nothing: connections warm up while they send, so longer messages have faster bytes.
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

/// Runs a program on two uneven nodes 2 ms apart, without and with the library.
fn across_a_wire(table: &mut Table) -> Result<()> {
    let nodes = Cluster::up(&Shape::of(&["--nodes", "3,1", "--delay", "2ms", "--rate", "1gbit"])?)?;
    for mpi in table.of(&[Mpi::Openmpi4, Mpi::Mpich4, Mpi::Openmpi5, Mpi::Mpich5, Mpi::Intel]) {
        let across = mpi.compile_plain("across")?;
        let of = |launch: Launch<'_>| launch.across(&nodes).oversubscribed().argument("2").argument("2000").test();
        // MPICH 4 alone hangs now and then over UCX's TCP where ranks outnumber cores.
        let mut native = of(Launch::plain(mpi, 4, &across).limit(180))?;
        for _ in 0..2 {
            if native.failures > 0 && mpi == Mpi::Mpich4 {
                native = of(Launch::plain(mpi, 4, &across).limit(180))?;
            }
        }
        table.tell(mpi.name(), "a wire of 2 ms, native", 4, &native);
        let handled = of(Launch::preloaded(mpi, 4, &across).set("BRUCKNER", "always"))?;
        table.tell(mpi.name(), "a wire of 2 ms", 4, &handled);
    }
    Ok(())
}

fn reached_or_not(table: &mut Table) -> Result<()> {
    let nodes = Cluster::up(&Shape::of(&["--nodes", "2", "--ppn", "2"])?)?;
    let ways = [
        (LoadMethod::Exec, "bruckner exec"),
        (LoadMethod::Before, "LD_PRELOAD before mpirun"),
        (LoadMethod::Option, "LD_PRELOAD by an option"),
        (LoadMethod::Withheld, "LD_PRELOAD not passed on"),
        (LoadMethod::OneOfTwo, "library in one of two programs"),
        (LoadMethod::Script, "script unsets LD_PRELOAD on a rank"),
        (LoadMethod::Through, "exec --through a script"),
        (LoadMethod::Inside, "bruckner exec inside a script"),
    ];
    for mpi in table.of(&[Mpi::Openmpi4, Mpi::Mpich4, Mpi::Openmpi5, Mpi::Mpich5, Mpi::Intel]) {
        for (way, name) in ways {
            // Hydra has one environment for all programs of a job, and only Hydra has an option to pass none on.
            let fits = match way {
                LoadMethod::Withheld => mpi == Mpi::Mpich5 || mpi == Mpi::Mpich4,
                LoadMethod::OneOfTwo => mpi.is_open_mpi(),
                _ => true,
            };
            if fits {
                table.tell(mpi.name(), &format!("two nodes, {name}"), 4, &tried(mpi, &nodes, way)?);
            }
        }
    }
    Ok(())
}

fn tried(mpi: Mpi, nodes: &Cluster, way: LoadMethod) -> Result<Outcome> {
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
            // Over TCP, MPICH 4 does not finish where ranks outnumber cores; here it may use shared memory instead of the wire.
            if mpi == Mpi::Mpich4 { launch.set("UCX_TLS", "all") } else { launch }
        };
        let shown = program.display().to_string();
        let exec = |launch: Launch<'_>| launch.argument(&shown).run();
        let launch = match way {
            LoadMethod::Exec | LoadMethod::OneOfTwo | LoadMethod::Script | LoadMethod::Through => of(&bruckner),
            LoadMethod::Inside => of(Path::new("/bin/sh")),
            LoadMethod::Before | LoadMethod::Withheld => {
                of(&program).set("LD_PRELOAD", library().display().to_string())
            }
            LoadMethod::Option => of(&program).preload(&library()),
        };
        let launch = if switched_off { launch.set("BRUCKNER", "off") } else { launch };
        let said: Output = match way {
            LoadMethod::Exec => exec(launch.argument("exec"))?,
            LoadMethod::OneOfTwo => {
                // Two ranks run each program.
                let launch = launch.option("-n").option("2").argument("exec");
                let launch = launch.argument(program.display().to_string()).argument(":");
                launch.argument("-n").argument("2").argument(program.display().to_string()).run()?
            }
            LoadMethod::Withheld => launch.option("-genvnone").run()?,
            // Sites wrap programs in scripts like this, which end by running their arguments.
            LoadMethod::Script => {
                let rank = "${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-$PMIX_RANK}}";
                let script = format!("if [ \"{rank}\" = 1 ]; then unset LD_PRELOAD; fi; exec \"$@\"");
                exec(launch.argument("exec").argument("/bin/sh").argument("-c").argument(script).argument("sh"))?
            }
            LoadMethod::Through => {
                let launch = launch.argument("exec").argument("--through").argument("/bin/sh").argument("-c");
                exec(launch.argument("exec \"$@\"").argument("sh"))?
            }
            LoadMethod::Inside => {
                exec(launch.argument("-c").argument(format!("exec {} exec \"$@\"", bruckner.display())).argument("sh"))?
            }
            LoadMethod::Before | LoadMethod::Option => launch.run()?,
        };
        outcome.seconds += said.seconds;
        outcome.cases += 1;
        // With Open MPI, ranks learn whether all of them have the library only from a mark that `bruckner exec` sets.
        let known = matches!(way, LoadMethod::Exec | LoadMethod::Through | LoadMethod::Inside)
            || (!mpi.is_open_mpi() && matches!(way, LoadMethod::Before | LoadMethod::Option));
        let right = said.succeeded && said.out.contains("cases 100 failures 0");
        let text = std::fs::read_to_string(&report).unwrap_or_default();
        let handled = text.contains(r#""algorithm": "locality(node)""#) && text.contains("2x2");
        let told = said.err.matches("bruckner: all calls are passed through to the MPI").count();
        let expected = if switched_off { (false, 0) } else { (known, usize::from(!known)) };
        if !right || (handled, told) != expected {
            outcome.failures += 1;
            outcome.talk +=
                &format!("handled: {handled}, notice printed {told} times:\n{}{}{text}\n", said.out, said.err);
        }
    }
    Ok(outcome)
}
