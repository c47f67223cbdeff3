//! Checkpoints load only into a training with the same settings; otherwise the error names the differences. Checkpoints
//! of earlier versions load, and are compared by the settings that they contain.

use crate::files::{Net, apply, device, network, step, steps};
use gradscale::{
    CheckpointError, Error, Layers, Method, Trainer, TrainerOptions,
    gradscale_core::{
        amp::{AmpPolicy, Level, List, Precision},
        ops::Op,
    },
    optim::{Adam, AdamW, CustomOptimizer, Optimizer, Schedule, Sgd, UpdateInput, UpdateOutput},
};
use std::collections::BTreeMap;

type Training = (Trainer<gradscale::Cpu>, Net);

fn training(method: Method, optimizer: impl Into<Optimizer>) -> Training {
    let (parameters, net) = network(2);
    (Trainer::new(device(), parameters, optimizer, method).expect("a trainer"), net)
}

fn method(text: &str) -> Method {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the error of loading the checkpoint of the first training into the second.
fn refused((there, net): Training, (mut here, own): Training) -> String {
    let mut there = there;
    steps(2, &mut there, &net);
    steps(1, &mut here, &own);
    let before = (apply(&mut here, &own), here.save(&BTreeMap::new()).expect("a checkpoint"));
    let error = here.load(&there.save(&BTreeMap::new()).expect("a checkpoint")).expect_err("another training");
    assert!(matches!(error, Error::Checkpoint(CheckpointError::Settings { .. })), "{error}");
    assert!((apply(&mut here, &own), here.save(&BTreeMap::new()).expect("a checkpoint")) == before, "changed");
    error.to_string()
}

/// Sign of the gradient.
#[derive(Debug)]
struct Signs {
    lr: f64,
    beta: f32,
}

impl CustomOptimizer for Signs {
    fn lr(&self) -> f64 {
        self.lr
    }
    fn update<'t>(&self, of: UpdateInput<'t>) -> UpdateOutput<'t> {
        UpdateOutput { weight: of.weight - (of.gradient * self.beta).sign() * of.lr, states: Vec::new() }
    }
}

#[test]
fn another_optimizer_is_named() {
    let sgd = || Sgd { momentum: 0.9, ..Sgd::new(0.1) };
    let plain = || Optimizer::from(sgd());
    let own = |beta: f32| Optimizer::custom(Signs { lr: 0.1, beta });
    let cosine = |steps: u64| plain().schedule(Schedule::Cosine { steps });
    for (there, here, said) in [
        (plain(), Sgd { momentum: 0.8, ..sgd() }.into(), "momentum 0.9 in the checkpoint, 0.8 here"),
        (
            plain(),
            Sgd { lr: 0.3, nesterov: true, ..sgd() }.into(),
            "lr 0.1 in the checkpoint, 0.3 here, nesterov false in the checkpoint, true here",
        ),
        (Sgd { weight_decay: 5e-4, ..sgd() }.into(), plain(), "decay 0.0005 in the checkpoint, 0.0 here"),
        (plain(), Adam::new(0.1).into(), "rule Sgd in the checkpoint, Adam here"),
        (
            Adam::new(0.1).into(),
            Adam { betas: [0.9, 0.99], ..Adam::new(0.1) }.into(),
            "beta 2 0.999 in the checkpoint, 0.99 here",
        ),
        (
            AdamW::new(0.1).into(),
            AdamW { eps: 1e-6, ..AdamW::new(0.1) }.into(),
            "eps 1e-8 in the checkpoint, 1e-6 here",
        ),
        (plain().clip_norm(1.0), plain().clip_norm(2.0), "clip_norm 1.0 in the checkpoint, 2.0 here"),
        (plain(), plain().clip_value(2.0), "clip_value none in the checkpoint, 2.0 here"),
        (cosine(100), cosine(200), "steps 100 in the checkpoint, 200 here"),
        (cosine(100), plain(), "schedule cosine in the checkpoint, constant here"),
        (plain().group("one", 0.3, 0.0), plain().group("one", 0.4, 0.0), "lr of one 0.3 in the checkpoint, 0.4 here"),
        (
            plain().group("one", 0.3, 0.0),
            plain().group("one", 0.3, 0.1),
            "decay of one 0.0 in the checkpoint, 0.1 here",
        ),
        (
            plain().group("one", 0.3, 0.0).group("two", 0.1, 0.0),
            plain().group("two", 0.1, 0.0).group("one", 0.3, 0.0),
            "groups one and two in the checkpoint, two and one here",
        ),
        (plain().freeze("one"), plain(), "frozen one in the checkpoint, none here"),
        (own(1.0), own(2.0), "rule Signs { lr: 0.1, beta: 1.0 } in the checkpoint, Signs { lr: 0.1, beta: 2.0 } here"),
        (plain().schedule(Schedule::own(|_| 1.0)), plain(), "schedule own in the checkpoint, constant here"),
    ] {
        let mixed = || method("gs:interval=3");
        let error = refused(training(mixed(), there.clone()), training(mixed(), here));
        assert_eq!(error, format!("checkpoint: made with another optimizer: {said}"));
        // A checkpoint loads into the training that wrote it.
        let (mut one, net) = training(mixed(), there.clone());
        steps(2, &mut one, &net);
        let bytes = one.save(&BTreeMap::new()).expect("a checkpoint");
        let (mut two, _) = training(mixed(), there);
        two.load(&bytes).expect("its own");
        assert!(two.save(&BTreeMap::new()).expect("a checkpoint") == bytes);
    }
}

