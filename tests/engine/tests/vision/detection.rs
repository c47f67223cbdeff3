//! Multibox detectors and boxes against torchvision, and average precision against a package of others
//! (`tests/golden/detection.py`).

use super::{
    off,
    table::{self, Golden, drawn, line, read, uniform},
};
use gradscale::{
    Cpu, Init, Input, Method, MultiBox, Parameters, TorchModule, Trainer,
    boxes::{Corners, Detection, Keep, decode, detections, encode, matches, nms},
    metrics::{AveragePrecision, Truth},
    models::{Scale, Ssd, SsdSize},
    optim::Sgd,
};
use safetensors::{Dtype, tensor::TensorView};
use std::collections::BTreeMap;

const NARROW: Scale = Scale { width: 8, small: false, dropout: false };
const CLASSES: usize = 3;
/// Maximum error, relative to the largest value.
const BOUND: f32 = 1e-5;

/// Ground truth as in the script: corners as fractions of the image, and classes.
const TRUTHS: [&[(Corners, u32)]; 2] =
    [&[([0.11, 0.2, 0.36, 0.52], 1), ([0.5, 0.47, 0.95, 0.91], 2), ([0.05, 0.7, 0.123, 0.79], 3)], &[]];

/// Targets of the loss.
#[derive(Debug, Default)]
struct Targets {
    labels: Vec<u32>,
    codes: Vec<f32>,
    negatives: Vec<f32>,
    share: [f32; 1],
}

#[expect(clippy::cast_precision_loss, reason = "boxes of an image")]
fn targets(truths: &[&[(Corners, u32)]], defaults: &[Corners]) -> Targets {
    let (mut all, mut count) = (Targets::default(), 0);
    for truths in truths {
        let corners: Vec<Corners> = truths.iter().map(|(corners, _)| *corners).collect();
        let matched = matches(&corners, defaults, 0.5);
        for (truth, &default) in matched.iter().zip(defaults) {
            all.labels.push(truth.map_or(0, |truth| truths[truth].1));
            all.codes.extend(truth.map_or([0.0; 4], |truth| encode(corners[truth], default)));
        }
        let found = matched.iter().flatten().count();
        all.negatives.push((3 * found).min(defaults.len() - found) as f32);
        count += found;
    }
    all.share = [1.0 / count.max(1) as f32];
    all
}

/// Distance of biases from 0 before a ReLU, as in the script.
const SHIFT: f64 = 4.0;

/// A tensor of layers before a ReLU, drawn from its name.
#[expect(clippy::cast_precision_loss, reason = "sizes of kernels")]
pub fn inner(name: &str, shape: &[usize]) -> Vec<f64> {
    let count: usize = shape.iter().product();
    let filter = count / shape[0];
    let all: Vec<f64> = drawn(name, count).collect();
    if shape.len() > 1 {
        let centred = |filter: &[f64]| -> Vec<f64> {
            let mean = filter.iter().sum::<f64>() / filter.len() as f64;
            filter.iter().map(|value| (value - mean) * (4.0 / filter.len() as f64).sqrt()).collect()
        };
        all.chunks(filter).flat_map(centred).collect()
    } else {
        all.into_iter().map(|value| if value < -0.5 { -SHIFT } else { SHIFT } + 0.1 * value).collect()
    }
}

