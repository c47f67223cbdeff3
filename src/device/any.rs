//! [`AnyDevice`] as a backend: each method calls that of the backend inside.

#[cfg(feature = "cpu")]
use super::Cpu;
#[cfg(feature = "cuda")]
use super::Cuda;
#[cfg(feature = "wgpu")]
use super::Wgpu;
use super::{
    operands::{launch_on, own_reduction},
    variants::{AnyBuffer, AnyDevice, AnyDeviceError, AnyRecording, AnyTable, Variant},
};
use gradscale_core::{
    backend::{
        Backend, Caps, Control, DType, Data, DataMut, DeviceResult, EngineAvailability, Error, GradReduce, Launch,
        OnDevice, UniqueId,
    },
    ops::Attention,
    stats::Stats,
};
use std::{ops::Range, time::Duration};

/// Evaluates `$result` with the backend inside as `$device`, whose type is `$backend`.
macro_rules! on_variant {
    ($any:expr, $device:ident: $backend:ident => $result:expr) => {
        match $any {
            #[cfg(feature = "cpu")]
            AnyDevice::Cpu($device) => {
                type $backend = Cpu;
                $result
            }
            #[cfg(feature = "wgpu")]
            AnyDevice::Wgpu($device) => {
                type $backend = Wgpu;
                $result
            }
            #[cfg(feature = "cuda")]
            AnyDevice::Cuda($device) => {
                type $backend = Cuda;
                $result
            }
        }
    };
}

/// Evaluates `$result` with the backend inside, and wraps its success in the same variant of `$wrapper`.
macro_rules! wrapped {
    ($any:expr, $wrapper:ident, $device:ident => $result:expr) => {
        match $any {
            #[cfg(feature = "cpu")]
            AnyDevice::Cpu($device) => $result.map($wrapper::Cpu).map_err(Into::into),
            #[cfg(feature = "wgpu")]
            AnyDevice::Wgpu($device) => $result.map($wrapper::Wgpu).map_err(Into::into),
            #[cfg(feature = "cuda")]
            AnyDevice::Cuda($device) => $result.map($wrapper::Cuda).map_err(Into::into),
        }
    };
}

/// Runs work of the caller inside a method of a backend. The backend's method ends with an error of its own if the work
/// fails; the work's error is returned instead of it.
fn with_work<B: Variant<Error: Into<AnyDeviceError>>, T>(
    run: impl FnOnce(&mut dyn FnMut(DeviceResult<AnyDevice>) -> Result<(), B::Error>) -> Result<T, B::Error>,
) -> Result<T, AnyDeviceError> {
    let mut failed = None;
    let result = run(&mut |worked| {
        worked.map_err(|error| {
            failed = Some(error);
            B::Error::unsupported("work")
        })
    });
    match failed {
        Some(error) => Err(error),
        None => result.map_err(Into::into),
    }
}

impl Backend for AnyDevice {
    type Buffer = AnyBuffer;
    type Table = AnyTable;
    type Recording = AnyRecording;
    type Error = AnyDeviceError;

