//! A scalar backend: the readable definition of every operator, and the template for a backend of your own.
//!
//! One loop for each operator (`operators.rs`), no speed. Tests break it on purpose, see [`crate::Fault`].

mod attention;
mod cells;
mod operators;

use crate::Fault;
use core::{cell::RefCell, ops::Range};
use gradscale_core::{
    backend::*,
    ops::Attention,
    scale::Factor,
    stats::{Convention, Detail, FlushRule, Stats},
    store_format::StoreFormat,
};

/// A row into which nothing was stored.
const EMPTY: Stats = Stats::new(Convention::FP16, 0, Detail::None);

/// The scalar backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference {
    pub(crate) fault: Option<Fault>,
}

/// Numbers of one type; f64 holds all four exactly.
#[derive(Clone, Debug)]
pub struct Memory(DType, Vec<f64>);

/// Exponents, hyperparameters, seed, rows.
#[derive(Debug)]
pub struct Table {
    exponents: Vec<i32>,
    hyperparameters: Vec<f32>,
    seed: u64,
    detail: Detail,
    rows: RefCell<Vec<Stats>>,
}

impl Buffer for Memory {
    fn dtype(&self) -> DType {
        self.0
    }
    fn len(&self) -> usize {
        self.1.len()
    }
}

impl Memory {
    fn get(&self, i: usize) -> f32 {
        self.1[i] as f32
    }

    pub(crate) fn number(&self, i: usize) -> f64 {
        self.1[i]
    }

    pub(crate) fn set(&mut self, i: usize, value: f64) {
        self.1[i] = f64::from(value as f32);
    }
}

impl Reference {
    /// The epilogue: scale, add, observe, round once. `results` are places in y and f32 values there.
    fn store(&self, out: Store<'_, Self>, results: impl IntoIterator<Item = (usize, f32)>) -> DeviceResult<Self> {
        self.store_in(StoreFormat::Fp16, out, results)
    }

    /// The epilogue with the rounding and the thresholds of a format. Memory of f32 keeps all digits of an FP16 store.
    fn store_in(
        &self, format: StoreFormat, out: Store<'_, Self>, results: impl IntoIterator<Item = (usize, f32)>,
    ) -> DeviceResult<Self> {
        let Store { y, table, from, to, detail, add } = out;
        let [from, exponent] = [from, to].map(|slot| table.exponents[usize::from(slot.0)]);
        let factor = Factor::between(from, exponent);
        let integers = matches!(y.0, DType::U8 | DType::U32);
        let detail = if integers { Detail::None } else { detail.min(table.detail) };
        let round = |v: f32| match format {
            StoreFormat::Fp16 if y.0 == DType::F16 => self.round(v, detail),
            StoreFormat::Fp16 => v,
            StoreFormat::E5m2 | StoreFormat::E4m3 => self.round_to(format, v),
        };
        let to = if self.on(Fault::WrongSlot) && to > Slot::FIRST_SITE { Slot(to.0 - 1) } else { to };
        let mut rows = table.rows.borrow_mut();
        let row = &mut rows[usize::from(to.0)];
        if row.detail() == Detail::None {
            *row = Stats::new(self.convention(format), exponent, detail);
        }
        let mut end = 0;
        for (i, v) in results {
            let v = if self.on(Fault::FactorAfterRounding) { round(v) } else { v };
            let u = if integers { v } else { factor.apply(v) };
            let s = if add && !self.on(Fault::AddDropped) { y.get(i) + u } else { u };
            y.1[i] = f64::from(round(s));
            if detail != Detail::None {
                row.observe(&[self.seen(s, round(s))]);
            }
            end = end.max(i + 1);
        }
        self.overrun(y.0, detail, &mut y.1, end);
        Ok(())
    }

