//! Dependent launch of a kernel whose text a test writes.

use crate::emulated;
use cudarc::driver::{result, sys};
use gradscale_core::backend::{Backend, DType, Data, DataMut};
use gradscale_cuda::{
    kernels::{File, Module},
    nvrtc,
};
use std::ffi::c_void;

/// Parameter of the kernels: the address of 64 floats, which the kernel's text calls `p.x`.
#[repr(C)]
struct PlantedParams {
    x: u64,
}

/// Launches a kernel of 64 threads, whose definition follows that of its parameters, as a dependent launch on sm_90.
/// Waits for it.
///
/// # Panics
/// If it cannot be compiled or launched.
pub fn launch_dependent(kernel: &str) {
    let device = emulated::open(90, 2).expect("a C++ compiler");
    let text = format!("struct PlantedParams {{ float* x; }};\n{kernel}\n");
    let files: &'static [File] = Vec::leak(vec![File { name: "planted.cu", text: String::leak(text) }]);
    let module = Module {
        name: "planted",
        files,
        defines: &[],
        threads: 64,
        blocks: 1,
        shared: 0,
        shared_sm75: None,
        arch: [90, 90],
    };
    let code = nvrtc::compile(&module, 90).expect("valid text").cubin;
    let mut x = device.alloc(DType::F32, 64).expect("memory");
    device.write(Data::F32(&[1.0; 64]), &mut x).expect("written");
    let mut params = PlantedParams { x: x.at() };
    let mut arguments = [(&raw mut params).cast::<c_void>()];
    let mut attribute = sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    };
    let config = sys::CUlaunchConfig {
        gridDimX: 2,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 64,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: device.gpu().stream(),
        attrs: &raw mut attribute,
        numAttrs: 1,
    };
    // SAFETY: the device's context is current since its memory was allocated; the kernel has this parameter.
    unsafe {
        let loaded = result::module::load_data(code.as_ptr().cast()).expect("an image");
        let function = result::module::get_function(loaded, c"planted".to_owned()).expect("the kernel");
        sys::cuLaunchKernelEx(&raw const config, function, arguments.as_mut_ptr(), std::ptr::null_mut())
            .result()
            .expect("it is enqueued");
    }
    pollster::block_on(device.read(&x, DataMut::F32(&mut [0.0; 64]))).expect("it has run");
}
