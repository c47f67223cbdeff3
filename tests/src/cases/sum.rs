//! Sums of terms from several slots, as a branch adds the gradients of its consumers.

use super::{Case, shared::HALF_AND_F32};
use crate::{
    case::{Check, Fail},
    compare::{same_bits, same_numbers},
    data::{Random, lengths},
    epilogue::{STEPS, same_row, stored},
    property::property,
    rig::Rig,
};
use gradscale_core::{
    backend::{Backend, Buffer, DType, Launch, Slot, Store},
    scaled::Scaled,
    stats::Detail,
};
use proptest::prelude::*;

/// Slot of the sum; those of its terms begin at [`Slot::FIRST_SITE`].
const TO: Slot = Slot(7);

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    cases.push(Case::new("sum::terms", terms::<B>));
    cases.push(Case::new("sum::many_terms", many_terms::<B>));
    cases.push(Case::new("sum::lengths", any_length::<B>));
    cases.push(Case::new("sum::far_exponents", far_exponents::<B>));
    cases.push(Case::new("sum::order", order::<B>));
    cases.push(Case::new("sum::one_rounding", one_rounding::<B>));
    cases.push(Case::new("sum::overflow_of_the_sum", overflow::<B>));
    cases.push(Case::new("sum::not_finite", not_finite::<B>));
    cases.push(Case::new("sum::add", add::<B>));
    cases.push(Case::new("sum::one_buffer_twice", twice::<B>));
    cases.push(Case::new("sum::same_bits_each_time", deterministic::<B>));
    cases.push(Case::new("sum::any_terms", any_terms::<B>));
}

/// A term: the type that holds it, its exponent, its values.
#[derive(Clone, Debug)]
struct Term {
    dtype: DType,
    alpha: i32,
    values: Vec<f32>,
}

impl Term {
    /// Numbers that their type, and every device, holds.
    fn random(seed: u64, dtype: DType, alpha: i32, len: usize) -> Self {
        let fine = if dtype == DType::F32 { 1.0 / 3.0 } else { 1.0 };
        Self { dtype, alpha, values: Random(seed).many(len, |random| (random.half() * 4.0 + 4.0) * fine) }
    }
}

/// The f32 nearest to 2^k·x.
fn scaled(x: f32, from: i32, to: i32) -> f32 {
    // Beyond 2^±400 every f32 has become ∞ or 0.
    let k = (i64::from(to) - i64::from(from)).clamp(-400, 400) as i32;
    (f64::from(x) * 2f64.powi(k)) as f32
}

/// Computes the values that the store of a sum rounds: terms at the sum's exponent, added in order in f32. Rounding
/// each f64 sum gives the f32 sum, because f64 has more than twice the digits of f32.
fn exact(terms: &[Term], to: i32) -> Vec<f32> {
    let value = |i: usize| {
        let parts = terms.iter().map(|term| scaled(term.values[i], term.alpha, to));
        parts.fold(0f32, |sum, part| (f64::from(sum) + f64::from(part)) as f32)
    };
    (0..terms.first().map_or(0, |term| term.values.len())).map(value).collect()
}

/// Runs a sum from the slots 2, 3, … into y. `y.from` names a slot of its own, whose exponent must have no effect.
fn run<B: Backend>(
    rig: &mut Rig<'_, B>, terms: &[Term], to: i32, y: &mut B::Buffer, detail: Detail, add: bool,
) -> Result<(), Fail> {
    rig.exponents[usize::from(Slot::PROBE.0)] = 77;
    rig.exponents[usize::from(TO.0)] = to;
    let alphas: Vec<i32> = terms.iter().map(|term| term.alpha).collect();
    rig.set(&alphas)?;
    let buffers = terms.iter().map(|term| rig.padded(term.dtype, &term.values)).collect::<Result<Vec<_>, _>>()?;
    let len = terms.first().map_or(0, |term| term.values.len());
    let slots = (Slot::FIRST_SITE.0..).map(Slot);
    let list: Vec<Scaled<&B::Buffer, Slot>> =
        buffers.iter().zip(slots).map(|(data, slot)| Scaled::new(data, slot)).collect();
    let store = Store { detail, add, ..Store::site(Slot::PROBE, TO, &rig.table, y) };
    Ok(rig.backend.launch(Launch::Sum { len: len as u32, terms: &list, y: store })?)
}

/// Compares a sum with the exact one in f32 and half, bit for bit, and its row.
fn check<B: Backend>(rig: &mut Rig<'_, B>, terms: &[Term], to: i32) -> Result<(), Fail> {
    let want = exact(terms, to);
    for (dtype, detail) in [(DType::F32, Detail::Moments), (DType::F16, Detail::Moments), (DType::F16, Detail::Counts)]
    {
        let mut y = rig.output(dtype, want.len())?;
        run(rig, terms, to, &mut y.buffer, detail, false)?;
        let exponents: Vec<i32> = terms.iter().map(|term| term.alpha).collect();
        let what = format!("a sum as {dtype:?} at 2^{to} of terms at {exponents:?}");
        same_numbers(&what, &rig.take(&y)?, &stored(rig, dtype, &want))?;
        same_row(&what, rig, TO, &want, detail)?;
    }
    Ok(())
}

