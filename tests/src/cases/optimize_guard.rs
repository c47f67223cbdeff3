//! Guarded updates, which do nothing after an overflow, and clipped updates.

use super::{
    Case,
    optimize::{ADAM, ADAMW, EMA, MOMENTUM, SGD, Setup, Values, check_step, launch, place, same, take},
    shared::of,
};
use crate::{
    case::{Check, Fail},
    data::Random,
    property::{is_brief, merge},
    rig::{Rig, SLOTS},
};
use core::ops::Range;
use gradscale_core::{
    backend::{Backend, Buffer, DType, Launch, Slot, Store, UpdateGuard},
    ops::Unary,
    stats::Detail,
};

/// Lengths of parameters that are updated together.
fn lengths() -> Vec<usize> {
    [3, 0, 700, 5000].into_iter().take(if is_brief() { 3 } else { 4 }).collect()
}

/// The slots of an optimizer's parameters.
const GUARD: Range<u16> = 3..6;

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    cases.push(Case::new("optimize::guard_holds", |b: &B| guards(b, &bad_rows(), true)));
    cases.push(Case::new("optimize::guard_lets_pass", |b: &B| guards(b, &good_rows(), false)));
    cases.push(Case::new("optimize::guard_remembers_micro_batches", micro_batches::<B>));
    cases.push(Case::new("optimize::guard_ends_with_the_step", recovers::<B>));
    cases.push(Case::new("optimize::guard_of_nothing", unguarded::<B>));
    cases.push(Case::new("optimize::guard_of_activations", activations::<B>));
    cases.push(Case::new("optimize::norm_below_the_limit", below::<B>));
    cases.push(Case::new("optimize::norm_above_the_limit", above::<B>));
    cases.push(Case::new("optimize::norm_of_the_device", measured_norm::<B>));
}

/// Statistics row to be guarded: its description, slot, exponent and values.
struct Row {
    about: &'static str,
    slot: u16,
    exponent: i32,
    values: Vec<f32>,
}

fn row(about: &'static str, slot: u16, values: &[f32]) -> Row {
    Row { about, slot, exponent: 0, values: values.to_vec() }
}

/// Rows of the guard that counted something that is not finite.
fn bad_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for slot in GUARD {
        rows.push(row("a NaN", slot, &[1.0, f32::NAN, 2.0]));
        rows.push(row("an infinity", slot, &[f32::INFINITY]));
        rows.push(row("a negative infinity", slot, &[0.0, f32::NEG_INFINITY]));
        let mut long = vec![1.0; if is_brief() { 5000 } else { 70_000 }];
        let near_the_end = long.len() - 3334;
        long[near_the_end] = f32::NAN;
        rows.push(row("one NaN among many", slot, &long));
    }
    // Finite where it was computed, not where it is stored.
    rows.push(Row { exponent: -20, ..row("too large once it is unscaled", 4, &[1.0, 1e37]) });
    rows
}

/// Rows of the guard where all is finite, and others that do not matter.
fn good_rows() -> Vec<Row> {
    let mut rows = vec![row("nothing", 3, &[])];
    for slot in GUARD {
        rows.push(row("values beyond half", slot, &[7e4, 1e30, -65_520.0]));
        rows.push(row("a sum beyond f32", slot, &[3e38, 3e38, 3e38]));
        rows.push(row("a sum of squares beyond f32", slot, &[1e30, -1e30, 2e30]));
        rows.push(row("zeros and what flushes", slot, &[0.0, -0.0, 1e-9, -1e-30]));
    }
    for slot in (0..SLOTS).filter(|slot| !GUARD.contains(slot)) {
        rows.push(row("a NaN of others", slot, &[f32::NAN, f32::INFINITY]));
    }
    rows
}

/// Stores values into a slot, as a parameter gradient's epilogue does.
fn store<B: Backend>(rig: &Rig<'_, B>, row: &Row, detail: Detail) -> Result<(), Fail> {
    let x = rig.input(DType::F32, &row.values)?;
    let mut y = rig.output(DType::F32, row.values.len())?;
    let store = Store::param(Slot(7), Slot(row.slot), false, &rig.table, &mut y.buffer);
    Ok(rig.backend.launch(Launch::Unary { op: Unary::Id, len: x.len() as u32, x: &x, y: Store { detail, ..store } })?)
}

/// A new step with some rows stored, and no other.
fn begin<B: Backend>(rig: &mut Rig<'_, B>, setup: &Setup, rows: &[&Row], detail: Detail) -> Result<(), Fail> {
    setup.hyperparameters(rig, 2);
    rig.exponents[7] = rows.first().map_or(0, |row| row.exponent);
    rig.upload()?;
    rows.iter().try_for_each(|row| store(rig, row, detail))
}

