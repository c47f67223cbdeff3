//! Normalisations: statistics and results against f64.

use super::Case;
use crate::{
    case::{Check, Fail},
    compare::{Want, compare, same_bits},
    data::{Random, is_small, readable},
    epilogue,
    property::merge,
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, DType, Launch},
    ops::{Norm, NormOver},
};

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    for (name, specs) in specs() {
        cases.push(Case::new(format!("norm::{name}"), move |b: &B| ordinary(b, &specs)));
    }
    cases.push(Case::new("norm::given", given::<B>));
    cases.push(Case::new("norm::large_mean", large_mean::<B>));
    cases.push(Case::new("norm::constant", constant::<B>));
    cases.push(Case::new("norm::not_finite", not_finite::<B>));
    cases.push(Case::new("norm::epilogue", stores::<B>));
}

/// Normalisation, with its results computed from the definition by loops.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) x: [u32; 4],
    over: NormOver,
    pub(super) center: bool,
    pub(super) given: bool,
    eps: f32,
}

pub(super) const fn spec(x: [u32; 4], over: NormOver, eps: f32) -> Spec {
    Spec { x, over, center: true, given: false, eps }
}

pub(super) const fn layer(rows: u32, width: u32) -> Spec {
    spec([rows, 1, 1, width], NormOver::Group(1), 1e-5)
}

pub(super) const fn rms(rows: u32, width: u32) -> Spec {
    Spec { center: false, ..layer(rows, width) }
}

/// Means and biased variances of groups.
pub(super) type Statistics = [Vec<f64>; 2];

impl Spec {
    pub(super) fn build(&self) -> Norm {
        let [n, _, _, c] = self.x;
        let norm = if self.center { Norm::new(self.x, self.over, self.eps) } else { Norm::rms(n, c, self.eps) };
        let norm = norm.expect("a valid shape");
        if self.given { norm.given() } else { norm }
    }

    pub(super) fn given(self) -> Self {
        Self { given: true, ..self }
    }

    pub(super) fn len(&self) -> usize {
        self.x.iter().product::<u32>() as usize
    }

    pub(super) fn channels(&self) -> usize {
        self.x[3] as usize
    }

    /// The elements of each group.
    pub(super) fn groups(&self) -> Vec<Vec<usize>> {
        let [n, h, w, c] = self.x.map(|size| size as usize);
        let mut groups = vec![
            Vec::new();
            match self.over {
                NormOver::Batch => c,
                NormOver::Group(parts) => n * parts as usize,
            }
        ];
        for (image, pixel) in (0..n).flat_map(|image| (0..h * w).map(move |pixel| (image, pixel))) {
            for channel in 0..c {
                let group = match self.over {
                    NormOver::Batch => channel,
                    NormOver::Group(parts) => image * parts as usize + channel * parts as usize / c,
                };
                groups[group].push((image * h * w + pixel) * c + channel);
            }
        }
        groups
    }

    /// The group of each element.
    pub(super) fn group_of(&self) -> Vec<usize> {
        let mut of = vec![0; self.len()];
        self.groups().iter().enumerate().for_each(|(group, members)| members.iter().for_each(|&i| of[i] = group));
        of
    }

    pub(super) fn statistics(&self, x: &[f64]) -> Statistics {
        let groups = self.groups();
        let mean = |members: &Vec<usize>, of: &dyn Fn(usize) -> f64| {
            members.iter().map(|&i| of(i)).sum::<f64>() / members.len() as f64
        };
        let means: Vec<f64> =
            groups.iter().map(|members| if self.center { mean(members, &|i| x[i]) } else { 0.0 }).collect();
        let vars = groups.iter().zip(&means).map(|(members, m)| mean(members, &|i| (x[i] - m).powi(2))).collect();
        [means, vars]
    }

    /// 1 / √(var + eps) of each group.
    pub(super) fn inverse(&self, [_, vars]: &Statistics) -> Vec<f64> {
        vars.iter().map(|var| 1.0 / (var + f64::from(self.eps)).sqrt()).collect()
    }

