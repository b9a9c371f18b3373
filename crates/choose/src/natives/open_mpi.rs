//! Open MPI: the fixed decision of `coll/tuned`, and HAN.
//!
//! `ompi/mca/coll/tuned/coll_tuned_decision_fixed.c` is the same file in versions 4.1.4 and 5.0.10. It passes a segment size of 0, so
//! nothing is segmented. From version 5 on, HAN (`ompi/mca/coll/han`, priority 35) has precedence over `tuned` (30) for allgather and
//! allreduce, among others, on communicators of several nodes with several ranks each; it does not depend on sizes.

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;
use bruckner_model::Shape;
use bruckner_schedule::{Collective, Level};

use super::{NativeAlgorithm, SourceLine, WORD, plain};

/// Rules of a collective: for communicators of fewer ranks than the first number, algorithms for messages of fewer bytes than the first
/// number of each entry, by Open MPI's number of the algorithm, with the line of the rule.
type Rules = &'static [(u32, &'static [(u64, u8, u16)])];

/// Rules for allgather (lines 1093–1228 of `coll_tuned_decision_fixed.c`); the message size is that of one block.
const ALLGATHER: Rules = &[
    (3, &[(u64::MAX, 6, 1119)]),
    (32, &[(u64::MAX, 3, 1121)]),
    (64, &[(1024, 3, 1124), (65536, 5, 1126), (u64::MAX, 4, 1128)]),
    (128, &[(512, 3, 1132), (65536, 5, 1134), (u64::MAX, 4, 1136)]),
    (256, &[(512, 3, 1140), (131072, 5, 1142), (524288, 4, 1144), (1048576, 5, 1146), (u64::MAX, 4, 1148)]),
    (
        512,
        &[
            (32, 3, 1152),
            (128, 2, 1154),
            (1024, 3, 1156),
            (131072, 5, 1158),
            (524288, 4, 1160),
            (1048576, 5, 1162),
            (u64::MAX, 4, 1164),
        ],
    ),
    (1024, &[(64, 3, 1168), (256, 2, 1170), (2048, 3, 1172), (u64::MAX, 5, 1174)]),
    (
        2048,
        &[
            (4, 3, 1178),
            (8, 2, 1180),
            (16, 3, 1182),
            (32, 2, 1184),
            (256, 3, 1186),
            (512, 2, 1188),
            (4096, 3, 1190),
            (u64::MAX, 5, 1192),
        ],
    ),
    (4096, &[(32, 2, 1196), (128, 3, 1198), (512, 2, 1200), (4096, 3, 1202), (u64::MAX, 5, 1204)]),
    (u32::MAX, &[(2, 3, 1208), (8, 2, 1210), (16, 3, 1212), (512, 2, 1214), (4096, 3, 1216), (u64::MAX, 5, 1218)]),
];

/// Rules for allreduce with a commutative operation (lines 55–218); the message size is that of the vector.
const ALLREDUCE: Rules = &[
    (
        4,
        &[
            (8, 4, 123),
            (4096, 3, 125),
            (8192, 4, 127),
            (16384, 3, 129),
            (65536, 4, 131),
            (262144, 5, 133),
            (u64::MAX, 6, 135),
        ],
    ),
    (8, &[(16, 4, 139), (8192, 3, 141), (u64::MAX, 6, 143)]),
    (16, &[(8192, 3, 147), (u64::MAX, 6, 149)]),
    (32, &[(64, 5, 153), (4096, 3, 155), (u64::MAX, 6, 157)]),
    (64, &[(128, 5, 161), (u64::MAX, 6, 163)]),
    (128, &[(262144, 3, 167), (u64::MAX, 6, 169)]),
    (256, &[(131072, 2, 173), (262144, 3, 175), (u64::MAX, 6, 177)]),
    (512, &[(4096, 2, 181), (u64::MAX, 6, 183)]),
    (2048, &[(2048, 2, 187), (16384, 3, 189), (u64::MAX, 6, 191)]),
    (4096, &[(2048, 2, 195), (4096, 5, 197), (16384, 3, 199), (u64::MAX, 6, 201)]),
    (u32::MAX, &[(2048, 2, 205), (16384, 5, 207), (32768, 3, 209), (u64::MAX, 6, 211)]),
];

