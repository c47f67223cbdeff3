//! Products of halves by cooperative matrices, where an adapter has them and has been seen to multiply exactly with them.

use crate::{
    Error, Memory, Wgpu,
    kernel::{self, Kernel},
    launch::Call,
    operators::product::bias_type,
};
use gradscale_core::{
    backend::{Backend, Buffer, Control, DType, Data, DataMut, Slot, Store},
    ops::Gemm,
    stats::{Convention, Detail, Stats},
};
use half::f16;
use pollster::block_on;
use std::sync::OnceLock;

/// Bytes of workgroup memory that coop.wgsl needs at most.
pub(crate) const MEMORY: u32 = 28 << 10;

/// How an adapter multiplies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coop {
    /// Side of its matrices: 8 or 16.
    side: u32,
    /// Invocations of a subgroup, and how the subgroups of a workgroup lie.
    size: u32,
    subgroups: [u32; 2],
}

impl Coop {
    /// What an adapter offers: square matrices of halves whose sums are f32, and subgroups of one size.
    pub fn of(adapter: &wgpu::Adapter) -> Option<Self> {
        let (info, limits) = (adapter.get_info(), adapter.limits());
        let size = info.subgroup_max_size;
        if !adapter.features().contains(Self::features())
            || info.subgroup_min_size != size
            || limits.max_compute_workgroup_storage_size < MEMORY
        {
            return None;
        }
        let (half, single) = (wgpu::CooperativeScalarType::F16, wgpu::CooperativeScalarType::F32);
        let offered = adapter.cooperative_matrix_properties();
        let has = |side: u32| {
            offered.iter().any(|one| {
                [one.m_size, one.n_size, one.k_size] == [side; 3] && one.ab_type == half && one.cr_type == single
            })
        };
        let side = [16, 8].into_iter().find(|&side| has(side))?;
        // Tiles of at most 128 along each side, blocks of results of all subgroups in 8 KiB.
        let subgroups = match (side, 256 / size.max(1)) {
            (_, 4) => [2, 2],
            (_, 8) => [2, 4],
            (8, 16) => [4, 4],
            (8, 32) => [4, 8],
            _ => return None,
        };
        Some(Self { side, size, subgroups })
    }

    /// What a device must have for it.
    pub const fn features() -> wgpu::Features {
        wgpu::Features::SHADER_F16
            .union(wgpu::Features::SUBGROUP)
            .union(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX)
    }

    fn kernel(self) -> &'static Kernel {
        if self.side == 16 { &kernel::COOP_16 } else { &kernel::COOP_8 }
    }

    /// Results of a workgroup along each side.
    fn tile(self) -> [u32; 2] {
        [self.subgroups[0] * 4 * self.side, self.subgroups[1] * 2 * self.side]
    }
}

/// Whether cooperative matrices are right on this device: not yet known, no, or how.
pub(crate) type Proven = OnceLock<Option<Coop>>;

impl Wgpu {
    /// Whether products of halves go by cooperative matrices here. The first product finds out.
    #[must_use]
    pub fn has_cooperative_matrices(&self) -> bool {
        self.proven.get().is_some_and(Option::is_some)
    }

    /// How to multiply these matrices, if cooperative matrices can.
    pub(crate) fn coop_for(&self, p: &Gemm, a: &Memory, b: &Memory) -> Option<Coop> {
        let offered = self.coop?;
        let ([m, n, k], [lead_a, lead_b, _], [stride_a, stride_b, _]) = (p.mnk(), p.lead(), p.strides());
        let [a_transposed, b_transposed] = p.transposed();
        let along = [if a_transposed { m } else { k }, if b_transposed { k } else { n }];
        let fours = [along[0], along[1], lead_a, lead_b, stride_a, stride_b].iter().all(|size| size.is_multiple_of(4));
        let visible =
            [a, b].iter().all(|memory| memory.dtype() == DType::F16 && memory.bytes().size <= self.largest_binding());
        // Below that, most of a tile would be empty.
        if !fours || !visible || m <= 32 || n <= 32 {
            return None;
        }
        if self.proven.get().is_none() && !self.is_recording() {
            let right = self.prove(offered).unwrap_or(false);
            self.proven.get_or_init(|| right.then_some(offered));
        }
        self.proven.get().copied().flatten()
    }

