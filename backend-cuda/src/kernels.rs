//! The kernels: files, what is put before them, and which variants there are.

use core::fmt::Write;
use gradscale_core::{
    backend::{ABI, DType},
    scale::MAX_STEP,
    stats::Convention,
};

/// A file of the folder `kernels`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! file {
    ($name:literal) => {
        File { name: $name, text: include_str!(concat!("kernels/", $name)) }
    };
}

/// What is compiled as one: files in their order, with definitions before them.
#[derive(Debug)]
pub struct Module {
    /// Unique.
    pub name: &'static str,
    /// After the machine's own file.
    pub files: &'static [File],
    /// Numbers of this variant.
    pub defines: &'static [(&'static str, u32)],
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory that the host chooses.
    pub shared: u32,
    /// Least compute capability.
    pub arch: u32,
}

/// An entry point.
#[derive(Debug)]
pub struct Kernel {
    /// Where it stands.
    pub module: &'static Module,
    /// Its name.
    pub entry: &'static str,
}

/// The instructions of the device, see there.
pub const PTX: File = file!("ptx.cuh");

impl Module {
    const fn new(name: &'static str, files: &'static [File]) -> Self {
        Self { name, files, defines: &[], threads: 256, shared: 0, arch: 75 }
    }

    /// The text to compile, with `machine` as the file of instructions.
    #[must_use]
    pub fn source(&self, machine: File) -> String {
        let mut text = String::new();
        let types = [DType::F32, DType::F16, DType::U8, DType::U32].map(kind);
        let half = Convention::FP16;
        let own = [
            ("TYPE_F32", types[0]),
            ("TYPE_F16", types[1]),
            ("TYPE_U8", types[2]),
            ("TYPE_U32", types[3]),
            ("FLUSH_END", half.flush_end()),
            ("SUBNORMAL_END", half.subnormal_end()),
            ("OVERFLOW_START", half.overflow_start()),
            ("KEY_CONSTANT", half.key_constant()),
            ("THREADS", self.threads),
        ];
        for (name, value) in ABI.iter().chain(&own).chain(self.defines) {
            writeln!(text, "#define {name} {value}u").ok();
        }
        writeln!(text, "#define MAX_STEP {MAX_STEP}").ok();
        for file in core::iter::once(&machine).chain(self.files) {
            write!(text, "#line 1 \"{}\"\n{}", file.name, file.text).ok();
        }
        text
    }
}

/// The number by which kernels know a type.
#[must_use]
pub const fn kind(dtype: DType) -> u32 {
    match dtype {
        DType::F32 => 0,
        DType::F16 => 1,
        DType::U8 => 2,
        _ => 3,
    }
}

const STORE: File = file!("store.cuh");
const DENSE: File = file!("dense.cuh");
const FUNCTIONS: File = file!("functions.cuh");

const UNARY_MODULE: Module = Module::new("unary", &[STORE, DENSE, FUNCTIONS, file!("unary.cu")]);
/// `y[i] = f(x[i])`.
pub static UNARY: Kernel = Kernel { module: &UNARY_MODULE, entry: "unary" };

/// Every entry point.
pub static ALL: &[&Kernel] = &[&UNARY];
