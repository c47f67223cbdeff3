//! The engine's decisions for SegNetBasic in its first steps, by each rule, as files. `python/tests` compares them with
//! PyTorch's training of the same network from the same weights.

use gradscale::{
    Cpu, Input, Isa, Method, Parameters, SiteReport, Trainer, models::SegNet, nn::Module, optim::Sgd, replay::Seen,
};
use serde_json::{Value, json};
use std::{fs, path::PathBuf};

/// A file.
struct Run {
    name: &'static str,
    method: &'static str,
    steps: usize,
    /// Factor of the loss.
    factor: f32,
    /// Number of steps whose rows the file contains. It is small because rows are long.
    with_rows: usize,
}

const EXACT: Run = Run { name: "segnet", method: "gs:gamma=0.02,interval=1", steps: 20, factor: 1.0, with_rows: 2 };
const PAPER: Run =
    Run { name: "segnet_paper", method: "gs:paper,interval=3", steps: 7, factor: 1.0 / 4096.0, with_rows: 0 };
const AUTHORS: Run =
    Run { name: "segnet_authors", method: "gs:authors,interval=3", steps: 7, factor: 1.0 / 4096.0, with_rows: 0 };
/// Gradients in a format of 8 bits, which the engine rounds in a launch of its own, and PyTorch in the store.
const EIGHT_BITS: Run = Run {
    name: "segnet_eight_bits",
    method: "gs:gamma=0.02,interval=1,grad=e4m3",
    steps: 7,
    factor: 1.0,
    with_rows: 0,
};

const BATCH: usize = 2;
const HEIGHT: usize = 64;
const WIDTH: usize = 96;
const CHANNELS: usize = 8;
const CLASSES: usize = 5;

/// Numbers from 0 to below 2^24, the same in every language: the upper bits of a linear congruential generator.
struct Drawn(u32);

impl Iterator for Drawn {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some(self.0 >> 8)
    }
}

/// Returns a line for each step: its loss, and for each site in backward order its row and its decision.
fn lines(run: &Run) -> Vec<Value> {
    let mut parameters = Parameters::seeded(0);
    let net = SegNet::new(&mut parameters.at("net"), 3, CHANNELS, CLASSES);
    let optimizer = Sgd { momentum: 0.9, weight_decay: 5e-4, ..Sgd::new(0.01) };
    let method: Method = run.method.parse().expect("a method");
    // The definition of all kernels: a matrix unit adds in another order, and soon decides otherwise, as f64 would too.
    let device = Cpu::with_isa(1, Isa::Portable).expect("a thread");
    let mut trainer = Trainer::new(device, parameters, optimizer, method).expect("a trainer");
    // Weights of convolutions are uniform, with the variance of He et al.; one generator, in the order of the names.
    let mut drawn = Drawn(1);
    for (name, tensor) in trainer.parameters().expect("readable") {
        if name.contains(".conv") || name.ends_with("classifier.weight") {
            let [_, rows, columns, inputs] = tensor.shape.sizes();
            let most = (6.0 / (rows * columns * inputs) as f64).sqrt();
            #[expect(clippy::cast_possible_truncation, reason = "rounded to f32 on purpose")]
            let value = |bits: u32| ((f64::from(bits) / f64::from(1 << 23) - 1.0) * most) as f32;
            let values: Vec<f32> = drawn.by_ref().map(value).take(tensor.data.len()).collect();
            trainer.set_parameter(&name, &values).expect("a weight");
        }
    }
    let mut byte = |below: u32| u8::try_from(drawn.next().expect("without end") % below).expect("a byte");
    let images: Vec<u8> = (0..BATCH * HEIGHT * WIDTH * 3).map(|_| byte(256)).collect();
    // Stripes of classes.
    let labels: Vec<u8> =
        (0..BATCH * HEIGHT * WIDTH).map(|i| u8::try_from(i / 7 % CLASSES).expect("a class")).collect();
    let step = |step: usize| {
        let batch = [Input::u8([BATCH, HEIGHT, WIDTH, 3], &images), Input::u8([BATCH, HEIGHT, WIDTH, 1], &labels)];
        let gradients = trainer
            .backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels) * run.factor)
            .expect("gradients");
        let outcome = trainer.step(gradients).expect("a step");
        assert_eq!(outcome.skipped, None);
        let site = |site: SiteReport<'_>| {
            let seen = Seen::from_row(site.name, site.row, site.alpha, None);
            let mut line = json!({ "name": seen.name, "exponent": seen.exponent, "next": seen.next });
            if step < run.with_rows {
                line["words"] = json!(seen.words);
            }
            line
        };
        let sites: Vec<Value> = trainer.sites().map(site).collect();
        let mut line = json!({ "iteration": step + 1, "skipped": false, "loss": outcome.loss, "sites": sites });
        if step == 0 {
            line["method"] = json!(run.method);
        }
        line
    };
    (0..run.steps).map(step).collect()
}

fn path(run: &Run) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../../python/tests/{}.jsonl", run.name))
}

/// Compares a run with its file. After an intended change of networks or rules, `GRADSCALE_WRITE_DECISIONS=1` writes
/// the file again.
fn check(run: &Run) {
    let here = lines(run);
    if std::env::var_os("GRADSCALE_WRITE_DECISIONS").is_some() {
        let text: Vec<String> = here.iter().map(ToString::to_string).collect();
        fs::write(path(run), text.join("\n") + "\n").expect("written");
    }
    let file = fs::read_to_string(path(run)).expect("the file");
    let there: Vec<Value> = file.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!(here.len(), there.len());
    let mut decided = 0;
    for (here, there) in here.iter().zip(&there) {
        let sites = |line: &Value| line["sites"].as_array().expect("sites").clone();
        for (here, there) in sites(here).iter().zip(&sites(there)) {
            assert_eq!([&here["name"], &here["next"]], [&there["name"], &there["next"]], "{here} and {there}");
            decided += 1;
        }
    }
    assert!(decided >= 15 * run.steps, "{decided} decisions");
}

#[test]
fn the_engine_decides_what_the_file_says() {
    check(&EXACT);
}

#[test]
fn by_the_papers_rules_too() {
    check(&PAPER);
    check(&AUTHORS);
}

#[test]
fn in_eight_bits_too() {
    check(&EIGHT_BITS);
}
