//! Every kernel, compiled to machine code for every architecture: no errors, no spills, within the limits. Needs NVIDIA's
//! run-time compiler and no GPU; its wheel is enough:
//!
//! ```text
//! pip install --no-deps nvidia-cuda-nvrtc==13.0.88
//! ```
//!
//! It is looked for in `GRADSCALE_NVRTC` (the folder of `libnvrtc.so.13`), where the system looks, and in what `python3`
//! has. `GRADSCALE_KERNELS` names some modules by a part of their name, to look at those alone. Results go to `target/tmp/kernels.csv`.

use gradscale_cuda::{
    kernels::{Kernel, all},
    nvrtc,
};
use libloading::Library;
use std::{collections::BTreeSet, fmt::Write, path::PathBuf, process::Command};

/// Compute capabilities, and the bytes of shared memory that a block may have there.
const ARCHITECTURES: [(u32, u32); 6] =
    [(75, 64 << 10), (80, 163 << 10), (86, 99 << 10), (89, 99 << 10), (90, 227 << 10), (100, 227 << 10)];

/// Opens the libraries by their path, so that the loader finds them by name.
fn load_wheel() -> Option<Vec<Library>> {
    let script = "import nvidia, os; print(os.path.join(list(nvidia.__path__)[0], 'cu13', 'lib'))";
    let asked = Command::new("python3").args(["-c", script]).output().ok().filter(|output| output.status.success());
    let asked = asked.map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    let given = std::env::var_os("GRADSCALE_NVRTC").map(PathBuf::from);
    let folder = given.into_iter().chain(asked).find(|folder| folder.join("libnvrtc.so.13").exists())?;
    let open = |name: &str| {
        // SAFETY: NVIDIA's libraries, whose initialisers do no harm.
        unsafe { Library::new(folder.join(name)) }.ok()
    };
    ["libnvrtc-builtins.so.13.0", "libnvrtc.so.13"].into_iter().map(open).collect()
}

/// The number before some words of the assembler's report.
fn number(line: &str, words: &str) -> Option<u32> {
    let before = &line[..line.find(words)?];
    before.trim_end().rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[test]
fn every_kernel_on_every_architecture() {
    let libraries = load_wheel();
    if !nvrtc::is_present() {
        let required = std::env::var("GRADSCALE_REQUIRE_NVRTC").is_ok_and(|value| value == "1");
        assert!(!required, "NVRTC is required and not there");
        println!("SKIPPED: no NVRTC. pip install --no-deps nvidia-cuda-nvrtc==13.0.88, or set GRADSCALE_NVRTC.");
        return;
    }
    let mut report = String::from("module,kernel,arch,registers,shared,stack,spill_stores,spill_loads\n");
    let mut faults = Vec::new();
    let mut done = BTreeSet::new();
    let wanted = std::env::var("GRADSCALE_KERNELS").unwrap_or_default();
    let modules = all().map(|kernel| kernel.module).filter(|module| module.name.contains(&wanted));
    for module in modules.filter(|module| done.insert(module.name)) {
        for (arch, shared) in ARCHITECTURES.into_iter().filter(|(arch, _)| *arch >= module.arch) {
            let compiled = match nvrtc::compile(module, arch) {
                Ok(compiled) => compiled,
                Err(error) => {
                    faults.push(format!("sm_{arch}: {error}"));
                    continue;
                }
            };
            assert!(compiled.cubin.starts_with(b"\x7FELF"), "{} for sm_{arch} is no machine code", module.name);
            let entries: Vec<&Kernel> = all().filter(|kernel| kernel.module.name == module.name).collect();
            for kernel in entries {
                let of = format!("Compiling entry function '{}'", kernel.entry);
                let Some(at) = compiled.log.find(&of) else {
                    faults.push(format!(
                        "sm_{arch}: {} says nothing of {}:\n{}",
                        module.name, kernel.entry, compiled.log
                    ));
                    continue;
                };
                // The numbers stand in the lines up to the next entry.
                let rest = &compiled.log[at + of.len()..];
                let own = &rest[..rest.find("Compiling entry function").unwrap_or(rest.len())];
                let get = |words| own.lines().find_map(|line| number(line, words));
                let [stack, stores, loads] = ["bytes stack frame", "bytes spill stores", "bytes spill loads"].map(get);
                let (registers, fixed) = (get("registers"), get("bytes smem").unwrap_or(0));
                let (Some(stack), Some(stores), Some(loads), Some(registers)) = (stack, stores, loads, registers)
                else {
                    faults.push(format!("sm_{arch}: no numbers for {}: {own}", kernel.entry));
                    continue;
                };
                let memory = fixed + module.shared;
                let line =
                    format!("{},{},{arch},{registers},{memory},{stack},{stores},{loads}", module.name, kernel.entry);
                println!("{line}");
                writeln!(report, "{line}").ok();
                if stores + loads != 0 {
                    faults.push(format!("sm_{arch}: {} spills {stores} + {loads} bytes", kernel.entry));
                }
                if memory > shared || registers * module.threads > 65_536 {
                    faults.push(format!(
                        "sm_{arch}: {} does not fit: {registers} registers, {memory} bytes",
                        kernel.entry
                    ));
                }
            }
            // What the assembler says when it takes tensor-core instructions apart.
            for warning in ["C7508", "C7510", "serialized"] {
                if compiled.log.contains(warning) {
                    faults.push(format!("sm_{arch}: {}: {}", module.name, compiled.log));
                }
            }
        }
    }
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kernels.csv");
    std::fs::write(&path, &report).expect("the temporary folder of tests");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    drop(libraries);
}
