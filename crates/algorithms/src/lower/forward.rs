//! Removes copies between private lines and the user's buffers.
//!
//! If a slot of a private line only ever holds a copy of the input, the pass reads the input instead. If a slot is finally copied to the
//! output or to another line, the pass stores its value there from the start, unless something else uses the destination before. Each rank
//! is processed by itself. Operations name sets of slots, so a slot moves only if all slots of every operation that names it move.

use bruckner_schedule::{Area, Counts, End, LocalOp, Place, Round, Schedule, Set};
use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};

/// Maximum number of slots that a rank's operations may name. With more slots the rank's rounds stay unchanged, because its data is large
/// and the saved copies matter little.
const MANY: u64 = 512;

/// Runs the pass. It does nothing if lengths are known only locally, because slots then have no fixed addresses.
pub fn run(schedule: Schedule) -> Schedule {
    if schedule.problem.counts == Counts::Local {
        return schedule;
    }
    schedule.into(|_, mut rounds| {
        // Chains of copies need several repetitions, each of which removes some copies.
        for pass in [from_input, forward_to_destination] {
            while let Some(shorter) = pass(&rounds) {
                rounds = shorter;
            }
        }
        rounds
    })
}

/// A slot of a private line.
type Slot = (u32, u64);

/// How an operation accesses a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    /// The place is written by a copy from this area.
    Copied(Area),
    /// The place is read by a copy to this area.
    CopiedTo(Area),
}

/// Lists every place that operations name, in program order, with the kind of access.
fn accesses(rounds: &[Round]) -> Vec<(&Place, Access)> {
    let mut all = Vec::new();
    for round in rounds {
        for message in &round.messages {
            let access = if message.end == End::Send { Access::Read } else { Access::Write };
            all.extend(message.places.iter().map(|place| (place, access)));
        }
        for local in &round.local {
            match local {
                LocalOp::Copy { to, from } if to.set == from.set => {
                    all.push((from, Access::CopiedTo(to.area)));
                    all.push((to, Access::Copied(from.area)));
                }
                LocalOp::Copy { to, from } => all.extend([(from, Access::Read), (to, Access::Write)]),
                LocalOp::Reduce { into, with } => {
                    all.extend([(with, Access::Read), (into, Access::Read), (into, Access::Write)]);
                }
                _ => {}
            }
        }
    }
    all
}

/// Replaces slots that only hold a copy of the input by the input; returns `None` if there are no such slots.
fn from_input(rounds: &[Round]) -> Option<Vec<Round>> {
    let all = accesses(rounds);
    let copies = |access: &Access| *access == Access::Copied(Area::In);
    let copied = all.iter().any(|(place, access)| copies(access) && matches!(place.area, Area::Line(_)));
    if !copied || too_many(&all) {
        return None;
    }
    let mut moves: HashSet<Slot> = HashSet::default();
    let mut stays: HashSet<Slot> = HashSet::default();
    for (place, access) in &all {
        let Area::Line(line) = place.area else { continue };
        for chunk in place.set.iter() {
            match access {
                // A slot can move if exactly one copy writes it, before any other access.
                Access::Copied(Area::In) if !stays.contains(&(line, chunk)) => {
                    if !moves.insert((line, chunk)) {
                        stays.insert((line, chunk));
                    }
                }
                Access::Write | Access::Copied(_) => {
                    stays.insert((line, chunk));
                }
                Access::Read | Access::CopiedTo(_) => {
                    if !moves.contains(&(line, chunk)) {
                        stays.insert((line, chunk));
                    }
                }
            }
        }
    }
    moves.retain(|slot| !stays.contains(slot));
    let reads = all.iter().filter(|(_, access)| !copies(access)).map(|(place, _)| *place);
    keep_whole(reads, &mut moves);
    replace(rounds, &moves, Area::In)
}

