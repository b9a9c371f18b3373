//! The eight reference cases through the whole chain: planned, printed, verified, lowered, verified again, run on data.

use bruckner_algorithms::catalogue::{Entry, entries};
use bruckner_algorithms::lower::{LineMemory, MessagePurpose, OnNode, coalesce, empty, lower, pack, place};
use bruckner_algorithms::properties::{RankPlacement, properties};
use bruckner_algorithms::reference_cases::{ReferenceCase, reference_cases};
use bruckner_algorithms::{Expression, Task, plan};
use bruckner_schedule::random::Random;
use bruckner_schedule::verify::{verify, verify_sequence};
use bruckner_schedule::{
    Collective, Counts, Document, End, Level, Message, Order, Program, Rank, Round, Topology, interpret, read,
};

fn probe(name: &str) -> ReferenceCase {
    reference_cases().into_iter().find(|probe| probe.name == name).expect("there is such a probe")
}

/// Checks that verifier and interpreter both accept a program.
fn assert_right(program: &Program, what: &str) {
    let report = verify(program);
    assert!(report.is_correct(), "{what}: {}", report.violations[0]);
    let mut claiming = program.clone();
    claiming.claims.consistent = report.consistent && program.problem.collective.reduces();
    claiming.claims.ordered = report.ordered && program.problem.collective.reduces();
    for seed in 0..20 {
        let result = interpret::check(&[&claiming, &claiming, &claiming], seed);
        assert_eq!(result, Ok(()), "{what}, seed {seed}");
    }
}

#[test]
fn each_probe_goes_all_the_way() {
    assert_eq!(reference_cases().len(), 8);
    for probe in reference_cases() {
        let (name, schedule) = (probe.name, probe.schedule().unwrap());
        let text = schedule.to_string();
        assert_eq!(read(&text).unwrap().document, Document::Schedule(schedule.clone()), "{name}");
        assert_right(&schedule.flatten(), name);
        // Every pass by itself keeps the program correct.
        let pruned = empty::run(schedule.clone(), MessagePurpose::of(&schedule));
        assert_right(&pruned.flatten(), name);
        let joined = coalesce::run(pruned.clone());
        assert_right(&joined.flatten(), name);
        let placed = place::run(joined.clone(), LineMemory::Shared);
        assert_right(&placed, name);
        assert_right(&pack::run(placed.clone(), LineMemory::Shared), name);
        for on_node in [OnNode::Segment, OnNode::Messages] {
            let program = lower(&schedule, on_node);
            let text = program.to_string();
            assert_eq!(read(&text).unwrap().document, Document::Program(program.clone()), "{name}");
            assert_right(&program, name);
        }
    }
}

#[test]
fn lowering_keeps_the_expressions() {
    for probe in reference_cases() {
        let (name, schedule) = (probe.name, probe.schedule().unwrap());
        let before = verify(&schedule.flatten());
        for on_node in [OnNode::Segment, OnNode::Messages] {
            let after = verify(&lower(&schedule, on_node));
            assert_eq!((before.consistent, before.ordered), (after.consistent, after.ordered), "{name}, {on_node:?}");
        }
    }
}

#[test]
fn three_in_a_row_and_then_another_plan_on_the_same_segment() {
    let ReferenceCase { task, expression, .. } = probe("shm");
    let first = lower(&plan(&task, &expression).unwrap().schedule(), OnNode::Segment);
    let other = Task::new(Collective::Allgather, task.topology.clone()).counts(Counts::Equal(5));
    let other = lower(&plan(&other, &"shm".parse().unwrap()).unwrap().schedule(), OnNode::Segment);
    let sequence = [&first, &first, &first, &other, &other, &first];
    let report = verify_sequence(&sequence);
    assert!(report.is_correct(), "{}", report.violations[0]);
    for seed in 0..50 {
        assert_eq!(interpret::check(&sequence, seed), Ok(()));
    }
}

