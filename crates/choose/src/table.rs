//! Decision tables of a communicator: for each collective, the message sizes at which the selected algorithm changes. They are built once;
//! then selection is a table lookup.

use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

use bruckner_algorithms::Expression;
use bruckner_algorithms::expression::Plain;
use bruckner_algorithms::planning_work::{self, planning_work};
use bruckner_algorithms::properties::{RankPlacement, properties};
use bruckner_model::{Machine, Shape, Sketch};
use bruckner_schedule::{Collective, Counts, Order, Problem, Topology};

use crate::candidates::{
    candidates, compositions, depends_on_unmeasured, native_models, node_aware_native_model, socket_aware,
};
use crate::choice::{Choice, Policy, native};
use crate::kind::{Kind, Question, SizeClass};
use crate::knowledge::{Knowledge, Source, TuningResult, find_result};
use crate::name::Name;
use crate::reason::{Forecast, MissingProperty, Reason};

/// Number of further algorithms kept for each size range, in case the first cannot be planned.
const FALLBACKS: usize = 2;

/// Largest size at which algorithms are compared, as a power of two in bytes. The selection at this size also holds above it.
const LARGEST: u32 = 30;

/// Maximum number of changes of the selected algorithm between two neighbouring sizes at which algorithms are compared.
const CHANGES: u32 = 4;

/// Size in bytes below which all messages are assumed to take the same time.
const WORD: u64 = 8;

/// Requirement: the properties that an algorithm needs for a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Requirement {
    pub(crate) name: Name,
    pub(crate) collective: Collective,
    pub(crate) order: Order,
    pub(crate) shows_order: bool,
}

impl Requirement {
    /// Number of values of [`Requirement::index`]: three for each name.
    const COUNT: usize = Name::ALL.len() * 3;

    pub(crate) fn of(kind: &Kind) -> Requirement {
        let Kind { name, collective, order, shows_order, .. } = *kind;
        // The order matters only for collectives that reduce.
        match collective.reduces() {
            true => Requirement { name, collective, order, shows_order },
            false => Requirement { name, collective, order: Order::Any, shows_order: false },
        }
    }

    fn index(self) -> usize {
        let how = match (self.order, self.shows_order) {
            (Order::Ranks, _) => 2,
            (Order::Any, shows_order) => usize::from(shows_order),
        };
        self.name as usize * 3 + how
    }

    /// Whether the result is order-sensitive, so that another algorithm may give other bits.
    pub(crate) fn is_order_sensitive(self) -> bool {
        self.collective.reduces() && (self.shows_order || self.order == Order::Ranks)
    }
}

/// A size range: message sizes for which the same algorithms are selected.
#[derive(Debug)]
struct SizeRange {
    /// Largest size of the range, in bytes.
    upto: u64,
    /// Selected algorithms, best first. The MPI's own function appears only if it is the best.
    choices: Vec<Choice>,
}

/// Decision table of one requirement: its size ranges in ascending order.
#[derive(Debug)]
struct DecisionTable(Vec<SizeRange>);

/// Capabilities of the ranks and their MPI. Equal on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ability {
    /// Whether the MPI's functions take only C integers as counts.
    pub narrow: bool,
    /// Whether ranks of a node can read each other's buffers.
    pub reads: bool,
}

impl Default for Ability {
    fn default() -> Ability {
        Ability { narrow: false, reads: true }
    }
}

/// Decision tables of a communicator, one for each requirement, built at first use.
#[derive(Debug)]
pub struct DecisionTables {
    topology: Arc<Topology>,
    shape: Shape,
    knowledge: Arc<Knowledge>,
    /// Tuning results for communicators of this shape; empty if nodes have different numbers of ranks.
    tuned: Vec<TuningResult>,
    policy: Policy,
    able: Ability,
    tables: [OnceLock<DecisionTable>; Requirement::COUNT],
}

/// An algorithm for a call of some size, with its predicted time.
#[derive(Clone, PartialEq, Debug)]
pub struct Ranked {
    /// Expression of the algorithm.
    pub expression: Expression,
    /// Time predicted by the cost model, in seconds.
    pub predicted: f64,
}

