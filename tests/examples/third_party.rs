//! A third party's backend in one file: its implementation, and how the suite is run on it.
//!
//! It stores everything as f32 or f16. It implements the cast, functions of one and of two numbers, and matrix
//! products, and returns *unsupported* for the other operators. The suite lists those, and requires nothing else.
//!
//! `cargo run --release -p gradscale-conformance --example third_party -- --skip all_f32_down`

use gradscale_core::{
    backend::{
        Backend, Buffer, Caps, Control, DType, Data, DataMut, DeviceResult, Error, ErrorKind, Launch, OnDevice, Slot,
        Store,
    },
    cast::{Round, f16_from_f32},
    ops::{At, Binary, Gemm, GemmShape, Unary},
    scale::Factor,
    stats::{Convention, Detail, FlushRule, Stats},
};
use half::f16;
use std::{ops::Range, sync::Mutex};

/// The device: nothing to open.
struct Tiny;

/// Host memory of a buffer.
enum Memory {
    F32(Vec<f32>),
    F16(Vec<f16>),
    U8(Vec<u8>),
    U32(Vec<u32>),
}

/// State of a step besides buffers. Rows are behind a lock, because a store holds the table by shared reference.
struct Table {
    exponents: Vec<i32>,
    seed: u64,
    detail: Detail,
    rows: Mutex<Vec<Stats>>,
}

const EMPTY: Stats = Stats::new(Convention::FP16, 0, Detail::None);

impl Buffer for Memory {
    fn dtype(&self) -> DType {
        match self {
            Self::F32(_) => DType::F32,
            Self::F16(_) => DType::F16,
            Self::U8(_) => DType::U8,
            Self::U32(_) => DType::U32,
        }
    }
    fn len(&self) -> usize {
        match self {
            Self::F32(x) => x.len(),
            Self::F16(x) => x.len(),
            Self::U8(x) => x.len(),
            Self::U32(x) => x.len(),
        }
    }
}

impl Memory {
    fn get(&self, i: usize) -> f32 {
        match self {
            Self::F32(x) => x[i],
            Self::F16(x) => x[i].to_f32(),
            Self::U8(x) => f32::from(x[i]),
            Self::U32(x) => x[i] as f32,
        }
    }
}

/// The epilogue of every operator: scale, add, observe, round once.
fn store(out: Store<'_, Tiny>, results: impl Iterator<Item = (usize, f32)>) {
    let Store { y, table, from, to, detail, add } = out;
    let exponent = |slot: Slot| table.exponents[usize::from(slot.0)];
    let factor = Factor::between(exponent(from), exponent(to));
    let detail = detail.min(table.detail);
    let mut rows = table.rows.lock().expect("no operator panics");
    let row = &mut rows[usize::from(to.0)];
    if row.detail() == Detail::None {
        *row = Stats::new(Convention::FP16, exponent(to), detail);
    }
    for (i, v) in results {
        let s = if add { y.get(i) + factor.apply(v) } else { factor.apply(v) };
        if detail != Detail::None {
            row.observe(&[s]);
        }
        match y {
            Memory::F32(y) => y[i] = s,
            Memory::F16(y) => y[i] = f16_from_f32(s, Round::NearestEven),
            Memory::U8(_) | Memory::U32(_) => unreachable!("no operator here has integers as results"),
        }
    }
}

impl Backend for Tiny {
    type Buffer = Memory;
    type Table = Table;
    type Recording = ();
    type Error = ErrorKind;

    fn caps(&self) -> Caps<'_> {
        Caps { name: "tiny", flush: FlushRule::Nearest, f32_subnormals: true, max_buffer: 1 << 36 }
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<Memory, ErrorKind> {
        if (len as u64).saturating_mul(dtype.size() as u64) > self.caps().max_buffer {
            return Err(ErrorKind::OutOfMemory);
        }
        Ok(match dtype {
            DType::F32 => Memory::F32(vec![0.0; len]),
            DType::F16 => Memory::F16(vec![f16::ZERO; len]),
            DType::U8 => Memory::U8(vec![0; len]),
            DType::U32 => Memory::U32(vec![0; len]),
        })
    }

    fn write(&self, src: Data<'_>, dst: &mut Memory) -> DeviceResult<Self> {
        match (src, dst) {
            (Data::F32(x), Memory::F32(y)) => y[..x.len()].copy_from_slice(x),
            (Data::F16(x), Memory::F16(y)) => y[..x.len()].copy_from_slice(x),
            (Data::U8(x), Memory::U8(y)) => y[..x.len()].copy_from_slice(x),
            (Data::U32(x), Memory::U32(y)) => y[..x.len()].copy_from_slice(x),
            _ => panic!("host data of another type than the buffer"),
        }
        Ok(())
    }

