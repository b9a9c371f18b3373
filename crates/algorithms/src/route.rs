//! Routes: the ways that data takes from region to region.
//!
//! A *load* is all data from one region to another that one lane carries. A route defines the loads that a region sends and receives at
//! each step; a load may pass through other regions.

use crate::patterns::Pattern;

/// A load, named by source and destination region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Region that the load comes from.
    pub source: u32,
    /// Region that the load goes to.
    pub target: u32,
}

/// Concurrent exchange of a region: loads sent to one region and loads received from another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leg {
    /// Region to send to.
    pub to: u32,
    /// Loads to send.
    pub sends: Vec<Load>,
    /// Region to receive from.
    pub from: u32,
    /// Loads to receive.
    pub recvs: Vec<Load>,
}

/// An algorithm by which n regions exchange their loads.
pub trait Route: Send + Sync {
    /// Returns the distances, as differences of region numbers, from source to destination of the loads that a lane carries.
    fn distances(&self, n: u32, _lane: u32) -> Vec<u32> {
        (1..n).collect()
    }

    /// Returns the steps of region `me` in a lane; the legs of one step run concurrently.
    fn steps(&self, n: u32, me: u32, lane: u32) -> Vec<Vec<Leg>>;
}

/// Returns the leg in which each region sends a load directly to the region at `distance`.
fn straight(n: u32, me: u32, distance: u32) -> Leg {
    let (to, from) = ((me + distance) % n, (me + n - distance) % n);
    let (sends, recvs) = (vec![Load { source: me, target: to }], vec![Load { source: from, target: me }]);
    Leg { to, sends, from, recvs }
}

/// Route with this number of lanes: the distances are assigned to the lanes in turn, and each lane sends directly to all its destination
/// regions in one step.
pub struct DealtRoute(pub u32);

impl Route for DealtRoute {
    fn distances(&self, n: u32, lane: u32) -> Vec<u32> {
        (lane + 1..n).step_by(self.0 as usize).collect()
    }

    fn steps(&self, n: u32, me: u32, lane: u32) -> Vec<Vec<Leg>> {
        vec![self.distances(n, lane).into_iter().map(|distance| straight(n, me, distance)).collect()]
    }
}

/// Route that sends directly to every region, at the steps of a pattern.
pub struct DirectRoute(pub Box<dyn Pattern>);

impl Route for DirectRoute {
    fn steps(&self, n: u32, me: u32, _: u32) -> Vec<Vec<Leg>> {
        let legs = |step: crate::patterns::PatternStep| {
            let distance = |peer: u32| (peer + n - me) % n;
            step.sends.iter().map(|parcel| straight(n, me, distance(parcel.peer))).collect()
        };
        self.0.steps(n, me).into_iter().map(legs).collect()
    }
}

/// Radix-r Bruck route: a load moves by the base-r digits of the distance from its source to its destination, lowest digit first.
pub struct BruckRoute(pub u32);

impl Route for BruckRoute {
    fn steps(&self, n: u32, me: u32, _: u32) -> Vec<Vec<Leg>> {
        let (n, r, me) = (u64::from(n), u64::from(self.0), u64::from(me));
        let mut steps = Vec::new();
        let mut power = 1;
        while power < n {
            for shift in (1..r).map(|z| z * power).take_while(|&shift| shift < n) {
                let moving = || (1..n).filter(|j| j / power % r * power == shift);
                // A load of distance j that is at `here` has already moved by the lower digits of j.
                let loads = |here: u64| -> Vec<Load> {
                    let region = |at: u64| (at % n) as u32;
                    let load =
                        |j: u64| Load { source: region(here + n - j % power), target: region(here + j - j % power) };
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
    use crate::patterns::SpreadOut;
    use std::collections::BTreeSet;

    /// Simulates a route and checks that regions send only loads they hold, and that all loads arrive.
    fn check(route: &dyn Route, n: u32, lanes: u32) {
        for lane in 0..lanes {
            let far = |source: u32| route.distances(n, lane).into_iter().map(move |d| (source, (source + d) % n));
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
                        assert!(moved.contains(&(leg.from, me as u32, leg.recvs.clone())), "{n}, step {step}");
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
            check(&DealtRoute(4), n, 4);
            check(&DirectRoute(Box::new(SpreadOut::AT_ONCE)), n, 1);
            check(&DirectRoute(Box::new(SpreadOut::PAIRWISE)), n, 1);
            for radix in 2..6 {
                check(&BruckRoute(radix), n, 1);
            }
        }
    }
}
