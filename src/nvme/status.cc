#include "nvme/status.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace dlfs::nvme {
namespace {

constexpr std::pair<StatusCode, std::string_view> kNames[] = {
    {StatusCode::kSuccess, "Successful Completion"},
    {StatusCode::kInvalidOpcode, "Invalid Command Opcode"},
    {StatusCode::kInvalidField, "Invalid Field in Command"},
    {StatusCode::kCommandIdConflict, "Command ID Conflict"},
    {StatusCode::kDataTransferError, "Data Transfer Error"},
    {StatusCode::kInternalError, "Internal Error"},
    {StatusCode::kAbortRequested, "Command Abort Requested"},
    {StatusCode::kAbortedSqDeletion, "Command Aborted due to SQ Deletion"},
    {StatusCode::kInvalidNamespace, "Invalid Namespace or Format"},
    {StatusCode::kCommandSequenceError, "Command Sequence Error"},
    {StatusCode::kDataSglLengthInvalid, "Data SGL Length Invalid"},
    {StatusCode::kSglTypeInvalid, "SGL Descriptor Type Invalid"},
    {StatusCode::kSglOffsetInvalid, "SGL Offset Invalid"},
    {StatusCode::kNamespaceWriteProtected, "Namespace is Write Protected"},
    {StatusCode::kCommandInterrupted, "Command Interrupted"},
    {StatusCode::kTransientTransportError, "Transient Transport Error"},
    {StatusCode::kLbaOutOfRange, "LBA Out of Range"},
    {StatusCode::kCapacityExceeded, "Capacity Exceeded"},
    {StatusCode::kNamespaceNotReady, "Namespace Not Ready"},
    {StatusCode::kAbortLimitExceeded, "Abort Command Limit Exceeded"},
    {StatusCode::kAsyncEventLimitExceeded, "Asynchronous Event Request Limit Exceeded"},
    {StatusCode::kInvalidLogPage, "Invalid Log Page"},
    {StatusCode::kFeatureNotSaveable, "Feature Identifier Not Saveable"},
    {StatusCode::kFeatureNotChangeable, "Feature Not Changeable"},
    {StatusCode::kConnectIncompatibleFormat, "Connect Incompatible Format"},
    {StatusCode::kConnectControllerBusy, "Connect Controller Busy"},
    {StatusCode::kConnectInvalidParameters, "Connect Invalid Parameters"},
    {StatusCode::kConnectRestartDiscovery, "Connect Restart Discovery"},
    {StatusCode::kConnectInvalidHost, "Connect Invalid Host"},
    {StatusCode::kInvalidQueueType, "Invalid Queue Type"},
    {StatusCode::kDiscoverRestart, "Discover Restart"},
    {StatusCode::kAuthenticationRequired, "Authentication Required"},
    {StatusCode::kWriteFault, "Write Fault"},
    {StatusCode::kUnrecoveredReadError, "Unrecovered Read Error"},
    {StatusCode::kAccessDenied, "Access Denied"},
    {StatusCode::kInternalPathError, "Internal Path Error"},
    {StatusCode::kAnaPersistentLoss, "Asymmetric Access Persistent Loss"},
    {StatusCode::kAnaInaccessible, "Asymmetric Access Inaccessible"},
    {StatusCode::kAnaTransition, "Asymmetric Access Transition"},
    {StatusCode::kControllerPathingError, "Controller Pathing Error"},
    {StatusCode::kHostPathingError, "Host Pathing Error"},
    {StatusCode::kCommandAbortedByHost, "Command Aborted By Host"},
};

}  // namespace

std::uint16_t encode(const Status& status) noexcept {
  const auto code = static_cast<std::uint16_t>(status.code);  // SCT in bits 10:8, SC in 7:0
  return static_cast<std::uint16_t>((code & 0x7FFu) << 1 | (status.retry_delay & 3u) << 12 |
                                    (status.more ? 1u : 0u) << 14 | (status.do_not_retry ? 1u : 0u) << 15);
}

Status decode_status(std::uint16_t wire) noexcept {
  Status status(static_cast<StatusCode>((wire >> 1) & 0x7FFu), (wire >> 15) != 0);
  status.retry_delay = static_cast<std::uint8_t>((wire >> 12) & 3u);
  status.more = ((wire >> 14) & 1u) != 0;
  return status;
}

std::string describe(const Status& status) {
  const unsigned code = static_cast<unsigned>(status.code);
  for (const auto& [known, name] : kNames) {
    if (known == status.code) return fmt::format("{} (SCT {:X}h, SC {:02X}h)", name, code >> 8, code & 0xFFu);
  }
  return fmt::format("status SCT {:X}h, SC {:02X}h", code >> 8, code & 0xFFu);
}

}  // namespace dlfs::nvme
