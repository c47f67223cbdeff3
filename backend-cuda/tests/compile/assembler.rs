//! Output of the assembler about a module's kernels.

use crate::record::{Entry, checksum};
use gradscale_cuda::{
    kernels::{Module, all_kernels},
    nvrtc,
};

/// The number before some words of the assembler's report.
fn number(line: &str, words: &str) -> Option<u32> {
    let before = &line[..line.find(words)?];
    before.trim_end().rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Returns the figures of a module's kernels on one architecture, and the violations in the assembler's output.
pub fn look_at(module: &'static Module, arch: u32) -> (Vec<Entry>, Vec<String>) {
    let (mut entries, mut faults) = (vec![], vec![]);
    let compiled = match nvrtc::compile(module, arch) {
        Ok(compiled) => compiled,
        Err(error) => return (entries, vec![format!("sm_{arch}: {error}")]),
    };
    let (name, log) = (module.name, &compiled.log);
    if !compiled.cubin.starts_with(b"\x7FELF") {
        faults.push(format!("sm_{arch}: {name} is no machine code"));
    }
    for kernel in all_kernels().filter(|kernel| kernel.module.name == name) {
        let of = format!("Compiling entry function '{}'", kernel.entry);
        let Some(at) = log.find(&of) else {
            faults.push(format!("sm_{arch}: {name} says nothing of {}:\n{log}", kernel.entry));
            continue;
        };
        // The figures are in the lines up to the next entry point.
        let rest = &log[at + of.len()..];
        let own = &rest[..rest.find("Compiling entry function").unwrap_or(rest.len())];
        let get = |words| own.lines().find_map(|line| number(line, words));
        let [stack, stores, loads] = ["bytes stack frame", "bytes spill stores", "bytes spill loads"].map(get);
        let (Some(stack), Some(spill_stores), Some(spill_loads), Some(registers)) =
            (stack, stores, loads, get("registers"))
        else {
            faults.push(format!("sm_{arch}: no numbers for {name} {}: {own}", kernel.entry));
            continue;
        };
        entries.push(Entry {
            module: name.into(),
            kernel: kernel.entry.into(),
            arch,
            text: checksum(module, arch),
            registers,
            shared: get("bytes smem").unwrap_or(0),
            stack,
            spill_stores,
            spill_loads,
        });
    }
    // Warnings that the assembler has serialized tensor-core instructions.
    for warning in ["C7508", "C7510", "serialized"] {
        if log.contains(warning) {
            faults.push(format!("sm_{arch}: {name}: {log}"));
        }
    }
    (entries, faults)
}
