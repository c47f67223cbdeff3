//! The page shows computed results: the methods that still train if the loss is small.
#![allow(clippy::unwrap_used, reason = "a test fails that way")]

use gradscale::Cpu;
use gradscale_web::{
    digits,
    message::{Answer, FIRST_BIN_EXPONENT, Report, Request},
    training::Training,
};

/// After some steps at one magnitude and some at another: the mean loss over the latter, and the test score.
fn trained(method: &str, first: i32, then: i32) -> (Report, f64) {
    let mut training = Training::open(Cpu::new(1).unwrap(), method, 1, first).unwrap();
    let mut ask = |request| pollster::block_on(training.answer(request)).unwrap();
    ask(Request::Steps { count: 60 });
    ask(Request::Magnitude { magnitude: then });
    let Answer::Steps(report) = ask(Request::Steps { count: 60 }) else { panic!("no steps") };
    let Answer::Score { right } = ask(Request::Score) else { panic!("no score") };
    (report, right)
}

#[test]
fn a_small_loss_stops_all_but_gradient_scaling() {
    let (reference, right) = trained("fp32", 0, 0);
    assert!(right > 0.6, "{right}");
    // Magnitudes are powers of two, so gradient scaling learns the same bits for all positions of the slider.
    let (gs, gs_right) = trained("gs", 0, 0);
    assert!((gs.loss.unwrap() - reference.loss.unwrap()).abs() < 0.02, "{gs:?}");
    for magnitude in [-30, -40, 30] {
        let (other, other_right) = trained("gs", magnitude, magnitude);
        assert_eq!((other.loss, other_right, other.skipped), (gs.loss, gs_right, 0), "2^{magnitude}");
        let scales = |report: &Report, by: i32| report.sites.iter().map(|site| site.scale + by).collect::<Vec<_>>();
        assert_eq!(scales(&other, magnitude), scales(&gs, 0));
    }
    // The slider moves: a batch that does not fit is repeated, one that is too small costs a step.
    for (first, then) in [(0, -40), (-40, 0)] {
        let (other, other_right) = trained("gs", first, then);
        assert!(other.loss.unwrap() < gs.loss.unwrap() + 0.1 && other_right > 0.6, "{other:?}");
        // A jump of more than 2^24 costs up to nine.
        let repeated = if then > first { 1..=9 } else { 0..=0 };
        assert!(other.skipped == 0 && repeated.contains(&other.repeated), "{other:?}");
        assert!(other.sites.iter().all(|site| site.flushed < 0.2), "{other:?}");
    }
    // FP16 without a scale stores zeros and learns nothing; a dynamic scale reaches its maximum at 2^-40.
    for (method, magnitude) in [("fp16", -30), ("fp16", -40), ("dynamic", -40)] {
        let (report, right) = trained(method, magnitude, magnitude);
        assert!(report.loss.unwrap() > 2.2 && right < 0.25, "{method}: {report:?}");
        assert!(report.sites.iter().all(|site| site.flushed == 1.0 || site.zeros > 0), "{method}: {report:?}");
    }
    // At 2^-30 the dynamic scale flushes one value of a hundred, and has learned less.
    let (report, _) = trained("dynamic", -30, -30);
    assert!(report.sites[0].flushed > 0.5 && report.loss > gs.loss, "{report:?}");
}

#[test]
fn a_drawing_is_read() {
    let mut training = Training::open(Cpu::new(1).unwrap(), "gs", 1, 0).unwrap();
    let mut ask = |request| pollster::block_on(training.answer(request)).unwrap();
    ask(Request::Steps { count: 200 });
    // A one and a seven by hand, in pixels of a screen.
    for (digit, stroke) in
        [(1, vec![[100.0, 20.0], [98.0, 240.0]]), (7, vec![[20.0, 30.0], [180.0, 25.0], [90.0, 240.0]])]
    {
        let Answer::Class { shares, image } = ask(Request::Classify { strokes: vec![stroke] }) else {
            panic!("no class")
        };
        assert_eq!(image.len(), digits::PIXELS);
        assert!((shares.iter().sum::<f32>() - 1.0).abs() < 1e-3);
        let best = (0..10).max_by(|&a, &b| shares[a].total_cmp(&shares[b]));
        assert_eq!(best, Some(digit), "{shares:?}");
    }
}

