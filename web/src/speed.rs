//! Matrix products of halves, by whose time the page knows the speed of the visitor's device.

use gradscale::{
    gradscale_core::{
        backend::{Backend, Control, DType, Data, DataMut, Launch, Slot, Store},
        ops::Gemm,
        stats::Detail,
    },
    half::f16,
};

/// Maximum size of a product: its operands and results take 100 MB.
const MAX_SIZE: u32 = 4096;
/// Maximum number of products of a request.
const MAX_COUNT: u32 = 1000;

/// Computes `count` products of halves, `size` by `size` each, and waits for the last one.
///
/// # Errors
/// A size or number out of range, or the device's.
pub async fn multiply<B: Backend>(device: &B, size: u32, count: u32) -> Result<(), Box<dyn std::error::Error>>
where
    B::Error: std::error::Error + 'static,
{
    if !(1..=MAX_SIZE).contains(&size) || count > MAX_COUNT {
        return Err(format!("{count} products of {size}: choose at most {MAX_COUNT}, of 1 to {MAX_SIZE}").into());
    }
    let p = Gemm::new(size, size, size)?;
    let len = (size * size) as usize;
    let mut table = device.table(Slot::FIRST_SITE.0, 0)?;
    let control = Control { exponents: &[0, 0], hyperparameters: &[], seed: 0, detail: Detail::None };
    device.upload(&control, 0..0, &mut table)?;
    let ones = vec![f16::ONE; len];
    let (mut a, mut b, mut y) =
        (device.alloc(DType::F16, len)?, device.alloc(DType::F16, len)?, device.alloc(DType::F16, len)?);
    device.write(Data::F16(&ones), &mut a)?;
    device.write(Data::F16(&ones), &mut b)?;
    for _ in 0..count {
        device.launch(Launch::Gemm { p, a: &a, b: &b, bias: None, y: Store::keep(Slot::ONE, &table, &mut y) })?;
    }
    let mut results = vec![f16::ZERO; len];
    device.read(&y, DataMut::F16(&mut results)).await?;
    if count > 0 && results[0].to_f32() != size as f32 {
        return Err(format!("a product of {size} ones is {}", results[0]).into());
    }
    Ok(())
}