impl DecisionTables {
    /// Makes the decision tables of a communicator whose ranks are placed as in `topology`.
    pub fn new(topology: Arc<Topology>, knowledge: Arc<Knowledge>, policy: Policy, able: Ability) -> DecisionTables {
        let shape = Shape::of(&topology);
        let knowledge = knowledge.for_shape(shape);
        let is_regular = shape.ranks() == topology.ranks();
        let tuned = if is_regular { knowledge.of_shape(shape).to_vec() } else { Vec::new() };
        DecisionTables {
            topology,
            shape,
            knowledge,
            tuned,
            policy,
            able,
            tables: [const { OnceLock::new() }; Requirement::COUNT],
        }
    }

    /// Returns the placement of the ranks on nodes.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the shape of the communicator: nodes, and ranks on each.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the machine parameters by which an algorithm for a requirement is selected.
    pub(crate) fn source(&self, need: Requirement) -> &Source {
        self.knowledge.source(need.is_order_sensitive())
    }

    /// Returns the user's settings for selecting algorithms.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns the kind of a call.
    pub fn kind(&self, question: &Question<'_>) -> Kind {
        let Question { name, problem, is_order_sensitive: shows_order } = *question;
        let (collective, order, local) = (problem.collective, problem.order, problem.counts == Counts::Local);
        let size = SizeClass::Range(0);
        let mut kind = Kind { name, collective, order, shows_order, local, size };
        if self.able.narrow && too_many(problem) {
            kind.size = SizeClass::Beyond;
        } else if !local {
            kind.size = SizeClass::Range(self.table(&kind).class(question.bytes()) as u16);
        }
        kind
    }

    /// Returns the sizes in bytes that the largest block may have for a call to be of the same kind as `question`, regardless of the sizes
    /// of its other blocks.
    pub fn range_of_kind(&self, question: &Question<'_>) -> RangeInclusive<u64> {
        let kind = self.kind(question);
        let all = match kind {
            Kind { size: SizeClass::Range(class), local: false, .. } => self.table(&kind).sizes(class.into()),
            Kind { size: SizeClass::Range(_), .. } => 0..=u64::MAX,
            // The range is empty, because this kind depends on the sum of the listed counts, not on the largest block.
            Kind { size: SizeClass::Beyond, .. } => RangeInclusive::new(1, 0),
        };
        // If no block has more bytes than this, the sum of the listed counts fits into a C integer.
        let narrow = self.able.narrow && matches!(question.problem.counts, Counts::Listed(_));
        let most = if narrow { MOST_LISTED / u64::from(question.problem.ranks) } else { u64::MAX };
        *all.start()..=most.min(*all.end())
    }

    /// Returns the algorithms of the size range of a kind, best first.
    pub(crate) fn choices(&self, kind: &Kind) -> Vec<Choice> {
        match kind.size {
            _ if kind.local => vec![Choice::native(Reason::LocalSizes)],
            SizeClass::Range(class) => self.table(kind).0[usize::from(class)].choices.clone(),
            SizeClass::Beyond => Vec::new(),
        }
    }

    /// Returns the candidates for a call in ascending order of predicted time, and the predicted time of the MPI's own function in
    /// seconds.
    pub fn ranking(&self, question: &Question<'_>) -> (Vec<Ranked>, Option<f64>) {
        let need = Requirement::of(&self.kind(question));
        let machine = &self.source(need).machine;
        let all = CandidateSet::new(self, need);
        let mut ranked: Vec<Ranked> = all.ranked(machine, question.bytes());
        ranked.truncate(all.candidates.len());
        (ranked, all.native(machine, question.bytes()))
    }

    /// Returns the algorithms that a tuning run should measure for a call: the `most` fastest by the cost model, and algorithms that the
    /// model cannot predict (socket-aware ones, and other functions of the MPI with the same effect).
    pub fn tuning_candidates(&self, question: &Question<'_>, most: usize) -> Vec<Expression> {
        let ranked = self.ranking(question).0.into_iter().take(most).map(|ranked| ranked.expression);
        let levels = socket_aware(question.problem.collective, &self.topology);
        let ranked = ranked.chain(levels);
        ranked.chain(compositions(question.problem.collective).iter().copied().map(Expression::Plain)).collect()
    }

