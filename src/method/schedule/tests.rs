use crate::{Method, Scaling};
use gradscale_core::{
    amp::Precision,
    loss_scale::{Bounds, Dynamic, DynamicConfig, Hysteresis, LossScale, RisingFloor},
};

fn schedule(text: &str) -> LossScale {
    let method: Method = text.parse().unwrap_or_else(|error| panic!("{error}"));
    match method.scaling {
        Scaling::Loss(schedule) => schedule,
        Scaling::Gradient(_) | Scaling::Blocks(_) => panic!("{text} is no loss scale"),
    }
}

#[test]
fn every_number_of_a_dynamic_scale_has_a_name() {
    let text = "dynamic:init=1024,interval=50,growth=4,backoff=0.25,min=2^-3,max=2^20,hysteresis=cumulative:2,\
                tolerance=0.05,floor=100:2/300:2^4";
    let config = DynamicConfig {
        start: 10,
        growth: 2,
        backoff: -2,
        interval: 50,
        bounds: Bounds::new(-3, 20).expect("bounds"),
        hysteresis: Hysteresis::Cumulative(2),
        tolerance_ppm: 50_000,
        floor: RisingFloor::new(&[(100, 1), (300, 4)]).expect("rising"),
    };
    assert_eq!(schedule(text), LossScale::Dynamic(Dynamic::new(config).expect("a schedule")));
    assert_eq!(schedule("dynamic,hysteresis=consecutive:3"), schedule("dynamic: hysteresis = consecutive:3"));
    assert_eq!(schedule("dynamic:init=2^16,hysteresis=none"), schedule("dynamic"));
    // The loss scale parsed from the text equals the loss scale created from numbers.
    let mut played = schedule("dynamic:init=2^8,interval=2,growth=8,floor=3:2^9");
    let exponents: Vec<i32> = [false, false, true, true, true, false, false]
        .into_iter()
        .map(|found_inf| {
            played.update(&gradscale_core::loss_scale::Feedback { found_inf, amax: None });
            played.exponent()
        })
        .collect();
    assert_eq!(exponents, [8, 11, 10, 9, 8, 9, 12]);
}

#[test]
fn what_is_shown_is_read_as_the_same() {
    for (text, shown) in [
        ("fp32", "fp32"),
        ("fp16", "fp16"),
        ("fp16:wgrad=half", "fp16:wgrad=half"),
        ("fixed:128", "fixed:128"),
        ("fixed:65536,wgrad=half", "fixed:2^16,wgrad=half"),
        ("fixed:0.125", "fixed:2^-3"),
        ("dynamic", "dynamic"),
        ("dynamic:wgrad=half", "dynamic:wgrad=half"),
        ("dynamic,interval=2000,init=65536,wgrad=f32", "dynamic"),
        ("dynamic:floor=4:8/9:1024,tolerance=0.000001", "dynamic:tolerance=0.000001,floor=4:8/9:2^10"),
        ("dynamic:hysteresis=consecutive:2,backoff=2^-4", "dynamic:backoff=2^-4,hysteresis=consecutive:2"),
        ("dynamic:10,max=2^15,wgrad=half", "dynamic:10,max=2^15,wgrad=half"),
        ("logmax:quantile=2.5,mean=0.9,ceiling=2^15", "logmax:mean=0.9,quantile=2.5,ceiling=2^15"),
        ("delayed:margin=2,history=4,max=2^15", "delayed:history=4,margin=2,max=2^15"),
        ("delayed,history=16,margin=0", "delayed"),
        ("amax", "amax"),
        ("amax:history=0,margin=0,calls=merged", "amax"),
        ("amax:margin=1,history=16", "amax:history=16,margin=1"),
        ("amax,calls=each,amp=O2", "amax:calls=each,amp=O2"),
        ("gs", "gs"),
        ("gs:exact,room=4,history=0,gamma=1e-4", "gs:gamma=0.0001,room=4,history=0"),
        ("gs,outliers=24,window=9,interval=3", "gs:interval=3,window=9,outliers=24"),
        ("gs,calls=merged", "gs"),
        ("gs:exact,calls=each,room=4", "gs:room=4,calls=each"),
        ("gs:paper,calls=each", "gs:paper,calls=each"),
        ("gs:paper-literal,interval=7", "gs:paper-literal,interval=7"),
        ("gs:authors,gamma=0.01", "gs:authors,gamma=0.01"),
        ("gs:format=fp16,grad=fp16", "gs"),
        ("gs:weight=e5m2,format=e5m2", "gs:format=e5m2"),
        ("gs:format=e5m2,act=e4m3,forward=on", "gs:grad=e5m2,act=e4m3,weight=e5m2"),
        ("gs:grad=e5m2,history=0", "gs:history=0,grad=e5m2"),
        ("gs:act=e4m3,window=9,outliers=9", "gs:window=9,outliers=9,act=e4m3"),
        ("amax:act=e4m3,margin=15,calls=each", "amax:margin=15,act=e4m3,calls=each"),
        ("amax:history=16,format=e4m3,weight=fp16", "amax:history=16,grad=e4m3,act=e4m3"),
        ("gs:amp=o2", "gs:amp=O2"),
        ("block:format=e4m3", "block:format=e4m3"),
        ("block:size=32,grad=e5m2,format=e4m3", "block:grad=e5m2,act=e4m3,weight=e4m3"),
        ("block,format=e5m2,size=128,amp=O2", "block:format=e5m2,size=128,amp=O2"),
        ("block:scale=up,format=e4m3", "block:format=e4m3,scale=up"),
        ("block:scale=down,format=e4m3", "block:format=e4m3"),
        ("fp16:amp=O0", "fp32"),
        ("fp16:amp=O0,half=a", "fp16:amp=O0,half=a"),
        (
            "dynamic:10,f32=net.b+net.a,deny=silu+gelu,wgrad=half",
            "dynamic:10,wgrad=half,deny=gelu+silu,f32=net.a+net.b",
        ),
        ("gs,half=a%2Cb%25,allow=softmax", "gs:allow=softmax,half=a%2Cb%25"),
    ] {
        let method: Method = text.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(method.to_string(), shown);
        assert_eq!(shown.parse(), Ok(method));
    }
}

