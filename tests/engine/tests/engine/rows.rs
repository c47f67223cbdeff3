//! Gathering by index, and labels as one-hot vectors: sums in the order of the indices, unselected rows, invalid
//! indices.

use crate::{corners::trainer, graph::values};
use gradscale::{
    Cpu, Init, Input, Method, Parameter, Parameters, Trainer, Var,
    gradscale_core::amp::{AmpPolicy, Level, Precision},
    nn::{Linear, Module},
    optim::Sgd,
};

/// Gradients of `w`, whose products are gathered, and those of the gathered value as its site observed them.
fn gathered(threads: usize, method: &Method, indices: &[u32]) -> Vec<f32> {
    let mut parameters = Parameters::seeded(1);
    let net = Linear::new(&mut parameters.at("net"), 3, 8);
    let device = Cpu::new(threads).expect("a CPU");
    let mut trainer = Trainer::new(device, parameters, Sgd::new(0.0), method.clone()).expect("a trainer");
    let (x, t) = (values(1, 60), values(2, 512));
    let t: Vec<f32> = t.into_iter().cycle().take(8 * indices.len()).collect();
    let mut found = Vec::new();
    for _ in 0..12 {
        let batch = [Input::f32([20, 3], &x), Input::u32([indices.len()], indices), Input::f32([indices.len(), 8], &t)];
        let gradients = trainer
            .backward(batch, |[x, rows, t]| (net.forward(x).gather("boxes", 0, rows) * t).sum())
            .expect("gradients");
        found = trainer.gradient(&gradients, "net.weight").expect("a parameter").expect("its gradient").data;
        assert_eq!(trainer.step(gradients).expect("a step").skipped, None);
    }
    found
}

/// One row named a thousand times, some once, some never: the same bits on any number of threads.
#[test]
fn a_sum_of_rows_does_not_depend_on_threads() {
    let indices: Vec<u32> = (0..1000).map(|i| if i % 3 == 0 { 7 } else { i * i % 17 }).collect();
    for method in [Method::fp32(), Method::mixed(), "gs:paper".parse().expect("a method")] {
        let one = gathered(1, &method, &indices);
        assert!(one.iter().all(|value| value.is_finite() && *value != 0.0));
        for threads in [2, 3] {
            assert_eq!(gathered(threads, &method, &indices), one, "{threads} threads, {method}");
        }
    }
}

/// Rows that are selected twice add their gradients, in f32 also for halves; unselected rows have a gradient of 0.
#[test]
fn repeated_and_missing() {
    for level in [Level::O0, Level::O1, Level::O2] {
        let mut parameters = Parameters::seeded(1);
        let table = parameters.at("net").weight("rows", [4, 2], Init::Constant(1.0));
        let method = Method::mixed().with_amp(AmpPolicy::new(level));
        let mut trainer = Trainer::new(Cpu::new(1).expect("a CPU"), parameters, Sgd::new(0.0), method).expect("it");
        // 2048 + 1 is no half.
        let t = [2048.0, 3.0, 1.0, 5.0, 1.0, 7.0];
        let batch = [Input::u32([3], &[2, 2, 0]), Input::f32([3, 2], &t)];
        let gradients =
            trainer.backward(batch, |[rows, t]| (rows.tape().parameter(&table).gather("boxes", 0, rows) * t).sum());
        let found = trainer.gradient(&gradients.expect("it fits"), "net.rows").expect("it").expect("a gradient").data;
        assert_eq!(found, [1.0, 7.0, 0.0, 0.0, 2049.0, 8.0, 0.0, 0.0], "{level:?}");
    }
}

/// The gradient of a half value is a site, called after the layer.
#[test]
fn the_site_of_a_gather() {
    let mut parameters = Parameters::seeded(1);
    let net = Linear::new(&mut parameters.at("net"), 3, 8);
    let mut trainer = trainer(parameters, "gs");
    let x = values(1, 12);
    let batch = [Input::f32([4, 3], &x), Input::u32([3], &[1, 1, 3])];
    let gradients = trainer.backward(batch, |[x, rows]| net.forward(x).gather("boxes", 0, rows).tanh().sum());
    assert_eq!(trainer.step(gradients.expect("it fits")).expect("a step").skipped, None);
    let site = trainer.sites().find(|site| site.name == "boxes/dgrad").expect("its site");
    let counts = site.row.counts();
    // Two of four rows are named.
    assert_eq!((counts.count, counts.zeros), (32, 16));
}

