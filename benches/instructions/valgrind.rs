//! Runs one part of this program under callgrind.

use std::path::Path;
use std::process::Command;

use crate::PART_FLAG;

/// Returns how many instructions a process executes that runs the part. The profile remains in
/// `target/instructions`, for `callgrind_annotate`.
pub(crate) fn instructions(part: &str, operations: u64) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let profiles = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("instructions");
    std::fs::create_dir_all(&profiles).map_err(|e| e.to_string())?;
    let profile = profiles.join(format!("{part}.out"));
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(program)
        .args([PART_FLAG, part, &operations.to_string()])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .output()
        .map_err(|e| format!("cannot start valgrind: {e}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let stdout = String::from_utf8_lossy(&output.stdout);
        return Err(format!("{}: {stdout}\n{stderr}", output.status));
    }
    let count = stderr
        .lines()
        .find_map(|line| line.split_once("Collected :"));
    count
        .and_then(|(_, count)| count.trim().parse().ok())
        .ok_or_else(|| format!("valgrind reported no count:\n{stderr}"))
}