/// Returns true if an update under `guard` takes place completely, and false if no bit changes.
fn happens<B: Backend>(
    rig: &Rig<'_, B>, setup: &Setup, what: &str, guard: impl Into<UpdateGuard>, happens: bool,
) -> Result<(), Fail> {
    let before = Values::new(setup, &lengths());
    let mut parameters = place(rig, &before, true)?;
    launch(rig, setup, guard.into(), None, &mut parameters)?;
    let after = take(rig, &parameters)?;
    if happens {
        check_step(rig, setup, None, &before, &after).map(|_| ()).map_err(of(format!("{what} should not matter")))
    } else {
        same(&format!("{what} should leave everything"), &after, &before)
    }
}

fn guards<B: Backend>(b: &B, rows: &[Row], hold: bool) -> Check {
    let mut rig = Rig::new(b)?;
    for (setup, row) in [SGD, MOMENTUM, ADAMW, EMA].iter().flat_map(|setup| rows.iter().map(move |row| (setup, row))) {
        for detail in [Detail::Counts, Detail::Moments] {
            // Other rows without an overflow surround the tested one.
            let fine: Vec<Row> =
                GUARD.filter(|&slot| slot != row.slot).map(|slot| self::row("", slot, &[1.0])).collect();
            let all: Vec<&Row> = [row].into_iter().chain(&fine).collect();
            begin(&mut rig, setup, &all, detail)?;
            happens(&rig, setup, &format!("{} in slot {} of {GUARD:?}", row.about, row.slot), GUARD, !hold)?;
        }
    }
    Ok(vec![])
}

/// One bad micro-batch skips the step: later uploads keep its rows.
fn micro_batches<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for bad in 0..3 {
        begin(&mut rig, &ADAM, &[], Detail::Counts)?;
        for batch in 0..3 {
            if batch > 0 {
                rig.seed += 1;
                rig.upload_clearing(0..0)?;
            }
            let value = if batch == bad { f32::NAN } else { 1.0 };
            GUARD
                .map(|slot| row("", slot, &[1.0, value, 2.0]))
                .try_for_each(|row| store(&rig, &row, Detail::Counts))?;
        }
        happens(&rig, &ADAM, &format!("a NaN in micro-batch {bad} of 3"), GUARD, false)?;
    }
    Ok(vec![])
}

/// The next upload empties the rows, and the next update happens.
fn recovers<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let (bad, good) = (row("", 5, &[f32::NAN]), row("", 5, &[1.0]));
    for (step, row) in [&good, &bad, &bad, &good, &bad, &good].into_iter().enumerate() {
        begin(&mut rig, &MOMENTUM, &[row], Detail::Counts)?;
        let fine = row.values[0] == 1.0;
        happens(&rig, &MOMENTUM, &format!("step {step}"), GUARD, fine)?;
    }
    Ok(vec![])
}

/// Ranges at the ends of the table, and empty ones.
fn unguarded<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let rows = [row("", 4, &[f32::NAN])];
    begin(&mut rig, &SGD, &[&rows[0]], Detail::Counts)?;
    for (guard, fine) in [(0..0, true), (4..4, true), (0..4, true), (5..SLOTS, true), (4..5, false), (0..SLOTS, false)]
    {
        happens(&rig, &SGD, &format!("a NaN in slot 4 under {guard:?}"), guard.clone(), fine)?;
    }
    Ok(vec![])
}

/// Overflows of forward stores block an update; ±∞ and NaN that the stores received do not, and neither do gradients
/// beyond half.
fn activations<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    let beyond: &[f32] = &[1.0, -70_000.0];
    let received = &[f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    for (slot, values, gradients, activations, fine) in [
        (4, beyond, 3..6, 0..0, true),
        (4, beyond, 3..4, 5..SLOTS, true),
        (4, beyond, 5..6, 2..4, true),
        (4, beyond, 3..4, 4..5, false),
        (4, beyond, 0..0, 3..6, false),
        (4, received, 2..4, 4..5, true),
        (4, received, 4..5, 2..4, false),
        (SLOTS - 1, beyond, 0..4, 5..SLOTS, false),
        (SLOTS - 1, beyond, 0..SLOTS, 5..SLOTS - 1, true),
    ] {
        for setup in [SGD, ADAMW, EMA] {
            let rows = [row("", slot, values)];
            begin(&mut rig, &setup, &[&rows[0]], Detail::Counts)?;
            let guard = UpdateGuard { gradients: gradients.clone(), activations: activations.clone() };
            happens(&rig, &setup, &format!("{values:?} in slot {slot} under {guard:?}"), guard, fine)?;
        }
    }
    // One value among many, and its counter ends with the step.
    let mut long = vec![1.0; 5000];
    long[4321] = 65_520.0;
    let guard = UpdateGuard { gradients: 3..4, activations: 4..7 };
    for values in [&long[..], &[65_519.0], &long[..], &[]] {
        let rows = [row("", 6, values)];
        begin(&mut rig, &MOMENTUM, &[&rows[0]], Detail::Moments)?;
        happens(&rig, &MOMENTUM, &format!("{} values", values.len()), guard.clone(), values.len() < 2)?;
    }
    Ok(vec![])
}

