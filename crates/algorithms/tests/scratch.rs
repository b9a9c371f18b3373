//! scratch
use bruckner_algorithms::*;
use bruckner_schedule::{*, verify::verify};
fn go(c: Collective, t: &str, counts: Counts, e: &str, show: bool) -> bool {
    let task = Task::new(c, t.parse().unwrap()).counts(counts);
    let plan = match plan(&task, &e.parse().unwrap()) { Ok(p) => p, Err(r) => { println!("{c} {t} {e}: refused {r}"); return false; } };
    let s = plan.schedule();
    if show { println!("{s}"); }
    let text = s.to_string();
    let back = read(&text).unwrap();
    assert_eq!(back.document, Document::Schedule(s.clone()));
    let pr = s.flatten();
    let r = verify(&pr);
    let i = interpret::check(&[&pr, &pr, &pr], 7);
    let msgs = r.traffic.iter().map(|t| t.messages.iter().sum::<u64>()).max().unwrap_or(0);
    let el = r.traffic.iter().map(|t| t.elements.iter().sum::<u64>()).max().unwrap_or(0);
    println!("{c} {t} {e}: {} consistent {} ordered {} msgs {msgs} elements {el} interp {:?}", if r.holds() {"OK"} else {"BAD"}, r.consistent, r.ordered, i);
    for v in r.violations.iter().take(3) { println!("   {v}"); }
    let mut all = r.holds() && i.is_ok();
    for on in [lower::OnNode::Segment, lower::OnNode::Messages] {
        let low = lower::lower(&s, on);
        let text = low.to_string();
        if show { println!("{text}"); }
        assert_eq!(read(&text).unwrap().document, Document::Program(low.clone()));
        let r2 = verify(&low);
        let i2 = interpret::check(&[&low, &low, &low], 7);
        if !(r2.holds() && i2.is_ok()) || (r.consistent, r.ordered) != (r2.consistent, r2.ordered) { all = false; println!("  LOWERED {on:?} {e} {t} {:?}", i2); for v in r2.violations.iter().take(3) { println!("   L {v}"); } }
    }
    all
}
#[test]
fn scratch() {
    use Collective::*;
    let mut ok = true;
    for p in 1..20 { ok &= go(Allgather, &format!("{p}x1"), Counts::Listed((0..p).map(|i| i % 3).collect()), "sparbit", false); }
    ok &= go(Allgather, "16x4", Counts::Equal(1), "locality(node, lanes=paper)", false);
    for t in ["4,4,3,1", "2+2,2+2,2+1,1", "4,4,3,1:cyclic", "4,4,3,1:permuted=4","4x4:cyclic", "16x4", "64x1", "3x2x2", "7x3"] {
        for e in ["locality(node)", "locality(node, inside=locality(socket))", "locality(node, lanes=paper)", "locality(socket)"] {
            ok &= go(Allgather, t, Counts::Equal(2), e, false);
            ok &= go(Allreduce, t, Counts::Equal(5), e, false);
        }
    }
    for (p, e) in [(8,"8(-1 1 1 1)"), (8, "2(-1) 4(1 1) 2(1)"), (39,"39(1 1 1 1 1 1)"), (39, "3(1 1) 13(1 1 1 1)"), (39, "13(-1 -1 -1 -1) 3(-1 -1) 3(1 1) 13(1 1 1 1)"), (39, "39(-1 -1 -1 -1 -1 -1) 39(1 1 1 1 1 1)"), (40, "10(-2 -2 -1) 4(-1 3) 10(1 2 2)"), (160,"16(-3 -3) 10(9) 16(3 3)"), (12, "12(-1 2 1 1)"), (12, "12(-2 -1 3 2)")] {
        ok &= go(Allreduce, &format!("{p}x1"), Counts::Equal(p), e, p==8);
    }
    for p in 1..12 { for r in 2..5 { ok &= go(Alltoall, &format!("{p}x1"), Counts::Local, &format!("bruck({r})"), p==4&&r==3);  ok &= go(Alltoall, &format!("{p}x1"), Counts::Equal(2), &format!("bruck({r})"), false);} }
    for p in 1..6 { ok &= go(Allreduce, &format!("{p}"), Counts::Equal(2), "shm", p==3);  ok &= go(Allgather, &format!("{p}"), Counts::Equal(2), "shm", false);}
    ok &= go(Allgather, "6x1", Counts::Root{root: Rank(2), count: 5}, "sparbit", true);
    assert!(ok);
}
#[test]
fn stages() {
    let f: Expression = "8(-1 1 1 1)".parse().unwrap();
    let Expression::Factors(f) = f else { panic!() };
    print!("{}", factors::Factored::new(&f, 8).unwrap().stages(Rank(5)));
    let f: Expression = "2(-1) 4(1 1) 2(1)".parse().unwrap();
    let Expression::Factors(f) = f else { panic!() };
    print!("{}", factors::Factored::new(&f, 8).unwrap().stages(Rank(5)));
}
#[test]
fn self1() {
    let t = selftest::mutants(20000, 1, |_| {});
    for (k, t) in &t { println!("{k:28} {:6} refused {:6} shown {:6} equivalent {:4} missed {}", t.total(), t.refused, t.shown, t.equivalent, t.missed.len()); if let Some(m) = t.missed.first() { println!("{m}"); } }
}
#[test]
fn self2() {
    let g = selftest::random_programs(20000, 1, |_| {});
    println!("right {} refused {} wrong {}", g.right, g.refused.len(), g.wrong.len());
    for r in g.refused.iter().chain(&g.wrong).take(5) { println!("{r}"); }
}
