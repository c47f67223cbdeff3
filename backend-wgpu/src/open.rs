//! Opening of a device: probe, self-test and choice of its engine of products.

use crate::{
    Adapter, Error, Wgpu,
    conversion_test::ConversionFaults,
    engine::{EnginePreference, EngineReason, Refusal, RefusalCause},
    product_engine::{PlantedFault, Products},
    tile_choice::TilePreference,
};
use core::sync::atomic::AtomicU64;
use pollster::block_on;

impl Wgpu {
    /// Opens the adapter with this index in [`crate::adapters`]. Kernels have run-time checks only in builds with debug
    /// assertions.
    ///
    /// # Errors
    /// [`Error::NoAdapter`], [`Error::NoDevice`], and errors of the first kernels.
    pub fn new(index: usize) -> Result<Self, Error> {
        Self::open(&Adapter::get(index)?, cfg!(debug_assertions))
    }

    /// Opens a device on an adapter; `checked` lets kernels check every index, divisor and loop. The environment
    /// variable `GRADSCALE_WGPU_PRODUCTS` (`fastest`, `simt` or `cooperative`) chooses the engine of products, and
    /// `GRADSCALE_WGPU_TILE` the tile of SIMT products: see [`TilePreference`].
    ///
    /// Tiles are timed on a GPU. If the adapter offers cooperative matrices, they are tested and timed first: see [`Wgpu::product_engine_reason`].
    ///
    /// # Errors
    /// [`Error::NoDevice`], [`Error::Engine`], [`Error::Tile`], and errors of the first kernels.
    pub fn open(adapter: &Adapter, checked: bool) -> Result<Self, Error> {
        block_on(Self::open_async(adapter, checked))
    }

    /// Opens a device as [`Wgpu::open`] does, without blocking: where there is an event loop, as in a browser, a device
    /// answers only once the program has returned to it. Errors that a browser tells late (a kernel that does not
    /// compile, memory that is not there) are those of a later call; each call that reads waits for them.
    ///
    /// # Errors
    /// As [`Wgpu::open`].
    pub async fn open_async(adapter: &Adapter, checked: bool) -> Result<Self, Error> {
        Self::open_with_async(adapter, checked, EnginePreference::from_environment()?).await
    }

    /// Opens a device as [`Wgpu::open`] does, with a preference for an engine of products that overrides the
    /// environment variable.
    ///
    /// # Errors
    /// As [`Wgpu::open`].
    pub fn open_with(adapter: &Adapter, checked: bool, preference: EnginePreference) -> Result<Self, Error> {
        block_on(Self::open_with_async(adapter, checked, preference))
    }

    /// Opens a device as [`Wgpu::open_with`] does, without blocking, as [`Wgpu::open_async`].
    ///
    /// # Errors
    /// As [`Wgpu::open`].
    pub async fn open_with_async(
        adapter: &Adapter, checked: bool, preference: EnginePreference,
    ) -> Result<Self, Error> {
        Self::open_planted(adapter, checked, preference, PlantedFault::None).await
    }

    pub(crate) async fn open_planted(
        adapter: &Adapter, checked: bool, preference: EnginePreference, planted_fault: PlantedFault,
    ) -> Result<Self, Error> {
        let tile = TilePreference::from_environment()?;
        let candidates = adapter.cooperative();
        let offered = preference != EnginePreference::Simt && candidates.is_ok();
        let mut opened = Self::connect(adapter, checked, offered, tile).await?;
        opened.planted_fault = planted_fault;
        let chosen = opened.choose_engine(candidates.clone(), preference, adapter.is_software()).await;
        opened.products = match (chosen, candidates, preference) {
            (Ok(products), _, _) => products,
            // A driver that loses its device over cooperative matrices may well do without them.
            (Err(Error::Lost(reason)), Ok(candidates), EnginePreference::Fastest) => {
                opened = Self::connect(adapter, checked, false, tile).await?;
                let cause = RefusalCause::Failed(format!("the device is lost: {reason}"));
                let refusals = candidates.first().map(|coop| Refusal { engine: coop.engine(), cause });
                Products::simt(preference, EngineReason::Refused(refusals.into_iter().collect()))
            }
            (Err(error), _, _) => return Err(error),
        };
        // Launches of the self-test and of timing are not counted.
        opened.launches_by_simt = AtomicU64::new(0);
        opened.launches_by_coop = AtomicU64::new(0);
        Ok(opened)
    }

    /// Opens a device whose engine of products is not yet chosen.
    async fn connect(adapter: &Adapter, checked: bool, cooperative: bool, tile: TilePreference) -> Result<Self, Error> {
        let (device, queue) = adapter.open(cooperative).await?;
        let mut opened = Self::from_handles(device, queue, adapter.name(), checked);
        if adapter.packs_halves() {
            opened.choose_conversions(ConversionFaults::NONE).await?;
        }
        opened.probe().await?;
        opened.choose_tile(adapter, tile).await?;
        Ok(opened)
    }
}
