//! Faults and properties of an emulated device, set by a text such as `oom=17,maps,broken=wgmma`.

use crate::status::Status;

/// Faults that an emulated device simulates.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// `oom=N`: the N-th allocation from now on fails, in device memory or pinned host memory.
    pub out_of_memory_in: Option<u64>,
    /// `maps`: the creation of tensor maps (`cuTensorMapEncodeTiled`) fails.
    pub maps: bool,
    /// `broken=PREFIX`: kernels of modules whose names have this prefix do nothing.
    pub broken: Option<String>,
    /// `hang=PREFIX`: kernels of modules whose names have this prefix never return.
    pub hang: Option<String>,
    /// `lost=PREFIX`: the device is lost when a kernel of such a module runs.
    pub lost: Option<String>,
    /// `code=N`: error of the driver by which the device is lost; by default a failed launch.
    pub code: Option<Status>,
    /// `resident=N`: occupancy that the device reports for every kernel, in blocks per multiprocessor; 2 by default.
    pub resident: Option<i32>,
    /// `unloadable=PREFIX`: modules whose names have this prefix cannot be loaded.
    pub unloadable: Option<String>,
    /// `driver=N`: version of the driver, as `cuDriverGetVersion` returns it; 13000 by default.
    pub driver: Option<i32>,
}

impl Faults {
    /// Parses a text such as `oom=17,maps`; an empty text has no faults.
    ///
    /// # Errors
    /// A part of the text that is no fault.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut faults = Self::default();
        for fault in text.split(',').filter(|fault| !fault.is_empty()) {
            let (name, value) = fault.split_once('=').unwrap_or((fault, ""));
            let value = value.to_owned();
            match name {
                "oom" => {
                    let count = value.parse().map_err(|_| format!("{fault}: which allocation?"))?;
                    faults.out_of_memory_in = Some(count);
                }
                "maps" => faults.maps = true,
                "broken" => faults.broken = Some(value),
                "hang" => faults.hang = Some(value),
                "lost" => faults.lost = Some(value),
                "code" => faults.code = Some(value.parse().map_err(|_| format!("{fault}: which error?"))?),
                "resident" => {
                    faults.resident = Some(value.parse().map_err(|_| format!("{fault}: how many blocks?"))?);
                }
                "driver" => faults.driver = Some(value.parse().map_err(|_| format!("{fault}: which version?"))?),
                "unloadable" => faults.unloadable = Some(value),
                other => return Err(format!("{other}: no fault is called so")),
            }
        }
        Ok(faults)
    }

    /// Returns the version of the driver.
    pub fn driver_version(&self) -> i32 {
        self.driver.unwrap_or(13_000)
    }

    /// Counts an allocation, and returns true if it is the one that fails.
    pub fn allocation_fails(&mut self) -> bool {
        let Some(left) = &mut self.out_of_memory_in else { return false };
        *left = left.saturating_sub(1);
        let fails = *left == 0;
        if fails {
            self.out_of_memory_in = None;
        }
        fails
    }
}

/// Returns true if a fault names the module by its prefix.
pub fn names(fault: Option<&String>, module: &str) -> bool {
    fault.is_some_and(|prefix| module.starts_with(prefix.as_str()))
}
