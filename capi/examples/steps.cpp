// Steps in C++. A gradient that jumps by 2^30 is repeated without loss. An exception in the middle of a step leaves the
// sites unchanged. An error is an exception with a sentence.
#include "gradscale.hpp"

#include <cstdio>
#include <cstring>

static std::int32_t train(std::vector<gradscale::site> &sites, float magnitude, bool fails) {
    gradscale::step step(sites);
    const float gradient[3] = {magnitude, -magnitude / 3, magnitude / 1000};
    for (;;) {
        std::uint16_t first[3], second[3];
        float back[3], unscaled[3];
        const std::int32_t at = step.store(gradient, 0, first, 3);
        if (fails) throw std::runtime_error("the machine is gone");
        gradscale::check(gs_decode16(GS_FP16, first, back, 3));
        const std::int32_t end = step.store(back, at, second, 3);
        gradscale::check(gs_decode16(GS_FP16, second, back, 3));
        gradscale::check(gs_rescale(back, unscaled, 3, end, 0));
        bool found_inf = false;
        for (float value : unscaled) found_inf |= !std::isfinite(value);
        const gs_outcome outcome = step.end(found_inf, true);
        if (outcome.next == GS_NEXT_REPEAT) {
            std::printf("repeated: site %d overflowed\n", static_cast<int>(outcome.site));
            continue;
        }
        for (int i = 0; i < 3; i++)
            if (std::fabs(unscaled[i] - gradient[i]) > std::fabs(gradient[i]) / 512) throw std::logic_error("lost");
        return end;
    }
}

int main() {
    gradscale::check_abi_version();
    std::vector<gradscale::site> sites(2);
    for (int i = 0; i < 5; i++) std::printf("scale 2^%d\n", train(sites, 1e-9f, false));
    const std::int32_t before = sites[0].request().exponent;
    try {
        train(sites, 1e-9f, true);
        return 1;
    } catch (const std::runtime_error &error) {
        std::printf("%s; the sites are at 2^%d as before\n", error.what(), sites[0].request().exponent);
    }
    if (sites[0].request().exponent != before) return 1;
    train(sites, 1.0f, false);
    try {
        std::vector<gradscale::site> none;
        gradscale::step step(none);
        step.end(false, true);
        step.end(false, true);
        return 1;
    } catch (const std::logic_error &error) {
        std::printf("%s\n", error.what());
    }
    try {
        gradscale::loss_scale wrong(1000.0);
        return 1;
    } catch (const gradscale::error &error) {
        if (error.status() != GS_ERROR_SCALE) return 1;
        std::printf("%s\n", error.what());
    }
    gradscale::loss_scale scale;
    scale.update(true);
    return scale.exponent() == 15 ? 0 : 1;
}
