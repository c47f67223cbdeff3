//! Modules as libraries of the host: the kernels' text under `emulation/machine.hpp`, by the host's C++ compiler.

use gradscale_cuda::{
    Error,
    kernels::{File, Module},
};
use libloading::Library;
use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

const MACHINE: File = File { name: "machine.hpp", text: include_str!("../../emulation/machine.hpp") };

const FLAGS: &str = "-std=c++17 -O2 -march=native -ffp-contract=off -fPIC -fvisibility=hidden -Wall -Werror \
                     -Wno-unknown-pragmas -Wno-unused-function -Wno-unused-variable";

fn name() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "c++".into())
}

fn compiler() -> Command {
    let mut command = Command::new(name());
    command.args(FLAGS.split_whitespace());
    command
}

/// Whether there is a compiler.
///
/// # Errors
/// Why there is none.
pub fn is_there() -> Result<(), String> {
    match Command::new(name()).arg("--version").output() {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("no C++ compiler {}, which the emulation needs: {error}", name())),
    }
}

/// Runs a compiler whose last argument is the output: written beside it first, so that nobody loads half a file.
fn write(mut command: Command, to: &Path) -> Result<(), String> {
    let fresh = to.with_extension(format!("{}.part", std::process::id()));
    let output = command.arg("-o").arg(&fresh).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    fs::rename(&fresh, to).map_err(|error| error.to_string())
}

/// The standard library's headers that the machine includes, compiled once: a third of the time of each module. A
/// compiler that cannot use what was compiled reads the text.
fn headers(folder: &Path) -> Result<PathBuf, String> {
    let text: String = MACHINE
        .text
        .lines()
        .filter(|line| line.starts_with("#include"))
        .fold(String::new(), |text, line| text + line + "\n");
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

/// A module for a compute capability. Compiled, unless this text was compiled before.
///
/// # Errors
/// What the compiler or the loader says.
pub fn library(module: &'static Module, arch: u32) -> Result<Library, Error> {
    let failed = |log: String| Error::Compile { module: module.name, log };
    let source = module.source(MACHINE);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let base = folder.join(format!("{}-{:016x}", module.name, hash(&(&source, FLAGS, arch))));
    let library = base.with_extension("so");
    // Tests of one program may want the same module at once.
    static COMPILING: Mutex<()> = Mutex::new(());
    let _alone = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);
    if !library.exists() {
        let header = headers(folder).map_err(failed)?;
        let text = base.with_extension("cpp");
        fs::write(&text, source).map_err(|error| failed(error.to_string()))?;
        let mut command = compiler();
        command.arg("-shared").arg(format!("-D__CUDA_ARCH__={arch}0")).arg("-include").arg(header);
        command.args(["-x", "c++"]).arg(&text);
        write(command, &library).map_err(failed)?;
    }
    // SAFETY: the library was made of this crate's own text.
    unsafe { Library::new(&library) }.map_err(|error| failed(error.to_string()))
}
