use super::*;
use gradscale_core::{
    amp::{List, Precision},
    ops::Op,
};

fn differences(there: &str, here: &str) -> String {
    let of = |text: &str| configuration(&text.parse::<Method>().unwrap_or_else(|error| panic!("{error}")));
    let all = of(there).differences(&of(here));
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Changes each number that a text can express, alone: the difference is found, under the name of the text.
#[test]
fn every_number_is_compared() {
    let texts = [
        ("fixed:8", "fixed:16", "scale"),
        ("dynamic", "dynamic:init=2^12", "init"),
        ("dynamic", "dynamic:interval=50", "interval"),
        ("dynamic", "dynamic:growth=4", "growth"),
        ("dynamic", "dynamic:backoff=0.25", "backoff"),
        ("dynamic", "dynamic:least=2^-3", "least"),
        ("dynamic", "dynamic:most=2^20", "most"),
        ("dynamic", "dynamic:hysteresis=cumulative:2", "hysteresis"),
        ("dynamic:hysteresis=consecutive:2", "dynamic:hysteresis=cumulative:2", "hysteresis"),
        ("dynamic", "dynamic:tolerance=0.05", "tolerance"),
        ("dynamic", "dynamic:floor=100:2", "floor"),
        ("dynamic", "dynamic:wgrad=half", "wgrad"),
        ("dynamic:10", "dynamic:11", "interval"),
        ("dynamic:10", "dynamic:10,most=2^20", "most"),
        ("dynamic:10", "dynamic:10,least=2^-3", "least"),
        ("logmax", "logmax:mean=0.9", "mean"),
        ("logmax", "logmax:spread=0.9", "spread"),
        ("logmax", "logmax:quantile=2.5", "quantile"),
        ("logmax", "logmax:ceiling=2^15", "ceiling"),
        ("logmax", "logmax:most=2^20", "most"),
        ("gs", "gs:interval=3", "interval"),
        ("gs", "gs:window=9", "window"),
        ("gs", "gs:room=4", "room"),
        ("gs", "gs:history=0", "history"),
        ("gs", "gs:outliers=24", "outliers"),
        ("gs", "gs:calls=each", "calls"),
        ("gs", "gs:grad=e5m2", "grad"),
        ("gs:act=e4m3", "gs:act=e5m2", "act"),
        ("gs:format=e4m3", "gs:act=e4m3,grad=e4m3", "weight"),
        ("amax", "amax:grad=e4m3", "grad"),
        ("gs:act=e4m3", "gs:act=e4m3,products=fp8", "products"),
        ("amax", "amax:history=16", "history"),
        ("amax:history=16", "amax:history=16,margin=1", "margin"),
        ("amax", "amax:calls=each", "calls"),
        ("block:format=e4m3", "block:format=e4m3,size=128", "size"),
        ("block:format=e4m3", "block:format=e4m3,scale=up", "scale"),
        ("block:format=e4m3", "block:format=e4m3,grad=e5m2", "grad"),
        ("gs:paper", "gs:paper,gamma=0.01", "gamma"),
        ("gs:paper", "gs:paper-literal", "scaling"),
        ("gs:paper", "gs:authors", "scaling"),
        ("gs:authors", "gs:authors,gamma=0.01", "gamma"),
    ];
    for (one, other, name) in texts {
        for (there, here) in [(one, other), (other, one)] {
            let said = differences(there, here);
            assert!(
                said.starts_with(&format!("{name} ")) && said.matches(" in the checkpoint").count() == 1,
                "{there}: {said}"
            );
        }
        assert_eq!(differences(other, other), "");
    }
    assert_eq!(differences("gs:interval=3", "gs"), "interval 3 in the checkpoint, 10 here");
    assert_eq!(differences("gs", "gs:gamma=1e-4"), "gamma 0.001 in the checkpoint, 0.0001 here");
    assert!(differences("gs", "dynamic").contains("scaling gs:exact in the checkpoint, dynamic here"));
}

#[test]
fn policies_are_compared() {
    let mut other = Method::mixed();
    other.amp.set(Op::Gelu, List::Deny).expect("room for one");
    other.layers.set("net.encoder", Precision::Single);
    let said = configuration(&Method::mixed()).differences(&configuration(&other));
    let said: Vec<String> = said.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        ["list of gelu none in the checkpoint, deny here", "precision of net.encoder none in the checkpoint, f32 here"]
    );
}
