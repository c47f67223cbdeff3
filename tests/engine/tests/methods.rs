//! Methods as text: every combination of setters and presets is parsed to the same method.

use gradscale::{
    GradientScaling, Method, Products, SharedLayers, StoreFormats,
    gradscale_core::{
        amp::{Level, List, Precision},
        loss_scale::{
            Bounds, Chainer, Delayed, DelayedConfig, Dynamic, DynamicConfig, Hysteresis, LogMax, LogMaxConfig,
            LossScale, RisingFloor,
        },
        ops::Op,
        site::Memory,
        solve::Amax,
        store_format::StoreFormat,
    },
};
use proptest::{collection::vec, option, prelude::*, sample::select};

fn gradient() -> impl Strategy<Value = GradientScaling> {
    let preset = prop_oneof![
        Just(GradientScaling::exact()),
        (0..=16u32, 0..=30u32).prop_map(|(history, margin)| {
            GradientScaling::amax(Amax::new(history, margin).expect("numbers in their ranges"))
        }),
        Just(GradientScaling::paper(1e-3).expect("a share")),
        Just(GradientScaling::authors(1e-3).expect("a share")),
        Just("gs:paper-literal".parse::<Method>().map(rule).expect("a method")),
    ];
    let memory = select(vec![Memory::None, Memory::Least, Memory::Ring]);
    let numbers = (1e-6..1.0f64, 1..u32::MAX, 0..=30i32, 2..=30i32, memory, option::of(8..=100i32), any::<bool>());
    let format = || select(StoreFormat::ALL.to_vec());
    (preset, numbers, [format(), format(), format()], any::<bool>()).prop_map(
        |(preset, numbers, formats, eight_bits)| {
            let (gamma, interval, window, room, memory, outliers, each) = numbers;
            let [gradient, activation, weight] = formats;
            let scaling = preset.with_gamma(gamma).and_then(|one| one.with_interval(interval));
            let scaling = scaling.and_then(|one| one.with_window(window)).and_then(|one| one.with_headroom(room));
            let scaling = scaling.expect("numbers in their ranges").with_memory(memory);
            let scaling = match outliers {
                Some(bits) => scaling.with_outliers(bits).expect("a number in its range"),
                None => scaling,
            };
            let scaling = scaling.with_calls(if each { SharedLayers::Each } else { SharedLayers::Merged });
            // A margin may exceed a format.
            let scaling = scaling.with_formats(StoreFormats { gradient, activation, weight }).unwrap_or(scaling);
            scaling.with_products(if eight_bits { Products::EightBits } else { Products::Half })
        },
    )
}

fn rule(method: Method) -> GradientScaling {
    match method.scaling {
        gradscale::Scaling::Gradient(scaling) => scaling,
        gradscale::Scaling::Loss(_) | gradscale::Scaling::Blocks(_) => panic!("no rule"),
    }
}

fn bounds() -> impl Strategy<Value = Bounds> {
    (-126..=0i32, 20..=126i32).prop_map(|(least, most)| Bounds::new(least, most).expect("limits"))
}

fn loss_scale() -> impl Strategy<Value = LossScale> {
    let hysteresis = prop_oneof![
        Just(Hysteresis::None),
        (1..9u32).prop_map(Hysteresis::Cumulative),
        (1..9u32).prop_map(Hysteresis::Consecutive)
    ];
    let floor = vec((1..1000u64, 1..3i32), 0..4).prop_map(|steps| {
        let mut at = (0, 0);
        let sum = steps.into_iter().map(|(step, exponent)| {
            at = (at.0 + step, at.1 + exponent);
            at
        });
        RisingFloor::new(&sum.collect::<Vec<_>>()).expect("it rises")
    });
    let numbers = (0..=20i32, 1..9i32, -9..0i32, 1..u32::MAX, bounds(), hysteresis, 0..1_000_000u32, floor);
    let dynamic = numbers.prop_map(|(start, growth, backoff, interval, bounds, hysteresis, tolerance_ppm, floor)| {
        #[allow(clippy::needless_update, reason = "a field that is not drawn yet is as usual")]
        let config = DynamicConfig {
            start,
            growth,
            backoff,
            interval,
            bounds,
            hysteresis,
            tolerance_ppm,
            floor,
            ..DynamicConfig::default()
        };
        LossScale::Dynamic(Dynamic::new(config).expect("a schedule"))
    });
    let log_max = (0.0..1.0f64, 0.0..1.0f64, 0.0..9.0f64, -20..20i32, bounds()).prop_map(
        |(mean_decay, spread_decay, quantile, ceiling, bounds)| {
            let config = LogMaxConfig { mean_decay, spread_decay, quantile, ceiling, bounds };
            LossScale::LogMax(LogMax::new(config).expect("a schedule"))
        },
    );
    prop_oneof![
        Just(LossScale::None),
        (-126..=126i32).prop_map(|k| LossScale::fixed(2f64.powi(k)).expect("a power of two")),
        dynamic,
        log_max,
        (1..=16u32, any::<u32>(), bounds()).prop_map(|(history, margin, bounds)| {
            LossScale::Delayed(Delayed::new(DelayedConfig { history, margin, bounds }).expect("a schedule"))
        }),
        (1..u32::MAX, bounds())
            .prop_filter_map("an interval", |(n, bounds)| Chainer::new(n, bounds).ok().map(LossScale::Chainer)),
    ]
}

