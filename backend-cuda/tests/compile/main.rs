//! Every kernel, compiled to machine code for every architecture: no errors, no spills, within the limits.
//!
//! `kernels.csv` in this crate's folder is the record of the last compilation of each kernel: a checksum of text and
//! options, and the assembler's figures about registers and memory. A kernel whose text is still the recorded one need
//! not be compiled again. One that has changed fails until `kernels.sh --write` has compiled and recorded it. That
//! needs NVIDIA's run-time compiler and no GPU; its wheel is enough: `pip install --no-deps
//! nvidia-cuda-nvrtc==13.0.88`. It is searched for in `GRADSCALE_NVRTC` (the folder of `libnvrtc.so.13`), in the
//! system's library paths, and in the packages of `python3`.
//!
//! `GRADSCALE_KERNELS=write` compiles changed kernels and writes the record. `GRADSCALE_KERNELS=all` compiles
//! everything and expects the recorded figures.

mod assembler;
mod record;

use gradscale_core::backend::{Error, ErrorKind};
use gradscale_cuda::{
    kernels::{File, Module, all_kernels},
    nvrtc,
};
use libloading::Library;
use record::{Entry, Record};
use std::{
    collections::BTreeSet,
    path::PathBuf,
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Compute capabilities, and the bytes of shared memory that a block may have there.
const ARCHITECTURES: [(u32, u32); 7] = [
    (75, 64 << 10),
    (80, 163 << 10),
    (86, 99 << 10),
    (89, 99 << 10),
    (90, 227 << 10),
    (100, 227 << 10),
    (120, 99 << 10),
];

/// A module on one architecture, and the bytes of shared memory that a block may have there.
type Job = (&'static Module, u32, u32);

/// Every module on every architecture that it is for.
fn jobs() -> Vec<Job> {
    let mut done = BTreeSet::new();
    all_kernels()
        .map(|kernel| kernel.module)
        .filter(|module| done.insert(module.name))
        .flat_map(|module| ARCHITECTURES.map(|(arch, shared)| (module, arch, shared)))
        .filter(|(module, arch, _)| (module.arch[0]..=module.arch[1]).contains(arch))
        .collect()
}

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

/// Compiles modules on all processors. Returns the figures and the violations.
fn compile(jobs: &[Job]) -> (Vec<Entry>, Vec<String>) {
    let (next, results) = (AtomicUsize::new(0), Mutex::new((vec![], vec![])));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(|| {
                while let Some(&(module, arch, _)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (entries, faults) = assembler::look_at(module, arch);
                    let mut results = results.lock().expect("no thread panics");
                    results.0.extend(entries);
                    results.1.extend(faults);
                }
            });
        }
    });
    results.into_inner().expect("no thread panics")
}

/// Returns the violation of a kernel, if any: spills, or more registers or shared memory than the device has.
fn over_the_limits(entry: &Entry, (module, arch, shared): Job) -> Option<String> {
    let name = format!("sm_{arch}: {} {}", module.name, entry.kernel);
    let memory = entry.shared + module.shared_bytes(arch);
    let [storers, multipliers] =
        ["EPILOGUE_THREADS", "CONSUMER_THREADS"].map(|name| module.defines.iter().find(|define| define.0 == name));
    // If the multiplying warps store too, or promote sums, they take registers that other warps release. All warps must start with the
    // number that is checked here (`START_REGISTERS` of wgmma_tma.cu), because with fewer they would wait for ever.
    let hands_over = storers.is_some() && storers.map(|one| one.1) == multipliers.map(|one| one.1)
        || module.defines.iter().any(|define| define.0 == "CONSUMER_REGISTERS");
    if hands_over && entry.registers != 65_536 / module.threads / 8 * 8 {
        return Some(format!("{name} begins with {} registers", entry.registers));
    }
    if entry.spill_stores + entry.spill_loads != 0 {
        Some(format!("{name} spills {} + {} bytes", entry.spill_stores, entry.spill_loads))
    } else if memory > shared || entry.registers * module.threads > 65_536 {
        Some(format!("{name} does not fit: {} registers, {memory} bytes", entry.registers))
    } else {
        None
    }
}

