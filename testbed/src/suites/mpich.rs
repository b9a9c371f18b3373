//! MPICH's own tests of collectives, on MPICH and on Open MPI: verdicts must be the same with and without the library, and with every
//! algorithm of a program's collective forced in turn. A quick run repeats a program without the library only if it fails with it.

use std::path::PathBuf;

use anyhow::Result;

use super::Table;
use super::catalogue::algorithms;
use crate::launch::{Launch, Outcome};
use crate::mpis::Mpi;
use crate::setup::mpich_suite;

/// A line of MPICH's list of tests.
struct Line {
    program: String,
    ranks: u32,
    arguments: Vec<String>,
}

fn lines(mpi: Mpi) -> Result<Vec<Line>> {
    let text = std::fs::read_to_string(mpich_suite(mpi).join("coll/testlist"))?;
    let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split_whitespace();
        let (program, ranks) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        let arguments = words.filter_map(|word| word.strip_prefix("arg=")).map(str::to_owned).collect();
        Some(Line { program, ranks, arguments })
    });
    Ok(lines.collect())
}

/// Returns the collective that a program tests, if it tests a single one.
fn collective(program: &str) -> Option<&'static str> {
    let name = program.trim_start_matches("p_").trim_start_matches("op");
    let starts = |prefix: &str| name.starts_with(prefix);
    Some(match () {
        () if starts("allred") || program.starts_with("op") || starts("longuser") || starts("coll9") => "allreduce",
        () if starts("allgather") || starts("coll2") || starts("coll6") || starts("coll7") => "allgather",
        () if starts("redscat") || starts("red_scat") => "reduce_scatter",
        () if starts("red") || starts("coll8") => "reduce",
        () if starts("alltoallw") => return None,
        () if starts("alltoall") || starts("coll13") => "alltoall",
        () if starts("bcast") => "bcast",
        () if starts("barrier") => "barrier",
        () => return None,
    })
}

impl Line {
    fn binary(&self, mpi: Mpi) -> PathBuf {
        mpich_suite(mpi).join("coll").join(&self.program)
    }

    fn text(&self) -> String {
        format!("{} {} {}", self.program, self.ranks, self.arguments.join(" ")).trim_end().to_owned()
    }

    /// Runs the program; returns whether it reports no errors, its time in seconds, and its output.
    fn passes(&self, mpi: Mpi, settings: Option<&[(&'static str, String)]>) -> Result<(bool, f64, String)> {
        let binary = self.binary(mpi);
        let mut launch = match settings {
            None => Launch::plain(mpi, self.ranks, &binary),
            Some(_) => Launch::preloaded(mpi, self.ranks, &binary),
        };
        for argument in &self.arguments {
            launch = launch.argument(argument);
        }
        for (name, value) in settings.unwrap_or_default() {
            launch = launch.set(name, value);
        }
        let said = launch.oversubscribed().run()?;
        let passes = said.succeeded && said.out.contains("No Errors");
        Ok((passes, said.seconds, format!("{}{}", said.out, said.err)))
    }
}

pub(crate) fn run(table: &mut Table, quick: bool) -> Result<()> {
    for mpi in table.of(&[Mpi::Mpich4, Mpi::Openmpi4]) {
        let lines: Vec<Line> = lines(mpi)?.into_iter().filter(|line| line.binary(mpi).exists()).collect();
        let built = lines.len();
        let mut chosen: Vec<&Line> = lines.iter().collect();
        if quick {
            chosen = chosen.into_iter().filter(|line| line.ranks <= 5).step_by(4).collect();
        }
        let mut always = Outcome::default();
        let mut forced = Outcome::default();
        // Lines that pass only with the library, because the results of their MPI are wrong.
        let mut mended: Vec<String> = Vec::new();
        for (number, line) in chosen.iter().enumerate() {
            let (without, first, _) = if quick { (true, 0.0, String::new()) } else { line.passes(mpi, None)? };
            let mut compare = |outcome: &mut Outcome, settings: &[(&'static str, String)]| -> Result<()> {
                let (with, seconds, talk) = line.passes(mpi, Some(settings))?;
                outcome.seconds += seconds;
                // Some tests fail by chance even without the library: the verdict is accepted if the MPI alone shows it in one of three
                // more runs.
                let mut same = with == without;
                for _ in 0..3 {
                    // No further run once the verdicts agree.
                    same = same || line.passes(mpi, None)?.0 == with;
                }
                if with && !same {
                    mended.push(line.text());
                }
                if !with && !same {
                    outcome.talk += &format!("{} {settings:?}: {without} without, {with} with\n{talk}\n", line.text());
                }
                outcome.cases += 1;
                outcome.failures += u64::from(!with && !same);
                Ok(())
            };
            let mode = ("BRUCKNER", "always".to_owned());
            always.seconds += first;
            compare(&mut always, std::slice::from_ref(&mode))?;
            let Some(name) = collective(&line.program) else { continue };
            let all = algorithms(name, line.ranks);
            // A quick run forces one algorithm, a different one for each line.
            let some: Vec<&String> = match quick {
                true => all.iter().skip(number % all.len().max(1)).take(1).collect(),
                false => all.iter().collect(),
            };
            if !quick {
                // A full run takes long, so it prints its progress.
                let (at, of, number) = (number + 1, chosen.len(), some.len());
                eprintln!("{} {at} of {of}: {}, {number} algorithms", mpi.name(), line.text());
            }
            for algorithm in some {
                let rule = ("BRUCKNER_ALGORITHM", format!("{name}={algorithm}"));
                compare(&mut forced, &[mode.clone(), rule])?;
            }
        }
        let ranks = chosen.iter().map(|line| line.ranks).max().unwrap_or(0);
        table.tell(mpi.name(), &format!("MPICH's tests, {} of {built} lines", chosen.len()), ranks, &always);
        table.tell(mpi.name(), "MPICH's tests, algorithms forced", ranks, &forced);
        mended.dedup();
        for line in mended {
            println!("{:<10} `{line}` passes only with the library", mpi.name());
        }
    }
    Ok(())
}
