//! How many instructions the hot parts of the program execute. Unlike times, the counts do not depend
//! on what else the machine does, so that a rise of a few percent is a regression.
//!
//! `cargo bench --bench instructions` runs each part under valgrind's callgrind and compares the counts
//! with those in `counts.txt`; it fails if one has risen by more than the limit. `-- claim renewal` runs
//! some parts, and `-- --accept` writes the counts to the file.

mod counts;
mod parts;
#[path = "../figures/requests.rs"]
mod requests;
mod valgrind;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use counts::{Builder, Comparison, Counts};
use parts::{PARTS, Part};

/// Runs one part in this process: its name and the number of operations follow.
const PART_FLAG: &str = "--part";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.as_slice() {
        [flag, name, operations] if flag == PART_FLAG => run_part(name, operations).map(|()| true),
        _ if args.iter().any(|arg| arg == "--bench") => measure(&args),
        _ => {
            print("run me with `make bench-instructions`");
            Ok(true)
        }
    };
    match result {
        Ok(passed) => ExitCode::from(u8::from(!passed)),
        Err(error) => {
            print(&error);
            ExitCode::FAILURE
        }
    }
}

fn run_part(name: &str, operations: &str) -> Result<(), String> {
    let part = PARTS.iter().find(|part| part.name == name);
    let part = part.ok_or_else(|| format!("no part is named {name:?}"))?;
    let operations = operations
        .parse()
        .map_err(|e| format!("{operations}: {e}"))?;
    (part.run)(operations)
}

/// Returns whether no count has risen by more than the limit.
fn measure(args: &[String]) -> Result<bool, String> {
    let wanted: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted =
        |part: &&Part| wanted.is_empty() || wanted.iter().any(|name| *name == part.name);
    let mut counted = Counts {
        builder: Builder::of_this_build()?,
        of_part: BTreeMap::new(),
    };
    for part in PARTS.iter().filter(is_wanted) {
        let count = count(part).map_err(|e| format!("{}: {e}", part.name))?;
        counted.of_part.insert(part.name.to_owned(), count);
    }
    if args.iter().any(|arg| arg == "--accept") {
        if !wanted.is_empty() {
            return Err("--accept takes all parts: name none".to_owned());
        }
        std::fs::write(reference_file(), counted.to_string()).map_err(|e| e.to_string())?;
        print(&format!("wrote {}", reference_file().display()));
        return Ok(true);
    }
    let text = std::fs::read_to_string(reference_file()).map_err(|e| e.to_string())?;
    let comparison = Comparison::of(&counted, &text.parse()?);
    print(&comparison.to_string());
    Ok(comparison.passed())
}

/// The instructions of one operation: what twice as many operations take more, so that what happens
/// once, and the start of the process, do not count.
fn count(part: &Part) -> Result<u64, String> {
    let once = valgrind::instructions(part.name, part.operations)?;
    let twice = valgrind::instructions(part.name, part.operations * 2)?;
    Ok(twice.saturating_sub(once) / part.operations)
}

fn reference_file() -> PathBuf {
    [
        env!("CARGO_MANIFEST_DIR"),
        "benches",
        "instructions",
        "counts.txt",
    ]
    .iter()
    .collect()
}

#[expect(
    clippy::print_stdout,
    reason = "the counts are what this program is for"
)]
fn print(text: &str) {
    println!("{}", text.trim_end());
}