/// Rules for `MPI_Reduce_scatter_block` with a commutative operation (lines 972–1082); the message size is that of one block.
const REDUCE_SCATTER_BLOCK: Rules = &[
    (
        4,
        &[
            (4, 2, 1004),
            (8, 4, 1006),
            (16, 3, 1008),
            (128, 4, 1010),
            (256, 3, 1012),
            (4096, 4, 1014),
            (8192, 3, 1016),
            (131072, 4, 1018),
            (u64::MAX, 1, 1020),
        ],
    ),
    (
        8,
        &[
            (8, 3, 1024),
            (32, 2, 1026),
            (256, 4, 1028),
            (8192, 3, 1030),
            (16384, 4, 1032),
            (1048576, 3, 1034),
            (u64::MAX, 1, 1036),
        ],
    ),
    (16, &[(4, 1, 1040), (32, 3, 1042), (128, 4, 1044), (524288, 3, 1046), (4194304, 1, 1048), (u64::MAX, 4, 1050)]),
    (32, &[(32, 1, 1054), (524288, 3, 1056), (2097152, 1, 1058), (4194304, 3, 1060), (u64::MAX, 4, 1062)]),
    (u32::MAX, &[(4, 3, 1066), (16, 1, 1068), (65536, 4, 1070), (262144, 1, 1072), (u64::MAX, 4, 1074)]),
];

/// Rules for `MPI_Reduce_scatter` with a commutative operation (lines 824–962); the message size is that of all blocks.
const REDUCE_SCATTER: Rules = &[
    (4, &[(65536, 3, 858), (131072, 4, 860), (u64::MAX, 3, 862)]),
    (8, &[(8, 1, 866), (262144, 2, 868), (u64::MAX, 3, 870)]),
    (32, &[(262144, 2, 874), (u64::MAX, 3, 876)]),
    (64, &[(64, 1, 880), (2048, 2, 882), (524288, 4, 884), (u64::MAX, 3, 886)]),
    (128, &[(256, 1, 890), (512, 2, 892), (2048, 4, 894), (4096, 2, 896), (u64::MAX, 4, 898)]),
    (256, &[(256, 1, 902), (512, 2, 904), (u64::MAX, 4, 906)]),
    (512, &[(256, 1, 910), (1024, 2, 912), (u64::MAX, 4, 914)]),
    (1024, &[(512, 1, 918), (2048, 2, 920), (8192, 4, 922), (16384, 2, 924), (u64::MAX, 4, 926)]),
    (2048, &[(512, 1, 930), (4096, 2, 932), (16384, 4, 934), (32768, 2, 936), (u64::MAX, 4, 938)]),
    (4096, &[(512, 1, 942), (4096, 2, 944), (u64::MAX, 4, 946)]),
    (u32::MAX, &[(1024, 1, 950), (8192, 2, 952), (u64::MAX, 4, 954)]),
];

