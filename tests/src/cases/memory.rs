//! Buffers: written values are read back, and nothing else changes.

use super::Case;
use crate::{
    case::{Check, Fail},
    data::{Random, edges, lengths},
    rig::Rig,
    wait::block_on,
};
use gradscale_core::{
    backend::{Backend, Buffer, DType, Data, DataMut, Error, ErrorKind, Launch, Slot, Store},
    ops::Unary,
};
use half::f16;

pub fn cases<B: Backend + 'static>(cases: &mut Vec<Case<B>>) {
    cases.push(Case::new("memory::round_trip", round_trip::<B>));
    cases.push(Case::new("memory::part", part::<B>));
    cases.push(Case::new("memory::together", together::<B>));
    cases.push(Case::new("memory::prefetch", prefetch::<B>));
    cases.push(Case::new("memory::too_large", too_large::<B>));
}

/// Tests all types and all bits of numbers; a NaN must stay a NaN.
fn round_trip<B: Backend>(b: &B) -> Check {
    for len in lengths() {
        let mut random = Random(len as u64);
        let floats: Vec<f32> = edges().into_iter().cycle().take(len).collect();
        let halves: Vec<f16> = (0..len).map(|_| f16::from_bits(random.bits() as u16)).collect();
        let bytes: Vec<u8> = (0..len).map(|_| random.bits() as u8).collect();
        let words: Vec<u32> = (0..len).map(|_| random.bits() as u32).collect();
        let mut back = (vec![0f32; len], vec![f16::ZERO; len], vec![0u8; len], vec![0u32; len]);
        let pairs = [
            (Data::F32(&floats), DataMut::F32(&mut back.0)),
            (Data::F16(&halves), DataMut::F16(&mut back.1)),
            (Data::U8(&bytes), DataMut::U8(&mut back.2)),
            (Data::U32(&words), DataMut::U32(&mut back.3)),
        ];
        for (data, out) in pairs {
            let mut buffer = b.alloc(data.dtype(), len)?;
            if buffer.len() != len || buffer.dtype() != data.dtype() {
                return Err(Fail::new(format!(
                    "{:?}[{len}] became {:?}[{}]",
                    data.dtype(),
                    buffer.dtype(),
                    buffer.len()
                )));
            }
            b.write(data, &mut buffer)?;
            block_on(b.read(&buffer, out))?;
        }
        let same_f32 = floats.iter().zip(&back.0).all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan());
        let same_f16 = halves.iter().zip(&back.1).all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan());
        if !(same_f32 && same_f16 && bytes == back.2 && words == back.3) {
            return Err(Fail::new(format!("{len} elements did not come back")));
        }
    }
    Ok(vec![])
}

/// Writing and reading the start of a buffer leaves the rest.
fn part<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    for dtype in [DType::F32, DType::F16, DType::U8, DType::U32] {
        for start in [0, 1, 3, 5] {
            let mut buffer = rig.input(dtype, &[9.0; 11])?;
            rig.fill(&mut buffer, &vec![4.0; start])?;
            let want: Vec<f32> = (0..11).map(|i| if i < start { 4.0 } else { 9.0 }).collect();
            let got = rig.read(&buffer)?;
            if got != want {
                return Err(Fail::new(format!("{dtype:?}: after a write of {start} elements: {got:?}")));
            }
        }
    }
    Ok(vec![])
}

