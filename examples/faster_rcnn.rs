//! A step in f32 of Faster R-CNN at its paper's size, from the weights of a PyTorch model: for
//! `tests/golden/faster_rcnn.py --paper`.
//!
//!     cargo run --release --example faster_rcnn -- CLASSES BATCH WEIGHTS ANSWER
//!
//! All files are safetensors. WEIGHTS is a `state_dict`. BATCH has `images`, f32 `[n, h, w, 3]`, the regions from which
//! the step learns, and the truths: `boxes` `[regions, 4]` of the first image in pixels, at most as many as are sampled
//! of an image, and `truths` `[truths, 5]`, corners and class. ANSWER gets the values `proposed` for each anchor, the
//! `proposals`, both losses, and the gradient of each parameter by PyTorch's name, channels last.

use gradscale::{
    AnchorTruth, Cpu, Input, Method, Parameters, RegionTruth, TorchModule, Trainer,
    boxes::Corners,
    metrics::Truth,
    models::{FasterRcnn, Scale},
    optim::Sgd,
};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::{env, error::Error, fs, time::Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [classes, batch, weights, answer] = &arguments[..] else {
        return Err("CLASSES BATCH WEIGHTS ANSWER".into());
    };
    let mut parameters = Parameters::seeded(0);
    let net = FasterRcnn::new(&mut parameters.at("net"), Scale { dropout: false, ..Scale::PAPER }, classes.parse()?);
    let (flat, image) = net.flattened();
    let module = |layer: &str| {
        let module = TorchModule::named(layer.strip_prefix("net.")?);
        Some(if layer.ends_with(flat) { module.flattened(image) } else { module })
    };
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
    let (images, boxes, truths) = (numbers("images")?, numbers("boxes")?, numbers("truths")?);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "classes")]
    let truth = |&[left, top, right, bottom, class]: &[f32; 5]| Truth {
        class: class as usize,
        corners: [left, top, right, bottom],
        difficult: false,
    };
    let truths: Vec<Truth> = truths.as_chunks().0.iter().map(truth).collect();
    let boxes: Vec<Corners> = boxes.as_chunks().0.to_vec();

    let regions = net.regions([shape[1], shape[2]]);
    let mut trainer = Trainer::new(Cpu::new(0)?, parameters, Sgd::new(0.0), Method::fp32())?;
    let start = Instant::now();
    let pictures = Input::f32(shape, &images);
    let proposed = trainer.evaluate([pictures], |[x]| net.proposed(x))?.data;
    let proposals = regions.proposals(&proposed, true);
    let evaluated = start.elapsed().as_secs_f64();
    // Ranked by position, so that the first ones are sampled.
    let of_anchors = regions.anchor_targets(std::iter::once(&truths[..]), |_, place| place as u64);
    let of_regions = regions.region_targets(std::iter::once(&truths[..]), &[boxes], |_, place| place as u64);
    let (all, count) = (regions.anchors().len(), of_regions.labels.len());
    let inputs = [
        pictures,
        Input::f32([shape[0], 1, all, 1], &of_anchors.signs),
        Input::f32([shape[0], 1, all, 4], &of_anchors.codes),
        Input::f32([1], std::slice::from_ref(&of_anchors.share)),
        Input::f32([count, 5], &of_regions.boxes),
        Input::u32([count], &of_regions.labels),
        Input::u32([count], &of_regions.places),
        Input::f32([count], &of_regions.counted),
        Input::f32([count, 4], &of_regions.codes),
        Input::f32([1], std::slice::from_ref(&of_regions.share)),
    ];
    let gradients = trainer.backward(inputs, |all| {
        let [x, signs, codes, share, boxes, labels, places, counted, of_regions, share_of_regions] = all;
        let anchors = AnchorTruth { signs, codes, share };
        let regions = RegionTruth { labels, places, counted, codes: of_regions, share: share_of_regions };
        let [anchors, regions] = net.losses(x, &anchors, boxes, &regions);
        let _ = (anchors.output("anchor_loss"), regions.output("region_loss"));
        anchors + regions
    })?;
    let mut tensors =
        vec![("proposed".to_owned(), proposed), ("proposals".to_owned(), proposals.concat().as_flattened().to_vec())];
    for name in ["anchor_loss", "region_loss"] {
        tensors.push((name.to_owned(), trainer.output(name)?.data));
    }
    for name in &names {
        if let Some(gradient) = trainer.gradient(&gradients, name)? {
            tensors.push((name.strip_prefix("net.").unwrap_or(name).to_owned(), gradient.data));
        }
    }
    let took = start.elapsed().as_secs_f64();
    let memory = trainer.memory();
    println!(
        "proposals with what is compiled first: {evaluated:.1} s; all with gradients fetched: {took:.1} s; megabytes of \
         parameters: {}, of activations: {}",
        memory.parameters / 1_000_000,
        memory.activations / 1_000_000
    );
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
