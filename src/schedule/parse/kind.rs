//! The fields of cron text: their names and ranges.

/// What a field may contain.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldKind {
    pub(super) name: &'static str,
    pub(super) least: u32,
    pub(super) most: u32,
    /// Names, the first of which stands for `least`.
    pub(super) names: &'static [&'static str],
}

pub(super) const SECOND: FieldKind = FieldKind {
    name: "second",
    least: 0,
    most: 59,
    names: &[],
};
pub(super) const MINUTE: FieldKind = FieldKind {
    name: "minute",
    ..SECOND
};
pub(super) const HOUR: FieldKind = FieldKind {
    name: "hour",
    most: 23,
    ..SECOND
};
pub(super) const DAY: FieldKind = FieldKind {
    name: "day-of-month",
    least: 1,
    most: 31,
    names: &[],
};
pub(super) const MONTH: FieldKind = FieldKind {
    name: "month",
    least: 1,
    most: 12,
    names: &[
        "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
    ],
};
pub(super) const WEEKDAY: FieldKind = FieldKind {
    name: "weekday",
    least: 0,
    most: 7,
    names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
};
