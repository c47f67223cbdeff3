//! Derivatives of normalisations: against formulas in f64, which central differences confirm.

use super::{
    Case,
    norm::{Spec, Statistics, layer, rms, spec, specs, wide},
};
use crate::{
    case::{Check, Fail},
    compare::{Want, compare, same_bits},
    data::{Random, is_small, readable},
    epilogue::{self, same_row, stored},
    property::merge,
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, DType, Launch, NormSaved, Slot, Store},
    ops::NormOver,
    scale::Factor,
    stats::Detail,
};

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    for (name, specs) in specs() {
        cases.push(Case::new(format!("norm_vjp::{name}"), move |b: &B| formulas(b, &specs)));
    }
    cases.push(Case::new("norm_vjp::given", |b: &B| {
        let specs: Vec<Spec> = specs().into_iter().flat_map(|(_, specs)| specs).map(Spec::given).collect();
        formulas(b, &specs)
    }));
    cases.push(Case::new("norm_vjp::central_differences", differences::<B>));
    cases.push(Case::new("norm_vjp::parameter_gradients", parameters::<B>));
    cases.push(Case::new("norm_vjp::epilogue", stores::<B>));
}

/// Gradients of x, scale and shift.
struct Wants {
    dx: Vec<Want>,
    scale: Vec<Want>,
    shift: Vec<Want>,
}

/// The vjp, with statistics as saved. Given ones are constants; without a mean to subtract its term is missing.
fn formula(spec: &Spec, x: &[f64], statistics: &Statistics, dy: &[f64], scale: Option<&[f64]>) -> Wants {
    let (normal, inverse) = (spec.normal(x, statistics), spec.inverse(statistics));
    let (of, channels) = (spec.group_of(), spec.channels());
    let u: Vec<f64> =
        dy.iter().enumerate().map(|(i, dy)| dy * scale.map_or(1.0, |scale| scale[i % channels])).collect();
    // Means over each group of u and of u·x̂, with the means of their magnitudes.
    let means: Vec<[Want; 2]> = spec
        .groups()
        .iter()
        .map(|members| {
            let share = 1.0 / members.len().max(1) as f64;
            let plain = Want::sum(members.iter().map(|&i| u[i])).times(share);
            [plain, Want::sum(members.iter().map(|&i| u[i] * normal[i])).times(share)]
        })
        .collect();
    let dx = (0..x.len()).map(|i| {
        let [mut plain, mut weighted] = means[of[i]];
        if !spec.center || spec.given {
            plain = Want::sum([]);
        }
        if spec.given {
            weighted = Want::sum([]);
        }
        let value = (u[i] - plain.value - normal[i] * weighted.value) * inverse[of[i]];
        let scale = (u[i].abs() + plain.scale + normal[i].abs() * weighted.scale) * inverse[of[i]];
        Want { value, scale, terms: weighted.terms.max(1) }
    });
    let column = |c: usize| (0..x.len()).skip(c).step_by(channels.max(1));
    Wants {
        dx: dx.collect(),
        scale: (0..channels).map(|c| Want::sum(column(c).map(|i| dy[i] * normal[i]))).collect(),
        shift: (0..channels).map(|c| Want::sum(column(c).map(|i| dy[i]))).collect(),
    }
}

/// Operands of a vjp, as a device holds them.
struct Operands<B: Backend> {
    x: B::Buffer,
    saved: B::Buffer,
    dy: B::Buffer,
    scale: B::Buffer,
    wants: [Wants; 2],
}

impl<B: Backend> Operands<B> {
    /// Creates the operands, with the statistics of x unless others are given.
    fn new(rig: &Rig<'_, B>, spec: &Spec, types: [DType; 2], seed: u64) -> Result<Self, Fail> {
        let mut random = Random(seed);
        let x = readable(types[0], &random.many(spec.len(), |random| random.normal() * 1.7 + 0.5));
        let dy = readable(types[1], &random.many(spec.len(), |random| random.normal() * 0.9));
        let scale = random.many(spec.channels(), Random::normal);
        let statistics = if spec.given {
            let groups = spec.groups().len();
            let means = random.many(groups, |random| if spec.center { random.normal() } else { 0.0 });
            [means, random.many(groups, |random| random.unit() + 0.01)]
        } else {
            spec.statistics(&wide(&x)).map(|values| values.iter().map(|&v| v as f32).collect())
        };
        // The saved statistics are f32; the formula uses them without further rounding.
        let exact = [wide(&statistics[0]), wide(&statistics[1])];
        let wants = |scale| formula(spec, &wide(&x), &exact, &wide(&dy), scale);
        Ok(Self {
            wants: [wants(None), wants(Some(&wide(&scale)))],
            x: rig.padded(types[0], &x)?,
            saved: rig.padded(DType::F32, &statistics.concat())?,
            dy: rig.padded(types[1], &dy)?,
            scale: rig.padded(DType::F32, &scale)?,
        })
    }

