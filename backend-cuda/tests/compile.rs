//! Every kernel, compiled to machine code for every architecture: no errors, no spills, within the limits. Needs NVIDIA's
//! run-time compiler and no GPU; its wheel is enough:
//!
//! ```text
//! pip install --no-deps nvidia-cuda-nvrtc==13.0.88
//! ```
//!
//! It is looked for in `GRADSCALE_NVRTC` (the folder of `libnvrtc.so.13`), where the system looks, and in what `python3`
//! has. `GRADSCALE_KERNELS` names some modules by a part of their name, to look at those alone. Results go to `target/tmp/kernels.csv`.

use gradscale_core::backend::{Error, ErrorKind};
use gradscale_cuda::{
    kernels::{File, Module, all},
    nvrtc,
};
use libloading::Library;
use std::{
    collections::BTreeSet,
    fmt::Write,
    path::PathBuf,
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

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

/// The numbers of a module's kernels on one architecture, and what is wrong with them.
fn look_at(module: &'static Module, arch: u32, shared: u32) -> (Vec<String>, Vec<String>) {
    let (mut lines, mut faults) = (vec![], vec![]);
    let compiled = match nvrtc::compile(module, arch) {
        Ok(compiled) => compiled,
        Err(error) => return (lines, vec![format!("sm_{arch}: {error}")]),
    };
    let (name, log) = (module.name, &compiled.log);
    if !compiled.cubin.starts_with(b"\x7FELF") {
        faults.push(format!("sm_{arch}: {name} is no machine code"));
    }
    for kernel in all().filter(|kernel| kernel.module.name == name) {
        let of = format!("Compiling entry function '{}'", kernel.entry);
        let Some(at) = log.find(&of) else {
            faults.push(format!("sm_{arch}: {name} says nothing of {}:\n{log}", kernel.entry));
            continue;
        };
        // The numbers stand in the lines up to the next entry.
        let rest = &log[at + of.len()..];
        let own = &rest[..rest.find("Compiling entry function").unwrap_or(rest.len())];
        let get = |words| own.lines().find_map(|line| number(line, words));
        let [stack, stores, loads] = ["bytes stack frame", "bytes spill stores", "bytes spill loads"].map(get);
        let (registers, fixed) = (get("registers"), get("bytes smem").unwrap_or(0));
        let (Some(stack), Some(stores), Some(loads), Some(registers)) = (stack, stores, loads, registers) else {
            faults.push(format!("sm_{arch}: no numbers for {name} {}: {own}", kernel.entry));
            continue;
        };
        let memory = fixed + module.shared;
        lines.push(format!("{name},{},{arch},{registers},{memory},{stack},{stores},{loads}", kernel.entry));
        if stores + loads != 0 {
            faults.push(format!("sm_{arch}: {name} {} spills {stores} + {loads} bytes", kernel.entry));
        }
        if memory > shared || registers * module.threads > 65_536 {
            faults.push(format!(
                "sm_{arch}: {name} {} does not fit: {registers} registers, {memory} bytes",
                kernel.entry
            ));
        }
    }
    // What the assembler says when it takes tensor-core instructions apart.
    for warning in ["C7508", "C7510", "serialized"] {
        if log.contains(warning) {
            faults.push(format!("sm_{arch}: {name}: {log}"));
        }
    }
    (lines, faults)
}

#[test]
fn an_error_has_the_compilers_log() {
    let libraries = load_wheel();
    if nvrtc::is_present() {
        static FILES: [File; 1] = [File { name: "wrong.cu", text: "KERNEL(wrong, int) { return nonsense; }\n" }];
        let module =
            Module { name: "wrong", files: &FILES, defines: &[], threads: 32, blocks: 1, shared: 0, arch: [75, 80] };
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
    if !nvrtc::is_present() {
        let required = std::env::var("GRADSCALE_REQUIRE_NVRTC").is_ok_and(|value| value == "1");
        assert!(!required, "NVRTC is required and not there");
        println!("SKIPPED: no NVRTC. pip install --no-deps nvidia-cuda-nvrtc==13.0.88, or set GRADSCALE_NVRTC.");
        return;
    }
    let mut done = BTreeSet::new();
    let wanted = std::env::var("GRADSCALE_KERNELS").unwrap_or_default();
    let modules = all().map(|kernel| kernel.module).filter(|module| module.name.contains(&wanted));
    let jobs: Vec<_> = modules
        .filter(|module| done.insert(module.name))
        .flat_map(|module| ARCHITECTURES.map(|(arch, shared)| (module, arch, shared)))
        .filter(|(module, arch, _)| (module.arch[0]..=module.arch[1]).contains(arch))
        .collect();
    let (next, results) = (AtomicUsize::new(0), Mutex::new((BTreeSet::new(), Vec::new())));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(|| {
                while let Some(&(module, arch, shared)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (lines, faults) = look_at(module, arch, shared);
                    let mut results = results.lock().expect("no thread panics");
                    results.0.extend(lines);
                    results.1.extend(faults);
                }
            });
        }
    });
    let (lines, faults) = results.into_inner().expect("no thread panics");
    let mut report = String::from("module,kernel,arch,registers,shared,stack,spill_stores,spill_loads\n");
    lines.iter().for_each(|line| writeln!(report, "{line}").expect("text"));
    println!("{report}");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kernels.csv");
    std::fs::write(&path, &report).expect("the temporary folder of tests");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    drop(libraries);
}
