//! Checks the stack frames of the library's functions, because a program may call MPI from a thread with a small stack.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::launch::{Outcome, library};

/// Largest allowed stack frame of a function, in bytes.
const MOST: u64 = 8 << 10;

/// Functions of the standard library that run only if a panic prints a backtrace, which a user must request.
const BACKTRACE: &str = "backtrace_rs";

/// Checks the frame of every function of the built library.
pub(crate) fn check() -> Result<Outcome> {
    let said = Command::new("objdump").args(["--disassemble", "--no-show-raw-insn"]).arg(library()).output();
    let said = said.context("objdump does not start")?;
    ensure!(said.status.success(), "objdump: {}", String::from_utf8_lossy(&said.stderr));
    let mut outcome = Outcome::default();
    for (function, bytes) in frames(&String::from_utf8_lossy(&said.stdout)) {
        outcome.cases += 1;
        if bytes > MOST && !function.contains(BACKTRACE) {
            outcome.failures += 1;
            outcome.talk += &format!("{function} has a frame of {bytes} bytes\n");
        }
    }
    ensure!(outcome.cases > 1000, "objdump shows {} functions", outcome.cases);
    Ok(outcome)
}

/// Returns each function of a disassembly with the number of bytes that it subtracts from the stack pointer. A function with a large frame
/// does this page by page in a loop, down to the address in r11, whose distance is counted instead.
fn frames(text: &str) -> Vec<(&str, u64)> {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let mut frames: Vec<(&str, u64)> = Vec::new();
    let mut in_loop = false;
    for line in text.lines() {
        if let Some(name) = line.strip_suffix(">:").and_then(|line| line.split_once('<')) {
            frames.push((name.1, 0));
            in_loop = false;
            continue;
        }
        let Some((_, bytes)) = frames.last_mut() else { continue };
        let of = |from: &str, to: &str| number(line.split_once(from)?.1.split_once(to)?.0);
        if let Some(loop_end) = of("-0x", "(%rsp),%r11").filter(|_| line.contains("lea")) {
            *bytes += loop_end;
            in_loop = true;
        } else if let Some(moved) = of("$0x", ",%rsp").filter(|_| line.contains("sub ")) {
            // The pages that the loop touches are counted already.
            if !(in_loop && moved == 0x1000) {
                *bytes += moved;
            }
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::frames;

    #[test]
    fn frames_are_read() {
        let text = "
0000000000001000 <small>:
    1000:\tsub    $0x20,%rsp
    1004:\tadd    $0x20,%rsp
0000000000002000 <_ZN5large17h01E>:
    2000:\tlea    -0x3000(%rsp),%r11
    2008:\tsub    $0x1000,%rsp
    2010:\tmovq   $0x0,(%rsp)
    2018:\tcmp    %r11,%rsp
    201b:\tjne    2008 <_ZN5large17h01E+0x8>
    201d:\tsub    $0x198,%rsp
";
        assert_eq!(frames(text), [("small", 0x20), ("_ZN5large17h01E", 0x3198)]);
    }
}
