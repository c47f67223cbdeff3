//! Report of a rank about an attempt at a step: losses, statistics and rows of its micro-batches, as one message.

use gradscale_core::stats::{Detail, LIGHT_WORDS, Stats, WORDS};

/// Report of one rank about an attempt at a step, as received.
pub(in crate::train) struct StepReport {
    /// Loss and pending running statistics of each micro-batch.
    pub values: Vec<f32>,
    rows: Vec<Stats>,
}

impl StepReport {
    /// Encodes a report. `digest` identifies the parameters and slots that it describes.
    pub(in crate::train) fn encode(digest: u32, values: &[f32], rows: &[Stats]) -> Vec<u8> {
        let mut message: Vec<u8> = digest.to_le_bytes().to_vec();
        message.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        for row in rows {
            message.extend(row.to_words()[..encoded_words(row.detail())].iter().flat_map(|word| word.to_le_bytes()));
        }
        message
    }

    /// Decodes a report with `value_count` values. `None` if it has another digest or is malformed. Rows take exponents
    /// and conventions from the local rows, because these are equal on all ranks.
    pub(in crate::train) fn decode(message: &[u8], digest: u32, value_count: usize, local: &[Stats]) -> Option<Self> {
        let words: Vec<u32> =
            message.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
        let (sent_digest, rest) = words.split_first()?;
        let (values, mut rest) = rest.split_at_checked(value_count)?;
        let mut rows = Vec::with_capacity(local.len());
        for local in local {
            let light = rest.get(..LIGHT_WORDS)?;
            let row =
                Stats::from_words(rest.get(..WORDS).unwrap_or(light), local.convention(), local.exponent()).ok()?;
            rows.push(row);
            rest = rest.get(encoded_words(row.detail())..)?;
        }
        let values = values.iter().map(|&bits| f32::from_bits(bits)).collect();
        (*sent_digest == digest && rest.is_empty()).then_some(Self { values, rows })
    }

    /// Merges the rows of all ranks, slot by slot. `None` if they count with different conventions.
    pub(in crate::train) fn merge(reports: &[Self], local: &[Stats]) -> Option<Vec<Stats>> {
        let mut merged = local.to_vec();
        for (slot, merged) in merged.iter_mut().enumerate() {
            let mut rows = reports.iter().map(|report| report.rows[slot]).filter(|row| row.detail() != Detail::None);
            if let Some(first) = rows.next() {
                *merged = rows.try_fold(first, |sum, row| sum.merge(&row)).ok()?;
            }
        }
        Some(merged)
    }
}

/// Returns the number of words of a row in a message.
const fn encoded_words(detail: Detail) -> usize {
    match detail {
        Detail::None | Detail::Counts => LIGHT_WORDS,
        Detail::Full | Detail::Moments => WORDS,
    }
}
