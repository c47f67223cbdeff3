//! Training steps of four networks on random batches, on request of another process: for `scripts/performance.py`,
//! which runs PyTorch's steps between ours.
//!
//!     cargo run --release --example turns -- NETWORK SIZES THREADS METHOD ... [INSTRUCTIONS]
//!
//! NETWORK with its SIZES, separated by commas:
//!
//!   segnet     channels, images, rows, columns: SegNetBasic, 11 classes, SGD with momentum
//!   resnet-18  channels, images, rows, columns: ten classes, SGD with momentum
//!   gru        texts, tokens of each, kinds of tokens, width, units, layers: a language model, AdamW, clipped to a norm of 1
//!   decoder    texts, tokens of each, kinds of tokens, width, heads, layers: a transformer, AdamW, clipped to a norm of 1
//!
//! INSTRUCTIONS is a name of `Isa`, for example AVX2; the default is the machine's best. A line of JSON reports that
//! the program is ready. Then each line of standard input names a method, one step runs, and a line of JSON has its
//! time (`seconds`) and its `loss`.

use gradscale::{
    Cpu, CrossEntropy, Input, Isa, Method, Observation, Parameters, Trainer, Var,
    gradscale_core::stats::Detail,
    models::{Architecture, Decoder, DecoderSize, Scale, SegNet, Vision},
    nn::{Embedding, Gru, Linear, Module},
    optim::{AdamW, Optimizer, Sgd},
};
use std::{env, error::Error, io, time::Instant};

/// Number of classes of pixels; the label after the last class is ignored.
const CLASSES: u8 = 11;

enum Net {
    Pixels(SegNet),
    Images(Box<dyn Vision>),
    Gru(Embedding, Gru, Linear),
    Decoder(Decoder),
}

/// Training data: numbers or tokens, with a label for each image, pixel or token.
enum Batch {
    Images { shape: [usize; 4], pixels: Vec<f32>, labels: Vec<u8> },
    Texts { shape: [usize; 2], tokens: Vec<u32>, next: Vec<u32> },
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [network, sizes, threads, methods @ ..] = &arguments[..] else {
        return Err("NETWORK SIZES THREADS METHOD ...".into());
    };
    let sizes = sizes.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let threads = threads.parse()?;
    let named = |word: &String| Isa::available().into_iter().find(|isa| isa.to_string() == *word);
    let isa = methods.iter().find_map(named).unwrap_or_else(Isa::best);
    let batch = batch(network, &sizes)?;
    let mut trainers = Vec::new();
    for method in methods.iter().filter(|word| named(word).is_none()) {
        let mut parameters = Parameters::seeded(0);
        let (net, optimizer) = build(network, &sizes, &mut parameters)?;
        let mut trainer = Trainer::new(Cpu::with_isa(threads, isa)?, parameters, optimizer, method.parse::<Method>()?)?;
        trainer.observe(Observation::Rows(Detail::Counts));
        trainers.push((method, net, trainer));
    }
    println!("{{\"ready\": true}}");
    for line in io::stdin().lines() {
        let line = line?;
        let found = trainers.iter_mut().find(|(method, ..)| **method == line);
        let (_, net, trainer) = found.ok_or_else(|| format!("{line} is none of the methods"))?;
        let start = Instant::now();
        let gradients = match &batch {
            Batch::Images { shape, pixels, labels } => {
                let [n, h, w, _] = *shape;
                let of = if labels.len() == n { [n, 1, 1, 1] } else { [n, h, w, 1] };
                trainer.backward([Input::f32(*shape, pixels), Input::u8(of, labels)], |all| net.loss(all))?
            }
            Batch::Texts { shape, tokens, next } => {
                trainer.backward([Input::u32(*shape, tokens), Input::u32(*shape, next)], |all| net.loss(all))?
            }
        };
        let loss = trainer.step(gradients)?.loss;
        println!("{{\"seconds\": {}, \"loss\": {loss}}}", start.elapsed().as_secs_f64());
    }
    Ok(())
}

impl Net {
    fn loss<'t>(&self, [x, labels]: [Var<'t>; 2]) -> Var<'t> {
        match self {
            Self::Pixels(net) => {
                let options = CrossEntropy { ignore: Some(CLASSES.into()), ..CrossEntropy::default() };
                net.forward(x).cross_entropy_with(labels, &options)
            }
            Self::Images(net) => net.forward(x).cross_entropy(labels),
            Self::Gru(tokens, gru, logits) => logits.forward(gru.forward(tokens.forward(x))).cross_entropy(labels),
            Self::Decoder(net) => net.logits(x).cross_entropy(labels),
        }
    }
}

fn build(network: &str, sizes: &[usize], parameters: &mut Parameters) -> Result<(Net, Optimizer), Box<dyn Error>> {
    let scope = &mut parameters.at("net");
    let sgd = || Optimizer::from(Sgd { momentum: 0.9, weight_decay: 5e-4, ..Sgd::new(0.01) });
    let adamw = || Optimizer::from(AdamW::new(1e-3)).clip_norm(1.0);
    Ok(match (network, sizes) {
        ("segnet", &[width, ..]) => (Net::Pixels(SegNet::new(scope, 3, width, CLASSES.into())), sgd()),
        ("resnet-18", &[width, ..]) => {
            (Net::Images(Architecture::ResNet18.build(scope, 3, Scale::small(width), 10)), sgd())
        }
        ("gru", &[_, _, kinds, width, units, layers]) => {
            let tokens = Embedding::new(&mut scope.at("tokens"), kinds, width);
            let gru = Gru::new(&mut scope.at("gru"), width, units, layers);
            (Net::Gru(tokens, gru, Linear::new(&mut scope.at("logits"), units, kinds)), adamw())
        }
        ("decoder", &[_, context, kinds, width, heads, layers]) => {
            let size = DecoderSize { context, width, heads, layers, dropout: 0.0 };
            (Net::Decoder(Decoder::new(scope, kinds, size)), adamw())
        }
        _ => return Err(format!("{network} is not known with {} sizes", sizes.len()).into()),
    })
}

/// Numbers from −2 to 2, and labels, the same for every method.
fn batch(network: &str, sizes: &[usize]) -> Result<Batch, Box<dyn Error>> {
    let mut state = 1u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below as u64
    };
    Ok(match (network, sizes) {
        ("segnet" | "resnet-18", &[_, n, h, w]) => {
            let pixels = (0..n * h * w * 3).map(|_| draw(1 << 16) as f32 / 16384.0 - 2.0).collect();
            let (count, kinds) = if network == "segnet" { (n * h * w, usize::from(CLASSES) + 1) } else { (n, 10) };
            let labels = (0..count).map(|_| u8::try_from(draw(kinds))).collect::<Result<_, _>>()?;
            Batch::Images { shape: [n, h, w, 3], pixels, labels }
        }
        ("gru" | "decoder", &[n, t, kinds, ..]) => {
            let mut tokens = || (0..n * t).map(|_| u32::try_from(draw(kinds))).collect::<Result<Vec<_>, _>>();
            Batch::Texts { shape: [n, t], tokens: tokens()?, next: tokens()? }
        }
        _ => return Err(format!("{network} is not known with {} sizes", sizes.len()).into()),
    })
}
