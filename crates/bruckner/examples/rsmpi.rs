//! Bruckner in a Rust program that uses rsmpi: `mpirun -n 4 rsmpi`.
//!
//! Every rank sums, gathers, and runs a plan a few times.

use bruckner::Operation;
use bruckner::rsmpi::Collectives;
use mpi::traits::*;

fn main() -> Result<(), bruckner::Error> {
    let universe = mpi::initialize().expect("MPI starts");
    let world = universe.world();
    let (rank, size) = (world.rank() as u64, world.size() as u64);

    // The same communicator, for Bruckner's collectives.
    let fast = world.bruckner()?;

    let mut sum = [0u64];
    fast.allreduce(&[rank + 1], &mut sum, Operation::Sum)?.run()?;
    assert_eq!(sum[0], size * (size + 1) / 2);

    let mut all = vec![0u64; size as usize];
    fast.allgather(&[rank * rank], &mut all)?.run()?;
    assert!(all.iter().enumerate().all(|(r, square)| *square == (r * r) as u64));

    // A plan borrows its buffers, and starting it costs next to nothing.
    let mut largest = [0.0f64];
    let mine = [1.0 / (rank as f64 + 1.0)];
    let mut plan = fast.allreduce(&mine, &mut largest, Operation::Max)?.plan("recursive-doubling")?;
    for _ in 0..10 {
        plan.overlap(|progress| {
            // Application work goes here. This call advances the plan; MPI calls do not.
            progress.advance()
        })??;
    }
    plan.run()?;
    drop(plan);
    assert_eq!(largest[0], 1.0);

    if rank == 0 {
        println!("{size} ranks: the sum is {}", sum[0]);
    }
    Ok(())
}
