//! `gradscale plan`: the precision of each operator, without training.

use crate::{
    Failure, output,
    setup::{Amp, Chosen},
};
use clap::Args;
use gradscale::{
    Method,
    gradscale_core::{amp::List, ops::Op},
};

/// `gradscale plan`.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Level and layers.
    #[command(flatten)]
    pub amp: Amp,
    /// Changes to the operator lists, for example relu=deny or batch_norm=allow.
    #[arg(long, value_name = "OP=LIST", value_delimiter = ',')]
    pub set: Vec<String>,
    /// Network.
    #[command(flatten)]
    pub chosen: Chosen,
}

/// Prints the mixed-precision plan of a network: the precision of each operator.
///
/// # Errors
/// Unknown operators and lists.
pub fn run(arguments: &Plan) -> Result<(), Failure> {
    let Plan { amp, set, chosen } = arguments;
    let network = chosen.network()?;
    amp.check(network, [])?;
    let Method { amp: mut policy, layers, .. } = amp.apply_to(Method::mixed());
    for change in set {
        let place = format!("--set {change}");
        let (op, list) =
            change.split_once('=').ok_or_else(|| Failure::at(&place, "is not OP=LIST, as in relu=deny"))?;
        let op: Op = op.trim().parse().map_err(|error| Failure::at(&place, error))?;
        let lists = [List::Allow, List::Deny, List::Inside, List::Infer];
        let list = lists.into_iter().find(|known| known.to_string() == list.trim());
        let list = list.ok_or_else(|| Failure::at(&place, "the lists are allow, deny, inside and infer"))?;
        policy.set(op, list).map_err(|error| Failure::at(&place, error))?;
    }
    let method = Method::mixed().with_amp(policy).with_layers(layers);
    let plan = chosen.task().kind().layers(network, method)?;
    output::print(&plan.iter().map(|row| format!("{row}\n")).collect::<String>())
}