    /// x centred and divided by its spread, with these statistics.
    pub(super) fn normal(&self, x: &[f64], statistics: &Statistics) -> Vec<f64> {
        let inverse = self.inverse(statistics);
        x.iter().zip(self.group_of()).map(|(x, group)| (x - statistics[0][group]) * inverse[group]).collect()
    }

    /// Statistics as a device should save them. A variance by two passes suffers from the mean's error squared.
    fn want_saved(&self, x: &[f64], [means, vars]: &Statistics) -> Vec<Want> {
        let sized = |members: &Vec<usize>| Want::sum(members.iter().map(|&i| x[i])).times(1.0 / members.len() as f64);
        let sizes: Vec<Want> = self.groups().iter().map(sized).collect();
        let mean = |(&value, size): (&f64, &Want)| if self.center { Want { value, ..*size } } else { Want::one(0.0) };
        let var = |(&value, size): (&f64, &Want)| {
            let shift =
                if self.center { (size.terms as f64).sqrt() * 2f64.powi(-24) * size.scale.powi(2) } else { 0.0 };
            Want { value, scale: value + shift, terms: size.terms }
        };
        means.iter().zip(&sizes).map(mean).chain(vars.iter().zip(&sizes).map(var)).collect()
    }

    /// Results. An error of the mean counts 1/σ times, one of the variance half its share.
    fn want(&self, x: &[f64], statistics: &Statistics, affine: Option<[&[f32]; 2]>) -> Vec<Want> {
        let (saved, groups) = (self.want_saved(x, statistics), self.statistics(x)[0].len());
        let (inverse, normal) = (self.inverse(statistics), self.normal(x, statistics));
        let result = |(i, group): (usize, usize)| {
            let [scale, shift] = affine.map_or([1.0, 0.0], |both| both.map(|v| f64::from(v[i % self.channels()])));
            let (mean, var) = if self.given {
                (statistics[0][group].abs(), 0.0)
            } else {
                (saved[group].scale, saved[groups + group].scale * inverse[group].powi(2))
            };
            let error = (x[i].abs() + mean) * inverse[group] + 0.5 * normal[i].abs() * var;
            let terms = if self.given { 1 } else { saved[group].terms.max(saved[groups + group].terms) };
            Want { value: normal[i] * scale + shift, scale: error * scale.abs() + shift.abs(), terms }
        };
        self.group_of().into_iter().enumerate().map(result).collect()
    }
}

/// Kinds of normalisation, each in several shapes.
pub(super) fn specs() -> Vec<(&'static str, Vec<Spec>)> {
    let batch = |x| spec(x, NormOver::Batch, 1e-5);
    let group = |x, groups| spec(x, NormOver::Group(groups), 1e-3);
    vec![
        (
            "batch",
            vec![
                batch([4, 5, 6, 7]),
                batch([1, 1, 1, 3]),
                batch([8, 16, 16, 3]),
                batch([2, 1, 1, 300]),
                batch([3, 2, 2, 0]),
                // Channels that come in eights; many pixels of them.
                batch([2, 5, 6, 16]),
                batch([1, 48, 48, 128]),
            ],
        ),
        (
            "group",
            vec![group([2, 4, 4, 12], 3), group([3, 3, 5, 6], 6), group([2, 7, 7, 8], 1), group([0, 2, 2, 4], 2)],
        ),
        ("layer", vec![layer(5, 33), layer(3, 1000), layer(64, 1), layer(300, 7), layer(0, 8)]),
        ("rms", vec![rms(5, 33), rms(3, 4096), rms(100, 2)]),
    ]
}

pub(super) fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

