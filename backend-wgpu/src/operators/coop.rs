//! Products of halves by cooperative matrices (coop.wgsl), if the device uses them: see `self_test.rs` for when it does.

use crate::{
    Error, Wgpu,
    launch::KernelLaunch,
    operators::{loader::Loader, product::Product},
    product_engine::{Coop, K_TILE, PlantedFault},
};
use core::sync::atomic::Ordering::Relaxed;
use gradscale_core::{
    backend::{Buffer, DType, Store},
    ops::{GemmShape, Pass},
};

impl Product<'_> {
    /// Returns true if coop.wgsl can load the operands, in eights of halves: two fours of matrices, of which one may be
    /// outside, or eight channels of a convolution.
    fn is_in_eights(&self) -> bool {
        let are_halves = self.operands.iter().all(|memory| memory.dtype() == DType::F16);
        let GemmShape { m, n, k } = self.shape;
        let [a, b] = self.k_contiguous;
        are_halves
            && match self.loader {
                Loader::Matrices => {
                    let contiguous_sizes = [if a { k } else { m }, if b { k } else { n }];
                    self.aligned && contiguous_sizes.iter().all(|size| size.is_multiple_of(4))
                }
                Loader::Convolution { pass, group_channels, .. } => {
                    group_channels.iter().all(|channels| channels.is_multiple_of(8))
                        && (pass == Pass::Weight || self.loader.has_same_tap(K_TILE))
                }
            }
    }
}

impl Wgpu {
    /// Returns the cooperative matrices for a product, if they are used and can multiply its operands.
    pub(crate) fn coop_for(&self, p: &Product<'_>, y: &Store<'_, Self>) -> Option<Coop> {
        let coop = self.products.active_coop()?;
        let GemmShape { m, n, .. } = p.shape;
        // Tensors that are bound in several windows need another pipeline, which the self-test does not run.
        let mut tensors = p.operands.into_iter().chain(p.bias).chain([&*y.y]);
        let visible = tensors.all(|memory| memory.bytes().size <= self.largest_binding());
        // Below 32, most of a tile would be empty.
        (p.is_in_eights() && visible && m > 32 && n > 32).then_some(coop)
    }

    pub(crate) fn run_coop(&self, coop: Coop, p: &Product<'_>, y: &Store<'_, Self>) -> Result<(), Error> {
        self.launches_by_coop.fetch_add(1, Relaxed);
        let subgroups = coop.arrange_subgroups(p.shape);
        let [rows, columns] = coop.tile_sides(subgroups);
        let tiles = [p.shape.m.div_ceil(rows), p.shape.n.div_ceil(columns)];
        let splits = p.splits(tiles.map(u64::from).iter().product::<u64>() * u64::from(p.batch));
        let [a_k_contiguous, b_k_contiguous] = p.k_contiguous;
        let mut params = p.params.clone();
        let (a_k_contiguous, size) = match self.planted_fault {
            PlantedFault::SubgroupSize(size) => (a_k_contiguous, size),
            PlantedFault::Layout => (!a_k_contiguous, coop.size),
            PlantedFault::Padding => {
                // Sizes of x, y and the kernel come first, then strides.
                params.get_mut(8).into_iter().for_each(|rows| *rows += 1);
                (a_k_contiguous, coop.size)
            }
            PlantedFault::None => (a_k_contiguous, coop.size),
        };
        let mut call = KernelLaunch::new(p.loader.coop_kernel(coop.side == 16))
            .constant("A_K_CONTIGUOUS", a_k_contiguous.into())
            .constant("B_K_CONTIGUOUS", b_k_contiguous.into())
            .constant("SIZE", size)
            .params(p.output_words(splits, tiles))
            .params(params)
            .params(subgroups);
        for (name, value) in p.loader.constants(K_TILE) {
            call = call.constant(name, value);
        }
        let [a, b] = p.operands;
        let call = call.optional_operand(p.bias, a).memory(16, a).memory(17, b);
        self.launch_product(p, call, splits, tiles, y)
    }
}
