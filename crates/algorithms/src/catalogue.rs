//! The catalogue: the fixed list of tasks and algorithms that are verified.
//!
//! For every number of ranks P up to a limit:
//!
//! - **flat** algorithms, which ignore nodes, on `Px1`: every allgather pattern, and its reverse as reduce_scatter; every
//!   allreduce; every alltoall; reordered and pipelined ones. Radices: 2, 3, 4, 8, ⌈√P⌉ and P−1, and for alltoall all from
//!   2 to P−1 if P ≤ 64.
//! - **factorizations with ports** for allreduce, at most twelve (see [`forms`]).
//! - **regional** algorithms (locality, leaders, lanes, on-node, pipelined) of every collective on six topologies (see
//!   [`topologies`]).
//!
//! Counts are equal, ragged (0, 1, 2, 3, 0, …), zero, or zero except at one root; for an alltoall equal, zero or local. Radices that are
//! listed only because P ≤ 64 are verified with equal counts only.
//!
//! For P ≤ 24 the whole list is verified. For larger P only every n-th entry is verified, starting with number P mod n, so that each entry
//! comes up for every n-th P (see [`sampling`]): 5 times from 25 to 64, once from 65 to 128, and three times from 129 to 512. Flat
//! algorithms with equal counts, except factorizations and modified Bruck, are verified for every P to 64 and for every 4th P to 128.
//! Verifying all entries for every P to 512 would take days.

use bruckner_schedule::{Collective, Counts, Level, Rank, Topology};

use crate::expression::{Expression, Factor, Lanes, Plain};
use crate::plan::Task;

/// One task with one algorithm.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Collective, topology and counts.
    pub task: Task,
    /// The algorithm.
    pub expression: Expression,
}

/// Returns the name and the text form of each of the six topologies for P ranks.
///
/// ```
/// let names: Vec<_> = bruckner_algorithms::catalogue::topologies(10);
/// assert_eq!(names[0], ("nodes of four", "4,4,2".to_owned()));
/// assert_eq!(names[4], ("two levels", "2+2,2+2,2".to_owned()));
/// ```
pub fn topologies(p: u32) -> Vec<(&'static str, String)> {
    let cut = |sizes: &[u32]| -> Vec<u32> {
        let (mut nodes, mut left) = (Vec::new(), p);
        for &size in sizes.iter().cycle() {
            if left == 0 {
                break;
            }
            nodes.push(size.min(left));
            left -= size.min(left);
        }
        nodes
    };
    let join = |nodes: &[u32]| nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let four = cut(&[4]);
    let sockets: Vec<String> =
        four.iter().map(|&n| if n > 2 { format!("2+{}", n - 2) } else { n.to_string() }).collect();
    vec![
        ("nodes of four", join(&four)),
        ("uneven nodes", join(&cut(&[3, 1, 5, 2]))),
        ("cyclic", format!("{}:cyclic", join(&four))),
        ("permuted", format!("{}:permuted={p}", join(&four))),
        ("two levels", sockets.join(",")),
        ("one node", p.to_string()),
    ]
}

fn group(factor: u32, ports: Vec<i32>) -> Factor {
    Factor { factor, ports }
}

/// Returns the numbers of ports of the allgather steps that a group of f ranks needs, with q ports per step.
fn gathers(f: u32, q: u32) -> Vec<i32> {
    let (mut ports, mut covered) = (Vec::new(), 1u64);
    while covered < f.into() {
        ports.push(q as i32);
        covered *= u64::from(q) + 1;
    }
    ports
}

/// Returns the numbers of ports (negative) of the reduce_scatter steps of a group of f ranks, with q ports per step and at most `most`
/// steps.
fn scatters(f: u32, q: u32, most: usize) -> Vec<i32> {
    let (mut ports, mut window) = (Vec::new(), f);
    while window > 1 && ports.len() < most {
        ports.push(-(q as i32));
        window = window.div_ceil(q + 1);
    }
    ports
}

fn partial(f: u32, q: u32) -> Factor {
    group(f, [scatters(f, q, 1), gathers(f, q)].concat())
}

fn whole(f: u32, q: u32) -> Vec<Factor> {
    vec![group(f, scatters(f, q, usize::MAX)), group(f, gathers(f, q))]
}

