// One poller's I/O: its own handle of every namespace's device, the requests there, and the buffers for them.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "block/device.h"
#include "target/buffer_pool.h"
#include "target/connection.h"

namespace dlfs::target {

// **Thread**: its poller's.
class Backend {
 public:
  // Opens all namespaces. **Errors**: of the devices.
  static Result<std::unique_ptr<Backend>> open(Registry& registry, std::size_t memory_bytes);
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // Answers at once, sends to a device, asks the host for its data, or waits for memory.
  void start(Connection& connection, const nvme::IoRequest& request);
  bool submit();  // what start() and poll() queued, one call a device; true when anything went
  bool poll();    // completions; true when there were any
  void forget(Connection& connection) noexcept;  // it has failed: what waits for memory waits no more
  void give_buffer(std::byte* buffer, std::size_t bytes) noexcept;

  bool in_flight() const noexcept { return in_flight_ > 0; }
  void watch(net::Poller& poller, std::uint64_t tag);  // so that completions end a sleep
  // Connections with something to send since the last call; each once.
  std::vector<Connection*>& answered() noexcept { return answered_; }
  void note(Connection& connection);

 private:
  struct Job {
    Connection* connection = nullptr;
    std::uint32_t id = 0, nsid = 0, length = 0;
    nvme::Opcode opcode = nvme::Opcode::kRead;
    std::byte* data = nullptr;
    std::uint64_t offset_bytes = 0, left_bytes = 0;           // left: of Write Zeroes, after this request
    bool flush_after = false, flushing = false, all = false;  // all: of a Flush, go on with the next namespace
  };
  struct Device {
    std::unique_ptr<block::BlockDevice> device;
    std::vector<block::Request> queue;
  };
  struct Waiting {
    Connection* connection;
    std::uint32_t id;
  };

  Backend(Registry& registry, std::size_t memory_bytes);
  bool try_start(Connection& connection, std::uint32_t id);  // false: no memory now
  void read(Connection& connection, Connection::Held& held);
  bool begin_write(Connection& connection, Connection::Held& held);
  void write_zeroes(Connection& connection, const nvme::IoRequest& request);
  void flush(Connection& connection, const nvme::IoRequest& request);
  std::byte* buffer_for(Connection& connection, Connection::Held& held, std::uint32_t length) noexcept;
  void retry_waiting();
  void queue(const Job& job, block::Op op);
  void next_zeroes(Job job);
  void finish(const Job& job, const block::Completion& completion);
  void count(const Job& job, bool ok) noexcept;
  Device& device(std::uint32_t nsid) noexcept { return devices_[nsid - 1]; }

  Registry& registry_;
  std::vector<Device> devices_;
  BufferPool pool_;
  std::size_t connection_limit_bytes_;
  std::vector<Job> jobs_;
  std::vector<std::uint32_t> free_jobs_;
  std::size_t in_flight_ = 0;  // jobs
  std::deque<Waiting> waiting_;
  std::vector<Connection*> answered_;
  std::unique_ptr<std::byte[]> zeros_storage_;
  std::byte* zeros_ = nullptr;
  bool freed_ = false;  // memory came back since the last look at waiting_
};

}  // namespace dlfs::target