#[test]
fn what_is_wrong_is_told_with_what_is_right() {
    for (text, expected) in [
        ("block", "blocks need 8 bits for all values: set format, or grad, act and weight, to e5m2 or e4m3"),
        ("block:grad=e4m3", "blocks need 8 bits for all values"),
        ("block:format=e4m3,size=33", "size must be a power of two from 16 to 1024, not 33"),
        ("block:format=e4m3,size=x", "size must be a power of two from 16 to 1024, not x"),
        ("block:format=e4m3,scale=nearest", "scale must be down or up, not nearest"),
        ("block:format=e3m4", "format must be fp16, e5m2 or e4m3, not e3m4"),
        (
            "block:format=e4m3,history=16",
            "block has no option history; its options are size, scale, format, grad, act, weight",
        ),
        ("block:format=e4m3,wgrad=half", "wgrad needs a loss scale"),
        ("dynamic:init=3", "init must be a power of two, as 65536, 0.5 or 2^16, not 3"),
        ("dynamic:init=2^40", "the first scale, 2^40, is outside the limits"),
        ("dynamic:growth=0.5", "the growth factor must be above 1 and the backoff factor below 1, not 2^-1"),
        ("dynamic:backoff=2", "the growth factor must be above 1 and the backoff factor below 1, not 2^1"),
        ("dynamic:interval=0", "intervals and hysteresis must be at least one step"),
        ("dynamic:interval=x", "interval must be a whole number of steps from 1, or steps/N, not x"),
        ("dynamic:hysteresis=2", "hysteresis must be none, cumulative:N or consecutive:N overflows, not 2"),
        ("dynamic:hysteresis=cumulative:0", "intervals and hysteresis must be at least one step"),
        ("dynamic:tolerance=1", "tolerance must be a share of steps from 0 to below 1, in millionths, not 1"),
        ("dynamic:floor=5", "floor must be STEP:SCALE, separated by slashes (40000:2^13/150000:2^15), not 5"),
        (
            "dynamic:floor=9:4/3:8",
            "a rising minimum must have at most eight increasing exponents, all within the limits",
        ),
        ("dynamic:min=2,max=1", "2^1 to 2^0 are not valid limits of a loss scale"),
        ("dynamic:init=2,init=4", "init is given twice"),
        ("dynamic:least=1,min=2", "min is given twice"),
        ("delayed:max=2^20,most=2^20", "max is given twice"),
        ("gs:calls=4", "calls must be merged or each, not 4"),
        (
            "dynamic:speed=1",
            "dynamic has no option speed; its options are init, interval, growth, backoff, min, max, hysteresis, tolerance, floor, wgrad",
        ),
        ("dynamic:x", "dynamic:N needs a whole number N from 1, not x; the scale grows by 2^(1/N) each step"),
        (
            "dynamic:10,init=4",
            "dynamic:N has no option init; its options are min, max, wgrad; dynamic:interval=N has more",
        ),
        ("logmax:mean=1", "a decay must be in [0, 1), not 1"),
        ("delayed:history=17", "a history must hold 1 to 16 steps, not 17"),
        ("delayed:history=0", "a history must hold 1 to 16 steps, not 0"),
        ("amax:history=17", "an amax history must hold at most 16 rows, not 17"),
        ("amax:history=ring", "history must be a whole number of steps from 0 to 16, not ring"),
        ("amax:margin=31", "an amax margin must be 0 to 30 binades, not 31"),
        ("amax:interval=3", "amax has no option interval; its options are history, margin, calls, format"),
        ("gs:format=e3m4", "format must be fp16, e5m2 or e4m3, not e3m4"),
        ("amax:act=8", "act must be fp16, e5m2 or e4m3, not 8"),
        ("gs:format=e4m3,products=fp4", "products must be half or fp8, not fp4"),
        ("amax:grad=e5m2,products=fp8", "products=fp8 needs operands of 8 bits, for example format=e4m3"),
        ("dynamic:products=fp8", "products needs a scale for each store, which a loss scale does not have"),
        ("amax:margin=16,grad=e4m3", "an amax margin must be at most 15 binades with format=e4m3, not 16"),
        (
            "gs:act=e4m3,forward=off",
            "activations and weights in 8 bits need forward=on, which they imply: leave forward out",
        ),
        ("gs:weight=e4m3,forward=repeat", "activations and weights in 8 bits need forward=on"),
        ("gs:format=e5m2,history=0", "exponents of forward stores need history=ring, which repeats batches"),
        ("gs:authors,grad=e5m2", "grad does not go with gs:authors, whose numbers are those of FP16"),
        (
            "gs:paper,format=e5m2",
            "format does not go with gs:paper, whose numbers are those of FP16; formats of 8 bits need gs, amax or block",
        ),
        ("dynamic:act=e4m3", "act needs a scale for each store, which a loss scale does not have; formats of 8 bits"),
        ("torch:weight=e4m3", "weight needs a scale for each store"),
        ("amax:16", "16 is not option=value"),
        ("amax:wgrad=half", "wgrad needs a loss scale"),
        ("fixed:8,init=4", "fixed has no option init; its options are wgrad"),
        ("fixed:2^200", "a loss scale must be a power of two from 2^-126 to 2^126, not"),
        ("fixed:abc", "a loss scale must be a power of two, as 65536, 0.5 or 2^16, not abc"),
        ("fp16:8", "unknown; the methods are fp32, fp16"),
        ("dynamic:wgrad=single", "wgrad must be half or f32, not single"),
        ("gs:wgrad=half", "wgrad needs a loss scale"),
        ("fp32:wgrad=half", "fp32 has no options"),
        ("fp32:amp=O2", "fp32 has no options"),
        ("gs:amp=O4", "amp must be O0, O1, O2 or O3, not O4"),
        ("gs:deny=gelo", "deny takes operators, and gelo is none"),
        ("gs:f32=a%2", "a % must be followed by two hexadecimal digits, not as in a%2"),
        ("gs:f32=a,half=b+a", "layer a is given twice"),
        ("gs:f32=a%FF", "a % must be followed by two hexadecimal digits, not as in a%FF"),
    ] {
        let error = text.parse::<Method>().expect_err(text).to_string();
        assert!(error.starts_with(&format!("method {text}: {expected}")), "{error}");
    }
}