/// Rules for alltoall (lines 228–411 of `coll_tuned_decision_fixed.c`); the message size is that of one block.
const ALLTOALL: Rules = &[
    (
        3,
        &[
            (2, 2, 255),
            (4, 5, 257),
            (16, 2, 259),
            (64, 5, 261),
            (256, 2, 263),
            (4096, 5, 265),
            (32768, 2, 267),
            (262144, 4, 269),
            (1048576, 5, 271),
            (u64::MAX, 2, 273),
        ],
    ),
    (8, &[(8192, 4, 277), (16384, 1, 279), (65536, 4, 281), (524288, 1, 283), (1048576, 2, 285), (u64::MAX, 1, 287)]),
    (16, &[(262144, 4, 291), (u64::MAX, 1, 293)]),
    (
        32,
        &[
            (4, 4, 297),
            (512, 3, 299),
            (8192, 4, 301),
            (32768, 1, 303),
            (262144, 4, 305),
            (524288, 1, 307),
            (u64::MAX, 4, 309),
        ],
    ),
    (64, &[(512, 3, 313), (524288, 1, 315), (u64::MAX, 4, 317)]),
    (128, &[(1024, 3, 321), (2048, 1, 323), (4096, 4, 325), (262144, 1, 327), (u64::MAX, 2, 329)]),
    (256, &[(1024, 3, 333), (2048, 4, 335), (262144, 1, 337), (u64::MAX, 2, 339)]),
    (512, &[(1024, 3, 343), (8192, 4, 345), (32768, 1, 347), (u64::MAX, 2, 349)]),
    (1024, &[(512, 3, 353), (8192, 4, 355), (16384, 1, 357), (131072, 4, 359), (262144, 1, 361), (u64::MAX, 2, 363)]),
    (2048, &[(512, 3, 367), (1024, 4, 369), (2048, 1, 371), (16384, 4, 373), (262144, 1, 375), (u64::MAX, 4, 377)]),
    (4096, &[(1024, 3, 381), (4096, 4, 383), (8192, 1, 385), (131072, 4, 387), (u64::MAX, 1, 389)]),
    (
        u32::MAX,
        &[(2048, 3, 393), (8192, 4, 395), (16384, 1, 397), (32768, 4, 399), (65536, 1, 401), (u64::MAX, 4, 403)],
    ),
];

/// Returns what Open MPI's own function does. `has_han` is true from version 5 on.
pub(super) fn native(collective: Collective, shape: Shape, bytes: u64, has_han: bool) -> NativeAlgorithm {
    if has_han && shape.nodes > 1 && shape.on_node > 1 {
        match collective {
            Collective::Allgather => return han_allgather(shape, bytes),
            Collective::Allreduce => {
                return NativeAlgorithm {
                    name: "HAN: reduce on nodes, reduce and broadcast between nodes, broadcast on nodes",
                    place: SourceLine { file: "ompi/mca/coll/han/coll_han_allreduce.c", line: 91 },
                    like: None,
                };
            }
            Collective::ReduceScatter | Collective::Alltoall => {}
        }
    }
    tuned(collective, shape.ranks(), bytes)
}

/// HAN gathers on each node, runs an allgather among the first ranks of the nodes, and broadcasts the result on each node.
fn han_allgather(shape: Shape, bytes: u64) -> NativeAlgorithm {
    let between = tuned(Collective::Allgather, shape.nodes, bytes * u64::from(shape.on_node)).like;
    let leader = |between| Expression::Leader { level: Level::NODE, between: Box::new(between), leaders: 1 };
    NativeAlgorithm {
        name: "HAN: gather on nodes, allgather between nodes, broadcast on nodes",
        place: SourceLine { file: "ompi/mca/coll/han/coll_han_allgather.c", line: 72 },
        like: between.map(leader),
    }
}

fn tuned(collective: Collective, ranks: u32, bytes: u64) -> NativeAlgorithm {
    let rules = match collective {
        Collective::Allgather => ALLGATHER,
        Collective::Allreduce => ALLREDUCE,
        Collective::ReduceScatter => REDUCE_SCATTER_BLOCK,
        Collective::Alltoall => ALLTOALL,
    };
    let (number, line) = rule(rules, ranks, bytes);
    let (name, like) = algorithm(collective, number, ranks, bytes);
    NativeAlgorithm { name, place: decision(line), like }
}

