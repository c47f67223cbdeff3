//! Modules as libraries of the host.

use std::{
    collections::hash_map::DefaultHasher,
    ffi::{CStr, OsStr},
    fs,
    hash::{Hash, Hasher},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

const MACHINE: &str = include_str!("../machine.hpp");
/// Line that begins each file in a compiled source, and the one of the file that `MACHINE` replaces.
const FILE: &str = "#line 1 \"";
const INSTRUCTIONS: &str = "#line 1 \"ptx.cuh\"\n";

/// More optimisation takes longer than it saves: most modules run for a second.
const FLAGS: &str = "-std=c++17 -O1 -march=native -ffp-contract=off -fPIC -fvisibility=hidden -Wall -Werror \
                     -Wno-unknown-pragmas -Wno-unused-function -Wno-unused-variable";

fn name() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "c++".into())
}

fn compiler() -> Command {
    let mut command = Command::new(name());
    command.args(FLAGS.split_whitespace());
    command
}

/// Returns true if a C++ compiler is installed.
pub fn is_possible() -> bool {
    Command::new(name()).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Returns the folder of this library, which also contains the kernels' folder.
fn folder() -> Result<PathBuf, String> {
    let mut info = libc::Dl_info {
        dli_fname: core::ptr::null(),
        dli_fbase: core::ptr::null_mut(),
        dli_sname: core::ptr::null(),
        dli_saddr: core::ptr::null_mut(),
    };
    // SAFETY: the address is of this library, whose name ends with a zero and stays.
    let path = unsafe {
        if libc::dladdr((is_possible as fn() -> bool as *const ()).cast(), &raw mut info) == 0
            || info.dli_fname.is_null()
        {
            return Err("no file is known of this library".into());
        }
        Path::new(OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes())).to_owned()
    };
    // The canonical path, because links may lead to it.
    let path = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
    let folder = path.parent().unwrap_or(Path::new(".")).join("emulated");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// Runs a compiler whose last argument is the output. It is written to another file first, so that no process loads a
/// partial file.
fn write(mut command: Command, to: &Path) -> Result<(), String> {
    let fresh = to.with_extension(format!("{}.part", std::process::id()));
    let output = command.arg("-o").arg(&fresh).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    fs::rename(&fresh, to).map_err(|error| error.to_string())
}

/// Precompiles the standard library's headers that the machine includes, which take a third of each module's time. A
/// compiler that cannot use a precompiled header reads the text.
fn headers(folder: &Path) -> Result<PathBuf, String> {
    let included = MACHINE.lines().filter(|line| line.starts_with("#include"));
    let text = included.fold(String::new(), |text, line| text + line + "\n");
    let header = folder.join(format!("std-{:016x}.hpp", hash(&(&text, FLAGS))));
    let compiled = header.with_extension("hpp.gch");
    if !compiled.exists() {
        let part = header.with_extension(format!("{}.hpp", std::process::id()));
        fs::write(&part, text).and_then(|()| fs::rename(&part, &header)).map_err(|error| error.to_string())?;
        let mut command = compiler();
        command.args(["-x", "c++-header"]).arg(&header);
        write(command, &compiled)?;
    }
    Ok(header)
}

fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// Returns a kernel's source with the device's instructions replaced by those of the emulation.
fn adapted(name: &str, source: &str) -> Result<String, String> {
    let start = source.find(INSTRUCTIONS).ok_or("a module without ptx.cuh")? + INSTRUCTIONS.len();
    let end = source[start..].find(FILE).map_or(source.len(), |end| start + end);
    let named =
        format!("extern \"C\" {{ __attribute__((visibility(\"default\"))) const char* module_name = \"{name}\"; }}\n");
    Ok([&source[..start], MACHINE, "\n", &source[end..], "\n", &named].concat())
}

/// Returns the library of a module's source for a compute capability, compiling it if it is new.
///
/// # Errors
/// The messages of the compiler.
pub fn library(name: &str, source: &str, arch: u32) -> Result<PathBuf, String> {
    let source = adapted(name, source)?;
    let folder = folder()?;
    let base = folder.join(format!("{name}-{:016x}", hash(&(&source, FLAGS, arch))));
    let library = base.with_extension("so");
    // Threads of one program may want the same module at once.
    static COMPILING: Mutex<()> = Mutex::new(());
    let _alone = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);
    if !library.exists() {
        let header = headers(&folder)?;
        let text = base.with_extension(format!("{}.cpp", std::process::id()));
        fs::write(&text, source).map_err(|error| format!("{}: {error}", text.display()))?;
        let mut command = compiler();
        command.arg("-shared").arg(format!("-D__CUDA_ARCH__={arch}0")).arg("-include").arg(header);
        command.args(["-x", "c++"]).arg(&text);
        write(command, &library)?;
    }
    Ok(library)
}
