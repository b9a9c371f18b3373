//! `bruckner doctor`: which MPI there is, what the library sees of the machine, and what is wrong.

use std::fmt::Write as _;

use anyhow::Result;
use bruckner::{Communicator, Name, Operation};
use bruckner_engine::{Engine, Mpi};
use clap::Args;

use crate::{Answer, print};

/// Looks at the MPI, the topology and the shared memory; under mpirun, of all its ranks
#[derive(Args)]
pub(crate) struct Doctor {}

impl Doctor {
    pub(crate) fn run(&self) -> Result<Answer> {
        let mpi = match Mpi::find_or_load() {
            Ok(mpi) => mpi,
            Err(error) => {
                print(&format!("MPI            none: {error}\n"))?;
                return Ok(Answer::DoesNotHold);
            }
        };
        mpi.start()?;
        let examined = examine(mpi);
        let first = mpi.rank(mpi.world())? == 0;
        let answer = match examined {
            Ok((text, answer)) => {
                if first {
                    print(&text)?;
                }
                answer
            }
            Err(error) => {
                if first {
                    print(&format!("wrong          {error:#}\n"))?;
                }
                Answer::DoesNotHold
            }
        };
        mpi.stop()?;
        Ok(answer)
    }
}

/// What there is to tell. Collective.
fn examine(mpi: &'static Mpi) -> Result<(String, Answer)> {
    let engine = Engine::get()?;
    engine.init()?;
    let world = mpi.world();
    let mut wrong: Vec<String> = Vec::new();
    let (major, minor) = mpi.standard();
    let mut text = String::new();
    writeln!(text, "MPI            {}", mpi.name())?;
    writeln!(text, "library        {}", mpi.library.path.display())?;
    writeln!(text, "family         {}, MPI {major}.{minor}", mpi.family.name())?;
    let found = engine.findings()?;
    writeln!(text, "ranks          {}", found.ranks)?;
    writeln!(text, "topology       {}", found.topology)?;
    writeln!(
        text,
        "cores          {}",
        if found.shared_cores { "shared: ranks outnumber them" } else { "one for each rank" }
    )?;
    writeln!(
        text,
        "shared memory  {}",
        if found.shared_memory { "yes" } else { "no: ranks of a node exchange messages" }
    )?;
    writeln!(text, "direct reads   {}", if found.reads { "yes" } else { "no" })?;
    if !found.shared_memory && std::env::var("BRUCKNER_SHM").as_deref() != Ok("off") {
        wrong.push("the ranks of a node cannot attach one POSIX shared memory object; is /dev/shm mounted and shared?".into());
    }
    wrong.extend(found.complaints);
    // A collective that all can check.
    let mut sum = [0u64];
    let mine = [u64::from(mpi.rank(world)?) + 1];
    let ran = Communicator::world()?.allreduce(&mine, &mut sum, Operation::Sum)?.run();
    let ranks = u64::from(found.ranks);
    let right = ran.is_ok() && sum[0] == ranks * (ranks + 1) / 2;
    let by = engine.algorithm_of(world, Name::Allreduce)?.unwrap_or_else(|| "native".into());
    writeln!(text, "a test         an allreduce by {by}: {}", if right { "right" } else { "WRONG" })?;
    if !right {
        wrong.push("an allreduce gave a wrong result".into());
    }
    for complaint in &wrong {
        writeln!(text, "wrong          {complaint}")?;
    }
    if wrong.is_empty() {
        writeln!(text, "nothing is wrong")?;
    }
    Ok((text, if wrong.is_empty() { Answer::Holds } else { Answer::DoesNotHold }))
}
