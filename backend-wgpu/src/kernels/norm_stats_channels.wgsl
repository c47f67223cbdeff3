// Statistics of a batch normalisation whose channels come in eights: each load has a term of eight groups.

alias Total = array<vec4<f32>, 2>;

fn identity() -> Total {
    return Total();
}

fn combine(a: Total, b: Total) -> Total {
    return Total(a[0] + b[0], a[1] + b[1]);
}

fn load_term(eight: u32, pixel: u32) -> Total {
    var v = x_vec8(pixel * (p.shape.channels / 8u) + eight);
    if squares_distances {
        v[0] -= center[0];
        v[1] -= center[1];
        v[0] *= v[0];
        v[1] *= v[1];
    }
    return v;
}

fn over_size(total: Total) -> Total {
    var quotients = total;
    for (var j = 0u; j < 8u; j += 1u) {
        quotients = push_vec8(quotients, divide(quotients[0].x, f32(p.shape.size)));
    }
    return quotients;
}

fn load_means(eight: u32) -> Total {
    let c = 8u * eight;
    return Total(
        vec4<f32>(saved[c], saved[c + 1u], saved[c + 2u], saved[c + 3u]),
        vec4<f32>(saved[c + 4u], saved[c + 5u], saved[c + 6u], saved[c + 7u]),
    );
}

fn save(eight: u32, means: Total, variances: Total) {
    var mean = means;
    var variance = variances;
    for (var j = 0u; j < 8u; j += 1u) {
        save_group(8u * eight + j, mean[0].x, variance[0].x);
        mean = push_vec8(mean, 0.0);
        variance = push_vec8(variance, 0.0);
    }
}
