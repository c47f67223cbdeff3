//! A driver that runs the kernels' own text on the CPU: compiled as C++ under `emulation/machine.hpp`, loaded, called.

mod compiler;

use bytemuck::NoUninit;
use gradscale_cuda::{
    Device, Error,
    driver::{Driver, TensorMap, Tiled, Windows},
    kernels::Kernel,
};
use libloading::Library;
use std::{
    alloc::{Layout, alloc, dealloc},
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Memory of the pretended device: enough for the suite, little enough to be refused.
const MEMORY: u64 = 4 << 30;

/// The CPU as if it were a GPU of a compute capability.
#[derive(Debug)]
pub struct Host {
    arch: u32,
    multiprocessors: u32,
    name: String,
    /// Modules whose names begin so do nothing.
    broken: Option<&'static str>,
    /// Libraries by module.
    loaded: Mutex<HashMap<&'static str, Library>>,
    /// Live allocations.
    memory: Mutex<HashMap<u64, Layout>>,
    recording: Mutex<Option<Vec<Launch>>>,
    /// What was used since the mark: words of all parameters, addresses among them, and where copies began.
    named: Mutex<HashSet<u64>>,
}

/// A kept launch.
#[derive(Debug)]
pub struct Launch {
    kernel: &'static Kernel,
    blocks: [u32; 3],
    /// Aligned as parameters are.
    params: Vec<u64>,
}

type Entry = unsafe extern "C" fn(blocks: *const u32, shared: u32, params: *const u64);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    /// A device with the instructions of `arch`, as in `sm_80`, and so many multiprocessors, which decide how work is
    /// divided.
    ///
    /// # Errors
    /// Why it cannot be: no compiler.
    pub fn open(arch: u32, multiprocessors: u32) -> Result<Device<Self>, String> {
        Self::open_broken(arch, multiprocessors, None)
    }

    /// The same, with kernels that do nothing.
    ///
    /// # Errors
    /// As above.
    pub fn open_broken(arch: u32, multiprocessors: u32, broken: Option<&'static str>) -> Result<Device<Self>, String> {
        compiler::is_there()?;
        Ok(Device::with_driver(Self {
            arch,
            multiprocessors,
            broken,
            name: format!("emulated sm_{arch}"),
            loaded: Mutex::default(),
            memory: Mutex::default(),
            recording: Mutex::default(),
            named: Mutex::default(),
        }))
    }

    /// Modules that have run.
    #[allow(dead_code, reason = "some tests ask")]
    pub fn used(&self) -> Vec<&'static str> {
        lock(&self.loaded).keys().copied().collect()
    }

    fn run(&self, launch: &Launch) -> Result<(), Error> {
        lock(&self.named).extend(&launch.params);
        let (kernel, mut loaded) = (launch.kernel, lock(&self.loaded));
        let failed = |log: String| Error::Compile { module: kernel.module.name, log };
        if !loaded.contains_key(kernel.module.name) {
            loaded.insert(kernel.module.name, compiler::library(kernel.module, self.arch)?);
        }
        // The machine is global state of a library, which is loaded once.
        static RUNNING: Mutex<()> = Mutex::new(());
        let _alone = lock(&RUNNING);
        if self.broken.is_some_and(|broken| kernel.module.name.starts_with(broken)) {
            return Ok(());
        }
        // SAFETY: the entry has this type, and whoever launched it vouched for its parameters.
        unsafe {
            let entry = loaded[kernel.module.name].get::<Entry>(kernel.entry.as_bytes());
            let entry = entry.map_err(|error| failed(error.to_string()))?;
            entry(launch.blocks.as_ptr(), kernel.module.shared, launch.params.as_ptr());
        }
        Ok(())
    }

    /// Only launches may be recorded.
    fn not_recording(&self, doing: &'static str) -> Result<(), Error> {
        match &*lock(&self.recording) {
            None => Ok(()),
            Some(_) => Err(Error::Driver { doing, name: "while a step is recorded".into(), lost: false }),
        }
    }
}

// SAFETY: the system's allocator; layouts are aligned to 256 bytes.
unsafe impl Driver for Host {
    type Recording = Vec<Launch>;

    fn name(&self) -> &str {
        &self.name
    }

    fn arch(&self) -> u32 {
        self.arch
    }

    fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    fn memory(&self) -> u64 {
        MEMORY
    }

    fn alloc(&self, bytes: usize) -> Result<u64, Error> {
        self.not_recording("allocate")?;
        let refused = Error::OutOfMemory { bytes: bytes as u64 };
        let layout = Layout::from_size_align(bytes, 256).map_err(|_| refused.clone())?;
        // SAFETY: nobody asks for nothing.
        let at = unsafe { alloc(layout) };
        if at.is_null() {
            return Err(refused);
        }
        // NaN, so that what was never written is seen.
        // SAFETY: so long it is.
        unsafe { at.write_bytes(0xFF, bytes) };
        lock(&self.memory).insert(at as u64, layout);
        Ok(at as u64)
    }