/// One to five terms, of both types, at other exponents than the sum.
fn terms<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for count in 1..=5usize {
        for types in 0..1 << count {
            let term = |i: usize| {
                let alpha = [3, -8, 12, 0, 5][i];
                Term::random(i as u64, HALF_AND_F32[types >> i & 1], alpha, 200)
            };
            let terms: Vec<Term> = (0..count).map(term).collect();
            for to in [0, -3, 9] {
                check(&mut rig, &terms, to)?;
            }
        }
    }
    Ok(vec![])
}

/// More terms than a kernel has bindings for, in order: no partial sum may be rounded to half.
fn many_terms<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let term = |i: usize| Term::random(i as u64, HALF_AND_F32[i % 2], [3, -8, 12, 0, 5][i], 200);
    // Slots end at the result's, so terms share them.
    let terms: Vec<Term> = (0..5).map(term).collect();
    let exponents: Vec<i32> = terms.iter().map(|term| term.alpha).collect();
    for count in [6, 7, 8, 9, 13] {
        let list: Vec<Term> = terms.iter().cycle().take(count).cloned().collect();
        rig.exponents[usize::from(TO.0)] = 2;
        rig.set(&exponents)?;
        let buffers = list.iter().map(|term| rig.input(term.dtype, &term.values)).collect::<Result<Vec<_>, _>>()?;
        let slot = |i: usize| Slot(Slot::FIRST_SITE.0 + (i % 5) as u16);
        let list_of: Vec<Scaled<&B::Buffer, Slot>> =
            buffers.iter().enumerate().map(|(i, data)| Scaled::new(data, slot(i))).collect();
        let want = exact(&list, 2);
        let mut y = rig.output(DType::F32, want.len())?;
        b.launch(Launch::Sum {
            len: want.len() as u32,
            terms: &list_of,
            y: Store::site(Slot::PROBE, TO, &rig.table, &mut y.buffer),
        })?;
        let what = format!("a sum of {count} terms");
        same_numbers(&what, &rig.take(&y)?, &want)?;
        same_row(&what, &rig, TO, &want, Detail::Moments)?;
    }
    Ok(vec![])
}

fn any_length<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for len in lengths() {
        let terms = [Term::random(1, DType::F16, 4, len), Term::random(2, DType::F16, 6, len)];
        check(&mut rig, &terms, 5)?;
    }
    Ok(vec![])
}

/// Exponents of which no f32 holds 2^α, and terms so far apart that one of them is lost.
fn far_exponents<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for base in [0, 1000, -1_000_000, 2_000_000_000] {
        for distances in [[3, 0, -5], [30, 0, 0], [0, 200, 0], [0, 0, 390], [1_000_000, 0, 140]] {
            let term = |i: usize| Term::random(i as u64, HALF_AND_F32[i % 2], base + distances[i], 100);
            let terms: Vec<Term> = (0..3).map(term).collect();
            check(&mut rig, &terms, base)?;
            // At the far exponent the near terms exceed f32.
            check(&mut rig, &terms, base.saturating_add(200))?;
        }
    }
    for (from, to) in STEPS {
        let terms = [Term::random(1, DType::F16, from, 100), Term::random(2, DType::F32, to, 100)];
        check(&mut rig, &terms, to)?;
    }
    check(&mut rig, &[Term::random(1, DType::F16, i32::MIN, 9), Term::random(2, DType::F16, 0, 9)], i32::MAX)?;
    check(&mut rig, &[Term::random(1, DType::F16, i32::MAX, 9), Term::random(2, DType::F16, 0, 9)], i32::MIN)?;
    Ok(vec![])
}

/// Terms are added in the order given: 0.75, 2^24 and −2^24 make 0, 0.75 or 1.
fn order<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let term = |value: f32| Term { dtype: DType::F32, alpha: 0, values: vec![value; 70] };
    let (one, large) = (0.75, 16_777_216.0);
    for values in [[one, large, -large], [large, -large, one], [large, one, -large], [large, one, one]] {
        check(&mut rig, &values.map(term), 0)?;
    }
    Ok(vec![])
}

/// Sums whose result would differ if each term or each partial sum were rounded to half.
fn one_rounding<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let least = 2f32.powi(-10);
    let cases: [(&[f32], i32); 6] = [
        // 2049 and 2049 are halves only as their sum.
        (&[2048.0, 1.0, 1.0], 0),
        (&[2048.0, 1.0, 2048.0, 1.0], 0),
        // Half of the smallest half: each alone is rounded to 0.
        (&[least, least], -15),
        (&[least, least, least], -15),
        // Beyond half, and back.
        (&[40_000.0, 40_000.0, -40_000.0], 0),
        (&[1.0, 2f32.powi(-11), 2f32.powi(-13)], 0),
    ];
    for (values, to) in cases {
        for dtype in HALF_AND_F32 {
            let terms: Vec<Term> = values.iter().map(|&v| Term { dtype, alpha: 0, values: vec![v; 40] }).collect();
            check(&mut rig, &terms, to)?;
        }
    }
    Ok(vec![])
}

