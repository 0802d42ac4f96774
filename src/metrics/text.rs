//! The two text formats of metrics, version 0.0.4 of Prometheus and `OpenMetrics` 1.0.
//!
//! Written here because the crates for it write one of the two: `prometheus-client` has only
//! `OpenMetrics`, which the textfile collector of `node_exporter` does not read; `prometheus` has only
//! 0.0.4, and both keep a registry of their own, while most values here are read from the store or
//! the daemon when a page is made.

use std::fmt::Write as _;

use super::catalog::{Family, FamilyKind};
use super::histogram::HistogramReading;

/// How a page is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextFormat {
    /// `text/plain; version=0.0.4`.
    Prometheus,
    /// `application/openmetrics-text; version=1.0.0`.
    OpenMetrics,
}

impl TextFormat {
    /// The format that an `Accept` header asks for.
    pub(crate) fn accepted(accept: Option<&str>) -> Self {
        // A weight of zero refuses a type; no scraper sends one for the type that it names first.
        if accept.is_some_and(|accept| accept.contains("application/openmetrics-text")) {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// The value of `Content-Type`.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The labels of a sample.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// What a summary without quantiles says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Summed {
    /// How many there were.
    pub(super) count: u64,
    /// Their sum.
    pub(super) sum: f64,
}

/// A page that is being written. Families come one after the other, each with all its samples.
#[derive(Debug)]
pub(super) struct PageText {
    text: String,
    format: TextFormat,
}

impl PageText {
    pub(super) fn new(format: TextFormat) -> Self {
        let text = String::new();
        Self { text, format }
    }

    /// Begins a family.
    pub(super) fn family(&mut self, family: &Family) -> FamilyText<'_> {
        let name = match (self.format, family.kind) {
            (TextFormat::OpenMetrics, FamilyKind::Counter) => {
                family.name.strip_suffix("_total").unwrap_or(family.name)
            }
            _ => family.name,
        };
        let _ = writeln!(self.text, "# HELP {name} {}", family.help);
        let _ = writeln!(self.text, "# TYPE {name} {}", family.kind.word());
        FamilyText {
            name: family.name,
            text: &mut self.text,
        }
    }

    /// Returns the whole page.
    pub(super) fn finish(mut self) -> String {
        if self.format == TextFormat::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// A family that is being written.
#[derive(Debug)]
pub(super) struct FamilyText<'a> {
    name: &'static str,
    text: &'a mut String,
}

impl FamilyText<'_> {
    /// A sample with a whole number.
    pub(super) fn count(&mut self, labels: Labels<'_>, value: u64) {
        self.line("", labels, &value.to_string());
    }

    /// A sample with any number.
    pub(super) fn value(&mut self, labels: Labels<'_>, value: f64) {
        self.line("", labels, &number(value));
    }

    /// A sample that is 1 if this holds, else 0.
    pub(super) fn flag(&mut self, labels: Labels<'_>, holds: bool) {
        self.count(labels, u64::from(holds));
    }

    /// The count and the sum of a summary without quantiles.
    pub(super) fn summary(&mut self, labels: Labels<'_>, summary: Summed) {
        self.line("_count", labels, &summary.count.to_string());
        self.line("_sum", labels, &number(summary.sum));
    }

    /// The samples of a histogram.
    pub(super) fn histogram(&mut self, labels: Labels<'_>, reading: &HistogramReading) {
        for (bound, count) in &reading.buckets {
            let bound = number(*bound);
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self.line("_bucket", &labels, &count.to_string());
        }
        let count = reading.buckets.last().map_or(0, |(_, count)| *count);
        let sum = reading.sum;
        self.summary(labels, Summed { count, sum });
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, value: &str) {
        let _ = write!(self.text, "{}{suffix}", self.name);
        for (at, (name, value)) in labels.iter().enumerate() {
            let opening = if at == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{opening}{name}=\"{}\"", escaped(value));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

/// A number as both formats read it: `0.5`, `1.0`, `+Inf`.
fn number(value: f64) -> String {
    if value == f64::INFINITY {
        "+Inf".to_owned()
    } else {
        format!("{value:?}")
    }
}

/// The value of a label between its quotes.
fn escaped(value: &str) -> String {
    value
        .replace('\\', r"\\")
        .replace('"', r#"\""#)
        .replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::super::catalog;
    use super::*;

    #[test]
    fn counters_lose_their_suffix_in_the_head_of_openmetrics_alone() {
        let page = |format| {
            let mut page = PageText::new(format);
            let mut family = page.family(&catalog::CLAIMS);
            family.count(&[("reply", "a\"b\\c\nd")], 3);
            page.finish()
        };
        let head = "# HELP cronlatch_claims_total";
        let sample = "cronlatch_claims_total{reply=\"a\\\"b\\\\c\\nd\"} 3\n";
        let plain = page(TextFormat::Prometheus);
        assert!(plain.starts_with(head), "{plain}");
        assert!(plain.contains("# TYPE cronlatch_claims_total counter\n"));
        assert!(plain.ends_with(sample), "{plain}");
        let open = page(TextFormat::OpenMetrics);
        assert!(open.contains("# TYPE cronlatch_claims counter\n"), "{open}");
        assert!(open.ends_with(&format!("{sample}# EOF\n")), "{open}");
    }

    #[test]
    fn numbers_are_written_as_both_formats_read_them() {
        for (value, text) in [
            (0.1, "0.1"),
            (5.0, "5.0"),
            (f64::INFINITY, "+Inf"),
            (-0.25, "-0.25"),
            (1_769_000_000.5, "1769000000.5"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn openmetrics_is_written_for_those_who_accept_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                          text/plain;version=0.0.4;q=0.4,*/*;q=0.2";
        assert_eq!(
            TextFormat::accepted(Some(prometheus)),
            TextFormat::OpenMetrics
        );
        for accept in [None, Some("*/*"), Some("text/plain;version=0.0.4")] {
            assert_eq!(TextFormat::accepted(accept), TextFormat::Prometheus);
        }
    }
}
