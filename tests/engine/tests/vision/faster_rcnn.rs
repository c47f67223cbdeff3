//! Faster R-CNN against torchvision's (`tests/golden/faster_rcnn.py`): from the same weights the same anchors, proposals,
//! choices, losses, gradients and detections.

use super::{
    off,
    table::{self, Golden, drawn, hashed, line, read, uniform},
};
use gradscale::{
    AnchorTruth, Cpu, Gradients, Input, Method, Parameters, RegionTruth, TorchModule, Trainer,
    boxes::{Assigned, Corners, Keep, Propose, assigned, balanced, proposals},
    metrics::Truth,
    models::{AnchorTargets, FasterRcnn, RegionTargets, Regions, Scale},
    optim::Sgd,
};
use safetensors::{Dtype, tensor::TensorView};

const NARROW: Scale = Scale { width: 8, small: false, dropout: false };
const CLASSES: usize = 3;
/// Maximum error, relative to the largest value.
const BOUND: f32 = 1e-5;
/// Name from which the image is drawn at random.
const DRAWN: &str = "faster-rcnn 1";

/// Ground truth as in the script: corners as fractions of the image, and classes.
const TRUTHS: [&[(Corners, usize)]; 2] =
    [&[([0.11, 0.2, 0.46, 0.72], 1), ([0.5, 0.37, 0.95, 0.91], 2), ([0.05, 0.7, 0.223, 0.89], 3)], &[]];

#[expect(clippy::cast_precision_loss, reason = "pixels")]
fn truths([rows, columns]: [usize; 2]) -> Vec<Vec<Truth>> {
    let of = |&([l, t, r, b], class): &(Corners, usize)| {
        let (wide, high) = (columns as f32, rows as f32);
        Truth { class, corners: [l * wide, t * high, r * wide, b * high], difficult: false }
    };
    TRUTHS.iter().map(|truths| truths.iter().map(of).collect()).collect()
}

/// A tensor of the weights, drawn from its name.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "sizes of kernels; rounded")]
fn value(name: &str, shape: &[usize]) -> Vec<f32> {
    let count: usize = shape.iter().product();
    let answers =
        [("cls_logits", 0.5), ("rpn.head.bbox_pred", 0.08), ("cls_score", 0.5), ("box_predictor.bbox_pred", 0.3)];
    let all: Vec<f64> = match answers.iter().find(|(part, _)| name.contains(part)) {
        Some((_, factor)) => {
            let spread = if shape.len() > 1 { (3.0 / shape[1] as f64).sqrt() } else { 1.0 };
            drawn(name, count).map(|value| value * factor * spread).collect()
        }
        None => super::detection::inner(name, shape),
    };
    all.into_iter().map(|value| value as f32).collect()
}

/// Returns the file of torchvision's model.
fn state_dict(network: &Golden) -> Vec<u8> {
    let rows: Vec<_> = network.rows.iter().filter(|row| row.key.contains('.')).collect();
    let bytes = |value: f32| value.to_le_bytes();
    let all: Vec<Vec<u8>> =
        rows.iter().map(|row| value(row.key, &row.shape).into_iter().flat_map(bytes).collect()).collect();
    let views = rows
        .iter()
        .zip(&all)
        .map(|(row, bytes)| (row.key, TensorView::new(Dtype::F32, row.shape.clone(), bytes).expect("its length")));
    safetensors::serialize(views, None).expect("a file")
}

/// The script's network with its images.
struct Case {
    network: Golden,
    net: FasterRcnn,
    names: Vec<String>,
    trainer: Trainer<Cpu>,
    regions: Regions,
    images: Vec<f32>,
    truths: Vec<Vec<Truth>>,
}

