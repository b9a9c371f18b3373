//! Differences between two profiles.

use bruckner_choose::{Profile, ShapeResults, TuningResult};
use bruckner_measure::{bytes_text, time_text};
use bruckner_model::{LinkClass, Machine, Shape};
use serde_json::{Value, json};

fn figures(machine: &Machine) -> [(&'static str, f64); 4] {
    let wire = |reach, bytes| {
        let protocol = machine.link(reach).protocol(bytes);
        protocol.latency + bytes as f64 * protocol.per_byte
    };
    [
        ("8 B to another node", wire(LinkClass::Network, 8)),
        ("1 MiB to another node", wire(LinkClass::Network, 1 << 20)),
        ("8 B on a node", wire(LinkClass::Socket, 8)),
        ("1 MiB on a node", wire(LinkClass::Socket, 1 << 20)),
    ]
}

/// A difference: its subject, the old value and the new value.
pub(super) struct Change {
    what: String,
    before: String,
    now: String,
}

/// Returns the differences: another MPI, costs that changed by more than 10 %, and cases with another winner.
pub(super) fn diff(old: &Profile, new: &Profile) -> Vec<Change> {
    let mut changes = Vec::new();
    if old.provenance.mpi != new.provenance.mpi {
        changes.push(Change {
            what: "MPI".into(),
            before: old.provenance.mpi.clone(),
            now: new.provenance.mpi.clone(),
        });
    }
    for ((name, before), (_, now)) in figures(&old.machine).into_iter().zip(figures(&new.machine)) {
        if !(0.9..=1.1).contains(&(now / before)) {
            changes.push(Change { what: name.into(), before: time_text(before), now: time_text(now) });
        }
    }
    let find = |profile: &Profile, shape: Shape, of: &TuningResult| {
        let tuned = profile.results.iter().find(|tuned| tuned.shape == shape)?;
        tuned.results.iter().find(|other| other.name == of.name && other.bytes == of.bytes).cloned()
    };
    let said = |result: &Option<TuningResult>| match result {
        None => "not measured".to_owned(),
        Some(result) => format!("{} ({:.2})", result.expression, result.ratio),
    };
    let mut compare = |shape: Shape, of: &TuningResult, before: Option<TuningResult>, now: Option<TuningResult>| {
        let same = before.as_ref().map(|v| &v.expression) == now.as_ref().map(|v| &v.expression);
        if !same {
            let what = format!("{shape} {} {}", of.name, bytes_text(of.bytes));
            changes.push(Change { what, before: said(&before), now: said(&now) });
        }
    };
    for ShapeResults { shape, results } in &old.results {
        for result in results {
            compare(*shape, result, Some(result.clone()), find(new, *shape, result));
        }
    }
    for ShapeResults { shape, results } in &new.results {
        for result in results.iter().filter(|result| find(old, *shape, result).is_none()) {
            compare(*shape, result, None, Some(result.clone()));
        }
    }
    changes
}

/// Formats the differences as text, one per line.
pub(super) fn text(changes: &[Change]) -> String {
    let line = |Change { what, before, now }: &Change| format!("{what}: was {before}, now {now}\n");
    if changes.is_empty() { "no difference\n".to_owned() } else { changes.iter().map(line).collect() }
}

/// Formats the differences as JSON.
pub(super) fn json(changes: &[Change]) -> String {
    let one = |Change { what, before, now }: &Change| json!({ "what": what, "before": before, "now": now });
    format!("{:#}\n", changes.iter().map(one).collect::<Value>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bruckner_choose::{Name, Provenance};

    #[test]
    fn only_what_changed_is_said() {
        let result = |bytes, winner: &str| TuningResult {
            name: Name::Allreduce,
            bytes,
            expression: winner.parse().unwrap(),
            native_seconds: 1e-6,
            ratio: 0.5,
            interval: [0.4, 0.6],
            launches: 2,
        };
        let shape = Shape::of(&"4x4".parse().unwrap());
        let made =
            Provenance { version: 1, mpi: "MPICH 5".into(), bruckner: String::new(), cpu: String::new(), when: 0 };
        let tuned = vec![ShapeResults { shape, results: vec![result(8, "ring"), result(64, "ring")] }];
        let old = Profile {
            machine: Machine::builtin("lassen").unwrap(),
            provenance: made,
            results: tuned,
            natives: Vec::new(),
        };
        assert_eq!(text(&diff(&old, &old)), "no difference\n");
        let mut new = old.clone();
        new.results[0].results = vec![result(8, "native"), result(512, "ring")];
        new.machine.network.protocols[0].latency *= 2.0;
        assert_eq!(
            text(&diff(&old, &new)),
            "8 B to another node: was 1.3 µs, now 2.5 µs\n\
             4x4 allreduce 8 B: was ring (0.50), now native (0.50)\n\
             4x4 allreduce 64 B: was ring (0.50), now not measured\n\
             4x4 allreduce 512 B: was not measured, now ring (0.50)\n"
        );
    }
}
