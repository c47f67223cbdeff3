// Sums of the gradient of a normalisation with one group or channel for each result.

alias Total = vec2<f32>;

/// 1 if a term is eight neighbouring elements of the group.
override EIGHTS: u32;

/// Mean and 1 / σ of the result's group, unless its elements are of several groups.
var<private> own_group: vec2<f32>;

fn identity() -> Total {
    return vec2<f32>();
}

fn combine(a: Total, b: Total) -> Total {
    return a + b;
}

fn start(result: u32) {
    if CHANNELS == 0u || BATCH != 0u {
        own_group = load_group(result);
    }
}

fn load_term(result: u32, l: u32) -> Total {
    if EIGHTS != 0u {
        let i = element_index(result, 8u * l);
        var u = dy_vec8(i / 8u);
        let x = x_vec8(i / 8u);
        if SCALED != 0u {
            let c = i % p.shape.channels;
            u[0] *= vec4<f32>(scale[c], scale[c + 1u], scale[c + 2u], scale[c + 3u]);
            u[1] *= vec4<f32>(scale[c + 4u], scale[c + 5u], scale[c + 6u], scale[c + 7u]);
        }
        let products = array<vec4<f32>, 2>(
            u[0] * ((x[0] - vec4<f32>(own_group.x)) * own_group.y),
            u[1] * ((x[1] - vec4<f32>(own_group.x)) * own_group.y),
        );
        return vec2<f32>(sum_of_vec8(u), sum_of_vec8(products));
    }
    var i = l * p.shape.channels + result;
    var n = own_group;
    if CHANNELS == 0u {
        i = element_index(result, l);
    } else if BATCH == 0u {
        n = group_stats[place_of(i).group].xy;
    }
    var u = dy_at(i);
    if CHANNELS == 0u && SCALED != 0u {
        u *= scale[i % p.shape.channels];
    }
    return vec2<f32>(u, u * ((x_at(i) - n.x) * n.y));
}

fn save_means(result: u32, total: Total) {
    save_group(result, total);
}
