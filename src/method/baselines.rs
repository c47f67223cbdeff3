//! Named loss scales of libraries and papers.

use super::options::current_name;

/// Loss scale with the name of the library or paper that uses it. Names are stored in files, so the settings of a name
/// never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// Name of the baseline in a method's text: `torch`, or with options `torch:min=1`.
    pub name: &'static str,
    /// Text of the method that the baseline's name represents.
    pub method: &'static str,
    /// Origin of the baseline's loss scale, and its difference from others.
    pub about: &'static str,
}

/// All baselines: named loss scales of libraries and papers.
///
/// Weight gradients are half where the library stores them in half, and f32 where it accumulates in f32. An option
/// after a name replaces that of the baseline. For example, `torch:wgrad=f32` is torch.amp's schedule with gradients in
/// f32.
pub const BASELINES: [Baseline; 8] = [
    Baseline {
        name: "torch",
        method: "dynamic:wgrad=half",
        about: "torch.amp's GradScaler: from 2^16, doubled after 2000 clean steps; weight gradients in half",
    },
    Baseline {
        name: "torch-f32",
        method: "dynamic:wgrad=f32",
        about: "the same with weight gradients in f32 from the start, as Megatron accumulates them (= dynamic)",
    },
    Baseline {
        name: "torch-20th",
        method: "dynamic:interval=steps/20,wgrad=half",
        about: "torch.amp's with an interval of a twentieth of the run, so that a short run shows growth and its price",
    },
    Baseline {
        name: "torch-floor",
        method: "dynamic:min=2^0,wgrad=half",
        about: "torch.amp's with a floor of 1, which stops a collapse of the scale",
    },
    Baseline {
        name: "apex",
        method: "dynamic:max=2^24,wgrad=half",
        about: "NVIDIA apex: as torch.amp's, and never above 2^24",
    },
    Baseline {
        name: "deepspeed",
        method: "dynamic:interval=1000,min=2^0,hysteresis=cumulative:2,wgrad=half",
        about: "DeepSpeed's usual configuration: 1000 clean steps, hysteresis 2, floor 1; weight gradients in half",
    },
    Baseline {
        name: "megatron",
        method: "dynamic:init=2^32,interval=1000,min=2^0,max=2^126,hysteresis=cumulative:2",
        about: "Megatron-LM: from 2^32, 1000 clean steps, hysteresis 2, floor 1; weight gradients in f32",
    },
    Baseline {
        name: "zhao",
        method: "dynamic:10,max=2^15,wgrad=half",
        about: "the baseline of the gradient-scaling paper: from 1, capped at 2^15; weight gradients in half",
    },
];

/// Replaces the name of a baseline in a method's text by the text that it represents, and keeps the options.
pub(super) fn expand(text: &str) -> Option<String> {
    let end = text.find([':', ',']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let baseline = BASELINES.iter().find(|baseline| baseline.name == name.trim())?;
    let given: Vec<&str> = rest.trim_start_matches([':', ',']).split(',').map(str::trim).collect();
    let key = |option: &str| option.split_once('=').map(|(key, _)| current_name(key.trim()).to_owned());
    let is_replaced =
        |option: &str| key(option).is_some_and(|own| given.iter().any(|new| key(new).as_ref() == Some(&own)));
    let (schedule, own) = baseline.method.split_once(':').unwrap_or((baseline.method, ""));
    let kept = own.split(',').filter(|option| !is_replaced(option));
    let options: Vec<&str> = kept.chain(given.iter().copied()).filter(|option| !option.is_empty()).collect();
    Some(if options.is_empty() { schedule.to_owned() } else { format!("{schedule}:{}", options.join(",")) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Method;

    #[test]
    fn every_baseline_is_read_and_says_what_it_is() {
        for Baseline { name, method, about } in BASELINES {
            let read = Method::for_steps(name, 100).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(Method::for_steps(method, 100), Ok(read), "{name}");
            assert!(about.len() > 30);
        }
    }

    #[test]
    fn options_replace_those_of_the_name() {
        let shown = |text: &str| text.parse::<Method>().map(|method| method.to_string());
        for (text, expected) in [
            ("torch", "dynamic:wgrad=half"),
            ("torch-f32", "dynamic"),
            ("torch:wgrad=f32", "dynamic"),
            ("torch,min=2^0", "dynamic:min=1,wgrad=half"),
            ("torch-floor", "dynamic:min=1,wgrad=half"),
            ("torch-floor,least=2", "dynamic:min=2,wgrad=half"),
            ("apex", "dynamic:max=2^24,wgrad=half"),
            ("deepspeed:interval=50", "dynamic:interval=50,min=1,hysteresis=cumulative:2,wgrad=half"),
            ("megatron", "dynamic:init=2^32,interval=1000,min=1,max=2^126,hysteresis=cumulative:2"),
            ("zhao", "dynamic:10,max=2^15,wgrad=half"),
            ("zhao:amp=O2", "dynamic:10,max=2^15,wgrad=half,amp=O2"),
        ] {
            assert_eq!(shown(text), Ok(expected.to_owned()), "{text}");
        }
        let error = "torch:speed=1".parse::<Method>().unwrap_err().to_string();
        assert!(error.starts_with("method torch:speed=1: dynamic has no option speed"), "{error}");
        assert!("torch:10".parse::<Method>().is_err(), "a name has its schedule");
        assert!("torch,min=1,least=2".parse::<Method>().is_err());
    }

    #[test]
    fn an_interval_that_is_a_part_of_the_run() {
        let shown = |text: &str, steps| Method::for_steps(text, steps).map(|method| method.to_string());
        assert_eq!(shown("dynamic:interval=steps/20", 400), Ok("dynamic:interval=20".to_owned()));
        assert_eq!(shown("torch-20th", 1500), Ok("dynamic:interval=75,wgrad=half".to_owned()));
        // At least one step.
        assert_eq!(shown("torch-20th", 7), Ok("dynamic:interval=1,wgrad=half".to_owned()));
        assert_eq!(shown("gs", 7), Ok("gs".to_owned()));
        let error = "torch-20th".parse::<Method>().unwrap_err().to_string();
        assert_eq!(
            error,
            "method torch-20th: interval=steps/20 needs the number of training steps (Method::for_steps)"
        );
        for wrong in ["dynamic:interval=steps/0", "dynamic:interval=steps/", "dynamic:interval=steps"] {
            let error = Method::for_steps(wrong, 400).unwrap_err().to_string();
            assert!(error.contains("interval must be a whole number of steps from 1, or steps/N"), "{error}");
        }
    }
}
