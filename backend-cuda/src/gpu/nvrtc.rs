//! Compiling kernels at run time.

use crate::{
    Error,
    kernels::{Module, PTX},
};
use cudarc::nvrtc::{result, sys};
use std::ffi::CString;

/// Module of kernels as NVRTC compiled it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// Machine code (cubin) of the compiled module.
    pub cubin: Vec<u8>,
    /// Output of compiler and assembler: registers, shared memory and spills of each kernel.
    pub log: String,
}

/// Returns true if the NVRTC library can be loaded.
#[must_use]
pub fn is_present() -> bool {
    // SAFETY: looking for the library runs its initialisers, which are NVIDIA's.
    unsafe { sys::is_culib_present() }
}

/// Returns NVRTC's options for a compute capability.
#[must_use]
pub fn options(arch: u32) -> [String; 7] {
    // wgmma and the bulk copies exist in the architecture's own instruction set only.
    let own = if arch == 90 { "a" } else { "" };
    [
        format!("--gpu-architecture=sm_{arch}{own}"),
        "--std=c++17".into(),
        // One rounding for each operation, as core defines them; products that may be fused use explicit fma functions.
        "--fmad=false".into(),
        "--ftz=false".into(),
        "--prec-div=true".into(),
        "--prec-sqrt=true".into(),
        "--ptxas-options=-v".into(),
    ]
}

/// Returns the compute capabilities that NVRTC supports.
///
/// # Errors
/// [`Error::NoLibrary`], and the compiler's.
pub fn architectures() -> Result<Vec<u32>, Error> {
    if !is_present() {
        return Err(Error::NoLibrary { library: "nvrtc" });
    }
    let failed = |error| Error::Compile { module: "nothing", log: format!("{error:?}") };
    let mut count = 0;
    // SAFETY: the number is a local variable, and the list has that length.
    let known = unsafe {
        sys::nvrtcGetNumSupportedArchs(&raw mut count).result().map_err(failed)?;
        let mut known = vec![0; usize::try_from(count).unwrap_or(0)];
        sys::nvrtcGetSupportedArchs(known.as_mut_ptr()).result().map_err(failed)?;
        known
    };
    Ok(known.into_iter().filter_map(|arch| u32::try_from(arch).ok()).collect())
}

/// Compiles a module for a compute capability: to machine code, since inline PTX is checked only there.
///
/// # Errors
/// [`Error::Compile`] with the log, [`Error::NoLibrary`].
pub fn compile(module: &Module, arch: u32) -> Result<Compiled, Error> {
    if !is_present() {
        return Err(Error::NoLibrary { library: "nvrtc" });
    }
    let failed = |log: String| Error::Compile { module: module.name, log };
    let text = |text: String| CString::new(text).map_err(|_| failed("a zero byte in a kernel".into()));
    let (source, name) = (text(module.source(PTX))?, text(format!("{}.cu", module.name))?);
    let options = options(arch);
    let program = result::create_program(&source, Some(&name)).map_err(|error| failed(format!("{error:?}")))?;
    // SAFETY: the program was created above and is destroyed below.
    unsafe {
        let compiled = result::compile_program(program, &options);
        let log = result::get_program_log(program).unwrap_or_default();
        let log: Vec<u8> = log.into_iter().map(|c| c.cast_unsigned()).take_while(|&c| c != 0).collect();
        let log = String::from_utf8_lossy(&log).into_owned();
        let cubin = compiled.and_then(|()| {
            let mut size = 0;
            sys::nvrtcGetCUBINSize(program, &raw mut size).result()?;
            let mut cubin = vec![0u8; size];
            sys::nvrtcGetCUBIN(program, cubin.as_mut_ptr().cast()).result()?;
            Ok(cubin)
        });
        // If a program cannot be destroyed, only a little memory is lost.
        result::destroy_program(program).ok();
        match cubin {
            Ok(cubin) => Ok(Compiled { cubin, log }),
            Err(error) => Err(failed(format!("{error:?}\n{log}"))),
        }
    }
}