/// Returns ⌈√P⌉ − 1, but at least 1.
fn root(p: u32) -> u32 {
    (2..).find(|r| r * r >= p).unwrap_or(2) - 1
}

/// Returns the factorizations with ports that are verified for P ranks, at most twelve. A factor is *short* with allgather steps only,
/// *whole* with enough reduce_scatter steps to scatter everything and then allgather steps, and *partial* with one reduce_scatter step and
/// then allgather steps. With 1 port and with ⌈√P⌉ − 1 ports per step, P is one factor, short, whole and partial; then P is one short
/// factor with a single step of P − 1 ports. If P = f·g, with f the least prime factor: both factors short, in either order; f whole and g
/// short; both whole; both partial.
pub fn forms(p: u32) -> Vec<Vec<Factor>> {
    if p < 2 {
        return Vec::new();
    }
    let root = root(p);
    let mut forms = vec![
        vec![group(p, gathers(p, 1))],
        whole(p, 1),
        vec![partial(p, 1)],
        vec![group(p, gathers(p, root))],
        whole(p, root),
        vec![partial(p, root)],
        vec![group(p, gathers(p, p - 1))],
    ];
    if let Some(f) = (2..p).find(|f| p.is_multiple_of(*f)) {
        let g = p / f;
        let (short_f, short_g) = (group(f, gathers(f, 1)), group(g, gathers(g, 1)));
        forms.push(vec![short_f.clone(), short_g.clone()]);
        forms.push(vec![short_g.clone(), short_f.clone()]);
        forms.push(vec![group(f, scatters(f, 1, usize::MAX)), short_g.clone(), short_f.clone()]);
        forms.push(vec![
            group(f, scatters(f, 1, usize::MAX)),
            group(g, scatters(g, 1, usize::MAX)),
            short_g,
            short_f.clone(),
        ]);
        forms.push(vec![partial(f, 1), partial(g, 1)]);
    }
    forms.dedup();
    forms
}

/// Returns one example of each algorithm for a collective on a topology, for comparisons. Of the factorizations these are a short one
/// (allgather steps only), a whole one (reduce_scatter, then allgather steps) and a partial one (a single reduce_scatter step first), with
/// ⌈√P⌉ − 1 ports.
pub fn kinds(collective: Collective, topology: &Topology) -> Vec<Expression> {
    let p = topology.ranks();
    let read = |text: &&str| text.parse().expect("an expression");
    let flat: &[&str] = match collective {
        Collective::Alltoall => {
            &["spread-out", "spread-out(window=8)", "pairwise", "bruck(2)", "bruck(4)", "modified-bruck(2)"]
        }
        Collective::ReduceScatter => &[
            "ring",
            "neighbor-exchange",
            "recursive-halving",
            "recursive-doubling",
            "bruck(2)",
            "bruck(4)",
            "sparbit",
            "pairwise",
        ],
        Collective::Allgather => {
            &["ring", "neighbor-exchange", "recursive-doubling", "bruck(2)", "bruck(4)", "sparbit", "spread-out"]
        }
        Collective::Allreduce => {
            &["ring", "recursive-doubling", "rabenseifner", "rsag(recursive-doubling)", "bruck(2)"]
        }
    };
    let regional: &[&str] = match collective {
        Collective::Alltoall => &[
            "locality(node)",
            "leader(node, between=pairwise)",
            "leader(node, between=bruck(2))",
            "leader(node, between=pairwise, leaders=2)",
            "lanes(node, between=pairwise)",
        ],
        Collective::Allreduce => &[
            "locality(node)",
            "locality(node, lanes=paper)",
            "locality(node, ports=4)",
            "locality(node, inside=bruck(2))",
            "leader(node, between=bruck(2))",
            "leader(node, between=ring, leaders=2)",
            "lanes(node, between=spread-out)",
            "lanes(node, between=rabenseifner)",
            "rsag(locality(node))",
            "pipeline(4, lanes(node, between=ring))",
        ],
        _ => &[
            "locality(node)",
            "locality(node, lanes=paper)",
            "locality(node, ports=4)",
            "locality(node, inside=bruck(2))",
            "leader(node, between=bruck(2))",
            "leader(node, between=bruck(2), leaders=2)",
            "lanes(node, between=bruck(2))",
            "pipeline(4, lanes(node, between=ring))",
        ],
    };
    let mut kinds: Vec<Expression> = flat.iter().map(read).collect();
    if collective == Collective::Allreduce {
        let root = root(p);
        kinds.extend(
            [vec![group(p, gathers(p, root))], whole(p, root), vec![partial(p, root)]].map(Expression::Factors),
        );
    }
    kinds.extend(regional.iter().map(read));
    kinds
}

