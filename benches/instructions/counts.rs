//! The counts of a build, the file that keeps those of an accepted one, and how two are compared.

use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;
use std::str::FromStr;

/// By how many percent a count may rise. Changes elsewhere in the crate move counts by less, because
/// the compiler then inlines other functions.
const LIMIT: u64 = 5;
/// The same if another compiler has built the counts of the file.
const LIMIT_OF_OTHER_COMPILER: u64 = 20;

const HEADER: &str = "\
# Instructions of one operation, by part (parts.rs). `make bench-instructions` compares with them;
# `make bench-instructions ACCEPT=1` writes them. Say in the commit why a count has risen.
";

/// What decides a count apart from the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Builder {
    pub(crate) processor: String,
    pub(crate) compiler: String,
}

impl Builder {
    /// The processor's architecture and the compiler on this machine.
    pub(crate) fn of_this_build() -> Result<Self, String> {
        let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let output = Command::new(compiler).arg("--version").output();
        let output = output.map_err(|e| format!("cannot start rustc: {e}"))?;
        Ok(Self {
            processor: std::env::consts::ARCH.to_owned(),
            compiler: String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        })
    }
}

/// The instructions of one operation of each part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) builder: Builder,
    pub(crate) of_part: BTreeMap<String, u64>,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}processor: {}", self.builder.processor)?;
        writeln!(f, "compiler: {}", self.builder.compiler)?;
        for (part, count) in &self.of_part {
            writeln!(f, "{part}: {count}")?;
        }
        Ok(())
    }
}

impl FromStr for Counts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let mut values: BTreeMap<String, String> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let mut take = |name: &str| values.remove(name).ok_or_else(|| format!("no {name}"));
        let builder = Builder {
            processor: take("processor")?,
            compiler: take("compiler")?,
        };
        let count = |(part, count): (String, String)| match count.parse() {
            Ok(count) => Ok((part, count)),
            Err(error) => Err(format!("{part}: {error}")),
        };
        Ok(Self {
            builder,
            of_part: values.into_iter().map(count).collect::<Result<_, _>>()?,
        })
    }
}

/// What became of the count of one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// By at most the limit, or fallen by at most it.
    Small,
    /// By more than the limit.
    Risen,
    /// By more than the limit: a later rise would hide behind the old count.
    Fallen,
    /// The file has no count of the part.
    New,
}

/// The counts of this build, each next to the one of the file.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// `None` on another processor architecture, where the counts of the file say nothing.
    limit: Option<u64>,
    builder: Builder,
    parts: Vec<(String, u64, Option<u64>)>,
}

impl Comparison {
    pub(crate) fn of(counted: &Counts, reference: &Counts) -> Self {
        let limit = if counted.builder == reference.builder {
            LIMIT
        } else {
            LIMIT_OF_OTHER_COMPILER
        };
        let same_processor = counted.builder.processor == reference.builder.processor;
        let parts = counted.of_part.iter();
        Self {
            limit: same_processor.then_some(limit),
            builder: reference.builder.clone(),
            parts: parts
                .map(|(part, count)| {
                    let before = reference.of_part.get(part).copied();
                    (part.clone(), *count, before)
                })
                .collect(),
        }
    }

    /// Whether every part has a count in the file, and none has risen by more than the limit.
    pub(crate) fn passed(&self) -> bool {
        let failed = |change| matches!(change, Change::Risen | Change::New);
        !self.parts.iter().any(|part| failed(self.change(part)))
    }

    fn change(&self, (_, count, before): &(String, u64, Option<u64>)) -> Change {
        let Some(limit) = self.limit else {
            return Change::Small;
        };
        match before {
            None => Change::New,
            Some(before) if count * 100 > before * (100 + limit) => Change::Risen,
            Some(before) if count * (100 + limit) < before * 100 => Change::Fallen,
            Some(_) => Change::Small,
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "instructions of      now     before   change")?;
        for part in &self.parts {
            let (name, count, before) = part;
            let before = before.unwrap_or(*count);
            #[expect(clippy::cast_precision_loss, reason = "for people")]
            let percent = (*count as f64 / before.max(1) as f64 - 1.0) * 100.0;
            let note = match self.change(part) {
                Change::Small => "",
                Change::Risen => "  RISEN: see callgrind_annotate target/instructions",
                Change::Fallen => "  fallen: keep it with ACCEPT=1",
                Change::New => "  NEW: not in counts.txt; add it with ACCEPT=1",
            };
            writeln!(
                f,
                "{name:16} {count:8}   {before:8}  {percent:+6.1} %{note}"
            )?;
        }
        match self.limit {
            None => writeln!(
                f,
                "not judged: counts.txt is of another processor, {}",
                self.builder.processor
            ),
            Some(limit) => writeln!(
                f,
                "a rise of more than {limit} % fails; counts.txt is of {}",
                self.builder.compiler
            ),
        }
    }
}