impl Case {
    fn new() -> Self {
        let network = read(include_str!("../../../golden/faster_rcnn.txt")).remove(0);
        let [batch, rows, columns] = network.images;
        let mut parameters = Parameters::seeded(1);
        let net = FasterRcnn::new(&mut parameters.at("net"), NARROW, CLASSES);
        let names = parameters.names().map(str::to_owned).collect();
        let (flat, image) = net.flattened();
        let module = |layer: &str| {
            let module = TorchModule::named(layer.strip_prefix("net.")?);
            Some(if layer.ends_with(flat) { module.flattened(image) } else { module })
        };
        let imported = parameters.import_torch(&state_dict(&network), module).expect("weights");
        assert!(imported.is_complete(), "{imported}");
        let device = Cpu::new(0).expect("threads");
        let trainer = Trainer::new(device, parameters, Sgd::new(0.0), Method::fp32()).expect("a trainer");
        let images = table::channels_last(&uniform(DRAWN, batch * 3 * rows * columns), 3, rows * columns);
        let (regions, truths) = (net.regions([rows, columns]), truths([rows, columns]));
        Self { network, net, names, trainer, regions, images, truths }
    }

    fn proposed(&mut self) -> Vec<f32> {
        let [batch, rows, columns] = self.network.images;
        let (net, x) = (&self.net, Input::f32([batch, rows, columns, 3], &self.images));
        self.trainer.evaluate([x], |[x]| net.proposed(x)).expect("answers").data
    }

    /// Checks that values are those of the script.
    fn same(&self, key: &'static str, values: &[f32]) {
        let right = self.network.row(key);
        assert_eq!(values.len(), right.shape.iter().product::<usize>(), "{key}");
        let difference = off(&line(key, values), right, right.numbers[0]);
        assert!(difference <= BOUND, "{key}: {difference:.1e}");
    }

    fn anchor_targets(&self) -> AnchorTargets {
        let count = self.regions.anchors().len();
        let words: Vec<Vec<u32>> = (0..2).map(|image| hashed(&format!("anchors {image}"), count, 0)).collect();
        let all = self.truths.iter().map(|truths| &truths[..]);
        self.regions.anchor_targets(all, |image, place| words[image][place].into())
    }

    fn region_targets(&self, proposals: &[Vec<Corners>]) -> RegionTargets {
        let words: Vec<Vec<u32>> = (0..2).map(|image| hashed(&format!("regions {image}"), 2100, 0)).collect();
        let all = self.truths.iter().map(|truths| &truths[..]);
        self.regions.region_targets(all, proposals, |image, place| words[image][place].into())
    }

    fn gradients(&mut self, anchors: &AnchorTargets, regions: &RegionTargets) -> Gradients {
        let [batch, rows, columns] = self.network.images;
        let (all, count) = (self.regions.anchors().len(), regions.labels.len());
        let inputs = [
            Input::f32([batch, rows, columns, 3], &self.images),
            Input::f32([batch, 1, all, 1], &anchors.signs),
            Input::f32([batch, 1, all, 4], &anchors.codes),
            Input::f32([1], std::slice::from_ref(&anchors.share)),
            Input::f32([count, 5], &regions.boxes),
            Input::u32([count], &regions.labels),
            Input::u32([count], &regions.places),
            Input::f32([count], &regions.counted),
            Input::f32([count, 4], &regions.codes),
            Input::f32([1], std::slice::from_ref(&regions.share)),
        ];
        let net = &self.net;
        let gradients = self.trainer.backward(inputs, |all| {
            let [x, signs, codes, share, boxes, labels, places, counted, of_regions, share_of_regions] = all;
            let anchors = AnchorTruth { signs, codes, share };
            let regions = RegionTruth { labels, places, counted, codes: of_regions, share: share_of_regions };
            let [anchors, regions] = net.losses(x, &anchors, boxes, &regions);
            let _ = (anchors.output("anchor_loss"), regions.output("region_loss"));
            anchors + regions
        });
        gradients.expect("gradients")
    }
}

/// Corners of boxes `[regions, 5]`.
fn corners(boxes: &[f32]) -> Vec<f32> {
    boxes.as_chunks::<5>().0.iter().flat_map(|row| [row[1], row[2], row[3], row[4]]).collect()
}