/// A program that does not use the segment does not order accesses to it, and does not switch halves for those that alternate.
#[test]
fn alternation_survives_programs_in_between() {
    let ReferenceCase { task, expression, .. } = probe("shm");
    let alternating = lower(&plan(&task, &expression).unwrap().schedule(), OnNode::Segment);
    let root = Counts::Root { root: Rank(0), count: 1 };
    let bcast = Task::new(Collective::Allgather, task.topology.clone()).counts(root);
    let bcast = lower(&plan(&bcast, &"sparbit".parse().unwrap()).unwrap().schedule(), OnNode::Segment);
    let closing =
        pack::run(place::run(plan(&task, &expression).unwrap().schedule(), LineMemory::Shared), LineMemory::Shared);
    for sequence in [
        [&alternating, &bcast, &alternating, &bcast, &alternating],
        [&alternating, &closing, &alternating, &closing, &alternating],
    ] {
        let report = verify_sequence(&sequence);
        assert!(report.is_correct(), "{}", report.violations[0]);
        for seed in 0..50 {
            assert_eq!(interpret::check(&sequence, seed), Ok(()));
        }
    }
}

#[test]
fn properties_are_what_the_papers_say_or_should_have_said() {
    let of = |name: &str| {
        let ReferenceCase { task, expression, .. } = probe(name);
        let report = verify(&plan(&task, &expression).unwrap().schedule().flatten());
        (report.consistent, report.ordered)
    };
    assert_eq!(of("nap"), (true, true));
    assert_eq!(of("shm"), (true, true));
    assert_eq!(of("factors"), (false, false), "each rank sums round the circle from itself on");
}

fn leads(expression: &Expression) -> bool {
    match expression {
        Expression::Pipeline { of, .. } => leads(of),
        other => matches!(other, Expression::Leader { .. } | Expression::MultiLane { .. }),
    }
}

/// The properties given without a schedule are those that the verifier finds, on every entry of the catalogue for some numbers of ranks.
/// For more than two ranks they are exact, except for leaders in a single region.
#[test]
fn properties_are_what_the_verifier_finds() {
    for p in [1, 2, 5, 8, 12] {
        for Entry { task, expression } in entries(p) {
            if !task.collective.reduces() || task.counts == Counts::Equal(0) {
                continue;
            }
            let said = properties(task.collective, &expression, RankPlacement::of(&task.topology), p);
            let found = verify(&plan(&task, &expression).unwrap().schedule().flatten());
            let what = format!("{} {expression} on {}, {}", task.collective, task.topology, task.counts);
            assert!(!said.consistent || found.consistent, "{what}");
            assert!(!said.ordered || found.ordered, "{what}");
            let alone = task.topology.regions(Level::NODE) == 1 && leads(&expression);
            if p > 2 && !alone {
                assert_eq!((said.consistent, said.ordered), (found.consistent, found.ordered), "{what}");
            }
        }
    }
}

#[test]
fn an_operation_that_needs_rank_order_is_refused_what_lacks_it() {
    let ReferenceCase { mut task, expression, .. } = probe("factors");
    let mut schedule = plan(&task, &expression).unwrap().schedule();
    schedule.problem.order = Order::Ranks;
    assert_eq!(verify(&schedule.flatten()).violations[0].invariant.to_string(), "ordered");
    task.order = Order::Ranks;
    let refusal = plan(&task, &expression).map(|_| ()).unwrap_err().to_string();
    assert_eq!(refusal, "`8(-1 1 1 1)` does not keep rank order on 8x1");
}

/// Returns the messages of a rank as (`send` or `recv`, peer, chunks).
fn traffic(rounds: &[Round]) -> Vec<(String, u32, Vec<u64>)> {
    let messages = rounds.iter().flat_map(|round| &round.messages);
    messages
        .map(|m| {
            let chunks = m.places.iter().flat_map(|p| p.set.iter()).collect();
            (m.to_string().split(' ').next().unwrap().to_owned(), m.peer.0, chunks)
        })
        .collect()
}