/// Buffers that were allocated together behave as separate ones: own length, values and lifetime.
fn together<B: Backend>(b: &B) -> Check {
    let rig = Rig::new(b)?;
    let lens = [5, 0, 1, 67, 1000, 3, 64, 65];
    for dtype in [DType::F32, DType::F16, DType::U8, DType::U32] {
        let mut all = Vec::new();
        b.alloc_group(dtype, &lens, &mut all)?;
        let seen: Vec<usize> = all.iter().map(Buffer::len).collect();
        if seen != lens || all.iter().any(|buffer| buffer.dtype() != dtype) {
            return Err(Fail::new(format!("{lens:?} of {dtype:?} became {seen:?}")));
        }
        for (i, buffer) in all.iter_mut().enumerate() {
            rig.fill(buffer, &vec![i as f32; lens[i]])?;
        }
        // Others go and come.
        let mut kept: Vec<(usize, B::Buffer)> = all.into_iter().enumerate().filter(|(i, _)| i % 2 == 0).collect();
        let other = rig.input(dtype, &[77.0; 99])?;
        for (i, buffer) in &mut kept {
            rig.fill(buffer, &vec![100.0; lens[*i].min(3)])?;
        }
        for (i, buffer) in &kept {
            let want: Vec<f32> = (0..lens[*i]).map(|at| if at < 3 { 100.0 } else { *i as f32 }).collect();
            let got = rig.read(buffer)?;
            if got != want {
                return Err(Fail::new(format!("{dtype:?}, buffer {i} of {lens:?}: {got:?}")));
            }
        }
        if rig.read(&other)? != [77.0; 99] {
            return Err(Fail::new("a buffer beside those that were allocated together changed"));
        }
    }
    let mut none: Vec<B::Buffer> = Vec::new();
    b.alloc_group(DType::F32, &[], &mut none)?;
    if none.is_empty() { Ok(vec![]) } else { Err(Fail::new("buffers of no length at all")) }
}

/// Data that were prefetched during other work are visible to later work in the order of their prefetches, but not to
/// work before the last upload. The host's copy is free immediately, and the rest of the buffer does not change.
fn prefetch<B: Backend>(b: &B) -> Check {
    let mut rig = Rig::new(b)?;
    for len in [0, 1, 1 << 10, 1 << 17] {
        let mut old = 9.0;
        let mut ahead = rig.input(DType::F32, &vec![old; len + 1])?;
        let x = rig.input(DType::F32, &vec![0.5; len])?;
        let mut y = rig.input(DType::F32, &vec![0.0; len])?;
        let mut seen = [rig.input(DType::F32, &vec![0.0; len + 1])?, rig.input(DType::F32, &vec![0.0; len + 1])?];
        for round in 0..3 {
            // Work of some duration, so that a prefetch that must wait can be found not to.
            let work = |rig: &Rig<'_, B>, y: &mut B::Buffer| {
                (0..16).try_for_each(|_| {
                    b.launch(Launch::Unary {
                        op: Unary::Exp,
                        len: x.len() as u32,
                        x: &x,
                        y: Store::keep(Slot::ONE, &rig.table, y),
                    })
                })
            };
            work(&rig, &mut y)?;
            b.launch(Launch::Unary {
                op: Unary::Id,
                len: ahead.len() as u32,
                x: &ahead,
                y: Store::keep(Slot::ONE, &rig.table, &mut seen[0]),
            })?;
            rig.upload()?;
            work(&rig, &mut y)?;
            let new = round as f32;
            for value in [-1.0, new] {
                let values = vec![value; len];
                b.prefetch(Data::F32(&values), &mut ahead)?;
            }
            b.launch(Launch::Unary {
                op: Unary::Id,
                len: ahead.len() as u32,
                x: &ahead,
                y: Store::keep(Slot::ONE, &rig.table, &mut seen[1]),
            })?;
            for (seen, value, when) in
                [(&seen[0], old, "before"), (&seen[1], new, "after"), (&ahead, new, "at the end")]
            {
                let got = rig.read(seen)?;
                if got[..len].iter().any(|&v| v != value) || got[len] != 9.0 {
                    return Err(Fail::new(format!("{len} elements, round {round}: {when}, not {value}")));
                }
            }
            old = new;
        }
    }
    Ok(vec![])
}

/// More than the device has is an error with a kind, and the device lives on.
fn too_large<B: Backend>(b: &B) -> Check {
    let most = usize::try_from(b.caps().max_buffer).unwrap_or(usize::MAX);
    let large = most.saturating_add(1);
    for asked in [b.alloc(DType::F32, large).map(|_| ()), b.alloc_group(DType::F32, &[3, large, 5], &mut Vec::new())] {
        match asked {
            Ok(()) => return Err(Fail::new("a buffer larger than the largest was allocated")),
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {}
            Err(error) => return Err(Fail::new(format!("kind {:?} instead of OutOfMemory: {error}", error.kind()))),
        }
    }
    round_trip(b)
}