fn method() -> impl Strategy<Value = Method> {
    let scaled = prop_oneof![
        Just(Method::fp32()),
        gradient().prop_map(Method::gradient_scaling),
        (loss_scale(), any::<bool>()).prop_map(|(schedule, half)| {
            let precision = if half { Precision::Half } else { Precision::Single };
            Method::loss_scale(schedule).with_weight_gradients(precision)
        }),
    ];
    let lists = vec((select(Op::ALL), select(vec![List::Allow, List::Deny, List::Inside, List::Infer])), 0..4);
    // Arbitrary names, and names in the usual form.
    let name = prop_oneof![any::<String>(), "[a-z]{1,5}(\\.[a-z0-9]{1,5}){0,2}(/[a-z]{1,4})?"];
    let layers = vec((name, select(vec![Precision::Half, Precision::Single])), 0..4);
    (scaled, option::of(select(Level::ALL.to_vec())), lists, layers).prop_map(|(method, level, lists, layers)| {
        let method = level.map_or(method.clone(), |level| method.with_level(level));
        let method =
            lists.into_iter().fold(method, |method, (op, list)| method.with_list(op, list).expect("room for four"));
        layers.into_iter().fold(method, |method, (layer, precision)| method.with_layer(&layer, precision))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_shown_is_read_as_the_same(method in method()) {
        let shown = method.to_string();
        prop_assert_eq!(shown.parse::<Method>(), Ok(method), "{}", shown);
    }

    #[test]
    fn no_text_panics(text in "(gs|dynamic|fp16|logmax|fixed:8)[:,](amp|f32|half|deny|allow|gamma|window)=[%+a-f0-9,=é]{0,12}") {
        if let Ok(method) = text.parse::<Method>() {
            prop_assert_eq!(method.to_string().parse::<Method>(), Ok(method));
        }
    }
}

/// Order is not a difference.
#[test]
fn layers_in_any_order() {
    let of = |names: [&str; 3]| names.iter().fold(Method::mixed(), |all, name| all.with_layer(name, Precision::Half));
    assert_eq!(of(["a", "b", "c"]), of(["c", "a", "b"]));
    assert_eq!(of(["a", "b", "c"]).with_layer("b", Precision::Single).to_string(), "gs:f32=b,half=a+c");
}

/// Rules that decide inside the step have no window, room, memory or outliers: such options are refused and not
/// printed.
#[test]
fn numbers_of_other_rules() {
    let paper = GradientScaling::paper(1e-3).expect("a share");
    let same = paper.with_window(9).and_then(|one| one.with_headroom(9)).and_then(|one| one.with_outliers(20));
    assert_eq!(same.map(|one| one.with_memory(Memory::Ring)), Ok(paper));
    for wrong in [paper.with_gamma(1.0), paper.with_interval(0), paper.with_window(31), paper.with_headroom(1)] {
        assert!(wrong.is_err());
    }
    assert!(GradientScaling::exact().with_outliers(7).is_err());
    // Outlier limits need the ring history.
    let none = GradientScaling::exact().with_outliers(20).map(|one| one.with_memory(Memory::Least));
    assert_eq!(none.map(|one| one.site.outliers), Ok(None));
}
