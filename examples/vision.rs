//! A step in f32 of a network for images, from the weights of a PyTorch model: for `tests/golden/vision.py --full`.
//!
//!     cargo run --release --example vision -- NETWORK CLASSES WEIGHTS BATCH ANSWER [STEPS]
//!
//! All files are safetensors. WEIGHTS is a `state_dict`. BATCH has `images`, f32 `[n, h, w, 3]`, and `labels`, bytes,
//! one for each image or pixel. ANSWER gets `training`, the concatenated outputs of all heads, `evaluation`, and the
//! gradient of each parameter by PyTorch's name, channels last. For a linear layer that reads a flattened image,
//! `flattened.NAME` has the image's rows, columns and channels. With STEPS, `steps.fp32` and `steps.gs` have the
//! seconds of that number of training steps by each method, which alternate.

use gradscale::{
    Cpu, Input, Method, Parameters, TorchModule, Trainer, Var,
    models::{Architecture, Scale, SegNetVgg, Vision},
    nn::Module,
    optim::Sgd,
};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::{env, error::Error, fs, time::Instant};

/// SegNet as the other networks are: with one answer.
#[derive(Debug)]
struct Pixels(SegNetVgg);

impl Module for Pixels {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.0.forward(x)
    }
}

impl Vision for Pixels {}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let ([network, classes, weights, batch, answer, steps @ ..], true) = (&arguments[..], arguments.len() <= 6) else {
        return Err("NETWORK CLASSES WEIGHTS BATCH ANSWER [STEPS]".into());
    };
    let steps: usize = steps.first().map_or(Ok(0), |steps| steps.parse())?;
    let (classes, scale) = (classes.parse()?, Scale { dropout: false, ..Scale::PAPER });
    let mut parameters = Parameters::seeded(0);
    let scope = &mut parameters.at("net");
    let net: Box<dyn Vision> = match Architecture::ALL.into_iter().find(|one| one.name() == network) {
        Some(architecture) => architecture.build(scope, 3, scale, classes),
        None if network == "segnet" => Box::new(Pixels(SegNetVgg::new(scope, 3, scale, classes))),
        None => return Err(format!("{network} is no network").into()),
    };
    let flattened = net.flattened();
    let imported = parameters.import_torch(&fs::read(weights)?, |layer| {
        let name = layer.strip_prefix("net.")?;
        let image = flattened.iter().find(|(flat, _)| *flat == name);
        Some(image.iter().fold(TorchModule::named(name), |module, (_, image)| module.flattened(*image)))
    })?;
    if !imported.is_complete() {
        return Err(imported.to_string().into());
    }
    let names: Vec<String> = parameters.names().map(str::to_owned).collect();
    let bytes = fs::read(batch)?;
    let file = SafeTensors::deserialize(&bytes)?;
    let (images, labels) = (file.tensor("images")?, file.tensor("labels")?);
    let shape = <[usize; 4]>::try_from(images.shape()).map_err(|_| "images are n h w c")?;
    let values: Vec<f32> = images.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let input = || Input::f32(shape, &values);

    let mut trainer = Trainer::new(Cpu::new(0)?, parameters.clone(), Sgd::new(0.0), Method::fp32())?;
    let evaluation = trainer.evaluate([input()], |[x]| net.forward(x))?;
    let all = || [input(), Input::u8([labels.data().len()], labels.data())];
    let start = Instant::now();
    let gradients = trainer.backward(all(), |[x, labels]| {
        let heads = net.heads(x);
        for (i, (head, _)) in heads.iter().enumerate() {
            let _ = head.output(&format!("head{i}"));
        }
        loss(heads, labels).unwrap_or(x)
    })?;
    let training: Vec<f32> =
        (0..).map_while(|i| trainer.output(&format!("head{i}")).ok()).flat_map(|head| head.data).collect();
    let mut tensors = vec![("training".to_owned(), training), ("evaluation".to_owned(), evaluation.data)];
    for name in &names {
        if let Some(gradient) = trainer.gradient(&gradients, name)? {
            tensors.push((torch(name), gradient.data));
        }
    }
    let took = start.elapsed().as_secs_f64();
    println!("{network}: forward and backward pass with what is compiled first, and gradients fetched: {took:.1} s");
    for (name, image) in flattened {
        #[expect(clippy::cast_precision_loss, reason = "sizes of images")]
        tensors.push((format!("flattened.{name}.weight"), image.map(|size| size as f32).to_vec()));
    }
    let mut tensors: Vec<(String, Vec<u8>, usize)> = (tensors.into_iter())
        .map(|(name, values)| (name, values.iter().flat_map(|value| value.to_le_bytes()).collect(), values.len()))
        .collect();
    drop(trainer);
    let mut timed = Vec::new();
    for method in ["fp32", "gs"].map(str::parse::<Method>) {
        let method = method?;
        let sgd = Sgd { momentum: 0.9, ..Sgd::new(1e-3) };
        timed.push((method.to_string(), Trainer::new(Cpu::new(0)?, parameters.clone(), sgd, method)?, Vec::new()));
    }
    for _ in 0..steps {
        for (_, trainer, seconds) in &mut timed {
            let start = Instant::now();
            let gradients = trainer.backward(all(), |[x, labels]| loss(net.heads(x), labels).unwrap_or(x))?;
            trainer.step(gradients)?;
            seconds.extend(start.elapsed().as_secs_f32().to_le_bytes());
        }
    }
    tensors.extend(timed.into_iter().map(|(name, _, seconds)| (format!("steps.{name}"), seconds, steps)));
    let views = tensors
        .iter()
        .map(|(name, bytes, len)| Ok((name.as_str(), TensorView::new(Dtype::F32, vec![*len], bytes)?)))
        .collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    fs::write(answer, safetensors::serialize(views, None)?)?;
    Ok(())
}

/// The losses of all heads, each as much as it counts.
fn loss<'t>(heads: Vec<(Var<'t>, f32)>, labels: Var<'t>) -> Option<Var<'t>> {
    heads.into_iter().map(|(head, weight)| head.cross_entropy(labels).scale(weight)).reduce(|sum, loss| sum + loss)
}

/// Returns PyTorch's name of a parameter.
fn torch(name: &str) -> String {
    let name = name.strip_prefix("net.").unwrap_or(name);
    match name.rsplit_once('.') {
        Some((layer, "scale")) => format!("{layer}.weight"),
        Some((layer, "shift")) => format!("{layer}.bias"),
        _ => name.to_owned(),
    }
}
