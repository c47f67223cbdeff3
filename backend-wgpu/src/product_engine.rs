//! Product engine of a device: SIMT, or one of the arrangements of cooperative matrices that its adapter offers.

use crate::engine::{EnginePreference, EngineReason, NotOffered, ProductEngine};
use core::ops::RangeInclusive;
use gradscale_core::ops::GemmShape;

/// Bytes of workgroup memory that coop.wgsl needs at most.
pub(crate) const WORKGROUP_MEMORY_BYTES: u32 = 30 << 10;
/// Depth of a step of coop.wgsl.
pub(crate) const K_TILE: u32 = 16;
/// Subgroup size of every Apple GPU, whatever wgpu reports.
const METAL_SUBGROUP: u32 = 32;

/// Arrangement of cooperative matrices in a workgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Coop {
    /// Number of rows and columns of a cooperative matrix: 8 or 16.
    pub side: u32,
    /// Number of invocations of each subgroup.
    pub size: u32,
    /// Number of subgroups in a workgroup, along rows and columns of the result, for large products.
    pub subgroups: [u32; 2],
}

impl Coop {
    /// Returns the arrangements to be tested and timed on an adapter that offers square cooperative matrices of halves with
    /// f32 sums.
    pub fn candidates(adapter: &wgpu::Adapter) -> Result<Vec<Self>, NotOffered> {
        let (info, limits) = (adapter.get_info(), adapter.limits());
        if !adapter.features().contains(Self::features()) {
            return Err(NotOffered::Features);
        }
        if limits.max_compute_workgroup_storage_size < WORKGROUP_MEMORY_BYTES {
            return Err(NotOffered::WorkgroupMemory);
        }
        let (half, single) = (wgpu::CooperativeScalarType::F16, wgpu::CooperativeScalarType::F32);
        let offered = adapter.cooperative_matrix_properties();
        let has = |side: u32| {
            offered.iter().any(|one| {
                [one.m_size, one.n_size, one.k_size] == [side; 3] && one.ab_type == half && one.cr_type == single
            })
        };
        let sides: Vec<u32> = [16, 8].into_iter().filter(|&side| has(side)).collect();
        if sides.is_empty() {
            return Err(NotOffered::Shapes);
        }
        let sizes = if info.backend == wgpu::Backend::Metal {
            METAL_SUBGROUP..=METAL_SUBGROUP
        } else {
            info.subgroup_min_size..=info.subgroup_max_size
        };
        let candidates = Self::arrangements(&sides, sizes);
        if candidates.is_empty() { Err(NotOffered::SubgroupSizes) } else { Ok(candidates) }
    }

    /// Returns the arrangements for all powers of two among these subgroup sizes.
    fn arrangements(sides: &[u32], sizes: RangeInclusive<u32>) -> Vec<Self> {
        let powers = (0..u32::BITS).map(|log| 1 << log).filter(|size| sizes.contains(size));
        let all = sides.iter().flat_map(|&side| powers.clone().map(move |size| (side, size)));
        all.filter_map(|(side, size)| Self::arrangement(side, size)).collect()
    }

    /// Tiles of at most 128 along each side; one block of results of each subgroup in 8 KiB.
    fn arrangement(side: u32, size: u32) -> Option<Self> {
        let subgroups = match (side, 256 / size) {
            (_, 4) => [2, 2],
            (_, 8) => [2, 4],
            (8, 16) => [4, 4],
            (8, 32) => [4, 8],
            _ => return None,
        };
        Some(Self { side, size, subgroups })
    }

    /// Returns the features that a device must be opened with for cooperative matrices.
    pub const fn features() -> wgpu::Features {
        wgpu::Features::SHADER_F16
            .union(wgpu::Features::SUBGROUP)
            .union(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX)
    }

    /// Returns the engine's description, as it is reported to users.
    pub const fn engine(self) -> ProductEngine {
        ProductEngine::Cooperative { side: self.side, subgroup: self.size }
    }

    /// Returns the number of subgroups along rows and columns for a shape: the arrangement whose tiles cover the fewest
    /// results that are not there. With 64 channels, half of a tile of 128×128 would be empty, and none of 256×64 is. The
    /// order of sums is that of a block, so it does not depend on the arrangement.
    pub fn arrange_subgroups(self, GemmShape { m, n, .. }: GemmShape) -> [u32; 2] {
        let [rows, columns] = self.subgroups;
        let covered = |subgroups: &[u32; 2]| {
            let [rows, columns] = self.tile_sides(*subgroups).map(u64::from);
            u64::from(m).next_multiple_of(rows) * u64::from(n).next_multiple_of(columns)
        };
        let all = [[rows, columns], [2 * rows, columns / 2], [rows / 2, 2 * columns]];
        all.into_iter()
            .filter(|subgroups| subgroups[0] * subgroups[1] == rows * columns)
            .min_by_key(covered)
            .unwrap_or(self.subgroups)
    }

    /// Returns the rows and columns of results that a workgroup computes with an arrangement of its subgroups.
    pub const fn tile_sides(self, [rows, columns]: [u32; 2]) -> [u32; 2] {
        [rows * 4 * self.side, columns * 2 * self.side]
    }
}

/// Engine that a device uses for matrix products, with the reason and the verified alternative.
#[derive(Clone, Debug)]
pub(crate) struct Products {
    preference: EnginePreference,
    /// Cooperative matrices that passed the self-test, whether they are used or not.
    verified: Option<Coop>,
    engine: ProductEngine,
    /// Name of the engine, as [`Backend::product_engine`] returns it.
    name: String,
    reason: EngineReason,
}

impl Products {
    pub fn new(
        preference: EnginePreference, verified: Option<Coop>, engine: ProductEngine, reason: EngineReason,
    ) -> Self {
        Self { preference, verified, engine, name: engine.to_string(), reason }
    }

    /// Returns the setting that computes all products by SIMT.
    pub fn simt(preference: EnginePreference, reason: EngineReason) -> Self {
        Self::new(preference, None, ProductEngine::Simt, reason)
    }

    pub const fn engine(&self) -> ProductEngine {
        self.engine
    }

    pub const fn reason(&self) -> &EngineReason {
        &self.reason
    }

    pub const fn preference(&self) -> EnginePreference {
        self.preference
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the engine of this name, if the device has it.
    pub fn find_engine(&self, name: &str) -> Option<ProductEngine> {
        let all = [Some(ProductEngine::Simt), self.verified.map(Coop::engine)];
        all.into_iter().flatten().find(|engine| engine.to_string() == name)
    }

    /// Returns these products with another engine of the device.
    pub fn with_engine(&self, engine: ProductEngine, reason: EngineReason) -> Self {
        Self::new(self.preference, self.verified, engine, reason)
    }

    /// Returns the verified cooperative matrices if the device uses them.
    pub fn active_coop(&self) -> Option<Coop> {
        self.verified.filter(|coop| coop.engine() == self.engine)
    }
}

/// Deliberate error in the cooperative kernel, which tests plant to see that the self-test finds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PlantedFault {
    #[default]
    None,
    /// Error of the subgroup size: pipelines are compiled for this one in place of the candidate's.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests plant it"))]
    SubgroupSize(u32),
    /// Error of the layout of operand a: rows and columns are exchanged.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests plant it"))]
    Layout,
    /// Error of the padding of convolutions: windows begin one row earlier.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests plant it"))]
    Padding,
}

#[cfg(test)]
mod tests;
