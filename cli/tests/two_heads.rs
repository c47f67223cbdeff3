//! A case where no single scale works: two heads whose losses differ by 2^46 in weight.
//!
//! A trunk has a head for the ten classes of Fashion-MNIST. A second tower on a detached copy of its features separates
//! classes 0 … 4 from 5 … 9. The second loss has the weight 2^-46. The tower's learning rate is 2^46 times as large, so
//! that training in f32 is the same as with equal weights. Gradients of the two towers differ by 2^46, while FP16's
//! range is 2^-24 to 2^16.
//!
//! Needs `fashion-mnist-10k` in the directory that GRADSCALE_DATA names.

use gradscale::{
    Cpu, Input, Method, Parameters, Trainer, TrainerOptions, Var,
    gradscale_core::backend::Backend,
    models::Mlp,
    nn::Module,
    optim::{Optimizer, Schedule, Sgd},
};
use gradscale_cli::data::{Classification, DataOptions};
use std::path::PathBuf;

const STEPS: usize = 600;
const BATCH: usize = 64;
const GAP: i32 = 46;
const LR: f64 = 0.05;

/// Accuracies of both heads, and skipped steps. A training that ends early keeps the weights it has.
#[derive(Clone, Copy, Debug)]
struct Result {
    ten: f64,
    two: f64,
    skipped: usize,
}

struct Net {
    trunk: Mlp,
    ten: Mlp,
    tower: Mlp,
}

impl Net {
    fn heads<'t>(&self, x: Var<'t>) -> [Var<'t>; 2] {
        let features = self.trunk.forward(x.scale(1.0 / 255.0)).relu();
        [self.ten.forward(features), self.tower.forward(features.detach())]
    }
}

fn train<B: Backend<Error: 'static>>(device: B, method: &str, train: &Classification, test: &Classification) -> Result {
    let method: Method = method.parse().expect("a method");
    let mut parameters = Parameters::seeded(0);
    let net = Net {
        trunk: Mlp::new(&mut parameters.at("trunk"), &[784, 128]),
        ten: Mlp::new(&mut parameters.at("ten"), &[128, 10]),
        tower: Mlp::new(&mut parameters.at("tower"), &[128, 64, 2]),
    };
    let optimizer = Optimizer::from(Sgd { momentum: 0.9, weight_decay: 1e-4, ..Sgd::new(LR) }).group(
        "tower",
        LR * f64::from(GAP).exp2(),
        1e-4 * 2f32.powi(-GAP),
    );
    let optimizer = optimizer.schedule(Schedule::Cosine { steps: STEPS as u64 });
    let mut trainer = Trainer::new(device, parameters, optimizer, method)
        .expect("a trainer")
        .with_options(TrainerOptions::new().with_skip_limit(0));
    let mut skipped = 0;
    for step in 0..STEPS {
        let from = step * BATCH % (train.count - BATCH);
        let images = &train.features.memory()[from * 784..(from + BATCH) * 784];
        let labels = &train.labels[from..from + BATCH];
        let upper: Vec<u8> = labels.iter().map(|&label| u8::from(label >= 5)).collect();
        let batch = [Input::u8([BATCH, 784], images), Input::u32([BATCH], labels), Input::u8([BATCH], &upper)];
        let gradients = trainer.backward(batch, |[x, labels, upper]| {
            let [ten, two] = net.heads(x);
            ten.cross_entropy(labels) + two.cross_entropy(upper).scale(2f32.powi(-GAP))
        });
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        skipped += usize::from(outcome.skipped.is_some());
    }
    let mut right = |head: usize| {
        let images = [Input::u8([test.count, 784], test.features.memory())];
        let best = trainer.evaluate_integers(images, |[x]| net.heads(x)[head].argmax()).expect("an evaluation");
        let truth = |label: u32| if head == 0 { label } else { u32::from(label >= 5) };
        let right = best.data.iter().zip(&test.labels).filter(|(best, label)| **best == truth(**label)).count();
        right as f64 / test.count as f64
    };
    Result { ten: right(0), two: right(1), skipped }
}

#[test]
fn only_gradient_scaling_trains_both_heads() {
    let Some(root) = std::env::var_os("GRADSCALE_DATA").map(PathBuf::from) else {
        println!("SKIPPED: two heads on Fashion-MNIST; set GRADSCALE_DATA to the directory with fashion-mnist-10k");
        return;
    };
    let (images, test) =
        Classification::load_idx(root.join("fashion-mnist-10k"), &DataOptions::default()).expect("Fashion-MNIST");
    let run = |method: &str| {
        let result = train(Cpu::new(0).expect("threads"), method, &images, &test);
        let Result { ten, two, skipped } = result;
        println!("{method:14} ten classes {:.1} %, two {:.1} %, {skipped} skipped", 100.0 * ten, 100.0 * two);
        result
    };
    let f32 = run("fp32");
    assert!(f32.ten > 0.8 && f32.two > 0.85, "in f32 both heads train");
    // Two points are noise at this size.
    let as_good = |result: Result| [result.ten > f32.ten - 0.02, result.two > f32.two - 0.02];
    assert_eq!(as_good(run("gs")), [true, true]);
    let fixed: Vec<String> = (0..=40).step_by(4).map(|k| format!("fixed:{}", 2f64.powi(k))).collect();
    let others = fixed.iter().map(String::as_str).chain(["fp16", "dynamic", "dynamic:10"]);
    for method in others {
        assert_ne!(as_good(run(method)), [true, true], "{method} got both");
    }
    println!("two heads on Fashion-MNIST: PASSED");
}

/// The same on a GPU: with its own scales both heads train, under one scale they do not.
#[cfg(feature = "wgpu")]
#[test]
fn both_heads_train_on_wgpu() {
    let Some(root) = std::env::var_os("GRADSCALE_DATA").map(PathBuf::from) else {
        println!("SKIPPED: two heads on wgpu; set GRADSCALE_DATA to the directory with fashion-mnist-10k");
        return;
    };
    let (images, test) =
        Classification::load_idx(root.join("fashion-mnist-10k"), &DataOptions::default()).expect("Fashion-MNIST");
    let run = |method: &str| {
        let device = match gradscale::Wgpu::new(0) {
            Ok(device) => device,
            Err(error) if std::env::var("GRADSCALE_REQUIRE_DEVICE").is_ok_and(|value| value == "1") => {
                panic!("no device, and one is required: {error}")
            }
            Err(error) => {
                println!("SKIPPED: two heads on wgpu: {error}");
                return None;
            }
        };
        let result = train(device, method, &images, &test);
        println!("wgpu, {method}: ten classes {:.1} %, two {:.1} %", 100.0 * result.ten, 100.0 * result.two);
        Some(result)
    };
    let Some(f32) = run("fp32") else { return };
    assert!(f32.ten > 0.8 && f32.two > 0.85, "in f32 both heads train");
    let as_good = |result: Option<Result>| {
        result.is_some_and(|result| result.ten > f32.ten - 0.02 && result.two > f32.two - 0.02)
    };
    assert!(as_good(run("gs")), "a head does not train");
    assert!(!as_good(run("dynamic")), "one scale trained both heads");
}
