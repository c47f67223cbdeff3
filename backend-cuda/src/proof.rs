//! Whether a kernel for one architecture's own instructions (wgmma, the copy engine) is right there: seen on the device
//! itself, before the kernel is used for the first time. Where it is not, or does not compile, the one for all
//! architectures is taken.

use crate::{Device, Error, driver::Driver, plan::Kind, product::Choice};
use gradscale_core::{
    backend::{Backend, Control, DType, Data, DataMut, Slot, Store},
    ops::{Conv2d, Gemm, Pass, ShapeError},
    stats::{Convention, Detail, Stats},
};
use half::f16;
use pollster::block_on;
use std::sync::PoisonError;

/// Several tiles along each side, and parts of tiles.
pub(crate) fn gemm(kind: Kind) -> Result<Gemm, Error> {
    let Kind::Matrices([a, b]) = kind else { unreachable!("a convolution is no product of matrices") };
    let shape = || -> Result<Gemm, ShapeError> {
        let (m, n, k) = (264, 392, 200);
        let p = Gemm::new(m, n, k)?;
        let p = if a { p.transpose_a()? } else { p };
        let p = if b { p.transpose_b()? } else { p };
        p.batched(2, [m * k, k * n, m * n])
    };
    shape().map_err(invalid)
}

/// The same in three directions. The copy engine takes 64 channels at a time; nothing about rows is as it is about
/// columns, so that it is seen if they are taken for each other.
pub(crate) fn conv(choice: Choice, pass: Pass) -> Result<Conv2d, Error> {
    let shape = || -> Result<Conv2d, ShapeError> {
        if !choice.bulk {
            return Conv2d::padded([2, 9, 11, 72], 136, [3, 3], [1, 1]);
        }
        let stride = if pass == Pass::Data { [1, 1] } else { [1, 2] };
        Conv2d::padded([2, 10, 16, 256], 384, [2, 3], [0, 2])?.dilation([2, 1])?.stride(stride)?.groups(2)
    };
    shape().map_err(invalid)
}

fn invalid(error: ShapeError) -> Error {
    Error::Driver { doing: "prove a kernel", name: error.to_string(), lost: false }
}

fn elements(shape: [u32; 4]) -> usize {
    shape.into_iter().product::<u32>() as usize
}

/// Small integers: their sums are exact in any order.
fn numbers(len: usize, seed: u32) -> Vec<f16> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f16::from_f32((state >> 24) as f32 % 7.0 - 3.0)
    };
    (0..len).map(|_| next()).collect()
}

impl<D: Driver> Device<D> {
    /// Whether a kernel has given the bits of the simplest one, results and statistics. While a step is recorded
    /// nothing runs: what has not been seen by then does not count.
    pub(crate) fn is_proven(&self, kind: Kind, choice: Choice) -> Result<bool, Error> {
        let name = choice.kernel.module.name;
        let known = self.proven.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied();
        match known {
            Some(right) => Ok(right),
            None if self.is_recording() => Ok(false),
            None => {
                let right = match self.prove(kind, choice) {
                    // A device that is lost is lost for all; what does not compile is not used.
                    Err(error @ Error::Driver { lost: true, .. }) => return Err(error),
                    Err(_) => false,
                    Ok(right) => right,
                };
                self.proven.lock().unwrap_or_else(PoisonError::into_inner).insert(name, right);
                Ok(right)
            }
        }
    }

    fn prove(&self, kind: Kind, choice: Choice) -> Result<bool, Error> {
        let [a_len, b_len, y_len] = match kind {
            Kind::Matrices(_) => gemm(kind)?.lens().map(|len| len as usize),
            Kind::Convolution(pass) => {
                let p = conv(choice, pass)?;
                let [x, w, y] = [p.x(), p.w(), p.y()].map(elements);
                match pass {
                    Pass::Forward => [x, w, y],
                    Pass::Data => [y, w, x],
                    // What gives the rows comes first.
                    Pass::Weight => [y, x, w],
                }
            }
        };
        let load = |len, seed| {
            let mut memory = self.alloc(DType::F16, len)?;
            self.write(Data::F16(&numbers(len, seed)), &mut memory)?;
            Ok::<_, Error>(memory)
        };
        let (a, b, mut y, mut plain) = (load(a_len, 1)?, load(b_len, 2)?, load(y_len, 3)?, load(y_len, 4)?);
        let slots = [Slot::FIRST, Slot(Slot::FIRST.0 + 1)];
        let mut exponents = vec![0; usize::from(Slot::FIRST.0) + 2];
        exponents[usize::from(Slot::FIRST.0)..].fill(-3);
        let mut table = self.table(Slot::FIRST.0 + 2, 0)?;
        let control = Control { exponents: &exponents, hyperparameters: &[], seed: 0, detail: Detail::Full };
        self.upload(&control, 0..Slot::FIRST.0 + 2, &mut table)?;
        let stores =
            [Store::site(Slot::ONE, slots[0], &table, &mut y), Store::site(Slot::ONE, slots[1], &table, &mut plain)];
        self.run_twice(kind, choice, [&a, &b], stores)?;
        let mut results = [vec![f16::ZERO; y_len], vec![f16::ZERO; y_len]];
        block_on(self.read(&y, DataMut::F16(&mut results[0])))?;
        block_on(self.read(&plain, DataMut::F16(&mut results[1])))?;
        let mut rows = [Stats::new(Convention::FP16, 0, Detail::None); 2];
        block_on(self.collect(&table, slots[0].0..slots[1].0 + 1, &mut rows, &[], &mut []))?;
        let [here, there] = &results;
        let same = here.iter().zip(there).all(|(a, b)| a.to_bits() == b.to_bits());
        Ok(same && rows[0].counts() == rows[1].counts() && rows[0].bins() == rows[1].bins())
    }
}
