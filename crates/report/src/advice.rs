//! Advice for the user of a program, from its report.

use crate::record::Evidence;
use crate::report::Report;

/// Fraction of the run time below which a collective gets no advice.
const MIN_FRACTION: f64 = 0.05;

/// Returns advice for the user, one sentence each.
pub(crate) fn advice(report: &Report) -> Vec<String> {
    let mut advice = Vec::new();
    let seconds = report.seconds.max(1e-9);
    let rows = || report.communicators.iter().flat_map(|record| record.rows.iter().map(move |row| (record, row)));
    let mut left: Vec<&str> = rows()
        .filter(|(_, row)| row.evidence == Evidence::TunedOnline)
        .map(|(_, row)| row.collective.as_str())
        .collect();
    left.sort_unstable();
    left.dedup();
    if !left.is_empty() {
        advice.push(format!(
            "online tuning found a faster algorithm than the first choice for {}: add it to your profile with \
             `bruckner tune --learn REPORT.json -o PROFILE`",
            left.join(", ")
        ));
    }
    for (record, row) in rows() {
        let compared = record.trials.iter().any(|seen| seen.collective == row.collective);
        // The time is divided by the number of communicators, because communicators of one record may be used at the same time by
        // different ranks.
        let part = row.seconds / record.communicators.max(1) as f64 / seconds;
        if row.evidence == Evidence::Predicted && !compared && part >= MIN_FRACTION {
            advice.push(format!(
                "{} on {} took {:.0} % of the run, and its algorithm was only predicted to be fast: measure it with `bruckner tune`",
                row.collective,
                record.topology,
                100.0 * part
            ));
        }
    }
    if let Some(spent) = report.in_collectives {
        advice.extend(run_advice(report, spent.mean / seconds, spent.waiting.unwrap_or(0.0) / seconds));
    }
    advice.dedup();
    advice
}

/// Returns advice about the run as a whole. `part` is the fraction of the run spent in collectives, `waiting` the fraction spent waiting
/// in collectives for late ranks.
fn run_advice(report: &Report, part: f64, waiting: f64) -> Option<String> {
    let machine = report.machine;
    Some(if part < MIN_FRACTION {
        format!("collectives take {:.1} % of the run: faster collectives would save little", 100.0 * part)
    } else if waiting > part / 2.0 {
        "most of the time in collectives is waiting for late ranks: better load balance would help more than faster collectives".to_owned()
    } else if machine.oversubscribed {
        "oversubscription: more ranks than cores, so ranks mostly wait for a core: start fewer ranks on each node"
            .to_owned()
    } else if !machine.pinned {
        "ranks may move from core to core: pin them (mpirun --bind-to core, srun --cpu-bind=cores)".to_owned()
    } else if machine.nodes == 1 && report.mode != "off" {
        "all ranks run on one node: the library gains more across several nodes".to_owned()
    } else {
        return None;
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bruckner_algorithms::Expression;
    use bruckner_choose::{Choice, Forecast, Name, Origin, Reason};

    use super::*;
    use crate::report::{JobPlacement, RunInfo};
    use crate::statistics::{Event, Handler, Statistics};

    fn said(statistics: &Statistics, seconds: f64, machine: JobPlacement) -> Vec<String> {
        let run = RunInfo { mpi: "MPICH 5", mode: "on", seconds, machine, complaints: &[] };
        advice(&Report::join(&[statistics.text()], &run))
    }

    fn event(choice: &Arc<Choice>) -> Event<'_> {
        Event { name: Name::Allreduce, persistent: false, by: Handler::Choice(choice), bytes: 8, seconds: 0.5 }
    }

    #[test]
    fn what_is_long_and_only_predicted_is_worth_a_word() {
        let shm: Expression = "shm".parse().unwrap();
        let choice = |reason| Arc::new(Choice { expression: shm.clone(), reason });
        let statistics = Arc::new(Statistics::default());
        let world = statistics.open("MPI_COMM_WORLD", 4);
        world.set_topology("2x2", "");
        let forecast = Forecast { bytes: 8, speedup: 2.0, origin: Origin::Profile };
        world.add(&event(&choice(Reason::Predicted(forecast))));
        let said = |seconds| {
            let mut said = said(&statistics, seconds, JobPlacement::default());
            said.retain(|line| line.contains("allreduce"));
            said
        };
        assert_eq!(said(20.0), [] as [&str; 0]);
        assert_eq!(
            said(5.0),
            [
                "allreduce on 2x2 took 10 % of the run, and its algorithm was only predicted to be fast: measure it with `bruckner tune`"
            ]
        );
        // No advice to tune a collective whose algorithms were compared in this run.
        world.add_trial(Name::Allreduce, 8, true, &[]);
        assert_eq!(said(5.0), [] as [&str; 0]);
        world.add(&event(&choice(Reason::Replaced { before: shm.clone(), ratio: 0.5 })));
        assert!(said(5.0)[0].starts_with("online tuning found a faster algorithm than the first choice for allreduce"));
    }

    #[test]
    fn it_says_what_would_change_the_picture() {
        let statistics = Statistics::default();
        statistics.add_time(Duration::from_secs(2), Some(Duration::ZERO));
        let on = |seconds, nodes, shared_cores, pinned| {
            said(&statistics, seconds, JobPlacement { nodes, oversubscribed: shared_cores, pinned }).concat()
        };
        assert!(on(100.0, 1, true, false).starts_with("collectives take 2.0 % of the run"));
        assert!(on(10.0, 1, true, false).starts_with("oversubscription"));
        assert!(on(10.0, 1, false, false).starts_with("ranks may move"));
        assert!(on(10.0, 1, false, true).starts_with("all ranks run on one node"));
        assert_eq!(on(10.0, 2, false, true), "");
        statistics.add_time(Duration::from_secs(30), Some(Duration::from_secs(29)));
        assert!(on(50.0, 2, false, true).starts_with("most of the time in collectives is waiting"));
    }
}
