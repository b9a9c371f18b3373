//! JSON form of schedules.

use bruckner_algorithms::{Expression, TaskPlan};
use bruckner_schedule::{End, LocalOp, Message, Payload, Place, Rank, Round, Schedule, Set};
use serde_json::{Value, json};

use crate::table::Totals;

/// Returns the schedules of some ranks as JSON.
pub(crate) fn json(expression: &Expression, plan: &TaskPlan, schedule: &Schedule) -> Value {
    let rank = |(&rank, rounds): (&Rank, &Vec<Round>)| {
        let totals = Totals::of(plan, rank, rounds);
        json!({
            "rank": rank.0,
            "steps": totals.steps,
            "messages_by_level": totals.messages,
            "elements_by_level": totals.sent,
            "rounds": rounds.iter().map(round).collect::<Vec<_>>(),
        })
    };
    json!({
        "collective": plan.problem.collective.to_string(),
        "ranks": plan.problem.ranks,
        "counts": plan.problem.counts.to_string(),
        "element": plan.problem.element,
        "topology": plan.topology.to_string(),
        "algorithm": expression.to_string(),
        "schedule": schedule.ranks.iter().map(rank).collect::<Vec<_>>(),
    })
}

fn round(round: &Round) -> Value {
    json!({
        "messages": round.messages.iter().map(message).collect::<Vec<_>>(),
        "local": round.local.iter().map(local).collect::<Vec<_>>(),
    })
}

fn message(message: &Message) -> Value {
    json!({
        "end": match message.end { End::Send => "send", End::Recv => "recv" },
        "payload": match message.payload { Payload::Data => "data", Payload::Sizes => "sizes" },
        "peer": message.peer.0,
        "tag": message.tag.0,
        "places": message.places.iter().map(place).collect::<Vec<_>>(),
    })
}

fn place(place: &Place) -> Value {
    json!({ "area": place.area.to_string(), "runs": runs(&place.set) })
}

fn runs(set: &Set) -> Value {
    let runs = set
        .runs()
        .iter()
        .map(|run| json!({ "start": run.start(), "block": run.block(), "stride": run.stride(), "count": run.count() }));
    runs.collect()
}

/// Returns the chunks of a conditional operation, or null for an operation that is always carried out.
fn for_chunks(chunks: &Option<Set>) -> Value {
    chunks.as_ref().map_or(Value::Null, runs)
}

fn local(local: &LocalOp) -> Value {
    match local {
        LocalOp::Copy { to, from } => json!({ "op": "copy", "to": place(to), "from": place(from) }),
        LocalOp::Reduce { into, with } => json!({ "op": "reduce", "into": place(into), "with": place(with) }),
        LocalOp::Signal { flag, chunks } => {
            json!({ "op": "signal", "flag": flag.0, "for": for_chunks(chunks) })
        }
        LocalOp::Wait { flag, of, chunks } => {
            json!({ "op": "wait", "flag": flag.0, "of": of.0, "for": for_chunks(chunks) })
        }
        LocalOp::Open => json!({ "op": "open" }),
        LocalOp::Barrier(level) => json!({ "op": "barrier", "level": level.to_string() }),
        LocalOp::Enter { level, chunks } => {
            json!({ "op": "enter", "level": level.to_string(), "for": for_chunks(chunks) })
        }
        LocalOp::Leave(level) => json!({ "op": "leave", "level": level.to_string() }),
    }
}