    fn normed(&self, scaled: bool) -> NormSaved<&B::Buffer> {
        NormSaved { x: &self.x, saved: &self.saved, weight: scaled.then_some(&self.scale) }
    }
}

/// Runs the vjp into f32 at exponent 0; gradients of the parameters are computed only on request.
fn run<B: Backend>(
    rig: &Rig<'_, B>, spec: &Spec, operands: &Operands<B>, scaled: bool, parameters: bool,
) -> Result<[Vec<f32>; 3], Fail> {
    let (b, table, channels) = (rig.backend, &rig.table, spec.channels());
    let mut outputs =
        [rig.output(DType::F32, spec.len())?, rig.output(DType::F32, channels)?, rig.output(DType::F32, channels)?];
    let [dx, scale, shift] = outputs.each_mut().map(|output| Store::keep(Slot::ONE, table, &mut output.buffer));
    let affine = parameters.then_some([scale, shift]);
    b.launch(Launch::NormVjp { p: spec.build(), x: operands.normed(scaled), dy: &operands.dy, dx, affine })?;
    let [dx, scale, shift] = &outputs;
    Ok([rig.take(dx)?, rig.take(scale)?, rig.take(shift)?])
}

fn formulas<B: Backend>(b: &B, specs: &[Spec]) -> Check {
    let rig = Rig::new(b)?;
    let mut measured = vec![];
    let types = [[DType::F32, DType::F32], [DType::F16, DType::F16], [DType::F32, DType::F16]];
    for (spec, types) in
        specs.iter().filter(|spec| is_small(spec.len())).flat_map(|spec| types.map(|types| (spec, types)))
    {
        let operands = Operands::new(&rig, spec, types, 50)?;
        for (scaled, parameters) in [(false, false), (true, false), (true, true)] {
            let got = run(&rig, spec, &operands, scaled, parameters)?;
            let wants = &operands.wants[usize::from(scaled)];
            let pairs = [(&got[0], &wants.dx), (&got[1], &wants.scale), (&got[2], &wants.shift)];
            for (got, want) in pairs.into_iter().take(if parameters { 3 } else { 1 }) {
                let seen = compare("norm_vjp", DType::F32, &b.caps(), got, want)?;
                merge(&mut measured, &[seen]);
            }
        }
    }
    Ok(measured)
}

/// The formulas against slopes of the forward pass in f64, then the device against the formulas.
fn differences<B: Backend>(b: &B) -> Check {
    let batch = spec([2, 3, 2, 4], NormOver::Batch, 1e-3);
    let group = spec([2, 2, 2, 6], NormOver::Group(3), 1e-3);
    for spec in [batch, group, layer(4, 9), rms(4, 9), batch.given(), layer(4, 9).given(), rms(4, 9).given()] {
        let mut random = Random(51);
        let mut wider = |len: usize| wide(&random.many(len, Random::normal));
        let (x, dy) = (wider(spec.len()), wider(spec.len()));
        let (scale, shift) = (wider(spec.channels()), wider(spec.channels()));
        let constant = {
            let groups = spec.groups().len();
            [if spec.center { wider(groups) } else { vec![0.0; groups] }, vec![0.7; groups]]
        };
        let statistics = |x: &[f64]| if spec.given { constant.clone() } else { spec.statistics(x) };
        let loss = |x: &[f64], scale: &[f64], shift: &[f64]| -> f64 {
            let normal = spec.normal(x, &statistics(x));
            let y = normal.iter().enumerate().map(|(i, v)| v * scale[i % scale.len()] + shift[i % shift.len()]);
            y.zip(&dy).map(|(y, dy)| y * dy).sum()
        };
        let slope = |of: &dyn Fn(f64) -> f64| (of(1e-5) - of(-1e-5)) / 2e-5;
        let moved = |values: &[f64], i: usize, by: f64| {
            let mut values = values.to_vec();
            values[i] += by;
            values
        };
        let wants = formula(&spec, &x, &statistics(&x), &dy, Some(&scale));
        let dx = (0..x.len()).map(|i| slope(&|h| loss(&moved(&x, i, h), &scale, &shift)));
        let dscale = (0..scale.len()).map(|c| slope(&|h| loss(&x, &moved(&scale, c, h), &shift)));
        let dshift = (0..shift.len()).map(|c| slope(&|h| loss(&x, &scale, &moved(&shift, c, h))));
        let slopes = dx.chain(dscale).chain(dshift);
        for (i, (slope, want)) in slopes.zip(wants.dx.iter().chain(&wants.scale).chain(&wants.shift)).enumerate() {
            if (slope - want.value).abs() > 1e-7 * (1.0 + want.scale) {
                return Err(Fail::new(format!("{spec:?}: formula {i} gives {}, slope {slope}", want.value)));
            }
        }
        formulas(b, &[spec])?;
    }
    Ok(vec![])
}