#[test]
fn indices_beyond_the_axis() {
    let mut trainer = trainer(Parameters::seeded(1), "fp32");
    let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let mut of = |axis: usize, indices: Input<'_>| {
        let y = trainer.evaluate([Input::f32([2, 3], &x), indices], |[x, rows]| x.gather("net.boxes", axis, rows));
        y.map(|y| (y.shape.sizes(), y.data)).map_err(|error| error.to_string())
    };
    assert_eq!(
        of(0, Input::u32([3], &[1, 1, 0])),
        Ok(([3, 1, 1, 3], vec![4.0, 5.0, 6.0, 4.0, 5.0, 6.0, 1.0, 2.0, 3.0]))
    );
    assert_eq!(of(3, Input::u32([2, 1], &[2, 0])), Ok(([2, 1, 1, 2], vec![3.0, 1.0, 6.0, 4.0])));
    assert_eq!(of(0, Input::u32([0], &[])), Ok(([0, 1, 1, 3], Vec::new())));
    let said = "net.boxes: index 1 of the batch is 2, but the 2 positions are numbered from 0";
    assert_eq!(of(0, Input::u32([3], &[1, 2, 9])), Err(said.to_owned()));
    let said = "net.boxes: index 0 of the batch is 4294967295, but the 3 positions are numbered from 0";
    assert_eq!(of(3, Input::u32([1], &[u32::MAX])), Err(said.to_owned()));
    let said = "net.boxes: 4 is not an axis; 0 is n, 1 h, 2 w, 3 c";
    assert_eq!(of(4, Input::u32([1], &[0])), Err(said.to_owned()));
    assert_eq!(of(0, Input::u8([1], &[0])), Err("net.boxes: indices must be u32, not u8".to_owned()));
    assert_eq!(of(0, Input::f32([1], &[0.0])), Err("net.boxes: indices must be u32, not f32".to_owned()));
    // Prefetched indices are not checked; an invalid index reads 0.
    let ahead = trainer.prefetch([Input::f32([2, 3], &x), Input::u32([2], &[7, 1])]).expect("a batch");
    let y = trainer.evaluate(ahead, |[x, rows]| x.gather("net.boxes", 0, rows)).expect("it runs");
    assert_eq!(y.data, [0.0, 0.0, 0.0, 4.0, 5.0, 6.0]);
}

#[test]
fn labels_as_vectors() {
    let mut trainer = trainer(Parameters::seeded(1), "fp32");
    let mut of = |labels: Input<'_>, classes: usize| {
        let y = trainer.evaluate([labels], |[labels]| labels.one_hot(classes));
        y.map(|y| (y.shape.sizes(), y.data)).map_err(|error| error.to_string())
    };
    assert_eq!(of(Input::u8([2], &[2, 0]), 3), Ok(([2, 1, 1, 3], vec![0.0, 0.0, 1.0, 1.0, 0.0, 0.0])));
    assert_eq!(of(Input::u32([1, 2], &[1, 1]), 2), Ok(([1, 1, 2, 2], vec![0.0, 1.0, 0.0, 1.0])));
    assert_eq!(of(Input::u32([1, 2, 2], &[0, 1, 1, 0]), 2).map(|y| y.0), Ok([1, 2, 2, 2]));
    // Whole numbers beyond those of halves.
    let (_, wide) = of(Input::u32([2], &[4098, 69_999]), 70_000).expect("two rows");
    let ones: Vec<usize> = (0..140_000).filter(|&i| wide[i] != 0.0).collect();
    assert_eq!((ones, wide[4098]), (vec![4098, 139_999], 1.0));
    let said = "one_hot: label 1 of the batch is 3, but the 3 classes are numbered from 0";
    assert_eq!(of(Input::u8([2], &[0, 3]), 3), Err(said.to_owned()));
    assert_eq!(of(Input::u32([2], &[0, 3]), 3), Err(said.to_owned()));
    assert_eq!(of(Input::f32([1], &[0.0]), 3), Err("one_hot: labels must be u8 or u32, not f32".to_owned()));
    for classes in [0, (1 << 24) + 1] {
        let said = format!("one_hot: expected 1 to 16777216 classes, not {classes}");
        assert_eq!(of(Input::u8([1], &[0]), classes), Err(said));
    }
    // A gather of computed values.
    let x = [0.5, 3.0, 1.0, 7.0, 2.0, 0.0];
    let y = trainer.evaluate([Input::f32([2, 3], &x)], |[x]| x.argmax().one_hot(3)).expect("it fits");
    assert_eq!(y.data, [0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
}

/// Under O2 the vectors are half, and exact.
#[test]
fn labels_as_half_vectors() {
    let method = Method::mixed().with_amp(AmpPolicy::new(Level::O2));
    let device = Cpu::new(1).expect("a CPU");
    let mut trainer = Trainer::new(device, Parameters::seeded(1), Sgd::new(0.1), method).expect("a trainer");
    let labels: Vec<u32> = (0..40).map(|i| 4095 - i).collect();
    let y = trainer.evaluate([Input::u32([40], &labels)], |[labels]| labels.one_hot(4096)).expect("it fits");
    let right = |i: usize| f32::from(i % 4096 == 4095 - i / 4096);
    assert!(y.data.iter().enumerate().all(|(i, &value)| value == right(i)));
}

fn boxed<'t>(one: &Parameter, [x, boxes]: [Var<'t>; 2]) -> Var<'t> {
    x.linear("one", x.tape().parameter(one), None).roi_align(boxes, [1, 3], 1.0, 1)
}