#[test]
fn another_method_is_named() {
    let layer = |precision: Precision| {
        let mut layers = Layers::none();
        layers.set("two", precision);
        layers
    };
    let listed = |list: List| {
        let mut amp = AmpPolicy::new(Level::O1);
        amp.set(Op::Relu, list).expect("room");
        method("gs").with_amp(amp)
    };
    for (there, here, said) in [
        (method("gs:interval=3"), method("gs"), "interval 3 in the checkpoint, 10 here"),
        (
            method("gs:gamma=1e-4,room=4"),
            method("gs"),
            "gamma 0.0001 in the checkpoint, 0.001 here, room 4 in the checkpoint, 6 here",
        ),
        (method("dynamic:init=2^8"), method("dynamic:init=2^9"), "init 8 in the checkpoint, 9 here"),
        (method("dynamic"), method("dynamic:interval=100"), "interval 2000 in the checkpoint, 100 here"),
        (method("fixed:8"), method("fp16"), "scaling fixed in the checkpoint, none here"),
        (method("gs"), method("gs").with_amp(AmpPolicy::new(Level::O2)), "amp O1 in the checkpoint, O2 here"),
        (listed(List::Deny), method("gs"), "list of relu deny in the checkpoint, none here"),
        (listed(List::Deny), listed(List::Allow), "list of relu deny in the checkpoint, allow here"),
        (
            method("gs").with_layers(layer(Precision::Single)),
            method("gs").with_layers(layer(Precision::Half)),
            "precision of two f32 in the checkpoint, half here",
        ),
    ] {
        let error = refused(training(there, Sgd::new(0.1)), training(here, Sgd::new(0.1)));
        assert_eq!(error, format!("checkpoint: made with another method: {said}"));
    }
    let (here, net) = training(method("gs"), Sgd::new(0.1));
    let error = refused(
        training(method("gs"), Sgd::new(0.1)),
        (here.with_options(TrainerOptions::new().with_statistics_kept(0.8)), net),
    );
    assert_eq!(error, "checkpoint: made with another trainer: statistics kept 0.9 in the checkpoint, 0.8 here");
}

