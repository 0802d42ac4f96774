//! How far the local clocks of all zones are ahead of UTC, in one table without pointers.
//!
//! The table of chrono-tz has a name for each change of each zone. That is a pointer, which the dynamic
//! linker adjusts when a process starts: 1 MB that no two processes share, and nearly as much again in the
//! program. The offsets alone, in 8 bytes each, are a part of the program that is only read.
//!
//! `offsets.bin`, in little-endian numbers:
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | the release of the IANA data, padded with zeros |
//! | 4 for each zone, in the order of [`Tz`] | the number of its first entry, times 1024, and how many it has |
//! | 8 for each entry | the instant from which on it holds, in seconds since [`BEGIN`], times 2^20, and the offset in seconds plus 2^19 |
//!
//! Tests compare it with chrono-tz. One that is ignored makes it anew; with `ACCEPT=1` it writes the file.

use chrono_tz::{TZ_VARIANTS, Tz};

static TABLE: &[u8] = include_bytes!("offsets.bin");

/// 1800-01-01T00:00:00Z, before the first clock that was set by a law.
const BEGIN: i64 = -5_364_662_400;
/// The length of the release.
const RELEASE_BYTES: usize = 8;
const ENTRY_BYTES: usize = 8;
const ZONES: usize = TZ_VARIANTS.len();
/// Where the entries begin.
const ENTRIES: usize = RELEASE_BYTES + 4 * ZONES;

// Another release of the data needs another table: ACCEPT=1 cargo test --lib offsets -- --ignored
#[cfg(not(test))]
const _: () = {
    let release = chrono_tz::IANA_TZDB_VERSION.as_bytes();
    let table = include_bytes!("offsets.bin");
    let mut n = 0;
    while n < release.len() {
        assert!(table[n] == release[n], "offsets.bin is of another release");
        n += 1;
    }
};

/// How many seconds the local clock of a zone is ahead of UTC at an instant, in seconds since 1970.
pub(super) fn ahead(zone: Tz, instant: i64) -> i64 {
    let entries = entries(zone);
    let after = instant.saturating_sub(BEGIN).max(0);
    let (mut found, mut end) = (0, entries.len() / ENTRY_BYTES);
    while end - found > 1 {
        let middle = found.midpoint(end);
        if begin(entry(entries, middle)) <= after {
            found = middle;
        } else {
            end = middle;
        }
    }
    offset(entry(entries, found))
}

fn entries(zone: Tz) -> &'static [u8] {
    let place = RELEASE_BYTES + 4 * zone as usize;
    let place = u32::from_le_bytes(TABLE[place..place + 4].try_into().unwrap_or_default()) as usize;
    let (first, count) = (place >> 10, place & 0x3FF);
    &TABLE[ENTRIES + ENTRY_BYTES * first..][..ENTRY_BYTES * count]
}

fn entry(entries: &[u8], n: usize) -> u64 {
    u64::from_le_bytes(
        entries[n * ENTRY_BYTES..][..ENTRY_BYTES]
            .try_into()
            .unwrap_or_default(),
    )
}

fn begin(entry: u64) -> i64 {
    (entry >> 20).cast_signed()
}

fn offset(entry: u64) -> i64 {
    (entry & 0xF_FFFF).cast_signed() - 0x8_0000
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use chrono::{DateTime, Offset as _, TimeZone as _};
    use chrono_tz::IANA_TZDB_VERSION;

    use super::*;

    /// No zone has changed its clock twice within this many seconds and ended where it began.
    const STEP: i64 = 86_400;
    /// 2110-01-01T00:00:00Z: chrono-tz knows rules up to the year 2100.
    const END: i64 = 4_417_977_600;

    fn of_chrono_tz(zone: Tz, instant: i64) -> i64 {
        let utc = DateTime::from_timestamp(instant, 0).unwrap().naive_utc();
        i64::from(zone.offset_from_utc_datetime(&utc).fix().local_minus_utc())
    }

    /// The changes of a zone as entries of the table.
    fn changes(zone: Tz) -> Vec<u64> {
        let entry = |at: i64, offset: i64| {
            let offset = u64::try_from(offset + 0x8_0000).unwrap();
            u64::try_from(at - BEGIN).unwrap() << 20 | offset
        };
        let mut offset = of_chrono_tz(zone, BEGIN);
        let mut entries = vec![entry(BEGIN, offset)];
        let mut same = BEGIN;
        while same < END {
            let next = same + STEP;
            if of_chrono_tz(zone, next) == offset {
                same = next;
                continue;
            }
            let mut other = next;
            while other - same > 1 {
                let middle = same.midpoint(other);
                if of_chrono_tz(zone, middle) == offset {
                    same = middle;
                } else {
                    other = middle;
                }
            }
            (same, offset) = (other, of_chrono_tz(zone, other));
            entries.push(entry(same, offset));
        }
        entries
    }

    /// Zones with the same changes share their entries.
    fn table() -> Vec<u8> {
        let mut release = IANA_TZDB_VERSION.as_bytes().to_vec();
        release.resize(RELEASE_BYTES, 0);
        let (mut places, mut entries) = (Vec::new(), Vec::new());
        let mut known: HashMap<Vec<u64>, usize> = HashMap::new();
        for (n, &zone) in TZ_VARIANTS.iter().enumerate() {
            assert_eq!(zone as usize, n, "{zone}");
            let changes = changes(zone);
            let count = changes.len();
            assert!(count < 1024, "{zone}");
            let first = *known.entry(changes).or_insert_with_key(|changes| {
                let first = entries.len();
                entries.extend(changes);
                first
            });
            places.push(u32::try_from(first << 10 | count).unwrap());
        }
        let places = places.into_iter().flat_map(u32::to_le_bytes);
        let entries = entries.into_iter().flat_map(u64::to_le_bytes);
        release.into_iter().chain(places).chain(entries).collect()
    }

    #[test]
    #[ignore = "takes half a minute; ACCEPT=1 writes the table of another release"]
    fn the_table_is_the_one_that_is_made_from_chrono_tz() {
        let table = table();
        if std::env::var_os("ACCEPT").is_some() {
            std::fs::write("src/schedule/offsets.bin", &table).unwrap();
            return;
        }
        assert!(
            table == TABLE,
            "offsets.bin is not that of chrono-tz: write it with ACCEPT=1"
        );
    }

    #[test]
    fn an_offset_is_that_of_chrono_tz_around_each_change_and_in_each_month() {
        const MONTH: i64 = 30 * 86_400;
        let page = include_str!("../../docs/schedules.md");
        assert!(page.contains(&format!("the IANA release {IANA_TZDB_VERSION},")));
        assert!(TABLE.starts_with(IANA_TZDB_VERSION.as_bytes()));
        for (n, &zone) in TZ_VARIANTS.iter().enumerate() {
            assert_eq!(zone as usize, n, "{zone}");
            let all = entries(zone);
            let changes = (0..all.len() / ENTRY_BYTES).map(|n| begin(entry(all, n)) + BEGIN);
            let changes = changes.flat_map(|at| [at - 1, at]);
            let months = (0..(END - BEGIN) / MONTH).map(|n| BEGIN + n * MONTH);
            for instant in changes.chain(months) {
                let (ours, theirs) = (ahead(zone, instant), of_chrono_tz(zone, instant));
                assert_eq!(ours, theirs, "{zone} at {instant}");
            }
        }
        for (zone, instant) in [(Tz::Asia__Tokyo, i64::MIN), (Tz::Europe__Berlin, i64::MAX)] {
            assert!((0..=12 * 3600).contains(&ahead(zone, instant)), "{zone}");
        }
    }
}
