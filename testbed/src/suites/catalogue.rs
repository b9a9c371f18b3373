//! Algorithms to force in tests: some of each kind, for a number of ranks.

use bruckner_algorithms::catalogue::list;
use bruckner_schedule::{Collective, Counts};

/// Returns expressions in the catalogue for a collective on `ranks` ranks. Of expressions that differ only in numbers, the first two are
/// returned.
pub(crate) fn algorithms(collective: &str, ranks: u32) -> Vec<String> {
    let wanted = |of: Collective, counts: &Counts| match collective {
        "allgather" | "barrier" => of == Collective::Allgather && !matches!(counts, Counts::Root { .. }),
        "bcast" => of == Collective::Allgather && matches!(counts, Counts::Root { .. }),
        "reduce" => of == Collective::ReduceScatter && matches!(counts, Counts::Root { .. }),
        "reduce_scatter" => of == Collective::ReduceScatter && !matches!(counts, Counts::Root { .. }),
        "allreduce" => of == Collective::Allreduce,
        "alltoall" => of == Collective::Alltoall,
        other => unreachable!("no collective {other}"),
    };
    let mut kinds: Vec<(String, usize)> = Vec::new();
    let mut found: Vec<String> = Vec::new();
    for entry in list(ranks) {
        let text = entry.expression.to_string();
        if !wanted(entry.task.collective, &entry.task.counts) || found.contains(&text) {
            continue;
        }
        let kind: String = text.chars().filter(|c| !c.is_ascii_digit()).collect();
        let kind = if kind.starts_with('(') { "factors".to_owned() } else { kind };
        match kinds.iter_mut().find(|(name, _)| *name == kind) {
            Some((_, count)) if *count >= 2 => continue,
            Some((_, count)) => *count += 1,
            None => kinds.push((kind, 1)),
        }
        found.push(text);
    }
    // Compositions of the MPI's own functions, which need no plan and are not in the catalogue.
    let parts: &[&str] = match collective {
        "allreduce" => &["native-rooted", "native-rsag"],
        "allgather" => &["native-rooted"],
        _ => &[],
    };
    found.extend(parts.iter().map(|text| (*text).to_owned()));
    found
}