/// The parameters after one unguarded step with this limit and norm.
fn clipped<B: Backend>(rig: &mut Rig<'_, B>, setup: &Setup, norm: Option<f32>) -> Result<Vec<Values>, Fail> {
    setup.hyperparameters(rig, 3);
    rig.upload()?;
    let mut parameters = place(rig, &Values::new(setup, &lengths()), true)?;
    let norm = norm.map(|norm| rig.padded(DType::F32, &[norm])).transpose()?;
    launch(rig, setup, GUARD.into(), norm.as_ref(), &mut parameters)?;
    take(rig, &parameters)
}

/// A norm up to the limit changes nothing, not a bit: there is no epsilon.
fn below<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for setup in [SGD, MOMENTUM, ADAMW, Setup { max_value: Some(0.25), ..SGD }] {
        let want = clipped(&mut rig, &setup, None)?;
        for (most, norm) in [(0.75, 0.75), (0.75, 0.5), (0.75, 0.75f32.next_down()), (1e-3, 0.0), (1e30, 1e29)] {
            let got = clipped(&mut rig, &Setup { max_norm: Some(most), ..setup }, Some(norm))?;
            same(&format!("norm {norm} of at most {most}"), &got, &want)?;
        }
        // A norm that is not used for clipping has no effect.
        same("a norm without a limit", &clipped(&mut rig, &setup, Some(1e9))?, &want)?;
    }
    Ok(vec![])
}

/// A norm above the limit scales every gradient by their ratio, after the clipping by value.
fn above<B: Backend>(b: &B) -> Check {
    let (mut rig, mut measured) = (Rig::new(b)?, vec![]);
    for setup in [SGD, MOMENTUM, ADAM, ADAMW, Setup { max_value: Some(0.25), decay: 0.1, ..SGD }] {
        for (most, norm) in [(0.75f32, 0.75f32.next_up()), (0.75, 3.0), (1e-3, 7.0), (2.0, 1e20)] {
            let setup = Setup { max_norm: Some(most), ..setup };
            let after = clipped(&mut rig, &setup, Some(norm))?;
            let before = Values::new(&setup, &lengths());
            merge(&mut measured, &check_step(&rig, &setup, Some(norm.into()), &before, &after)?);
        }
    }
    Ok(measured)
}

/// The norm that the device itself has found, without the host between. One that is not finite is the guard's business.
fn measured_norm<B: Backend>(b: &B) -> Check {
    let (mut rig, mut measured) = (Rig::new(b)?, vec![]);
    for (most, bad) in [(0.5, false), (1e9, false), (0.5, true)] {
        let setup = Setup { max_norm: Some(most), ..SGD };
        let rows = [row("", 5, &[if bad { f32::NAN } else { 1.0 }])];
        begin(&mut rig, &setup, &[&rows[0]], Detail::Counts)?;
        let mut before = Values::new(&setup, &lengths());
        if bad {
            before[2].grad[Random(1).below(700) as usize] = f32::NAN;
        }
        let grads: Vec<B::Buffer> =
            before.iter().map(|values| rig.input(DType::F32, &values.grad)).collect::<Result<_, _>>()?;
        let mut norm = rig.output(DType::F32, 1)?;
        b.launch(Launch::GlobalNorm { gradients: &grads.iter().collect::<Vec<_>>(), norm: &mut norm.buffer })?;
        let mut parameters = place(&rig, &before, true)?;
        launch(&rig, &setup, GUARD.into(), Some(&norm.buffer), &mut parameters)?;
        let after = take(&rig, &parameters)?;
        if bad {
            same("a NaN in the gradients", &after, &before)?;
            continue;
        }
        let squares: f64 = before.iter().flat_map(|values| &values.grad).map(|&g| f64::from(g).powi(2)).sum();
        // The norm's own tolerance belongs to its own cases.
        let found = f64::from(rig.take(&norm)?[0]);
        if (found / squares.sqrt() - 1.0).abs() > 1e-4 {
            return Err(Fail::new(format!("the norm is {found}, not {}", squares.sqrt())));
        }
        merge(&mut measured, &check_step(&rig, &setup, Some(found), &before, &after)?);
    }
    Ok(measured)
}
