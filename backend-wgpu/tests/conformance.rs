//! The conformance suite on the first adapter, kernels with run-time checks.

fn main() {
    gradscale_conformance::main(
        "wgpu",
        &[
            "memory",
            "table",
            "store",
            "cast",
            "unary",
            "copy",
            "gemm",
            "conv",
            "pool",
            "unpool",
            "binary",
            "sum",
            "reduce",
            "rows",
            "global_norm",
            "optimize",
            "norm",
            "norm_vjp",
            "xent",
            "xent_vjp",
        ],
        || {
            let open = |adapter: &gradscale_wgpu::Adapter| gradscale_wgpu::Wgpu::open(adapter, true);
            gradscale_wgpu::Adapter::get(0).and_then(|adapter| open(&adapter)).map_err(|error| error.to_string())
        },
    )
}
