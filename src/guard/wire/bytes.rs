//! Numbers, texts and lists in a packet: how they are written and read back.

use std::ffi::CStr;
use std::time::Duration;

#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub(super) fn i32(&mut self, value: i32) -> &mut Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub(super) fn duration(&mut self, value: Duration) -> &mut Self {
        self.u64(u64::try_from(value.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(super) fn len(&mut self, value: usize) -> &mut Self {
        self.u32(u32::try_from(value).unwrap_or(u32::MAX))
    }

    pub(super) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.len(value.len());
        self.0.extend_from_slice(value);
        self
    }

    /// Writes the parts as one text with a zero byte at its end.
    pub(super) fn text(&mut self, parts: &[&[u8]]) -> &mut Self {
        self.len(parts.iter().map(|part| part.len()).sum::<usize>() + 1);
        for part in parts {
            self.0.extend_from_slice(part);
        }
        self.u8(0)
    }

    /// Writes how many items there are, and each of them.
    pub(super) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) -> &mut Self {
        let at = self.0.len();
        self.u32(0);
        let mut count: u32 = 0;
        for item in items {
            write(self, item);
            count = count.saturating_add(1);
        }
        self.0[at..at + size_of::<u32>()].copy_from_slice(&count.to_ne_bytes());
        self
    }

    pub(super) fn option<T>(
        &mut self,
        value: Option<T>,
        write: impl FnOnce(&mut Self, T),
    ) -> &mut Self {
        match value {
            None => {
                self.u8(0);
            }
            Some(value) => {
                self.u8(1);
                write(self, value);
            }
        }
        self
    }
}

pub(super) struct ByteReader<'a>(pub(super) &'a [u8]);

impl<'a> ByteReader<'a> {
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_ne_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    pub(super) fn duration(&mut self) -> Option<Duration> {
        self.u64().map(Duration::from_nanos)
    }

    pub(super) fn len(&mut self) -> Option<usize> {
        usize::try_from(self.u32()?).ok()
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.len()?;
        self.take(len)
    }

    /// Reads a text and leaves it where it is.
    pub(super) fn text(&mut self) -> Option<&'a CStr> {
        CStr::from_bytes_with_nul(self.bytes()?).ok()
    }

    /// Takes all that is left.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(super) fn list<T>(&mut self, read: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let len = self.len()?;
        // No entry takes less than a byte.
        let mut list = Vec::with_capacity(len.min(self.0.len()));
        for _ in 0..len {
            list.push(read(self)?);
        }
        Some(list)
    }

    #[expect(
        clippy::option_option,
        reason = "the outer one says whether the packet could be read"
    )]
    pub(super) fn option<T>(&mut self, read: impl Fn(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.u8()? {
            0 => Some(None),
            _ => read(self).map(Some),
        }
    }
}
