#include "nvme/property.h"

#include <bit>

#include "base/check.h"

namespace dlfs::nvme {
namespace {

constexpr std::uint64_t bits(std::uint64_t value, unsigned low, unsigned count) {
  return (value >> low) & ((1u << count) - 1);
}

std::uint64_t log2_of(std::uint32_t value) {
  DLFS_CHECK(std::has_single_bit(value));
  return static_cast<std::uint64_t>(std::countr_zero(value));
}

}  // namespace

std::uint64_t encode(const Capabilities& c) noexcept {
  DLFS_CHECK(c.max_queue_entries >= 2 && c.max_queue_entries <= 65'536);
  return (c.max_queue_entries - 1) | std::uint64_t{c.contiguous_queues} << 16 |
         std::uint64_t{(c.ready_timeout_ms / 500) & 0xFFu} << 24 | std::uint64_t{c.command_sets} << 37 |
         (log2_of(c.min_page_bytes) - 12) << 48 | (log2_of(c.max_page_bytes) - 12) << 52;
}

Capabilities decode_capabilities(std::uint64_t wire) noexcept {
  return {.max_queue_entries = static_cast<std::uint32_t>(bits(wire, 0, 16)) + 1,
          .contiguous_queues = bits(wire, 16, 1) != 0,
          .ready_timeout_ms = static_cast<std::uint32_t>(bits(wire, 24, 8)) * 500,
          .command_sets = static_cast<std::uint8_t>(bits(wire, 37, 8)),
          .min_page_bytes = 1u << (12 + bits(wire, 48, 4)),
          .max_page_bytes = 1u << (12 + bits(wire, 52, 4))};
}

std::uint32_t encode(const Configuration& c) noexcept {
  return static_cast<std::uint32_t>(std::uint64_t{c.enable} | (c.command_set & 7u) << 4 |
                                    (log2_of(c.page_bytes) - 12) << 7 |
                                    std::uint64_t{static_cast<std::uint8_t>(c.shutdown)} << 14 |
                                    log2_of(c.sqe_bytes) << 16 | log2_of(c.cqe_bytes) << 20);
}

Configuration decode_configuration(std::uint32_t wire) noexcept {
  return {.enable = bits(wire, 0, 1) != 0,
          .command_set = static_cast<std::uint8_t>(bits(wire, 4, 3)),
          .page_bytes = 1u << (12 + bits(wire, 7, 4)),
          .shutdown = static_cast<Shutdown>(bits(wire, 14, 2)),
          .sqe_bytes = 1u << bits(wire, 16, 4),
          .cqe_bytes = 1u << bits(wire, 20, 4)};
}

std::uint32_t encode(const ControllerStatus& s) noexcept {
  return (s.ready ? 1u : 0u) | (s.fatal ? 2u : 0u) | static_cast<std::uint32_t>(s.shutdown) << 2;
}

ControllerStatus decode_controller_status(std::uint32_t wire) noexcept {
  return {bits(wire, 0, 1) != 0, bits(wire, 1, 1) != 0, static_cast<ShutdownState>(bits(wire, 2, 2))};
}

}  // namespace dlfs::nvme
