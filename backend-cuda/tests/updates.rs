//! AdamW's update has core's bits, also where it multiplies by a precomputed reciprocal (`quotient` of `optimize.cu`).

mod emulated;

use emulated::Emulated;
use gradscale_core::{
    backend::{Backend, Control, DType, Data, DataMut, Hyperparameter, Launch, Param, Slot},
    ops::{Optimizer, Rule},
    stats::Detail,
};
use gradscale_cuda::{Cuda, Error};
use pollster::block_on;

/// Numbers of both signs, of all magnitudes with every tenth of them near zero or infinity, by a seed.
fn numbers(seed: u32, len: usize, exponents: [u32; 2]) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let [least, most] = exponents;
    let number = |_| match next() % 50 {
        0 => 0.0,
        1 => -0.0,
        2 => f32::from_bits(next() & 0x7F_FFFF),
        _ => f32::from_bits((least + next() % (most - least)) << 23 | next() & 0x7F_FFFF | next() << 31),
    };
    (0..len).map(number).collect()
}

fn update(device: &Cuda, p: Optimizer, numbers: [f32; 3], columns: &[Vec<f32>; 4]) -> Result<[Vec<f32>; 3], Error> {
    let len = columns[0].len();
    let mut table = device.table(3, 3)?;
    let control = Control { exponents: &[0; 3], hyperparameters: &numbers, seed: 0, detail: Detail::Counts };
    device.upload(&control, 0..3, &mut table)?;
    let buffer = |values: &Vec<f32>| {
        let mut buffer = device.alloc(DType::F32, len)?;
        device.write(Data::F32(values), &mut buffer)?;
        Ok::<_, Error>(buffer)
    };
    let [mut master, grad, mut first, mut second] =
        [buffer(&columns[0])?, buffer(&columns[1])?, buffer(&columns[2])?, buffer(&columns[3])?];
    let param = Param {
        len: u32::try_from(len).expect("few"),
        master: &mut master,
        grad: &grad,
        state: [Some(&mut first), Some(&mut second)],
        half: None,
    };
    let guard = (Slot::FIRST_SITE.0..Slot::FIRST_SITE.0 + 1).into();
    device.launch(Launch::Optimize { p, table: &table, guard, norm: None, parameters: &mut [param] })?;
    let mut results = [vec![0.0; len], vec![0.0; len], vec![0.0; len]];
    for (buffer, result) in [&master, &first, &second].into_iter().zip(&mut results) {
        block_on(device.read(buffer, DataMut::F32(result)))?;
    }
    Ok(results)
}

#[test]
fn adam_has_the_bits_of_core() {
    let emulated = match Emulated::new(80, 2) {
        Ok(emulated) => emulated,
        Err(reason) => return println!("SKIPPED: {reason}"),
    };
    let device = emulated.open().expect("a device");
    // Not a multiple of four, and more than one piece. Some groups have only ordinary values, others an extreme one.
    let len = 4103;
    for exponents in [[90, 140], [1, 254]] {
        let mut columns = [1, 2, 3, 4].map(|seed| numbers(seed, len, exponents));
        columns[3].iter_mut().for_each(|v| *v = v.abs());
        // Corrections of the first step, of the tenth, of a late one, and one that no reciprocal serves.
        for correction in [[0.1, 0.001], [0.651_321_6, 0.009_955_12], [1.0, 0.632_304_4], [1e-40, 2.0]] {
            for decoupled in [false, true] {
                let [lr, first, second] = [0, 1, 2].map(Hyperparameter);
                let rule = Rule::Adam { beta: [0.9, 0.999], eps: 1e-8, correction: [first, second], decoupled };
                let p = Optimizer::new(rule, lr).and_then(|p| p.decay(0.01)).expect("an optimizer");
                let given = [0.003, correction[0], correction[1]];
                let seen = update(&device, p, given, &columns).expect("it runs");
                let step = p.step(|Hyperparameter(i)| given[usize::from(i)], None);
                for i in 0..len {
                    let [w, g, a, b] = [0, 1, 2, 3].map(|column| columns[column][i]);
                    let (w_new, states) = step.update(w, g, [a, b]);
                    let (wanted, got) = ([w_new, states[0], states[1]], [0, 1, 2].map(|column| seen[column][i]));
                    let same =
                        wanted.iter().zip(&got).all(|(x, y)| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan());
                    assert!(same, "{correction:?}, {decoupled}: {wanted:?}, not {got:?}, of {w}, {g}, {a}, {b}");
                }
            }
        }
    }
}