/// Statistics and results of `x`, with and without scale and shift.
fn check<B: Backend>(b: &B, spec: &Spec, dtype: DType, x: &[f32]) -> Check {
    let rig = Rig::new(b)?;
    let (p, mut random, mut measured) = (spec.build(), Random(40), vec![]);
    let values = wide(x);
    let statistics = spec.statistics(&values);
    let input = rig.padded(dtype, x)?;
    let [scale, shift] = [0, 1].map(|_| random.many(spec.channels(), Random::normal));
    let buffers = [rig.padded(DType::F32, &scale)?, rig.padded(DType::F32, &shift)?];
    for affine in [false, true] {
        let mut saved = rig.output(DType::F32, 2 * statistics[0].len())?;
        let operands = affine.then_some([&buffers[0], &buffers[1]]);
        let got = rig.plain(x.len(), |y| {
            b.launch(Launch::Norm { p, x: &input, affine: operands, saved: &mut saved.buffer, y })
        })?;
        let want = spec.want_saved(&values, &statistics);
        let first = compare("norm_saved", DType::F32, &b.caps(), &rig.take(&saved)?, &want)?;
        let want = spec.want(&values, &statistics, affine.then_some([&scale, &shift]));
        merge(&mut measured, &[first, compare("norm", DType::F32, &b.caps(), &got, &want)?]);
    }
    Ok(measured)
}

fn ordinary<B: Backend>(b: &B, specs: &[Spec]) -> Check {
    let mut measured = vec![];
    for (spec, dtype) in
        specs.iter().filter(|spec| is_small(spec.len())).flat_map(|spec| [(spec, DType::F32), (spec, DType::F16)])
    {
        let mut random = Random(41);
        // Each channel has its own mean and spread.
        let channel: Vec<[f32; 2]> =
            (0..spec.channels()).map(|_| [random.normal() * 3.0, random.unit() + 0.1]).collect();
        let x: Vec<f32> = (0..spec.len())
            .map(|i| channel[i % spec.channels()])
            .map(|[mean, spread]| mean + spread * random.normal())
            .collect();
        merge(&mut measured, &check(b, spec, dtype, &readable(dtype, &x))?);
    }
    Ok(measured)
}

/// Evaluation: the statistics that are given count, and stay.
fn given<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let mut measured = vec![];
    for (spec, dtype) in specs()
        .iter()
        .flat_map(|(_, specs)| specs)
        .filter(|spec| is_small(spec.len()))
        .flat_map(|spec| [(spec.given(), DType::F32), (spec.given(), DType::F16)])
    {
        let (p, mut random) = (spec.build(), Random(42));
        let groups = spec.groups().len();
        let means = random.many(groups, |random| if spec.center { random.normal() } else { 0.0 });
        let vars = random.many(groups, |random| random.unit() + 0.01);
        let x = readable(dtype, &random.many(spec.len(), |random| random.normal() * 1.3));
        let [scale, shift] = [0, 1].map(|_| random.many(spec.channels(), Random::normal));
        let (input, both) =
            (rig.padded(dtype, &x)?, [rig.padded(DType::F32, &scale)?, rig.padded(DType::F32, &shift)?]);
        let before = [means.clone(), vars.clone()].concat();
        let mut saved = rig.output_over(DType::F32, &before)?;
        let got = rig.plain(x.len(), |y| {
            b.launch(Launch::Norm { p, x: &input, affine: Some([&both[0], &both[1]]), saved: &mut saved.buffer, y })
        })?;
        same_bits("given statistics", &rig.take(&saved)?, &before)?;
        let want = spec.want(&wide(&x), &[wide(&means), wide(&vars)], Some([&scale, &shift]));
        merge(&mut measured, &[compare("norm", DType::F32, &b.caps(), &got, &want)?]);
    }
    Ok(measured)
}

/// A mean 10^4 times the spread: the difference of mean square and square mean has no right digit in f32.
fn large_mean<B: Backend>(b: &B) -> Check {
    let mut measured = vec![];
    for spec in
        [spec([4, 16, 16, 3], NormOver::Batch, 1e-5), layer(3, 1000), spec([2, 8, 8, 8], NormOver::Group(2), 1e-5)]
    {
        let x = Random(43).many(spec.len(), |random| 1000.0 + 0.1 * random.normal());
        merge(&mut measured, &check(b, &spec, DType::F32, &x)?);
    }
    Ok(measured)
}

