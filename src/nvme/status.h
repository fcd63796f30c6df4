// The status of a completed command. NVM Express Base 2.0, 3.3.3.2.1 (Status Field); fabrics values from 3.3.3.2.1 as
// well.
#pragma once

#include <cstdint>
#include <string>

namespace dlfs::nvme {

// Status Code Type and Status Code in one number, (SCT << 8) | SC: the bits that say what happened.
enum class StatusCode : std::uint16_t {
  kSuccess = 0x000,
  kInvalidOpcode = 0x001,
  kInvalidField = 0x002,
  kCommandIdConflict = 0x003,
  kDataTransferError = 0x004,
  kInternalError = 0x006,
  kAbortRequested = 0x007,
  kAbortedSqDeletion = 0x008,
  kInvalidNamespace = 0x00B,
  kCommandSequenceError = 0x00C,
  kDataSglLengthInvalid = 0x00F,
  kSglTypeInvalid = 0x011,
  kSglOffsetInvalid = 0x016,
  kNamespaceWriteProtected = 0x020,
  kCommandInterrupted = 0x021,
  kTransientTransportError = 0x022,
  kLbaOutOfRange = 0x080,
  kCapacityExceeded = 0x081,
  kNamespaceNotReady = 0x082,
  kAbortLimitExceeded = 0x103,
  kAsyncEventLimitExceeded = 0x105,
  kInvalidLogPage = 0x109,
  kFeatureNotSaveable = 0x10D,
  kFeatureNotChangeable = 0x10E,
  kConnectIncompatibleFormat = 0x180,
  kConnectControllerBusy = 0x181,
  kConnectInvalidParameters = 0x182,
  kConnectRestartDiscovery = 0x183,
  kConnectInvalidHost = 0x184,
  kInvalidQueueType = 0x185,
  kDiscoverRestart = 0x190,
  kAuthenticationRequired = 0x191,
  kWriteFault = 0x280,
  kUnrecoveredReadError = 0x281,
  kAccessDenied = 0x286,
  kInternalPathError = 0x300,
  kAnaPersistentLoss = 0x301,
  kAnaInaccessible = 0x302,
  kAnaTransition = 0x303,
  kControllerPathingError = 0x360,
  kHostPathingError = 0x370,
  kCommandAbortedByHost = 0x371,
};

struct Status {
  StatusCode code = StatusCode::kSuccess;
  std::uint8_t retry_delay = 0;  // CRD: 0, or which of the controller's three Command Retry Delay Times to wait
  bool more = false;             // M: the error log has more
  bool do_not_retry = false;     // DNR

  constexpr Status() = default;
  constexpr Status(StatusCode c, bool dnr = false) : code(c), do_not_retry(dnr) {}  // NOLINT: a code is a status
  bool ok() const noexcept { return code == StatusCode::kSuccess; }
  bool operator==(const Status&) const = default;
};

// The 16 bits of a completion's last word; bit 0 (Phase Tag) is reserved over fabrics and zero.
std::uint16_t encode(const Status& status) noexcept;
Status decode_status(std::uint16_t wire) noexcept;

// For people: "LBA Out of Range (SCT 0h, SC 80h)"; codes without a name here give the numbers.
std::string describe(const Status& status);

}  // namespace dlfs::nvme
