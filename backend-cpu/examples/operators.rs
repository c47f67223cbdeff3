//! Runs one operator several times on one thread, for an emulator that counts its instructions
//! (`scripts/instructions.py`).
//!
//! `operators INSTRUCTIONS OPERATOR TIMES`. Without arguments it lists the operators, and the work of each.

#![allow(clippy::expect_used, clippy::cast_precision_loss, reason = "an example: small sizes")]

use gradscale_core::{
    backend::{Backend, Control, DType, Data, Launch, Slot, Store},
    ops::{Conv2d, Gemm, Norm, NormOver, Pass, Unary},
    stats::Detail,
};
use gradscale_cpu::{Cpu, Isa, Memory};
use half::f16;
use std::process::exit;

#[derive(Clone, Copy)]
enum Operator {
    Product,
    Convolution,
    Cast,
    Gelu,
    LayerNorm,
}

use Operator::{Cast, Convolution, Gelu, LayerNorm, Product};

/// Number of elements of each operand: fewer than a lookup table has entries.
const ELEMENTS: u32 = 16_384;
/// Operators that the example can run: name, amount of work, and its unit.
const OPERATORS: [(Operator, &str, u32, &str); 5] = [
    (Product, "product 96×96×96", 96 * 96 * 96, "multiply-add"),
    (Convolution, "convolution 3×3, 16 to 16 channels, 24×24", 24 * 24 * 16 * 16 * 9, "multiply-add"),
    (Cast, "cast with counts", ELEMENTS, "element"),
    (Gelu, "GELU", ELEMENTS, "element"),
    (LayerNorm, "layer norm of 256", ELEMENTS, "element"),
];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [set, name, times] = &words[..] else {
        OPERATORS.iter().for_each(|(_, name, amount, of)| println!("{name}\t{amount}\t{of}"));
        return;
    };
    let isa = Isa::available().into_iter().find(|isa| isa.to_string() == *set);
    let operator = OPERATORS.iter().find(|(_, known, ..)| known == name);
    let (Some(isa), Some((operator, ..)), Ok(times)) = (isa, operator, times.parse()) else {
        eprintln!("not on this processor, or not known: {}", words.join(" "));
        exit(2);
    };
    launch_repeatedly(&Cpu::with_isa(1, isa).expect("no thread is started"), *operator, times);
}

/// Returns a buffer of halves around 0, from a fixed sequence.
fn upload_halves(cpu: &Cpu) -> Memory {
    let values: Vec<f16> = (0..ELEMENTS).map(|i| f16::from_f32((i * 37 % 1009) as f32 / 504.0 - 1.0)).collect();
    let mut memory = cpu.alloc(DType::F16, values.len()).expect("memory");
    cpu.write(Data::F16(&values), &mut memory).expect("as many");
    memory
}

/// Returns a buffer of equal f32 numbers.
fn upload_f32(cpu: &Cpu, value: f32) -> Memory {
    let mut memory = cpu.alloc(DType::F32, ELEMENTS as usize).expect("memory");
    cpu.write(Data::F32(&vec![value; ELEMENTS as usize]), &mut memory).expect("as many");
    memory
}

fn launch_repeatedly(cpu: &Cpu, operator: Operator, times: usize) {
    let mut table = cpu.table(4, 0).expect("small");
    let control = Control { exponents: &[0, 0, 3, 5], hyperparameters: &[], seed: 1, detail: Detail::Counts };
    cpu.upload(&control, 0..4, &mut table).expect("as many");
    let (a, b, x, mut saved) = (upload_halves(cpu), upload_halves(cpu), upload_f32(cpu, 0.3), upload_f32(cpu, 0.0));
    let mut y = cpu.alloc(DType::F16, ELEMENTS as usize).expect("memory");
    for _ in 0..times {
        let y = Store::site(Slot(2), Slot(3), &table, &mut y);
        let launch = match operator {
            Product => Launch::Gemm { p: Gemm::new(96, 96, 96).expect("valid"), a: &a, b: &b, bias: None, y },
            Convolution => {
                let p = Conv2d::new([1, 24, 24, 16], 16, [3; 2]).and_then(Conv2d::same).expect("valid");
                Launch::Conv { p, pass: Pass::Forward, a: &a, b: &b, bias: None, y }
            }
            Cast => Launch::Unary { op: Unary::Id, len: ELEMENTS, x: &x, y },
            Gelu => Launch::Unary { op: Unary::Gelu, len: ELEMENTS, x: &a, y },
            LayerNorm => {
                let p = Norm::new([ELEMENTS / 256, 1, 1, 256], NormOver::Group(1), 1e-5).expect("valid");
                Launch::Norm { p, x: &a, affine: Some([&x, &x]), saved: &mut saved, y }
            }
        };
        cpu.launch(launch).expect("runs");
    }
}