#[test]
fn an_error_has_the_compilers_log() {
    let libraries = load_wheel();
    if nvrtc::is_present() {
        static FILES: [File; 1] = [File { name: "wrong.cu", text: "KERNEL(wrong, int) { return nonsense; }\n" }];
        let module = Module {
            name: "wrong",
            files: &FILES,
            defines: &[],
            threads: 32,
            blocks: 1,
            shared: 0,
            shared_sm75: None,
            arch: [75, 80],
        };
        let error = nvrtc::compile(&module, 80).expect_err("nonsense");
        assert_eq!(error.kind(), ErrorKind::KernelCompile);
        let text = error.to_string();
        assert!(text.contains("wrong.cu(1)") && text.contains("nonsense"), "{text}");
    }
    drop(libraries);
}

#[test]
fn every_kernel_on_every_architecture() {
    let libraries = load_wheel();
    let wish = std::env::var("GRADSCALE_KERNELS").unwrap_or_default();
    let [write, afresh] = ["write", "all"].map(|name| wish == name);
    let mut record = Record::read().expect("kernels.csv");
    let jobs = jobs();
    record
        .keep(|entry| jobs.iter().any(|(module, arch, _)| (entry.module.as_str(), entry.arch) == (module.name, *arch)));
    let changed: Vec<Job> = jobs.iter().filter(|(module, arch, _)| !record.has(module, *arch)).copied().collect();
    let todo = if afresh { &jobs } else { &changed };
    let mut faults = vec![];
    if (write || afresh) && !nvrtc::is_present() {
        panic!("no NVRTC: pip install --no-deps nvidia-cuda-nvrtc==13.0.88, or set GRADSCALE_NVRTC");
    }
    if nvrtc::is_present() && !todo.is_empty() {
        // Written after every few modules, so that an interruption loses little: all modules take minutes.
        for some in todo.chunks(16) {
            let (entries, wrong) = compile(some);
            entries.iter().for_each(|entry| println!("{entry}"));
            faults.extend(wrong);
            if write {
                record.replace(entries);
                record.write().expect("kernels.csv");
            } else if afresh {
                let others = entries.iter().filter(|entry| !record.contains(entry));
                faults.extend(others.map(|entry| format!("not on record: {entry}")));
            }
        }
        println!("{} modules compiled, of {}", todo.len(), jobs.len());
    }
    for &(module, arch, shared) in &jobs {
        if !record.has(module, arch) {
            faults
                .push(format!("sm_{arch}: {} has changed since it was compiled; run kernels.sh --write", module.name));
        }
        for kernel in all_kernels().filter(|kernel| kernel.module.name == module.name) {
            match record.of(module, arch).find(|entry| entry.kernel == kernel.entry) {
                Some(entry) => faults.extend(over_the_limits(entry, (module, arch, shared))),
                None => faults.push(format!("sm_{arch}: {} {} is not on record", module.name, kernel.entry)),
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    println!("{} pairs of a kernel and an architecture, without spills", record.len());
    drop(libraries);
}

/// A T4 has 64 KiB of shared memory. Two blocks hide each other's epilogue, and the loads at the start of a tile.
#[test]
fn two_blocks_of_128_by_64_fit_a_multiprocessor_of_sm_75() {
    let record = Record::read().expect("kernels.csv");
    let jobs = jobs();
    let narrow = jobs.iter().filter(|(module, arch, _)| {
        *arch == 75 && module.name.starts_with("mma_sync_") && module.name.ends_with("_128x64")
    });
    let mut count = 0;
    for &(module, arch, shared) in narrow {
        for entry in record.of(module, arch) {
            let bytes = entry.shared + module.shared_bytes(arch);
            assert!(2 * bytes <= shared, "{}: {bytes} bytes", module.name);
            assert!(2 * entry.registers * module.threads <= 65_536, "{}: {} registers", module.name, entry.registers);
            count += 1;
        }
    }
    assert_eq!(count, 7);
}