    fn caps(&self) -> Caps<'_> {
        on_variant!(self, device: B => B::caps(device))
    }

    fn scratch_peak(&self) -> Option<u64> {
        on_variant!(self, device: B => B::scratch_peak(device))
    }

    fn workspace(&self) -> u64 {
        on_variant!(self, device: B => <B as Backend>::workspace(device))
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<AnyBuffer, AnyDeviceError> {
        wrapped!(self, AnyBuffer, device => device.alloc(dtype, len))
    }

    fn alloc_group(&self, dtype: DType, lens: &[usize], buffers: &mut impl Extend<AnyBuffer>) -> DeviceResult<Self> {
        macro_rules! extended {
            ($device:ident, $variant:ident) => {{
                let mut own = Vec::new();
                let allocated = $device.alloc_group(dtype, lens, &mut own);
                buffers.extend(own.into_iter().map(AnyBuffer::$variant));
                Ok(allocated?)
            }};
        }
        match self {
            #[cfg(feature = "cpu")]
            Self::Cpu(device) => extended!(device, Cpu),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(device) => extended!(device, Wgpu),
            #[cfg(feature = "cuda")]
            Self::Cuda(device) => extended!(device, Cuda),
        }
    }

    fn write(&self, src: Data<'_>, dst: &mut AnyBuffer) -> DeviceResult<Self> {
        on_variant!(self, device: B => Ok(Backend::write(device, src, B::own_buffer_mut(dst))?))
    }

    fn prefetch(&self, src: Data<'_>, dst: &mut AnyBuffer) -> DeviceResult<Self> {
        on_variant!(self, device: B => Ok(Backend::prefetch(device, src, B::own_buffer_mut(dst))?))
    }

    async fn read(&self, src: &AnyBuffer, dst: DataMut<'_>) -> DeviceResult<Self> {
        on_variant!(self, device: B => Ok(Backend::read(device, B::own_buffer(src), dst).await?))
    }

    fn table(&self, slots: u16, hyperparameters: u16) -> Result<AnyTable, AnyDeviceError> {
        wrapped!(self, AnyTable, device => Backend::table(device, slots, hyperparameters))
    }

    fn upload(&self, control: &Control<'_>, clear: Range<u16>, table: &mut AnyTable) -> DeviceResult<Self> {
        on_variant!(self, device: B => Ok(Backend::upload(device, control, clear, B::own_table_mut(table))?))
    }

    async fn collect(
        &self, table: &AnyTable, rows: Range<u16>, out: &mut [Stats], scalars: &[&AnyBuffer], values: &mut [f32],
    ) -> DeviceResult<Self> {
        on_variant!(self, device: B => {
            let scalars: Vec<_> = scalars.iter().map(|scalar| B::own_buffer(scalar)).collect();
            Ok(Backend::collect(device, B::own_table(table), rows, out, &scalars, values).await?)
        })
    }

    fn record(&self, work: impl FnOnce() -> DeviceResult<Self>) -> Result<Option<AnyRecording>, AnyDeviceError> {
        macro_rules! recorded {
            ($device:ident, $variant:ident) => {
                with_work::<$variant, _>(|result| Backend::record($device, || result(work())))
                    .map(|recording| recording.map(AnyRecording::$variant))
            };
        }
        match self {
            #[cfg(feature = "cpu")]
            Self::Cpu(device) => recorded!(device, Cpu),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(device) => recorded!(device, Wgpu),
            #[cfg(feature = "cuda")]
            Self::Cuda(device) => recorded!(device, Cuda),
        }
    }

    fn replay(&self, step: &AnyRecording) -> DeviceResult<Self> {
        on_variant!(self, device: B => Ok(Backend::replay(device, B::own_recording(step))?))
    }

    fn launch(&self, launch: Launch<OnDevice<'_, Self>>) -> DeviceResult<Self> {
        on_variant!(self, device: B => Ok(launch_on::<B>(device, launch)?))
    }

    fn fuses_attention(&self, p: &Attention) -> bool {
        on_variant!(self, device: B => <B as Backend>::fuses_attention(device, p))
    }

    fn time(
        &self, times: &mut [Duration], mut work: impl FnMut(usize) -> DeviceResult<Self>,
    ) -> Result<bool, AnyDeviceError> {
        on_variant!(self, device: B => {
            with_work::<B, _>(|result| Backend::time(device, times, |index| result(work(index))))
        })
    }

    fn product_engine(&self) -> Option<&str> {
        on_variant!(self, device: B => <B as Backend>::product_engine(device))
    }

    fn product_engine_availability(&self, name: &str) -> EngineAvailability {
        on_variant!(self, device: B => <B as Backend>::product_engine_availability(device, name))
    }

    fn select_product_engine(&mut self, name: &str) -> DeviceResult<Self> {
        on_variant!(self, device: B => Ok(<B as Backend>::select_product_engine(device, name)?))
    }

    fn check_eight_bit_products(&self) -> DeviceResult<Self> {
        on_variant!(self, device: B => Ok(B::check_eight_bit_products(device)?))
    }

    fn collective_backend(&self) -> Option<&'static str> {
        on_variant!(self, device: B => B::collective_backend(device))
    }

    fn new_unique_id(&self) -> Result<UniqueId, AnyDeviceError> {
        on_variant!(self, device: B => Ok(B::new_unique_id(device)?))
    }

    fn init_rank(&mut self, unique_id: &UniqueId, rank: u32, ranks: u32) -> DeviceResult<Self> {
        on_variant!(self, device: B => Ok(<B as Backend>::init_rank(device, unique_id, rank, ranks)?))
    }

    fn grad_reduce(&self, part: GradReduce<'_, AnyBuffer>) -> DeviceResult<Self> {
        on_variant!(self, device: B => Ok(Backend::grad_reduce(device, own_reduction::<B>(part))?))
    }
}
