//! GEMM of halves by cooperative matrices (coop.wgsl), if the device uses them: see `self_test.rs` for when it does.

use crate::{
    Error, Memory, Wgpu, kernel,
    launch::KernelLaunch,
    operators::tiled_gemm::bias_type,
    product_engine::{Coop, PlantedFault},
};
use core::sync::atomic::Ordering::Relaxed;
use gradscale_core::{
    backend::{Buffer, DType, Store},
    ops::{Gemm, GemmShape},
};

impl Wgpu {
    /// Returns the cooperative matrices for these operands, if they are used and can multiply them.
    pub(crate) fn coop_for(
        &self, p: &Gemm, operands: [&Memory; 2], bias: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Option<Coop> {
        let coop = self.products.active_coop()?;
        let (GemmShape { m, n, k }, [lda, ldb, _], [stride_a, stride_b, _]) = (p.shape(), p.lead(), p.strides());
        let [a_transposed, b_transposed] = p.transposed();
        let contiguous_sizes = [if a_transposed { m } else { k }, if b_transposed { k } else { n }];
        let divisible_by_4 = [contiguous_sizes[0], contiguous_sizes[1], lda, ldb, stride_a, stride_b]
            .iter()
            .all(|size| size.is_multiple_of(4));
        let are_halves = operands.iter().all(|memory| memory.dtype() == DType::F16);
        // Tensors that are bound in several windows need another pipeline, which the self-test does not run.
        let mut tensors = operands.into_iter().chain(bias).chain([&*y.y]);
        let visible = tensors.all(|memory| memory.bytes().size <= self.largest_binding());
        // Below 32, most of a tile would be empty.
        (divisible_by_4 && are_halves && visible && m > 32 && n > 32).then_some(coop)
    }

    pub(crate) fn run_coop(
        &self, coop: Coop, p: &Gemm, [a, b]: [&Memory; 2], bias: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let (GemmShape { m, n, k }, [lda, ldb, ldy], [stride_a, stride_b, stride]) = (p.shape(), p.lead(), p.strides());
        let ([a_transposed, b_transposed], [rows, columns]) = (p.transposed(), coop.tile());
        let [tiles_m, tiles_n] = [m.div_ceil(rows), n.div_ceil(columns)];
        let (a_k_contiguous, size) = match self.planted_fault {
            PlantedFault::None => (!a_transposed, coop.size),
            PlantedFault::SubgroupSize(size) => (!a_transposed, size),
            PlantedFault::Layout => (a_transposed, coop.size),
        };
        let call = KernelLaunch::new(if coop.side == 16 { &kernel::COOP_16 } else { &kernel::COOP_8 })
            .constant("A_K_CONTIGUOUS", u32::from(a_k_contiguous))
            .constant("B_K_CONTIGUOUS", u32::from(b_transposed))
            .constant("ROWS", coop.subgroups[0])
            .constant("COLUMNS", coop.subgroups[1])
            .constant("SIZE", size)
            .params([m, n, k, p.batch(), stride, ldy, 0, bias_type(bias), k, 1, tiles_m, tiles_n])
            .params([lda, ldb, stride_a, stride_b])
            .optional_operand(bias, a)
            .memory(16, a)
            .memory(17, b);
        self.launches_by_coop.fetch_add(1, Relaxed);
        self.launch(call.store(y), tiles_m * tiles_n * p.batch())
    }
}
