//! Compares `--format stages` with the listings in Figures 8 and 9 of Jocksch et al.

use std::process::Command;

fn stages(form: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_bruckner"))
        .args(["explain", "allreduce", "--topology", "8x1", "--bytes", "96", "--rank", "5", "--format", "stages"])
        .args(["--algorithm", form])
        .output()
        .expect("the command runs");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().filter(|line| line.contains("STAGE")).map(str::to_owned).collect()
}

fn figure(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.contains("STAGE")).collect()
}

/// Returns only stage and fraction of a line, because the number of a dead line has no meaning.
fn stage_and_fraction(line: &str) -> Vec<&str> {
    line.split(' ').take(4).collect()
}

fn compare(found: &[String], figure: &[&str]) {
    assert_eq!(found.len(), figure.len());
    for (found, figure) in found.iter().zip(figure) {
        if figure.starts_with('#') {
            assert_eq!(stage_and_fraction(found), stage_and_fraction(figure));
        } else {
            assert_eq!(found, figure);
        }
    }
}

#[test]
fn figure_8() {
    let figure = figure(include_str!("data/figure8.txt"));
    assert_eq!(figure.iter().filter(|line| line.starts_with('#')).count(), 15);
    compare(&stages("8(-1 1 1 1)"), &figure);
}

/// Figure 9 has an error: the FROM lines of stage 1 name lines 1 to 4 of node 4, but the fractions that node 5 needs are lines 4 to 7
/// there, because stage 0 of node 4 lists its own half first.
#[test]
fn figure_9() {
    let mut figure = figure(include_str!("data/figure9.txt"));
    let wrong = [
        ("STAGE 1 FRAC 6 TO 5 3 FROM 5|0 4|1", "STAGE 1 FRAC 6 TO 5 3 FROM 5|0 4|4"),
        ("STAGE 1 FRAC 7 TO 5 3 FROM 5|1 4|2", "STAGE 1 FRAC 7 TO 5 3 FROM 5|1 4|5"),
        ("STAGE 1 FRAC 4 TO 5 3 FROM 5|2 4|3", "STAGE 1 FRAC 4 TO 5 3 FROM 5|2 4|6"),
        ("STAGE 1 FRAC 5 TO 5 3 FROM 5|3 4|4", "STAGE 1 FRAC 5 TO 5 3 FROM 5|3 4|7"),
    ];
    for (printed, right) in wrong {
        let line = figure.iter_mut().find(|line| **line == printed).expect("as printed in the paper");
        *line = right;
    }
    compare(&stages("2(-1) 4(1 1) 2(1)"), &figure);
}
