# A Rust developer: a dependency line, a program, its documentation.
cargo new --quiet sums
cd sums
cargo add --quiet --path "$SOURCE/crates/bruckner" bruckner
cat > src/main.rs <<'RUST'
use bruckner::Operation;

fn main() -> Result<(), bruckner::Error> {
    let universe = bruckner::init()?;
    let world = universe.world()?;
    let mut sum = [0];
    world.allreduce(&[world.rank()? + 1], &mut sum, Operation::Sum)?.run()?;
    if let Err(error) = world.bcast(&mut sum, 99) {
        if world.rank()? == 0 {
            println!("the sum is {}; {error}", sum[0]);
        }
    }
    Ok(())
}
RUST
cargo build --quiet
mpirun -n 2 target/debug/sums | grep 'the sum is 3; root 99 is not one of 2 ranks'