    /// Casts values that are not stored, and returns the halves.
    fn cast(&self, cast: &Cast<'_, Self>, values: &[f32]) -> Vec<f32> {
        let Cast { table, from, to, detail } = *cast;
        let exponent = |slot: Slot| table.exponents[usize::from(slot.0)];
        let (factor, detail) = (Factor::between(exponent(from), exponent(to)), detail.min(table.detail));
        let to = if self.on(Fault::WrongSlot) && to > Slot::FIRST_SITE { Slot(to.0 - 1) } else { to };
        let row = &mut table.rows.borrow_mut()[usize::from(to.0)];
        if row.detail() == Detail::None {
            *row = Stats::new(self.convention(StoreFormat::Fp16), table.exponents[usize::from(cast.to.0)], detail);
        }
        let one = |&v: &f32| {
            let u = factor.apply(v);
            let rounded = self.round(u, detail);
            if detail != Detail::None {
                row.observe(&[self.seen(u, rounded)]);
            }
            rounded
        };
        values.iter().map(one).collect()
    }

    fn put(&self, y: Store<'_, Self>, results: impl IntoIterator<Item = f32>) -> DeviceResult<Self> {
        self.put_in(StoreFormat::Fp16, y, results)
    }

    fn put_in(
        &self, format: StoreFormat, y: Store<'_, Self>, results: impl IntoIterator<Item = f32>,
    ) -> DeviceResult<Self> {
        self.store_in(format, y, results.into_iter().enumerate())
    }
}

impl Backend for Reference {
    type Buffer = Memory;
    type Table = Table;
    type Recording = ();
    type Error = ErrorKind;

