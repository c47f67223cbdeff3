//! Dynamic loss scaling around a custom training step, saved and restored.
//!
//! `cargo run --release -p gradscale-core --example loss_scale`

use gradscale_core::loss_scale::{Dynamic, DynamicConfig, Feedback, LossScale};

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let config = DynamicConfig { interval: 5, ..DynamicConfig::default() };
    let mut scale = LossScale::Dynamic(Dynamic::new(config)?);
    for step in 0..20 {
        // Your step: here gradients overflow whenever the scale is above 2^14.
        let found_inf = scale.exponent() > 14;
        println!("step {step:2}: 2^{} {}", scale.exponent(), if found_inf { "skipped" } else { "stepped" });
        scale.update(&Feedback { found_inf, amax: None });
        if step == 10 {
            // Limits and counters are saved with the state.
            scale = LossScale::from_words(&scale.to_words())?;
        }
    }
    Ok(())
}
