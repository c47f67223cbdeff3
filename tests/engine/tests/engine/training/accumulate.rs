//! Several micro-batches in one step.

use super::{Data, Training};
use crate::{f64 as oracle, f64::Tensor};
use gradscale::{
    Cpu, Method,
    optim::{Adam, Sgd},
};
use gradscale::{
    Input, Parameters, Pass, Trainer,
    nn::{Linear, Module},
};

/// Rows between these.
fn parts(cuts: &[usize]) -> Vec<std::ops::Range<usize>> {
    cuts.windows(2).map(|cut| cut[0]..cut[1]).collect()
}

/// Returns the gradients of a linear network: of twelve rows in one batch, and of micro-batches with their share of the
/// mean.
#[test]
fn micro_batches_add_to_one_batch() {
    let data = Data::new(1, 12);
    for (method, bound) in [(Method::fp32(), 3e-7), (Method::mixed(), 2f64.powi(-10))] {
        for parts in [parts(&[0, 12]), parts(&[0, 4, 8, 12]), parts(&[0, 7, 8, 12])] {
            let mut parameters = Parameters::seeded(1);
            let [one, two] = ["one", "two"].map(|name| Linear::new(&mut parameters.at(name), 4, 4));
            let three = Linear::new(&mut parameters.at("three"), 4, 3);
            let layers = vec![one, two, three];
            let sgd = Sgd::new(0.0);
            let mut trainer = Trainer::new(Cpu::new(1).unwrap(), parameters, sgd, method.clone()).unwrap();
            let mut gradients = None;
            for part in &parts {
                let data = data.rows(part.clone(), part.len() as f32 / 12.0);
                let batch: [Input<'_>; 3] = data.batch();
                gradients = Some(match gradients {
                    None => trainer.backward(batch, |[x, y, f]| layers.forward(x).mse_loss(y) * f).unwrap(),
                    Some(before) => trainer
                        .backward(Pass::new(batch).accumulate(before), |[x, y, f]| layers.forward(x).mse_loss(y) * f)
                        .unwrap(),
                });
            }
            let gradients = gradients.unwrap();
            assert_eq!(gradients.micro_batches() as usize, parts.len());
            let read = |name: &str| trainer.parameter(name).unwrap();
            let tensor = |name: &str| Tensor::new(read(name).shape.sizes(), &read(name).data);
            // dL/db3 and dL/dw3, by hand: 2/36·(y − t), summed over rows.
            let layer = |x: &Tensor, name: &str| {
                oracle::linear(x, &tensor(&format!("{name}.weight")), Some(&tensor(&format!("{name}.bias"))))
            };
            let hidden = layer(&layer(&Tensor::new([12, 1, 1, 4], &data.x), "one"), "two");
            let target = Tensor::new([12, 1, 1, 3], &data.target);
            let dy = layer(&hidden, "three").binary(&target, |y, t| 2.0 / 36.0 * (y - t));
            let dw: Vec<f64> = (0..12)
                .map(|i| (0..12).map(|row| dy.data[row * 3 + i / 4] * hidden.data[row * 4 + i % 4]).sum())
                .collect();
            let found = trainer.gradient(&gradients, "three.weight").unwrap().unwrap().data;
            let largest = dw.iter().fold(0f64, |most, x| most.max(x.abs()));
            let worst = found.iter().zip(&dw).fold(0f64, |most, (x, y)| most.max((f64::from(*x) - y).abs()));
            println!("{parts:?}: {:.1e}", worst / largest);
            assert!(worst < bound * largest, "{parts:?}: {}", worst / largest);
            let right = oracle::mse(&layer(&hidden, "three"), &target);
            let loss = trainer.step(gradients).unwrap().loss;
            assert!((f64::from(loss) - right).abs() < bound * right, "{loss} instead of {right}");
        }
    }
}

/// Running statistics take one step from the mean over micro-batches, with the variance times n / (n − 1).
#[test]
fn running_statistics() {
    let data = Data::new(5, 12);
    for parts in [parts(&[0, 12]), parts(&[0, 4, 8, 12])] {
        let mut training = Training::new(Sgd::new(0.0).into(), "fp32");
        let first = |name: &str, training: &Training<Cpu>| {
            let read = training.trainer.parameter(&format!("net.first.{name}")).unwrap();
            Tensor::new(read.shape.sizes(), &read.data)
        };
        let (w, b) = (first("weight", &training), first("bias", &training));
        let (mut mean, mut variance) = ([0f64; 6], [0f64; 6]);
        for part in &parts {
            let n = part.len() as f64;
            let x = Tensor::new([part.len(), 1, 1, 4], &data.rows(part.clone(), 1.0).x);
            let y = oracle::linear(&x, &w, Some(&b));
            for c in 0..6 {
                let column: Vec<f64> = (0..part.len()).map(|row| y.data[row * 6 + c]).collect();
                let center = column.iter().sum::<f64>() / n;
                mean[c] += center / parts.len() as f64;
                variance[c] +=
                    column.iter().map(|y| (y - center).powi(2)).sum::<f64>() / (n - 1.0) / parts.len() as f64;
            }
        }
        // Two steps from 0 and 1, keeping 0.9: ends at 0.19 of the batch's.
        for _ in 0..2 {
            let mut gradients = training.backward(&data.rows(parts[0].clone(), 1.0));
            for part in &parts[1..] {
                gradients = training.more(gradients, &data.rows(part.clone(), 1.0));
            }
            assert_eq!(training.trainer.step(gradients).unwrap().skipped, None);
        }
        let running = training.trainer.parameter("net.norm.running").unwrap().data;
        for c in 0..6 {
            let right = [0.19 * mean[c], 0.81 + 0.19 * variance[c]];
            for (found, right) in [running[c], running[6 + c]].into_iter().zip(right) {
                assert!((f64::from(found) - right).abs() < 2e-6 * right.abs().max(0.1), "{found} instead of {right}");
            }
        }
    }
}

/// One bad micro-batch of three skips the step, at any position, and changes no state.
#[test]
fn a_bad_micro_batch_skips_the_step() {
    let data = Data::new(5, 12);
    for method in ["gs:exact", "fixed:1024", "gs:paper"] {
        for bad in 0..3 {
            let mut training = Training::new(Adam::new(0.1).into(), method);
            training.step(&data);
            let before = training.bits();
            let part = |i: usize, bad: bool| {
                let factor = if bad { 2f32.powi(70) } else { 1.0 };
                data.rows(4 * i..4 * i + 4, factor)
            };
            let mut gradients = training.backward(&part(0, bad == 0));
            for i in 1..3 {
                gradients = training.more(gradients, &part(i, bad == i));
            }
            let outcome = training.trainer.step(gradients).unwrap();
            assert!(outcome.skipped.is_some(), "{method} {bad}");
            assert_eq!(training.bits(), before, "{method} {bad}");
            let mut gradients = training.backward(&part(0, false));
            gradients = training.more(gradients, &part(1, false));
            assert_eq!(training.trainer.step(gradients).unwrap().skipped, None, "{method} {bad}");
            assert_ne!(training.bits(), before);
        }
    }
}

/// Rows of all micro-batches add.
#[test]
fn rows_add() {
    let data = Data::new(5, 12);
    let mut training = Training::new(Sgd::new(0.0).into(), "gs:exact");
    for parts in [1, 3] {
        let mut gradients = training.backward(&data.rows(0..4, 1.0));
        for i in 1..parts {
            gradients = training.more(gradients, &data.rows(4 * i..4 * i + 4, 1.0));
        }
        training.trainer.step(gradients).unwrap();
        let counts: Vec<u64> = training.trainer.sites().map(|site| site.row.counts().count).collect();
        assert_eq!(counts, [12, 24, 24].map(|one| one * parts as u64));
    }
}
