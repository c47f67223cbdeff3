// Statistics of a normalisation with one group for each result.

alias Total = f32;

/// 1 if a term is eight neighbouring elements of the group.
override EIGHTS: u32;

fn identity() -> Total {
    return 0.0;
}

fn combine(a: Total, b: Total) -> Total {
    return a + b;
}

fn load_term(group: u32, m: u32) -> Total {
    if EIGHTS != 0u {
        var v = x_vec8(element_index(group, 8u * m) / 8u);
        if squares_distances {
            v[0] -= vec4<f32>(center);
            v[1] -= vec4<f32>(center);
            v[0] *= v[0];
            v[1] *= v[1];
        }
        return sum_of_vec8(v);
    }
    let v = x_at(element_index(group, m));
    if squares_distances {
        return (v - center) * (v - center);
    }
    return v;
}

fn over_size(total: Total) -> Total {
    return divide(total, f32(p.shape.size));
}

fn load_means(group: u32) -> Total {
    return saved[group];
}

fn save(group: u32, mean: Total, variance: Total) {
    save_group(group, mean, variance);
}