/// Moves slots to the area that they are finally copied to, if nothing else uses the destination before. Handles the first line with such
/// slots; returns `None` if there is none.
fn forward_to_destination(rounds: &[Round]) -> Option<Vec<Round>> {
    let all = accesses(rounds);
    let is_private = |area: Area| matches!(area, Area::Line(_) | Area::Out);
    let pairs: Vec<(u32, Area)> = all
        .iter()
        .filter_map(|(place, access)| match (place.area, access) {
            (Area::Line(line), Access::CopiedTo(to)) if is_private(*to) => Some((line, *to)),
            _ => None,
        })
        .collect();
    if pairs.is_empty() || too_many(&all) {
        return None;
    }
    // The first and the last use of every slot.
    let (mut first, mut last): (HashMap<_, usize>, HashMap<_, usize>) = Default::default();
    for (at, (place, _)) in all.iter().enumerate().filter(|(_, (place, _))| is_private(place.area)) {
        for chunk in place.set.iter() {
            first.entry((place.area, chunk)).or_insert(at);
            last.insert((place.area, chunk), at);
        }
    }
    pairs.into_iter().find_map(|(line, to)| {
        let mut moves: HashSet<Slot> = HashSet::default();
        for (at, (place, access)) in all.iter().enumerate() {
            if place.area == Area::Line(line) && *access == Access::CopiedTo(to) {
                // The copy is the last access to the slot and, next in the list, the first access to the destination.
                let ends = |chunk: &u64| {
                    last.get(&(place.area, *chunk)) == Some(&at) && first.get(&(to, *chunk)) == Some(&(at + 1))
                };
                moves.extend(place.set.iter().filter(ends).map(|chunk| (line, chunk)));
            }
        }
        keep_whole(all.iter().map(|(place, _)| *place), &mut moves);
        replace(rounds, &moves, to)
    })
}

fn too_many(all: &[(&Place, Access)]) -> bool {
    all.iter().map(|(place, _)| place.set.len()).sum::<u64>() > MANY
}

/// Removes from `moves` all slots that an operation names together with slots that stay.
fn keep_whole<'a>(places: impl Iterator<Item = &'a Place>, moves: &mut HashSet<Slot>) {
    let mut named: Vec<Vec<Slot>> = Vec::new();
    for place in places {
        if let Area::Line(line) = place.area {
            named.push(place.set.iter().map(|chunk| (line, chunk)).collect());
        }
    }
    loop {
        let before = moves.len();
        for slots in &named {
            if !slots.iter().all(|slot| moves.contains(slot)) {
                slots.iter().for_each(|slot| {
                    moves.remove(slot);
                });
            }
        }
        if moves.len() == before {
            return;
        }
    }
}

/// Moves slots to another area, and drops copies of a place to itself; returns `None` if `moves` is empty.
fn replace(rounds: &[Round], moves: &HashSet<Slot>, area: Area) -> Option<Vec<Round>> {
    if moves.is_empty() {
        return None;
    }
    let is_moved = |place: &Place| match (place.area, place.set.runs().first()) {
        (Area::Line(line), Some(run)) => moves.contains(&(line, run.start())),
        _ => false,
    };
    let put = |place: Place| if is_moved(&place) { Place { area, ..place } } else { place };
    let replaced = |mut round: Round| {
        for place in round.messages.iter_mut().flat_map(|message| &mut message.places) {
            *place = put(place.clone());
        }
        let local = std::mem::take(&mut round.local);
        for local in local {
            match local {
                // This copy filled the slots; it now copies only the slots that do not move.
                LocalOp::Copy { to, from } if from.area == area && area == Area::In => {
                    let Area::Line(line) = to.area else {
                        round.local.push(LocalOp::Copy { to, from });
                        continue;
                    };
                    let left: Set = to.set.iter().filter(|chunk| !moves.contains(&(line, *chunk))).collect();
                    if left.len() == to.set.len() {
                        round.local.push(LocalOp::Copy { to, from });
                    } else if !left.is_empty() {
                        let (to, from) = (Place::new(to.area, left.clone()), Place::new(from.area, left));
                        round.local.push(LocalOp::Copy { to, from });
                    }
                }
                local => match local.map(put) {
                    LocalOp::Copy { to, from } if to == from => {}
                    local => round.local.push(local),
                },
            }
        }
        round
    };
    let rounds = rounds.iter().cloned().map(replaced);
    Some(rounds.filter(|round| *round != Round::default()).collect())
}
