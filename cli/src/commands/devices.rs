//! `gradscale devices`: what there is to run on, and what it does with small numbers.

use crate::{Failure, output};
use clap::Args;
use gradscale::{
    Cpu, Isa,
    core::{
        backend::{Backend, Control, DType, Data, DataMut, Launch, Slot, Store},
        ops::Unary,
        stats::Detail,
    },
};
use pollster::block_on;
use std::fmt::Write;

/// What to say of devices.
#[derive(Args, Clone, Copy, Debug)]
pub struct Devices {
    /// On NVIDIA's GPUs, also proves every kernel that only this architecture has (else each is proven when it is first
    /// used)
    #[arg(long)]
    prove: bool,
}

/// Prints all devices.
///
/// # Errors
/// A device that cannot be opened.
#[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "only CUDA proves"))]
pub fn run(asked: &Devices) -> Result<(), Failure> {
    let mut text = String::new();
    for isa in Isa::available() {
        let device = Cpu::with_isa(0, isa).map_err(|error| Failure::at("cpu", error))?;
        let caps = device.caps();
        let best = if isa == Isa::best() { "--device cpu" } else { "not used: a faster one is there" };
        writeln!(text, "{} ({best})", caps.name).ok();
        describe(&device, &mut text).map_err(|error| Failure::at("cpu", error))?;
    }
    #[cfg(feature = "wgpu")]
    adapters(&mut text);
    #[cfg(feature = "cuda")]
    cuda(&mut text, asked.prove);
    output::print(&text)
}

/// All adapters; one that cannot be opened is listed with its reason.
#[cfg(feature = "wgpu")]
fn adapters(text: &mut String) {
    let all = gradscale::adapters();
    if all.is_empty() {
        writeln!(text, "wgpu: no adapter").ok();
    }
    for (i, adapter) in all.iter().enumerate() {
        let kind = if adapter.is_software() { ", a driver on the CPU" } else { "" };
        writeln!(text, "{} (--device wgpu:{i}{kind})", adapter.name()).ok();
        for (name, has) in adapter.features() {
            writeln!(text, "  {name:25} {}", if has { "yes" } else { "no" }).ok();
        }
        for (name, limit) in adapter.limits() {
            writeln!(text, "  {name:25} {limit}").ok();
        }
        let described = gradscale::Wgpu::open(adapter, false).and_then(|device| {
            products(&device, text);
            describe(&device, text)
        });
        if let Err(error) = described {
            writeln!(text, "  cannot be used: {error}").ok();
        }
    }
}

/// Columns of the program's output.
#[cfg(feature = "wgpu")]
const COLUMNS: usize = 80;

/// The kernel that multiplies matrices, and the reason for it.
#[cfg(feature = "wgpu")]
fn products(device: &gradscale::Wgpu, text: &mut String) {
    let reason = device.product_engine_reason().to_string();
    for (name, words) in [("products", device.product_engine().to_string()), ("because", reason)] {
        let mut line = format!("  {name:25}");
        // A driver's message may have any length, and line breaks.
        for word in words.split_whitespace() {
            if line.chars().count() + 1 + word.chars().count() > COLUMNS && !line.trim().is_empty() {
                writeln!(text, "{line}").ok();
                line = format!("  {:25}", "");
            }
            line = format!("{line} {word}");
        }
        writeln!(text, "{line}").ok();
    }
}

/// All of NVIDIA's devices; one that cannot be opened is listed with its reason.
#[cfg(feature = "cuda")]
fn cuda(text: &mut String, prove: bool) {
    let count = gradscale::Cuda::count();
    if count == 0 {
        let reason = gradscale::Cuda::open(0).map_or_else(|error| error.to_string(), |_| "no device".into());
        writeln!(text, "cuda: {reason}").ok();
    }
    for index in 0..count {
        match gradscale::Cuda::open(index) {
            Ok(device) => {
                writeln!(text, "{} (--device cuda:{index})", device.caps().name).ok();
                if let Err(error) = describe(&device, text) {
                    writeln!(text, "  cannot be used: {error}").ok();
                }
                proofs(&device, prove, text);
                machine_code(&device, text);
            }
            Err(error) => {
                writeln!(text, "cuda:{index}: {error}").ok();
            }
        }
    }
}

