//! prof
#[global_allocator]
static A: mimalloc::MiMalloc = mimalloc::MiMalloc;
use bruckner_algorithms::catalogue::entries;
use bruckner_algorithms::lower::{OnNode, lower};
use bruckner_algorithms::plan;
use bruckner_schedule::verify::verify;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
fn main() {
    let p: u32 = std::env::args().nth(1).unwrap().parse().unwrap();
    let mut t: BTreeMap<String, (u32, [Duration; 6])> = BTreeMap::new();
    let mut total = [Duration::ZERO; 6];
    for e in entries(p) {
        let key = format!("{} {}", e.task.collective, e.expression);
        let key = if e.expression.shares_memory() {
            key
        } else {
            format!("{} {}", e.task.collective, e.expression).split('(').next().unwrap().to_string()
        };
        let key = format!(
            "{key} {}",
            match e.task.counts {
                bruckner_schedule::Counts::Equal(0) => "0",
                bruckner_schedule::Counts::Equal(_) => "1",
                bruckner_schedule::Counts::Local => "l",
                bruckner_schedule::Counts::Root { .. } => "root",
                _ => "r",
            }
        );
        let key = if std::env::var("TOPO").is_ok() {
            format!(
                "{key} {}",
                e.task
                    .topology
                    .to_string()
                    .chars()
                    .rev()
                    .take(20)
                    .collect::<String>()
                    .chars()
                    .rev()
                    .collect::<String>()
            )
        } else {
            key
        };
        let a = Instant::now();
        let s = plan(&e.task, &e.expression).unwrap_or_else(|_| panic!()).schedule();
        let b = Instant::now();
        let f = s.flatten();
        let r = verify(&f);
        assert!(r.holds());
        let c = Instant::now();
        let g = lower(&s, OnNode::Segment);
        let d = Instant::now();
        assert!(verify(&g).holds());
        let x = Instant::now();
        let mut v = [b - a, c - b, d - c, x - d, Duration::ZERO, Duration::ZERO];
        if e.expression.shares_memory() {
            let m = lower(&s, OnNode::Messages);
            v[4] = x.elapsed();
            let y = Instant::now();
            assert!(verify(&m).holds());
            v[5] = y.elapsed();
        }
        let en = t.entry(key).or_default();
        en.0 += 1;
        for i in 0..6 {
            en.1[i] += v[i];
            total[i] += v[i];
        }
    }
    let ms =
        |d: &[Duration; 6]| d.iter().map(|d| format!("{:8.1}", d.as_secs_f64() * 1e3)).collect::<String>();
    let mut v: Vec<_> = t.into_iter().collect();
    v.sort_by_key(|(_, (_, d))| std::cmp::Reverse(d.iter().sum::<Duration>()));
    println!("{:60} {:4}    plan   vsched   lower   vprog  lmsg   vmsg", "", "");
    for (k, (n, d)) in v.iter().take(40) {
        println!("{k:60} {n:4}{} {:.0}", ms(d), d.iter().sum::<Duration>().as_secs_f64() * 1e3);
    }
    println!("total {} {:.2}", ms(&total), total.iter().sum::<Duration>().as_secs_f64());
}
