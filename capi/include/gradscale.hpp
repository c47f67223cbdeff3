// gradscale for C++ (17 and newer): gradscale.h with exceptions, values and a guard for steps. Header only.
#ifndef GRADSCALE_HPP
#define GRADSCALE_HPP

#if __cplusplus < 201703L && !(defined(_MSVC_LANG) && _MSVC_LANG >= 201703L)
#error "gradscale.hpp needs C++17: -std=c++17"
#endif

#include "gradscale.h"

#include <cmath>
#include <optional>
#include <stdexcept>
#include <vector>

namespace gradscale {

/// Exception with a status other than GS_OK and its sentence.
class error : public std::runtime_error {
public:
    explicit error(gs_status status) : std::runtime_error(gs_status_string(status)), status_(status) {}
    gs_status status() const noexcept { return status_; }

private:
    gs_status status_;
};

/// Throws a status other than GS_OK.
inline void check(gs_status status) {
    if (status != GS_OK) throw error(status);
}

/// Checks that the library has the version of the header. Call it once if the library is a shared one.
inline void check_abi_version() {
    if (gs_abi_version() != GS_ABI_VERSION) throw error(GS_ERROR_VERSION);
}

/// Statistics row. It is a value: a copy is a separate row.
class row {
public:
    explicit row(std::int32_t exponent = 0, std::uint32_t detail = GS_DETAIL_HISTOGRAM, std::uint32_t format = GS_FP16,
                 std::uint32_t flush = GS_FLUSH_NEAREST) {
        check(gs_row_init(&row_, format, flush, exponent, detail));
    }
    void observe(const float *u, std::size_t count) { check(gs_row_observe(&row_, u, count)); }
    void merge(const row &other) { check(gs_row_merge(&row_, &other.row_)); }
    void store(const float *v, std::int32_t from_exponent, std::uint16_t *y, std::size_t count) {
        check(gs_row_store_fp16(&row_, v, from_exponent, y, count));
    }
    /// Stores bit patterns of the row's format, which is one of eight bits.
    void store(const float *v, std::int32_t from_exponent, std::uint8_t *y, std::size_t count) {
        check(gs_row_store8(&row_, v, from_exponent, y, count));
    }
    gs_counts counts() const {
        gs_counts counts;
        check(gs_row_counts(&row_, &counts));
        return counts;
    }
    double flushed_at(std::int32_t exponent_delta) const {
        double share;
        check(gs_row_flushed_at(&row_, exponent_delta, &share));
        return share;
    }
    std::int32_t exponent() const noexcept { return row_.exponent; }
    const gs_row &get() const noexcept { return row_; }

private:
    gs_row row_;
};

/// Site: the exponent of one gradient. It is a value: a copy is a checkpoint.
class site {
public:
    site() { check(gs_site_init(&site_, nullptr)); }
    explicit site(const gs_site_config &config) { check(gs_site_init(&site_, &config)); }
    /// Returns the default settings for a format of stores, of which single ones can be changed.
    static gs_site_config default_config(std::uint32_t format = GS_FP16) {
        gs_site_config config;
        check(gs_site_config_init_format(&config, format));
        return config;
    }
    /// Returns the format of the site's stores, a gs_format.
    std::uint32_t format() const {
        std::uint32_t format;
        check(gs_site_format(&site_, &format));
        return format;
    }
    gs_request request() const {
        gs_request request;
        check(gs_site_request(&site_, &request));
        return request;
    }
    std::int32_t decide(const row &seen, std::int32_t incoming) {
        std::int32_t exponent;
        check(gs_site_decide(&site_, &seen.get(), incoming, &exponent));
        return exponent;
    }
    /// Returns the last decision, if there was one.
    std::optional<gs_decision> decision() const {
        gs_decision decision;
        const gs_status status = gs_site_decision(&site_, &decision);
        if (status == GS_ERROR_NO_DECISION) return std::nullopt;
        check(status);
        return decision;
    }
    void finish(const row &seen, gs_site_outcome outcome) { check(gs_site_finish(&site_, &seen.get(), outcome)); }

private:
    friend class step;
    gs_site site_;
};

/// Loss scale. It is a value: a copy is a checkpoint.
class loss_scale {
public:
    /// Creates a dynamic scale with the default settings.
    loss_scale() { check(gs_loss_scale_init_dynamic(&scale_, nullptr)); }
    explicit loss_scale(const gs_dynamic_config &config) { check(gs_loss_scale_init_dynamic(&scale_, &config)); }
    /// Creates a constant scale.
    explicit loss_scale(double scale) { check(gs_loss_scale_init_fixed(&scale_, scale)); }
    std::int32_t exponent() const {
        std::int32_t exponent;
        check(gs_loss_scale_exponent(&scale_, &exponent));
        return exponent;
    }
    void update(bool found_inf, float amax = NAN, std::int32_t amax_exponent = 0) {
        check(gs_loss_scale_update(&scale_, found_inf, amax, amax_exponent));
    }

private:
    gs_loss_scale scale_;
};

/// One step of all sites, in the order of the backward pass. If it is not ended, for example because of an exception,
/// every site keeps its state.
class step {
public:
    explicit step(std::vector<site> &sites) : sites_(sites), before_(sites) {}
    step(const step &) = delete;
    step &operator=(const step &) = delete;
    ~step() {
        if (!ended_) sites_.swap(before_);
    }

    /// Stores a gradient at the next site: `count` values at `from_exponent` become halves in `y`. Returns their exponent.
    std::int32_t store(const float *v, std::int32_t from_exponent, std::uint16_t *y, std::size_t count) {
        return store_as(v, from_exponent, y, count);
    }
    /// Stores a gradient at the next site, whose format is one of eight bits: `y` receives its bit patterns.
    std::int32_t store(const float *v, std::int32_t from_exponent, std::uint8_t *y, std::size_t count) {
        return store_as(v, from_exponent, y, count);
    }

    /// Ends the step, or this attempt at it. After GS_NEXT_REPEAT, store the same batch again.
    gs_outcome end(bool found_inf, bool repeatable) {
        if (ended_ || rows_.size() != sites_.size()) {
            throw std::logic_error("a step can store at each site only once, and end only once");
        }
        std::vector<gs_site> plain;
        for (const site &one : sites_) plain.push_back(one.site_);
        gs_outcome outcome;
        check(gs_step_end(plain.data(), rows_.data(), rows_.size(), found_inf, repeatable, failed_attempts_++, &outcome));
        for (std::size_t i = 0; i < plain.size(); i++) sites_[i].site_ = plain[i];
        rows_.clear();
        ended_ = outcome.next != GS_NEXT_REPEAT;
        return outcome;
    }

private:
    template <class Pattern>
    std::int32_t store_as(const float *v, std::int32_t from_exponent, Pattern *y, std::size_t count) {
        if (ended_ || rows_.size() == sites_.size()) throw std::logic_error("a step can store at each site only once");
        site &at = sites_[rows_.size()];
        const gs_request request = at.request();
        std::int32_t exponent = request.exponent;
        if (request.decides_in_step) {
            row look(from_exponent, request.detail, at.format());
            look.observe(v, count);
            exponent = at.decide(look, from_exponent);
        }
        row stored(exponent, request.detail, at.format());
        stored.store(v, from_exponent, y, count);
        rows_.push_back(stored.get());
        return exponent;
    }

    std::vector<site> &sites_;
    std::vector<site> before_;
    std::vector<gs_row> rows_;
    std::uint32_t failed_attempts_ = 0;
    bool ended_ = false;
};

} // namespace gradscale

#endif // GRADSCALE_HPP
