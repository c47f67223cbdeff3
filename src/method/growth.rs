//! Warning for a dynamic scale that cannot grow within a short training.

use super::{Method, Scaling};

impl Method {
    /// Returns a warning if a dynamic loss scale cannot grow in a training of `steps` steps, because it needs more
    /// finite steps than that. It then stays constant until the first overflow. `None` for other methods.
    ///
    /// ```
    /// use gradscale::Method;
    /// let warning = "dynamic".parse::<Method>()?.growth_warning(400);
    /// assert!(warning.is_some_and(|text| text.starts_with("never grows in this run")));
    /// assert_eq!("dynamic".parse::<Method>()?.growth_warning(2000), None);
    /// # Ok::<(), gradscale::MethodError>(())
    /// ```
    #[must_use]
    pub fn growth_warning(&self, steps: u64) -> Option<String> {
        let Scaling::Loss(schedule) = &self.scaling else { return None };
        let needed = schedule.first_growth().filter(|needed| *needed > steps)?;
        Some(format!(
            "never grows in this run: it needs {needed} clean steps, and the run has {steps}. interval=steps/20 follows \
             the length of the run."
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_scale_that_could_grow_is_warned_of() {
        let warned = |text: &str, steps| {
            Method::for_steps(text, steps).unwrap_or_else(|error| panic!("{error}")).growth_warning(steps).is_some()
        };
        for (text, steps, expected) in [
            ("dynamic", 1999, true),
            ("dynamic", 2000, false),
            ("torch", 600, true),
            ("torch-20th", 600, false),
            ("torch-20th", 1, false),
            ("deepspeed", 999, true),
            // The scale starts at its maximum and cannot grow.
            ("dynamic:max=2^16", 10, false),
            // The scale grows in every step.
            ("zhao", 1, false),
            ("logmax", 1, false),
            ("delayed", 1, false),
            ("fixed:8", 1, false),
            ("gs", 1, false),
            ("amax:history=16", 1, false),
            ("fp32", 1, false),
        ] {
            assert_eq!(warned(text, steps), expected, "{text}, {steps} steps");
        }
    }
}