/// A tensor of the weights, drawn from its name.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "sizes of kernels; rounded")]
fn value(name: &str, shape: &[usize]) -> Vec<f32> {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = if name == "backbone.scale_weight" {
        drawn(name, count).map(|value| 20.0 + value).collect()
    } else if name.starts_with("head.") {
        let factor = if shape.len() > 1 { (3.0 * shape[0] as f64 / count as f64).sqrt() } else { 0.1 };
        drawn(name, count).map(|value| factor * value).collect()
    } else {
        inner(name, shape)
    };
    values.into_iter().map(|value| value as f32).collect()
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

fn agrees(network: &Golden, size: SsdSize, drawn: &str, bounds: [f32; 2]) {
    let [batch, rows, columns] = network.images;
    assert_eq!([rows, columns], [size.side(false); 2]);
    let mut parameters = Parameters::seeded(1);
    let net = Ssd::new(&mut parameters.at("net"), size, NARROW, CLASSES);
    let names: Vec<String> = parameters.names().map(str::to_owned).collect();
    let module = |layer: &str| Some(TorchModule::named(layer.strip_prefix("net.")?));
    let imported = parameters.import_torch(&state_dict(network), module).expect("weights");
    assert!(imported.is_complete(), "{}: {imported}", network.name);
    let device = Cpu::new(0).expect("threads");
    let mut trainer = Trainer::new(device, parameters, Sgd::new(0.0), Method::fp32()).expect("a trainer");
    let images = table::channels_last(&uniform(drawn, batch * 3 * rows * columns), 3, rows * columns);
    let defaults = size.default_boxes(false);
    let truth = targets(&TRUTHS[..batch], &defaults);
    let inputs = [
        Input::f32([batch, rows, columns, 3], &images),
        Input::u32([batch, defaults.len()], &truth.labels),
        Input::f32([batch, 1, defaults.len(), 4], &truth.codes),
        Input::f32([batch], &truth.negatives),
        Input::f32([1], &truth.share),
    ];
    let gradients = trainer.backward(inputs, |[x, labels, codes, negatives, share]| {
        let [logits, offsets] = net.answers(x);
        let _ = (logits.output("logits"), offsets.output("offsets"));
        let loss = logits.multibox_loss(offsets, &MultiBox { labels, codes, negatives, share });
        let _ = loss.output("loss");
        loss
    });
    let gradients = gradients.expect("gradients");
    for key in ["logits", "offsets", "loss"] {
        let (found, right) = (trainer.output(key).expect("named").data, network.row(key));
        let difference = off(&line(key, &found), right, right.numbers[0]);
        assert!(difference <= BOUND, "{} {key}: {difference:.1e}", network.name);
    }
    let right = &network.rows[3..];
    let largest = right.iter().fold(0f32, |most, row| most.max(row.numbers[0]));
    // Largest error relative to all gradients and to the tensor's own, before and after the poolings.
    let mut worst = [(0f32, ""); 2];
    for name in &names {
        let gradient = trainer.gradient(&gradients, name).expect("a parameter").expect("its gradient");
        let row = network.row(name.strip_prefix("net.").expect("its prefix"));
        let found = line(row.key, &table::channels_first(&gradient.data, gradient.shape.sizes()));
        let worst = &mut worst[usize::from(!row.key.starts_with("backbone.features."))];
        let difference = off(&found, row, largest).max(0.1 * off(&found, row, row.numbers[0]));
        if difference > worst.0 {
            *worst = (difference, row.key);
        }
    }
    println!("{}: {} gradients off by {worst:?}", network.name, names.len());
    assert_eq!(names.len(), right.len());
    assert!(worst.iter().zip(bounds).all(|((off, _), bound)| *off <= bound), "{}: {worst:?}", network.name);
}

#[test]
fn ssd_300_is_torchvision_s() {
    agrees(&read(include_str!("../../../golden/detection.txt"))[0], SsdSize::Ssd300, "ssd-300 3", [BOUND; 2]);
}

/// Before its poolings PyTorch's own gradients in f32 are as far from those in f64.
#[test]
fn ssd_512_is_the_papers() {
    agrees(&read(include_str!("../../../golden/detection.txt"))[1], SsdSize::Ssd512, "ssd-512 5", [5e-4, BOUND]);
}

/// The papers' networks have as many parameters as torchvision's, and the paper's default boxes.
#[test]
fn sizes_are_the_papers() {
    let count = |size| {
        let mut parameters = Parameters::seeded(0);
        drop(Ssd::new(&mut parameters.at("net"), size, Scale::PAPER, 90));
        parameters.count()
    };
    // Number of torchvision's weights for the 91 classes of COCO.
    assert_eq!(count(SsdSize::Ssd300), 35_641_826);
    let boxes = [(SsdSize::Ssd300, 8732), (SsdSize::Ssd512, 24564)];
    assert!(boxes.iter().all(|(size, boxes)| size.default_boxes(false).len() == *boxes));
}

/// Shapes and values of a case by key.
type Case = BTreeMap<&'static str, &'static str>;

fn cases(kind: &str) -> Vec<(&'static str, Case)> {
    let mut all: Vec<(&str, Case)> = Vec::new();
    for line in include_str!("../../../golden/boxes.txt").lines() {
        let mut parts = line.split('\t');
        let [case, key, _, values] = [(); 4].map(|()| parts.next().expect("four columns"));
        match all.last_mut() {
            Some((name, known)) if *name == case => drop(known.insert(key, values)),
            _ => all.push((case, BTreeMap::from([(key, values)]))),
        }
    }
    all.retain(|(name, _)| name.split(' ').next() == Some(kind));
    assert!(!all.is_empty(), "no {kind}");
    all
}

fn numbers<T: std::str::FromStr<Err: std::fmt::Debug>>(case: &Case, key: &str) -> Vec<T> {
    case[key].split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

fn corners(case: &Case, key: &str) -> Vec<Corners> {
    numbers::<f32>(case, key).as_chunks().0.to_vec()
}

fn near(found: &[f32], right: &[f32], bound: f32) -> bool {
    found.len() == right.len() && found.iter().zip(right).all(|(a, b)| (a - b).abs() <= bound * b.abs().max(1.0))
}

#[test]
fn default_boxes_are_torchvision_s() {
    for (name, case) in cases("defaults") {
        let size = if name.ends_with("300") { SsdSize::Ssd300 } else { SsdSize::Ssd512 };
        let found = size.default_boxes(false);
        assert_eq!(numbers::<usize>(&case, "count"), [found.len()]);
        let sums = line("defaults", found.as_flattened()).numbers;
        assert!(near(&sums, &numbers(&case, "sums"), 1e-5), "{name}: {sums:?}");
        let some: Vec<Corners> = found.iter().step_by(found.len() / 40).take(40).copied().collect();
        assert!(near(some.as_flattened(), &numbers(&case, "some"), 1e-6), "{name}");
    }
}

#[test]
fn truths_are_matched_and_coded_as_torchvision_does() {
    for (name, case) in cases("match") {
        let (truths, defaults) = (corners(&case, "truths"), corners(&case, "defaults"));
        let matched = matches(&truths, &defaults, 0.5);
        let right: Vec<Option<usize>> =
            numbers::<i64>(&case, "matched").into_iter().map(|truth| usize::try_from(truth).ok()).collect();
        assert_eq!(matched, right, "{name}");
        let both = || matched.iter().zip(&defaults).filter_map(|(truth, &default)| Some((truths[(*truth)?], default)));
        let codes: Vec<[f32; 4]> = both().map(|(truth, default)| encode(truth, default)).collect();
        assert!(near(codes.as_flattened(), &numbers(&case, "codes"), 1e-5), "{name}: {codes:?}");
        for ((truth, default), code) in both().zip(codes) {
            assert!(near(&decode(code, default), &truth, 1e-5), "{name}: {truth:?} as {code:?}");
        }
    }
}

#[test]
fn suppression_is_torchvision_s() {
    for (name, case) in cases("nms") {
        let kept = nms(&corners(&case, "boxes"), &numbers::<f32>(&case, "scores"), numbers(&case, "threshold")[0]);
        assert_eq!(kept, numbers::<usize>(&case, "kept"), "{name}");
    }
}

#[test]
fn detections_are_torchvision_s() {
    for (name, case) in cases("detect") {
        let limits: Vec<f32> = numbers(&case, "limits");
        let keep = match name {
            "detect unsure" => Keep { score: 0.2, ..Keep::default() },
            "detect sure" => Keep { candidates: 10, most: 12, ..Keep::default() },
            _ => Keep::default(),
        };
        let (logits, offsets): (Vec<f32>, Vec<f32>) = (numbers(&case, "logits"), numbers(&case, "offsets"));
        let found = detections(&logits, &offsets, &corners(&case, "defaults"), [limits[0], limits[1]], &keep);
        assert_eq!(found.iter().map(|one| one.class).collect::<Vec<_>>(), numbers::<usize>(&case, "classes"), "{name}");
        let scores: Vec<f32> = found.iter().map(|one| one.score).collect();
        assert!(near(&scores, &numbers(&case, "scores"), 1e-5), "{name}");
        let boxes: Vec<Corners> = found.iter().map(|one| one.corners).collect();
        assert!(near(boxes.as_flattened(), &numbers(&case, "corners"), 1e-5), "{name}");
    }
    // NaN is no box, and without default boxes nothing is detected.
    let nothing =
        |logits: &[f32], defaults: &[Corners]| detections(logits, &[0.0; 4], defaults, [1.0; 2], &Keep::default());
    assert_eq!(nothing(&[f32::NAN; 2], &[[0.0, 0.0, 1.0, 1.0]]), []);
    assert_eq!(nothing(&[], &[]), []);
}

#[test]
fn average_precision_is_that_of_others() {
    for (name, case) in cases("precision") {
        let area: Vec<f64> = numbers(&case, "area");
        let mut precision = AveragePrecision::new(area.len(), 0.5);
        let (truths, found) = (numbers::<f32>(&case, "truths"), numbers::<f32>(&case, "found"));
        for image in 0u8..20 {
            let of = |row: &&[f32]| row[0] == f32::from(image);
            let class =
                |row: &[f32]| (1u8..10).find(|class| f32::from(*class) == row[1]).map(usize::from).expect("a class");
            let at = |row: &[f32]| -> Corners { row[row.len() - 4..].try_into().expect("four") };
            let truths = truths.chunks(6).filter(of);
            let truths: Vec<Truth> =
                truths.map(|row| Truth { class: class(row), corners: at(row), difficult: false }).collect();
            let found = found.chunks(7).filter(of);
            let found: Vec<Detection> =
                found.map(|row| Detection { class: class(row), score: row[2], corners: at(row) }).collect();
            precision.add(&found, &truths);
        }
        for (found, right) in [(precision.area(), area), (precision.eleven(), numbers(&case, "eleven"))] {
            let near = found.iter().zip(&right).all(|(found, right)| (found.unwrap_or(9.0) - right).abs() < 1e-6);
            assert!(near && found.len() == right.len(), "{name}: {found:?}, not {right:?}");
        }
    }
}

/// One of three ground-truth boxes is difficult: a detection of it counts neither as right nor as wrong. A second
/// detection of one box is wrong.
#[test]
fn difficult_truths_do_not_count() {
    let truth = |left: f32, difficult| Truth { class: 2, corners: [left, 0.0, left + 10.0, 10.0], difficult };
    let found = |left: f32, score| Detection { class: 2, score, corners: [left, 0.0, left + 10.0, 10.0] };
    let mut precision = AveragePrecision::new(2, 0.5);
    assert_eq!((precision.area(), precision.mean_area()), (vec![None; 2], None));
    let truths = [truth(0.0, false), truth(100.0, true), truth(200.0, false)];
    precision.add(&[found(101.0, 0.95), found(0.0, 0.9), found(1.0, 0.8), found(199.0, 0.7)], &truths);
    // Right, wrong, right: precision 1 up to a recall of a half, 2/3 up to 1.
    assert_eq!(precision.detections(), 3);
    assert_eq!(precision.area(), [None, Some(0.5 + 0.5 * (2.0 / 3.0))]);
    assert_eq!(precision.mean_eleven(), Some((6.0 + 5.0 * (2.0 / 3.0)) / 11.0));
}

/// Returns the gradients of the logits `[1, boxes, 2]` of one image. The first `matched` boxes have class 1, and
/// `negatives` background boxes count.
fn mined(logits: &[f32], matched: usize, negatives: f32) -> Vec<f32> {
    let boxes = logits.len() / 2;
    let mut parameters = Parameters::seeded(1);
    let weight = parameters.at("in").weight("logits", [1, 1, boxes, 2], Init::Constant(0.0));
    let mut trainer =
        Trainer::new(Cpu::new(1).expect("a thread"), parameters, Sgd::new(0.0), Method::fp32()).expect("a trainer");
    trainer.set_parameter("in.logits", logits).expect("as long");
    let labels: Vec<u32> = (0..boxes).map(|place| u32::from(place < matched)).collect();
    let zeros = vec![0.0; 4 * boxes];
    let inputs = [
        Input::u32([1, boxes], &labels),
        Input::f32([1, 1, boxes, 4], &zeros),
        Input::f32([1], std::slice::from_ref(&negatives)),
        Input::f32([1], &[1.0]),
    ];
    let gradients = trainer.backward(inputs, |[labels, codes, negatives, share]| {
        let logits = labels.tape().parameter(&weight);
        logits.multibox_loss(codes.scale(1.0), &MultiBox { labels, codes, negatives, share })
    });
    trainer.gradient(&gradients.expect("gradients"), "in.logits").expect("a parameter").expect("a gradient").data
}

/// Returns the weight of each background box: the gradient of class 1's logit divided by that class's probability.
fn parts(logits: &[f32], matched: usize, negatives: f32) -> Vec<f32> {
    let gradients = mined(logits, matched, negatives);
    let share = |(logits, gradient): (&[f32], &[f32])| gradient[1] * (1.0 + (logits[0] - logits[1]).exp());
    logits.chunks(2).zip(gradients.chunks(2)).skip(matched).map(share).collect()
}

#[test]
fn the_hardest_negatives_count() {
    let bits = table::hashed("hard", 2 * 500, 0);
    #[expect(clippy::cast_precision_loss, reason = "random")]
    let random: Vec<f32> = bits.iter().map(|bits| (bits >> 8) as f32 / 4e6 - 2.0).collect();
    for (spread, negatives) in [(1.0, 30.0), (6.0, 1.0), (1.0, 470.0), (0.1, 77.0), (3.0, 0.0), (1.0, 480.0)] {
        let logits: Vec<f32> = random.iter().map(|value| spread * value).collect();
        let found = parts(&logits, 20, negatives);
        // The order that a sort would give.
        let mut order: Vec<usize> = (20..500).collect();
        let loss = |place: usize| logits[2 * place + 1] - logits[2 * place];
        order.sort_by(|&a, &b| loss(b).total_cmp(&loss(a)));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number")]
        let chosen = &order[..negatives as usize];
        for (place, part) in (20..).zip(found) {
            let right = if chosen.contains(&place) { 1.0 } else { 0.0 };
            assert!((part - right).abs() < 1e-3, "{spread}, {negatives}: {place} counts {part}, not {right}");
        }
    }
}

/// Equal losses share the remaining places; none is preferred for its position in the image.
#[test]
fn equal_losses_share_their_places() {
    let near = |found: &[f32], right: &[f32]| found.iter().zip(right).all(|(a, b)| (a - b).abs() < 1e-5);
    let found = parts(&[0.0; 12], 1, 3.0);
    assert!(near(&found, &[0.6; 5]), "{found:?}");
    // One is harder than four that are alike, one easier.
    let found = parts(&[0.0, 0.0, 0.0, 2.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 3.0, 0.0], 1, 3.0);
    assert!(near(&found, &[1.0, 0.5, 0.5, 0.5, 0.5, 0.0]), "{found:?}");
    // More than there are, and none at all.
    assert!(near(&parts(&[0.0, 0.0, 1.0, 0.0], 1, 1.0), &[1.0]));
    assert!(near(&parts(&[0.0; 8], 0, 0.0), &[0.0; 4]));
}