    unsafe fn free(&self, at: u64) {
        if let Some(layout) = lock(&self.memory).remove(&at) {
            // SAFETY: it was allocated with this layout.
            unsafe { dealloc(at as *mut u8, layout) };
        }
    }

    unsafe fn copy_in(&self, src: &[u8], dst: u64) -> Result<(), Error> {
        self.not_recording("copy to the device")?;
        lock(&self.named).insert(dst);
        // SAFETY: the caller's promise.
        unsafe { (dst as *mut u8).copy_from_nonoverlapping(src.as_ptr(), src.len()) };
        Ok(())
    }

    fn mark(&self) -> Result<(), Error> {
        self.not_recording("mark")?;
        lock(&self.named).clear();
        Ok(())
    }

    /// A real device may be anywhere in the work since the mark: none of it may name this memory.
    unsafe fn copy_beside(&self, src: &[u8], dst: u64) -> Result<(), Error> {
        let memory = dst..dst + src.len() as u64;
        let used = lock(&self.named).iter().any(|word| memory.contains(word));
        assert!(!used, "a copy beside work that uses its destination");
        self.not_recording("copy to the device")?;
        // SAFETY: the caller's promise.
        unsafe { (dst as *mut u8).copy_from_nonoverlapping(src.as_ptr(), src.len()) };
        Ok(())
    }

    unsafe fn copy_out(&self, parts: &mut [(u64, &mut [u8])]) -> Result<(), Error> {
        self.not_recording("copy from the device")?;
        for (src, part) in parts {
            // SAFETY: the caller's promise.
            unsafe { part.as_mut_ptr().copy_from_nonoverlapping(*src as *const u8, part.len()) };
        }
        Ok(())
    }

    unsafe fn zero(&self, at: u64, bytes: usize) -> Result<(), Error> {
        self.not_recording("fill memory")?;
        lock(&self.named).insert(at);
        // SAFETY: the caller's promise.
        unsafe { (at as *mut u8).write_bytes(0, bytes) };
        Ok(())
    }

    unsafe fn launch<P: NoUninit>(&self, kernel: &'static Kernel, blocks: [u32; 3], params: &P) -> Result<(), Error> {
        let mut words = vec![0u64; size_of::<P>().div_ceil(8)];
        bytemuck::cast_slice_mut(&mut words)[..size_of::<P>()].copy_from_slice(bytemuck::bytes_of(params));
        let launch = Launch { kernel, blocks, params: words };
        if let Some(kept) = &mut *lock(&self.recording) {
            kept.push(launch);
            return Ok(());
        }
        self.run(&launch)
    }

    fn tensor_map(&self, tensor: &Tiled) -> Result<TensorMap, Error> {
        let fits = !tensor.sizes.contains(&0)
            && tensor.at.is_multiple_of(16)
            && tensor.strides.iter().all(|stride| stride.is_multiple_of(16))
            && tensor.strides[1] >= tensor.strides[0];
        let boxed = tensor.tile[0] == 64 && tensor.tile[1..].iter().all(|side| (1..=256).contains(side));
        assert!(fits && boxed, "{tensor:?} is nothing for a copy engine");
        let mut words = [0; 16];
        words[0] = tensor.at;
        words[1..4].copy_from_slice(&tensor.sizes.map(u64::from));
        words[4] = 1;
        words[5..7].copy_from_slice(&tensor.strides);
        words[8..11].copy_from_slice(&tensor.tile.map(u64::from));
        Ok(TensorMap(words))
    }

    fn window_map(&self, windows: &Windows) -> Result<TensorMap, Error> {
        let full = !windows.sizes.contains(&0) && !windows.counts.contains(&0);
        let fits =
            full && windows.at.is_multiple_of(16) && windows.fits([0; 2]) && (1..=1024).contains(&windows.pixels);
        assert!(fits, "{windows:?} is nothing for a copy engine");
        let sizes = windows.sizes.map(u64::from);
        // What fits has few digits.
        let low = |place: i64| u64::from(i32::try_from(place).expect("it fits").cast_unsigned());
        let pair = |[a, b]: [i64; 2]| low(a) | low(b) << 32;
        let mut words = [0; 16];
        words[0] = windows.at;
        words[1..5].copy_from_slice(&sizes);
        words[5..8].copy_from_slice(&[2 * sizes[0], 2 * sizes[0] * sizes[1], 2 * sizes[0] * sizes[1] * sizes[2]]);
        words[8..11].copy_from_slice(&[64, u64::from(windows.pixels), 1]);
        words[11..14].copy_from_slice(&[
            pair(windows.first.map(i64::from)),
            pair(windows.last()),
            pair(windows.step.map(i64::from)),
        ]);
        Ok(TensorMap(words))
    }

    fn start_recording(&self) -> Result<(), Error> {
        self.not_recording("record")?;
        *lock(&self.recording) = Some(vec![]);
        Ok(())
    }

    fn stop_recording(&self) -> Result<Vec<Launch>, Error> {
        Ok(lock(&self.recording).take().unwrap_or_default())
    }

    unsafe fn repeat(&self, recording: &Vec<Launch>) -> Result<(), Error> {
        recording.iter().try_for_each(|launch| self.run(launch))
    }
}
