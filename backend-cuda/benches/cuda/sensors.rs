//! Clock and power of the first GPU by NVML, which comes with NVIDIA's driver.

use core::ffi::{c_int, c_uint, c_void};
use libloading::Library;

/// Names of the library: the driver installs the first, toolkits the second.
const NAMES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];
/// Clock of the multiprocessors: `NVML_CLOCK_SM` of `nvml.h`.
const CLOCK_SM: c_int = 1;

type Handle = *mut c_void;
type Init = unsafe extern "C" fn() -> c_int;
type ByIndex = unsafe extern "C" fn(c_uint, *mut Handle) -> c_int;
type Clock = unsafe extern "C" fn(Handle, c_int, *mut c_uint) -> c_int;
type Power = unsafe extern "C" fn(Handle, *mut c_uint) -> c_int;
type Fields = unsafe extern "C" fn(Handle, c_int, *mut FieldValue) -> c_int;

/// `NVML_FI_DEV_POWER_INSTANT` of `nvml.h`: the power now, where `nvmlDeviceGetPowerUsage` is the mean of the last second.
const POWER_INSTANT: c_uint = 186;

/// Value of a sensor as NVML returns it: `nvmlFieldValue_t` of `nvml.h`.
#[repr(C)]
#[derive(Debug, Default)]
struct FieldValue {
    field: c_uint,
    scope: c_uint,
    timestamp: i64,
    latency: i64,
    kind: c_uint,
    status: c_int,
    /// Value of the field: a union of eight bytes, of which numbers of 32 bits are the first.
    value: [c_uint; 2],
}

/// Reading of a GPU's sensors.
#[derive(Clone, Copy, Debug)]
pub struct Sensor {
    /// Clock of the multiprocessors in MHz.
    pub megahertz: f64,
    /// Power of the board in W.
    pub watts: f64,
}

/// Sensors of a GPU, if NVML is installed.
pub struct Sensors {
    found: Option<Found>,
}

struct Found {
    /// Library handle, which keeps the functions loaded.
    _library: Library,
    clock: Clock,
    power: Power,
    /// Function for values of fields; missing before driver 530.
    fields: Option<Fields>,
    device: Handle,
}

impl Sensors {
    /// Opens NVML; without it no sensor can be read.
    pub fn open() -> Self {
        Self { found: NAMES.into_iter().find_map(find) }
    }

    /// Reads the current clock and power.
    pub fn read(&self) -> Option<Sensor> {
        let Found { clock, power, fields, device, .. } = self.found.as_ref()?;
        let [mut megahertz, mut milliwatts] = [0; 2];
        let mut instant = FieldValue { field: POWER_INSTANT, ..FieldValue::default() };
        // SAFETY: the handle is of the library, and the numbers are this function's own.
        let read = unsafe {
            let has_instant =
                fields.is_some_and(|fields| fields(*device, 1, &raw mut instant) == 0 && instant.status == 0);
            if has_instant {
                milliwatts = instant.value[0];
            }
            (has_instant || power(*device, &raw mut milliwatts) == 0)
                && clock(*device, CLOCK_SM, &raw mut megahertz) == 0
        };
        read.then(|| Sensor { megahertz: megahertz.into(), watts: f64::from(milliwatts) / 1e3 })
    }
}

fn find(name: &str) -> Option<Found> {
    // SAFETY: the library is NVIDIA's; its functions have had these types since version 2 of its interface (`nvml.h`).
    unsafe {
        let library = Library::new(name).ok()?;
        let init = library.get::<Init>(b"nvmlInit_v2").ok()?;
        let by_index = library.get::<ByIndex>(b"nvmlDeviceGetHandleByIndex_v2").ok()?;
        let clock = *library.get::<Clock>(b"nvmlDeviceGetClockInfo").ok()?;
        let power = *library.get::<Power>(b"nvmlDeviceGetPowerUsage").ok()?;
        let fields = library.get::<Fields>(b"nvmlDeviceGetFieldValues").ok().map(|fields| *fields);
        let mut device = core::ptr::null_mut();
        let is_ready = init() == 0 && by_index(0, &raw mut device) == 0;
        is_ready.then_some(Found { _library: library, clock, power, fields, device })
    }
}
