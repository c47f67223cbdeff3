//! The suite on the reference backend.

fn main() {
    let required = [gradscale_conformance::OPERATORS, gradscale_conformance::ATTENTION].concat();
    gradscale_conformance::main("reference", &required, || Ok(gradscale_conformance::Reference::default()))
}