    async fn read(&self, src: &Memory, dst: DataMut<'_>) -> DeviceResult<Self> {
        match (src, dst) {
            (Memory::F32(x), DataMut::F32(y)) => y.copy_from_slice(&x[..y.len()]),
            (Memory::F16(x), DataMut::F16(y)) => y.copy_from_slice(&x[..y.len()]),
            (Memory::U8(x), DataMut::U8(y)) => y.copy_from_slice(&x[..y.len()]),
            (Memory::U32(x), DataMut::U32(y)) => y.copy_from_slice(&x[..y.len()]),
            _ => panic!("host memory of another type than the buffer"),
        }
        Ok(())
    }

    fn table(&self, slots: u16, _hyperparameters: u16) -> Result<Table, ErrorKind> {
        let slots = usize::from(slots);
        Ok(Table { exponents: vec![0; slots], seed: 0, detail: Detail::Moments, rows: Mutex::new(vec![EMPTY; slots]) })
    }

    fn upload(&self, control: &Control<'_>, clear: Range<u16>, table: &mut Table) -> DeviceResult<Self> {
        table.exponents.copy_from_slice(control.exponents);
        (table.seed, table.detail) = (control.seed, control.detail);
        let rows = table.rows.get_mut().expect("no operator panics");
        rows[usize::from(clear.start)..usize::from(clear.end)].fill(EMPTY);
        Ok(())
    }

    async fn collect(
        &self, table: &Table, rows: Range<u16>, out: &mut [Stats], scalars: &[&Memory], values: &mut [f32],
    ) -> DeviceResult<Self> {
        let all = table.rows.lock().expect("no operator panics");
        out.copy_from_slice(&all[usize::from(rows.start)..usize::from(rows.end)]);
        values.iter_mut().zip(scalars).for_each(|(value, scalar)| *value = scalar.get(0));
        Ok(())
    }

    fn launch(&self, launch: Launch<OnDevice<'_, Self>>) -> DeviceResult<Self> {
        match launch {
            Launch::Unary { op, len, x, y } => unary(op, len, x, y),
            Launch::Binary { p, a, b, y } => binary(&p, a, b, y),
            Launch::Gemm { p, a, b, bias, y } => gemm(&p, a, b, bias, y),
            other => return Err(ErrorKind::unsupported(other.name())),
        }
        Ok(())
    }
}

fn unary(op: Unary, len: u32, x: &Memory, y: Store<'_, Tiny>) {
    let seed = y.table.seed;
    let one = |index: u32| (index as usize, op.eval(x.get(index as usize), At { seed, index }));
    store(y, (0..len).map(one));
}

fn binary(p: &Binary, a: &Memory, b: &Memory, y: Store<'_, Tiny>) {
    let (seed, [rows, cols]) = (y.table.seed, p.shape());
    let at = |index: u32| a.get(index as usize);
    let one = |index: u32| {
        let other = b.get(p.b_index(index) as usize);
        (index as usize, p.op().eval(at(index), other, At { seed, index }))
    };
    store(y, (0..rows * cols).map(one));
}

fn gemm(p: &Gemm, a: &Memory, b: &Memory, bias: Option<&Memory>, y: Store<'_, Tiny>) {
    let GemmShape { m, n, k } = p.shape();
    let [[m, n, k], lead, strides] = [[m, n, k], p.lead(), p.strides()].map(|sizes| sizes.map(|size| size as usize));
    let place = |which: usize, transposed: bool, z: usize, row: usize, col: usize| {
        let (row, col) = if transposed { (col, row) } else { (row, col) };
        z * strides[which] + row * lead[which] + col
    };
    let [ta, tb] = p.transposed();
    let element = |z, i, j| {
        let products = (0..k).map(|l| a.get(place(0, ta, z, i, l)) * b.get(place(1, tb, z, l, j)));
        (place(2, false, z, i, j), products.sum::<f32>() + bias.map_or(0.0, |bias| bias.get(j)))
    };
    let cells = (0..p.batch() as usize).flat_map(|z| (0..m).flat_map(move |i| (0..n).map(move |j| (z, i, j))));
    store(y, cells.map(|(z, i, j)| element(z, i, j)));
}

fn main() {
    gradscale_conformance::main("tiny", &["memory", "table", "store", "cast", "unary", "binary", "gemm"], || Ok(Tiny))
}
