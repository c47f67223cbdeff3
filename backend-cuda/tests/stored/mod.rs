//! What a launch has stored: values of a result in its type, and the row of its site.

use gradscale_core::{
    backend::{Backend, DType, DataMut, Slot},
    stats::{Convention, Detail, Stats},
};
use half::f16;
use pollster::block_on;

/// Site that tests store to.
pub const SITE: Slot = Slot(2);

/// Reads `len` stored values, as f32, and the row of [`SITE`].
pub fn read_stored<B: Backend>(
    device: &B, y: &B::Buffer, dtype: DType, len: usize, table: &B::Table,
) -> Result<(Vec<f32>, Stats), B::Error> {
    let mut values = vec![0.0; len];
    if dtype == DType::F16 {
        let mut halves = vec![f16::ZERO; len];
        block_on(device.read(y, DataMut::F16(&mut halves)))?;
        values = halves.into_iter().map(f16::to_f32).collect();
    } else {
        block_on(device.read(y, DataMut::F32(&mut values)))?;
    }
    let mut rows = [Stats::new(Convention::FP16, 0, Detail::None)];
    block_on(device.collect(table, SITE.0..SITE.0 + 1, &mut rows, &[], &mut []))?;
    Ok((values, rows[0]))
}
