//! Products of matrices and convolutions, compared with what the device's arithmetic reaches.

use crate::{Bench, row};
use gradscale_core::{
    backend::{Backend, DType, Launch, Slot, Store},
    ops::{Conv2d, Gemm, Pass},
    stats::Detail,
};
use gradscale_wgpu::{ProductEngine, ProductLaunches};

/// Measures all products that are asked for.
pub fn measure(bench: &Bench) {
    let [gemm, conv] = ["gemm", "conv"].map(|word| bench.wants(word));
    if !gemm && !conv {
        return;
    }
    let peak = bench.multiply_adds();
    if gemm {
        bench.scale.gemm.iter().for_each(|&size| bench.products(size, peak));
    }
    if conv {
        bench.convolutions(peak);
    }
}

/// Returns a figure in the unit of this table.
fn speed(operations: f64, seconds: f64) -> String {
    format!("{:.1} GFLOP/s", operations / seconds / 1e9)
}

impl Bench {
    /// Returns the name of the kernel that computed all products since `before`.
    fn kernel_since(&self, before: ProductLaunches) -> String {
        let after = self.device.product_launches();
        match (after.simt - before.simt, after.cooperative - before.cooperative) {
            (0, 1..) => self.device.product_engine().to_string(),
            (1.., 0) => ProductEngine::Simt.to_string(),
            (simt, cooperative) => format!("{simt} by simt, {cooperative} by cooperative matrices"),
        }
    }

    /// Measures f32 multiply-adds without memory, and returns their operations per second.
    fn multiply_adds(&self) -> f64 {
        let [invocations, rounds] = self.scale.multiply_adds;
        let mut y = self.device.alloc(DType::F32, invocations).unwrap();
        let mut operations = 0;
        let time = self.operator(|| {
            operations = self.device.multiply_adds_by_kernel(rounds as u32, &mut y)?;
            Ok(())
        });
        let (operations, seconds) = (operations as f64, time.as_secs_f64());
        row("f32 multiply-adds without memory", &speed(operations, seconds), "", None, "");
        operations / seconds
    }

    /// Prints the speed of a product. The tile kernel multiplies in f32, so its share of the multiply-adds says how good it
    /// is; cooperative matrices have units of their own.
    fn product_row(name: &str, operations: f64, seconds: f64, peak: f64, kernel: &str) {
        let here = speed(operations, seconds);
        row(name, &here, "", None, kernel);
        if kernel == ProductEngine::Simt.to_string() {
            let share = operations / seconds / peak;
            row(&format!("{name} / f32 multiply-adds"), &here, &speed(peak, 1.0), Some(share), kernel);
        }
    }

    fn products(&self, size: u32, peak: f64) {
        let len = (size * size) as usize;
        let (a, b) = (self.filled(DType::F16, len), self.filled(DType::F16, len));
        let gemm = Gemm::new(size, size, size).unwrap();
        let mut y = self.device.alloc(DType::F16, len).unwrap();
        let flops = 2.0 * f64::from(size).powi(3);
        let before = self.device.product_launches();
        let mut time = |detail| {
            let table = self.table(detail);
            let mut store = || {
                self.device.launch(Launch::Gemm {
                    p: gemm,
                    a: &a,
                    b: &b,
                    bias: None,
                    y: Store::site(Slot(2), Slot(3), &table, &mut y),
                })
            };
            self.operator(&mut store).as_secs_f64()
        };
        let [plain, counts, full] = [Detail::None, Detail::Counts, Detail::Full].map(&mut time);
        let kernel = self.kernel_since(before);
        Self::product_row(&format!("gemm {size}³ f16"), flops, plain, peak, &kernel);
        for (name, seconds) in [("counts", counts), ("histogram", full)] {
            let name = format!("gemm {size}³ f16: with {name} / without");
            row(&name, &speed(flops, seconds), &speed(flops, plain), Some(plain / seconds), &kernel);
        }
    }

    fn convolutions(&self, peak: f64) {
        let p = Conv2d::new(self.scale.conv, self.scale.conv_outputs, [7, 7]).and_then(Conv2d::same).unwrap();
        let lens = [p.x(), p.w(), p.y()].map(|shape| shape.iter().product::<u32>() as usize);
        let [x, w, y] = lens.map(|len| self.filled(DType::F16, len));
        let table = self.table(Detail::Counts);
        let flops = 2.0 * lens[2] as f64 * 49.0 * f64::from(p.x()[3]);
        for (pass, a, b, result, dtype) in [
            (Pass::Forward, &x, &w, lens[2], DType::F16),
            (Pass::Data, &y, &w, lens[0], DType::F16),
            (Pass::Weight, &x, &y, lens[1], DType::F32),
        ] {
            let mut out = self.device.alloc(dtype, result).unwrap();
            let before = self.device.product_launches();
            let time = self.operator(|| {
                self.device.launch(Launch::Conv {
                    p,
                    pass,
                    a,
                    b,
                    bias: None,
                    y: Store::site(Slot(2), Slot(3), &table, &mut out),
                })
            });
            let kernel = self.kernel_since(before);
            Self::product_row(&format!("conv 7×7 {pass:?}"), flops, time.as_secs_f64(), peak, &kernel);
        }
    }
}
