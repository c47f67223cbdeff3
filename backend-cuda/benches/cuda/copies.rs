//! The fastest copy on the device, which all that waits for memory is compared with: the driver's, a kernel that copies and
//! does nothing else, and the store kernel, each measured apart.

use crate::{
    measure::{Bench, CopySpeed, Work},
    model::Work as Asked,
};
use core::ffi::c_void;
use cudarc::driver::{
    result::{self, module},
    sys,
};
use gradscale_core::{
    backend::{Backend, Buffer, DType, Launch, Slot, Store},
    ops::Unary,
    stats::Detail,
};
use gradscale_cuda::{
    Cuda, Error, Memory,
    kernels::{File, Module},
    nvrtc,
};
use std::{cell::RefCell, ffi::CString};

const TEXT: File = File { name: "copy.cu", text: include_str!("copy.cu") };
const ENTRY: &str = "copy_words4";
/// Threads of a block. With eight loads a thread has 40 registers on sm_90, so that a multiprocessor holds six blocks.
const THREADS: u32 = 256;

const fn module(name: &'static str, defines: &'static [(&'static str, u32)]) -> Module {
    Module {
        name,
        files: &[TEXT],
        defines,
        threads: THREADS,
        blocks: 4,
        shared: 0,
        shared_sm75: None,
        arch: [75, u32::MAX],
    }
}

/// Loads under way in each thread. By Little's law 3.35 TB/s × 0.7 µs = 2.3 MB are under way on an H100, 18 KiB a
/// multiprocessor: two loads of each of 2048 threads are 64 KiB. More loads let fewer threads do the same.
static MODULES: [(u32, Module); 3] = [
    (2, module("copy_2", &[("COPY_LOADS", 2)])),
    (4, module("copy_4", &[("COPY_LOADS", 4)])),
    (8, module("copy_8", &[("COPY_LOADS", 8)])),
];

/// Blocks a multiprocessor; `None`: a block for each chunk, as PyTorch's elementwise kernels.
const GRIDS: [Option<u32>; 4] = [Some(4), Some(8), Some(16), None];

/// Parameters of the copy kernel, in the layout of `copy.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CopyParams {
    from: u64,
    to: u64,
    count: u64,
}

/// Loaded variant of the copy kernel.
#[derive(Clone, Copy, Debug)]
pub struct CopyKernel {
    function: sys::CUfunction,
    loads: u32,
    blocks_each: Option<u32>,
    multiprocessors: u32,
}

fn failed(doing: &'static str) -> impl Fn(result::DriverError) -> Error {
    move |error| Error::Driver { doing, name: format!("{error:?}"), lost: false }
}

impl CopyKernel {
    /// Compiles and loads all variants. The context must be current, which it is after any call of the device.
    ///
    /// # Errors
    /// The compiler's, and the driver's.
    pub fn load_all(device: &Cuda) -> Result<Vec<Self>, Error> {
        let (arch, multiprocessors) = (device.gpu().arch(), multiprocessors(device));
        let entry = CString::new(ENTRY).unwrap_or_default();
        let mut found = Vec::new();
        for (loads, module) in &MODULES {
            let compiled = nvrtc::compile(module, arch)?;
            // SAFETY: the compiler made the image for this device; it stays loaded as long as the context.
            let function = unsafe {
                let code = module::load_data(compiled.cubin.as_ptr().cast()).map_err(failed("load a module"))?;
                module::get_function(code, entry.clone()).map_err(failed("find a kernel"))?
            };
            found.extend(GRIDS.map(|blocks_each| Self { function, loads: *loads, blocks_each, multiprocessors }));
        }
        Ok(found)
    }

    /// Enqueues a copy of all of `from`.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Panics
    /// If `to` is shorter, or its bytes are no multiple of 16.
    pub fn launch(&self, device: &Cuda, from: &Memory, to: &Memory) -> Result<(), Error> {
        let bytes = from.len() * from.dtype().size();
        assert!(bytes <= to.len() * to.dtype().size() && bytes.is_multiple_of(16), "{bytes} bytes to copy");
        let params = CopyParams { from: from.at(), to: to.at(), count: bytes as u64 / 16 };
        let chunks = params.count.div_ceil(u64::from(THREADS * self.loads));
        let blocks = self.blocks_each.map_or(chunks, |each| chunks.min(u64::from(each * self.multiprocessors)));
        let mut arguments = [(&raw const params).cast::<c_void>().cast_mut()];
        // SAFETY: the parameters have the kernel's layout, and the buffers have this many bytes, as checked above.
        unsafe {
            let grid = (blocks.max(1) as u32, 1, 1);
            result::launch_kernel(self.function, grid, (THREADS, 1, 1), 0, device.gpu().stream(), &mut arguments)
                .map_err(failed("launch a kernel"))
        }
    }

    /// Describes the variant in words: how many loads a thread has in flight, and how many blocks there are.
    fn words(&self) -> String {
        let blocks = match self.blocks_each {
            Some(each) => format!("{each} blocks a multiprocessor"),
            None => "a block a chunk".into(),
        };
        format!("{} loads, {blocks}", self.loads)
    }
}

/// Returns the number of the device's multiprocessors, which its name ends with.
fn multiprocessors(device: &Cuda) -> u32 {
    let name = device.caps().name;
    let before = name.strip_suffix(" multiprocessors").unwrap_or_default();
    before.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(1)
}

/// Returns the number of elements of the large tensors: 1 GiB of f32, or as many as a small device has room for.
pub fn large(bench: &Bench<'_>) -> usize {
    bench.size(if bench.fits(4 << 30) { 1 << 28 } else { 1 << 26 }, 1 << 12)
}

/// Measures all copies. The fastest is the baseline of later lines.
///
/// # Errors
/// The device's.
pub fn copy(bench: &mut Bench<'_>) -> Result<(), Error> {
    let (device, len) = (bench.device, large(bench));
    let (from, to) = (bench.normal(DType::F32, len)?, RefCell::new(device.alloc(DType::F32, len)?));
    // If no compiler is available, the other copies remain.
    let kernels = match CopyKernel::load_all(device) {
        Ok(kernels) => kernels,
        Err(error) => {
            println!("no copy kernel: {error}");
            vec![]
        }
    };
    let table = bench.sites(Detail::None)?;
    let mut works: Vec<Work<'_>> = vec![Box::new(|_| {
        let mut to = to.borrow_mut();
        device.launch(Launch::Unary {
            op: Unary::Id,
            len: from.len() as u32,
            x: &from,
            y: Store::keep(Slot::ONE, &table, &mut *to),
        })
    })];
    let (from_here, to_there) = (&from, &to);
    works.extend(
        kernels
            .iter()
            .map(|kernel| -> Work<'_> { Box::new(move |_| kernel.launch(device, from_here, &to_there.borrow())) }),
    );
    // The emulated driver has no such copies.
    let has_driver = bench.size(true, false);
    if has_driver {
        works.push(Box::new(|_| {
            // SAFETY: both are that long.
            unsafe { result::memcpy_dtod_async(to.borrow().at(), from.at(), 4 * len, device.gpu().stream()) }
                .map_err(failed("copy"))
        }));
    }
    let times = bench.medians(works)?;
    let speed = |seconds: f64| 8.0 * len as f64 / seconds / 1e9;
    let mut apart = vec![("store kernel", speed(times[0]), times[0])];
    let mut variant = String::new();
    if let Some((kernel, seconds)) = kernels.iter().zip(&times[1..]).min_by(|a, b| a.1.total_cmp(b.1)) {
        apart.push(("copy kernel", speed(*seconds), *seconds));
        variant = format!(" ({})", kernel.words());
    }
    if has_driver && let Some(seconds) = times.last() {
        apart.push(("driver", speed(*seconds), *seconds));
    }
    let Some(&(by, best, seconds)) = apart.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else { return Ok(()) };
    bench.copy = CopySpeed { gigabytes: best, by };
    let words = |&(name, speed, _): &(&str, f64, f64)| {
        format!("{name}{} {speed:.0} GB/s", if name == "copy kernel" { variant.as_str() } else { "" })
    };
    let beside = apart.iter().map(words).collect::<Vec<_>>().join(", ");
    let work = Asked { memory: 8.0 * len as f64, ..Asked::default() };
    bench.line_of("copy on the device", format!("{best:.0} GB/s"), beside, None, Some((work, seconds)));
    Ok(())
}
