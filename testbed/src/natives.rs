//! `cargo testbed natives`: whether the MPIs' own functions take as long as the algorithms of ours that send the same messages, on emulated
//! nodes with a delay that hides everything but messages between nodes.

use anyhow::{Context as _, Result, bail};
use bruckner_choose::{NativeAlgorithm, Vendor, native_algorithm};
use bruckner_measure::{JoinedCase, Results, TimingMethod, bytes_text, join_cases, native, time_text};
use bruckner_model::Shape;
use bruckner_schedule::Collective;

use crate::measure::{Run, measure, with_algorithms};
use crate::mpis::Mpi;

const MPIS: [(Mpi, Vendor); 2] = [(Mpi::Openmpi5, Vendor::OpenMpi), (Mpi::Mpich5, Vendor::Mpich)];
/// Numbers of nodes, and of ranks on each.
const SHAPES: [(u32, u32); 2] = [(2, 1), (4, 4)];
const DELAY: u32 = 500;
const SIZES: [u64; 6] = [8, 64, 512, 4096, 32_768, 131_072];
/// Largest acceptable relative difference of the two times, and the share of cases in which it must hold.
const NEAR: f64 = 0.15;
const SHARE: f64 = 0.8;

fn shape_of((nodes, on_node): (u32, u32)) -> Shape {
    Shape { nodes, on_node, in_order: true }
}

/// Returns what an MPI's own function is taken to do for each size.
fn taken(vendor: Vendor, collective: Collective, shape: (u32, u32)) -> Vec<(u64, NativeAlgorithm)> {
    let of = |bytes| Some((bytes, native_algorithm(vendor, collective, shape_of(shape), bytes)?));
    SIZES.into_iter().filter_map(of).collect()
}

/// Returns the measurements of an MPI on nodes of a shape: each algorithm that its functions are compared with, at all sizes.
fn runs(mpi: Mpi, vendor: Vendor, shape: (u32, u32)) -> Vec<Run> {
    let sizes = SIZES.map(|bytes| bytes.to_string()).join(",");
    let run = |collective: Collective| {
        let mut likes: Vec<String> = taken(vendor, collective, shape)
            .into_iter()
            .filter_map(|(_, native)| Some(native.like?.to_string()))
            .collect();
        likes.sort();
        likes.dedup();
        let likes: Vec<&str> = likes.iter().map(String::as_str).collect();
        let ask = with_algorithms(&[&collective.to_string(), "--bytes", &sizes], &likes);
        let name = format!("natives-{}-{}x{}", mpi.name(), shape.0, shape.1);
        (!likes.is_empty()).then(|| Run::new(&name, mpi, shape, DELAY, ask))
    };
    Collective::ALL.into_iter().filter_map(run).collect()
}

/// Returns the times of the MPI's own function and of an algorithm, in seconds, if both were measured.
fn times(case: &JoinedCase<'_>, like: &str) -> Option<[f64; 2]> {
    let time = |contender| Some(case.times(contender, like, TimingMethod::FromBarrier)?.median);
    Some([time(native::NATIVE)?, time(like)?])
}

/// Measures all cases that have no results yet, and prints them. Returns an error if the times differ in too many cases.
pub(crate) fn run(launches: u32, seconds: f64, again: bool) -> Result<()> {
    let (mut near, mut compared, mut without) = (0, 0, 0);
    println!("The MPI's own function, and our algorithm with the same messages; {DELAY} us, 1 Gbit/s");
    for (mpi, vendor) in MPIS {
        for shape in SHAPES {
            let runs = runs(mpi, vendor, shape);
            measure(&runs, launches, seconds, again)?;
            let results = Results::read(&runs.first().context("a measurement")?.results())?;
            for case in join_cases(&results) {
                let named = |of: &Collective| of.to_string() == case.collective;
                let collective = Collective::ALL.into_iter().find(named).context("a collective")?;
                let native = native_algorithm(vendor, collective, shape_of(shape), case.bytes).context("public")?;
                let what = format!(
                    "{:<9} {}x{} {:<15} {:>8}",
                    mpi.name(),
                    shape.0,
                    shape.1,
                    case.collective,
                    bytes_text(case.bytes)
                );
                let like = native.like.map(|like| like.to_string());
                let Some([own, ours]) = like.as_deref().and_then(|like| times(&case, like)) else {
                    without += 1;
                    println!("{what}  {} ({}): nothing like it", native.name, native.place);
                    continue;
                };
                let is_near = (own / ours).ln().abs() <= (1.0 + NEAR).ln();
                near += u32::from(is_near);
                compared += 1;
                println!(
                    "{what}  {:>10} {:>10}  {:.2}{}  {} ({}) like {}",
                    time_text(own),
                    time_text(ours),
                    own / ours,
                    if is_near { "" } else { "  differs" },
                    native.name,
                    native.place,
                    like.unwrap_or_default()
                );
            }
        }
    }
    println!("{near} of {compared} cases within {:.0} %; {without} without an algorithm like it", NEAR * 100.0);
    if f64::from(near) < SHARE * f64::from(compared) {
        bail!("fewer than {:.0} % of the cases are within {:.0} %", SHARE * 100.0, NEAR * 100.0);
    }
    Ok(())
}