/// Boxes that are halves, or were computed in half, are read as numbers all the same.
#[test]
fn boxes_of_halves() {
    let x: Vec<f32> = (0..64u16).map(f32::from).collect();
    let boxes = [0.0, 8.0, 0.0, 11.0, 1.0];
    let halves = boxes.map(half::f16::from_f32);
    for level in [Level::O0, Level::O1, Level::O2, Level::O3] {
        let method = Method { amp: AmpPolicy::new(level), ..Method::mixed() };
        let mut trainer =
            Trainer::new(Cpu::new(1).expect("a CPU"), Parameters::seeded(0), Sgd::new(0.5), method).expect("a trainer");
        let inputs = [Input::f32([1, 1, 64, 1], &x), Input::f16([1, 5], &halves)];
        let read = |boxes: &[f32]| assert_eq!(boxes, [8.0, 9.0, 10.0], "{level:?}");
        read(&trainer.evaluate(inputs, |[x, boxes]| x.roi_align(boxes, [1, 3], 1.0, 1)).expect("fits").data);
        let inputs = [Input::f32([1, 1, 64, 1], &x), Input::f32([1, 5], &boxes)];
        let net = trainer.evaluate(inputs, |[x, boxes]| x.roi_align(boxes * 2.0, [1, 3], 0.5, 1));
        read(&net.expect("fits").data);
    }
}

/// Boxes keep all their digits at every level, and are no reason to compute in f32.
#[test]
fn boxes_are_coordinates() {
    // Columns 2000 to 2003 of a line: as halves, their ends would be whole numbers.
    let x: Vec<f32> = (0..2048u16).map(|i| f32::from(i % 64)).collect();
    let boxes = [0.0, 2000.5, 0.0, 2003.5, 1.0];
    for (level, precision) in
        [(Level::O0, Precision::Single), (Level::O1, Precision::Half), (Level::O2, Precision::Half)]
    {
        let method = Method { amp: AmpPolicy::new(level), ..Method::mixed() };
        let mut parameters = Parameters::seeded(0);
        let one = parameters.at("net").weight("one", [1, 1], Init::Constant(1.0));
        let mut trainer =
            Trainer::new(Cpu::new(1).expect("a CPU"), parameters, Sgd::new(0.5), method).expect("a trainer");
        let inputs = [Input::f32([1, 1, 2048, 1], &x), Input::f32([1, 5], &boxes)];
        let got = trainer.evaluate(inputs, |all| boxed(&one, all)).expect("fits");
        assert_eq!(got.data, [16.5, 17.5, 18.5]);
        let plan = trainer.plan(inputs, |all| boxed(&one, all).sum()).expect("fits");
        let row = plan.iter().find(|row| row.name == "roi_align").expect("a row");
        assert_eq!(row.precision, precision);
    }
}
