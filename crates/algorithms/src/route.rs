//! Routes: how what regions have for each other goes from region to region.
//!
//! A *load* is everything that one region has for another and one lane carries. A route says which loads a region
//! sends and receives at each step; a load may rest in other regions on its way.

use crate::patterns::Pattern;

/// From which region to which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Where it comes from.
    pub source: u32,
    /// Where it goes to.
    pub target: u32,
}

/// Loads that go to one region and come from another, at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leg {
    /// The region that is sent to.
    pub to: u32,
    /// What is sent.
    pub sends: Vec<Load>,
    /// The region that is received from.
    pub from: u32,
    /// What is received.
    pub recvs: Vec<Load>,
}

/// A way for n regions to bring each other their loads.
pub trait Route: Send + Sync {
    /// The distances to the regions that a lane carries for.
    fn distances(&self, n: u32, _lane: u32) -> Vec<u32> {
        (1..n).collect()
    }

    /// What region `me` does in a lane: steps of legs that run at once.
    fn steps(&self, n: u32, me: u32, lane: u32) -> Vec<Vec<Leg>>;
}

/// The leg that goes all the way.
fn straight(n: u32, me: u32, distance: u32) -> Leg {
    let (to, from) = ((me + distance) % n, (me + n - distance) % n);
    let (sends, recvs) = (vec![Load { source: me, target: to }], vec![Load { source: from, target: me }]);
    Leg { to, sends, from, recvs }
}

/// Distances are dealt to so many lanes, and each goes to all its regions at once.
pub struct Dealt(pub u32);

impl Route for Dealt {
    fn distances(&self, n: u32, lane: u32) -> Vec<u32> {
        (lane + 1..n).step_by(self.0 as usize).collect()
    }

    fn steps(&self, n: u32, me: u32, lane: u32) -> Vec<Vec<Leg>> {
        vec![self.distances(n, lane).into_iter().map(|distance| straight(n, me, distance)).collect()]
    }
}

/// Straight to every region, at the steps of a pattern.
pub struct Straight(pub Box<dyn Pattern>);

impl Route for Straight {
    fn steps(&self, n: u32, me: u32, _: u32) -> Vec<Vec<Leg>> {
        let legs = |step: crate::patterns::Step| {
            let distance = |peer: u32| (peer + n - me) % n;
            step.sends.iter().map(|parcel| straight(n, me, distance(parcel.peer))).collect()
        };
        self.0.steps(n, me).into_iter().map(legs).collect()
    }
}

/// Radix-r Bruck: a load goes the digits of its distance, lowest first.
pub struct Digits(pub u32);

impl Route for Digits {
    fn steps(&self, n: u32, me: u32, _: u32) -> Vec<Vec<Leg>> {
        let (n, r, me) = (u64::from(n), u64::from(self.0), u64::from(me));
        let mut steps = Vec::new();
        let mut power = 1;
        while power < n {
            for shift in (1..r).map(|z| z * power).take_while(|&shift| shift < n) {
                let moving = || (1..n).filter(|j| j / power % r * power == shift);
                // What is to go j on has gone the lower digits of j when it is at `here`.
                let loads = |here: u64| -> Vec<Load> {
                    let region = |at: u64| (at % n) as u32;
                    let load = |j: u64| Load {
                        source: region(here + n - j % power),
                        target: region(here + j - j % power),
                    };
                    moving().map(load).collect()
                };
                let (to, from) = ((me + shift) % n, (me + n - shift) % n);
                let (sends, recvs) = (loads(me), loads(from));
                steps.push(vec![Leg { to: to as u32, sends, from: from as u32, recvs }]);
            }
            power *= r;
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patterns::{Pairwise, SpreadOut};
    use std::collections::BTreeSet;

    /// Plays a route: loads are sent only by who has them, and all arrive.
    fn check(route: &dyn Route, n: u32, lanes: u32) {
        for lane in 0..lanes {
            let far =
                |source: u32| route.distances(n, lane).into_iter().map(move |d| (source, (source + d) % n));
            let mut at: Vec<BTreeSet<(u32, u32)>> = (0..n).map(|region| far(region).collect()).collect();
            let all: Vec<Vec<Vec<Leg>>> = (0..n).map(|me| route.steps(n, me, lane)).collect();
            for step in 0..all[0].len() {
                let mut moved: Vec<(u32, u32, Vec<Load>)> = Vec::new();
                for (me, legs) in all.iter().enumerate() {
                    for leg in &legs[step] {
                        for load in &leg.sends {
                            assert!(at[me].remove(&(load.source, load.target)), "{n}, step {step}");
                        }
                        moved.push((me as u32, leg.to, leg.sends.clone()));
                    }
                }
                for (me, legs) in all.iter().enumerate() {
                    for leg in &legs[step] {
                        assert!(
                            moved.contains(&(leg.from, me as u32, leg.recvs.clone())),
                            "{n}, step {step}"
                        );
                        at[me].extend(leg.recvs.iter().map(|load| (load.source, load.target)));
                    }
                }
            }
            for (me, loads) in at.iter().enumerate() {
                assert_eq!(loads.len(), route.distances(n, lane).len());
                assert!(loads.iter().all(|&(_, target)| target as usize == me));
            }
        }
    }

    #[test]
    fn every_load_arrives() {
        for n in 1..20 {
            check(&Dealt(4), n, 4);
            check(&Straight(Box::new(SpreadOut)), n, 1);
            check(&Straight(Box::new(Pairwise)), n, 1);
            for radix in 2..6 {
                check(&Digits(radix), n, 1);
            }
        }
    }
}
