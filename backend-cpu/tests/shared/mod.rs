//! Operands that are always the same, and all bits of a result.

use gradscale_core::{
    backend::{Backend, Control, DType, Data, DataMut, Slot, Store},
    cast::{Round, f16_from_f32},
    stats::{Convention, Detail, Stats},
};
use gradscale_cpu::{Cpu, Memory, Table};
use half::f16;
use pollster::block_on;

/// Deterministic halves, about normal.
pub fn halves(cpu: &Cpu, len: usize, seed: u64) -> Memory {
    let mut state = seed;
    let mut unit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / 16_777_216.0 - 0.5
    };
    let values: Vec<f16> = (0..len).map(|_| f16_from_f32((0..4).map(|_| unit()).sum(), Round::NearestEven)).collect();
    upload(cpu, &values)
}

/// Memory that holds halves.
pub fn upload(cpu: &Cpu, values: &[f16]) -> Memory {
    let mut memory = cpu.alloc(DType::F16, values.len()).unwrap();
    cpu.write(Data::F16(values), &mut memory).unwrap();
    memory
}

/// Bits of a result, and of its row.
pub type Bits = (Vec<u32>, Stats);

pub fn store(cpu: &Cpu, dtype: DType, len: usize, run: impl FnOnce(Store<'_, Cpu>)) -> Bits {
    let mut table: Table = cpu.table(4, 0).unwrap();
    let control = Control { exponents: &[0, 0, 3, 9], hyperparameters: &[], seed: 5, detail: Detail::Moments };
    cpu.upload(&control, 0..4, &mut table).unwrap();
    let mut y = cpu.alloc(dtype, len).unwrap();
    run(Store::site(Slot(2), Slot(3), &table, &mut y));
    let mut rows = [Stats::new(Convention::FP16, 0, Detail::None)];
    block_on(cpu.collect(&table, 3..4, &mut rows, &[], &mut [])).unwrap();
    let bits = if dtype == DType::F16 {
        let mut out = vec![f16::ZERO; len];
        block_on(cpu.read(&y, DataMut::F16(&mut out))).unwrap();
        out.iter().map(|v| u32::from(v.to_bits())).collect()
    } else {
        read(cpu, &y, len)
    };
    (bits, rows[0])
}

pub fn read(cpu: &Cpu, y: &Memory, len: usize) -> Vec<u32> {
    let mut out = vec![0f32; len];
    block_on(cpu.read(y, DataMut::F32(&mut out))).unwrap();
    out.iter().map(|v| v.to_bits()).collect()
}
