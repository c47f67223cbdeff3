//! What an attempt at a step saw on one rank, as a message: a digest of what it is about, losses and statistics of its
//! parts, and rows.

use gradscale_core::stats::{Detail, LIGHT_WORDS, Stats, WORDS};

/// What a rank has said.
pub(in crate::train) struct Seen {
    pub values: Vec<f32>,
    rows: Vec<Stats>,
}

/// The message.
pub(in crate::train) fn write(digest: u32, values: &[f32], rows: &[Stats]) -> Vec<u8> {
    let mut message: Vec<u8> = digest.to_le_bytes().to_vec();
    message.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    for row in rows {
        message.extend(row.to_words()[..words(row.detail())].iter().flat_map(|word| word.to_le_bytes()));
    }
    message
}

/// None if it is about something else, or damaged. Rows have the exponents and conventions of one's own.
pub(in crate::train) fn read(message: &[u8], digest: u32, values: usize, own: &[Stats]) -> Option<Seen> {
    let all: Vec<u32> =
        message.chunks_exact(4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect();
    let (first, rest) = all.split_first()?;
    let (values, mut rest) = rest.split_at_checked(values)?;
    let mut rows = Vec::with_capacity(own.len());
    for own in own {
        let light = rest.get(..LIGHT_WORDS)?;
        let detail = Stats::from_words(rest.get(..WORDS).unwrap_or(light), own.convention(), own.exponent()).ok()?;
        rows.push(detail);
        rest = rest.get(words(detail.detail())..)?;
    }
    let values = values.iter().map(|&bits| f32::from_bits(bits)).collect();
    (*first == digest && rest.is_empty()).then_some(Seen { values, rows })
}

/// The rows of all ranks, slot by slot; none if they do not count the same things.
pub(in crate::train) fn merge(seen: &[Seen], own: &[Stats]) -> Option<Vec<Stats>> {
    let mut merged = own.to_vec();
    for (slot, merged) in merged.iter_mut().enumerate() {
        let mut rows = seen.iter().map(|seen| seen.rows[slot]).filter(|row| row.detail() != Detail::None);
        if let Some(first) = rows.next() {
            *merged = rows.try_fold(first, |sum, row| sum.merge(&row)).ok()?;
        }
    }
    Some(merged)
}

/// How many words of a row travel.
const fn words(detail: Detail) -> usize {
    match detail {
        Detail::None | Detail::Counts => LIGHT_WORDS,
        Detail::Full | Detail::Moments => WORDS,
    }
}
