//! Exponents, hyperparameters, seed and rows of the sites that train together.

use crate::{
    Error, Memory, Wgpu,
    memory::{Bytes, padded},
};
use core::ops::Range;
use gradscale_core::{
    backend::Control,
    stats::{Convention, Detail, Stats, WORDS},
};
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

const ROW_BYTES: u64 = 4 * WORDS as u64;

/// Device memory of the values that change with every step: exponents, hyperparameters and statistics rows.
#[derive(Debug)]
pub struct Table {
    pub(crate) control: wgpu::Buffer,
    pub(crate) rows: wgpu::Buffer,
    /// Exponents of the control last uploaded, and its greatest detail, kept for the host.
    exponents: Vec<i32>,
    pub(crate) detail: Arc<AtomicU32>,
    hyperparameters: usize,
}

impl Wgpu {
    pub(crate) fn new_table(&self, slots: u16, hyperparameters: u16) -> Result<Table, Error> {
        let (slots, hyperparameters) = (usize::from(slots), usize::from(hyperparameters));
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let mut table = Table {
            control: self.new_buffer(padded(4 * (Control::HEADER + slots + hyperparameters) as u64), usage)?,
            rows: self.new_buffer(padded(ROW_BYTES * slots as u64), usage)?,
            exponents: vec![0; slots],
            detail: Arc::new(AtomicU32::new(0)),
            hyperparameters,
        };
        let (exponents, values) = (vec![0; slots], vec![0.0; hyperparameters]);
        let control = Control { exponents: &exponents, hyperparameters: &values, seed: 0, detail: Detail::Moments };
        // The rows of a new buffer are zeros: empty.
        self.upload_control(&control, 0..0, &mut table)?;
        Ok(table)
    }

    pub(crate) fn upload_control(
        &self, control: &Control<'_>, clear: Range<u16>, table: &mut Table,
    ) -> Result<(), Error> {
        assert!(
            control.exponents.len() == table.exponents.len() && control.hyperparameters.len() == table.hyperparameters,
            "a control of {} slots and {} hyperparameters for a table of {} and {}",
            control.exponents.len(),
            control.hyperparameters.len(),
            table.exponents.len(),
            table.hyperparameters
        );
        self.flush()?;
        table.exponents.copy_from_slice(control.exponents);
        table.detail.store(control.detail.code(), Relaxed);
        let words: Vec<u32> = control.words().collect();
        self.queue().write_buffer(&table.control, 0, bytemuck::cast_slice(&words));
        if !clear.is_empty() {
            let zeros = vec![0u8; usize::from(clear.end - clear.start) * 4 * WORDS];
            self.queue().write_buffer(&table.rows, u64::from(clear.start) * ROW_BYTES, &zeros);
        }
        Ok(())
    }

    pub(crate) async fn collect_rows(
        &self, table: &Table, rows: Range<u16>, out: &mut [Stats], scalars: &[&Memory], values: &mut [f32],
    ) -> Result<(), Error> {
        let count = usize::from(rows.end.saturating_sub(rows.start));
        let mut parts = Vec::with_capacity(1 + scalars.len());
        if count != 0 {
            let (start, size) = (u64::from(rows.start) * ROW_BYTES, count as u64 * ROW_BYTES);
            parts.push(Bytes { buffer: &table.rows, start, size });
        }
        parts.extend(scalars.iter().map(|scalar| scalar.part(0, 4)));
        if parts.is_empty() {
            return self.flush();
        }
        let mut words = Vec::<u32>::new();
        self.download(&parts, |bytes| words = bytemuck::pod_collect_to_vec(bytes)).await?;
        let (row_words, scalar_words) = words.split_at(count * WORDS);
        let exponents = &table.exponents[usize::from(rows.start)..];
        for ((out, words), &exponent) in out.iter_mut().zip(row_words.chunks_exact(WORDS)).zip(exponents) {
            *out = Stats::from_words(words, Convention::FP16, exponent).map_err(Error::Row)?;
        }
        values.iter_mut().zip(scalar_words).for_each(|(value, &word)| *value = f32::from_bits(word));
        Ok(())
    }
}
