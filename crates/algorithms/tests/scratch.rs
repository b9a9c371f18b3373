//! scratch
use bruckner_algorithms::*;
use bruckner_schedule::{verify::verify, *};
#[test]
fn cat() {
    let n: u32 = std::env::var("N").map(|n| n.parse().unwrap()).unwrap_or(12);
    let mut bad = std::collections::BTreeMap::new();
    let mut count = 0;
    let mut time: std::collections::BTreeMap<String, (f64, u32)> = Default::default();
    for p in 1..=n {
        for e in catalogue::entries(p) {
            let plan = match plan(&e.task, &e.expression) {
                Ok(p) => p,
                Err(r) => {
                    bad.entry(format!("{} {} refused {r}", e.task.collective, e.expression)).or_insert(0);
                    continue;
                }
            };
            let t0 = std::time::Instant::now();
            let s = plan.schedule();
            let mut forms = vec![s.flatten(), lower::lower(&s, lower::OnNode::Segment)];
            if e.expression.shares_memory() {
                forms.push(lower::lower(&s, lower::OnNode::Messages));
            }
            for (k, pr) in forms.iter().enumerate() {
                count += 1;
                let r = verify(pr);
                let i = if n <= 12 { interpret::check(&[pr, pr, pr], 3) } else { Ok(()) };
                if !r.holds() || i.is_err() {
                    *bad.entry(format!(
                        "{} {} {:?} form {k}: {:?} {:?}",
                        e.task.collective,
                        e.expression,
                        e.task.topology.to_string(),
                        r.violations.first().map(|v| v.to_string()),
                        i
                    ))
                    .or_insert(0) += 1;
                }
            }
            let d = t0.elapsed().as_secs_f64();
            let name = format!(
                "{} {}",
                e.task.collective,
                e.expression.to_string().split('(').next().unwrap().trim_matches(char::is_numeric)
            );
            let t = time.entry(name).or_default();
            t.0 += d;
            t.1 += 1;
        }
    }
    println!("{count} programs, {} bad", bad.len());
    for (k, (t, c)) in time {
        println!("{t:8.2}s {c:6} {k}");
    }
    for (b, _) in bad.iter().take(25) {
        println!("{b}");
    }
}