#[test]
fn it_trains_as_torchvision_s() {
    let mut case = Case::new();
    case.same("anchors", case.regions.anchors().as_flattened());
    let answers = case.proposed();
    case.same("proposed", &answers);
    let proposals = case.regions.proposals(&answers, true);
    case.same("proposals", proposals.concat().as_flattened());
    let anchors = case.anchor_targets();
    case.same("signs", &anchors.signs);
    let rows = anchors.signs.iter().zip(anchors.codes.as_chunks::<4>().0);
    let there: Vec<f32> = rows.filter(|(sign, _)| **sign > 0.0).flat_map(|(_, code)| *code).collect();
    case.same("anchor_codes", &there);
    let regions = case.region_targets(&proposals);
    assert!(regions.counted.iter().all(|&counted| counted > 0.0));
    case.same("regions", &corners(&regions.boxes));
    #[expect(clippy::cast_precision_loss, reason = "classes")]
    let labels: Vec<f32> = regions.labels.iter().map(|&label| label as f32).collect();
    case.same("labels", &labels);
    let rows = labels.iter().zip(regions.codes.as_chunks::<4>().0);
    let there: Vec<f32> = rows.filter(|(label, _)| **label > 0.0).flat_map(|(_, code)| *code).collect();
    case.same("region_codes", &there);

    let gradients = case.gradients(&anchors, &regions);
    for key in ["anchor_loss", "region_loss"] {
        case.same(key, &case.trainer.output(key).expect("named").data);
    }
    let of_parameters = || case.network.rows.iter().filter(|row| row.key.contains('.'));
    let largest = of_parameters().fold(0f32, |most, row| most.max(row.numbers[0]));
    let (flat, [h, w, c]) = case.net.flattened();
    let mut worst = (0f32, "");
    for name in &case.names {
        let gradient = case.trainer.gradient(&gradients, name).expect("a parameter").expect("its gradient");
        let row = case.network.row(name.strip_prefix("net.").expect("its prefix"));
        let values = if row.key.strip_suffix(".weight") == Some(flat) {
            let rows = gradient.data.chunks(h * w * c);
            rows.flat_map(|row| table::channels_first(row, [1, h, w, c])).collect()
        } else {
            table::channels_first(&gradient.data, gradient.shape.sizes())
        };
        let found = line(row.key, &values);
        let difference = off(&found, row, largest).max(0.1 * off(&found, row, row.numbers[0]));
        if difference > worst.0 {
            worst = (difference, row.key);
        }
    }
    println!("{} gradients off by {worst:?}", case.names.len());
    assert_eq!(case.names.len(), of_parameters().count());
    assert!(worst.0 <= BOUND, "{worst:?}");
}

#[test]
fn it_finds_what_torchvision_s_finds() {
    let mut case = Case::new();
    let answers = case.proposed();
    let proposals = case.regions.proposals(&answers, false);
    let (count, listed) = case.regions.listed(&proposals, false);
    assert_eq!(count, 600);
    let [batch, rows, columns] = case.network.images;
    let (net, x) = (&case.net, Input::f32([batch, rows, columns, 3], &case.images));
    let answers = case.trainer.evaluate([x, Input::f32([count, 5], &listed)], |[x, boxes]| net.told(x, boxes));
    let found = case.regions.found(&answers.expect("answers").data, &proposals, &Keep::REGIONS);
    #[expect(clippy::cast_precision_loss, reason = "classes")]
    let rows: Vec<f32> =
        (found.iter().flatten()).flat_map(|one| [&[one.class as f32, one.score], &one.corners[..]].concat()).collect();
    case.same("found", &rows);
}

/// Padding boxes up to a fixed number change nothing, whatever their labels are.
#[test]
fn what_fills_up_does_not_count() {
    let mut case = Case::new();
    let anchors = case.anchor_targets();
    let few: Vec<Vec<Corners>> = vec![vec![[8.0, 8.0, 90.0, 120.0], [30.0, 60.0, 200.0, 180.0]]; 2];
    let regions = case.region_targets(&few);
    // Two proposals and three truths, and two proposals.
    assert_eq!((regions.counted.iter().sum::<f32>(), regions.labels.len()), (7.0, 256));
    assert_eq!(regions.share.to_bits(), (1f32 / 7.0).to_bits());
    let mut other = regions.clone();
    for place in 0..256 {
        if other.counted[place] < 1.0 {
            other.boxes[5 * place] = 0.0;
            other.boxes[5 * place + 3..5 * place + 5].fill(100.0);
            other.codes[4 * place..4 * place + 4].fill(7.0);
        }
    }
    let mut of = |regions: &RegionTargets| {
        let gradients = case.gradients(&anchors, regions);
        let names = case.names.clone();
        let one = |name: &String| case.trainer.gradient(&gradients, name).expect("a parameter").expect("its gradient");
        let all: Vec<Vec<f32>> = names.iter().map(|name| one(name).data).collect();
        (case.trainer.output("region_loss").expect("named").data, all)
    };
    let ((loss, right), (again, found)) = (of(&regions), of(&other));
    assert!(loss[0] > 0.1 && (loss[0] - again[0]).abs() <= 1e-6 * loss[0], "{loss:?}, {again:?}");
    for (right, found) in right.iter().zip(&found) {
        let largest = right.iter().fold(0f32, |most, value| most.max(value.abs()));
        assert!(right.iter().zip(found).all(|(a, b)| (a - b).abs() <= 1e-5 * largest));
    }
}

