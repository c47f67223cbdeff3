//! The norm of all gradients, also where a square leaves f32.

use super::Case;
use crate::{
    case::{Check, Fail},
    compare::{Want, compare, same_bits},
    data::{Random, lengths, pow2},
    property::{merge, property},
    rig::Rig,
};
use gradscale_core::backend::{Backend, DType, Launch};
use proptest::prelude::*;

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    cases.push(Case::new("global_norm::one", |b: &B| {
        let mut measured = vec![];
        for len in lengths() {
            merge(&mut measured, &check(b, &[Random(len as u64).many(len, Random::normal)])?);
        }
        Ok(measured)
    }));
    cases.push(Case::new("global_norm::many", |b: &B| {
        let buffers = |count: u64, len: usize| -> Vec<Vec<f32>> {
            (0..count).map(|i| Random(i).many(len * i as usize % 1000, Random::normal)).collect()
        };
        let mut measured = check(b, &[])?;
        for (count, len) in [(2, 5), (7, 333), (300, 3)] {
            merge(&mut measured, &check(b, &buffers(count, len))?);
        }
        Ok(measured)
    }));
    cases.push(Case::new("global_norm::far_from_one", far::<B>));
    cases.push(Case::new("global_norm::zeros", zeros::<B>));
    cases.push(Case::new("global_norm::not_finite", not_finite::<B>));
    cases.push(Case::new("global_norm::any_magnitudes", any_magnitudes::<B>));
}

/// Returns the device's norm of these gradients, allocated separately or together with NaN between them.
fn norm<B: Backend>(b: &B, grads: &[Vec<f32>], together: bool) -> Result<f32, Fail> {
    let rig = Rig::new(b)?;
    let buffers: Vec<B::Buffer> = if together {
        let apart = [f32::NAN; 3];
        let all: Vec<&[f32]> = grads.iter().flat_map(|g| [g.as_slice(), &apart]).collect();
        let lens: Vec<usize> = all.iter().map(|values| values.len()).collect();
        let mut buffers = Vec::new();
        b.alloc_group(DType::F32, &lens, &mut buffers)?;
        buffers.iter_mut().zip(all).try_for_each(|(buffer, values)| rig.fill(buffer, values))?;
        buffers.into_iter().step_by(2).collect()
    } else {
        grads.iter().map(|g| rig.input(DType::F32, g)).collect::<Result<_, _>>()?
    };
    let mut y = rig.output(DType::F32, 1)?;
    b.launch(Launch::GlobalNorm { gradients: &buffers.iter().collect::<Vec<_>>(), norm: &mut y.buffer })?;
    Ok(rig.take(&y)?[0])
}

fn check<B: Backend>(b: &B, grads: &[Vec<f32>]) -> Check {
    let live = || grads.iter().flatten().map(|&g| f64::from(g));
    let got = norm(b, grads, false)?;
    same_bits("the same norm of gradients that were allocated together", &[norm(b, grads, true)?], &[got])?;
    // Squares of f32 fit f64, all of them.
    let value = live().map(|g| g * g).sum::<f64>().sqrt();
    let want = Want { terms: live().count(), ..Want::one(value) };
    Ok(vec![compare("global_norm", DType::F32, &b.caps(), &[got], &[want])?])
}

/// Magnitudes whose squares, or their sum, no f32 holds.
fn far<B: Backend>(b: &B) -> Check {
    let mut measured = vec![];
    let mut see = |grads: &[Vec<f32>]| check(b, grads).map(|seen| merge(&mut measured, &seen));
    see(&[vec![pow2(-75); 65_536]])?;
    see(&[vec![pow2(60); 1000]])?;
    see(&[vec![pow2(60); 1000], vec![pow2(-75); 65_536], vec![0.0; 7]])?;
    see(&[vec![pow2(-75); 4096], vec![3.0, 4.0]])?;
    for one in [f32::MAX, -3e38, pow2(127), pow2(-126), pow2(-100), 1.5 * pow2(-64), pow2(64), 1e-20, 1e20] {
        see(&[vec![0.0, one, -0.0]])?;
    }
    see(&[vec![1e38, -2e38], vec![1.5e38]])?;
    see(&[vec![pow2(-120); 333], vec![-pow2(-121); 100]])?;
    see(&[(-60..60).map(pow2).collect()])?;
    see(&[Random(1).many(5000, |random| random.normal() * 1e-25)])?;
    see(&[Random(2).many(5000, |random| random.normal() * 1e25)])?;
    Ok(measured)
}

/// The norm of no values, and of zeros of both signs, is 0. Its sign is not tested, because an empty sum may be −0.
fn zeros<B: Backend>(b: &B) -> Check {
    for grads in
        [vec![], vec![vec![]], vec![vec![], vec![], vec![]], vec![vec![0.0; 5000]], vec![vec![-0.0; 3], vec![]]]
    {
        let got = norm(b, &grads, true)?;
        if got != 0.0 {
            return Err(Fail::new(format!("the norm of {} zeros is {got}", grads.concat().len())));
        }
    }
    Ok(vec![])
}

/// One value that is not finite, anywhere, is seen.
fn not_finite<B: Backend>(b: &B) -> Check {
    for (bad, len) in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY]
        .into_iter()
        .flat_map(|bad| [1, 5, 1000, 65_537].map(|len| (bad, len)))
    {
        for (buffer, place) in [(0, 0), (1, len / 2), (2, len - 1)] {
            // Among zeros a maximum could ignore a NaN, and among large numbers a scale could hide it.
            for rest in [0.0, 1.0, 1e30] {
                let mut grads = vec![vec![rest; len]; 3];
                grads[buffer][place] = bad;
                let got = norm(b, &grads, true)?;
                if got.is_finite() {
                    return Err(Fail::new(format!("{bad} in buffer {buffer} at {place} of {len}: norm {got}")));
                }
            }
        }
    }
    Ok(vec![])
}

/// Any mixture of magnitudes in a range that the result does not leave.
fn any_magnitudes<B: Backend>(b: &B) -> Check {
    let value = (-120..120i32, -1f32..1f32).prop_map(|(k, m)| (1.0 + m.abs()).copysign(m) * pow2(k));
    let grads = prop::collection::vec(prop::collection::vec(value, 0..40), 0..6);
    property(&grads, |grads| check(b, &grads))
}