fn rounds(collective: Collective, topology: &str, expression: &str, rank: u32) -> Vec<Round> {
    let task = Task::new(collective, topology.parse().unwrap());
    plan(&task, &expression.parse().unwrap()).unwrap().rounds(Rank(rank))
}

/// Loch and Koslovski, Fig. 3: 5 ranks, distances 4, 2, 1, blocks 1, 1, 2.
#[test]
fn sparbit_of_five() {
    let sends: Vec<_> = traffic(&rounds(Collective::Allgather, "5x1", "sparbit", 0))
        .into_iter()
        .filter(|(what, ..)| what == "send")
        .map(|(_, to, chunks)| (to, chunks.len()))
        .collect();
    assert_eq!(sends, [(4, 1), (2, 1), (1, 2)]);
}

/// The paper's mask and the closed form agree with the schedule for every p below 200.
#[test]
fn sparbit_sends_as_many_blocks_as_its_mask_says() {
    for p in 2u64..200 {
        let t = p.trailing_zeros();
        let mask = (!(p >> t) | 1) << t;
        let (mut data, mut d) = (1, p.next_power_of_two() / 2);
        let sent: Vec<usize> = traffic(&rounds(Collective::Allgather, &format!("{p}x1"), "sparbit", 0))
            .into_iter()
            .filter(|(what, ..)| what == "send")
            .map(|(.., chunks)| chunks.len())
            .collect();
        for (step, &blocks) in sent.iter().enumerate() {
            let ignore = u64::from(d & mask != 0);
            assert_eq!(blocks as u64, data - ignore, "p {p}, step {step}");
            data = 2 * data - ignore;
            d /= 2;
        }
        assert_eq!(data, p);
    }
}

/// Bienz et al. 2022, section 3: 64 ranks in regions of 4, second step, with `lanes=paper`.
#[test]
fn locality_of_sixty_four() {
    let get = |rank| {
        let from_afar = traffic(&rounds(Collective::Allgather, "16x4", "locality(node, lanes=paper)", rank));
        from_afar.into_iter().filter(|(what, ..)| what == "recv").nth(1).unwrap()
    };
    let regions = |regions: &[u64]| -> Vec<u64> { regions.iter().flat_map(|r| 4 * r..4 * r + 4).collect() };
    assert_eq!(get(5), ("recv".to_owned(), 21, regions(&[5, 6, 7, 8])));
    assert_eq!(get(6), ("recv".to_owned(), 38, regions(&[9, 10, 11, 12])));
    assert_eq!(get(7), ("recv".to_owned(), 55, regions(&[13, 14, 15, 0])));
}

/// Bienz et al. 2022, Example 2.1: 16 ranks in 4 regions, one non-local message of 4 values.
#[test]
fn locality_of_sixteen() {
    let task = Task::new(Collective::Allgather, "4x4".parse().unwrap());
    let plan = plan(&task, &"locality(node, lanes=paper)".parse().unwrap()).unwrap();
    let report = verify(&plan.schedule().flatten());
    let most = |of: fn(&bruckner_schedule::verify::Traffic) -> u64| report.traffic.iter().map(of).max();
    assert_eq!(
        (most(bruckner_schedule::verify::Traffic::internode_messages), most(|t| t.elements[0])),
        (Some(1), Some(4))
    );
}

/// Bienz et al. 2019, Figs. 6 and 7: rank 9 exchanges with 6, then with 24.
#[test]
fn nap_of_sixty_four() {
    let peers: Vec<u32> = traffic(&rounds(Collective::Allreduce, "16x4", "nap(node, lanes=paper)", 9))
        .into_iter()
        .filter(|(what, ..)| what == "send")
        .map(|(_, to, _)| to)
        .collect();
    assert_eq!(peers, [6, 24]);
}

