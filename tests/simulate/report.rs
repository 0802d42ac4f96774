//! What a person reads of a run: the plan, the timeline, and what is wrong with it.

#![expect(clippy::print_stdout, reason = "a person asked for the timeline")]

use crate::judge::Violation;
use crate::plan::Plan;
use crate::trace::Trace;

/// Prints plan, timeline and violations.
pub(crate) fn print(plan: &Plan, trace: &Trace, found: &[Violation]) {
    println!(
        "start {} calm {} end {} store {:?}",
        plan.start, plan.calm, plan.end, plan.store
    );
    for host in &plan.hosts {
        println!("  {host:?}");
    }
    for list in &plan.lists {
        println!("  {list:?}");
    }
    let relative = |text: &str| relative(text, plan.start);
    for (at, line) in &trace.lines {
        println!("{:>7} {}", at - plan.start, relative(line));
    }
    for violation in found {
        println!(
            "VIOLATION at {}: {}",
            violation.at - plan.start,
            relative(&violation.to_string())
        );
    }
}

/// Instants near the start as what has passed since.
pub(crate) fn relative(text: &str, start: i64) -> String {
    let mut out = String::new();
    let mut digits = String::new();
    let flush = |digits: &mut String, out: &mut String| {
        match digits.parse::<i64>() {
            Ok(n) if digits.len() == 13 && (n - start).abs() < 100_000_000 => {
                *out += &format!("T{:+}", n - start);
            }
            _ => *out += digits,
        }
        digits.clear();
    };
    for c in text.chars() {
        if c.is_ascii_digit() {
            digits.push(c);
        } else {
            flush(&mut digits, &mut out);
            out.push(c);
        }
    }
    flush(&mut digits, &mut out);
    out
}
