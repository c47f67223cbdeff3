//! Strided copies: positions, bits, and elements that must not change.

use super::Case;
use crate::{
    case::{Check, Fail},
    compare::same_bits,
    data::{Random, edges, held},
    epilogue::{self, same_row, stored},
    property::property,
    rig::{Output, Rig},
    wait::block_on,
};
use gradscale_core::{
    backend::{Backend, Buffer, DType, Data, DataMut, Launch, Slot, Store},
    ops::{Dim, Strided},
    scale::Factor,
    stats::Detail,
};
use half::f16;
use proptest::prelude::*;

const TYPES: [DType; 4] = [DType::F32, DType::F16, DType::U8, DType::U32];

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    for (name, layout) in layouts() {
        cases.push(Case::new(format!("copy::{name}"), move |b: &B| {
            TYPES.into_iter().try_for_each(|dtype| moves_bits(b, dtype, &layout, 7))?;
            Ok(vec![])
        }));
    }
    cases.push(Case::new("copy::concatenate", concatenate::<B>));
    cases.push(Case::new("copy::neighbours_in_a_word", neighbours::<B>));
    cases.push(Case::new("copy::every_half_and_edge", every_value::<B>));
    cases.push(Case::new("copy::types", types::<B>));
    cases.push(Case::new("copy::part_scaled", part_scaled::<B>));
    cases.push(Case::new("copy::epilogue", |b: &B| {
        let mut rig = Rig::new(b)?;
        let x = rig.padded(DType::F16, &Random(8).many(61 * 83, |random| random.normal() * 1e-2))?;
        let p = transposed(61, 83).build();
        epilogue::check(&mut rig, 61 * 83, |b, y| b.launch(Launch::Copy { p: p.clone(), x: &x, y }))?;
        Ok(vec![])
    }));
    cases.push(Case::new("copy::any", any_copy::<B>));
}

/// A copy: (length, stride in x, stride in y) of each dimension, first elements.
#[derive(Clone, Debug)]
struct Layout {
    dims: Vec<(u32, i64, i64)>,
    start: [u32; 2],
}

impl Layout {
    fn new(dims: &[(u32, i64, i64)], start: [u32; 2]) -> Self {
        Self { dims: dims.to_vec(), start }
    }

    fn build(&self) -> Strided {
        let dims: Vec<Dim> = self.dims.iter().map(|&(len, x, y)| Dim { len, x, y }).collect();
        Strided::new(&dims, self.start[0], self.start[1]).expect("a valid copy")
    }

    /// Returns all pairs (position in x, position in y), by nested loops.
    fn moves(&self) -> Vec<[usize; 2]> {
        fn walk(dims: &[(u32, i64, i64)], at: [i64; 2], moves: &mut Vec<[usize; 2]>) {
            match dims.split_first() {
                None => moves.push(at.map(|i| usize::try_from(i).expect("inside"))),
                Some((&(len, x, y), rest)) => {
                    (0..i64::from(len)).for_each(|i| walk(rest, [at[0] + i * x, at[1] + i * y], moves));
                }
            }
        }
        let mut moves = Vec::new();
        walk(&self.dims, self.start.map(i64::from), &mut moves);
        moves
    }

    /// Elements that x and y must have.
    fn reach(&self) -> [usize; 2] {
        let moves = self.moves();
        [0, 1].map(|side| moves.iter().map(|places| places[side] + 1).max().unwrap_or(0))
    }
}

fn transposed(rows: u32, cols: u32) -> Layout {
    Layout::new(&[(cols, 1, rows.into()), (rows, cols.into(), 1)], [0, 0])
}