    fn caps(&self) -> Caps<'_> {
        Caps { name: "reference", flush: FlushRule::Nearest, f32_subnormals: true, max_buffer: 1 << 36 }
    }

    fn alloc(&self, dtype: DType, len: usize) -> Result<Memory, ErrorKind> {
        let fits = (len as u64).saturating_mul(dtype.size() as u64) <= self.caps().max_buffer;
        if fits { Ok(Memory(dtype, vec![7.0; len])) } else { Err(ErrorKind::OutOfMemory) }
    }

    fn write(&self, src: Data<'_>, dst: &mut Memory) -> DeviceResult<Self> {
        assert_eq!(src.dtype(), dst.0, "host data of another type than the buffer");
        match src {
            Data::F32(x) => dst.1.iter_mut().zip(x).for_each(|(y, &x)| *y = f64::from(x)),
            Data::F16(x) => dst.1.iter_mut().zip(x).for_each(|(y, &x)| *y = x.to_f64()),
            Data::U8(x) => dst.1.iter_mut().zip(x).for_each(|(y, &x)| *y = f64::from(x)),
            Data::U32(x) => dst.1.iter_mut().zip(x).for_each(|(y, &x)| *y = f64::from(x)),
        }
        Ok(())
    }

    async fn read(&self, src: &Memory, dst: DataMut<'_>) -> DeviceResult<Self> {
        assert_eq!(dst.dtype(), src.0, "host memory of another type than the buffer");
        match dst {
            DataMut::F32(y) => y.iter_mut().zip(&src.1).for_each(|(y, &x)| *y = x as f32),
            DataMut::F16(y) => y.iter_mut().zip(&src.1).for_each(|(y, &x)| *y = half::f16::from_f64(x)),
            DataMut::U8(y) => y.iter_mut().zip(&src.1).for_each(|(y, &x)| *y = x as u8),
            DataMut::U32(y) => y.iter_mut().zip(&src.1).for_each(|(y, &x)| *y = x as u32),
        }
        Ok(())
    }

    fn table(&self, slots: u16, hyperparameters: u16) -> Result<Table, ErrorKind> {
        let (slots, hyperparameters) = (usize::from(slots), vec![0.0; usize::from(hyperparameters)]);
        let rows = RefCell::new(vec![EMPTY; slots]);
        Ok(Table { exponents: vec![0; slots], hyperparameters, seed: 0, detail: Detail::Moments, rows })
    }

    fn upload(&self, control: &Control<'_>, clear: Range<u16>, table: &mut Table) -> DeviceResult<Self> {
        if !self.on(Fault::ControlIgnored) || table.exponents.iter().all(|&e| e == 0) {
            table.exponents.copy_from_slice(control.exponents);
        }
        table.hyperparameters.copy_from_slice(control.hyperparameters);
        table.seed = if self.on(Fault::SeedIgnored) { 0 } else { control.seed };
        table.detail = control.detail;
        table.rows.get_mut()[usize::from(clear.start)..usize::from(clear.end)].fill(EMPTY);
        Ok(())
    }

    async fn collect(
        &self, table: &Table, rows: Range<u16>, out: &mut [Stats], scalars: &[&Memory], values: &mut [f32],
    ) -> DeviceResult<Self> {
        out.copy_from_slice(&table.rows.borrow()[usize::from(rows.start)..usize::from(rows.end)]);
        values.iter_mut().zip(scalars).for_each(|(value, scalar)| *value = scalar.get(0));
        Ok(())
    }

    fn fuses_attention(&self, _: &Attention) -> bool {
        true
    }

    fn launch(&self, launch: Launch<OnDevice<'_, Self>>) -> DeviceResult<Self> {
        match launch {
            Launch::Unary { op, len, x, y } => self.unary(op, len, x, y),
            Launch::Round { format, len, x, y } => self.put_in(format, y, (0..len as usize).map(|i| x.get(i))),
            Launch::RoundBlocks { format, rows, columns, x, y } => self.round_blocks(format, [rows, columns], x, y),
            Launch::Pack { format, len, x, y } => self.pack(format, len, x, y),
            Launch::Unpack { format, len, x, y } => self.unpack(format, len, x, y),
            Launch::Binary { p, a, b, y } => self.binary(&p, a, b, y),
            Launch::Sum { len, terms, y } => self.sum(len, terms, y),
            Launch::Reduce { p, x, y } => self.reduce(&p, x, y),
            Launch::Copy { p, x, y } => self.copy(&p, x, y),
            Launch::Gemm { p, a, b, bias, y } => self.gemm(&p, a, b, bias, y),
            Launch::Conv { p, pass, a, b, bias, y } => self.conv(&p, pass, a, b, bias, y),
            Launch::Pool { p, x, indices, y } => self.pool(&p, x, indices, y),
            Launch::Unpool { p, way, x, indices, y } => self.unpool(&p, way, x, indices, y),
            Launch::Rows { p, way, x, indices, y } => self.rows(&p, way, x, indices, y),
            Launch::RoiAlign { p, way, x, boxes, y } => self.roi_align(&p, way, x, boxes, y),
            Launch::RoiPool { p, x, boxes, indices, y } => self.roi_pool(&p, x, boxes, indices, y),
            Launch::RoiUnpool { p, x, boxes, indices, y } => self.roi_unpool(&p, x, boxes, indices, y),
            Launch::Norm { p, x, affine, saved, y } => self.norm(&p, x, affine, saved, y),
            Launch::NormVjp { p, x, dy, dx, affine } => self.norm_vjp(&p, x, dy, dx, affine),
            Launch::Softmax { p, x, selection, y } => self.softmax(&p, x, selection, y),
            Launch::SoftmaxVjp { p, y, dy, dx } => self.softmax_vjp(&p, y, dy, dx),
            Launch::Attention { p, x, log_sums, y } => self.attention(&p, x, log_sums, y),
            Launch::AttentionVjp { p, x, y, log_sums, dy, dp, ds, dq, dk, dv } => {
                self.attention_vjp(&p, x, [y, log_sums, dy], [dp, ds], [dq, dk, dv])
            }
            Launch::Lstm { p, x, y, state } => self.lstm(&p, x, y, state),
            Launch::LstmVjp { p, x, dh, dc, y, state } => self.lstm_vjp(&p, x, dh, dc, y, state),
            Launch::Gru { p, x, y } => self.gru(&p, x, y),
            Launch::GruVjp { p, x, dh, y, dx, state } => self.gru_vjp(&p, x, dh, y, dx, state),
            Launch::CrossEntropy { p, x, out } => self.cross_entropy(&p, x, out),
            Launch::CrossEntropyVjp { p, x, out, g, dx } => self.cross_entropy_vjp(&p, x, out, g, dx),
            Launch::Ctc { p, x, losses, gradient } => crate::ctc::run(&p, x, losses, gradient),
            Launch::GlobalNorm { gradients, norm } => self.global_norm(gradients, norm),
            Launch::Optimize { p, table, guard, norm, parameters } => {
                self.optimize(&p, table, &guard, norm, parameters)
            }
        }
    }
}