/// Constant input: the mean is exact, the variance is 0, and only eps prevents a division by 0.
fn constant<B: Backend>(b: &B) -> Check {
    let (rig, mut measured) = (Rig::new(b)?, vec![]);
    for spec in [spec([4, 4, 4, 5], NormOver::Batch, 1e-5), layer(7, 64)] {
        let (p, channels, groups) = (spec.build(), spec.channels(), spec.groups().len());
        let (values, scale) = (vec![3.0; spec.len()], vec![1.7; channels]);
        let shift: Vec<f32> = (1..=channels).map(|c| c as f32 * 0.3).collect();
        let x = rig.padded(DType::F16, &values)?;
        let both = [rig.padded(DType::F32, &scale)?, rig.padded(DType::F32, &shift)?];
        let mut saved = rig.output(DType::F32, 2 * groups)?;
        let got = rig.plain(spec.len(), |y| {
            b.launch(Launch::Norm { p, x: &x, affine: Some([&both[0], &both[1]]), saved: &mut saved.buffer, y })
        })?;
        same_bits("statistics", &rig.take(&saved)?, &[vec![3.0; groups], vec![0.0; groups]].concat())?;
        let want = spec.want(&wide(&values), &[vec![3.0; groups], vec![0.0; groups]], Some([&scale, &shift]));
        merge(&mut measured, &[compare("norm", DType::F32, &b.caps(), &got, &want)?]);
    }
    Ok(measured)
}

/// A group with ∞ or NaN becomes NaN; the others do not.
fn not_finite<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for (spec, bad) in
        [layer(6, 40), spec([3, 4, 4, 6], NormOver::Batch, 1e-5), spec([2, 3, 3, 6], NormOver::Group(3), 1e-5)]
            .into_iter()
            .flat_map(|spec| [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].map(|bad| (spec, bad)))
    {
        let mut x = Random(44).many(spec.len(), Random::normal);
        let groups = spec.groups();
        x[groups[1][groups[1].len() / 2]] = bad;
        let input = rig.padded(DType::F16, &x)?;
        let mut saved = rig.output(DType::F32, 2 * groups.len())?;
        let got = rig.plain(x.len(), |y| {
            b.launch(Launch::Norm { p: spec.build(), x: &input, affine: None, saved: &mut saved.buffer, y })
        })?;
        for (i, group) in spec.group_of().into_iter().enumerate() {
            if got[i].is_finite() != (group != 1) {
                return Err(Fail::new(format!("{bad} in group 1: element {i} of group {group} became {}", got[i])));
            }
        }
    }
    Ok(vec![])
}

fn stores<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let batch = |x| spec(x, NormOver::Batch, 1e-5);
    // The second shape needs several rounds on a small device.
    let specs = [batch([3, 5, 4, 6]), batch([2, 64, 64, 8]), layer(9, 70), rms(9, 70), layer(9, 70).given()];
    for spec in specs.into_iter().filter(|spec| is_small(spec.len())) {
        let p = spec.build();
        let groups = spec.groups().len();
        let x = rig.padded(DType::F16, &Random(45).many(spec.len(), Random::normal))?;
        let both = [0, 1].map(|seed| Random(seed).many(spec.channels(), |random| random.normal() * 1e-3));
        let both = [rig.padded(DType::F32, &both[0])?, rig.padded(DType::F32, &both[1])?];
        let statistics = [vec![0.0; groups], vec![1.5; groups]].concat();
        // The same statistics each time; a device that computes them writes over these.
        let saved = core::cell::RefCell::new(rig.input(DType::F32, &statistics)?);
        epilogue::check(&mut rig, spec.len(), |b, y| {
            b.launch(Launch::Norm { p, x: &x, affine: Some([&both[0], &both[1]]), saved: &mut saved.borrow_mut(), y })
        })?;
    }
    Ok(vec![])
}