/// Returns the radices for P ranks, each with a flag: true if the radix is verified with all counts, false if with equal counts only.
fn radices(p: u32) -> Vec<(u32, bool)> {
    let root = (1..).find(|r| r * r >= p).unwrap_or(1);
    let main = [2, 3, 4, 8, root, p.saturating_sub(1)];
    let listed = |r: &u32| p <= 64 || main.contains(r);
    (2..p).filter(listed).map(|r| (r, main.contains(&r))).collect()
}

/// Returns how densely the catalogue is sampled for P ranks, as (n, m): one in m of the entries for flat algorithms with equal counts is
/// verified, and one in n of all others.
pub fn sampling(p: u32) -> (usize, usize) {
    match p {
        0..=24 => (1, 1),
        25..=64 => (8, 1),
        65..=128 => (64, 4),
        _ => (128, 128),
    }
}

/// Returns the entries of the catalogue for P ranks, after sampling.
pub fn entries(p: u32) -> Vec<Entry> {
    let is_flat = |entry: &Entry| {
        let rotates = matches!(entry.expression, Expression::Factors(_) | Expression::ModifiedBruck(_));
        !rotates && !entry.expression.groups_regions() && entry.task.counts == Counts::Equal(1)
    };
    let taken = |(number, entry): &(usize, Entry)| {
        let (any, flat) = sampling(p);
        let of = if is_flat(entry) { flat } else { any };
        number % of == p as usize % of
    };
    list(p).into_iter().enumerate().filter(taken).map(|(_, entry)| entry).collect()
}

/// Returns the whole list for P ranks, before sampling (see [`sampling`]).
pub fn list(p: u32) -> Vec<Entry> {
    let mut list = List { p, entries: Vec::new() };
    list.gathers_and_scatters();
    list.reordered_and_pipelined();
    list.allreduces();
    list.alltoalls();
    for (name, text) in topologies(p) {
        list.on_regions(name, &text.parse().expect("a topology"));
    }
    list.entries
}

/// Collector of the entries for P ranks.
struct List {
    p: u32,
    entries: Vec<Entry>,
}

fn plain(name: Plain) -> Expression {
    Expression::Plain(name)
}

fn boxed(name: Plain) -> Box<Expression> {
    Box::new(plain(name))
}

fn pipelined(parts: u32, of: Expression) -> Expression {
    Expression::Pipeline { parts, of: Box::new(of) }
}

fn rsag(of: Expression) -> Expression {
    Expression::ReduceScatterAllgather(Box::new(of))
}

impl List {
    fn add(&mut self, collective: Collective, topology: &Topology, counts: Counts, expression: Expression) {
        let task = Task::new(collective, topology.clone()).counts(counts);
        self.entries.push(Entry { task, expression });
    }

    fn ragged(&self) -> Counts {
        Counts::Listed((0..self.p).map(|i| u64::from(i % 5 % 4)).collect())
    }

    fn root(&self) -> Counts {
        Counts::Root { root: Rank(self.p / 2), count: 3 }
    }

    /// Adds flat allgathers and reduce_scatters.
    fn gathers_and_scatters(&mut self) {
        let (p, flat) = (self.p, Topology::flat(self.p));
        for collective in [Collective::Allgather, Collective::ReduceScatter] {
            for pattern in [
                Plain::Ring,
                Plain::NeighborExchange,
                Plain::RecursiveDoubling,
                Plain::RecursiveHalving,
                Plain::Sparbit,
                Plain::SpreadOut,
                Plain::Pairwise,
            ] {
                for counts in [Counts::Equal(1), Counts::Equal(0), self.ragged(), self.root()] {
                    self.add(collective, &flat, counts, plain(pattern));
                }
            }
            for counts in [Counts::Equal(1), self.ragged()] {
                self.add(collective, &flat, counts, Expression::SpreadOut { window: 3 });
            }
            for (radix, _) in radices(p).into_iter().filter(|(_, all)| *all) {
                for counts in [Counts::Equal(1), Counts::Equal(0), self.ragged()] {
                    self.add(collective, &flat, counts, Expression::Bruck(radix));
                }
            }
        }
    }

