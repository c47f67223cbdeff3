//! Operands of steps of recurrent cells with that many gates, in several shapes and types.

use crate::{
    case::{Check, Fail},
    data::{Random, readable},
    property::merge,
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, CellArgs, DType},
    ops::CellStep,
};

/// Operands of a step, forward and backward.
#[derive(Clone, Debug)]
pub struct Cell<const GATES: usize> {
    pub rows: usize,
    pub hidden: usize,
    /// Step that is read, and number of steps.
    pub step: [usize; 2],
    /// Types of the products, of the state and of dh.
    pub dtypes: [DType; 3],
    pub x: Vec<f32>,
    pub h: Vec<f32>,
    pub state: Vec<f32>,
    pub dh: Vec<f32>,
    /// Gradient of a state that an operator writes besides its result.
    pub dc: Option<Vec<f32>>,
}

impl<const GATES: usize> Cell<GATES> {
    pub fn new([rows, hidden]: [usize; 2], step: [usize; 2], dtypes: [DType; 3], seed: u64) -> Self {
        let mut random = Random(seed);
        let [of_gates, of_state, of_dh] = dtypes;
        let mut values = |dtype, len| readable(dtype, &random.many(len, |random| random.normal() * 1.5));
        let (gates, units) = (GATES * rows * hidden, rows * hidden);
        let [x, h] = [gates * step[1], gates].map(|len| values(of_gates, len));
        let (state, dh, dc) = (values(of_state, units), values(of_dh, units), Some(values(DType::F32, units)));
        let mut cell = Self { rows, hidden, step, dtypes, x, h, state, dh, dc };
        // Other steps are never read.
        for i in 0..cell.x.len() {
            if !cell.is_of_step(i) {
                cell.x[i] = f32::NAN;
            }
        }
        cell
    }

    /// Descriptor of the step of a cell with these gates, whose number the caller's descriptor has.
    pub fn build<const N: u32>(&self) -> CellStep<N> {
        let [step, steps] = self.step.map(|number| number as u32);
        let p = CellStep::new(self.rows as u32, self.hidden as u32);
        p.and_then(|p| p.of_step(step, steps)).expect("a valid shape")
    }

    /// True if an element of the products with the inputs belongs to the step.
    pub fn is_of_step(&self, i: usize) -> bool {
        i / (GATES * self.hidden) % self.step[1] == self.step[0]
    }

    /// Index of a gate of a unit in the products with h, and in those with x.
    pub fn places(&self, unit: usize, gate: usize) -> [usize; 2] {
        let (row, k) = (unit / self.hidden, unit % self.hidden);
        let place = |row: usize| (row * GATES + gate) * self.hidden + k;
        [place(row), place(row * self.step[1] + self.step[0])]
    }

    /// Products of a unit's gates in f64, with x and with h.
    pub fn products(&self, unit: usize) -> [[f64; 2]; GATES] {
        core::array::from_fn(|gate| {
            let [h, x] = self.places(unit, gate);
            [f64::from(self.x[x]), f64::from(self.h[h])]
        })
    }
}

/// Operands in a device's memory.
pub struct Buffers<B: Backend> {
    x: [B::Buffer; 3],
    pub dh: B::Buffer,
    pub dc: Option<B::Buffer>,
}

impl<B: Backend> Buffers<B> {
    pub fn new<const GATES: usize>(rig: &Rig<'_, B>, cell: &Cell<GATES>) -> Result<Self, Fail> {
        let [of_gates, of_state, of_dh] = cell.dtypes;
        Ok(Self {
            x: [rig.padded(of_gates, &cell.x)?, rig.padded(of_gates, &cell.h)?, rig.padded(of_state, &cell.state)?],
            dh: rig.padded(of_dh, &cell.dh)?,
            dc: cell.dc.as_ref().map(|dc| rig.padded(DType::F32, dc)).transpose()?,
        })
    }

    pub fn args(&self) -> CellArgs<&B::Buffer> {
        let [x, h, state] = &self.x;
        CellArgs { x, h, state }
    }
}

/// Shapes × types: units in eights and others, one step and several.
pub fn all<B: Backend, const GATES: usize>(b: &B, check: impl Fn(&Rig<'_, B>, &Cell<GATES>) -> Check) -> Check {
    const TYPES: [[DType; 3]; 3] =
        [[DType::F16, DType::F32, DType::F16], [DType::F32; 3], [DType::F16, DType::F16, DType::F32]];
    let (rig, mut measured) = (Rig::new(b)?, vec![]);
    let shapes = [([1, 1], [0, 1]), ([3, 5], [2, 3]), ([2, 40], [1, 4]), ([5, 1100], [0, 1]), ([0, 4], [0, 2])];
    for (shape, step) in shapes {
        for (seed, dtypes) in (110..).zip(TYPES) {
            let mut cell = Cell::new(shape, step, dtypes, seed);
            if seed == 111 {
                // Gates at their ends. A device without f32 subnormals may flush gates below e^-87, and their products with
                // large numbers with them, so gates are larger there.
                let most = if b.caps().f32_subnormals { f32::INFINITY } else { 75.0 };
                cell.h.iter_mut().step_by(3).for_each(|h| *h = (*h * 100.0).clamp(-most, most));
            }
            if seed == 112 {
                cell.dc = None;
            }
            merge(&mut measured, &check(&rig, &cell)?);
        }
    }
    Ok(measured)
}

/// Sets the gates of units 3 and 20 to ±∞, a gate of unit 9 to NaN and the state of unit 33 to ∞, and checks the results
/// of these units against `exact`. Other units must have the results of `clean`, bit by bit.
pub fn check_not_finite<const GATES: usize, const RESULTS: usize>(
    clean: &Cell<GATES>, run: impl Fn(&Cell<GATES>) -> Result<[Vec<f32>; RESULTS], Fail>,
    exact: impl Fn(&Cell<GATES>) -> [Vec<f64>; RESULTS],
) -> Check {
    let mut cell = clean.clone();
    for gate in 0..GATES {
        let [_, x] = cell.places(3, gate);
        cell.x[x] = f32::INFINITY;
        let [_, x] = cell.places(20, gate);
        cell.x[x] = f32::NEG_INFINITY;
    }
    let [h, _] = clean.places(9, 1);
    cell.h[h] = f32::NAN;
    cell.state[33] = f32::INFINITY;
    let (got, plain, want) = (run(&cell)?, run(clean)?, exact(&cell));
    for ((got, plain), want) in got.iter().zip(&plain).zip(&want) {
        for (unit, ((&got, &plain), &want)) in got.iter().zip(plain).zip(want).enumerate() {
            let right = if ![3, 9, 20, 33].contains(&unit) {
                got.to_bits() == plain.to_bits()
            } else if want.is_finite() {
                (f64::from(got) - want).abs() < 1e-4
            } else {
                got.is_nan() == want.is_nan()
            };
            if !right {
                return Err(Fail::new(format!("unit {unit} has {got}, not {want}")));
            }
        }
    }
    Ok(vec![])
}
