//! `gradscale devices`: available devices, and their treatment of subnormal numbers.

use crate::{Failure, output};
use clap::Args;
use gradscale::{
    Cpu, Isa,
    gradscale_core::{
        backend::{Backend, Control, DType, Data, DataMut, Launch, Slot, Store},
        ops::Unary,
        stats::Detail,
    },
};
use pollster::block_on;
use std::fmt::Write;

/// Arguments of `gradscale devices`.
#[derive(Args, Clone, Copy, Debug)]
pub struct Devices {
    /// Tests all kernels for the architecture of an NVIDIA GPU now; by default each is tested before its first use.
    #[arg(long)]
    prove: bool,
}

/// Prints all devices of the machine with their properties.
///
/// # Errors
/// A device that cannot be opened.
#[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "only CUDA proves"))]
pub fn run(asked: &Devices) -> Result<(), Failure> {
    let mut text = String::new();
    for isa in Isa::available() {
        let device = Cpu::with_isa(0, isa).map_err(|error| Failure::at("cpu", error))?;
        let caps = device.caps();
        let best =
            if isa == Isa::best() { "--device cpu" } else { "not used, because this processor has a faster one" };
        write_heading(&mut text, &format!("{} ({best})", caps.name));
        describe(&device, &mut text).map_err(|error| Failure::at("cpu", error))?;
    }
    #[cfg(feature = "wgpu")]
    adapters(&mut text);
    #[cfg(feature = "cuda")]
    cuda(&mut text, asked.prove);
    output::print(&text)
}

/// Describes all wgpu adapters. One that cannot be opened is listed with its error.
#[cfg(feature = "wgpu")]
fn adapters(text: &mut String) {
    let all = gradscale::adapters();
    if all.is_empty() {
        write_heading(text, "wgpu: no adapter");
    }
    for (i, adapter) in all.iter().enumerate() {
        let kind = if adapter.is_software() { ", a driver on the CPU" } else { "" };
        write_heading(text, &format!("{} (--device wgpu:{i}{kind})", adapter.name()));
        for (name, has) in adapter.features() {
            write_property(text, name, if has { "yes" } else { "no" });
        }
        for (name, limit) in adapter.limits() {
            write_property(text, name, &limit.to_string());
        }
        let described = gradscale::Wgpu::open(adapter, false).and_then(|device| {
            products(&device, text);
            write_property(text, "conversions", &device.conversions().to_string());
            describe(&device, text)
        });
        if let Err(error) = described {
            write_property(text, "cannot be used", &error.to_string());
        }
    }
}

/// Writes which engine and which tile a wgpu device uses for products, and why.
#[cfg(feature = "wgpu")]
fn products(device: &gradscale::Wgpu, text: &mut String) {
    write_property(text, "products", &device.product_engine().to_string());
    write_property(text, "because", &device.product_engine_reason().to_string());
    write_property(text, "tile of products", &device.product_tile_choice().to_string());
}

/// Describes all CUDA devices. One that cannot be opened is listed with its error.
#[cfg(feature = "cuda")]
fn cuda(text: &mut String, prove: bool) {
    let count = gradscale::Cuda::count();
    if count == 0 {
        let reason = gradscale::Cuda::open(0).map_or_else(|error| error.to_string(), |_| "no device".into());
        write_heading(text, &format!("cuda: {reason}"));
    }
    for index in 0..count {
        match gradscale::Cuda::open(index) {
            Ok(device) => {
                write_heading(text, &format!("{} (--device cuda:{index})", device.caps().name));
                if let Err(error) = describe(&device, text) {
                    write_property(text, "cannot be used", &error.to_string());
                }
                proofs(&device, prove, text);
                machine_code(&device, text);
            }
            Err(error) => write_heading(text, &format!("cuda:{index}: {error}")),
        }
    }
}

/// Writes which kernels for a single architecture pass their self-test on a CUDA device.
#[cfg(feature = "cuda")]
fn proofs(device: &gradscale::Cuda, prove: bool, text: &mut String) {
    let modules = device.self_test_names();
    if !prove {
        let more = if modules.is_empty() { "" } else { "; --prove runs them" };
        write_property(text, "self-tests of kernels", &format!("{}{more}", modules.len()));
        return;
    }
    for module in modules {
        let verdict =
            device.self_test_module(&module).map_or_else(|why| format!("not used: {why}"), |()| "right".into());
        write_property(text, &module, &verdict);
    }
}

/// Lists the sources of the kernels' machine code: cubin files or a compilation at run time.
#[cfg(feature = "cuda")]
fn machine_code(device: &gradscale::Cuda, text: &mut String) {
    let report = device.gpu().cubins();
    for (folder, count) in &report.found {
        write_property(text, "machine code", &format!("{count} of {}", folder.display()));
    }
    if report.compiled != 0 {
        write_property(text, "compiled", &format!("{} now", report.compiled));
    }
    for ignored in &report.ignored {
        write_property(text, "ignored", ignored);
    }
}