/// Runs all three results in one call, each with its own slot: dx at a site, and the parameters' gradients as f32 times
/// 2^-α, added to those of the last micro-batch.
fn parameters<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for (spec, (alpha, to)) in [spec([3, 4, 5, 7], NormOver::Batch, 1e-5), layer(30, 17)]
        .into_iter()
        .flat_map(|spec| [(0, 0), (9, 14), (-4, -6), (70, 70)].map(|exponents| (spec, exponents)))
    {
        rig.set(&[0, alpha, to, 0, 0])?;
        let operands = Operands::new(&rig, &spec, [DType::F16, DType::F16], 52)?;
        let plain = run(&rig, &spec, &operands, true, true)?;
        let before = [0, 1].map(|seed| Random(seed).many(spec.channels(), Random::normal));
        for add in [false, true] {
            rig.upload()?;
            let mut dx = rig.output(DType::F16, spec.len())?;
            let [mut scale, mut shift] =
                [rig.output_over(DType::F32, &before[0])?, rig.output_over(DType::F32, &before[1])?];
            let store = Store::site(Slot(3), Slot(4), &rig.table, &mut dx.buffer);
            let affine = [
                Store::param(Slot(3), Slot(5), add, &rig.table, &mut scale.buffer),
                Store::param(Slot(3), Slot(6), add, &rig.table, &mut shift.buffer),
            ];
            b.launch(Launch::NormVjp {
                p: spec.build(),
                x: operands.normed(true),
                dy: &operands.dy,
                dx: store,
                affine: Some(affine),
            })?;
            let what = format!("{spec:?} from 2^{alpha}, add {add}");
            let scaled: Vec<f32> = plain[0].iter().map(|&v| Factor::between(alpha, to).apply(v)).collect();
            same_bits(&format!("dx, {what}"), &rig.take(&dx)?, &stored(&rig, DType::F16, &scaled))?;
            same_row(&format!("dx, {what}"), &rig, Slot(4), &scaled, Detail::Moments)?;
            for (i, output) in [scale, shift].iter().enumerate() {
                let (sums, unscale) = (plain[1 + i].iter().zip(&before[i]), Factor::between(alpha, 0));
                let sum = |(&v, &y): (&f32, &f32)| if add { y + unscale.apply(v) } else { unscale.apply(v) };
                let want: Vec<f32> = sums.map(sum).collect();
                let what = format!("{}, {what}", ["scale", "shift"][i]);
                same_bits(&what, &rig.take(output)?, &want)?;
                same_row(&what, &rig, Slot(5 + i as u16), &want, Detail::Counts)?;
            }
        }
    }
    Ok(vec![])
}

fn stores<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    // 300 channels are more than one block of a device may take.
    let batches = [[3, 4, 5, 7], [2, 1, 1, 300]].map(|x| spec(x, NormOver::Batch, 1e-5));
    for spec in batches.into_iter().chain([layer(30, 17), rms(30, 17), layer(30, 17).given()]) {
        let operands = Operands::new(&rig, &spec, [DType::F16, DType::F16], 53)?;
        let p = spec.build();
        epilogue::check(&mut rig, spec.len(), |b, y| {
            b.launch(Launch::NormVjp { p, x: operands.normed(true), dy: &operands.dy, dx: y, affine: None })
        })?;
        // Each of the other two results takes the place of the store that is tested.
        for place in [0, 1] {
            epilogue::check(&mut rig, spec.channels(), |b, y| {
                let table = y.table;
                let mut dx = b.alloc(DType::F16, spec.len())?;
                let mut other = b.alloc(DType::F32, spec.channels())?;
                let other = Store::keep(Slot::ONE, table, &mut other);
                let affine = if place == 0 { [y, other] } else { [other, y] };
                let dx = Store::keep(Slot::ONE, table, &mut dx);
                b.launch(Launch::NormVjp { p, x: operands.normed(true), dy: &operands.dy, dx, affine: Some(affine) })
            })?;
        }
    }
    Ok(vec![])
}