/// A schedule that has moved on is still the same schedule.
#[test]
fn states_are_not_settings() {
    for text in ["dynamic:init=2^20,interval=1,growth=4", "logmax", "dynamic:2", "gs:interval=1"] {
        let (mut one, net) = training(method(text), Sgd::new(0.1));
        steps(5, &mut one, &net);
        let bytes = one.save(&BTreeMap::new()).expect("a checkpoint");
        let (mut two, own) = training(method(text), Sgd::new(0.1));
        two.load(&bytes).expect("its own");
        assert_eq!(two.loss_scale(), one.loss_scale());
        assert_eq!(step(&mut one, &net), step(&mut two, &own));
    }
}

/// A file of format 2, the method and optimizer that made it, others, and the losses of the four steps that followed.
type Old = (&'static [u8], &'static str, bool, [&'static str; 2], [u32; 4]);

const OLD: [Old; 4] = [
    (
        include_bytes!("old/format2-gs.safetensors"),
        "gs:interval=3,outliers=40,calls=each",
        false,
        ["gs:interval=4,outliers=40,calls=each", "dynamic"],
        [0x3f27_1e88, 0x3f22_0541, 0x3f1d_3059, 0x3f18_5c3e],
    ),
    (
        include_bytes!("old/format2-paper.safetensors"),
        "gs:paper,interval=4",
        true,
        ["gs:paper,interval=4,gamma=0.01", "gs"],
        [0x3f23_1640, 0x3f1f_254c, 0x3f1b_3ce6, 0x3f17_53cf],
    ),
    (
        include_bytes!("old/format2-dynamic.safetensors"),
        "dynamic:init=2^12,interval=3,wgrad=half",
        true,
        ["dynamic:init=2^12,interval=3", "dynamic:init=2^12,interval=4,wgrad=half"],
        [0x3f23_1640, 0x3f1f_24bb, 0x3f1b_3db1, 0x3f17_5495],
    ),
    (
        include_bytes!("old/format2-logmax.safetensors"),
        "logmax:quantile=2.5",
        false,
        ["logmax:quantile=2", "gs"],
        [0x3f27_1e88, 0x3f22_0541, 0x3f1d_3059, 0x3f18_5c3e],
    ),
];

#[test]
fn files_of_format_2_still_load() {
    for (bytes, text, adam, others, next) in OLD {
        let begun = |text: &str| {
            let rule = if adam { Adam::new(1e-2).into() } else { Sgd { momentum: 0.9, ..Sgd::new(0.1) }.into() };
            training(method(text), Optimizer::group(rule, "two", 0.03, 0.01))
        };
        let (mut trainer, net) = begun(text);
        trainer.load(bytes).expect("an old checkpoint");
        let new = trainer.save(&BTreeMap::new()).expect("a checkpoint");
        assert_eq!([0; 4].map(|_: u32| step(&mut trainer, &net)), next, "{text}");
        trainer.load(&new).expect("the same, newly written");
        assert_eq!([0; 4].map(|_: u32| step(&mut trainer, &net)), next, "{text}");
        for other in others {
            let error = begun(other).0.load(bytes).expect_err("another method").to_string();
            assert!(error.starts_with("checkpoint: made with another method: "), "{error}");
        }
    }
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc: u32, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 })
    })
}

#[test]
fn a_newer_version_is_refused() {
    let (mut trainer, net) = training(method("gs"), Sgd::new(0.1));
    steps(1, &mut trainer, &net);
    let mut bytes = trainer.save(&BTreeMap::new()).expect("a checkpoint");
    let word = b"\\\"format\\\":3";
    let at = bytes.windows(word.len()).position(|window| window == word).expect("the word") + word.len() - 1;
    for format in b'5'..=b'9' {
        bytes[at] = format;
        let end = bytes.len() - 4;
        let sum = crc32c(&bytes[..end]).to_le_bytes();
        bytes[end..].copy_from_slice(&sum);
        let error = trainer.load(&bytes).expect_err("of the future").to_string();
        let format = char::from(format);
        assert_eq!(
            error,
            format!(
                "checkpoint: has format {format}, but this version reads formats up to 4; update \
            gradscale"
            )
        );
    }
}