fn layouts() -> Vec<(&'static str, Layout)> {
    vec![
        ("transpose", transposed(33, 65)),
        ("nhwc_to_nchw", Layout::new(&[(2, 105, 105), (3, 1, 35), (5, 21, 7), (7, 3, 1)], [0, 0])),
        (
            "six_dimensions",
            Layout::new(&[(2, 1, 108), (3, 2, 36), (2, 6, 18), (3, 12, 6), (2, 36, 3), (3, 72, 1)], [0, 0]),
        ),
        ("slice", Layout::new(&[(9, 77, 25), (5, 7, 5), (5, 1, 1)], [16, 0])),
        ("pad", Layout::new(&[(4, 15, 27), (5, 3, 3), (3, 1, 1)], [0, 33])),
        ("flip", Layout::new(&[(5, 21, 21), (7, -3, 3), (3, -1, 1)], [20, 0])),
        ("flip_in_y", Layout::new(&[(5, 21, -21), (21, 1, 1)], [0, 84])),
        ("repeat", Layout::new(&[(4, 15, 60), (2, 0, 30), (5, 3, 6), (2, 0, 3), (3, 1, 1)], [0, 0])),
        ("broadcast", Layout::new(&[(300, 0, 1)], [5, 3])),
        ("one_element", Layout::new(&[], [3, 2])),
        ("nothing", Layout::new(&[(3, 1, 1), (0, 5, 5), (2, 1, 1)], [4, 4])),
        ("long", Layout::new(&[(65_537, 1, 1)], [3, 1])),
        ("long_transpose", transposed(1023, 257)),
        ("overlapping_reads", Layout::new(&[(60, 1, 8), (8, 1, 1)], [0, 0])),
    ]
}

/// A buffer of these bits.
fn write<B: Backend>(b: &B, bits: &[u32], buffer: &mut B::Buffer) -> Result<(), Fail> {
    match buffer.dtype() {
        DType::F32 => b.write(Data::F32(&bits.iter().map(|&x| f32::from_bits(x)).collect::<Vec<_>>()), buffer)?,
        DType::F16 => {
            b.write(Data::F16(&bits.iter().map(|&x| f16::from_bits(x as u16)).collect::<Vec<_>>()), buffer)?
        }
        DType::U8 => b.write(Data::U8(&bits.iter().map(|&x| x as u8).collect::<Vec<_>>()), buffer)?,
        DType::U32 => b.write(Data::U32(bits), buffer)?,
    }
    Ok(())
}

/// Reads the first bits of an output, and checks its guards.
fn take<B: Backend>(rig: &Rig<'_, B>, output: &Output<B>, len: usize) -> Result<Vec<u32>, Fail> {
    rig.take(output)?;
    Ok(match output.buffer.dtype() {
        DType::F32 => {
            let mut values = vec![0f32; len];
            block_on(rig.backend.read(&output.buffer, DataMut::F32(&mut values)))?;
            values.iter().map(|v| v.to_bits()).collect()
        }
        DType::F16 => {
            let mut values = vec![f16::ZERO; len];
            block_on(rig.backend.read(&output.buffer, DataMut::F16(&mut values)))?;
            values.iter().map(|v| v.to_bits().into()).collect()
        }
        DType::U8 => {
            let mut values = vec![0u8; len];
            block_on(rig.backend.read(&output.buffer, DataMut::U8(&mut values)))?;
            values.iter().map(|&v| v.into()).collect()
        }
        DType::U32 => {
            let mut values = vec![0u32; len];
            block_on(rig.backend.read(&output.buffer, DataMut::U32(&mut values)))?;
            values
        }
    })
}

fn random_bits(dtype: DType, len: usize, seed: u64) -> Vec<u32> {
    let mut random = Random(seed);
    (0..len).map(|_| one(dtype, random.bits() as u32)).collect()
}

/// The bits that a type has; all NaN are one.
fn one(dtype: DType, bits: u32) -> u32 {
    match dtype {
        DType::F32 if f32::from_bits(bits).is_nan() => f32::NAN.to_bits(),
        DType::F16 if f16::from_bits(bits as u16).is_nan() => f16::NAN.to_bits().into(),
        DType::F16 => bits & 0xFFFF,
        DType::U8 => bits & 0xFF,
        DType::F32 | DType::U32 => bits,
    }
}

fn expect(what: &str, dtype: DType, got: &[u32], want: &[u32]) -> Result<(), Fail> {
    match got.iter().zip(want).position(|(&got, &want)| one(dtype, got) != one(dtype, want)) {
        None => Ok(()),
        Some(i) => Err(Fail::new(format!("{what}, {dtype:?}: element {i} is {:#x}, not {:#x}", got[i], want[i]))),
    }
}

