//! A step in f32 of a Multibox detector at its paper's size, from the weights of a PyTorch model: for
//! `tests/golden/detection.py --paper`.
//!
//!     cargo run --release --example detection -- NETWORK CLASSES BATCH WEIGHTS ANSWER
//!
//! All files are safetensors. WEIGHTS is a `state_dict`; BATCH has `images`, f32 `[n, h, w, 3]`, and of each default box
//! `labels` (f32), of which 0 is background, and `codes`; `negatives` of each image and the one number `share`. ANSWER gets
//! `logits`, `offsets`, `loss`, and the gradient of each parameter by PyTorch's name, channels last.

use gradscale::{
    Cpu, Input, Method, MultiBox, Parameters, TorchModule, Trainer,
    models::{Scale, Ssd, SsdSize},
    optim::Sgd,
};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::{env, error::Error, fs, time::Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [network, classes, batch, weights, answer] = &arguments[..] else {
        return Err("NETWORK CLASSES BATCH WEIGHTS ANSWER".into());
    };
    let size = match network.as_str() {
        "ssd-300" => SsdSize::Ssd300,
        "ssd-512" => SsdSize::Ssd512,
        other => return Err(format!("{other} is no network").into()),
    };
    let mut parameters = Parameters::seeded(0);
    let net = Ssd::new(&mut parameters.at("net"), size, Scale::PAPER, classes.parse()?);
    let module = |layer: &str| Some(TorchModule::named(layer.strip_prefix("net.")?));
    let imported = parameters.import_torch(&fs::read(weights)?, module)?;
    if !imported.is_complete() {
        return Err(imported.to_string().into());
    }
    let names: Vec<String> = parameters.names().map(str::to_owned).collect();
    let bytes = fs::read(batch)?;
    let file = SafeTensors::deserialize(&bytes)?;
    let numbers = |name: &str| -> Result<Vec<f32>, Box<dyn Error>> {
        let data = file.tensor(name)?;
        Ok(data.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    };
    let shape = <[usize; 4]>::try_from(file.tensor("images")?.shape()).map_err(|_| "images are n h w c")?;
    let (n, boxes) = (shape[0], size.default_boxes(false).len());
    let [images, labels, codes, negatives, share] = ["images", "labels", "codes", "negatives", "share"].map(numbers);
    let (images, codes, negatives, share) = (images?, codes?, negatives?, share?);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "classes")]
    let labels: Vec<u32> = labels?.into_iter().map(|label| label as u32).collect();
    let inputs = [
        Input::f32(shape, &images),
        Input::u32([n, boxes], &labels),
        Input::f32([n, 1, boxes, 4], &codes),
        Input::f32([n], &negatives),
        Input::f32([1], &share),
    ];

    let mut trainer = Trainer::new(Cpu::new(0)?, parameters, Sgd::new(0.0), Method::fp32())?;
    let start = Instant::now();
    let gradients = trainer.backward(inputs, |[x, labels, codes, negatives, share]| {
        let [logits, offsets] = net.answers(x);
        let _ = (logits.output("logits"), offsets.output("offsets"));
        let loss = logits.multibox_loss(offsets, &MultiBox { labels, codes, negatives, share });
        let _ = loss.output("loss");
        loss
    })?;
    let mut tensors = Vec::new();
    for name in ["logits", "offsets", "loss"] {
        tensors.push((name.to_owned(), trainer.output(name)?.data));
    }
    for name in &names {
        if let Some(gradient) = trainer.gradient(&gradients, name)? {
            tensors.push((name.strip_prefix("net.").unwrap_or(name).to_owned(), gradient.data));
        }
    }
    let took = start.elapsed().as_secs_f64();
    println!("{network}: forward and backward pass with what is compiled first, and gradients fetched: {took:.1} s");
    let tensors: Vec<(String, Vec<u8>, usize)> = (tensors.into_iter())
        .map(|(name, values)| (name, values.iter().flat_map(|value| value.to_le_bytes()).collect(), values.len()))
        .collect();
    let views = tensors
        .iter()
        .map(|(name, bytes, len)| Ok((name.as_str(), TensorView::new(Dtype::F32, vec![*len], bytes)?)))
        .collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    fs::write(answer, safetensors::serialize(views, None)?)?;
    Ok(())
}
