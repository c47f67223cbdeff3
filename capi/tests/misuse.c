/* Tests that invalid input causes an error and nothing else: NULL pointers, invalid numbers, modified structures. Prints its
   counts; exits with 1 at the first unexpected result. */
#include "gradscale.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 7;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static int checks;
#define IS(call, want)                                                                                            \
    do {                                                                                                          \
        gs_status got = (call);                                                                                   \
        checks++;                                                                                                 \
        if (got != (want)) {                                                                                      \
            fprintf(stderr, "line %d: %s: %s, not %s\n", __LINE__, #call, gs_status_string(got), gs_status_string(want)); \
            exit(1);                                                                                              \
        }                                                                                                         \
    } while (0)

static int64_t checksum(const int64_t *words, size_t count) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ (uint64_t)(i + 1 < count ? words[i] : 0)) * 0x100000001B3u;
        hash = hash << 17 | hash >> 47;
    }
    return (int64_t)hash;
}

/* Calls every function that takes a site and a row; any status is accepted. */
static void all(gs_site *site, gs_row *row, gs_loss_scale *scale) {
    gs_request request;
    gs_decision decision;
    gs_outcome outcome;
    gs_counts counts;
    int32_t exponent;
    double share;
    float v[3] = {1e-3f, INFINITY, NAN};
    uint16_t y[3];
    gs_site copy = *site;
    gs_site_request(site, &request);
    gs_site_decide(site, row, 0, &exponent);
    gs_site_decision(site, &decision);
    for (uint32_t end = 0; end < 5; end++) gs_site_finish(site, row, end);
    gs_step_end(site, row, 1, 1, 1, 0, &outcome);
    gs_step_end(&copy, row, 1, 1, 0, UINT32_MAX, &outcome);
    gs_row_counts(row, &counts);
    gs_row_flushed_at(row, INT32_MIN, &share);
    gs_row_lost_at(row, INT32_MAX, &share);
    gs_row_merge(row, row);
    gs_row_store_fp16(row, v, INT32_MIN, y, 3);
    gs_row_store8(row, v, INT32_MIN, (uint8_t *)y, 3);
    gs_row_observe(row, v, 2);
    gs_loss_scale_update(scale, 0, v[next() % 3], INT32_MAX);
    gs_loss_scale_update(scale, 1, v[next() % 3], INT32_MIN);
    gs_loss_scale_exponent(scale, &exponent);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 20000;
    gs_site site, before;
    gs_row row, other;
    gs_request request;
    gs_counts counts;
    gs_outcome outcome;
    int32_t exponent;
    double share;
    float x[4] = {1, 1e-9f, 1e6f, NAN}, z[4];
    uint16_t y[4];
    uint8_t b[4];
    gs_cast_counts tally;

    /* NULL pointers and misaligned pointers. */
    IS(gs_site_init(NULL, NULL), GS_ERROR_POINTER);
    IS(gs_row_init(NULL, GS_FP16, GS_FLUSH_NEAREST, 0, GS_DETAIL_HISTOGRAM), GS_ERROR_POINTER);
    IS(gs_row_init((gs_row *)((char *)&row + 1), GS_FP16, GS_FLUSH_NEAREST, 0, GS_DETAIL_HISTOGRAM), GS_ERROR_POINTER);
    memset(&site, 0, sizeof site);
    memset(&row, 0, sizeof row);
    IS(gs_site_request(&site, &request), GS_ERROR_VERSION);
    IS(gs_row_counts(&row, &counts), GS_ERROR_VERSION);
    IS(gs_row_init(&row, GS_BF16, GS_FLUSH_NEAREST, 0, GS_DETAIL_HISTOGRAM), GS_ERROR_FORMAT);
    IS(gs_row_init(&row, 99, GS_FLUSH_NEAREST, 0, GS_DETAIL_HISTOGRAM), GS_ERROR_ENUM);
    IS(gs_row_init(&row, GS_FP16, 99, 0, GS_DETAIL_HISTOGRAM), GS_ERROR_ENUM);
    IS(gs_row_init(&row, GS_FP16, GS_FLUSH_NEAREST, 0, 99), GS_ERROR_ENUM);
    IS(gs_row_init(&row, GS_FP16, GS_FLUSH_NEAREST, 0, GS_DETAIL_COUNTS), GS_OK);
    IS(gs_row_observe(&row, NULL, 0), GS_OK);
    IS(gs_row_observe(&row, NULL, 1), GS_ERROR_POINTER);
    IS(gs_row_observe(&row, x, SIZE_MAX), GS_ERROR_LENGTH);
    IS(gs_row_observe(&row, x, SIZE_MAX / 4), GS_ERROR_LENGTH);
    IS(gs_row_flushed_at(&row, 0, &share), GS_ERROR_DETAIL);
    IS(gs_row_init(&other, GS_FP16, GS_FLUSH_NEAREST, 1, GS_DETAIL_COUNTS), GS_OK);
    IS(gs_row_merge(&row, &other), GS_ERROR_MERGE);
    IS(gs_row_counts(&row, NULL), GS_ERROR_POINTER);

    /* Casts. */
    IS(gs_encode16(GS_FP16, x, y, 4, GS_ROUND_NEAREST_EVEN, NULL, &tally), GS_OK);
    if (y[0] != 0x3C00 || tally.overflow != 1 || tally.underflow != 1) return 1;
    IS(gs_encode16(GS_FP16, x, y, 4, GS_ROUND_NEAREST_EVEN, NULL, NULL), GS_OK);
    IS(gs_encode16(GS_FP16, x, y, 4, GS_ROUND_STOCHASTIC, NULL, NULL), GS_ERROR_RANDOM);
    IS(gs_encode16(GS_E4M3, x, y, 4, GS_ROUND_NEAREST_EVEN, NULL, NULL), GS_ERROR_FORMAT);
    IS(gs_encode16(GS_FP16, x, y, 4, 3, NULL, NULL), GS_ERROR_ENUM);
    IS(gs_encode16(GS_FP16, x, (uint16_t *)x, 4, GS_ROUND_NEAREST_EVEN, NULL, NULL), GS_ERROR_OVERLAP);
    IS(gs_encode8(GS_E4M3, x, b, 4, GS_ROUND_TOWARD_ZERO, NULL, NULL), GS_OK);
    IS(gs_encode8(GS_BF16, x, b, 4, GS_ROUND_NEAREST_EVEN, NULL, NULL), GS_ERROR_FORMAT);
    IS(gs_decode16(GS_FP16, y, z, 4), GS_OK);
    if (z[0] != 1 || !isinf(z[2]) || !isnan(z[3])) return 1;
    IS(gs_decode8(GS_E4M3, b, z, 4), GS_OK);
    if (z[2] != 448) return 1;
    IS(gs_rescale(x, z, 4, 0, 10), GS_OK);
    IS(gs_rescale(z, z, 4, 10, 0), GS_OK);
    if (z[0] != 1) return 1;
    IS(gs_rescale(z, z + 1, 3, 0, 1), GS_ERROR_OVERLAP);

    /* Settings. */
    gs_site_config config;
    IS(gs_site_config_init(&config), GS_OK);
#define WITH(field, value, want)                 \
    do {                                         \
        gs_site_config wrong = config;           \
        wrong.field = value;                     \
        IS(gs_site_init(&site, &wrong), want);   \
    } while (0)
    WITH(size, 12, GS_ERROR_VERSION);
    WITH(interval, 0, GS_ERROR_INTERVAL);
    WITH(calls, 2, GS_ERROR_ENUM);
    WITH(history, 3, GS_ERROR_ENUM);
    WITH(gamma, NAN, GS_ERROR_GAMMA);
    WITH(window, 31, GS_ERROR_WINDOW);
    WITH(headroom, 1, GS_ERROR_HEADROOM);
    WITH(outliers, 7, GS_ERROR_OUTLIERS);
    WITH(format, 6, GS_ERROR_ENUM);
    WITH(format, GS_BF16, GS_ERROR_FORMAT);
    WITH(format, GS_E4M3_SATURATING, GS_ERROR_FORMAT);
    IS(gs_site_config_init_format(&config, 6), GS_ERROR_ENUM);
    IS(gs_site_config_init_format(NULL, GS_E5M2), GS_ERROR_POINTER);

    /* A row of another format than its site, and stores in formats of another width. */
    gs_site site8;
    gs_row row8;
    IS(gs_site_config_init_format(&config, GS_E5M2), GS_OK);
    IS(gs_site_init(&site8, &config), GS_OK);
    IS(gs_site_decide(&site8, &row, 0, &exponent), GS_ERROR_FORMAT);
    IS(gs_site_finish(&site8, &row, GS_SITE_STEPPED), GS_ERROR_FORMAT);
    IS(gs_step_end(&site8, &row, 1, 0, 1, 0, &outcome), GS_ERROR_FORMAT);
    IS(gs_row_init(&row8, GS_E5M2_SATURATING, GS_FLUSH_NEAREST, 0, GS_DETAIL_HISTOGRAM), GS_OK);
    IS(gs_row_store_fp16(&row8, x, 0, y, 4), GS_ERROR_FORMAT);
    IS(gs_row_store8(&row, x, 0, b, 4), GS_ERROR_FORMAT);
    IS(gs_row_store8(&row8, x, 0, NULL, 4), GS_ERROR_POINTER);
    /* 1, a value that flushes, one that saturates and counts as an overflow, NaN. */
    IS(gs_row_store8(&row8, x, 0, b, 4), GS_OK);
    IS(gs_row_counts(&row8, &counts), GS_OK);
    if (b[0] != 0x3C || b[1] != 0 || b[2] != 0x7B || (b[3] & 0x7F) <= 0x7C) return 1;
    if (counts.flushed != 1 || counts.overflowed != 1 || counts.nan != 1) return 1;
    IS(gs_site_finish(&site8, &row8, GS_SITE_SKIPPED), GS_OK);
    IS(gs_site_config_init(&config), GS_OK);
    IS(gs_site_init(&site, &config), GS_OK);
    IS(gs_site_decide(&site, &row, 0, &exponent), GS_OK); /* zeros only: no decision */
    IS(gs_site_finish(&site, &row, 4), GS_ERROR_ENUM);
    gs_loss_scale scale, saved;
    gs_dynamic_config dynamic;
    IS(gs_loss_scale_init_fixed(&scale, 1000), GS_ERROR_SCALE);
    IS(gs_dynamic_config_init(&dynamic), GS_OK);
    dynamic.floor_count = 9;
    IS(gs_loss_scale_init_dynamic(&scale, &dynamic), GS_ERROR_FLOOR);
    dynamic.floor_count = 0, dynamic.max_exponent = 127;
    IS(gs_loss_scale_init_dynamic(&scale, &dynamic), GS_ERROR_BOUNDS);
    IS(gs_loss_scale_init_delayed(&scale, 17, 0, -24, 30), GS_ERROR_HISTORY);
    IS(gs_loss_scale_init_log_max(&scale, 1, 0.5, 3, 16, -24, 30), GS_ERROR_DECAY);
    IS(gs_loss_scale_init_chainer(&scale, 0, -24, 30), GS_ERROR_INTERVAL);
    IS(gs_propose_fixed(0, 0, &exponent), GS_ERROR_SCALE);
    IS(gs_loss_scale_init_dynamic(&saved, NULL), GS_OK);
    if (strcmp(gs_status_string(-5), "not a status") != 0) return 1;

    /* If one of several is invalid, none of them changes. */
    gs_site two[2] = {site, site};
    gs_row rows[2] = {row, row};
    rows[1].words[0] = 5;
    before = two[0];
    IS(gs_step_end(two, rows, 2, 0, 0, 0, &outcome), GS_ERROR_ROW);
    rows[1] = row;
    IS(gs_step_end(two, rows, 2, 0, 0, 0, NULL), GS_ERROR_POINTER);
    if (memcmp(&before, &two[0], sizeof before) != 0) return 1;
    IS(gs_step_end(two, rows, 2, 0, 0, 0, &outcome), GS_OK);

    /* Flips every bit of a site and of a loss scale. */
    before = site;
    for (size_t bit = 0; bit < sizeof site * 8; bit++) {
        site = before;
        ((uint8_t *)&site)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        IS(gs_site_request(&site, &request), bit < 64 ? GS_ERROR_VERSION : GS_ERROR_CORRUPTED);
    }
    for (size_t bit = 0; bit < sizeof scale * 8; bit++) {
        scale = saved;
        ((uint8_t *)&scale)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        IS(gs_loss_scale_exponent(&scale, &exponent), bit < 64 ? GS_ERROR_VERSION : GS_ERROR_CORRUPTED);
    }

    /* Random words with a correct checksum. */
    int accepted = 0, rows_accepted = 0;
    for (int round = 0; round < rounds; round++) {
        site = before, scale = saved;
        IS(gs_row_init(&row, GS_FP16, GS_FLUSH_NEAREST, (int32_t)next(), GS_DETAIL_HISTOGRAM), GS_OK);
        for (int i = 0; i < 6; i++) x[i % 4] = (float)(int64_t)next() * 1e-18f;
        if (next() % 2) IS(gs_row_observe(&row, x, 4), GS_OK);
        for (uint64_t changes = next() % 3; changes > 0; changes--) {
            int64_t word = next() % 2 ? (int64_t)next() : (int64_t)(next() % 40) - 4;
            site.words[1 + next() % (GS_SITE_WORDS - 2)] = word;
            scale.words[1 + next() % (GS_LOSS_SCALE_WORDS - 2)] = word;
            row.words[next() % GS_ROW_WORDS] = (uint32_t)word;
        }
        site.words[GS_SITE_WORDS - 1] = checksum(site.words, GS_SITE_WORDS);
        scale.words[GS_LOSS_SCALE_WORDS - 1] = checksum(scale.words, GS_LOSS_SCALE_WORDS);
        accepted += gs_site_request(&site, &request) == GS_OK;
        rows_accepted += gs_row_counts(&row, &counts) == GS_OK;
        all(&site, &row, &scale);
    }
    if (accepted == 0 || accepted == rounds || rows_accepted == 0 || rows_accepted == rounds) return 1;
    printf("%d checks; of %d structures written to, %d sites and %d rows were ones\n", checks, rounds, accepted, rows_accepted);
    return 0;
}
