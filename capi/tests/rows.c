/* A million random rows of three formats through store, site and loss scale: prints a hash of all bits. tests/rows.rs does the same in Rust. */
#include "gradscale.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 1, hash = 0xCBF29CE484222325u;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void add(uint32_t word) { hash = (hash ^ word) * 0x100000001B3u; }

static void must(gs_status status) {
    if (status != GS_OK) {
        fprintf(stderr, "%s\n", gs_status_string(status));
        exit(1);
    }
}

int main(int argc, char **argv) {
    long count = argc > 1 ? atol(argv[1]) : 1000000;
    gs_loss_scale scale;
    gs_dynamic_config dynamic;
    must(gs_dynamic_config_init(&dynamic));
    dynamic.growth_interval = 20;
    must(gs_loss_scale_init_dynamic(&scale, &dynamic));
    gs_site site;
    static const uint32_t formats[3] = {GS_FP16, GS_E5M2, GS_E4M3};
    for (long i = 0; i < count; i++) {
        const uint32_t format = formats[i / 100 % 3];
        if (i % 100 == 0) {
            gs_site_config config;
            must(gs_site_config_init_format(&config, format));
            must(gs_site_init(&site, format == GS_FP16 ? NULL : &config));
        }
        uint64_t r = next();
        size_t n = 1 + r % 8;
        uint32_t base = 60 + (r >> 8) % 100;
        float v[8];
        for (size_t j = 0; j < n; j++) {
            uint64_t x = next();
            uint32_t bits = (uint32_t)x;
            if ((x >> 32) % 97 != 0) bits = (bits & 0x807FFFFFu) | (base + (uint32_t)((x >> 40) % 24)) << 23;
            memcpy(&v[j], &bits, 4);
        }
        gs_request request;
        gs_row row;
        must(gs_site_request(&site, &request));
        int32_t exponent = request.exponent;
        if (request.decides_in_step) {
            must(gs_row_init(&row, format, GS_FLUSH_NEAREST, 0, GS_DETAIL_HISTOGRAM));
            must(gs_row_observe(&row, v, n));
            must(gs_site_decide(&site, &row, 0, &exponent));
        }
        uint16_t y[8];
        must(gs_row_init(&row, format, GS_FLUSH_NEAREST, exponent, request.detail));
        uint8_t bytes[8];
        if (format == GS_FP16) {
            must(gs_row_store_fp16(&row, v, 0, y, n));
        } else {
            must(gs_row_store8(&row, v, 0, bytes, n));
            for (size_t j = 0; j < n; j++) y[j] = bytes[j];
        }
        gs_counts counts;
        must(gs_row_counts(&row, &counts));
        uint32_t lost = counts.overflowed + counts.infinite + counts.nan != 0;
        must(gs_site_finish(&site, &row, lost ? GS_SITE_SKIPPED : GS_SITE_STEPPED));
        must(gs_loss_scale_update(&scale, lost, counts.amax, exponent));
        add((uint32_t)exponent);
        for (size_t j = 0; j < GS_ROW_WORDS; j++) add(row.words[j]);
        for (size_t j = 0; j < n; j++) add(y[j]);
        int32_t loss;
        must(gs_loss_scale_exponent(&scale, &loss));
        add((uint32_t)loss);
    }
    printf("%ld rows: %016llx\n", count, (unsigned long long)hash);
    return 0;
}
