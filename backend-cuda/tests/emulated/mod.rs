//! The backend with the emulated driver and compiler (`emulation/`) instead of NVIDIA's: all of its host code,
//! unchanged.

#![allow(dead_code, reason = "each test uses some of it")]

use gradscale_cuda::{Cubins, Cuda};
use libloading::Library;
use std::{
    collections::BTreeMap,
    ffi::{CString, c_char, c_int},
    path::PathBuf,
    sync::OnceLock,
};

/// Both emulated libraries, loaded before NVIDIA's would be, so that a later load by name finds them.
struct Libraries {
    driver: Library,
    compiler: Library,
}

/// Returns the path of a library in the folder of the tests.
///
/// # Errors
/// The folder is not known.
pub fn path(name: &str) -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(program.with_file_name(name))
}

fn libraries() -> Result<&'static Libraries, String> {
    static LOADED: OnceLock<Result<Libraries, String>> = OnceLock::new();
    let load = |name: &str| {
        let path = path(name)?;
        // SAFETY: these are this project's own, without initialisers.
        unsafe { Library::new(&path) }.map_err(|error| format!("{}: {error}", path.display()))
    };
    let loaded = LOADED.get_or_init(|| {
        let driver = load("libgradscale_emulated_cuda.so")?;
        Ok(Libraries { driver, compiler: load("libgradscale_emulated_nvrtc.so")? })
    });
    loaded.as_ref().map_err(Clone::clone)
}

/// Loads NCCL between emulated devices, which is found by its name from then on.
pub fn load_nccl() {
    static LOADED: OnceLock<Library> = OnceLock::new();
    LOADED.get_or_init(|| {
        let path = path("libgradscale_emulated_nccl.so").expect("a path");
        // SAFETY: this project's own, without initialisers.
        unsafe { Library::new(&path) }.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    });
}

/// An emulated device. Its number stays its own.
#[derive(Debug)]
pub struct Emulated {
    ordinal: c_int,
}

impl Emulated {
    /// Creates a device with the instructions of `arch`, for example 80 for `sm_80`. The number of multiprocessors
    /// determines how work is divided.
    ///
    /// # Errors
    /// The reason why there is no device, for example no C++ compiler.
    pub fn new(arch: u32, multiprocessors: u32) -> Result<Self, String> {
        let Libraries { driver, compiler } = libraries()?;
        let text = CString::new(format!("{arch}x{multiprocessors}")).expect("no zero");
        // SAFETY: the functions have these types.
        unsafe {
            let missing = compiler.get::<unsafe extern "C" fn() -> c_int>(b"emulated_compiler_is_missing");
            if missing.expect("the emulated compiler")() != 0 {
                return Err("no C++ compiler (c++, or CXX), which the emulation needs".into());
            }
            let add = driver.get::<unsafe extern "C" fn(*const c_char) -> c_int>(b"emulated_device");
            Ok(Self { ordinal: add.expect("the emulated driver")(text.as_ptr()) })
        }
    }

    /// Plants faults, in the syntax of the emulated driver's `faults.rs`.
    pub fn fail(&self, faults: &str) {
        let text = CString::new(faults).expect("no zero");
        let driver = &libraries().expect("loaded").driver;
        // SAFETY: the function has this type.
        let status = unsafe {
            let set = driver.get::<unsafe extern "C" fn(c_int, *const c_char) -> u32>(b"emulated_faults");
            set.expect("the emulated driver")(self.ordinal, text.as_ptr())
        };
        assert_eq!(status, 0);
    }

    /// Returns true if a planted failure of an allocation has not happened yet.
    pub fn is_failing(&self) -> bool {
        let driver = &libraries().expect("loaded").driver;
        // SAFETY: the function has this type.
        unsafe {
            let failing = driver.get::<unsafe extern "C" fn(c_int) -> c_int>(b"emulated_is_failing");
            failing.expect("the emulated driver")(self.ordinal) != 0
        }
    }

    /// Returns counts of the calls enqueued so far.
    pub fn counts(&self) -> Counts {
        let mut counts = [0u64; 4];
        let driver = &libraries().expect("loaded").driver;
        // SAFETY: the function has this type, and the array has four numbers.
        let status = unsafe {
            let count = driver.get::<unsafe extern "C" fn(c_int, *mut u64) -> u32>(b"emulated_counts");
            count.expect("the emulated driver")(self.ordinal, counts.as_mut_ptr())
        };
        assert_eq!(status, 0);
        let [launched, repeated, copies_waiting, dependent] = counts;
        Counts { launched, repeated, copies_waiting, dependent }
    }

    /// Opens it.
    ///
    /// # Errors
    /// The backend's.
    pub fn open(&self) -> Result<Cuda, gradscale_cuda::Error> {
        self.open_with(Cubins::none())
    }

    /// Opens it with machine code from there.
    ///
    /// # Errors
    /// The backend's.
    pub fn open_with(&self, cubins: Cubins) -> Result<Cuda, gradscale_cuda::Error> {
        Cuda::open_with(usize::try_from(self.ordinal).expect("a number"), cubins)
    }

    /// The modules whose kernels have run, and the blocks of their largest launch.
    pub fn used(&self) -> BTreeMap<String, u64> {
        let mut text = vec![0u8; 1 << 16];
        let driver = &libraries().expect("loaded").driver;
        // SAFETY: the function has this type, and the buffer has the length that is passed.
        let len = unsafe {
            let used = driver.get::<unsafe extern "C" fn(c_int, *mut c_char, usize) -> usize>(b"emulated_modules");
            used.expect("the emulated driver")(self.ordinal, text.as_mut_ptr().cast(), text.len())
        };
        text.truncate(len);
        let text = String::from_utf8(text).expect("names");
        let named = text.split(' ').filter_map(|one| one.split_once(':'));
        named.map(|(name, most)| (name.to_owned(), most.parse().expect("a number"))).collect()
    }
}

/// Counts of calls that were enqueued on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Number of kernels that were launched outside of recordings.
    pub launched: u64,
    /// Recordings.
    pub repeated: u64,
    /// Copies to the device that have not run yet.
    pub copies_waiting: u64,
    /// Dependent launches that have run, those of recordings included.
    pub dependent: u64,
}

/// A new emulated device, opened.
///
/// # Errors
/// Why it cannot be.
pub fn open(arch: u32, multiprocessors: u32) -> Result<Cuda, String> {
    Emulated::new(arch, multiprocessors)?.open().map_err(|error| error.to_string())
}