/// Bienz et al. 2019: log_ppn(n) non-local messages, any node count.
#[test]
fn nap_sends_few_messages() {
    for (topology, steps) in [("16x16", 1), ("64x4", 3), ("12x4", 2), ("11x4", 2)] {
        let task = Task::new(Collective::Allreduce, topology.parse().unwrap());
        let plan = plan(&task, &"nap(node, lanes=paper)".parse().unwrap()).unwrap();
        let report = verify(&plan.schedule().flatten());
        assert!(report.is_correct(), "{topology}");
        let rounds = plan.rounds(Rank(1)).iter().filter(|r| !r.messages.is_empty()).count();
        assert_eq!(rounds, steps, "{topology}");
    }
}

/// Fan and Kumar: numD blocks at each step, and the number of steps of Eq. 2, in integer arithmetic. (The caption of their Fig. 1 has 5
/// steps for 6 ranks and radix 4; Eq. 2 gives 4.)
#[test]
fn bruck_moves_what_the_formulas_say() {
    let sent = |p: u64, expression: &str| -> Vec<u64> {
        let task = Task::new(Collective::Alltoall, Topology::flat(p as u32));
        let rounds = plan(&task, &expression.parse().unwrap()).unwrap().rounds(Rank(0));
        let sends = rounds.iter().flat_map(|round| &round.messages).filter(|m| m.end == End::Send);
        sends.map(Message::len).collect()
    };
    let check = |p: u64, r: u64| {
        let (mut want, mut power) = (Vec::new(), 1);
        while power < p {
            for z in (1..r).filter(|z| z * power < p) {
                let rest = (p % (power * r)).saturating_sub(z * power).min(power);
                want.push(p / (power * r) * power + rest);
            }
            power *= r;
        }
        assert_eq!(sent(p, &format!("bruck({r})")), want, "p {p} r {r}");
        assert_eq!(sent(p, &format!("modified-bruck({r})")), want, "p {p} r {r}");
        let (mut w, mut reach) = (1, r);
        while reach < p {
            reach *= r;
            w += 1;
        }
        assert_eq!(want.len() as u64, w * (r - 1) - (reach - p) / (reach / r), "p {p} r {r}");
        (want.len(), want.iter().sum::<u64>())
    };
    for p in 2u64..200 {
        for r in (2..p).chain([2]) {
            check(p, r);
        }
    }
    assert_eq!((check(6, 2).0, check(6, 4).0, check(6, 5).0), (3, 4, 5));
    assert_eq!(check(4096, 2), (12, 24576));
    assert_eq!(check(4096, 64), (126, 8064));
    assert_eq!(check(4096, 4095), (4095, 4095));
}