/// The number of parameters is that of torchvision's `FasterRCNN` of `vgg16().features[:-1]` with dense layers of 4096
/// for VOC, and there are as many anchors as in the paper.
#[test]
fn sizes_are_the_papers() {
    let mut parameters = Parameters::seeded(0);
    let net = FasterRcnn::new(&mut parameters.at("net"), Scale::PAPER, 20);
    assert_eq!(parameters.count(), 137_073_622);
    assert_eq!(net.regions([600, 600]).anchors().len(), 37 * 37 * 9);
    assert_eq!(net.regions([600, 1000]).anchors().len(), 37 * 62 * 9);
}

#[test]
fn what_is_no_number_proposes_nothing() {
    let keep = Propose { candidates: 9, overlap: 0.7, most: 9, smallest: 1e-3 };
    let anchors = [[0.0, 0.0, 8.0, 8.0], [20.0, 20.0, 30.0, 30.0]];
    let of = |likely: [f32; 2], code: [f32; 4]| proposals(&likely, &[[0.0; 4], code], &anchors, [32.0; 2], &keep);
    assert_eq!(of([0.1, 0.2], [0.0; 4]), [anchors[1], anchors[0]]);
    assert_eq!(of([0.1, f32::NAN], [0.0; 4]), [anchors[0]]);
    for number in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        assert_eq!(of([0.1, 0.2], [number, 0.0, 0.0, 0.0]), [anchors[0]], "{number}");
    }
    // Longer than the image: to its edges. No longer than nothing: left out.
    assert_eq!(of([0.1, 0.2], [0.0, 0.0, f32::INFINITY, 0.0])[0], [0.0, 20.0, 32.0, 30.0]);
    assert_eq!(of([0.1, 0.2], [0.0, 0.0, f32::NEG_INFINITY, 0.0]), [anchors[0]]);
}

#[test]
fn what_stands_for_what_and_counts() {
    let boxes = [[0.0, 0.0, 10.0, 10.0], [0.0, 0.0, 10.0, 9.0], [0.0, 0.0, 10.0, 5.0], [50.0, 50.0, 60.0, 60.0]];
    let truths = [[0.0, 0.0, 10.0, 10.0], [50.0, 50.0, 60.0, 52.0], [80.0, 80.0, 90.0, 90.0]];
    let (first, second) = (Assigned::Truth(0), Assigned::Truth(1));
    let found = assigned(&truths, &boxes, [0.3, 0.7], true);
    // The second truth has the box that overlaps it most, the third none.
    assert_eq!(found, [first, first, Assigned::Neither, second]);
    let found = assigned(&truths, &boxes, [0.3, 0.7], false);
    assert_eq!(found, [first, first, Assigned::Neither, Assigned::Background]);
    assert_eq!(assigned(&[], &boxes, [0.3, 0.7], true), [Assigned::Background; 4]);
    // At most half are boxes of objects, those with the smallest random words; the rest is background, as far as there
    // is any.
    let of = |count, share| balanced(&found, count, share, |place| 9 - place as u64);
    assert_eq!((of(2, 0.5), of(4, 0.5), of(1, 0.5)), (vec![1, 3], vec![0, 1, 3], vec![3]));
    assert_eq!((of(4, 0.0), of(1, 1.0), of(0, 0.5)), (vec![3], vec![1], vec![]));
}