/// Two halves that fit, whose sum does not: the row tells, also where the sum is stored as f32.
fn overflow<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let term = |alpha| Term { dtype: DType::F16, alpha, values: vec![40_000.0, 1.0, -40_000.0] };
    for (to, overflowed) in [(0, 2), (-1, 0)] {
        check(&mut rig, &[term(0), term(0)], to)?;
        for dtype in HALF_AND_F32 {
            let mut y = rig.output(dtype, 3)?;
            run(&mut rig, &[term(0), term(0)], to, &mut y.buffer, Detail::Counts, false)?;
            let counts = *rig.row(TO)?.counts();
            if counts.overflowed != overflowed || counts.infinite != 0 {
                return Err(Fail::new(format!("40000 + 40000 as {dtype:?} at 2^{to}: {counts:?}")));
            }
        }
    }
    Ok(vec![])
}

/// NaN and ∞ of one term are NaN and ∞ of the sum; ∞ − ∞ is NaN.
fn not_finite<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let rows = [[inf, -inf, nan, inf, 1.0, 0.0, -0.0], [1.0, 2.0, 3.0, -inf, nan, -0.0, -0.0]];
    for dtype in HALF_AND_F32 {
        let terms = rows.map(|row| Term { dtype, alpha: 2, values: row.repeat(11) });
        check(&mut rig, &terms, 0)?;
        check(&mut rig, &terms, 100)?;
    }
    Ok(vec![])
}

/// Adds the finished sum to the existing y. The row counts the total.
fn add<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let terms = [Term::random(1, DType::F16, 3, 300), Term::random(2, DType::F32, -2, 300)];
    let before: Vec<f32> = (0..300).map(|i| (i % 11) as f32 * 0.5 - 2.0).collect();
    for to in [0, 4] {
        let sums: Vec<f32> = exact(&terms, to).iter().zip(&before).map(|(&sum, &y)| y + sum).collect();
        for dtype in HALF_AND_F32 {
            let mut y = rig.output_over(dtype, &before)?;
            run(&mut rig, &terms, to, &mut y.buffer, Detail::Moments, true)?;
            let what = format!("a sum added as {dtype:?}");
            same_bits(&what, &rig.take(&y)?, &stored(&rig, dtype, &sums))?;
            same_row(&what, &rig, TO, &sums, Detail::Moments)?;
        }
    }
    Ok(vec![])
}

/// One buffer in two terms, at one slot and at two.
fn twice<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let values: Vec<f32> = (0..100u8).map(f32::from).collect();
    let x = rig.input(DType::F16, &values)?;
    rig.set(&[1, 0])?;
    for (second, factor) in [(Slot(2), 1.0), (Slot(3), 1.5)] {
        let got = rig.plain(x.len(), |y| {
            b.launch(Launch::Sum {
                len: x.len() as u32,
                terms: &[Scaled::new(&x, Slot(2)), Scaled::new(&x, second)],
                y,
            })
        })?;
        same_numbers("x + x", &got, &values.iter().map(|v| v * factor).collect::<Vec<_>>())?;
    }
    Ok(vec![])
}

fn deterministic<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let terms = [Term::random(1, DType::F16, 3, 20_000), Term::random(2, DType::F32, -2, 20_000)];
    let mut first = None;
    for round in 0..3 {
        let mut y = rig.output(DType::F16, 20_000)?;
        run(&mut rig, &terms, 1, &mut y.buffer, Detail::Moments, false)?;
        let row = rig.row(TO)?;
        if row != *first.get_or_insert(row) {
            return Err(Fail::new(format!("run {round}: the row is {row:?}, not {first:?}")));
        }
    }
    Ok(vec![])
}

fn any_terms<B: Backend>(b: &B) -> Check {
    let dtype = || prop::sample::select(HALF_AND_F32.to_vec());
    let exponent = || prop_oneof![4 => -20..20i32, 1 => any::<i32>()];
    let list = prop::collection::vec((dtype(), exponent(), any::<u64>()), 1..6);
    property(&(list, exponent(), 0..300usize), |(list, to, len)| {
        let mut rig = Rig::new(b)?;
        let term = |(dtype, alpha, seed)| Term::random(seed, dtype, alpha, len);
        let terms: Vec<Term> = list.into_iter().map(term).collect();
        // Some devices do not keep f32 subnormals.
        let small = |term: &Term| term.values.iter().any(|&v| scaled(v, term.alpha, to).is_subnormal());
        if !b.caps().f32_subnormals && terms.iter().any(small) {
            return Ok(vec![]);
        }
        check(&mut rig, &terms, to)?;
        Ok(vec![])
    })
}