    /// Adds flat reordered and pipelined algorithms.
    fn reordered_and_pipelined(&mut self) {
        let (p, flat) = (self.p, Topology::flat(self.p));
        for pattern in [Box::new(Expression::Bruck(2)), boxed(Plain::RecursiveDoubling)] {
            for collective in [Collective::Allgather, Collective::ReduceScatter] {
                self.add(collective, &flat, self.ragged(), Expression::Reorder(pattern.clone()));
            }
        }
        for counts in [Counts::Equal(5), self.ragged(), self.root()] {
            self.add(Collective::Allgather, &flat, counts.clone(), pipelined(3, plain(Plain::Ring)));
            self.add(Collective::ReduceScatter, &flat, counts, pipelined(3, plain(Plain::Ring)));
        }
        self.add(Collective::Allreduce, &flat, Counts::Equal(3 * u64::from(p)), pipelined(3, plain(Plain::Ring)));
        self.add(Collective::Allreduce, &flat, Counts::Equal(5), pipelined(2, plain(Plain::RecursiveDoubling)));
        self.add(Collective::Alltoall, &flat, Counts::Equal(2), pipelined(2, Expression::Bruck(2)));
    }

    /// Adds flat allreduces.
    fn allreduces(&mut self) {
        let (p, flat) = (self.p, Topology::flat(self.p));
        for elements in [2 * u64::from(p) - 1, 0] {
            for algorithm in [Plain::RecursiveDoubling, Plain::Rabenseifner, Plain::Ring, Plain::Sparbit] {
                self.add(Collective::Allreduce, &flat, Counts::Equal(elements), plain(algorithm));
            }
            self.add(Collective::Allreduce, &flat, Counts::Equal(elements), rsag(plain(Plain::RecursiveDoubling)));
            for form in forms(p) {
                self.add(Collective::Allreduce, &flat, Counts::Equal(elements), Expression::Factors(form));
            }
        }
    }

    /// Adds flat alltoalls.
    fn alltoalls(&mut self) {
        let (p, flat) = (self.p, Topology::flat(self.p));
        for counts in [Counts::Equal(1), Counts::Equal(0), Counts::Local] {
            for algorithm in [plain(Plain::SpreadOut), plain(Plain::Pairwise), Expression::SpreadOut { window: 3 }] {
                self.add(Collective::Alltoall, &flat, counts.clone(), algorithm);
            }
        }
        for (radix, all) in radices(p) {
            self.add(Collective::Alltoall, &flat, Counts::Equal(1), Expression::Bruck(radix));
            self.add(Collective::Alltoall, &flat, Counts::Equal(1), Expression::ModifiedBruck(radix));
            if all {
                self.add(Collective::Alltoall, &flat, Counts::Local, Expression::Bruck(radix));
                self.add(Collective::Alltoall, &flat, Counts::Equal(0), Expression::Bruck(radix));
            }
        }
    }

