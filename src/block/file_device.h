// FileDevice: a regular file or block device as a BlockDevice, over an Engine. Internal: users call open_device().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fork_guard.h"
#include "block/engine.h"
#include "block/open_file.h"

namespace dlfs::block {

enum class EngineChoice : std::uint8_t { kBest, kUring, kThreads };  // kBest: io_uring, else threads with a note

// **Errors**: those of open_device(); kUnsupported when kUring is asked for and not to be had.
Result<std::unique_ptr<BlockDevice>> open_file_device(const std::string& path, const OpenOptions& options,
                                                      EngineChoice choice = EngineChoice::kBest);

// Checks requests, cuts them into pieces of max_transfer_bytes, continues short and interrupted pieces, and knows where
// the file ends. A request has one piece in flight at a time, so that max_in_flight bounds the engine's depth.
class FileDevice final : public BlockDevice {
 public:
  // `engine` works on file.fd with a depth of at least file.geometry.max_in_flight.
  FileDevice(OpenedFile file, std::unique_ptr<Engine> engine);
  ~FileDevice() override;

  const Geometry& geometry() const noexcept override { return file_.geometry; }
  const std::string& url() const noexcept override { return file_.url; }
  const std::string& notes() const noexcept override { return file_.notes; }
  const char* engine() const noexcept override { return engine_->name(); }
  std::size_t submit(std::span<const Request> requests) noexcept override;
  std::size_t poll(std::span<Completion> completions) noexcept override;
  int wait_descriptor() const noexcept override { return engine_->wait_descriptor(); }
  std::size_t in_flight() const noexcept override { return in_flight_; }
  void register_memory(std::span<std::byte> memory) noexcept override;

 private:
  struct Slot {
    Request request;
    std::uint32_t done_bytes = 0;
    std::uint32_t retries = 0;  // in a row without progress
    int error = 0;              // decided before anything was transferred
    bool direct = false;        // the piece in flight was issued with O_DIRECT on
  };

  int check(const Request& request) noexcept;
  bool reaches_past_end(std::uint64_t end_bytes) noexcept;
  void issue(std::uint32_t token) noexcept;
  // Takes a piece's result. True: the request is finished and slot.error is final. False: issue the next piece.
  bool advance(Slot& slot, int result) noexcept;
  bool advance_failed(Slot& slot, int error) noexcept;
  bool advance_at_end(Slot& slot) noexcept;
  bool retry(Slot& slot, int error) noexcept;
  bool drop_direct() noexcept;

  OpenedFile file_;
  std::unique_ptr<Engine> engine_;
  base::ForkGuard guard_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::size_t in_flight_ = 0;
};

}  // namespace dlfs::block
