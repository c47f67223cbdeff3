//! Modules, which are libraries of the host, and their kernels.

use crate::{
    faults::names,
    objects::{EntryPoint, Function, Handle, KernelLaunch, Module, Work},
    state::{State, forbidden, state},
    status::{self, Status, done},
};
use core::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    time::Duration,
};
use libloading::Library;
use std::sync::Arc;

/// Bytes that an image of the emulated compiler begins with; the path of a library follows, and a zero.
const IMAGE: &[u8] = b"EMULATED ";
/// Default occupancy that the device reports for every kernel, in blocks per multiprocessor.
const RESIDENT: c_int = 2;
/// Maximum dynamic shared memory in bytes of a launch whose limit was not raised. CUDA's limit of 48 KiB includes the
/// kernel's static shared memory, which is not known here.
const UNPREPARED: u32 = 32 << 10;

impl State {
    fn function(&self, handle: Handle) -> &Function {
        self.functions.get(&handle).unwrap_or_else(|| forbidden("a kernel of a module that was unloaded"))
    }

    /// Runs a kernel launch to its end on the emulated device.
    pub fn run_kernel(&mut self, launch: &KernelLaunch, context: Handle) -> Result<(), Status> {
        let function = self.function(launch.function).clone();
        let module = self.modules[&function.module].name.clone();
        for (start, id) in launch.named.iter() {
            if self.memory.get(start).is_none_or(|block| block.id != *id) {
                forbidden(&format!("a kernel of {module} runs on memory that was freed"));
            }
        }
        let ordinal = self.contexts[&context].device;
        let device = &mut self.devices[ordinal];
        let faults = &device.faults;
        if names(faults.hang.as_ref(), &module) {
            loop {
                std::thread::sleep(Duration::from_secs(3600));
            }
        }
        if names(faults.lost.as_ref(), &module) {
            return Err(faults.code.unwrap_or(status::LAUNCH_FAILED));
        }
        if !names(faults.broken.as_ref(), &module) {
            let preamble = launch.preamble.as_ref().map_or(core::ptr::null(), |words| words.as_ptr());
            // SAFETY: the library with the entry point is loaded, and the caller of the launch guarantees its
            // parameters.
            unsafe { (function.entry)(launch.blocks.as_ptr(), launch.shared, launch.parameters.as_ptr(), preamble) };
        }
        device.dependent += u64::from(launch.preamble.is_some());
        let most = device.used.entry(module).or_default();
        *most = launch.blocks.iter().map(|&count| u64::from(count)).product::<u64>().max(*most);
        Ok(())
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadData(module: *mut Handle, image: *const c_void) -> Status {
    let mut state = state();
    done(state.entered().and_then(|context| {
        // SAFETY: an image is at least as long as its beginning, and ends with a zero if it begins so.
        let path = unsafe {
            if core::slice::from_raw_parts(image.cast::<u8>(), IMAGE.len()) != IMAGE {
                return Err(status::INVALID_IMAGE);
            }
            CStr::from_ptr(image.cast::<c_char>().add(IMAGE.len()))
        };
        let path = path.to_string_lossy();
        // SAFETY: the emulated compiler made the library of kernels.
        let library = unsafe { Library::new(&*path) }.map_err(|_| status::INVALID_IMAGE)?;
        // SAFETY: the library's own name of the module.
        let name = unsafe {
            let name = library.get::<*const *const c_char>(b"module_name").map_err(|_| status::INVALID_IMAGE)?;
            CStr::from_ptr(**name).to_string_lossy().into_owned()
        };
        if names(state.device().faults.unloadable.as_ref(), &name) {
            return Err(status::INVALID_IMAGE);
        }
        let handle = state.handle();
        state.modules.insert(handle, Module { context, name, library: Arc::new(library) });
        // SAFETY: the caller's memory.
        unsafe { module.write(handle) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: Handle) -> Status {
    let mut state = state();
    let context = state.current();
    let result = state.finish(context);
    if state.modules.remove(&module).is_none() {
        forbidden("a module is unloaded that is not loaded");
    }
    state.functions.retain(|_, function| function.module != module);
    done(result)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) -> Status {
    let mut state = state();
    done(state.entered().and_then(|_| {
        let Some(loaded) = state.modules.get(&module) else { forbidden("a module that was unloaded") };
        // SAFETY: names end with a zero; the emulated compiler gives every kernel this type, and the size of its
        // parameters under its name.
        let found = unsafe {
            let name = CStr::from_ptr(name).to_string_lossy();
            let entry = loaded.library.get::<EntryPoint>(name.as_bytes()).map(|entry| *entry);
            let bytes = loaded.library.get::<*const u32>(format!("{name}_parameter_bytes").as_bytes()).map(|at| **at);
            entry.and_then(|entry| Ok((entry, bytes? as usize)))
        };
        let (entry, parameters) = found.map_err(|_| status::NOT_FOUND)?;
        let handle = state.handle();
        state.functions.insert(handle, Function { module, entry, parameters, shared: UNPREPARED });
        // SAFETY: the caller's memory.
        unsafe { function.write(handle) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: Handle, attribute: c_uint, value: c_int) -> Status {
    let mut state = state();
    state.current();
    state.function(function);
    // The most dynamic shared memory.
    let (8, Some(function), Ok(shared)) = (attribute, state.functions.get_mut(&function), u32::try_from(value)) else {
        return status::INVALID_VALUE;
    };
    function.shared = shared;
    status::SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int, function: Handle, _threads: c_int, shared: usize,
) -> Status {
    let mut state = state();
    state.current();
    let fits = shared <= state.function(function).shared as usize;
    let resident = state.device().faults.resident.unwrap_or(RESIDENT);
    // SAFETY: the caller's memory.
    unsafe { blocks.write(if fits { resident } else { 0 }) };
    status::SUCCESS
}

/// Word in the place of an address that a kernel must not use yet. No pointer has this form, so that its use ends the
/// process.
const NO_ADDRESS: u64 = 0xDEAD << 48;

/// Grid, shared memory and order of a launch.
struct Shape {
    blocks: [u32; 3],
    shared: u32,
    is_dependent: bool,
}

impl State {
    /// Enqueues a launch of a kernel with a copy of its parameters.
    ///
    /// # Safety
    /// `parameters` points to the address of the kernel's only parameter.
    unsafe fn launch(
        &mut self, function: Handle, shape: &Shape, stream: Handle, parameters: *const *const c_void,
    ) -> Result<(), Status> {
        self.entered()?;
        let Function { parameters: bytes, shared: most, .. } = *self.function(function);
        let Shape { blocks: blocks @ [x, y, z], shared, is_dependent } = *shape;
        // CUDA's own limits.
        if shared > most || x == 0 || y == 0 || z == 0 || y > 65_535 || z > 65_535 {
            return Err(status::INVALID_VALUE);
        }
        let mut words = vec![0u64; bytes.div_ceil(8)];
        // SAFETY: kernels here have one parameter of this size, as the caller states.
        unsafe { words.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping((*parameters).cast(), bytes) };
        let named: Vec<_> =
            words.iter().filter_map(|&word| self.block_of(word).map(|(start, block)| (start, block.id))).collect();
        let ids = named.iter().map(|&(_, id)| id).collect();
        let hidden = |&word: &u64| if self.block_of(word).is_some() { NO_ADDRESS } else { word };
        let preamble = is_dependent.then(|| words.iter().map(hidden).collect());
        let launch = KernelLaunch { function, blocks, shared, parameters: words.into(), named: named.into(), preamble };
        self.enqueue(stream, Work::Launch(launch), ids)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: Handle, x: c_uint, y: c_uint, z: c_uint, _threads_x: c_uint, _threads_y: c_uint, _threads_z: c_uint,
    shared: c_uint, stream: Handle, parameters: *const *const c_void, _extra: *const *const c_void,
) -> Status {
    let shape = Shape { blocks: [x, y, z], shared, is_dependent: false };
    // SAFETY: the caller's promise.
    done(unsafe { state().launch(function, &shape, stream, parameters) })
}

/// Configuration of a launch: `CUlaunchConfig`.
#[repr(C)]
struct LaunchConfig {
    blocks: [c_uint; 3],
    threads: [c_uint; 3],
    shared: c_uint,
    stream: Handle,
    attributes: *const LaunchAttribute,
    attribute_count: c_uint,
}

/// Attribute of a launch with the first word of its value: `CUlaunchAttribute`.
#[repr(C, align(8))]
struct LaunchAttribute {
    id: c_uint,
    padding: c_uint,
    value: [c_int; 16],
}

/// Attribute of programmatic dependent launch: `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
const PROGRAMMATIC_STREAM_SERIALIZATION: c_uint = 6;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernelEx(
    config: *const LaunchConfig, function: Handle, parameters: *const *const c_void, _extra: *const *const c_void,
) -> Status {
    // SAFETY: the caller's configuration, with as many attributes as it states.
    let (config, attributes) = unsafe {
        let config = &*config;
        let count = config.attribute_count as usize;
        (config, if count == 0 { &[] } else { core::slice::from_raw_parts(config.attributes, count) })
    };
    if attributes.iter().any(|attribute| attribute.id != PROGRAMMATIC_STREAM_SERIALIZATION) {
        return status::INVALID_VALUE;
    }
    let is_dependent = attributes.iter().any(|attribute| attribute.value[0] != 0);
    let mut state = state();
    if is_dependent && !state.supports_dependent_launches(config.stream) {
        return status::NOT_SUPPORTED;
    }
    let shape = Shape { blocks: config.blocks, shared: config.shared, is_dependent };
    // SAFETY: the caller's promise.
    done(unsafe { state.launch(function, &shape, config.stream, parameters) })
}

impl State {
    /// Returns whether a stream takes dependent launches: from compute capability 9.0 on, and in a capture from CUDA 12.3
    /// on.
    fn supports_dependent_launches(&mut self, stream: Handle) -> bool {
        let is_capturing = self.stream(stream).capture.is_some();
        let device = self.device();
        device.arch >= 90 && (!is_capturing || device.faults.driver_version() >= 12_030)
    }
}
