//! Adapters of this machine: their features and limits, and the wgpu device that is requested from one.

use crate::{Error, engine::NotOffered, product_engine::Coop, product_tile::ProductTile, tile_choice::guess_tile};
use pollster::block_on;

/// Adapter of wgpu: a GPU, or a driver that computes on the CPU.
#[derive(Clone, Debug)]
pub struct Adapter {
    inner: wgpu::Adapter,
}

/// Returns all adapters, those that are fast by their kind first. Their order is that of `--device wgpu:N`.
#[must_use]
pub fn adapters() -> Vec<Adapter> {
    block_on(adapters_async())
}

/// Returns the adapters as [`adapters`] does, without blocking; browsers offer at most one.
pub async fn adapters_async() -> Vec<Adapter> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle_from_env());
    let mut found = instance.enumerate_adapters(wgpu::Backends::PRIMARY).await;
    found.sort_by_key(|adapter| match adapter.get_info().device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    });
    found.into_iter().map(|inner| Adapter { inner }).collect()
}

impl Adapter {
    /// Returns the adapter with this index in the list of all adapters.
    ///
    /// # Errors
    /// [`Error::NoAdapter`].
    pub fn get(index: usize) -> Result<Self, Error> {
        let all = adapters();
        let found = || all.iter().map(Self::name).collect();
        all.get(index).cloned().ok_or_else(|| Error::NoAdapter { index, found: found() })
    }

    /// Returns the adapter's name for messages: GPU, graphics interface and driver.
    #[must_use]
    pub fn name(&self) -> String {
        let info = self.inner.get_info();
        let driver = [info.driver, info.driver_info].join(" ");
        // Browsers reveal little about the adapter.
        let parts = [info.name, info.backend.to_string(), driver.trim().to_owned()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    }

    /// Returns true if the adapter is a driver that computes on the CPU.
    #[must_use]
    pub fn is_software(&self) -> bool {
        self.inner.get_info().device_type == wgpu::DeviceType::Cpu
    }

    /// Returns true if kernels may pack and unpack halves as f32, which nearly every driver allows.
    pub(crate) fn packs_halves(&self) -> bool {
        self.inner.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::SHADER_F16_IN_F32)
    }

    /// Returns the features that matter to this backend, by name, and whether the adapter has them.
    #[must_use]
    pub fn features(&self) -> Vec<(&'static str, bool)> {
        let has = self.inner.features();
        vec![
            ("f16 in shaders", has.contains(wgpu::Features::SHADER_F16)),
            ("subgroups", has.contains(wgpu::Features::SUBGROUP)),
            ("timestamps", has.contains(wgpu::Features::TIMESTAMP_QUERY)),
            ("cooperative matrices", has.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX)),
        ]
    }

    /// Returns the limits of the adapter that matter to this backend, each with its name.
    #[must_use]
    pub fn limits(&self) -> Vec<(&'static str, u64)> {
        let limits = self.inner.limits();
        vec![
            ("largest buffer", limits.max_buffer_size),
            ("largest binding", limits.max_storage_buffer_binding_size),
            ("workgroup memory", limits.max_compute_workgroup_storage_size.into()),
            ("invocations of a workgroup", limits.max_compute_invocations_per_workgroup.into()),
        ]
    }

    /// Returns the arrangements of cooperative matrices that the adapter offers as candidates.
    pub(crate) fn cooperative(&self) -> Result<Vec<Coop>, NotOffered> {
        Coop::candidates(&self.inner)
    }

    /// Returns the first guess for the tile of products.
    pub(crate) fn guess_tile(&self) -> ProductTile {
        guess_tile(&self.inner.get_info())
    }

    /// Opens a device with all that the adapter allows: timestamps, subgroups and f16 where it has them, and cooperative
    /// matrices if they are requested.
    pub(crate) async fn open(&self, cooperative: bool) -> Result<(wgpu::Device, wgpu::Queue), Error> {
        let timestamps = wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS;
        let (coop, experimental) = if cooperative {
            // SAFETY: only the kernels with coop.wgsl use features that wgpu does not check yet, and all their pipelines
            // are tested on the device before they are used.
            (Coop::features(), unsafe { wgpu::ExperimentalFeatures::enabled() })
        } else {
            (wgpu::Features::empty(), wgpu::ExperimentalFeatures::disabled())
        };
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("gradscale"),
            required_features: self.inner.features()
                & (timestamps | wgpu::Features::SUBGROUP | wgpu::Features::SHADER_F16)
                | coop,
            experimental_features: experimental,
            required_limits: self.inner.limits(),
            ..wgpu::DeviceDescriptor::default()
        };
        self.inner.request_device(&descriptor).await.map_err(|error| Error::NoDevice(error.to_string()))
    }
}
