//! Operators bound by memory, compared with a copy by a kernel in the same run.

use crate::{Bench, row};
use gradscale_core::{
    backend::{Backend, Buffer, Control, DType, Hyperparameter, Launch, NormSaved, Param, Slot, Store},
    ops::{Norm, NormOver, Optimizer, Rule, Unary},
    stats::Detail,
};
use gradscale_wgpu::{Memory, Table};
use std::time::Duration;

/// Measures casts, batch norm and updates, if they are asked for.
pub fn measure(bench: &Bench) {
    let [cast, norm, update] = ["cast", "norm", "update"].map(|word| bench.wants(word));
    if !cast && !norm && !update {
        return;
    }
    let copy = bench.copies();
    if cast {
        bench.casts(copy);
    }
    if norm {
        bench.norms(copy);
    }
    if update {
        bench.updates(copy);
    }
}

fn speed(bytes: f64, seconds: f64) -> String {
    format!("{:.2} GB/s", bytes / seconds / 1e9)
}

/// Prints the bytes per second of an operator, which moves `bytes`, beside those of the copy.
fn line(name: &str, bytes: f64, time: Duration, copy: f64) {
    let seconds = time.as_secs_f64();
    row(
        &format!("{name} / copy by a kernel"),
        &speed(bytes, seconds),
        &speed(copy, 1.0),
        Some(bytes / seconds / copy),
        "",
    );
}

impl Bench {
    /// Measures a copy by the driver and one by a kernel, and returns the bytes per second of the latter.
    fn copies(&self) -> f64 {
        let len = self.scale.cast;
        let (x, mut other) = (self.filled(DType::F32, len), self.device.alloc(DType::F32, len).unwrap());
        // A copy of 3 bytes per element moves 6 bytes, as a cast does, which reads f32 and stores halves without
        // reading its destination.
        let bytes = len as u64 * 3 / 16 * 16;
        let moved = 2.0 * bytes as f64;
        let note = format!("{:.2} GB moved", moved / 1e9);
        let driver = self.median(|| self.device.time_copy(&x, &mut other, bytes).unwrap().unwrap_or(Duration::MAX));
        row("copy by the driver", &speed(moved, driver.as_secs_f64()), "", None, &note);
        let kernel = self.operator(|| self.device.copy_by_kernel(&x, &mut other, bytes)).as_secs_f64();
        row("copy by a kernel", &speed(moved, kernel), "", None, &note);
        moved / kernel
    }

    fn casts(&self, copy: f64) {
        let len = self.scale.cast;
        let x = self.filled(DType::F32, len);
        let mut y = self.device.alloc(DType::F16, len).unwrap();
        for (name, detail) in [("cast", Detail::None), ("cast, counts", Detail::Counts), ("cast, full", Detail::Full)] {
            let table = self.table(detail);
            let time = self.operator(|| {
                self.device.launch(Launch::Unary {
                    op: Unary::Id,
                    len: x.len() as u32,
                    x: &x,
                    y: Store::site(Slot(2), Slot(3), &table, &mut y),
                })
            });
            line(name, 6.0 * len as f64, time, copy);
        }
    }

    /// Measures batch norm of the convolution's images, both passes, with counts.
    fn norms(&self, copy: f64) {
        let shape = self.scale.conv;
        let (p, len) = (Norm::new(shape, NormOver::Batch, 1e-5).unwrap(), shape.iter().product::<u32>() as usize);
        let channels = shape[3] as usize;
        let (x, dy) = (self.filled(DType::F16, len), self.filled(DType::F16, len));
        let [scale, shift] = [(); 2].map(|()| self.filled(DType::F32, channels));
        let [mut saved, mut of_scale, mut of_shift] =
            [2 * channels, channels, channels].map(|len| self.device.alloc(DType::F32, len).unwrap());
        let mut y = self.device.alloc(DType::F16, len).unwrap();
        let table = self.table(Detail::Counts);
        let forward = self.operator(|| {
            let y = Store::site(Slot::ONE, Slot(3), &table, &mut y);
            self.device.launch(Launch::Norm { p, x: &x, affine: Some([&scale, &shift]), saved: &mut saved, y })
        });
        let backward = self.operator(|| {
            let affine = [&mut of_scale, &mut of_shift].map(|y| Store::param(Slot(2), Slot(2), false, &table, y));
            self.device.launch(Launch::NormVjp {
                p,
                x: NormSaved { x: &x, saved: &saved, weight: Some(&scale) },
                dy: &dy,
                dx: Store::site(Slot(2), Slot(3), &table, &mut y),
                affine: Some(affine),
            })
        });
        // Read twice and written; both operands read twice, and written.
        line("batch norm forward", 6.0 * len as f64, forward, copy);
        line("batch norm backward", 10.0 * len as f64, backward, copy);
    }

    /// Measures updates of parameters in a group.
    fn updates(&self, copy: f64) {
        let [tensors, len] = self.scale.update;
        let group = |dtype| {
            let mut buffers: Vec<Memory> = Vec::new();
            self.device.alloc_group(dtype, &vec![len; tensors], &mut buffers).unwrap();
            buffers
        };
        let (mut masters, mut first, mut second) = (group(DType::F32), group(DType::F32), group(DType::F32));
        let (grads, mut halves) = (group(DType::F32), group(DType::F16));
        let table = self.update_table();
        let sgd = Rule::Sgd { momentum: 0.9, nesterov: false };
        let correction = [Hyperparameter(1); 2];
        let adam = Rule::Adam { beta: [0.9, 0.999], eps: 1e-8, correction, decoupled: true };
        // Master, gradient, states; all but the gradient written, and a half copy.
        for (name, rule, bytes) in [("update: SGD with momentum", sgd, 22.0), ("update: AdamW", adam, 30.0)] {
            let p = Optimizer::new(rule, Hyperparameter(0)).unwrap();
            let time = self.operator(|| {
                let states = first.iter_mut().zip(second.iter_mut());
                let mut parameters: Vec<_> = (masters.iter_mut().zip(&grads).zip(states).zip(halves.iter_mut()))
                    .map(|(((master, grad), (first, second)), half)| {
                        let state = [Some(first), (p.states() > 1).then_some(second)];
                        Param { len: len as u32, master, grad, state, half: Some(half) }
                    })
                    .collect();
                let (guard, parameters) = ((2..3).into(), &mut parameters[..]);
                self.device.launch(Launch::Optimize { p, table: &table, guard, norm: None, parameters })
            });
            line(name, bytes * (tensors * len) as f64, time, copy);
        }
    }

    /// Returns a table with the hyperparameters of an update: a rate and a correction.
    fn update_table(&self) -> Table {
        let mut table = self.device.table(4, 2).unwrap();
        let control = Control { exponents: &[0; 4], hyperparameters: &[1e-3, 1.0], seed: 1, detail: Detail::Counts };
        self.device.upload(&control, 0..4, &mut table).unwrap();
        table
    }
}