/// Which kernels for one architecture alone are right on the device.
#[cfg(feature = "cuda")]
fn proofs(device: &gradscale::Cuda, prove: bool, text: &mut String) {
    let modules = device.arch_specific_modules();
    if !prove {
        let more = if modules.is_empty() { "" } else { "; --prove tries them" };
        writeln!(text, "  {:25} {}{more}", "kernels of its own", modules.len()).ok();
        return;
    }
    for module in modules {
        let verdict =
            device.self_test_module(module).map_or_else(|why| format!("not used: {why}"), |()| "right".into());
        writeln!(text, "  {module:25} {verdict}").ok();
    }
}

/// Where machine code of kernels came from.
#[cfg(feature = "cuda")]
fn machine_code(device: &gradscale::Cuda, text: &mut String) {
    let report = device.gpu().cubins();
    for (folder, count) in &report.found {
        writeln!(text, "  {:25} {count} of {}", "machine code", folder.display()).ok();
    }
    if report.compiled != 0 {
        writeln!(text, "  {:25} {} now", "compiled", report.compiled).ok();
    }
    for ignored in &report.ignored {
        writeln!(text, "  {:25} {ignored}", "ignored").ok();
    }
}

/// What a device does with small numbers.
fn describe<B: Backend>(device: &B, text: &mut String) -> Result<(), B::Error> {
    let caps = device.caps();
    writeln!(text, "  f32 subnormals    {}", if caps.f32_subnormals { "kept" } else { "flushed" }).ok();
    writeln!(text, "  stores of half    {:?}, by its own account", caps.flush).ok();
    for Probed { name, value, stored, loaded } in probe(device)? {
        writeln!(text, "  {name:17} {value:e} is stored as {stored:e} and loaded as {loaded:e}").ok();
    }
    Ok(())
}

/// A number that tells flush rules apart.
struct Probed {
    name: &'static str,
    value: f32,
    /// What a store of half makes of it, read as bits.
    stored: f32,
    /// What a load makes of that.
    loaded: f32,
}

fn probe<B: Backend>(device: &B) -> Result<Vec<Probed>, B::Error> {
    let power = |k: i32| 2f32.powi(k);
    let numbers = [
        ("2^-24", power(-24)),
        ("2^-25", power(-25)),
        ("2^-14", power(-14)),
        ("2^-14 − 2^-25", power(-14) - power(-25)),
        ("2^-14 − 2^-26", power(-14) - power(-26)),
        ("65519", 65519.0),
    ];
    let len = u32::try_from(numbers.len()).expect("a few numbers");
    let mut table = device.table(Slot::FIRST_SITE.0, 1)?;
    let control = Control { exponents: &[0, 0], hyperparameters: &[0.0], seed: 0, detail: Detail::None };
    device.upload(&control, 0..Slot::FIRST_SITE.0, &mut table)?;
    let mut x = device.alloc(DType::F32, numbers.len())?;
    device.write(Data::F32(&numbers.map(|(_, value)| value)), &mut x)?;
    let mut half = device.alloc(DType::F16, numbers.len())?;
    device.launch(Launch::Unary { op: Unary::Id, len, x: &x, y: Store::keep(Slot::ONE, &table, &mut half) })?;
    let mut stored = numbers.map(|_| half::f16::ZERO);
    block_on(device.read(&half, DataMut::F16(&mut stored)))?;
    device.launch(Launch::Unary { op: Unary::Id, len, x: &half, y: Store::keep(Slot::ONE, &table, &mut x) })?;
    let mut loaded = numbers.map(|_| 0f32);
    block_on(device.read(&x, DataMut::F32(&mut loaded)))?;
    let results = stored.iter().zip(loaded);
    let probed = |((name, value), (stored, loaded)): ((_, _), (&half::f16, _))| Probed {
        name,
        value,
        stored: stored.to_f32(),
        loaded,
    };
    Ok(numbers.into_iter().zip(results).map(probed).collect())
}