    /// Returns the tuning result for a call.
    pub fn result(&self, question: &Question<'_>) -> Option<&TuningResult> {
        find_result(&self.tuned, question.name, question.bytes())
    }

    fn table(&self, kind: &Kind) -> &DecisionTable {
        let need = Requirement::of(kind);
        self.tables[need.index()].get_or_init(|| self.find(need))
    }

    /// Returns a required property that an algorithm does not have, or `None` if it has all of them.
    pub(crate) fn lacks(
        &self,
        collective: Collective,
        order: Order,
        shows_order: bool,
        expression: &Expression,
    ) -> Option<MissingProperty> {
        if *expression == native() {
            return None;
        }
        if planning_work(collective, expression, &self.topology) > planning_work::MAX_RUNS {
            return Some(MissingProperty::Bound);
        }
        let placement = RankPlacement::of(&self.topology);
        let has = properties(collective, expression, placement, self.topology.ranks());
        if order == Order::Ranks && !has.ordered {
            return Some(MissingProperty::Order);
        }
        if shows_order && !has.consistent && !self.policy.fast_math {
            return Some(MissingProperty::Consistency);
        }
        None
    }

    /// Whether an algorithm has the required properties, and the ranks have the capabilities that the algorithm needs.
    fn can(&self, need: Requirement, expression: &Expression) -> bool {
        let reads = *expression == Expression::Plain(Plain::Direct);
        (self.able.reads || !reads) && self.lacks(need.collective, need.order, need.shows_order, expression).is_none()
    }

    /// Builds a decision table: compares algorithms at powers of two and at sizes with tuning results, and bisects between neighbouring
    /// sizes with different selections.
    fn find(&self, need: Requirement) -> DecisionTable {
        let whole = |choice: Choice| DecisionTable(vec![SizeRange { upto: u64::MAX, choices: vec![choice] }]);
        match need.name {
            Name::Barrier if self.shape.nodes == 1 => {
                let expression = "shm".parse().expect("an expression");
                return whole(Choice { expression, reason: Reason::BarrierOnNode });
            }
            Name::Barrier => return whole(Choice::native(Reason::BarrierBetweenNodes)),
            // Receivers may have larger counts than the root, so ranks could select different algorithms; and a root may be many calls
            // ahead of the other ranks, or behind them.
            Name::Bcast => return whole(Choice::native(Reason::BroadcastSizesDiffer)),
            Name::Reduce => return whole(Choice::native(Reason::RootedReduction)),
            _ => {}
        }
        let field = CandidateSet::new(self, need);
        let mut classes: Vec<SizeRange> = Vec::new();
        let first = |bytes: u64| field.best(bytes, &field.candidates);
        let mut push = |upto: u64, from: u64| {
            let choices = field.choices(from);
            classes.push(SizeRange { upto, choices });
        };
        let mut sizes: Vec<u64> = (0..=LARGEST).map(|power| 1 << power).collect();
        let tuned = self.tuned.iter().filter(|result| result.name == need.name);
        sizes.extend(tuned.flat_map(|result| [result.bytes, result.bytes + 1]));
        sizes.sort_unstable();
        sizes.dedup();
        let mut from = 0;
        let mut known = first(sizes[0]);
        for pair in sizes.windows(2) {
            let (mut low, end) = (pair[0], pair[1]);
            let (mut before, after) = (known, first(end));
            known = after;
            for changes in 1.. {
                if before == after {
                    break;
                }
                // Between the two sizes, only the algorithms selected at these sizes and the MPI's own function are compared. If the MPI's
                // own function is the best in between, there is one more change.
                let two: Vec<Expression> = [before.best, after.best].into_iter().flatten().cloned().collect();
                let mut high = end;
                while high - low > 1 && changes < CHANGES {
                    let middle = low + (high - low) / 2;
                    *(if field.best(middle, &two) == before { &mut low } else { &mut high }) = middle;
                }
                push(high - 1, from);
                (low, from) = (high, high);
                before = if high == end { after } else { first(high) };
            }
        }
        push(u64::MAX, from);
        DecisionTable(classes)
    }
}

impl DecisionTable {
    fn class(&self, bytes: u64) -> usize {
        self.0.partition_point(|class| class.upto < bytes)
    }