/// Returns what `MPI_Reduce_scatter` does for blocks of `bytes`.
pub(super) fn reduce_scatter(ranks: u32, bytes: u64) -> NativeAlgorithm {
    let (number, line) = rule(REDUCE_SCATTER, ranks, bytes.saturating_mul(ranks.into()));
    let (name, like) = match number {
        2 => ("recursive_halving", Some(plain(Plain::RecursiveHalving))),
        3 => ("ring", Some(plain(Plain::Ring))),
        4 => ("butterfly", Some(plain(Plain::RecursiveDoubling))),
        _ => ("non-overlapping: reduce, then scatter", None),
    };
    NativeAlgorithm { name, place: decision(line), like }
}

/// Returns the number of the algorithm that a rule selects, and the rule's line.
fn rule(rules: Rules, ranks: u32, bytes: u64) -> (u8, u16) {
    let of_size = rules.iter().find(|(below, _)| ranks < *below).map_or(rules[rules.len() - 1].1, |(_, rule)| *rule);
    let &(_, number, line) = of_size.iter().find(|(below, ..)| bytes < *below).unwrap_or(&of_size[of_size.len() - 1]);
    (number, line)
}

/// Returns a line of the fixed decision.
fn decision(line: u16) -> SourceLine {
    SourceLine { file: "ompi/mca/coll/tuned/coll_tuned_decision_fixed.c", line: line.into() }
}

/// Returns the name of an algorithm, and the algorithm of ours that sends the same messages.
fn algorithm(collective: Collective, number: u8, ranks: u32, bytes: u64) -> (&'static str, Option<Expression>) {
    let even = ranks.is_power_of_two();
    let doubling = plain(Plain::RecursiveDoubling);
    let bruck = Expression::Bruck(2);
    // The rules do not know the size of elements; 8 bytes are assumed.
    let elements = bytes / WORD;
    match (collective, number) {
        (Collective::Allgather, 2) => ("bruck", Some(bruck)),
        (Collective::Allgather, 3) => ("recursive_doubling", Some(if even { doubling } else { bruck })),
        (Collective::Allgather, 4) => ("ring", Some(plain(Plain::Ring))),
        (Collective::Allgather, 5) => {
            let pairs = ranks.is_multiple_of(2);
            ("neighbor", Some(plain(if pairs { Plain::NeighborExchange } else { Plain::Ring })))
        }
        (Collective::Allgather, _) => ("two_proc", Some(doubling)),
        (Collective::Allreduce, 3) => ("recursive_doubling", Some(doubling)),
        // A ring needs an element for each rank; with fewer, it is recursive doubling.
        (Collective::Allreduce, 4 | 5) => {
            ("ring", Some(if elements < u64::from(ranks) { doubling } else { plain(Plain::Ring) }))
        }
        // Likewise for Rabenseifner's algorithm, which is a linear reduction and a broadcast with fewer elements.
        (Collective::Allreduce, 6) => {
            let pieces = u64::from(1u32 << ranks.ilog2());
            ("rabenseifner", (elements >= pieces).then_some(plain(Plain::Rabenseifner)))
        }
        (Collective::Allreduce, 2) => ("nonoverlapping: reduce, then broadcast", None),
        (Collective::Allreduce, _) => ("basic_linear: reduce, then broadcast", None),
        (Collective::ReduceScatter, 2) => ("recursive_doubling", None),
        (Collective::ReduceScatter, 3) => ("recursive_halving", Some(plain(Plain::RecursiveHalving))),
        (Collective::ReduceScatter, 4) => ("butterfly", Some(doubling)),
        (Collective::ReduceScatter, _) => ("basic_linear: reduce, then scatter", None),
        (Collective::Alltoall, 2) => ("pairwise", Some(plain(Plain::Pairwise))),
        (Collective::Alltoall, 3) => ("modified_bruck", Some(Expression::ModifiedBruck(2))),
        // Without a limit on the number of requests, which is the default, `linear_sync` is `linear`.
        (Collective::Alltoall, 4) => ("linear_sync", Some(plain(Plain::SpreadOut))),
        (Collective::Alltoall, 5) => ("two_proc", Some(plain(Plain::SpreadOut))),
        (Collective::Alltoall, _) => ("linear", Some(plain(Plain::SpreadOut))),
    }
}
