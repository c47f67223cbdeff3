//! Sizes and strides that do not fit the tiles of kernels: classifiers, strided convolutions, heads and vocabularies of
//! real networks, products of few rows or columns, and f32.

use crate::{
    measure::Bench,
    products::{ConvCase, GemmCase, Sides, beside_blas, one_pass, shape},
};
use gradscale_core::{
    backend::DType,
    ops::{Conv2d, Gemm, Pass},
};
use gradscale_cuda::Error;

/// A convolution of `odd.csv`, which `peers.py` reads too: SegNet's classifier; ResNet-50's convolutions of stride 2 at batch
/// 128, all passes of the first and the gradient of the input of the others, which is computed in phases; SSD-300's heads
/// for 21 classes at batch 32; channels of Inception-v3, which TMA fills up to 64; the last layer of DCGAN's generator,
/// which is such a gradient; f32.
pub struct Shape {
    pub name: &'static str,
    input: [u32; 4],
    outputs: u32,
    kernel: u32,
    stride: u32,
    passes: Vec<Pass>,
    dtype: DType,
}

impl Shape {
    /// Reads all shapes of `odd.csv`.
    ///
    /// # Panics
    /// If the file is not in its form, which a test sees.
    pub fn read_table() -> impl Iterator<Item = Self> {
        include_str!("../odd.csv").lines().skip(1).map(|row| {
            let fields: Vec<_> = row.split(',').collect();
            let [name, numbers @ .., passes, dtype] = &fields[..] else { panic!("{row}: ten fields") };
            let numbers: Vec<u32> = numbers
                .iter()
                .map(|number| number.parse().unwrap_or_else(|_| panic!("{row}: {number} is no number")))
                .collect();
            let [n, h, w, c, outputs, kernel, stride] = numbers[..] else { panic!("{row}: ten fields") };
            let pass = |name: &str| Pass::ALL.into_iter().find(|pass| format!("{pass:?}") == name);
            let passes = passes.split(' ').map(|name| pass(name).unwrap_or_else(|| panic!("{row}: {name} is no pass")));
            let dtype = match *dtype {
                "half" => DType::F16,
                "f32" => DType::F32,
                other => panic!("{row}: {other} is no type"),
            };
            Self { name, input: [n, h, w, c], outputs, kernel, stride, passes: passes.collect(), dtype }
        })
    }
}

/// Shape of a matrix product of the bench: rows, columns, terms, and how operands are stored.
struct Matrices {
    name: &'static str,
    mnk: [u32; 3],
    small: [u32; 3],
    transposed: [bool; 2],
    types: [DType; 2],
}

const HALVES: [DType; 2] = [DType::F16; 2];
/// Types of operands and result of a weight gradient: f16 in, f32 out.
const WEIGHT: [DType; 2] = [DType::F16, DType::F32];
/// Transposition of operands in a linear layer, whose weight is `[n, k]`.
const LINEAR: [bool; 2] = [false, true];

/// The decoder's logits for 16 × 1024 tokens and GPT-2's vocabulary, with both products of the backward pass; a step of an
/// LSTM of 1024 units at batch 128, and of fewer rows; P·V of attention, 64 columns; f32.
static PRODUCTS: [Matrices; 9] = [
    matrices("logits forward 16384×50257×768", [16384, 50257, 768], [48, 57, 16], LINEAR, HALVES),
    matrices("logits data 16384×768×50257", [16384, 768, 50257], [48, 16, 57], [false, false], HALVES),
    matrices("logits weight 50257×768×16384", [50257, 768, 16384], [57, 16, 48], [true, false], WEIGHT),
    matrices("step 128×4096×1024", [128, 4096, 1024], [16, 64, 32], LINEAR, HALVES),
    matrices("step 64×4096×1024", [64, 4096, 1024], [8, 64, 32], LINEAR, HALVES),
    matrices("step 16×4096×1024", [16, 4096, 1024], [4, 64, 32], LINEAR, HALVES),
    matrices("columns 16384×64×1024", [16384, 64, 1024], [64, 8, 32], [false, false], HALVES),
    matrices("columns weight 1024×64×16384", [1024, 64, 16384], [32, 8, 64], [true, false], WEIGHT),
    matrices("f32 4096×4096×4096", [4096; 3], [24; 3], [false, false], [DType::F32; 2]),
];

const fn matrices(
    name: &'static str, mnk: [u32; 3], small: [u32; 3], transposed: [bool; 2], types: [DType; 2],
) -> Matrices {
    Matrices { name, mnk, small, transposed, types }
}

/// Measures the products of all odd shapes, if `odd` is requested.
///
/// # Errors
/// The device's, or cuBLASLt's.
pub fn measure(bench: &mut Bench<'_>) -> Result<(), Error> {
    if !bench.wants_group("odd") {
        return Ok(());
    }
    for Shape { name, input, outputs, kernel, stride, passes, dtype } in Shape::read_table() {
        let [_, _, _, c] = input;
        // Odd stays odd: outputs keep their rest of eight, and sides have one.
        let small = ([1, 7, 5, c.min(8)], 8 + outputs % 8);
        let (input, outputs) = bench.size((input, outputs), small);
        let p = Conv2d::padded(input, outputs, [kernel; 2], [kernel / 2; 2])
            .and_then(|p| p.stride([stride; 2]))
            .map_err(shape)?;
        for pass in passes {
            let name = format!("conv odd {name} {pass:?}");
            one_pass(bench, &ConvCase { name, p, pass, operands: dtype, by: None })?;
        }
    }
    for Matrices { name, mnk, small, transposed: [of_a, of_b], types: [operands, results] } in &PRODUCTS {
        let [m, n, k] = bench.size(*mnk, *small);
        let mut p = Gemm::new(m, n, k).map_err(shape)?;
        if *of_a {
            p = p.transpose_a().map_err(shape)?;
        }
        if *of_b {
            p = p.transpose_b().map_err(shape)?;
        }
        let name = format!("gemm odd {name}");
        let case = GemmCase { name, p, operands: *operands, results: *results, sides: Sides::InTurns };
        beside_blas(bench, &case)?;
    }
    Ok(())
}