/// Describes how a device treats subnormal numbers.
fn describe<B: Backend>(device: &B, text: &mut String) -> Result<(), B::Error> {
    let caps = device.caps();
    write_number(text, "f32 subnormals", if caps.f32_subnormals { "kept" } else { "flushed" });
    write_number(text, "f16 stores", &format!("{:?}, as the backend declares", caps.flush));
    for Probed { name, value, stored, loaded } in probe(device)? {
        write_number(text, name, &format!("{value:e} stored as {stored:e}, loaded as {loaded:e}"));
    }
    Ok(())
}

/// Columns of a terminal. Longer lines are broken, because a driver's name or message may have any length.
const COLUMNS: usize = 80;
/// Indentation of the lines below a heading: more than that of rows, so that readers can distinguish them.
const HEADING_INDENT: usize = 4;
/// Columns of the names of a device's properties: the longest is "invocations of a workgroup".
#[cfg(any(feature = "wgpu", feature = "cuda", test))]
const PROPERTY_COLUMNS: usize = 26;
/// Width of the column of value classes, in characters. The results of a store and of a load then fit in a line.
const NUMBER_COLUMNS: usize = 16;

/// Writes the line of a device, or the reason why there is none.
fn write_heading(text: &mut String, words: &str) {
    write_wrapped(text, "", HEADING_INDENT, words);
}

/// Writes a line with a device's property: its name and its value.
#[cfg(any(feature = "wgpu", feature = "cuda", test))]
fn write_property(text: &mut String, name: &str, words: &str) {
    write_wrapped(text, &format!("  {name:PROPERTY_COLUMNS$}"), PROPERTY_COLUMNS + 3, words);
}

/// Writes a property of a device with a number.
fn write_number(text: &mut String, name: &str, words: &str) {
    write_wrapped(text, &format!("  {name:NUMBER_COLUMNS$}"), NUMBER_COLUMNS + 3, words);
}

/// Writes words in lines of at most [`COLUMNS`] columns; a longer word has a line to itself. The first line begins with
/// `start`, the others are indented.
fn write_wrapped(text: &mut String, start: &str, indent: usize, words: &str) {
    let mut line = start.to_owned();
    let mut is_empty = true;
    for word in words.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            writeln!(text, "{line}").ok();
            line = " ".repeat(indent.saturating_sub(1));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    writeln!(text, "{line}").ok();
}

/// Value by which the device's rule for flushing small numbers is recognised.
struct Probed {
    name: &'static str,
    value: f32,
    /// Bits of the probed value after a store as f16.
    stored: f32,
    /// Stored value after it is loaded from f16.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let mut text = String::new();
        write_heading(
            &mut text,
            "llvmpipe (LLVM 15.0.6, 256 bits), vulkan, llvmpipe Mesa 22.3.6 (--device wgpu:0, a driver on the CPU)",
        );
        write_property(&mut text, "invocations of a workgroup", "1024");
        write_property(&mut text, "because", &format!("not proven; {}", "a message\nof a driver ".repeat(9)));
        write_number(&mut text, "2^-14 − 2^-25", "6.1005354e-5 stored as 6.1035156e-5, loaded as 6.1035156e-5");
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert_eq!(lines[1], "    a driver on the CPU)");
        assert_eq!(lines[2], "  invocations of a workgroup 1024");
        assert!(lines[3].starts_with("  because                    not proven; a message of a"), "{text}");
        assert!(
            lines[4..7].iter().all(|line| line.starts_with(&" ".repeat(29)) && line.as_bytes()[29] != b' '),
            "{text}"
        );
        assert_eq!(
            lines.last(),
            Some(&"  2^-14 − 2^-25    6.1005354e-5 stored as 6.1035156e-5, loaded as 6.1035156e-5")
        );
        // All words are there, in their order.
        assert_eq!(text.split_whitespace().filter(|word| *word == "driver").count(), 10, "{text}");
    }

    #[test]
    fn a_word_wider_than_a_terminal_has_a_line_to_itself() {
        let (mut text, long) = (String::new(), "x".repeat(90));
        write_property(&mut text, "machine code", &format!("7 of {long} here"));
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        assert_eq!(lines, ["machine code               7 of", long.as_str(), "here"]);
        let mut text = String::new();
        write_heading(&mut text, &long);
        assert_eq!(text, format!("{long}\n"));
    }

    /// Checks that the widest properties of this processor fit the lines.
    #[test]
    fn what_this_processor_does_fits_in_lines() {
        let mut text = String::new();
        describe(&Cpu::new(1).expect("a thread"), &mut text).expect("numbers");
        assert_eq!(text.lines().count(), 8, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
    }
}
