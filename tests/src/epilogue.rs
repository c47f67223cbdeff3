//! Properties that every store must have, for any operator before it.
//!
//! The operator runs into f32 at the exponent of its operands, which yields its results v. Then the same operator runs
//! through real stores. Everything that a store adds (scale, sum, row and rounding) is computed here from v with core's
//! scalar functions, and must agree bit for bit.

use crate::{case::Fail, compare::same_bits, rig::Rig};
use gradscale_core::{
    backend::{Backend, DType, Slot, Store},
    cast::{Round, f16_from_f32},
    scale::Factor,
    stats::{Convention, Detail, FlushRule, Stats},
};

/// Slot of the operands, and of the result.
const FROM: Slot = Slot(3);
const TO: Slot = Slot(4);

/// Exponents (from, to) that an epilogue is tried with: none, up, down, far outside f32's range.
pub const STEPS: [(i32, i32); 5] = [(0, 0), (5, 17), (40, 31), (-1_000_000, -999_985), (2_000_000_000, 1_999_999_985)];

/// Checks an operator's stores of `len` dense results; `run` is called several times. The operands must be the same
/// each time, and their results finite and not f32 subnormals.
///
/// # Errors
/// The first difference.
pub fn check<B: Backend>(
    rig: &mut Rig<'_, B>, len: usize, run: impl Fn(&B, Store<'_, B>) -> Result<(), B::Error>,
) -> Result<(), Fail> {
    let backend = rig.backend;
    let plain = rig.plain(len, |y| run(backend, y))?;
    for (from, to) in STEPS {
        let factor = Factor::between(from, to);
        let scaled: Vec<f32> = plain.iter().map(|&v| factor.apply(v)).collect();
        for (dtype, detail) in
            [(DType::F32, Detail::Moments), (DType::F16, Detail::Moments), (DType::F16, Detail::Counts)]
        {
            rig.detail = Detail::Moments;
            rig.set(&[0, from, to])?;
            let mut y = rig.output(dtype, len)?;
            run(backend, Store { detail, ..Store::site(FROM, TO, &rig.table, &mut y.buffer) })?;
            let what = format!("store {dtype:?} from 2^{from} to 2^{to}");
            same_bits(&what, &rig.take(&y)?, &stored(rig, dtype, &scaled))?;
            same_row(&what, rig, TO, &scaled, detail)?;
        }
    }
    // Added to existing values: the statistics are those of the sum.
    let before: Vec<f32> = (0..len).map(|i| (i % 13) as f32 * 0.25 - 1.0).collect();
    let sums: Vec<f32> = before.iter().zip(&plain).map(|(&y, &v)| y + v).collect();
    for dtype in [DType::F32, DType::F16] {
        rig.set(&[0, 0, 0])?;
        let mut y = rig.output_over(dtype, &before)?;
        run(backend, Store { add: true, ..Store::site(FROM, TO, &rig.table, &mut y.buffer) })?;
        let what = format!("store {dtype:?} with add");
        same_bits(&what, &rig.take(&y)?, &stored(rig, dtype, &sums))?;
        same_row(&what, rig, TO, &sums, Detail::Moments)?;
    }
    Ok(())
}

/// Returns the values that a device with its flush rule stores for f32 values.
pub fn stored<B: Backend>(rig: &Rig<'_, B>, dtype: DType, values: &[f32]) -> Vec<f32> {
    let rule = rig.backend.caps().flush;
    values.iter().map(|&s| if dtype == DType::F16 { half(rule, s) } else { s }).collect()
}

/// The cast of a device with a flush rule (spec, section 4).
pub fn half(rule: FlushRule, s: f32) -> f32 {
    let round = if rule == FlushRule::TowardZero { Round::TowardZero } else { Round::NearestEven };
    let y = f16_from_f32(s, round).to_f32();
    let least = 2f32.powi(-14);
    let flushes = match rule {
        FlushRule::Nearest | FlushRule::TowardZero => false,
        FlushRule::FlushThenRound => s.abs() < least,
        FlushRule::RoundThenFlush => y.abs() < least,
        FlushRule::UnboundedThenFlush => s.abs() < least - 2f32.powi(-26),
    };
    if flushes { 0f32.copysign(s) } else { y }
}

/// Compares a slot's row with core's statistics of `values`: integers bit for bit, sums within their bound.
///
/// # Errors
/// The first field that differs.
pub fn same_row<B: Backend>(
    what: &str, rig: &Rig<'_, B>, slot: Slot, values: &[f32], detail: Detail,
) -> Result<(), Fail> {
    same_row_in(rig.convention(), what, rig, slot, values, detail)
}

/// Compares a slot's row as [`same_row`] does, with the thresholds of a convention.
///
/// # Errors
/// The first field that differs.
pub fn same_row_in<B: Backend>(
    convention: Convention, what: &str, rig: &Rig<'_, B>, slot: Slot, values: &[f32], detail: Detail,
) -> Result<(), Fail> {
    let got = rig.row(slot)?;
    let exponent = rig.exponents[usize::from(slot.0)];
    let mut want = Stats::new(convention, exponent, detail.min(rig.detail));
    want.observe(values);
    if values.is_empty() {
        // Nothing was stored, so the row may have any detail.
        return if got.counts().count == 0 {
            Ok(())
        } else {
            Err(Fail::new(format!("{what}: a row of nothing counts")))
        };
    }
    if got.detail() != want.detail() {
        return Err(Fail::new(format!("{what}: row has detail {:?}, not {:?}", got.detail(), want.detail())));
    }
    if got.counts() != want.counts() {
        return Err(Fail::new(format!("{what}: row\n  {:?}\n  not\n  {:?}", got.counts(), want.counts())));
    }
    if let (Some(got), Some(want)) = (got.bins(), want.bins())
        && let Some(key) = (0..got.len()).find(|&key| got[key] != want[key])
    {
        return Err(Fail::new(format!("{what}: bin {key} counts {}, not {}", got[key], want[key])));
    }
    if let Some(got) = got.moments() {
        let live = || values.iter().map(|&u| f64::from(u)).filter(|u| u.is_finite() && *u != 0.0);
        // Where a square is outside f32's range, a device's f32 sums of blocks need not be right.
        if live().any(|u| !(1e-18..1e18).contains(&u.abs())) {
            return Ok(());
        }
        let checks = [
            ("Σu", got.sum, live().sum::<f64>(), live().map(f64::abs).sum::<f64>()),
            ("Σu²", got.sum_sq, live().map(|u| u * u).sum(), live().map(|u| u * u).sum()),
            ("Σ ln|u|", got.sum_ln, live().map(|u| u.abs().ln()).sum(), live().map(|u| u.abs().ln().abs()).sum()),
            (
                "Σ ln²|u|",
                got.sum_ln_sq,
                live().map(|u| u.abs().ln().powi(2)).sum(),
                live().map(|u| u.abs().ln().powi(2)).sum(),
            ),
        ];
        for (name, got, want, scale) in checks {
            // Blocks of 4096 in f32, and a logarithm that is good to about 2^-20 (spec, section 4).
            let allowed =
                2f64.powi(-15) * scale + 1e-6 * values.len() as f64 * f64::from(u8::from(name.contains("ln")));
            if (got - want).abs() > allowed {
                return Err(Fail::new(format!("{what}: {name} is {got:e}, exact {want:e}, allowed ±{allowed:e}")));
            }
        }
    }
    Ok(())
}