#[test]
fn only_a_loss_scale_has_weight_gradients_in_half() {
    let of = |text: &str| text.parse::<Method>().expect("a method").weight_gradients;
    assert_eq!(["fp32", "gs", "dynamic"].map(of), [Precision::Single; 3]);
    assert_eq!(["fp16,wgrad=half", "logmax:wgrad=half"].map(of), [Precision::Half; 2]);
}

/// Files of before contain `least` and `most`.
#[test]
fn limits_are_read_by_their_former_names() {
    for (former, shown) in [
        ("dynamic:least=2^-3,most=2^20", "dynamic:min=2^-3,max=2^20"),
        ("dynamic:10,most=2^15", "dynamic:10,max=2^15"),
        ("logmax:least=2,max=2^20", "logmax:min=2,max=2^20"),
        ("delayed:most=2^15", "delayed:max=2^15"),
    ] {
        let method: Method = former.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(method.to_string(), shown);
        assert_eq!(shown.parse(), Ok(method));
    }
    // Values keep their names, and so do the options of other rules.
    assert_eq!("gs:history=least".parse::<Method>().expect("a method").to_string(), "gs:history=least");
}

/// Names and values in checkpoints never change, whatever texts call them.
#[test]
fn saved_fields_are_those_of_before() {
    for (text, saved) in [
        ("fp16", r#"{"scaling":"none"}"#),
        ("fixed:8", r#"{"scale":"2^3","scaling":"fixed"}"#),
        (
            "dynamic",
            r#"{"backoff":-1,"floor":[],"growth":1,"hysteresis":"none","init":16,"interval":2000,"least":-24,"most":30,"scaling":"dynamic","tolerance":0.0}"#,
        ),
        (
            "dynamic:hysteresis=cumulative:2,tolerance=0.05,floor=100:2/300:2^14",
            r#"{"backoff":-1,"floor":["100:2^1","300:2^14"],"growth":1,"hysteresis":"cumulative:2","init":16,"interval":2000,"least":-24,"most":30,"scaling":"dynamic","tolerance":0.05}"#,
        ),
        ("dynamic:10,max=2^15", r#"{"interval":10,"least":-24,"most":15,"scaling":"dynamic:N"}"#),
        (
            "logmax",
            r#"{"ceiling":16,"least":-24,"mean":0.99,"most":30,"quantile":3.09,"scaling":"logmax","spread":0.999}"#,
        ),
        ("delayed:min=2^-3", r#"{"history":16,"least":-3,"margin":0,"most":30,"scaling":"delayed"}"#),
    ] {
        let method: Method = text.parse().unwrap_or_else(|error| panic!("{error}"));
        let all = crate::method::saved::scaling(&method.scaling);
        assert_eq!(serde_json::to_string(&all).expect("JSON"), saved, "{text}");
    }
}