#[test]
fn what_makes_no_sense_is_an_error() {
    let open = |method, magnitude| Training::open(Cpu::new(1).unwrap(), method, 1, magnitude);
    assert!(open("gz", 0).unwrap_err().to_string().contains("method gz: unknown"));
    assert!(open("gs", -61).unwrap_err().to_string().contains("2^-61 is out of range"));
    let mut training = open("fp16", 0).unwrap();
    // The results of a product are compared with its size.
    assert!(pollster::block_on(training.answer(Request::Multiply { size: 64, count: 2 })).is_ok());
    let many = pollster::block_on(training.answer(Request::Multiply { size: 4097, count: 1 })).unwrap_err();
    assert!(many.to_string().contains("of 1 to 4096"), "{many}");
    // A refused request changes nothing.
    assert!(pollster::block_on(training.answer(Request::Magnitude { magnitude: 99 })).is_err());
    let Answer::Steps(report) = pollster::block_on(training.answer(Request::Steps { count: 1 })).unwrap() else {
        panic!("no steps")
    };
    assert_eq!((report.step, report.sites[0].scale), (1, 0));
    // Digits that visitors without a mouse have written.
    let mut write = |digit| pollster::block_on(training.answer(Request::Write { digit, key: 1 }));
    let Answer::Strokes { strokes } = write(4).unwrap() else { panic!("no strokes") };
    assert!(strokes.len() == 2 && strokes.iter().flatten().flatten().all(|at| at.abs() < 1.0), "{strokes:?}");
    assert!(write(10).unwrap_err().to_string().contains("10 is no digit"));
    for text in [
        r#"{"ask":"stop"}"#,
        r#"{"ask":"open","method":"gs","seed":1,"magnitude":0,"broken":0}"#,
        r#"{"ask":"steps"}"#,
        r#"{"ask":"steps","count":-1}"#,
        "{",
        "",
    ] {
        assert!(serde_json::from_str::<Request>(text).is_err(), "{text}");
    }
}

/// Bins are counted where the page draws them.
#[test]
fn histograms_lie_where_values_do() {
    let mut training = Training::open(Cpu::new(1).unwrap(), "gs", 1, 0).unwrap();
    let Answer::Steps(report) = pollster::block_on(training.answer(Request::Steps { count: 1 })).unwrap() else {
        panic!("no steps")
    };
    assert_eq!(report.sites.len(), 3);
    for site in &report.sites {
        let values: u32 = site.stored.iter().sum();
        let beyond = site.stored.iter().zip(FIRST_BIN_EXPONENT..).filter(|&(&count, at)| count > 0 && at > 16).count();
        assert!(values > 0 && beyond == 0, "{site:?}: the largest value fits into FP16");
        let flushed = site.stored.iter().zip(FIRST_BIN_EXPONENT..).filter(|(_, at)| *at <= -25);
        let flushed = f64::from(flushed.map(|(count, _)| *count).sum::<u32>()) / f64::from(values);
        assert!((flushed - site.flushed).abs() < 1e-9, "{site:?}");
    }
}

/// One image of 200 is NaN: PyTorch's scale falls once for each batch with it, until nothing is left to learn from.
#[test]
fn a_broken_image_stops_the_dynamic_loss_scale_alone() {
    let train = |method: &str| {
        let epoch = std::num::NonZeroU64::new(200);
        let mut training = Training::open(Cpu::new(1).unwrap(), method, 1, -20).unwrap().with_broken_image(epoch);
        let mut ask = |request| pollster::block_on(training.answer(request)).unwrap();
        let Answer::Steps(early) = ask(Request::Steps { count: 30 }) else { panic!("no steps") };
        ask(Request::Steps { count: 70 });
        let Answer::Steps(late) = ask(Request::Steps { count: 40 }) else { panic!("no steps") };
        (early, late)
    };
    let [(_, fp32), (early, dynamic), (before, gs)] = ["fp32", "dynamic", "gs"].map(train);
    for report in [&fp32, &dynamic, &gs] {
        // 140 steps take 8960 digits, so the image has come 44 or 45 times, sometimes twice in a batch.
        assert_eq!(report.broken, fp32.broken);
        assert!((40..=45).contains(&report.broken), "{report:?}");
        assert_eq!(report.skipped, report.broken, "{report:?}");
        assert!(report.loss.is_some_and(f64::is_finite), "{report:?}");
    }
    // From 2^16, a bit for each batch.
    assert_eq!(early.loss_scale, 16 - i32::try_from(early.broken).unwrap());
    assert!(dynamic.sites.iter().any(|site| site.flushed == 1.0), "{dynamic:?}");
    assert!(dynamic.loss.unwrap() > fp32.loss.unwrap() + 1.0, "{dynamic:?}");
    assert!((gs.loss.unwrap() - fp32.loss.unwrap()).abs() < 0.05, "{gs:?} {fp32:?}");
    // Its scales follow the gradients, which shrink, and not the broken image. Otherwise all would be 30 lower by now.
    for (site, before) in gs.sites.iter().zip(&before.sites) {
        assert!(site.scale >= before.scale - 4, "{site:?} {before:?}");
    }
}
