// Sums of the gradient of a normalisation over channels that come in eights: each load has a term of eight results.

/// Sums of eight channels. Those of two channels are a vector: of u and u · x̂ of the one, then of the other.
alias Total = array<vec4<f32>, 4>;

/// Means and 1 / σ of the groups of eight channels: their own in batch normalisation, else that of the pixel's image.
var<private> means: array<vec4<f32>, 2>;
var<private> inverses: array<vec4<f32>, 2>;

fn identity() -> Total {
    return Total();
}

fn combine(a: Total, b: Total) -> Total {
    return Total(a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]);
}

fn start(eight: u32) {
    if BATCH != 0u {
        for (var j = 0u; j < 8u; j += 1u) {
            let n = load_group(8u * eight + j);
            means = push_vec8(means, n.x);
            inverses = push_vec8(inverses, n.y);
        }
    }
}

fn load_term(eight: u32, pixel: u32) -> Total {
    let o = pixel * (p.shape.channels / 8u) + eight;
    let u = dy_vec8(o);
    let x = x_vec8(o);
    if BATCH == 0u {
        let n = group_stats[pixel / p.shape.image * p.shape.groups + 8u * eight / group_width()].xy;
        means = array<vec4<f32>, 2>(vec4<f32>(n.x), vec4<f32>(n.x));
        inverses = array<vec4<f32>, 2>(vec4<f32>(n.y), vec4<f32>(n.y));
    }
    let a = u[0] * ((x[0] - means[0]) * inverses[0]);
    let b = u[1] * ((x[1] - means[1]) * inverses[1]);
    return Total(
        vec4<f32>(u[0].x, a.x, u[0].y, a.y),
        vec4<f32>(u[0].z, a.z, u[0].w, a.w),
        vec4<f32>(u[1].x, b.x, u[1].y, b.y),
        vec4<f32>(u[1].z, b.z, u[1].w, b.w),
    );
}

fn save_means(eight: u32, total: Total) {
    var rest = total;
    for (var j = 0u; j < 8u; j += 2u) {
        save_group(8u * eight + j, rest[0].xy);
        save_group(8u * eight + j + 1u, rest[0].zw);
        rest = Total(rest[1], rest[2], rest[3], rest[0]);
    }
}
