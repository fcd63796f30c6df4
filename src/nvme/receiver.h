// The one parser of incoming PDUs, of both sides. It takes any range of bytes, cut anywhere.
#pragma once

#include <expected>
#include <memory>
#include <optional>

#include "nvme/pdu.h"

namespace dlfs::nvme {

// Where the next incoming bytes belong: first fill `direct`, then `stage`. Either may be empty; both are after the end.
// **Lifetime**: until the session's next call that is not want().
struct Want {
  Bytes direct, stage;
  std::size_t size() const noexcept { return direct.size() + stage.size(); }
};

// What a session does with a PDU.
class PduHandler {
 public:
  // A whole header (with a right digest) of `shape`. Answers where the data belong: shape.data_bytes long, or empty to
  // drop them. Without data the PDU is whole and this is the only call.
  virtual std::expected<Bytes, Fault> on_header(const PduShape& shape, const std::byte* header) = 0;
  // All data of the PDU are in place; `intact` says that their digest, if any, is right.
  virtual void on_data(bool intact) = 0;

 protected:
  ~PduHandler() = default;
};

class PduReceiver {
 public:
  static constexpr std::size_t kMinStageBytes = 1024;

  PduReceiver(Receiver side, std::size_t stage_bytes);
  void set_framing(const Framing& framing) noexcept { framing_ = framing; }
  void stop() noexcept { stopped_ = true; }  // want() is empty from now on, and what is staged is dropped

  // `burst`: many small PDUs are expected, and the whole stage is offered. Otherwise the stage ends where the data of
  // the next data PDU begin, so that they go straight to their place.
  Want want(bool burst) noexcept;

  // `bytes` more arrived where the last want() said. Stops at the first fault.
  std::optional<Fault> received(std::size_t bytes, PduHandler& handler);

  // The header at fault, as much of it as there is: for a TermReq.
  ConstBytes header() const noexcept;
  // Whether a PDU has begun and is not whole.
  bool inside_pdu() const noexcept { return phase_ != Phase::kHeader || begin_ != end_; }

 private:
  enum class Phase : std::uint8_t { kHeader, kData, kDigest };
  enum class Step : std::uint8_t { kGoOn, kNeedMore };

  std::size_t staged() const noexcept { return end_ - begin_; }
  std::expected<Step, Fault> parse_header(PduHandler& handler);
  Step parse_data(PduHandler& handler);
  Step parse_digest(PduHandler& handler);
  void took(std::size_t bytes, const std::byte* at) noexcept;
  Step finish_data(PduHandler& handler);
  std::size_t burst_end(bool burst) const noexcept;

  Receiver side_;
  Framing framing_{};
  std::unique_ptr<std::byte[]> stage_;
  std::size_t stage_bytes_, begin_ = 0, end_ = 0;
  Phase phase_ = Phase::kHeader;
  bool shape_known_ = false, stopped_ = false;
  PduShape shape_{};
  std::byte* into_ = nullptr;  // where the rest of the data belongs; null: dropped
  std::size_t data_left_bytes_ = 0;
  std::uint32_t crc_ = 0;
};

}  // namespace dlfs::nvme
