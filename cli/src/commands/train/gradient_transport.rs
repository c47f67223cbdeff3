//! Messages about the transport of gradients between ranks.

use super::Plan;
use crate::{Failure, output, tasks::TrainingRun};
use gradscale::distributed::{GradTransport, Group, ReduceTimings};

/// Prints the transport of gradients between ranks, if there is more than one.
pub(super) fn route(run: &dyn TrainingRun, group: &Group) -> Result<(), Failure> {
    if group.rank() != 0 {
        return Ok(());
    }
    match run.route() {
        GradTransport::Host(None) => Ok(()),
        GradTransport::Host(Some(why)) => output::print(&format!("gradients are sent through host memory: {why}\n")),
        GradTransport::Device(by) => output::print(&format!("gradients are sent from device to device by {by}\n")),
    }
}

/// Returns the plan with the faster exchange, measured now and printed, unless the user chose one.
pub(super) fn measured(plan: &Plan, run: &dyn TrainingRun, group: &Group) -> Result<Plan, Failure> {
    let measured = run.measured();
    if let Some(measured) = measured.filter(|_| group.rank() == 0) {
        let ReduceTimings { exact_f16, native_f32, .. } = measured;
        output::print(&format!(
            "gradients of {} ranks: {:.2} ms a step exact, {:.2} ms fast: --exchange {}; exact gives the same bits for any \
             number of ranks\n",
            group.size(),
            1e3 * exact_f16.as_secs_f64(),
            1e3 * native_f32.as_secs_f64(),
            measured.fastest_mode()
        ))?;
    }
    Ok(plan.clone().with_exchange(measured.map(|measured| measured.fastest_mode())))
}
