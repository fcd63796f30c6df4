// Controller properties, read and written by Property Get and Set. NVM Express Base 2.0, 3.1.3.
#pragma once

#include <cstdint>

namespace dlfs::nvme {

inline constexpr std::uint32_t kCapOffset = 0x00, kVersionOffset = 0x08, kConfigurationOffset = 0x14,
                               kControllerStatusOffset = 0x1C;
inline constexpr std::uint32_t kVersion20 = 0x0002'0000,
                               kVersion14 = 0x0001'0400;  // VS, 3.1.3.2: major, minor, tertiary

struct Capabilities {                                          // CAP, 3.1.3.1, 8 bytes
  std::uint32_t max_queue_entries = 2;                         // MQES + 1: 2 to 65536
  bool contiguous_queues = true;                               // CQR
  std::uint32_t ready_timeout_ms = 500;                        // TO, in steps of 500 ms
  std::uint8_t command_sets = 0x01;                            // CSS bit 0: the NVM command set
  std::uint32_t min_page_bytes = 4096, max_page_bytes = 4096;  // MPSMIN, MPSMAX
  bool operator==(const Capabilities&) const = default;
};
std::uint64_t encode(const Capabilities& capabilities) noexcept;
Capabilities decode_capabilities(std::uint64_t wire) noexcept;

enum class Shutdown : std::uint8_t { kNone = 0, kNormal = 1, kAbrupt = 2 };  // CC.SHN
struct Configuration {                                                       // CC, 3.1.3.5, 4 bytes
  bool enable = false;
  std::uint8_t command_set = 0;     // CSS
  std::uint32_t page_bytes = 4096;  // MPS
  Shutdown shutdown = Shutdown::kNone;
  std::uint32_t sqe_bytes = 64, cqe_bytes = 16;  // IOSQES, IOCQES; 1 when the field is zero (not set yet)
  bool operator==(const Configuration&) const = default;
};
std::uint32_t encode(const Configuration& configuration) noexcept;
Configuration decode_configuration(std::uint32_t wire) noexcept;

enum class ShutdownState : std::uint8_t { kNormal = 0, kOccurring = 1, kComplete = 2 };  // CSTS.SHST
struct ControllerStatus {                                                                // CSTS, 3.1.3.6, 4 bytes
  bool ready = false, fatal = false;
  ShutdownState shutdown = ShutdownState::kNormal;
  bool operator==(const ControllerStatus&) const = default;
};
std::uint32_t encode(const ControllerStatus& status) noexcept;
ControllerStatus decode_controller_status(std::uint32_t wire) noexcept;

}  // namespace dlfs::nvme
