//! Starts launchers, reads the output of their ranks, and joins the results. A *launch* is one start of the launcher with all its ranks.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use bruckner_measure::{Launch, Results, TimingMethod, join_cases, native};
use indicatif::ProgressBar;

use super::Bench;
use super::contender::{Contender, NATIVE_BEST, REFERENCE};
use super::forced::{self, Forced};
use super::problem::Problem;
use super::talk::{Message, bar, hear};
use crate::Answer;

/// Parameters of one start of the launcher.
struct LaunchParameters<'a> {
    /// Whether this is a short trial launch to find the MPI's fastest setting.
    trial: bool,
    problems: Vec<&'a Problem>,
    contenders: Vec<String>,
    blocks: u32,
    /// Forced setting of the MPI for each problem; empty if the MPI runs with its defaults.
    forced: Vec<(&'a Problem, Forced)>,
    seed: u64,
}

/// Number of blocks (passes over all contenders) in a trial launch, which compares settings of the MPI.
const TRIAL_BLOCKS: u32 = 5;

/// Runs all requested launches, prints the table and stores the results.
pub(crate) fn run(bench: &Bench) -> Result<Answer> {
    ensure!(
        bench.self_test.is_none(),
        "--self-test must run under a launcher: mpirun -n 2 bruckner bench allreduce --self-test"
    );
    let mut results = Results::default();
    let done = all(bench, &mut results);
    // Measurements before an error are kept.
    if done.is_err() && results.launches.is_empty() {
        return done.map(|()| Answer::Failure);
    }
    let answer = bench.store_results(results)?;
    done.map(|()| answer)
}

/// Runs all requested launches and appends their results to `results`. If a launch fails, the results of the launches before it are kept.
pub(super) fn all(bench: &Bench, results: &mut Results) -> Result<()> {
    let (problems, contenders) = (bench.problems()?, bench.contenders()?);
    let ours: Vec<String> =
        contenders.iter().filter(|one| **one != Contender::Native).map(Contender::argument).collect();
    let bar = bar();
    let launches = u64::from(bench.launches);
    // A guess: the number of additional launches for native-best depends on the MPI, which is not known yet.
    bar.set_length(1000 * launches * if bench.wants_best() { 4 } else { 1 });
    let done = (0..launches).try_for_each(|number| {
        bar.set_message(format!("launch {} of {launches}", number + 1));
        let start = LaunchParameters {
            trial: false,
            problems: problems.iter().collect(),
            contenders: ours.clone(),
            blocks: bench.blocks,
            forced: Vec::new(),
            seed: bench.seed + number,
        };
        results.launches.push(start.run(bench, &bar)?);
        Ok(())
    });
    let done = done.and_then(|()| match bench.wants_best() {
        true => native_best(bench, &problems, &ours, results, &bar),
        false => Ok(()),
    });
    bar.finish_and_clear();
    done
}

/// Measures native-best: short trials compare every setting of the MPI with an algorithm that no setting changes; then the best setting of
/// each case is measured with all contenders.
fn native_best(
    bench: &Bench,
    problems: &[Problem],
    ours: &[String],
    results: &mut Results,
    bar: &ProgressBar,
) -> Result<()> {
    let mpi = results.launches[0].mpi.name.clone();
    let may = |problem: &Problem, forced: &Forced| {
        native::setting(&forced.name).is_some_and(|setting| (bench.accepts_setting)(&mpi, problem.name, setting))
    };
    let settings: Vec<Vec<Forced>> = problems
        .iter()
        .map(|problem| forced::all(&mpi, problem).into_iter().filter(|forced| may(problem, forced)).collect())
        .collect();
    let trials = settings.iter().map(Vec::len).max().unwrap_or(0);
    ensure!(trials > 0, "{NATIVE_BEST} cannot be measured: no settings are known that select algorithms of {mpi}");
    let launches = u64::from(bench.launches);
    bar.set_length(bar.position() + 1000 * trials as u64 + 1000 * launches * 2);
    for trial in 0..trials {
        // Each launch tries one setting of each collective.
        let forced: Vec<(&Problem, Forced)> = problems
            .iter()
            .zip(&settings)
            .filter_map(|(problem, settings)| Some((problem, settings.get(trial)?.clone())))
            .collect();
        bar.set_message(format!("setting {} of {trials}", trial + 1));
        let start = LaunchParameters {
            trial: true,
            problems: forced.iter().map(|(problem, _)| *problem).collect(),
            contenders: vec![REFERENCE.to_owned()],
            blocks: TRIAL_BLOCKS,
            forced,
            seed: bench.seed,
        };
        match start.run(bench, bar) {
            Ok(launch) => results.launches.push(launch),
            Err(error) => bar.suspend(|| {
                eprintln!("bruckner: skipped setting {} ({error:#})", start.names());
            }),
        }
    }
    // Distributes the cases with their best settings to launches; in one launch, a collective can have only one setting.
    let mut rounds: Vec<Vec<(&Problem, Forced)>> = Vec::new();
    for (case, (problem, settings)) in join_cases(results).iter().zip(problems.iter().zip(&settings)) {
        if let Some(why) = case.refused.get(REFERENCE) {
            bar.suspend(|| {
                eprintln!("bruckner: {problem}: {NATIVE_BEST} was not measured, because {REFERENCE} cannot run: {why}");
            });
            continue;
        }
        let ratio =
            |name: &str| case.ratio_in_trials(name, REFERENCE, TimingMethod::FromBarrier).unwrap_or(f64::INFINITY);
        let best = settings.iter().min_by(|a, b| ratio(&a.name).total_cmp(&ratio(&b.name)));
        let Some(setting) = best.filter(|best| ratio(&best.name) < ratio(native::NATIVE)) else { continue };
        let fits = |round: &&mut Vec<(&Problem, Forced)>| {
            round.iter().all(|(other, forced)| other.name != problem.name || forced.name == setting.name)
        };
        match rounds.iter_mut().find(fits) {
            Some(round) => round.push((problem, setting.clone())),
            None => rounds.push(vec![(problem, setting.clone())]),
        }
    }
    bar.set_length(bar.position() + 1000 * launches * rounds.len() as u64);
    for number in 0..launches {
        for round in &rounds {
            bar.set_message(format!("best native, launch {} of {launches}", number + 1));
            let start = LaunchParameters {
                trial: false,
                problems: round.iter().map(|(problem, _)| *problem).collect(),
                contenders: ours.to_vec(),
                blocks: bench.blocks,
                forced: round.clone(),
                seed: bench.seed + number,
            };
            results.launches.push(start.run(bench, bar)?);
        }
    }
    Ok(())
}

