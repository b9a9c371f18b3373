//! Tests `bruckner bench` and `bruckner plot`: the bench compares an algorithm with itself, and on emulated nodes keeps every sample.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::Table;
use crate::cluster::{Cluster, Shape};
use crate::launch::{Launch, Outcome};
use crate::mpis::{Mpi, home, root};

pub(crate) fn run(table: &mut Table, quick: bool) -> Result<()> {
    let bruckner = root().join("target/release/bruckner");
    for mpi in table.of(if quick { &[Mpi::Openmpi5] } else { Mpi::CURRENT }) {
        // An algorithm of the library, for which the bench makes new plans all the time, and the MPI's own function.
        let ways = [("locality(node)", Some("locality(node)")), ("native", None)];
        for (what, algorithm) in if quick { &ways[..1] } else { &ways[..] } {
            // At 64 B a call takes 250 ns, and the delay to detect is 12 ns, which is not visible in every state of a machine.
            let bytes = if quick { "4096" } else { "64" };
            // How often the bench is right depends on other load of the machine, so a quick run only prints it.
            let runs = if quick { 20 } else { 100 };
            let against_itself = || {
                let runs = runs.to_string();
                let words = ["bench", "allreduce", "--bytes", bytes, "--self-test", &runs];
                let launch = words.into_iter().fold(Launch::plain(mpi, 2, &bruckner), Launch::argument);
                let more = algorithm.map(|algorithm| ["--algorithm", algorithm]);
                more.into_iter().flatten().fold(launch, Launch::argument).run()
            };
            let mut said = against_itself()?;
            let told = said.out.matches(&format!(" of {runs}\n")).count() == 4;
            let failures = match quick {
                true => u64::from(!told),
                false => {
                    // Each of the hundred runs may be wrong by chance, so only a failure in two attempts counts.
                    if !said.succeeded {
                        said = against_itself()?;
                    }
                    u64::from(!said.succeeded)
                }
            };
            if quick {
                print!("{}", said.out);
            }
            let outcome = Outcome { cases: 4 * runs, failures, seconds: said.seconds, talk: said.out + &said.err };
            table.tell(mpi.name(), &format!("bench against itself, {what}"), 2, &outcome);
        }
        table.tell(mpi.name(), "a library missing on one rank", 2, &lacking(mpi)?);
    }
    let nodes = Cluster::up(&Shape::of(&["--nodes", "2", "--ppn", "2", "--delay", "50us", "--rate", "1gbit"])?)?;
    for mpi in table.of(&[Mpi::Openmpi5, Mpi::Mpich5]) {
        table.tell(mpi.name(), "bench and plot on emulated nodes", 4, &on_nodes(mpi, &nodes)?);
    }
    Ok(())
}

/// Checks that a library that only the first rank can load is not measured, and that no rank waits for it.
fn lacking(mpi: Mpi) -> Result<Outcome> {
    let place = home().join("lacking");
    std::fs::create_dir_all(place.join("empty"))?;
    let (source, object) = (place.join("rival.c"), place.join("rival.so"));
    std::fs::write(&source, "int MPI_Allreduce(void) { return 0; }\n")?;
    let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&object).arg(&source).status()?;
    ensure!(made.success(), "cc fails");
    let script = format!(
        "cd {}; [ ${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} = 0 ] || cd empty; \
         exec {} bench allreduce --bytes 8 --seconds 0.2 --algorithm library:./rival.so",
        place.display(),
        root().join("target/release/bruckner").display()
    );
    let said = Launch::plain(mpi, 2, std::path::Path::new("/bin/sh")).argument("-c").argument(script).run()?;
    let right = said.succeeded && said.out.contains("not measured: another rank cannot run it");
    Ok(Outcome { cases: 1, failures: u64::from(!right), seconds: said.seconds, talk: said.out + &said.err })
}

/// Measures two launches with native-best among the contenders, and checks the results file and the report plotted from it.
fn on_nodes(mpi: Mpi, nodes: &Cluster) -> Result<Outcome> {
    let start = Instant::now();
    let (file, page) = (home().join("bench.json"), home().join("bench.html"));
    let _ = std::fs::remove_file(&file);
    let ask = ["allreduce", "--bytes", "8", "--algorithm", "locality(node)", "--algorithm", "native-best"];
    let more = ["--launches", "2", "--seconds", "1", "-o", &file.display().to_string()].map(str::to_owned);
    nodes.bench(mpi, &ask.iter().map(|word| (*word).to_owned()).chain(more).collect::<Vec<_>>(), &[])?;
    let results: serde_json::Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    let launches = results["launches"].as_array().context("launches")?;
    let mut outcome = Outcome::default();
    let mut must = |holds: bool, what: &str| {
        outcome.cases += 1;
        if !holds {
            outcome.failures += 1;
            outcome.talk += &format!("{what}\n");
        }
    };
    for launch in launches {
        must(
            launch["topology"] == "2x2" && launch["labels"]["delay"] == "50us",
            "wrong topology or delay in the results",
        );
        must(launch["machine"]["hosts"].as_array().is_some_and(|hosts| hosts.len() == 4), "hosts are missing");
        let case = &launch["cases"][0];
        let all = case["blocks"].as_array().is_some_and(|blocks| {
            let whole = |run: &serde_json::Value| {
                let ranks = run["from_barrier"].as_array().map_or(&[][..], Vec::as_slice);
                ranks.len() == 4 && ranks.iter().all(|rank| rank.as_array().is_some_and(|times| !times.is_empty()))
            };
            let full = |block: &serde_json::Value| {
                block["runs"].as_array().is_some_and(|runs| runs.len() == 2 && runs.iter().all(whole))
            };
            blocks.len() >= 2 && blocks.iter().all(full)
        });
        must(all, "samples of some rank are missing");
    }
    let forced = |launch: &&serde_json::Value| {
        launch["cases"][0]["contenders"][0]["name"].as_str().is_some_and(|name| name.starts_with("native: "))
    };
    must(launches.iter().filter(forced).count() >= 3, "fewer than three launches with a forced native algorithm");
    must(launches.iter().filter(|launch| !forced(launch)).count() == 2, "there are not two launches of the default");
    let drawn =
        Command::new(root().join("target/release/bruckner")).arg("plot").arg(&file).arg("-o").arg(&page).status()?;
    let text = std::fs::read_to_string(&page).unwrap_or_default();
    must(drawn.success() && text.contains("<svg"), "the report is incomplete");
    // The table has a column for native-best exactly if a setting beat the MPI's default in a trial; the captions always name it.
    let better = launches.iter().any(|launch| forced(&launch) && launch["trial"] != true);
    must(
        text.contains("<th>against native-best</th>") == better,
        "the report's table has a column for native-best although no setting was better, or lacks it",
    );
    outcome.seconds = start.elapsed().as_secs_f64();
    Ok(outcome)
}