    fn sizes(&self, class: usize) -> RangeInclusive<u64> {
        let from = class.checked_sub(1).map_or(0, |before| self.0[before].upto + 1);
        from..=self.0[class].upto
    }
}

/// The best algorithm for a size, and whether a tuning run has measured it.
#[derive(Clone, Copy, PartialEq)]
struct Best<'a> {
    tuned: bool,
    /// Best algorithm; `None` for the MPI's own function.
    best: Option<&'a Expression>,
}

/// Candidate set of a requirement: the algorithms that have the required properties.
pub(crate) struct CandidateSet<'a> {
    tables: &'a DecisionTables,
    need: Requirement,
    candidates: Vec<Expression>,
}

impl CandidateSet<'_> {
    pub(crate) fn new(tables: &DecisionTables, need: Requirement) -> CandidateSet<'_> {
        let origin = tables.source(need).origin;
        let right = |expression: &Expression| {
            tables.can(need, expression) && !depends_on_unmeasured(expression, tables.shape, origin)
        };
        let candidates = candidates(need.collective, tables.shape).into_iter().filter(right).collect();
        CandidateSet { tables, need, candidates }
    }

    fn time(&self, machine: &Machine, expression: &Expression, bytes: u64) -> Option<f64> {
        Some(Sketch::of(self.need.collective, expression, self.tables.shape, bytes)?.on(machine))
    }

    pub(crate) fn ranked(&self, machine: &Machine, bytes: u64) -> Vec<Ranked> {
        let ranked = |expression: &Expression| {
            let predicted = self.time(machine, expression, bytes)?;
            Some(Ranked { expression: expression.clone(), predicted })
        };
        let mut all: Vec<Ranked> = self.candidates.iter().filter_map(ranked).collect();
        all.sort_by(|a, b| a.predicted.total_cmp(&b.predicted));
        all
    }

    /// Predicts the time of the MPI's own function, in seconds. The MPI is assumed to select the algorithm that is the fastest on its
    /// default machine model. If the MPI also has a node-aware algorithm, the shorter of both times is returned.
    fn native(&self, machine: &Machine, bytes: u64) -> Option<f64> {
        let Knowledge { default_machine: default, vendor, .. } = &*self.tables.knowledge;
        let (collective, shape) = (self.need.collective, self.tables.shape);
        let natives = native_models(collective, shape, *vendor, bytes);
        let times = natives.iter().filter_map(|of| Some((of, self.time(default, of, bytes)?)));
        let (chosen, _) = times.reduce(|a, b| if b.1 < a.1 { b } else { a })?;
        let flat = self.time(machine, chosen, bytes)?;
        let on_nodes = node_aware_native_model(collective, shape, *vendor);
        Some(on_nodes.and_then(|of| self.time(machine, &of, bytes)).map_or(flat, |time| time.min(flat)))
    }

    /// Returns the tuning result for `bytes`, if its winner has the required properties.
    fn result(&self, bytes: u64) -> Option<&TuningResult> {
        let result = find_result(&self.tables.tuned, self.need.name, bytes.max(WORD))?;
        self.tables.can(self.need, &result.expression).then_some(result)
    }

    /// Returns the best of the algorithms `among` for `bytes`, like the first element of [`CandidateSet::choices`] but without ranking all
    /// candidates.
    fn best<'b>(&'b self, bytes: u64, among: &'b [Expression]) -> Best<'b> {
        match self.result(bytes) {
            Some(result) => Best { tuned: true, best: (!result.is_native()).then_some(&result.expression) },
            None => Best { tuned: false, best: self.predicted(bytes, among) },
        }
    }

    /// Returns the algorithm with the shortest predicted time, if its speedup exceeds the error margin; `None` for the MPI's own function.
    fn predicted<'b>(&'b self, bytes: u64, among: &'b [Expression]) -> Option<&'b Expression> {
        let Source { machine, origin } = self.tables.source(self.need);
        let bytes = bytes.max(WORD);
        let times = among.iter().filter_map(|of| Some((of, self.time(machine, of, bytes)?)));
        let (best, time) = times.reduce(|a, b| if b.1 < a.1 { b } else { a })?;
        (self.native(machine, bytes)? >= origin.margin() * time).then_some(best)
    }

    /// Returns the algorithms for `bytes`, best first; the MPI's own function if none is expected to be faster. Never empty.
    fn choices(&self, bytes: u64) -> Vec<Choice> {
        let tuned = self
            .result(bytes)
            .map(|result| Choice { expression: result.expression.clone(), reason: Reason::of(result) });
        match tuned {
            // A composition of other MPI functions cannot handle every call, so the model's selection follows.
            Some(tuned) if tuned.expression.is_composition() => {
                [tuned].into_iter().chain(self.by_model(bytes)).collect()
            }
            Some(tuned) => vec![tuned],
            None => self.by_model(bytes),
        }
    }

    /// Returns the algorithms for `bytes` by the cost model alone, best first; the MPI's own function if no predicted speedup exceeds the
    /// error margin.
    fn by_model(&self, bytes: u64) -> Vec<Choice> {
        let source = self.tables.source(self.need);
        let bytes = bytes.max(WORD);
        let ranked = self.ranked(&source.machine, bytes);
        let Some(native) = self.native(&source.machine, bytes) else {
            return vec![Choice::native(Reason::NothingFits)];
        };
        let forecast = |of: &Ranked| Forecast { bytes, speedup: native / of.predicted, origin: source.origin };
        let wins = |of: &&Ranked| native >= source.origin.margin() * of.predicted;
        let choice =
            |of: &Ranked| Choice { expression: of.expression.clone(), reason: Reason::Predicted(forecast(of)) };
        let best: Vec<Choice> = ranked.iter().filter(wins).take(1 + FALLBACKS).map(choice).collect();
        match (best.is_empty(), ranked.first()) {
            (false, _) => best,
            (true, Some(first)) => {
                let best = first.expression.clone();
                vec![Choice::native(Reason::BelowMargin { best, forecast: forecast(first) })]
            }
            (true, None) => vec![Choice::native(Reason::NothingFits)],
        }
    }
}