impl LaunchParameters<'_> {
    fn names(&self) -> String {
        let names: Vec<String> =
            self.forced.iter().map(|(problem, forced)| format!("{problem} {}", forced.name)).collect();
        names.join(", ")
    }

    fn arguments(&self, bench: &Bench) -> Vec<String> {
        let mut arguments: Vec<String> = vec!["bench".into(), "--speak".into()];
        let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        self.problems.iter().for_each(|problem| option("--case", problem.to_string()));
        self.contenders.iter().for_each(|contender| option("--algorithm", contender.clone()));
        option("--blocks", self.blocks.to_string());
        // A trial runs a fixed number of blocks: with this precision it never needs more.
        let (seconds, precision) =
            if self.trial { (bench.seconds.min(2.0), 1e9) } else { (bench.seconds, bench.precision) };
        option("--seconds", seconds.to_string());
        option("--precision", precision.to_string());
        option("--confidence", bench.confidence.to_string());
        option("--seed", self.seed.to_string());
        bench.labels.iter().for_each(|(name, value)| option("--label", format!("{name}={value}")));
        let mut variables: BTreeMap<&str, &str> = BTreeMap::new();
        for (problem, forced) in &self.forced {
            option("--native-name", format!("{problem}={}", forced.name));
            variables.extend(forced.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        }
        variables.iter().for_each(|(name, value)| option("--set", format!("{name}={value}")));
        if self.trial {
            arguments.push("--trial".into());
        }
        arguments
    }

    /// Starts the launcher and reads progress and results from its first rank.
    fn run(&self, bench: &Bench, bar: &ProgressBar) -> Result<Launch> {
        let this = std::env::current_exe().context("cannot find the path of this command")?;
        let mut command = Command::new(&bench.launcher[0]);
        command.args(&bench.launcher[1..]).arg(this).args(self.arguments(bench));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start `{}`", bench.launcher[0]))?;
        let began = bar.position();
        let mut launch = None;
        for line in BufReader::new(child.stdout.take().context("piped")?).split(b'\n') {
            match hear(&String::from_utf8_lossy(&line?)) {
                Message::Progress(part) => bar.set_position(began + (part * 1000.0) as u64),
                Message::Launch(said) => launch = Some(*said),
                Message::Other(text) => bar.suspend(|| eprintln!("{text}")),
            }
        }
        let status = child.wait()?;
        bar.set_position(began + 1000);
        match launch {
            Some(launch) if status.success() => Ok(launch),
            _ => bail!("`{}` ended without results: {status}", bench.launcher.join(" ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pair;

    #[test]
    fn a_name_may_have_spaces_and_equals_signs() {
        let (case, name) = pair("allreduce:8=native: I_MPI_ADJUST_ALLREDUCE=3").unwrap();
        assert_eq!((case.as_str(), name.as_str()), ("allreduce:8", "native: I_MPI_ADJUST_ALLREDUCE=3"));
    }
}