/// Jocksch et al., Table 1.
#[test]
fn factors_of_thirty_nine() {
    for (form, steps, sent) in [
        ("39(1 1 1 1 1 1)", 6, 8 * 39),
        ("3(1 1) 13(1 1 1 1)", 6, 7 * 39),
        ("13(-1 -1 -1 -1) 3(-1 -1) 3(1 1) 13(1 1 1 1)", 12, 76),
        ("39(-1 -1 -1 -1 -1 -1) 39(1 1 1 1 1 1)", 12, 76),
    ] {
        let task = Task::new(Collective::Allreduce, "39x1".parse().unwrap()).counts(Counts::Equal(39));
        let plan = plan(&task, &form.parse().unwrap()).unwrap();
        let report = verify(&plan.schedule().flatten());
        assert!(report.is_correct(), "{form}");
        assert!(report.traffic.iter().all(|t| t.messages[0] == steps && t.elements[0] == sent), "{form}");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_a_reason() {
    let refusal = |collective, topology: &str, expression: &str| {
        let task = Task::new(collective, topology.parse().unwrap());
        plan(&task, &expression.parse().unwrap()).map(|_| ()).unwrap_err().to_string()
    };
    use Collective::{Allgather, Allreduce};
    assert_eq!(refusal(Allreduce, "2x4", "shm"), "`shm` runs only on a single node, but 2x4 has 2 nodes");
    assert_eq!(refusal(Allreduce, "2x4", "rsag(shm)"), "`shm` runs only on a single node, but 2x4 has 2 nodes");
    assert_eq!(refusal(Allreduce, "2x4", "rsag(rabenseifner)"), "`rsag(rabenseifner)` does not implement allreduce");
    assert_eq!(refusal(Allgather, "2x4", "rsag(ring)"), "`rsag(ring)` does not implement allgather");
    assert_eq!(
        refusal(Collective::Alltoall, "2x4", "locality(node, ports=2)"),
        "`locality(node, ports=2)`: alltoall does not support `ports=`; it takes a single round between regions"
    );
    assert_eq!(refusal(Allgather, "2x4", "rabenseifner"), "`rabenseifner` does not implement allgather");
    assert_eq!(
        refusal(Allgather, "2x2x2", "locality(socket, inside=locality(node))"),
        "nested regions must be smaller: a node is not inside a socket"
    );
    assert_eq!(refusal(Allreduce, "8x1", "4(1 1)"), "the product of the factors is 4, but there are 8 ranks");
    assert_eq!(
        refusal(Allreduce, "8x1", "8(1 1)"),
        "`8(1 1)`: the allgather steps cover 4 of 8 ranks; a step or port is missing"
    );
    assert_eq!(
        refusal(Allreduce, "8x1", "8(-1)"),
        "`8(-1)`: each rank still has 4 fractions, so a reduce_scatter step is missing"
    );
    assert_eq!(refusal(Allreduce, "8x1", "2(-1) 4(1 1)"), "factor 2 is scattered but never gathered");
}

#[test]
fn nodes_that_are_dealt_round_robin_are_still_runs() {
    let task = Task::new(Collective::Allgather, "65536x16:cyclic".parse().unwrap());
    assert_eq!(task.topology.regions(Level::NODE), 65536);
    let rounds = plan(&task, &"locality(node)".parse().unwrap()).unwrap().rounds(Rank(77));
    assert!(rounds.iter().flat_map(|r| &r.messages).flat_map(|m| &m.places).all(|p| p.set.runs().len() <= 3));
}

/// Rooted collectives use a ring; with any root they run between programs that end with a barrier or alternate halves.
#[test]
fn roots_change_among_other_plans() {
    let shapes = [
        ("3", &["shm"][..]),
        ("2,3", &["locality(node)", "leader(node, between=sparbit)", "lanes(node, between=ring)"]),
        ("3,1,2:cyclic", &["locality(node)", "leader(node, between=ring, leaders=2)"]),
    ];
    let mut random = Random::new(14);
    for (topology, expressions) in shapes {
        let topology: Topology = topology.parse().unwrap();
        let ranks = topology.ranks();
        let lowered = |collective, counts, expression: &str| {
            let task = Task::new(collective, topology.clone()).counts(counts);
            lower(&plan(&task, &expression.parse().unwrap()).unwrap().schedule(), OnNode::Segment)
        };
        let mut programs = Vec::new();
        for expression in expressions {
            programs.push(lowered(Collective::Allgather, Counts::Equal(1), expression));
            for root in (0..ranks).map(Rank) {
                let counts = Counts::Root { root, count: 1 + u64::from(root.0) };
                programs.push(lowered(Collective::Allgather, counts.clone(), expression));
                programs.push(lowered(Collective::ReduceScatter, counts, expression));
            }
        }
        for _ in 0..200 {
            let sequence: Vec<&Program> = (0..5).map(|_| random.pick(&programs).unwrap()).collect();
            let report = verify_sequence(&sequence);
            let texts = || sequence.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            assert!(report.is_correct(), "{}\n{}", report.violations[0], texts());
            assert_eq!(interpret::check(&sequence, random.bits()), Ok(()), "{}", texts());
        }
    }
}

/// The printed name of every algorithm of the catalogue is read back as the same algorithm.
#[test]
fn every_name_of_the_catalogue_reads_as_it_prints() {
    for p in [1, 2, 5, 12] {
        for Entry { expression, .. } in entries(p) {
            assert_eq!(expression.to_string().parse(), Ok(expression));
        }
    }
}