/// Copies within one type and slot keep all bits, those of subnormals and zeros too, and change no other element.
fn moves_bits<B: Backend>(b: &B, dtype: DType, layout: &Layout, seed: u64) -> Result<(), Fail> {
    let mut rig = Rig::new(b)?;
    rig.set(&[21])?;
    let (p, reach) = (layout.build(), layout.reach());
    if !layout.moves().is_empty() && p.reach().map(|n| n as usize) != reach {
        return Err(Fail::new(format!("the descriptor reaches {:?}, the loops {reach:?}", p.reach())));
    }
    let source = random_bits(dtype, reach[0], seed);
    // Some elements after the last written one belong to the tensor too.
    let mut want = random_bits(dtype, reach[1] + 5, seed + 1);
    let mut x = b.alloc(dtype, source.len())?;
    write(b, &source, &mut x)?;
    let mut y = rig.output(dtype, want.len())?;
    write(b, &want, &mut y.buffer)?;
    b.launch(Launch::Copy { p: p.clone(), x: &x, y: Store::keep(Slot(2), &rig.table, &mut y.buffer) })?;
    layout.moves().iter().for_each(|&[from, to]| want[to] = source[from]);
    expect("copy", dtype, &take(&rig, &y, want.len())?, &want)?;
    same_row("an unobserved copy", &rig, Slot(2), &[], Detail::None)
}

/// Concatenates three tensors along the last dimension of y.
fn concatenate<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let (rows, widths) = (57, [3u32, 5, 1]);
    let width: u32 = widths.iter().sum();
    for dtype in TYPES {
        let mut want = random_bits(dtype, (rows * width) as usize, 1);
        let mut y = rig.output(dtype, want.len())?;
        write(b, &want, &mut y.buffer)?;
        let mut start = 0;
        for part in widths {
            let source = random_bits(dtype, (rows * part) as usize, part.into());
            let mut x = b.alloc(dtype, source.len())?;
            write(b, &source, &mut x)?;
            let layout = Layout::new(&[(rows, part.into(), width.into()), (part, 1, 1)], [0, start]);
            b.launch(Launch::Copy { p: layout.build(), x: &x, y: Store::keep(Slot::ONE, &rig.table, &mut y.buffer) })?;
            layout.moves().iter().for_each(|&[from, to]| want[to] = source[from]);
            expect("a part", dtype, &take(&rig, &y, want.len())?, &want)?;
            start += part;
        }
    }
    Ok(vec![])
}

/// Bytes and halves whose neighbours in the same word stay: every start, length and stride.
fn neighbours<B: Backend>(b: &B) -> Check {
    for dtype in [DType::U8, DType::F16] {
        for (start, len, stride) in
            (0..5).flat_map(|start| (1..8).flat_map(move |len| (1..6).map(move |stride| (start, len, stride))))
        {
            moves_bits(b, dtype, &Layout::new(&[(len, 1, stride)], [start / 2, start]), len.into())?;
        }
    }
    Ok(vec![])
}

fn every_value<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let halves: Vec<u32> = (0..=u16::MAX).map(u32::from).collect();
    let floats: Vec<u32> = edges().iter().map(|v| v.to_bits()).chain(random_bits(DType::F32, 50_000, 3)).collect();
    for (dtype, bits) in [(DType::F16, halves), (DType::F32, floats)] {
        let mut x = b.alloc(dtype, bits.len())?;
        write(b, &bits, &mut x)?;
        let mut y = rig.output(dtype, bits.len())?;
        let p = Layout::new(&[(bits.len() as u32, 1, 1)], [0, 0]).build();
        b.launch(Launch::Copy { p: p.clone(), x: &x, y: Store::keep(Slot::ONE, &rig.table, &mut y.buffer) })?;
        expect("every value", dtype, &take(&rig, &y, bits.len())?, &bits)?;
    }
    Ok(vec![])
}

/// Copies between types: from bytes and words to wider types, and from f32 to narrower ones.
fn types<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let layout = Layout::new(&[(16, 1, 16), (16, 16, 1)], [0, 0]);
    let bytes: Vec<f32> = (0..=255u8).map(f32::from).collect();
    let small = |scale: f32| Random(4).many(256, |random| random.normal() * scale);
    let pairs = [
        (DType::U8, DType::F32, bytes.clone()),
        (DType::U8, DType::F16, bytes.clone()),
        (DType::U32, DType::F32, bytes.iter().map(|v| v * 65_793.0).collect()),
        (DType::F16, DType::F32, small(1.0)),
        (DType::F32, DType::F16, small(1.1)),
    ];
    for (from, to, values) in pairs {
        let x = rig.padded(from, &values)?;
        let mut y = rig.output(to, 256)?;
        b.launch(Launch::Copy { p: layout.build(), x: &x, y: Store::keep(Slot::ONE, &rig.table, &mut y.buffer) })?;
        let (values, mut want) = (held(from, &values), vec![0f32; 256]);
        layout.moves().iter().for_each(|&[from, to]| want[to] = values[from]);
        same_bits(&format!("{from:?} to {to:?}"), &rig.take(&y)?, &stored(&rig, to, &want))?;
    }
    Ok(vec![])
}