    /// Adds the algorithms that use regions, for all collectives on one topology.
    fn on_regions(&mut self, name: &str, topology: &Topology) {
        let locality =
            |level, inside: Expression, lanes| Expression::Locality { level, inside: Box::new(inside), lanes };
        let shm = plain(Plain::Shm);
        let mut ways = vec![
            locality(Level::NODE, shm.clone(), Lanes::ALL),
            locality(Level::NODE, shm.clone(), Lanes::Paper),
            locality(Level::NODE, shm.clone(), Lanes::PerRank(2)),
            locality(Level::NODE, Expression::Bruck(2), Lanes::ALL),
        ];
        let (level, bruck) = (Level::NODE, |radix| Box::new(Expression::Bruck(radix)));
        let leader = |between, leaders| Expression::Leader { level, between, leaders };
        let lanes = |between| Expression::MultiLane { level, between };
        ways.push(leader(boxed(Plain::Ring), 1));
        ways.push(leader(bruck(3), 2));
        ways.push(leader(Box::new(Expression::Reorder(boxed(Plain::RecursiveDoubling))), 2));
        ways.push(lanes(boxed(Plain::Sparbit)));
        ways.push(pipelined(2, locality(level, shm.clone(), Lanes::ALL)));
        ways.push(pipelined(3, pipelined(2, leader(boxed(Plain::Ring), 1))));
        if name == "two levels" {
            ways.push(locality(Level::NODE, locality(Level::SOCKET, shm.clone(), Lanes::ALL), Lanes::ALL));
            ways.push(locality(Level::SOCKET, shm.clone(), Lanes::ALL));
        }
        if name == "one node" {
            ways.push(shm);
        }
        for (inside, counts) in [
            (Plain::Shm, Counts::Equal(1)),
            (Plain::SpreadOut, Counts::Equal(1)),
            (Plain::SpreadOut, Counts::Local),
            (Plain::Shm, Counts::Equal(0)),
        ] {
            self.add(Collective::Alltoall, topology, counts, locality(Level::NODE, plain(inside), Lanes::ALL));
        }
        let window = Box::new(Expression::SpreadOut { window: 2 });
        let ways_of_alltoall =
            [leader(bruck(2), 1), leader(boxed(Plain::Pairwise), 2), lanes(boxed(Plain::SpreadOut)), lanes(window)];
        for way in ways_of_alltoall {
            for counts in [Counts::Equal(1), Counts::Local, Counts::Equal(0)] {
                self.add(Collective::Alltoall, topology, counts, way.clone());
            }
        }
        for way in ways {
            for collective in [Collective::Allgather, Collective::ReduceScatter] {
                for counts in [Counts::Equal(1), Counts::Equal(0), self.ragged(), self.root()] {
                    self.add(collective, topology, counts, way.clone());
                }
            }
            for elements in [3, 0] {
                self.add(Collective::Allreduce, topology, Counts::Equal(elements), way.clone());
            }
        }
        let mut ways = vec![
            lanes(boxed(Plain::Rabenseifner)),
            lanes(Box::new(rsag(plain(Plain::RecursiveDoubling)))),
            lanes(boxed(Plain::SpreadOut)),
            leader(boxed(Plain::Rabenseifner), 2),
            pipelined(3, lanes(boxed(Plain::Ring))),
            rsag(locality(level, plain(Plain::Shm), Lanes::ALL)),
            rsag(locality(level, plain(Plain::Shm), Lanes::PerRank(2))),
            rsag(leader(boxed(Plain::SpreadOut), 1)),
            pipelined(2, rsag(lanes(boxed(Plain::Ring)))),
            pipelined(2, rsag(locality(level, plain(Plain::Shm), Lanes::ALL))),
            pipelined(2, rsag(leader(boxed(Plain::Ring), 1))),
        ];
        let regions = topology.regions(Level::NODE);
        if regions > 1 {
            let factors = || Box::new(Expression::Factors(whole(regions, root(regions))));
            ways.extend([lanes(factors()), pipelined(2, lanes(factors()))]);
        }
        for way in ways {
            for elements in [2 * u64::from(self.p) + 1, 3] {
                self.add(Collective::Allreduce, topology, Counts::Equal(elements), way.clone());
            }
        }
        if name == "one node" {
            let direct = || plain(Plain::Direct);
            for counts in [Counts::Equal(1), Counts::Equal(0), self.ragged()] {
                self.add(Collective::Allgather, topology, counts.clone(), direct());
                self.add(Collective::ReduceScatter, topology, counts, direct());
            }
            self.add(Collective::Alltoall, topology, Counts::Equal(1), direct());
            for elements in [2 * u64::from(self.p) + 1, 3, 0] {
                self.add(Collective::Allreduce, topology, Counts::Equal(elements), direct());
            }
        }
        if name == "one node" {
            for elements in [2 * u64::from(self.p) + 1, 0] {
                for way in
                    [plain(Plain::ShmSplit), plain(Plain::ShmRotate), Expression::ShmTree(2), Expression::ShmTree(4)]
                {
                    self.add(Collective::Allreduce, topology, Counts::Equal(elements), way);
                }
            }
        }
    }
}