/// Largest total of listed counts, in bytes, that fits into a C integer.
const MOST_LISTED: u64 = i32::MAX as u64;

/// Whether the total of listed counts, in bytes, does not fit into a C integer.
fn too_many(problem: &Problem) -> bool {
    match &problem.counts {
        Counts::Listed(counts) => counts.iter().sum::<u64>() * u64::from(problem.element) > MOST_LISTED,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Calibration, LongMessage, Origin, ShapeResults, Vendor};

    fn tables(topology: &str, knowledge: Knowledge) -> DecisionTables {
        DecisionTables::new(
            Arc::new(topology.parse().unwrap()),
            Arc::new(knowledge),
            Policy::default(),
            Ability::default(),
        )
    }

    fn need(collective: Collective) -> Requirement {
        let name = Name::read(&collective.to_string()).unwrap();
        Requirement { name, collective, order: Order::Any, shows_order: collective.reduces() }
    }

    fn found(tables: &DecisionTables, collective: Collective) -> Vec<(String, u64)> {
        let table = tables.find(need(collective));
        table.0.iter().map(|class| (class.choices[0].expression.to_string(), class.upto)).collect()
    }

    #[test]
    fn what_was_raced_comes_before_the_model() {
        let mut known = Knowledge::defaults(Vendor::OpenMpi);
        let of = |bytes, winner: &str| TuningResult::won(Name::Allgather, bytes, winner);
        let results = vec![of(8, "native"), of(64, "native"), of(512, "ring")];
        known.results = vec![ShapeResults { shape: Shape::of(&"4x4".parse().unwrap()), results }];
        let found = found(&tables("4x4", known), Collective::Allgather);
        let at = |bytes: u64| found.iter().find(|(_, upto)| bytes <= *upto).unwrap().0.as_str();
        assert_eq!((at(8), at(63), at(64), at(512)), ("native", "native", "native", "ring"));
        // Between sizes with different winners, and outside the measured sizes, the model decides.
        assert_eq!(at(1), "native");
        assert!([at(65), at(511), at(513)].iter().all(|text| text.contains("node")), "{found:?}");
    }

    /// A tuning result holds from its size on, regardless of how often the model changes its selection at smaller sizes.
    #[test]
    fn what_was_raced_counts_from_its_size_on() {
        for topology in ["1x2", "1x8", "4x4"] {
            for winner in ["ring", "native", "spread-out"] {
                for bytes in [8u64, 100, 4096, 32_768, 1 << 20] {
                    let mut known = Knowledge::defaults(Vendor::Mpich);
                    let shape = Shape::of(&topology.parse().unwrap());
                    for collective in Collective::ALL {
                        let name = need(collective).name;
                        let results =
                            vec![TuningResult::won(name, bytes, winner), TuningResult::won(name, 8 * bytes, winner)];
                        known.results = vec![ShapeResults { shape, results }];
                        let found = found(&tables(topology, known.clone()), collective);
                        let at = |bytes: u64| found.iter().find(|(_, upto)| bytes <= *upto).unwrap().0.as_str();
                        for bytes in [bytes, bytes + 1, 2 * bytes, 8 * bytes] {
                            assert_eq!(at(bytes), winner, "{collective} {bytes} B on {topology}: {found:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_hangs_on_the_network_is_chosen_only_where_that_is_known() {
        let mut known = Knowledge::defaults(Vendor::Mpich);
        let chosen = |known: &Knowledge, topology| {
            let tables = tables(topology, known.clone());
            Collective::ALL.into_iter().flat_map(|c| found(&tables, c)).map(|(text, _)| text).collect::<Vec<_>>()
        };
        assert!(chosen(&known, "1000x1").iter().all(|text| text == "native"));
        let bold = |text: &String| text.contains("pipeline") || text.contains("spread-out") && !text.contains("window");
        assert!(!chosen(&known, "64x48").iter().any(bold) && chosen(&known, "4x4").iter().any(bold));
        known.reproducible.origin = Origin::Profile;
        assert!(chosen(&known, "64x48").iter().any(bold));
        assert!(chosen(&known, "1000x1").iter().any(|text| text != "native"));
    }

    /// The less reliable the machine parameters, the larger the speedup that an algorithm needs to be selected.
    #[test]
    fn an_algorithm_must_win_by_the_margin_of_its_figures() {
        let shape = Shape::of(&"4x4".parse().unwrap());
        for (near, origin, margin) in [(1e-6, Origin::Calibrated, 1.3), (60e-6, Origin::Oversubscribed, 1.8)] {
            let (mut won, mut lost) = (Vec::new(), Vec::new());
            for far in [20e-6, 100e-6, 200e-6, 500e-6, 2000e-6] {
                let long = LongMessage { bytes: 16384, took: far + 150e-6 };
                let calibration =
                    Calibration { intra_node: Some(near), inter_node: far, long_message: long, duration: 0.01 };
                let known = Arc::new(Knowledge::defaults(Vendor::Mpich)).with(&calibration, shape);
                let tables = tables("4x4", (*known).clone());
                for need in [Collective::Allgather, Collective::Alltoall].map(need) {
                    let field = CandidateSet::new(&tables, need);
                    for bytes in (0..=20).map(|power| 1 << power) {
                        match &field.choices(bytes)[0].reason {
                            Reason::Predicted(forecast) => won.push(*forecast),
                            Reason::BelowMargin { forecast, .. } => lost.push(*forecast),
                            other => panic!("{other}"),
                        }
                    }
                }
            }
            assert!(won.iter().chain(&lost).all(|of| of.origin == origin));
            assert!(!won.is_empty() && won.iter().all(|of| of.speedup >= margin), "{won:?}");
            assert!(!lost.is_empty() && lost.iter().all(|of| of.speedup < margin), "{lost:?}");
            // On oversubscribed cores, some predicted speedups lie between the two margins.
            let between = lost.iter().any(|of| of.speedup >= 1.3);
            assert_eq!(between, origin == Origin::Oversubscribed, "{lost:?}");
        }
    }

    /// Measurements on one node do not apply to several nodes, and no algorithm in which ranks read each other's buffers is selected where
    /// they cannot.
    #[test]
    fn a_profile_counts_where_it_was_measured() {
        let shape = Shape::of(&"1x4".parse().unwrap());
        let mut known = Knowledge::defaults(Vendor::Mpich);
        known.results = vec![ShapeResults { shape, results: vec![TuningResult::won(Name::Allgather, 8, "direct")] }];
        (known.reproducible.origin, known.between_nodes) = (Origin::Profile, false);
        let origin = |topology| tables(topology, known.clone()).knowledge.reproducible.origin;
        assert_eq!((origin("1x4"), origin("2x4")), (Origin::Profile, Origin::Default));
        let first = |reads| {
            let (topology, able) = (Arc::new("1x4".parse().unwrap()), Ability { narrow: false, reads });
            let tables = DecisionTables::new(topology, Arc::new(known.clone()), Policy::default(), able);
            found(&tables, Collective::Allgather)[0].0.clone()
        };
        assert_eq!((first(true).as_str(), first(false).as_str()), ("direct", "shm"));
    }

    /// Calls whose largest block lies in the range that `alike` returns are of the same kind, regardless of their other blocks, even if
    /// the sum of the listed counts exceeds C integers.
    #[test]
    fn what_is_alike_by_its_largest_block_is_alike() {
        let topology = Arc::new("4x4".parse().unwrap());
        let able = Ability { narrow: true, reads: true };
        let knowledge = Arc::new(Knowledge::defaults(Vendor::OpenMpi));
        let tables = DecisionTables::new(topology, knowledge, Policy::default(), able);
        let listed = |largest: u64, others: u64| {
            let counts = (0..16).map(|rank| if rank == 3 { largest } else { others }).collect();
            let (collective, order) = (Collective::Allgather, Order::Any);
            Problem { collective, ranks: 16, counts: Counts::Listed(counts), pieces: 1, element: 1, order }
        };
        let ask = |problem: &Problem| {
            let question = Question { name: Name::Allgather, problem, is_order_sensitive: false };
            (tables.kind(&question), tables.range_of_kind(&question))
        };
        let sizes: Vec<u64> = (0..31).flat_map(|power| [1u64 << power, 3 << power]).collect();
        let problems = || sizes.iter().flat_map(|largest| [listed(*largest, 0), listed(*largest, *largest)]);
        let mut beyond = 0;
        for (kind, alike) in problems().map(|problem| ask(&problem)) {
            for problem in problems().filter(|problem| alike.contains(&problem.largest_block())) {
                assert_eq!(ask(&problem).0, kind, "{alike:?} {problem:?}");
            }
            beyond += u32::from(kind.size == SizeClass::Beyond);
        }
        assert!(beyond > 0);
    }

    /// Every size is in exactly one size range, whose first algorithm is nearly the best at that size.
    #[test]
    fn classes_are_what_the_model_says_at_every_size() {
        for (topology, vendor) in [("4x4", Vendor::OpenMpi), ("1x8", Vendor::Mpich), ("64x48", Vendor::Other)] {
            let tables = tables(topology, Knowledge::defaults(vendor));
            for collective in Collective::ALL {
                let table = tables.find(need(collective));
                assert_eq!(table.0.last().unwrap().upto, u64::MAX);
                assert!(table.0.windows(2).all(|pair| pair[0].upto < pair[1].upto));
                let field = CandidateSet::new(&tables, need(collective));
                for bytes in (0..28).flat_map(|power| [1u64 << power, 3 << power]) {
                    let class = &table.0[table.class(bytes)];
                    assert!(table.sizes(table.class(bytes)).contains(&bytes));
                    let best = &field.choices(bytes)[0];
                    let first = field.best(bytes, &field.candidates).best.cloned().unwrap_or_else(native);
                    assert_eq!(first, best.expression);
                    // Between two powers of two the selection may change more than once; the algorithms involved take nearly the same
                    // time.
                    let near = |expression: &Expression| {
                        let machine = &tables.knowledge.reproducible.machine;
                        let own = field.native(machine, bytes).unwrap();
                        match *expression == native() {
                            true => own / tables.knowledge.reproducible.origin.margin(),
                            false => field.time(machine, expression, bytes).unwrap(),
                        }
                    };
                    let (chosen, best) = (near(&class.choices[0].expression), near(&best.expression));
                    assert!(chosen <= 1.1 * best, "{collective} {topology} {bytes}: {chosen} {best}");
                }
            }
        }
    }
}