/// Copies between slots: only the copied elements are scaled, observed and optionally added.
fn part_scaled<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let layout = Layout::new(&[(11, 9, 13), (7, -1, 1)], [6, 4]);
    let [x_len, y_len] = layout.reach();
    let before = Random(6).many(y_len + 5, Random::half);
    for (from, to) in [(0, 0), (5, 17), (40, 31), (-1_000_000, -999_985)] {
        let factor = Factor::between(from, to);
        for (tx, ty, add) in
            TYPES[..3].iter().flat_map(|&tx| TYPES[..2].iter().flat_map(move |&ty| [(tx, ty, false), (tx, ty, true)]))
        {
            rig.set(&[from, to])?;
            let mut random = Random(5);
            let values =
                random.many(x_len, |random| if tx == DType::U8 { random.below(256) as f32 } else { random.normal() });
            let x = rig.padded(tx, &values)?;
            let mut y = rig.output_over(ty, &before)?;
            b.launch(Launch::Copy {
                p: layout.build(),
                x: &x,
                y: Store { add, ..Store::site(Slot(2), Slot(3), &rig.table, &mut y.buffer) },
            })?;
            let mut want = held(ty, &before);
            let mut sums = Vec::new();
            for [source, place] in layout.moves() {
                let u = factor.apply(held(tx, &values)[source]);
                sums.push(if add { want[place] + u } else { u });
                want[place] = stored(&rig, ty, &sums[sums.len() - 1..])[0];
            }
            let what = format!("{tx:?} to {ty:?} from 2^{from} to 2^{to}, add {add}");
            same_bits(&what, &rig.take(&y)?, &want)?;
            same_row(&what, &rig, Slot(3), &sums, Detail::Moments)?;
        }
        // Integers are neither scaled nor observed.
        rig.set(&[from, to])?;
        let bytes = Random(9).many(x_len, |random| random.below(256) as f32);
        let x = rig.input(DType::U8, &bytes)?;
        let mut y = rig.output_over(DType::U8, &vec![7.0; y_len])?;
        b.launch(Launch::Copy {
            p: layout.build(),
            x: &x,
            y: Store::site(Slot(2), Slot(3), &rig.table, &mut y.buffer),
        })?;
        let mut want = vec![7.0; y_len];
        layout.moves().iter().for_each(|&[from, to]| want[to] = bytes[from]);
        same_bits("bytes", &rig.take(&y)?, &want)?;
        same_row("bytes", &rig, Slot(3), &[], Detail::None)?;
    }
    Ok(vec![])
}

/// Any copy of up to six dimensions, any strides of x, nested strides of y in any order and direction.
fn any_copy<B: Backend>(b: &B) -> Check {
    let dims = prop::collection::vec((0..5u32, -7..8i64, 0..3i64, any::<bool>(), any::<u32>()), 0..=6);
    property(
        &(dims, 0..9i64, 0..9i64, prop::sample::select(TYPES.to_vec()), any::<u32>()),
        |(dims, x0, y0, dtype, seed)| {
            let layout = nested(&dims, [x0, y0]);
            moves_bits(b, dtype, &layout, seed.into())?;
            Ok(vec![])
        },
    )
}

/// Dimensions of (length, stride in x, gap in y, whether y runs down, rank of its stride in y).
fn nested(dims: &[(u32, i64, i64, bool, u32)], mut start: [i64; 2]) -> Layout {
    let mut order: Vec<usize> = (0..dims.len()).collect();
    order.sort_by_key(|&i| dims[i].4);
    let (mut covered, mut built) = (0, vec![(0, 0, 0); dims.len()]);
    for i in order {
        let (len, x, gap, down, _) = dims[i];
        let steps = i64::from(len.max(1)) - 1;
        let y = covered + 1 + gap;
        covered += steps * y;
        built[i] = (len, x, if down { -y } else { y });
        start[0] += if x < 0 { -x * steps } else { 0 };
        start[1] += if down { y * steps } else { 0 };
    }
    Layout::new(&built, start.map(|at| u32::try_from(at).expect("small")))
}
