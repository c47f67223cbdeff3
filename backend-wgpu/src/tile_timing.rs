//! Timing of one product by each tile, by which a device chooses its tile when it opens.

use crate::{
    Adapter, Error, Wgpu,
    operators::product::Product,
    product_tile::ProductTile,
    tile_cache::TileCache,
    tile_choice::{TileChoice, TilePreference, TileTime},
};
use core::time::Duration;
use gradscale_core::{
    backend::{Backend, DType, Data, Slot, Store},
    ops::{Gemm, GemmShape, ShapeError},
};
use half::f16;

/// Shape of the timed product: 2 GFLOP, 256 of the largest tiles, so that each tile fills every GPU. A GPU of 0.3 TFLOP/s
/// takes 7 ms for it.
const TIMED_SHAPE: GemmShape = GemmShape { m: 2048, n: 2048, k: 256 };
/// Shape for drivers on a CPU, of about 0.5 GFLOP/s.
const TIMED_SHAPE_SOFTWARE: GemmShape = GemmShape { m: 256, n: 256, k: 64 };
/// Maximum number of times of each tile, of which the shortest counts: noise only adds to a time.
const MAX_ROUNDS: u32 = 8;
/// Time on the device after which no further round begins.
const MAX_TOTAL_TIME: Duration = Duration::from_millis(50);

impl Wgpu {
    /// Returns the device with the tile that another preference than that of the environment variable
    /// `GRADSCALE_WGPU_TILE` leads to. `adapter` is the one that the device was opened on.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn with_tile_preference(mut self, adapter: &Adapter, preference: TilePreference) -> Result<Self, Error> {
        pollster::block_on(self.choose_tile(adapter, preference))?;
        Ok(self)
    }

    pub(crate) async fn choose_tile(&mut self, adapter: &Adapter, preference: TilePreference) -> Result<(), Error> {
        let (cache, is_software) = (TileCache::in_user_folder(&adapter.name()), adapter.is_software());
        let shape = if is_software { TIMED_SHAPE_SOFTWARE } else { TIMED_SHAPE };
        let time = async || self.time_tiles(&ProductTile::ALL, shape).await;
        let choice: TileChoice = preference.choose(is_software, adapter.guess_tile(), cache, time).await?;
        self.tile_choice = choice;
        Ok(())
    }

    /// Times a product of halves by each tile, alternately. A tile whose kernel does not compile is left out.
    pub(crate) async fn time_tiles(
        &mut self, candidates: &[ProductTile], GemmShape { m, n, k }: GemmShape,
    ) -> Result<Vec<TileTime>, Error> {
        let failed = |error: ShapeError| Error::Failed(error.to_string());
        // The layout of a linear layer, so that its pipelines are compiled once.
        let p = Gemm::new(m, n, k).and_then(Gemm::transpose_b).map_err(failed)?;
        let upload = |len: u32| {
            let values: Vec<f16> = (0..len).map(|i| f16::from_f32((i * 37 % 101) as f32 / 64.0 - 0.75)).collect();
            let memory = self.new_memory(DType::F16, values.len())?;
            self.write_memory(Data::F16(&values), &memory)?;
            Ok::<_, Error>(memory)
        };
        let [a_len, b_len, y_len] = p.lens();
        let (a, b) = (upload(a_len)?, upload(b_len)?);
        let mut y = self.new_memory(DType::F16, y_len as usize)?;
        let table = self.new_table(Slot::FIRST_SITE.0, 0)?;
        let before = self.product_tile;
        let mut steps = Vec::new();
        for &tile in candidates {
            self.product_tile = Some(tile);
            let store = Store::keep(Slot::ONE, &table, &mut y);
            match self.record(|| self.run_tiles(&Product::from_matrices(&p, [&a, &b], None), &store)) {
                Ok(step) => steps.push((step.unwrap_or_default(), TileTime { tile, time: Duration::MAX })),
                Err(Error::Kernel { .. }) => {}
                Err(error) => {
                    self.product_tile = before;
                    return Err(error);
                }
            }
        }
        self.product_tile = before;
        let mut total = Duration::ZERO;
        // The first round warms up.
        for round in 0..=MAX_ROUNDS {
            for (step, shortest) in &mut steps {
                let time = self.measure_step(step, &y).await?;
                total = total.saturating_add(time);
                if round != 0 {
                    shortest.time = time.min(shortest.time);
                }
            }
            if round != 0 && total >= MAX_TOTAL_TIME {
                break;
            }
        }
        Ok(steps.into_iter().map(|(_, shortest)| shortest).collect())
    }
}

#[cfg(test)]
mod tests;