    pub(crate) fn run_coop(
        &self, coop: Coop, p: &Gemm, [a, b]: [&Memory; 2], bias: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let ([m, n, k], [lead_a, lead_b, lead], [stride_a, stride_b, stride]) = (p.mnk(), p.lead(), p.strides());
        let ([a_transposed, b_transposed], [rows, columns]) = (p.transposed(), coop.tile());
        let [tiles_m, tiles_n] = [m.div_ceil(rows), n.div_ceil(columns)];
        let call = Call::new(coop.kernel())
            .constant("A_ALONG", u32::from(!a_transposed))
            .constant("B_ALONG", u32::from(b_transposed))
            .constant("ROWS", coop.subgroups[0])
            .constant("COLUMNS", coop.subgroups[1])
            .constant("SIZE", coop.size)
            .params([m, n, k, p.batch(), stride, lead, 0, bias_type(bias), k, 1, tiles_m, tiles_n])
            .params([lead_a, lead_b, stride_a, stride_b])
            .maybe(bias, a)
            .memory(16, a)
            .memory(17, b);
        self.launch(call.store(y), tiles_m * tiles_n * p.batch())
    }

    /// Multiplies small integers, subnormal halves and large ones among them, whose sums f32 holds exactly: by cooperative
    /// matrices and without. The bits must be the same, and the statistics.
    fn prove(&self, coop: Coop) -> Result<bool, Error> {
        let failed = |error: gradscale_core::ops::ShapeError| Error::Failed(error.to_string());
        let [m, n, k] = [136, 152, 104];
        for transposed in [[false, false], [true, false], [false, true], [true, true]] {
            let p = Gemm::new(m, n, k).map_err(failed)?;
            let p = if transposed[0] { p.transpose_a().map_err(failed)? } else { p };
            let p = if transposed[1] { p.transpose_b().map_err(failed)? } else { p };
            let [a_len, b_len, y_len] = p.lens().map(|len| len as usize);
            let load = |len: usize, seed: u32, unit: f32| {
                let mut state = seed;
                let values = (0..len).map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    f16::from_f32(((state >> 24) as f32 % 7.0 - 3.0) * unit)
                });
                let memory = self.new_memory(DType::F16, len)?;
                self.write_memory(Data::F16(&values.collect::<Vec<_>>()), &memory)?;
                Ok::<_, Error>(memory)
            };
            // Multiples of the smallest half there is, times multiples of 2^12.
            let (a, b) = (load(a_len, 1, 2f32.powi(-24))?, load(b_len, 2, 4096.0)?);
            let mut table = self.new_table(Slot::FIRST.0 + 2, 0)?;
            let mut exponents = vec![0; usize::from(Slot::FIRST.0) + 2];
            exponents[usize::from(Slot::FIRST.0)..].fill(5);
            let control = Control { exponents: &exponents, hyperparameters: &[], seed: 0, detail: Detail::Full };
            self.upload_control(&control, 0..0, &mut table)?;
            let mut results = Vec::new();
            for (slot, by) in [(Slot::FIRST.0, Some(coop)), (Slot::FIRST.0 + 1, None)] {
                let mut y = self.new_memory(DType::F16, y_len)?;
                let store = Store::site(Slot::ONE, Slot(slot), &table, &mut y);
                match by {
                    Some(coop) => self.run_coop(coop, &p, [&a, &b], None, &store)?,
                    None => self.run_tiles(&p, [&a, &b], None, &store)?,
                }
                let mut values = vec![f16::ZERO; y_len];
                block_on(self.read_memory(&y, DataMut::F16(&mut values)))?;
                let mut row = [Stats::new(Convention::FP16, 0, Detail::None)];
                block_on(self.collect(&table, slot..slot + 1, &mut row, &[], &mut []))?;
                results.push((values, row[0]));
            }
            let ((here, seen), (there, other)) = (&results[0], &results[1]);
            let same = here.iter().zip(there).all(|(a, b)| a.to_bits() == b.to_bits());
            if !same || seen.counts() != other.counts() || seen.bins() != other.bins() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
